//! Any packets through any graph with branches, with and without the fast path, in batches, with
//! moves of all flows between them: each packet visits the functions, and leaves by the port, that
//! a walk over the policy's text says (E2, E3).
//!
//! Input: a byte of options and of the number of functions, their types, a byte for the number of
//! edges, three bytes for each, then two bytes for each packet.

#![no_main]

use graph::Options;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/graph/tests/support/packets.rs"]
#[allow(dead_code, reason = "each test uses a part")]
#[allow(clippy::unwrap_used)]
mod packets;

#[path = "../../crates/graph/tests/branch_model/mod.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod branch_model;

use branch_model::{EdgeText, FILTERS, TYPES, TestPacket, policy_text, run};

/// More make no further difference, but take time.
const PACKETS_MAX: usize = 400;

fuzz_target!(|data: &[u8]| {
    let [options, edges_len, rest @ ..] = data else { return };
    let (types, rest) = rest.split_at(rest.len().min(usize::from(options >> 2 & 7)));
    let (edges, rest) = rest.split_at(rest.len().min(usize::from(edges_len & 31) * 3));
    let types: Vec<usize> = types.iter().map(|of| usize::from(*of) % TYPES.len()).collect();
    let edge = |edge: &[u8; 3]| EdgeText {
        from: edge[0].into(),
        to: edge[1].into(),
        filter: usize::from(edge[2] & 127) % FILTERS.len(),
        both: edge[2] & 128 == 0,
    };
    let edges: Vec<EdgeText> = edges.as_chunks().0.iter().map(edge).collect();
    let send = |send: &[u8; 2]| TestPacket {
        flow: send[0] % 12,
        reply: send[1] & 1 != 0,
        psh: send[1] & 2 != 0,
        dscp: if send[1] & 4 != 0 { 8 } else { 0 },
        mark: send[1] >> 3 & 3,
        last: send[1] & 32 != 0,
    };
    let sends: Vec<TestPacket> = rest.as_chunks().0.iter().take(PACKETS_MAX).map(send).collect();
    let text = policy_text(&types, &edges);
    let graph_options = Options { consolidate: options & 1 != 0, flows_max: 64, ..Options::default() };
    if let Err(difference) = run(&text, &sends, options & 2 != 0, graph_options) {
        panic!("{difference}");
    }
});
