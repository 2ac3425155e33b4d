//! Several workers do the same as one.

use std::fs;

use serde_json::Value;

use crate::balanced::{self, BALANCER};
use crate::net::{Io, Network, Rivulet, by_each_way, wait_until};

by_each_way!(
    a_nat_carries_pings_files_and_streams,
    a_balancer_and_its_commands_cover_all_workers,
    a_firewall_knows_connections,
    capabilities_are_dropped_and_interfaces_reopened,
    without_traffic_all_sleep,
);

/// Ends it, and returns the report and its workers, which must have processed all packets.
fn end(rivulet: Rivulet) -> (Value, Vec<Value>) {
    let report = rivulet.end();
    let workers = report["workers"].as_array().unwrap().clone();
    let sum = |what: &str| workers.iter().map(|worker| worker[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("received"), report["packets_in"].as_u64().unwrap(), "{report}");
    assert_eq!(sum("handed_over"), sum("taken"), "{report}");
    println!("{workers:?}");
    (report, workers)
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

const NAT: &str = "
Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"] };
NAT translate { external: [203.0.113.1] };
pipelet { inside <-> translate <-> outside; }
";

fn carry(network: &Network) {
    let _files = network.outside.serve("python3 -m http.server 8080", 8080);
    // A separate server for each run: between runs, a server closes the port for a moment and
    // resets clients.
    let _streams =
        [5201, 5202, 5203].map(|port| network.outside.serve(&format!("iperf3 -s -p {port}"), port));
    let folder = network.path("large");
    fs::write(&folder, vec![7; 3_000_000]).unwrap();
    for (target, size) in [("203.0.113.2", 56), ("fd08::2", 56), ("203.0.113.2", 4000), ("fd08::2", 4000)] {
        network.inside.ping(&format!("-c 5 -i 0.2 -W 2 -s {size} {target}"));
    }
    for _ in 0..20 {
        network.inside.run("curl -sS -m 5 -o /dev/null http://203.0.113.2:8080/");
    }
    for direction in ["-p 5201", "-p 5202 -R"] {
        let said = network.inside.iperf3(&format!("-c 203.0.113.2 -P 4 -t 2 -J {direction}"));
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(said["end"]["sum_received"]["bytes"].as_u64().unwrap() > 0, "{said}");
    }
    network.inside.iperf3("-c 203.0.113.2 -p 5203 -u -b 20M -l 1000 -P 4 -t 1");
    // A closed port gives an ICMP error, which is translated like the packet that it quotes.
    let said = network.inside.output("nc -u -z -w 1 203.0.113.2 9");
    drop(said);
    let refused = network.inside.output("curl -sS -m 5 http://203.0.113.2:9/");
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
}

fn a_nat_carries_pings_files_and_streams(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(NAT, "--workers 2");
    carry(&network);
    let (report, workers) = end(rivulet);
    assert_eq!(workers.len(), 2);
    assert!(workers.iter().all(|worker| count(&worker["processed"]) > 100), "{workers:?}");
    assert!(workers.iter().any(|worker| count(&worker["handed_over"]) > 100), "{workers:?}");
    let pool = &report["functions"][0]["pools"];
    assert!(pool.as_object().unwrap().values().any(|pool| count(&pool["peak"]) > 0), "{pool}");
}

/// Each worker has its own receive queue; surplus workers have none.
#[test]
fn receive_queues_are_divided() {
    let Some(network) = Network::unconnected(Io::Xdp) else { return };
    for (name, end, addresses) in [
        ("inside", &network.inside, ["10.7.0.1/24", "fd07::1/64"]),
        ("outside", &network.outside, ["203.0.113.2/24", "fd08::2/64"]),
    ] {
        network.connect_by(name, &addresses, "numrxqueues 2 numtxqueues 2");
        assert!(end.run("ls /sys/class/net/eth0/queues").contains("rx-1"));
    }
    network.inside.ip("route add default via 10.7.0.254");
    network.inside.ip("-6 route add default via fd07::254");
    network.outside.ip("-6 route add fd07::/64 via fd08::254");
    for (count_of, own) in [(2, 2), (3, 2)] {
        let rivulet = network.up(NAT, &format!("--workers {count_of}"));
        carry(&network);
        let (_, workers) = end(rivulet);
        let received = workers.iter().filter(|worker| count(&worker["received"]) > 0).count();
        assert_eq!((workers.len(), received), (count_of, own), "{workers:?}");
        assert!(workers.iter().all(|worker| count(&worker["processed"]) > 0), "{workers:?}");
    }
}

fn a_balancer_and_its_commands_cover_all_workers(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let _both = balanced::servers(&network);
    fs::write(network.path("commands"), "10s balancer server two down\n").unwrap();
    let rivulet = network.up(BALANCER, "--workers 2 --control commands");
    balanced::assert_second_goes_down(&network, "10.7.0.100");
    let (_, workers) = end(rivulet);
    assert!(workers.iter().all(|worker| count(&worker["processed"]) > 20), "{workers:?}");
}

fn a_firewall_knows_connections(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        Firewall gate { rules: \"allow out icmp\\nallow out tcp to any port 8080\\nreject out tcp\" };
        pipelet { inside <-> gate <-> outside; }";
    let rivulet = network.up(policy, "--workers 2 --alerts eve.json");
    let _open = network.outside.serve("python3 -m http.server 8080", 8080);
    let _back = network.inside.serve("python3 -m http.server 8080", 8080);
    network.inside.run("ping -c 1 -W 2 10.7.0.2");
    for _ in 0..20 {
        network.inside.run("curl -sS -m 5 -o /dev/null http://10.7.0.2:8080/");
        // Rejected: the client is notified at once and does not wait.
        let rejected = network.inside.output("curl -sS -m 5 http://10.7.0.2:8081/");
        assert_eq!(rejected.status.code(), Some(7), "{}", String::from_utf8_lossy(&rejected.stderr));
    }
    // Denied: nothing comes back.
    let denied = network.outside.output("curl -sS -m 2 http://10.7.0.1:8080/");
    assert_eq!(denied.status.code(), Some(28));
    let (report, workers) = end(rivulet);
    assert!(count(&report["drops"]["firewall-rejected"]) >= 20, "{}", report["drops"]);
    assert!(workers.iter().all(|worker| count(&worker["processed"]) > 20), "{workers:?}");
}

fn capabilities_are_dropped_and_interfaces_reopened(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let wire = "Port<0> inside;\nPort<1> outside;\nMonitor m {};\npipelet { inside <-> m <-> outside; }\n";
    let rivulet = network.up(wire, "--workers 3");
    let kept = if io == Io::Xdp { "6000" } else { "2000" };
    let mut workers = 0;
    for task in fs::read_dir(format!("/proc/{}/task", rivulet.id())).unwrap() {
        let task = task.unwrap().path();
        workers += usize::from(fs::read_to_string(task.join("comm")).unwrap().starts_with("worker-"));
        let status = fs::read_to_string(task.join("status")).unwrap();
        for (set, capabilities) in [("CapEff", kept), ("CapPrm", kept), ("NoNewPrivs", "1"), ("Seccomp", "2")]
        {
            let line = status.lines().find(|line| line.starts_with(&format!("{set}:"))).unwrap();
            let value = line.split_whitespace().nth(1).unwrap().trim_start_matches('0');
            assert_eq!(value, capabilities, "{line}");
        }
    }
    assert_eq!(workers, 3);
    let arrives = || network.inside.output("ping -c 1 -W 1 10.7.0.2").status.success();
    wait_until("a ping arrives", arrives);
    network.middle.ip("link set outside down");
    assert!(!arrives());
    network.middle.ip("link set outside up");
    wait_until("a ping arrives again", arrives);
    network.middle.ip("link del outside");
    assert!(!arrives());
    network.connect("outside");
    // Whichever worker noticed it: all have reopened it.
    wait_until("all pings arrive again", || {
        (0..8).all(|_| network.inside.output("ping -c 1 -W 1 10.7.0.2").status.success())
    });
    end(rivulet);
}

fn without_traffic_all_sleep(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(NAT, "--workers 2 --metrics 127.0.0.1:9600");
    let metrics = network.middle.run("curl -sS -m 5 http://127.0.0.1:9600/metrics");
    for metric in [
        "rivulet_worker_packets_received_total{worker=\"1\"}",
        "rivulet_worker_packets_handed_over_total{worker=\"0\"}",
        "rivulet_worker_packets_processed_total{worker=\"0\"}",
        "rivulet_worker_asleep_share{worker=\"1\"}",
        "rivulet_pool_size{",
    ] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    rivulet.end_after_rest();
}
