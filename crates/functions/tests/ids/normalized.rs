//! In line: packets are changed, not dropped, so that hosts read them in one way only.

use graph::Options;
use graph::streams::{Differing, LowTtl, StreamOptions};
use packet::checksum::{finish, sum};
use serde_json::json;

use crate::ids_support::*;
use crate::meter_support::{options, stage};

const RULES: &str = r#"alert tcp any any -> any any (msg:"stream"; content:"evil"; sid:1;)"#;

fn in_line(streams: StreamOptions, packets: &[Arrival]) -> Seen {
    let function = stage("ids", &config(RULES, json!({})));
    let mut bench = Bench::new(vec![function], Options { streams, ..options() });
    packets.iter().for_each(|packet| bench.batch(std::slice::from_ref(packet)));
    end(bench)
}

/// Returns a connection over IPv4 or IPv6.
fn talk(is_v6: bool) -> Talk {
    let (client, server) = match is_v6 {
        false => (v4(10, 0, 0, 1, 40_000), v4(192, 0, 2, 1, 80)),
        true => (v6(1, 40_000), v6(2, 80)),
    };
    let mut talk = Talk::between(client, server);
    talk.handshake();
    talk
}

/// Returns the offset of the time to live.
fn ttl_at(network: &[u8]) -> usize {
    if network[0] >> 4 == 4 { 8 } else { 7 }
}

/// Sets the time to live of the last segment.
fn lives(talk: &mut Talk, ttl: u8) {
    let network = &mut talk.segments.last_mut().unwrap().network;
    let at = ttl_at(network);
    network[at] = ttl;
    if at == 8 {
        network[10..12].fill(0);
        let checksum = finish(sum(&network[..20]));
        network[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[test]
fn low_ttls_are_raised_if_configured() {
    for is_v6 in [false, true] {
        let mut talk = talk(is_v6);
        talk.says(Client, "evil");
        lives(&mut talk, 2);
        talk.says(Client, "more");
        let dropped = in_line(StreamOptions::default(), &talk.segments);
        assert_eq!((dropped.rules(), &dropped.drops[..]), (vec![], &[("stream-ignored", 1)][..]));
        let options = StreamOptions { low_ttl: LowTtl::Raise, ttl_min: Some(9), ..StreamOptions::default() };
        let raised = in_line(options, &talk.segments);
        assert_eq!((raised.rules(), raised.drops.len()), (vec![1], 0));
        assert_eq!(raised.bench.graph.counters().streams.raised, 1);
        let sent = &raised.bench.sent[3].2[14..];
        assert_eq!(sent[ttl_at(sent)], 9);
        assert!(checksums_are_right(sent));
        assert_eq!(raised.bench.sent[4].2[14..], talk.segments[4].network, "others are not changed");
    }
}

#[test]
fn differing_retransmissions_are_replaced_if_configured() {
    for is_v6 in [false, true] {
        let mut talk = talk(is_v6);
        talk.says(Client, "good b");
        let mut other = talk.clone();
        talk.says(Client, "ytes");
        // More than was sent before.
        talk.segments.push(other.says(Client, "evil and more").segments.pop().unwrap());
        let dropped = in_line(StreamOptions::default(), &talk.segments);
        assert_eq!((dropped.rules(), &dropped.drops[..]), (vec![], &[("stream-differs", 1)][..]));
        let options = StreamOptions { differing: Differing::Replace, ..StreamOptions::default() };
        let replaced = in_line(options, &talk.segments);
        assert_eq!((replaced.rules(), replaced.drops.len()), (vec![], 0));
        let streams = replaced.bench.graph.counters().streams;
        assert_eq!((streams.replaced, streams.differing), (1, 1));
        let sent = &replaced.bench.sent.last().unwrap().2[14..];
        assert!(checksums_are_right(sent));
        assert!(sent.ends_with(b"ytes and more"), "{:?}", String::from_utf8_lossy(sent));
    }
}
