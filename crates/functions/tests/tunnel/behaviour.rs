//! Handling of all kinds of packets by the tunnel.

use graph::RuleStep;
use packet::Side::{self, Inside, Outside};
use packet::{Addr, Direction};
use serde_json::json;

use crate::ends::*;
use crate::meter_support::*;

fn small(version: u8) -> Vec<u8> {
    udp(host(version, 1, 5_000), host(version, 2, 53), b"question")
}

/// Builds an IP packet of this length with a datagram.
fn sized(version: u8, len: usize) -> Vec<u8> {
    let headers = if version == 4 { 28 } else { 48 };
    udp(host(version, 1, 5_000), host(version, 2, 53), &vec![7; len - headers])
}

/// Returns the drop reason of a run's only packet.
fn dropped(bench: &mut Bench, side: Side, network: &[u8]) -> &'static str {
    let before = bench.drops();
    assert!(bench.one(NOW_NS, side, network).is_empty(), "it is dropped");
    let count = |name| before.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
    let after = bench.drops();
    after.iter().find(|&&(name, now)| now > count(name)).unwrap().0
}

// RFC 2003 3.1, RFC 2473 3, RFC 2784 2.4, RFC 2890 2, RFC 7348 5, RFC 8926 3
#[test]
fn packets_cross_by_all_protocols_and_ip_versions() {
    for protocol in PROTOCOLS {
        for (outer, inner) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            let [mut one, mut other] = pair(protocol, outer);
            for round in 0..4 {
                let packet = small(inner);
                let sent = one.through(NOW_NS + round, Inside, &packet);
                assert_eq!((sent[0] >> 4, sent.len()), (outer, packet.len() + headers(protocol, outer)));
                assert_eq!(sent[headers(protocol, outer)..], packet, "unchanged");
                assert_eq!(
                    other.through(NOW_NS + round, Outside, &sent),
                    packet,
                    "{protocol} {inner} in {outer}"
                );
                let back = udp(host(inner, 2, 53), host(inner, 1, 5_000), b"answer");
                let sent = other.through(NOW_NS + round, Inside, &back);
                assert_eq!(one.through(NOW_NS + round, Outside, &sent), back);
            }
            for (bench, name) in [(&one, "packets_out"), (&one, "packets_in"), (&other, "packets_in")] {
                assert_eq!(counter(bench, name), 4, "{name}");
            }
            assert_eq!(counter(&one, "bytes_out"), 4 * small(inner).len() as u64);
            // Both directions are one flow.
            assert_eq!(one.graph.counters().flows_started, 1);
        }
    }
}

// B11, B14
#[test]
fn packets_in_both_directions_follow_planned_rules() {
    for protocol in PROTOCOLS {
        for (outer, inner) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            let stages = vec![stage("monitor", &json!({})), stage("tunnel", &config(protocol, outer, 1))];
            let mut one = Bench::new(stages, graph::Options { inner: true, ..options() });
            let mut other = end(protocol, outer, 2, json!({}));
            for i in 0..100u64 {
                let (here, there) = (host(inner, 1, 5_000), host(inner, 2, 53));
                one.through(NOW_NS + i, Inside, &udp(here, there, &vec![1; i as usize * 11]));
                let back = with_class(&udp(there, here, &vec![2; i as usize * 7]), 2 | (i % 2) as u8);
                let sent = other.through(NOW_NS + i, Inside, &back);
                assert_eq!(one.through(NOW_NS + i, Outside, &sent), back, "{protocol}, {inner} in {outer}");
            }
            let path = one.graph.report().fast_path();
            assert!(path.packets > 190 && path.recorded == 0, "{protocol}, {inner} in {outer}: {path:?}");
            let steps = one.graph.flows().rule(0, Direction::Reply).unwrap().steps;
            let off = RuleStep::Decap(1, headers(protocol, outer));
            assert!(matches!(&steps[..], [RuleStep::Functions(1, _), then, ..] if *then == off), "{steps:?}");
            assert_eq!(counter_of(&one, 1, "packets_in"), 100);
            assert_eq!(counter_of(&one, 1, "bytes_in"), counter(&other, "bytes_out"));
        }
    }
}

#[test]
fn most_packets_that_leave_follow_a_rule() {
    for protocol in PROTOCOLS {
        let mut one = end(protocol, 4, 1, json!({}));
        let arrivals: Vec<_> =
            (0..200).map(|i| Arrival { at_ns: NOW_NS + i, side: Inside, network: small(4) }).collect();
        arrivals.chunks(20).for_each(|batch| one.batch(batch));
        assert_eq!(counter(&one, "packets_out"), 200);
        // A graph of one function has no rules; with another function it has.
        let stages = vec![stage("monitor", &json!({})), stage("tunnel", &config(protocol, 4, 1))];
        let mut graph = Bench::new(stages, graph::Options { inner: true, ..options() });
        arrivals.chunks(20).for_each(|batch| graph.batch(batch));
        assert!(
            graph.graph.report().fast_path().packets > 150,
            "{protocol}: {:?}",
            graph.graph.report().fast_path()
        );
        for (sent, alone) in graph.sent.iter().zip(&one.sent) {
            assert_eq!(sent.2, alone.2, "{protocol}");
        }
    }
}

// B4
#[test]
fn rules_of_other_functions_do_not_change_the_output() {
    let rules = json!({ "rules": "allow out\nallow in udp to any port 53" });
    for protocol in PROTOCOLS {
        for (outer, inner) in [(4, 4), (4, 6), (6, 4)] {
            let play = |consolidate| {
                let stages = vec![
                    stage("firewall", &rules),
                    stage("monitor", &json!({})),
                    stage("tunnel", &config(protocol, outer, 1)),
                ];
                let options = graph::Options { inner: true, consolidate, ..options() };
                let (mut one, mut other) = (Bench::new(stages, options), end(protocol, outer, 2, json!({})));
                let mut arrivals = vec![];
                for i in 0..300u64 {
                    let port = 5_000 + (i % 7) as u16;
                    let (here, there) = (host(inner, 1, port), host(inner, 2, 53));
                    let class = if i % 11 == 0 { 3 } else { 2 };
                    let asked =
                        with_class(&udp(here, there, &vec![1; (i * 13 % 1_500) as usize]), 46 << 2 | 2);
                    arrivals.push(Arrival { at_ns: NOW_NS + i * 1_000, side: Inside, network: asked });
                    let sent = other.through(NOW_NS + i, Inside, &udp(there, here, b"answer"));
                    let mut sent = with_class(&sent, class);
                    if i % 5 == 2 {
                        // Not quite the other end's packets: another source or network, a fragment,
                        // or an older packet.
                        sent[(i * 7) as usize % headers(protocol, outer)] ^= 1 << (i / 5 % 8);
                        sent = if sent[0] >> 4 == 4 { summed(sent) } else { sent };
                    }
                    arrivals.push(Arrival { at_ns: NOW_NS + i * 1_000 + 500, side: Outside, network: sent });
                    if i % 50 == 7 {
                        let bare = udp(there, here, b"forged");
                        arrivals.push(Arrival { at_ns: NOW_NS + i * 1_000, side: Outside, network: bare });
                    }
                }
                arrivals.chunks(32).for_each(|batch| one.batch(batch));
                let followed = one.graph.report().fast_path().packets;
                (one.outcome(), followed)
            };
            let ((plain, none), (short, followed)) = (play(false), play(true));
            assert_eq!(none, 0);
            assert!(followed > 400, "{protocol}, {inner} in {outer}: {followed}");
            assert!(short == plain, "{protocol}, {inner} in {outer}:\n{short:#?}\n{plain:#?}");
        }
    }
}

#[test]
fn outer_headers_are_as_configured() {
    let mut one = end("gre", 4, 1, json!({ "ttl": 9, "dscp": 46, "key": null }));
    let marked = with_class(&small(4), 10 << 2 | 2);
    let sent = one.through(NOW_NS, Inside, &marked);
    assert_eq!((sent[8], class(&sent)), (9, 46 << 2 | 2), "ECN is the inner one (RFC 6040 4.1)");
    assert_eq!(sent[20..24], [0, 0, 8, 0], "without a key");
    assert_eq!(sent[24..], marked);
    let mut one = end("vxlan", 4, 1, json!({}));
    let sent = one.through(NOW_NS, Inside, &marked);
    assert_eq!(class(&sent), class(&marked));
    assert_eq!(sent[26..28], [0, 0], "no checksum over IPv4 (RFC 7348 5)");
    for (version, checksum, has_one) in [(4, "always", true), (6, "auto", true), (6, "never", false)] {
        let mut one = end("geneve", version, 1, json!({ "udp_checksum": checksum }));
        let sent = one.through(NOW_NS, Inside, &marked);
        let at = if version == 4 { 26 } else { 46 };
        assert_eq!(sent[at..at + 2] != [0, 0], has_one);
        assert!(checksums_are_right(&sent) || !has_one);
        // It is right even if the inner packet is changed.
        let mut other = end("geneve", version, 2, json!({}));
        assert_eq!(other.through(NOW_NS, Outside, &sent), marked);
    }
}

#[test]
fn source_ports_vary_only_among_flows() {
    let mut one = end("vxlan", 4, 1, json!({}));
    let mut ports = std::collections::BTreeSet::new();
    for port in 1_000..1_064 {
        let packet = udp(host(4, 1, port), host(4, 2, 53), b"x");
        let [first, second] = [0, 1].map(|i| one.through(NOW_NS + i, Inside, &packet));
        assert_eq!(first[20..24], second[20..24]);
        ports.insert([first[20], first[21]]);
        assert!(first[20] >= 0xc0, "a dynamic port");
    }
    assert!(ports.len() > 50, "{}", ports.len());
}

// RFC 6040 4.2, figure 4
#[test]
fn congestion_marks_are_copied_to_the_inner_header() {
    for protocol in PROTOCOLS {
        for (version, inner, outer, out) in [
            (4, 2, 3, Some(3)),
            (6, 2, 3, Some(3)),
            (4, 1, 3, Some(3)),
            (4, 2, 1, Some(1)),
            (4, 2, 0, Some(2)),
            (4, 0, 3, None),
            (4, 0, 1, Some(0)),
            (6, 3, 0, Some(3)),
        ] {
            let [mut one, mut other] = pair(protocol, 4);
            let packet = with_class(&small(version), 46 << 2 | inner);
            let sent = one.through(NOW_NS, Inside, &packet);
            assert_eq!(class(&sent), class(&packet));
            // A router on the path also changes the outer DSCP, which is discarded.
            let sent = with_class(&sent, 8 << 2 | outer);
            match out {
                Some(ecn) => {
                    let arrived = other.through(NOW_NS, Outside, &sent);
                    assert_eq!(arrived, with_class(&packet, 46 << 2 | ecn), "{protocol} {inner} {outer}");
                    assert!(checksums_are_right(&arrived));
                }
                None => assert_eq!(dropped(&mut other, Outside, &sent), "tunnel-congestion"),
            }
        }
    }
}

#[test]
fn packets_from_other_sources_are_not_decapsulated() {
    for protocol in PROTOCOLS {
        let [mut one, mut other] = pair(protocol, 4);
        let sent = one.through(NOW_NS, Inside, &small(4));
        let mut forged = sent.clone();
        forged[15] ^= 1;
        assert_eq!(dropped(&mut other, Outside, &summed(forged)), "tunnel-peer", "{protocol}");
        let mut elsewhere = sent.clone();
        elsewhere[19] ^= 8;
        assert_eq!(dropped(&mut other, Outside, &summed(elsewhere)), "tunnel-other", "{protocol}");
        // Regardless of earlier packets: the known flow does not admit it.
        for round in 0..30 {
            assert_eq!(other.through(NOW_NS + round, Outside, &sent), small(4));
            assert_eq!(dropped(&mut other, Outside, &small(4)), "tunnel-other");
        }
        assert_eq!(counter(&other, "packets_others"), 31);
        let mut pass = end(protocol, 4, 2, json!({ "others": "pass" }));
        assert_eq!(pass.through(NOW_NS, Outside, &small(4)), small(4));
    }
    for (protocol, at) in [("gre", 24), ("vxlan", 32), ("geneve", 32)] {
        let [mut one, mut other] = pair(protocol, 4);
        let mut sent = one.through(NOW_NS, Inside, &small(4));
        sent[at] ^= 1;
        assert_eq!(dropped(&mut other, Outside, &sent), "tunnel-key", "{protocol}");
    }
    let mut bare = end("gre", 4, 2, json!({ "key": null }));
    let sent = end("gre", 4, 1, json!({})).through(NOW_NS, Inside, &small(4));
    assert_eq!(dropped(&mut bare, Outside, &sent), "tunnel-key", "an unexpected key");
}

#[test]
fn malformed_tunnel_packets_are_dropped() {
    let from_one = |protocol: &str| end(protocol, 4, 1, json!({})).through(NOW_NS, Inside, &small(4));
    for (protocol, at, value) in [
        ("gre", 20, 0xa0),    // A checksum (RFC 2784 2.1).
        ("gre", 21, 1),       // PPTP's version.
        ("gre", 22, 0x88),    // Not IP.
        ("gre", 28, 0x55),    // No valid IP version.
        ("vxlan", 28, 0),     // No network identifier.
        ("vxlan", 48, 0x81),  // A VLAN tag.
        ("geneve", 28, 0x40), // Another version.
        ("geneve", 29, 0x40), // Critical options.
        ("geneve", 29, 0x80), // A control packet.
    ] {
        let mut sent = from_one(protocol);
        sent[at] = value;
        let mut other = end(protocol, 4, 2, json!({}));
        assert_eq!(dropped(&mut other, Outside, &sent), "tunnel-malformed", "{protocol} {at}");
    }
    // A length field beyond the packet.
    let mut sent = from_one("ipip");
    sent[22] = 0x40;
    let other = end("ipip", 4, 2, json!({})).one(NOW_NS, Outside, &sent);
    assert!(other.is_empty());
}

/// Returns a keepalive of end 2: GRE around the expected answer, an IP packet from end 1 to it with
/// GRE of protocol 0.
fn keepalive(version: u8, answer: &[u8]) -> Vec<u8> {
    let ether_type = if version == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    let header = [&[0x20, 0][..], &ether_type, &0x1234_5678_u32.to_be_bytes()].concat();
    gre(version, [2, 1], &[&header, answer].concat())
}

/// Returns an IP packet between these outer addresses, of protocol GRE.
fn gre(version: u8, [from, to]: [usize; 2], payload: &[u8]) -> Vec<u8> {
    let addr = |site: usize| Addr::from(outer(version)[site - 1].parse::<std::net::IpAddr>().unwrap());
    match version {
        4 => {
            let len = (20 + payload.len()) as u16;
            let head = [&[0x45, 0][..], &len.to_be_bytes(), &[0, 9, 0, 0, 255, 47, 0, 0]].concat();
            summed([&head[..], &addr(from).v4_bytes(), &addr(to).v4_bytes(), payload].concat())
        }
        _ => {
            let head = [&[0x60, 0, 0, 0][..], &(payload.len() as u16).to_be_bytes(), &[47, 255]].concat();
            [&head[..], addr(from).as_bytes(), addr(to).as_bytes(), payload].concat()
        }
    }
}

#[test]
fn keepalives_of_the_other_end_are_returned() {
    for version in [4, 6] {
        for header in [&[0, 0, 0, 0][..], &[0x20, 0, 0, 0, 0x12, 0x34, 0x56, 0x78]] {
            let answer = gre(version, [1, 2], header);
            // What is outside of the tunnel sees both.
            let stages = vec![stage("tunnel", &config("gre", version, 1)), stage("monitor", &json!({}))];
            let mut one = Bench::new(stages, graph::Options { inner: true, ..options() });
            for round in 1..=40 {
                let sent = one.one(NOW_NS + round, Outside, &keepalive(version, &answer));
                let [(Outside, frame)] = &sent[..] else { panic!("{version}: {sent:?}") };
                assert_eq!(frame[frame.len() - answer.len()..], answer, "as it is, and outside the tunnel");
                assert_eq!(counter_of(&one, 0, "keepalives_answered"), round);
            }
            assert_eq!(one.drops(), [("tunnel-answered", 40)]);
            assert_eq!(counter_of(&one, 0, "packets_in"), 0);
            assert_eq!(one.graph.counters().tunnels, [0; packet::TunnelKind::COUNT]);
        }
    }
}

#[test]
fn only_keepalives_between_the_ends_are_returned() {
    let [here, there] = [1, 2].map(|site| host(4, site, 0).addr.v4_bytes());
    let between = |from: [u8; 4], to: [u8; 4], header: &[u8]| {
        let mut packet = gre(4, [1, 2], header);
        packet[12..16].copy_from_slice(&from);
        packet[16..20].copy_from_slice(&to);
        summed(packet)
    };
    let [local, remote] = outer(4).map(|addr| addr.parse::<std::net::Ipv4Addr>().unwrap().octets());
    let zero = [0, 0, 0, 0];
    for inner in [
        between(there, here, &zero), // The answer of a site's own tunnel.
        between(there, remote, &zero),
        between(local, here, &zero),
        between(remote, local, &zero),
        between(local, remote, &[0, 0, 0x88, 0xbe]),
    ] {
        let mut one = end("gre", 4, 1, json!({}));
        for round in 0..40 {
            assert_eq!(one.through(NOW_NS + round, Outside, &keepalive(4, &inner)), inner);
        }
        assert_eq!(counter(&one, "keepalives_answered"), 0);
    }
    // Other tunnels have none.
    let answer = gre(4, [1, 2], &zero);
    let nested = end("ipip", 4, 2, json!({})).through(NOW_NS, Inside, &small(4));
    let carried = summed([&[0x45, 0, 0, 44], &nested[4..20], &answer].concat());
    assert_eq!(end("ipip", 4, 1, json!({})).through(NOW_NS, Outside, &carried), answer);
}

#[test]
fn keepalives_are_returned_whatever_flows_there_are() {
    // The other end sends other packets with the addresses of a keepalive's answer.
    let answer = gre(4, [1, 2], &[0, 0, 0, 0]);
    let other = gre(4, [1, 2], &[0, 0, 0x88, 0xbe]);
    let stages = vec![stage("monitor", &json!({})), stage("tunnel", &config("gre", 4, 1))];
    let mut one = Bench::new(stages, graph::Options { inner: true, ..options() });
    for round in 0..40 {
        assert_eq!(one.through(NOW_NS + round, Outside, &keepalive(4, &other)), other);
        let sent = one.one(NOW_NS + round, Outside, &keepalive(4, &answer));
        assert!(matches!(&sent[..], [(Outside, _)]), "{sent:?}");
    }
    assert_eq!(counter_of(&one, 1, "keepalives_answered"), 40);
}

#[test]
fn sequence_numbers_and_options_of_the_other_end_are_ignored() {
    let sent = end("gre", 4, 1, json!({})).through(NOW_NS, Inside, &small(4));
    let numbered = [&sent[..20], &[0x30], &sent[21..28], &[0, 0, 0, 9], &sent[28..]].concat();
    let mut numbered = numbered;
    numbered[3] += 4;
    assert_eq!(end("gre", 4, 2, json!({})).through(NOW_NS, Outside, &summed(numbered)), small(4));
    let sent = end("geneve", 4, 1, json!({})).through(NOW_NS, Inside, &small(4));
    let mut more = [&sent[..28], &[2], &sent[29..36], &[1, 2, 3, 1, 0, 0, 0, 9], &sent[36..]].concat();
    (more[3], more[25]) = (more[3] + 8, more[25] + 8);
    assert_eq!(end("geneve", 4, 2, json!({})).through(NOW_NS, Outside, &summed(more)), small(4));
    // Linux puts an option before IP in IPv6 (RFC 2473 4.1.1).
    let sent = end("ipip", 6, 1, json!({})).through(NOW_NS, Inside, &small(4));
    let limit = [sent[6], 0, 4, 1, 4, 1, 0, 0];
    let mut limited = [&sent[..40], &limit, &sent[40..]].concat();
    (limited[5], limited[6]) = (limited[5] + 8, 60);
    assert_eq!(end("ipip", 6, 2, json!({})).through(NOW_NS, Outside, &limited), small(4));
}

// RFC 1191, RFC 8201, RFC 2003 5.1
#[test]
fn senders_are_notified_of_the_path_mtu() {
    for protocol in PROTOCOLS {
        for (outer, inner) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            let mtu = 1400 - headers(protocol, outer);
            let mut one = end(protocol, outer, 1, json!({ "mtu": 1400, "gateway4": "10.1.0.1" }));
            let whole = |len: usize| {
                let mut packet = sized(inner, len);
                if inner == 4 {
                    packet[6] = 0x40;
                    packet = summed(packet);
                }
                packet
            };
            assert_eq!(one.through(NOW_NS, Inside, &whole(mtu)).len(), 1400);
            let told = one.one(NOW_NS, Inside, &whole(mtu + 1));
            let [(Inside, frame)] = &told[..] else { panic!("{protocol} {inner} in {outer}: {told:?}") };
            let message = &frame[frame.len() - told_len(frame)..];
            match inner {
                4 => {
                    assert_eq!((message[9], message[20], message[21]), (1, 3, 4));
                    assert_eq!(message[12..16], [10, 1, 0, 1], "from the gateway");
                    assert_eq!(u16::from_be_bytes([message[26], message[27]]), mtu as u16);
                }
                _ => {
                    assert_eq!((message[6], message[40]), (58, 2));
                    assert_eq!(
                        message[8..24],
                        *host(6, 2, 0).addr.as_bytes(),
                        "from the destination's address"
                    );
                    assert_eq!(message[44..48], (mtu as u32).to_be_bytes());
                }
            }
            assert!(checksums_are_right(message));
            // Not for every packet.
            assert!(one.one(NOW_NS + 1, Inside, &whole(mtu + 1)).is_empty());
            assert_eq!(one.one(NOW_NS + 200 * MS_NS, Inside, &whole(mtu + 1)).len(), 1);
            assert_eq!(counter(&one, "errors_sent"), 2);
        }
    }
}

/// Returns the length of the IP packet at the end of a frame.
fn told_len(frame: &[u8]) -> usize {
    let at = if frame[0] >> 4 == 4 || frame[0] >> 4 == 6 { 0 } else { 14 };
    frame.len() - at
}

#[test]
fn oversized_packets_that_may_be_fragmented_pass() {
    let may_fragment = |len| {
        let mut packet = sized(4, len);
        packet[6] = 0;
        summed(packet)
    };
    let mut one = end("gre", 4, 1, json!({ "mtu": 1400 }));
    let mut other = end("gre", 4, 2, json!({}));
    let sent = one.through(NOW_NS, Inside, &may_fragment(1500));
    assert_eq!((sent.len(), sent[6] & 0x40), (1528, 0));
    assert_eq!(counter(&one, "packets_oversize"), 1);
    // The other end needs the packet reassembled.
    for (number, part) in fragments(&sent, 77, 800).iter().enumerate() {
        let why = if number == 0 { "tunnel-fragment" } else { "fragment-of-dropped" };
        assert_eq!(dropped(&mut other, Outside, part), why);
    }
    // Over IPv6, routers do not fragment.
    let mut one = end("gre", 6, 1, json!({ "mtu": 1400 }));
    assert_eq!(dropped(&mut one, Inside, &may_fragment(1500)), "too-big");
    // Fragments from inside pass one by one.
    for protocol in PROTOCOLS {
        let [mut one, mut other] = pair(protocol, 4);
        for part in fragments(&sized(4, 3000), 78, 1000) {
            let sent = one.through(NOW_NS, Inside, &part);
            assert_eq!(other.through(NOW_NS, Outside, &sent), part);
        }
    }
}

#[test]
fn nested_tunnels_are_decapsulated_but_not_encapsulated() {
    let outside = end("gre", 4, 1, json!({})).through(NOW_NS, Inside, &small(4));
    let mut one = end("ipip", 6, 1, json!({}));
    assert_eq!(dropped(&mut one, Inside, &outside), "tunnel-nested");
    // Another implementation may nest tunnels.
    let mut nested = vec![0x60, 0, 0, 0, 0, outside.len() as u8, 4, 64];
    for end in outer(6) {
        let address: std::net::Ipv6Addr = end.parse().unwrap();
        nested.extend(address.octets());
    }
    nested.extend(&outside);
    let mut other = end("ipip", 6, 2, json!({}));
    assert_eq!(other.through(NOW_NS, Outside, &nested), outside);
}

#[test]
fn inner_icmp_errors_belong_to_their_flows() {
    let [mut one, mut other] = pair("vxlan", 6);
    let mut cross = |from: usize, network: &[u8]| {
        let [sender, receiver] = if from == 1 { [&mut one, &mut other] } else { [&mut other, &mut one] };
        let sent = sender.through(NOW_NS, Inside, network);
        assert_eq!(receiver.through(NOW_NS, Outside, &sent), network);
    };
    let (client, server) = (host(4, 1, 4_000), host(4, 2, 80));
    cross(1, &tcp(client, server, 2, b""));
    cross(2, &tcp(server, client, 0x12, b""));
    cross(1, &tcp(client, server, 0x10, b"question"));
    cross(2, &unreachable(v4(10, 2, 0, 1, 0).addr, &tcp(client, server, 0x10, b"question")));
    for bench in [&one, &other] {
        assert_eq!(bench.graph.counters().flows_started, 1, "an error is of the flow that it is about");
    }
}

#[test]
fn output_does_not_depend_on_batches() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    for protocol in PROTOCOLS {
        let traffic = traffic(150).new_tree(&mut runner).unwrap().current();
        batches_change_nothing("tunnel", &config(protocol, 4, 1), &traffic);
    }
}
