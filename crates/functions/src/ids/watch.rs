//! What is done with one packet: the occasions that it brings, one after the other. `streams` has
//! the occasions of streams, `protocols` those of messages, `facing` says who is the server, and
//! `actions` what rules do that hold.

use applayer::detect::{Application, Ports, Verdict as Found};
use applayer::dns;
use applayer::http::Side;
use mpm::Cursor;
use nf::stream::StreamEventKind;
use nf::{Context, PacketView, Verdict};
use packet::Direction;
use packet::parse::protocol;
use signatures::inspect::Scratch;

mod actions;
mod events;
mod facing;
mod given_up;
mod protocols;
mod streams;

use super::about::About;
use super::candidates::Candidates;
use super::decoder::Decoder;
use super::facts::{Facts, PacketFacts};
use super::lane::{Search, Sought};
use super::marks::Marks;
use super::message::Messages;
use super::prefilter::Hit;
use super::scene::{Scene, View};
use super::state::{Flags, Size, State};
use super::{Ids, counter};
use actions::Matches;
use given_up::GivenUp;

/// What is needed while a packet is looked at, and has no meaning afterwards.
#[derive(Default)]
pub struct Work {
    /// Rules that may hold on an occasion.
    may_hold: Vec<u32>,
    /// Rules that acted on this packet.
    acted: Vec<u32>,
    /// What they are about.
    matches: Matches,
    /// Rules without an anchor that acted, or all that acted, on a piece of a stream.
    acted_here: Vec<u32>,
    candidates: Candidates,
    /// What was found in the piece at hand.
    hits: Vec<Hit<Sought>>,
    /// Of these, rules that look into bodies.
    in_body: Vec<u32>,
    /// Bytes that were held back until the protocol was known.
    held: Vec<u8>,
    scratch: Scratch,
    given_up: GivenUp,
    scenes: Vec<Scene>,
    empty: Scene,
    messages: Messages,
    decoder: Decoder,
    name: dns::Name,
    /// A piece, and the window before it.
    window: Vec<u8>,
    /// What of a piece is another protocol's than the piece before it.
    tail: Vec<u8>,
}

/// One packet, while it is looked at.
pub struct Watch<'a, 'c> {
    ids: &'a Ids,
    /// None where the flow's end is the occasion.
    packet: Option<&'a PacketView<'a>>,
    context: &'a mut Context<'c>,
    work: &'a mut Work,
    /// The piece that the packet brings was searched with the packet.
    scanned: Option<Scanned<'a>>,
    /// What has come of the flow.
    size: Size,
}

/// How a piece was searched.
struct Scanned<'a> {
    /// By this, ...
    search: &'a Search,
    /// ... for rules of this application, ...
    application: Found,
    /// ... from here.
    before: Cursor,
}

/// An occasion: what there is, what is known, and what an alert shows of it.
#[derive(Clone, Copy)]
struct Occasion<'a> {
    view: View<'a>,
    facts: Facts<'a>,
    excerpt: &'a [u8],
    /// Whether it is of a stream, and not of the packet alone.
    is_stream: bool,
    /// The message that it is about.
    about: About<'a>,
}

impl<'a, 'c> Watch<'a, 'c> {
    /// Begins with a packet.
    pub fn new(
        ids: &'a Ids,
        packet: &'a PacketView<'a>,
        context: &'a mut Context<'c>,
        work: &'a mut Work,
    ) -> Self {
        Watch { packet: Some(packet), ..Watch::at_end(ids, context, work) }
    }

    /// Begins with the end of a flow.
    pub fn at_end(ids: &'a Ids, context: &'a mut Context<'c>, work: &'a mut Work) -> Self {
        work.acted.clear();
        work.matches.clear();
        Watch { ids, packet: None, context, work, scanned: None, size: Size::default() }
    }

    /// The flow's time is over: what came of messages that have not ended is looked at.
    pub fn flow_end(mut self, state: &mut State) {
        if state.detector.verdict() != Found::Known(Application::Http1) {
            return;
        }
        self.size = state.size;
        let flow = self.context.flow();
        let (source, destination) = flow.key.ends(flow.reversed);
        let facts = Facts {
            source,
            destination,
            protocol: flow.key.protocol,
            version: flow.key.version,
            to_server: state.is_to_server(Direction::Original),
            is_first: false,
            is_first_known: false,
            established: state.standing.is_established(),
            application: state.detector.verdict(),
            packet: None,
            dns: None,
        };
        for direction in [Direction::Original, Direction::Reply] {
            let facts = if direction == Direction::Original { facts } else { turned(facts) };
            self.context.set_direction(direction);
            self.work.acted.clear();
            self.work.matches.clear();
            self.http_over(direction, facts, state);
            self.act(state);
        }
    }

    /// Looks at all that the packet brings.
    pub fn packet(mut self, state: &mut State) -> Verdict {
        let Some(packet) = self.packet else { return Verdict::Forward };
        let own = PacketFacts::of(packet);
        let direction = self.context.direction();
        // What a new connection ends is of the one before, and so is its direction.
        let restarts = restarts(packet, own.protocol);
        let (was_turned, before) = (state.flags.has(Flags::TURNED), state.standing);
        let is_first = self.face(packet, &own, direction, restarts, state);
        let way = state.way(direction);
        state.standing.packet(packet, way, self.ids.async_oneside);
        state.size.packet(direction, self.context.now_ns(), packet.ip_len());
        self.size = state.size;
        let datagram = packet.stream().datagram();
        let whole = datagram.map(|datagram| PacketFacts::assembled(packet, datagram));
        let (mut source, mut destination) = packet.ends();
        if let Some((from, to)) = whole.as_ref().and_then(PacketFacts::ports) {
            (source.port, destination.port) = (from, to);
        } else if own.class == packet::PacketClass::LaterFragment && own.protocol == protocol::TCP {
            // What it brings to streams is of the ports that its datagram's first fragment names.
            let meta = packet.meta();
            let (from, to) = meta.key.ends(meta.reversed);
            (source.port, destination.port) = (from.port, to.port);
        }
        // Of later fragments, headers may not say what the datagram is of.
        let number = whole.as_ref().map_or(own.protocol, |whole| whole.protocol);
        let mut facts = Facts {
            source,
            destination,
            protocol: number,
            version: own.version,
            to_server: way == Direction::Original,
            is_first,
            is_first_known: false,
            established: state.standing.is_established(),
            application: state.application(),
            packet: None,
            dns: None,
        };
        let is_tcp = number == protocol::TCP;
        if is_tcp && facts.application == Found::Unknown && !state.handover.is_again() {
            facts = self.listen(packet, facts, direction, state);
        }
        facts.is_first_known = facts.application != Found::Unknown && state.flags.see_known(direction);
        let established = facts.established;
        if is_tcp {
            // Of a connection's packets, those after the one that establishes it.
            facts.established &= before.was_established();
        }
        self.one_packet(packet, &own, facts, direction, state);
        if let Some(whole) = &whole {
            self.whole_datagram(packet, whole, facts, direction, state);
        }
        // Of a packet that passes as well: it is a part of its streams, and of the messages in
        // these.
        for event in packet.stream() {
            let ends =
                if event.direction == direction { (source, destination) } else { (destination, source) };
            let (turned, established) = match event.kind {
                StreamEventKind::Restart => (was_turned, before.is_established()),
                _ => (state.flags.has(Flags::TURNED), established),
            };
            let to_server = (event.direction == Direction::Original) != turned;
            let of_stream = Facts { source: ends.0, destination: ends.1, to_server, established, ..facts };
            self.stream(event, of_stream, state);
        }
        self.verdict(state)
    }

    /// The datagram that a packet completes.
    #[cold]
    #[inline(never)]
    fn whole_datagram(
        &mut self,
        packet: &'a PacketView<'a>,
        own: &PacketFacts<'_>,
        facts: Facts<'_>,
        direction: Direction,
        state: &mut State,
    ) {
        self.one_packet(packet, own, facts, direction, state);
    }

    /// A packet, or the datagram that it completes.
    #[inline(always)]
    fn one_packet(
        &mut self,
        packet: &'a PacketView<'a>,
        own: &PacketFacts<'_>,
        facts: Facts<'_>,
        direction: Direction,
        state: &mut State,
    ) {
        if own.protocol == protocol::UDP && !own.is_fragment() {
            let facts = self.listen_to_datagram(own, facts, direction, state);
            let facts = Facts { packet: Some(own), ..facts };
            if facts.application == Found::Known(Application::Dns) {
                self.dns(own.payload, 0, facts, &mut state.marks, true);
            } else {
                self.on_packet(facts, own, &mut state.marks);
            }
        } else {
            if !own.is_assembled && brings_its_payload(packet, direction, own.payload) {
                self.scan(&facts, packet.payload(), &mut state.cursors[direction.index()]);
            }
            self.on_packet(Facts { packet: Some(own), ..facts }, own, &mut state.marks);
        }
    }

    /// The packet alone. What is to be found in its payload was found if that is a piece that was
    /// searched.
    fn on_packet(&mut self, facts: Facts<'_>, own: &PacketFacts<'_>, marks: &mut Marks) {
        let (protocol, port) = (own.protocol, ports(&facts).server);
        let searches = &self.ids.searches;
        let scanned = self.scanned.as_ref().filter(|_| !own.is_assembled).map(|scanned| scanned.search);
        let made = || searches.packet(protocol, facts.to_server, port, facts.application);
        let Some(search) = scanned.or_else(made) else { return };
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        let hits = scanned.map(|_| &self.work.hits[..]);
        let searched = search.packet(own.payload, hits, &mut may_hold);
        self.context.count(counter::INSPECTED_BYTES, searched as u64);
        let empty = std::mem::take(&mut self.work.empty);
        let view = View { payload: own.payload, start: 0, scene: &empty, packet: Some(own) };
        let about = About::Nothing;
        let occasion = Occasion { view, facts, excerpt: own.payload, is_stream: false, about };
        self.look(&mut may_hold, occasion, marks);
        self.work.empty = empty;
        self.work.may_hold = may_hold;
    }

    /// Looks at rules on an occasion, in their order, and notes which hold.
    fn look(&mut self, may_hold: &mut Vec<u32>, occasion: Occasion<'_>, marks: &mut Marks) {
        may_hold.sort_unstable();
        may_hold.dedup();
        let mut looked_at = 0;
        let (gave_up, steps) = (self.work.scratch.exhausted(), self.work.scratch.steps());
        let mut given_up = gave_up;
        for &number in may_hold.iter() {
            let signature = &self.ids.signatures[number as usize];
            let has_acted = self.work.acted.contains(&number);
            if has_acted && !self.may_widen(number, &occasion) {
                // It has acted on what this packet brings.
                self.work.acted_here.push(number);
                continue;
            }
            if !signature.applies(&occasion.facts, marks) {
                continue;
            }
            looked_at += 1;
            if !occasion.view.holds(&signature.inspection, &mut self.work.scratch) {
                if self.work.scratch.exhausted() != given_up {
                    given_up = self.work.scratch.exhausted();
                    self.give_up(number);
                }
                continue;
            }
            self.work.acted_here.push(number);
            if has_acted {
                self.widen(number);
                continue;
            }
            let tracked = self.tracked(number, (occasion.facts.source, occasion.facts.destination));
            if signature.filter.is_some_and(|filter| !tracked.passes(&filter, self.context)) {
                continue;
            }
            self.work.acted.push(number);
            signature.change(marks);
            self.hold(number, &occasion);
        }
        if looked_at > 0 {
            self.context.count(counter::LOOKED_AT, looked_at);
            self.context.count(counter::GAVE_UP, self.work.scratch.exhausted() - gave_up);
            self.context.count(counter::STEPS, self.work.scratch.steps() - steps);
        }
    }
}

/// Whether the first thing that the packet brings to its streams is its own payload, as a piece of
/// its own direction's.
#[inline(always)]
fn brings_its_payload(packet: &PacketView<'_>, direction: Direction, payload: &[u8]) -> bool {
    packet.stream().next().is_some_and(|event| match event.kind {
        StreamEventKind::Data(piece) => event.direction == direction && std::ptr::eq(piece, payload),
        _ => false,
    })
}

/// Which side's words go this way.
fn side(to_server: bool) -> Side {
    if to_server { Side::Request } else { Side::Response }
}

/// Whether a new connection begins, on ports of one that is over.
fn restarts(packet: &PacketView<'_>, number: u8) -> bool {
    const SYN: u8 = 2;
    let is_syn = number == protocol::TCP && packet.meta().tcp_flags & SYN != 0;
    is_syn && packet.stream().any(|event| event.kind == StreamEventKind::Restart)
}

/// What is known of the other direction.
fn turned(facts: Facts<'_>) -> Facts<'_> {
    Facts { source: facts.destination, destination: facts.source, to_server: !facts.to_server, ..facts }
}

fn ports(facts: &Facts<'_>) -> Ports {
    let (client, server) = match facts.to_server {
        true => (facts.source, facts.destination),
        false => (facts.destination, facts.source),
    };
    Ports { client: client.port, server: server.port }
}
