//! NATs of carriers: limits of subscribers and port blocks (RFC 6888), logs, eviction of half-open
//! mappings, and drained addresses.

use crate::nat_support::*;
use nf::Translation;
use packet::DropReason::*;

const PLAIN: &str = r#"{"external": ["203.0.113.1-203.0.113.2"]}"#;
const HOST: &str = "10.0.0.5:5000";
const SERVER: &str = "192.0.2.80:80";

fn with(more: &str) -> String {
    format!(r#"{{"external": ["203.0.113.1-203.0.113.2"], {more}}}"#)
}

// RFC 6888 REQ-4
#[test]
fn subscribers_have_limits() {
    let mut bench = Bench::new(&with(r#""subscriber": {"sessions": 3}"#));
    for port in 1..4 {
        bench.udp_out("10.0.0.1:4000", &format!("192.0.2.80:{port}"));
    }
    let fourth = udp(end("10.0.0.1:4000"), end("192.0.2.80:4"), b"");
    assert_eq!(bench.inside(&fourth).dropped(), NatSubscriberLimit);
    bench.udp_out("10.0.0.2:4000", SERVER);
    bench.wait(301);
    bench.inside(&fourth).seen();

    let mut bench = Bench::new(&with(r#""subscriber": {"ports": 2}"#));
    bench.udp_out("10.0.0.1:4000", SERVER);
    bench.udp_out("10.0.0.1:4001", SERVER);
    bench.udp_out("10.0.0.1:4001", "192.0.2.80:81");
    let third = udp(end("10.0.0.1:4002"), end(SERVER), b"");
    assert_eq!(bench.inside(&third).dropped(), NatSubscriberLimit);
    bench.wait(301);
    bench.inside(&third).seen();
}

/// Opens a UDP flow of a host from port 6000, and lets its mapping end.
fn ended(bench: &mut Bench, host: &str) -> End {
    let external = bench.udp_out(&format!("{host}:6000"), SERVER);
    bench.wait(301);
    bench.expire();
    external
}

fn ports_held(bench: &Bench) -> (u32, u64) {
    let ports = &bench.graph.stages()[0].shared().pools[0];
    (ports.held(), ports.holds_cut())
}

// RFC 6888 REQ-8
#[test]
fn udp_ports_are_held_down() {
    for selection in ["preserve", "random", "sequential"] {
        let config = format!(r#"{{"external": ["203.0.113.1"], "port_selection": "{selection}"}}"#);
        let mut bench = Bench::new(&config);
        let first = ended(&mut bench, "10.0.0.7");
        assert_eq!(ports_held(&bench), (1, 0));
        // Another host's mapping is another port, and the old peer reaches no host.
        let second = bench.udp_out("10.0.0.8:6000", "192.0.2.91:9");
        assert_ne!(second, first, "{selection}");
        assert_eq!(bench.outside(&udp(end(SERVER), first, b"late")).dropped(), NatNoMapping);
        // The host that had it gets it again at once, in whatever way ports are chosen.
        assert_eq!(bench.udp_out("10.0.0.7:6000", "192.0.2.92:9"), first, "{selection}");
        assert_eq!(ports_held(&bench), (0, 0));
        bench.wait(301);
        bench.expire();
        assert_eq!(ports_held(&bench), (2, 0));
        bench.wait(119);
        assert_ne!(bench.udp_out("10.0.0.9:6000", SERVER), first, "{selection}");
        bench.wait(2);
        let later = bench.udp_out("10.0.0.10:6000", SERVER);
        assert_eq!(later == first, selection != "random", "{selection}");
        assert_eq!(ports_held(&bench).1, 0);
    }
    // As long as the policy says.
    for (hold, is_same) in [("5s", false), ("0s", true)] {
        let mut bench =
            Bench::new(&format!(r#"{{"external": ["203.0.113.1"], "hold_down": {{"time": "{hold}"}}}}"#));
        let first = ended(&mut bench, "10.0.0.7");
        assert_eq!(bench.udp_out("10.0.0.8:6000", SERVER) == first, is_same);
        bench.wait(6);
        assert_eq!(bench.udp_out("10.0.0.9:6000", SERVER) == first, !is_same);
    }
}

/// The state of TCP connections is tracked (RFC 6888 REQ-8 A), answers to queries come at once, and
/// a flow that was refused has sent nothing.
#[test]
fn other_ports_are_not_held_down() {
    let mut bench = Bench::new(r#"{"external": ["203.0.113.1"]}"#);
    bench.inside(&tcp(end("10.0.0.7:6000"), end(SERVER), SYN, b"")).seen();
    bench.inside(&query(8, 6000, end("10.0.0.7").0, end(SERVER).0)).seen();
    bench.wait(8000);
    bench.expire();
    assert_eq!((bench.ports_in_use(), ports_held(&bench)), (0, (0, 0)));
    assert_eq!(
        bench.inside(&tcp(end("10.0.0.8:6000"), end(SERVER), SYN, b"")).seen().source,
        end("203.0.113.1:6000")
    );
}

#[test]
fn ports_that_are_held_down_give_way() {
    let config = r#"{"external": ["203.0.113.1"], "ports": "2000-2015"}"#;
    let mut bench = Bench::new(config);
    for host in 1..=16 {
        bench.udp_out(&format!("10.0.0.{host}:6000"), SERVER);
    }
    bench.wait(301);
    bench.expire();
    assert_eq!((bench.ports_in_use(), ports_held(&bench)), (0, (16, 0)));
    for host in 17..=32 {
        bench.udp_out(&format!("10.0.0.{host}:6000"), SERVER);
    }
    assert_eq!((bench.ports_in_use(), ports_held(&bench)), (16, (0, 16)), "nobody is refused");
    // No more than the policy allows.
    let mut bench = Bench::new(r#"{"external": ["203.0.113.1"], "hold_down": {"max": 3}}"#);
    let hosts: Vec<End> =
        (1..=5).map(|host| bench.udp_out(&format!("10.0.0.{host}:{host}000"), SERVER)).collect();
    bench.wait(301);
    bench.expire();
    assert_eq!(ports_held(&bench), (3, 2));
    assert_eq!(bench.udp_out("10.0.0.9:1000", SERVER), hosts[0]);
    assert_ne!(bench.udp_out("10.0.0.9:5000", SERVER), hosts[4]);
}

#[test]
fn an_address_that_is_drained_is_not_given_again() {
    let mut bench = Bench::new(&with(r#""pooling": "arbitrary""#));
    let first = ended(&mut bench, "10.0.0.7");
    bench.graph.stage_mut(0).unwrap().control(&format!("drain {}", first.0)).unwrap();
    assert_ne!(bench.udp_out("10.0.0.7:6000", SERVER).0, first.0);
}

/// Ports are the subscriber's as long as it has the block.
#[test]
fn blocks_are_held_down() {
    let config = r#"{"external": ["203.0.113.1"], "ports": "10000-10063", "blocks": {"size": 16}}"#;
    let mut bench = Bench::new(config);
    let block = |external: End| (external.1 - 10_000) / 16;
    let held = |bench: &Bench| bench.graph.stages()[0].shared().pools[1].held();
    let first = block(ended(&mut bench, "10.0.0.1"));
    assert_eq!((held(&bench), ports_held(&bench).0), (1, 0));
    let others = [2, 3, 4].map(|host| block(bench.udp_out(&format!("10.0.0.{host}:6000"), SERVER)));
    assert!(!others.contains(&first), "{others:?}");
    assert_eq!(block(bench.udp_out("10.0.0.1:7000", SERVER)), first, "the subscriber has it again");
    bench.wait(301);
    bench.expire();
    assert_eq!(held(&bench), 4);
    bench.udp_out("10.0.0.5:6000", SERVER);
    assert_eq!(bench.graph.stages()[0].shared().pools[1].holds_cut(), 1, "no other is free");
}

// RFC 6888 REQ-14
#[test]
fn blocks_are_allocated_logged_and_released() {
    let translation =
        |alert: &nf::Alert| alert.detail.as_ref().and_then(|detail| detail.translation).unwrap();
    let config = r#"{"external": ["203.0.113.1"], "ports": "10000-10063", "blocks": {"size": 16, "max": 2},
        "when_full": "refuse_new"}"#;
    let mut bench = Bench::new(config);
    let mut ports: Vec<u16> =
        (0..16).map(|i| bench.udp_out(&format!("10.0.0.1:{}", 4000 + i), SERVER).1).collect();
    let alerts = bench.alerts();
    assert_eq!(alerts.len(), 1);
    assert_eq!((alerts[0].signature_id, &*alerts[0].signature), (1, "NAT port block allocated"));
    let Translation { protocol, internal, external, ports: (first, last) } = translation(&alerts[0]);
    assert_eq!((protocol, internal.port), (None, 0));
    assert_eq!((internal.addr.to_string(), external.to_string()), ("10.0.0.1".into(), "203.0.113.1".into()));
    ports.sort_unstable();
    assert_eq!(ports, (first..=last).collect::<Vec<_>>());
    assert_eq!(ports.len(), 16);
    bench.udp_out("10.0.0.1:5000", SERVER);
    assert_eq!(bench.alerts().len(), 1);
    for i in 1..16 {
        bench.udp_out(&format!("10.0.0.1:{}", 5000 + i), SERVER);
    }
    let more = udp(end("10.0.0.1:6000"), end(SERVER), b"");
    assert_eq!(bench.inside(&more).dropped(), NatSubscriberLimit);
    for host in [2, 3] {
        bench.udp_out(&format!("10.0.0.{host}:4000"), SERVER);
    }
    let fourth = udp(end("10.0.0.4:4000"), end(SERVER), b"");
    assert_eq!(bench.inside(&fourth).dropped(), NatPortsExhausted);
    bench.alerts();
    bench.wait(301);
    bench.expire();
    let alerts = bench.alerts();
    assert_eq!(alerts.len(), 4);
    assert!(alerts.iter().all(|alert| alert.signature_id == 2 && translation(alert).ports.1 > 0));
    bench.inside(&more).seen();
}

/// Each kind of event has one signature; fields contain the external endpoint.
#[test]
fn mappings_are_logged_with_their_external_endpoint() {
    let mut bench = Bench::new(&with(r#""log": "mappings""#));
    let made: Vec<End> = (1..=20).map(|host| bench.udp_out(&format!("10.0.0.{host}:4000"), SERVER)).collect();
    let alerts = bench.alerts();
    for (number, (alert, external)) in alerts.iter().zip(&made).enumerate() {
        let logged = alert.detail.as_ref().and_then(|detail| detail.translation).unwrap();
        assert_eq!((alert.signature_id, &*alert.signature), (3, "NAT mapping created"));
        assert_eq!(logged.internal.addr.to_string(), format!("10.0.0.{}", number + 1));
        assert_eq!((logged.protocol, logged.internal.port), (Some("udp"), 4000));
        assert_eq!(
            (logged.external.to_string(), logged.ports),
            (external.0.to_string(), (external.1, external.1))
        );
    }
    bench.wait(301);
    bench.expire();
    let freed = bench.alerts();
    assert_eq!((alerts.len(), freed.len()), (20, 20));
    assert!(freed.iter().all(|alert| alert.signature_id == 4 && alert.detail.is_some()));
}

/// Opening packets of many hosts cannot exhaust ports: unanswered flows are evicted, open ones are
/// not.
#[test]
fn half_open_mappings_are_evicted() {
    let config = r#"{"external": ["203.0.113.1"], "ports": "2000-2063"}"#;
    let mut bench = Bench::new(config);
    let open = |bench: &mut Bench, host: &str| {
        let external = bench.inside(&tcp(end(host), end(SERVER), SYN, b"")).seen().source;
        bench.outside(&tcp(end(SERVER), external, SYN | ACK, b"")).seen();
        bench.inside(&tcp(end(host), end(SERVER), ACK, b"")).seen();
        external
    };
    let idle: Vec<(String, End)> = (1..=16)
        .map(|i| format!("10.0.0.{i}:4000"))
        .map(|host| (host.clone(), open(&mut bench, &host)))
        .collect();
    for i in 0..5000u32 {
        bench.now_ns += 1000;
        let host = format!("10.1.{}.{}:{}", i / 250 % 250, i % 250, 1024 + i);
        bench.inside(&tcp(end(&host), end(SERVER), SYN, b"")).seen();
    }
    // A new client is served, and no open connection is lost.
    open(&mut bench, "10.2.0.1:4000");
    for (host, external) in &idle {
        assert_eq!(bench.inside(&tcp(end(host), end(SERVER), ACK, b"x")).seen().source, *external);
    }
    assert_eq!(bench.ports_in_use(), 64);
    let evicted = bench.graph.stages()[0].shared().counters.get("mappings_evicted");
    assert_eq!(evicted, Some(5000 + 1 - 48));
    // Without half-open mappings, or by configuration, the new flow is refused.
    let mut bench = Bench::new(config);
    (0..64).for_each(|i| {
        open(&mut bench, &format!("10.0.0.1:{}", 4000 + i));
    });
    let another = tcp(end("10.2.0.1:4000"), end(SERVER), SYN, b"");
    assert_eq!(bench.inside(&another).dropped(), NatPortsExhausted);
    let mut bench =
        Bench::new(r#"{"external": ["203.0.113.1"], "ports": "2000-2000", "when_full": "refuse_new"}"#);
    bench.inside(&tcp(end("10.0.0.1:1"), end(SERVER), SYN, b"")).seen();
    assert_eq!(bench.inside(&another).dropped(), NatPortsExhausted);
}

/// The same with port blocks: a block without open connections is evicted, a block with one is not.
#[test]
fn blocks_of_half_open_mappings_are_evicted() {
    // 16 blocks of 8 ports; few enough that every block is sampled soon.
    let config = r#"{"external": ["203.0.113.1"], "ports": "2000-2127", "blocks": {"size": 8, "max": 1}}"#;
    let mut bench = Bench::new(config);
    let open = |bench: &mut Bench, host: &str| {
        let external = bench.inside(&tcp(end(host), end(SERVER), SYN, b"")).seen().source;
        bench.outside(&tcp(end(SERVER), external, SYN | ACK, b"")).seen();
        bench.inside(&tcp(end(host), end(SERVER), ACK, b"")).seen();
        external
    };
    let idle: Vec<(String, End)> = (1..=4)
        .map(|i| format!("10.0.0.{i}:4000"))
        .map(|host| (host.clone(), open(&mut bench, &host)))
        .collect();
    // An open connection protects the other mappings in its block.
    let beside = bench.inside(&tcp(end("10.0.0.1:4001"), end(SERVER), SYN, b"")).seen().source;
    let mut refused = 0;
    for i in 0..1000u32 {
        bench.now_ns += 1000;
        for port in 0..1 + i % 8 {
            let host = format!("10.1.{}.{}:{}", i / 250, i % 250, 2000 + port);
            let syn = bench.inside(&tcp(end(&host), end(SERVER), SYN, b""));
            refused += usize::from(matches!(syn, Fate::Dropped(_)));
        }
    }
    // Of 16 blocks, eight are sampled; at most four of them have an open connection.
    assert_eq!(refused, 0);
    open(&mut bench, "10.2.0.1:4000");
    for (host, external) in &idle {
        assert_eq!(bench.inside(&tcp(end(host), end(SERVER), ACK, b"x")).seen().source, *external);
    }
    assert_eq!(bench.inside(&tcp(end("10.0.0.1:4001"), end(SERVER), ACK, b"")).seen().source, beside);
    // A subscriber with all its blocks gets no further one.
    for port in 0..8 {
        bench.inside(&tcp(end(&format!("10.3.0.1:{}", 5000 + port)), end(SERVER), SYN, b"")).seen();
    }
    let another = tcp(end("10.3.0.1:6000"), end(SERVER), SYN, b"");
    assert_eq!(bench.inside(&another).dropped(), NatSubscriberLimit);
    // If every block has an open connection, the new client is refused.
    let mut bench = Bench::new(config);
    (1..=16).for_each(|i| {
        open(&mut bench, &format!("10.0.0.{i}:4000"));
    });
    let another = tcp(end("10.2.0.1:4000"), end(SERVER), SYN, b"");
    assert_eq!(bench.inside(&another).dropped(), NatPortsExhausted);
}

/// A flow that would be refused anyway evicts no mapping.
#[test]
fn only_flows_that_need_a_mapping_evict_one() {
    let mut bench = Bench::new(
        r#"{"external": ["203.0.113.1"], "ports": "2000-2000", "inside": ["10.0.0.0/8"],
            "subscriber": {"ports": 1}, "filtering": "address_dependent"}"#,
    );
    let first = bench.udp_out("10.0.0.1:4000", SERVER);
    for refused in [
        udp(end("172.16.0.1:1"), end(SERVER), b""),
        udp(end("10.0.0.1:4001"), end(SERVER), b""),
        udp(end("10.0.0.2:4000"), end("224.0.0.1:9"), b""),
    ] {
        bench.inside(&refused).dropped();
    }
    // Another flow of the endpoint shares its mapping.
    assert_eq!(bench.udp_out("10.0.0.1:4000", "192.0.2.99:9"), first);
    // A mapping with two flows is not evicted.
    assert_eq!(bench.inside(&udp(end("10.0.0.2:4000"), end(SERVER), b"")).dropped(), NatPortsExhausted);
}

#[test]
fn a_drained_address_gets_no_new_mappings() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    bench.graph.stage_mut(0).unwrap().control(&format!("drain {}", external.0)).unwrap();
    assert_eq!(bench.udp_out(HOST, "192.0.2.1:1"), external);
    assert_ne!(bench.udp_out("10.0.0.5:5001", SERVER).0, external.0);
}

/// Draining an address in each state of its flows: a mapping lives as long as a flow holds it,
/// regardless of the connection's state, and new flows of the endpoint share it (RFC 4787 REQ-1).
#[test]
fn a_drained_address_keeps_its_mappings_until_they_expire() {
    let mut bench = Bench::new(PLAIN);
    let external = bench.udp_out(HOST, SERVER);
    let drain = format!("drain {}", external.0);
    bench.graph.stage_mut(0).unwrap().control(&drain).unwrap();
    assert_eq!(bench.udp_out(HOST, SERVER), external, "a known flow");
    assert_eq!(bench.udp_out(HOST, "192.0.2.9:9"), external, "a new flow of the same inside endpoint");
    bench.now_ns += 301_000_000_000; // Its five minutes have passed (RFC 4787 REQ-5).
    let next = bench.udp_out(HOST, SERVER);
    assert_ne!(next.0, external.0, "the same ports again");
    bench.graph.stage_mut(0).unwrap().control(&format!("resume {}", external.0)).unwrap();
    assert_eq!(bench.udp_out(HOST, SERVER), next);
}
