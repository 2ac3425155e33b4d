//! Prefix translation for IPv6 (RFC 6296), packet by packet. The output equals the packet of a host
//! with the other address, with correct checksums and an unchanged payload.

use std::net::Ipv6Addr;

use crate::meter_support::{checksums_are_right, echo, fragments, ip, tcp, udp, unreachable};
use crate::nat_support::{ACK, Bench, Fate, SYN};
use nf::LinkAddresses;
use packet::DropReason::{NatHairpin, NatUntranslated, NatWrongSide};
use packet::Side::{Inside, Outside};
use packet::{Addr, Endpoint};
use proptest::prelude::*;

/// Prefixes of RFC 6296 3.6.
const SHORT: &str = r#"{"nptv6": [{"inside": "fd01:203:405::/48", "outside": "2001:db8:1::/48"}]}"#;
const LONG: &str = r#"{"nptv6": [{"inside": "fd01:203:405:100::/56", "outside": "2001:db8:1:200::/56"}]}"#;

/// Inside and outside addresses of two hosts: the example of RFC 6296 3.6, and another one.
const HOST: [&str; 2] = ["fd01:203:405:1::1234", "2001:db8:1:d550::1234"];
const PEER: [&str; 2] = ["fd01:203:405:2::9", "2001:db8:1:d551::9"];
const REMOTE: &str = "2001:db8:ffff::80";

fn addr(text: &str) -> Addr {
    text.parse::<Ipv6Addr>().unwrap().into()
}

fn at(text: &str, port: u16) -> Endpoint {
    Endpoint::new(addr(text), port)
}

fn with(more: &str) -> String {
    SHORT.replacen('{', &format!("{{{more}, "), 1)
}

/// Packets from one host to another.
type Make = fn(Addr, Addr) -> Vec<u8>;

/// An opening packet and its answer.
const TALKS: [(&str, Make, Make); 4] = [
    (
        "tcp",
        |from, to| tcp(Endpoint::new(from, 4_000), Endpoint::new(to, 80), SYN, b""),
        |from, to| tcp(Endpoint::new(from, 80), Endpoint::new(to, 4_000), SYN | ACK, b"odd"),
    ),
    (
        "udp",
        |from, to| udp(Endpoint::new(from, 5_000), Endpoint::new(to, 53), b"question"),
        |from, to| udp(Endpoint::new(from, 53), Endpoint::new(to, 5_000), b"the answer."),
    ),
    ("echo", |from, to| echo(from, to, 7, false, b"ping!"), |from, to| echo(from, to, 7, true, b"ping!")),
    // RFC 6296 3.1: a checksum-neutral translation needs no knowledge of the transport.
    ("unknown", |from, to| ip(from, to, 253, b"request"), |from, to| ip(from, to, 253, b"answer")),
];

/// Checks that the packet left by this side as `made`, and differs from `sent` only in its
/// addresses.
#[track_caller]
fn came_out(fate: &Fate, side: packet::Side, sent: &[u8], made: &[u8]) {
    assert_eq!(*fate, Fate::Out(side, made.to_vec()));
    assert!(checksums_are_right(made));
    assert_eq!((&sent[..8], &sent[40..]), (&made[..8], &made[40..]), "checksums are unchanged");
}

#[test]
fn flows_from_inside_have_the_outside_prefix() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    for (name, opens, answers) in TALKS {
        let mut bench = Bench::new(SHORT);
        for _ in 0..3 {
            println!("{name}");
            let sent = opens(inner, remote);
            came_out(&bench.inside(&sent), Outside, &sent, &opens(outer, remote));
            let sent = answers(remote, outer);
            came_out(&bench.outside(&sent), Inside, &sent, &answers(remote, inner));
        }
    }
}

#[test]
fn flows_from_outside_reach_the_host_of_the_address() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    for (name, opens, answers) in TALKS {
        let mut bench = Bench::new(SHORT);
        for _ in 0..3 {
            println!("{name}");
            let sent = opens(remote, outer);
            came_out(&bench.outside(&sent), Inside, &sent, &opens(remote, inner));
            let sent = answers(inner, remote);
            came_out(&bench.inside(&sent), Outside, &sent, &answers(outer, remote));
        }
    }
}

#[test]
fn datagrams_without_a_checksum_stay_without_one() {
    let mut sent = udp(at(HOST[0], 5_000), at(REMOTE, 53), b"tunnelled");
    let mut made = udp(at(HOST[1], 5_000), at(REMOTE, 53), b"tunnelled");
    for packet in [&mut sent, &mut made] {
        packet[46..48].fill(0);
    }
    came_out(&Bench::new(SHORT).inside(&sent), Outside, &sent, &made);
}

/// A wrong checksum stays wrong, so that the receiver detects it.
#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut bench = Bench::new(SHORT);
    let mut sent = tcp(at(HOST[0], 4_000), at(REMOTE, 80), SYN, b"damaged");
    sent[60] ^= 1;
    for _ in 0..2 {
        let Fate::Out(Outside, made) = bench.inside(&sent) else { panic!("it came not out") };
        assert_eq!((&made[8..24], &made[40..]), (&addr(HOST[1]).as_bytes()[..], &sent[40..]));
        assert!(!checksums_are_right(&made));
    }
}

/// RFC 4443 2.4 (c): an error quotes as much as fits, so the quotation may be truncated.
#[test]
fn icmp_errors_from_outside_quote_the_hosts_own_packet() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    let router = addr("2001:db8:ffff::1");
    for (name, opens, _) in TALKS {
        for flow_is_known in [true, false] {
            for cut in [0, 1, 100] {
                println!("{name}, flow known: {flow_is_known}, {cut} bytes fewer");
                let mut bench = Bench::new(SHORT);
                if flow_is_known {
                    bench.inside(&opens(inner, remote));
                }
                let about = |from| {
                    let packet = opens(from, remote);
                    let quoted = packet.len().saturating_sub(cut).max(48.min(packet.len()));
                    unreachable(router, &packet[..quoted])
                };
                let fate = bench.outside(&about(outer));
                assert_eq!(fate, Fate::Out(Inside, about(inner)));
            }
        }
    }
}

#[test]
fn icmp_errors_from_inside_quote_the_remote_hosts_own_packet() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    for (name, opens, _) in TALKS {
        for flow_is_known in [true, false] {
            println!("{name}, flow known: {flow_is_known}");
            let mut bench = Bench::new(SHORT);
            if flow_is_known {
                bench.outside(&opens(remote, outer));
            }
            // The host itself, then a router in front of it: each has an outside address of its
            // own.
            for sender in [HOST, PEER] {
                let [own, known_as] = sender.map(addr);
                let fate = bench.inside(&unreachable(own, &opens(remote, inner)));
                assert_eq!(fate, Fate::Out(Outside, unreachable(known_as, &opens(remote, outer))));
            }
        }
    }
}

#[test]
fn icmp_errors_neither_end_nor_change_their_flow() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    for (_, opens, answers) in TALKS {
        let mut bench = Bench::new(SHORT);
        bench.inside(&opens(inner, remote));
        bench.outside(&unreachable(remote, &opens(outer, remote)));
        let sent = answers(remote, outer);
        came_out(&bench.outside(&sent), Inside, &sent, &answers(remote, inner));
        let sent = opens(inner, remote);
        came_out(&bench.inside(&sent), Outside, &sent, &opens(outer, remote));
    }
}

#[test]
fn fragments_are_translated_in_any_order() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    let from = |host| udp(Endpoint::new(host, 5_000), Endpoint::new(remote, 53), &[7; 40]);
    let to = |host| udp(Endpoint::new(remote, 53), Endpoint::new(host, 5_000), &[9; 40]);
    let by = |side, made: Vec<Vec<u8>>| made.into_iter().map(|fragment| (side, fragment)).collect::<Vec<_>>();
    let mut bench = Bench::new(SHORT);
    let (sent, made) = (fragments(&from(inner), 1, 24), fragments(&from(outer), 1, 24));
    came_out(&bench.inside(&sent[0]), Outside, &sent[0], &made[0]);
    came_out(&bench.inside(&sent[1]), Outside, &sent[1], &made[1]);
    // The later fragment comes first, and is held until the first one.
    let (sent, made) = (fragments(&to(outer), 2, 24), fragments(&to(inner), 2, 24));
    assert_eq!(bench.outside(&sent[1]), Fate::Held);
    let out = bench.send_all(Outside, &sent[0]);
    assert_eq!(out, by(Inside, made));
    // A flow may begin with fragments.
    let (sent, made) = (fragments(&from(addr(PEER[0])), 3, 32), fragments(&from(addr(PEER[1])), 3, 32));
    assert_eq!(bench.inside(&sent[1]), Fate::Held);
    assert_eq!(bench.send_all(Inside, &sent[0]), by(Outside, made));
}

// RFC 6296 4.1
#[test]
fn hairpins_have_outside_addresses_at_both_ends() {
    let [a, outer_a, b, outer_b] = [HOST[0], HOST[1], PEER[0], PEER[1]].map(addr);
    for (name, opens, answers) in TALKS {
        let mut bench = Bench::new(SHORT);
        for _ in 0..3 {
            println!("{name}");
            let sent = opens(a, outer_b);
            came_out(&bench.inside(&sent), Inside, &sent, &opens(outer_a, b));
            let sent = answers(b, outer_a);
            came_out(&bench.inside(&sent), Inside, &sent, &answers(outer_b, a));
            // Packets that the peer could not accept.
            let fate = bench.inside(&unreachable(b, &opens(outer_a, b)));
            assert_eq!(fate, Fate::Out(Inside, unreachable(outer_b, &opens(a, outer_b))));
        }
        let mut bench = Bench::new(&with(r#""hairpin": false"#));
        assert_eq!(bench.inside(&opens(a, outer_b)).dropped(), NatHairpin);
    }
}

/// Returns links outside that have the outside prefix, or may have it, as on a wire.
fn shared_links() -> [LinkAddresses; 2] {
    let mut links = LinkAddresses::default();
    links.add_network(addr("2001:db8:1:d551::"), addr("2001:db8:1:d551:ffff:ffff:ffff:ffff"));
    [links, LinkAddresses::unknown()]
}

#[test]
fn neighbours_with_the_outside_prefix_are_reached() {
    let [a, outer_a, b, outer_b] = [HOST[0], HOST[1], PEER[0], PEER[1]].map(addr);
    for (name, opens, answers) in TALKS {
        for links in shared_links() {
            println!("{name}");
            let mut bench = Bench::with_links(SHORT, links);
            // No inside host has used the address: a neighbour's packets pass both ways.
            let sent = opens(a, outer_b);
            came_out(&bench.inside(&sent), Outside, &sent, &opens(outer_a, outer_b));
            let sent = answers(outer_b, outer_a);
            came_out(&bench.outside(&sent), Inside, &sent, &answers(outer_b, a));
            let error = unreachable(a, &answers(outer_b, a));
            let made = unreachable(outer_a, &answers(outer_b, outer_a));
            assert_eq!(bench.inside(&error), Fate::Out(Outside, made));
            // Once the host inside has used it, it is that host's.
            bench.inside(&opens(b, addr(REMOTE)));
            let c = addr("fd01:203:405:1::5678");
            let sent = opens(c, outer_b);
            assert!(matches!(bench.inside(&sent), Fate::Out(Inside, _)), "{name}");
        }
    }
}

#[test]
fn configured_hosts_are_reached_before_they_speak() {
    let [a, outer_a, b, outer_b] = [HOST[0], HOST[1], PEER[0], PEER[1]].map(addr);
    let config = SHORT.replace("/48\"}", &format!("/48\", \"hosts\": [\"{}\"]}}", PEER[0]));
    for links in shared_links() {
        let mut bench = Bench::with_links(&config, links);
        let (sent, made) = (echo(a, outer_b, 7, false, b"hi"), echo(outer_a, b, 7, false, b"hi"));
        came_out(&bench.inside(&sent), Inside, &sent, &made);
    }
}

// RFC 6296 3.3, 3.5
#[test]
fn addresses_without_a_counterpart_are_dropped() {
    let remote = addr(REMOTE);
    let cases = [
        (SHORT, "fd01:203:405:ffff::1", "2001:db8:1:ffff::1"),
        (LONG, "fd01:203:405:1ab:ffff:ffff:ffff:ffff", "2001:db8:1:2ab:ffff:ffff:ffff:ffff"),
    ];
    for (config, inner, outer) in cases {
        for (name, opens, _) in TALKS {
            println!("{name}, {inner}");
            let mut bench = Bench::new(config);
            for _ in 0..2 {
                assert_eq!(bench.inside(&opens(addr(inner), remote)).dropped(), NatUntranslated);
                assert_eq!(bench.outside(&opens(remote, addr(outer))).dropped(), NatUntranslated);
                let hairpin = opens(addr("fd01:203:405:101::1"), addr(outer));
                assert_eq!(bench.inside(&hairpin).dropped(), NatUntranslated);
                let error = unreachable(remote, &opens(addr(outer), remote));
                assert_eq!(bench.outside(&error).dropped(), NatUntranslated);
            }
            assert_eq!(bench.graph.counters().flows_live, 0, "a refused packet leaves no flow");
        }
    }
    // The subnet-router anycast address: its identifier would have to change.
    let routers = udp(at("fd01:203:405:1ab::", 5_000), at(REMOTE, 53), b"");
    assert_eq!(Bench::new(LONG).inside(&routers).dropped(), NatUntranslated);
}

#[test]
fn packets_of_other_prefixes_pass_or_are_dropped_as_configured() {
    let (other, remote) = (addr("fd01:203:406::1"), addr(REMOTE));
    for (_, opens, answers) in TALKS {
        let mut bench = Bench::new(SHORT);
        let sent = opens(other, remote);
        came_out(&bench.inside(&sent), Outside, &sent, &sent);
        let sent = answers(remote, other);
        came_out(&bench.outside(&sent), Inside, &sent, &sent);
        let mut bench = Bench::new(&with(r#""ipv6": "drop""#));
        assert_eq!(bench.inside(&opens(other, remote)).dropped(), NatUntranslated);
        assert_eq!(bench.outside(&opens(remote, other)).dropped(), NatUntranslated);
        let error = unreachable(remote, &opens(other, remote));
        assert_eq!(bench.outside(&error).dropped(), NatUntranslated);
    }
}

#[test]
fn packets_of_known_flows_from_the_wrong_side_are_dropped() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    for (name, opens, answers) in TALKS {
        println!("{name}");
        let mut bench = Bench::new(SHORT);
        bench.inside(&opens(inner, remote));
        assert_eq!(bench.outside(&opens(inner, remote)).dropped(), NatWrongSide);
        assert_eq!(bench.outside(&answers(remote, inner)).dropped(), NatWrongSide);
        let sent = answers(remote, outer);
        came_out(&bench.outside(&sent), Inside, &sent, &answers(remote, inner));
    }
}

/// No outside host can open a flow that makes an inside host's packets leave untranslated.
#[test]
fn inside_addresses_are_not_reached_from_outside() {
    let [inner, outer, remote] = [HOST[0], HOST[1], REMOTE].map(addr);
    for (name, opens, answers) in TALKS {
        println!("{name}");
        let mut bench = Bench::new(SHORT);
        assert_eq!(bench.outside(&answers(remote, inner)).dropped(), NatUntranslated);
        let error = unreachable(remote, &opens(inner, remote));
        assert_eq!(bench.outside(&error).dropped(), NatUntranslated);
        let sent = opens(inner, remote);
        came_out(&bench.inside(&sent), Outside, &sent, &opens(outer, remote));
    }
}

#[test]
fn the_first_matching_prefix_pair_applies() {
    let mut bench = Bench::new(
        r#"{"nptv6": [{"inside": "fd01:203:405:8000::/52", "outside": "2001:db8:2:8000::/52"},
                      {"inside": "fd01:203:405::/48", "outside": "2001:db8:1::/48"}]}"#,
    );
    for (inner, prefix) in [(HOST[0], "2001:db8:1:"), ("fd01:203:405:8001::1234", "2001:db8:2:8001:")] {
        let sent = udp(at(inner, 5_000), at(REMOTE, 53), b"");
        let Fate::Out(Outside, made) = bench.inside(&sent) else { panic!("{inner} came not out") };
        let outer = Ipv6Addr::from(<[u8; 16]>::try_from(&made[8..24]).unwrap());
        assert!(outer.to_string().starts_with(prefix), "{inner} became {outer}");
        came_out(
            &bench.inside(&sent),
            Outside,
            &sent,
            &udp(at(&outer.to_string(), 5_000), at(REMOTE, 53), b""),
        );
    }
}

#[test]
fn ipv4_is_not_translated() {
    let [host, remote] = [[10, 0, 0, 1], [192, 0, 2, 1]].map(Addr::from_v4_bytes);
    let packet = udp(Endpoint::new(host, 1), Endpoint::new(remote, 2), b"");
    assert_eq!(Bench::new(SHORT).inside(&packet).dropped(), NatUntranslated);
    let mut bench = Bench::new(&with(r#""untranslated": "pass""#));
    assert_eq!(bench.inside(&packet), Fate::Out(Outside, packet));
}

/// Words of addresses, with an emphasis on the edge cases of one's complement arithmetic.
fn word() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(0xffff), Just(1), Just(0xfffe), any::<u16>()]
}

fn words() -> impl Strategy<Value = u128> {
    prop::collection::vec(word(), 8)
        .prop_map(|words| words.iter().fold(0, |number, &word| number << 16 | u128::from(word)))
}

/// Generates prefix lengths; half of them have a subnet to adjust.
fn prefix_len() -> impl Strategy<Value = u32> {
    prop_oneof![Just(48), 48u32..=64]
}

/// Returns the mask of the bits after a prefix.
fn hosts(len: u32) -> u128 {
    u128::MAX >> len
}

proptest! {
    /// Out, the answer, and back from outside in another flow: the output equals a packet sent with
    /// the other address, byte for byte, and the addresses are restored.
    #[test]
    fn translation_is_reversible(
        (len, other_len) in (prefix_len(), prefix_len()),
        (inside, outside, host) in (words(), words(), words()),
        (talk, payload) in (0usize..3, prop::collection::vec(any::<u8>(), 0..20)),
    ) {
        let longest = hosts(len.max(other_len));
        // Prefixes from the blocks for such use, and distinct.
        let inside = (inside >> 8 | 0xfd << 120) & !hosts(len);
        let outside = (outside >> 16 | 0x2001 << 112) & !hosts(other_len);
        let host = host & longest;
        let (inner, remote) = (Addr::from_u128(inside | host), addr("2a00:1450::80"));
        let config = format!(
            r#"{{"nptv6": [{{"inside": "{}/{len}", "outside": "{}/{other_len}"}}]}}"#,
            Ipv6Addr::from(inside), Ipv6Addr::from(outside),
        );
        let make = |from: Addr, to: Addr, answer: bool| {
            let (near, far) = if answer { (53, 4_000) } else { (4_000, 53) };
            let ends = (Endpoint::new(from, near), Endpoint::new(to, far));
            match talk {
                0 => tcp(ends.0, ends.1, if answer { SYN | ACK } else { SYN }, &payload),
                1 => udp(ends.0, ends.1, &payload),
                _ => echo(from, to, 4_000, answer, &payload),
            }
        };
        let mut bench = Bench::with_flows(&config, 16);
        let sent = make(inner, remote, false);
        let fate = bench.inside(&sent);
        let in_subnet = len.max(other_len) == 48;
        let word = |number: u32| (host >> (112 - 16 * number)) as u16;
        let has_counterpart = match in_subnet {
            true => word(3) != 0xffff,
            false => host as u64 != 0 && host as u64 != u64::MAX,
        };
        if !has_counterpart {
            prop_assert_eq!(fate, Fate::Dropped(NatUntranslated));
            return Ok(());
        }
        let Fate::Out(Outside, made) = fate else { panic!("{fate:?}") };
        let outer = Addr::from_bytes(made[8..24].try_into().unwrap());
        // The prefix and the other bits except one word, which alone may change.
        prop_assert_eq!(outer.to_u128() & !hosts(other_len), outside);
        let changed = (outer.to_u128() & longest) ^ host;
        let words = if in_subnet { 3..4 } else { 4..8 };
        let adjusted = words.clone().find(|&number| word(number) != 0xffff).unwrap();
        prop_assert_eq!(changed & !(0xffff << (112 - 16 * adjusted)), 0);
        came_out(&Fate::Out(Outside, made), Outside, &sent, &make(outer, remote, false));

        let answer = make(remote, outer, true);
        came_out(&bench.outside(&answer), Inside, &answer, &make(remote, inner, true));
        let error = unreachable(remote, &make(outer, remote, false));
        let fate = bench.outside(&error);
        prop_assert_eq!(fate, Fate::Out(Inside, unreachable(remote, &sent)));
        let mut afresh = Bench::with_flows(&config, 16);
        let opens = make(remote, outer, false);
        came_out(&afresh.outside(&opens), Inside, &opens, &make(remote, inner, false));
    }
}
