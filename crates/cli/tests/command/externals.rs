//! Policies with external nodes, without running them.

use super::{Place, workspace};

/// Policies with external nodes are checked, and refused where they cannot run.
#[test]
fn external_nodes_run_with_up_only() {
    let place = Place::new();
    place.stdout("traffic --write in.pcapng --packets 10");
    for name in ["legacy", "native", "talk", "site"] {
        let path = workspace("examples/external").join(name).with_extension("rvl");
        place.stdout(&format!("policy check {}", path.display()));
        for command in ["run", "explain"] {
            let said = place.refused(1, &format!("{command} {} --read in.pcapng", path.display()));
            assert!(said.contains("only `rivulet up` runs"), "{said}");
        }
    }
    let graph =
        place.stdout(&format!("policy graph {}", workspace("examples/external/legacy.rvl").display()));
    assert!(graph.contains("squid (Legacy)") && !graph.contains("squid.inside"), "{graph}");
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

/// Attributes pass nodes with tags, and filters behind read them; the layout is shown.
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

/// Several nodes in a row, and one whose ports are not those of a packet without a known source.
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
