//! Links between hosts with other MTUs than Ethernet's, which change while packets flow.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::cluster_hosts::{POLICY, RATE, UNITS, UnitHost, serve_file, start_units};
use crate::net::{Io, Network, wait_until};
use crate::underlay::Underlay;

#[test]
fn links_follow_the_path_mtu_by_ipv4() {
    follow_path_mtu(Underlay::Ipv4, 1_280);
}

#[test]
fn links_follow_the_path_mtu_by_ipv6() {
    follow_path_mtu(Underlay::Ipv6, 1_300);
}

/// Sets the MTU at the unit's end. Longer packets from the other end are lost without notice.
fn set_mtu(unit: &UnitHost, mtu: u32) {
    unit.host().ip(&format!("link set eth0 mtu {mtu}"));
}

/// Checks that links follow the path MTU. `of_1300`: their packet size where the path carries 1,300
/// bytes; they try usual sizes.
fn follow_path_mtu(underlay: Underlay, of_1300: u64) {
    let Some(mut network) = Network::new(Io::PacketSocket) else { return };
    network.underlay = underlay;
    let units = start_units(&network, POLICY, false);
    network.middle.ip("link set u3 mtu 9000");
    for (unit, mtu) in units.iter().zip([1_280, 1_420, 9_000]) {
        // Frames pass as they would on a wire: no batch of datagrams passes whatever the MTU.
        network.middle.run(&format!("ethtool -K {} tx off gro off", unit.name));
        unit.host().run("ethtool -K eth0 tx off gro off");
        set_mtu(unit, mtu);
    }
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow --assign round-robin --api api.sock");
    let (file, _server) = serve_file(&network);
    let get =
        || network.inside.output("curl -sf -m 5 -o /dev/null http://10.7.0.2:8000/file").status.success();
    let downloads = |rate: &str| {
        UNITS.map(|unit| {
            let fetched = network.path(&format!("fetched-{unit}"));
            let mut curl = network.inside.command("curl");
            curl.args(["-sSf", "--limit-rate", rate, "http://10.7.0.2:8000/file", "-o"]).arg(&fetched);
            (curl.spawn().unwrap(), fetched)
        })
    };
    let check = |downloads: [(Child, PathBuf); 3]| {
        for (mut curl, fetched) in downloads {
            assert!(curl.wait().unwrap().success());
            assert!(std::fs::read(&fetched).unwrap() == file, "the file is damaged");
        }
    };
    let mtus = || -> Vec<u64> {
        let socket = network.path("api.sock").display().to_string();
        let links = network.middle.run(&format!("curl -sf --unix-socket {socket} http://localhost/v1/links"));
        let links: Value = serde_json::from_str(&links).unwrap();
        let of = |name: &&str| {
            let links = links["items"].as_array().unwrap();
            links.iter().find(|link| link["node"] == *name).map_or(0, |link| link["mtu"].as_u64().unwrap())
        };
        UNITS.iter().map(of).collect()
    };
    wait_until("the first download succeeds", get);
    wait_until("the MTUs are found", || mtus() == [1_280, 1_420, 9_000]);
    let mut pings = network.inside.command("ping");
    let pings = pings.args(["-q", "-i", "0.02", "-s", "1400", "-c", "150", "-w", "60", "fd07::2"]);
    let pings = pings.stdout(Stdio::piped()).spawn().unwrap();
    let slow = downloads(RATE);
    set_mtu(&units[1], 1_280);
    set_mtu(&units[2], 1_500);
    // Only links that carry large packets find out: one flow after the other goes by each unit.
    wait_until("packets are smaller", || get() && mtus() == [1_280, 1_280, 1_500]);
    // The dispatcher's own interface, too.
    network.middle.ip("link set u3 mtu 1300");
    wait_until("packets are smaller again", || get() && mtus() == [1_280, 1_280, of_1300]);
    check(slow);
    let pings = String::from_utf8(pings.wait_with_output().unwrap().stdout).unwrap();
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    let report = up.end();
    assert!(report["links"]["mtu_lowered"].as_u64() >= Some(2), "{report}");
    assert!(report["links"]["datagrams_too_large"].as_u64() > Some(0), "{report}");
    assert_eq!(report["links"]["dead"], 0, "{report}");
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
}
