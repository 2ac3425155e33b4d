//! `rivulet capture`: its files as tshark reads them.

use std::collections::BTreeMap;
use std::process::Command;

use super::explain::POLICY;
use super::*;

fn place() -> Place {
    let place = Place::new();
    place.write("p.rvl", POLICY);
    place.stdout("traffic --write in.pcapng --packets 2000 --ipv6 0 --no-replies --protocols tcp=3,udp=1 --ports 80,443");
    place
}

/// A record as read by tshark.
pub(super) struct Record {
    pub id: Option<u64>,
    pub interface: String,
    /// 1: inbound; 2: outbound.
    pub way: u32,
    source: String,
    pub comment: String,
}

/// Reads the records of a capture. Without tshark, prints a message and returns `None`; fails in
/// CI.
pub(super) fn records(place: &Place, name: &str) -> Option<Vec<Record>> {
    let fields = [
        "frame.packet_id",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "ip.src",
        "frame.comment",
    ];
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"]).arg(place.path(name));
    let Ok(output) = command.args(fields.iter().flat_map(|field| ["-e", field])).output() else {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "tshark is not installed");
        println!("SKIPPED: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let record = |line: &str| {
        let [id, interface, way, source, comment] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        Record {
            id: number(id),
            interface: interface.to_owned(),
            way: number(way).unwrap_or(0) as u32,
            source: source.to_owned(),
            comment: comment.to_owned(),
        }
    };
    Some(String::from_utf8(output.stdout).unwrap().lines().map(record).collect())
}

#[test]
fn each_packet_is_written_on_arrival_and_departure_with_the_decisions() {
    let place = place();
    place.stdout("capture p.rvl --read in.pcapng --seed 1 --write out.pcapng");
    let Some(records) = records(&place, "out.pcapng") else { return };
    let stories = place.json("explain p.rvl --read in.pcapng --seed 1 --limit 10000 -o json");
    let stories: BTreeMap<u64, &serde_json::Value> =
        stories.as_array().unwrap().iter().map(|story| (story["packet"].as_u64().unwrap(), story)).collect();
    let (mut sent, mut dropped) = (0, 0);
    let mut came = Vec::new();
    for record in &records {
        let id = record.id.unwrap();
        let story = stories[&id];
        let steps = story["steps"].as_array().unwrap().iter().map(|step| {
            let reason = step["reason"].as_str().map_or(String::new(), |reason| format!(" ({reason})"));
            format!("{}: {}{reason}", step["function"].as_str().unwrap(), step["verdict"].as_str().unwrap())
        });
        let steps = steps.collect::<Vec<_>>().join("; ");
        assert!(record.comment.starts_with(&steps), "{}: {story}", record.comment);
        let flow = format!("| flow {}, ", story["flow"]["number"]);
        assert!(record.comment.contains(&flow), "{}: {story}", record.comment);
        assert!(record.comment.ends_with(&format!("| packet {id}")), "{}", record.comment);
        match (story["outcome"]["what"].as_str().unwrap(), record.way) {
            ("sent", 1) => assert!(record.comment.contains("| sent by outside |")),
            ("sent", 2) => {
                assert_eq!((record.interface.as_str(), record.source.as_str()), ("outside", "203.0.113.1"));
                assert_eq!(came.last(), Some(&id), "departure follows arrival");
                sent += 1;
                continue;
            }
            ("dropped", 1) => {
                let reason = story["outcome"]["reason"].as_str().unwrap();
                assert!(record.comment.contains(&format!("| dropped ({reason}) |")), "{}", record.comment);
                dropped += 1;
            }
            other => panic!("{other:?}: {}", record.comment),
        }
        assert_eq!(record.interface, "inside");
        assert!(record.source.starts_with("10."), "{}", record.source);
        came.push(id);
    }
    assert_eq!(came, (1..=stories.len() as u64).collect::<Vec<_>>());
    assert!(sent > 100 && dropped > 100, "{sent}, {dropped}");
    println!("{}", records[0].comment);
}

#[test]
fn departing_packets_equal_those_of_a_run() {
    let place = place();
    place.stdout("capture p.rvl --read in.pcapng --seed 1 --write out.pcapng.gz");
    place.stdout("run p.rvl --read in.pcapng --seed 1 --write ran.pcapng --quiet");
    let frames = |name: &str, only: Option<&str>| {
        let mut reader = io::capture::CaptureReader::open(place.path(name)).unwrap();
        let mut frames = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            let (interface, frame) = (record.interface, (record.timestamp_ns, record.data.to_vec()));
            let name = reader.interfaces()[interface as usize].name.clone();
            if only.is_none_or(|only| name.as_deref() == Some(only)) {
                frames.push(frame);
            }
        }
        frames
    };
    let ran = frames("ran.pcapng", None);
    assert!(frames("out.pcapng.gz", Some("outside")) == ran && ran.len() > 100);
    assert!(frames("out.pcapng.gz", Some("inside")) == frames("in.pcapng", None));
}

#[test]
fn output_is_limited_by_count_and_dropped() {
    let place = place();
    place.refused(1, "capture p.rvl --read in.pcapng --filter nonsense --write out.pcapng");
    let mut command = place.command("capture p.rvl --read in.pcapng --dropped --count 7 --write out.pcapng");
    let output = command.args(["--filter", "dst port 443 && tcp"]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("7 of them written to out.pcapng"), "{said}");
    let Some(records) = records(&place, "out.pcapng") else { return };
    assert_eq!(records.len(), 7);
    assert!(records.iter().all(|record| record.way == 1 && record.comment.contains("f: drop (")));
}

/// Builds an IPv4 fragment of a UDP datagram after an Ethernet header.
fn fragment(offset: u16, more: bool) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 28, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
    ip[6..8].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    let words = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    ip[10..12].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    // The first fragment has UDP's header: ports, length, no checksum.
    ip.extend(if offset == 0 { [0x10, 0, 0, 80, 0, 16, 0, 0] } else { *b"the rest" });
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &ip[..]].concat()
}

#[test]
fn a_pending_fragment_is_written_on_arrival_and_on_departure() {
    let place = Place::new();
    place.write("p.rvl", POLICY);
    let name = place.path("in.pcapng");
    let mut writer =
        io::capture::CaptureWriter::create(&name, io::capture::CaptureFormat::of_path(&name)).unwrap();
    for (timestamp_ns, data) in [(1_000, fragment(8, false)), (2_000, fragment(0, true))] {
        let (link_type, wire_len) = (packet::LinkType::Ethernet, data.len() as u32);
        let record =
            io::capture::CaptureRecord { timestamp_ns, interface: 0, link_type, wire_len, data: &data };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    place.stdout("capture p.rvl --read in.pcapng --write out.pcapng");
    let Some(records) = records(&place, "out.pcapng") else { return };
    let told: Vec<_> = records.iter().map(|r| (r.id.unwrap(), r.way)).collect();
    assert_eq!(told, [(1, 1), (2, 1), (2, 2), (1, 2)]);
    assert!(records[0].comment.starts_with("pending: "), "{}", records[0].comment);
    for record in &records[1..] {
        let passed = "n: forward; f: forward, by rule 1 (p.rvl:5) | sent by outside | flow 1, ";
        assert!(record.comment.starts_with(passed), "{}", record.comment);
    }
}

#[test]
fn unusable_arguments_are_reported() {
    let place = place();
    let said = place.refused(1, "capture p.rvl --read in.pcapng --write out.pcap");
    assert!(said.contains(".pcapng"), "{said}");
    place.refused(1, "capture p.rvl --read in.pcapng --write in.pcapng");
    place.refused(2, "capture p.rvl --write out.pcapng");
    place.refused(2, "capture p.rvl --read in.pcapng --port inside=lo --write out.pcapng");
    place.refused(2, "capture p.rvl --read in.pcapng --duration 1s --write out.pcapng");
    place.refused(1, "capture p.rvl --port inside=nothing --port outside=nothing2 --write out.pcapng");
    let written = place.run("capture p.rvl --read in.pcapng --count 1 --write -").stdout;
    assert_eq!(written[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
}

/// The file has each packet on arrival and on departure; only the former is read back.
#[test]
fn its_file_is_read_back_as_arrivals() {
    let place = Place::new();
    place.write(
        "nat.rvl",
        "Port<0> inside;\nPort<1> outside;\nNAT n { external: [203.0.113.1] };\npipelet { inside <-> n <-> outside; }\n",
    );
    place.stdout("traffic --write in.pcapng --packets 200 --ipv6 0 --no-replies");
    place.stdout("capture nat.rvl --read inside=in.pcapng --write told.pcapng --seed 1");
    let before = place.json("run nat.rvl --read inside=in.pcapng --seed 1 -o json");
    let output = place.run("run nat.rvl --read told.pcapng --seed 1 -o json");
    let after: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for what in ["packets_in", "packets_out", "drops"] {
        assert_eq!(before[what], after[what], "{what}");
    }
    let said = stderr(&output);
    let left = before["packets_out"].as_u64().unwrap();
    assert!(said.contains(&format!("told.pcapng: skipped {left} departing packets")), "{said}");
    let explained = place.stdout("explain nat.rvl --read told.pcapng --limit 1000");
    assert!(!explained.contains("nat-wrong-side"), "{explained}");
}
