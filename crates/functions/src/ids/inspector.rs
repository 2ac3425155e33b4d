//! Inspection of one packet: its inspection points, one after the other. `streams` has those of
//! streams, `protocols` those of messages, `orientation` determines the server, and `actions`
//! executes the rules that match.

use applayer::detect::{AppProtocol, Detection, FlowPorts};
use applayer::dns;
use applayer::http::ExchangeSide;
use mpm::Cursor;
use nf::stream::StreamEventKind;
use nf::{Context, PacketView, Verdict};
use packet::Direction;
use packet::parse::protocol;
use signatures::inspect::InspectionScratch;

mod abandoned;
mod actions;
mod events;
mod fingerprints;
mod mail;
mod orientation;
mod protocols;
mod streams;
mod trailers;

use super::alert_subject::AlertSubject;
use super::candidates::Candidates;
use super::decoder::ContentDecoder;
use super::facts::{HelloFacts, InspectionFacts, PacketFacts};
use super::flowbits::Flowbits;
use super::inspection_buffers::{InspectionBuffers, InspectionInput};
use super::message::HttpMessages;
use super::prefilter::PatternHit;
use super::signature_groups::{GroupPrefilter, PatternUse};
use super::state::{FlowFlags, FlowSize, State};
use super::{COUNTERS, Ids};
use abandoned::AbandonedRules;
use actions::RuleMatches;
pub use protocols::DEFERRED_BYTES;

/// Scratch memory for one packet.
#[derive(Default)]
pub struct PacketScratch {
    /// Rules that may match at an inspection point.
    may_match: Vec<u32>,
    /// Rules that acted on this packet.
    acted: Vec<u32>,
    /// The matches.
    matches: RuleMatches,
    /// Rules without an anchor that acted, or all rules that acted, on a piece of a stream.
    acted_here: Vec<u32>,
    candidates: Candidates,
    /// Pattern hits in the current piece.
    hits: Vec<PatternHit<PatternUse>>,
    /// The rules among them that inspect bodies.
    in_body: Vec<u32>,
    /// Bytes deferred until the protocol was known.
    held: Vec<u8>,
    scratch: InspectionScratch,
    abandoned: AbandonedRules,
    all_buffers: Vec<InspectionBuffers>,
    /// The hello of each TLS message, parallel to its buffers; none for other messages.
    hellos: Vec<Option<HelloFacts>>,
    empty: InspectionBuffers,
    messages: HttpMessages,
    decoder: ContentDecoder,
    name: dns::DnsName,
    /// A piece, and the window before it.
    window: Vec<u8>,
    /// The part of a piece that belongs to another protocol than the rest.
    tail: Vec<u8>,
}

/// The inspection of one packet.
pub struct Inspector<'a, 'c> {
    ids: &'a Ids,
    /// None at the end of a flow.
    packet: Option<&'a PacketView<'a>>,
    context: &'a mut Context<'c>,
    work: &'a mut PacketScratch,
    /// The search of the packet's payload as a stream piece.
    scanned: Option<ScannedPiece<'a>>,
    /// Size of the flow so far.
    size: FlowSize,
    /// True if the packet brings more of a message than is inspected.
    is_beyond: bool,
}

/// The search of a piece.
struct ScannedPiece<'a> {
    /// The prefilter used.
    search: &'a GroupPrefilter,
    /// The application that the rules are for.
    application: Detection,
    /// The search state before it.
    before: Cursor,
}

/// An inspection point: input, facts, and the excerpt for alerts.
#[derive(Clone, Copy)]
struct InspectionPoint<'a> {
    view: InspectionInput<'a>,
    facts: InspectionFacts<'a>,
    excerpt: &'a [u8],
    /// True for a stream, false for the packet alone.
    is_stream: bool,
    /// The message that it belongs to.
    about: AlertSubject<'a>,
}

impl<'a, 'c> Inspector<'a, 'c> {
    /// Begins with a packet.
    pub fn new(
        ids: &'a Ids,
        packet: &'a PacketView<'a>,
        context: &'a mut Context<'c>,
        work: &'a mut PacketScratch,
    ) -> Self {
        Inspector { packet: Some(packet), ..Inspector::at_end(ids, context, work) }
    }

    /// Begins with the end of a flow.
    pub fn at_end(ids: &'a Ids, context: &'a mut Context<'c>, work: &'a mut PacketScratch) -> Self {
        work.acted.clear();
        work.matches.clear();
        Inspector {
            ids,
            packet: None,
            context,
            work,
            scanned: None,
            size: FlowSize::default(),
            is_beyond: false,
        }
    }

    /// Inspects the incomplete messages at the end of the flow.
    pub fn flow_end(mut self, state: &mut State) {
        let Detection::Known(application @ (AppProtocol::Http1 | AppProtocol::Smtp)) =
            state.detector.verdict()
        else {
            return;
        };
        self.size = state.size;
        let flow = self.context.flow();
        let (source, destination) = flow.key.ends(flow.reversed);
        let facts = InspectionFacts {
            source,
            destination,
            protocol: flow.key.protocol,
            version: flow.key.version,
            to_server: state.is_to_server(Direction::Original),
            is_first: false,
            is_first_known: false,
            established: state.connection.is_established(),
            application: state.detector.verdict(),
            stream_sizes: state.stream_sizes(),
            packet: None,
            dns: None,
            hello: None,
        };
        for direction in [Direction::Original, Direction::Reply] {
            let facts = if direction == Direction::Original { facts } else { swapped(facts) };
            self.context.set_direction(direction);
            self.work.acted.clear();
            self.work.matches.clear();
            match application {
                AppProtocol::Smtp => self.mail(direction, facts, state),
                _ => self.end_http(direction, facts, state),
            }
            self.act(state);
        }
    }

    /// Inspects everything that the packet brings.
    pub fn packet(mut self, state: &mut State) -> Verdict {
        let Some(packet) = self.packet else { return Verdict::Forward };
        let own = PacketFacts::of(packet);
        let direction = self.context.direction();
        // Events that a new connection ends belong to the previous one, and so does its direction.
        let restarts = restarts(packet, own.protocol);
        let (was_turned, before) = (state.flags.has(FlowFlags::TURNED), state.connection);
        let is_first = self.orient(packet, &own, direction, restarts, state);
        let way = state.way(direction);
        state.connection.packet(packet, way, self.ids.async_oneside);
        state.size.packet(direction, self.context.now_ns(), packet.ip_len());
        self.size = state.size;
        let datagram = packet.stream().datagram();
        let whole = datagram.map(|datagram| PacketFacts::assembled(packet, datagram));
        state.add_sent(packet.stream());
        let (mut source, mut destination) = packet.ends();
        if let Some((from, to)) = whole.as_ref().and_then(PacketFacts::ports) {
            (source.port, destination.port) = (from, to);
        } else if own.class == packet::PacketClass::LaterFragment && own.protocol == protocol::TCP {
            // The stream events have the ports of the datagram's first fragment.
            let meta = packet.meta();
            let (from, to) = meta.key.ends(meta.reversed);
            (source.port, destination.port) = (from.port, to.port);
        }
        // The headers of later fragments may lie about the datagram.
        let number = whole.as_ref().map_or(own.protocol, |whole| whole.protocol);
        let mut facts = InspectionFacts {
            source,
            destination,
            protocol: number,
            version: own.version,
            to_server: way == Direction::Original,
            is_first,
            is_first_known: false,
            established: state.connection.is_established(),
            application: state.application(),
            stream_sizes: state.stream_sizes(),
            packet: None,
            dns: None,
            hello: None,
        };
        let is_tcp = number == protocol::TCP;
        if is_tcp && facts.application == Detection::Unknown && !state.protocol_change.is_again() {
            facts = self.preview_protocol(packet, facts, direction, state);
        }
        facts.is_first_known = facts.application != Detection::Unknown && state.flags.see_known(direction);
        let established = facts.established;
        if is_tcp {
            // The packet that establishes a connection is not part of the established connection.
            facts.established &= before.was_established();
        }
        self.one_packet(packet, &own, facts, direction, state);
        if let Some(whole) = &whole {
            self.whole_datagram(packet, whole, facts, direction, state);
        }
        // Applies to passed packets too: they are parts of their streams and messages.
        for event in packet.stream() {
            let ends =
                if event.direction == direction { (source, destination) } else { (destination, source) };
            let (swapped, established) = match event.kind {
                StreamEventKind::Restart => (was_turned, before.is_established()),
                _ => (state.flags.has(FlowFlags::TURNED), established),
            };
            let to_server = (event.direction == Direction::Original) != swapped;
            let of_stream =
                InspectionFacts { source: ends.0, destination: ends.1, to_server, established, ..facts };
            self.stream(event, of_stream, state);
        }
        self.verdict(state)
    }

    /// Returns the datagram that a packet completes.
    #[cold]
    #[inline(never)]
    fn whole_datagram(
        &mut self,
        packet: &'a PacketView<'a>,
        own: &PacketFacts<'_>,
        facts: InspectionFacts<'_>,
        direction: Direction,
        state: &mut State,
    ) {
        self.one_packet(packet, own, facts, direction, state);
    }

    /// Returns the facts of a packet, or of the datagram that it completes.
    #[inline(always)]
    fn one_packet(
        &mut self,
        packet: &'a PacketView<'a>,
        own: &PacketFacts<'_>,
        facts: InspectionFacts<'_>,
        direction: Direction,
        state: &mut State,
    ) {
        if own.protocol == protocol::UDP && !own.is_fragment() {
            let facts = self.preview_datagram(own, facts, direction, state);
            let facts = InspectionFacts { packet: Some(own), ..facts };
            if facts.application == Detection::Known(AppProtocol::Dns) {
                self.dns(own.payload, 0, facts, state, true);
            } else {
                self.on_packet(facts, own, &mut state.flowbits);
            }
        } else {
            if !own.is_assembled && brings_its_payload(packet, direction, own.payload) {
                self.scan(&facts, packet.payload(), &mut state.cursors[direction.index()]);
            }
            self.on_packet(InspectionFacts { packet: Some(own), ..facts }, own, &mut state.flowbits);
        }
    }

    /// Inspects the packet alone. If its payload was searched as a stream piece, the hits are
    /// reused.
    fn on_packet(&mut self, facts: InspectionFacts<'_>, own: &PacketFacts<'_>, flowbits: &mut Flowbits) {
        let (protocol, port) = (own.protocol, ports(&facts).server);
        let searches = &self.ids.searches;
        let scanned = self.scanned.as_ref().filter(|_| !own.is_assembled).map(|scanned| scanned.search);
        let made = || searches.packet(protocol, facts.to_server, port, facts.application);
        let Some(search) = scanned.or_else(made) else { return };
        let mut may_match = std::mem::take(&mut self.work.may_match);
        may_match.clear();
        let hits = scanned.map(|_| &self.work.hits[..]);
        let searched = search.packet(own.payload, hits, &mut may_match);
        self.context.count(COUNTERS.bytes_searched, searched as u64);
        if !may_match.is_empty() {
            let empty = std::mem::take(&mut self.work.empty);
            let view = InspectionInput { payload: own.payload, start: 0, buffers: &empty, packet: Some(own) };
            let about = AlertSubject::Nothing;
            let point = InspectionPoint { view, facts, excerpt: own.payload, is_stream: false, about };
            self.inspect(&mut may_match, point, flowbits);
            self.work.empty = empty;
        }
        self.work.may_match = may_match;
    }

    /// Inspects rules at an inspection point, in their order, and records the matches.
    fn inspect(&mut self, may_match: &mut Vec<u32>, point: InspectionPoint<'_>, flowbits: &mut Flowbits) {
        may_match.sort_unstable();
        may_match.dedup();
        let mut looked_at = 0;
        let (gave_up, steps) = (self.work.scratch.exhausted(), self.work.scratch.steps());
        let mut abandoned = gave_up;
        for &number in may_match.iter() {
            let signature = &self.ids.signatures[number as usize];
            let has_acted = self.work.acted.contains(&number);
            if has_acted && !self.may_widen(number, &point) {
                // The rule has acted on this packet.
                self.work.acted_here.push(number);
                continue;
            }
            let payload = (point.view.payload, point.excerpt.len());
            if !signature.applies(&point.facts, flowbits, payload) {
                continue;
            }
            looked_at += 1;
            if !point.view.holds(&signature.inspection, &mut self.work.scratch) {
                if self.work.scratch.exhausted() != abandoned {
                    abandoned = self.work.scratch.exhausted();
                    self.give_up(number);
                }
                continue;
            }
            self.work.acted_here.push(number);
            if has_acted {
                self.widen(number);
                continue;
            }
            let tracked = self.tracked(number, (point.facts.source, point.facts.destination));
            if signature.filter.is_some_and(|filter| !tracked.passes(&filter, self.context)) {
                continue;
            }
            self.work.acted.push(number);
            signature.change(flowbits);
            self.hold(number, &point);
        }
        if looked_at > 0 {
            self.context.count(COUNTERS.rules_evaluated, looked_at);
            self.context.count(COUNTERS.rules_abandoned, self.work.scratch.exhausted() - gave_up);
            self.context.count(COUNTERS.rule_steps, self.work.scratch.steps() - steps);
        }
    }
}

/// Returns whether the first stream event of the packet is its own payload, in its own direction.
#[inline(always)]
fn brings_its_payload(packet: &PacketView<'_>, direction: Direction, payload: &[u8]) -> bool {
    packet.stream().next().is_some_and(|event| match event.kind {
        StreamEventKind::Data(piece) => event.direction == direction && std::ptr::eq(piece, payload),
        _ => false,
    })
}

/// Returns the side that sends in this direction.
fn side(to_server: bool) -> ExchangeSide {
    if to_server { ExchangeSide::Request } else { ExchangeSide::Response }
}

/// Returns whether a new connection begins with the endpoints of an ended one.
fn restarts(packet: &PacketView<'_>, number: u8) -> bool {
    const SYN: u8 = 2;
    let is_syn = number == protocol::TCP && packet.meta().tcp_flags & SYN != 0;
    is_syn && packet.stream().any(|event| event.kind == StreamEventKind::Restart)
}

/// Returns the facts of the other direction.
fn swapped(facts: InspectionFacts<'_>) -> InspectionFacts<'_> {
    InspectionFacts {
        source: facts.destination,
        destination: facts.source,
        to_server: !facts.to_server,
        ..facts
    }
}

fn ports(facts: &InspectionFacts<'_>) -> FlowPorts {
    let (client, server) = match facts.to_server {
        true => (facts.source, facts.destination),
        false => (facts.destination, facts.source),
    };
    FlowPorts { client: client.port, server: server.port }
}
