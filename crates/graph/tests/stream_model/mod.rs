//! A flow's streams under test, and a model of them that keeps every byte by itself.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use graph::streams::{HostPolicy, Reassembler, Segment, SegmentOptions, StreamOptions, Streams};
use nf::stream::StreamEventKind;
use packet::{Direction, DropReason};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;

/// The events of a stream, with bytes put together.
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
    /// True if the next segments' checksums are right, if anybody looks.
    pub intact: Option<bool>,
    /// Their options.
    pub options: SegmentOptions,
    /// Their urgent pointer.
    pub urgent: u16,
    /// Why the last one is not to pass, if it is not.
    pub fate: Option<DropReason>,
}

impl Bench {
    pub fn new(options: StreamOptions) -> Bench {
        let reassembler = Reassembler::new(options).unwrap();
        Bench {
            reassembler,
            streams: Streams::default(),
            seen: [Vec::new(), Vec::new()],
            intact: None,
            options: SegmentOptions::default(),
            urgent: 0,
            fate: None,
        }
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

    /// A segment that was captured in part.
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
            // As large a window as there is.
            window: u16::MAX,
            options: SegmentOptions { scale: (flags & SYN != 0).then_some(14), ..self.options },
            urgent: self.urgent,
            intact: self.intact,
            ..Segment::default()
        };
        self.reassembler.begin_group();
        self.fate = self.reassembler.judge(&segment, &mut self.streams);
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

/// A byte, or an end, that waits.
#[derive(Clone, Copy)]
struct Waiting {
    byte: u8,
    /// Its segment's span.
    span: (u64, u64),
    doubt: u8,
    fin: bool,
}

/// One direction's stream, byte by byte. Its receiver has answered.
#[derive(Default)]
pub struct Model {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    ended: bool,
    /// The connection was reset: bytes count once they are acknowledged.
    is_reset: bool,
    /// The same, as what was refused may have ended it.
    is_suspect: bool,
    /// A reset was seen, and no byte since.
    is_hushed: bool,
    acknowledged: u64,
    pub seen: Vec<Seen>,
}

/// The doubt of segments that acknowledge what was not sent, or may come after an end.
const IGNORED: u8 = 3;
const UNSURE: u8 = 1;

impl Model {
    /// A segment; a `doubtful` one acknowledges what was not sent.
    pub fn receive(&mut self, start: u64, bytes: &[u8], fin: bool, doubtful: bool, policy: HostPolicy) {
        let end = start + bytes.len() as u64;
        let fin = fin && end >= self.next + u64::from(self.ended);
        let doubt = match doubtful {
            true => IGNORED,
            false => u8::from(self.is_unsure() && (!bytes.is_empty() || fin)) * UNSURE,
        };
        let from = start.max(self.next);
        // What a host takes at once if it takes it at all, nothing replaces.
        let at_once = doubt > 0 && from == self.next;
        let own = if at_once { (0, u64::MAX) } else { (start, end.max(self.next) + u64::from(fin)) };
        let is_next = doubt == 0 && from == self.next;
        // If it needs no room, it is with no other.
        let mut span = own;
        let is_plain = is_next && self.waiting.keys().next().is_none_or(|first| end <= *first);
        if policy == HostPolicy::Linux && !is_plain {
            span = self.join(own, doubt);
        }
        let next = self.next;
        for (offset, &byte) in (start..).zip(bytes).filter(|(offset, _)| *offset >= next) {
            self.wait(offset, Waiting { byte, span, doubt, fin: false }, policy);
        }
        if is_plain {
            self.deliver_until(end);
        }
        if fin {
            if is_next && end == self.next {
                self.end();
            } else {
                self.wait(end, Waiting { byte: 0, span: own, doubt, fin: true }, policy);
            }
        }
        self.deliver();
        self.skip_acknowledged();
    }

    /// Joins a segment with the last queued one, or with the last one that begins before it, if it
    /// continues it.
    fn join(&mut self, new: (u64, u64), doubt: u8) -> (u64, u64) {
        let of_kind = |one: &&Waiting| one.doubt == doubt && !one.fin;
        let spans: Vec<_> = self.waiting.values().filter(of_kind).map(|one| one.span).collect();
        let last = spans.iter().copied().max_by_key(|span| span.0).filter(|span| span.1 == new.0);
        let before = spans.iter().copied().filter(|span| span.0 <= new.0).max_by_key(|span| span.0);
        let Some(old) = last.or(before.filter(|span| span.1 == new.0)) else { return new };
        for one in self.waiting.values_mut().filter(|one| one.span == old) {
            one.span = (old.0, new.1);
        }
        (old.0, new.1)
    }

    fn wait(&mut self, offset: u64, new: Waiting, policy: HostPolicy) {
        let kept = self.waiting.entry(offset).or_insert(new);
        let (from, old_from) = (new.span.0, kept.span.0);
        let replaces = match policy {
            _ if new.doubt != kept.doubt => new.doubt < kept.doubt,
            HostPolicy::First => false,
            HostPolicy::Last => true,
            HostPolicy::Bsd => from < old_from,
            HostPolicy::Linux => from < old_from || from == old_from && new.span.1 > kept.span.1,
        };
        if replaces {
            *kept = new;
        }
    }

    fn end(&mut self) {
        self.seen.push(Seen::Finished(self.next));
        self.ended = true;
        for one in self.waiting.values_mut() {
            one.doubt = one.doubt.max(UNSURE);
        }
    }

    fn deliver(&mut self) {
        self.deliver_until(u64::MAX);
    }

    fn deliver_until(&mut self, end: u64) {
        while !self.ended
            && self.next < end
            && let Some(&Waiting { byte, doubt, fin, .. }) = self.waiting.get(&self.next)
        {
            if doubt > 0 && self.next >= self.acknowledged {
                return;
            }
            self.waiting.remove(&self.next);
            if fin && doubt > 0 && self.acknowledged != self.next + 1 {
                continue;
            }
            if fin {
                self.end();
                return;
            }
            match self.seen.last_mut() {
                Some(Seen::Data(offset, bytes)) if *offset + bytes.len() as u64 == self.next => {
                    bytes.push(byte)
                }
                _ => self.seen.push(Seen::Data(self.next, vec![byte])),
            }
            self.next += 1;
            self.is_hushed = false;
        }
    }

    fn is_unsure(&self) -> bool {
        self.is_over() || self.is_suspect
    }

    /// The connection is reset.
    pub fn reset(&mut self) {
        if !self.ended && !self.is_hushed {
            self.seen.push(Seen::Reset(self.next));
        }
        (self.is_reset, self.is_hushed) = (true, true);
    }

    /// A refused segment may have ended the connection.
    pub fn suspect(&mut self) {
        self.is_suspect = true;
    }

    /// Returns the stream's next offset.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns true if its end came, and nothing after it was acknowledged.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The same, or a reset.
    pub fn is_over(&self) -> bool {
        self.ended || self.is_reset
    }

    /// Returns true if any of it came that hosts do not ignore.
    pub fn has_come(&self) -> bool {
        self.next > 0
            || self.ended
            || self.acknowledged > 0
            || self.waiting.values().any(|waiting| waiting.doubt == 0)
    }

    /// Returns the end of all that waits.
    pub fn waits_until(&self) -> Option<u64> {
        self.waiting.last_key_value().map(|(last, _)| last + 1)
    }

    pub fn acknowledged(&mut self, until: u64) {
        let end = self.next + u64::from(self.ended);
        if until > end.max(self.waits_until().unwrap_or(0)) || until <= end {
            return; // Not sent yet, or known already.
        }
        (self.ended, self.is_reset, self.is_suspect) = (false, false, false);
        self.acknowledged = self.acknowledged.max(until);
        self.deliver();
        self.skip_acknowledged();
    }

    fn skip_acknowledged(&mut self) {
        while let Some((&first, waiting)) = self.waiting.first_key_value()
            && first + u64::from(waiting.doubt > 0) <= self.acknowledged
            && !self.ended
        {
            if first > self.next {
                self.seen.push(Seen::Gap(self.next, first - self.next));
                self.next = first;
            }
            self.deliver();
        }
    }
}
