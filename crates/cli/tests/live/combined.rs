//! External nodes together with a load balancer, with units, and with workers.

use std::fs;

use serde_json::Value;

use crate::balanced;
use crate::externals::{alone, routed};
use crate::net::{Io, Network, Rivulet};

/// Rules of a namespace that count web traffic and refuse TCP port 81.
const RULES: &str = "table inet box {
  counter web { }
  chain forward {
    type filter hook forward priority 0
    tcp dport { 80, 8080 } counter name web
    tcp dport 81 drop
  }
}";

/// Returns a policy with this NF after a node that applies [`RULES`] in its kernel.
fn policy(network: &Network, function: &str) -> String {
    fs::write(network.path("rules.nft"), RULES).unwrap();
    let setup = format!("nft -f {}", network.path("rules.nft").display());
    format!(
        "Port<0> inside {{ address: [10.7.0.254/24, \"fd07::254/64\"] }};
         Port<1> outside {{ address: [203.0.113.1/24, \"fd08::254/64\"] }};
         Legacy mid {{ setup: \"{setup}\" }};
         {function}
         pipelet {{ inside <-> mid <-> f <-> outside; }}"
    )
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Ends it. Returns its report. Asserts that the node worked and packets passed both of its ports.
fn end(rivulet: Rivulet) -> Value {
    let report = rivulet.end();
    assert_eq!(report["programs"]["mid"]["up"], 1, "{report}");
    for port in ["mid.inside", "mid.outside"] {
        let port = &report["ports"][port];
        assert!(count(&port["packets_in"]) > 100 && count(&port["packets_out"]) > 100, "{report}");
    }
    report
}

#[test]
fn load_balancer_stands_behind_a_node() {
    let _alone = alone();
    for options in ["", "--workers 2", "--units-max 3 --mode packet"] {
        let Some(network) = Network::routed(Io::PacketSocket) else { return };
        let _servers = balanced::servers(&network);
        fs::write(network.path("commands"), "6s f server two down\n").unwrap();
        let balancer = "LoadBalancer f {
            services: [{ name: web, vip: 192.0.2.100, port: 80, servers: [
              { name: one, address: 203.0.113.2, port: 8080 },
              { name: two, address: 203.0.113.3, port: 8080 },
            ] }],
          };";
        let options = format!("{options} --control commands");
        let rivulet = network.up(&policy(&network, balancer), &options);
        balanced::assert_second_goes_down(&network, "192.0.2.100");
        // Other traffic passes the node and the balancer unchanged.
        network.inside.ping("-c 3 -i 0.05 -W 2 203.0.113.2");
        let report = end(rivulet);
        let counters = &report["functions"][0]["counters"];
        assert!(
            ["one", "two"].iter().all(|name| count(&counters[format!("web/{name}.connections")]) > 0),
            "{counters}"
        );
    }
}

#[test]
fn units_run_beside_a_node() {
    let _alone = alone();
    for options in [
        "--units-max 3 --mode packet",
        "--units-max 3 --threads",
        "--units-max 3 --threads --mode packet",
        "--workers 2",
    ] {
        let Some(network) = routed() else { return };
        let nat = "NAT f { external: [203.0.113.7], inside: [10.7.0.0/24] };";
        let rivulet = network.up(&policy(&network, nat), options);
        let _open = network.outside.serve("python3 -m http.server --bind :: 80", 80);
        let _closed = network.outside.serve("python3 -m http.server --bind :: 81", 81);
        let _iperf3 = network.outside.serve("iperf3 -s", 5201);
        for target in ["203.0.113.2", "fd08::2"] {
            network.inside.ping(&format!("-c 5 -i 0.05 -W 2 {target}"));
            network.inside.ping(&format!("-c 3 -i 0.05 -W 2 -s 4000 {target}"));
            network.inside.iperf3(&format!("-c {target} -n 8M"));
            network.inside.iperf3(&format!("-c {target} -n 8M -R"));
        }
        for host in ["203.0.113.2", "[fd08::2]"] {
            for _ in 0..10 {
                network.inside.run(&format!("curl -sS -m 20 -o /dev/null http://{host}/"));
            }
            let refused = network.inside.output(&format!("curl -sS -m 2 -o /dev/null http://{host}:81/"));
            assert_eq!(refused.status.code(), Some(28), "{options}");
        }
        let report = end(rivulet);
        assert_eq!(report["drops"], serde_json::json!({}), "{options}");
        assert_eq!(report["units"].is_null(), options.contains("workers"), "{report}");
    }
}

/// A node that is down is one for all units and workers, and so is its reason.
#[test]
fn packets_to_a_node_that_is_down_have_a_reason_on_units_and_workers() {
    let _alone = alone();
    for options in ["--units-max 3 --mode packet", "--units-max 3 --threads", "--workers 2"] {
        let Some(network) = routed() else { return };
        let down = policy(&network, "Monitor f;")
            .replace("Legacy mid {", "Legacy mid { command: \"false\", restart: 1h,");
        let rivulet = network.up(&down, options);
        rivulet.wait_for_line("mid: ended: exit code 1");
        network.inside.output("ping -c 20 -i 0.02 -W 1 203.0.113.2");
        let report = rivulet.end();
        assert!(count(&report["drops"]["node-down"]) >= 20, "{options}: {report}");
        assert_eq!(report["drops"]["node-down"], report["programs"]["mid"]["dropped"], "{options}");
    }
}
