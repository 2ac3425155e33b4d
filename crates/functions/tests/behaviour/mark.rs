//! The marker in a graph. Frames are compared with frames assembled field by field, and with
//! tshark's reading.

use crate::meter_support::*;
use crate::tshark_support::{fields_of, is_there};
use packet::{Endpoint, LinkType, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

fn rules(rules: &str) -> Value {
    json!({ "rules": rules })
}

fn marker(text: &str) -> Bench {
    bench("mark", &rules(text))
}

/// Sends a packet, from its first type on, through a bench; returns the frame from there.
fn through(bench: &mut Bench, side: Side, network: &[u8]) -> Vec<u8> {
    let before = bench.sent.len();
    bench.one(SECOND_NS, side, network);
    assert_eq!(bench.sent.len(), before + 1, "drops: {:?}", bench.drops());
    bench.sent[before].2[12..].to_vec()
}

/// Returns the packet as it arrives after these tags, of which there may be none.
fn behind(tags: &[[u8; 4]], network: &[u8]) -> Vec<u8> {
    if tags.is_empty() { network.to_vec() } else { tagged(tags, &[], network) }
}

fn client(version: u8) -> Endpoint {
    if version == 4 { v4(10, 0, 0, 1, 5_000) } else { v6(1, 5_000) }
}

fn server(version: u8) -> Endpoint {
    if version == 4 { v4(192, 0, 2, 1, 53) } else { v6(2, 53) }
}

fn asks(version: u8) -> Vec<u8> {
    udp(client(version), server(version), b"question")
}

/// Returns the packet with another DSCP, its header's checksum computed from scratch.
fn with_dscp(mut network: Vec<u8>, dscp: u8) -> Vec<u8> {
    if network[0] >> 4 == 6 {
        network[0] = 0x60 | dscp >> 2;
        network[1] = dscp << 6 | network[1] & 0x3f;
        return network;
    }
    network[1] = dscp << 2 | network[1] & 3;
    network[10..12].fill(0);
    let sum: u32 = network[..20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    network[10..12].copy_from_slice(&sum.to_be_bytes());
    network
}

#[test]
fn marks_change_their_fields_alone() {
    for version in [4, 6] {
        let plain = asks(version);
        let [one, two] = [[0x81, 0, 0x60, 9], [0x88, 0xa8, 0xd0, 8]];
        for (text, tags, expected, dscp) in [
            ("keep", &[one][..], &[one][..], 0),
            ("dscp ef", &[], &[], 46),
            ("dscp 63", &[one], &[one], 63),
            ("push_vlan 4094 pcp 7", &[], &[[0x81, 0, 0xef, 0xfe]], 0),
            ("push_vlan 1 dscp 1", &[two], &[[0x81, 0, 0, 1], two], 1),
            ("vlan 5", &[one], &[[0x81, 0, 0x60, 5]], 0),
            ("vlan 5 pcp 1", &[two, one], &[[0x88, 0xa8, 0x30, 5], one], 0),
            ("pcp 0", &[two], &[[0x88, 0xa8, 0x10, 8]], 0),
            ("pop_vlan", &[two, one], &[one], 0),
            ("pop_vlan dscp 9", &[], &[], 9),
        ] {
            let mut bench = marker(text);
            let got = through(&mut bench, Side::Inside, &behind(tags, &plain));
            let wanted = tagged(expected, &[], &with_dscp(plain.clone(), dscp));
            assert_eq!(got, wanted, "{text} of {tags:x?}, IPv{version}");
            let untagged = u64::from(tags.is_empty() && text.contains("pop"));
            assert_eq!(counter(&bench, "packets_untagged"), untagged, "{text}");
        }
    }
}

#[test]
fn the_first_rule_that_matches_counts() {
    let text = "keep out udp from 10.0.0.0/24 to any port 53\ndscp 1 in udp\ndscp 2 out tcp\n\
                dscp 3 from any port 7 to 192.0.2.0/24\ndscp 4 to 2001:db8::/32\ndscp 5 1";
    let (a, b) = (client(4), server(4));
    let other = |port| v4(10, 0, 1, 1, port);
    for (side, network, dscp) in [
        (Side::Inside, udp(a, b, b"x"), 0),
        (Side::Outside, udp(b, a, b"x"), 1),
        (Side::Inside, tcp(a, b, 0x10, b"x"), 2),
        (Side::Inside, udp(other(7), b, b"x"), 3),
        (Side::Inside, udp(other(8), b, b"x"), 0),
        (Side::Outside, tcp(other(7), b, 0x10, b"x"), 3),
        (Side::Inside, asks(6), 4),
        (Side::Inside, echo(a.addr, b.addr, 7, false, b"x"), 5),
    ] {
        let mut bench = marker(text);
        let got = bench.through(SECOND_NS, side, &network);
        assert_eq!(got, with_dscp(network, dscp), "{dscp}");
    }
}

/// Later fragments have the rule of their first one.
#[test]
fn fragments_are_marked_alike() {
    let whole = udp(client(4), server(4), &[7; 100]);
    for reversed in [false, true] {
        let mut bench = marker("dscp 7 udp to any port 53\ndscp 9");
        let mut parts = fragments(&whole, 3, 40);
        assert_eq!(parts.len(), 3);
        if reversed {
            parts.reverse();
        }
        let sent: Vec<_> = parts.iter().flat_map(|part| bench.one(SECOND_NS, Side::Inside, part)).collect();
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|(_, network)| network[1] >> 2 == 7 && checksums_are_right(network)));
    }
}

/// A flow has the tenant of its first packet, in both directions.
#[test]
fn tenants_are_of_flows() {
    let mut bench = marker("tenant 7 out from 10.0.0.0/8\ntenant 9 in to 10.0.0.0/8\ntenant 65535");
    let (a, b) = (client(4), server(4));
    let tenant =
        |bench: &Bench| bench.graph.flows().records().header(bench.graph.flows().records().live() - 1).tags;
    for (number, from, to, side) in [
        (7, a, b, Side::Inside),
        (9, v4(192, 0, 2, 9, 1), v4(10, 0, 0, 9, 1), Side::Outside),
        (65_535, b, v4(192, 0, 2, 2, 1), Side::Inside),
    ] {
        bench.through(SECOND_NS, side, &udp(from, to, b"ask"));
        assert_eq!(tenant(&bench), number);
        bench.through(SECOND_NS, side.other(), &udp(to, from, b"answer"));
        assert_eq!(tenant(&bench), number);
    }
}

/// Packets that cannot get the tag do not leave without it.
#[test]
fn a_tag_without_room_drops_the_packet() {
    let mut bench = marker("push_vlan 7");
    let mut packet = bench.pool.take(&asks(4)).unwrap();
    packet.meta_mut().link = LinkType::RawIp;
    let mut out = vec![];
    bench.graph.process(&mut vec![packet], &mut out, &mut bench.pool);
    assert!(out.is_empty());
    assert_eq!(bench.drops(), [("link-tags", 1)]);
}

#[test]
fn rules_count_their_packets() {
    let mut bench = marker("dscp 1 out\nkeep in udp");
    for _ in 0..3 {
        bench.through(SECOND_NS, Side::Inside, &asks(4));
    }
    bench.through(SECOND_NS, Side::Outside, &udp(server(4), client(4), b"answer"));
    bench.through(SECOND_NS, Side::Outside, &tcp(server(4), client(4), 0x10, b""));
    let counted = bench.graph.stages()[0].shared().rules.iter().map(|rule| (rule.packets, rule.bytes));
    assert_eq!(counted.collect::<Vec<_>>(), [(3, Some(3 * 36)), (1, Some(34))]);
    let counts = ["packets_marked", "packets_unmatched", "packets_untagged"];
    assert_eq!(counts.map(|name| counter(&bench, name)), [4, 1, 0]);
}

/// All marks follow rules: of two functions that take part, none is called for a known flow.
#[test]
fn known_flows_follow_rules() {
    for text in ["dscp 1 push_vlan 7 out\npop_vlan in", "vlan 9 pcp 1 in", "keep"] {
        let stages = vec![stage("monitor", &json!({})), stage("mark", &rules(text))];
        let mut bench = Bench::new(stages, options());
        let tags = if text.contains("vlan 7") { &[[0x81, 0, 0, 7]][..] } else { &[] };
        for _ in 0..20 {
            through(&mut bench, Side::Inside, &asks(4));
            let answer = udp(server(4), client(4), b"answer");
            through(&mut bench, Side::Outside, &behind(tags, &answer));
        }
        assert_eq!(bench.graph.counters().flows_started, 1, "{text}");
        let path = bench.graph.report().fast_path();
        assert!(path.packets >= 30 && path.failed == 0, "{text}: {path:?}");
    }
}

#[test]
fn tshark_reads_the_marks() {
    if !is_there() {
        return;
    }
    let fields = [
        "ip.dsfield.dscp",
        "ipv6.tclass.dscp",
        "vlan.id",
        "vlan.priority",
        "ip.checksum.status",
        "udp.checksum.status",
    ];
    for version in [4, 6] {
        let frames: Vec<Vec<u8>> = (0..8u16)
            .map(|number| {
                let text = format!("dscp {} push_vlan {} pcp {number}", number * 9, 4_094 - number);
                let network = through(
                    &mut marker(&text),
                    Side::Inside,
                    &tagged(&[[0x81, 0, 0x20, 5]], &[], &asks(version)),
                );
                frame(&network)
            })
            .collect();
        for (number, read) in (0..8).zip(fields_of(&frames, &[], &fields)) {
            let dscp = (number * 9).to_string();
            let of = |is_its| if is_its { dscp.clone() } else { String::new() };
            let ids =
                [of(version == 4), of(version == 6), format!("{},5", 4_094 - number), format!("{number},1")];
            assert_eq!(read[..4], ids, "IPv{version}");
            assert_eq!(read[4..], [if version == 4 { "1" } else { "" }, "1"], "IPv{version}");
        }
    }
}

proptest! {
    #[test]
    fn batches_change_nothing_of_the_output(traffic in traffic(60)) {
        let text = "dscp 1 tenant 3 out udp\npush_vlan 7 dscp 2 in\nkeep tcp to any port 1-30000\ndscp 3";
        batches_change_nothing("mark", &rules(text), &traffic);
    }
}
