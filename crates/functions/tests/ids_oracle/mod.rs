//! A slow oracle for `ids`: from a graph's view of each packet, it derives which rules must report
//! on it.
//!
//! It follows the function's README sentence by sentence, rule by rule and byte by byte, and shares
//! nothing with the function. It parses HTTP and reassembles streams by itself. It trusts the graph
//! only for the flow of a packet and for the boundaries of stream pieces; it compares their bytes
//! with its own. [`ASSUMPTIONS`] lists its assumptions where the README is silent.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

pub mod application;
pub mod buffer;
pub mod dns;
mod flow;
pub mod header;
pub mod http;
pub mod lenient;
mod limit;
pub mod lines;
pub mod parting;
pub mod plant;
pub mod prepared;
pub mod reassembly;
pub mod segments;
pub mod shared;
pub mod tls;
pub mod uri;
pub mod whole;
pub mod witness;

use std::collections::{BTreeSet, HashMap};

use flow::FlowState;
use limit::Counts;
use prepared::Prepared;
use whole::Whole;
#[allow(unused_imports, reason = "each test uses a part")]
pub use witness::{Frame, Observed, Witness};

/// A rule that reported on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alerted {
    pub packet: u64,
    pub gid: u32,
    pub sid: u32,
}

/// The assumptions where the README is silent.
pub const ASSUMPTIONS: [&str; 15] = [
    "a handshake ends with the client's first acknowledgement after the server's SYN",
    "a rule with a packet test is inspected on packets only, even if it has a depth",
    "tcp-stream and only_stream rules are not inspected on packets",
    "the protocol of a flow is detected in a piece before the piece is inspected; on a packet before its piece",
    "a candidate that matches is removed, even if the rule had acted on that packet already",
    "a candidate whose anchor is found again counts from the later occurrence",
    "an anchor is the part that fast_pattern:offset,length names",
    "the cursor is at the window's beginning before the first match, and expressions begin there",
    "isdataat, byte_test and byte_jump that are not relative count from the stream's beginning, too",
    "the limit applies to the sent bytes of a body, and again to the decoded bytes",
    "http.header, http.header.raw, http.header_names exist if there is a header; parts of first lines if not empty",
    "the direction of a header's buffer is Suricata's: user agent, host, referer, accept are of requests only",
    "thresholds and filters count in windows that begin with their first match",
    "a dropped packet is inspected by the other rules, too",
    "a datagram holds a DNS message if its flow is known to be DNS and its own header is plausible",
];

/// The expected reports.
pub struct Oracle {
    rules: Vec<Prepared>,
    unsupported: Vec<(u32, u32, String)>,
}

/// The oracle's reports, and the packets that it cannot judge.
#[derive(Debug, Default)]
pub struct Findings {
    /// In order.
    pub alerts: Vec<Alerted>,
    /// Packets with reports that must not be compared: of flows with unspecified behaviour.
    pub vague: BTreeSet<u64>,
    /// Matches of whole streams, against windows of them.
    pub whole: Whole,
}

impl Oracle {
    /// Creates an oracle for these rules.
    pub fn new(loaded: &[signatures::LoadedRule]) -> Oracle {
        let mut oracle = Oracle { rules: Vec::new(), unsupported: Vec::new() };
        for (place, loaded) in loaded.iter().enumerate() {
            match Prepared::new(&loaded.rule, place) {
                Ok(rule) => oracle.rules.push(rule),
                Err(why) => oracle.unsupported.push((loaded.rule.gid, loaded.rule.sid, why)),
            }
        }
        oracle.rules.sort_by_key(|rule| rule.order);
        oracle
    }

    /// Returns the rules that cannot be judged, by gid, sid and reason.
    pub fn unsupported(&self) -> &[(u32, u32, String)] {
        &self.unsupported
    }

    /// Returns the number of rules that are judged.
    pub fn supported(&self) -> usize {
        self.rules.len()
    }

    /// Returns the expected reports for these packets, in order of arrival.
    pub fn alerts(&self, packets: &[Observed]) -> Vec<Alerted> {
        self.findings(packets).alerts
    }

    /// Returns the same, with the unspecified packets.
    pub fn findings(&self, packets: &[Observed]) -> Findings {
        let (mut flows, mut counts) = (HashMap::<u64, FlowState>::new(), Counts::default());
        let mut findings = Findings::default();
        let rules = (&self.rules[..], self.unsupported.is_empty());
        for packet in packets {
            let flow = flows.entry(packet.flow).or_default();
            for rule in flow.packet(packet, rules, &mut counts, &mut findings.whole) {
                let rule = &self.rules[rule].rule;
                findings.alerts.push(Alerted { packet: packet.sequence, gid: rule.gid, sid: rule.sid });
            }
        }
        findings.alerts.sort();
        let vague = packets.iter().filter(|packet| flows[&packet.flow].is_vague_on(packet));
        findings.vague = vague.map(|packet| packet.sequence).collect();
        findings
    }
}
