//! Datagrams in fragments: what rules say of the whole ones, in whatever order their parts come.

use packet::{Endpoint, Side};

use crate::http_support::fragments;
use crate::ids_support::*;

const RULES: &str = r#"
drop udp any any -> any any (msg:"content"; content:"SECRET-IN-DATAGRAM"; sid:1;)
drop icmp any any -> any any (msg:"content"; content:"SECRET-IN-DATAGRAM"; sid:2;)
drop dns any any -> any any (msg:"query"; dns.query; content:"watched.example"; sid:3;)
alert udp any any -> any 6000 (msg:"size"; dsize:96; sid:4;)
alert udp any any -> any any (msg:"parts"; flow:only_frag; content:"SECRET"; sid:5;)
alert udp any any -> any any (msg:"no parts"; flow:no_frag; content:"SECRET"; sid:6;)
alert udp any any -> any 6000 (msg:"never"; content:!"SECRET"; sid:7;)
"#;

fn ends(port: u16, v6: bool) -> (Endpoint, Endpoint) {
    match v6 {
        false => (v4(10, 0, 0, 1, 5_000), v4(192, 0, 2, 1, port)),
        true => (self::v6(1, 5_000), self::v6(2, port)),
    }
}

/// 96 bytes in which the content lies over the border of fragments of 48 bytes.
fn secret() -> Vec<u8> {
    let mut payload = vec![b'x'; 96];
    payload[30..48].copy_from_slice(b"SECRET-IN-DATAGRAM");
    payload
}

fn query() -> Vec<u8> {
    let header = [0x1234u16, 0x0100, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], b"\x07watched\x07example\0\0\x01\0\x01"].concat()
}

fn arrivals(parts: &[Vec<u8>]) -> Vec<Arrival> {
    let arrival = |(number, part): (u64, &Vec<u8>)| Arrival {
        at_ns: SECOND_NS + number * MS_NS,
        side: Side::Inside,
        network: part.clone(),
    };
    (0..).zip(parts).map(arrival).collect()
}

/// Whole datagrams of each protocol, and the rules that hold on them.
fn datagrams() -> Vec<(Vec<u8>, Vec<u32>)> {
    let of = |v6: bool| {
        let (from, to) = ends(6_000, v6);
        let (asks, answers) = ends(53, v6);
        vec![
            (udp(from, to, &secret()), vec![1, 4, 5]),
            (echo(from.addr, to.addr, 7, false, &secret()), vec![2]),
            (udp(asks, answers, &query()), vec![3]),
        ]
    };
    [of(false), of(true)].concat()
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    let shorter = orders(count - 1);
    let with = |order: &Vec<usize>, at: usize| {
        let mut longer = order.clone();
        longer.insert(at, count - 1);
        longer
    };
    shorter.iter().flat_map(|order| (0..count).map(|at| with(order, at)).collect::<Vec<_>>()).collect()
}

#[test]
fn rules_hold_on_what_is_put_together() {
    for (whole, expected) in datagrams() {
        let seen = watch(RULES, &arrivals(std::slice::from_ref(&whole)));
        let of_whole: Vec<u32> = expected.iter().map(|rule| if *rule == 5 { 6 } else { *rule }).collect();
        assert_eq!((seen.rules(), seen.sent), (of_whole, 0));
        for size in [24, 40, 48] {
            let parts = fragments(&whole, 9, size);
            for order in orders(parts.len().min(4)).into_iter().step_by(5) {
                let mut shuffled: Vec<Vec<u8>> = order.iter().map(|at| parts[*at].clone()).collect();
                shuffled.extend(parts[order.len()..].iter().cloned());
                let seen = watch(RULES, &arrivals(&shuffled));
                assert_eq!(seen.rules(), expected, "parts of {size}: {order:?}");
                // Without the one that was dropped, its host gets none of it.
                assert_eq!(seen.sent, parts.len() - 1, "parts of {size}: {order:?}");
            }
        }
    }
}

#[test]
fn nothing_completes_a_datagram_that_was_dropped() {
    for (whole, _) in datagrams() {
        let parts = fragments(&whole, 9, 16);
        let last = parts.len() - 1;
        // The last part again, all of it again, and any single part.
        let mut all = parts.clone();
        all.push(parts[last].clone());
        all.extend(parts.iter().cloned());
        all.extend(parts.iter().rev().cloned());
        let seen = watch(RULES, &arrivals(&all));
        assert_eq!(seen.sent, last, "{:?}", seen.drops);
        assert!(seen.drops.iter().any(|(reason, _)| *reason == "fragment-of-dropped"), "{:?}", seen.drops);
    }
}

#[test]
fn what_does_not_hold_passes_whole() {
    let (from, to) = ends(6_001, false);
    let mut good = secret();
    good[33] = b'_';
    let parts = fragments(&udp(from, to, &good), 9, 24);
    let seen = watch(RULES, &arrivals(&parts));
    assert_eq!((seen.rules(), seen.sent), (vec![], parts.len()));
    // And the next one with the same identification is another one.
    let (one, other) = (fragments(&udp(from, to, &good), 9, 24), fragments(&udp(from, to, &secret()), 9, 24));
    let seen = watch(RULES, &arrivals(&[&one[..], &other].concat()));
    assert_eq!((seen.rules(), seen.sent), (vec![1, 5], 2 * parts.len() - 1));
}

#[test]
fn parts_that_no_host_takes_hide_nothing() {
    let (from, to) = ends(6_000, false);
    let parts = fragments(&udp(from, to, &secret()), 9, 48);
    let mut forged = fragments(&udp(from, to, &[b'y'; 96]), 9, 48);
    // A wrong checksum of the header.
    forged.iter_mut().for_each(|part| part[10] ^= 0xff);
    let seen = watch(RULES, &arrivals(&[&forged[1..], &parts[..]].concat()));
    assert_eq!(seen.rules(), [1, 4, 5]);
}

#[test]
fn rules_about_fragments_themselves_still_hold_on_each() {
    let (from, to) = ends(6_000, false);
    let parts = fragments(&udp(from, to, &secret()), 9, 48);
    let rules = r#"
alert ip any any -> any any (msg:"more"; fragbits:M; sid:1;)
alert ip any any -> any any (msg:"last"; fragbits:!M; fragoffset:>0; sid:2;)
alert udp any any -> any 6000 (msg:"once"; sid:3;)
"#;
    assert_eq!(watch(rules, &arrivals(&parts)).told, [(1, 1), (1, 3), (2, 1), (3, 2)]);
}
