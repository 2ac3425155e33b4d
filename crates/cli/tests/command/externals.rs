//! Policies with external nodes, without running them.

use super::capture::records;
use super::{Place, workspace};

#[test]
fn examples_are_valid_and_their_pictures_show_one_node() {
    let place = Place::new();
    for name in ["legacy", "native", "talk", "site", "tags"] {
        let path = workspace("examples/external").join(name).with_extension("rvl");
        place.stdout(&format!("policy check {}", path.display()));
    }
    let graph =
        place.stdout(&format!("policy graph {}", workspace("examples/external/legacy.rvl").display()));
    assert!(graph.contains("squid (Legacy)") && !graph.contains("squid.inside"), "{graph}");
}

/// Web traffic passes a proxy and a filter, all else the filter.
const NODES: &str = "Port<0> inside;
Port<1> outside;
Monitor m;
Legacy proxy { command: \"squid -N\", when_down: bypass };
Native filter { ports: { inside: \"memif:/a\", outside: \"memif:/b\" } };
pipelet web { inside [tcp && dst port 80] <-> proxy <-> m <-> filter <-> outside; }
pipelet { inside <-> m; }
";

const ASSUMPTION: &str = "rivulet: proxy and filter run with `rivulet up` only: packets go on as if they forwarded them unchanged\n";

/// Returns a place with these policies and a capture. Its first packet is of the web, its second is
/// not.
fn place_with_traffic() -> Place {
    let place = Place::new();
    place.write("nodes.rvl", NODES);
    place.write(
        "plain.rvl",
        "Port<0> inside; Port<1> outside; Monitor m; pipelet { inside <-> m <-> outside; }",
    );
    let kinds = "--protocols tcp=5,udp=1,fragments=1";
    place.stdout(&format!("traffic --write in.pcapng --packets 2000 {kinds} --flows 20 --seed 3"));
    place
}

/// A run with programs that change nothing equals a run without them.
#[test]
fn run_goes_on_behind_external_nodes() {
    let place = place_with_traffic();
    let files = |name: &str| format!("--write inside={name}.in.pcap --write outside={name}.out.pcap");
    let run = |policy: &str, name: &str, options: &str| {
        let line = format!("run {policy} --read in.pcapng --seed 1 {} -o json {options}", files(name));
        let output = place.run(&line);
        assert!(output.status.success(), "{options}: {}", super::stderr(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        super::assert_adds_up(&report);
        (report, super::stderr(&output))
    };
    let (plain, said) = run("plain.rvl", "plain", "");
    assert_eq!(said, "");
    for options in ["", "--units-max 3", "--units-max 3 --mode packet", "--units-max 3 --threads"] {
        let (report, said) = run("nodes.rvl", "nodes", options);
        assert_eq!(said, ASSUMPTION, "{options}");
        for side in ["in", "out"] {
            let [expected, found] = ["plain", "nodes"].map(|name| place.read(&format!("{name}.{side}.pcap")));
            assert!(expected.len() > 10_000 && expected == found, "{options}: {side}");
        }
        assert_eq!(report["drops"], plain["drops"], "{options}");
        for node in ["proxy", "filter"] {
            let counted = &report["programs"][node];
            let count = |name: &str| counted[name].as_u64().unwrap();
            assert_eq!((count("up"), count("dropped"), count("bypassed")), (0, 0, 0), "{counted}");
            let sum = |way: &str| -> u64 {
                let ports = ["inside", "outside"].map(|side| &report["ports"][format!("{node}.{side}")][way]);
                ports.map(|port| port.as_u64().unwrap()).iter().sum()
            };
            assert!(count("assumed") > 100, "{counted}");
            assert_eq!(
                (sum("packets_in"), sum("packets_out")),
                (count("assumed"), count("assumed")),
                "{options}"
            );
            let into: u64 = report["edges"]
                .as_object()
                .unwrap()
                .iter()
                .filter(|(edge, _)| edge.contains(&format!("-> {node}.")))
                .map(|(_, edge)| edge["packets"].as_u64().unwrap())
                .sum();
            assert_eq!(into, count("assumed"), "{options}: {report}");
        }
    }
    let table = place.stdout("run nodes.rvl --read in.pcapng --seed 1");
    assert!(table.contains("\nproxy   assumed  "), "{table}");
}

#[test]
fn explain_marks_edges_to_external_programs_and_continues_after_them() {
    let place = place_with_traffic();
    let output = place.run("explain nodes.rvl --read in.pcapng --seed 1 --packet 1");
    assert_eq!(super::stderr(&output), ASSUMPTION);
    let text = String::from_utf8(output.stdout).unwrap();
    let packet = "10.15.113.247:31620 > 198.18.0.216:80 tcp [SYN] seq 4093755396, 60 bytes";
    let expected = format!(
        "packet 1  00:00:00.000000  from inside  {packet}
  inside -> proxy.inside: tcp && dst port 80; proxy is assumed to forward it
  sent by proxy.inside: {packet}

packet 1 after proxy  00:00:00.000000  from inside  {packet}
  flow 1, original direction, packet 1 of the flow, connection syn-sent
  proxy.outside -> m: the only edge
  m (monitor): forward
      state function 1, payload ignored
  m -> filter.inside: the only edge; filter is assumed to forward it
  sent by filter.inside: {packet}

packet 1 after filter  00:00:00.000000  from inside  {packet}
  filter.outside -> outside: the only edge
  sent by outside: {packet}
"
    );
    assert_eq!(text, expected);
    let stories = place.json("explain nodes.rvl --read in.pcapng --seed 1 --packet 1 -o json");
    let stories = stories.as_array().unwrap();
    for key in ["after_program", "behind"] {
        let programs: Vec<_> = stories.iter().map(|story| story[key].as_str()).collect();
        assert_eq!(programs, [None, Some("proxy"), Some("filter")], "{key}");
    }
    assert_eq!(stories[0]["edges"][0]["assumed"], "proxy");
    // The packets of a flow are those of one side of the node.
    let flow = place.json("explain nodes.rvl --read in.pcapng --seed 1 --flow 1 -o json");
    assert!(flow.as_array().unwrap().iter().all(|story| story["after_program"].is_string()), "{flow}");
}

/// Packets are written at the ports of nodes, too, with the edges to them; a run over the file has
/// them once.
#[test]
fn capture_shows_the_ports_of_external_nodes() {
    let place = place_with_traffic();
    let output = place.run("capture nodes.rvl --read in.pcapng --seed 1 --write noted.pcapng");
    assert!(super::stderr(&output).starts_with(ASSUMPTION), "{}", super::stderr(&output));
    let report = |file: &str| place.run(&format!("run nodes.rvl --read {file} --seed 1 -o json"));
    let [of_traffic, of_noted] = ["in.pcapng", "noted.pcapng"].map(report);
    let said = super::stderr(&of_noted);
    assert!(said.contains("packets that programs of external nodes sent"), "{said}");
    let [of_traffic, of_noted] = [of_traffic, of_noted]
        .map(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap());
    for key in ["packets_in", "packets_out", "drops", "edges", "programs"] {
        assert_eq!(of_traffic[key], of_noted[key], "{key}");
    }
    let Some(records) = records(&place, "noted.pcapng") else { return };
    let first = records.iter().filter(|record| record.id == Some(1));
    let first: Vec<_> =
        first.map(|record| (record.interface.as_str(), record.way, record.comment.as_str())).collect();
    let [proxy, monitor, filter] = [
        "inside [tcp && dst port 80] -> proxy.inside | sent by proxy.inside; proxy is assumed to forward it | packet 1",
        "proxy.outside -> m -> filter.inside | m: forward | sent by filter.inside; filter is assumed to forward it | \
         flow 1, original direction, packet 1 of the flow, connection syn-sent | after proxy | packet 1",
        "filter.outside -> outside | sent by outside | after filter | packet 1",
    ];
    let expected = [
        ("inside", 1, proxy),
        ("proxy.inside", 2, proxy),
        ("proxy.outside", 1, monitor),
        ("filter.inside", 2, monitor),
        ("filter.outside", 1, filter),
        ("outside", 2, filter),
    ];
    assert_eq!(first, expected);
}

#[test]
fn sim_compares_units_behind_external_nodes() {
    let place = place_with_traffic();
    let line =
        NODES.replace("inside [tcp && dst port 80]", "inside").replace("pipelet { inside <-> m; }", "");
    place.write("line.rvl", line);
    let faults = workspace("examples/faults/lossy.toml");
    let line = format!("sim --policy line.rvl --read in.pcapng --faults {} --seeds 1..3", faults.display());
    let output = place.run(&line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("no difference from a single graph"), "{text}");
    assert!(super::stderr(&output).contains(ASSUMPTION.trim_end()), "{}", super::stderr(&output));
    // The output of nodes belongs to the trial.
    let packets: u64 = text
        .split_whitespace()
        .skip_while(|word| *word != "of")
        .nth(1)
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap();
    assert_eq!(packets, 6_000, "{text}");
}

#[test]
fn faults_of_external_nodes_have_their_place() {
    let place = Place::new();
    for (node, position, message) in [
        (
            "Legacy a_long_name_ { command: x }",
            "p.rvl:2:8",
            "the name of a legacy node has up to 11 characters, not 12",
        ),
        ("Legacy x { comand: x }", "p.rvl:2:12", "unknown key `comand`"),
        ("Legacy x { command: \"sh -c 'a\" }", "p.rvl:2:21", "the quote ' is not closed"),
        ("Legacy x { command: \"\" }", "p.rvl:2:21", "the command is empty"),
        (
            "Legacy x { ports: { inside: an_interface_name } }",
            "p.rvl:2:29",
            "expected an interface's name of up to 15 characters",
        ),
        ("Legacy x { ports: { inside: eth1 } }", "", "both ports have the interface `eth1`"),
        ("Legacy x { netns: \"a/b\" }", "p.rvl:2:19", "expected the name of a network namespace or `auto`"),
        ("Legacy x { restart: 0s }", "p.rvl:2:21", "`restart` must be longer than 0"),
        ("Legacy x { address: { inside: 10.0.0.1/24 } }", "p.rvl:2:21", "only a routed node has addresses"),
        (
            "Legacy x { mode: routed, address: { inside: 10.0.0.1/32 } }",
            "p.rvl:2:45",
            "10.0.0.1 is no address of a network with two hosts",
        ),
        ("Legacy x { when_down: pass }", "p.rvl:2:23", ""),
        ("Native x { ports: { inside: \"memif:/a\" } }", "p.rvl:2:8", "`x` needs a port towards `outside`"),
        ("Native x { ports: { inside: \"memif:/a\", outside: \"memif:\" } }", "p.rvl:2:50", ""),
        (
            "Native x { ports: { inside: \"memif:/a\", outside: \"memif:/b\" }, tags: vxlan }",
            "p.rvl:2:70",
            "",
        ),
        (
            "Legacy x { mode: routed, tags: vlan }",
            "p.rvl:2:32",
            "`x` is a router, which would take VLAN tags off",
        ),
    ] {
        let name = node.split_whitespace().nth(1).unwrap();
        place.write("p.rvl", format!("Port<0> a; Port<1> b;\n{node};\npipelet {{ a <-> {name} <-> b; }}\n"));
        let said = place.refused(1, "policy check p.rvl");
        assert!(said.contains(position) && said.contains(message), "{node}: {said}");
    }
}

/// The talk's example, with a program of somebody else as its proxy.
#[test]
fn packets_go_on_behind_external_nodes() {
    let place = Place::new();
    for name in ["talk.rvl", "talk.expect"] {
        place.write(name, std::fs::read(workspace("examples/external").join(name)).unwrap());
    }
    let said = place.run("policy test talk.rvl");
    assert_eq!(super::stderr(&said), "16 passed, 0 failed; assumed: p forwards packets unchanged\n");
    let results = place.json("policy test talk.rvl -o json");
    let (first, reply) = (&results["expectations"][0], &results["expectations"][1]);
    assert_eq!(
        first["path"],
        "int [dst port 80] -> p (assumed to forward it) [!(dst ip my_net)] -> n -> f \
                               [FW.safe && !(dst ip wan_net)] -> ext"
    );
    assert_eq!((&first["assumed"], &first["port"]), (&serde_json::json!(["p"]), &"ext".into()));
    assert_eq!((&reply["assumed"], &reply["port"]), (&serde_json::json!(["p"]), &"int".into()));
    assert!(results["expectations"][3].get("assumed").is_none());

    let web = "expect tcp 10.1.0.5:1234 -> 192.0.2.1:80";
    for (expectation, shown) in [
        (format!("{web} via [n, f] leaves ext"), "the packet visited [p, n, f], not [n, f]"),
        (format!("{web} leaves int"), "-> p (assumed to forward it) "),
        (format!("{web} via [q, n] leaves ext"), "expected a function of the policy: n, f, p; found `q`"),
        ("expect tcp 10.1.0.5:1 -> 10.2.0.1:80 leaves ext".to_owned(), "passes no filter at p.outside"),
    ] {
        place.write("x.expect", format!("{expectation}\n"));
        let text = place.refused(1, "policy test talk.rvl x.expect");
        assert!(text.contains(shown), "{expectation}: {text}");
    }
}

#[test]
fn example_of_a_site_treats_each_class_as_it_says() {
    let place = Place::new();
    let said = place.run(&format!("policy test {}", workspace("examples/external/site.rvl").display()));
    assert_eq!(super::stderr(&said), "23 passed, 0 failed; assumed: squid forwards packets unchanged\n");
}

/// A native node that delivers streams is a function that packets pass.
#[test]
fn streams_are_delivered_by_a_function() {
    let place = Place::new();
    for name in ["streams.rvl", "streams.expect"] {
        place.write(name, std::fs::read(workspace("examples/external").join(name)).unwrap());
    }
    place.run("policy check -W streams.rvl");
    assert_eq!(super::stderr(&place.run("policy test streams.rvl")), "3 passed, 0 failed\n");
    for (keys, message) in [
        ("delivers: streams", "port"),
        ("port: \"memif:/x\", delivers: packets", "streams"),
        ("port: \"memif:\", delivers: streams", "p.rvl:2:18"),
        ("port: \"memif:/x\", delivers: streams, tags: vlan", "tags"),
    ] {
        let text = format!("Port<0> a; Port<1> b;\nNative x {{ {keys} }};\npipelet {{ a <-> x <-> b; }}\n");
        place.write("p.rvl", text);
        let said = place.refused(1, "policy check p.rvl");
        assert!(said.contains(message), "{keys}: {said}");
    }
}

/// Attributes pass nodes as tags, and filters after the nodes read them; the layout is shown.
#[test]
fn attributes_travel_through_external_nodes() {
    let place = Place::new();
    for name in ["tags.rvl", "tags.expect"] {
        place.write(name, std::fs::read(workspace("examples/external").join(name)).unwrap());
    }
    place.run("policy check -W tags.rvl");
    let said = place.run("policy test tags.rvl");
    let expected = "3 passed, 0 failed; assumed: judge, suricata forward packets unchanged\n";
    assert_eq!(super::stderr(&said), expected);
    let drawn = place.run("policy graph tags.rvl");
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    let layout =
        "\ntags of suricata (vlan, 1 of 12 bits)\n  bits 0     f.safe                  from inside\n";
    assert!(drawn.contains(layout), "{drawn}");

    let policy = |tags: &str| {
        format!(
            "Port<0> a; Port<1> b; FW f {{ rules: \"allow out tcp\", default: allow }};
             Legacy x {{ {tags} }};
             pipelet {{ a <-> f <-> x [!FW.safe] -> Drop; x <-> b; }}"
        )
    };
    place.write(
        "a.expect",
        "expect tcp 10.0.0.1:5 -> 192.0.2.1:80 from a leaves b
expect udp 10.0.0.1:5 -> 192.0.2.1:80 from a is dropped policy
expect tcp 10.0.0.1:5 -> 192.0.2.1:80 from a leaves x.inside
expect tcp 10.0.0.1:6 -> 192.0.2.1:80 from x.outside is dropped policy
",
    );
    place.write("a.rvl", policy("tags: vlan"));
    place.run("policy test a.rvl");
    place.write("a.rvl", policy(""));
    let said = place.refused(1, "policy check -W a.rvl");
    assert!(said.contains("attributes travel through `x` only with `tags`"), "{said}");
    let said = place.refused(1, "policy test a.rvl");
    assert!(said.contains("3 passed, 1 failed"), "{said}");
}

/// Several nodes in a row, and a node with ports other than those of a packet from an unknown
/// source.
#[test]
fn packets_pass_several_external_nodes() {
    let place = Place::new();
    place.write(
        "a.rvl",
        "Port<0> a { prefixes: [10.0.0.0/8] };
         Port<1> b { prefixes: [192.0.2.0/24] };
         NAT n { external: [203.0.113.1] };
         Legacy p { };
         Native q { ports: { inside: \"memif:/a\", outside: \"memif:/b\" } };
         pipelet { a <-> p <-> n <-> q <-> b; }",
    );
    let expectations =
        "expect tcp 10.0.0.1:5 -> 192.0.2.1:80 via [p, n, q] leaves b as 203.0.113.1:* -> 192.0.2.1:80
expect tcp 192.0.2.1:80 -> 203.0.113.1:* via [q, n, p] leaves a as 192.0.2.1:80 -> 10.0.0.1:5
expect udp 172.16.0.1:5 -> 192.0.2.1:80 via [p, n, q] leaves b
expect icmp 10.0.0.1 -> 192.0.2.1 via [p, n, q] leaves b
expect udp 10.0.0.1:7 -> 192.0.2.1:80 via [] leaves p.inside
expect udp 10.0.0.1:8 -> 192.0.2.1:80 from p.outside via [n] leaves q.inside
";
    place.write("a.expect", expectations);
    let said = place.run("policy test a.rvl");
    assert_eq!(super::stderr(&said), "6 passed, 0 failed; assumed: p, q forward packets unchanged\n");
}
