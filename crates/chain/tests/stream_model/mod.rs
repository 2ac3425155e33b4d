//! A flow's streams under test, and a model of them that keeps every byte by itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use chain::streams::{HostPolicy, Reassembler, Segment, StreamOptions, Streams};
use nf::stream::StreamEventKind;
use packet::Direction;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// What happened to a stream, bytes put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Restart,
    Data(u64, Vec<u8>),
    Gap(u64, u64),
    Finished(u64),
    Reset(u64),
}

/// A reassembler with the streams of one flow.
pub struct Bench {
    pub reassembler: Reassembler,
    pub streams: Streams,
    pub seen: [Vec<Seen>; 2],
    /// Whether the next segments' checksums are right, if anybody looks.
    pub intact: Option<bool>,
}

impl Bench {
    pub fn new(options: StreamOptions) -> Bench {
        let reassembler = Reassembler::new(options).unwrap();
        Bench { reassembler, streams: Streams::default(), seen: [Vec::new(), Vec::new()], intact: None }
    }

    pub fn with_policy(policy: HostPolicy) -> Bench {
        Bench::new(StreamOptions { policy, ..StreamOptions::default() })
    }

    pub fn segment(
        &mut self,
        direction: Direction,
        flags: u8,
        sequence: u32,
        acknowledgment: u32,
        payload: &[u8],
    ) {
        self.cut_segment(direction, flags, sequence, acknowledgment, payload, payload.len());
    }

    /// A segment of which only so much was captured.
    pub fn cut_segment(
        &mut self,
        direction: Direction,
        flags: u8,
        sequence: u32,
        acknowledgment: u32,
        payload: &[u8],
        captured: usize,
    ) {
        let segment = Segment {
            direction,
            sequence,
            acknowledgment,
            flags,
            len: payload.len() as u32,
            payload: &payload[..captured],
            intact: self.intact,
            apart: false,
        };
        self.reassembler.begin_group();
        self.reassembler.segment(&segment, &mut self.streams);
        self.reassembler.skip();
        for event in self.reassembler.deliveries().of(0, &payload[..captured]) {
            let seen = &mut self.seen[event.direction.index()];
            match (event.kind, seen.last_mut()) {
                (StreamEventKind::Data(bytes), Some(Seen::Data(offset, before)))
                    if *offset + before.len() as u64 == event.offset =>
                {
                    before.extend_from_slice(bytes);
                }
                (StreamEventKind::Data(bytes), _) => seen.push(Seen::Data(event.offset, bytes.to_vec())),
                (StreamEventKind::Gap(len), _) => seen.push(Seen::Gap(event.offset, len)),
                (StreamEventKind::Restart, _) => seen.push(Seen::Restart),
                (StreamEventKind::Finished, _) => seen.push(Seen::Finished(event.offset)),
                (StreamEventKind::Reset, _) => seen.push(Seen::Reset(event.offset)),
            }
        }
    }

    /// Client and server open the connection; the client's bytes begin at `sequence` + 1.
    pub fn open(&mut self, sequence: u32) {
        self.segment(Direction::Original, SYN, sequence, 0, b"");
        self.segment(Direction::Reply, SYN | ACK, 900, sequence.wrapping_add(1), b"");
        self.segment(Direction::Original, ACK, sequence.wrapping_add(1), 901, b"");
    }

    pub fn client(&mut self, sequence: u32, payload: &[u8]) {
        self.segment(Direction::Original, ACK, sequence, 901, payload);
    }

    pub fn server_acknowledges(&mut self, sequence: u32) {
        self.segment(Direction::Reply, ACK, 901, sequence, b"");
    }
}

/// A byte that waits.
#[derive(Clone, Copy)]
struct Waiting {
    byte: u8,
    /// Where its segment began.
    origin: u64,
    doubtful: bool,
}

/// One direction's stream, byte by byte.
#[derive(Default)]
pub struct Model {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    fin: Option<u64>,
    doubtful_fin: Option<u64>,
    ended: bool,
    acknowledged: u64,
    pub seen: Vec<Seen>,
}

impl Model {
    /// A segment; a `doubtful` one acknowledges what was not sent.
    pub fn receive(&mut self, start: u64, bytes: &[u8], fin: bool, doubtful: bool, policy: HostPolicy) {
        if self.ended {
            return;
        }
        let end = start + bytes.len() as u64;
        if fin && self.fin.is_none() && end >= self.next {
            (self.fin, self.doubtful_fin) = if doubtful { (None, Some(end)) } else { (Some(end), None) };
        }
        for (offset, &byte) in (start..).zip(bytes) {
            if offset < self.next || self.fin.is_some_and(|fin| offset >= fin) {
                continue;
            }
            let new = Waiting { byte, origin: start, doubtful };
            let kept = self.waiting.entry(offset).or_insert(new);
            let replaces = match policy {
                _ if doubtful != kept.doubtful => kept.doubtful,
                HostPolicy::First => false,
                HostPolicy::Last => true,
                HostPolicy::Bsd => start < kept.origin,
                HostPolicy::Linux => start <= kept.origin,
            };
            if replaces {
                *kept = new;
            }
        }
        self.deliver();
        self.skip_acknowledged();
    }

    fn deliver(&mut self) {
        if self.ended {
            return;
        }
        while self.fin.is_none_or(|fin| self.next < fin)
            && let Some(&Waiting { byte, doubtful, .. }) = self.waiting.get(&self.next)
            && (!doubtful || self.next < self.acknowledged)
        {
            self.waiting.remove(&self.next);
            match self.seen.last_mut() {
                Some(Seen::Data(offset, bytes)) if *offset + bytes.len() as u64 == self.next => {
                    bytes.push(byte)
                }
                _ => self.seen.push(Seen::Data(self.next, vec![byte])),
            }
            self.next += 1;
        }
        if self.fin.is_some_and(|fin| self.next >= fin) {
            self.seen.push(Seen::Finished(self.next));
            self.ended = true;
        }
    }

    pub fn acknowledged(&mut self, until: u64) {
        let waiting = self.waiting.last_key_value().map_or(0, |(last, _)| last + 1);
        let fin = self.fin.or(self.doubtful_fin).map_or(0, |fin| fin + 1);
        if self.ended || until > self.next.max(waiting).max(fin) {
            return; // Nobody has sent that.
        }
        if self.doubtful_fin.is_some_and(|fin| fin + 1 == until) && until > self.next {
            self.fin = self.doubtful_fin.take();
        }
        self.acknowledged = self.acknowledged.max(until);
        self.deliver();
        self.skip_acknowledged();
    }

    fn skip_acknowledged(&mut self) {
        while let Some((&first, waiting)) = self.waiting.first_key_value()
            && first + u64::from(waiting.doubtful) <= self.acknowledged
            && !self.ended
        {
            let until = self.fin.map_or(first, |fin| first.min(fin));
            self.seen.push(Seen::Gap(self.next, until - self.next));
            self.next = until;
            self.deliver();
        }
    }
}
