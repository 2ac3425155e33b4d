//! Tunnels to the kernel.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::net::{Io, Network, by_each_way};

by_each_way!(
    the_kernel_is_the_other_end_over_ipv4,
    the_kernel_is_the_other_end_over_ipv6,
    senders_learn_the_mtu_of_the_tunnel,
);

/// Inner Ethernet addresses of VXLAN and Geneve, Rivulet's first.
const MACS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

/// A kind of tunnel: in a policy, and as arguments of `ip link add` after the device's name.
struct Kind {
    protocol: &'static str,
    policy: &'static str,
    /// By the version of the outer addresses.
    link: [&'static str; 2],
}

const KINDS: [Kind; 4] = [
    Kind {
        protocol: "vxlan",
        policy: "vni: 7, local_mac: \"02:00:00:00:00:01\", remote_mac: \"02:00:00:00:00:02\"",
        link: ["type vxlan id 7 dstport 4789", "type vxlan id 7 dstport 4789"],
    },
    Kind {
        protocol: "geneve",
        policy: "vni: 7, local_mac: \"02:00:00:00:00:01\", remote_mac: \"02:00:00:00:00:02\"",
        link: ["type geneve id 7", "type geneve id 7"],
    },
    Kind { protocol: "gre", policy: "key: 7", link: ["type gre key 7", "type ip6gre key 7"] },
    Kind { protocol: "ipip", policy: "ttl: 64", link: ["type ipip", "type ip6tnl mode any"] },
];

impl Kind {
    fn is_ethernet(&self) -> bool {
        self.policy.contains("mac")
    }

    /// Creates the other end outside, with 10.8.0.2 and fd09::2. Returns false if this kernel lacks
    /// such tunnels.
    fn connect(&self, network: &Network, version: u8) -> bool {
        let ends = addresses(version);
        let link = self.link[usize::from(version != 4)];
        let local = if self.protocol == "geneve" { String::new() } else { format!("local {}", ends[1]) };
        let address = if self.is_ethernet() { format!("address {}", MACS[1]) } else { String::new() };
        let line = format!("link add tunnel {address} {link} {local} remote {}", ends[0]);
        let mut command = Command::new("ip");
        command.args(["-n", network.outside.name()]).args(line.split_whitespace());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("Unknown device type") || said.contains("not supported") {
            println!("SKIPPED: this kernel has no {link}");
            return false;
        }
        assert!(output.status.success(), "{line}: {said}");
        let outside = &network.outside;
        outside.ip("addr add 10.8.0.2/24 dev tunnel");
        outside.ip("addr add fd09::2/64 dev tunnel nodad");
        // Fits into the longest outer headers. With packet sockets, frames of several segments
        // arrive in the tunnel and are segmented.
        outside.ip("link set tunnel mtu 1400 up");
        if self.is_ethernet() {
            for hop in ["10.8.0.254", "fd09::254"] {
                outside.ip(&format!("neigh add {hop} lladdr {} dev tunnel nud permanent", MACS[0]));
            }
            outside.ip("route add 10.7.0.0/24 via 10.8.0.254");
            outside.ip("-6 route add fd07::/64 via fd09::254");
        } else {
            outside.ip("route add 10.7.0.0/24 dev tunnel");
            outside.ip("-6 route add fd07::/64 dev tunnel");
        }
        true
    }

    fn policy(&self, version: u8) -> String {
        let [local, remote] = addresses(version);
        format!(
            "
settings {{ key: inner }};
Port<0> inside {{ address: [\"10.7.0.254/24\", \"fd07::254/64\"] }};
Port<1> outside {{ address: [\"203.0.113.1/24\", \"fd08::254/64\"] }};
Monitor watch;
Tunnel site {{ protocol: {}, local: {local}, remote: {remote}, {}, gateway4: 10.7.0.254 }};
pipelet {{ inside <-> watch <-> site <-> outside; }}
",
            self.protocol, self.policy
        )
    }
}

/// Returns the outer addresses of Rivulet and of the kernel.
fn addresses(version: u8) -> [&'static str; 2] {
    if version == 4 { ["203.0.113.1", "203.0.113.2"] } else { ["fd08::254", "fd08::2"] }
}

fn the_kernel_is_the_other_end_over_ipv4(io: Io) {
    the_kernel_is_the_other_end(io, 4);
}

fn the_kernel_is_the_other_end_over_ipv6(io: Io) {
    the_kernel_is_the_other_end(io, 6);
}

fn the_kernel_is_the_other_end(io: Io, version: u8) {
    for kind in KINDS {
        let Some(network) = Network::routed(io) else { return };
        // Must not bypass the tunnel.
        network.outside.ip("-6 route del fd07::/64 via fd08::254");
        if !kind.connect(&network, version) {
            continue;
        }
        // Fragments fit into the tunnel, from both ends.
        network.inside.ip("route add 10.8.0.0/24 via 10.7.0.254 mtu 1400");
        network.inside.ip("-6 route add fd09::/64 via fd07::254 mtu 1400");
        let rivulet = network.up(&kind.policy(version), "--write outside=out.pcapng");
        for (target, size) in [("10.8.0.2", 56), ("fd09::2", 56), ("10.8.0.2", 4000), ("fd09::2", 4000)] {
            network.inside.ping(&format!("-c 4 -i 0.05 -W 2 -s {size} {target}"));
        }
        for target in ["10.7.0.1", "fd07::1"] {
            network.outside.run(&format!("ping -c 3 -i 0.05 -W 2 {target}"));
        }
        let _server = network.outside.serve("iperf3 -s", 5201);
        for options in ["", "-R", "-6", "-6 -R", "-u -b 30M -l 1200"] {
            let target = if options.contains("-6") { "fd09::2" } else { "10.8.0.2" };
            network.inside.iperf3(&format!("-c {target} -n 4M {options}"));
        }
        let report = rivulet.end();
        let tunnel = &report["functions"][1]["counters"];
        let count = |name: &str| tunnel[name].as_u64().unwrap();
        assert!(count("packets_out") > 5_000 && count("packets_in") > 5_000, "{tunnel}");
        let followed = report["timing"]["fast_path"]["packets"].as_u64().unwrap();
        assert!(followed > 3_000, "{}: {followed} took the fast path", kind.protocol);
        assert_eq!(unsound(&network, "out.pcapng"), "", "{}", kind.protocol);
    }
}

/// Returns the frames of a capture with a header or checksum that is wrong for tshark.
fn unsound(network: &Network, name: &str) -> String {
    let wrong =
        "ip.checksum.status == 0 or tcp.checksum.status == 0 or udp.checksum.status == 0 or _ws.malformed";
    let check = "-o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE -o ip.defragment:FALSE";
    let mut command = Command::new("tshark");
    command.arg("-r").arg(network.path(name)).args(check.split(' ')).args(["-Y", wrong, "-c", "4000"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn senders_learn_the_mtu_of_the_tunnel(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    network.outside.ip("-6 route del fd07::/64 via fd08::254");
    let [vxlan, ..] = &KINDS;
    if !vxlan.connect(&network, 4) {
        return;
    }
    let rivulet = network.up(&vxlan.policy(4), "");
    // Other packets are fragmented by the router's port, and reassembled by the kernel.
    network.inside.run("ping -c 3 -i 0.05 -W 2 -M dont -s 1472 10.8.0.2");
    for (target, payload) in [("10.8.0.2", 1472), ("fd09::2", 1452)] {
        // The first packet is lost, and triggers an error; `-M do` forbids fragmentation.
        let said = network.inside.output(&format!("ping -c 3 -i 0.2 -W 1 -M do -s {payload} {target}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("1450"), "{said}");
        let (fits, headers) = if target.contains(':') { ("fd09::2", 48) } else { ("10.8.0.2", 28) };
        network.inside.run(&format!("ping -c 2 -i 0.2 -W 1 -M do -s {} {fits}", 1450 - headers));
    }
    let report = rivulet.end();
    let sent: &Value = &report["functions"][1]["counters"]["errors_sent"];
    assert!(sent.as_u64().unwrap() >= 2, "{report}");
}

#[test]
fn the_tunnel_example_is_a_tunnel() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    network.connect_with("inside", &["10.1.0.9/24"]);
    network.connect_with("outside", &["203.0.113.254/24", "198.51.100.1/32"]);
    network.inside.ip("route add default via 10.1.0.1");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tunnel.rvl");
    let policy =
        fs::read_to_string(example).unwrap().replace(" site ", " inside ").replace("uplink", "outside");
    let rivulet = network.up(&policy.replace("site <->", "inside <->"), "--write outside=out.pcapng");
    network.inside.output("ping -c 2 -i 0.1 -W 1 10.2.0.1");
    rivulet.end();
    let read = network.middle.run(&format!("tcpdump -nnvr {}", network.path("out.pcapng").display()));
    let is_in_gre =
        |line: &&str| line.contains("203.0.113.1 > 198.51.100.1: GREv0") && line.contains("key=0x7");
    assert_eq!(read.lines().filter(is_in_gre).count(), 2, "{read}");
}
