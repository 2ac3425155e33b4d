//! QUIC connections keep their server when the client's address or port changes.

use std::collections::BTreeSet;

use crate::lb_support::*;
use serde_json::{Value, json};

const VIP: &str = "203.0.113.80:443";
const FOLLOWED: &str = "quic_followed";
const UNKNOWN: &str = "quic_unknown";

fn config(ids: bool) -> Value {
    let servers: Vec<_> = (1..=4)
        .map(|i| {
            let mut server = json!({ "name": format!("s{i}"), "address": format!("10.0.0.{i}") });
            if ids {
                server["quic_id"] = json!(format!("a{i}0{i}"));
            }
            server
        })
        .collect();
    json!({ "services": [{ "name": "h3", "vip": "203.0.113.80", "port": 443, "protocol": "udp",
                           "affinity": "quic", "table_size": 1009, "servers": servers }] })
}

fn client(i: u16) -> String {
    format!("198.51.100.7:{}", 20_000 + i)
}

/// Builds a packet with a long header (RFC 8999 5.1), of version 1.
fn long(kind: u8, destination: &[u8], source: &[u8]) -> Vec<u8> {
    let ids = [&[destination.len() as u8], destination, &[source.len() as u8], source].concat();
    [&[0xc0 | kind << 4, 0, 0, 0, 1][..], &ids, &[0; 40]].concat()
}

/// Builds a packet with a short header and random bytes after the connection ID.
fn short(destination: &[u8], salt: u8) -> Vec<u8> {
    [&[0x40 | salt & 0x1f], destination, &[salt; 25]].concat()
}

fn to_server(bench: &mut Bench, from: &str, payload: &[u8]) -> u8 {
    bench.pass(&udp(from, VIP, payload))[33]
}

/// Opens a connection, in which the server issues this connection ID; returns the server.
fn open(bench: &mut Bench, from: &str, cid: &[u8]) -> u8 {
    let server = to_server(bench, from, &long(0, &[from.len() as u8; 8], b"cl"));
    let answer = udp(&format!("10.0.0.{server}:443"), from, &long(2, b"cl", cid));
    assert_eq!(bench.reply(&answer)[26..30], [203, 0, 113, 80]);
    server
}

#[test]
fn connection_ids_lead_to_the_servers_that_issued_them() {
    for len in [4, 8, 20] {
        let mut bench = Bench::new(&config(false));
        let cids: Vec<Vec<u8>> = (0..30u8).map(|i| vec![i.wrapping_mul(37); len]).collect();
        let servers: Vec<u8> = (0..)
            .zip(&cids)
            .map(|(i, cid)| {
                let from = format!("198.51.{i}.{}:{}", i + 1, 1_000 + i);
                let first = long(0, &[i as u8, 1, 2, 3, 4, 5, 6, 7], b"cl");
                let server = to_server(&mut bench, &from, &first);
                bench.reply(&udp(&format!("10.0.0.{server}:443"), &from, &long(2, b"cl", cid)));
                server
            })
            .collect();
        assert!(servers.iter().collect::<BTreeSet<_>>().len() > 1);
        for port in 0..5 {
            for (cid, &server) in cids.iter().zip(&servers) {
                let from = format!("203.0.{}.9:{}", 200 + port, 5_000 + u16::from(cid[0]));
                assert_eq!(to_server(&mut bench, &from, &short(cid, port as u8)), server);
            }
        }
        assert_eq!((bench.counter(FOLLOWED), bench.counter(UNKNOWN)), (150, 0));
    }
}

#[test]
fn a_server_is_followed_while_it_keeps_its_flows() {
    for (command, stays) in [("server s{} drain", true), ("weight s{} 0", true), ("server s{} down", false)] {
        let mut bench = Bench::new(&config(false));
        let server = open(&mut bench, &client(0), b"serverid");
        bench.control(&command.replace("{}", &server.to_string()));
        assert_eq!(to_server(&mut bench, &client(1), &short(b"serverid", 1)) == server, stays, "{command}");
    }
}

#[test]
fn packets_of_an_unknown_connection_go_to_one_server() {
    let mut bench = Bench::new(&config(false));
    let of = |bench: &mut Bench, payload: &dyn Fn(u16) -> Vec<u8>, first: u16| -> BTreeSet<u8> {
        (first..first + 20).map(|i| to_server(bench, &client(i), &payload(i))).collect()
    };
    assert_eq!(of(&mut bench, &|i| short(b"CONNECID", i as u8), 0).len(), 1);
    assert_eq!(bench.counter(UNKNOWN), 20);
    // The client's first packets, from other ports, as after a restart of a NAT.
    assert_eq!(of(&mut bench, &|_| long(0, b"anything", b"cl"), 100).len(), 1);
    // No QUIC: by ports.
    assert!(of(&mut bench, &|_| [&[0xc0, 0, 0, 0, 1, 200][..], &[0; 300]].concat(), 200).len() > 1);
    assert!(of(&mut bench, &|_| Vec::new(), 300).len() > 1);
    assert_eq!((bench.counter(FOLLOWED), bench.counter(UNKNOWN)), (0, 20));
}

#[test]
fn server_ids_in_connection_ids_are_read() {
    let mut bench = Bench::new(&config(true));
    for i in 1..=4u8 {
        let cid = [0x28, 0xa0 | i, i, 7, 7, 7, 7, 7];
        for port in 0..5 {
            let from = client(u16::from(i) * 10 + port);
            assert_eq!(to_server(&mut bench, &from, &short(&cid, port as u8)), i);
        }
        assert_eq!(to_server(&mut bench, &client(500 + u16::from(i)), &long(2, &cid, b"cl")), i);
    }
    assert_eq!(bench.counter(FOLLOWED), 24);
    // The server indicates that it could not encode its ID.
    to_server(&mut bench, &client(600), &short(&[0xe8, 0xa1, 1, 7, 7, 7, 7, 7], 1));
    assert_eq!((bench.counter(FOLLOWED), bench.counter(UNKNOWN)), (24, 1));
}

#[test]
fn a_flow_takes_the_fast_path_after_its_servers_first_packet() {
    let behind = load_balancer(&json!({ "services": [{ "vip": "198.18.0.1", "port": 9, "servers": [
        { "name": "x", "address": "198.18.0.2" }] }] }));
    let mut bench = Bench::with(&config(false), vec![behind.unwrap()], false);
    let server = open(&mut bench, &client(0), b"serverid");
    for salt in 0..20 {
        assert_eq!(to_server(&mut bench, &client(0), &short(b"serverid", salt)), server);
        bench.reply(&udp(&format!("10.0.0.{server}:443"), &client(0), &short(b"cl", salt)));
    }
    assert!(bench.graph.report().fast_path().packets > 10);
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut config = config(true);
        change(&mut config["services"][0]);
        load_balancer(&config).err().unwrap()
    };
    type Row<'a> = (&'a dyn Fn(&mut Value), &'static str);
    let rows: [Row<'_>; 6] = [
        (&|s| s["protocol"] = json!("tcp"), "`affinity: quic` needs `protocol: udp`"),
        (&|s| s["affinity"] = json!("source"), "`quic_id` needs `affinity: quic`"),
        (&|s| s["servers"][0]["quic_id"] = json!("a1"), "must have the same length"),
        (&|s| s["servers"][0]["quic_id"] = json!("a202"), "the same `quic_id`"),
        (&|s| s["servers"][0]["quic_id"] = json!("a2x"), "hexadecimal digits"),
        (&|s| drop(s["servers"][0].as_object_mut().unwrap().remove("quic_id")), "or none"),
    ];
    for (change, want) in rows {
        let error = refused(change);
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn a_service_on_quics_port_without_quic_affinity_causes_a_warning() {
    for (affinity, warnings) in [("quic", 0), ("source", 0), ("connection", 1)] {
        let mut config = config(false);
        config["services"][0]["affinity"] = json!(affinity);
        let stage = load_balancer(&config).unwrap();
        assert_eq!(stage.shared().warnings.len(), warnings, "{affinity}");
    }
}
