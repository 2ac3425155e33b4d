//! The firewall's strict TCP tracking compared with the kernel's: both get the same sequences of
//! segments.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::net::{Io, Network};

const CLIENT: [u8; 4] = [10, 7, 0, 1];
const SERVER: [u8; 4] = [203, 0, 113, 2];

/// Sequences, with the verdicts of both judges on each segment.
const SEQUENCES: &str = include_str!("tracked.txt");

const POLICY: &str = "
Port<0> inside { prefixes: 10.7.0.0/24 };
Port<1> outside;
Firewall f { rules: \"allow\", tcp: strict };
pipelet { inside <-> f <-> outside; }
";

/// The kernel drops segments that it finds invalid.
const RULES: &str = "table ip oracle {
    chain passes {
        type filter hook forward priority 0
        ct state invalid drop
    }
}
";

/// A segment of a sequence.
struct Row {
    sequence: &'static str,
    line: &'static str,
    from_client: bool,
    frame: Vec<u8>,
    /// Verdicts of Rivulet and of the kernel.
    passes: [bool; 2],
}

fn rows() -> Vec<Row> {
    let (mut rows, mut port, mut sequence) = (Vec::new(), 20_000, "");
    for line in SEQUENCES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("= ") {
            (sequence, port) = (name, port + 1);
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |at: usize| if words[at] == "-" { 0 } else { words[at].parse::<u32>().unwrap() };
        let flag = |c| match c {
            'F' => 1,
            'S' => 2,
            'R' => 4,
            'A' => 16,
            _ => panic!("{line}"),
        };
        let flags = words[1].chars().map(flag).sum();
        let window = if words.contains(&"w=0") { 0 } else { 8192 };
        let from_client = words[0] == ">";
        let number_of_row = 2 * rows.len() as u16 + 1;
        let segment = tcp(from_client, port, flags, [number(2), number(3)], window, number(4) as usize);
        let passes = match words[5] {
            "pass" => [true; 2],
            "drop" => [false; 2],
            "pass!" => [true, false],
            "drop!" => [false, true],
            _ => panic!("{line}"),
        };
        let frame = frame(from_client, 6, number_of_row, &segment);
        rows.push(Row { sequence, line, from_client, frame, passes });
    }
    rows
}

fn tcp(from_client: bool, port: u16, flags: u8, [seq, ack]: [u32; 2], window: u16, len: usize) -> Vec<u8> {
    let (from, to) = if from_client { (port, 80) } else { (80, port) };
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    segment.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    segment.extend([0x50, flags]);
    segment.extend(window.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(vec![b'x'; len]);
    let pseudo = [&CLIENT[..], &SERVER, &[0, 6], &(segment.len() as u16).to_be_bytes(), &segment].concat();
    segment[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    segment
}

/// Wraps an IPv4 packet with this identification in an Ethernet frame without destination.
fn frame(from_client: bool, protocol: u8, number: u16, body: &[u8]) -> Vec<u8> {
    let (from, to) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let len = (20 + body.len() as u16).to_be_bytes();
    let number = number.to_be_bytes();
    let mut header = vec![0x45, 0, len[0], len[1], number[0], number[1], 0, 0, 64, protocol, 0, 0];
    header.extend([from, to].concat());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[0; 6], &[2, 7, 0, 0, 0, if from_client { 1 } else { 2 }], &[8, 0][..], &header, body].concat()
}

/// Returns the checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns Rivulet's verdict on each row.
fn by_rivulet(network: &Network, rows: &[Row]) -> Vec<bool> {
    let mut capture = Vec::new();
    for number in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        capture.extend(number.to_le_bytes());
    }
    for (number, row) in (0u32..).zip(rows) {
        let len = row.frame.len() as u32;
        for word in [1, number * 1000, len, len] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend(&row.frame);
    }
    std::fs::write(network.path("in.pcap"), capture).unwrap();
    std::fs::write(network.path("policy.rvl"), POLICY).unwrap();
    let [policy, read] = ["policy.rvl", "in.pcap"].map(|name| network.path(name).display().to_string());
    let rivulet = env!("CARGO_BIN_EXE_rivulet");
    let said = network.middle.run(&format!("{rivulet} explain {policy} --read {read} --limit 10000 -o json"));
    let stories: Vec<Value> = serde_json::from_str(&said).unwrap();
    stories.iter().map(|story| story["outcome"]["what"] == "sent").collect()
}

/// Returns the verdicts of the kernel as a router.
fn by_kernel(network: &Network, rows: &[Row]) -> Vec<bool> {
    network.connect_with("inside", &[]);
    network.connect_with("outside", &[]);
    let mac = |interface: &str| {
        let said = network.middle.run(&format!("cat /sys/class/net/{interface}/address"));
        said.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect::<Vec<_>>()
    };
    let macs = [mac("outside"), mac("inside")];
    for (name, own, host) in
        [("inside", "10.7.0.254", "10.7.0.1"), ("outside", "203.0.113.254", "203.0.113.2")]
    {
        let last = if name == "inside" { 1 } else { 2 };
        network.middle.ip(&format!("addr add {own}/24 dev {name}"));
        network
            .middle
            .ip(&format!("neigh replace {host} lladdr 02:07:00:00:00:0{last} dev {name} nud permanent"));
    }
    network.middle.run("sysctl -qw net.ipv4.ip_forward=1");
    std::fs::write(network.path("rules.nft"), RULES).unwrap();
    network.middle.run(&format!("nft -f {}", network.path("rules.nft").display()));
    let hex = |row: &Row, frame: &[u8]| -> String {
        let frame = [&macs[usize::from(row.from_client)], &frame[6..]].concat();
        frame.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let mut lines = String::new();
    for (row, number) in rows.iter().zip((2..).step_by(2)) {
        let marker = frame(row.from_client, 17, number, &[0, 9, 0, 9, 0, 8, 0, 0]);
        let direction = if row.from_client { '>' } else { '<' };
        lines += &format!("{direction} {} {}\n", hex(row, &marker), hex(row, &row.frame));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/conntrack.py");
    let mut child = std::process::Command::new("python3")
        .args([script, network.inside.name(), network.outside.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|said| said == "pass").collect()
}

#[test]
fn strict_tracking_passes_what_rfcs_and_the_kernel_allow() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    let rows = rows();
    let said = [by_rivulet(&network, &rows), by_kernel(&network, &rows)];
    assert_eq!(said.each_ref().map(Vec::len), [rows.len(); 2]);
    let mut wrong = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        for (who, (said, want)) in ["Rivulet", "the kernel"].iter().zip(said.iter().zip(row.passes)) {
            if said[at] != want {
                wrong.push(format!("{}: {}: {who} says otherwise", row.sequence, row.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
