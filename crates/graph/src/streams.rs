//! The one TCP reassembler of a graph (E23): from segments as they come to byte streams in order,
//! once for all functions.
//!
//! It stands in line with the traffic, so it does not wait for acknowledgements: what is next in
//! order is delivered with the packet that brings it, as it stands there; only what comes too early
//! is copied, and waits. It never holds packets back. What is missing is announced as a gap once
//! bytes behind it wait and the receiver acknowledges it, or once there is no memory to wait
//! longer.
//!
//! Sequence numbers are positions modulo 2^32 (RFC 9293 3.4): whatever is more than [`WINDOW_MAX`]
//! away from where a stream stands belongs to no window and is ignored. Datagrams in fragments, of
//! whatever protocol, are put together first, and come with the fragment that completes them: as
//! they are, and as the segment that is in them.

use nf::record::RecordHeader;
use nf::stream::{Deliveries, StreamPiece, StreamPieceKind};
use packet::memory::OutOfMemory;
use packet::parse::protocol;
use packet::{DropReason, Packet, PacketClass};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod acknowledging;
mod counters;
mod datagrams;
mod delivering;
pub mod doubt;
mod expected;
mod half;
mod held;
mod holding;
mod lists;
mod network;
mod normalize;
mod opening;
mod options;
mod saved;
mod segment;
mod sent;
mod shortage;
mod span;

pub use counters::StreamCounters;
use datagrams::Added;
pub(crate) use datagrams::Datagrams;
pub use datagrams::{
    DATAGRAM_TIMEOUT_NS, DATAGRAM_TIMEOUT_V6_NS, DATAGRAMS_MAX, HELD_BACK_MAX, HELD_BACK_MEMORY,
};
pub(crate) use datagrams::{Passing, Unheld};
use held::Held;
use lists::Owner;
use normalize::Difference;
pub use options::{
    Differing, HostPolicy, LowTtl, StreamOptions, TTL_MIN, TTL_MIN_INLINE, Urgent, WhenMemoryFull,
};
pub use saved::StreamRestoreError;
pub use segment::{Segment, SegmentOptions};
pub use sent::{SENT_MAX, SENT_MEMORY};
pub use shortage::{MemoryOf, ShortOf};

/// Maximum distance of a segment from its stream's next byte: the largest window that TCP has
/// (RFC 7323 2.3).
pub const WINDOW_MAX: i64 = 1 << 30;

/// The state of both streams of a flow: part of the flow's record. Two cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Streams {
    halves: [Half; 2],
}

/// The state of one direction's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Half {
    /// The offset of the next byte in order.
    next: u64,
    /// The sequence number of offset 0.
    base: u32,
    /// The one after all of the segments that a capture cut.
    fin: u32,
    /// Up to which sequence number the receiver has everything, if more than we have.
    acknowledged: u32,
    /// The list of blocks that wait: one more than its number.
    held: u32,
    /// Bytes in them.
    held_bytes: u32,
    /// See the constants.
    flags: u32,
    /// The receiver has offered to take what comes before this sequence number.
    edge: u32,
    /// The last timestamp that the receiver has taken from a segment in order (RFC 7323 4.3).
    timestamp: u32,
    /// The sequence number of the byte that is urgent.
    urgent: u32,
    /// By how many bits the sender's windows are shifted.
    scale: u16,
    /// Urgent bytes that were taken out of the stream.
    taken: u16,
    /// The receiver has acknowledged what comes before this sequence number.
    has: u32,
    /// In line, the list of blocks with what was sent and is not acknowledged: one more than its
    /// number, its last block, as [`lists::BlockLink`], and bytes in it.
    sent: u32,
    sent_last: u32,
    sent_bytes: u32,
}

const _: () = assert!(size_of::<Streams>() == 128);

/// Puts streams together.
pub struct Reassembler {
    options: StreamOptions,
    held: Held,
    /// In line, what was sent and is not acknowledged.
    sent: Held,
    /// The owner of the current packet.
    owner: Owner,
    /// The memory shortage that the current packet met.
    short: Option<ShortOf>,
    /// Why the packet at hand is not to pass.
    fate: Option<DropReason>,
    ttl_min: u8,
    /// True if packets are changed, so that hosts can read them in one way only.
    normalizes: bool,
    /// The difference of the current packet from what was sent before.
    difference: Option<Difference>,
    datagrams: Datagrams,
    /// The one of them that is being read.
    whole: Vec<u8>,
    counters: StreamCounters,
    pieces: Vec<StreamPiece>,
    ends: Vec<u32>,
    /// Blocks whose bytes the pieces name: they are free once the pieces are gone.
    delivered: Vec<u32>,
}

impl Reassembler {
    /// A reassembler with memory as the options say.
    pub fn new(options: StreamOptions) -> Result<Reassembler, OutOfMemory> {
        Ok(Reassembler {
            held: Held::new(options.memory, options.per_source, options.seed)?,
            sent: Held::new(if options.inline { SENT_MEMORY } else { 0 }, options.per_source, options.seed)?,
            owner: Owner::default(),
            short: None,
            fate: None,
            ttl_min: options.ttl_min.unwrap_or(if options.inline { TTL_MIN_INLINE } else { TTL_MIN }),
            normalizes: options.inline
                && (options.low_ttl == LowTtl::Raise || options.differing == Differing::Replace),
            difference: None,
            datagrams: Datagrams::new(options.inline)?,
            whole: Vec::with_capacity(datagrams::DATAGRAM_MAX),
            options,
            counters: StreamCounters::default(),
            pieces: Vec::new(),
            ends: Vec::new(),
            delivered: Vec::new(),
        })
    }

    /// Returns the counters.
    pub fn counters(&self) -> StreamCounters {
        StreamCounters { gave_way: self.held.gave_way() + self.sent.gave_way(), ..self.counters }
    }

    /// Returns the number of accounts of sources.
    pub fn accounts(&self) -> usize {
        self.held.lists().accounts()
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

    /// The next packet is of the flow with this header.
    #[inline]
    pub fn own(&mut self, header: &RecordHeader) {
        self.owner = Owner::of(header);
    }

    /// The next packet of the group: what it brings to its flow's streams is noted. In line, why it
    /// is not to pass, if it is not.
    pub fn take(&mut self, packet: &Packet, streams: &mut Streams) -> Option<DropReason> {
        self.read(packet, streams);
        self.skip();
        self.fate
    }

    /// Notes what a packet brings.
    fn read(&mut self, packet: &Packet, streams: &mut Streams) {
        (self.fate, self.short) = (None, None);
        if let Some(mut segment) = Segment::of(packet) {
            if streams.halves[segment.direction.index()].judges(&segment) {
                segment.intact = Segment::check(packet);
            }
            segment.ignored = Segment::is_ignored(packet, self.ttl_min);
            self.segment(&segment, streams);
        } else if matches!(packet.meta().class, PacketClass::FirstFragment | PacketClass::LaterFragment) {
            let refused = self.fragment(packet, streams);
            self.fate = refused.or(self.fate);
        }
    }

    /// In line, the packet at hand is not to pass.
    fn keep_out(&mut self, reason: DropReason) {
        if self.options.inline {
            self.fate = Some(reason);
        }
    }

    /// The datagrams in fragments.
    pub(crate) fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }

    /// The same, to be changed, and where it is counted how many were given up.
    pub(crate) fn datagrams_mut(&mut self) -> (&mut Datagrams, &mut u64) {
        (&mut self.datagrams, &mut self.counters.fragments_lost)
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
            self.keep_out(DropReason::StreamIgnored);
            return None;
        }
        if Segment::is_ignored(packet, self.ttl_min) {
            self.counters.ignored += 1;
            self.keep_out(DropReason::StreamIgnored);
            return None;
        }
        match self.datagrams.add(packet, &mut self.counters.fragments_lost) {
            Added::Waits => {}
            Added::Lost => {
                self.counters.fragments_lost += 1;
                self.keep_out(DropReason::StreamIgnored);
            }
            Added::Condemned => return Some(DropReason::FragmentOfDropped),
            Added::Full => return Some(DropReason::FragmentTableFull),
            Added::Whole { slot, from, until, protocol: number } => {
                let len = until.saturating_sub(from);
                let start = Datagrams::place(slot) + from;
                self.note(
                    direction,
                    0,
                    StreamPieceKind::Datagram { start, len: len as u32, protocol: number },
                );
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

    /// Returns what the group's packets brought.
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries {
            pieces: &self.pieces,
            ends: &self.ends,
            held: self.held.memory(),
            datagrams: self.datagrams.memory(),
        }
    }

    /// Forgets what still waits of a flow that has ended.
    pub fn forget(&mut self, streams: &mut Streams) {
        for half in &mut streams.halves {
            self.release(half);
        }
    }

    /// Detaches the datagrams of a flow that has ended: they go on without it.
    pub fn leave_datagrams(&mut self, flow: u32) {
        self.datagrams.leave(flow);
    }

    /// The flow with this record is elsewhere, and so are its datagrams.
    pub fn forget_datagrams(&mut self, flow: u32) {
        self.datagrams.forget(flow);
    }

    /// The next packet of the group has this segment: what it brings is noted. In line, why it is
    /// not to pass, if it is not.
    pub fn judge(&mut self, segment: &Segment<'_>, streams: &mut Streams) -> Option<DropReason> {
        (self.fate, self.short) = (None, None);
        self.segment(segment, streams);
        self.fate
    }

    /// Notes what a segment brings.
    pub fn segment(&mut self, segment: &Segment<'_>, streams: &mut Streams) {
        if self.take_expected(segment, streams) {
            return;
        }
        let direction = segment.direction;
        let from = direction.index();
        for half in &mut streams.halves {
            if half.held != 0 {
                self.look_for_loss(half);
            }
        }
        if segment.flags & (Segment::SYN | Segment::RST | Segment::ACK) == 0 {
            self.counters.refused += 1; // Hosts drop what acknowledges nothing (RFC 9293 3.10.7.4).
            return self.keep_out(DropReason::StreamIgnored);
        }
        let damaged = segment.intact == Some(false) && streams.halves[from].has(Half::INTACT);
        if damaged {
            self.counters.damaged += 1;
        } else if segment.ignored {
            self.counters.ignored += 1;
        }
        if damaged || segment.ignored {
            self.keep_out(DropReason::StreamIgnored);
            if segment.flags & (Segment::SYN | Segment::RST) != 0 || self.options.inline {
                return;
            }
        }
        let is_syn = segment.has(Segment::SYN) && !segment.has(Segment::RST);
        if is_syn && !self.open(segment, streams) {
            if segment.len > 0 {
                self.keep_out(DropReason::StreamIgnored);
            }
            return;
        }
        // Of a reset, hosts take nothing but that.
        let brings = (segment.len > 0 || segment.has(Segment::FIN)) && !segment.has(Segment::RST);
        let mut doubt = if damaged { doubt::IGNORED } else { self.doubt(segment, streams) };
        if segment.has(Segment::RST) {
            return if doubt == doubt::IGNORED {
                self.keep_out(DropReason::StreamIgnored);
            } else {
                self.reset(segment, streams);
            };
        }
        let acknowledged = segment.acknowledged().filter(|_| doubt < doubt::IGNORED);
        if acknowledged.is_some_and(|number| !self.has_sent(&streams.halves[1 - from], number)) {
            doubt = doubt::IGNORED;
        }
        if self.options.inline && brings && doubt > doubt::NONE {
            return self.keep_out(DropReason::StreamIgnored);
        }
        let is_certain = brings && doubt == doubt::NONE && !segment.has(Segment::SYN);
        let is_first_said = is_certain && Reassembler::go_on(segment, streams);
        if self.options.inline && brings && !self.compare(segment, &mut streams.halves[from]) {
            return;
        }
        if let Some(acknowledged) = acknowledged
            && doubt < doubt::IGNORED
        {
            self.acknowledge(direction.other(), acknowledged, &mut streams.halves[1 - from]);
            let scale = streams.halves[from].scale;
            Reassembler::offer(segment, scale, streams);
        }
        let half = &mut streams.halves[from];
        if acknowledged.is_some() && doubt < doubt::IGNORED {
            half.flags |= Half::OVER_SYN;
        }
        if doubt == doubt::NONE {
            self.note_options(segment, half);
        }
        if half.has(Half::BEGUN) && brings {
            self.receive(segment, doubt, half);
        }
        if is_first_said {
            self.trust(direction, &mut streams.halves[from]);
        }
    }
}
