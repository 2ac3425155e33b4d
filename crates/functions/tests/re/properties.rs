//! Properties of any packets, however the link loses, duplicates and delays them.

use proptest::prelude::*;
use serde_json::json;

use crate::meter_support::*;
use crate::pair::*;

/// Generates a packet from site 1 to site 2 of repeated parts.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let part = (0u64..5, 0usize..300, 1usize..300);
    let parts = prop::collection::vec(part, 1..5);
    (prop::sample::select(vec![4u8, 6]), 0u8..4, 1u16..6, parts).prop_map(|(version, kind, port, parts)| {
        let payload: Vec<u8> = parts
            .iter()
            .flat_map(|&(seed, from, len)| random_bytes(seed, 600)[from..from + len].to_vec())
            .collect();
        let (source, destination) = (host(version, 1, port), host(version, 2, 53));
        match kind {
            0 => udp(source, destination, &payload),
            1 => tcp(source, destination, 0x18, &payload),
            2 => echo(source.addr, destination.addr, port, false, &payload),
            _ => ip(source.addr, destination.addr, 99, &payload),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn packets_come_out_as_they_went_in(packets in prop::collection::vec(packet(), 1..60), window in 16u8..=64, sample in 2u32..8) {
        let mut pair = Pair::acquainted(&json!({ "window": window, "sample": 1 << sample }));
        for packet in &packets {
            let wire = pair.enter(1, packet);
            prop_assert_eq!(wire.len(), 1);
            prop_assert!(wire[0].len() <= packet.len());
            prop_assert!(wire[0][0] >> 4 == 6 || checksums_are_right(&wire[0]));
            let (out, _) = pair.arrive(2, &wire[0]);
            prop_assert_eq!(&out[..], std::slice::from_ref(packet));
        }
        prop_assert_eq!(pair.count(2, "references_missed"), 0);
    }

    /// Every packet that comes out went in, and unencoded packets that were not lost come out. 0 to
    /// 3: the packet arrives; 4: it is lost; 5: it is duplicated; 6, 7: it is late. Reports are
    /// lost as often.
    #[test]
    fn nothing_else_comes_out(packets in prop::collection::vec((packet(), 0u8..8), 1..80)) {
        let mut pair = Pair::acquainted(&json!({}));
        let mut late: Vec<(Vec<u8>, Vec<u8>)> = vec![];
        for (number, (packet, fate)) in packets.iter().enumerate() {
            pair.now_ns += 500_000;
            let wire = pair.enter(1, packet).remove(0);
            let mut arriving = vec![(wire, packet.clone())];
            match fate {
                0..4 => {}
                4 => arriving.clear(),
                5 => arriving.push(arriving[0].clone()),
                _ => late.append(&mut arriving),
            }
            if number % 5 == 0 {
                arriving.append(&mut late);
            }
            for (wire, packet) in arriving {
                let is_encoded = protocol_of(&wire) == ENCODED;
                let (out, back) = pair.arrive(2, &wire);
                prop_assert!(out.len() == 1 || is_encoded && out.is_empty());
                prop_assert!(out.iter().all(|out| *out == packet));
                for report in back.iter().filter(|_| number % 4 != 0) {
                    pair.arrive(1, report);
                }
            }
        }
    }

    /// Packets of both sides, of all kinds.
    #[test]
    fn batches_make_no_difference(traffic in traffic(60)) {
        let anywhere = json!(["0.0.0.0/0", "::/0"]);
        let settings = json!({ "local_networks": anywhere, "remote_networks": anywhere, "cache": "64KiB", "patience": 0 });
        batches_change_nothing("re", &settings, &traffic);
    }

    /// No forged encoding yields a wrong packet.
    #[test]
    fn forged_encodings_are_dropped(
        count in 0u8..4,
        rest in prop::collection::vec(any::<u8>(), 0..120),
        kind in prop::sample::select(vec![0x11u8, 0x12, 0x21, 0]),
        version in prop::sample::select(vec![4u8, 6]),
    ) {
        let mut pair = Pair::acquainted(&json!({}));
        pair.pass(&udp(host(4, 1, 1), host(4, 2, 2), &random_bytes(1, 900)));
        let shim = [&[kind, 17, count, 0][..], &rest].concat();
        let packet = ip(host(version, 1, 0).addr, host(version, 2, 0).addr, ENCODED, &shim);
        let (out, _) = pair.arrive(2, &packet);
        prop_assert!(out.is_empty());
    }
}
