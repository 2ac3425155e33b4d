//! Measures a packet that is encapsulated or decapsulated: `cargo run --profile dist -p functions
//! --example vpn_speed`.
//!
//! With an argument such as `esp-out-1400`, it runs only that case, for valgrind:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!     target/dist/examples/vpn_speed esp-out-1400 1000
//! ```
//!
//! This counts the instructions of 1,000 packets, from input to output of a gateway's graph.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::time::{Duration, Instant};

use graph::{Graph, Options};
use nf::{Registry, Setup};
use packet::{Packet, PacketPool, Side};
use serde_json::{Value, json};

const BATCH: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next();
    let packets: usize = arguments.next().map_or(64_000, |text| text.parse().unwrap());
    for protocol in ["ah", "esp_null", "esp", "esp256"] {
        for direction in ["out", "in"] {
            for len in [64, 1400] {
                let name = format!("{protocol}-{direction}-{len}");
                if only.as_ref().is_none_or(|only| *only == name) {
                    let taken = play(protocol, direction == "out", len, packets);
                    println!("{name:16} {:8.0} ns a packet", taken.as_nanos() as f64 / packets as f64);
                }
            }
        }
    }
}

/// Sends `packets` packets of this length through a gateway, into its tunnel or out of it.
fn play(protocol: &str, out: bool, len: usize, packets: usize) -> Duration {
    let (mut here, mut there) = (gateway(protocol, 1), gateway(protocol, 2));
    let mut pool = PacketPool::new(2 * BATCH);
    let (mut batch, mut sent) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut taken = Duration::ZERO;
    for round in 0..packets.div_ceil(BATCH) {
        batch.extend((0..BATCH).map(|i| packet(&mut pool, len, (round * BATCH + i) as u64)));
        let first = if out {
            measured(&mut here, &mut batch, &mut sent, &mut pool)
        } else {
            sends(&mut here, &mut batch, &mut sent, &mut pool)
        };
        batch.append(&mut sent);
        // Output on one gateway's outside is input on the other's.
        let second =
            if out { Duration::ZERO } else { measured(&mut there, &mut batch, &mut sent, &mut pool) };
        assert_eq!(batch.len() + sent.len(), BATCH, "none is dropped");
        batch.drain(..).chain(sent.drain(..)).for_each(|packet| pool.give(packet));
        taken += first + second;
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

#[inline(never)]
fn sends(
    graph: &mut Graph,
    batch: &mut Vec<Packet>,
    sent: &mut Vec<Packet>,
    pool: &mut PacketPool,
) -> Duration {
    graph.process(batch, sent, pool);
    Duration::ZERO
}

fn gateway(protocol: &str, site: usize) -> Graph {
    let len = match protocol {
        "esp" => 20,
        "esp256" => 36,
        _ => 32,
    };
    let sa = |of: usize| json!({ "spi": 999, "key": format!("{of:02x}").repeat(len) });
    let other = 3 - site;
    let config = json!({ "tunnels": [{
        "name": "t", "protocol": protocol.trim_end_matches("256"),
        "local": format!("192.0.2.{site}"), "remote": format!("192.0.2.{other}"),
        "local_networks": [format!("10.{site}.0.0/16")], "remote_networks": [format!("10.{other}.0.0/16")],
        "outbound": sa(site), "inbound": [sa(other)],
    }] });
    let registry: Registry<Value> = functions::registry();
    let stage = registry.find("vpn").unwrap().make(&config, Setup::new(7, 1_024)).unwrap();
    Graph::new(vec![stage], Options { flows_max: 1_024, ..Options::default() }).unwrap()
}

/// Builds an IP packet of this length, in one of 64 flows.
fn packet(pool: &mut PacketPool, len: usize, number: u64) -> Packet {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((len as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 7, 10, 2, 0, 7, 0x13, (number % 64) as u8, 0, 53]);
    frame.extend((len as u16 - 20).to_be_bytes());
    frame.resize(14 + len, 0);
    let mut packet = pool.take(&frame).unwrap();
    packet.meta_mut().transit.timestamp_ns = 1_700_000_000_000_000_000 + number * 1_000;
    packet.meta_mut().transit.side = Side::Inside;
    packet
}
