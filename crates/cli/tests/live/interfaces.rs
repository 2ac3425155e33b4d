//! Interfaces: left unchanged, down and up, removed and added.

use std::fs;
use std::path::Path;

use crate::net::{Io, Network, PORTS, bounding_set, by_each_way, wait_until};

by_each_way!(
    interfaces_are_left_unchanged_and_capabilities_dropped,
    without_traffic_it_sleeps,
    traffic_continues_after_an_interface_was_down,
    traffic_continues_after_an_interface_was_removed,
    changes_of_an_interfaces_state_are_noticed_at_once,
);

const WIRE: &str = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";

fn interfaces_are_left_unchanged_and_capabilities_dropped(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let state = || network.middle.run("ip -d link show");
    let before = state();
    let rivulet = network.up(WIRE, "");
    assert!(state().contains("promiscuity 1"));
    let kept = if io == Io::Xdp { "6000" } else { "2000" };
    let status = fs::read_to_string(format!("/proc/{}/status", rivulet.id())).unwrap();
    for (set, capabilities) in
        [("CapEff", kept), ("CapPrm", kept), ("CapBnd", kept), ("NoNewPrivs", "1"), ("Seccomp", "2")]
    {
        let line = status.lines().find(|line| line.starts_with(&format!("{set}:"))).unwrap();
        assert_eq!(line.split_whitespace().nth(1).unwrap().trim_start_matches('0'), capabilities, "{line}");
    }
    rivulet.end();
    assert_eq!(state(), before);
}

fn without_traffic_it_sleeps(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WIRE, "");
    rivulet.end_after_rest();
}

fn traffic_continues_after_an_interface_was_down(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WIRE, "");
    let arrives = || network.inside.output("ping -c 1 -W 1 10.7.0.2").status.success();
    wait_until("a ping arrives", arrives);
    network.middle.ip("link set outside down");
    assert!(!arrives());
    network.middle.ip("link set outside up");
    wait_until("a ping arrives again", arrives);
    rivulet.end();
}

fn traffic_continues_after_an_interface_was_removed(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WIRE, "");
    let arrives = || network.inside.output("ping -c 1 -W 1 10.7.0.2").status.success();
    wait_until("a ping arrives", arrives);
    network.middle.ip("link del outside");
    assert!(!arrives());
    network.connect("outside");
    wait_until("a ping arrives again", arrives);
    rivulet.end();
}

/// Checks that the kernel's notification is used, not the periodic check.
fn changes_of_an_interfaces_state_are_noticed_at_once(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WIRE, "");
    for _ in 0..4 {
        for (state, words) in [("down", "outside is down"), ("up", "outside is up")] {
            network.middle.ip(&format!("link set outside {state}"));
            rivulet.wait_for_line(words);
        }
    }
    let report = rivulet.end();
    let news = report["timing"]["polling"]["link_news"].as_u64().unwrap();
    assert!(news >= 4, "of eight changes, {news} came as notifications");
}

#[test]
fn interfaces_that_cannot_be_opened_are_reported() {
    let Some(network) = Network::new(Io::Auto) else { return };
    fs::write(network.path("policy.rvl"), WIRE).unwrap();
    let refused = |ports: &str| {
        let line =
            format!("{} up {} {ports}", env!("CARGO_BIN_EXE_rivulet"), network.path("policy.rvl").display());
        let output = network.middle.output(&line);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("--port inside=nothing --port outside=outside");
    assert!(said.contains("cannot open nothing") && said.contains("no such interface"), "{said}");
    let said = refused("--port inside=inside");
    assert!(said.contains("port outside") && said.contains("--port outside=INTERFACE"), "{said}");
    let said = refused("--port inside=inside --port outside=inside");
    assert!(said.contains("inside is already the interface of another port"), "{said}");
    let said = refused("--port inside=inside --port 0=outside");
    assert!(said.contains("already has the interface"), "{said}");
    let said = refused("--port inside=lo --port outside=outside");
    assert!(said.contains("cannot open lo") && said.contains("not an Ethernet"), "{said}");
    // A bridge has no driver, which AF_XDP needs.
    network.middle.ip("link add bridge type bridge");
    let said = refused("--port inside=bridge --port outside=outside --driver xdp");
    assert!(said.contains("cannot open xdp:bridge") && said.contains("driver"), "{said}");
    // A veth with XDP receives from its other end what fits a page.
    network.inside.ip("link set eth0 mtu 3507");
    let said = refused("--port inside=inside --port outside=outside --driver xdp");
    assert!(said.contains("cannot open xdp:inside") && said.contains("PEER mtu 3506"), "{said}");
    network.inside.ip("link del eth0");
    network.connect_by("inside", &[], "numtxqueues 2 numrxqueues 2");
    network.middle.run("ethtool -L inside rx 1");
    let said = refused("--port inside=inside --port outside=outside --driver xdp");
    assert!(said.contains("cannot open xdp:inside") && said.contains("PEER tx N"), "{said}");
}

#[test]
fn af_xdp_is_used_where_it_is_transparent() {
    if Network::new(Io::Xdp).is_none() || Path::new("/proc/net/vlan").exists() {
        return;
    }
    let Some(network) = Network::new(Io::Auto) else { return };
    // The other ends of veths leave segmentation to a card.
    let report = network.up(WIRE, "").end();
    assert_eq!(report["interfaces"]["inside"]["driver"], "packet");
    for end in ["inside", "outside"] {
        network.middle.run(&format!("ethtool -K {end} tso off"));
    }
    network.middle.ip("addr add 10.7.0.9/24 dev outside");
    let report = network.up(WIRE, "").end();
    assert_eq!(report["interfaces"]["inside"]["driver"], "xdp_driver_copy");
    assert_eq!(report["interfaces"]["outside"]["driver"], "packet");
    // Frames too long for AF_XDP become possible.
    network.middle.ip("link set inside mtu 9000");
    network.inside.ip("link set eth0 mtu 9000");
    let report = network.up(WIRE, "").end();
    assert_eq!(report["interfaces"]["inside"]["driver"], "packet");
}

#[test]
fn doctor_finds_obstacles() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let doctor = |line: &str| -> (i32, Vec<serde_json::Value>) {
        let output =
            network.middle.output(&format!("{} doctor -o json {line}", env!("CARGO_BIN_EXE_rivulet")));
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
    };
    let state = |findings: &[serde_json::Value], check: &str| {
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.map_or("not checked", |finding| finding["state"].as_str().unwrap()).to_owned()
    };
    let (code, findings) = doctor("");
    assert_eq!(code, 0, "{findings:?}");
    for what in ["inside: kind", "outside: link", "inside: addresses of the system", "kernel", "driver xdp"] {
        assert_eq!(state(&findings, what), "ok", "{what}");
    }
    assert!(!findings.iter().any(|finding| finding["check"].as_str().unwrap().starts_with("lo")));
    network.middle.ip("addr add 10.7.0.9/24 dev inside");
    network.middle.ip("link set outside down");
    let (code, findings) = doctor("inside outside");
    assert_eq!(code, 0, "notes are not failures");
    assert_eq!(state(&findings, "inside: addresses of the system"), "note");
    assert_eq!(state(&findings, "outside: link"), "note");
    // The system would receive nothing there.
    assert_eq!(state(&findings, "inside: driver"), "note");
    assert_eq!(doctor("nothing").0, 1);
    assert_eq!(doctor("lo").0, 1);
}

#[test]
fn one_capability_suffices_and_its_absence_is_reported() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let rivulet = network.up_with("CAP_NET_RAW", PORTS, WIRE, "");
    network.inside.run("ping -c 2 -i 0.05 -W 2 10.7.0.2");
    assert_eq!(rivulet.end()["interfaces"]["inside"]["driver"], "packet");
    let line = format!(
        "setpriv {} {} up {} --port inside=inside --port outside=outside",
        bounding_set(""),
        env!("CARGO_BIN_EXE_rivulet"),
        network.path("policy.rvl").display()
    );
    let output = network.middle.output(&line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("CAP_NET_RAW"), "{said}");
}
