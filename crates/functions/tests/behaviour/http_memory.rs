//! Shortage of buffer memory: partial messages are not parsed as if they were whole.

use nf::Buffers;
use serde_json::json;

use crate::http_support::*;

/// Opens connections of these clients with unterminated lines in both directions, more than 64 MiB
/// together.
fn fill(bench: &mut Bench, client: impl Fn(u16) -> [u8; 4]) {
    let long = "x".repeat(15_000);
    let lines = [(Client, "GET / HTTP/1.1\r\nX: "), (Server, "HTTP/1.1 200 OK\r\nX: ")];
    for number in 0..2_400 {
        let mut talk = connection(client(number), number);
        for (who, begun) in lines {
            format!("{begun}{long}").as_bytes().chunks(1_400).for_each(|part| talk.piece(who, part));
        }
        play(bench, &talk.segments);
    }
}

fn connection([a, b, c, d]: [u8; 4], number: u16) -> Talk {
    let mut talk = Talk::between(v4(a, b, c, d, 1_024 + number), v4(192, 0, 2, 1, 80)).scaled();
    talk.handshake();
    talk
}

fn play(bench: &mut Bench, segments: &[Arrival]) {
    segments.iter().for_each(|segment| bench.batch(std::slice::from_ref(segment)));
}

fn buffers(bench: &Bench) -> &Buffers {
    bench.graph.stages()[0].shared().buffers.as_ref().unwrap()
}

fn finished(mut bench: Bench) -> Run {
    assert!(bench.graph.finish(&mut bench.pool));
    bench.batch(&[]);
    assert_eq!(buffers(&bench).used_bytes(), 0);
    let reported = bench.told.iter().map(|line| brief(line)).collect();
    Run { reported, sent: bench.sent.len(), drops: bench.drops(), bench }
}

const HEAD: &str = "POST /victim HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n";
const CHUNKED: &str = "POST /victim HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Halves of messages: the buffered first half is evicted before the second arrives.
fn halves() -> [[String; 2]; 5] {
    [
        [format!("{HEAD}Transfer-Enc"), "oding: chunked\r\n\r\n0\r\n\r\n".into()],
        [format!("{HEAD}X: y\r\n"), "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into()],
        [format!("{CHUNKED}1"), "0\r\n0123456789abcdef\r\n0\r\n\r\n".into()],
        ["PO".into(), "ST /victim HTTP/1.1\r\nHost: x\r\n\r\n".into()],
        [format!("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /{}", "v".repeat(600)), " HTTP/1.1\r\n\r\n".into()],
    ]
}

fn victim(number: usize) -> Talk {
    connection(SOURCE, 20_000 + number as u16)
}

const SOURCE: [u8; 4] = [10, 0, 0, 1];

#[test]
fn messages_with_an_evicted_part_are_not_parsed() {
    for (smuggling, drops) in [("alert", None), ("drop", Some(("stream-memory", 10)))] {
        let mut bench = bench("http", &json!({ "smuggling": smuggling, "anomalies": "alert" }));
        let mut talks: Vec<Talk> = (0..halves().len()).map(victim).collect();
        for (talk, [first, _]) in talks.iter_mut().zip(halves()) {
            play(&mut bench, &talk.says(Client, first).segments.split_off(0));
        }
        fill(&mut bench, |number| [10, 8, (number >> 8) as u8, number as u8]);
        assert!(buffers(&bench).evictions() >= 5);
        let (reported, sent) = (bench.told.len(), bench.sent.len());
        for (talk, [_, second]) in talks.iter_mut().zip(halves()) {
            play(&mut bench, &talk.says(Client, second).segments.split_off(0));
        }
        assert_eq!(bench.told[reported..].len(), 0, "{:?}", &bench.told[reported..]);
        assert_eq!(counter(&bench, "memory_full"), 5, "{smuggling}");
        // Later messages are parsed again, unless the flow is dropped.
        let requests = counter(&bench, "requests");
        for talk in &mut talks {
            let next = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
            play(&mut bench, &talk.says(Client, next).segments.split_off(0));
        }
        let (read, passed) = if drops.is_some() { (0, 0) } else { (5, 10) };
        assert_eq!(counter(&bench, "requests") - requests, read);
        assert_eq!(bench.sent.len() - sent, passed);
        let run = finished(bench);
        assert_eq!(run.drops, drops.into_iter().collect::<Vec<_>>());
        let anomalies = run.anomalies();
        assert!(anomalies.iter().all(|anomaly| anomaly == "incomplete-message"), "{anomalies:?}");
    }
}

#[test]
fn messages_without_room_for_their_parts_are_not_parsed() {
    for (smuggling, drops) in [("alert", false), ("drop", true)] {
        let mut bench = bench("http", &json!({ "smuggling": smuggling, "anomalies": "alert" }));
        fill(&mut bench, |_| SOURCE);
        let full = counter(&bench, "memory_full");
        assert!(full > 100, "the source holds its share: {full}");
        // The remaining memory suffices for short ones.
        let is_full = (0..1_000).any(|number| {
            let mut talk = connection(SOURCE, 10_000 + number);
            play(&mut bench, &talk.says(Client, "GET / HTTP/1.1\r\nX: y").segments);
            counter(&bench, "memory_full") > full
        });
        assert!(is_full);
        let (full, reported, sent) = (counter(&bench, "memory_full"), bench.told.len(), bench.sent.len());
        for (number, [first, second]) in halves().into_iter().enumerate() {
            let mut talk = victim(number);
            play(&mut bench, &talk.says(Client, first).says(Client, second).segments);
        }
        assert_eq!(counter(&bench, "memory_full") - full, 5, "{smuggling}");
        assert_eq!(bench.told[reported..].len(), 0, "{:?}", &bench.told[reported..]);
        assert_eq!(bench.sent.len() - sent, if drops { 3 * 5 } else { 5 * 5 });
        // A message in one piece needs no memory.
        let mut talk = victim(9);
        play(&mut bench, &talk.says(Client, format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n")).segments);
        let run = finished(bench);
        assert!(run.reported.contains(&"! length-and-transfer-encoding".to_owned()), "{:?}", run.reported);
        assert_eq!(run.drops.iter().any(|(reason, _)| *reason == "stream-memory"), drops, "{:?}", run.drops);
    }
}
