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

use nf::Shortage;
use nf::record::Header;
use nf::stream::{Deliveries, Piece, What};
use packet::memory::OutOfMemory;
use packet::parse::protocol;
use packet::{Class, Direction, DropReason, Packet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod counters;
mod datagrams;
mod expected;
mod held;
mod lists;
mod network;
mod normalize;
mod opening;
mod options;
mod saved;
mod segment;
mod sent;
mod shortage;

pub use counters::StreamCounters;
use datagrams::Added;
pub(crate) use datagrams::Datagrams;
pub use datagrams::{
    DATAGRAM_TIMEOUT_NS, DATAGRAM_TIMEOUT_V6_NS, DATAGRAMS_MAX, HELD_BACK_MAX, HELD_BACK_MEMORY,
};
pub(crate) use datagrams::{Passing, Unheld};
use held::{Block, Held, New, Span};
use lists::Owner;
use normalize::Difference;
pub use options::{Differing, HostPolicy, LowTtl, StreamOptions, TTL_MIN, TTL_MIN_INLINE, Urgent, WhenFull};
pub use saved::RestoreError;
pub use segment::{Segment, SegmentOptions};
pub use sent::{SENT_MAX, SENT_MEMORY};
pub use shortage::{MemoryOf, ShortOf};

/// How far from where a stream stands a segment may be, in bytes: the largest window that TCP has (RFC 7323 2.3).
pub const WINDOW_MAX: i64 = 1 << 30;

/// Where both streams of a flow stand: part of the flow's record. Two cache lines.
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
    /// In line, the list of blocks with what was sent and is not acknowledged: one more than its number, its last block, as
    /// [`held::Link`], and bytes in it.
    sent: u32,
    sent_last: u32,
    sent_bytes: u32,
}

const _: () = assert!(size_of::<Streams>() == 128);

/// How doubtful it is that a host takes a segment: of two for the same place, the less doubtful one counts.
pub mod doubt {
    /// It does.
    pub const NONE: u8 = 0;
    /// It does, unless the connection is over.
    pub const UNSURE: u8 = 1;
    /// Few do.
    pub const UNLIKELY: u8 = 2;
    /// It does not.
    pub const IGNORED: u8 = 3;
}

impl Half {
    /// Its first byte's sequence number is known.
    const BEGUN: u32 = 1;
    /// A FIN was in order. Should the receiver acknowledge what is after it, then it was not taken.
    const ENDED: u32 = 2;
    /// The connection was reset. Should bytes be acknowledged all the same, then the hosts did not heed it: it was forged.
    const RESET: u32 = 4;
    /// A reset or a SYN was refused before anything else came, which may have ended the connection.
    const SUSPECT: u32 = 8;
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
    /// One byte is urgent.
    const URGENT: u32 = 1024;
    /// A reset was announced, and nothing came since.
    const HUSHED: u32 = 2048;
    /// Behind a reset or an end, its sender has sent another SYN, which nobody has answered yet.
    const ATTEMPT: u32 = 4096;
    /// No FIN was seen, but segments that a capture cut.
    const CUT: u32 = 8192;
    /// Its sender's segments have timestamps, from the first one on.
    const STAMPED: u32 = 1 << 14;
    /// Its SYN had a signature.
    const SIGNED: u32 = 1 << 15;
    /// Its SYN has said by how much its windows are shifted.
    const SCALED: u32 = 1 << 16;
    /// What the receiver offers is known.
    const OFFERED: u32 = 1 << 17;
    /// What a SYN said of the connection.
    const AGREED: u32 = Half::STAMPED | Half::SIGNED | Half::SCALED;

    /// Whether any of these flags is set.
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether its end was not reached.
    fn is_open(&self) -> bool {
        self.flags & (Half::BEGUN | Half::ENDED) == Half::BEGUN
    }

    /// The sequence number of the next byte.
    fn next_sequence(&self) -> u32 {
        self.base.wrapping_add(self.next as u32)
    }

    /// How far the sequence number is from the next byte's; none if it is in no window.
    fn distance(&self, sequence: u32) -> Option<i64> {
        let distance = i64::from(sequence.wrapping_sub(self.next_sequence()).cast_signed());
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
        let is_known = self.has(Half::CUT) && self.offset(self.fin) >= self.offset(until);
        if !is_known && self.distance(until) > Some(0) {
            self.fin = until;
            self.flags |= Half::CUT;
        }
    }

    /// The stream begins with this sequence number, in a segment whose checksum is known to be right, or wrong, or else is as
    /// before. Nothing waits.
    fn begin(&mut self, sequence: u32, intact: Option<bool>) {
        let checksum = match intact {
            Some(true) => Half::INTACT,
            Some(false) => Half::DAMAGED,
            None => self.flags & (Half::INTACT | Half::DAMAGED),
        };
        let flags = Half::BEGUN | checksum | self.flags & (Half::OPENED | Half::AGREED);
        let Half { timestamp, scale, .. } = *self;
        *self = Half { base: sequence, flags, timestamp, scale, has: sequence, ..Half::default() };
    }

    /// The same with a SYN.
    fn open(&mut self, segment: &Segment<'_>) {
        self.flags &= !Half::AGREED;
        self.begin(segment.first(), segment.intact);
        self.flags |= Half::OPENED;
        self.agree(segment);
    }

    /// What the first segment says of the connection.
    fn agree(&mut self, segment: &Segment<'_>) {
        let options = &segment.options;
        if let Some(timestamp) = options.timestamp {
            self.timestamp = timestamp;
            self.flags |= Half::STAMPED;
        }
        if segment.has(Segment::SYN) {
            self.scale = u16::from(options.scale.unwrap_or(0));
            self.flags |= if options.scale.is_some() { Half::SCALED } else { 0 };
            self.flags |= if options.signed || options.authenticated { Half::SIGNED } else { 0 };
        }
    }

    /// Whether the receiver takes a timestamp for old (RFC 7323 5.3); Linux does not if it has taken none but 0.
    fn is_old(&self, timestamp: u32) -> bool {
        self.timestamp != 0 && timestamp.wrapping_sub(self.timestamp).cast_signed() < 0
    }

    /// A segment of the other half offers to take more of this one.
    #[inline]
    fn offer(&mut self, segment: &Segment<'_>, scale: u16, is_scaled: bool) {
        let window = u32::from(segment.window) << if is_scaled { scale } else { 0 };
        let edge = segment.acknowledgment.wrapping_add(window);
        if !self.has(Half::OFFERED) || edge.wrapping_sub(self.edge).cast_signed() > 0 {
            self.edge = edge;
            self.flags |= Half::OFFERED;
        }
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
    /// In line, what was sent and is not acknowledged.
    sent: Held,
    /// Whose the packet at hand is.
    owner: Owner,
    /// What there was no memory for with that packet.
    short: Option<ShortOf>,
    /// Why the packet at hand is not to pass.
    fate: Option<DropReason>,
    ttl_min: u8,
    /// Whether packets are changed, so that hosts can read them in one way only.
    normalizes: bool,
    /// Where the packet at hand differs from what was sent before.
    difference: Option<Difference>,
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

    /// What was counted.
    pub fn counters(&self) -> StreamCounters {
        StreamCounters { gave_way: self.held.gave_way() + self.sent.gave_way(), ..self.counters }
    }

    /// How many accounts of sources there are.
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
    pub fn own(&mut self, header: &Header) {
        self.owner = Owner::of(header);
    }

    /// The next packet of the group: what it brings to its flow's streams is noted. In line, why it is not to pass, if it is not.
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
        } else if matches!(packet.meta().class, Class::FirstFragment | Class::LaterFragment) {
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

    /// The flow with this record is over: its datagrams go on without it.
    pub fn leave_datagrams(&mut self, flow: u32) {
        self.datagrams.leave(flow);
    }

    /// The flow with this record is elsewhere, and so are its datagrams.
    pub fn forget_datagrams(&mut self, flow: u32) {
        self.datagrams.forget(flow);
    }

    /// The next packet of the group has this segment: what it brings is noted. In line, why it is not to pass, if it is not.
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
        let is_first_said = brings && doubt == doubt::NONE && Reassembler::go_on(segment, streams);
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

    /// How doubtful it is that the receiver takes a segment, apart from its checksum and what it acknowledges.
    fn doubt(&mut self, segment: &Segment<'_>, streams: &Streams) -> u8 {
        let from = segment.direction.index();
        let (half, other) = (&streams.halves[from], &streams.halves[1 - from]);
        let options = &segment.options;
        let is_syn = segment.has(Segment::SYN);
        if segment.ignored {
            return doubt::IGNORED;
        }
        // Signatures are agreed on if both SYNs had one.
        let agreed = half.has(Half::SIGNED) && other.has(Half::SIGNED);
        if !is_syn
            && other.has(Half::OPENED)
            && if options.signed { !other.has(Half::SIGNED) } else { agreed }
        {
            self.counters.ignored += 1;
            return doubt::IGNORED;
        }
        let is_stamped = half.has(Half::STAMPED) && other.has(Half::STAMPED);
        if let Some(timestamp) = options.timestamp
            && is_stamped
            && !segment.has(Segment::RST | Segment::SYN)
            && half.is_old(timestamp)
        {
            self.counters.old += 1;
            return doubt::IGNORED;
        }
        // Most hosts drop the bytes of a SYN (RFC 7413), and some what is authenticated without their asking.
        if is_syn || options.authenticated && !segment.has(Segment::RST) && !other.has(Half::SIGNED) {
            return doubt::UNLIKELY;
        }
        if segment.has(Segment::RST) {
            return doubt::NONE;
        }
        if half.has(Half::OFFERED)
            && let Some(distance) = half.distance(half.edge)
            && let Some(first) = half.distance(segment.first())
            && first + i64::from(segment.len) > distance.max(0)
            && segment.len > 0
        {
            self.counters.beyond_window += 1;
            return if first >= distance.max(0) { doubt::IGNORED } else { doubt::UNLIKELY };
        }
        // Where nobody acknowledges, a reset would hide what follows.
        let is_over = half.has(Half::RESET | Half::SUSPECT) && half.has(Half::ANSWERED);
        let is_unsure = half.has(Half::ENDED) || is_over;
        if is_unsure { doubt::UNSURE } else { doubt::NONE }
    }

    /// The segment's sender offers to take more of the other direction's stream.
    fn offer(segment: &Segment<'_>, scale: u16, streams: &mut Streams) {
        let from = segment.direction.index();
        let is_syn = segment.has(Segment::SYN);
        let [own, other] = [from, 1 - from].map(|index| streams.halves[index]);
        // Without both SYNs nobody knows what a window means.
        if !other.has(Half::OPENED) || !own.has(Half::OPENED) {
            return;
        }
        let is_scaled = !is_syn && own.has(Half::SCALED) && other.has(Half::SCALED);
        streams.halves[1 - from].offer(segment, scale, is_scaled);
    }

    /// What the receiver takes from a segment that it does not ignore.
    fn note_options(&mut self, segment: &Segment<'_>, half: &mut Half) {
        if let Some(timestamp) = segment.options.timestamp
            && half.has(Half::STAMPED)
            && timestamp != half.timestamp
            && half.distance(segment.first()).is_some_and(|distance| distance <= 0)
            && !half.is_old(timestamp)
        {
            half.timestamp = timestamp;
        }
        if segment.has(Segment::URG) && self.options.urgent == Urgent::OutOfBand && half.taken < u16::MAX {
            // It points to the byte after the urgent one (RFC 6093).
            let urgent = segment.sequence.wrapping_add(u32::from(segment.urgent.saturating_sub(1)));
            let is_later = !half.has(Half::URGENT) || half.offset(urgent) > half.offset(half.urgent);
            if half.distance(urgent) >= Some(0) && is_later {
                half.urgent = urgent;
                half.flags |= Half::URGENT;
            }
        }
    }

    /// Bytes or an end come that nobody doubts; whether they are the first that are said to a side that was not seen.
    fn go_on(segment: &Segment<'_>, streams: &mut Streams) -> bool {
        let from = segment.direction.index();
        if !streams.halves[from].has(Half::BEGUN) {
            streams.halves[from].begin(segment.sequence, segment.intact); // The connection's opening was not seen.
            streams.halves[from].agree(segment);
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
            self.held.trust(self.held.head(half.held), doubt::IGNORED);
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
        let next = half.next + u64::from(half.has(Half::ENDED));
        let lost_until = self.held.lists().lost_until(half.held);
        let bytes = self.held.end(self.held.head(half.held)).unwrap_or(0).max(next).max(lost_until);
        if half.has(Half::CUT) { bytes.max(half.offset(half.fin)) } else { bytes }
    }

    /// The receiver has everything up to here. What of it we have not seen when bytes behind it wait, we never shall; as long
    /// as none wait, it may still come: a capture may have the acknowledgement before the bytes.
    fn acknowledge(&mut self, direction: Direction, sequence: u32, half: &mut Half) {
        if !half.has(Half::BEGUN) {
            return;
        }
        self.forget_sent(sequence, half);
        let Some(distance @ 0..) = half.distance(sequence) else { return };
        half.flags |= Half::ANSWERED;
        // If it is no more than the end, it is that.
        if distance <= i64::from(half.has(Half::ENDED)) {
            return;
        }
        half.flags &= !(Half::ENDED | Half::RESET | Half::SUSPECT);
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
        let is_behind = |block: &Block| block.offset < until || block.offset == until && block.doubt == 0;
        while self.held.front(self.held.head(half.held)).is_some_and(is_behind) && half.is_open() {
            self.skip_hole(direction, until, half);
        }
        if half.next >= until {
            half.flags &= !Half::ACKNOWLEDGED;
        }
    }

    /// Bytes, or a FIN, of a stream that has begun.
    fn receive(&mut self, segment: &Segment<'_>, doubt: u8, half: &mut Half) {
        let direction = segment.direction;
        let Some(distance) = half.distance(segment.first()) else {
            self.counters.out_of_window += 1;
            return self.keep_out(DropReason::StreamIgnored);
        };
        if half.has(Half::CUT) && half.distance(half.fin) <= Some(0) {
            half.flags ^= Half::CUT; // We are there.
        }
        // Of what begins before the stream does, the part before it is of no use.
        let before = (-distance).max(0) as u64;
        let start = if distance < 0 { half.next } else { half.next + distance as u64 };
        let skip = before.min(segment.payload.len() as u64);
        self.counters.bytes_again += skip;
        let bytes = &segment.payload[skip as usize..];
        let fin = segment.first().wrapping_add(segment.len);
        // A FIN that stands before what was received already is not heeded; nor is one twice, or one of a SYN.
        let ends = segment.has(Segment::FIN)
            && !segment.has(Segment::SYN)
            && half.distance(fin) >= Some(i64::from(half.has(Half::ENDED)));
        if !ends && segment.payload.len() < segment.len as usize {
            half.cut(fin);
        }
        let end = start + bytes.len() as u64;
        let follows = self.held.front(self.held.head(half.held)).is_none_or(|block| end <= block.offset);
        let span = if doubt > doubt::NONE && start == half.next {
            Span::AT_ONCE
        } else {
            let until = half.offset(fin) + u64::from(ends);
            Span { from: start.saturating_sub(before), until }
        };
        let new = New { offset: start, bytes, span, doubt, fin: false };
        let is_plain = doubt == doubt::NONE && !segment.apart;
        if half.held != 0 && self.misses(start, half) {
            return;
        }
        if is_plain && start == half.next && follows && !half.has(Half::URGENT) {
            self.deliver_packet(direction, skip as u32, bytes.len() as u32, half);
        } else if doubt > doubt::NONE {
            self.hold_doubtful(new, half);
        } else if self.refuses_when_full() && !self.can_hold(&new, ends, half) {
            return;
        } else if segment.apart {
            self.hold_apart(new, half);
        } else {
            self.hold(direction, new, skip as u32, half);
        }
        if ends {
            let offset = half.offset(fin);
            if is_plain && offset == half.next {
                self.finish(direction, half);
            } else {
                let fin = New { offset, bytes: &[0], span, doubt, fin: true };
                self.counters.gave_up += u64::from(!self.insert(fin, half));
            }
        }
        self.deliver_held(direction, half);
        self.skip_acknowledged(direction, half);
    }

    /// Keeps bytes that are doubtful; without room, those that may count are taken as they are.
    #[cold]
    fn hold_doubtful(&mut self, new: New<'_>, half: &mut Half) {
        self.counters.doubtful += 1;
        if self.insert(new, half) {
            return;
        }
        if new.doubt == doubt::IGNORED {
            self.counters.doubtful_lost += 1;
            return;
        }
        self.held.trust(self.held.head(half.held), doubt::UNLIKELY);
        half.flags &= !(Half::RESET | Half::SUSPECT | Half::ENDED);
        self.hold_apart(New { doubt: doubt::NONE, ..new }, half);
    }

    /// Keeps bytes that do not stand in the packet at hand, even if they are next. Without room, they are lost.
    #[cold]
    fn hold_apart(&mut self, new: New<'_>, half: &mut Half) {
        while !self.insert(new, half) {
            if !self.drop_doubtful(half) {
                self.run_short(MemoryOf::Early, self.held.shortage());
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
            self.run_short(MemoryOf::Early, self.held.shortage());
            self.skip_hole(direction, new.offset, half);
            while half.is_open() && (new.offset..end).contains(&half.next) {
                let until =
                    self.held.front(self.held.head(half.held)).map_or(end, |block| end.min(block.offset));
                let start = in_payload + (half.next - new.offset) as u32;
                self.deliver_packet(direction, start, (until - half.next) as u32, half);
                self.deliver_held(direction, half);
            }
            if half.next >= end || !half.is_open() {
                return;
            }
        }
    }

    /// Gives up what is most doubtful; whether anything was.
    fn drop_doubtful(&mut self, half: &mut Half) -> bool {
        for doubt in [doubt::IGNORED, doubt::UNLIKELY, doubt::UNSURE] {
            let mut list = self.held.open(half.held, self.owner);
            let bytes = self.held.release_doubtful(&mut list, doubt);
            half.held = self.held.close(list);
            half.held_bytes -= bytes;
            if bytes > 0 {
                self.counters.doubtful_lost += 1;
                return true;
            }
        }
        false
    }

    /// Adds bytes to those that wait; false if there was no room for all of them.
    fn insert(&mut self, new: New<'_>, half: &mut Half) -> bool {
        if half.held != 0 {
            // The other direction of the same flow may have needed a block.
            self.look_for_loss(half);
        }
        let room = self.options.memory_per_stream.saturating_sub(half.held_bytes) as usize;
        if new.bytes.len() > room {
            self.held.lists_mut().shortage = Shortage::Share;
            return false;
        }
        let mut list = self.held.open(half.held, self.owner);
        let inserted = self.held.insert(&mut list, new, self.options.policy);
        half.held = self.held.close(list);
        half.held_bytes += inserted.added;
        self.counters.bytes_early += u64::from(inserted.added);
        self.counters.differing += u64::from(inserted.differ);
        inserted.whole
    }

    /// Gives up what is missing up to the bytes that wait, at most up to `until`; delivers what then is next.
    fn skip_hole(&mut self, direction: Direction, until: u64, half: &mut Half) {
        let hole = self.held.front(self.held.head(half.held)).map_or(until, |block| until.min(block.offset));
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
        while half.is_open()
            && let Some(&block) = self.held.front(self.held.head(half.held))
            && block.offset <= half.next
        {
            if block.doubt > doubt::NONE {
                let until = half.acknowledged();
                if until <= half.next && block.end() > half.next {
                    break;
                }
                if block.fin && until != half.next + 1 && block.end() > half.next {
                    // Bytes stand in its place.
                    self.pop(half);
                    continue;
                }
                self.part_front(until.max(half.next), half);
            }
            if half.has(Half::URGENT) && block.end() > half.next && !block.fin {
                let urgent = half.offset(half.urgent);
                if urgent == half.next {
                    self.take_out(half);
                    continue;
                }
                self.part_front(urgent, half);
            }
            let Some((number, block)) = self.pop_kept(half) else { break };
            if block.fin {
                self.held.release(number);
                if block.offset == half.next {
                    self.finish(direction, half);
                }
                continue;
            }
            self.delivered.push(number);
            let skip = half.next - block.offset;
            if let Some(len @ 1..) = block.end().checked_sub(half.next) {
                let start = self.held.place(number) + skip as usize;
                self.note(direction, half.next, What::Held { start, len: len as u32 });
                self.counters.bytes += len;
                half.next += len;
                half.flags &= !Half::HUSHED;
            }
        }
    }

    /// Takes the block at the front off the list; its bytes are still needed.
    fn pop_kept(&mut self, half: &mut Half) -> Option<(u32, Block)> {
        let mut list = self.held.open(half.held, self.owner);
        let popped = self.held.pop(&mut list);
        half.held = self.held.close(list);
        let (number, block) = popped?;
        half.held_bytes -= block.len;
        Some((number, block))
    }

    /// Parts the block at the front, if it goes on behind this offset within it.
    fn part_front(&mut self, at: u64, half: &mut Half) {
        let list = self.held.open(half.held, self.owner);
        half.held_bytes -= self.held.part_front(list, at);
        half.held = self.held.close(list);
    }

    /// Takes the block at the front off the list, and forgets it.
    fn pop(&mut self, half: &mut Half) {
        if let Some((number, _)) = self.pop_kept(half) {
            self.held.release(number);
        }
    }

    /// The next byte, which is at the front of what waits, is urgent: the host reads it beside the stream.
    #[cold]
    fn take_out(&mut self, half: &mut Half) {
        let before = self.held.front(self.held.head(half.held)).map_or(0, |block| block.len);
        let is_empty = self.held.take_out(self.held.head(half.held), half.next);
        let after = self.held.front(self.held.head(half.held)).map_or(0, |block| block.len);
        half.held_bytes -= before - after;
        half.base = half.base.wrapping_add(1);
        half.taken += 1;
        half.flags &= !Half::URGENT;
        self.counters.urgent += 1;
        if is_empty {
            self.pop(half);
        }
    }

    /// The stream's end is next. Hosts forget what waits behind it; should they not have taken it, that counts.
    fn finish(&mut self, direction: Direction, half: &mut Half) {
        self.note(direction, half.next, What::Finished);
        self.held.suspect(self.held.head(half.held), doubt::UNSURE);
        half.flags |= Half::ENDED;
    }

    /// Gives back what waits.
    fn release(&mut self, half: &mut Half) {
        self.held.forget(half.held);
        (half.held, half.held_bytes) = (0, 0);
        self.release_sent(half);
    }

    fn note(&mut self, direction: Direction, offset: u64, what: What) {
        self.pieces.push(Piece { direction, offset, what });
    }
}
