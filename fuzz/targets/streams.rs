//! Segments and acknowledgements of one stream, in any order, overlapping, contradicting each other, and moves to another
//! unit between them: the reassembler delivers what a model that keeps every byte by itself does. Saved streams that are
//! any bytes do not make it panic.

#![no_main]

use chain::streams::HostPolicy;
use libfuzzer_sys::fuzz_target;
use packet::Direction;

#[path = "../../crates/chain/tests/stream_model/mod.rs"]
mod stream_model;

use stream_model::{ACK, Bench, FIN, Model};

const POLICIES: [HostPolicy; 4] = [HostPolicy::First, HostPolicy::Last, HostPolicy::Bsd, HostPolicy::Linux];

fuzz_target!(|data: &[u8]| {
    let Some((&[policy, a, b, c, d], steps)) = data.split_first_chunk() else { return };
    let (policy, isn) = (POLICIES[usize::from(policy % 4)], u32::from_le_bytes([a, b, c, d]));
    let mut bench = Bench::with_policy(policy);
    let mut model = Model::default();
    bench.open(isn);
    let number = |offset: u64| isn.wrapping_add(1).wrapping_add(offset as u32);
    for (i, &[kind, start, len, high]) in steps.as_chunks().0.iter().enumerate() {
        // 16 bytes apart at most for most, so that they meet; now and then far ahead.
        let start = u64::from(start) + if high > 250 { 16 * u64::from(high) } else { 0 };
        match kind % 16 {
            0 => {
                bench.server_acknowledges(number(start));
                model.acknowledged(start);
            }
            1 => {
                let mut saved = Vec::new();
                bench.reassembler.save(&bench.streams, &mut saved);
                bench.reassembler.forget(&mut bench.streams);
                bench.streams = bench.reassembler.restore(&saved).expect("what was saved");
            }
            kind => {
                let bytes: Vec<u8> = (0..len).map(|j| if kind < 9 { j } else { i as u8 }).collect();
                let fin = kind == 2 && high < 8;
                let flags = if fin { ACK | FIN } else { ACK };
                bench.segment(Direction::Original, flags, number(start), 901, &bytes);
                model.receive(start, &bytes, fin, policy);
            }
        }
        assert_eq!(bench.seen[0], model.seen);
    }
    bench.reassembler.forget(&mut bench.streams);
    assert_eq!(bench.reassembler.memory_used(), 0);
    if let Ok(mut streams) = bench.reassembler.restore(data) {
        bench.reassembler.forget(&mut streams);
    }
});
