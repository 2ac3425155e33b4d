//! Any commands to any NF: one that is unknown or cannot be executed is an error; nothing panics,
//! and packets continue.

#![no_main]

use std::sync::LazyLock;

use graph::{Graph, Options};
use conformance::{FunctionSpec, built_in};
use libfuzzer_sys::fuzz_target;
use nf::Setup;
use packet::{PacketPool, Side};
use serde_json::Value;

#[path = "../../crates/graph/tests/support/packets.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod packets;

use packets::{frame, udp, v4};

static SUBJECTS: LazyLock<Vec<FunctionSpec>> = LazyLock::new(built_in);

// Input: a byte that chooses the NF, then commands, one per line.
fuzz_target!(|data: &[u8]| {
    let Some((&which, script)) = data.split_first() else { return };
    let Ok(script) = std::str::from_utf8(script) else { return };
    let subject = &SUBJECTS[usize::from(which) % SUBJECTS.len()];
    let registry = functions::registry::<Value>();
    let mut setup = Setup::new(1, 16);
    setup.inner = true; // As tunnels want it, also where they do not get it.
    let stage = registry.find(&subject.name).unwrap().make(&subject.config, setup).unwrap();
    let mut graph = Graph::new(vec![stage], Options { flows_max: 16, ..Options::default() }).unwrap();
    let mut pool = PacketPool::new(16);
    let packet = frame(&udp(v4(10, 0, 0, 1, 4000), v4(198, 18, 0, 1, 80), b"whatever"));
    for (number, command) in script.lines().enumerate().take(64) {
        let refused = graph.stage_mut(0).unwrap().control(command).is_err();
        // Commands are idempotent: accepted ones are accepted again, refused ones refused again.
        assert_eq!(graph.stage_mut(0).unwrap().control(command).is_err(), refused, "{subject}: {command}");
        let mut packet = pool.take(&packet).unwrap();
        packet.meta_mut().transit.side = Side::Inside;
        packet.meta_mut().transit.timestamp_ns = 1_700_000_000_000_000_000 + number as u64;
        let (mut batch, mut out) = (vec![packet], Vec::new());
        graph.process(&mut batch, &mut out, &mut pool);
        out.drain(..).for_each(|packet| pool.give(packet));
        assert!(graph.counters().add_up());
    }
});
