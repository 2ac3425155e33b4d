//! External nodes: their ports, the edges that reach them, and the segments between them (E2).
#![allow(clippy::unwrap_used)] // A test fails by panicking.

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
    // Two wires, each a segment with the number of its first port, and a port without edges.
    let wires = "Port<0> a; Port<1> b; Port<2> c; Port<3> d; Port<4> e; Monitor m; Monitor n;
        pipelet { a <-> m <-> c; } pipelet { b <-> n <-> e; }";
    assert_eq!(read(wires).segments(), [0, 1, 0, 3, 1]);
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
    assert!(help.contains("attributes travel through `x` only with `tags`"), "{help}");
}

#[test]
fn attributes_that_filters_behind_a_node_read_travel() {
    let text = "Port<0> a; Port<1> b; Mark m; FW f; FW g;
        Legacy x { tags: vlan, sets: { class: 3, safe: 1 } }; Native y { tags: geneve };
        pipelet { a <-> m <-> f <-> x [m.tenant == 3] <-> y [FW.safe && x.safe] <-> g <-> b;
                  x -> Drop; y -> Drop; }";
    let policy = read(text);
    let travelling = |node: usize| {
        let all = policy.travelling(&policy.externals[node]).into_iter();
        let text = |of: policy::TravellingAttribute| (policy.owner_name(of.owner).to_owned(), of.name);
        all.map(|of| (of.bits, of.ways, text(of))).collect::<Vec<_>>()
    };
    let named = |owner: &str, name: &str| (owner.to_owned(), name.to_owned());
    let forth = [true, false];
    assert_eq!(
        travelling(0),
        [
            (Some(3), [false; 2], named("x", "class")),
            // The other direction's filters at `b` read it before `x`.
            (Some(1), forth, named("x", "safe")),
            (None, forth, named("m", "tenant")),
            // `g` is after the node: what it sets does not pass `x` in this direction.
            (None, forth, named("f", "safe")),
        ]
    );
    let at_y = [(None, forth, named("f", "safe")), (Some(1), forth, named("x", "safe"))];
    assert_eq!(travelling(1), at_y);
    let facts = |name: &str| NfFacts { attributes: vec![name.to_owned()], ..NfFacts::default() };
    let found = policy.analyse(&[facts("tenant"), facts("safe"), facts("safe")], &[]).diagnostics;
    assert!(found.iter().all(|found| !found.message.contains("never set")), "{found:?}");
}

#[test]
fn attributes_stop_at_a_node_without_tags() {
    let text = "Port<0> a; Port<1> b; Mark m; Legacy x; Native y { tags: geneve };
        pipelet { a <-> m <-> x <-> y [m.tenant == 3] <-> b; y -> Drop; }";
    let policy = read(text);
    assert_eq!(policy.travelling(&policy.externals[1]), []);
    let facts = NfFacts { attributes: vec!["tenant".to_owned()], ..NfFacts::default() };
    let found = policy.analyse(&[facts], &[]).diagnostics;
    assert!(found.iter().any(|found| found.message.contains("`m.tenant` is never set")), "{found:?}");
}

#[test]
fn wrong_tags_are_named() {
    let shown = |keys: &str, filter: &str| {
        let text =
            format!("Port<0> a; Port<1> b; Legacy x {{ {keys} }}; pipelet {{ a <-> x {filter} <-> b; }}");
        let report = Policy::read("edge.rvl", &text, &mut |_: &str| Err(String::new())).unwrap_err();
        report.render(policy::Colour::Off)
    };
    for (keys, filter, message) in [
        ("tags: vxlan", "", "expected `none`, `vlan` or `geneve`"),
        (
            "tags: vlan, sets: [safe]",
            "",
            "expected attributes and their bits, such as `{ safe: 1, class: 3 }`",
        ),
        ("tags: vlan, sets: { safe: 17 }", "", "expected the bits of `safe`: a number from 1 to 16"),
        ("sets: { safe: 1 }", "", "`x` has no `tags`, so attributes do not come back from its program"),
        ("tags: vlan, sets: { safe: 1 }", "[x.save]", "did you mean `x.safe`?"),
        ("tags: vlan", "[x.safe]", "if its program sets it, write `tags: vlan, sets: { safe: 1 }` at `x`"),
    ] {
        let shown = shown(keys, filter);
        assert!(shown.contains(message), "{shown}");
    }
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
