//! Router ports and VLAN tags: a priority tag belongs to the untagged network, any other tag to a
//! network that the port is not on, and a sub-interface is a port like others.

use crate::net::{Io, Network, by_each_way};

by_each_way!(a_router_port_accepts_priority_tags);

/// A router for IPv6 and a NAT for IPv4.
const GATEWAY: &str = "
Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"] };
NAT translate { external: [203.0.113.1] };
pipelet { inside <-> translate <-> outside; }
";

/// Sends tagged ARP and echo requests to the router and to the host beyond it, and prints the
/// answers without their tags. Frames are built by hand, as not every kernel has VLAN interfaces.
const ASK: &str = r#"
import socket, struct, sys, time

def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return struct.pack('!H', total ^ 0xffff)

def echo(target, number):
    icmp = struct.pack('!BBHHH', 8, 0, 0, 7777, number) + b'tagged' * 4
    icmp = icmp[:2] + checksum(icmp) + icmp[4:]
    ip = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(icmp), number, 0, 64, 1, 0)
    ip += socket.inet_aton('10.7.0.1') + socket.inet_aton(target)
    return b'\x08\x00' + ip[:10] + checksum(ip) + ip[12:] + icmp

own, router = bytes.fromhex('020700000001'), bytes.fromhex(sys.argv[1].replace(':', ''))
tags = bytes.fromhex(sys.argv[2])
arp = b'\x08\x06' + struct.pack('!HHBBH', 1, 0x0800, 6, 4, 1) + own + socket.inet_aton('10.7.0.1')
arp += bytes(6) + socket.inet_aton('10.7.0.254')
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(('eth0', 0))
s.settimeout(0.2)
seen, patience = set(), time.time() + float(sys.argv[3])
while time.time() < patience and len(seen) < 3:
    s.send(b'\xff' * 6 + own + tags + arp)
    s.send(router + own + tags + echo('10.7.0.254', 1))
    s.send(router + own + tags + echo('203.0.113.2', 2))
    again = time.time() + 0.5
    while time.time() < again and len(seen) < 3:
        try:
            frame = s.recv(2048)
        except socket.timeout:
            continue
        if frame[:6] != own:
            continue
        if frame[12:14] == b'\x08\x06' and frame[20:22] == b'\x00\x02' and frame[22:28] == router:
            seen.add('arp')
        if frame[12:14] == b'\x08\x00' and frame[23] == 1 and frame[34] == 0 and frame[38:40] == b'\x1e\x61':
            seen.add(socket.inet_ntoa(frame[26:30]))
print(' '.join(sorted(seen)))
"#;

/// Returns the answers to frames with these tags within `seconds`.
fn answered(network: &Network, tags: &str, seconds: u64) -> String {
    let mac = network.middle.run("cat /sys/class/net/inside/address");
    let seconds = seconds.to_string();
    let asked =
        network.inside.command("python3").args(["-c", ASK, mac.trim(), tags, &seconds]).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8_lossy(&asked.stdout).trim().to_owned()
}

fn a_router_port_accepts_priority_tags(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    let all = "10.7.0.254 203.0.113.2 arp";
    // Priorities 5 and 7, and one within the other, as in a provider's network.
    for tags in ["8100a000", "8100e000", "88a8a0008100e000"] {
        assert_eq!(answered(&network, tags, 60), all, "{tags}");
    }
    // Controls: without a tag, and with the tag of another network.
    assert_eq!(answered(&network, "", 60), all);
    assert_eq!(answered(&network, "8100a005", 2), "");
    rivulet.end();
}

#[test]
fn a_sub_interface_is_a_router_port() {
    let Some(network) = Network::routed(Io::PacketSocket) else { return };
    let vlan = network.middle.output("ip link add link inside name inside.5 type vlan id 5");
    if !vlan.status.success() {
        println!("SKIPPED: the kernel has no interfaces for VLANs");
        return;
    }
    network.middle.ip("link set inside.5 up");
    network.inside.ip("link add link eth0 name eth0.5 type vlan id 5 egress-qos-map 0:3");
    for address in ["10.7.0.1/24", "fd07::1/64"] {
        network.inside.ip(&format!("addr del {address} dev eth0"));
    }
    network.inside.ip("link set eth0.5 up");
    for (address, nodad) in [("10.7.0.1/24", ""), ("fd07::1/64", "nodad")] {
        network.inside.ip(&format!("addr add {address} dev eth0.5 {nodad}"));
    }
    network.inside.ip("route add default via 10.7.0.254");
    network.inside.ip("-6 route add default via fd07::254");
    let rivulet = network.up_on(["inside=inside.5", "outside=outside"], GATEWAY, "");
    for target in ["10.7.0.254", "203.0.113.2", "fd07::254", "fd08::2"] {
        network.inside.ping(&format!("-c 3 -i 0.05 -W 2 {target}"));
    }
    rivulet.end();
}
