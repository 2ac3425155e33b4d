//! Processes of a cluster that are stopped for a while, as a host that moves or is busy: a node
//! that is slow is not dead, and no connection ends.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::asking::SUBSCRIBERS;
use crate::cluster_hosts::{NAT_POLICY, RATE, serve_file};
use crate::two_dispatchers::TwoDispatchers;

/// Shorter than the silence after which a node may be given up.
const PAUSE: Duration = Duration::from_millis(1_500);

#[test]
fn connections_outlive_processes_that_are_stopped_for_a_while() {
    let Some((hosts, units)) = TwoDispatchers::start(NAT_POLICY) else { return };
    let network = &hosts.network;
    let (file, _server) = serve_file(network);
    let servers = ["10.7.0.2", "10.7.0.3"];
    let download = |host: u8| {
        let to = network.path(&format!("fetched-{host}")).display().to_string();
        let server = servers[usize::from(host) % servers.len()];
        let args = ["-sSf", "--interface", &format!("10.7.0.{host}"), "--limit-rate", RATE, "-o", &to];
        let mut curl = network.inside.command("curl");
        (curl.args(args).arg(format!("http://{server}:8000/file")).stdout(Stdio::null()).spawn().unwrap(), to)
    };
    let signal = |signal: &str, process: u32| {
        let args = ["-s", signal, &process.to_string()];
        assert!(Command::new("kill").args(args).status().unwrap().success());
    };
    let [first, _] = hosts.processes();
    let pauses: [&dyn Fn(&str); 2] = [&|name| units[0].signal(name), &|name| signal(name, first)];
    for pause in pauses {
        let downloads: Vec<_> = SUBSCRIBERS.map(download).collect();
        std::thread::sleep(Duration::from_secs(1));
        pause("STOP");
        std::thread::sleep(PAUSE);
        pause("CONT");
        for (mut curl, to) in downloads {
            assert!(curl.wait().unwrap().success(), "{to}");
            assert!(std::fs::read(&to).unwrap() == file, "{to} is damaged");
        }
    }
    let said = hosts.said_so_far();
    assert!(said.iter().all(|line| !line.contains("node lost")), "{said:#?}");
    for report in hosts.end(units) {
        assert!(report["links"]["suspected"].as_u64() > Some(0), "{report}");
        assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    }
}
