//! Sends arbitrary packets through functions that follow Multipath TCP, and segments of a
//! connection with arbitrary mappings: nothing panics, and every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::mptcp::MptcpVersion;
use packet::wire::mptcp::{DataMapping, DataNumber};
use serde_json::json;

#[path = "../../crates/graph/tests/support/multipath.rs"]
mod multipath;
#[path = "../../crates/graph/tests/support/packets.rs"]
#[allow(dead_code)]
mod packets;
#[path = "../traffic.rs"]
mod traffic;

use multipath::{MultipathConnection, Subflow};
use packets::v4;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({}),
        json!({ "duplicates": "drop" }),
        json!({ "duplicates": "pass", "connections": 1 }),
    ];
    traffic::through("mptcp", &configs, data);
    let [choice, number, mappings @ ..] = data else { return };
    let version = [MptcpVersion::V0, MptcpVersion::V1][usize::from(number & 1)];
    let connection = MultipathConnection::new(version, (*number).into());
    let client = |path: u8| v4(10, path, 0, 1, 40_000);
    let mut subflows = [0, 1].map(|path| Subflow::new(client(path), v4(192, 0, 2, 1, 443), path.into()));
    let mut made = vec![*choice];
    let mut add = |side: u8, network: &[u8]| {
        made.extend([side, 1, network.len() as u8]);
        made.extend(network);
    };
    for handshake in [connection.begin(&subflows[0]), connection.join(&subflows[1], 0)] {
        for (packet, side) in handshake.iter().zip([0, 1, 0]) {
            add(side, packet);
        }
    }
    for bytes in mappings.chunks_exact(8) {
        let [kind, len, a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| bytes[at]);
        let subflow = &mut subflows[usize::from(kind & 1)];
        let short = u32::from_be_bytes([a, b, c, d]);
        let number = if kind & 2 == 0 { DataNumber::Short(short) } else { DataNumber::Long(short.into()) };
        let position = match kind & 4 {
            0 => subflow.sent[0].wrapping_add(1),
            _ => u32::from_be_bytes([c, d, e, f]),
        };
        let mapping =
            DataMapping { data: number, subflow: position, len: u16::from_be_bytes([e, f]), checksum: None };
        let payload = vec![0; usize::from(len % 100)];
        let segment = connection.segment(subflow, (kind & 8 == 0).then_some(mapping), &payload);
        add(0, &segment);
        subflow.sent[0] = subflow.sent[0].wrapping_add(if kind & 16 == 0 { payload.len() as u32 } else { short });
    }
    traffic::through("mptcp", &configs, &made);
});
