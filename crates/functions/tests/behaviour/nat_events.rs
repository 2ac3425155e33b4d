//! NAT events (RFC 8158): each is reported once, with the endpoints of the packets.

use crate::nat_support::*;
use nf::EventValue;
use packet::DropReason::*;

const HOST: &str = "10.0.0.5:5000";
const SERVER: &str = "192.0.2.80:80";

/// Returns the events so far, as texts: `4 realm=1 src_ip=10.0.0.5 ...` without the name.
fn events(bench: &mut Bench) -> Vec<String> {
    let effects = bench.graph.effects_mut();
    let texts = effects.events.iter().map(|event| {
        assert_eq!(event.kind, "nat");
        let mut text = String::new();
        for (name, value) in event.fields() {
            match value {
                EventValue::Number(number) if name == "event" => text += &number.to_string(),
                EventValue::Number(number) => text += &format!(" {name}={number}"),
                EventValue::Text(_) if name == "name" => {}
                EventValue::Text(bytes) => text += &format!(" {name}={}", str::from_utf8(bytes).unwrap()),
                other => panic!("{name}: {other:?}"),
            }
        }
        text
    });
    let texts = texts.collect();
    effects.events.clear();
    texts
}

fn bench(more: &str) -> Bench {
    Bench::new(&format!(r#"{{"external": ["203.0.113.1"], {more}}}"#))
}

fn session(event: u8, realm: u8, ends: [&str; 4]) -> String {
    let names = ["src", "dest", "post_src", "post_dest"];
    let mut text = format!("{event} realm={realm}");
    for (name, end) in names.iter().zip(ends) {
        let (address, port) = end.split_once(':').unwrap();
        text += &format!(" {name}_ip={address} {name}_port={port}");
    }
    text
}

#[test]
fn sessions_begin_and_end_once() {
    let mut bench = bench(r#""events": ["sessions"]"#);
    let external = bench.udp_out(HOST, SERVER);
    let post = format!("{}:{}", external.0, external.1);
    let ends = [HOST, SERVER, &post, SERVER];
    assert_eq!(events(&mut bench), [session(4, 1, ends)]);
    for _ in 0..3 {
        bench.udp_out(HOST, SERVER);
        bench.outside(&udp(end(SERVER), external, b"in")).seen();
    }
    assert!(events(&mut bench).is_empty(), "packets of a known flow cause no events");
    // Another host opens a flow by the mapping, from the public realm.
    let other = "198.51.100.9:9";
    bench.outside(&udp(end(other), external, b"")).seen();
    let inwards = [other, &post, other, HOST];
    assert_eq!(events(&mut bench), [session(4, 2, inwards)]);
    bench.wait(1000);
    bench.expire();
    let mut ended = events(&mut bench);
    ended.sort();
    assert_eq!(ended, [session(5, 1, ends), session(5, 2, inwards)]);
}

#[test]
fn hairpins_icmp_and_forwards_are_sessions_but_untranslated_flows_are_not() {
    let mut bench = bench(
        r#""events": ["sessions"], "untranslated": "pass", "inside": ["10.0.0.0/8"],
           "forwards": [{"protocol": "udp", "external": "203.0.113.1:53", "internal": "10.0.0.9:5353"}]"#,
    );
    bench.outside(&udp(end(SERVER), end("203.0.113.1:53"), b"")).seen();
    assert_eq!(events(&mut bench), [session(4, 2, [SERVER, "203.0.113.1:53", SERVER, "10.0.0.9:5353"])]);
    bench.inside(&udp(end(HOST), end("203.0.113.1:53"), b"")).seen();
    assert_eq!(
        events(&mut bench),
        [session(4, 1, [HOST, "203.0.113.1:53", "203.0.113.1:5000", "10.0.0.9:5353"])]
    );
    bench.inside(&query(8, 77, end(HOST).0, end(SERVER).0)).seen();
    let reported = events(&mut bench);
    assert!(
        reported.len() == 1 && reported[0].starts_with("4 realm=1 src_ip=10.0.0.5 src_port=77"),
        "{reported:?}"
    );
    bench.inside(&udp(end("172.16.0.1:1"), end(SERVER), b"")).seen();
    assert!(events(&mut bench).is_empty());
}

#[test]
fn creation_and_release_of_mappings_and_blocks_are_reported() {
    let mut bench = bench(r#""events": ["mappings", "blocks"], "blocks": {"size": 16, "max": 1}"#);
    let external = bench.udp_out(HOST, SERVER);
    let binding = |event: u8| {
        format!(
            "{event} realm=1 src_ip=10.0.0.5 src_port=5000 post_src_ip=203.0.113.1 post_src_port={}",
            external.1
        )
    };
    let block = |event: u8, reported: &str| {
        let expected = format!("{event} src_ip=10.0.0.5 post_src_ip=203.0.113.1 port_first=");
        assert!(reported.starts_with(&expected), "{reported}");
        let (first, last) = reported[expected.len()..].split_once(" port_last=").unwrap();
        let (first, last): (u16, u16) = (first.parse().unwrap(), last.parse().unwrap());
        assert!((first..=last).contains(&external.1) && last - first == 15, "{reported}");
    };
    let reported = events(&mut bench);
    assert_eq!((reported.len(), &reported[1]), (2, &binding(8)));
    block(16, &reported[0]);
    bench.udp_out(HOST, "198.51.100.1:1");
    assert!(events(&mut bench).is_empty(), "the mapping existed");
    bench.wait(1000);
    bench.expire();
    let reported = events(&mut bench);
    assert_eq!((reported.len(), &reported[0]), (2, &binding(9)));
    block(17, &reported[1]);
}

#[test]
fn limits_are_reported_once_per_interval() {
    let mut bench = bench(
        r#""events": ["limits"], "ports": "2000-2003", "when_full": "refuse_new",
           "subscriber": {"sessions": 2}"#,
    );
    let opens = |bench: &mut Bench, host: u8, port: u16| {
        bench.inside(&udp(end(&format!("10.0.0.{host}:{port}")), end(SERVER), b""))
    };
    for port in [1, 2] {
        opens(&mut bench, 1, 4000 + port).seen();
    }
    assert!(events(&mut bench).is_empty());
    let quota = |host: u8| format!("13 src_ip=10.0.0.{host} quota=3 limit=2");
    for port in 0..5 {
        assert_eq!(opens(&mut bench, 1, 5000 + port).dropped(), NatSubscriberLimit);
    }
    assert_eq!(events(&mut bench), [quota(1)]);
    bench.wait(9);
    assert_eq!(opens(&mut bench, 1, 6000).dropped(), NatSubscriberLimit);
    assert!(events(&mut bench).is_empty());
    bench.wait(1);
    assert_eq!(opens(&mut bench, 1, 6001).dropped(), NatSubscriberLimit);
    assert_eq!(events(&mut bench), [quota(1)]);
    for port in [1, 2] {
        opens(&mut bench, 2, 4000 + port).seen();
    }
    for host in 3..9 {
        assert_eq!(opens(&mut bench, host, 4000).dropped(), NatPortsExhausted);
    }
    assert_eq!(events(&mut bench), ["12 post_src_ip=203.0.113.1"]);
}

#[test]
fn events_are_off_by_default() {
    let mut bench = bench(r#""ports": "2000-2000", "when_full": "refuse_new""#);
    bench.udp_out(HOST, SERVER);
    assert_eq!(bench.inside(&udp(end("10.0.0.6:1"), end(SERVER), b"")).dropped(), NatPortsExhausted);
    bench.wait(1000);
    bench.expire();
    assert!(events(&mut bench).is_empty());
}
