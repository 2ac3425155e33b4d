//! Two dispatchers between real hosts, on different ways of the same connections, and units on
//! hosts of their own, which are restarted or drained one by one, and get another policy, while an
//! operator moves flows to and fro.

use std::process::Stdio;

use crate::asking::{Asking, SUBSCRIBERS};
use crate::cluster_hosts::{NAT_POLICY, RATE, serve_file};
use crate::names::{Resolving, serve_names};
use crate::net::wait_until;
use crate::operator::Operator;
use crate::ssh::{Typing, sshd};
use crate::two_dispatchers::{DISPATCHERS, TwoDispatchers};

// RFC 4787 REQ-1
#[test]
fn connections_go_on_whose_directions_take_different_ways() {
    let Some((hosts, mut units)) = TwoDispatchers::start(NAT_POLICY) else { return };
    let network = &hosts.network;
    let (file, _server) = serve_file(network);
    let _iperf3 = network.outside.serve("iperf3 -s -B 10.7.0.3", 5201);
    let _answering = Asking::serve(network, &["10.7.0.2", "10.7.0.3"]);
    let _names = serve_names(network, &["10.7.0.2", "10.7.0.3", "fd07::2"]);
    let _sshd = sshd(network, &network.outside, 2222);
    let servers = ["10.7.0.2:8000", "10.7.0.3:8000", "10.7.0.200", "[fd07::2]:8000"];
    for address in servers {
        let line = format!("curl -sf -m 5 -o /dev/null -r 0-99 http://{address}/file");
        wait_until("the first downloads succeed", || network.inside.output(&line).status.success());
    }
    let spawn = |program: &str, args: &[&str]| {
        network.inside.command(program).args(args).stdout(Stdio::piped()).spawn().unwrap()
    };
    let asking = Asking::start(network, &["10.7.0.2", "10.7.0.3"]);
    let resolving = Resolving::start(network, &["10.7.0.2", "10.7.0.3", "fd07::2"]);
    let typing = ["10.7.0.2", "10.7.0.3", "fd07::2"]
        .map(|server| Typing::start(network, (server, 2222), &format!("terminal-{server}")));
    let stream = spawn("iperf3", &["-c", "10.7.0.3", "-B", "10.7.0.18", "-u", "-b", "1M", "-t", "24", "-J"]);
    let pings = spawn("ping", &["-q", "-i", "0.05", "-c", "480", "-w", "60", "fd07::2"]);
    let operators = DISPATCHERS.map(|name| Operator::start(network.path(&format!("{name}.sock"))));
    let download_while = |happens: &mut dyn FnMut()| {
        let downloads: Vec<_> = SUBSCRIBERS
            .map(|host| {
                let to = network.path(&format!("fetched-{host}")).display().to_string();
                let server = servers[usize::from(host) % servers.len()];
                let from = if server.starts_with('[') { "fd07::1" } else { &format!("10.7.0.{host}") };
                let url = format!("http://{server}/file");
                let args = ["-sSf", "--interface", from, "--limit-rate", RATE, "-o", &to, &url];
                (spawn("curl", &args), to)
            })
            .collect();
        happens();
        for (mut download, to) in downloads {
            assert!(download.wait().unwrap().success(), "{to}");
            assert!(std::fs::read(&to).unwrap() == file, "{to} is damaged");
        }
    };
    for (number, unit) in units.iter_mut().enumerate() {
        download_while(&mut || {
            if number % 2 == 1 {
                hosts.drain(unit);
            }
            hosts.restart(unit);
        });
    }
    // Another policy, at both.
    let _denied = network.outside.serve("python3 -m http.server 8001", 8001);
    let get = |server: &str| {
        let line = format!("curl -sf -m 2 -o /dev/null http://{server}:8001/");
        network.inside.output(&line).status.success()
    };
    let servers = ["10.7.0.2", "10.7.0.3"];
    assert!(servers.iter().all(|server| get(server)), "all is allowed");
    let rules = "rules: \"deny out tcp to any port 8001\\nallow out from any\"";
    let next = NAT_POLICY.replace("rules: \"allow out from any\"", rules);
    std::fs::write(network.path("next.rvl"), next).unwrap();
    download_while(&mut || {
        let applied = hosts.rivulet(&["apply", "next.rvl", "--api", "d1.sock", "--api", "d2.sock"]);
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        let said = String::from_utf8(applied.stdout).unwrap();
        assert_eq!(said, "next.rvl: runs on all nodes\n", "one order is for both");
    });
    assert!(!servers.iter().any(|server| get(server)), "the new rule holds on both ways");
    asking.end(30);
    resolving.end(10);
    typing.into_iter().for_each(|session| session.end(5));
    let pings = String::from_utf8(pings.wait_with_output().unwrap().stdout).unwrap();
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    let stream: serde_json::Value =
        serde_json::from_slice(&stream.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(stream["end"]["sum"]["lost_packets"], 0, "{stream}");
    let moved: u64 = operators.map(Operator::end).iter().sum();
    let reports = hosts.end(units);
    let sum = |name: &str| reports.iter().map(|report| report["units"][name].as_u64().unwrap()).sum::<u64>();
    for report in &reports {
        assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
        // Hosts ask for neighbours before the two have found each other.
        assert!(report["drops"]["dispatcher-lost"].as_u64().unwrap_or(0) < 20, "{report}");
        assert!(report["units"]["packets_passed_on"].as_u64() > Some(1_000), "{report}");
    }
    assert!(sum("groups_moved") >= 4, "{reports:?}");
    assert!(moved > 10, "operators moved {moved} flows");
}
