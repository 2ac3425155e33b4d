//! Hosts of a cluster that are known by names: names with several addresses, and with others than
//! before while packets flow.

use std::process::Child;

use serde_json::Value;

use crate::cluster_hosts::{POLICY, RATE, serve_file, start_units};
use crate::net::{Io, Network, wait_until};
use crate::underlay::Underlay;

const DOWNLOADS: usize = 6;

#[test]
fn links_follow_hosts_to_other_addresses() {
    let Some(mut network) = Network::new(Io::PacketSocket) else { return };
    network.underlay = Underlay::Names;
    let units = start_units(&network, POLICY, false);
    // The first address of a name belongs to no host.
    network.middle.ip("addr add fd09:2::1/64 dev u2 nodad");
    network.middle.set_names("10.9.1.2 u1.test\nfd09:2::9 u2.test\n10.9.2.2 u2.test\n10.9.3.2 u3.test\n");
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow --assign round-robin --api api.sock");
    let (file, _server) = serve_file(&network);
    let addresses = || -> Vec<String> {
        let socket = network.path("api.sock").display().to_string();
        let links = network.middle.run(&format!("curl -sf --unix-socket {socket} http://localhost/v1/links"));
        let links: Value = serde_json::from_str(&links).unwrap();
        let addresses = links["items"].as_array().unwrap().iter();
        let mut addresses: Vec<String> = addresses
            .map(|link| link["address"].as_str().unwrap().rsplit_once(':').unwrap().0.to_owned())
            .collect();
        addresses.sort();
        addresses
    };
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.2:8000/file").status.success()
    });
    wait_until("all units are there", || addresses() == ["10.9.1.2", "10.9.2.2", "10.9.3.2"]);
    let to = |number: usize| network.path(&format!("fetched-{number}"));
    let downloads = (0..DOWNLOADS).map(|number| {
        let file = to(number).display().to_string();
        let args = ["-sSf", "--limit-rate", RATE, "-o", &file, "http://10.7.0.2:8000/file"];
        network.inside.command("curl").args(args).spawn().unwrap()
    });
    let downloads: Vec<Child> = downloads.collect();
    wait_until("all have begun", || {
        (0..DOWNLOADS).all(|number| to(number).metadata().is_ok_and(|of| of.len() > 0))
    });
    // The unit says it itself by what it sends.
    let renumber = |network: &str, of: &str| {
        let unit = units[0].host();
        unit.ip("addr flush dev eth0 scope global");
        unit.ip(&format!("addr add {network}.{of}/24 dev eth0"));
        unit.ip(&format!("route add default via {network}.1"));
    };
    renumber("10.9.1", "77");
    wait_until("the link has followed", || addresses().contains(&"10.9.1.77".to_owned()));
    // Neither end knows where the other one is now, but for the name.
    network.middle.set_names("10.8.1.2 u1.test\n10.9.2.2 u2.test\n10.9.3.2 u3.test\n");
    network.middle.ip("addr flush dev u1");
    network.middle.ip("addr add 10.8.1.1/24 dev u1");
    renumber("10.8.1", "2");
    wait_until("the link has followed", || addresses().contains(&"10.8.1.2".to_owned()));
    units[0].wait_for_line("link moved node=dispatcher from=10.9.1.1:");
    for (number, mut download) in downloads.into_iter().enumerate() {
        assert!(download.wait().unwrap().success());
        assert!(std::fs::read(to(number)).unwrap() == file, "file {number} is damaged");
    }
    let report = up.end();
    assert_eq!(report["links"]["dead"], 0, "{report}");
    assert!(report["links"]["suspected"].as_u64() > Some(0), "{report}");
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
}

#[test]
fn addresses_without_datagrams_come_last() {
    let Some(mut network) = Network::new(Io::PacketSocket) else { return };
    network.underlay = Underlay::Names;
    let units = start_units(&network, POLICY, false);
    network.middle.set_names("10.9.1.2 u1.test\n10.9.2.2 u2.test\nfd09:3::2 u3.test\n10.9.3.2 u3.test\n");
    network.middle.ip("addr add fd09:3::1/64 dev u3 nodad");
    let unit = units[2].host();
    unit.ip("addr add fd09:3::2/64 dev eth0 nodad");
    // Handshakes pass at the address that the system prefers, but no datagrams.
    let is_ipv6_first = network.middle.run("getent ahosts u3.test").starts_with("fd09");
    let (first, second) = if is_ipv6_first { ("ipv6", "10.9.3.2:") } else { ("ipv4", "[fd09:3::2]:") };
    unit.run("nft add table inet filter");
    unit.run("nft add chain inet filter input { type filter hook input priority 0 ; }");
    unit.run(&format!("nft add rule inet filter input meta nfproto {first} meta l4proto udp drop"));
    let _up = network.up(POLICY, "--cluster dispatcher.toml --api api.sock");
    let socket = network.path("api.sock").display().to_string();
    wait_until("a link to the second address is there", || {
        let nodes = network.middle.run(&format!("curl -sf --unix-socket {socket} http://localhost/v1/nodes"));
        let nodes: Value = serde_json::from_str(&nodes).unwrap();
        let links = network.middle.run(&format!("curl -sf --unix-socket {socket} http://localhost/v1/links"));
        nodes.to_string().matches("\"active\"").count() == 3 && links.contains(second)
    });
}
