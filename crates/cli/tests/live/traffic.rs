//! Traffic of hosts passes as on a wire.

use std::fs;

use crate::names::serve_names;
use crate::net::{Io, Network, by_each_way, wait_until};

by_each_way!(
    pings_whole_and_in_fragments,
    large_files_over_http_arrive_whole,
    a_line_based_session_works_in_both_directions,
    vlan_tags_stay_in_their_frames,
    offloads_of_a_stack_work_as_on_a_wire,
    frames_of_big_tcp_are_cut,
    units_on_threads_carry_it_as_well,
);

/// Functions that inspect each packet and change none.
const WATCHED: &str = "
Port<0> inside;
Port<1> outside;
Monitor watch;
Firewall gate { rules: \"allow any_direction any\" };
pipelet { inside <-> watch <-> gate <-> outside; }
";

fn pings_whole_and_in_fragments(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WATCHED, "");
    for (target, size) in [("10.7.0.2", 56), ("fd07::2", 56), ("10.7.0.2", 4000), ("fd07::2", 4000)] {
        network.inside.ping(&format!("-c 5 -i 0.05 -W 2 -s {size} {target}"));
    }
    network.outside.run("ping -c 2 -i 0.05 -W 2 fd07::1");
    let report = rivulet.end();
    assert!(report["packets_in"].as_u64().unwrap() >= 2 * (2 * 5 + 2 * 5 * 3 + 2));
    assert_eq!(report["drops"], serde_json::json!({}));
}

fn large_files_over_http_arrive_whole(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WATCHED, "");
    // Incompressible bytes.
    let mut state = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(32 << 20)
    .collect();
    fs::create_dir(network.path("www")).unwrap();
    fs::write(network.path("www/file"), &bytes).unwrap();
    let folder = network.path("www");
    let line = format!("python3 -m http.server --bind :: --directory {} 8080", folder.display());
    let _server = network.outside.serve(&line, 8080);
    for host in ["10.7.0.2", "[fd07::2]"] {
        let copy = network.path("copy");
        let line = format!("curl -sS -m 60 -o {} http://{host}:8080/file", copy.display());
        network.inside.run(&line);
        assert!(fs::read(copy).unwrap() == bytes, "the file from {host} differs");
    }
    let report = rivulet.end();
    assert_eq!(report["drops"], serde_json::json!({}));
    for interface in ["inside", "outside"] {
        assert_eq!(report["interfaces"][interface]["unreadable"], 0);
    }
}

fn a_line_based_session_works_in_both_directions(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rivulet = network.up(WATCHED, "");
    let (said, heard) = (network.path("said"), network.path("heard"));
    fs::write(&said, "one\ntwo\n").unwrap();
    let line = format!("nc -l -N 9000 < {} > {}", said.display(), heard.display());
    let mut listener = network.outside.command("sh").args(["-c", &line]).spawn().unwrap();
    wait_until("nc listens", || network.outside.run("ss -Hltn").contains(":9000 "));
    let line = "printf 'three\\n' | nc -N 10.7.0.2 9000";
    let output = network.inside.command("sh").args(["-c", line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    listener.wait().unwrap();
    assert_eq!(fs::read_to_string(heard).unwrap(), "three\n");
    rivulet.end();
}

fn vlan_tags_stay_in_their_frames(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let written = network.path("out.pcapng");
    let rivulet = network.up(WATCHED, "--write outside=out.pcapng");
    let heard = network.path("heard");
    let listen = format!("tcpdump -nnlec 3 -i eth0 vlan 5 > {}", heard.display());
    let mut listener = network.outside.command("sh").args(["-c", &listen]).spawn().unwrap();
    wait_until("tcpdump listens", || network.outside.run("ip -d link show eth0").contains("promiscuity 1"));
    // Not every kernel has VLAN interfaces, so tagged frames are built by hand.
    let send = "
import socket, struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0))
tag = bytes.fromhex('81000005')
udp = struct.pack('!HHHH', 1000, 9, 12, 0) + b'tag!'
ip = bytes.fromhex('4500002000004000401126b2') + bytes([10, 7, 0, 1, 10, 7, 0, 2])
for _ in range(3):
    s.send(bytes.fromhex('020700000002020700000001') + tag + b'\\x08\\x00' + ip + udp)
";
    let sent = network.inside.command("python3").args(["-c", send]).output().unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    listener.wait().unwrap();
    rivulet.end();
    let read = network.middle.run(&format!("tcpdump -nner {}", written.display()));
    for told in [fs::read_to_string(heard).unwrap(), read] {
        let tagged = |line: &&str| line.contains("vlan 5") && line.contains("10.7.0.1.1000 > 10.7.0.2.9");
        assert_eq!(told.lines().filter(tagged).count(), 3, "{told}");
    }
}

fn offloads_of_a_stack_work_as_on_a_wire(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let written = network.path("out.pcapng");
    let rivulet = network.up(WATCHED, "--write out.pcapng");
    let _server = network.outside.serve("iperf3 -s", 5201);
    for options in ["", "-6", "-u -b 50M", "-R"] {
        let target = if options == "-6" { "fd07::2" } else { "10.7.0.2" };
        network.inside.iperf3(&format!("-c {target} -n 2M {options}"));
    }
    rivulet.end();
    // Another reader finds every checksum right, and no frame longer than the link permits.
    let read = network.middle.run(&format!("tcpdump -nnvvr {}", written.display()));
    assert!(read.contains("cksum") && read.contains("(correct)"));
    for wrong in ["incorrect", "bad udp cksum", "bad cksum", "wrong icmp cksum"] {
        let line = read.lines().find(|line| line.contains(wrong));
        assert_eq!(line, None);
    }
    let longest = network.middle.run(&format!("tcpdump -nner {} greater 1515", written.display()));
    assert_eq!(longest, "");
}

/// Raises the limits of `eth0` beyond 64 KB, of IPv6 and of IPv4 (which older `ip` does not know):
/// `IFLA_GSO_MAX_SIZE` and `IFLA_GSO_IPV4_MAX_SIZE`.
const BIG_TCP: &str = "
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
for limit in (41, 63):
    body = struct.pack('=BxHiII', 0, 0, socket.if_nametoindex('eth0'), 0, 0)
    body += struct.pack('=HHI', 8, limit, 185000)
    s.send(struct.pack('=IHHII', 16 + len(body), 16, 5, 1, 0) + body)
    error = struct.unpack('=i', s.recv(4096)[16:20])[0]
    assert error == 0, error
";

fn frames_of_big_tcp_are_cut(io: Io) {
    let Some(network) = Network::new(io) else { return };
    for host in [&network.inside, &network.outside] {
        let set = host.command("python3").args(["-c", BIG_TCP]).output().unwrap();
        if !set.status.success() {
            let why = "no BIG TCP for IPv4 before Linux 6.3";
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("SKIPPED: {why}");
            return;
        }
    }
    let rivulet = network.up(WATCHED, "");
    let _server = network.outside.serve("iperf3 -s", 5201);
    for target in ["10.7.0.2", "fd07::2", "10.7.0.2 -R", "fd07::2 -R"] {
        network.inside.iperf3(&format!("-c {target} -n 64M"));
    }
    let report = rivulet.end();
    assert_eq!(report["drops"], serde_json::json!({}));
    for interface in ["inside", "outside"] {
        let unreadable = report["interfaces"][interface]["unreadable"].as_u64().unwrap();
        assert!(unreadable <= FRAMES_OF_A_CALL, "{unreadable} frames from {interface}");
    }
}

/// Frames that one system call receives: the first long ones show that there are such.
const FRAMES_OF_A_CALL: u64 = 64;

fn units_on_threads_carry_it_as_well(io: Io) {
    let Some(network) = Network::new(io) else { return };
    for options in ["--units-max 2", "--threads --units-max 2"] {
        let rivulet = network.up(WATCHED, options);
        network.inside.ping("-c 20 -i 0.02 -W 2 10.7.0.2");
        let _server = network.outside.serve("iperf3 -s -1", 5201);
        network.inside.iperf3("-c 10.7.0.2 -n 8M");
        let report = rivulet.end();
        assert!(report["units"]["flowlets"].as_u64().unwrap() > 0);
        assert_eq!(report["drops"], serde_json::json!({}));
    }
}

#[test]
fn names_are_resolved() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let rivulet = network.up(WATCHED, "");
    let _server = serve_names(&network, &["10.7.0.2"]);
    wait_until("the server answers", || {
        let told = network.inside.output("dig +short +tries=2 +timeout=1 @10.7.0.2 www.example.org");
        String::from_utf8_lossy(&told.stdout).contains("192.0.2.53")
    });
    rivulet.end();
}
