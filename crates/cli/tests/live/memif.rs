//! Memif ports. The other end is DPDK's implementation, with `testpmd` between it and a host's TAP
//! device, or another Rivulet.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::net::{Host, Io, Network, Rivulet, Server, wait_until};

const WIRE: &str = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";

/// A router for IPv6 and a NAT for IPv4, with the port's own address.
const GATEWAY: &str = "
Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"] };
NAT translate { external: [203.0.113.1] };
pipelet { inside <-> translate <-> outside; }
";

/// Creates the hosts of a test with DPDK, one test at a time: its threads never sleep. Without
/// DPDK, prints a message and returns `None`; fails in CI.
fn network() -> Option<(Network, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    static MISSING: LazyLock<bool> = LazyLock::new(|| {
        let found = Command::new("which").arg("dpdk-testpmd").output();
        !found.is_ok_and(|output| output.status.success())
    });
    let network = Network::unconnected(Io::PacketSocket)?;
    if *MISSING {
        let why = "dpdk-testpmd is not installed";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
        println!("SKIPPED: {why}");
        return None;
    }
    Some((network, ONE.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Rivulet's ports. The outer one is a memif with a socket in the test's folder.
fn ports(network: &Network, options: &str) -> [String; 2] {
    let socket = network.path("memif.sock");
    ["inside=inside".to_owned(), format!("outside=memif:{}{options}", socket.display())]
}

fn up(network: &Network, options: &str, policy: &str) -> Rivulet {
    let ports = ports(network, options);
    network.up_on([&ports[0], &ports[1]], policy, "")
}

/// Starts DPDK forwarding between memif and a TAP device of the outer host with these addresses.
fn testpmd(network: &Network, options: &str, addresses: &[&str]) -> Server {
    let socket = network.path("memif.sock");
    // A killed process may have left it.
    if options.contains("role=server") {
        let _ = fs::remove_file(&socket);
    }
    let cpus = std::thread::available_parallelism().unwrap().get() - 1;
    let mut command = network.outside.command("dpdk-testpmd");
    command
        .args(["--no-huge", "-m", "128", "--no-pci", "--no-shconf", "--no-telemetry"])
        .arg(format!("--file-prefix=rvl{}", network.outside.name()))
        .arg(format!("--lcores=(0,1)@(0-{cpus})"))
        .arg(format!("--vdev=net_memif0,socket={},socket-abstract=no,{options}", socket.display()))
        .arg("--vdev=net_tap0,iface=rvl0,mac=fixed")
        .args(["--", "--total-num-mbufs=8192", "--no-mlockall", "--no-lsc-interrupt", "--auto-start"])
        .arg("--forward-mode=io");
    let log = fs::File::create(network.path("testpmd.log")).unwrap();
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    let server = Server::of(command.spawn().unwrap());
    wait_until("testpmd has made its device", || {
        let said = fs::read_to_string(network.path("testpmd.log")).unwrap();
        assert!(!said.contains("Error - exiting"), "{said}");
        network.outside.output("ip link show rvl0").status.success()
    });
    let host = &network.outside;
    host.ip("link set rvl0 up");
    for address in addresses {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        host.ip(&format!("addr add {address} dev rvl0 {nodad}"));
    }
    server
}

fn wait_for_ping(host: &Host, target: &str) {
    let ping = format!("ping -c 1 -W 1 {target}");
    wait_until("a ping arrives", || host.output(&ping).status.success());
}

/// Exchanges pings, and files in both directions.
fn talk(network: &Network, host: &Host, targets: &[&str]) {
    let bytes: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let folder = network.path("www");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("file"), &bytes).unwrap();
    let serve = format!("python3 -m http.server --bind :: --directory {} 8080", folder.display());
    let _web = network.outside.serve(&serve, 8080);
    for target in targets {
        wait_for_ping(host, target);
        for size in [56, 1_400, 4_000] {
            host.ping(&format!("-c 4 -i 0.05 -W 2 -s {size} {target}"));
        }
        let copy = network.path("copy");
        let to = if target.contains(':') { format!("[{target}]") } else { (*target).to_owned() };
        host.run(&format!("curl -sS -m 60 -o {} http://{to}:8080/file", copy.display()));
        assert!(fs::read(&copy).unwrap() == bytes, "the file from {to} differs");
        // And back: the listener ends with the file.
        let mut listens = network.outside.command("nc");
        listens.args(["-l", target, "9000"]).stdout(fs::File::create(&copy).unwrap());
        let mut listens = listens.spawn().unwrap();
        wait_until("nc listens", || network.outside.run("ss -Hltn").contains(":9000 "));
        let mut sends = host.command("nc");
        sends.args(["-N", target, "9000"]).stdin(fs::File::open(folder.join("file")).unwrap());
        assert!(sends.status().unwrap().success());
        assert!(listens.wait().unwrap().success());
        assert!(fs::read(copy).unwrap() == bytes, "the file to {to} differs");
    }
}

/// Checks the counters of a memif port. Some frames may be lost: before DPDK forwards, it provides
/// no buffers, and on shared cores an end may pause for longer than a ring lasts.
fn assert_sound(report: &Value, port: &str) {
    let interface = &report["interfaces"][port];
    assert_eq!(interface["driver"], "memif");
    for lost in ["missed", "unreadable", "too_long"] {
        assert_eq!(interface[lost], 0, "{lost}: {interface}");
    }
    assert!(interface["sent"].as_u64().unwrap() > 0, "{interface}");
}

#[test]
fn dpdk_is_the_client_of_a_gateway_and_may_restart() {
    let Some((network, _one)) = network() else { return };
    network.connect_with("inside", &["10.7.0.1/24", "fd07::1/64"]);
    network.inside.ip("route add default via 10.7.0.254");
    network.inside.ip("-6 route add default via fd07::254");
    let rivulet = up(&network, ",id=7", GATEWAY);
    let addresses = ["203.0.113.2/24", "fd08::2/64"];
    let peer = testpmd(&network, "role=client,id=7", &addresses);
    rivulet.wait_for_line("is up: connected with DPDK");
    network.outside.ip("-6 route add fd07::/64 via fd08::254");
    talk(&network, &network.inside, &["203.0.113.2", "fd08::2"]);
    // It is killed and started again.
    drop(peer);
    rivulet.wait_for_line("is down: the other end: it is gone");
    assert!(!network.inside.output("ping -c 1 -W 1 203.0.113.2").status.success());
    let _peer = testpmd(&network, "role=client,id=7", &addresses);
    rivulet.wait_for_line("is up: connected with DPDK");
    wait_for_ping(&network.inside, "203.0.113.2");
    let report = rivulet.end();
    assert!(!network.path("memif.sock").exists(), "the server removes its socket");
    assert_sound(&report, "outside");
    assert!(report["interfaces"]["outside"]["received"].as_u64().unwrap() > 10_000, "{report}");
}

#[test]
fn dpdk_is_the_server_of_a_wire_and_may_restart() {
    let Some((network, _one)) = network() else { return };
    network.connect("inside");
    // There is no server yet.
    let rivulet = up(&network, ",role=client,rsize=9,secret=between-us", WIRE);
    let addresses = ["10.7.0.2/24", "fd07::2/64"];
    let peer = testpmd(&network, "role=server,secret=between-us", &addresses);
    rivulet.wait_for_line("is up: connected with DPDK");
    talk(&network, &network.inside, &["10.7.0.2", "fd07::2"]);
    drop(peer);
    rivulet.wait_for_line("is down: the other end: it is gone");
    let _peer = testpmd(&network, "role=server,secret=between-us", &addresses);
    rivulet.wait_for_line("is up: connected with DPDK");
    wait_for_ping(&network.inside, "10.7.0.2");
    assert_sound(&rivulet.end(), "outside");
}

#[test]
fn dpdk_with_small_buffers_sends_chained_frames() {
    let Some((network, _one)) = network() else { return };
    network.connect("inside");
    let rivulet = up(&network, "", WIRE);
    let _peer = testpmd(&network, "role=client,bsize=512,rsize=8", &["10.7.0.2/24"]);
    rivulet.wait_for_line("is up: connected with DPDK");
    wait_for_ping(&network.inside, "10.7.0.2");
    for size in [56, 1_400] {
        network.inside.ping(&format!("-c 20 -i 0.02 -W 2 -s {size} 10.7.0.2"));
    }
    assert_sound(&rivulet.end(), "outside");
}

/// Runs two Rivulets between the hosts, connected by memif.
fn chained(network: &Network, outer: &str) -> [Rivulet; 2] {
    let socket = network.path("memif.sock").display().to_string();
    let first = network.up_on(["inside=inside", &format!("outside=memif:{socket}")], WIRE, outer);
    let second =
        network.up_on([&format!("inside=memif:{socket},role=client"), "outside=outside"], WIRE, outer);
    first.wait_for_line("is up: connected with Rivulet");
    [first, second]
}

#[test]
fn two_connected_rivulets_sleep() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let [first, second] = chained(&network, "");
    talk(&network, &network.inside, &["10.7.0.2", "fd07::2"]);
    for (rivulet, port) in [(second, "inside"), (first, "outside")] {
        let report = rivulet.end_after_rest();
        assert_sound(&report, port);
    }
}

#[test]
fn workers_share_a_memif() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let [first, second] = chained(&network, "--workers 2");
    talk(&network, &network.inside, &["10.7.0.2"]);
    second.end();
    first.wait_for_line("is down: the other end: interface closed");
    let report = first.end();
    assert_eq!(report["interfaces"]["outside"]["driver"], "memif", "{report}");
}

#[test]
fn memif_needs_no_capability_and_removes_its_sockets() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    let socket = |name: &str| network.path(name).display().to_string();
    let ports = [format!("inside=memif:{}", socket("a")), format!("outside=memif:{}", socket("b"))];
    let rivulet = network.up_with("", [&ports[0], &ports[1]], WIRE, "");
    let status = fs::read_to_string(format!("/proc/{}/status", rivulet.id())).unwrap();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        let line = status.lines().find(|line| line.starts_with(&format!("{set}:"))).unwrap();
        assert_eq!(line.split_whitespace().nth(1).unwrap().trim_start_matches('0'), "", "{line}");
    }
    assert!(network.path("a").exists() && network.path("b").exists());
    // A second one is refused.
    let line = format!(
        "{} up {} --port {} --port outside=memif:{}",
        env!("CARGO_BIN_EXE_rivulet"),
        network.path("policy.rvl").display(),
        ports[0],
        socket("c")
    );
    let refused = network.middle.output(&line);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("cannot open memif:"), "{said}");
    assert!(said.contains("another program, or port, listens there"), "{said}");
    rivulet.end();
    assert!(!network.path("a").exists() && !network.path("b").exists());
    let refused = network.middle.output(&line.replace("memif:", "memif:,"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("expected a socket's path"), "{said}");
}
