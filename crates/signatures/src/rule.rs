//! Rules as values.

use std::sync::Arc;

use crate::flow::{FlowOptions, Flowbit, Flowint, Xbit};
use crate::group::{AddressSet, PortSet};
use crate::limit::{DetectionFilter, TagOption, Threshold};
use crate::packet::PacketTest;
use crate::payload::{BufferMatches, PayloadMatch};
use crate::protocol::{ProtocolTest, RuleProtocol};

/// The default priority without `priority` and `classtype`.
pub const DEFAULT_PRIORITY: u8 = 3;
/// The default gid.
pub const DEFAULT_GID: u32 = 1;

/// A rule. It matches if its header, its flow, and *all* its tests match; then its actions are
/// executed: flowbits and the like are set, and the packet is treated and reported as
/// [`Rule::action`] says.
///
/// [`std::fmt::Display`] prints the rule in one line that parses to an equal rule. It uses the
/// newer spellings, and prints the header's variables as their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The action.
    pub action: RuleAction,
    /// The packets or streams that it applies to.
    pub protocol: RuleProtocol,
    /// The source addresses. Rules that name the same variable share it.
    pub source: Arc<AddressSet>,
    /// The source ports; `any` also for protocols without ports.
    pub source_ports: Arc<PortSet>,
    /// The direction operator.
    pub direction: HeaderDirection,
    /// The destination addresses.
    pub destination: Arc<AddressSet>,
    /// The destination ports.
    pub destination_ports: Arc<PortSet>,

    /// The message for people; empty by default.
    pub msg: String,
    /// The number of the rule within its gid.
    pub sid: u32,
    /// The group; [`DEFAULT_GID`] by default.
    pub gid: u32,
    /// The revision; 0 by default.
    pub rev: u32,
    /// The name of the classification.
    pub classtype: Option<String>,
    /// From 1, the highest, to 255: the rule's own, or that of its classification, or
    /// [`DEFAULT_PRIORITY`].
    pub priority: u8,
    /// References to further information.
    pub references: Vec<RuleReference>,
    /// Keys and values in the order of the rule; keys may be repeated, and a lone key has an empty
    /// value.
    pub metadata: Vec<(String, String)>,
    /// The attacked endpoint.
    pub target: Option<AttackTarget>,
    /// True if a match is reported. `noalert` and `flowbits:noalert` disable it; a
    /// [`RuleAction::Pass`] rule reports only with the keyword `alert`.
    pub alerts: bool,

    /// Tests of the flow and of the packet's place in it.
    pub flow: FlowOptions,
    /// Tests of the packet's headers and size.
    pub packet: Vec<PacketTest>,
    /// Tests of the application protocol.
    pub application: Vec<ProtocolTest>,
    /// Tests of the payload and of its parts, by buffer.
    pub buffers: Vec<BufferMatches>,
    /// The names of the variables that [`PayloadMatch::ByteExtract`] and [`PayloadMatch::ByteMath`]
    /// set; [`crate::ByteVariable`] is an index into it.
    pub variables: Vec<String>,

    /// Tests and changes of flowbits, in the order of the rule. Tests are evaluated first; changes
    /// occur only if the whole rule matches.
    pub flowbits: Vec<Flowbit>,
    /// Tests and changes of flowints, in the same way.
    pub flowints: Vec<Flowint>,
    /// Tests and changes of xbits, in the same way.
    pub xbits: Vec<Xbit>,
    /// The limit of alerts.
    pub threshold: Option<Threshold>,
    /// The number of matches before the first one counts.
    pub detection_filter: Option<DetectionFilter>,
    /// The packets to record after a match.
    pub tags: Vec<TagOption>,
}

impl Rule {
    /// Returns the fast pattern: the content marked `fast_pattern`, or the content likely to be
    /// rarest. The result has the indices of the buffer in [`Rule::buffers`] and of the match in
    /// it; `None` if no content is suitable.
    ///
    /// Negated contents are never chosen, marked or not, because finding one does not rule the
    /// match in. Without a mark, the buffers with the lowest rank are considered (application
    /// buffers; then the payload and `http.stat_msg`; then `http.method` and `http.stat_code`); of
    /// their contents the longest, then the most varied, then the first is chosen.
    // Suricata user guide, "Suricata Fast Pattern Determination Explained".
    pub fn fast_pattern(&self) -> Option<(usize, usize)> {
        let mut best = None;
        for (b, buffer) in self.buffers.iter().enumerate() {
            for (m, one) in buffer.matches.iter().enumerate() {
                let PayloadMatch::Content(content) = one else { continue };
                if content.negated || !buffer.buffer.is_searchable() {
                    continue;
                }
                if content.fast_pattern.is_some() {
                    return Some((b, m));
                }
                let rank = (
                    std::cmp::Reverse(buffer.buffer.search_rank()),
                    content.pattern.len(),
                    content.variety(),
                );
                if best.is_none_or(|(other, _)| rank > other) {
                    best = Some((rank, (b, m)));
                }
            }
        }
        best.map(|(_, place)| place)
    }
}

/// The action on a packet, and on the rest of its flow, when a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleAction {
    /// Report.
    Alert,
    /// Stop inspecting the packet.
    Pass,
    /// Drop the packet, and report.
    Drop,
    /// Drop the packet, respond with a TCP reset or ICMP unreachable, and report.
    Reject(RejectTarget),
}

/// The recipient of a [`RuleAction::Reject`] response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RejectTarget {
    /// The sender of the packet: `reject`, `rejectsrc`.
    Source,
    /// The receiver of the packet: `rejectdst`.
    Destination,
    /// Both: `rejectboth`.
    Both,
}

/// The direction operator of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderDirection {
    /// `->`: from source to destination.
    Forward,
    /// `<>`: as if there were two rules, this one and one with both ends swapped (addresses and
    /// ports together). It does not determine client and server: [`FlowOptions::direction`] applies
    /// as written to both.
    Both,
}

/// A reference to further information: `reference:cve,2014-0160`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleReference {
    /// The system, in lower case: `url`, `cve`, ...
    pub system: String,
    /// The identifier within the system.
    pub id: String,
}

/// The attacked endpoint of the matching packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttackTarget {
    /// `src_ip`: the sender.
    Source,
    /// `dest_ip`: the receiver.
    Destination,
}
