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
use nf::stream::{Deliveries, StreamPieceKind};
use packet::memory::OutOfMemory;
use packet::parse::protocol;
use packet::{DropReason, Packet, PacketClass};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod counters;
mod current;
mod datagrams;
pub mod doubt;
mod early;
mod half;
mod held;
mod lists;
mod network;
mod normalize;
mod options;
mod pieces;
mod saved;
mod segment;
mod sent;
mod shortage;
mod span;
mod tcp;

pub use counters::StreamCounters;
use datagrams::Added;
pub(crate) use datagrams::Datagrams;
pub use datagrams::{
    DATAGRAM_TIMEOUT_NS, DATAGRAM_TIMEOUT_V6_NS, DATAGRAMS_MAX, HELD_BACK_MAX, HELD_BACK_MEMORY,
};
pub(crate) use datagrams::{Passing, Unheld};
pub use options::{
    Differing, HostPolicy, LowTtl, StreamOptions, TTL_MIN, TTL_MIN_INLINE, Urgent, WhenMemoryFull,
};
pub use saved::StreamRestoreError;
pub use segment::{Segment, SegmentOptions};
pub use sent::{SENT_MAX, SENT_MEMORY};
pub use shortage::{MemoryOf, ShortOf};
use tcp::TcpStreams;

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

/// Reassembles the TCP streams and the datagrams in fragments of a graph's flows.
pub struct Reassembler {
    tcp: TcpStreams,
    datagrams: Datagrams,
    ttl_min: u8,
    /// True if packets are changed, so that hosts can read them in one way only.
    normalizes: bool,
    /// The bytes of a datagram, or of what was sent before: memory that is reused.
    whole: Vec<u8>,
}

impl Reassembler {
    /// Creates a reassembler with memory as the options say.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(options: StreamOptions) -> Result<Reassembler, OutOfMemory> {
        let ttl_min = if options.inline { TTL_MIN_INLINE } else { TTL_MIN };
        Ok(Reassembler {
            tcp: TcpStreams::new(options)?,
            datagrams: Datagrams::new(options.inline)?,
            ttl_min: options.ttl_min.unwrap_or(ttl_min),
            normalizes: options.inline
                && (options.low_ttl == LowTtl::Raise || options.differing == Differing::Replace),
            whole: Vec::with_capacity(datagrams::DATAGRAM_MAX),
        })
    }

    /// Returns the counters.
    pub fn counters(&self) -> StreamCounters {
        let gave_way = self.tcp.early().gave_way() + self.tcp.sent().gave_way();
        StreamCounters { gave_way, ..self.tcp.current().counters }
    }

    /// Returns the number of accounts of sources.
    pub fn accounts(&self) -> usize {
        self.tcp.early().accounts()
    }

    /// Returns the account of the source of the current packet.
    pub fn account(&self) -> u32 {
        self.tcp.early().account(self.tcp.current().owner())
    }

    /// Returns the memory shortage that the current packet met.
    #[inline]
    pub fn shortage(&self) -> Option<ShortOf> {
        self.tcp.current().shortage()
    }

    /// Returns the bytes of memory of out-of-order queues that are in use.
    pub fn memory_used(&self) -> usize {
        self.tcp.early().memory_used()
    }

    /// Begins a group of packets: the pieces of the last one are gone.
    pub fn begin_group(&mut self) {
        self.tcp.begin_group();
        self.datagrams.begin_group();
    }

    /// The next packet belongs to the flow with this header.
    #[inline]
    pub fn own(&mut self, header: &RecordHeader) {
        self.tcp.current_mut().own(header);
    }

    /// Adds the next packet of the group to its flow's streams. Returns the reason to drop it,
    /// inline.
    pub fn take(&mut self, packet: &Packet, streams: &mut Streams) -> Option<DropReason> {
        self.read(packet, streams);
        self.skip();
        self.drop_reason()
    }

    #[inline]
    fn drop_reason(&self) -> Option<DropReason> {
        self.tcp.current().drop_reason()
    }

    /// Reads a packet.
    fn read(&mut self, packet: &Packet, streams: &mut Streams) {
        self.tcp.current_mut().begin();
        if let Some(mut segment) = Segment::of(packet) {
            if streams.halves[segment.direction.index()].judges(&segment) {
                segment.intact = Segment::check(packet);
            }
            segment.ignored = Segment::is_ignored(packet, self.ttl_min);
            self.tcp.segment(&segment, streams);
        } else if matches!(packet.meta().class, PacketClass::FirstFragment | PacketClass::LaterFragment) {
            let refused = self.fragment(packet, streams);
            self.tcp.current_mut().refuse(refused);
        }
    }

    /// Returns the datagrams in fragments.
    pub(crate) fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }

    /// Returns the datagrams, to be changed, and the counter of those that were given up.
    pub(crate) fn datagrams_mut(&mut self) -> (&mut Datagrams, &mut u64) {
        (&mut self.datagrams, &mut self.tcp.current_mut().counters.fragments_lost)
    }

    /// Adds a fragment to its datagram, which is read once it is whole. Returns the reason to drop
    /// it, inline or not.
    #[cold]
    fn fragment(&mut self, packet: &Packet, streams: &mut Streams) -> Option<DropReason> {
        let meta = packet.meta();
        let direction = meta.transit.direction;
        let current = self.tcp.current_mut();
        current.counters.fragments += 1;
        // Hosts leave the checksums of segments and of headers to hardware, or neither.
        let judges = meta.protocol != protocol::TCP || streams.halves[direction.index()].has(Half::INTACT);
        if judges && !Segment::has_right_header(packet) {
            current.counters.damaged += 1;
            current.keep_out(DropReason::StreamIgnored);
            return None;
        }
        if Segment::is_ignored(packet, self.ttl_min) {
            current.counters.ignored += 1;
            current.keep_out(DropReason::StreamIgnored);
            return None;
        }
        match self.datagrams.add(packet, &mut current.counters.fragments_lost) {
            Added::Waits => {}
            Added::Lost => {
                current.counters.fragments_lost += 1;
                current.keep_out(DropReason::StreamIgnored);
            }
            Added::Condemned => return Some(DropReason::FragmentOfDropped),
            Added::Full => return Some(DropReason::FragmentTableFull),
            Added::Whole { slot, from, until, protocol: number } => {
                let len = until.saturating_sub(from);
                let start = Datagrams::place(slot) + from;
                let piece = StreamPieceKind::Datagram { start, len: len as u32, protocol: number };
                self.tcp.pieces_mut().add(direction, 0, piece);
                if number != protocol::TCP {
                    return None;
                }
                let mut whole = std::mem::take(&mut self.whole);
                whole.clear();
                whole.extend_from_slice(self.datagrams.memory().get(start..start + len).unwrap_or_default());
                if let Some(mut segment) = Segment::read(&whole, whole.len(), direction) {
                    segment.apart = true;
                    segment.intact = Segment::check_bytes(packet, &whole);
                    self.tcp.segment(&segment, streams);
                }
                self.whole = whole;
            }
        }
        None
    }

    /// Ends the current packet of the group, or skips one.
    pub fn skip(&mut self) {
        self.tcp.pieces_mut().end_packet();
    }

    /// Returns the pieces of the group's packets.
    pub fn deliveries(&self) -> Deliveries<'_> {
        self.tcp.pieces().deliveries(self.tcp.early().memory(), self.datagrams.memory())
    }

    /// Removes all queued and unacknowledged bytes of a flow that has ended.
    pub fn forget(&mut self, streams: &mut Streams) {
        self.tcp.forget(streams);
    }

    /// Detaches the datagrams of a flow that has ended: they continue without it.
    pub fn leave_datagrams(&mut self, flow: u32) {
        self.datagrams.leave(flow);
    }

    /// Removes the datagrams of a flow that is elsewhere now.
    pub fn forget_datagrams(&mut self, flow: u32) {
        self.datagrams.forget(flow);
    }

    /// Adds this segment of the current packet to its streams. Returns the reason to drop it,
    /// inline.
    pub fn judge(&mut self, segment: &Segment<'_>, streams: &mut Streams) -> Option<DropReason> {
        self.tcp.current_mut().begin();
        self.segment(segment, streams);
        self.drop_reason()
    }

    /// Adds a segment of the current packet to its streams.
    pub fn segment(&mut self, segment: &Segment<'_>, streams: &mut Streams) {
        self.tcp.segment(segment, streams);
    }
}
