//! Requirements on NATs, one by one: RFC 4787 (UDP), 5382 (TCP), 5508 (ICMP), 7857 (updates).

use crate::nat_support::*;
use packet::DropReason::*;
use packet::Side;

const PLAIN: &str = r#"{"external": ["203.0.113.1-203.0.113.2"]}"#;
const HOST: &str = "10.0.0.5:5000";
const SERVER: &str = "192.0.2.80:80";

fn with(more: &str) -> String {
    format!(r#"{{"external": ["203.0.113.1-203.0.113.2"], {more}}}"#)
}

fn server() -> std::net::Ipv4Addr {
    end(SERVER).0
}

// RFC 4787 REQ-1, RFC 5382 REQ-1
#[test]
fn mapping_is_endpoint_independent() {
    let mut bench = Bench::new(PLAIN);
    let first = bench.udp_out(HOST, SERVER);
    assert_eq!(bench.udp_out(HOST, "192.0.2.80:81"), first);
    assert_eq!(bench.udp_out(HOST, "198.51.100.9:9"), first);
    let syn = |to| tcp(end(HOST), end(to), SYN, b"");
    let one = bench.inside(&syn(SERVER)).seen().source;
    assert_eq!(bench.inside(&syn("198.51.100.9:9")).seen().source, one);
    let answer = bench.outside(&udp(end(SERVER), first, b"in")).seen();
    assert_eq!((answer.source, answer.destination), (end(SERVER), end(HOST)));
}

#[test]
fn address_dependent_mappings_are_configurable() {
    let cases = [("address_dependent", true), ("address_and_port_dependent", false)];
    for (mapping, same_address_same_mapping) in cases {
        let mut bench = Bench::new(&with(&format!(r#""mapping": "{mapping}""#)));
        let first = bench.udp_out(HOST, SERVER);
        assert_eq!(bench.udp_out(HOST, "192.0.2.80:81") == first, same_address_same_mapping, "{mapping}");
        let other = bench.udp_out(HOST, "198.51.100.9:80");
        assert_ne!(other, first, "{mapping}");
        assert_eq!(bench.outside(&udp(end("198.51.100.9:80"), other, b"")).seen().destination, end(HOST));
    }
}

// RFC 4787 REQ-2
#[test]
fn a_paired_subscriber_has_one_external_address() {
    let mut bench = Bench::new(PLAIN);
    let addresses: std::collections::BTreeSet<_> =
        (0..50).map(|i| bench.udp_out(&format!("10.0.0.5:{}", 5000 + i), SERVER).0).collect();
    assert_eq!(addresses.len(), 1);
    let all: std::collections::BTreeSet<_> =
        (0..50).map(|i| bench.udp_out(&format!("10.0.1.{i}:5000"), SERVER).0).collect();
    assert_eq!(all.len(), 2);
}

// RFC 4787 REQ-3, RFC 5382 REQ-7: no port overloading; ports keep to their range
#[test]
fn ports_are_preserved_if_free_and_stay_in_their_range() {
    let mut bench = Bench::new(r#"{"external": ["203.0.113.1"]}"#);
    let mut seen = std::collections::BTreeSet::new();
    for host in 1..100 {
        for port in [53, 500, 5000, 40001] {
            let external = bench.udp_out(&format!("10.0.0.{host}:{port}"), SERVER);
            assert!(seen.insert(external), "{external:?} twice");
            assert_eq!(external.1 < 1024, port < 1024);
            assert_eq!(external.1 % 2, port % 2); // REQ-4
            assert!(host > 1 || external.1 == port);
        }
    }
}

// RFC 7857 5, RFC 7857 6
#[test]
fn mappings_of_one_protocol_admit_no_other() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    assert_eq!(bench.outside(&tcp(end(SERVER), external, SYN, b"")).dropped(), NatNoMapping);
    let syn = tcp(end(HOST), end(SERVER), SYN, b"");
    assert_eq!(bench.inside(&syn).seen().source, external, "the same port, in a space of its own");
    bench.wait(270); // Longer than the opening of TCP may take, and shorter than UDP lives.
    assert_eq!(bench.outside(&tcp(end(SERVER), external, SYN, b"")).dropped(), NatNoMapping);
    assert_eq!(bench.outside(&udp(end(SERVER), external, b"")).seen().destination, end(HOST));
}

// RFC 7857 8
#[test]
fn parity_can_be_off() {
    let config = r#"{"external": ["203.0.113.1"], "port_selection": "random", "port_parity": false}"#;
    let mut bench = Bench::new(config);
    let odd =
        (1..=64).filter(|host| bench.udp_out(&format!("10.0.0.{host}:4000"), SERVER).1 % 2 == 1).count();
    assert!((8..=56).contains(&odd), "{odd} of 64 ports are odd");
}

// RFC 7857 9
#[test]
fn ports_are_chosen_at_random() {
    let mut bench = Bench::new(r#"{"external": ["203.0.113.1"], "port_selection": "random"}"#);
    let ports: Vec<u16> =
        (1..=200).map(|host| bench.udp_out(&format!("10.0.0.{host}:4000"), SERVER).1).collect();
    let in_upper_half = ports.iter().filter(|&&port| port >= 33_280).count();
    assert!((60..=140).contains(&in_upper_half), "{in_upper_half} of 200 ports are in the upper half");
    let close = ports.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100).count();
    assert!(close < 10, "{close} of 199 ports are close to the port before");
}

// RFC 4787 REQ-4
#[test]
fn parity_is_kept_while_a_port_of_it_is_free() {
    let mut bench =
        Bench::new(r#"{"external": ["203.0.113.1"], "ports": "2000-2005", "when_full": "refuse_new"}"#);
    let ports: Vec<u16> =
        (1..7).map(|host| bench.udp_out(&format!("10.0.0.{host}:4000"), SERVER).1).collect();
    assert!(ports[..3].iter().all(|port| port % 2 == 0) && ports[3..].iter().all(|port| port % 2 == 1));
    assert_eq!(bench.inside(&udp(end("10.0.0.9:4000"), end(SERVER), b"")).dropped(), NatPortsExhausted);
}

// RFC 4787 REQ-5, REQ-6
#[test]
fn udp_lives_five_minutes_after_the_last_packet_from_inside() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    bench.wait(299);
    assert_eq!(bench.outside(&udp(end(SERVER), external, b"")).seen().destination, end(HOST));
    bench.wait(2); // The packet from outside did not refresh it.
    assert_eq!(bench.outside(&udp(end(SERVER), external, b"")).dropped(), NatNoMapping);
    assert_eq!(bench.ports_in_use(), 0);

    let mut both = Bench::new(&with(r#""refresh": "both""#));
    let external = both.udp_out(HOST, SERVER);
    for _ in 0..3 {
        both.wait(299);
        assert_eq!(both.outside(&udp(end(SERVER), external, b"")).seen().destination, end(HOST));
    }
}

// RFC 4787 REQ-6, RFC 7857 7: packets from outside alone keep nothing alive
#[test]
fn outside_senders_do_not_refresh_a_mapping() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    for i in 0..29 {
        bench.wait(10);
        let stranger = end(&format!("198.51.100.{i}:9"));
        assert_eq!(bench.outside(&udp(stranger, external, b"")).seen().destination, end(HOST));
    }
    bench.wait(11);
    assert_eq!(bench.outside(&udp(end("198.51.100.99:9"), external, b"")).dropped(), NatNoMapping);
    assert_eq!(bench.outside(&udp(end("198.51.100.28:9"), external, b"")).dropped(), NatNoMapping);
}

#[test]
fn a_flow_from_outside_refreshes_its_mapping_once_answered() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    bench.wait(290);
    let stranger = end("198.51.100.7:9");
    assert_eq!(bench.outside(&udp(stranger, external, b"")).seen().destination, end(HOST));
    let answer = bench.inside(&udp(end(HOST), stranger, b"")).seen();
    assert_eq!((answer.source, answer.destination), (external, stranger));
    bench.wait(290);
    assert_eq!(bench.outside(&udp(stranger, external, b"")).seen().destination, end(HOST));
    assert_eq!(bench.outside(&udp(end(SERVER), external, b"")).seen().destination, end(HOST));
    bench.wait(11);
    assert_eq!(bench.outside(&udp(end(SERVER), external, b"")).dropped(), NatNoMapping);
    assert_eq!(bench.ports_in_use(), 0);
}

#[test]
fn an_unanswered_flow_from_outside_holds_no_port() {
    // One external address and no hold-down, so that the second host gets the port of the first.
    let mut bench = Bench::new(r#"{"external": ["203.0.113.1"], "hold_down": {"time": "0s"}}"#);
    let external = bench.udp_out(HOST, SERVER);
    bench.wait(290);
    let stranger = end("198.51.100.7:9");
    assert_eq!(bench.outside(&udp(stranger, external, b"")).seen().destination, end(HOST));
    bench.wait(12);
    // The mapping has expired; the flow that the stranger opened by it has not.
    let other = end("10.0.0.6:5000");
    let seen = bench.inside(&udp(other, stranger, b"")).seen();
    assert_eq!((seen.source, seen.destination), (external, stranger));
    assert_eq!(bench.outside(&udp(stranger, external, b"")).seen().destination, other);
}

// RFC 4787 REQ-8, RFC 5382 REQ-3
#[test]
fn filtering_is_as_configured() {
    let stranger = end("198.51.100.7:9");
    for (filtering, same_address, anybody) in [
        ("endpoint_independent", true, true),
        ("address_dependent", true, false),
        ("address_and_port_dependent", false, false),
    ] {
        let mut bench = Bench::new(&with(&format!(r#""filtering": "{filtering}""#)));
        let external = bench.udp_out(HOST, SERVER);
        let passes = |bench: &mut Bench, from: End| match bench.outside(&udp(from, external, b"")) {
            Fate::Out(Side::Inside, _) => true,
            fate => {
                assert_eq!(fate.dropped(), NatFiltered);
                false
            }
        };
        assert!(passes(&mut bench, end(SERVER)));
        assert_eq!(passes(&mut bench, (server(), 81)), same_address, "{filtering}");
        assert_eq!(passes(&mut bench, stranger), anybody, "{filtering}");
        // REQ-11: determinism. A permission lasts as long as the flow that gave it.
        bench.udp_out(HOST, "198.51.100.7:1");
        assert_eq!(passes(&mut bench, stranger), anybody || same_address, "{filtering}");
    }
}

#[test]
fn a_permission_ends_with_its_flow() {
    let mut bench = Bench::new(&with(r#""filtering": "address_dependent""#));
    let external = bench.udp_out(HOST, SERVER);
    bench.wait(200);
    bench.udp_out(HOST, "198.51.100.7:1");
    bench.wait(200);
    assert_eq!(bench.outside(&udp((server(), 81), external, b"")).dropped(), NatFiltered);
    assert_eq!(bench.outside(&udp(end("198.51.100.7:2"), external, b"")).seen().destination, end(HOST));
}

// RFC 4787 REQ-9, RFC 5382 REQ-8
#[test]
fn hairpins_have_external_addresses_at_both_ends() {
    let mut bench = Bench::new(PLAIN);
    let (a, b) = (end("10.0.0.1:1000"), end("10.0.0.2:2000"));
    let external_b = bench.udp_out("10.0.0.2:2000", SERVER);
    let fate = bench.inside(&udp(a, external_b, b"hello"));
    let Fate::Out(side, _) = &fate else { panic!("{fate:?}") };
    assert_eq!(*side, Side::Inside);
    let there = fate.seen();
    let external_a = there.source;
    assert_eq!(there.destination, b);
    assert_ne!(external_a, a);
    let back = bench.inside(&udp(b, external_a, b"hello yourself")).seen();
    assert_eq!((back.source, back.destination), (external_b, a));
    assert_eq!(bench.udp_out("10.0.0.1:1000", SERVER), external_a);
    let again = bench.inside(&udp(a, external_b, b"again")).seen();
    assert_eq!((again.source, again.destination), (external_a, b));
    bench.wait(301);
    bench.expire();
    assert_eq!(bench.ports_in_use(), 0);
    assert_eq!(bench.inside(&udp(a, external_b, b"late")).dropped(), NatNoMapping);
}

#[test]
fn hairpins_can_be_off_and_obey_filters() {
    let mut bench = Bench::new(&with(r#""hairpin": false"#));
    let external = bench.udp_out(HOST, SERVER);
    assert_eq!(bench.inside(&udp(end("10.0.0.1:1000"), external, b"")).dropped(), NatHairpin);
    let mut bench = Bench::new(&with(r#""filtering": "address_and_port_dependent""#));
    let external = bench.udp_out(HOST, SERVER);
    assert_eq!(bench.inside(&udp(end("10.0.0.1:1000"), external, b"")).dropped(), NatFiltered);
    assert_eq!(bench.ports_in_use(), 1);
}

#[test]
fn a_host_reaches_itself() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    let seen = bench.inside(&udp(end(HOST), external, b"echo")).seen();
    assert_eq!((seen.source, seen.destination), (external, end(HOST)));
}

// RFC 4787 REQ-14
#[test]
fn fragments_are_translated_in_any_order() {
    let mut bench = Bench::new(PLAIN);
    let (host, server) = (end("10.0.0.5:5000"), end(SERVER));
    let body = udp_body(host, server, &[7; 40]);
    let first = ipv4(UDP, host.0, server.0, 77, 0x2000, &body[..24]);
    let second = ipv4(UDP, host.0, server.0, 77, 0x2003, &body[24..40]);
    let third = ipv4(UDP, host.0, server.0, 77, 0x0005, &body[40..]);
    assert_eq!(bench.inside(&third), Fate::Held);
    let out = bench.send_all(Side::Inside, &first);
    let external = see(&out[0].1).source;
    assert_eq!(out.len(), 2);
    let mut whole = out[0].1[20..].to_vec();
    let second = bench.inside(&second).seen();
    assert_eq!((second.source.0, second.destination.0), (external.0, server.0));
    whole.extend(&second.payload);
    whole.extend(&see(&out[1].1).payload);
    assert_eq!(whole, udp_body(external, server, &[7; 40]));
    // The answer in fragments.
    let body = udp_body(server, external, &[9; 40]);
    let seen = bench.outside(&ipv4(UDP, server.0, external.0, 78, 0x2000, &body[..24])).seen();
    assert_eq!(seen.destination, host);
    let seen = bench.outside(&ipv4(UDP, server.0, external.0, 78, 0x0003, &body[24..])).seen();
    assert_eq!(seen.destination.0, host.0);
}

// RFC 5382 REQ-2
#[test]
fn every_valid_tcp_opening_is_handled() {
    let mut bench = Bench::new(PLAIN);
    let (host, server) = (end(HOST), end(SERVER));
    let external = bench.inside(&tcp(host, server, SYN, b"")).seen().source;
    // A simultaneous open: SYN against SYN.
    assert_eq!(bench.outside(&tcp(server, external, SYN, b"")).seen().destination, host);
    assert_eq!(bench.inside(&tcp(host, server, SYN | ACK, b"")).seen().source, external);
    // From outside, to an existing mapping.
    let stranger = end("198.51.100.7:9");
    assert_eq!(bench.outside(&tcp(stranger, external, SYN, b"")).seen().destination, host);
    assert_eq!(bench.inside(&tcp(host, stranger, SYN | ACK, b"")).seen().source, external);
    assert_eq!(bench.outside(&tcp(stranger, external, ACK, b"data")).seen().payload, b"data");
}

// RFC 5382 REQ-4
#[test]
fn an_unsolicited_syn_is_dropped_silently_and_has_no_effect() {
    let mut bench = Bench::new(&with(r#""filtering": "address_dependent""#));
    let (host, server) = (end(HOST), end(SERVER));
    let external = bench.inside(&tcp(host, end("198.51.100.7:9"), SYN, b"")).seen().source;
    assert_eq!(bench.outside(&tcp(server, external, SYN, b"")).dropped(), NatFiltered);
    bench.wait(1);
    assert_eq!(bench.inside(&tcp(host, server, SYN, b"")).seen().source, external);
    assert_eq!(bench.outside(&tcp(server, external, SYN, b"")).seen().destination, host);
}

// RFC 5382 REQ-5, RFC 7857 2
#[test]
fn tcp_timeouts_depend_on_the_phase() {
    let mut bench = Bench::new(PLAIN);
    let (host, server) = (end(HOST), end(SERVER));
    let connect = |bench: &mut Bench| {
        let external = bench.inside(&tcp(host, server, SYN, b"")).seen().source;
        bench.outside(&tcp(server, external, SYN | ACK, b"")).seen();
        bench.inside(&tcp(host, server, ACK, b"")).seen();
        external
    };
    let external = connect(&mut bench);
    bench.wait(7439);
    bench.outside(&tcp(server, external, ACK, b"late")).seen();
    bench.wait(7439);
    bench.outside(&tcp(server, external, ACK, b"later")).seen();
    bench.outside(&tcp(server, external, RST, b"")).seen();
    bench.wait(239);
    bench.outside(&tcp(server, external, ACK, b"straggler")).seen();
    bench.wait(241);
    assert_eq!(bench.outside(&tcp(server, external, SYN, b"")).dropped(), NatNoMapping);

    let external = connect(&mut bench);
    bench.inside(&tcp(host, server, FIN | ACK, b"")).seen();
    bench.wait(1000); // A half-closed connection is not closed.
    bench.outside(&tcp(server, external, FIN | ACK, b"")).seen();
    bench.wait(239);
    bench.inside(&tcp(host, server, ACK, b"")).seen();
    bench.wait(241);
    bench.expire();
    assert_eq!(bench.ports_in_use(), 0);
}

// RFC 7857 2
#[test]
fn a_segment_that_cannot_open_a_flow_is_dropped() {
    let mut bench = Bench::new(PLAIN);
    for flags in [ACK, SYN | ACK, RST, FIN | ACK] {
        assert_eq!(bench.inside(&tcp(end(HOST), end(SERVER), flags, b"")).dropped(), NatNotOpening);
    }
    let mut bench = Bench::new(&with(r#""tcp_opens_with": "any""#));
    bench.inside(&tcp(end(HOST), end(SERVER), ACK, b"")).seen();
    assert_eq!(bench.inside(&tcp(end("10.0.0.6:1"), end(SERVER), RST, b"")).dropped(), NatNotOpening);
}

/// RFC 9293 3.10.7.1
#[test]
fn a_segment_that_cannot_open_a_flow_is_reset_as_configured() {
    let mut bench = Bench::new(&with(r#""not_opening": "reject""#));
    let (host, external, server) = (end(HOST), end("203.0.113.1:5000"), end(SERVER));
    for (side, from, to) in [(Side::Inside, host, server), (Side::Outside, server, external)] {
        for flags in [ACK, SYN | ACK, FIN | ACK] {
            let segment = tcp(from, to, flags, b"data");
            let Fate::Out(_, reset) = bench.send(side, &segment) else { panic!("no answer") };
            let seen = see(&reset);
            assert_eq!((seen.source, seen.destination), (to, from));
            assert_eq!((reset[33], &reset[24..28]), (RST, &segment[28..32]), "as acknowledged");
        }
        assert_eq!(bench.send(side, &tcp(from, to, RST, b"")).dropped(), NatNotOpening);
    }
    let drops = bench.graph.counters().drops;
    assert_eq!(drops[NatNotOpening as usize], 8);
    // No more than ten at once to a host.
    let answered = (0..50).filter(|_| matches!(bench.inside(&tcp(host, server, ACK, b"")), Fate::Out(..)));
    assert_eq!(answered.count(), 7);
}

// RFC 7857 7.1
#[test]
fn a_reset_does_not_refresh_a_mapping() {
    let mut bench = Bench::new(PLAIN);
    let host = end(HOST);
    let external = bench.inside(&tcp(host, end(SERVER), SYN, b"")).seen().source;
    for i in 0..9 {
        bench.wait(25);
        let stranger = end(&format!("198.51.100.{i}:9"));
        bench.outside(&tcp(stranger, external, SYN, b"")).seen();
        assert_eq!(bench.inside(&tcp(host, stranger, RST | ACK, b"")).seen().source, external);
    }
    bench.wait(16);
    assert_eq!(bench.outside(&tcp(end("198.51.100.99:9"), external, SYN, b"")).dropped(), NatNoMapping);
}

// RFC 5508 REQ-1, REQ-2
#[test]
fn icmp_queries_pass_and_expire_after_a_minute() {
    let mut bench = Bench::new(PLAIN);
    let host = end(HOST).0;
    let out = bench.inside(&query(8, 4321, host, server())).seen();
    let external = out.source;
    assert_eq!((external.1, out.destination.0), (4321, server()));
    assert_eq!(bench.inside(&query(8, 4321, host, end("198.51.100.7").0)).seen().source, external); // REQ-1a
    // Another host with the same identifier gets another external one.
    let rival =
        (1..100).map(|i| end(&format!("10.0.0.{i}")).0).filter(|&rival| rival != host).find_map(|rival| {
            let seen = bench.inside(&query(8, 4321, rival, server())).seen();
            (seen.source.0 == external.0).then_some((rival, seen.source.1))
        });
    let (rival, id) = rival.unwrap();
    assert_ne!(id, 4321);
    let back = bench.outside(&query(0, id, server(), external.0)).seen();
    assert_eq!(back.destination, (rival, 4321));
    bench.wait(59);
    let back = bench.outside(&query(0, 4321, server(), external.0)).seen();
    assert_eq!(back.destination, (host, 4321));
    bench.wait(2);
    assert_eq!(bench.outside(&query(0, 4321, server(), external.0)).dropped(), NatNotOpening);
    assert_eq!(bench.inside(&query(0, 4321, host, server())).dropped(), NatNotOpening);
}

// RFC 5508 REQ-3, REQ-4, REQ-6; RFC 4787 REQ-12; RFC 5382 REQ-9, REQ-10
#[test]
fn icmp_errors_from_outside_reach_the_host_and_change_no_state() {
    let router = end("198.51.100.254").0;
    for (protocol, quoted_len) in [(UDP, 28), (UDP, 100), (TCP, 28), (TCP, 60), (ICMP, 28)] {
        let mut bench = Bench::new(PLAIN);
        let host = end(HOST);
        bench.udp_out("10.0.0.9:5000", SERVER);
        let sent = match protocol {
            UDP => udp(host, end(SERVER), b"some data"),
            TCP => tcp(host, end(SERVER), SYN, b"some data"),
            _ => query(8, 99, host.0, server()),
        };
        let Fate::Out(_, out) = bench.inside(&sent) else { panic!() };
        let external = see(&out).source;
        let seen = bench.outside(&error(3, 4, router, external.0, &out, quoted_len)).seen();
        assert_eq!((seen.source.0, seen.destination.0, seen.kind), (router, host.0, 3));
        let quoted = seen.quoted.unwrap();
        let original = see(&sent);
        assert_eq!((quoted.source, quoted.destination), (original.source, original.destination));
        // A wrong checksum, of the error or of the quoted header.
        let mut broken = error(3, 4, router, external.0, &out, quoted_len);
        broken[24] ^= 1;
        assert_eq!(bench.outside(&broken).dropped(), NatIcmpEmbedded);
        let mut ttl = out.clone();
        ttl[8] -= 1;
        let quotes_wrongly = error(3, 4, router, external.0, &ttl, quoted_len);
        assert_eq!(bench.outside(&quotes_wrongly).dropped(), NatIcmpEmbedded);
        // The flow continues: its answer still reaches the host.
        let answer = match protocol {
            UDP => udp(end(SERVER), external, b"answer"),
            TCP => tcp(end(SERVER), external, SYN | ACK, b""),
            _ => query(0, external.1, server(), external.0),
        };
        assert_eq!(bench.outside(&answer).seen().destination.0, host.0, "{protocol}");
        bench.inside(&sent).seen();
    }
}

// RFC 5508 REQ-6, RFC 7857 7.1
#[test]
fn icmp_errors_do_not_refresh_a_flow() {
    let datagram = udp(end(HOST), end(SERVER), b"x");
    let echo = query(8, 99, end(HOST).0, server());
    for (sent, timeout_s) in [(datagram, 300), (echo, 60)] {
        let mut bench = Bench::new(PLAIN);
        let Fate::Out(_, out) = bench.inside(&sent) else { panic!() };
        let external = see(&out).source;
        bench.wait(timeout_s - 1);
        bench.outside(&error(3, 1, server(), external.0, &out, 28)).seen();
        bench.wait(2);
        assert_eq!(bench.outside(&error(3, 1, server(), external.0, &out, 28)).dropped(), IcmpErrorUnrelated);
    }
}

// RFC 5508 REQ-5
#[test]
fn icmp_errors_from_inside_have_the_nats_address() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    let sent = udp(end(SERVER), external, b"for you");
    let Fate::Out(_, received) = bench.outside(&sent) else { panic!() };
    for sender in [end(HOST).0, end("10.9.9.9").0] {
        let seen = bench.inside(&error(3, 3, sender, server(), &received, 36)).seen();
        assert_eq!((seen.source.0, seen.destination.0), (external.0, server()));
        let quoted = seen.quoted.unwrap();
        assert_eq!((quoted.source, quoted.destination), (end(SERVER), external));
    }
}

// RFC 5508 REQ-4, REQ-5: no mapping
#[test]
fn icmp_errors_about_unknown_packets_are_dropped() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    let quoted = udp((external.0, 9), end(SERVER), b"never sent");
    let unknown = error(3, 3, server(), external.0, &quoted, 28);
    assert_eq!(bench.outside(&unknown).dropped(), IcmpErrorUnrelated);
    // Even if the error's own addresses are those of a flow: an echo with identifier 0.
    let mut bench = Bench::new(r#"{"one_to_one": [{"external": "203.0.113.1", "internal": "10.0.0.5"}]}"#);
    bench.inside(&query(8, 0, end(HOST).0, server())).seen();
    let quoted = udp((end("203.0.113.1").0, 9), end(SERVER), b"never sent");
    let unknown = error(3, 3, server(), end("203.0.113.1").0, &quoted, 28);
    assert_eq!(bench.outside(&unknown).dropped(), IcmpErrorUnrelated);
}

// RFC 5508 REQ-7, RFC 7857 12
#[test]
fn errors_and_queries_are_hairpinned() {
    let mut bench = Bench::new(PLAIN);
    let (a, b) = (end("10.0.0.1:1000"), end("10.0.0.2:2000"));
    let external_b = bench.udp_out("10.0.0.2:2000", SERVER);
    let sent = udp(a, external_b, b"hello");
    let Fate::Out(_, received) = bench.inside(&sent) else { panic!() };
    let external_a = see(&received).source;
    let fate = bench.inside(&error(3, 3, b.0, external_a.0, &received, 28));
    assert!(matches!(fate, Fate::Out(Side::Inside, _)));
    let seen = fate.seen();
    assert_eq!((seen.source.0, seen.destination.0), (external_b.0, a.0));
    let quoted = seen.quoted.unwrap();
    assert_eq!((quoted.source, quoted.destination), (a, external_b));
    // About an answer.
    let Fate::Out(_, received) = bench.inside(&udp(b, external_a, b"hi")) else { panic!() };
    let seen = bench.inside(&error(3, 3, a.0, external_b.0, &received, 28)).seen();
    assert_eq!((seen.source.0, seen.destination.0), (external_a.0, b.0));
    let quoted = seen.quoted.unwrap();
    assert_eq!((quoted.source, quoted.destination), (b, external_a));
    // A query to a mapped identifier.
    let id = bench.inside(&query(8, 7, b.0, server())).seen().source;
    let seen = bench.inside(&query(8, id.1, a.0, id.0)).seen();
    assert_eq!(seen.destination, (b.0, 7));
    // The receiver's answer returns. Its requests under the same identifier do not go to the first
    // host.
    let answer = query(0, 7, b.0, seen.source.0);
    assert_eq!(bench.inside(&answer).seen().destination.0, a.0);
    let question = query(8, 7, b.0, seen.source.0);
    assert_eq!(bench.inside(&question).dropped(), NatNotOpening);
}

// RFC 5508 REQ-11
#[test]
fn other_icmp_is_dropped() {
    let mut bench = Bench::new(PLAIN);
    assert_eq!(bench.inside(&query(9, 0, end(HOST).0, server())).dropped(), NatProtocol);
    assert_eq!(bench.outside(&query(10, 0, server(), end("203.0.113.1").0)).dropped(), NatProtocol);
}

/// With static rules only, other hosts pass, or are dropped as untranslated.
#[test]
fn static_rules_alone_do_not_translate_other_hosts() {
    for rule in [
        r#""forwards": [{"protocol": "tcp", "external": "203.0.113.1:80", "internal": "10.0.0.20:80"}]"#,
        r#""one_to_one": [{"external": "203.0.113.1", "internal": "10.0.0.20"}]"#,
    ] {
        for (untranslated, passes) in [("pass", true), ("drop", false)] {
            let config = format!(r#"{{{rule}, "untranslated": "{untranslated}"}}"#);
            let mut bench = Bench::new(&config);
            let outsider = end("198.51.100.9:80");
            for other in ["172.16.0.5:1234", "10.0.0.21:1234"] {
                let syn = tcp(end(other), outsider, SYN, b"");
                let fate = bench.inside(&syn);
                if !passes {
                    assert_eq!(fate.dropped(), NatUntranslated);
                    continue;
                }
                assert_eq!(fate.seen().source, end(other));
                let answer = bench.outside(&tcp(outsider, end(other), SYN | ACK, b"")).seen();
                assert_eq!(answer.destination, end(other));
            }
            // The server itself is translated in both directions.
            let seen = bench.outside(&tcp(outsider, end("203.0.113.1:80"), SYN, b"")).seen();
            assert_eq!(seen.destination, end("10.0.0.20:80"));
            // A hairpin would reach its peer untranslated.
            let inner = tcp(end("10.0.0.21:1"), end("203.0.113.1:80"), SYN, b"");
            assert_eq!(bench.inside(&inner).dropped(), NatUntranslated);
        }
    }
}

#[test]
fn static_rules_translate_in_both_directions() {
    let mut bench = Bench::new(&with(
        r#""forwards": [{"protocol": "tcp", "external": "203.0.113.1:8000-8009", "internal": "10.0.0.7:80-89"}],
           "one_to_one": [{"external": "203.0.113.9", "internal": "10.0.0.9"}]"#,
    ));
    let stranger = end("198.51.100.7:9");
    let seen = bench.outside(&tcp(stranger, end("203.0.113.1:8003"), SYN, b"")).seen();
    assert_eq!(seen.destination, end("10.0.0.7:83"));
    let seen = bench.inside(&tcp(end("10.0.0.7:83"), stranger, SYN | ACK, b"")).seen();
    assert_eq!(seen.source, end("203.0.113.1:8003"));
    let seen = bench.inside(&tcp(end("10.0.0.7:84"), stranger, SYN, b"")).seen();
    assert_eq!(seen.source, end("203.0.113.1:8004"));
    assert_eq!(bench.outside(&tcp(stranger, end("203.0.113.1:8010"), SYN, b"")).dropped(), NatNoMapping);
    // One-to-one: every protocol, with ports and identifiers unchanged, and from inside too.
    assert_eq!(
        bench.outside(&udp(stranger, end("203.0.113.9:53"), b"")).seen().destination,
        end("10.0.0.9:53")
    );
    assert_eq!(
        bench.outside(&query(8, 3, stranger.0, end("203.0.113.9").0)).seen().destination,
        (end("10.0.0.9").0, 3)
    );
    let gre = ipv4(47, end("10.0.0.9").0, stranger.0, 1, 0, &[0; 8]);
    assert_eq!(bench.inside(&gre).seen().source, end("203.0.113.9"));
    let seen = bench.inside(&udp(end("10.0.0.1:1"), end("203.0.113.9:53"), b"")).seen();
    assert_eq!(seen.destination, end("10.0.0.9:53"));
    // A dynamic mapping never uses a forwarded port.
    for host in 1..20 {
        let syn = tcp(end(&format!("10.0.1.{host}:8003")), stranger, SYN, b"");
        assert_ne!(bench.inside(&syn).seen().source, end("203.0.113.1:8003"));
    }
}

#[test]
fn protocols_without_ports_have_one_host_per_remote() {
    let mut bench = Bench::new(r#"{"external": ["203.0.113.1"]}"#);
    let esp = |from: &str, to: &str| ipv4(50, end(from).0, end(to).0, 1, 0, &[1; 16]);
    assert_eq!(bench.inside(&esp("10.0.0.1", "192.0.2.1")).seen().source, end("203.0.113.1"));
    assert_eq!(bench.outside(&esp("192.0.2.1", "203.0.113.1")).seen().destination, end("10.0.0.1"));
    assert_eq!(bench.inside(&esp("10.0.0.2", "192.0.2.1")).dropped(), NatPortsExhausted);
    assert_eq!(bench.inside(&esp("10.0.0.2", "192.0.2.2")).seen().source, end("203.0.113.1"));
    assert_eq!(bench.outside(&esp("192.0.2.3", "203.0.113.1")).dropped(), NatNoMapping);
    bench.wait(301);
    assert_eq!(bench.inside(&esp("10.0.0.2", "192.0.2.1")).seen().source, end("203.0.113.1"));
    assert_eq!(bench.ports_in_use(), 1);
}

#[test]
fn untranslated_packets_pass_or_are_dropped_as_configured() {
    let inside = r#""inside": ["10.0.0.0/8"]"#;
    let mut bench = Bench::new(&with(inside));
    let foreign = udp(end("172.16.0.1:1"), end(SERVER), b"");
    assert_eq!(bench.inside(&foreign).dropped(), NatUntranslated);
    let mut bench = Bench::new(&with(&format!(r#"{inside}, "untranslated": "pass""#)));
    assert_eq!(bench.inside(&foreign), Fate::Out(Side::Outside, foreign.clone()));
    assert_eq!(bench.inside(&foreign), Fate::Out(Side::Outside, foreign.clone()));
    let answer = udp(end(SERVER), end("172.16.0.1:1"), b"");
    assert_eq!(bench.outside(&answer), Fate::Out(Side::Inside, answer.clone()));
    assert_eq!(bench.outside(&udp(end(SERVER), end("10.0.0.1:1"), b"")).dropped(), NatUntranslated);
    let dhcp = udp(end("0.0.0.0:68"), end("255.255.255.255:67"), b"");
    assert_eq!(Bench::new(PLAIN).inside(&dhcp).dropped(), NatUntranslated);
}

#[test]
fn known_flows_cannot_be_spoofed_from_the_other_side() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    // The host's own packet, from outside; the server's, from inside; and the inside address from
    // outside.
    assert_eq!(bench.outside(&udp(end(HOST), end(SERVER), b"")).dropped(), NatWrongSide);
    assert_eq!(bench.inside(&udp(end(SERVER), external, b"")).dropped(), NatWrongSide);
    assert_eq!(bench.outside(&udp(end(SERVER), end(HOST), b"")).dropped(), NatWrongSide);
    bench.outside(&udp(end(SERVER), external, b"")).seen();
}
