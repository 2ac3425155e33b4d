//! tshark on the output against tshark on the input, and its flows against the monitor's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use io::capture::{CaptureFormat, CaptureRecord, CaptureWriter, FormatKind};
use packet::LinkType;

use crate::policies::Kind;
use crate::run::run;
use crate::sums;
use crate::traces::{self, Recorded};

/// A frame for tshark.
struct Shown<'a> {
    timestamp_ns: u64,
    link: LinkType,
    wire_len: u32,
    data: &'a [u8],
}

impl<'a> From<&'a Recorded> for Shown<'a> {
    fn from(record: &'a Recorded) -> Shown<'a> {
        let &Recorded { timestamp_ns, link, wire_len, .. } = record;
        Shown { timestamp_ns, link, wire_len, data: &record.data }
    }
}

/// Writes frames of any link types to one file.
fn write<'a>(path: &Path, frames: impl Iterator<Item = Shown<'a>>) {
    let mut writer =
        CaptureWriter::create(path, CaptureFormat { kind: FormatKind::Pcapng, gzip: false }).unwrap();
    let mut links: Vec<LinkType> = Vec::new();
    for Shown { timestamp_ns, link, wire_len, data } in frames {
        let interface = links.iter().position(|known| *known == link).unwrap_or_else(|| {
            writer.add_interface(links.len() as u32, "", link).unwrap();
            links.push(link);
            links.len() - 1
        }) as u32;
        writer.write(&CaptureRecord { timestamp_ns, interface, link_type: link, wire_len, data }).unwrap();
    }
    writer.finish().unwrap();
}

/// Protocols that tshark dissects: headers up to the transport's.
const PROTOCOLS: [&str; 29] = [
    "frame",
    "eth",
    "ethertype",
    "vlan",
    "ieee8021ad",
    "llc",
    "radiotap",
    "wlan_radio",
    "wlan",
    "mpls",
    "pppoes",
    "ppp",
    "sll",
    "raw",
    "null",
    "loop",
    "ip",
    "ipv6",
    "ipv6.hopopts",
    "ipv6.routing",
    "ipv6.fraghdr",
    "ipv6.dstopts",
    "tcp",
    "udp",
    "icmp",
    "icmpv6",
    "pkt_comment",
    "_ws.malformed",
    "_ws.short",
];

/// Creates a configuration for tshark with all other protocols off: payloads are not compared, and
/// dissecting them is slow.
fn settings() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("tshark").args(["-G", "protocols"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split('\t').nth(2));
    let off: String =
        names.filter(|name| !PROTOCOLS.contains(name)).map(|name| format!("{name}\n")).collect();
    std::fs::write(folder.path().join("disabled_protos"), off).unwrap();
    folder
}

/// Returns the values of `fields` for each frame. tshark dissects each frame alone and verifies
/// checksums.
fn tshark(path: &Path, fields: &[&str], occurrence: &str) -> Vec<Vec<String>> {
    let settings = settings();
    let mut command = Command::new("tshark");
    command.arg("-n").env("WIRESHARK_CONFIG_DIR", settings.path());
    for preference in [
        "ip.check_checksum:TRUE",
        "tcp.check_checksum:TRUE",
        "udp.check_checksum:TRUE",
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.analyze_sequence_numbers:FALSE",
    ] {
        command.args(["-o", preference]);
    }
    command.args(["-T", "fields", "-E", &format!("occurrence={occurrence}"), "-e", "frame.number"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.arg("-r").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').skip(1).map(str::to_owned).collect()).collect()
}

/// Checksums that tshark finds wrong (status 0), by kind, and malformed frames.
const VERDICTS: [&str; 6] = [
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
    "_ws.malformed",
];

/// Counts each of them. The quoted packet of an ICMP error is truncated, which tshark takes for a
/// wrong transport checksum.
fn faults(row: &[String]) -> [usize; VERDICTS.len()] {
    let quotes = !row[3].is_empty() || !row[4].is_empty();
    std::array::from_fn(|i| match VERDICTS[i] {
        "_ws.malformed" => usize::from(!row[i].is_empty()),
        "tcp.checksum.status" | "udp.checksum.status" if quotes => 0,
        _ => row[i].split(',').filter(|status| *status == "0").count(),
    })
}

#[test]
fn tshark_finds_no_new_fault() {
    let captures = traces::all();
    if captures.is_empty() || !traces::has_tool("tshark", "-v") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("in.pcapng");
    let into: Vec<_> = captures.iter().flat_map(|capture| &capture.records).collect();
    write(&path, into.iter().map(|record| Shown::from(*record)));
    let before = tshark(&path, &VERDICTS, "a");
    assert_eq!(before.len(), into.len());
    for kind in [Kind::Nat, Kind::Balance, Kind::Tunnel, Kind::Firewall, Kind::Police, Kind::All] {
        let mut first = 0;
        let mut sent = Vec::new();
        for capture in &captures {
            let outcome = run(&kind.policy(&capture.records), &capture.records, runtime::BATCH);
            sent.extend(outcome.sent.into_iter().map(|sent| (first + sent.record as usize, sent)));
            first += capture.records.len();
        }
        let path = place.path().join("out.pcapng");
        let shown = sent.iter().map(|(_, sent)| Shown {
            timestamp_ns: sent.timestamp_ns,
            link: sent.link,
            wire_len: sent.wire_len,
            data: &sent.data,
        });
        write(&path, shown);
        let after = tshark(&path, &VERDICTS, "a");
        assert_eq!(after.len(), sent.len());
        let (mut worse, mut changed) = (Vec::new(), 0);
        for ((record, sent), row) in sent.iter().zip(&after) {
            changed += u64::from(sent.data != into[*record].data);
            let (was, is) = (faults(&before[*record]), faults(row));
            if was.iter().zip(&is).any(|(was, is)| is > was) {
                worse.push(format!("record {record}: {:?} -> {row:?} {:02x?}", before[*record], sent.data));
            }
        }
        println!("{kind:?}: {} packets, {changed} changed", sent.len());
        assert!(worse.is_empty(), "{kind:?}: {} packets, such as {}", worse.len(), worse[0]);
    }
}

/// Endpoints of a packet.
type Ends = (IpAddr, u16, IpAddr, u16, u8);

/// Packets and bytes of IP packets in one direction.
pub type Counts = BTreeMap<Ends, (u64, u64)>;

/// Fields that determine a packet's flow and length.
const FLOW_FIELDS: [&str; 14] = [
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ip.len",
    "ip.flags.mf",
    "ip.frag_offset",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.nxt",
    "ipv6.plen",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
];

/// Compares all TCP and UDP flows: tshark counts each packet, the monitor reports flows. Excluded
/// are pairs of addresses with fragments (the monitor assigns later ones to their flow, tshark does
/// not), with packets dropped as malformed, and with extension headers.
#[test]
fn the_monitors_flows_equal_those_of_tshark() {
    let captures = traces::all();
    if captures.is_empty() || !traces::has_tool("tshark", "-v") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("in.pcapng");
    let policy = "Port<0> inside;\nPort<1> outside;\nsettings { seed: 1, flows: 200k };\nMonitor m;\n\
                  pipelet { inside <-> m <-> outside; }\n";
    let (mut flows, mut skipped) = (0, 0);
    // Large captures run alone, since merged ones would share address pairs.
    for captures in captures.chunk_by(|a, b| a.records.len() < 10_000 && b.records.len() < 10_000) {
        let records: Vec<&Recorded> = captures.iter().flat_map(|capture| &capture.records).collect();
        write(&path, records.iter().map(|record| Shown::from(*record)));
        let mut odd = BTreeSet::new();
        let mut theirs = Counts::new();
        for row in tshark(&path, &FLOW_FIELDS, "f") {
            match ends(&row) {
                Some((ends, bytes)) => {
                    let counts = theirs.entry(ends).or_default();
                    *counts = (counts.0 + 1, counts.1 + bytes);
                }
                None => odd.extend(addresses(&row)),
            }
        }
        let mut ours = Counts::new();
        let records: Vec<Recorded> = records.into_iter().map(copy).collect();
        let outcome = run(policy, &records, runtime::BATCH);
        let passed: BTreeSet<u64> = outcome.sent.iter().map(|sent| sent.record).collect();
        for (record, number) in records.iter().zip(0..) {
            if !passed.contains(&number) {
                odd.extend(sums::ends(record.link, &record.data).map(sorted));
            }
        }
        for report in outcome.flows.iter().filter(|report| matches!(report.protocol, 6 | 17)) {
            let (source, destination) = (report.source.ip(), report.destination.ip());
            for (direction, ends) in [
                (source, report.source_port, destination, report.destination_port, report.protocol),
                (destination, report.destination_port, source, report.source_port, report.protocol),
            ]
            .into_iter()
            .enumerate()
            .filter(|(direction, _)| report.packets[*direction] > 0)
            {
                let counts = ours.entry(ends).or_default();
                *counts = (counts.0 + report.packets[direction], counts.1 + report.bytes[direction]);
            }
        }
        let is_odd = |ends: &Ends| odd.contains(&sorted((ends.0, ends.2)));
        for counts in [&mut theirs, &mut ours] {
            let all = counts.len();
            counts.retain(|ends, _| !is_odd(ends));
            skipped += all - counts.len();
        }
        let name =
            captures.iter().map(|capture| capture.name.as_str()).take(3).collect::<Vec<_>>().join(", ");
        for (ends, counts) in &theirs {
            assert_eq!(ours.get(ends), Some(counts), "{name}: {ends:?}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
        flows += ours.len();
    }
    println!("{flows} directions of flows agree, {skipped} left out");
    assert!(flows > 20_000 && skipped < flows / 10);
}

/// Returns tshark's counts of TCP and UDP in a capture by direction, without fragments.
pub fn counts(path: &Path) -> Counts {
    let mut counts = Counts::new();
    for (ends, bytes) in tshark(path, &FLOW_FIELDS, "f").iter().filter_map(|row| ends(row)) {
        let so_far = counts.entry(ends).or_default();
        *so_far = (so_far.0 + 1, so_far.1 + bytes);
    }
    counts
}

fn copy(record: &Recorded) -> Recorded {
    Recorded { data: record.data.clone(), ..*record }
}

fn sorted((a, b): (IpAddr, IpAddr)) -> (IpAddr, IpAddr) {
    if a < b { (a, b) } else { (b, a) }
}

fn addresses(row: &[String]) -> Option<(IpAddr, IpAddr)> {
    let at = if row[0].is_empty() { 6 } else { 0 };
    Some(sorted((row[at].parse().ok()?, row[at + 1].parse().ok()?)))
}

/// Returns the endpoints of a plain TCP or UDP packet, and the length of its IP packet.
fn ends(row: &[String]) -> Option<(Ends, u64)> {
    let six = row[0].is_empty();
    let (at, protocol, bytes) = if six { (6, &row[8], &row[9]) } else { (0, &row[2], &row[3]) };
    let bytes: u64 = bytes.parse().ok()?;
    let is_fragment = !six && (row[4] == "1" || row[4] == "True" || row[5] != "0");
    if is_fragment || bytes == 0 {
        return None;
    }
    let ports = match protocol.as_str() {
        "6" => 10,
        "17" => 12,
        _ => return None,
    };
    let (source, destination) = (row[at].parse().ok()?, row[at + 1].parse().ok()?);
    let ends =
        (source, row[ports].parse().ok()?, destination, row[ports + 1].parse().ok()?, protocol.parse().ok()?);
    Some((ends, if six { bytes + 40 } else { bytes }))
}

/// Compares with tshark's table of conversations. Its bytes are those of frames, ours of IP
/// packets: 14 less each on Ethernet without padding.
#[test]
fn the_monitors_flows_equal_tsharks_conversations() {
    let Some(capture) = traces::one("workload/echo_500_connections.pcap") else { return };
    if !traces::has_tool("tshark", "-v") {
        return;
    }
    let output = Command::new("tshark")
        .args(["-n", "-q", "-z", "conv,tcp", "-r"])
        .arg(&capture.path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // A <-> B, then frames and bytes from B to A, from A to B, and in total.
    let rows = text
        .lines()
        .filter(|line| line.contains("<->"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let theirs: BTreeSet<_> = rows.filter(|row| row[1] == "<->").map(|row| conversation(&row)).collect();
    let outcome = run(&Kind::Monitor.policy(&capture.records), &capture.records, runtime::BATCH);
    let mut ours: BTreeMap<_, [(u64, u64); 2]> = BTreeMap::new();
    for report in &outcome.flows {
        let (source, destination) = (report.source.ip(), report.destination.ip());
        let ends = [(source, report.source_port), (destination, report.destination_port)];
        let turned = usize::from(ends[0] > ends[1]);
        let counts = ours.entry([ends[turned], ends[1 - turned]]).or_default();
        for direction in [0, 1] {
            let to = &mut counts[direction ^ turned];
            to.0 += report.packets[direction];
            to.1 += report.bytes[direction] + 14 * report.packets[direction];
        }
    }
    assert_eq!(ours.len(), 500);
    assert_eq!(ours.into_iter().collect::<BTreeSet<_>>(), theirs);
}

type Conversation = ([(IpAddr, u16); 2], [(u64, u64); 2]);

fn conversation(row: &[&str]) -> Conversation {
    let end = |text: &str| {
        let (address, port) = text.rsplit_once(':').unwrap();
        (address.parse().unwrap(), port.parse().unwrap())
    };
    // Bytes are `5352 bytes` or `5 kB`; only the former are exact.
    let numbers: Vec<u64> = row[3..].iter().filter_map(|word| word.parse().ok()).collect();
    let (a, b) = (end(row[0]), end(row[2]));
    let (from_b, from_a) = ((numbers[0], numbers[1]), (numbers[2], numbers[3]));
    if a < b { ([a, b], [from_a, from_b]) } else { ([b, a], [from_b, from_a]) }
}
