//! The firewall's output does not depend on batches, and is the same in every run.

use crate::firewall_support::*;
use packet::{Packet, Side, split_mix};
use serde_json::json;

/// Returns mixed traffic of a few hosts from both sides: connections, strays, pings, errors.
fn traffic(count: usize, seed: u64) -> Vec<(Side, Vec<u8>)> {
    let mut state = seed;
    let mut below = |limit: u64| split_mix(&mut state) % limit;
    let mut last = udp((IN, 1), (OUT, 2));
    (0..count)
        .map(|_| {
            let inside = format!("10.0.0.{}", below(4));
            let outside = format!("192.0.2.{}", below(4));
            let (client, server) =
                ((inside.as_str(), 1000 + below(3) as u16), (outside.as_str(), 80 + below(3) as u16));
            let out = below(2) == 0;
            let (from, to) = if out { (client, server) } else { (server, client) };
            let flags = [SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST, 0][below(8) as usize];
            let (seq, ack) = (below(9_000) as u32, below(9_000) as u32);
            let frame = match below(10) {
                0..=5 => tcp(from, to, flags, seq, ack, below(200) as usize),
                6 | 7 => udp(from, to),
                8 => icmp(from.0, to.0, [8, 0, 13][below(3) as usize], below(2) as u16),
                _ => unreachable(from.0, to.0, &last),
            };
            last.clone_from(&frame);
            (if out { Side::Inside } else { Side::Outside }, frame)
        })
        .collect()
}

/// Returns the output of a firewall: packets with the side that they leave by, alerts, counters.
fn run(config: &serde_json::Value, traffic: &[(Side, Vec<u8>)], batch_len: usize) -> String {
    let mut bench = Bench::json(config.clone());
    let mut sent: Vec<Packet> = Vec::new();
    let mut out = String::new();
    for (number, part) in traffic.chunks(batch_len).enumerate() {
        let start_ns = (number * batch_len) as u64 * 1_000_000;
        let mut batch = Vec::new();
        for (i, (side, frame)) in part.iter().enumerate() {
            batch.push(packet_of(&mut bench.pool, *side, frame, start_ns + i as u64 * 1_000_000));
        }
        bench.graph.process(&mut batch, &mut sent, &mut bench.pool);
        for packet in sent.drain(..) {
            let meta = packet.meta();
            out += &format!(
                "{:?} {} {:x} {:02x?}\n",
                meta.transit.side,
                meta.transit.sequence,
                meta.transit.tags,
                packet.data()
            );
            bench.pool.give(packet);
        }
    }
    for alert in &bench.graph.effects_mut().alerts {
        out += &format!("{alert:?}\n");
    }
    let stage = &bench.graph.stages()[0];
    out + &format!("{:?} {:?} {:?}", stage.counters(), stage.shared().counters, bench.graph.counters().drops)
}

fn compare(config: serde_json::Value) {
    for seed in 0..8 {
        let traffic = traffic(1_500, seed);
        let want = run(&config, &traffic, 1);
        for batch_len in [2, 7, 32, 256] {
            let got = run(&config, &traffic, batch_len);
            let line = want.lines().zip(got.lines()).position(|(want, got)| want != got);
            assert!(got == want, "seed {seed}, batches of {batch_len}: other lines from {line:?} on");
        }
    }
}

const RULES: &str = "deny state invalid log
allow out to any port 80-81 tag 1
reject out log
allow in tcp to 10.0.0.1 flags SYN,!ACK log
allow icmp icmp_type 8
reject in from 192.0.2.1
deny";

#[test]
fn output_does_not_depend_on_batches() {
    compare(json!({ "rules": RULES }));
    compare(json!({ "rules": RULES, "pickup": "drop" }));
}

#[test]
fn stateless_output_does_not_depend_on_batches() {
    compare(json!({ "rules": RULES, "stateful": false }));
}

#[test]
fn strict_tracking_does_not_depend_on_batches() {
    compare(json!({ "rules": RULES, "tcp": "strict" }));
}
