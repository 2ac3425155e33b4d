//! Measures the cost of a packet of a known flow in `{{name}}` alone, in nanoseconds: the best of
//! several rounds.

use std::time::Instant;

use graph::{Graph, GraphError, Options};
use functions::{{name}}::{Config, {{Type}}};
use nf::Setup;
use nf::stage::{LoadError, load};
use packet::{Packet, PacketPool, Side};

const FLOWS: u32 = 1_000;
const BATCH: usize = 64;
const ROUNDS: usize = 5;
const BATCHES: usize = 2_000;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Graph(#[from] GraphError),
}

fn main() -> Result<(), Error> {
    let config = Config { packets_max: u64::MAX, ..Config::default() };
    let stage = load::<{{Type}}>(config, Setup::new(1, FLOWS))?;
    let mut graph = Graph::new(vec![stage], Options { flows_max: FLOWS, ..Options::default() })?;
    let mut pool = PacketPool::new(2 * BATCH);
    let (mut batch, mut out) = (Vec::new(), Vec::new());
    let mut number = 0u32;
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..BATCHES {
            while batch.len() < BATCH {
                let Some(packet) = pool.take(&frame(number % FLOWS)) else { break };
                batch.push(entering(packet));
                number += 1;
            }
            graph.process(&mut batch, &mut out, &mut pool);
            out.drain(..).for_each(|packet| pool.give(packet));
        }
        best_ns = best_ns.min(begin.elapsed().as_nanos() as f64 / (BATCH * BATCHES) as f64);
    }
    assert!(graph.counters().add_up());
    println!("{{name}}: {best_ns:.1} ns a packet, with {FLOWS} flows");
    Ok(())
}

fn entering(mut packet: Packet) -> Packet {
    packet.meta_mut().transit.side = Side::Inside;
    packet
}

/// Returns a UDP packet of 60 bytes of the flow with this number.
fn frame(flow: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&(0x0a00_0000 | flow).to_be_bytes());
    frame[30..42].copy_from_slice(&[192, 0, 2, 1, 0x30, 0x39, 0, 53, 0, 26, 0, 0]);
    frame
}
