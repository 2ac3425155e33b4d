//! In line: shortage of memory for out-of-order and for unacknowledged segments.

use graph::Options;
use graph::streams::{StreamOptions, WhenMemoryFull};
use serde_json::json;
use telemetry::Record;

use crate::ids_support::*;
use crate::meter_support::{options, stage};

const RULES: &str = r#"drop tcp any any -> any any (msg:"stream"; content:"evil literal"; sid:1;)"#;

/// Returns options with memory for this many out-of-order segments.
fn memory_for(segments: usize) -> StreamOptions {
    StreamOptions { memory: segments * 1536, ..StreamOptions::default() }
}

fn in_line(streams: StreamOptions, packets: &[Arrival]) -> Seen {
    let function = stage("ids", &config(RULES, json!({})));
    let mut bench = Bench::new(vec![function], Options { streams, ..options() });
    packets.iter().for_each(|packet| bench.batch(std::slice::from_ref(packet)));
    end(bench)
}

/// Creates a connection with windows for everything.
fn open(source: u16, port: u16) -> Talk {
    let [high, low] = source.to_be_bytes();
    let mut talk = Talk::between(v4(10, 9, high, low, port), v4(192, 0, 2, 1, 80)).scaled();
    talk.handshake();
    talk
}

/// Sends a late segment, other connections, and the segment before it.
fn beside(others: impl Iterator<Item = Talk>, streams: StreamOptions) -> Seen {
    let mut talk = open(u16::MAX, 4_000);
    talk.loses(Client, 5).says(Client, "literal, and more");
    let mut packets = std::mem::take(&mut talk.segments);
    packets.extend(others.flat_map(|talk| talk.segments));
    talk.again(Client, "evil literal, and more");
    packets.extend(talk.segments);
    in_line(streams, &packets)
}

/// Connections of one or several sources, each with out-of-order segments.
fn out_of_order(connections: u16, source: impl Fn(u16) -> u16) -> impl Iterator<Item = Talk> {
    (0..connections).map(move |number| {
        let mut talk = open(source(number), 1_024 + number);
        talk.loses(Client, 1).says(Client, [b'x'; 1_000]).loses(Client, 1).says(Client, [b'y'; 1_000]);
        talk
    })
}

fn dropped(seen: &Seen, reason: &str) -> u64 {
    seen.drops.iter().find(|(name, _)| *name == reason).map_or(0, |(_, packets)| *packets)
}

fn streams(seen: &Seen, name: &str) -> u64 {
    seen.bench.graph.counters().streams.count(name).unwrap()
}

fn own_alerts(seen: &Seen) -> Vec<u32> {
    let own =
        seen.bench.alerts.iter().filter(|alert| alert.detail.as_ref().is_some_and(|d| d.group == OWN_GROUP));
    own.map(|alert| alert.signature_id).collect()
}

/// Returns a connection that sends too much out of order, and the first bytes last.
fn too_early() -> Talk {
    let mut talk = open(1, 1_024);
    talk.loses(Client, 4).says(Client, " literal");
    (0..4).for_each(|_| _ = talk.says(Client, [b'x'; 1_000]));
    talk.loses(Client, 0);
    let late = [&b"evil literal"[..], &[b'x'; 4_000]].concat();
    talk.again(Client, &late);
    // Only the missing bytes are new in it.
    let last = talk.segments.pop().unwrap();
    let mut first = Talk::between(talk.client, talk.server).scaled();
    first.handshake();
    first.segments.clear();
    first.says(Client, "evil");
    first.segments[0].at_ns = last.at_ns;
    talk.segments.append(&mut first.segments);
    talk
}

#[test]
fn segments_that_cannot_be_queued_do_not_pass() {
    let options = StreamOptions { memory_per_stream: 3_000, ..StreamOptions::default() };
    let seen = in_line(options, &too_early().segments);
    assert_eq!((seen.rules(), dropped(&seen, "ids-rule")), (vec![1], 1));
    assert_eq!((dropped(&seen, "stream-memory"), streams(&seen, "gaps")), (2, 0));
    assert_eq!((streams(&seen, "over_share"), own_alerts(&seen)), (2, vec![12]));
    // If configured, the stream has a gap, which is reported.
    let seen = in_line(StreamOptions { when_full: WhenMemoryFull::Pass, ..options }, &too_early().segments);
    assert_eq!((seen.rules(), seen.drops.len(), streams(&seen, "gaps")), (vec![], 0, 1));
    assert_eq!((streams(&seen, "gave_up"), own_alerts(&seen)), (1, vec![12]));
}

#[test]
fn one_source_leaves_memory_for_segments_out_of_order_of_others() {
    let seen = beside(out_of_order(300, |_| 1), memory_for(200));
    assert_eq!((seen.rules(), dropped(&seen, "ids-rule")), (vec![1], 1));
    assert!(streams(&seen, "over_share") > 300 && dropped(&seen, "stream-memory") > 300);
    assert_eq!((streams(&seen, "gave_way"), own_alerts(&seen)), (0, vec![12]));
}

#[test]
fn queued_segments_of_idle_streams_are_evicted_and_the_streams_stop() {
    let seen = beside(out_of_order(300, |number| number), memory_for(200));
    assert!(streams(&seen, "gave_way") > 100);
    assert_eq!((seen.rules(), dropped(&seen, "ids-rule")), (vec![], 0));
    assert_eq!((dropped(&seen, "stream-memory"), own_alerts(&seen)), (1, vec![13]));
    let options = StreamOptions { when_full: WhenMemoryFull::Pass, ..memory_for(200) };
    let seen = beside(out_of_order(300, |number| number), options);
    // The evicted bytes are retransmitted and inspected.
    assert_eq!((seen.rules(), dropped(&seen, "ids-rule")), (vec![1], 1));
    assert_eq!((seen.drops.len(), own_alerts(&seen)), (1, vec![13]));
}

#[test]
fn spoofed_sources_displace_each_other() {
    let spoofed = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut talk = Talk::between(v4(10, 10, high, low, 1_024), v4(192, 0, 2, 1, 80));
        talk.says(Client, "begins").loses(Client, 1).says(Client, [b'x'; 1_000]);
        talk
    };
    let seen = beside((0..1_000).map(spoofed), memory_for(200));
    assert_eq!((seen.rules(), dropped(&seen, "ids-rule")), (vec![1], 1));
    assert!(streams(&seen, "gave_way") > 500);
    assert_eq!((seen.drops.len(), own_alerts(&seen)), (1, vec![]));
}

#[test]
fn unacknowledged_segments_of_some_do_not_stop_others() {
    for sources in [1, 40] {
        // They are not acknowledged: more than there is memory for.
        let under_way = (0..40).map(|number| {
            let mut talk = open(number % sources, 1_024 + number);
            (0..1_200).for_each(|_| _ = talk.says(Client, "x"));
            talk
        });
        let mut talk = open(u16::MAX, 4_000);
        talk.says(Client, "evil").says(Client, " literal");
        let packets: Vec<Arrival> = under_way.chain([talk]).flat_map(|talk| talk.segments).collect();
        let seen = in_line(StreamOptions::default(), &packets);
        assert_eq!((seen.rules(), dropped(&seen, "ids-rule")), (vec![1], 1), "{sources}");
        let (over_share, gave_way) = (streams(&seen, "over_share"), streams(&seen, "gave_way"));
        assert_eq!((over_share > 0, gave_way > 0), (sources == 1, sources > 1), "{over_share} {gave_way}");
        assert_eq!(dropped(&seen, "stream-memory"), over_share);
        assert_eq!(own_alerts(&seen), [15].repeat((sources == 1).into()));
    }
}
