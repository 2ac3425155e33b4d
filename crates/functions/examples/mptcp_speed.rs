//! The cost of a segment of a known flow: `cargo run --profile dist -p functions --example
//! mptcp_speed`.
//!
//! With an argument such as `copies` only that line is measured, for valgrind:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!     target/dist/examples/mptcp_speed copies 1024
//! ```
//!
//! counts the instructions of 1,024 segments, from the receipt by the graph to the release: of
//! plain TCP, of connections that send new data over two sub-flows in turn, and of such that send
//! `copies` of everything over the other sub-flow.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::time::{Duration, Instant};

use graph::{Graph, Options};
use nf::{Registry, Setup};
use packet::mptcp::MptcpVersion;
use packet::{Packet, PacketPool, Side};
use serde_json::{Value, json};

#[path = "../../graph/tests/support/multipath.rs"]
mod multipath;
#[path = "../../graph/tests/support/packets.rs"]
#[allow(dead_code)]
mod packets;

use multipath::{MultipathConnection, Subflow};

/// A batch has a segment of each connection.
const CONNECTIONS: usize = 64;
const BATCH: usize = CONNECTIONS;
/// Bytes of a segment.
const LEN: usize = 1_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next();
    let segments: usize = arguments.next().map_or(64 * 1_024, |text| text.parse().unwrap());
    for kind in ["plain", "new", "copies"] {
        if only.as_ref().is_none_or(|only| only == kind) {
            let taken = play(kind, segments).as_nanos() as f64 / segments as f64;
            println!("{kind:8} {taken:6.0} ns a segment");
        }
    }
}

/// Sends segments through a graph; returns the time taken.
fn play(kind: &str, segments: usize) -> Duration {
    let mut graph = graph();
    let mut pool = PacketPool::new(4 * BATCH);
    let (mut batch, mut sent) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut connections: Vec<_> = (0..CONNECTIONS).map(connection).collect();
    for (connection, subflows, _) in connections.iter().filter(|_| kind != "plain") {
        let handshakes = connection.begin(&subflows[0]).into_iter().chain(connection.join(&subflows[1], 0));
        for (number, packet) in handshakes.enumerate() {
            let side = if number % 3 == 1 { Side::Outside } else { Side::Inside };
            batch.push(arriving(&mut pool, side, &packet));
            graph.process(&mut batch, &mut sent, &mut pool);
            sent.drain(..).for_each(|packet| pool.give(packet));
        }
    }
    let (mut taken, warm_up) = (Duration::ZERO, 16);
    for round in 0..warm_up + segments.div_ceil(BATCH) {
        for (connection, subflows, offset) in &mut connections {
            let packet = connection.data(&mut subflows[round % 2], (0, 0), *offset, &[7; LEN]);
            *offset += if kind == "copies" && round % 2 == 0 { 0 } else { LEN as u32 };
            batch.push(arriving(&mut pool, Side::Inside, &packet));
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

fn graph() -> Graph {
    let registry: Registry<Value> = functions::registry();
    let stage = registry.find("mptcp").unwrap().make(&json!({}), Setup::new(7, 1_024)).unwrap();
    Graph::new(vec![stage], Options { flows_max: 1_024, ..Options::default() }).unwrap()
}

fn connection(number: usize) -> (MultipathConnection, [Subflow; 2], u32) {
    let server = packets::v4(192, 0, 2, 1, 443);
    let subflow = |path: u8| {
        let client = packets::v4(10, path, 0, number as u8, 40_000);
        Subflow::new(client, server, (2 * number + usize::from(path)) as u32)
    };
    (MultipathConnection::new(MptcpVersion::V1, number as u64), [0, 1].map(subflow), 0)
}

fn arriving(pool: &mut PacketPool, side: Side, network: &[u8]) -> Packet {
    let mut packet = pool.take(&packets::frame(network)).unwrap();
    packet.meta_mut().transit.timestamp_ns = 1_700_000_000_000_000_000;
    packet.meta_mut().transit.side = side;
    packet
}
