//! A slow oracle for the function `ids`: from what a chain showed of each packet, which rules are
//! to report on it.
//!
//! It follows the function's README sentence by sentence, rule by rule and byte by byte, with
//! nothing of the function in it. HTTP and streams it reads by itself: the chain is taken for which
//! flow a packet is of, and for how bytes come in pieces, whose bytes are compared with its own.
//! Where the README leaves something open, what is taken here is said in [`ASSUMPTIONS`].
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

/// What is taken where the README does not say.
pub const ASSUMPTIONS: [&str; 15] = [
    "a handshake is over with the client's first acknowledgement behind the server's SYN",
    "a rule with a packet test is looked at on packets only, also if it has a depth",
    "tcp-stream and only_stream rules are not looked at on packets",
    "the protocol of a flow is sought in a piece before the piece is looked at; on a packet before its piece",
    "a candidate that holds is none any more, also if the rule had acted on that packet already",
    "a candidate whose anchor is found again counts from the later occurrence",
    "an anchor is the part that fast_pattern:offset,length names",
    "the cursor is at the window's beginning before the first match, and expressions begin there",
    "isdataat, byte_test and byte_jump that are not relative count from the stream's beginning, too",
    "of a body so many bytes as sent are kept, then codings are undone, and of the result as many looked at",
    "http.header, http.header.raw, http.header_names exist if there is a header; parts of first lines if not empty",
    "a header of both or of requests only is one of Suricata's kind: user agent, host, referer, accept of requests",
    "thresholds and filters count in windows that begin with their first match",
    "a packet that is dropped is looked at by the other rules, too",
    "a datagram holds a DNS message if its flow is known to be DNS and its own header is plausible",
];

/// What rules are to report.
pub struct Oracle {
    rules: Vec<Prepared>,
    unsupported: Vec<(u32, u32, String)>,
}

/// What the oracle found, and where it does not know.
#[derive(Debug, Default)]
pub struct Findings {
    /// In order.
    pub alerts: Vec<Alerted>,
    /// Packets whose alerts are not to be compared: of flows in which something is not said well
    /// enough.
    pub vague: BTreeSet<u64>,
    /// What whole streams hold, against windows of them.
    pub whole: Whole,
}

impl Oracle {
    /// An oracle for these rules.
    pub fn new(loaded: &[signatures::Loaded]) -> Oracle {
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

    /// Rules that cannot be judged here, by group, number and reason.
    pub fn unsupported(&self) -> &[(u32, u32, String)] {
        &self.unsupported
    }

    /// How many rules are judged.
    pub fn supported(&self) -> usize {
        self.rules.len()
    }

    /// What is to be reported of these packets, which came in this order.
    pub fn alerts(&self, packets: &[Observed]) -> Vec<Alerted> {
        self.findings(packets).alerts
    }

    /// The same, with what is not known.
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
