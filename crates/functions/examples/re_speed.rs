//! The cost of a packet to or from the other site: `cargo run --profile dist -p functions --example
//! re_speed`.
//!
//! With an argument such as `known-out-1400` only that line is measured, for valgrind:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!     target/dist/examples/re_speed known-out-1400 1000
//! ```
//!
//! counts the instructions of 1,000 packets, from the receipt by an end's graph to the release.
//! `new` packets repeat nothing, `known` packets repeat everything after their headers, and the
//! second half of `half` packets is known.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::time::{Duration, Instant};

use graph::{Graph, Options};
use nf::{Registry, Setup};
use packet::{Packet, PacketPool, Side, split_mix};
use serde_json::{Value, json};

const BATCH: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next();
    let packets: usize = arguments.next().map_or(64_000, |text| text.parse().unwrap());
    for kind in ["new", "half", "known"] {
        for direction in ["out", "in"] {
            for len in [200, 1400] {
                let name = format!("{kind}-{direction}-{len}");
                if only.as_ref().is_none_or(|only| *only == name) {
                    let taken = play(kind, direction == "out", len, packets);
                    println!("{name:16} {:8.0} ns a packet", taken.as_nanos() as f64 / packets as f64);
                }
            }
        }
    }
}

/// Sends packets of this length over a link; returns the time that one of its ends takes.
fn play(kind: &str, out: bool, len: usize, packets: usize) -> Duration {
    let (mut here, mut there) = (end(1), end(2));
    let mut pool = PacketPool::new(4 * BATCH);
    let (mut batch, mut sent) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut taken = Duration::ZERO;
    let mut random = 7;
    // The known bytes: as much as would be sent in a second.
    let known: Vec<Vec<u8>> = (0..1_024).map(|_| bytes(&mut random, len - 28)).collect();
    let rounds = known.len() / BATCH + packets.div_ceil(BATCH);
    for round in 0..rounds {
        for i in 0..BATCH {
            let number = round * BATCH + i;
            let of = &known[number % known.len()];
            let payload = match kind {
                _ if number < known.len() => of.clone(),
                "new" => bytes(&mut random, len - 28),
                "half" => [&bytes(&mut random, of.len() / 2)[..], &of[of.len() / 2..]].concat(),
                _ => of.clone(),
            };
            batch.push(packet(&mut pool, &payload, number as u64));
        }
        let measures = round * BATCH >= known.len();
        taken += run(&mut here, &mut batch, &mut sent, &mut pool, measures && out);
        batch.append(&mut sent);
        // Packets that leave one end's outside enter the other's.
        taken += run(&mut there, &mut batch, &mut sent, &mut pool, measures && !out);
        let arrived = sent.iter().filter(|packet| packet.meta().transit.side == Side::Inside).count();
        assert_eq!(arrived, BATCH, "none is dropped");
        sent.drain(..).for_each(|packet| pool.give(packet));
    }
    taken
}

fn run(
    graph: &mut Graph,
    batch: &mut Vec<Packet>,
    sent: &mut Vec<Packet>,
    pool: &mut PacketPool,
    measures: bool,
) -> Duration {
    if measures {
        return measured(graph, batch, sent, pool);
    }
    graph.process(batch, sent, pool);
    Duration::ZERO
}

#[inline(never)]
fn measured(
    graph: &mut Graph,
    batch: &mut Vec<Packet>,
    sent: &mut Vec<Packet>,
    pool: &mut PacketPool,
) -> Duration {
    let start = Instant::now();
    graph.process(batch, sent, pool);
    start.elapsed()
}

fn bytes(random: &mut u64, len: usize) -> Vec<u8> {
    (0..len).map(|_| split_mix(random) as u8).collect()
}

fn end(site: usize) -> Graph {
    let networks = |site| json!([format!("10.{site}.0.0/16")]);
    let config =
        json!({ "local_networks": networks(site), "remote_networks": networks(3 - site), "patience": 0 });
    let registry: Registry<Value> = functions::registry();
    let stage = registry.find("re").unwrap().make(&config, Setup::new(7, 1_024)).unwrap();
    Graph::new(vec![stage], Options { flows_max: 1_024, ..Options::default() }).unwrap()
}

/// Builds a UDP packet of one of 64 flows.
fn packet(pool: &mut PacketPool, payload: &[u8], number: u64) -> Packet {
    let len = payload.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((len + 28).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 7, 10, 2, 0, 7, 0x13, (number % 64) as u8, 0, 53]);
    frame.extend((len + 8).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    let mut packet = pool.take(&frame).unwrap();
    packet.meta_mut().transit.timestamp_ns = 1_700_000_000_000_000_000 + number * 1_000;
    packet.meta_mut().transit.side = Side::Inside;
    packet
}
