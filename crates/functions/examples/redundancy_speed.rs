//! The cost of a measured segment of a known flow: `cargo run --profile dist -p functions --example
//! redundancy_speed`.
//!
//! With an argument such as `known-1460` only that line is measured, for valgrind:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!     target/dist/examples/redundancy_speed known-1460 1024
//! ```
//!
//! counts the instructions of 1,024 segments, from the receipt by the graph to the release. `new`
//! segments repeat nothing, `known` segments repeat everything. With `none`, the graph reassembles
//! the streams anyway, and the meter ignores them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::time::{Duration, Instant};

use graph::{Graph, Options};
use nf::{Registry, Setup};
use packet::{Packet, PacketPool, Side, split_mix};
use serde_json::{Value, json};

const BATCH: usize = 64;
const FLOWS: usize = 64;
/// Repeated bytes.
const KNOWN: usize = 1 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next();
    let segments: usize = arguments.next().map_or(64 * 1_024, |text| text.parse().unwrap());
    for kind in ["none", "new", "known"] {
        for len in [200, 1460] {
            let name = format!("{kind}-{len}");
            if only.as_ref().is_none_or(|only| *only == name) {
                let taken = play(kind, len, segments).as_nanos() as f64 / segments as f64;
                println!("{name:16} {taken:8.0} ns a segment, {:6.2} ns a byte", taken / len as f64);
            }
        }
    }
}

/// Sends segments of this length through a graph; returns the time taken.
fn play(kind: &str, len: usize, segments: usize) -> Duration {
    let mut graph = graph(kind);
    let mut pool = PacketPool::new(4 * BATCH);
    let (mut batch, mut sent) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let (mut taken, mut random) = (Duration::ZERO, 7);
    let known: Vec<u8> = bytes(&mut random, KNOWN);
    let mut said = [0; FLOWS];
    // All flows send the known bytes once.
    let warm_up = (FLOWS * KNOWN / len).div_ceil(BATCH);
    for round in 0..warm_up + segments.div_ceil(BATCH) {
        for number in round * BATCH..(round + 1) * BATCH {
            let said = &mut said[number % FLOWS];
            let from = *said % (KNOWN - len);
            let payload = match kind {
                "new" if round >= warm_up => bytes(&mut random, len),
                _ => known[from..from + len].to_vec(),
            };
            batch.push(segment(&mut pool, &payload, number as u64, *said));
            *said += len;
        }
        if round < warm_up {
            graph.process(&mut batch, &mut sent, &mut pool);
        } else {
            taken += measured(&mut graph, &mut batch, &mut sent, &mut pool);
        }
        assert_eq!(sent.len(), BATCH, "none is dropped");
        sent.drain(..).for_each(|packet| pool.give(packet));
    }
    taken
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

fn graph(kind: &str) -> Graph {
    // Flows on other than the configured ports are ignored.
    let ports: &[u16] = if kind == "none" { &[1] } else { &[] };
    let registry: Registry<Value> = functions::registry();
    let config = json!({ "ports": ports });
    let stage = registry.find("redundancy").unwrap().make(&config, Setup::new(7, 1_024)).unwrap();
    Graph::new(vec![stage], Options { flows_max: 1_024, ..Options::default() }).unwrap()
}

/// Builds a segment of one of the flows, at this offset of its stream.
fn segment(pool: &mut PacketPool, payload: &[u8], number: u64, place: usize) -> Packet {
    let len = payload.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((len + 40).to_be_bytes());
    frame.extend([
        0,
        0,
        0x40,
        0,
        64,
        6,
        0,
        0,
        10,
        1,
        0,
        7,
        10,
        2,
        0,
        7,
        0x13,
        (number % FLOWS as u64) as u8,
        0,
        80,
    ]);
    frame.extend((place as u32).to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(payload);
    let mut packet = pool.take(&frame).unwrap();
    packet.meta_mut().transit.timestamp_ns = 1_700_000_000_000_000_000 + number * 1_000;
    packet.meta_mut().transit.side = Side::Inside;
    packet
}
