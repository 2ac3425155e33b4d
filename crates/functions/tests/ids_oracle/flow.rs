//! The oracle's state of a flow, and the inspection points of its packets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use packet::{Direction, PacketClass};
use signatures::{Buffer, Flowbit, RuleAction};

use super::application::{Detection, Spoken, is_dns};
use super::buffer::Piece;
use super::dns;
use super::header::Place;
use super::http::{Buffers, Input, Look, Messages, Side};
use super::limit::Counts;
use super::prepared::Prepared;
use super::tls::Handshake;
use super::whole::{Found, Whole};
use super::witness::{Brought, Observed, What};

/// Bytes before a piece that are inspected with it.
const LOOKBACK_BYTES: u64 = 2048;
/// Maximum candidates of a direction.
const CANDIDATES_MAX: usize = 64;

/// A flow.
#[derive(Default)]
pub struct FlowState {
    connection: Tcp,
    opening: Opening,
    /// Before the current packet.
    opening_before: Opening,
    bits: BTreeSet<String>,
    ends: Ends,
    /// True if all later packets are dropped.
    dropped: bool,
    /// The first packet with an unspecified effect.
    vague_since: Option<u64>,
}

/// A connection; a restart begins another one.
#[derive(Default)]
struct Tcp {
    detection: Detection,
    halves: [Half; 2],
    messages: Messages,
    /// The previous protocol, known or not, if there was one.
    outer: Option<Spoken>,
    is_again: bool,
    /// Events before the protocol was known.
    before: Vec<Brought>,
}

/// The client of a flow.
#[derive(Default)]
struct Ends {
    /// True if it is not the sender of the first packet.
    turned: bool,
    /// True if a SYN determined it.
    by_syn: bool,
    /// The sender of the last SYN without ACK.
    asked: Option<Direction>,
    /// True after bytes.
    has_bytes: bool,
    /// True after a packet.
    has_begun: bool,
}

/// The progress of a connection, by its packets' flags and stream events.
#[derive(Clone, Copy, Default)]
struct Opening {
    /// The client's SYN, and the server's reply; for other protocols, packets in either direction.
    syns: [bool; 2],
    /// True if the server's reply came first.
    answered: bool,
    /// True if the handshake is complete, or was not seen.
    opened: bool,
    /// True if it was reset, and nothing followed.
    reset: bool,
}

/// A direction of a connection.
#[derive(Default)]
struct Half {
    /// All bytes since the beginning or the last gap, and their offset.
    bytes: Vec<u8>,
    start: u64,
    /// Rules with a found anchor, and its offset.
    candidates: BTreeMap<usize, u64>,
    /// Rules without an anchor that acted.
    acted: BTreeSet<usize>,
    /// The matches in these bytes.
    found: Found,
    handshake: Handshake,
    dns: Vec<u8>,
}

/// The inspection of one packet.
struct Looking<'a> {
    rules: &'a [Prepared],
    /// True if these are all messages.
    complete: bool,
    /// The connection before it.
    before: Opening,
    counts: &'a mut Counts,
    whole: &'a mut Whole,
    packet: &'a Observed,
    /// Rules that acted on it.
    acted: BTreeSet<usize>,
    reported: Vec<usize>,
    /// True if a rule passed it.
    passed: bool,
}

impl Tcp {
    /// Handles a protocol change.
    fn change(&mut self) {
        self.outer = self.detection.known().or(self.outer);
        self.is_again = true;
        self.detection = Detection::default();
        self.messages = Messages::default();
        self.before.clear();
        self.halves.iter_mut().for_each(|half| half.handshake = Handshake::default());
    }
}

impl FlowState {
    /// Inspects the flow's next packet: returns the rules that report.
    pub fn packet(
        &mut self,
        packet: &Observed,
        (rules, complete): (&[Prepared], bool),
        counts: &mut Counts,
        whole: &mut Whole,
    ) -> Vec<usize> {
        if self.dropped {
            return Vec::new();
        }
        // The content that determines the server of such a flow is not examined here.
        let is_guess = match packet.protocol {
            6 => packet.transport.get(13).is_some_and(|flags| flags & 2 == 0),
            17 => packet.source.1 == 53,
            _ => false,
        };
        self.is_vague_if(!self.ends.has_begun && is_guess && packet.class == PacketClass::Whole, packet);
        self.ends.packet(packet);
        let packet = &if self.ends.turned { packet.turned() } else { packet.clone() };
        self.is_vague_if(
            matches!(packet.class, PacketClass::FirstFragment | PacketClass::LaterFragment),
            packet,
        );
        let before = self.opening;
        self.opening_before = before;
        self.opening.packet(packet);
        let ports = match packet.direction {
            Direction::Original => (packet.source.1, packet.destination.1),
            Direction::Reply => (packet.destination.1, packet.source.1),
        };
        let (acted, reported) = (BTreeSet::new(), Vec::new());
        let passed = false;
        let mut looking = Looking { rules, complete, before, counts, whole, packet, acted, reported, passed };
        self.on_packet(&mut looking, ports);
        for brought in &packet.brought {
            self.brought(brought, &mut looking, ports);
        }
        self.opening.reset |= self.opening.opened && packet.brings(|what| *what == What::Reset);
        looking.reported
    }

    /// Returns whether the effect of this packet is unspecified.
    pub fn is_vague_on(&self, packet: &Observed) -> bool {
        self.vague_since.is_some_and(|since| since <= packet.sequence)
    }

    fn is_vague_if(&mut self, so: bool, packet: &Observed) {
        if so {
            self.vague_since.get_or_insert(packet.sequence);
        }
    }

    /// Executes inspection point 1: the packet.
    fn on_packet(&mut self, looking: &mut Looking<'_>, ports: (u16, u16)) {
        let packet = looking.packet;
        let mut buffers = Buffers::new();
        if packet.protocol == 17 && packet.class == PacketClass::Whole {
            self.connection.detection.datagram(packet.direction, &packet.payload, ports);
            let known = self.connection.detection.known() == Some(Spoken::Dns);
            if known && is_dns(&packet.payload, packet.payload.len()) {
                buffers = dns::buffers(&packet.payload);
            }
        }
        buffers.insert(Buffer::Payload, vec![packet.payload.clone().into()]);
        let is_tcp = packet.protocol == 6;
        let rules = looking.chosen(|rule| !is_tcp || rule.occasions.packets);
        for rule in rules {
            self.look(looking, rule, packet.direction, false, &buffers);
        }
    }

    fn brought(&mut self, brought: &Brought, looking: &mut Looking<'_>, ports: (u16, u16)) {
        let direction = brought.direction;
        if let What::Data(bytes) = &brought.what {
            let connection = &self.connection;
            let may_change = direction == Direction::Original && connection.detection.may_change(bytes);
            if may_change || connection.messages.is_switched() {
                self.connection.change();
                // Fewer bytes cannot identify a hello: the behaviour in the meantime is
                // unspecified.
                self.is_vague_if(may_change && bytes.len() < 6, looking.packet);
            }
        }
        let known_before = self.connection.detection.known();
        if let What::Data(bytes) = &brought.what {
            let Tcp { detection, is_again, .. } = &mut self.connection;
            match is_again {
                true => detection.next(direction, bytes, ports),
                false => detection.stream(direction, brought.offset, bytes, ports),
            }
            self.piece(direction, brought.offset, bytes, looking);
        }
        if known_before.is_none() && brought.what != What::Reset {
            self.connection.before.push(brought.clone());
        }
        let fresh = match (known_before, self.connection.detection.known()) {
            (Some(_), _) => vec![brought.clone()],
            (None, Some(_)) => std::mem::take(&mut self.connection.before),
            (None, None) => Vec::new(),
        };
        for brought in &fresh {
            self.messages(brought, looking);
        }
        let half = &mut self.connection.halves[direction.index()];
        match brought.what {
            What::Gap(len) => {
                half.bytes.clear();
                half.found = Found::default();
                half.start = brought.offset + len;
                half.candidates.clear();
                half.dns.clear();
                half.handshake.end();
            }
            What::Restart => {
                // It belongs to the previous connection.
                let now = std::mem::replace(&mut self.opening, looking.before);
                for look in self.connection.messages.cut_short() {
                    self.http(&look, looking);
                }
                self.opening = now;
                self.connection = Tcp::default();
            }
            _ => {}
        }
    }

    /// Executes inspection point 2: a stream piece.
    fn piece(&mut self, direction: Direction, offset: u64, bytes: &[u8], looking: &mut Looking<'_>) {
        let place = self.place(looking.packet, direction, true);
        let half = &mut self.connection.halves[direction.index()];
        if half.bytes.is_empty() {
            half.start = offset;
        }
        half.bytes.extend(bytes);
        let window = half.window(offset);
        let end = offset + bytes.len() as u64;
        let is_open = self.connection.detection.is_open() && self.connection.outer.is_none();
        let may_wait = |rule: &Prepared| super::header::may_wait(&rule.rule, &place, is_open);
        for (at, rule) in looking.rules.iter().enumerate().filter(|(_, rule)| rule.occasions.pieces) {
            let Some((anchor, nocase)) = &rule.anchor else { continue };
            if may_wait(rule)
                && window.has_all(&rule.anchor_pairs)
                && let Some(place) = half.last_found(anchor, *nocase, offset)
            {
                half.candidates.insert(at, place);
            }
        }
        let buffers = Buffers::from([(Buffer::Payload, vec![window])]);
        let chosen = looking.chosen(|rule| rule.occasions.pieces);
        for rule in chosen {
            let half = &self.connection.halves[direction.index()];
            let is_due = match looking.rules[rule].anchor {
                Some(_) => half.candidates.contains_key(&rule),
                None => !half.acted.contains(&rule),
            };
            if is_due && !looking.passed && self.look(looking, rule, direction, true, &buffers) {
                let half = &mut self.connection.halves[direction.index()];
                half.candidates.remove(&rule);
                half.acted.insert(rule);
                half.found.in_window(rule);
            }
        }
        let half = &self.connection.halves[direction.index()];
        let mut found = half.found.clone();
        let stream = (&half.bytes[..], half.start);
        found.compare(looking.rules, stream, &buffers, &place, looking.whole);
        let half = &mut self.connection.halves[direction.index()];
        half.found = found;
        let next_window = half.start.max(end.saturating_sub(LOOKBACK_BYTES));
        half.candidates.retain(|_, place| *place >= next_window);
        if half.candidates.len() > CANDIDATES_MAX {
            let mut waiting: Vec<(usize, u64)> = std::mem::take(&mut half.candidates).into_iter().collect();
            waiting.sort_by_key(|(rule, place)| (Reverse(*place), *rule));
            waiting.truncate(CANDIDATES_MAX);
            half.candidates.extend(waiting);
            self.is_vague_if(!looking.complete, looking.packet);
        }
    }

    /// Executes inspection points 3 to 6: messages.
    fn messages(&mut self, brought: &Brought, looking: &mut Looking<'_>) {
        let direction = brought.direction;
        let half = &mut self.connection.halves[direction.index()];
        match self.connection.detection.known() {
            Some(Spoken::Http1) => {
                let side = match direction {
                    Direction::Original => Side::Request,
                    Direction::Reply => Side::Response,
                };
                let messages = &mut self.connection.messages;
                let looks = match &brought.what {
                    What::Data(bytes) => messages.take(side, Input::Bytes(bytes)),
                    What::Gap(len) => messages.take(side, Input::Gap(*len)),
                    What::Finished => messages.take(side, Input::End),
                    What::Reset => messages.reset(side),
                    What::Restart => return,
                };
                let is_asked = looking.rules.iter().any(|rule| rule.occasions.http.is_some());
                let is_vague = is_asked && messages.is_vague();
                self.is_vague_if(is_vague, looking.packet);
                for look in looks {
                    self.http(&look, looking);
                }
            }
            Some(Spoken::Dns) => {
                let What::Data(bytes) = &brought.what else { return };
                half.dns.extend(bytes);
                let whole = dns::messages(&mut half.dns);
                for message in whole.iter().filter(|message| message.len() >= 12) {
                    let mut buffers = dns::buffers(message);
                    buffers.insert(Buffer::Payload, vec![message.clone().into()]);
                    let rules = looking.chosen(|rule| rule.occasions.dns);
                    rules.into_iter().for_each(|rule| {
                        self.look(looking, rule, direction, true, &buffers);
                    });
                }
            }
            Some(known @ (Spoken::Tls | Spoken::Ssh)) => {
                let What::Data(bytes) = &brought.what else { return };
                let found = match known {
                    Spoken::Tls => half.handshake.tls(bytes),
                    _ => half.handshake.ssh(bytes).into_iter().collect(),
                };
                let window = half.window(brought.offset);
                for mut buffers in found {
                    buffers.insert(Buffer::Payload, vec![window.clone()]);
                    let is_tls = known == Spoken::Tls;
                    let rules =
                        looking.chosen(|rule| if is_tls { rule.occasions.tls } else { rule.occasions.ssh });
                    rules.into_iter().for_each(|rule| {
                        self.look(looking, rule, direction, true, &buffers);
                    });
                }
            }
            _ => {}
        }
    }

    /// Executes inspection point 3: an HTTP message.
    fn http(&mut self, look: &Look, looking: &mut Looking<'_>) {
        let (direction, is_request) = match look.side {
            Side::Request => (Direction::Original, true),
            Side::Response => (Direction::Reply, false),
        };
        self.is_vague_if(look.vague, looking.packet);
        let rules = looking.chosen(|rule| {
            rule.occasions.http.is_some_and(|http| {
                http.with_body == look.with_body && if is_request { http.requests } else { http.responses }
            })
        });
        for rule in rules {
            let place = self.place(looking.packet, direction, true);
            let held = |before| looking.rules[rule].holds(&place, before);
            if !look.before.as_ref().is_some_and(held) {
                self.look(looking, rule, direction, true, &look.buffers);
            }
        }
    }

    /// Inspects one rule; a rule that matches acts. Returns whether it matches.
    fn look(
        &mut self,
        looking: &mut Looking<'_>,
        number: usize,
        direction: Direction,
        assembled: bool,
        buffers: &Buffers,
    ) -> bool {
        let rule = &looking.rules[number];
        let place = self.place(looking.packet, direction, assembled);
        let holds = !looking.passed && rule.holds(&place, buffers) && self.marks_hold(rule);
        self.is_vague_if(rule.gave_up(), looking.packet);
        if !holds {
            return false;
        }
        if !looking.acted.contains(&number) {
            self.act(looking, number, &place);
        }
        true
    }

    fn act(&mut self, looking: &mut Looking<'_>, number: usize, place: &Place<'_>) {
        let rule = &looking.rules[number].rule;
        if rule.detection_filter.is_some_and(|filter| !looking.counts.passes_filter(number, &filter, place)) {
            return;
        }
        looking.acted.insert(number);
        for bit in &rule.flowbits {
            self.mark(bit);
        }
        looking.passed |= rule.action == RuleAction::Pass;
        let drops = matches!(rule.action, RuleAction::Drop | RuleAction::Reject(_));
        self.dropped |= drops && place.assembled;
        let limited = |threshold| !looking.counts.is_reported(number, &threshold, place);
        if !rule.threshold.is_some_and(limited) && rule.alerts {
            looking.reported.push(number);
        }
    }

    fn place<'a>(&self, packet: &'a Observed, direction: Direction, assembled: bool) -> Place<'a> {
        let forward = direction == packet.direction;
        let (source, destination) = (packet.source, packet.destination);
        Place {
            packet,
            ends: if forward { (source, destination) } else { (destination, source) },
            direction,
            // A TCP packet must follow the packet that opened its connection.
            established: self.opening.opened
                && !self.opening.reset
                && (assembled || packet.protocol != 6 || self.opening_before.opened),
            spoken: self.connection.detection.known().or(self.connection.outer),
            assembled,
        }
    }

    fn marks_hold(&self, rule: &Prepared) -> bool {
        rule.rule.flowbits.iter().all(|bit| match bit {
            Flowbit::IsSet(names) => names.iter().any(|name| self.bits.contains(name)),
            Flowbit::IsNotSet(names) => names.iter().any(|name| !self.bits.contains(name)),
            _ => true,
        })
    }

    fn mark(&mut self, bit: &Flowbit) {
        match bit {
            Flowbit::Set(names) => self.bits.extend(names.iter().cloned()),
            Flowbit::Unset(names) => self.bits.retain(|bit| !names.contains(bit)),
            Flowbit::Toggle(names) => names.iter().for_each(|name| {
                if !self.bits.remove(name) {
                    self.bits.insert(name.clone());
                }
            }),
            _ => {}
        }
    }
}

impl Ends {
    /// Handles the next packet.
    fn packet(&mut self, packet: &Observed) {
        let flags = packet.transport.get(13).copied().unwrap_or(0);
        let (is_syn, is_ack) = (flags & 2 != 0, flags & 16 != 0);
        let is_whole = packet.protocol == 6 && packet.class == PacketClass::Whole;
        if is_whole && is_syn && !is_ack {
            self.asked = Some(packet.direction);
        }
        if is_syn && packet.brings(|what| *what == What::Restart) {
            if !is_ack || self.asked == Some(packet.direction.other()) {
                self.turned = (packet.direction == Direction::Reply) != is_ack;
            }
            (self.by_syn, self.has_bytes) = (true, false);
        } else if is_whole && is_syn && !self.by_syn && !self.has_bytes {
            self.turned = (packet.direction == Direction::Reply) != is_ack;
            self.by_syn = !is_ack;
        }
        if is_whole && !is_syn && !self.has_begun {
            self.turned = packet.source.1 < 1024 && packet.destination.1 >= 1024;
        }
        self.has_begun |= packet.class != PacketClass::IcmpError;
        self.has_bytes |= packet.brings(|what| matches!(what, What::Data(_)));
    }
}

impl Opening {
    /// Handles the next packet.
    fn packet(&mut self, packet: &Observed) {
        if packet.protocol != 6 {
            self.syns[packet.direction.index()] = true;
            self.opened = self.syns == [true; 2];
            return;
        }
        if matches!(packet.class, PacketClass::IcmpError | PacketClass::LaterFragment) {
            return;
        }
        if packet.brings(|what| matches!(what, What::Data(_))) {
            self.reset = false;
        }
        if packet.brings(|what| *what == What::Restart) {
            *self = Opening::default();
        }
        let flags = packet.transport.get(13).copied().unwrap_or(0);
        let (is_syn, is_reset, is_ack) = (flags & 2 != 0, flags & 4 != 0, flags & 16 != 0);
        match packet.direction {
            _ if is_reset || self.opened => {}
            _ if is_syn && is_ack && self.syns == [false; 2] => {
                (self.syns, self.answered) = ([true; 2], true);
            }
            _ if self.answered && !is_syn => self.opened = true,
            Direction::Original if is_syn && (self.syns[0] || !is_ack) => self.syns[0] = true,
            Direction::Reply if is_syn && self.syns[0] => self.syns[1] = true,
            Direction::Original if self.syns == [true; 2] => self.opened = is_ack,
            _ => self.opened = !self.syns[0],
        }
    }
}

impl Half {
    /// Returns the input for a piece that begins here and extends to the last byte.
    fn window(&self, offset: u64) -> Piece {
        let start = self.start.max(offset.saturating_sub(LOOKBACK_BYTES));
        Piece::new(self.bytes[(start - self.start) as usize..].to_vec(), start)
    }

    /// Returns the offset of the last occurrence that ends after `offset`.
    fn last_found(&self, anchor: &[u8], nocase: bool, offset: u64) -> Option<u64> {
        let first_end = (offset - self.start) as usize + 1;
        let first = first_end.saturating_sub(anchor.len());
        let same = |place: &usize| {
            let found = &self.bytes[*place..*place + anchor.len()];
            if nocase { found.eq_ignore_ascii_case(anchor) } else { found == anchor }
        };
        let last = self.bytes.len().checked_sub(anchor.len())?;
        (first..=last).rev().find(same).map(|place| self.start + place as u64)
    }
}

impl Looking<'_> {
    /// Returns the rules of an inspection point, in order.
    fn chosen(&self, is_due: impl Fn(&Prepared) -> bool) -> Vec<usize> {
        (0..self.rules.len()).filter(|rule| is_due(&self.rules[*rule])).collect()
    }
}
