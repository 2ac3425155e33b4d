//! ICMP errors (RFC 4301 6.2), and other packets that a tunnel's selectors cover indirectly:
//! protected data never appears outside.

use packet::Side::{Inside, Outside};
use packet::{Addr, Endpoint};
use serde_json::json;

use crate::meter_support::*;
use crate::pair::*;

/// Returns a router outside of all networks at the ends of a tunnel.
fn router(version: u8) -> Endpoint {
    match version {
        4 => v4(192, 168, 9, 9, 0),
        _ => Endpoint::new(Addr::from_u128(0x2001_0db8_0009 << 80 | 9), 0),
    }
}

/// Returns a host beyond both sites.
fn stranger(version: u8) -> Endpoint {
    match version {
        4 => v4(203, 0, 113, 80, 53),
        _ => Endpoint::new(Addr::from_u128(0x2001_0db8_00ff << 80 | 80), 53),
    }
}

/// Builds an ICMP error between these endpoints that quotes a packet.
fn error(from: Endpoint, to: Endpoint, quoted: &[u8]) -> Vec<u8> {
    let is_v4 = from.addr.is_v4();
    let kind = if is_v4 { 3 } else { 1 };
    let quoted = &quoted[..quoted.len().min(64)];
    // Uses the addresses of a datagram, with ICMP in place of UDP.
    let mut network = udp(from, to, &[&[kind, 3, 0, 0, 0, 0, 0, 0], quoted].concat());
    let at = if is_v4 { 20 } else { 40 };
    network.drain(at..at + 8);
    if is_v4 {
        let len = network.len() as u16;
        network[2..4].copy_from_slice(&len.to_be_bytes());
        network[9] = 1;
        // Fixes the header's checksum.
        network[8] += 1;
        network = routed(&network, 1);
    } else {
        let len = network.len() as u16 - 40;
        network[4..6].copy_from_slice(&len.to_be_bytes());
        network[6] = 58;
    }
    network
}

/// Builds a datagram between the sites, from the first or the second.
fn between(version: u8, from: u8) -> Vec<u8> {
    let (there, back) = (host(version, from, 5_000), host(version, 3 - from, 53));
    udp(there, back, b"a secret question")
}

fn holds(packet: &[u8], secret: &[u8]) -> bool {
    packet.windows(secret.len()).any(|window| window == secret)
}

#[test]
fn icmp_errors_of_routers_pass_the_tunnel_in_both_directions() {
    for version in [4, 6] {
        let [mut one, mut other] = pair("esp", 4);
        // A packet was decapsulated at the first site; a router there, in no network of the tunnel,
        // notifies its sender.
        let message = error(router(version), host(version, 2, 5_000), &between(version, 2));
        let sent = one.through(NOW_NS, Inside, &message);
        assert_eq!(sent[9], 50, "in the tunnel");
        assert_eq!(other.through(NOW_NS, Outside, &sent), routed(&message, 2), "and out of it");
        assert_eq!((counted(&one, "packets_out"), counted(&other, "packets_in")), (1, 1));
    }
}

#[test]
fn icmp_errors_that_quote_protected_packets_never_travel_in_the_clear() {
    for version in [4, 6] {
        let [mut one, _] = pair("esp", 4);
        let there = host(version, 1, 7);
        for quoted in [between(version, 1), between(version, 2)] {
            // To a stranger, from inside and from a router.
            for from in [there, router(version)] {
                let message = error(from, stranger(version), &quoted);
                assert_eq!(dropped(&mut one, Inside, &message), "vpn-error");
            }
            // In the clear from outside.
            let message = error(router(version), there, &quoted);
            assert_eq!(dropped(&mut one, Outside, &message), "vpn-error");
        }
        // To a host that did not send the packet.
        let message = error(router(version), host(version, 2, 5_000), &between(version, 1));
        assert_eq!(dropped(&mut one, Inside, &message), "vpn-error");
    }
}

#[test]
fn icmp_errors_about_unprotected_packets_are_unprotected() {
    for version in [4, 6] {
        let [mut one, _] = pair("esp", 4);
        let (there, stranger) = (host(version, 1, 5_000), stranger(version));
        let message = error(there, stranger, &udp(stranger, there, b"hello"));
        assert_eq!(one.through(NOW_NS, Inside, &message), message);
        let message = error(router(version), there, &udp(there, stranger, b"hello"));
        assert_eq!(one.through(NOW_NS, Outside, &message), message);
    }
}

#[test]
fn decapsulated_icmp_errors_quote_packets_that_were_encapsulated() {
    for version in [4, 6] {
        // The other end's networks are wider, so it sends everything.
        let all =
            json!({ "remote_networks": ["0.0.0.0/0", "::/0"], "local_networks": ["0.0.0.0/0", "::/0"] });
        let (mut wide, mut one) = (gateway("esp", 4, 2, &all), gateway("esp", 4, 1, &json!({})));
        let here = host(version, 1, 5_000);
        for (from, quoted, comes_out) in [
            (host(version, 2, 7), between(version, 1), true),
            (router(version), between(version, 1), true),
            (router(version), between(version, 2), false),
            (host(version, 2, 7), udp(here, stranger(version), b"hello"), false),
            (router(version), udp(here, stranger(version), b"hello"), false),
            (router(version), udp(stranger(version), here, b"hello"), false),
        ] {
            let sent = wide.through(NOW_NS, Inside, &error(from, here, &quoted));
            if comes_out {
                one.through(NOW_NS, Outside, &sent);
            } else {
                assert_eq!(dropped(&mut one, Outside, &sent), "vpn-selector");
            }
        }
    }
}

#[test]
fn an_icmp_error_to_one_site_does_not_quote_another_sites_packets() {
    let mut second = tunnel("esp", 4, 1);
    second["name"] = json!("u");
    second["remote"] = json!("198.51.100.2");
    second["remote_networks"] = json!(["10.3.0.0/16"]);
    second["outbound"] = json!({ "spi": 0x3001, "key": key("esp", 0).replace("00", "ff") });
    second["inbound"] = json!([{ "spi": 0x3002, "key": key("esp", 1).replace("80", "7f") }]);
    let mut one = with(&json!({ "tunnels": [tunnel("esp", 4, 1), second] }));
    let third = v4(10, 3, 0, 7, 53);
    let message = error(host(4, 1, 7), third, &between(4, 2));
    assert_eq!(dropped(&mut one, Inside, &message), "vpn-error");
    let message = error(host(4, 1, 7), third, &udp(third, host(4, 1, 7), b"hello"));
    assert!(!holds(&one.through(NOW_NS, Inside, &message), b"hello"));
}

#[test]
fn a_source_route_does_not_bypass_a_tunnel() {
    let [mut one, _] = pair("esp", 4);
    let plain = udp(host(4, 1, 5_000), stranger(4), b"a secret question");
    let mut network = plain[..20].to_vec();
    network.extend([0x83, 7, 4, 10, 2, 0, 7, 0]);
    network.extend(&plain[20..]);
    network[0] = 0x47;
    network[3] += 8;
    assert_eq!(dropped(&mut one, Inside, &network), "source-route");
    let plain = udp(host(6, 1, 5_000), stranger(6), b"a secret question");
    let mut network = plain[..40].to_vec();
    network.extend([17, 2, 4, 1, 0, 0, 0, 0]);
    network.extend((0x2001_0db8_0002_u128 << 80 | 7).to_be_bytes());
    network.extend(&plain[40..]);
    (network[5], network[6]) = (network[5] + 24, 43);
    assert_eq!(dropped(&mut one, Inside, &network), "source-route");
}
