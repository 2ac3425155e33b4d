//! A dispatcher between real hosts, and units on hosts of their own. Connections last while units
//! are restarted one by one or get another policy, and while an operator moves flows to and fro.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::asking::{Asking, SUBSCRIBERS};
use crate::cluster_hosts::{
    NAT_POLICY, POLICY, RATE, UNITS, serve_file, start_etcd, start_nodes, start_units,
};
use crate::net::{Host, Io, Network, Server, wait_until};
use crate::operator::Operator;

/// Pings during the downloads, 20 a second.
const PINGS: &str = "200";

#[test]
fn units_are_restarted_one_by_one_while_connections_go_on() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let etcd = start_etcd(&network);
    let mut units = start_units(&network, POLICY, true);
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow --api api.sock");
    let (file, _server) = serve_file(&network);
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.2:8000/file").status.success()
    });
    let fetched = network.path("fetched").display().to_string();
    let mut pings = network.inside.command("ping");
    let pings = pings.args(["-q", "-i", "0.05", "-c", PINGS, "-w", "60", "fd07::2"]);
    let pings = pings.stdout(Stdio::piped()).spawn().unwrap();
    let socket = network.path("api.sock");
    let curl = |path: &str| -> serde_json::Value {
        let line = format!("curl -sf --unix-socket {} http://localhost{path}", socket.display());
        serde_json::from_str(&network.middle.run(&line)).unwrap()
    };
    assert!(curl("/v1/status")["dispatcher"]["flows"].as_u64() > Some(0));
    wait_until("all units are found", || {
        let nodes = curl("/v1/nodes");
        let nodes = nodes["items"].as_array().unwrap();
        nodes.len() == UNITS.len() && nodes.iter().all(|node| node["status"] == "active")
    });
    let operator = Operator::start(socket.clone());
    let download = || {
        let args = ["-sSf", "--limit-rate", RATE, "-o", &fetched, "http://10.7.0.2:8000/file"];
        network.inside.command("curl").args(args).spawn().unwrap()
    };
    let check = |mut download: Child| {
        assert!(download.wait().unwrap().success());
        assert!(std::fs::read(&fetched).unwrap() == file, "the file is damaged");
    };
    // Traffic does not need the store.
    drop(etcd);
    check(download());
    let _etcd = start_etcd(&network);
    for unit in &mut units {
        let download = download();
        unit.end();
        unit.start(&network);
        // The dispatcher has found it again; it is another unit now.
        unit.wait_for_line("node connected");
        check(download);
    }
    let pings = pings.wait_with_output().unwrap();
    let pings = String::from_utf8_lossy(&pings.stdout).into_owned();
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    let by_operator = operator.end();
    let report = up.end();
    assert!(by_operator > 100, "{by_operator}");
    assert!(report["units"]["flows_migrated"].as_u64() >= Some(by_operator), "{report}");
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    let moved = report["units"]["states_moved"].as_u64().unwrap();
    assert!(moved > 0, "{report}");
}

/// Number of downloads that run at a time while a unit is killed.
const DOWNLOADS: u16 = 9;

/// Returns the path of a download's file.
fn fetched(network: &Network, download: u16) -> PathBuf {
    network.path(&format!("fetched-{download}"))
}

/// Begins slow downloads of the served file, and waits until each has some of it.
fn begin_downloads(network: &Network) -> Vec<Child> {
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.2:8000/file").status.success()
    });
    let downloads = (0..DOWNLOADS).map(|number| {
        let path = fetched(network, number).display().to_string();
        let args = ["-sS", "--limit-rate", RATE, "-o", &path, "http://10.7.0.2:8000/file"];
        network.inside.command("curl").args(args).spawn().unwrap()
    });
    let downloads = downloads.collect();
    wait_until("all have begun", || {
        (0..DOWNLOADS).all(|number| fetched(network, number).metadata().is_ok_and(|of| of.len() > 0))
    });
    downloads
}

/// No host waits for a connection that has ended with its unit.
#[test]
fn hosts_of_flows_of_a_killed_unit_are_reset() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let units = start_units(&network, POLICY, false);
    let up = network.up(POLICY, "--cluster dispatcher.toml --assign round-robin");
    let (_, _server) = serve_file(&network);
    let downloads = begin_downloads(&network);
    units[0].signal("KILL");
    // Connections of other units continue; the others are reset (56: a failure in receiving).
    let codes = downloads.into_iter().map(|mut download| download.wait().unwrap().code());
    let codes: Vec<_> = codes.collect();
    assert!(codes.iter().all(|code| matches!(code, Some(0 | 56))), "{codes:?}");
    assert!(codes.contains(&Some(56)), "{codes:?}");
    // Neither host has a connection left.
    for host in [&network.inside, &network.outside] {
        wait_until("no connection is left", || host.run("ss -Htn state established").trim().is_empty());
    }
    let report = up.end();
    assert!(report["units"]["flows_reset"].as_u64() > Some(0), "{report}");
}

/// Connections of a unit that is killed continue at others, which have replicas of their states.
#[test]
fn flows_of_a_killed_unit_continue_with_replicas() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let units = start_units(&network, POLICY, false);
    let up = network.up(POLICY, "--cluster dispatcher.toml --assign round-robin --copies 2");
    let (file, _server) = serve_file(&network);
    let downloads = begin_downloads(&network);
    units[0].signal("KILL");
    for mut download in downloads {
        assert!(download.wait().unwrap().success());
    }
    let is_whole = |number: u16| std::fs::read(fetched(&network, number)).unwrap() == file;
    assert!((0..DOWNLOADS).all(is_whole), "a file is damaged");
    let report = up.end();
    let units = &report["units"];
    assert!(units["flows_recovered"].as_u64() > Some(0), "{report}");
    assert_eq!((&units["flows_lost"], &units["flows_reset"]), (&Value::Null, &Value::Null), "{report}");
}

#[test]
fn dispatcher_sleeps_while_packets_are_at_units() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let units = start_units(&network, POLICY, false);
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow");
    network.inside.ping("-c 3 -i 0.05 -W 2 fd07::2");
    let signal_all = |signal| units.iter().for_each(|unit| unit.signal(signal));
    let sleeps = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", up.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    signal_all("STOP");
    let ping = network.inside.command("ping").args(["-c", "1", "-W", "10", "fd07::2"]).spawn().unwrap();
    let sleeps_before = sleeps();
    wait_until("the dispatcher has slept", || sleeps() > sleeps_before + 50);
    signal_all("CONT");
    // The packet has been at its unit all the time: a unit that stands still for a second is lost.
    assert!(ping.wait_with_output().unwrap().status.success());
    up.end();
}

#[test]
fn another_policy_is_applied_while_connections_go_on() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let policy = NAT_POLICY.replace("rules: \"allow out from any\"", "rules: file(\"site.rules\")");
    std::fs::write(network.path("site.rules"), "allow out from any").unwrap();
    let units = start_units(&network, &policy, false);
    let up = network.up(&policy, "--cluster dispatcher.toml --mode flow --api api.sock");
    let mac = |host: &Host| host.run("cat /sys/class/net/eth0/address").trim().to_owned();
    for external in ["10.7.0.100", "10.7.0.101"] {
        network.outside.ip(&format!("neigh add {external} lladdr {} dev eth0", mac(&network.inside)));
    }
    let (file, _server) = serve_file(&network);
    let _denied = network.outside.serve("python3 -m http.server 8001", 8001);
    let get = |port: u16, options: &str| {
        network.inside.output(&format!("curl -sf -m 5 -o /dev/null {options} http://10.7.0.2:{port}/"))
    };
    for port in [8000, 8001] {
        wait_until("the first downloads succeed", || get(port, "").status.success());
    }
    let fetched = network.path("fetched").display().to_string();
    let args = ["-sSf", "--limit-rate", RATE, "-o", &fetched, "http://10.7.0.2:8000/file"];
    let mut download = network.inside.command("curl").args(args).spawn().unwrap();
    wait_until("the download has begun", || network.path("fetched").exists());

    let folder = network.path("");
    let apply = |policy: &str, rules: &str| {
        std::fs::write(network.path("site.rules"), rules).unwrap();
        std::fs::write(network.path("next.rvl"), policy).unwrap();
        let program = env!("CARGO_BIN_EXE_rivulet");
        let mut command = network.middle.command(program);
        command.args(["apply", "next.rvl", "--api", "api.sock"]).current_dir(&folder).output().unwrap()
    };
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = apply(&policy, "allow out from any\npermit in");
    assert!(said(&refused).contains("site.rules:2:1"), "{}", said(&refused));
    let refused = apply(&policy.replace("10.7.0.101]", "10.7.0.102]"), "allow out from any");
    assert!(said(&refused).contains("leases items of a pool"), "{}", said(&refused));
    let applied = apply(&policy, "deny out tcp to any port 8001\nallow out from any");
    assert!(applied.status.success(), "{}", said(&applied));

    assert!(download.wait().unwrap().success());
    assert!(std::fs::read(&fetched).unwrap() == file, "the file is damaged");
    assert!(get(8000, "").status.success());
    assert!(!get(8001, "-m 2").status.success());
    let report = up.end();
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    assert!(report["units"]["groups_moved"].as_u64() > Some(0), "{report}");
    drop(units);
}

// RFC 4787 REQ-1
#[test]
fn nat_keeps_its_mappings_while_its_units_are_restarted() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let mut units = start_units(&network, NAT_POLICY, false);
    let up = network.up(NAT_POLICY, "--cluster dispatcher.toml --mode flow");
    let mac = |host: &Host| host.run("cat /sys/class/net/eth0/address").trim().to_owned();
    for external in ["10.7.0.100", "10.7.0.101"] {
        network.outside.ip(&format!("neigh add {external} lladdr {} dev eth0", mac(&network.inside)));
    }
    network.inside.ip(&format!("neigh add 10.7.0.200 lladdr {} dev eth0", mac(&network.outside)));
    SUBSCRIBERS.for_each(|host| network.inside.ip(&format!("addr add 10.7.0.{host}/24 dev eth0")));
    let (file, _server) = serve_file(&network);
    let _iperf3 = network.outside.serve("iperf3 -s", 5201);
    let _mirror = Asking::serve(&network, &["10.7.0.2"]);
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.200/file").status.success()
    });
    let spawn = |program: &str, args: &[&str]| {
        network.inside.command(program).args(args).stdout(Stdio::piped()).spawn().unwrap()
    };
    let asking = Asking::start(&network, &["10.7.0.2"]);
    let stream = spawn("iperf3", &["-c", "10.7.0.2", "-B", "10.7.0.18", "-u", "-b", "1M", "-t", "12", "-J"]);
    for unit in &mut units {
        let downloads: Vec<_> = SUBSCRIBERS
            .map(|host| {
                let to = network.path(&format!("fetched-{host}")).display().to_string();
                let from = format!("10.7.0.{host}");
                let server = if host % 2 == 0 { "10.7.0.2:8000" } else { "10.7.0.200" };
                let url = format!("http://{server}/file");
                let args = ["-sSf", "--interface", &from, "--limit-rate", RATE, "-o", &to, &url];
                (spawn("curl", &args), to)
            })
            .collect();
        unit.end();
        unit.start(&network);
        unit.wait_for_line("node connected");
        for (mut download, to) in downloads {
            assert!(download.wait().unwrap().success(), "{to}");
            assert!(std::fs::read(&to).unwrap() == file, "{to} is damaged");
        }
    }
    asking.end(30);
    let stream = stream.wait_with_output().unwrap().stdout;
    let stream: serde_json::Value = serde_json::from_slice(&stream).unwrap();
    assert_eq!(stream["end"]["sum"]["lost_packets"], 0, "{stream}");
    let report = up.end();
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    let moved = report["units"]["groups_moved"].as_u64().unwrap();
    assert!(moved >= 3, "{report}");
}

#[test]
fn units_are_found_in_a_file_of_the_machine() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    start_nodes(&network, POLICY, (&[], false), &["dispatcher"]);
    let rivulet = env!("CARGO_BIN_EXE_rivulet");
    network.middle.run(&format!("{rivulet} cluster init {} unit:u1", network.path("ca").display()));
    let store = "certificates = \"ca\"\n[store]\nfile = \"cluster.redb\"\n";
    let unit = "name = \"u1\"\nrole = \"unit\"\npolicy = \"policy.rvl\"\nlisten = \"127.0.0.1:7400\"\n";
    std::fs::write(network.path("u1.toml"), format!("{unit}{store}")).unwrap();
    std::fs::write(network.path("dispatcher.toml"), format!("name = \"dispatcher\"\n{store}")).unwrap();
    let start = || {
        let mut unit = network.middle.command(rivulet);
        let unit = unit.args(["node", "--config", "u1.toml"]).current_dir(network.path(""));
        Server::of(unit.stdout(Stdio::null()).spawn().unwrap())
    };
    let unit = start();
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow");
    wait_until("packets pass", || network.inside.output("ping -c 1 -W 1 fd07::2").status.success());
    // A unit that starts after the dispatcher has given up its privileges.
    drop(unit);
    let _unit = start();
    up.wait_for_line("node lost node=u1");
    wait_until("packets pass again", || network.inside.output("ping -c 1 -W 1 fd07::2").status.success());
}
