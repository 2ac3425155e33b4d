//! A TCP sender over a link that loses packets of both directions: all bytes arrive in the end.

use packet::split_mix;
use serde_json::json;

use crate::meter_support::*;
use crate::pair::*;

const SEGMENT: usize = 1_000;
const WINDOW: u32 = 8;

/// A connection from site 1 to site 2. Its sender goes back to the first unacknowledged segment.
struct Connection {
    port: u16,
    stream: Vec<u8>,
    acknowledged: u32,
    received: Vec<u8>,
}

impl Connection {
    fn segment(&self, number: u32) -> Vec<u8> {
        let from = number as usize * SEGMENT;
        let bytes = &self.stream[from..from + SEGMENT];
        tcp_segment(host(4, 1, self.port), host(4, 2, 80), 0x18, [1 + from as u32, 1], bytes)
    }

    fn is_done(&self) -> bool {
        self.acknowledged as usize * SEGMENT >= self.stream.len()
    }

    /// Receives a segment.
    fn receive(&mut self, network: &[u8]) {
        let from = u32::from_be_bytes(network[24..28].try_into().unwrap()) as usize - 1;
        if from == self.received.len() {
            self.received.extend(&network[40..]);
        }
    }
}

/// Sends the streams over a link that loses one in this many packets, with or without reports.
/// Returns the rounds needed, and the encoded packets.
fn transfer(
    streams: Vec<Vec<u8>>,
    lost: u64,
    are_reports_lost: bool,
    settings: &serde_json::Value,
) -> (u32, u64) {
    let mut pair = Pair::acquainted(settings);
    let mut random = 5;
    let mut connections: Vec<Connection> = (0..)
        .zip(streams)
        .map(|(number, stream)| Connection {
            port: 5_000 + number,
            stream,
            acknowledged: 0,
            received: vec![],
        })
        .collect();
    let mut is_lost = move || split_mix(&mut random) % 100 < lost;
    for round in 1..5_000 {
        pair.now_ns += 20 * MS_NS;
        for connection in &mut connections {
            let segments = (connection.stream.len() / SEGMENT) as u32;
            let first = connection.acknowledged;
            for number in first..segments.min(first + WINDOW) {
                let wire = pair.enter(1, &connection.segment(number)).remove(0);
                if is_lost() {
                    continue;
                }
                let (out, back) = pair.arrive(2, &wire);
                out.iter().for_each(|network| connection.receive(network));
                for report in back {
                    if !are_reports_lost && !is_lost() {
                        pair.arrive(1, &report);
                    }
                }
            }
            if !is_lost() {
                connection.acknowledged = (connection.received.len() / SEGMENT) as u32;
            }
        }
        if connections.iter().all(Connection::is_done) {
            assert!(connections.iter().all(|connection| connection.received == connection.stream));
            return (round, pair.count(1, "packets_encoded"));
        }
    }
    panic!("not all bytes got through: {:?}", pair.ends[1].drops());
}

/// Streams with much redundancy, between and within them.
fn streams() -> Vec<Vec<u8>> {
    let common: Vec<Vec<u8>> = (0..5).map(|seed| random_bytes(seed, 3_700)).collect();
    (0..4usize).map(|n| (0..20).flat_map(|i| common[(i * (n + 1)) % 5].clone()).collect()).collect()
}

#[test]
fn all_bytes_arrive() {
    for (lost, are_reports_lost, settings) in [
        (0, false, json!({})),
        (10, false, json!({})),
        (30, false, json!({})),
        (10, true, json!({ "patience": 0 })),
        (10, true, json!({})),
    ] {
        let (rounds, encoded) = transfer(streams(), lost, are_reports_lost, &settings);
        println!("{lost} % lost, reports {are_reports_lost} lost: {rounds} rounds, {encoded} encoded");
        assert!(encoded > 50);
    }
}
