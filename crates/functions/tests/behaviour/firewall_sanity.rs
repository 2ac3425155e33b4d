//! Packets that rules cannot match, and link control traffic.

use functions::firewall::Firewall;
use graph::{Graph, Guards, NotIp, Options};
use nf::{Setup, stage};
use packet::{DropReason, LinkType, PacketPool};
use serde_json::json;

use crate::firewall_support::*;

fn with_options(config: serde_json::Value, link_control: bool, options: Options) -> Bench {
    let mut setup = Setup::new(1, options.flows_max);
    setup.link_control = link_control;
    let firewall = stage::load::<Firewall>(crate::firewall_support::config(config), setup).unwrap();
    let graph = Graph::new(vec![firewall], options).unwrap();
    Bench { graph, pool: PacketPool::new(512), now_ns: 1_000_000_000, answers: Vec::new(), last: None }
}

fn small() -> Options {
    Options { flows_max: 64, ..Options::default() }
}

fn frame(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type.to_be_bytes()[..], rest].concat()
}

fn syn(from: &str, to: &str) -> Vec<u8> {
    tcp((from, 4_000), (to, 80), SYN, 1, 0, 0)
}

/// Attacks from outside against a firewall that allows only TCP to port 80, each with its drop
/// reason.
fn tricks() -> Vec<(DropReason, Vec<u8>)> {
    let plain = syn(OUT, IN);
    let network = &plain[14..];
    let optioned = |option: &[u8; 8]| {
        let mut frame = [&plain[..34], option, &plain[34..]].concat();
        frame[14] = 0x47;
        frame[17] += 8;
        frame
    };
    let mut expired = plain.clone();
    expired[22] = 0;
    let mut routed = syn(OUT6, IN6);
    routed[20] = 43;
    routed[19] += 8;
    routed.splice(54..54, [6, 0, 0, 1, 0, 0, 0, 0]);
    let mut land = syn(IN, IN);
    land[34..36].copy_from_slice(&[0, 80]);
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], network].concat();
    vec![
        (DropReason::SourceRoute, optioned(&[0x83, 7, 4, 10, 0, 0, 1, 0])),
        (DropReason::SourceRoute, optioned(&[0x89, 7, 4, 10, 0, 0, 1, 0])),
        (DropReason::SourceRoute, routed),
        (DropReason::TtlZero, expired),
        (DropReason::Land, land),
        (DropReason::Martian, syn("127.0.0.1", IN)),
        (DropReason::Martian, syn("0.0.0.0", IN)),
        (DropReason::Martian, syn("224.0.0.1", IN)),
        (DropReason::Martian, syn("255.255.255.255", IN)),
        (DropReason::Martian, syn("240.0.0.1", IN)),
        (DropReason::Martian, syn("::1", IN6)),
        (DropReason::LinkEncapsulated, frame(0x8847, &[&[0, 1, 1, 64], network].concat())),
        (DropReason::LinkEncapsulated, frame(0x8864, &[&[0x11, 0, 0, 1, 0, 42, 0, 0x21], network].concat())),
        (DropReason::LinkEncapsulated, frame(snap.len() as u16, &snap)),
        (DropReason::NotIp, frame(0x1234, network)),
        (DropReason::NotIp, frame(0x0bad, network)),
    ]
}

const WEB: &str = "allow in tcp to any port 80";

#[test]
fn packets_that_rules_cannot_match_follow_the_default() {
    let mut denies = with_options(json!({ "rules": WEB }), true, small());
    let mut allows = with_options(json!({ "rules": WEB, "default": "allow" }), true, small());
    let mut rejects = with_options(json!({ "rules": WEB, "default": "reject" }), true, small());
    for (reason, frame) in tricks() {
        assert_eq!(denies.send(Outside, &frame), Dropped(reason), "{frame:02x?}");
        assert_eq!(rejects.send(Outside, &frame), Dropped(reason), "{frame:02x?}");
        assert_eq!(allows.send(Outside, &frame), Passed, "{reason}: {frame:02x?}");
    }
    assert_eq!(denies.graph.counters().flows_live, 0, "they leave no flows");
    assert_eq!(denies.send(Outside, &syn(OUT, IN)), Passed);
    // A command changes the default too.
    allows.control("default deny");
    denies.control("default allow");
    for (reason, frame) in tricks() {
        // Rules judge flows that were admitted by default; they do not begin again.
        if !matches!(reason, DropReason::Martian | DropReason::Land) {
            assert_eq!(allows.send(Outside, &frame), Dropped(reason));
        }
        assert_eq!(denies.send(Outside, &frame), Passed, "{reason}: {frame:02x?}");
    }
}

#[test]
fn settings_override_the_default() {
    let guards = Guards { martians: Some(false), encapsulated: Some(false), ..Guards::default() };
    let options = Options { guards, not_ip: NotIp::Pass, ..small() };
    let mut bench = with_options(json!({ "rules": WEB }), true, options);
    for (reason, frame) in tricks() {
        let passes = matches!(reason, DropReason::Martian | DropReason::LinkEncapsulated | DropReason::NotIp);
        assert_eq!(
            bench.send(Outside, &frame),
            if passes { Passed } else { Dropped(reason) },
            "{frame:02x?}"
        );
    }
    // Rules judge the inner packets of tunnels.
    let elsewhere = tcp((OUT, 4_000), (IN, 81), SYN, 1, 0, 0);
    let labelled = frame(0x8847, &[&[0, 1, 1, 64], &elsewhere[14..]].concat());
    assert_eq!(bench.send(Outside, &labelled), Dropped(DropReason::FirewallDefault));
}

/// Returns link control packets and frames.
fn link_control() -> Vec<Vec<u8>> {
    let icmp6 = |from: &str, to: &str, kind: u8, hop_limit: u8| {
        let mut frame = ip(from, to, 58, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0; 16]].concat());
        frame[21] = hop_limit;
        frame
    };
    vec![
        icmp6("fe80::1", "ff02::1:ff00:2", 135, 255),
        icmp6("fe80::2", "fe80::1", 136, 255),
        icmp6("::", "ff02::1:ff00:1", 135, 255),
        icmp6("fe80::1", "ff02::2", 133, 255),
        icmp6("fe80::fe", "ff02::1", 134, 255),
        icmp6("fe80::1", "ff02::16", 143, 1),
        udp(("0.0.0.0", 68), ("255.255.255.255", 67)),
        udp((OUT, 67), (IN, 68)),
        udp(("fe80::1", 546), ("ff02::1:2", 547)),
        udp(("fe80::9", 547), ("fe80::1", 546)),
    ]
}

#[test]
fn link_control_passes_regardless_of_rules_and_is_counted() {
    for config in [json!({ "rules": "deny in\ndeny out" }), json!({ "rules": "deny in", "stateful": false })]
    {
        let mut bench = with_options(config, true, small());
        let mut count = 0;
        for round in 0..4 {
            for frame in link_control() {
                assert_eq!(bench.send(Outside, &frame), Passed, "{round}: {frame:02x?}");
                count += 1;
            }
        }
        assert_eq!((bench.counter("link_control"), bench.counter("denied")), (count, 0));
        let stp =
            [&[0x01, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 38, 0x42, 0x42, 3][..], &[0; 35]].concat();
        for frame in [frame(0x0806, &[1; 28]), frame(0x88cc, &[2; 30]), stp] {
            assert_eq!(bench.send(Outside, &frame), Passed);
        }
        assert_eq!(bench.graph.counters().link_control_passed, 3);
    }
}

#[test]
fn forged_link_control_is_judged_by_rules() {
    let mut bench = with_options(json!({ "rules": "deny in" }), true, small());
    let mut routed = link_control()[1].clone();
    routed[21] = 254;
    for frame in [
        routed,
        icmp(OUT6, IN6, 128, 7),
        icmp("fe80::2", "fe80::1", 137, 0),
        udp((OUT, 67), (IN, 67)),
        udp((OUT, 68), (IN, 53)),
        udp((OUT6, 547), (IN6, 546)),
    ] {
        assert_eq!(bench.send(Outside, &frame), Dropped(DropReason::FirewallDenied), "{frame:02x?}");
    }
    // On a router's ports, or with `link_control: rules`, rules decide.
    let mut bench = with_options(json!({ "rules": "deny in" }), false, small());
    for frame in link_control() {
        let martian = frame[26..30] == [0; 4] && frame[12] == 8;
        assert!(matches!(bench.send(Outside, &frame), Dropped(_)), "{martian} {frame:02x?}");
    }
}

/// Captures of link types other than Ethernet are treated equally.
#[test]
fn other_link_types_are_judged_in_the_same_way() {
    let mut bench = with_options(json!({ "rules": WEB }), true, small());
    let header = [0x18, 0x41, 0x03, 0xcc];
    for (port, fate) in [(80, 1), (81, 0)] {
        let frame = tcp((OUT, 4_000), (IN, port), SYN, 1, 0, 0);
        let mut packet =
            packet_of(&mut bench.pool, Outside, &[&header, &frame[14..]].concat(), 2_000_000_000);
        packet.meta_mut().link = LinkType::from_number(107);
        let mut out = Vec::new();
        bench.graph.process(&mut vec![packet], &mut out, &mut bench.pool);
        assert_eq!(out.len(), fate, "port {port}");
    }
}
