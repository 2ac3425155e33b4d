//! Ports that are DPDK devices: DPDK's packet sockets on veth pairs, as test machines lack a card.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::net::{Host, Io, Network, Rivulet, wait_until};
use crate::tap::{GATEWAY, WIRE, talk_after_pings, unsound};

const BOTH: [&str; 2] =
    ["inside=dpdk:net_af_packet0,iface=inside", "outside=dpdk:net_af_packet1,iface=outside"];

/// Time for some frames to arrive and leave.
const MOMENT: Duration = Duration::from_millis(300);

/// Hosts on two networks. DPDK's packet sockets truncate frames of several segments, so stacks
/// must not send any.
fn network() -> Option<Network> {
    let network = Network::routed(Io::PacketSocket)?;
    for host in [&network.inside, &network.outside] {
        send_no_long_frames(host);
    }
    Some(network)
}

fn send_no_long_frames(host: &Host) {
    host.ip("link set eth0 gso_max_segs 1");
}

/// Runs pings, a download and streams in both directions. With DPDK's packet sockets, the kernel
/// reassembles IPv4 fragments.
fn talk(network: &Network) {
    let pings = [("203.0.113.2", 56), ("203.0.113.2", 1472), ("fd08::2", 56), ("fd08::2", 4000)];
    talk_after_pings(network, &network.inside, &pings);
}

/// Reads `/proc` for each thread of a process.
fn threads(rivulet: &Rivulet) -> Vec<String> {
    let tasks = fs::read_dir(PathBuf::from(format!("/proc/{}/task", rivulet.id()))).unwrap();
    tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap()).collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}: {status}")).trim()
}

/// Asserts that every thread has only these capabilities.
fn assert_unprivileged(rivulet: &Rivulet, capabilities: &str) {
    let threads = threads(rivulet);
    assert!(threads.iter().any(|status| field(status, "Name").starts_with("eal-intr")), "{threads:?}");
    for status in threads {
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(field(&status, set).trim_start_matches('0'), capabilities, "{set}: {status}");
        }
        assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1", "2"), "{status}");
    }
}

/// Asserts that no interface is in promiscuous mode any more.
fn assert_left_alone(network: &Network) {
    for name in ["inside", "outside"] {
        let shown = network.middle.run(&format!("ip -d link show {name}"));
        assert!(shown.contains("promiscuity 0") && !shown.contains("PROMISC"), "{shown}");
    }
}

fn assert_sound(report: &Value, port: &str) {
    let interface = &report["interfaces"][port];
    for lost in ["unreadable", "too_long", "down"] {
        assert_eq!(interface[lost], 0, "{lost}: {interface}");
    }
    assert!(interface["received"].as_u64().unwrap() > 100, "{interface}");
    assert!(interface["sent"].as_u64().unwrap() > 100, "{interface}");
}

#[test]
fn dpdk_carries_a_nats_traffic_unchanged() {
    let Some(network) = network() else { return };
    let rivulet = network.up_on(BOTH, GATEWAY, "--write outside=out.pcapng --write inside=in.pcapng");
    talk(&network);
    // DPDK keeps no capability.
    assert_unprivileged(&rivulet, "");
    let report = rivulet.end();
    for (port, name) in [("inside", "net_af_packet0"), ("outside", "net_af_packet1")] {
        let interface = &report["interfaces"][port];
        assert_eq!((interface["driver"].as_str(), interface["name"].as_str()), (Some("dpdk"), Some(name)));
        // The stacks at the veths leave checksums to be completed.
        assert!(interface["completed"].as_u64().unwrap() > 0, "{interface}");
        assert_sound(&report, port);
    }
    for name in ["out.pcapng", "in.pcapng"] {
        assert_eq!(unsound(&network, name), "", "{name}");
    }
    assert_left_alone(&network);
}

#[test]
fn dpdk_works_beside_other_drivers() {
    let Some(network) = network() else { return };
    let rivulet = network.up_on([BOTH[0], "outside=outside"], GATEWAY, "");
    talk(&network);
    // Packet sockets keep CAP_NET_RAW.
    assert_unprivileged(&rivulet, "2000");
    let report = rivulet.end();
    assert_eq!(report["interfaces"]["outside"]["driver"], "packet");
    assert_sound(&report, "inside");
    assert_left_alone(&network);
}

#[test]
fn dpdk_keeps_tags_and_drops_long_frames() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    // Links carry longer frames than the devices report.
    for (host, name) in [
        (&network.inside, "eth0"),
        (&network.outside, "eth0"),
        (&network.middle, "inside"),
        (&network.middle, "outside"),
    ] {
        host.ip(&format!("link set {name} mtu 1700"));
    }
    let rivulet = network.up_on(BOTH, WIRE, "--write outside=out.pcapng");
    // Tagged UDP of the maximum length, and one byte longer.
    let send = "
import socket, struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0))
for len in [60, 1500, 1501, 1500]:
    udp = struct.pack('!HHHH', 1000, 9, len - 20, 0) + bytes(len - 28)
    ip = struct.pack('!HHHHBBH4s4s', 0x4500, len, 0, 0x4000, 64, 17, 0, bytes([10, 7, 0, 1]), bytes([10, 7, 0, 2]))
    s.send(bytes.fromhex('020700000002020700000001') + bytes.fromhex('810000050800') + ip + udp)
";
    let sent = network.inside.command("python3").args(["-c", send]).output().unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let tagged = || {
        let line = format!("tcpdump -nner {}", network.path("out.pcapng").display());
        // The last packet of a growing capture may be incomplete.
        let written = network.middle.output(&line).stdout;
        let written = String::from_utf8_lossy(&written).into_owned();
        [60, 1500, 1501].map(|len| {
            let len = format!("length {}:", len + 18);
            let is_it = |line: &&str| line.contains("vlan 5") && line.contains(&len);
            written.lines().filter(is_it).count()
        })
    };
    wait_until("all four are through", || tagged() == [1, 2, 1]);
    let report = rivulet.end();
    assert_eq!(report["interfaces"]["outside"]["too_long"], 1, "{report}");
    assert_eq!(tagged(), [1, 2, 1]);
}

#[test]
fn dpdk_gives_workers_queues() {
    let Some(network) = network() else { return };
    let ports = BOTH.map(|port| format!("{port},qpairs=2"));
    let rivulet = network.up_on([&ports[0], &ports[1]], GATEWAY, "--workers 2");
    talk(&network);
    assert_unprivileged(&rivulet, "");
    let report = rivulet.end();
    assert_sound(&report, "inside");
    assert_sound(&report, "outside");
    let workers = report["workers"].as_array().unwrap();
    assert!(workers.len() == 2 && workers.iter().all(|worker| worker["received"].as_u64().unwrap() > 0));

    // With one queue, only one worker receives, but all send.
    let rivulet = network.up_on(BOTH, GATEWAY, "--workers 2");
    network.inside.run("ping -c 20 -i 0.05 -W 2 203.0.113.2");
    for _ in 0..8 {
        network.inside.run("ping -c 2 -i 0.05 -W 2 fd08::2");
    }
    let report = rivulet.end();
    let received = |worker: usize| report["workers"][worker]["received"].as_u64().unwrap();
    assert!(received(0) > 0 && received(1) == 0, "{report}");
}

#[test]
fn dpdk_needs_no_privileges_for_virtual_devices() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    // One device delivers frames without end, the other one accepts all.
    let ports = ["inside=dpdk:net_null0", "outside=dpdk:net_null1,size=1000"];
    let rivulet = network.up_with("", ports, WIRE, "");
    std::thread::sleep(MOMENT);
    assert_unprivileged(&rivulet, "");
    let report = rivulet.end();
    assert_sound(&report, "inside");
    assert_sound(&report, "outside");
}

#[test]
fn dpdk_sleeps_without_traffic() {
    let Some(network) = network() else { return };
    let rivulet = network.up_on(BOTH, WIRE, "");
    rivulet.end_after_rest();
}

#[test]
fn dpdk_reports_devices_that_cannot_be_opened() {
    let Some(network) = network() else { return };
    fs::write(network.path("policy.rvl"), WIRE).unwrap();
    let refused = |inside: &str, outside: &str| {
        let line = format!(
            "{} up {} --port inside={inside} --port outside={outside} --duration 100ms -q",
            env!("CARGO_BIN_EXE_rivulet"),
            network.path("policy.rvl").display()
        );
        let output = network.middle.output(&line);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("dpdk:net_af_packet0,iface=nothing", "outside");
    assert!(said.contains("cannot open dpdk:net_af_packet0"), "{said}");
    let said = refused("dpdk:net_nothing0", "outside");
    assert!(said.contains("cannot open dpdk:net_nothing0") && said.contains("no driver"), "{said}");
    let said = refused("dpdk:0000:ff:1f.7", "outside");
    assert!(said.contains("cannot open dpdk:0000:ff:1f.7") && said.contains("vfio-pci"), "{said}");
    let said = refused("dpdk:net_null0", "dpdk:net_null0");
    assert!(said.contains("net_null0 is already the interface of another port"), "{said}");
}

#[test]
fn doctor_checks_dpdk() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    let output = network.middle.output(&format!("{} doctor -o json", env!("CARGO_BIN_EXE_rivulet")));
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let dpdk = findings.iter().find(|finding| finding["check"] == "driver dpdk").unwrap();
    assert!(dpdk["found"].as_str().unwrap().starts_with("DPDK "), "{dpdk}");
}
