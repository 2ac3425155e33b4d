//! The mirror in a graph: copies are read by tshark, and contain the frames that were sent.

use crate::meter_support::*;
use crate::tshark_support::{fields_of, for_each, hex};
use nf::stage::Stage;
use packet::{Endpoint, LinkType, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Length of the Ethernet header in front of a copy.
const ETHERNET: usize = 14;

fn config(protocol: &str, outer: u8, more: Value) -> Value {
    let id = if protocol == "vxlan" { "vni" } else { "session" };
    let addr = |number: u8| match outer {
        4 => format!("198.51.100.{number}"),
        _ => format!("2001:db8:c::{number}"),
    };
    let mut config = json!({ "protocol": protocol, "source": addr(1), "collector": addr(2), id: 1_000 });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

fn vxlan(more: Value) -> Value {
    config("vxlan", 4, more)
}

fn mirror(config: &Value) -> Bench {
    bench("mirror", config)
}

/// Headers of a copy after its Ethernet header.
fn headers_len(protocol: &str, outer: u8) -> usize {
    let network = if outer == 4 { 20 } else { 40 };
    network + if protocol == "erspan3" { 20 } else { 16 }
}

fn host(version: u8, number: u8) -> Endpoint {
    if version == 4 { v4(10, 0, 0, number, 5_000) } else { v6(number.into(), 5_000) }
}

/// Returns the frames that left for a packet, with their sides.
fn sent(bench: &mut Bench, at_ns: u64, side: Side, network: &[u8]) -> Vec<(Side, Vec<u8>)> {
    let before = bench.sent.len();
    bench.one(at_ns, side, network);
    bench.sent[before..].iter().map(|(_, side, frame)| (*side, frame.clone())).collect()
}

/// Each copy, by tshark, has the values of its session and the frame that was sent.
#[test]
fn tshark_reads_the_copies() {
    for_each(&["vxlan", "erspan2", "erspan3"], reads);
}

fn reads(protocol: &str, outer: u8, inner: u8) {
    let at_ns = 0x1_2345_6789_abcd_u64;
    let mut bench = mirror(&config(protocol, outer, json!({ "dscp": 9, "ttl": 7 })));
    let (mut originals, mut copies) = (vec![], vec![]);
    for number in 0..12usize {
        let payload: Vec<u8> = (0..=number * 9).map(|i| i as u8).collect();
        let network = udp(host(inner, 1), host(inner, 2), &payload);
        let network = if number % 2 == 0 { network } else { tagged(&[[0x81, 0, 0x60, 9]], &[], &network) };
        let side = if number % 3 == 0 { Side::Outside } else { Side::Inside };
        let out = sent(&mut bench, at_ns, side, &network);
        assert_eq!([out[0].0, out[1].0], [side.other(), Side::Outside]);
        assert_eq!(out[0].1, frame(&network), "the original is untouched");
        originals.push((side, frame(&network), payload));
        copies.push(out[1].1.clone());
    }
    let fields = [
        "vxlan.vni",
        "erspan.spanid",
        "erspan.version",
        "erspan.vlan",
        "erspan.cos",
        "erspan.truncated",
        "gre.sequence_number",
        "erspan.timestamp",
        "erspan.direction",
        "erspan.gra",
        "udp.payload",
        "udp.checksum.status",
        "ip.checksum.status",
        "ip.dsfield.dscp",
        "ipv6.tclass.dscp",
        "ip.ttl",
        "ipv6.hlim",
        "eth.src",
        "_ws.malformed",
    ];
    let read = fields_of(&copies, &[], &fields);
    for (number, ((read, copy), (side, original, payload))) in
        read.iter().zip(&copies).zip(&originals).enumerate()
    {
        let what = format!("{protocol}, {inner} in {outer}, {number}: {read:?}");
        let field = |name: &str| read[fields.iter().position(|&field| field == name).unwrap()].as_str();
        let tags = number % 2 * 4;
        assert_eq!(&copy[ETHERNET + tags + headers_len(protocol, outer)..], original, "{what}");
        assert_eq!(field("_ws.malformed"), "", "{what}");
        assert_eq!(field("udp.payload").rsplit(',').next().unwrap(), hex(payload), "{what}");
        let sums = if protocol == "vxlan" && outer == 6 {
            "1,1"
        } else if protocol == "vxlan" {
            "3,1"
        } else {
            "1"
        };
        assert_eq!(field("udp.checksum.status"), sums, "{what}");
        let headers = usize::from(inner == 4) + usize::from(outer == 4);
        assert_eq!(field("ip.checksum.status"), vec!["1"; headers].join(","), "{what}");
        let (dscp, ttl) =
            if outer == 4 { ("ip.dsfield.dscp", "ip.ttl") } else { ("ipv6.tclass.dscp", "ipv6.hlim") };
        assert!(field(dscp).starts_with('9') && field(ttl).starts_with('7'), "{what}");
        // A copy of a packet that arrived on the collector's side has its MAC addresses swapped.
        let ends = if *side == Side::Outside {
            "02:00:00:00:00:01,02:00:00:00:00:02"
        } else {
            "02:00:00:00:00:02,02:00:00:00:00:02"
        };
        assert_eq!(field("eth.src"), ends, "{what}");
        if protocol == "vxlan" {
            assert_eq!(field("vxlan.vni"), "1000", "{what}");
            continue;
        }
        assert_eq!(
            (field("erspan.spanid"), field("gre.sequence_number")),
            ("1000", number.to_string().as_str()),
            "{what}"
        );
        let (vlan, cos) = if tags > 0 { ("9", "3") } else { ("0", "0") };
        assert_eq!((field("erspan.vlan"), field("erspan.cos")), (vlan, cos), "{what}");
        assert!(["0", "False"].contains(&field("erspan.truncated")), "{what}");
        let version = if protocol == "erspan2" { "1" } else { "2" };
        assert_eq!(field("erspan.version"), version, "{what}");
        if protocol == "erspan3" {
            assert_eq!(field("erspan.timestamp"), ((at_ns / 100) as u32).to_string(), "{what}");
            assert_eq!(field("erspan.gra"), "1", "{what}");
            assert_eq!(["1", "True"].contains(&field("erspan.direction")), *side == Side::Outside, "{what}");
        }
    }
    assert!(bench.graph.counters().add_up());
    assert_eq!(bench.graph.counters().packets_generated, 12);
    let bytes: usize = originals.iter().map(|(_, frame, _)| frame.len()).sum();
    assert_eq!(["copies", "copied_bytes"].map(|name| counter(&bench, name)), [12, bytes as u64]);
}

/// A frame that came without an Ethernet header gets one.
#[test]
fn packets_without_ethernet_are_copied_behind_a_header() {
    let network = udp(host(6, 1), host(6, 2), b"text");
    let mut bench = mirror(&config("erspan2", 4, json!({})));
    let mut packet = bench.pool.take(&network).unwrap();
    packet.meta_mut().link = LinkType::RawIp;
    let mut out = vec![];
    bench.graph.process(&mut vec![packet], &mut out, &mut bench.pool);
    assert_eq!(out[1].data()[36..][..14], [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0x86, 0xdd]);
    assert_eq!(out[1].data()[50..], network);
}

#[test]
fn snap_and_mtu_limit_copies() {
    let network = udp(host(4, 1), host(4, 2), &[7; 700]);
    let whole = frame(&network);
    for (protocol, outer) in [("vxlan", 4), ("vxlan", 6), ("erspan2", 4), ("erspan3", 6)] {
        let headers = headers_len(protocol, outer);
        let mtu = if outer == 4 { 576 } else { 1_280 };
        let network = if outer == 4 { network.clone() } else { udp(host(4, 1), host(4, 2), &[7; 1_300]) };
        let whole = frame(&network);
        for (more, len, is_truncated) in [
            (json!({ "snap": 64 }), 64, 0),
            (json!({ "mtu": mtu }), mtu - headers, 1),
            (json!({ "mtu": mtu, "snap": 99 }), 99, 0),
        ] {
            let mut bench = mirror(&config(protocol, outer, more.clone()));
            let out = sent(&mut bench, SECOND_NS, Side::Inside, &network);
            assert_eq!(out[0].1, whole);
            let copy = &out[1].1;
            assert_eq!(copy[ETHERNET + headers..], whole[..len], "{protocol} {more}");
            assert_eq!(counter(&bench, "copies_truncated"), is_truncated, "{protocol} {more}");
            if protocol != "vxlan" {
                let at = ETHERNET + headers - if protocol == "erspan3" { 12 } else { 8 };
                assert_eq!(copy[at + 2] >> 2 & 1, 1, "the frame is said to be truncated");
            }
        }
    }
    let mut bench = mirror(&vxlan(json!({ "mtu": 9_000 })));
    assert_eq!(sent(&mut bench, SECOND_NS, Side::Inside, &network)[1].1[ETHERNET + 36..], whole);
}

/// Numbers of copies of packets that are exchanged in this many flows, each way.
fn copies(config: &Value, flows: u8, packets: usize) -> (u64, Bench) {
    let stages = vec![stage("monitor", &json!({})), stage("mirror", config)];
    let mut bench = Bench::new(stages, options());
    for _ in 0..packets {
        for number in 0..flows {
            let (client, server) = (host(4, number), v4(192, 0, 2, 1, 53));
            bench.one(SECOND_NS, Side::Inside, &udp(client, server, b"ask"));
            bench.one(SECOND_NS, Side::Outside, &udp(server, client, b"answer"));
        }
    }
    (counter_of(&bench, 1, "copies"), bench)
}

#[test]
fn selected_packets_are_copied() {
    for (more, copied) in [
        (json!({}), 2 * 20 * 50),
        (json!({ "direction": "from_inside" }), 20 * 50),
        (json!({ "direction": "from_outside" }), 20 * 50),
        (json!({ "first": 7 }), 20 * 7),
        (json!({ "first": 7, "direction": "from_outside" }), 20 * 7),
        (json!({ "first": 1_000 }), 2 * 20 * 50),
    ] {
        let (copies, bench) = copies(&vxlan(more.clone()), 20, 50);
        assert_eq!(copies, copied, "{more}");
        assert_eq!(bench.graph.counters().packets_generated, copied, "{more}");
    }
    let (copies, _) = copies(&vxlan(json!({ "sample": 10 })), 20, 500);
    assert!((1_800..2_200).contains(&copies), "{copies} of 20,000 packets, expected 2,000");
}

/// After its first packets, a flow follows rules, in the mirror and in its neighbours.
#[test]
fn packets_that_are_not_copied_follow_rules() {
    for more in [json!({ "first": 3 }), json!({})] {
        let (_, bench) = copies(&vxlan(more.clone()), 5, 40);
        let path = bench.graph.report().fast_path();
        assert!(path.packets >= 330, "{more}: {path:?}");
    }
}

fn drops_all() -> Box<dyn Stage> {
    stage("firewall", &json!({ "rules": "", "default": "deny" }))
}

/// Copies visit no other NF, whichever side they leave by, and leave even if the original does not.
#[test]
fn copies_leave_directly() {
    for side in ["inside", "outside"] {
        let config = vxlan(json!({ "side": side }));
        let towards = if side == "inside" { Side::Inside } else { Side::Outside };
        let stages = vec![stage("monitor", &json!({})), stage("mirror", &config), drops_all()];
        let mut bench = Bench::new(stages, options());
        let out = sent(&mut bench, SECOND_NS, Side::Inside, &udp(host(4, 1), host(4, 2), b"x"));
        assert_eq!(out.iter().map(|(side, _)| *side).collect::<Vec<_>>(), [towards]);
        assert_eq!(bench.drops(), [("firewall-default", 1)]);
        let visited = bench.graph.stages().iter().map(|stage| stage.counters().packets);
        assert_eq!(visited.collect::<Vec<_>>(), [1, 1, 1]);
        assert!(bench.graph.counters().add_up());
        // The firewall drops the packet before the mirror.
        assert!(sent(&mut bench, SECOND_NS, Side::Outside, &udp(host(4, 3), host(4, 2), b"x")).is_empty());
    }
}

/// Mirrors copy what arrives, and answers that pass, but neither copies nor what is on its way to
/// the collector.
#[test]
fn copies_are_not_copied() {
    let other = config("erspan2", 6, json!({ "side": "inside" }));
    let mut bench = Bench::new(vec![stage("mirror", &vxlan(json!({}))), stage("mirror", &other)], options());
    let out = sent(&mut bench, SECOND_NS, Side::Inside, &udp(host(4, 1), host(4, 2), b"x"));
    assert_eq!(out.len(), 3);
    let to_collector =
        &out.iter().find(|(side, frame)| *side == Side::Outside && frame.len() > 60).unwrap().1[ETHERNET..];
    let out = sent(&mut bench, SECOND_NS, Side::Outside, to_collector);
    assert_eq!(out.len(), 2, "the other mirror's copy");
    assert_eq!(counter_of(&bench, 0, "packets_of_mirrors"), 1);
    let reject = stage("firewall", &json!({ "rules": "reject" }));
    let mut bench = Bench::new(vec![stage("mirror", &vxlan(json!({}))), reject], options());
    assert_eq!(sent(&mut bench, SECOND_NS, Side::Inside, &udp(host(4, 1), host(4, 2), b"x")).len(), 3);
    assert_eq!(counter_of(&bench, 0, "copies"), 2, "the packet, and the ICMP error about it");
}

/// A copy that finds no buffer is counted; its original passes.
#[test]
fn without_buffers_copies_are_lost() {
    let mut bench = mirror(&vxlan(json!({})));
    let network = udp(host(4, 1), host(4, 2), b"x");
    let mut packets = vec![bench.pool.take(&frame(&network)).unwrap()];
    let held: Vec<_> = std::iter::from_fn(|| bench.pool.take(b"")).collect();
    let mut out = vec![];
    bench.graph.process(&mut packets, &mut out, &mut bench.pool);
    assert_eq!((out.len(), counter(&bench, "copies_lost"), counter(&bench, "copies")), (1, 1, 0));
    held.into_iter().chain(out).for_each(|packet| bench.pool.give(packet));
}

proptest! {
    #[test]
    fn batches_change_nothing_of_the_output(traffic in traffic(60), choice in 0usize..5) {
        let (protocol, more) = [
            ("vxlan", json!({})),
            ("erspan2", json!({})),
            ("erspan3", json!({ "side": "inside" })),
            ("erspan2", json!({ "first": 3 })),
            ("erspan2", json!({ "sample": 3 })),
        ][choice].clone();
        batches_change_nothing("mirror", &config(protocol, 4, more), &traffic);
    }
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    let registry: nf::Registry<Value> = functions::registry();
    let entry = registry.find("mirror").unwrap();
    let wrong = [
        (vxlan(json!({ "collector": "2001:db8::1" })), "one IP version"),
        (
            vxlan(json!({ "collector": "224.0.0.1" })),
            "`collector` must be the address of one host, not 224.0.0.1",
        ),
        (vxlan(json!({ "source": "0.0.0.0" })), "`source` must be the address of one host"),
        (vxlan(json!({ "session": 1 })), "`protocol` needs `vni` and no `session`"),
        (vxlan(json!({ "vni": null })), "`protocol` needs `vni`"),
        (vxlan(json!({ "vni": 1 << 24 })), "`vni` must be from 0 to 16777215"),
        (config("erspan2", 4, json!({ "session": 1_024 })), "`session` must be from 0 to 1023"),
        (vxlan(json!({ "sample": 2, "first": 2 })), "exclude each other"),
        (vxlan(json!({ "sample": 0 })), "`sample` must be from 1"),
        (vxlan(json!({ "first": 0 })), "`first` must be from 1"),
        (vxlan(json!({ "snap": 63 })), "`snap` must be from 64"),
        (vxlan(json!({ "mtu": 575 })), "`mtu` must be from 576"),
        (config("vxlan", 6, json!({ "mtu": 1_279 })), "`mtu` must be from 1280"),
        (vxlan(json!({ "dscp": 64 })), "`dscp` must be from 0 to 63"),
        (vxlan(json!({ "ttl": 0 })), "`ttl` must be from 1"),
        (vxlan(json!({ "protocol": "erspan1" })), "unknown variant `erspan1`"),
        (vxlan(json!({ "colour": 1 })), "unknown field `colour`"),
    ];
    for (config, why) in wrong {
        let error = entry.make(&config, nf::Setup::new(7, 16)).map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{config}: {error}");
    }
}
