//! Segments, acknowledgements, resets and new connections of both directions of a flow, in any
//! order, overlapping and contradictory, with moves to another unit between them. The reassembler
//! delivers the same as a model that keeps every byte. Arbitrary saved streams do not make it
//! panic.
//!
//! Input: the policy and the client's initial sequence number, the server's is opposite; then steps
//! of four bytes. Bit 4 of a step's first byte gives its sender; the bits above it, the reasons for
//! which hosts may not accept it.

#![no_main]

use graph::streams::HostPolicy;
use libfuzzer_sys::fuzz_target;
use packet::Direction;

#[path = "../../crates/graph/tests/stream_model/mod.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod stream_model;

use stream_model::{ACK, Bench, FIN, Model, RST, SYN, Seen};

const POLICIES: [HostPolicy; 4] = [HostPolicy::First, HostPolicy::Last, HostPolicy::Bsd, HostPolicy::Linux];

/// The traffic of one end on the current connection.
#[derive(Default)]
struct End {
    /// Sequence number of its SYN.
    isn: u32,
    model: Model,
    /// Bytes up to the last one sent.
    sent: u64,
}

impl End {
    /// Starts a new connection.
    fn begin(&mut self, isn: u32) {
        let seen = std::mem::take(&mut self.model.seen);
        *self = End { isn, ..End::default() };
        self.model.seen = seen;
    }

    fn number(&self, offset: u64) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset as u32)
    }
}

/// The reason why hosts may not accept a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// It acknowledges unsent data: this far from the stream's position.
    Acknowledges(u32),
    /// Its checksum is wrong.
    Damaged,
}

struct Connection {
    bench: Bench,
    ends: [End; 2],
}

impl Connection {
    /// Sends a segment from the end that a direction starts at; it acknowledges the other's whole
    /// stream.
    fn send(&mut self, from: Direction, flags: u8, number: u32, payload: &[u8]) {
        self.send_in_doubt(from, flags, number, payload, None);
    }

    fn send_in_doubt(
        &mut self,
        from: Direction,
        flags: u8,
        number: u32,
        payload: &[u8],
        doubt: Option<Doubt>,
    ) {
        let other = &self.ends[from.other().index()];
        let away = if let Some(Doubt::Acknowledges(away)) = doubt { away } else { 0 };
        let acknowledgment = other.number(other.model.next()).wrapping_add(away);
        self.bench.intact = Some(doubt != Some(Doubt::Damaged));
        self.bench.segment(from, flags, number, acknowledgment, payload);
        self.bench.intact = Some(true);
    }

    fn open(&mut self, client: Direction, client_isn: u32, server_isn: u32) {
        self.ends[client.index()].begin(client_isn);
        self.ends[client.other().index()].begin(server_isn);
        self.bench.segment(client, SYN, client_isn, 0, b"");
        self.send(client.other(), SYN | ACK, server_isn, b"");
        self.send(client, ACK, client_isn.wrapping_add(1), b"");
    }

    /// Only the answer to a SYN is seen: another connection starts with it, unnoticed by both ends.
    fn answer(&mut self, server: Direction, server_isn: u32) {
        let client = &mut self.ends[server.other().index()];
        client.model.seen.push(Seen::Restart);
        client.begin(client.isn.wrapping_sub(1 << 20));
        let acknowledged = client.number(0);
        self.ends[server.index()].begin(server_isn);
        self.send(server, SYN | ACK, server_isn, b"");
        self.send(server.other(), ACK, acknowledged, b"");
    }

    fn is_over(&self) -> bool {
        self.ends.iter().any(|end| end.model.is_over())
    }

    fn is_closed(&self) -> bool {
        self.ends.iter().all(|end| end.model.has_ended())
    }

    /// A reset, which hosts accept at the stream's position and after all pending data; reported
    /// once, unless bytes follow.
    fn reset(&mut self, from: Direction, offset: u64) {
        let end = &self.ends[from.index()];
        let is_heeded = offset == end.model.next() || end.model.waits_until() == Some(offset);
        self.send(from, RST | ACK, end.number(offset), b"");
        if !is_heeded {
            return self.suspect(from);
        }
        self.ends.iter_mut().for_each(|end| end.model.reset());
    }

    /// A reset or a SYN was refused: until something else arrives from its sender, it may have
    /// ended the connection.
    fn suspect(&mut self, from: Direction) {
        if !self.ends[from.index()].model.has_come() {
            self.ends.iter_mut().for_each(|end| end.model.suspect());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[policy, a, b, c, d], steps)) = data.split_first_chunk() else { return };
    let (policy, isn) = (POLICIES[usize::from(policy % 4)], u32::from_le_bytes([a, b, c, d]));
    let mut flow = Connection { bench: Bench::with_policy(policy), ends: Default::default() };
    flow.bench.intact = Some(true);
    flow.open(Direction::Original, isn, !isn);
    for (i, &[step, start, len, high]) in steps.as_chunks().0.iter().enumerate() {
        let from = if step & 16 == 0 { Direction::Original } else { Direction::Reply };
        let (is_over, is_closed) = (flow.is_over(), flow.is_closed());
        let end = &mut flow.ends[from.index()];
        // Most are at most 16 bytes apart, so that they meet; a few are far ahead.
        let offset = u64::from(start) + if high > 250 { 16 * u64::from(high) } else { 0 };
        match step % 16 {
            // The other end has everything up to here, including unseen bytes.
            0 => {
                let until = offset.min(end.sent);
                end.model.acknowledged(until);
                let (acknowledged, other) = (end.number(until), &flow.ends[from.other().index()]);
                let number = other.number(other.model.next());
                flow.bench.segment(from.other(), ACK, number, acknowledged, b"");
            }
            1 => {
                let (bench, mut saved) = (&mut flow.bench, Vec::new());
                bench.reassembler.save(&bench.streams, &mut saved);
                bench.reassembler.forget(&mut bench.streams);
                bench.streams = bench.reassembler.restore(&saved).expect("what was saved");
            }
            2 => {
                let offset = end.model.next() + if high % 2 == 0 { 0 } else { 1 + u64::from(start) };
                flow.reset(from, offset);
            }
            3 if is_over && high % 2 == 0 => {
                end.model.seen.push(Seen::Restart);
                let [client, server] = [from, from.other()].map(|end| flow.ends[end.index()].isn);
                // Another number than before: with the same one it would be the old SYN.
                let far = |by: u8| (u32::from(by) + 1) << 20;
                flow.open(from, client.wrapping_add(far(start)), server.wrapping_add(far(len)));
            }
            3 => {
                let astray = end.number(1_000 + u64::from(start));
                if is_closed {
                    flow.answer(from, astray);
                    continue;
                }
                flow.send(from, if high % 2 == 0 { SYN } else { SYN | ACK }, astray, b"");
                if !is_over {
                    flow.suspect(from);
                }
            }
            kind => {
                let doubt = match step >> 5 {
                    5 => Some(Doubt::Acknowledges(100_000)),
                    6 => Some(Doubt::Acknowledges(100_000u32.wrapping_neg())),
                    7 => Some(Doubt::Damaged),
                    _ => None,
                };
                let bytes: Vec<u8> = (0..len).map(|j| if kind < 10 { j } else { i as u8 }).collect();
                let fin = kind == 4 && high < 8;
                end.model.receive(offset, &bytes, fin, doubt.is_some(), policy);
                end.sent = end.sent.max(offset + bytes.len() as u64 + u64::from(fin));
                let number = end.number(offset);
                flow.send_in_doubt(from, if fin { ACK | FIN } else { ACK }, number, &bytes, doubt);
            }
        }
        for (end, seen) in flow.ends.iter().zip(&flow.bench.seen) {
            assert_eq!(*seen, end.model.seen);
        }
    }
    let Connection { mut bench, .. } = flow;
    bench.reassembler.forget(&mut bench.streams);
    assert_eq!(bench.reassembler.memory_used(), 0);
    if let Ok(mut streams) = bench.reassembler.restore(data) {
        bench.reassembler.forget(&mut streams);
    }
});
