//! Any packets at any times through a graph of NFs that rewrite, drop, turn back, answer and keep.
//! Every packet and every flow is accounted for, no buffer is lost, and batching changes nothing.
//!
//! Input: a byte of options, then for each packet: time step (2 bytes), side, length, and that many
//! bytes of IP packet.

#![no_main]

use graph::{Options, WhenFull};
use libfuzzer_sys::fuzz_target;
use nf::stage::Stage;
use packet::Side;

#[path = "../../crates/graph/tests/support"]
#[allow(dead_code)]
mod support {
    pub mod bench;
    pub mod functions;
    pub mod packets;
}

use support::bench::{Arrival, run};
use support::functions::*;

const FLOWS: u32 = 64;
const START_NS: u64 = 1_700_000_000_000_000_000;

fuzz_target!(|data: &[u8]| {
    let [options, rest @ ..] = data else { return };
    let traffic = traffic(rest);
    let options = graph_options(*options);
    let alone = run(stages(), options, &traffic, 1);
    let together = run(stages(), options, &traffic, 64);
    assert_eq!(together.counters, alone.counters);
    assert_eq!(together.sent, alone.sent);
});

fn graph_options(bits: u8) -> Options {
    Options {
        flows_max: if bits & 1 != 0 { 3 } else { FLOWS },
        when_full: if bits & 2 != 0 { WhenFull::RefuseNew } else { WhenFull::EvictOldest },
        inner: bits & 4 != 0,
        verify_ipv4_checksum: bits & 8 != 0,
        fragments_max: usize::from(bits >> 4),
        ..Options::default()
    }
}

fn stages() -> Vec<Box<dyn Stage>> {
    vec![
        stage::<Tally>(FLOWS),
        stage::<Knock>(FLOWS),
        stage::<Rejecter>(FLOWS),
        stage::<Masquerade>(FLOWS),
        stage::<Keeper>(FLOWS),
        stage::<Balancer>(FLOWS),
        stage::<Hairpin>(FLOWS),
        stage::<Gate>(FLOWS),
        stage::<Witness>(FLOWS),
    ]
}

/// At most as many packets as the bench has buffers.
fn traffic(mut bytes: &[u8]) -> Vec<Arrival> {
    let (mut at_ns, mut traffic) = (START_NS, vec![]);
    while let [high, low, side, len, rest @ ..] = bytes {
        let (network, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        if network.is_empty() || traffic.len() == 100 {
            break;
        }
        // The step's top bits are its scale: nanoseconds to minutes, or back.
        let step = u64::from(*low) << (u32::from(*high & 15) * 2);
        at_ns = if high & 0x80 != 0 { at_ns.saturating_sub(step) } else { at_ns.saturating_add(step) };
        let side = if side & 1 == 0 { Side::Inside } else { Side::Outside };
        traffic.push(Arrival { at_ns, side, network: network.to_vec() });
        bytes = rest;
    }
    traffic
}
