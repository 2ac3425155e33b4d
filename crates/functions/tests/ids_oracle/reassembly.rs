//! Streams reassembled byte by byte from segments: the stream events of each packet.

use std::collections::{BTreeMap, HashMap};

use packet::Direction;

use super::segments::{ACK, Carried, Datagrams, FIN, RST, SYN, Segment};
use super::witness::{Brought, Observed, What};

/// The maximum window of TCP (RFC 7323 2.3): segments farther away belong to no connection.
const WINDOW_MAX: i64 = 1 << 30;
/// Maximum out-of-order bytes.
const WAITING_MAX: usize = 200 << 10;

/// The stream events of packets.
#[derive(Default)]
pub struct Reassembly {
    flows: HashMap<u64, [Half; 2]>,
    datagrams: Datagrams,
    /// Flows with too many out-of-order bytes: the time of their eviction is unspecified.
    vague: Vec<u64>,
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Half {
    /// The sequence number of the first byte.
    base: Option<u32>,
    /// True if it began with a SYN.
    opened: bool,
    /// True if its beginning had a valid checksum; `None` if unknown.
    intact: Option<bool>,
    /// Bytes delivered or skipped.
    next: u64,
    /// Out-of-order bytes by offset.
    waiting: BTreeMap<u64, Waiting>,
    /// The end of the truncated segments.
    cut: u64,
    /// The end of the acknowledged bytes.
    acknowledged: u64,
    /// True if the receiver acknowledged something.
    answered: bool,
    /// If not seen yet: its beginning according to the other side.
    claimed: Option<u32>,
    /// True at its end. If more is acknowledged later, the receiver did not accept the end.
    over: bool,
    /// True after a possible reset. If more is acknowledged later, it was not reset.
    reset: bool,
    suspect: bool,
    /// The end of the sequence numbers that its receiver accepts.
    edge: Option<u32>,
    /// The last timestamp that its receiver accepted, if all segments have one.
    timestamp: Option<u32>,
    /// The window scale in its SYN.
    scale: Option<u8>,
    signed: bool,
    /// True after a reported reset without further bytes.
    hushed: bool,
    /// True if its sender sent another SYN after a reset or an end.
    attempted: bool,
    /// True if its sender acknowledged something.
    acknowledges: bool,
}

/// An out-of-order byte or end.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    byte: u8,
    /// The range of its segment.
    span: (i64, i64),
    /// The doubt that the receiver accepts it.
    doubt: u8,
    fin: bool,
}

/// The levels of doubt: accepted unless the connection has ended; accepted by few receivers; by
/// none.
const UNSURE: u8 = 1;
const UNLIKELY: u8 = 2;
const IGNORED: u8 = 3;

/// The comparison of two lists of events.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Equal pieces of data.
    pub pieces: usize,
    /// Packets with different events.
    pub differing: Vec<String>,
    /// Packets of unspecified flows.
    pub vague: usize,
    /// Each flow's streams, from their beginning, or from the last gap.
    pub streams: BTreeMap<u64, [Vec<u8>; 2]>,
}

/// Compares the recorded events of packets with the derived ones.
pub fn check(packets: &[Observed]) -> Agreement {
    let (mut reassembly, mut agreement) = (Reassembly::default(), Agreement::default());
    for packet in packets {
        let own = reassembly.packet(packet);
        let same = joined(&own) == joined(&packet.brought);
        let streams = agreement.streams.entry(packet.flow).or_default();
        for brought in &own {
            match &brought.what {
                What::Data(bytes) => streams[brought.direction.index()].extend(bytes),
                What::Gap(_) => streams[brought.direction.index()].clear(),
                What::Restart => *streams = Default::default(),
                What::Finished | What::Reset => {}
            }
        }
        match (reassembly.vague.contains(&packet.flow), same) {
            (true, _) => agreement.vague += 1,
            (false, true) => agreement.pieces += own.len(),
            (false, false) => agreement.differing.push(format!(
                "packet {} of flow {}: {} against {}",
                packet.sequence,
                packet.flow,
                shown(&own),
                shown(&packet.brought)
            )),
        }
    }
    agreement
}

/// Joins consecutive pieces.
fn joined(brought: &[Brought]) -> Vec<(Direction, u64, What)> {
    let mut all: Vec<(Direction, u64, What)> = Vec::new();
    for Brought { direction, offset, what } in brought {
        if let (Some((before, start, What::Data(bytes))), What::Data(more)) = (all.last_mut(), what)
            && *before == *direction
            && *start + bytes.len() as u64 == *offset
        {
            bytes.extend(more);
        } else {
            all.push((*direction, *offset, what.clone()));
        }
    }
    all
}

fn shown(brought: &[Brought]) -> String {
    let one = |(direction, offset, what): (Direction, u64, What)| match what {
        What::Data(bytes) => format!("{direction:?} {offset} {} bytes", bytes.len()),
        other => format!("{direction:?} {offset} {other:?}"),
    };
    joined(brought).into_iter().map(one).collect::<Vec<_>>().join(", ")
}

impl Reassembly {
    /// Returns the events of the next packet, in order.
    pub fn packet(&mut self, packet: &Observed) -> Vec<Brought> {
        let mut out = Vec::new();
        let halves = self.flows.entry(packet.flow).or_default();
        let own_is_intact = halves[packet.direction.index()].intact == Some(true);
        let segment = Carried::read(&packet.network).and_then(|carried| match carried.part {
            None => Segment::read(&carried),
            // Hosts drop it before reassembly.
            Some(_) if own_is_intact && !carried.has_right_header => None,
            Some(_) => self.datagrams.add(&carried, packet.time_ns),
        });
        if let Some(segment) = segment {
            take(halves, packet.direction, &segment, &mut out);
        }
        if halves.iter().any(|half| half.waiting.len() > WAITING_MAX) {
            self.vague.push(packet.flow);
        }
        out
    }
}

fn take(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) {
    let (own, other) = (direction.index(), direction.other().index());
    // Hosts drop segments without ACK (RFC 9293 3.10.7.4).
    if !segment.has(SYN | RST | ACK) {
        return;
    }
    let is_damaged = segment.intact == Some(false) && halves[own].intact == Some(true);
    let is_syn = segment.has(SYN) && !segment.has(RST);
    if is_damaged && segment.has(SYN | RST) || is_syn && !opens(halves, direction, segment, out) {
        return;
    }
    let mut doubt = if is_damaged { IGNORED } else { doubt(&halves[own], &halves[other], segment) };
    if segment.has(RST) {
        if doubt < IGNORED {
            reset(halves, direction, segment, out);
        }
        return;
    }
    if segment.has(ACK) && doubt < IGNORED {
        if halves[other].has_sent(segment.acknowledged) {
            halves[other].acknowledge(segment.acknowledged, direction.other(), out);
            offer(halves, own, other, segment);
        } else {
            doubt = IGNORED;
        }
    }
    let says = segment.len > 0 || segment.has(FIN);
    let other_is_unknown = halves[other].base.is_none() && halves[other].claimed.is_none();
    if halves[own].base.is_none() && says && doubt == 0 {
        // The opening was not seen.
        let intact = segment.intact.or(halves[own].intact);
        let timestamp = segment.timestamp;
        halves[own] = Half { base: Some(segment.first()), intact, timestamp, ..Half::default() };
    }
    halves[own].acknowledges |= segment.has(ACK) && doubt < IGNORED;
    if doubt == 0 {
        halves[own].take_timestamp(segment);
    }
    if !says || halves[own].base.is_none() {
        return;
    }
    let counts_early = doubt == 0 && other_is_unknown;
    halves[own].receive(segment, doubt, direction, out);
    if counts_early {
        // The acknowledgement of its earlier bytes may be invisible.
        halves[other].claimed = Some(segment.acknowledged);
        if !halves[own].over {
            halves[own].waiting.values_mut().for_each(|waiting| waiting.doubt = 0);
            halves[own].bring(direction, out);
            halves[own].give_up(direction, out);
        }
    }
}

/// Returns how doubtful it is that a receiver accepts a segment.
fn doubt(own: &Half, other: &Half, segment: &Segment) -> u8 {
    let is_syn = segment.has(SYN);
    // Between its SYN and the answer, a host accepts nothing else (RFC 9293 3.10.7.3).
    let has_only_asked = other.opened && !other.acknowledges && !other.answered;
    if has_only_asked && own.base.is_none() && own.claimed.is_none() && !segment.has(SYN | RST) {
        return IGNORED;
    }
    let is_wrongly_signed = if segment.signed { !other.signed } else { own.signed && other.signed };
    if !is_syn && other.opened && is_wrongly_signed {
        return IGNORED;
    }
    if let (Some(timestamp), Some(last), Some(_)) = (segment.timestamp, own.timestamp, other.timestamp)
        && !segment.has(SYN | RST)
        && last != 0
        && (timestamp.wrapping_sub(last) as i32) < 0
    {
        return IGNORED;
    }
    if is_syn {
        return UNLIKELY;
    }
    if segment.has(RST) {
        return 0;
    }
    if let (Some(edge), Some(first)) = (own.edge.and_then(|edge| own.place(edge)), own.place(segment.first()))
        && segment.len > 0
    {
        let edge = edge.max(own.next as i64);
        match first {
            first if first >= edge => return IGNORED,
            first if first + i64::from(segment.len) > edge => return UNLIKELY,
            _ => {}
        }
    }
    u8::from(own.over || (own.reset || own.suspect) && own.answered) * UNSURE
}

/// Records the window that the sender of a segment offers.
fn offer(halves: &mut [Half; 2], own: usize, other: usize, segment: &Segment) {
    if !halves[own].opened || !halves[other].opened {
        return;
    }
    let scale = match (halves[own].scale, halves[other].scale, segment.has(SYN)) {
        (Some(scale), Some(_), false) => scale,
        _ => 0,
    };
    let edge = segment.acknowledged.wrapping_add(u32::from(segment.window) << scale);
    let half = &mut halves[other];
    if half.edge.is_none_or(|before| edge.wrapping_sub(before) as i32 > 0) {
        half.edge = Some(edge);
    }
}

/// Handles a SYN; returns whether hosts accept it.
fn opens(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) -> bool {
    let first = segment.first();
    let (own, other) = (&halves[direction.index()], &halves[direction.other().index()]);
    let answers = |number| segment.has(ACK) && segment.acknowledged == number;
    // Of several SYNs, any one may be answered.
    let is_same = own.base == Some(first) && other.base.is_some_and(answers);
    let is_other_answer = other.attempted && segment.has(ACK) && !is_same;
    let fresh = Half { intact: segment.intact.or(own.intact), ..Half::opened_by(segment) };
    let Some(base) = own.base else {
        let in_vain = own.claimed.is_some_and(|claimed| claimed != first);
        halves[direction.index()] = fresh;
        chooses(halves, direction, segment, in_vain, out);
        return true;
    };
    let is_heeded_first = own.intact == Some(false) && segment.intact == Some(true);
    if is_heeded_first || is_other_answer {
        restart(halves, direction, segment, out);
        return true;
    }
    let is_over = halves.iter().any(|half| half.reset || half.over);
    if base != first || is_over && own.next > 0 {
        let is_closed = halves.iter().all(|half| half.over);
        if is_over && !is_closed && other.base.is_some() {
            // The reset may be forged: after one end, the other direction continues; and this may
            // be forged, too.
            halves[direction.index()].attempted |= !segment.has(ACK);
            return false;
        }
        if is_over {
            // The ports are reused (RFC 9293 3.6.1).
            restart(halves, direction, segment, out);
            return true;
        }
        // Another attempt is possible until a reply; a second reply is not.
        let is_second = other.answered && other.base.is_some_and(answers);
        if !own.is_empty() || own.answered || is_second {
            suspect(halves, direction);
            return false;
        }
        halves[direction.index()] = fresh;
    }
    chooses(halves, direction, segment, false, out);
    true
}

/// Handles a reply that selects one of several attempts; earlier bytes are discarded if none fits.
fn chooses(
    halves: &mut [Half; 2],
    direction: Direction,
    segment: &Segment,
    in_vain: bool,
    out: &mut Vec<Brought>,
) {
    let (own, its) = (&halves[direction.index()], &halves[direction.other().index()]);
    let Some(base) = its.base.filter(|_| segment.has(ACK) && !own.answered) else { return };
    let fits = base == segment.acknowledged || its.has_sent(segment.acknowledged);
    if !its.is_empty() {
        if in_vain || !fits {
            restart(halves, direction, segment, out);
        }
    } else if !fits {
        let fresh = its.again(segment.acknowledged);
        halves[direction.other().index()] = fresh;
    }
}

/// Begins another connection with this SYN.
fn restart(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) {
    let own = Half::opened_by(segment);
    let (mut other, mut of) = (Half::default(), direction);
    if segment.has(ACK) {
        let its = &halves[direction.other().index()];
        // A sender that was not seen before is not seen now.
        if its.base.is_some() {
            other = its.again(segment.acknowledged);
        }
        of = direction.other();
    }
    halves[direction.index()] = own;
    halves[direction.other().index()] = other;
    out.push(Brought { direction: of, offset: 0, what: What::Restart });
}

/// Handles a reset that hosts accept: at the next byte (RFC 5961 3.2), or in reply to a SYN that it
/// acknowledges.
fn reset(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) {
    let (own, other) = (&halves[direction.index()], &halves[direction.other().index()]);
    let is_heeded = match (own.base, other.base) {
        (Some(_), _) => {
            let after = own.waiting.keys().next_back().map(|last| *last as i64 + 1);
            let place = own.place(segment.sequence);
            place.is_some() && (place == Some(own.next as i64) || place == after)
        }
        (None, Some(_)) => segment.has(ACK) && other.place(segment.acknowledged) == Some(other.next as i64),
        (None, None) => true,
    };
    if !is_heeded {
        return suspect(halves, direction);
    }
    for direction in [direction, direction.other()] {
        let half = &mut halves[direction.index()];
        if !half.over && !half.hushed {
            out.push(Brought { direction, offset: half.next, what: What::Reset });
        }
        (half.reset, half.hushed) = (true, true);
    }
}

/// Handles a doubtful end: before anything else arrived, a reset or SYN that is not accepted may
/// still end an unestablished connection.
fn suspect(halves: &mut [Half; 2], direction: Direction) {
    if halves[direction.index()].is_empty() {
        halves.iter_mut().for_each(|half| half.suspect = true);
    }
}

impl Half {
    /// Returns the direction after its SYN.
    fn opened_by(segment: &Segment) -> Half {
        let &Segment { intact, timestamp, scale, signed, .. } = segment;
        let base = Some(segment.first());
        Half { base, opened: true, intact, timestamp, scale, signed, ..Half::default() }
    }

    /// Restarts the direction with this sequence number; the negotiated options remain.
    fn again(&self, base: u32) -> Half {
        let &Half { opened, intact, timestamp, scale, signed, .. } = self;
        Half { base: Some(base), opened, intact, timestamp, scale, signed, ..Half::default() }
    }

    fn take_timestamp(&mut self, segment: &Segment) {
        if let (Some(timestamp), Some(last)) = (segment.timestamp, self.timestamp)
            && self.place(segment.first()).is_some_and(|place| place <= self.next as i64)
            && (last == 0 || timestamp.wrapping_sub(last) as i32 >= 0)
        {
            self.timestamp = Some(timestamp);
        }
    }

    /// Returns the offset of a sequence number in the stream; `None` if it is too far away.
    fn place(&self, sequence: u32) -> Option<i64> {
        let next = self.base?.wrapping_add(self.next as u32);
        let distance = i64::from(sequence.wrapping_sub(next) as i32);
        (distance.abs() <= WINDOW_MAX).then_some(self.next as i64 + distance)
    }

    /// Returns whether its sender may have sent the bytes before this number.
    fn has_sent(&self, sequence: u32) -> bool {
        // A sender without a visible beginning may have sent anything before.
        let least = if self.opened { 0 } else { i64::MIN };
        let end = self.next + u64::from(self.over);
        let waiting = self.waiting.keys().next_back().map_or(0, |last| last + 1);
        let most = end.max(waiting).max(self.cut) as i64;
        self.base.is_none() || self.place(sequence).is_some_and(|place| (least..=most).contains(&place))
    }

    /// Returns whether everything received is doubtful.
    fn is_empty(&self) -> bool {
        let is_doubtful = self.waiting.values().all(|waiting| waiting.doubt > 0);
        self.next == 0 && self.acknowledged == 0 && !self.over && is_doubtful
    }

    fn acknowledge(&mut self, sequence: u32, direction: Direction, out: &mut Vec<Brought>) {
        let Some(place) = self.place(sequence) else { return };
        self.answered |= self.opened || place >= self.next as i64;
        if place < self.next as i64 || place as u64 <= self.next + u64::from(self.over) {
            return;
        }
        (self.over, self.reset, self.suspect) = (false, false, false);
        self.acknowledged = self.acknowledged.max(place as u64);
        self.bring(direction, out);
        self.give_up(direction, out);
    }

    fn receive(&mut self, segment: &Segment, doubt: u8, direction: Direction, out: &mut Vec<Brought>) {
        let Some(first) = self.place(segment.first()) else { return };
        let (next, fin) = (self.next as i64, first + i64::from(segment.len));
        let ends = segment.has(FIN) && !segment.has(SYN) && fin >= next + i64::from(self.over);
        if !ends && segment.payload.len() < segment.len as usize {
            self.cut = self.cut.max(fin.max(0) as u64);
        }
        let here = first + segment.payload.len() as i64;
        let is_next = first <= next;
        // Nothing replaces bytes that a host accepts at once, if at all.
        let own = if doubt > 0 && is_next {
            (0, i64::MAX)
        } else {
            (first.max(0), fin.max(next) + i64::from(ends))
        };
        // Nothing queued overlaps.
        let is_plain = doubt == 0
            && is_next
            && self.waiting.keys().next().is_none_or(|first| here.max(next) <= *first as i64);
        let span = if is_plain { own } else { self.joined(own, doubt) };
        for (place, byte) in (first..).zip(&segment.payload).filter(|(place, _)| *place >= next) {
            self.wait(place as u64, Waiting { byte: *byte, span, doubt, fin: false });
        }
        if is_plain {
            self.bring_until(here.max(next) as u64, direction, out);
        }
        if ends {
            if doubt == 0 && is_next && fin as u64 == self.next {
                self.end(direction, out);
            } else {
                self.wait(fin as u64, Waiting { byte: 0, span: own, doubt, fin: true });
            }
        }
        self.bring(direction, out);
        self.give_up(direction, out);
    }

    /// Merges a segment, as in Linux's queue, with the segment that it follows: the last, or the
    /// last that begins before it.
    fn joined(&mut self, new: (i64, i64), doubt: u8) -> (i64, i64) {
        let alike: Vec<_> =
            self.waiting.values().filter(|one| one.doubt == doubt && !one.fin).map(|one| one.span).collect();
        let last = alike.iter().max_by_key(|span| span.0).filter(|span| span.1 == new.0);
        let before = alike.iter().filter(|span| span.0 <= new.0).max_by_key(|span| span.0);
        let Some(&old) = last.or(before.filter(|span| span.1 == new.0)) else { return new };
        for one in self.waiting.values_mut().filter(|one| one.span == old) {
            one.span = (old.0, new.1);
        }
        (old.0, new.1)
    }

    /// Queues a byte. The less doubtful byte wins; otherwise, as in Linux's queue, the byte of the
    /// segment that begins first; of two that begin at the same place, the longer, then the first.
    fn wait(&mut self, place: u64, new: Waiting) {
        let kept = self.waiting.entry(place).or_insert(new);
        let is_before = new.span.0 < kept.span.0 || new.span.0 == kept.span.0 && new.span.1 > kept.span.1;
        if new.doubt < kept.doubt || new.doubt == kept.doubt && is_before {
            *kept = new;
        }
    }

    fn end(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        out.push(Brought { direction, offset: self.next, what: What::Finished });
        self.over = true;
        self.waiting.values_mut().for_each(|one| one.doubt = one.doubt.max(UNSURE));
    }

    /// Delivers the next bytes.
    fn bring(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        self.bring_until(u64::MAX, direction, out);
    }

    fn bring_until(&mut self, end: u64, direction: Direction, out: &mut Vec<Brought>) {
        let (offset, mut bytes, mut ends) = (self.next, Vec::new(), false);
        while !self.over
            && self.next < end
            && let Some(&Waiting { byte, doubt, fin, .. }) = self.waiting.get(&self.next)
        {
            if doubt > 0 && self.next >= self.acknowledged {
                break;
            }
            self.waiting.remove(&self.next);
            if fin && doubt > 0 && self.acknowledged != self.next + 1 {
                continue;
            }
            if fin {
                ends = true;
                break;
            }
            bytes.push(byte);
            self.next += 1;
        }
        if !bytes.is_empty() {
            self.hushed = false;
            out.push(Brought { direction, offset, what: What::Data(bytes) });
        }
        if ends {
            self.end(direction, out);
        }
    }

    /// Skips bytes that the receiver has and we lack, once bytes after them are queued: they never
    /// come.
    fn give_up(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        while !self.over
            && let Some((place, waits)) = self.waiting.first_key_value()
            && let place = *place
            && place + u64::from(waits.doubt > 0) <= self.acknowledged
        {
            if self.next < place {
                out.push(Brought { direction, offset: self.next, what: What::Gap(place - self.next) });
                self.next = place;
            }
            self.bring(direction, out);
        }
    }
}
