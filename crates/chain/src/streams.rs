//! The one TCP reassembler of a chain (E23): from segments as they come to byte streams in order, once for all functions.
//!
//! It stands in line with the traffic, so it does not wait for acknowledgements: what is next in order is delivered with
//! the packet that brings it, as it stands there; only what comes too early is copied, and waits. It never holds packets
//! back. What is missing is announced as a gap once bytes behind it wait and the receiver acknowledges it, or once there is
//! no memory to wait longer.
//!
//! Sequence numbers are positions modulo 2^32 (RFC 9293 3.4): whatever is more than [`WINDOW_MAX`] away from where a stream
//! stands belongs to no window and is ignored. Datagrams in fragments, of whatever protocol, are put together first, and come
//! with the fragment that completes them: as they are, and as the segment that is in them.

use nf::stream::{Deliveries, Piece, What};
use packet::memory::OutOfMemory;
use packet::parse::protocol;
use packet::{Class, Direction, DropReason, Packet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod counters;
mod datagrams;
mod held;
mod opening;
mod options;
mod saved;
mod segment;

pub use counters::StreamCounters;
use datagrams::{Added, Datagrams};
pub use datagrams::{DATAGRAM_TIMEOUT_NS, DATAGRAMS_MAX};
use held::{Block, Held, Link, New};
pub use options::{HostPolicy, StreamOptions};
pub use saved::RestoreError;
pub use segment::Segment;

/// How far from where a stream stands a segment may be, in bytes: the largest window that TCP has (RFC 7323 2.3).
pub const WINDOW_MAX: i64 = 1 << 30;

/// Where both streams of a flow stand: part of the flow's record. One cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Streams {
    halves: [Half; 2],
}

/// Where one direction's stream stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Half {
    /// The offset of the next byte in order.
    next: u64,
    /// The sequence number of offset 0.
    base: u32,
    /// That of the FIN, if one was seen; else the one behind all of the segments that a capture cut.
    fin: u32,
    /// Up to which sequence number the receiver has everything, if more than we have.
    acknowledged: u32,
    /// The list of blocks that wait, as [`Link`].
    held: u32,
    /// Bytes in them.
    held_bytes: u32,
    /// See the constants.
    flags: u32,
}

const _: () = assert!(size_of::<Streams>() == 64);

impl Half {
    /// Its first byte's sequence number is known.
    const BEGUN: u32 = 1;
    /// Nothing more comes.
    const ENDED: u32 = 2;
    /// The connection was reset. Should bytes come all the same, then the hosts did not heed the reset: it was forged.
    const RESET: u32 = 4;
    /// A FIN was seen.
    const FIN: u32 = 8;
    /// The receiver has more than we have.
    const ACKNOWLEDGED: u32 = 16;
    /// The receiver has acknowledged its beginning: no SYN begins it anew.
    const ANSWERED: u32 = 32;
    /// It began with a right checksum: one that is wrong is damaged.
    const INTACT: u32 = 64;
    /// It began with a wrong one: hardware behind us puts them in. Else nobody has heeded it.
    const DAMAGED: u32 = 128;
    /// It began with its SYN: nothing stands before that.
    const OPENED: u32 = 256;
    /// Not begun, but somebody has acknowledged that it begins with the number that stands for the first one.
    const CLAIMED: u32 = 512;
    /// A FIN was seen that counts only once it is acknowledged.
    const DOUBTFUL_FIN: u32 = 1024;
    /// A reset was announced, and nothing came since.
    const HUSHED: u32 = 2048;
    /// Behind a reset or an end, its sender has sent another SYN, which nobody has answered yet.
    const ATTEMPT: u32 = 4096;
    /// No FIN was seen, but segments that a capture cut.
    const CUT: u32 = 8192;

    /// Whether any of these flags is set.
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether bytes are wanted.
    fn is_open(&self) -> bool {
        self.flags & (Half::BEGUN | Half::ENDED) == Half::BEGUN
    }

    /// How far the sequence number is from the next byte's; none if it is in no window.
    fn distance(&self, sequence: u32) -> Option<i64> {
        let next = self.base.wrapping_add(self.next as u32);
        let distance = i64::from(sequence.wrapping_sub(next).cast_signed());
        (distance.abs() <= WINDOW_MAX).then_some(distance)
    }

    /// The offset of a sequence number in the window.
    fn offset(&self, sequence: u32) -> u64 {
        self.next.saturating_add_signed(self.distance(sequence).unwrap_or(0))
    }

    /// Up to where the receiver is known to have it; 0 if not further than we have.
    fn acknowledged(&self) -> u64 {
        if self.has(Half::ACKNOWLEDGED) { self.offset(self.acknowledged) } else { 0 }
    }

    /// A segment up to here was cut by a capture: its sender has sent all of it.
    #[cold]
    fn cut(&mut self, until: u32) {
        let is_known = self.has(Half::FIN | Half::DOUBTFUL_FIN)
            || self.has(Half::CUT) && self.offset(self.fin) >= self.offset(until);
        if !is_known && self.distance(until) > Some(0) {
            self.fin = until;
            self.flags |= Half::CUT;
        }
    }

    /// Where the stream ends; as far as possible, if that is not known.
    fn end(&self) -> u64 {
        if self.has(Half::FIN) { self.offset(self.fin) } else { u64::MAX }
    }

    /// The stream begins with this sequence number, in a segment whose checksum is known to be right, or wrong, or else is as
    /// before. Nothing waits.
    fn begin(&mut self, sequence: u32, intact: Option<bool>) {
        let checksum = match intact {
            Some(true) => Half::INTACT,
            Some(false) => Half::DAMAGED,
            None => self.flags & (Half::INTACT | Half::DAMAGED),
        };
        let flags = Half::BEGUN | checksum | self.flags & Half::OPENED;
        *self = Half { base: sequence, flags, ..Half::default() };
    }

    /// The same with a SYN.
    fn open(&mut self, first: u32, intact: Option<bool>) {
        self.begin(first, intact);
        self.flags |= Half::OPENED;
    }

    /// Whether it matters if the segment's checksum is right: who once leaves it to hardware does so always.
    fn judges(&self, segment: &Segment<'_>) -> bool {
        self.has(Half::INTACT) || !self.has(Half::BEGUN) || segment.has(Segment::SYN)
    }
}

/// Puts streams together.
pub struct Reassembler {
    options: StreamOptions,
    held: Held,
    datagrams: Datagrams,
    /// The one of them that is being read.
    whole: Vec<u8>,
    counters: StreamCounters,
    pieces: Vec<Piece>,
    ends: Vec<u32>,
    /// Blocks whose bytes the pieces name: they are free once the pieces are gone.
    delivered: Vec<u32>,
}

impl Reassembler {
    /// A reassembler with memory as the options say.
    pub fn new(options: StreamOptions) -> Result<Reassembler, OutOfMemory> {
        Ok(Reassembler {
            held: Held::new(options.memory)?,
            datagrams: Datagrams::new()?,
            whole: Vec::with_capacity(datagrams::DATAGRAM_MAX),
            options,
            counters: StreamCounters::default(),
            pieces: Vec::new(),
            ends: Vec::new(),
            delivered: Vec::new(),
        })
    }

    /// What was counted.
    pub fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Bytes of memory that wait take.
    pub fn memory_used(&self) -> usize {
        self.held.waiting() * held::BLOCK_LEN
    }

    /// A group of packets begins: what the last one's brought is gone.
    pub fn begin_group(&mut self) {
        self.pieces.clear();
        self.ends.clear();
        for block in self.delivered.drain(..) {
            self.held.release(block);
        }
        self.datagrams.begin_group();
    }

    /// The next packet of the group: what it brings to its flow's streams is noted. The answer is why it must not pass, if so.
    pub fn take(&mut self, packet: &Packet, streams: &mut Streams) -> Option<DropReason> {
        let mut refused = None;
        if let Some(mut segment) = Segment::of(packet) {
            if streams.halves[segment.direction.index()].judges(&segment) {
                segment.intact = Segment::check(packet);
            }
            self.segment(&segment, streams);
        } else if matches!(packet.meta().class, Class::FirstFragment | Class::LaterFragment) {
            refused = self.fragment(packet, streams);
        }
        self.skip();
        refused
    }

    /// A function dropped the only packet of a group.
    pub fn dropped(&mut self, packet: &Packet) {
        self.datagrams.condemn(packet);
    }

    /// A fragment of a datagram, which is read once all of it is here.
    #[cold]
    fn fragment(&mut self, packet: &Packet, streams: &mut Streams) -> Option<DropReason> {
        let meta = packet.meta();
        let direction = meta.transit.direction;
        self.counters.fragments += 1;
        // Who leaves checksums to hardware leaves it those of segments and of headers both.
        let judges = meta.protocol != protocol::TCP || streams.halves[direction.index()].has(Half::INTACT);
        if judges && !Segment::has_right_header(packet) {
            self.counters.damaged += 1;
            return None;
        }
        match self.datagrams.add(packet, &mut self.counters.fragments_lost) {
            Added::Waits => {}
            Added::Lost => self.counters.fragments_lost += 1,
            Added::Condemned => return Some(DropReason::FragmentOfDropped),
            Added::Full => return Some(DropReason::FragmentTableFull),
            Added::Whole { slot, from, until, protocol: number } => {
                let len = until.saturating_sub(from);
                let start = Datagrams::place(slot) + from;
                self.note(direction, 0, What::Datagram { start, len: len as u32, protocol: number });
                if number != protocol::TCP {
                    return None;
                }
                let mut whole = std::mem::take(&mut self.whole);
                whole.clear();
                whole.extend_from_slice(self.datagrams.memory().get(start..start + len).unwrap_or_default());
                if let Some(mut segment) = Segment::read(&whole, whole.len(), direction) {
                    segment.apart = true;
                    segment.intact = Segment::check_bytes(packet, &whole);
                    self.segment(&segment, streams);
                }
                self.whole = whole;
            }
        }
        None
    }

    /// The next packet of the group brings nothing.
    pub fn skip(&mut self) {
        self.ends.push(self.pieces.len() as u32);
    }

    /// What the group's packets brought.
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries {
            pieces: &self.pieces,
            ends: &self.ends,
            held: self.held.memory(),
            datagrams: self.datagrams.memory(),
        }
    }

    /// The flow is over: what still waits is forgotten.
    pub fn forget(&mut self, streams: &mut Streams) {
        for half in &mut streams.halves {
            self.release(half);
        }
    }

    /// Notes what a segment brings.
    pub fn segment(&mut self, segment: &Segment<'_>, streams: &mut Streams) {
        let direction = segment.direction;
        let from = direction.index();
        if segment.flags & (Segment::SYN | Segment::RST | Segment::ACK) == 0 {
            self.counters.refused += 1; // Hosts drop what acknowledges nothing (RFC 9293 3.10.7.4).
            return;
        }
        let damaged = segment.intact == Some(false) && streams.halves[from].has(Half::INTACT);
        if damaged {
            self.counters.damaged += 1;
            if segment.flags & (Segment::SYN | Segment::RST) != 0 {
                return;
            }
        }
        if segment.has(Segment::SYN) && !self.open(segment, streams) {
            return;
        }
        // Of a reset, hosts take nothing but that.
        let brings = (segment.len > 0 || segment.has(Segment::FIN)) && !segment.has(Segment::RST);
        // Hosts drop what is damaged, unless it was so only before hardware put the checksum in, or behind it; what acknowledges
        // what they never sent (RFC 9293 3.10.7.4); and most drop the bytes of a SYN (RFC 7413).
        let mut doubtful = damaged || segment.has(Segment::SYN);
        if let Some(acknowledged) = segment.acknowledged()
            && !damaged
        {
            let other = &mut streams.halves[1 - from];
            if self.has_sent(other, acknowledged) {
                self.acknowledge(direction.other(), acknowledged, other);
            } else {
                doubtful = true;
            }
        }
        let is_first_said = brings && !doubtful && Reassembler::go_on(segment, streams);
        if segment.has(Segment::RST) {
            return self.reset(segment, streams);
        }
        let half = &mut streams.halves[from];
        if half.is_open() && brings {
            self.receive(segment, doubtful, half);
        }
        if is_first_said {
            self.trust(direction, &mut streams.halves[from]);
        }
    }

    /// Bytes or an end come that nobody doubts; whether they are the first that are said to a side that was not seen.
    fn go_on(segment: &Segment<'_>, streams: &mut Streams) -> bool {
        let from = segment.direction.index();
        if !streams.halves[from].has(Half::BEGUN) {
            streams.halves[from].begin(segment.sequence, segment.intact); // The connection's opening was not seen.
        }
        let other = &mut streams.halves[1 - from];
        let is_first_said = !other.has(Half::BEGUN | Half::CLAIMED);
        if is_first_said {
            // The other side is not seen, or has not answered yet: then it will tell that this was sent in vain.
            other.base = segment.acknowledgment;
            other.flags |= Half::CLAIMED;
        }
        is_first_said
    }

    /// Nobody may be seen to acknowledge what its sender has sent: none of it is doubtful any more.
    #[cold]
    fn trust(&mut self, direction: Direction, half: &mut Half) {
        if half.is_open() {
            self.held.trust(Link(half.held));
            self.deliver_held(direction, half);
            self.skip_acknowledged(direction, half);
        }
    }

    /// Whether the sender of this half has sent what comes before this number.
    fn has_sent(&mut self, half: &Half, sequence: u32) -> bool {
        if !half.has(Half::BEGUN) {
            return true; // Who knows.
        }
        match half.distance(sequence) {
            Some(distance @ ..=0) => !half.has(Half::OPENED) || half.next >= distance.unsigned_abs(),
            Some(_) => half.offset(sequence) <= self.sent(half),
            None => {
                self.counters.out_of_window += 1;
                false
            }
        }
    }

    /// Where what its sender has sent ends, as far as it was seen; an end counts as one byte.
    #[cold]
    fn sent(&self, half: &Half) -> u64 {
        let bytes = self.held.end(Link(half.held)).unwrap_or(0).max(half.next);
        if half.has(Half::FIN | Half::DOUBTFUL_FIN) {
            bytes.max(half.offset(half.fin) + 1)
        } else if half.has(Half::CUT) {
            bytes.max(half.offset(half.fin))
        } else {
            bytes
        }
    }

    /// The receiver has everything up to here. What of it we have not seen when bytes behind it wait, we never shall; as long
    /// as none wait, it may still come: a capture may have the acknowledgement before the bytes.
    fn acknowledge(&mut self, direction: Direction, sequence: u32, half: &mut Half) {
        if !half.is_open() {
            return;
        }
        let Some(distance @ 0..) = half.distance(sequence) else { return };
        half.flags |= Half::ANSWERED;
        if distance == 0 {
            return;
        }
        if half.has(Half::DOUBTFUL_FIN) && half.fin.wrapping_add(1) == sequence {
            half.flags ^= Half::DOUBTFUL_FIN | Half::FIN;
        }
        if half.offset(half.acknowledged) < half.offset(sequence) || !half.has(Half::ACKNOWLEDGED) {
            half.acknowledged = sequence;
            half.flags |= Half::ACKNOWLEDGED;
        }
        self.skip_acknowledged(direction, half);
        if half.is_open() {
            self.deliver_held(direction, half);
        }
    }

    /// Gives up what the receiver has and we have not, as far as bytes wait behind it.
    fn skip_acknowledged(&mut self, direction: Direction, half: &mut Half) {
        if !half.has(Half::ACKNOWLEDGED) {
            return;
        }
        let until = half.acknowledged();
        let is_behind = |block: &Block| block.offset < until || block.offset == until && !block.doubtful;
        while self.held.front(Link(half.held)).is_some_and(is_behind) && half.is_open() {
            self.skip_hole(direction, until, half);
        }
        if half.next >= until {
            half.flags &= !Half::ACKNOWLEDGED;
        }
    }

    /// Bytes, or a FIN, of an open stream.
    fn receive(&mut self, segment: &Segment<'_>, doubtful: bool, half: &mut Half) {
        let direction = segment.direction;
        let Some(distance) = half.distance(segment.first()) else {
            self.counters.out_of_window += 1;
            return;
        };
        if half.has(Half::CUT) && half.distance(half.fin) <= Some(0) {
            half.flags ^= Half::CUT; // We are there.
        }
        // Of what begins before the stream does, the part before it is of no use.
        let before = (-distance).max(0) as u64;
        let start = if distance < 0 { half.next } else { half.next + distance as u64 };
        let skip = before.min(segment.payload.len() as u64);
        self.counters.bytes_again += skip;
        let mut bytes = &segment.payload[skip as usize..];
        let fin = segment.first().wrapping_add(segment.len);
        // A FIN that stands before what was received already is not heeded.
        if segment.has(Segment::FIN) && !half.has(Half::FIN) && half.distance(fin) >= Some(0) {
            half.fin = fin;
            half.flags &= !(Half::DOUBTFUL_FIN | Half::CUT);
            half.flags |= if doubtful { Half::DOUBTFUL_FIN } else { Half::FIN };
        } else if segment.payload.len() < segment.len as usize {
            half.cut(fin);
        }
        // Behind the end there is nothing.
        let most = half.end().saturating_sub(start).min(bytes.len() as u64);
        bytes = &bytes[..most as usize];
        let end = start + bytes.len() as u64;
        let follows = self.held.front(Link(half.held)).is_none_or(|block| end <= block.offset);
        let new = New { offset: start, bytes, origin: start.saturating_sub(before), doubtful };
        if doubtful {
            self.counters.doubtful += 1;
            self.counters.doubtful_lost += u64::from(!self.insert(new, half));
        } else if segment.apart {
            self.hold_apart(new, half);
        } else if start == half.next && follows {
            self.deliver_packet(direction, skip as u32, bytes.len() as u32, half);
        } else {
            self.hold(direction, new, skip as u32, half);
        }
        self.deliver_held(direction, half);
        self.skip_acknowledged(direction, half);
    }

    /// Keeps bytes that do not stand in the packet at hand, even if they are next. Without room, they are lost.
    #[cold]
    fn hold_apart(&mut self, new: New<'_>, half: &mut Half) {
        while !self.insert(new, half) {
            if !self.drop_doubtful(half) {
                self.counters.gave_up += 1;
                return;
            }
        }
    }

    /// Keeps bytes that are not next, or that others overlap; they stand `in_payload` bytes into the packet's payload.
    fn hold(&mut self, direction: Direction, new: New<'_>, in_payload: u32, half: &mut Half) {
        let end = new.offset + new.bytes.len() as u64;
        while !self.insert(new, half) {
            if self.drop_doubtful(half) {
                continue;
            }
            // Without room to wait, what is missing is given up, until these bytes have room, or are next.
            self.counters.gave_up += 1;
            self.skip_hole(direction, new.offset, half);
            while (new.offset..end).contains(&half.next) {
                let until = self.held.front(Link(half.held)).map_or(end, |block| end.min(block.offset));
                let start = in_payload + (half.next - new.offset) as u32;
                self.deliver_packet(direction, start, (until - half.next) as u32, half);
                self.deliver_held(direction, half);
            }
            if half.next >= end {
                return;
            }
        }
    }

    /// Gives up what is doubtful; whether anything was.
    fn drop_doubtful(&mut self, half: &mut Half) -> bool {
        let mut list = Link(half.held);
        let bytes = self.held.release_doubtful(&mut list);
        half.held = list.0;
        half.held_bytes -= bytes;
        self.counters.doubtful_lost += u64::from(bytes > 0);
        bytes > 0
    }

    /// Adds bytes to those that wait; false if there was no room for all of them.
    fn insert(&mut self, new: New<'_>, half: &mut Half) -> bool {
        let room = self.options.memory_per_stream.saturating_sub(half.held_bytes) as usize;
        if new.bytes.len() > room {
            return false;
        }
        let mut list = Link(half.held);
        let inserted = self.held.insert(&mut list, new, self.options.policy);
        half.held = list.0;
        half.held_bytes += inserted.added;
        self.counters.bytes_early += u64::from(inserted.added);
        self.counters.differing += u64::from(inserted.differ);
        inserted.whole
    }

    /// Gives up what is missing up to the bytes that wait, at most up to `until` and the stream's end; delivers what then is
    /// next.
    fn skip_hole(&mut self, direction: Direction, until: u64, half: &mut Half) {
        let until = until.min(half.end());
        let hole = self.held.front(Link(half.held)).map_or(until, |block| until.min(block.offset));
        if hole > half.next {
            let len = hole - half.next;
            self.note(direction, half.next, What::Gap { len });
            self.counters.gaps += 1;
            self.counters.bytes_missing += len;
            half.next = hole;
        }
        self.deliver_held(direction, half);
    }

    /// Bytes of the packet at hand are next.
    fn deliver_packet(&mut self, direction: Direction, start: u32, len: u32, half: &mut Half) {
        if len > 0 {
            self.note(direction, half.next, What::InPacket { start, len });
            self.counters.bytes += u64::from(len);
            half.next += u64::from(len);
            half.flags &= !Half::HUSHED;
        }
    }

    /// Delivers what waits and now is next, and the stream's end if that is next.
    fn deliver_held(&mut self, direction: Direction, half: &mut Half) {
        let mut list = Link(half.held);
        // Behind the end there is nothing, whatever came of it before the end was known.
        let last = half.end();
        while let Some(&block) = self.held.front(list)
            && block.offset <= half.next
            && half.next < last
        {
            if block.doubtful {
                let until = half.acknowledged();
                if until <= half.next {
                    break;
                }
                half.held_bytes -= self.held.part_front(list, until);
            }
            let Some((number, block)) = self.held.pop(&mut list) else { break };
            self.delivered.push(number);
            half.held_bytes -= block.len;
            let skip = half.next - block.offset;
            if let Some(len @ 1..) = block.end().min(last).checked_sub(half.next) {
                let start = self.held.place(number) + skip as usize;
                self.note(direction, half.next, What::Held { start, len: len as u32 });
                self.counters.bytes += len;
                half.next += len;
                half.flags &= !Half::HUSHED;
            }
        }
        half.held = list.0;
        if half.next >= last {
            self.note(direction, half.next, What::Finished);
            self.release(half);
            half.flags |= Half::ENDED;
        }
    }

    /// Gives back what waits.
    fn release(&mut self, half: &mut Half) {
        let mut list = Link(half.held);
        self.held.release_all(&mut list);
        (half.held, half.held_bytes) = (0, 0);
    }

    fn note(&mut self, direction: Direction, offset: u64, what: What) {
        self.pieces.push(Piece { direction, offset, what });
    }
}
