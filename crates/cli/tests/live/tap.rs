//! TAP ports, with the stack of a host at the other end.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::net::{Host, Io, Network, PORTS, bounding_set, by_each_way, ip, wait_until};

by_each_way!(the_machines_own_stack_uses_a_nat, a_container_uses_a_nat_and_may_go_down_and_up);

const ON_TAP: [&str; 2] = ["inside=tap:rvl0", "outside=outside"];

pub const WIRE: &str = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";

/// A router for IPv6 and a NAT for IPv4, with the port's own address.
pub const GATEWAY: &str = "
Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"] };
NAT translate { external: [203.0.113.1] };
pipelet { inside <-> translate <-> outside; }
";

/// Creates a network with one host, outside; a TAP device will be inside.
fn one_sided(io: Io) -> Option<Network> {
    let network = Network::unconnected(io)?;
    network.connect_with("outside", &["203.0.113.2/24", "fd08::2/64"]);
    network.outside.ip("-6 route add fd07::/64 via fd08::254");
    Some(network)
}

/// Assigns inside addresses and default routes to a host's interface.
fn address(host: &Host, interface: &str) {
    host.ip(&format!("link set {interface} up"));
    host.ip(&format!("addr add 10.7.0.1/24 dev {interface}"));
    host.ip(&format!("addr add fd07::1/64 dev {interface} nodad"));
    host.ip("route add default via 10.7.0.254");
    host.ip("-6 route add default via fd07::254");
}

fn has_device(host: &Host, name: &str) -> bool {
    host.output(&format!("ip link show {name}")).status.success()
}

/// Exchanges pings, a download and streams in both directions, over IPv4 and IPv6.
fn talk(network: &Network, host: &Host) {
    talk_after_pings(
        network,
        host,
        &[("203.0.113.2", 56), ("fd08::2", 56), ("203.0.113.2", 4000), ("fd08::2", 4000)],
    );
}

/// Does so after pings of these sizes.
pub fn talk_after_pings(network: &Network, host: &Host, pings: &[(&str, u32)]) {
    for (target, size) in pings {
        host.ping(&format!("-c 4 -i 0.05 -W 2 -s {size} {target}"));
    }
    let bytes: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::create_dir(network.path("www")).unwrap();
    fs::write(network.path("www/file"), &bytes).unwrap();
    let folder = network.path("www");
    let serve = format!("python3 -m http.server --bind :: --directory {} 8080", folder.display());
    let _web = network.outside.serve(&serve, 8080);
    for to in ["203.0.113.2", "[fd08::2]"] {
        let copy = network.path("copy");
        host.run(&format!("curl -sS -m 60 -o {} http://{to}:8080/file", copy.display()));
        assert!(fs::read(copy).unwrap() == bytes, "the file from {to} differs");
    }
    let _server = network.outside.serve("iperf3 -s", 5201);
    for options in ["", "-R", "-6", "-6 -R", "-u -b 50M"] {
        let target = if options.contains("-6") { "fd08::2" } else { "203.0.113.2" };
        host.iperf3(&format!("-c {target} -n 4M {options}"));
    }
}

/// Returns the frames of a capture that exceed the MTU, or have a checksum that tshark finds wrong.
pub fn unsound(network: &Network, name: &str) -> String {
    let wrong =
        "frame.len > 1514 or ip.checksum.status == 0 or tcp.checksum.status == 0 or udp.checksum.status == 0";
    let check = "-o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE -o ip.defragment:FALSE";
    let mut command = Command::new("tshark");
    command.arg("-r").arg(network.path(name)).args(check.split(' ')).args(["-Y", wrong]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn the_machines_own_stack_uses_a_nat(io: Io) {
    let Some(network) = one_sided(io) else { return };
    assert!(!has_device(&network.middle, "rvl0"));
    let rivulet = network.up_on(
        ON_TAP,
        GATEWAY,
        "--metrics 127.0.0.1:9600 --write outside=out.pcapng --write inside=in.pcapng",
    );
    address(&network.middle, "rvl0");
    talk(&network, &network.middle);
    // There are two neighbours with one address each.
    let device = network.middle.run("cat /sys/class/net/rvl0/address");
    let neighbours = network.middle.run("ip neigh show to 10.7.0.254 dev rvl0");
    assert!(neighbours.contains("lladdr") && !neighbours.contains(device.trim()), "{neighbours}");
    wait_until("metrics tell of it", || {
        let metrics = network.middle.run("curl -s http://127.0.0.1:9600/metrics");
        metrics.contains("rivulet_interface_frames_lost_total{interface=\"rvl0\",reason=\"missed\"} 0")
    });
    let report = rivulet.end();
    assert!(!has_device(&network.middle, "rvl0"), "the device is removed with the run");
    let inside = &report["interfaces"]["inside"];
    assert_eq!((inside["driver"].as_str(), inside["name"].as_str()), (Some("tap"), Some("rvl0")));
    assert!(inside["completed"].as_u64().unwrap() > 0, "{inside}");
    for lost in ["missed", "unreadable", "too_long", "no_room"] {
        assert_eq!(inside[lost], 0, "{lost}: {inside}");
    }
    // A frame of 64 KB was one to complete, and arrived as about forty.
    assert!(inside["received"].as_u64() > inside["completed"].as_u64(), "{inside}");
    for name in ["out.pcapng", "in.pcapng"] {
        assert_eq!(unsound(&network, name), "", "{name}");
    }
}

fn a_container_uses_a_nat_and_may_go_down_and_up(io: Io) {
    let Some(network) = one_sided(io) else { return };
    let rivulet = network.up_on(ON_TAP, GATEWAY, "");
    network.middle.ip(&format!("link set rvl0 netns {} name eth0", network.inside.name()));
    address(&network.inside, "eth0");
    talk(&network, &network.inside);
    let arrives = || network.inside.output("ping -c 1 -W 1 203.0.113.2").status.success();
    network.inside.ip("link set eth0 down");
    // Packets are lost while it is down.
    network.outside.output("ping -c 2 -i 0.2 -W 1 fd07::1");
    network.inside.ip("link set eth0 up");
    network.inside.ip("route add default via 10.7.0.254");
    wait_until("a ping arrives again", arrives);
    let report = rivulet.end();
    assert!(!has_device(&network.inside, "eth0"), "the device is removed with the run");
    assert!(report["interfaces"]["inside"]["down"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn an_existing_device_is_used_without_privileges_and_kept() {
    let Some(network) = one_sided(Io::PacketSocket) else { return };
    // On a bridge, with a host at another port.
    network.connect_with("inside", &["10.7.0.1/24", "fd07::1/64"]);
    network.inside.ip("route add default via 10.7.0.254");
    network.inside.ip("-6 route add default via fd07::254");
    network.middle.ip("tuntap add rvl0 mode tap");
    network.middle.ip("link set rvl0 address 02:07:00:00:00:11 mtu 1400");
    network.middle.ip("link add bridge type bridge");
    for name in ["rvl0", "inside", "bridge"] {
        let master = if name == "bridge" { "" } else { "master bridge" };
        network.middle.ip(&format!("link set {name} {master} up"));
    }
    let before = network.middle.run("ip link show rvl0");
    let rivulet = network.up_with("CAP_NET_RAW", ON_TAP, GATEWAY, "");
    network.inside.run("ping -c 2 -i 0.05 -W 2 203.0.113.2");
    let neighbours = network.inside.run("ip neigh show to 10.7.0.254");
    assert!(neighbours.contains("42:07:00:00:00:11"), "{neighbours}");
    // Senders on the other side learn its MTU and its changes from the router.
    for mtu in [1400, 1300] {
        network.middle.ip(&format!("link set rvl0 mtu {mtu}"));
        wait_until("the MTU is reported", || {
            let said = network.outside.output("ping -c 2 -i 0.2 -W 1 -M do -s 1352 fd07::1");
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            if mtu == 1400 { said.contains(" 0% packet loss") } else { said.contains("1300") }
        });
    }
    network.middle.ip("link set rvl0 mtu 1400");
    rivulet.end();
    // As before, without a carrier.
    assert_eq!(network.middle.run("ip link show rvl0"), before);
}

#[test]
fn the_kernel_can_drop_packets_that_the_machine_must_not_receive_itself() {
    let Some(network) = one_sided(Io::PacketSocket) else { return };
    let policy = GATEWAY
        .replace("NAT translate { external: [203.0.113.1] };", "Firewall gate { rules: \"allow out any\" };")
        .replace("translate", "gate");
    let rivulet = network.up_on(ON_TAP, &policy, "");
    address(&network.middle, "rvl0");
    let _inside = network.middle.serve("python3 -m http.server --bind :: 8080", 8080);
    let _outside = network.outside.serve("python3 -m http.server --bind :: 8080", 8080);
    let intrudes =
        || network.outside.output("curl -sS -m 2 -o /dev/null http://[fd07::1]:8080/").status.success();
    // With packet sockets, the machine also receives packets from outside.
    assert!(intrudes());
    network.middle.run("nft add table netdev rivulet");
    let chain = "{ type filter hook ingress device outside priority 0; policy drop; }";
    let added =
        network.middle.command("nft").args(["add chain netdev rivulet deaf", chain]).status().unwrap();
    assert!(added.success());
    assert!(!intrudes());
    network.middle.run("curl -sS -m 5 -o /dev/null http://[fd08::2]:8080/");
    let report = rivulet.end();
    assert!(report["drops"]["firewall-default"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_deleted_device_is_awaited_asleep() {
    let Some(network) = one_sided(Io::Auto) else { return };
    let rivulet = network.up_on(ON_TAP, GATEWAY, "");
    address(&network.middle, "rvl0");
    let arrives = || network.middle.output("ping -c 1 -W 1 203.0.113.2").status.success();
    wait_until("a ping arrives", arrives);
    network.middle.ip("link del rvl0");
    std::thread::sleep(std::time::Duration::from_secs(1));
    // Rivulet may no longer create a device, but uses this one.
    network.middle.ip("tuntap add rvl0 mode tap");
    address(&network.middle, "rvl0");
    wait_until("a ping arrives again", arrives);
    rivulet.end_after_rest();
    assert!(has_device(&network.middle, "rvl0"));
}

#[test]
fn on_a_wire_frames_are_unchanged_and_long_ones_lost() {
    let Some(network) = one_sided(Io::Auto) else { return };
    let rivulet = network.up_on(ON_TAP, WIRE, "");
    // With the remaining system calls.
    let status = fs::read_to_string(format!("/proc/{}/status", rivulet.id())).unwrap();
    assert!(status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2')), "{status}");
    network.middle.ip("addr add 203.0.113.7/24 dev rvl0");
    network.middle.run("ping -c 3 -i 0.05 -W 2 203.0.113.2");
    // The stack's own address is visible outside.
    let device = network.middle.run("cat /sys/class/net/rvl0/address");
    let neighbours = network.outside.run("ip neigh show to 203.0.113.7");
    assert!(neighbours.contains(device.trim()), "{neighbours}");
    network.middle.ip("link set rvl0 mtu 1000");
    std::thread::sleep(std::time::Duration::from_secs(1));
    let lost = network.outside.output("ping -c 2 -i 0.2 -W 1 -s 1400 203.0.113.7");
    assert!(!lost.status.success());
    let report = rivulet.end();
    assert_eq!(report["interfaces"]["inside"]["too_long"], 2, "{report}");
}

#[test]
fn two_existing_devices_need_no_capability() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    let rivulet = network.up_on(["inside=tap:rvl0", "outside=tap:rvl1"], WIRE, "");
    let status = fs::read_to_string(format!("/proc/{}/status", rivulet.id())).unwrap();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        let line = status.lines().find(|line| line.starts_with(&format!("{set}:"))).unwrap();
        assert_eq!(line.split_whitespace().nth(1).unwrap().trim_start_matches('0'), "", "{line}");
    }
    for (host, name, last) in [(&network.inside, "rvl0", 1), (&network.outside, "rvl1", 2)] {
        network.middle.ip(&format!("link set {name} netns {}", host.name()));
        host.ip(&format!("addr add 10.7.0.{last}/24 dev {name}"));
        host.ip(&format!("link set {name} up"));
    }
    network.inside.run("ping -c 3 -i 0.05 -W 2 10.7.0.2");
    let _server = network.outside.serve("iperf3 -s", 5201);
    for options in ["", "-R"] {
        network.inside.iperf3(&format!("-c 10.7.0.2 -n 8M {options}"));
    }
    rivulet.end();
}

#[test]
fn unusable_tap_devices_are_reported() {
    let Some(network) = one_sided(Io::Auto) else { return };
    fs::write(network.path("policy.rvl"), WIRE).unwrap();
    let line = |port: &str| {
        format!(
            "{} up {} --port inside=tap:{port} --port outside=outside --duration 100ms -q",
            env!("CARGO_BIN_EXE_rivulet"),
            network.path("policy.rvl").display()
        )
    };
    let refused = |line: &str| {
        let output = network.middle.output(line);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&line("outside"));
    assert!(said.contains("cannot open tap:outside") && said.contains("no TAP device"), "{said}");
    let said = refused(&line("a-name-that-is-too-long"));
    assert!(said.contains("too long"), "{said}");
    let said = refused(&line(""));
    assert!(said.contains("such as tap:rvl0"), "{said}");
    let said = refused(&line("tap%d"));
    assert!(said.contains("no name for a TAP device"), "{said}");
    network.middle.ip("tuntap add tun0 mode tun");
    let said = refused(&line("tun0"));
    assert!(said.contains("no TAP device"), "{said}");
    network.middle.ip("tuntap add many mode tap multi_queue");
    let said = refused(&line("many"));
    assert!(said.contains("several queues"), "{said}");
    let bare = format!("setpriv {} {}", bounding_set("CAP_NET_RAW"), line("rvl0"));
    let said = refused(&bare);
    assert!(said.contains("CAP_NET_ADMIN"), "{said}");
    assert!(!has_device(&network.middle, "rvl0"));
    let other = network.up_on(ON_TAP, WIRE, "");
    let said = refused(&line("rvl0"));
    assert!(said.contains("another program has it"), "{said}");
    other.end();
    let hidden = format!("mount -t tmpfs none /dev/net && exec {}", line("rvl0"));
    let output = network.middle.command("unshare").args(["-m", "sh", "-c", &hidden]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/dev/net/tun is not there"), "{said}");
}

#[test]
fn doctor_checks_tap_devices() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    ip(&format!("-n {} tuntap add rvl0 mode tap", network.middle.name()));
    network.middle.ip("link set rvl0 up");
    let doctor = |before: &str| -> Vec<Value> {
        let line = format!("{before} {} doctor -o json rvl0", env!("CARGO_BIN_EXE_rivulet"));
        serde_json::from_slice(&network.middle.output(&line).stdout).unwrap()
    };
    let found = |findings: &[Value], check: &str| -> (String, String, String) {
        let finding = findings.iter().find(|finding| finding["check"] == check).unwrap();
        let text = |field: &str| finding[field].as_str().unwrap().to_owned();
        (text("state"), text("found"), text("advice"))
    };
    let findings = doctor("env");
    assert_eq!(found(&findings, "driver tap").0, "ok");
    assert!(found(&findings, "rvl0: kind").1.contains("TAP"));
    let (state, _, advice) = found(&findings, "rvl0: link");
    assert!(state == "note" && advice.contains("tap:rvl0"), "{state}: {advice}");
    let findings = doctor(&format!("setpriv {}", bounding_set("CAP_NET_RAW")));
    let (state, found, _) = found(&findings, "driver tap");
    assert!(state == "note" && found.contains("CAP_NET_ADMIN"), "{state}: {found}");
}

#[test]
fn a_tap_device_held_by_another_program_is_a_plain_interface() {
    // The other program is usually a virtual machine's monitor; here it is another Rivulet.
    let Some(network) = one_sided(Io::PacketSocket) else { return };
    let machine = network.up_on(["inside=tap:rvl0", "outside=tap:rvl1"], WIRE, "");
    address(&network.middle, "rvl0");
    let rivulet = network.up_on(["inside=rvl1", PORTS[1]], GATEWAY, "");
    network.middle.run("ping -c 3 -i 0.05 -W 2 203.0.113.2");
    let report = rivulet.end();
    assert_eq!(report["interfaces"]["inside"]["driver"], "packet");
    machine.end();
}
