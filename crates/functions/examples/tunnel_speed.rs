//! Measures packets received through a tunnel, at its end after a firewall and a monitor:
//! nanoseconds per packet, on the slow and the fast path in turn. `cargo run --profile dist -p
//! functions --example tunnel_speed`
//!
//! With arguments such as `gre follow 1`, it runs only that case, for the given number of rounds of
//! 20,000 packets, for valgrind:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!     target/dist/examples/tunnel_speed gre follow 1
//! ```
#![allow(clippy::expect_used, clippy::print_stdout, reason = "an example")]

use std::time::Instant;

use graph::{Graph, Options};
use nf::Setup;
use packet::{Packet, PacketPool, Side};
use serde_json::{Value, json};

const FLOWS: u32 = 1_000;
const BATCH_LEN: usize = 32;
/// Packets per flow and round.
const PACKETS: usize = 20;

/// Returns the protocols, with the configuration of their ends except addresses.
fn configs() -> [(&'static str, Value); 4] {
    let network = json!({ "vni": 7, "local_mac": "02:00:00:00:00:01", "remote_mac": "02:00:00:00:00:02" });
    [("gre", json!({ "key": 7 })), ("ipip", json!({})), ("vxlan", network.clone()), ("geneve", network)]
}

/// Returns a tunnel alone, or after a firewall and a monitor.
fn graph(protocol: &str, settings: &Value, mirrored: bool, alone: bool, consolidate: bool) -> Graph {
    let mut config = settings.clone();
    let (mut local, mut remote) = ("192.0.2.1", "198.51.100.1");
    if mirrored {
        (local, remote) = (remote, local);
        if config.get("local_mac").is_some() {
            (config["local_mac"], config["remote_mac"]) =
                (settings["remote_mac"].clone(), settings["local_mac"].clone());
        }
    }
    (config["protocol"], config["local"], config["remote"]) = (json!(protocol), json!(local), json!(remote));
    let registry = functions::registry::<Value>();
    let others = [("firewall", json!({ "rules": "allow" })), ("monitor", json!({}))];
    let others = others.into_iter().filter(|_| !alone);
    let stages = others.chain([("tunnel", config)]).map(|(name, config)| {
        let mut setup = Setup::new(1, FLOWS);
        setup.inner = true;
        registry.find(name).expect("a known function").make(&config, setup).expect("a right configuration")
    });
    let options = Options { flows_max: FLOWS, inner: true, consolidate, ..Options::default() };
    Graph::new(stages.collect(), options).expect("there is memory")
}

/// Builds a UDP packet of a flow, in Ethernet.
fn frame(flow: u32) -> Vec<u8> {
    let [_, _, high, low] = flow.to_be_bytes();
    let mut ip = [0x45, 2, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 2, high, low, 10, 1, 0, 1];
    let sum = packet::checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2; 12][..], &[8, 0], &ip, &[0x40, high, 0, 53, 0, 30, 0, 0], &[7; 22]].concat()
}

/// Sends all frames through the graph from a side, and passes the output to `each`.
fn play(
    graph: &mut Graph,
    frames: &[Vec<u8>],
    side: Side,
    pool: &mut PacketPool,
    mut each: impl FnMut(&Packet),
) {
    let (mut batch, mut out) = (Vec::new(), Vec::new());
    for frames in frames.chunks(BATCH_LEN) {
        for frame in frames {
            let mut packet = pool.take(frame).expect("as many buffers as packets of a batch");
            packet.meta_mut().transit.side = side;
            batch.push(packet);
        }
        graph.process(&mut batch, &mut out, pool);
        for packet in out.drain(..) {
            each(&packet);
            pool.give(packet);
        }
    }
}

/// Sends all frames through the graph, and counts the output.
#[inline(never)]
fn measured(graph: &mut Graph, frames: &[Vec<u8>], pool: &mut PacketPool) -> u32 {
    let mut count = 0;
    play(graph, frames, Side::Outside, pool, |_| count += 1);
    count
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (only_protocol, only_way) = (arguments.next(), arguments.next());
    let rounds: usize = arguments.next().map_or(15, |rounds| rounds.parse().expect("how many rounds"));
    let is_wanted = |only: &Option<String>, name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut pool = PacketPool::new(4 * BATCH_LEN);
    for (protocol, settings) in configs().into_iter().filter(|of| is_wanted(&only_protocol, of.0)) {
        let mut frames: Vec<Vec<u8>> = vec![];
        let bare: Vec<_> = (0..PACKETS as u32 * FLOWS).map(|i| frame(i % FLOWS)).collect();
        let mut other = graph(protocol, &settings, true, true, false);
        play(&mut other, &bare, Side::Inside, &mut pool, |packet| frames.push(packet.data().to_vec()));
        let mut ways = [("walk", false), ("follow", true)].map(|(name, consolidate)| {
            let mut graph = graph(protocol, &settings, false, false, consolidate);
            // Warm-up: flows begin, and rules are built.
            play(&mut graph, &frames, Side::Outside, &mut pool, |_| {});
            (name, graph, Vec::new())
        });
        for _ in 0..rounds {
            for (_, graph, times) in ways.iter_mut().filter(|way| is_wanted(&only_way, way.0)) {
                let start = Instant::now();
                let count = measured(graph, &frames, &mut pool);
                assert_eq!(count as usize, frames.len(), "none is dropped");
                times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(count));
            }
        }
        for (name, graph, mut times) in ways {
            times.sort_by(f64::total_cmp);
            let Some(median) = times.get(times.len() / 2) else { continue };
            let path = graph.report().fast_path();
            println!("{protocol:7} {name:7} {median:7.1} ns  (followed rules: {})", path.packets);
        }
    }
}
