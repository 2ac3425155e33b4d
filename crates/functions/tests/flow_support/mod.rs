//! Common parts of tests that play one traffic to several graphs: functions with flows that share
//! only counters, and the outcome of a packet.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use graph::Graph;
use nf::stage::Stage;
use nf::{Alert, Registry, Setup};
use packet::{Packet, PacketPool, Side};

pub const FLOWS: u32 = 4096;
pub const SEED: u64 = 7;

pub const FIREWALL: (&str, &str) =
    ("firewall", r#"{"rules": "allow out\nallow in udp to any port 5000-6000", "tcp": "strict"}"#);
pub const MONITOR: (&str, &str) = ("monitor", r#"{"active_timeout": "20ms"}"#);
pub const BALANCER: (&str, &str) = (
    "lb",
    r#"{"services": [{"name": "web", "vip": "198.18.0.1", "servers": [
        {"name": "one", "address": "198.51.100.1"}, {"name": "two", "address": "198.51.100.2", "weight": 2}]}]}"#,
);

/// Outcome of a packet: the packets that left, then alerts and flow reports.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub sent: Vec<(Side, Vec<u8>)>,
    pub told: Vec<String>,
}

impl Outcome {
    /// Takes a graph's output and reports.
    pub fn take(graph: &mut Graph, out: &mut Vec<Packet>, pool: &mut PacketPool) -> Outcome {
        let mut outcome = Outcome::default();
        for packet in out.drain(..) {
            outcome.sent.push((packet.meta().transit.side, packet.data().to_vec()));
            pool.give(packet);
        }
        let effects = graph.effects_mut();
        let alerts = effects.alerts.drain(..).map(|alert| format!("{:?}", Alert { sequence: 0, ..alert }));
        outcome.told.extend(alerts);
        outcome.told.extend(effects.reports.drain(..).map(|report| format!("{report:?}")));
        outcome
    }
}

pub fn stages(functions: &[(&str, &str)]) -> Vec<Box<dyn Stage>> {
    let registry: Registry<serde_json::Value> = functions::registry();
    let make = |(name, config): &(&str, &str)| {
        let config = serde_json::from_str(config).unwrap();
        registry.find(name).unwrap().make(&config, Setup::new(SEED, FLOWS)).unwrap()
    };
    functions.iter().map(make).collect()
}
