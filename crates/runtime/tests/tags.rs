//! Attributes that travel through external nodes: their layout, the paths of packets that bring
//! them, and frames as tshark reads them (E24).
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod support;
#[path = "../../functions/tests/tshark_support/mod.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod tshark_support;

use std::collections::BTreeSet;

use packet::{LinkType, wire::MacAddress};
use policy::{Policy, TagCarrier};
use proptest::prelude::*;
use runtime::external::tags::{NodeTags, TagCodec, TunnelEnds};
use runtime::{Assembly, Frame, Ingress, Runner};

use support::packets::{frame, udp, v4};
use support::{Sink, assembly_of};

/// A node after a firewall and a classifier.
fn text(keys: &str) -> String {
    format!(
        "Port<0> a; Port<1> b; Port<2> c; Port<3> d;
         Mark m {{ rules: \"tenant 5\" }}; FW f {{ rules: \"allow out\" }}; Monitor n;
         Native box {{ ports: {{ inside: \"memif:/a\", outside: \"memif:/b\" }}, {keys} }};
         pipelet {{
           a <-> m <-> f <-> box;
           box [box.class == 5] <-> n;
           box [FW.safe && box.sure] <-> n;
           n [m.tenant == 300] -> Drop;
           n [box.class == 6] <-> c;
           n <-> b;
           box [FW.safe] -> Drop;
           box <-> d;
         }}
         settings {{ seed: 1 }};"
    )
}

const KEYS: &str = "tags: geneve, sets: { class: 3, sure: 1 }";

fn layout(keys: &str) -> Result<String, String> {
    let policy = Policy::read("tags.rvl", &text(keys), &mut |_: &str| Err(String::new()));
    let policy = policy.map_err(|report| report.to_string())?;
    let all = NodeTags::of_policy(&policy, &functions::registry());
    let all = all.map_err(|wrong| wrong.iter().map(|one| one.message.clone()).collect::<String>())?;
    Ok(all.iter().map(ToString::to_string).collect())
}

#[test]
fn layouts_are_stable() {
    let expected = "\
tags of box (geneve, 21 of 64 bits)
  inside: Rivulet 100.127.0.1 (02:52:56:00:00:01), program 100.127.0.2 (02:52:56:00:00:02)
  outside: Rivulet 100.127.0.5 (02:52:56:00:00:05), program 100.127.0.6 (02:52:56:00:00:06)
  bits 2-0   box.class               set by the program
  bits 3     box.sure                set by the program
  bits 19-4  m.tenant                from inside
  bits 20    f.safe                  from inside
";
    assert_eq!(layout(KEYS).unwrap(), expected);
}

#[test]
fn too_many_bits_are_named() {
    let expected = "attributes through `box` take 21 bits, and a VLAN tag has 12: \
                    box.class 3, box.sure 1, m.tenant 16, f.safe 1";
    assert_eq!(layout("tags: vlan, sets: { class: 3, sure: 1 }"), Err(expected.to_owned()));
}

#[test]
fn no_tag_travels_without_need() {
    let none = "Port<0> a; Port<1> b; FW f { rules: \"allow out\" }; Legacy x { tags: vlan };
        pipelet { a <-> f [f.safe] <-> x <-> b; f -> Drop; }";
    let policy = Policy::read("tags.rvl", none, &mut |_: &str| Err(String::new())).unwrap();
    let all = NodeTags::of_policy(&policy, &functions::registry()).unwrap();
    assert_eq!(all[0].fields, []);
    assert!(all[0].codec(0).is_none() && all[0].to_string().is_empty());
}

#[test]
fn tags_must_suit_the_node() {
    let fault = |node: &str| {
        let text = format!("Port<0> a; Port<1> b; {node}; pipelet {{ a <-> x [x.safe] <-> b; x <-> b; }}");
        let policy = Policy::read("tags.rvl", &text, &mut |_: &str| Err(String::new())).unwrap();
        let wrong = runtime::assemble(&policy, &functions::registry(), 1, None).map(drop).unwrap_err();
        wrong.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        fault("Legacy x { mode: routed, tags: vlan, sets: { safe: 1 } }"),
        "`x` is a router, which would take VLAN tags off"
    );
    assert_eq!(
        fault("Legacy x { tags: geneve, sets: { safe: 1 } }"),
        "only the program of a `Native` node gets Geneve: the interfaces of a legacy one carry its packets"
    );
}

/// A packet that comes out of the program: its flow, and the attributes that it brings.
#[derive(Clone, Copy, Debug)]
struct Returned {
    flow: u8,
    class: u64,
    is_sure: bool,
    is_safe: bool,
    tenant: u64,
}

impl Returned {
    fn tags(self, assembly: &Assembly) -> u64 {
        let (m, f, node) = (0, 1, 3);
        let of = |owner, name, value| {
            assembly.graph.branches().unwrap().attribute_field(owner, name).unwrap().put(value)
        };
        of(node, "class", self.class)
            | of(node, "sure", self.is_sure.into())
            | of(f, "safe", self.is_safe.into())
            | of(m, "tenant", self.tenant)
    }

    /// The port that it leaves by, by a reading of the policy that is independent of the graph.
    fn port(self) -> Option<u16> {
        let to_monitor = self.class == 5 || self.is_safe && self.is_sure;
        match () {
            () if to_monitor && self.tenant == 300 => None,
            () if to_monitor => Some(if self.class == 6 { 2 } else { 1 }),
            () if self.is_safe => None,
            () => Some(3),
        }
    }
}

fn returned() -> impl Strategy<Value = Vec<Returned>> {
    let bit = prop::bool::weighted;
    let tenant = prop_oneof![4 => Just(5_u64), 1 => Just(300)];
    // Most packets of a flow are alike, so that rules are made.
    let one = (0_u8..5, prop_oneof![6 => Just(5_u64), 1 => 0_u64..8], bit(0.2), bit(0.2), tenant);
    let one = one.prop_map(|(flow, class, is_sure, is_safe, tenant)| Returned {
        flow,
        class,
        is_sure,
        is_safe,
        tenant,
    });
    prop::collection::vec((one, 1_usize..6), 10..60)
        .prop_map(|runs| runs.into_iter().flat_map(|(one, count)| vec![one; count]).collect())
}

/// Plays the packets in batches, and returns how many followed rules.
fn play(packets: &[Returned], batch: usize, consolidate: bool) -> Result<u64, TestCaseError> {
    let text = text(KEYS).replace("seed: 1", &format!("seed: 1, consolidate: {consolidate}"));
    let assembly = assembly_of("tags.rvl", &text);
    let outside = assembly.ports.named("box.outside").unwrap().number;
    let (mut runner, mut sink) = (Runner::new(assembly, "tags"), Sink::default());
    for (number, of) in packets.iter().enumerate() {
        let data = frame(&udp(v4(10, 0, 0, 1, 1000 + u16::from(of.flow)), v4(192, 0, 2, 1, 9999), &[7; 9]));
        let tags = of.tags(runner.assembly());
        let timestamp_ns = 1_700_000_000_000_000_000 + number as u64 * 1_000;
        let arriving =
            Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data: &data };
        runner.enqueue(arriving, Ingress::Tagged(outside, tags));
        if (number + 1) % batch == 0 {
            runner.flush(&mut sink).unwrap();
        }
    }
    let fast = {
        runner.flush(&mut sink).unwrap();
        runner.assembly().graph.report().fast_path().packets
    };
    // Packets of one flow leave in order, and all leave at the times at which they came.
    let mut sent: Vec<(u64, u16)> = sink.sent.iter().map(|(port, at_ns, _)| (*at_ns, *port)).collect();
    sent.sort_unstable();
    let expected = packets
        .iter()
        .enumerate()
        .filter_map(|(number, of)| Some((1_700_000_000_000_000_000 + number as u64 * 1_000, of.port()?)));
    prop_assert_eq!(sent, expected.collect::<Vec<_>>());
    Ok(fast)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Each packet takes the path of its own attributes, in batches and alone, with rules and
    /// without.
    #[test]
    fn packets_take_the_path_of_their_attributes(packets in returned(), batch in 1_usize..40, fast: bool) {
        play(&packets, batch, fast)?;
    }
}

#[test]
fn packets_with_equal_attributes_follow_rules() {
    let one = Returned { flow: 1, class: 5, is_sure: false, is_safe: true, tenant: 5 };
    let other = Returned { class: 0, is_safe: false, ..one };
    let packets = [[one; 20], [other; 20], [one; 20]].concat();
    assert!(play(&packets, 1, true).unwrap() > 30);
}

/// The attributes of NFs before the node keep their values on other paths.
#[test]
fn attributes_that_travel_share_no_bits() {
    let assembly = assembly_of("tags.rvl", &text(KEYS));
    let fields = [(0, "tenant"), (1, "safe"), (3, "class"), (3, "sure")];
    let masks = fields.map(|(owner, name)| {
        assembly.graph.branches().unwrap().attribute_field(owner, name).unwrap().put(u64::MAX)
    });
    let union = masks.iter().fold(0, |all, mask| {
        assert_eq!(all & mask, 0, "{masks:x?}");
        all | mask
    });
    assert_eq!(union.count_ones(), 21);
    assert!(assembly.graph.branches().unwrap().attribute_field(2, "class").is_none());
}

/// Another implementation reads what is written.
#[test]
fn tshark_reads_tags() {
    if !tshark_support::is_there() {
        return;
    }
    let packet = |number: u8| frame(&udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 9999), &[number; 40]));
    let tagged = |carrier, bits, tag: u64, frame: &[u8]| {
        let mut out = Vec::new();
        let codec = TagCodec::new(carrier, bits, TunnelEnds::of(1, 1)).unwrap();
        assert!(codec.write(frame, tag, u64::from(frame[50]) << 56, &mut out));
        out
    };
    let tags: Vec<u64> = vec![0, 1, 0xabc, 0xfffff, 0x1_2345_6789, u64::MAX];
    for bits in [20, 64] {
        let mask = u64::MAX >> (64 - bits);
        let tags = tags.iter().map(|tag| tag & mask);
        let frames: Vec<Vec<u8>> =
            tags.clone().zip(1..).map(|(tag, n)| tagged(TagCarrier::Geneve, bits, tag, &packet(n))).collect();
        let fields = [
            "geneve.option.class",
            "geneve.option.type",
            "geneve.option.unknown.data",
            "geneve.vni",
            "ip.dst",
            "ip.checksum.status",
            "udp.dstport",
            "eth.dst",
            "_ws.malformed",
        ];
        let shown = tshark_support::fields_of(&frames, &[], &fields);
        for (shown, tag) in shown.iter().zip(tags) {
            let data = tag.to_be_bytes();
            let data = if bits == 20 { &data[4..] } else { &data[..] };
            let [class, kind, value, vni, to, sums, ports, macs, malformed] = &shown[..] else { panic!() };
            assert_eq!((&**class, &**value), ("0xff52", &*tshark_support::hex(data)), "{shown:?}");
            assert!(kind == "0x01" && vni == "0x000000", "{shown:?}");
            assert_eq!(
                (&**to, &**sums, &**ports),
                ("100.127.0.14,192.0.2.1", "1,1", "6081,9999"),
                "{shown:?}"
            );
            assert!(macs.starts_with(&MacAddress([2, 0x52, 0x56, 0, 0, 14]).to_string()), "{shown:?}");
            assert_eq!(malformed, "");
        }
    }
    let frames: Vec<Vec<u8>> = (0..12_u8)
        .map(|bit| tagged(TagCarrier::Vlan, 12, 1 << bit, &packet(bit)))
        .chain([tagged(TagCarrier::Vlan, 12, 7, &tagged(TagCarrier::Vlan, 12, 9, &packet(1)))])
        .collect();
    let shown =
        tshark_support::fields_of(&frames, &[], &["vlan.id", "ieee8021ad.id", "ip.dst", "_ws.malformed"]);
    let shown: BTreeSet<String> = shown.iter().map(|of| of.join(" ")).collect();
    let expected = (0..12).map(|bit| format!("{}  192.0.2.1 ", 1 << bit));
    assert_eq!(shown, expected.chain(["9 7 192.0.2.1 ".to_owned()]).collect());
}
