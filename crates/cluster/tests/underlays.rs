//! Nodes connect over IPv6, over IPv4, by name, and at one of several addresses of a host.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod common;

use std::net::TcpListener;

use cluster::addresses::listen_at;
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::Runner;

use common::support::{SEED, Sink, assembly_of, conversation_with, play, profile, receive};
use common::{Cluster, Unit, assert_same, assert_same_counts, config, end};

const POLICY: &str = "
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    Monitor m { report: [] };
    pipelet { inside <-> f <-> m <-> outside; }";

/// Units that listen at `listen` and are named by `host`: packets pass, all links have the expected
/// addresses, and the two units connect.
fn check(units: [(&str, &str); 2], expected: [&str; 2]) {
    let cluster = Cluster::new(POLICY);
    let assembly = || assembly_of("test.rvl", POLICY);
    let frames = conversation_with(assembly(), &profile(Payload::Random, 2_000, 20_000.0, SEED));
    let (whole, single) = play(Runner::new(assembly(), "test"), &frames);
    let units: Vec<Unit> = (0..)
        .zip(units)
        .map(|(number, (listen, host))| {
            let listening: TcpListener = listen_at(&format!("{listen}:0").parse().unwrap()).unwrap();
            let port = listening.local_addr().unwrap().port();
            let unit = cluster.unit_on(&format!("unit-{number}"), listening, || {});
            Unit { address: format!("{host}:{port}"), ..unit }
        })
        .collect();
    let (mut runner, handle) = cluster.runner(config(Granularity::Packet, 2), &units);
    let mut sink = Sink::default();
    frames.iter().for_each(|frame| receive(&mut runner, frame, &mut sink));
    let mut links = handle.links();
    links.sort_by(|one, other| one.peer.cmp(&other.peer));
    let addresses: Vec<String> = links.iter().map(|link| link.address.ip().to_string()).collect();
    assert_eq!(addresses, expected);
    let report = runner.finish(&mut sink).unwrap();
    assert_same_counts(&report, &single);
    assert_same(&sink, &whole);
    assert!(report.units.as_ref().unwrap().states_moved > 100);
    // Without a link, a move between units takes several relayed messages.
    assert!(report.links.unwrap().messages_relayed < report.units.unwrap().states_moved);
    end(units);
}

#[test]
fn nodes_meet_by_ipv6_alone() {
    check([("[::1]", "[::1]"); 2], ["::1"; 2]);
}

#[test]
fn nodes_meet_by_names() {
    check([("localhost", "localhost"), ("[::]", "localhost")], ["127.0.0.1"; 2]);
}

#[test]
fn nodes_of_both_families_meet() {
    check([("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]")], ["127.0.0.1", "::1"]);
    check([("0.0.0.0", "[::ffff:127.0.0.1]"), ("[::]", "[::1]")], ["127.0.0.1", "::1"]);
}

/// A host with several addresses answers from the address of the request.
#[test]
fn links_keep_the_addresses_of_their_handshakes() {
    check([("[::]", "127.0.0.2"), ("0.0.0.0", "127.0.0.3")], ["127.0.0.2", "127.0.0.3"]);
}
