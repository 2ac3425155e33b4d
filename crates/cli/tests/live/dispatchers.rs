//! Two dispatchers between real hosts, on different ways of the same connections, and units on
//! hosts of their own, which are restarted one by one, and get another policy, while an operator
//! moves flows to and fro.

use std::process::Stdio;

use crate::asking::{Asking, SUBSCRIBERS};
use crate::cluster_hosts::{NAT_POLICY, RATE, addresses, serve_file, start_nodes};
use crate::net::{Io, Network, PORTS, wait_until};
use crate::operator::Operator;

const UNITS: [&str; 4] = ["u1", "u2", "u3", "u4"];
const DISPATCHERS: [(&str, &str); 2] = [("d1", "10.9.9.1:7401"), ("d2", "10.9.9.2:7401")];

/// Packets to 10.7.0.2 go by the first dispatcher, those to 10.7.0.3 and to the balanced service by
/// the second one; packets back go by the other one, or by the same, as their external address
/// says.
fn spread(network: &Network) {
    let (inside, outside) = ("02:07:00:00:00:01", "02:07:00:00:00:02");
    network.outside.ip("addr add 10.7.0.3/24 dev eth0");
    for (host, mac, ways) in [
        (&network.inside, outside, &[("10.7.0.2", "eth0"), ("10.7.0.3", "eth1"), ("10.7.0.200", "eth1")][..]),
        (&network.outside, inside, &[("10.7.0.100", "eth1"), ("10.7.0.101", "eth0")]),
    ] {
        for (to, by) in ways {
            host.ip(&format!("route add {to}/32 dev {by}"));
            host.ip(&format!("neigh add {to} lladdr {mac} dev {by}"));
        }
    }
    for (host, mac, to, by) in
        [(&network.inside, outside, "fd07::2", "eth0"), (&network.outside, inside, "fd07::1", "eth1")]
    {
        host.ip(&format!("-6 route add {to}/128 dev {by}"));
        host.ip(&format!("neigh add {to} lladdr {mac} dev {by}"));
    }
}

// RFC 4787 REQ-1
#[test]
fn connections_go_on_whose_directions_take_different_ways() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let names = DISPATCHERS.map(|(name, _)| name);
    let mut units = start_nodes(&network, NAT_POLICY, (&UNITS, false), &names);
    let second = network.third("d2", &["10.9.9.2/24"]);
    network.middle.ip("addr add 10.9.9.1/24 dev d2");
    second.ip("route add default via 10.9.9.1");
    network.connect_beside(&second);
    let all: String = DISPATCHERS.map(|(name, at)| format!("{name} = \"{at}\"\n")).concat();
    for (name, at) in DISPATCHERS {
        let own = format!("name = \"{name}\"\nlisten = \"{at}\"\ncertificates = \"ca\"\n");
        let ports = PORTS.map(|port| port.replace('=', " = \"") + "\"\n").concat();
        let options = "output = \"json\"\ndriver = \"packet\"\nmode = \"flow\"\napi = \"d2.sock\"\n";
        let role =
            format!("role = \"dispatcher\"\npolicy = \"policy.rvl\"\n[ports]\n{ports}[options]\n{options}");
        let config = format!("{own}{role}[dispatchers]\n{all}{}", addresses(&UNITS));
        std::fs::write(network.path(&format!("{name}.toml")), config).unwrap();
    }
    // One by the command, the other by its configuration.
    let first = network.up(NAT_POLICY, "--cluster d1.toml --mode flow --api d1.sock");
    let dispatchers = [first, network.node_at(&second, "d2.toml")];
    for (name, other) in [("d1", "d2"), ("d2", "d1")] {
        wait_until("the dispatchers have found each other", || {
            let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
            command.args(["status", "--api", &format!("{name}.sock")]).current_dir(network.path(""));
            let status = String::from_utf8(command.output().unwrap().stdout).unwrap();
            status.contains(&format!("others      {other} connected\n"))
        });
    }
    spread(&network);
    SUBSCRIBERS.for_each(|host| network.inside.ip(&format!("addr add 10.7.0.{host}/24 dev eth0")));
    let (file, _server) = serve_file(&network);
    let _iperf3 = network.outside.serve("iperf3 -s -B 10.7.0.3", 5201);
    let _answering = Asking::serve(&network, &["10.7.0.2", "10.7.0.3"]);
    for address in ["10.7.0.2:8000", "10.7.0.3:8000", "10.7.0.200"] {
        let line = format!("curl -sf -m 5 -o /dev/null -r 0-99 http://{address}/file");
        wait_until("the first downloads succeed", || network.inside.output(&line).status.success());
    }
    let spawn = |program: &str, args: &[&str]| {
        network.inside.command(program).args(args).stdout(Stdio::piped()).spawn().unwrap()
    };
    let asking = Asking::start(&network, &["10.7.0.2", "10.7.0.3"]);
    let stream = spawn("iperf3", &["-c", "10.7.0.3", "-B", "10.7.0.18", "-u", "-b", "1M", "-t", "12", "-J"]);
    let pings = spawn("ping", &["-q", "-i", "0.05", "-c", "200", "-w", "60", "fd07::2"]);
    let operators = names.map(|name| Operator::start(network.path(&format!("{name}.sock"))));
    let download_while = |happens: &mut dyn FnMut()| {
        let downloads: Vec<_> = SUBSCRIBERS
            .map(|host| {
                let to = network.path(&format!("fetched-{host}")).display().to_string();
                let server = ["10.7.0.2:8000", "10.7.0.3:8000", "10.7.0.200"][usize::from(host % 3)];
                let (from, url) = (format!("10.7.0.{host}"), format!("http://{server}/file"));
                let args = ["-sSf", "--interface", &from, "--limit-rate", RATE, "-o", &to, &url];
                (spawn("curl", &args), to)
            })
            .collect();
        happens();
        for (mut download, to) in downloads {
            assert!(download.wait().unwrap().success(), "{to}");
            assert!(std::fs::read(&to).unwrap() == file, "{to} is damaged");
        }
    };
    for unit in &mut units {
        download_while(&mut || {
            unit.end();
            unit.start(&network);
            // Both dispatchers have it again.
            unit.wait_for_line("node connected");
            unit.wait_for_line("node connected");
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
        let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(["apply", "next.rvl", "--api", "d1.sock", "--api", "d2.sock"]);
        let applied = command.current_dir(network.path("")).output().unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        let said = String::from_utf8(applied.stdout).unwrap();
        assert_eq!(said, "d1.sock: next.rvl: runs on all nodes\nd2.sock: next.rvl: runs on all nodes\n");
    });
    assert!(!servers.iter().any(|server| get(server)), "the new rule holds on both ways");
    asking.end(300);
    let pings = String::from_utf8(pings.wait_with_output().unwrap().stdout).unwrap();
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    let stream: serde_json::Value =
        serde_json::from_slice(&stream.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(stream["end"]["sum"]["lost_packets"], 0, "{stream}");
    let moved: u64 = operators.map(Operator::end).iter().sum();
    let reports = dispatchers.map(|dispatcher| dispatcher.end());
    let sum = |name: &str| reports.iter().map(|report| report["units"][name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("packets_passed_on"), sum("packets_taken_over"));
    for report in &reports {
        assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
        // Hosts ask for neighbours before the two have found each other.
        assert!(report["drops"]["dispatcher-lost"].as_u64().unwrap_or(0) < 20, "{report}");
        assert!(report["units"]["packets_passed_on"].as_u64() > Some(1_000), "{report}");
    }
    assert!(sum("groups_moved") >= 4, "{reports:?}");
    assert!(moved > 100, "operators moved {moved} flows");
}
