//! Writes the seed corpora: `cargo run --example corpus` in this folder. Every byte in them comes
//! from here.

use std::io::Error;
use std::path::Path;

use io::capture::{CaptureFormat, CaptureRecord, CaptureWriter, FormatKind, WriteError};
use packet::{Addr, Endpoint, LinkType};

#[path = "../crates/graph/tests/support/packets.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod packets;

use packets::*;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let networks = networks();
    for (name, network) in &networks {
        let mut seed = vec![0, 1, 0];
        seed.extend(frame(network));
        write(&root.join("parse").join(name), &seed)?;
        let raw = [&[1, 1, 0][..], network].concat();
        write(&root.join("parse").join(format!("{name}-raw")), &raw)?;
    }
    for options in [0u8, 1, 3, 0x34] {
        let mut seed = vec![options];
        for (i, (_, network)) in networks.iter().enumerate() {
            seed.extend([(i % 15) as u8, 200, (i % 2) as u8, network.len() as u8]);
            seed.extend(network);
        }
        write(&root.join("graph").join(format!("mix-{options}")), &seed)?;
    }
    for &(name, functions) in CONSOLIDATED {
        let mut seed = [functions, &[0xff, 0][..]].concat();
        let (client, server) = (v4(10, 0, 0, 1, 4000), v4(198, 18, 0, 1, 80));
        let again = udp(client, server, b"again");
        // A tunnel's end receives it from outside, in GRE.
        let (again, side) = match name {
            "tunnel-end" => {
                seed[functions.len() + 1] = 4;
                let [remote, local] = [4, 5].map(|last| Addr::from_v4_bytes([192, 0, 2, last]));
                (ip(remote, local, 47, &[&[0, 0, 8, 0], &again[..]].concat()), 1)
            }
            _ => (again, 0),
        };
        // Batches end, commands follow, and packets of other kinds come in between.
        let others = networks.iter().map(|(_, network)| network);
        for (i, other) in others.enumerate() {
            for (flags, network) in
                [(side, &again), (2 | side, &again), ((i % 2) as u8 | (i % 16) as u8 * 16 + 12, other)]
            {
                seed.extend([1, 200, flags, network.len() as u8]);
                seed.extend(network);
            }
        }
        write(&root.join("consolidated").join(name), &seed)?;
    }
    for function in [
        "nat",
        "lb",
        "firewall",
        "monitor",
        "policer",
        "whitelist",
        "dos",
        "vpn",
        "tunnel",
        "mark",
        "mirror",
        "mptcp",
        "tcp_mss",
        "re",
        "redundancy",
        "http_function",
    ] {
        // The target of NATs has ten configurations.
        let choices: &[u8] =
            if function == "nat" { &[0, 1, 2, 3, 12, 16, 17, 18, 19, 32, 33] } else { &[0, 1, 12] };
        for &options in choices {
            let mut seed = vec![options];
            for (i, (_, network)) in networks.iter().enumerate() {
                seed.extend([(i % 2) as u8, 0x1a, network.len() as u8]);
                seed.extend(network);
            }
            write(&root.join(function).join(format!("mix-{options}")), &seed)?;
        }
    }
    for (name, request, response) in HTTP {
        let mut seed = vec![0];
        let (client, server) = (v4(10, 0, 0, 1, 4000), v4(192, 0, 2, 1, 80));
        let segments = [
            tcp_segment(client, server, 2, [99, 0], b""),
            tcp_segment(server, client, 0x12, [899, 100], b""),
            tcp_segment(client, server, 0x10, [100, 900], request.as_bytes()),
            tcp_segment(server, client, 0x10, [900, 100 + request.len() as u32], response.as_bytes()),
        ];
        for (i, network) in segments.iter().enumerate().filter(|(_, network)| network.len() < 256) {
            seed.extend([(i % 2) as u8, 0x1a, network.len() as u8]);
            seed.extend(network);
        }
        for target in ["http_function", "ids", "redundancy"] {
            write(&root.join(target).join(name), &seed)?;
        }
    }
    for policy in 0..5u8 {
        let mut seed = vec![policy];
        for (i, (_, network)) in networks.iter().enumerate() {
            seed.extend([(i % 2) as u8 | (i % 3) as u8 & 2, 0x1a, network.len() as u8]);
            seed.extend(network);
        }
        write(&root.join("policies").join(format!("mix-{policy}")), &seed)?;
    }
    let mut seed = vec![0];
    for (i, (_, network)) in networks.iter().enumerate() {
        let frame = frame(network);
        seed.extend([(i % 8) as u8, 0x1a, frame.len().min(255) as u8]);
        seed.extend(&frame[..frame.len().min(255)]);
    }
    for asked in [[10, 0, 0, 254], [10, 0, 0, 100], [10, 0, 0, 9]] {
        let arp = [
            &[0xff; 6][..],
            &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 9],
            &[0; 6],
            &asked,
        ];
        let arp = arp.concat();
        seed.extend([0, 0x1a, arp.len() as u8]);
        seed.extend(arp);
    }
    write(&root.join("l3/mix"), &seed)?;
    let large = tcp_segment(v4(10, 0, 0, 1, 4000), v4(192, 0, 2, 1, 80), 0x18, [99, 0], &[7; 600]);
    for (name, header) in [
        ("segments", [1, 1, 0, 54, 0, 100, 0, 34, 0, 16, 0, 0, 0]),
        ("checksum", [1, 0, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]),
        ("tag", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 7]),
    ] {
        write(&root.join("offload").join(name), &[&header[..], &frame(&large)].concat())?;
    }
    let reports: Vec<u8> = (0..=255).cycle().take(4 + 48 * 20).collect();
    write(&root.join("exporters/some"), &reports)?;
    write(&root.join("exporters/biflow"), &[&[1, 1, 4, 0][..], &reports].concat())?;
    for (which, script) in COMMANDS {
        write(&root.join("control").join(which.to_string()), &[&[*which][..], script.as_bytes()].concat())?;
    }
    for (name, text) in [("wire", WIRE), ("nat", NAT)] {
        write(&root.join("policy").join(name), text.as_bytes())?;
    }
    for (name, [how, units, flags]) in ROUTERS {
        let mut seed = vec![*how, *units, *flags, 1];
        for i in 0..100u8 {
            seed.extend([9, i % 7, 200, i % 4]); // a packet
            seed.extend([i % 9, i, 100, 4 + i % 20]); // and time, or something else
        }
        write(&root.join("dispatcher").join(name), &seed)?;
    }
    write(&root.join("signatures/few"), RULES.as_bytes())?;
    for (name, request, response) in HTTP {
        let pieces = [(0, *request), (1, *response)];
        let seed = pieces.map(|(kind, text)| [&[kind, text.len() as u8, 7][..], text.as_bytes()].concat());
        write(&root.join("http").join(name), &seed.concat())?;
        let both = [&[6][..], request.as_bytes(), &[0xff], response.as_bytes()].concat();
        write(&root.join("http_messages").join(name), &both)?;
        for (kind, text) in pieces {
            let seed = [&[kind][..], text.as_bytes()].concat();
            write(&root.join("http_differential").join(format!("{name}-{kind}")), &seed)?;
        }
    }
    // A descriptor and a number at a time: of an incoming frame, of a split one, of empty buffers;
    // and invalid ones.
    let descriptor = |flags: u8, region: u8, len: u8, offset: u8| {
        vec![flags, 0, region, 0, len, 0, 0, 0, 0, offset, 0, 0, 0, 0, 0, 0]
    };
    for (name, ring, descriptors, head) in [
        ("frame", 0u8, vec![descriptor(0, 0, 60, 16)], 1),
        ("pieces", 0, vec![descriptor(1, 0, 100, 16), descriptor(0, 0, 9, 17)], 2),
        ("buffers", 64, vec![descriptor(0, 0, 255, 16), descriptor(0, 0, 80, 18)], 2),
        ("outside", 0, vec![descriptor(0, 0, 60, 32)], 1),
        ("elsewhere", 0, vec![descriptor(0, 9, 60, 0)], 1),
        ("endless", 0, vec![descriptor(1, 0, 1, 16); 4], 4),
        ("nonsense", 0, Vec::new(), 9),
    ] {
        let mut seed = vec![0b11];
        for (at, bytes) in (8u8..).zip(&descriptors) {
            seed.extend([4, ring + at, bytes.len() as u8]);
            seed.extend(bytes);
        }
        // Numbers begin at the sixth byte of a ring; those of the second one, at the 1,030th.
        match ring {
            0 => seed.extend([0, 3, 2, head, 0]),
            _ => seed.extend([4, ring, 8, 0x20, 0x1f, 0xe3, 0x03, 0, 0, head, 0]),
        }
        write(&root.join("memif").join(name), &seed)?;
    }
    let said = [
        (3u8, 0u8, vec![0, 2]),
        (4, 1, vec![0, 0, 0, 32, 0, 0]),
        (5, 2, vec![1, 0, 0, 0, 0, 0]),
        (6, 0, Vec::new()),
    ];
    let said =
        said.map(|(kind, file, fields)| [&[2, kind << 2 | file, fields.len() as u8][..], &fields].concat());
    write(&root.join("memif/messages"), &[&[0][..], &said.concat()].concat())?;
    let mut pcap = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
    for (_, network) in &networks {
        let len = (network.len() as u32).to_le_bytes();
        pcap.extend([[1, 0, 0, 0], [2, 0, 0, 0], len, len].concat());
        pcap.extend(network);
    }
    write(&root.join("capture/pcap"), &pcap)?;
    for name in ["few.pcap.gz", "few.pcapng", "few.pcapng.gz"] {
        let path = root.join("capture").join(name);
        capture(&path, CaptureFormat::of_path(name), &networks).map_err(Error::other)?;
    }
    let of = |name| networks.iter().find(|(n, _)| *n == name).map_or(&[][..], |(_, network)| network);
    write(&root.join("wire/frame"), &frame(of("vxlan")))?;
    write(&root.join("wire/network"), of("extension"))?;
    write(&root.join("wire/transport"), &of("tcp-syn")[20..])?;
    for (name, network) in networks.iter().filter(|(_, network)| network.len() < 256) {
        let one = [&[0, 0, 1, 0, network.len() as u8][..], network].concat();
        write(&root.join("graph").join(name), &one)?;
    }
    Ok(())
}

/// Graphs for the target `consolidated`, by the numbers of their NFs.
const CONSOLIDATED: &[(&str, &[u8])] = &[
    ("real-chain", &[0, 2, 4, 3]),
    ("strict-nat", &[1]),
    ("sees-all", &[4, 5, 3]),
    ("twice", &[2, 2, 6]),
    ("blocked", &[7, 4, 8]),
    ("tunnel-end", &[3, 4, 9]),
];

/// Mode and targets, units and flows, options.
const ROUTERS: &[(&str, [u8; 3])] = &[
    ("flowlets", [0xc0, 0xe9, 0]),
    ("flowlets-plus", [0x98, 0xed, 0x1e]),
    ("flows", [0x03, 0x28, 3]),
    ("smart-flows", [0x2c, 0xe8, 1]),
    ("packets", [0x45, 0x69, 0x12]),
    ("buckets", [0x1e, 0xec, 0x20]),
];

const WIRE: &str =
    "Port<0> inside;\nPort<1-2> outside { prefixes: [10.0.0.0/8, ::/0] };\npipelet { inside <-> outside; }\n";

const NAT: &str = "let net = 10.0.0.0/8;\nPort<0> a; Port<1> b;\nNAT n { external: [203.0.113.1], timeouts: { udp: 5m } };\n\
    settings { flows: 1M, seed: 7 };\npipelet web { a [dst port 80 && !(src ip net)] -> n; n [!n.safe] -> Drop; n -> b; }\n";

const RULES: &str = "# comment\nallow out tcp from 10.0.0.0/8 to any port {80, 443} state new\n\
    reject in udp from any to 192.0.2.1-192.0.2.9 port 53 log as \"dns\"\ndeny any from any to any\n";

/// Requests and responses, below 256 bytes each.
const HTTP: &[(&str, &str, &str)] = &[
    (
        "plain",
        "GET /a?b HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "chunked",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: r\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    ),
    (
        "smuggling",
        "POST http://y/ HTTP/1.0\nHost : x\nContent-Length: 4\nContent-Length: 5\nTransfer-Encoding:\n chunked\n\n0\n\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\n",
    ),
    (
        "row",
        "GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nPUT /c HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET /d HTTP/1.1\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n\
         HTTP/1.1 304 Not\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.0 200 OK\r\n\r\nuntil the end",
    ),
    ("tunnel", "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n\u{16}\u{3}", "HTTP/1.1 200 OK\r\n\r\n\u{16}\u{3}"),
    (
        "upgrade",
        "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\u{1}",
    ),
    ("old", "GET /\r\n", "<html>"),
    ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\0\0\0"),
];

/// A few packets in a file; pcapng has an interface for every other one.
fn capture(path: &Path, format: CaptureFormat, networks: &[(&str, Vec<u8>)]) -> Result<(), WriteError> {
    let mut writer = CaptureWriter::create(path, format)?;
    let interfaces = if format.kind == FormatKind::Pcapng { 2 } else { 1 };
    if interfaces == 2 {
        writer.add_interface(0, "inside", LinkType::RawIp)?;
    }
    for (number, (_, network)) in (0..).zip(&networks[..3]) {
        writer.write(&CaptureRecord {
            timestamp_ns: 1_700_000_000_000_000_000,
            interface: number % interfaces,
            link_type: LinkType::RawIp,
            wire_len: network.len() as u32,
            data: network,
        })?;
    }
    writer.finish()
}

/// Commands, by the number of an NF.
const COMMANDS: &[(u8, &str)] = &[
    (0, "drain 203.0.113.1\nresume 203.0.113.1\n"),
    (2, "server one down\nserver one up\nserver one weight 3\nserver two drain"),
    (4, "rule 1 disable\nrule 1 enable\ndefault deny"),
    (6, "rate 100kbps\nburst 3KB\nactive_timeout 3s"),
];

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    std::fs::write(path, bytes)
}

/// Packets of every kind that the parser and the NFs of the tests distinguish, below 256 bytes
/// each.
fn networks() -> Vec<(&'static str, Vec<u8>)> {
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let virtual_end = v4(198, 51, 100, 1, 53);
    let outside = v4(203, 0, 113, 1, 40_000);
    let request = udp(inside, peer, &[0, 1, 2]);
    let pieces = fragments(&udp(inside, peer, &[0; 60]), 7, 24);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame(&request)].concat();
    let tunnel = |port| Endpoint::new(Addr::from_v4_bytes([192, 0, 2, 1]), port);
    let extended =
        ip(v6(1, 0).addr, v6(2, 0).addr, 0, &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &request[20..]].concat());
    vec![
        ("udp", request.clone()),
        ("udp-reply", udp(peer, outside, &[0, 1, 2])),
        ("udp-dropped", udp(inside, peer, &[1])),
        ("udp-rejected", udp(inside, v4(192, 0, 2, 2, 53), &[2])),
        ("udp-balanced", udp(inside, virtual_end, &[4])),
        ("udp-short", udp(inside, virtual_end, &[0x20])),
        ("udp-hairpin", udp(inside, v4(10, 0, 0, 2, 53), &[0])),
        ("tcp-syn", tcp(inside, peer, 2, &[])),
        ("tcp-ack", tcp(inside, peer, 0x10, &[0])),
        ("tcp-rst", tcp(peer, outside, 4, &[])),
        ("udp6", udp(v6(1, 1000), v6(2, 53), &[0])),
        ("tcp6", tcp(v6(1, 1000), v6(2, 53), 2, &[])),
        ("echo", echo(inside.addr, peer.addr, 9, false, &[0])),
        ("echo6", echo(v6(1, 0).addr, v6(2, 0).addr, 9, true, &[0])),
        ("error", unreachable(peer.addr, &udp(outside, peer, &[0]))),
        ("error6", unreachable(v6(2, 0).addr, &udp(v6(1, 1000), v6(2, 53), &[0]))),
        ("fragment-first", pieces[0].clone()),
        ("fragment-later", pieces[1].clone()),
        ("extension", extended),
        ("vxlan", udp(inside, tunnel(4789), &vxlan)),
        ("ip-in-ip", ip(inside.addr, peer.addr, 4, &request)),
        ("gre", ip(inside.addr, peer.addr, 47, &[&[0, 0, 8, 0][..], &request].concat())),
    ]
}
