//! A policy that was applied to a cluster outlives its processes: a dispatcher and units that start
//! again with their files of before get it, from the store, from their own state, or from others.

use std::process::{Command, Output};

use crate::cluster_hosts::{POLICY, UnitHost, start_etcd, start_units};
use crate::net::{Io, Network, Rivulet, wait_until};

/// A cluster with two units at work and a spare one.
struct Applied {
    network: Network,
    units: Vec<UnitHost>,
    dispatcher: Option<Rivulet>,
}

impl Applied {
    fn start(network: Network, has_store: bool) -> Applied {
        let units = start_units(&network, POLICY, has_store);
        let found = match has_store {
            true => "[store]\netcd = [\"http://127.0.0.1:2379\"]\n".to_owned(),
            false => network.underlay.units(&["u1", "u2", "u3"]),
        };
        let config = format!("name = \"dispatcher\"\ncertificates = \"ca\"\nunits_min = 2\n{found}");
        std::fs::write(network.path("dispatcher.toml"), config).unwrap();
        let mut applied = Applied { network, units, dispatcher: None };
        applied.start_dispatcher();
        applied
    }

    /// Starts the dispatcher with the file of the beginning, and waits until all nodes are there.
    fn start_dispatcher(&mut self) {
        self.dispatcher =
            Some(self.network.up(POLICY, "--cluster dispatcher.toml --mode flow --api api.sock"));
        self.wait_for_nodes();
    }

    fn wait_for_nodes(&self) {
        wait_until("all nodes are there", || {
            let nodes = self.nodes();
            nodes.len() == 3 && nodes.iter().all(|node| node["policy_number"].is_u64())
        });
    }

    fn nodes(&self) -> Vec<serde_json::Value> {
        serde_json::from_slice(&self.rivulet(&["nodes", "-o", "json"]).stdout).unwrap_or_default()
    }

    fn rivulet(&self, args: &[&str]) -> Output {
        let mut command = self.network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(args).args(["--api", "api.sock"]).current_dir(self.network.path("")).output().unwrap()
    }

    fn status(&self) -> String {
        String::from_utf8(self.rivulet(&["status"]).stdout).unwrap()
    }

    /// Applies a policy that denies this port.
    fn apply(&self, name: &str, port: u16) {
        let rules = format!("deny out tcp to any port {port}\\nallow out from any");
        std::fs::write(self.network.path(name), POLICY.replace("allow out from any", &rules)).unwrap();
        let output = self.rivulet(&["apply", name]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            format!("{name}: runs on all nodes\n"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        self.assert_runs(name, port);
    }

    /// Asserts that all nodes run a policy, and that it denies this port alone.
    fn assert_runs(&self, name: &str, denied: u16) {
        let number = if name == "one.rvl" { 1 } else { 2 };
        assert!(
            self.status().contains(&format!("policy      {name}, number {number}\n")),
            "{}",
            self.status()
        );
        assert!(self.nodes().iter().all(|node| node["policy_number"] == number), "{:?}", self.nodes());
        for port in [8001, 8002] {
            let line = format!("curl -sf -m 1 -o /dev/null http://10.7.0.2:{port}/");
            let get = || self.network.inside.output(&line).status.success();
            match port == denied {
                true => assert!(!get(), "{name} denies {port}"),
                false => wait_until("the other port is open", get),
            }
        }
    }

    fn kill_dispatcher(&mut self) {
        let dispatcher = self.dispatcher.take().unwrap();
        let id = dispatcher.id().to_string();
        assert!(Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
        drop(dispatcher);
    }

    fn lose_state(&self, node: &str) {
        let _ = std::fs::remove_dir_all(self.network.path("state").join(node));
    }
}

fn outlives_processes(has_store: bool) {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let _servers =
        [8001, 8002].map(|port| network.outside.serve(&format!("python3 -m http.server {port}"), port));
    let etcd = has_store.then(|| start_etcd(&network));
    let mut cluster = Applied::start(network, has_store);
    cluster.apply("one.rvl", 8001);
    let of_rollout = cluster.units.iter().flat_map(UnitHost::said_so_far);
    let of_rollout: Vec<String> =
        of_rollout.chain(cluster.dispatcher.iter().flat_map(Rivulet::said_so_far)).collect();
    assert!(of_rollout.iter().all(|line| !line.contains("WARN")), "{of_rollout:?}");
    assert!(of_rollout.iter().any(|line| line.contains("policy changed")), "{of_rollout:?}");
    for loses_state in [false, true] {
        cluster.kill_dispatcher();
        if loses_state {
            cluster.lose_state("dispatcher");
        }
        cluster.start_dispatcher();
        cluster.assert_runs("one.rvl", 8001);
    }
    for loses_state in [false, true] {
        let mut unit = cluster.units.remove(0);
        unit.end();
        if loses_state {
            cluster.lose_state(unit.name);
        }
        unit.start(&cluster.network);
        unit.wait_for_line("node connected");
        cluster.units.insert(0, unit);
        cluster.wait_for_nodes();
        wait_until("it has the policy", || cluster.nodes().iter().all(|node| node["policy_number"] == 1));
        cluster.assert_runs("one.rvl", 8001);
    }
    cluster.apply("two.rvl", 8002);
    drop(etcd);
}

#[test]
fn applied_policy_outlives_processes_without_a_store() {
    outlives_processes(false);
}

#[test]
fn applied_policy_outlives_processes_with_a_store() {
    outlives_processes(true);
}
