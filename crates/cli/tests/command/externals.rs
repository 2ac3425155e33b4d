//! Policies with external nodes, without running them.

use super::{Place, workspace};

/// Policies with external nodes are checked, and refused where they cannot run.
#[test]
fn external_nodes_run_with_up_only() {
    let place = Place::new();
    place.stdout("traffic --write in.pcapng --packets 10");
    for name in ["legacy", "native"] {
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
        ("Native x { ports: { inside: \"memif:/a\", outside: \"memif:/b\" }, tags: vlan }", "p.rvl:2:70", ""),
    ] {
        let name = node.split_whitespace().nth(1).unwrap();
        place.write("p.rvl", format!("Port<0> a; Port<1> b;\n{node};\npipelet {{ a <-> {name} <-> b; }}\n"));
        let said = place.refused(1, "policy check p.rvl");
        assert!(said.contains(position) && said.contains(message), "{node}: {said}");
    }
}
