//! Ends of members and links of a cluster under traffic: all return, and no other member ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cluster_hosts::{POLICY, RATE, UNITS, UnitHost, serve_file, start_units};
use crate::net::{Io, Network, Rivulet, Server, wait_until};

/// Longer than the silence of a suspect, and far shorter than that after which a node may be given
/// up: on a busy machine, a link that is up again takes its time until packets pass.
const DOWN: Duration = Duration::from_millis(500);
/// Longer than that time.
const UP: Duration = Duration::from_millis(1_500);
/// Longer than the silence after which a node of a quiet network is given up.
const GIVEN_UP: Duration = Duration::from_secs(6);
/// Period of requests for a neighbour's address, in ms: one may be lost.
const ASK_AGAIN: u32 = 100;

fn start_dispatcher(network: &Network) -> Rivulet {
    network.up(POLICY, "--cluster dispatcher.toml --mode flow --assign round-robin --api api.sock")
}

/// Returns the number of nodes in this state.
fn count(network: &Network, state: &str) -> usize {
    let mut nodes = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
    let nodes = nodes.args(["nodes", "--api", "api.sock"]).current_dir(network.path("")).output().unwrap();
    String::from_utf8_lossy(&nodes.stdout).matches(&format!(" {state} ")).count()
}

/// Waits until packets pass, and all units are at work.
fn wait_for_all(network: &Network) {
    wait_until("all units work", || count(network, "active") == UNITS.len());
    wait_until("packets pass", || network.inside.output("ping -c 1 -W 1 fd07::2").status.success());
}

fn signal(signal: &str, process: u32) {
    let killed = Command::new("kill").args(["-s", signal, &process.to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Has the inside host download a file, again and again, whatever becomes of its connections.
fn download_again_and_again(network: &Network) -> Server {
    let once = format!("curl -s -m 2 --limit-rate {RATE} http://10.7.0.2:8000/file -o /dev/null");
    let mut shell = network.inside.command("sh");
    Server::of(shell.args(["-c", &format!("while :; do {once} || sleep 0.1; done")]).spawn().unwrap())
}

#[test]
fn members_that_are_killed_end_nobody_else() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let mut units = start_units(&network, POLICY, false);
    let mut dispatcher = start_dispatcher(&network);
    let (_file, _server) = serve_file(&network);
    wait_for_all(&network);
    let _traffic = download_again_and_again(&network);
    // A dispatcher that is restarted at once, and a dispatcher that is restarted after its units
    // gave it up.
    for pause in [Duration::ZERO, Duration::from_secs(3)] {
        units.iter().for_each(|unit| drop(unit.said_so_far()));
        signal("KILL", dispatcher.id());
        drop(dispatcher);
        std::thread::sleep(pause);
        dispatcher = start_dispatcher(&network);
        wait_for_all(&network);
        units.iter().for_each(|unit| unit.wait_for_line("node connected node=dispatcher"));
    }
    // A dispatcher that ends in order.
    units.iter().for_each(|unit| drop(unit.said_so_far()));
    dispatcher.end();
    dispatcher = start_dispatcher(&network);
    wait_for_all(&network);
    let said: Vec<_> = units.iter().flat_map(UnitHost::said_so_far).collect();
    assert!(said.iter().all(|line| !line.contains("node lost")), "{said:?}");
    let others = [units[1].id(), units[2].id()];
    units[0].kill();
    units[0].start(&network);
    units[0].wait_for_line("node connected node=dispatcher");
    wait_for_all(&network);
    assert_eq!([units[1].id(), units[2].id()], others);
    // A dispatcher that waits for units ends at once, and in order.
    units.iter_mut().for_each(UnitHost::kill);
    signal("KILL", dispatcher.id());
    drop(dispatcher);
    let mut waiting = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
    waiting.args(["up", "policy.rvl", "--port", "inside=inside", "--port", "outside=outside"]);
    waiting.args(["--driver", "packet", "--cluster", "dispatcher.toml", "--api", "none"]);
    waiting.current_dir(network.path("")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waiting = waiting.spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("waiting for units: 0 of 3")));
    signal("TERM", waiting.id());
    assert!(waiting.wait().unwrap().success());
}

/// Nor is a unit started at a node that is about to end.
#[test]
fn nodes_that_end_in_order_are_not_lost() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let mut units = start_units(&network, POLICY, false);
    let config = std::fs::read_to_string(network.path("dispatcher.toml")).unwrap();
    std::fs::write(network.path("dispatcher.toml"), format!("units_min = 1\n{config}")).unwrap();
    let dispatcher = start_dispatcher(&network);
    wait_until("two nodes are spare", || count(&network, "spare") == 2);
    for left in [2, 1] {
        units[left].end();
        wait_until("the node has gone", || count(&network, "connecting") == UNITS.len() - left);
        assert_eq!(count(&network, "active"), 1, "{left} nodes left");
    }
    // The absence of a loss shows only after its timeout: there is no event to wait for.
    std::thread::sleep(GIVEN_UP);
    let said = dispatcher.said_so_far();
    assert!(said.iter().all(|line| !line.contains("node lost")), "{said:#?}");
    let report = dispatcher.end();
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
}

#[test]
fn link_that_flaps_ends_nothing() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let units = start_units(&network, POLICY, false);
    for (unit, name) in units.iter().zip(UNITS) {
        let set = format!("sysctl -qw net.ipv4.neigh.{name}.retrans_time_ms={ASK_AGAIN}");
        unit.host().run(&set.replace(name, "eth0"));
        network.middle.run(&set);
    }
    let dispatcher = start_dispatcher(&network);
    let (file, _server) = serve_file(&network);
    wait_for_all(&network);
    let downloads = UNITS.map(|unit| {
        let to = network.path(&format!("fetched-{unit}"));
        let mut curl = network.inside.command("curl");
        curl.args(["-sSf", "--limit-rate", RATE, "http://10.7.0.2:8000/file", "-o"]).arg(&to);
        (curl.spawn().unwrap(), to)
    });
    for (state, time) in [("down", DOWN), ("up", UP), ("down", DOWN), ("up", UP)] {
        UNITS.iter().for_each(|unit| network.middle.ip(&format!("link set {unit} {state}")));
        std::thread::sleep(time);
    }
    for (mut curl, to) in downloads {
        assert!(curl.wait().unwrap().success());
        assert!(std::fs::read(&to).unwrap() == file, "{} is damaged", to.display());
    }
    let report = dispatcher.end();
    assert!(report["links"]["suspected"].as_u64() > Some(0), "{report}");
    assert_eq!(report["links"]["dead"], 0, "{report}");
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
}
