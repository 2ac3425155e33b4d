//! External nodes: their ports, the edges that reach them, and the segments between them (E2).
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use policy::{EdgeDirection, ExternalKind, NfFacts, Node, Policy};

fn read(text: &str) -> Policy {
    let read = Policy::read("edge.rvl", text, &mut |_: &str| Err(String::new()));
    read.map_err(|report| report.to_string()).unwrap()
}

const LINE: &str = "
Port<0> lan; Port<7> wan; NAT n; Firewall f;
Legacy squid { command: squid };
pipelet { lan <-> n <-> squid <-> f <-> wan; }
";

#[test]
fn external_node_is_two_ports_after_those_of_the_text() {
    let policy = read(LINE);
    let ports: Vec<_> = policy.ports.iter().map(|port| (port.name.as_str(), *port.numbers.start())).collect();
    assert_eq!(ports, [("lan", 0), ("wan", 7), ("squid.inside", 8), ("squid.outside", 9)]);
    let squid = &policy.externals[0];
    assert_eq!((squid.name.as_str(), squid.kind), ("squid", ExternalKind::Legacy));
    assert_eq!((squid.inside, squid.outside), (2, 3));
    assert!(squid.config.get("command").is_some());
    assert_eq!(policy.external_of(3), Some(squid));
    assert_eq!(policy.external_of(0), None);
    assert_eq!(policy.nfs.len(), 2);
}

#[test]
fn edges_end_at_the_side_that_they_come_to() {
    let policy = read(LINE);
    let edges = |direction| {
        let edges = policy.pipelets[0].edges.iter().filter(move |edge| edge.direction == direction);
        edges.map(|edge| (edge.from, edge.to)).collect::<Vec<_>>()
    };
    use Node::{Nf, Port};
    let forth = [(Port(0), Nf(0)), (Nf(0), Port(2)), (Port(3), Nf(1)), (Nf(1), Port(1))];
    assert_eq!(edges(EdgeDirection::Forward), forth);
    let back = [(Port(1), Nf(1)), (Nf(1), Port(3)), (Port(2), Nf(0)), (Nf(0), Port(0))];
    assert_eq!(edges(EdgeDirection::Reverse), back);
}

#[test]
fn segments_are_the_parts_between_external_nodes() {
    assert_eq!(read(LINE).segments(), [0, 1, 0, 1]);
    let two = "Port<0> a; Port<1> b; Legacy x; Native y; pipelet { a <-> x <-> y <-> b; }";
    // a, b, x.inside, x.outside, y.inside, y.outside
    assert_eq!(read(two).segments(), [0, 1, 0, 2, 2, 1]);
    let none = "Port<0> a; Port<1> b; pipelet { a <-> b; }";
    assert_eq!(read(none).segments(), [0, 0]);
}

#[test]
fn each_port_is_a_segment_where_packets_may_pass_by_the_node() {
    let text = "Port<0> a; Port<1> b; Port<2> c; Port<3> d; Legacy x;
        pipelet { a [dst port 80] <-> x <-> b; a <-> b; c <-> d; }";
    assert_eq!(read(text).segments(), [0, 1, 2, 2, 3, 4]);
}

#[test]
fn attributes_are_unset_behind_an_external_node() {
    let text = "Port<0> a; Port<1> b; Mark m; Legacy x;
        pipelet { a <-> m <-> x [m.tenant == 3] <-> b; x -> Drop; }";
    let policy = read(text);
    let facts = NfFacts { attributes: vec!["tenant".to_owned()], ..NfFacts::default() };
    let found = policy.analyse(&[facts], &[]).diagnostics;
    let warning = found.iter().find(|found| found.message.contains("`m.tenant` is never set"));
    let help = warning.and_then(|warning| warning.help.clone()).unwrap();
    assert!(help.contains("attributes do not travel through external nodes"), "{help}");
}

#[test]
fn picture_shows_one_node() {
    let expected = "\
lan (port 0)
  └<─> n
n (NAT)
  └<─> squid
squid (Legacy)
  └<─> f
f (Firewall)
  └<─> wan
";
    assert_eq!(read(LINE).graph_text(&[]), expected);
}

#[test]
fn port_numbers_may_run_out() {
    let text = "Port<65534> a; Port<1> b; Legacy x; pipelet { a <-> x <-> b; }";
    let report = Policy::read("edge.rvl", text, &mut |_: &str| Err(String::new())).unwrap_err();
    let shown = report.render(policy::Colour::Off);
    assert!(shown.contains("no port numbers are left for `x`"), "{shown}");
}
