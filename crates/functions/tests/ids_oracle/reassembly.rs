//! Streams put together byte by byte, from the segments of packets: what each packet brings to its flow's streams.

use std::collections::{BTreeMap, HashMap};

use packet::Direction;

use super::segments::{ACK, FIN, RST, SYN, Segment};
use super::witness::{Brought, Observed, What};

/// The largest window that TCP has (RFC 7323 2.3): what is farther away belongs to no connection.
const WINDOW_MAX: i64 = 1 << 30;
/// Bytes that wait for those before them, at most.
const WAITING_MAX: usize = 200 << 10;

/// What packets bring to their flows' streams.
#[derive(Default)]
pub struct Reassembly {
    flows: HashMap<u64, [Half; 2]>,
    /// Flows of which more waits than may: when they are given up, nothing says.
    vague: Vec<u64>,
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Half {
    /// The sequence number of the first byte.
    base: Option<u32>,
    /// How many bytes were brought, or given up.
    next: u64,
    /// Bytes that wait, each at its place, and where its segment began.
    waiting: BTreeMap<u64, (u8, i64)>,
    /// Where the stream ends.
    end: Option<u64>,
    /// Up to where the receiver has all.
    acknowledged: u64,
    /// The receiver acknowledged something.
    answered: bool,
    over: bool,
    reset: bool,
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
        if let Some(segment) = Segment::read(&packet.network) {
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
    if !segment.has(SYN | RST | ACK) || segment.has(SYN) && !opens(halves, direction, segment, out) {
        return;
    }
    if segment.has(ACK) {
        // An answer says which of several attempts to open it is to.
        let its = &halves[other];
        let may_choose = its.next == 0 && its.waiting.is_empty() && !its.over && its.end.is_none();
        if segment.has(SYN)
            && !halves[own].answered
            && its.base.is_some_and(|base| base != segment.acknowledged)
            && may_choose
            && its.acknowledged == 0
        {
            halves[other] = Half { base: Some(segment.acknowledged), ..Half::default() };
        }
        halves[other].acknowledge(segment.acknowledged, direction.other(), out);
    }
    let says = segment.len > 0 || segment.has(FIN);
    if halves[own].base.is_none() && says {
        halves[own].base = Some(segment.first()); // The opening was not seen.
    }
    if segment.has(RST) {
        reset(halves, direction, segment, out);
    } else if says && !halves[own].over {
        halves[own].receive(segment, direction, out);
    }
}

/// What a SYN does; whether hosts heed it.
fn opens(halves: &mut [Half; 2], direction: Direction, segment: &Segment, out: &mut Vec<Brought>) -> bool {
    let first = segment.first();
    let (own, other) = (&halves[direction.index()], &halves[direction.other().index()]);
    let fresh = Half { base: Some(first), ..Half::default() };
    match own.base {
        None => halves[direction.index()] = fresh,
        Some(base) if base == first => {}
        // The ports are used again (RFC 9293 3.6.1).
        Some(_) if halves.iter().any(|half| half.over || half.reset) => {
            if !segment.has(ACK) {
                *halves = <[Half; 2]>::default();
                out.push(Brought { direction, offset: 0, what: What::Restart });
            }
            halves[direction.index()] = fresh;
        }
        // Another attempt, as long as nobody answered; but no second answer.
        Some(_) => {
            let is_second = other.answered && segment.has(ACK) && Some(segment.acknowledged) == other.base;
            if own.next > 0 || !own.waiting.is_empty() || own.answered || is_second {
                return false;
            }
            halves[direction.index()] = fresh;
        }
    }
    true
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
        if !half.over && !half.reset {
            out.push(Brought { direction, offset: half.next, what: What::Reset });
        }
        half.reset = true;
    }
}

impl Half {
    /// Where a sequence number stands in the stream; none if it is too far away.
    fn place(&self, sequence: u32) -> Option<i64> {
        let next = self.base?.wrapping_add(self.next as u32);
        let distance = i64::from(sequence.wrapping_sub(next) as i32);
        (distance.abs() <= WINDOW_MAX).then_some(self.next as i64 + distance)
    }

    fn acknowledge(&mut self, sequence: u32, direction: Direction, out: &mut Vec<Brought>) {
        let Some(place) = self.place(sequence).filter(|place| *place >= self.next as i64 && !self.over)
        else {
            return;
        };
        self.answered = true;
        self.acknowledged = self.acknowledged.max(place as u64);
        self.give_up(direction, out);
    }

    fn receive(&mut self, segment: &Segment, direction: Direction, out: &mut Vec<Brought>) {
        let Some(first) = self.place(segment.first()) else { return };
        let fin = first + i64::from(segment.len);
        if segment.has(FIN) && self.end.is_none() && fin >= self.next as i64 {
            self.end = Some(fin as u64);
        }
        for (place, byte) in (first..).zip(&segment.payload) {
            if place >= self.next as i64 && (place as u64) < self.end.unwrap_or(u64::MAX) {
                // Like Linux: of two bytes in one place the later one counts, unless its segment begins behind the other's.
                let waits = self.waiting.entry(place as u64).or_insert((*byte, first));
                if first <= waits.1 {
                    *waits = (*byte, first);
                }
            }
        }
        self.bring(direction, out);
        self.give_up(direction, out);
    }

    /// Brings what is next.
    fn bring(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        let (offset, mut bytes) = (self.next, Vec::new());
        while self.end.is_none_or(|end| self.next < end)
            && let Some((byte, _)) = self.waiting.remove(&self.next)
        {
            bytes.push(byte);
            self.next += 1;
        }
        if !bytes.is_empty() {
            out.push(Brought { direction, offset, what: What::Data(bytes) });
        }
        if self.end.is_some_and(|end| self.next >= end) && !self.over {
            out.push(Brought { direction, offset: self.next, what: What::Finished });
            self.over = true;
            self.waiting.clear();
        }
    }

    /// What the receiver has, and we have not, never comes once bytes behind it wait.
    fn give_up(&mut self, direction: Direction, out: &mut Vec<Brought>) {
        while !self.over
            && let Some(waits) = self.waiting.keys().next().copied()
            && self.next < waits
            && waits <= self.acknowledged
        {
            out.push(Brought { direction, offset: self.next, what: What::Gap(waits - self.next) });
            self.next = waits;
            self.bring(direction, out);
        }
    }
}
