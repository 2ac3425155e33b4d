//! Measurements, not tests:
//! `cargo test --release -p functions --test behaviour firewall_cost -- --nocapture --ignored`.

use std::time::Instant;

use crate::firewall_support::*;
use packet::{Packet, Side};
use serde_json::json;

/// Measures 1,000 known flows through a firewall with 100 rules in batches of 32, and the same
/// packets through a function that does nothing.
#[test]
#[ignore = "prints figures"]
fn known_flows() {
    let rules: String =
        (0..99).map(|n| format!("deny udp from any to 198.51.100.{n} port {n}-1000\n")).collect();
    let rules = rules + "allow udp";
    for (what, config) in [
        ("loose", json!({ "rules": rules })),
        ("without state", json!({ "rules": rules, "stateful": false })),
    ] {
        let bench = Bench::json(config);
        println!("firewall, {what}: {} ns per packet", measure(bench));
    }
    let mut bench = Bench::json(json!({}));
    let idle = nf::stage::load::<Idle>((), nf::Setup::new(1, 4096)).unwrap();
    bench.graph =
        graph::Graph::new(vec![idle], graph::Options { flows_max: 4096, ..Default::default() }).unwrap();
    println!("a function that forwards: {} ns per packet", measure(bench));
}

fn measure(mut bench: Bench) -> u128 {
    const ROUNDS: u32 = 2_000;
    let mut packets: Vec<Packet> =
        (0..1_000u16).map(|n| Packet::from_bytes(&udp((IN, 10_000 + n), (OUT, 53)))).collect();
    let (mut batch, mut out) = (Vec::with_capacity(1_000), Vec::with_capacity(1_000));
    let mut best = u128::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        for _ in 0..ROUNDS / 5 {
            while !packets.is_empty() {
                let rest = packets.len().saturating_sub(32);
                batch.extend(packets.drain(rest..));
                for packet in &mut batch {
                    packet.meta_mut().transit.side = Side::Inside;
                    packet.meta_mut().transit.timestamp_ns = bench.now_ns;
                }
                bench.graph.process(&mut batch, &mut out, &mut bench.pool);
            }
            packets.append(&mut out);
            assert_eq!(packets.len(), 1_000);
        }
        best = best.min(started.elapsed().as_nanos() / u128::from(ROUNDS / 5) / 1_000);
    }
    best
}

/// A function that forwards every packet.
struct Idle;

impl nf::NetworkFunction for Idle {
    const DESCRIPTOR: &'static nf::Descriptor = &nf::Descriptor {
        name: "idle",
        attributes: &[],
        shared: &[],
        ..*<functions::firewall::Firewall as nf::NetworkFunction>::DESCRIPTOR
    };
    type Config = ();
    type State = [u8; 16];

    fn new(_: (), _: &mut nf::Setup) -> Result<Idle, values::ConfigError> {
        Ok(Idle)
    }

    fn process(
        &self,
        _packet: &mut nf::PacketView<'_>,
        _state: &mut [u8; 16],
        _context: &mut nf::Context<'_>,
    ) -> nf::Verdict {
        nf::Verdict::Forward
    }
}
