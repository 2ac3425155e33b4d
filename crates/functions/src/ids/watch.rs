//! What is done with one packet: the occasions that it brings, one after the other, and what rules do that hold.
//! `streams` has the occasions of streams, `protocols` those of messages.

use dissect::detect::{Application, Ports, Verdict as Found};
use dissect::dns;
use http::Side;
use inspect::Scratch;
use literals::Cursor;
use nf::answer::{self, IcmpError};
use nf::stream::StreamEventKind;
use nf::{AlertDetail, Context, PacketView, Verdict};
use packet::parse::protocol;
use packet::{Direction, DropReason, split_mix};
use rules::Action;

mod events;
mod protocols;
mod streams;

use super::about::About;
use super::candidates::Candidates;
use super::decoder::Decoder;
use super::facts::{Facts, PacketFacts};
use super::lane::{Search, Sought};
use super::limit::Tracked;
use super::marks::Marks;
use super::message::Messages;
use super::prefilter::Hit;
use super::scene::{Scene, View};
use super::state::{Size, State};
use super::{EXCERPT_BYTES, Ids, counter};

/// What is needed while a packet is looked at, and has no meaning afterwards.
#[derive(Default)]
pub struct Work {
    /// Rules that may hold on an occasion.
    may_hold: Vec<u32>,
    /// Rules that acted on this packet.
    acted: Vec<u32>,
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
    /// Why the packet is dropped.
    drop: Option<DropReason>,
    drops_flow: bool,
    /// A rule says that nothing more of this packet is looked at.
    is_passed: bool,
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
        Watch {
            ids,
            packet: None,
            context,
            work,
            drop: None,
            drops_flow: false,
            is_passed: false,
            scanned: None,
            size: Size::default(),
        }
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
            to_server: true,
            established: state.standing.is_established(),
            application: state.detector.verdict(),
            packet: None,
            dns: None,
        };
        for direction in [Direction::Original, Direction::Reply] {
            let facts = if direction == Direction::Original { facts } else { turned(facts) };
            self.context.turn(direction);
            self.work.acted.clear();
            self.is_passed = false;
            self.http_over(direction, facts, state);
        }
    }

    /// Looks at all that the packet brings.
    pub fn packet(mut self, state: &mut State) -> Verdict {
        let Some(packet) = self.packet else { return Verdict::Forward };
        let own = PacketFacts::of(packet);
        let (mut source, mut destination) = packet.ends();
        if own.class == packet::Class::LaterFragment && own.protocol == protocol::TCP {
            // What it brings to streams is of the ports that its datagram's first fragment names.
            let meta = packet.meta();
            let (from, to) = meta.key.ends(meta.reversed);
            (source.port, destination.port) = (from.port, to.port);
        }
        let direction = self.context.direction();
        let was_established = state.standing.is_established();
        state.standing.packet(packet, direction);
        state.size.packet(direction, self.context.now_ns(), packet.ip_len());
        self.size = state.size;
        let facts = Facts {
            source,
            destination,
            protocol: own.protocol,
            version: own.version,
            to_server: direction == Direction::Original,
            established: state.standing.is_established(),
            application: state.application(),
            packet: None,
            dns: None,
        };
        if own.protocol == protocol::UDP && own.class != packet::Class::LaterFragment {
            let application = state.detector.datagram(side(direction), own.payload, ports(&facts));
            let facts = Facts { application, packet: Some(&own), ..facts };
            if application == Found::Known(Application::Dns) {
                self.dns(own.payload, 0, facts, &mut state.marks, true);
            } else {
                self.on_packet(facts, &own, &mut state.marks);
            }
        } else {
            if brings_its_payload(packet, direction, own.payload) {
                self.scan(&facts, own.payload, &mut state.cursors[direction.index()]);
            }
            self.on_packet(Facts { packet: Some(&own), ..facts }, &own, &mut state.marks);
        }
        // Of a packet that passes as well: it is a part of its streams, and of the messages in these.
        for event in packet.stream() {
            let ends =
                if event.direction == direction { (source, destination) } else { (destination, source) };
            let to_server = event.direction == Direction::Original;
            // What a new connection ends is of the one before.
            let established =
                if event.kind == StreamEventKind::Restart { was_established } else { facts.established };
            let of_stream = Facts { source: ends.0, destination: ends.1, to_server, established, ..facts };
            self.stream(event, of_stream, state);
        }
        self.verdict(state)
    }

    fn verdict(self, state: &mut State) -> Verdict {
        let made_bytes = self.ids.searches.take_made_bytes();
        if made_bytes > 0 {
            self.context.count(counter::SEARCH_BYTES, made_bytes);
        }
        let Some(reason) = self.drop.filter(|_| self.ids.prevents) else { return Verdict::Forward };
        if self.drops_flow {
            state.is_dropped = 1;
        }
        let counter = if reason == DropReason::IdsRule { counter::DROPPED } else { counter::REJECTED };
        self.context.count(counter, 1);
        Verdict::Drop(reason)
    }

    /// The packet alone. What is to be found in its payload was found if that is a piece that was searched.
    fn on_packet(&mut self, facts: Facts<'_>, own: &PacketFacts<'_>, marks: &mut Marks) {
        let (protocol, port) = (own.protocol, ports(&facts).server);
        let searches = &self.ids.searches;
        let scanned = self.scanned.as_ref().map(|scanned| scanned.search);
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

    /// Looks at rules on an occasion, in their order, and does what those say that hold; at none if the packet passes.
    fn look(&mut self, may_hold: &mut Vec<u32>, occasion: Occasion<'_>, marks: &mut Marks) {
        if self.is_passed {
            return;
        }
        may_hold.sort_unstable();
        may_hold.dedup();
        let (mut looked_at, gave_up) = (0, self.work.scratch.exhausted());
        for &number in may_hold.iter() {
            let signature = &self.ids.signatures[number as usize];
            if self.work.acted.contains(&number) {
                // It has acted on what this packet brings.
                self.work.acted_here.push(number);
                continue;
            }
            if !signature.applies(&occasion.facts, marks) {
                continue;
            }
            looked_at += 1;
            if !occasion.view.holds(&signature.inspection, &mut self.work.scratch) {
                continue;
            }
            let tracked = self.tracked(number, &occasion.facts);
            self.work.acted_here.push(number);
            if signature.filter.is_some_and(|filter| !tracked.passes(&filter, self.context)) {
                continue;
            }
            self.work.acted.push(number);
            signature.change(marks);
            self.act(number, &tracked, &occasion);
            if self.is_passed {
                break;
            }
        }
        if looked_at > 0 {
            self.context.count(counter::LOOKED_AT, looked_at);
            self.context.count(counter::GAVE_UP, self.work.scratch.exhausted() - gave_up);
        }
    }

    fn act(&mut self, number: u32, tracked: &Tracked, occasion: &Occasion<'_>) {
        let signature = &self.ids.signatures[number as usize];
        match signature.action {
            Action::Alert => {}
            Action::Pass => {
                self.is_passed = true;
                self.context.count(counter::PASSED, 1);
            }
            Action::Drop => self.drop(DropReason::IdsRule, occasion),
            Action::Reject(_) => {
                // One answer will do.
                let answers = self.ids.prevents && self.drop.is_none();
                let reason = if answers { self.reject() } else { DropReason::IdsRule };
                self.drop(reason, occasion);
            }
        }
        if !signature.alerts {
            return;
        }
        if signature.threshold.is_some_and(|threshold| !tracked.is_told(&threshold, self.context)) {
            self.context.count(counter::SUPPRESSED, 1);
            return;
        }
        self.context.count(counter::ALERTS, 1);
        let (group, sid, revision) = signature.id;
        let detail = AlertDetail {
            group,
            revision,
            application: match occasion.facts.application {
                Found::Known(Application::Http1) => Some("http"),
                Found::Known(application) => Some(application.name()),
                _ => None,
            },
            payload: occasion.excerpt[..occasion.excerpt.len().min(EXCERPT_BYTES)].to_vec(),
            stream: occasion.is_stream,
            metadata: signature.metadata.clone(),
            flow: Some(self.size.told()),
            to_server: occasion.facts.to_server,
            transaction: occasion.about.transaction(),
            message: occasion.about.message(),
            translation: None,
        };
        self.context.alert_in_detail(
            sid,
            &signature.message,
            &signature.category,
            signature.severity,
            detail,
        );
    }

    fn drop(&mut self, reason: DropReason, occasion: &Occasion<'_>) {
        self.drop = self.drop.or(Some(reason));
        self.drops_flow |= occasion.is_stream;
    }

    /// Answers the packet, if it may be answered.
    fn reject(&mut self) -> DropReason {
        let Some(packet) = self.packet else { return DropReason::IdsRule };
        let mut buffer = answer::buffer();
        let network = if packet.meta().protocol == protocol::TCP {
            answer::tcp_reset(packet, &mut buffer)
        } else {
            let from = packet.ends().1.addr;
            answer::icmp_error(packet, IcmpError::AdminProhibited, from, &mut buffer)
        };
        match network.map(|network| self.context.answer(packet, network)) {
            Ok(Ok(())) => DropReason::IdsRejected,
            _ => DropReason::IdsRule,
        }
    }

    fn tracked(&self, rule: u32, facts: &Facts<'_>) -> Tracked {
        let flow =
            self.context.flow().key.words().iter().fold(0, |mixed: u64, word| split_mix(&mut (mixed ^ word)));
        Tracked { rule, ends: (facts.source, facts.destination), flow }
    }
}

/// Whether the first thing that the packet brings to its streams is its own payload, as a piece of its own direction's.
fn brings_its_payload(packet: &PacketView<'_>, direction: Direction, payload: &[u8]) -> bool {
    packet.stream().next().is_some_and(|event| match event.kind {
        StreamEventKind::Data(piece) => event.direction == direction && std::ptr::eq(piece, payload),
        _ => false,
    })
}

fn side(direction: Direction) -> Side {
    match direction {
        Direction::Original => Side::Request,
        Direction::Reply => Side::Response,
    }
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
