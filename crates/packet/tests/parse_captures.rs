//! All available captures: nothing panics, and the number of flows is that of another program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use io::capture::CaptureReader;
use packet::{FlowHasher, LinkType, Packet, PacketClass, Parser, parse};

/// Returns the folder of the captures; `None` if it is absent, which is an error only in CI.
fn captures() -> Option<PathBuf> {
    let shared = std::env::var_os("RIVULET_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let traces = shared.join("traces");
    if traces.join("MANIFEST.tsv").exists() {
        return Some(traces);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "no captures in {}", traces.display());
    println!("SKIPPED: no captures in {}", traces.display());
    None
}

/// Counts of a capture.
#[derive(Default)]
struct Counted {
    packets: u64,
    /// Outermost flows by direction; later fragments have ports 0.
    one_way: HashSet<String>,
    /// Same, both directions as one.
    sessions: HashSet<String>,
    /// Packets that the parser refuses.
    refused: u64,
}

fn count(path: &Path) -> Counted {
    let mut counted = Counted::default();
    let hasher = FlowHasher::new(1);
    let parser = Parser::new(hasher);
    let inner = Parser { inner: true, verify_ipv4_checksum: true, ..Parser::new(hasher) };
    let Ok(mut reader) = CaptureReader::open(path) else { return counted };
    while let Ok(Some(record)) = reader.next() {
        counted.packets += 1;
        let mut packet = Packet::from_bytes(record.data);
        packet.meta_mut().link = record.link_type;
        packet.meta_mut().wire_len = record.wire_len;
        if inner.parse(&mut packet).is_ok() {
            parse::ends(&packet);
        }
        packet.meta_mut().key.place = 0;
        if parser.parse(&mut packet).is_err() || is_unknown_to_the_manifest(&packet) {
            counted.refused += 1;
        } else if packet.meta().class != PacketClass::NotIp {
            // The manifest ignores tags and query identifiers, and uses only an ICMP error's own
            // addresses.
            let (mut a, mut b) = parse::ends(&packet);
            let protocol = packet.meta().protocol;
            if !matches!(protocol, 6 | 17 | 132) {
                (a.port, b.port) = (0, 0);
            }
            counted.one_way.insert(format!("{a} {b} {protocol}"));
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            counted.sessions.insert(format!("{low} {high} {protocol}"));
        }
    }
    counted
}

/// Checks for packets without IP for the manifest's program: rarer link types, and LLC in Ethernet.
fn is_unknown_to_the_manifest(packet: &Packet) -> bool {
    let is_length = |data: &[u8]| data.get(12..14).is_some_and(|word| word[0] < 6);
    match packet.meta().link {
        LinkType::Other(_) => true,
        LinkType::Ethernet => is_length(packet.data()),
        _ => false,
    }
}

/// Both count alike except for packets that only we refuse (truncated headers or wrong lengths);
/// each of those can be one flow.
#[test]
fn captures_have_the_flows_of_their_manifest() {
    let Some(traces) = captures() else { return };
    let manifest = std::fs::read_to_string(traces.join("MANIFEST.tsv")).unwrap();
    let mut lines = manifest.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name| header.iter().position(|title| *title == name).unwrap();
    let (packets, flows, sessions) = (column("packets"), column("flows_5tuple"), column("sessions"));
    let (mut files, mut alike) = (0, 0);
    for line in lines {
        let number = |column: usize| line[column].parse::<u64>().unwrap();
        let counted = count(&traces.join(line[0]));
        if counted.packets != number(packets) {
            println!("{}: not read to its end", line[0]); // Up to the reader.
            continue;
        }
        files += 1;
        let pairs = [(&counted.one_way, number(flows)), (&counted.sessions, number(sessions))];
        for (ours, theirs) in pairs {
            let ours = ours.len() as u64;
            let missing = theirs.checked_sub(ours);
            let excused = missing.is_some_and(|missing| missing <= counted.refused);
            assert!(excused, "{}: {ours} flows where {theirs} were counted", line[0]);
            alike += u64::from(missing == Some(0));
        }
    }
    println!("{alike} of {} counts are alike", 2 * files);
    assert!(files > 100 && alike > 2 * files * 9 / 10);
}
