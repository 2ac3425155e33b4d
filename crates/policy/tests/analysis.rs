//! Checks of graphs, each with its witness packet.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use policy::{
    Analysis, DiagnosticSeverity, Fields, FilterAddressSet, FilterField, FilterNumberField, Nf, NfFacts,
    Node, PathEnd, Policy, PortFacts, Scalar,
};

const PORTS: &str = "Port<0> lan; Port<1> wan; Port<2> dmz; NAT n; FW f; IDS i;\n";

fn read(pipelets: &str) -> Policy {
    let text = format!("{PORTS}{pipelets}");
    Policy::read("p.rvl", &text, &mut |_| Err(String::new())).map_err(|report| report.to_string()).unwrap()
}

/// NATs write addresses and ports, firewalls set `safe` and `zone`, others do nothing.
fn facts(nf: &Nf) -> NfFacts {
    let sides = [policy::ast::FilterSide::Src, policy::ast::FilterSide::Dst];
    match nf.type_name.as_str() {
        "NAT" => NfFacts {
            writes: sides
                .map(FilterField::Address)
                .into_iter()
                .chain([FilterNumberField::SrcPort, FilterNumberField::DstPort].map(FilterField::Number))
                .collect(),
            ..NfFacts::default()
        },
        "FW" => NfFacts { attributes: vec!["safe".into(), "zone".into()], ..NfFacts::default() },
        _ => NfFacts::default(),
    }
}

fn analyse(policy: &Policy) -> Analysis {
    policy.analyse(&policy.nfs.iter().map(facts).collect::<Vec<_>>(), &[])
}

fn messages(pipelets: &str) -> Vec<String> {
    let policy = read(pipelets);
    let analysis = analyse(&policy);
    assert!(analysis.is_complete);
    let lines = analysis.diagnostics.iter().map(|found| {
        let labels: Vec<_> =
            found.labels.iter().map(|label| label.text.as_str()).filter(|text| !text.is_empty()).collect();
        format!("{} | {}", found.line(&policy.report.sources), labels.join(" | "))
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

#[track_caller]
fn assert_found(pipelets: &str, expected: &[&str]) {
    let found = messages(pipelets);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\nlacks {expected}");
    }
}

#[test]
fn sound_graphs_have_no_faults() {
    assert_found("pipelet { lan <-> n <-> f <-> wan; }", &[]);
    assert_found(
        "pipelet { lan [dst ip 192.0.2.0/24] <-> f <-> dmz; lan [!dst ip 192.0.2.0/24] <-> n <-> wan; }",
        &[],
    );
    assert_found(
        "pipelet { lan [tcp] <-> f; lan [!tcp] <-> n; f [f.safe] <-> n; f [!f.safe] -> Drop; n <-> wan; }",
        &[],
    );
}

#[test]
fn hidden_edges_name_the_edge_before_and_a_packet() {
    assert_found(
        "pipelet { lan [dst port 1-1000] <-> n; lan [tcp && dst port 80] <-> f; lan <-> i; n <-> wan; f <-> wan; i <-> wan; }",
        &[
            "no packet takes this edge; the first edge in the text whose filter holds is taken; move this edge up | never taken | takes its packets: tcp 10.0.0.1:40000 -> 192.0.2.1:80",
        ],
    );
    // Hidden by a way back: what enters from the DMZ goes to the LAN.
    assert_found(
        "pipelet { lan <-> f <-> dmz; dmz <-> n <-> wan; }",
        &[
            "no packet takes this edge; the first edge in the text whose filter holds is taken; move this edge up | taken in reverse only | takes its packets: tcp 10.0.0.1:40000 -> 192.0.2.1:443",
        ],
    );
    // Hidden by two edges together.
    assert_found(
        "pipelet { lan [src port < 1024] -> n; lan [!(src port < 1024)] -> f; lan [udp] -> i; n -> Drop; f -> Drop; i -> Drop; }",
        &["no packet takes this edge"],
    );
}

/// Servers open flows through the NAT, and are reached through the firewall.
#[test]
fn edges_for_flows_in_reverse_are_of_use() {
    assert_found("pipelet { dmz <-> n; dmz <-> f [src ip 192.0.2.0/24] <-> wan; n <-> wan; }", &[]);
    // A filter of the other direction.
    assert_found(
        "pipelet { lan [udp] -> Drop; lan [udp] <-> f [src port 53] <-> wan; lan [tcp] <-> n <-> wan; lan -> Drop; }",
        &[],
    );
    // Moved up, the edge would take some packets.
    assert_found(
        "pipelet { dmz <-> n; dmz [tcp] <-> f <-> wan; n <-> wan; }",
        &[
            "no packet takes this edge; the first edge in the text whose filter holds is taken; move this edge up | taken in reverse only",
        ],
    );
    // What enters from outside goes through the NAT.
    assert_found("pipelet { dmz <-> n <-> wan; dmz <-> f <-> wan; }", &["no packet takes this edge"]);
    // Nothing gets through in reverse either.
    assert_found(
        "pipelet { lan [tcp] <-> f [udp] <-> wan; lan -> Drop; }",
        &["no packet that reaches `f` passes this filter", "packets at `f` that no edge takes"],
    );
    assert_found(
        "pipelet { wan -> Drop; lan <-> n <-> dmz; lan [tcp] <-> f <-> wan; }",
        &["no packet takes this edge"],
    );
}

#[test]
fn filters_that_nothing_passes_are_found() {
    assert_found(
        "pipelet { lan [tcp] -> n; lan [!tcp] -> Drop; n [udp] -> f; n -> Drop; f -> Drop; }",
        &["no packet that reaches `n` passes this filter"],
    );
    assert_found(
        "pipelet { lan [dst port 80 && dst port 81] -> f; lan -> Drop; f -> Drop; }",
        &["no packet that reaches `lan`"],
    );
    assert_found(
        "pipelet { lan [src ip 10.0.0.1 && dst ip 2001:db8::1] -> f; lan -> Drop; f -> Drop; }",
        &["no packet"],
    );
    assert_found("pipelet { lan [tcp flags syn && udp] -> f; lan -> Drop; f -> Drop; }", &["no packet"]);
}

#[test]
fn conditions_end_where_an_nf_may_write() {
    // After the NAT, the source may be any.
    assert_found(
        "pipelet { lan [src ip 10.0.0.0/8] -> n; lan -> Drop; n [src ip 203.0.113.1] -> f; n -> Drop; f -> Drop; }",
        &[],
    );
    // A firewall writes nothing.
    assert_found(
        "pipelet { lan [src ip 10.0.0.0/8] -> f; lan -> Drop; f [src ip 203.0.113.1] -> i; f -> Drop; i -> Drop; }",
        &["no packet that reaches `f` passes this filter"],
    );
}

#[test]
fn unmatched_packets_have_a_witness() {
    assert_found(
        "pipelet { lan [tcp] -> f; f -> Drop; }",
        &["packets at `lan` that no edge takes are dropped (`policy-unmatched`); write `lan -> Drop`"],
    );
    let found = messages("pipelet { lan [dst port != 53 || !udp] -> f; f -> Drop; }");
    assert!(found[0].ends_with("| for example udp 10.0.0.1:40000 -> 192.0.2.1:53"), "{found:?}");
    let found = messages(
        "pipelet { lan -> f; f [f.zone < 3 && tcp] -> i; f [f.zone >= 3 || !tcp] -> i; i -> Drop; }",
    );
    assert_eq!(found.len(), 1, "the attribute may be absent, or a text: {found:?}");
}

#[test]
fn attributes_must_be_set_before_they_are_read() {
    assert_found(
        "pipelet { lan [f.safe] -> n; lan -> f; n -> f; f -> Drop; }",
        &[
            "`f.safe` is never set where this filter reads it; packets must pass `f`",
            "no packet that reaches `lan`",
        ],
    );
    assert_found(
        "pipelet { lan -> f; f [f.saef] -> Drop; f -> i; i -> Drop; }",
        &["error: `f` has no attribute `saef`; did you mean `f.safe`?"],
    );
    assert_found(
        "pipelet { lan -> n; n [n.safe] -> Drop; n -> i; i -> Drop; }",
        &["error: `n` has no attribute `safe`; `n` sets no attributes"],
    );
}

#[test]
fn one_way_paths_are_found() {
    assert_found(
        "pipelet { lan -> f; f -> wan; }",
        &["packets from `lan` to `wan` cannot be answered: this edge is one-way"],
    );
    assert_found("pipelet { lan <-> f; f -> wan; wan -> Drop; }", &["cannot be answered"]);
}

/// The servers at `dmz` are exactly 192.0.2.0/24.
#[test]
fn packets_from_elsewhere_are_not_missed() {
    let servers = "192.0.2.0/24".parse::<policy::Prefix>().unwrap().bounds();
    let behind = FilterAddressSet::new(vec![servers]);
    let dmz = PortFacts { elsewhere: behind.complement(), behind };
    let ports = [PortFacts::default(), PortFacts::default(), dmz];
    for (pipelets, is_missed) in [
        ("pipelet { dmz <-> f [src ip 192.0.2.0/24] <-> wan; }", false),
        ("pipelet { dmz <-> f [src ip 192.0.2.0/25] <-> wan; }", true),
        ("pipelet { dmz <-> n [src ip 192.0.2.0/24] <-> wan; }", true),
        ("pipelet { lan <-> f [src ip 192.0.2.0/24] <-> wan; }", true),
    ] {
        let policy = read(pipelets);
        let facts: Vec<_> = policy.nfs.iter().map(facts).collect();
        let found = policy.analyse(&facts, &ports).diagnostics;
        assert_eq!(
            found.iter().any(|found| found.message.contains("no edge takes")),
            is_missed,
            "{pipelets}"
        );
    }
}

/// The clients at `lan` are in 10.0.0.0/8; the NAT translates those of 10.1.0.0/16.
#[test]
fn nfs_that_drop_addresses_behind_a_port_are_found() {
    let set = |text: &str| {
        let (first, last) = text.parse::<policy::Prefix>().unwrap().bounds();
        FilterAddressSet::new(vec![(first, last)])
    };
    for (pipelets, stranger) in [
        ("pipelet { lan <-> n <-> wan; }", Some("10.0.0.1")),
        ("pipelet { lan [src ip 10.1.2.0/24] <-> n <-> wan; lan <-> wan; }", None),
        ("pipelet { lan [src ip 10.1.0.0/16] <-> wan; lan <-> n <-> wan; }", Some("10.0.0.1")),
        ("pipelet { lan [src ip 10.2.0.0/16] <-> n <-> wan; lan <-> wan; }", Some("10.2.0.1")),
        ("pipelet { dmz <-> n <-> wan; }", None),
        ("pipelet { wan <-> n <-> lan; }", None),
    ] {
        let policy = read(pipelets);
        let sources = |nf: &Nf| (nf.name == "n").then(|| (set("10.1.0.0/16"), nf.span));
        let facts: Vec<_> =
            policy.nfs.iter().map(|nf| NfFacts { sources: sources(nf), ..facts(nf) }).collect();
        let lan = PortFacts { behind: set("10.0.0.0/8"), ..PortFacts::default() };
        let analysis = policy.analyse(&facts, &[lan, PortFacts::default(), PortFacts::default()]);
        let found: Vec<_> =
            analysis.diagnostics.iter().filter(|found| found.message.starts_with("`n` drops")).collect();
        assert_eq!(found.len(), usize::from(stranger.is_some()), "{pipelets}: {found:?}");
        if let Some(stranger) = stranger {
            let label = &found[0].labels[0];
            assert!(label.text.contains(&format!(" {stranger}")), "{pipelets}: {label:?}");
            assert_eq!(label.span, policy.nfs[0].span);
        }
    }
}

#[test]
fn pipelets_share_nodes_and_the_text_orders_their_edges() {
    let policy = read("pipelet a { lan [tcp] -> f; f -> wan; } pipelet b { lan -> n; n -> f; f -> dmz; }");
    let graph = policy.graph();
    let mut packet = Fields::default();
    packet.numbers.insert(FilterNumberField::Proto, 17);
    let path = graph.walk((0, None), &mut packet, |_, _| true);
    assert_eq!(
        (path.nfs, path.end),
        (vec![0, 1], PathEnd::Port(1)),
        "the first edge of `f` is that of pipelet a"
    );
    assert_eq!(graph.walk((1, None), &mut packet, |_, _| true).end, PathEnd::Unmatched(Node::Port(1)));
}

#[test]
fn walks_see_what_nfs_wrote() {
    let policy = read("pipelet { lan -> f; f [f.safe] -> n; f -> Drop; n [src port 5] -> wan; n -> dmz; }");
    let graph = policy.graph();
    let walk = |safe: u64, port: u64| {
        graph.walk((0, None), &mut Fields::default(), |nf, packet| match nf {
            1 => packet.attributes.insert((1, "safe".into()), Scalar::Number(safe)).is_none(),
            _ => packet.numbers.insert(FilterNumberField::SrcPort, port).is_none(),
        })
    };
    assert_eq!(walk(0, 5).end, PathEnd::Drop);
    assert_eq!(walk(1, 5).end, PathEnd::Port(1));
    assert_eq!(walk(1, 6).end, PathEnd::Port(2));
}

#[test]
fn loops_across_pipelets_are_errors() {
    let text = format!(
        "{PORTS}pipelet a {{ lan -> n; n -> f; f -> wan; }} pipelet b {{ wan -> f; f -> n; n -> lan; }}"
    );
    let report = Policy::read("p.rvl", &text, &mut |_| Err(String::new())).unwrap_err().to_string();
    assert!(report.contains("packets would loop: n -> f -> n"), "{report}");
}

/// The time and memory of an analysis are bounded.
#[test]
fn hostile_graphs_are_analysed_in_part() {
    // 2^24 paths.
    let mut text = "Port<0> lan; Port<1> wan;\n".to_owned();
    let names = (0..24).map(|at| format!("FW a{at}; FW b{at}; FW c{at};\n"));
    text.extend(names);
    text += "pipelet { lan -> a0;\n";
    for at in 0..24 {
        let next = if at == 23 { "wan".to_owned() } else { format!("a{}", at + 1) };
        text += &format!("a{at} [a{at}.safe] -> b{at}; a{at} -> c{at}; b{at} -> {next}; c{at} -> {next};\n");
    }
    text += "}";
    let policy = Policy::read("p.rvl", &text, &mut |_| Err(String::new())).unwrap();
    assert!(!analyse(&policy).is_complete);
    // A thousand edges; the last is never taken.
    let mut text = "Port<0> lan; FW f;\npipelet {\n".to_owned();
    text.extend((0..1000).map(|port| format!("lan [dst port {port}] -> f;\n")));
    text += "lan [dst port 500 && tcp] -> f; lan -> Drop; f -> Drop; }";
    let policy = Policy::read("p.rvl", &text, &mut |_| Err(String::new())).unwrap();
    let analysis = analyse(&policy);
    assert!(analysis.diagnostics.iter().any(|found| found.message == "no packet takes this edge"));
    assert!(analysis.diagnostics.iter().all(|found| found.severity == DiagnosticSeverity::Warning));
}
