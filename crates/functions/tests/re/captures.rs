//! Every capture over a link: packets come out byte for byte as they went in. The test prints the
//! savings on the link, and the redundancy meter's result.

use std::path::{Path, PathBuf};

use graph::{Graph, Options};
use io::capture::CaptureReader;
use packet::{FlowHasher, LinkType, Packet, PacketPool, Parser, Side};
use serde_json::json;

use crate::meter_support::stage;

struct Frame {
    time_ns: u64,
    link: LinkType,
    bytes: Vec<u8>,
}

/// Returns an end with all hosts on both sides. It encodes whether or not reports arrive: a capture
/// from a loopback interface has no address for reports.
fn end() -> Graph {
    let anywhere = json!(["0.0.0.0/0", "::/0"]);
    let config = json!({ "local_networks": anywhere, "remote_networks": anywhere, "patience": 0 });
    Graph::new(vec![stage("re", &config)], Options { flows_max: 1 << 16, ..Options::default() }).unwrap()
}

/// Sends a packet through an end; returns the output on the other side. Discards generated packets.
fn through(
    graph: &mut Graph,
    pool: &mut PacketPool,
    frame: &Frame,
    side: Side,
    bytes: &[u8],
) -> Option<Packet> {
    let mut packet = pool.take(bytes)?;
    let meta = packet.meta_mut();
    (meta.transit.timestamp_ns, meta.transit.side, meta.link) = (frame.time_ns, side, frame.link);
    let (mut batch, mut out) = (vec![packet], vec![]);
    graph.process(&mut batch, &mut out, pool);
    let (leaves, made): (Vec<_>, Vec<_>) =
        out.into_iter().partition(|packet| packet.meta().transit.side == side.other());
    made.into_iter().for_each(|packet| pool.give(packet));
    leaves.into_iter().next()
}

/// Returns the bytes up to the end of the IP packet: the link layer's padding is not carried.
fn without_padding(packet: &Packet) -> &[u8] {
    let end = packet.meta().outer_l3 as usize + packet.ip_len();
    packet.data().get(..end).unwrap_or(packet.data())
}

struct Totals {
    packets: u64,
    before: u64,
    on_the_link: u64,
    encoded: u64,
}

fn cross(name: &str, frames: &[Frame]) -> Totals {
    let (mut here, mut there, mut pool) = (end(), end(), PacketPool::new(64));
    let mut totals = Totals { packets: 0, before: 0, on_the_link: 0, encoded: 0 };
    for (number, frame) in frames.iter().enumerate() {
        let context = || format!("{name} packet {}", number + 1);
        // A packet that the graph refuses never reaches the function.
        let Some(sent) = through(&mut here, &mut pool, frame, Side::Inside, &frame.bytes) else { continue };
        let received = through(&mut there, &mut pool, frame, Side::Outside, sent.data());
        let received = received.unwrap_or_else(|| panic!("{}: {:?}", context(), there.counters().drops));
        let mut original = Packet::from_bytes(&frame.bytes);
        original.meta_mut().link = frame.link;
        let parsed = Parser::new(FlowHasher::new(1)).parse(&mut original);
        assert!(parsed.is_ok() && without_padding(&received) == without_padding(&original), "{}", context());
        totals.packets += 1;
        totals.before += received.ip_len() as u64;
        totals.on_the_link += sent.ip_len() as u64;
        assert!(sent.ip_len() <= received.ip_len());
        totals.encoded += u64::from(sent.ip_len() < received.ip_len());
        pool.give(sent);
        pool.give(received);
    }
    let dropped = |graph: &Graph| {
        let drops = packet::DropReason::ALL.iter().filter(|reason| reason.name().starts_with("re-"));
        drops.map(|reason| graph.counters().drops[reason.index()]).sum::<u64>()
    };
    // One packet of a fuzzer's capture has the protocol number of encoded ones.
    let clashes = here.counters().drops[packet::DropReason::ReClash.index()];
    assert_eq!((dropped(&here), dropped(&there)), (clashes, 0), "{name}");
    assert!(clashes == 0 || clashes == 1 && name.starts_with("fuzz"), "{name}: {clashes} clashes");
    totals
}

#[test]
fn every_capture_comes_out_as_it_went_in() {
    let Some(captures) = captures() else { return };
    let mut sum = Totals { packets: 0, before: 0, on_the_link: 0, encoded: 0 };
    for path in captures {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let frames = frames(&path);
        let totals = cross(&name, &frames);
        if totals.packets > 1_000 {
            let Totals { packets, before, on_the_link, encoded } = totals;
            let saved = 100.0 * (before - on_the_link) as f64 / before as f64;
            println!("{name}: {packets} packets, {encoded} encoded, {before} bytes, {saved:.1} % saved");
        }
        sum.packets += totals.packets;
        sum.before += totals.before;
        sum.on_the_link += totals.on_the_link;
        sum.encoded += totals.encoded;
    }
    let saved = 100.0 * (sum.before - sum.on_the_link) as f64 / sum.before as f64;
    println!(
        "all: {} packets, {} encoded, {} bytes, {saved:.1} % saved",
        sum.packets, sum.encoded, sum.before
    );
    assert!(sum.encoded > 1_000);
}

/// Returns the meter's stream bytes and redundant bytes for a capture repeated this many times.
fn measured(frames: &[Frame], times: u64) -> (u64, u64) {
    let mut graph = Graph::new(vec![stage("redundancy", &json!({}))], Options::default()).unwrap();
    let (mut pool, mut out) = (PacketPool::new(64), vec![]);
    let span_ns = frames.iter().map(|frame| frame.time_ns).max().unwrap_or(0);
    for (time, frame) in (0..times).flat_map(|time| frames.iter().map(move |frame| (time, frame))) {
        let Some(mut packet) = pool.take(&frame.bytes) else { continue };
        let meta = packet.meta_mut();
        (meta.transit.timestamp_ns, meta.link) = (time * span_ns + frame.time_ns, frame.link);
        meta.transit.side = Side::Inside;
        graph.process(&mut vec![packet], &mut out, &mut pool);
        out.drain(..).for_each(|packet| pool.give(packet));
    }
    while !graph.finish(&mut pool) {}
    let count = |key| graph.stages()[0].shared().counters.get(key).unwrap();
    let [out, out_redundant, out_unique] =
        ["bytes_outbound", "redundant_outbound", "unique_outbound"].map(count);
    let [back, back_redundant, back_unique] =
        ["bytes_inbound", "redundant_inbound", "unique_inbound"].map(count);
    assert_eq!([out, back], [out_redundant + out_unique, back_redundant + back_unique]);
    (out + back, out_redundant + back_redundant)
}

// E23: the redundancy in streams, besides the savings on packets above.
#[test]
fn every_capture_is_measured() {
    let Some(captures) = captures() else { return };
    let (mut all, mut all_redundant) = (0, 0);
    for path in captures {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let frames = frames(&path);
        let (bytes, redundant) = measured(&frames, 1);
        (all, all_redundant) = (all + bytes, all_redundant + redundant);
        if frames.len() > 1_000 || name.starts_with("http") {
            let (twice, redundant_twice) = measured(&frames, 2);
            let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
            println!(
                "{name}: {bytes} bytes of streams, {:.1} % redundant; {:.1} % if it comes again",
                share(redundant, bytes),
                share(redundant_twice - redundant, twice - bytes)
            );
        }
    }
    println!("all: {all} bytes of streams, {:.1} % redundant", 100.0 * all_redundant as f64 / all as f64);
    assert!(all_redundant > 100_000);
}

/// Reads the readable part of a capture.
fn frames(path: &Path) -> Vec<Frame> {
    let Ok(mut reader) = CaptureReader::open(path) else { return vec![] };
    let mut frames = vec![];
    while let Ok(Some(record)) = reader.next() {
        frames.push(Frame {
            time_ns: record.timestamp_ns,
            link: record.link_type,
            bytes: record.data.to_vec(),
        });
    }
    frames
}

fn captures() -> Option<Vec<PathBuf>> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if !traces.join("MANIFEST.tsv").is_file() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no captures at {}", traces.display());
        println!("SKIPPED: no captures at {}", traces.display());
        return None;
    }
    let mut paths: Vec<PathBuf> = ["small", "workload"]
        .iter()
        .flat_map(|part| std::fs::read_dir(traces.join(part)).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension.to_string_lossy().contains("cap")))
        .collect();
    paths.sort();
    Some(paths)
}
