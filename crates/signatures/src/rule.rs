//! A rule as values.

use std::sync::Arc;

use crate::flow::{Flow, Flowbit, Flowint, Xbit};
use crate::group::{Addresses, Ports};
use crate::limit::{DetectionFilter, Tag, Threshold};
use crate::packet::PacketTest;
use crate::payload::{BufferMatches, Match};
use crate::protocol::{Protocol, ProtocolTest};

/// The priority of a rule that has neither a `priority` nor a `classtype`.
pub const DEFAULT_PRIORITY: u8 = 3;
/// The group of a rule without a `gid`.
pub const DEFAULT_GID: u32 = 1;

/// One rule. It matches where its header, its flow, and *all* tests of every kind hold; then its
/// actions are carried out: flowbits and the like are set, and the packet is treated and reported
/// as [`Rule::action`] says.
///
/// [`std::fmt::Display`] prints the rule in one line of the language; read again, that gives an
/// equal rule. What was written in older words is printed in the newer ones, and variables of the
/// header as what they stood for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What to do where the rule matches.
    pub action: Action,
    /// To which packets or streams it applies.
    pub protocol: Protocol,
    /// Where they come from. Shared among the rules that name one and the same variable.
    pub source: Arc<Addresses>,
    /// From which ports; `any` also for what has no ports.
    pub source_ports: Arc<Ports>,
    /// Which way the header is meant.
    pub direction: Direction,
    /// Where they go to.
    pub destination: Arc<Addresses>,
    /// To which ports.
    pub destination_ports: Arc<Ports>,

    /// What to tell people. Empty if the rule does not say.
    pub msg: String,
    /// The rule's number in its group.
    pub sid: u32,
    /// The group; [`DEFAULT_GID`] if the rule does not say.
    pub gid: u32,
    /// The revision; 0 if the rule does not say.
    pub rev: u32,
    /// The name of the class.
    pub classtype: Option<String>,
    /// From 1, the highest, to 255: as the rule says, else its class, else [`DEFAULT_PRIORITY`].
    pub priority: u8,
    /// Where there is more to read.
    pub references: Vec<Reference>,
    /// Keys and values, in the order of the rule; a key may come again. A key alone has an empty
    /// value.
    pub metadata: Vec<(String, String)>,
    /// Which end is attacked.
    pub target: Option<Target>,
    /// Whether a match is reported. `noalert` and `flowbits:noalert` say that it is not; a
    /// [`Action::Pass`] rule reports only with the keyword `alert`.
    pub alerts: bool,

    /// What is asked of the flow and the packet's place in it.
    pub flow: Flow,
    /// What is asked of the packet's headers and size.
    pub packet: Vec<PacketTest>,
    /// What is asked of the application protocol.
    pub application: Vec<ProtocolTest>,
    /// What is asked of the payload and of what is cut out of it, buffer by buffer.
    pub buffers: Vec<BufferMatches>,
    /// The names of the variables that [`Match::ByteExtract`] and [`Match::ByteMath`] set;
    /// [`crate::Variable`] is an index into it.
    pub variables: Vec<String>,

    /// Tests and changes of the flow's marks, in the order of the rule. Tests come before changes
    /// when they are carried out, and changes happen only where the whole rule matches.
    pub flowbits: Vec<Flowbit>,
    /// Tests and changes of the flow's numbers, likewise.
    pub flowints: Vec<Flowint>,
    /// Tests and changes of marks of addresses, likewise.
    pub xbits: Vec<Xbit>,
    /// How many of the matches are reported.
    pub threshold: Option<Threshold>,
    /// How many matches there must be before the first counts.
    pub detection_filter: Option<DetectionFilter>,
    /// Which packets to record after a match.
    pub tags: Vec<Tag>,
}

impl Rule {
    /// The content that a search for many patterns at once should look for: the one marked
    /// `fast_pattern`, else the one that is likely to be rare. Gives the indices of the buffer in
    /// [`Rule::buffers`] and of the match in it; none if the rule has no content that will do.
    ///
    /// Negated contents are never chosen, marked or not, as finding one rules nothing in. Without a
    /// mark: those in the buffers that come first (application buffers; then the payload and
    /// `http.stat_msg`; then `http.method` and `http.stat_code`); of them the longest, then the
    /// most varied, then the first.
    // Suricata user guide, "Suricata Fast Pattern Determination Explained".
    pub fn fast_pattern(&self) -> Option<(usize, usize)> {
        let mut best = None;
        for (b, buffer) in self.buffers.iter().enumerate() {
            for (m, one) in buffer.matches.iter().enumerate() {
                let Match::Content(content) = one else { continue };
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

/// What to do with a packet, and with the rest of its flow, where a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Report.
    Alert,
    /// No other rule is to look at it.
    Pass,
    /// Drop it, and report.
    Drop,
    /// Drop it, answer with a TCP reset or ICMP unreachable, and report.
    Reject(Rejected),
}

/// Who gets the answer of [`Action::Reject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rejected {
    /// The packet's sender: `reject`, `rejectsrc`.
    Source,
    /// Its receiver: `rejectdst`.
    Destination,
    /// Both: `rejectboth`.
    Both,
}

/// Which way a header is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `->`: from source to destination.
    Forward,
    /// `<>`: as if there were two rules, this one and one with both ends exchanged (addresses and
    /// ports together). It says nothing of who is client and who is server: [`Flow::direction`]
    /// still holds as written, for both.
    Both,
}

/// Where there is more to read: `reference:cve,2014-0160`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The system, in lower case: `url`, `cve`, ...
    pub system: String,
    /// The identifier in it.
    pub id: String,
}

/// Which end of the packet that matched is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// `src_ip`: the one that sent the packet.
    Source,
    /// `dest_ip`: the one that receives it.
    Destination,
}
