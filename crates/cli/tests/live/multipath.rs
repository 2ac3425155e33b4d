//! Multipath TCP of the kernel: its connections have several sub-flows, which units recognize
//! (A38).

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::cluster_hosts::start_units;
use crate::net::{Io, Network, Server, wait_until};

/// Further addresses of the client; each has a sub-flow.
const ADDRESSES: [&str; 2] = ["10.7.0.11", "10.7.0.12"];

const SERVER: &str = "10.7.0.2:5001";

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/multipath.py");

/// Returns a network of hosts with Multipath TCP, and a server outside. If the kernel lacks it,
/// prints a message and returns `None`; fails in CI.
fn network() -> Option<(Network, Server)> {
    let network = Network::new(Io::PacketSocket)?;
    for host in [&network.inside, &network.outside] {
        if !host.output("ip mptcp limits set subflow 4 add_addr_accepted 4").status.success() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the kernel has no Multipath TCP");
            println!("SKIPPED: the kernel has no Multipath TCP");
            return None;
        }
    }
    for address in ADDRESSES {
        network.inside.ip(&format!("addr add {address}/24 dev eth0"));
        network.inside.ip(&format!("mptcp endpoint add {address} dev eth0 subflow"));
    }
    let server = network.outside.serve(&format!("python3 {SCRIPT} server"), 5001);
    Some((network, server))
}

/// Starts a client.
fn client(network: &Network, connections: usize, chunks: usize) -> Child {
    let mut command = network.inside.command("python3");
    command.args([SCRIPT, "client", &connections.to_string(), &chunks.to_string(), "50"]);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for a client; all its connections must have been right.
fn check(client: Child, connections: usize) {
    let output = client.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), connections.to_string());
}

/// Returns the sub-flows of each connection by its token, as the server's kernel knows them:
/// address and port of the client.
fn subflows_of_kernel(network: &Network) -> BTreeMap<String, BTreeSet<String>> {
    let mut subflows: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let sockets = network.outside.run("ss -Htni state established sport = :5001");
    let mut ends = String::new();
    for line in sockets.lines() {
        match line.split_whitespace().nth(3) {
            Some(peer) if !line.starts_with(['\t', ' ']) => ends = peer.to_owned(),
            _ => {}
        }
        // `token:REMOTE(ID)/LOCAL(ID)`, the latter being the server's.
        if let Some((_, tokens)) = line.split_once("token:") {
            let local = tokens.split('/').nth(1).unwrap().split('(').next().unwrap().to_owned();
            subflows.entry(local).or_default().insert(ends.clone());
        }
    }
    subflows
}

/// Returns the unit and the identity of each flow, by its client's address and port, from the
/// control API.
fn units_of_flows(network: &Network) -> BTreeMap<String, (String, String)> {
    let socket = network.path("api.sock");
    let line = format!("curl -sf --unix-socket {} http://localhost/v1/flows?limit=1000", socket.display());
    let flows: Value = serde_json::from_str(&network.middle.run(&line)).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_client = |flow: &Value| {
        let [one, other] = [0, 1].map(|end| text(&flow["ends"][end]));
        let client = if one == SERVER { other } else { one };
        (client, (text(&flow["node"]), text(&flow["id"])))
    };
    let flows = flows["items"].as_array().unwrap();
    flows.iter().filter(|flow| flow["protocol"] == 6).map(of_client).collect()
}

#[test]
fn subflows_of_the_kernel_are_at_one_unit_and_move_together() {
    const CONNECTIONS: usize = 12;
    let Some((network, _server)) = network() else { return };
    let policy = "Port<0> inside; Port<1> outside; Mptcp m; pipelet { inside <-> m <-> outside; }";
    let _units = start_units(&network, policy, false);
    let up = network.up(policy, "--cluster dispatcher.toml --mode flow --api api.sock");
    let client = client(&network, CONNECTIONS, 200);
    let is_complete = |subflows: &BTreeMap<String, BTreeSet<String>>| {
        subflows.len() == CONNECTIONS && subflows.values().all(|ends| ends.len() == 1 + ADDRESSES.len())
    };
    wait_until("all connections have all sub-flows", || is_complete(&subflows_of_kernel(&network)));
    let connections = subflows_of_kernel(&network);
    let units = |flows: &BTreeMap<String, (String, String)>| -> BTreeMap<String, String> {
        let unit = |(token, ends): (&String, &BTreeSet<String>)| {
            let at: BTreeSet<&String> = ends.iter().map(|end| &flows[end].0).collect();
            assert_eq!(at.len(), 1, "connection {token} is at {at:?}");
            (token.clone(), at.first().unwrap().to_string())
        };
        connections.iter().map(unit).collect()
    };
    let flows = units_of_flows(&network);
    let before = units(&flows);
    assert!(before.values().collect::<BTreeSet<_>>().len() > 1, "{before:?}");
    // An operator moves the last sub-flow of a connection.
    let (token, ends) = connections.first_key_value().unwrap();
    let (from, id) = &flows[ends.last().unwrap()];
    let to = before.values().find(|unit| *unit != from).unwrap();
    let rivulet = env!("CARGO_BIN_EXE_rivulet");
    let api = network.path("api.sock");
    network.middle.run(&format!("{rivulet} flows move {id} --to {to} --api {}", api.display()));
    let after = units(&units_of_flows(&network));
    assert_eq!(&after[token], to);
    check(client, CONNECTIONS);
    let report = up.end();
    let of_units = &report["units"];
    let joined = (CONNECTIONS * ADDRESSES.len()) as u64;
    assert!(of_units["subflows_joined"].as_u64() >= Some(joined), "{of_units}");
    assert!(of_units["subflows_unknown"].is_null(), "{of_units}");
    assert_eq!(of_units["groups_moved"].as_u64(), Some(1));
}

/// A path fails beyond Rivulet: the kernel retransmits data that Rivulet has seen on the first
/// sub-flow over another one. With either treatment of duplicates, all data arrives.
#[test]
fn data_that_the_kernel_sends_again_elsewhere_is_duplicate() {
    for duplicates in ["mark", "drop"] {
        let Some((network, _server)) = network() else { return };
        let policy = format!(
            "Port<0> inside; Port<1> outside; Mptcp m {{ duplicates: {duplicates} }};
             pipelet {{ inside <-> m <-> outside; }}"
        );
        let up = network.up(&policy, "");
        let client = client(&network, 4, 100);
        wait_until("all connections have all sub-flows", || {
            let subflows = subflows_of_kernel(&network);
            subflows.len() == 4 && subflows.values().all(|ends| ends.len() == 1 + ADDRESSES.len())
        });
        network.outside.run("nft add table ip paths");
        network.outside.run("nft add chain ip paths in { type filter hook input priority 0 ; }");
        for address in ["10.7.0.1", ADDRESSES[0], ADDRESSES[1]] {
            network.outside.run(&format!("nft add rule ip paths in ip saddr {address} tcp dport 5001 drop"));
            std::thread::sleep(std::time::Duration::from_millis(700));
            network.outside.run("nft flush chain ip paths in");
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        check(client, 4);
        let report = up.end();
        let count = |name: &str| report["functions"][0]["counters"][name].as_u64().unwrap();
        println!("{duplicates}: {}", report["functions"][0]["counters"]);
        assert_eq!((count("connections"), count("subflows_joined")), (4, 8));
        assert_eq!((count("subflows_unknown"), count("subflows_invalid")), (0, 0));
        assert_eq!(count("bytes_unmapped"), 0);
        assert!(count("bytes_duplicate") > 0 && count("bytes_retransmitted") > 0, "{report}");
        let dropped = report["drops"].get("mptcp-duplicate").and_then(Value::as_u64).unwrap_or(0);
        assert_eq!(dropped > 0, duplicates == "drop", "{report}");
    }
}
