//! External nodes that only forward: a bridge that is the only node, and a router before a link
//! with a smaller MTU.

use crate::externals::{alone, routed};
use crate::net::{Io, Network, wait_until};

#[test]
fn bridge_may_be_the_only_node_whatever_runs_the_policy() {
    let _alone = alone();
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let policy = "Port<0> inside; Port<1> outside; Legacy box { mode: bridged };
        pipelet { inside <-> box <-> outside; }";
    for options in ["", "--workers 2", "--mode flow", "--mode flowlet --threads"] {
        let rivulet = network.up(policy, options);
        network.inside.ping("-c 3 -i 0.05 -W 1 10.7.0.2");
        network.inside.ping("-c 3 -i 0.05 -W 1 fd07::2");
        let report = rivulet.end();
        assert_eq!(report["drops"], serde_json::json!({}), "{options}");
        // A bridge floods its own reports by both ports: a storm if one came back.
        for port in ["box.inside", "box.outside"] {
            let received = report["interfaces"][port]["received"].as_u64().unwrap();
            assert!((6..1_000).contains(&received), "{options}, {port}: {received}");
        }
    }
}

#[test]
fn senders_learn_the_mtu_behind_a_router() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let set_mtu = |mtu: u16| {
        network.middle.ip(&format!("link set outside mtu {mtu}"));
        network.outside.ip(&format!("link set eth0 mtu {mtu}"));
    };
    set_mtu(1_450);
    let rivulet = network.up(
        "Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
         Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"] };
         Legacy box { };
         NAT translate { external: [203.0.113.1] };
         pipelet { inside <-> box <-> translate <-> outside; }",
        "",
    );
    let answered = |target: &str, len: u16| {
        // `-M do` forbids fragments.
        let line = format!("ping -c 1 -W 1 -M do -s {len} {target}");
        String::from_utf8_lossy(&network.inside.output(&line).stdout).into_owned()
    };
    let targets = [("203.0.113.2", 28), ("fd08::2", 48)];
    // The program's interface has the MTU of the port, so that its kernel refuses.
    for (target, header) in targets {
        wait_until("the program refuses", || answered(target, 1_500 - header).contains("1450"));
        wait_until("what fits is answered", || answered(target, 1_450 - header).contains(" 0% packet loss"));
    }
    // Later Rivulet refuses, and the program forwards what it says.
    set_mtu(1_400);
    for (target, header) in targets {
        wait_until("Rivulet refuses", || answered(target, 1_450 - header).contains("1400"));
    }
    for (options, last) in [("-4", "203.0.113.2"), ("-6", "fd08::2")] {
        let said = network.inside.run(&format!("traceroute {options} -n -q 1 -w 2 -m 4 -I {last}"));
        let hops = said.lines().skip(1).map(|line| line.split_whitespace().nth(1).unwrap_or_default());
        let hops: Vec<&str> = hops.collect();
        assert!(hops.len() == 4 && !hops.contains(&"*") && hops[3] == last, "{said}");
    }
    let report = rivulet.end();
    assert!(report["interfaces"]["outside"]["host"]["too_big"].as_u64().unwrap() >= 2, "{report}");
    assert_eq!(report["drops"]["martian"], serde_json::Value::Null, "{report}");
}
