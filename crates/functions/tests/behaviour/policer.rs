//! The policer in a graph: the packets that pass, and their marks.

use std::collections::HashMap;

use crate::meter_support::*;
use packet::{Addr, Endpoint, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Builds a datagram with 128 bytes of IP packet.
fn datagram(source: Endpoint, destination: Endpoint) -> Vec<u8> {
    udp(source, destination, &[0; 100])
}

fn host(number: u8) -> Endpoint {
    v4(10, 0, 0, number, 5_000)
}

fn server(number: u8) -> Endpoint {
    v4(192, 0, 2, number, 53)
}

/// Returns a configuration that passes two packets at once, and 128 bytes per second.
fn two_at_once(more: Value) -> Value {
    let mut config = json!({ "rate": "1024bps", "burst": "256B" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

/// Returns how many of `count` equal packets pass now.
fn passing(bench: &mut Bench, now_ns: u64, side: Side, network: &[u8], count: usize) -> usize {
    (0..count).map(|_| bench.one(now_ns, side, network).len()).sum()
}

// S27
#[test]
fn each_connection_has_its_rate_in_each_direction() {
    let mut bench = bench("policer", &two_at_once(json!({})));
    for (source, destination, side) in [
        (host(1), server(1), Side::Inside),
        (host(1), server(2), Side::Inside),
        (server(1), host(1), Side::Outside),
    ] {
        let packet = datagram(source, destination);
        assert_eq!(passing(&mut bench, SECOND_NS, side, &packet, 5), 2);
        assert_eq!(passing(&mut bench, 2 * SECOND_NS - 1, side, &packet, 5), 0);
        assert_eq!(passing(&mut bench, 2 * SECOND_NS, side, &packet, 5), 1);
        assert_eq!(passing(&mut bench, 1_000 * SECOND_NS, side, &packet, 5), 2);
    }
    assert_eq!(bench.drops(), [("policer-rate", 45)]);
    let counts = ["packets_green", "packets_yellow", "packets_red", "bytes_green", "bytes_red"];
    assert_eq!(counts.map(|name| counter(&bench, name)), [15, 0, 45, 15 * 128, 45 * 128]);
}

#[test]
fn a_direction_can_be_unpoliced_or_both_can_share_a_bucket() {
    for (direction, there, back) in
        [("each", 2, 2), ("both", 2, 0), ("from_inside", 2, 5), ("from_outside", 5, 2)]
    {
        let mut bench = bench("policer", &two_at_once(json!({ "direction": direction })));
        let (out, reply) = (datagram(host(1), server(1)), datagram(server(1), host(1)));
        assert_eq!(passing(&mut bench, 0, Side::Inside, &out, 5), there, "{direction}");
        assert_eq!(passing(&mut bench, 0, Side::Outside, &reply, 5), back, "{direction}");
        let free = if there + back > 4 { 5 } else { 0 };
        assert_eq!(counter(&bench, "packets_unpoliced"), free, "{direction}");
    }
}

#[test]
fn packets_with_the_same_key_share_a_rate() {
    // Packets by source and destination, and whether they share the first one's bucket.
    let packets = [
        (host(1), server(1), Side::Inside),
        (host(1), server(2), Side::Inside),
        (host(2), server(1), Side::Inside),
        (server(1), host(1), Side::Outside),
        (v4(10, 0, 0, 129, 1), server(1), Side::Inside),
    ];
    for (per, more, share) in [
        ("connection", json!({}), [true, false, false, true, false]),
        ("source", json!({}), [true, true, false, false, false]),
        ("source", json!({ "prefix4": 25 }), [true, true, true, false, false]),
        ("source", json!({ "prefix4": 24 }), [true, true, true, false, true]),
        ("destination", json!({}), [true, false, true, false, true]),
        ("inside", json!({}), [true, true, false, true, false]),
        ("outside", json!({}), [true, false, true, true, true]),
        ("tenant", json!({}), [true; 5]),
        ("all", json!({}), [true; 5]),
    ] {
        let mut config = two_at_once(json!({ "per": per, "direction": "both" }));
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for ((source, destination, side), share) in packets.into_iter().zip(share) {
            let mut bench = bench("policer", &config);
            assert_eq!(passing(&mut bench, 0, Side::Inside, &datagram(host(1), server(1)), 2), 2);
            let left = passing(&mut bench, 0, side, &datagram(source, destination), 3);
            assert_eq!(left, if share { 0 } else { 2 }, "{config} {source} {destination}");
        }
    }
}

#[test]
fn tenants_and_networks_have_separate_meters() {
    for (per, vlans_share) in [("source", false), ("tenant", true)] {
        let config = two_at_once(json!({ "per": per }));
        let mut bench = bench("policer", &config);
        let mut pass = |tenant: u16, vlan: Option<u8>| {
            let mut frame = frame(&datagram(host(1), server(1)));
            if let Some(vlan) = vlan {
                frame.splice(12..12, [0x81, 0, 0, vlan]);
            }
            let mut packet = bench.pool.take(&frame).unwrap();
            packet.meta_mut().key.place = tenant;
            let (mut batch, mut out) = (vec![packet], vec![]);
            bench.graph.process(&mut batch, &mut out, &mut bench.pool);
            let passed = !out.is_empty();
            out.into_iter().for_each(|packet| bench.pool.give(packet));
            passed
        };
        assert_eq!([pass(1, None), pass(1, None), pass(1, None)], [true, true, false]);
        assert_eq!([pass(2, None), pass(2, None), pass(2, None)], [true, true, false]);
        assert_eq!(pass(1, Some(7)), !vlans_share);
    }
}

#[test]
fn without_a_free_meter_packets_pass_or_are_dropped() {
    for (when_full, passes) in [("pass", 1), ("drop", 0)] {
        let config = two_at_once(json!({ "per": "source", "meters": 2, "when_full": when_full }));
        let mut bench = bench("policer", &config);
        let mut one =
            |number, now_ns| bench.one(now_ns, Side::Inside, &datagram(host(number), server(1))).len();
        assert_eq!([one(1, 0), one(2, 0), one(3, 0)], [1, 1, passes]);
        // After two seconds the first bucket is full again, regardless of its past.
        assert_eq!(one(3, 2 * SECOND_NS - 1), passes);
        assert_eq!(one(3, 2 * SECOND_NS), 1);
        assert_eq!([one(3, 2 * SECOND_NS), one(3, 2 * SECOND_NS)], [1, 0], "it has a meter");
        assert_eq!(counter(&bench, "packets_unmetered"), 2);
        let meters = &bench.graph.stages()[0].shared().meters[0];
        assert_eq!((meters.in_use(), meters.forgotten(), meters.refused()), (2, 1, 2));
        let dropped = bench.drops().iter().any(|&(reason, count)| reason == "policer-no-meter" && count == 2);
        assert_eq!(dropped, passes == 0);
    }
}

#[test]
fn lengths_are_those_of_ip_packets_by_default() {
    let packet = datagram(host(1), server(1)); // 128 bytes, in a frame of 142
    for (config, at_once) in [
        (json!({ "rate": "1kbps", "burst": "1280B" }), 10),
        (json!({ "rate": "1kbps", "burst": "1420B", "length": "link" }), 10),
        (json!({ "rate": "1kbps", "burst": "1419B", "length": "link" }), 9),
        // Check sequence, preamble and gap.
        (json!({ "rate": "1kbps", "burst": "1660B", "length": "link", "overhead": 24 }), 10),
        (json!({ "rate": "1kbps", "burst": "1659B", "length": "link", "overhead": 24 }), 9),
        (json!({ "rate": "10pps", "burst": 7 }), 7),
    ] {
        let mut bench = bench("policer", &config);
        assert_eq!(passing(&mut bench, 0, Side::Inside, &packet, 20), at_once, "{config}");
    }
}

#[test]
fn a_packet_larger_than_the_bucket_never_passes() {
    let mut bench = bench("policer", &json!({ "rate": "1Mbps", "burst": "127B" }));
    let packet = datagram(host(1), server(1));
    assert_eq!(passing(&mut bench, 0, Side::Inside, &packet, 2), 0);
    assert_eq!(passing(&mut bench, 1_000_000 * SECOND_NS, Side::Inside, &packet, 2), 0);
    assert_eq!(passing(&mut bench, 1_000_000 * SECOND_NS, Side::Inside, &udp(host(1), server(1), &[]), 2), 2);
}

/// Returns the packet with this DSCP and the right checksum.
fn with_dscp(mut network: Vec<u8>, dscp: u8) -> Vec<u8> {
    if network[0] >> 4 == 6 {
        network[0] = 0x60 | dscp >> 2;
        network[1] = dscp << 6;
        return network;
    }
    network[1] = dscp << 2;
    network[10..12].fill(0);
    let sum: u32 = network[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    network[10..12].copy_from_slice(&sum.to_be_bytes());
    network
}

fn dscp(network: &[u8]) -> u8 {
    if network[0] >> 4 == 6 { (network[0] << 4 | network[1] >> 4) >> 2 } else { network[1] >> 2 }
}

const AF21: u8 = 18;
const AF22: u8 = 20;
const AF23: u8 = 22;

// RFC 2697, RFC 2698
#[test]
fn colours_become_drop_precedences() {
    let remark = json!({ "remark": "precedence" });
    let one_rate = json!({ "rate": "1kbps", "burst": "128B", "excess_burst": "256B" });
    let two_rates = json!({ "rate": "1kbps", "burst": "128B", "peak_rate": "2kbps", "peak_burst": "384B" });
    for mut config in [one_rate, two_rates] {
        for colour in ["green", "yellow", "red"] {
            config[colour] = remark.clone();
        }
        for packet in [datagram(host(1), server(1)), udp(v6(1, 9), v6(2, 53), &[0; 80])] {
            assert_eq!(packet.len(), 128);
            let mut bench = bench("policer", &config);
            let mut seen = Vec::new();
            for _ in 0..5 {
                let left = bench.through(0, Side::Inside, &with_dscp(packet.clone(), AF21));
                assert!(checksums_are_right(&left));
                seen.push(dscp(&left));
                assert_eq!(with_dscp(left, AF21), with_dscp(packet.clone(), AF21), "and nothing else");
            }
            assert_eq!(seen, [AF21, AF22, AF22, AF23, AF23], "{config}");
            let counts = ["packets_green", "packets_yellow", "packets_red"];
            assert_eq!(counts.map(|name| counter(&bench, name)), [1, 2, 2]);
        }
    }
}

#[test]
fn a_packet_never_gets_a_better_colour() {
    let mut config = json!({ "rate": "1kbps", "burst": "1KB", "excess_burst": "1KB", "aware": "dscp" });
    config["yellow"] = json!({ "remark": 1 });
    let mut bench = bench("policer", &config);
    let mut send = |code: u8| {
        let left = bench.one(0, Side::Inside, &with_dscp(datagram(host(1), server(1)), code));
        left.first().map(|(_, network)| dscp(network))
    };
    assert_eq!([send(AF21), send(AF22), send(AF23)], [Some(AF21), Some(1), None]);
    assert_eq!([send(46), send(0)], [Some(46), Some(0)], "a packet without a colour is green");
}

#[test]
fn marks_are_attributes_of_packets_and_flows() {
    let config = json!({ "rate": "1kbps", "burst": "128B", "excess_burst": "128B", "green": "mark",
                         "yellow": "mark", "red": "mark" });
    let mut bench = bench("policer", &config);
    let mut seen = Vec::new();
    for at_ns in [0, 0, 0, 10 * SECOND_NS] {
        let mut packet = bench.pool.take(&frame(&datagram(host(1), server(1)))).unwrap();
        packet.meta_mut().transit.timestamp_ns = at_ns;
        let (mut batch, mut out) = (vec![packet], vec![]);
        bench.graph.process(&mut batch, &mut out, &mut bench.pool);
        let packet = out.remove(0);
        let (tags, layout) = (packet.meta().transit.tags, bench.graph.stages()[0].tags());
        seen.push((layout.get(tags, 0), layout.get(tags, 1)));
        bench.pool.give(packet);
    }
    assert_eq!(seen, [(1, 0), (2, 1), (3, 1), (1, 1)]);
}

#[test]
fn a_new_rate_applies_at_once() {
    let mut bench = bench("policer", &two_at_once(json!({})));
    let packet = datagram(host(1), server(1));
    assert_eq!(passing(&mut bench, 0, Side::Inside, &packet, 5), 2);
    bench.graph.stage_mut(0).unwrap().control("rate 2048bps").unwrap();
    assert_eq!(passing(&mut bench, SECOND_NS / 2 - 1, Side::Inside, &packet, 5), 0);
    assert_eq!(passing(&mut bench, SECOND_NS / 2, Side::Inside, &packet, 5), 1);
    bench.graph.stage_mut(0).unwrap().control("burst 512B").unwrap();
    assert_eq!(passing(&mut bench, SECOND_NS / 2, Side::Inside, &packet, 5), 2, "256 bytes more");
}

/// A straightforward bucket: tokens of a billionth of a bit, filled up to the size.
#[derive(Clone, Copy)]
struct Tokens {
    left: u128,
    last_ns: u64,
}

fn configs() -> impl Strategy<Value = Value> {
    let per = prop_oneof![Just("connection"), Just("source"), Just("inside"), Just("all")];
    let direction = prop_oneof![Just("each"), Just("both"), Just("from_inside"), Just("from_outside")];
    let rate = prop_oneof![Just("rate2697"), Just("rate2698")];
    (per, direction, rate, any::<bool>()).prop_map(|(per, direction, rate, aware)| {
        let mut config = json!({ "rate": "2kbps", "burst": "100B", "per": per, "direction": direction,
                                 "meters": 4, "when_full": "drop" });
        if rate == "rate2697" {
            config["excess_burst"] = json!("200B");
        } else {
            config["peak_rate"] = json!("5kbps");
            config["peak_burst"] = json!("200B");
        }
        if aware {
            config["aware"] = json!("dscp");
            config["yellow"] = json!({ "remark": "af13" });
        }
        config
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn output_does_not_depend_on_batches(config in configs(), traffic in traffic(120)) {
        batches_change_nothing("policer", &config, &traffic);
    }
}

proptest! {
    /// Per source address: the packets that pass equal those of a table of token buckets, one per
    /// source and side.
    #[test]
    fn sources_are_policed_like_a_table_of_buckets(
        rate_bps in 100u64..50_000, burst in 60u64..1_000,
        packets in prop::collection::vec((0u64..50 * MS_NS, 0u8..4, 0u8..3, any::<bool>(), 0usize..300), 1..150),
    ) {
        let config = json!({ "rate": format!("{rate_bps}bps"), "burst": format!("{burst}B"), "per": "source" });
        let mut bench = bench("policer", &config);
        let size = u128::from(burst) * 8 * u128::from(SECOND_NS);
        let mut table: HashMap<(Addr, bool), Tokens> = HashMap::new();
        let mut now_ns = 0;
        for (gap_ns, near, far, out, len) in packets {
            now_ns += gap_ns;
            let (source, destination, side) = if out {
                (host(near), server(far), Side::Inside)
            } else {
                (server(near), host(far), Side::Outside)
            };
            let network = udp(source, destination, &vec![0; len]);
            let tokens = table.entry((source.addr, out)).or_insert(Tokens { left: size, last_ns: now_ns });
            let filled = u128::from(rate_bps) * u128::from(now_ns - tokens.last_ns);
            *tokens = Tokens { left: (tokens.left + filled).min(size), last_ns: now_ns };
            let cost = network.len() as u128 * 8 * u128::from(SECOND_NS);
            let passes = tokens.left >= cost;
            if passes {
                tokens.left -= cost;
            }
            prop_assert_eq!(bench.one(now_ns, side, &network).len(), usize::from(passes));
        }
    }
}
