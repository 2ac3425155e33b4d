//! `ids` in a graph: rules and packets in, reports by packet out.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use packet::{Endpoint, Side};
use serde_json::{Value, json};

pub use crate::http_support::{
    ACK, Arrival, Bench, Client, FIN, MS_NS, RST, SECOND_NS, SYN, Server, Talk, Who, batches_change_nothing,
    bench, checksums_are_right, conversations, counter, echo, moving, tcp, udp, v4, v6,
};

/// The gid of alerts without a rule.
pub const OWN_GROUP: u32 = 900;

/// The result of a run.
pub struct Seen {
    /// Reports in order: the packet's number from 1, or 0 for a flow's end, and the rule's sid.
    pub reported: Vec<(u64, u32)>,
    /// Packets that left.
    pub sent: usize,
    pub drops: Vec<(&'static str, u64)>,
    /// Bytes of streams and messages that did not fit.
    pub refused_bytes: u64,
    pub bench: Bench,
}

/// Returns the configuration with these rules; all must load.
pub fn config(rules: &str, more: Value) -> Value {
    let mut config = json!({ "rules": rules, "unsupported": "refuse" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

/// Returns a graph of `ids` with these rules.
pub fn ids(rules: &str) -> Bench {
    bench("ids", &config(rules, json!({})))
}

/// Inspects packets one by one with these rules, and ends all flows.
pub fn watch(rules: &str, packets: &[Arrival]) -> Seen {
    watch_with(rules, json!({}), packets)
}

/// Returns the same with further configuration.
pub fn watch_with(rules: &str, more: Value, packets: &[Arrival]) -> Seen {
    let mut bench = bench("ids", &config(rules, more));
    packets.iter().for_each(|packet| bench.batch(std::slice::from_ref(packet)));
    end(bench)
}

/// Ends all flows, after which no memory is in use.
pub fn end(mut bench: Bench) -> Seen {
    let sent = bench.sent.len();
    assert!(bench.graph.finish(&mut bench.pool));
    bench.batch(&[]);
    let buffers = bench.graph.stages()[0].shared().buffers.as_ref().unwrap();
    assert_eq!(buffers.used_bytes(), 0, "bytes of flows that are over");
    let refused_bytes = buffers.refused_bytes();
    let packet = |alert: &nf::Alert| if alert.has_packet { alert.sequence + 1 } else { 0 };
    let is_rules = |alert: &&nf::Alert| alert.detail.as_ref().is_none_or(|detail| detail.group != OWN_GROUP);
    let reported = bench.alerts.iter().filter(is_rules);
    let reported = reported.map(|alert| (packet(alert), alert.signature_id)).collect();
    Seen { reported, sent, drops: bench.drops(), refused_bytes, bench }
}

impl Seen {
    /// Returns the reported rules, in order.
    pub fn rules(&self) -> Vec<u32> {
        self.reported.iter().map(|(_, rule)| *rule).collect()
    }

    /// Returns one of the function's counters.
    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.bench, name)
    }
}

/// Returns the reported rules, in order, for these turns on port 80.
pub fn reported(rules: &str, said: &[(Who, &[u8])]) -> Vec<u32> {
    let mut talk = Talk::open(80);
    said.iter().for_each(|(who, bytes)| talk.piece(*who, bytes));
    watch(rules, &talk.segments).rules()
}

/// Returns a response with these header lines and this body.
pub fn response(headers: &str, body: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\n", headers.as_bytes(), b"\r\n", body].concat()
}

/// Returns a response with a body of this length.
pub fn page(body: &[u8]) -> Vec<u8> {
    response(&format!("Content-Length: {}\r\n", body.len()), body)
}

/// Returns a datagram from a host to a server's port, at this time.
pub fn datagram(at_ns: u64, host: u8, port: u16, payload: &[u8]) -> Arrival {
    let network = udp(host_end(host), v4(192, 0, 2, 1, port), payload);
    Arrival { at_ns, side: Side::Inside, network }
}

/// Returns the endpoint of a host.
pub fn host_end(host: u8) -> Endpoint {
    v4(10, 0, 0, host, 5_000)
}
