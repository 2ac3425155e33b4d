//! Streams put together byte by byte, from the segments of packets: what each packet brings to its flow's streams.

use std::collections::{BTreeMap, HashMap};

use packet::Direction;

use super::segments::{ACK, Carried, Datagrams, FIN, RST, SYN, Segment};
use super::witness::{Brought, Observed, What};

/// The largest window that TCP has (RFC 7323 2.3): what is farther away belongs to no connection.
const WINDOW_MAX: i64 = 1 << 30;
/// Bytes that wait for those before them, at most.
const WAITING_MAX: usize = 200 << 10;

/// What packets bring to their flows' streams.
#[derive(Default)]
pub struct Reassembly {
    flows: HashMap<u64, [Half; 2]>,
    datagrams: Datagrams,
    /// Flows of which more waits than may: when they are given up, nothing says.
    vague: Vec<u64>,
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Half {
    /// The sequence number of the first byte.
    base: Option<u32>,
    /// It began with a SYN.
    opened: bool,
    /// Whether what it began with had a right checksum.
    intact: Option<bool>,
    /// How many bytes were brought, or given up.
    next: u64,
    /// Bytes that wait, each at its place.
    waiting: BTreeMap<u64, Waiting>,
    /// Up to where its sender was seen to send.
    sent: u64,
    /// Where the stream ends, and whether that is doubtful.
    end: Option<(u64, bool)>,
    /// Up to where the receiver has all.
    acknowledged: u64,
    /// The receiver acknowledged something.
    answered: bool,
    /// Not seen yet: where it begins, by what was sent to it.
    claimed: Option<u32>,
    over: bool,
    reset: bool,
    /// A reset was told, and no byte since.
    hushed: bool,
    /// Behind a reset or an end, its sender sent another SYN.
    attempted: bool,
}

/// A byte that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    byte: u8,
    /// Where its segment begins.
    first: i64,
    doubtful: bool,
}

/// What two lists of packets bring, the same or not.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Pieces of data that are the same.
    pub pieces: usize,
    /// Packets that bring something else.
    pub differing: Vec<String>,
    /// Packets of flows that are not said well enough.
    pub vague: usize,
    /// What each flow's streams came to, from their beginning on, or from the last gap.
    pub streams: BTreeMap<u64, [Vec<u8>; 2]>,
}

/// Whether what packets are said to bring is what they bring.
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

/// Pieces that follow one another as one.
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
    /// What the next packet brings, in order.
    pub fn packet(&mut self, packet: &Observed) -> Vec<Brought> {
        let mut out = Vec::new();
        let halves = self.flows.entry(packet.flow).or_default();
        let own_is_intact = halves[packet.direction.index()].intact == Some(true);
        let segment = Carried::read(&packet.network).and_then(|carried| match carried.part {
            None => Segment::read(&carried),
            // Hosts drop it before they put it together with others.
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
    // Hosts drop what acknowledges nothing (RFC 9293 3.10.7.4).
    if !segment.has(SYN | RST | ACK) {
        return;
    }
    let is_damaged = segment.intact == Some(false) && halves[own].intact == Some(true);
    if is_damaged && segment.has(SYN | RST) || segment.has(SYN) && !opens(halves, direction, segment, out) {
        return;
    }
    let mut is_doubtful = is_damaged || segment.has(SYN);
    if segment.has(ACK) && !is_damaged {
        if halves[other].has_sent(segment.acknowledged) {
            halves[other].acknowledge(segment.acknowledged, direction.other(), out);
        } else {
            is_doubtful = true;
        }
    }
    let says = segment.len > 0 || segment.has(FIN);
    let other_is_unknown = halves[other].base.is_none() && halves[other].claimed.is_none();
    if segment.has(RST) {
        return reset(halves, direction, segment, out);
    }
    if halves[own].base.is_none() && says && !is_doubtful {
        // The opening was not seen.
        let intact = segment.intact.or(halves[own].intact);
        halves[own] = Half { base: Some(segment.first()), intact, ..Half::default() };
    }
    if !says || halves[own].base.is_none() || halves[own].over {
        return;
    }
    let counts_early = !is_doubtful && other_is_unknown;
    halves[own].receive(segment, is_doubtful, direction, out);
    if counts_early {
        // Nobody may be seen to acknowledge what it sent before.
        halves[other].claimed = Some(segment.acknowledged);
        halves[own].waiting.values_mut().for_each(|waiting| waiting.doubtful = false);
        halves[own].bring(direction, out);
        halves[own].give_up(direction, out);
    }
}

/// What a SYN does; whether hosts heed it.
fn opens(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) -> bool {
    let first = segment.first();
    let (own, other) = (&halves[direction.index()], &halves[direction.other().index()]);
    let answers = |number| segment.has(ACK) && segment.acknowledged == number;
    // Of several SYNs, any one may be answered.
    let is_other_answer = other.attempted && segment.has(ACK) && !other.base.is_some_and(answers);
    let fresh =
        Half { base: Some(first), opened: true, intact: segment.intact.or(own.intact), ..Half::default() };
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
    if base != first {
        let is_over = halves.iter().any(|half| half.reset || half.over);
        let is_closed = halves.iter().all(|half| half.over);
        if is_over && !is_closed && other.base.is_some() {
            // The reset may be forged, behind one end the other half goes on, and this may be forged, too.
            halves[direction.index()].attempted |= !segment.has(ACK);
            return false;
        }
        if is_over {
            // The ports are used again (RFC 9293 3.6.1).
            restart(halves, direction, segment, out);
            return true;
        }
        // Another attempt, as long as nobody answered; but no second answer.
        let is_second = other.answered && other.base.is_some_and(answers);
        if !own.is_empty() || own.answered || is_second {
            return false;
        }
        halves[direction.index()] = fresh;
    }
    chooses(halves, direction, segment, false, out);
    true
}

/// An answer says which of several attempts to open it is to; what was sent before is in vain if it is to none that fits.
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
        let intact = its.intact;
        halves[direction.other().index()] =
            Half { base: Some(segment.acknowledged), opened: its.opened, intact, ..Half::default() };
    }
}

/// Another connection begins with this SYN.
fn restart(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) {
    let intact = segment.intact;
    let own = Half { base: Some(segment.first()), opened: true, intact, ..Half::default() };
    let (mut other, mut of) = (Half::default(), direction);
    if segment.has(ACK) {
        let its = &halves[direction.other().index()];
        // Who was not seen before is not seen now.
        if its.base.is_some() {
            (other.base, other.opened, other.intact) = (Some(segment.acknowledged), its.opened, its.intact);
        }
        of = direction.other();
    }
    halves[direction.index()] = own;
    halves[direction.other().index()] = other;
    out.push(Brought { direction: of, offset: 0, what: What::Restart });
}

/// A reset where hosts heed it: at the next byte (RFC 5961 3.2), or in answer to a SYN, which it acknowledges.
fn reset(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) {
    let (own, other) = (&halves[direction.index()], &halves[direction.other().index()]);
    let is_heeded = match (own.base, other.base) {
        (Some(_), _) => own.place(segment.sequence) == Some(own.next as i64),
        (None, Some(_)) => segment.has(ACK) && other.place(segment.acknowledged) == Some(other.next as i64),
        (None, None) => true,
    };
    for direction in [direction, direction.other()].into_iter().filter(|_| is_heeded) {
        let half = &mut halves[direction.index()];
        if !half.over && !half.hushed {
            out.push(Brought { direction, offset: half.next, what: What::Reset });
        }
        (half.reset, half.hushed) = (true, true);
    }
}

impl Half {
    /// Where a sequence number stands in the stream; none if it is too far away.
    fn place(&self, sequence: u32) -> Option<i64> {
        let next = self.base?.wrapping_add(self.next as u32);
        let distance = i64::from(sequence.wrapping_sub(next) as i32);
        (distance.abs() <= WINDOW_MAX).then_some(self.next as i64 + distance)
    }

    /// Whether its sender may have sent what comes before this number.
    fn has_sent(&self, sequence: u32) -> bool {
        // Who was not seen to begin may have sent anything before.
        let least = if self.opened { 0 } else { i64::MIN };
        let end = self.end.map_or(0, |(end, _)| end + 1);
        let most = if self.over { end } else { end.max(self.sent) } as i64;
        self.base.is_none() || self.place(sequence).is_some_and(|place| (least..=most).contains(&place))
    }

    /// Whether nothing came of it but what is doubtful.
    fn is_empty(&self) -> bool {
        let is_doubtful = self.waiting.values().all(|waiting| waiting.doubtful);
        self.next == 0 && self.acknowledged == 0 && self.sure_end().is_none() && is_doubtful
    }

    fn sure_end(&self) -> Option<u64> {
        self.end.filter(|(_, doubtful)| !doubtful).map(|(end, _)| end)
    }

    fn acknowledge(&mut self, sequence: u32, direction: Direction, out: &mut Vec<Brought>) {
        let Some(place) = self.place(sequence).filter(|place| *place >= self.next as i64 && !self.over)
        else {
            return;
        };
        self.answered = true;
        self.acknowledged = self.acknowledged.max(place as u64);
        // A byte that is brought, or acknowledged behind it, stands where the end would.
        if let Some((end, doubtful)) = &mut self.end
            && *end >= self.next
            && *end + 1 == place as u64
        {
            *doubtful = false;
        }
        self.bring(direction, out);
        self.give_up(direction, out);
    }

    fn receive(&mut self, segment: &Segment, doubtful: bool, direction: Direction, out: &mut Vec<Brought>) {
        let Some(first) = self.place(segment.first()) else { return };
        let fin = first + i64::from(segment.len);
        if segment.has(FIN) && self.sure_end().is_none() && fin >= self.next as i64 {
            self.end = Some((fin as u64, doubtful));
        }
        let end = self.sure_end().unwrap_or(u64::MAX);
        self.sent = self.sent.max(end.min(fin.max(0) as u64));
        for (place, byte) in (first..).zip(&segment.payload) {
            if place >= self.next as i64 && (place as u64) < end {
                let new = Waiting { byte: *byte, first, doubtful };
                let waits = self.waiting.entry(place as u64).or_insert(new);
                // What is doubtful gives way. Else like Linux: of two bytes in one place the later one counts, unless its
                // segment begins behind the other's.
                if waits.doubtful && !doubtful || waits.doubtful == doubtful && first <= waits.first {
                    *waits = new;
                }
            }
        }
        self.bring(direction, out);
        self.give_up(direction, out);
    }

    /// Brings what is next.
    fn bring(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        let (offset, mut bytes) = (self.next, Vec::new());
        while self.sure_end().is_none_or(|end| self.next < end)
            && let Some(entry) = self.waiting.first_entry()
            && *entry.key() == self.next
            && (!entry.get().doubtful || self.next < self.acknowledged)
        {
            bytes.push(entry.remove().byte);
            self.next += 1;
        }
        if !bytes.is_empty() {
            self.hushed = false;
            out.push(Brought { direction, offset, what: What::Data(bytes) });
        }
        if self.sure_end().is_some_and(|end| self.next >= end) && !self.over {
            out.push(Brought { direction, offset: self.next, what: What::Finished });
            self.over = true;
            self.waiting.clear();
        }
    }

    /// What the receiver has, and we have not, never comes once bytes behind it wait.
    fn give_up(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        while !self.over
            && let Some((place, waits)) = self.waiting.first_key_value()
            && let place = *place
            && self.next < place
            && place + u64::from(waits.doubtful) <= self.acknowledged
        {
            // Behind the end there is nothing.
            let place = self.sure_end().map_or(place, |end| place.min(end));
            out.push(Brought { direction, offset: self.next, what: What::Gap(place - self.next) });
            self.next = place;
            self.bring(direction, out);
        }
    }
}
