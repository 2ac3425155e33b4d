//! What is done with one packet: the occasions that it brings, one after the other, and what rules do that hold.

use dissect::detect::{Application, Ports, Verdict as Found};
use dissect::{dns, tls};
use http::{Line, Side};
use inspect::Scratch;
use nf::answer::{self, IcmpError};
use nf::stream::{StreamEvent, StreamEventKind};
use nf::{AlertDetail, Context, FlowBuffer, PacketView, Verdict};
use packet::parse::protocol;
use packet::{Direction, DropReason, split_mix};
use rules::{Action, Buffer};

use super::candidates::Candidates;
use super::facts::{DnsFacts, Facts, PacketFacts, is_established};
use super::limit::Tracked;
use super::marks::Marks;
use super::message::{Decoder, Messages, Ready};
use super::occasion::Family;
use super::scene::{Scene, View};
use super::state::{Kept, State};
use super::{EXCERPT_BYTES, Ids, LOOKBACK_BYTES, counter};

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
    scratch: Scratch,
    scenes: Vec<Scene>,
    empty: Scene,
    messages: Messages,
    decoder: Decoder,
    payload: Vec<u8>,
    saved: Vec<u8>,
    name: dns::Name,
}

/// The longest line or message of an application protocol that is put together, in bytes.
const LINE_BYTES: usize = tls::MESSAGE_LIMIT_BYTES;

/// A growing buffer as the readers of protocols want it.
struct Gathered(FlowBuffer);

impl Line for Gathered {
    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn capacity(&self) -> usize {
        LINE_BYTES
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        let room = LINE_BYTES - self.0.as_slice().len().min(LINE_BYTES);
        self.0.push(&bytes[..bytes.len().min(room)])
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// One packet, while it is looked at.
pub struct Watch<'a, 'c> {
    ids: &'a Ids,
    packet: &'a PacketView<'a>,
    context: &'a mut Context<'c>,
    work: &'a mut Work,
    /// Why the packet is dropped.
    drop: Option<DropReason>,
    drops_flow: bool,
    /// A rule says that nothing more of this packet is looked at.
    is_passed: bool,
}

/// An occasion: what there is, what is known, and what an alert shows of it.
#[derive(Clone, Copy)]
struct Occasion<'a> {
    view: View<'a>,
    facts: Facts<'a>,
    excerpt: &'a [u8],
    /// Whether it is of a stream, and not of the packet alone.
    is_stream: bool,
}

impl<'a, 'c> Watch<'a, 'c> {
    /// Begins with a packet.
    pub fn new(
        ids: &'a Ids,
        packet: &'a PacketView<'a>,
        context: &'a mut Context<'c>,
        work: &'a mut Work,
    ) -> Self {
        work.acted.clear();
        Watch { ids, packet, context, work, drop: None, drops_flow: false, is_passed: false }
    }

    /// Looks at all that the packet brings.
    pub fn packet(mut self, state: &mut State) -> Verdict {
        let own = PacketFacts::of(self.packet);
        let (source, destination) = self.packet.ends();
        let direction = self.context.direction();
        let facts = Facts {
            source,
            destination,
            protocol: own.protocol,
            version: own.version,
            to_server: direction == Direction::Original,
            established: is_established(self.context.connection()),
            application: state.detector.verdict(),
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
            self.on_packet(Facts { packet: Some(&own), ..facts }, &own, &mut state.marks);
        }
        let packet = self.packet;
        for event in packet.stream() {
            if self.is_passed {
                break;
            }
            let ends =
                if event.direction == direction { (source, destination) } else { (destination, source) };
            let to_server = event.direction == Direction::Original;
            self.stream(event, Facts { source: ends.0, destination: ends.1, to_server, ..facts }, state);
        }
        self.verdict(state)
    }

    fn verdict(self, state: &mut State) -> Verdict {
        let Some(reason) = self.drop.filter(|_| self.ids.prevents) else { return Verdict::Forward };
        if self.drops_flow {
            state.is_dropped = 1;
        }
        Verdict::Drop(reason)
    }

    /// The packet alone.
    fn on_packet(&mut self, facts: Facts<'_>, own: &PacketFacts<'_>, marks: &mut Marks) {
        let (protocol, port) = (own.protocol, ports(&facts).server);
        let Some(search) = self.ids.searches.packet(protocol, facts.to_server, port, facts.application)
        else {
            return;
        };
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        let searched = search.find(own.payload, &mut may_hold);
        self.context.count(counter::INSPECTED_BYTES, searched as u64);
        let empty = std::mem::take(&mut self.work.empty);
        let view = View { payload: own.payload, start: 0, scene: &empty, packet: Some(own) };
        self.look(&mut may_hold, Occasion { view, facts, excerpt: own.payload, is_stream: false }, marks);
        self.work.empty = empty;
        self.work.may_hold = may_hold;
    }

    /// Something that happened to a stream.
    fn stream(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        match event.kind {
            StreamEventKind::Restart => {
                for direction in [Direction::Original, Direction::Reply] {
                    self.forget(direction);
                }
                state.restart();
            }
            StreamEventKind::Data(piece) => self.piece(event, piece, facts, state),
            StreamEventKind::Gap(_) => {
                self.clear(Kept::Window, event.direction);
                self.clear(Kept::Candidates, event.direction);
                state.cursors[event.direction.index()] = Default::default();
                self.application(event, facts, state);
            }
            StreamEventKind::Finished => self.application(event, facts, state),
            // If it was forged, the streams go on.
            StreamEventKind::Reset => {}
        }
    }

    /// The next bytes of a stream.
    fn piece(&mut self, event: StreamEvent<'_>, piece: &[u8], facts: Facts<'_>, state: &mut State) {
        let was_known = state.detector.verdict();
        let application = state.detector.stream(side(event.direction), event.offset, piece, ports(&facts));
        let facts = Facts { application, ..facts };
        self.window(event, piece, facts, state);
        if self.is_passed {
            return;
        }
        match (was_known, application) {
            (Found::Unknown, Found::Unknown) => self.hold_back(event.direction, piece),
            // What came before the protocol was known is read now, the other direction's first.
            (Found::Unknown, Found::Known(_)) => {
                self.hold_back(event.direction, piece);
                for direction in [event.direction.other(), event.direction] {
                    let held = self.context.take_buffer(Kept::Line.of(direction));
                    self.context.give_buffer(Kept::Line.of(direction), FlowBuffer::default());
                    if !held.as_slice().is_empty() {
                        let kind = StreamEventKind::Data(held.as_slice());
                        let facts = if direction == event.direction { facts } else { turned(facts) };
                        self.application(StreamEvent { direction, offset: 0, kind }, facts, state);
                    }
                }
            }
            (Found::Unknown, Found::Failed) => {
                self.clear(Kept::Line, Direction::Original);
                self.clear(Kept::Line, Direction::Reply);
            }
            _ => self.application(event, facts, state),
        }
    }

    /// Keeps bytes until the protocol is known.
    fn hold_back(&mut self, direction: Direction, piece: &[u8]) {
        let mut line = Gathered(self.context.take_buffer(Kept::Line.of(direction)));
        line.push(piece);
        self.context.give_buffer(Kept::Line.of(direction), line.0);
    }

    /// Rules that look into streams.
    fn window(&mut self, event: StreamEvent<'_>, piece: &[u8], facts: Facts<'_>, state: &mut State) {
        let at = event.direction.index();
        let port = ports(&facts).server;
        let Some(search) = self.ids.searches.stream(facts.to_server, port, facts.application) else { return };
        let (kept, candidates_kept) =
            (Kept::Window.of(event.direction), Kept::Candidates.of(event.direction));
        let mut window = self.context.take_buffer(kept);
        if window.as_slice().is_empty() {
            state.window_start[at] = event.offset;
        }
        // Bytes before those that are looked at are let go now and then, so that not every piece moves the others.
        let excess = window.as_slice().len().saturating_sub(LOOKBACK_BYTES);
        if excess > LOOKBACK_BYTES {
            window.consume(excess);
            state.window_start[at] += excess as u64;
        }
        if window.push(piece) < piece.len() {
            window.clear();
        }
        let looked_back = LOOKBACK_BYTES.min(window.as_slice().len().saturating_sub(piece.len()));
        let bytes = match window.as_slice() {
            [] => piece,
            all => &all[all.len() - piece.len() - looked_back..],
        };
        let start = event.offset - looked_back as u64;

        let mut candidates = std::mem::take(&mut self.work.candidates);
        candidates.restore(&[]);
        let had_candidates = self.context.has_buffer(candidates_kept);
        if had_candidates {
            let saved = self.context.take_buffer(candidates_kept);
            candidates.restore(saved.as_slice());
            self.context.give_buffer(candidates_kept, saved);
            candidates.forget_before(start);
        }
        let mut forgotten = 0;
        search.scan(&mut state.cursors[at], piece, |rule, end, len| {
            let anchor = (event.offset + end as u64).saturating_sub(u64::from(len));
            forgotten += u64::from(candidates.found(rule, anchor));
        });
        self.context.count(counter::INSPECTED_BYTES, piece.len() as u64);
        if forgotten > 0 {
            self.context.count(counter::CANDIDATES_FORGOTTEN, forgotten);
        }
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        may_hold.extend(candidates.rules());
        may_hold.extend(search.always().iter().filter(|rule| !candidates.has_acted(**rule)));
        self.work.acted_here.clear();
        if !may_hold.is_empty() {
            let empty = std::mem::take(&mut self.work.empty);
            let view = View { payload: bytes, start, scene: &empty, packet: None };
            self.look(
                &mut may_hold,
                Occasion { view, facts, excerpt: piece, is_stream: true },
                &mut state.marks,
            );
            self.work.empty = empty;
            for &rule in &self.work.acted_here {
                candidates.acted(rule, !search.always().contains(&rule));
            }
        }
        self.work.may_hold = may_hold;
        if had_candidates || !candidates.as_bytes().is_empty() {
            let mut saved = self.context.take_buffer(candidates_kept);
            saved.clear();
            saved.push(candidates.as_bytes());
            self.context.give_buffer(candidates_kept, saved);
        }
        self.work.candidates = candidates;
        self.context.give_buffer(kept, window);
    }

    /// What the protocol's reader makes of it.
    fn application(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        match state.detector.verdict() {
            Found::Known(Application::Http1) => self.http(event, facts, state),
            Found::Known(Application::Dns) => self.dns_stream(event, facts, state),
            Found::Known(Application::Tls) => self.tls(event, facts, state),
            Found::Known(Application::Ssh) => self.ssh(event, facts, state),
            _ => {}
        }
    }

    fn http(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        let (head, body) = (Kept::Head.of(event.direction), Kept::Body.of(event.direction));
        let line = Kept::Line.of(event.direction);
        let mut messages = std::mem::take(&mut self.work.messages);
        if self.context.has_buffer(head) {
            let (saved_head, mut saved_body) =
                (self.context.take_buffer(head), self.context.take_buffer(body));
            messages.begin(saved_head.as_slice(), &mut saved_body, self.ids.body_max);
            self.context.give_buffer(head, FlowBuffer::default());
            self.context.give_buffer(body, saved_body);
        } else {
            messages.begin(&[], &mut FlowBuffer::default(), self.ids.body_max);
        }
        let mut gathered = Gathered(self.context.take_buffer(line));
        let side = side(event.direction);
        match (event.kind, side) {
            (StreamEventKind::Data(bytes), Side::Request) => {
                state.exchange.request(bytes, &mut gathered, &mut messages);
            }
            (StreamEventKind::Data(bytes), Side::Response) => {
                state.exchange.response(bytes, &mut gathered, &mut messages);
            }
            (StreamEventKind::Gap(len), _) => state.exchange.gap(side, len, &mut gathered, &mut messages),
            _ => state.exchange.end(side, &mut gathered, &mut messages),
        }
        self.context.give_buffer(line, gathered.0);
        for number in 0..messages.ready.len() {
            if self.is_passed {
                break;
            }
            self.message(&messages, messages.ready[number], facts, &mut state.marks);
        }
        let mut saved = std::mem::take(&mut self.work.saved);
        saved.clear();
        let mut rest_of_body = self.context.take_buffer(body);
        messages.end(&mut saved, &mut rest_of_body);
        self.context.give_buffer(body, rest_of_body);
        if !saved.is_empty() {
            let mut rest_of_head = self.context.take_buffer(head);
            rest_of_head.push(&saved);
            self.context.give_buffer(head, rest_of_head);
        }
        self.work.saved = saved;
        self.work.messages = messages;
    }

    /// An HTTP message of which something became complete.
    fn message(&mut self, messages: &Messages, ready: Ready, facts: Facts<'_>, marks: &mut Marks) {
        let (number, family) = match ready {
            Ready::Head(number) => (number, Family::HttpHead),
            Ready::Whole(number) => (number, Family::HttpBody),
        };
        let message = messages.get(number);
        let with_body = family == Family::HttpBody;
        if !with_body {
            self.context.count(counter::HTTP_MESSAGES, 1);
        }
        let Some(search) = self.ids.searches.message(family, facts.to_server) else { return };
        let mut payload = std::mem::take(&mut self.work.payload);
        let mut scene = std::mem::take(&mut self.work.empty);
        message.fill(&mut scene, &self.ids.searches.wanted, with_body, &mut self.work.decoder);
        message.payload(with_body, &mut payload);
        let view = View { payload: &payload, start: 0, scene: &scene, packet: None };
        self.search_message(search, Occasion { view, facts, excerpt: &payload, is_stream: true }, marks);
        scene.clear();
        self.work.empty = scene;
        self.work.payload = payload;
    }

    /// Looks at rules whose literal one of a message's buffers has.
    fn search_message(
        &mut self,
        search: &super::searches::MessageSearch,
        occasion: Occasion<'_>,
        marks: &mut Marks,
    ) {
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        may_hold.extend_from_slice(&search.always);
        let mut searched = 0;
        for (buffer, prefilter) in &search.buffers {
            for bytes in occasion.view.scene.of(*buffer) {
                searched += bytes.len() as u64;
                prefilter.find(bytes, &mut may_hold);
            }
        }
        self.context.count(counter::INSPECTED_BYTES, searched);
        self.look(&mut may_hold, occasion, marks);
        self.work.may_hold = may_hold;
    }

    /// A DNS message: of a packet, or of a stream.
    fn dns(&mut self, bytes: &[u8], start: u64, facts: Facts<'_>, marks: &mut Marks, is_packet: bool) {
        let Ok(message) = dns::Message::read(bytes) else {
            if let (true, Some(own)) = (is_packet, facts.packet) {
                self.on_packet(facts, own, marks);
            }
            return;
        };
        self.context.count(counter::DNS_MESSAGES, 1);
        let mut scene = std::mem::take(&mut self.work.empty);
        let mut about = DnsFacts::of(&message);
        let mut entries = message.entries();
        while let Some(Ok(entry)) = entries.next(&mut self.work.name) {
            let buffer = match entry.section {
                dns::Section::Question => Buffer::DnsQuery,
                dns::Section::Answer => Buffer::DnsAnswersName,
                dns::Section::Authority => Buffer::DnsAuthoritiesName,
                dns::Section::Additional => Buffer::DnsAdditionalsName,
            };
            if self.ids.searches.wanted.has(buffer) {
                scene.add(buffer, self.work.name.as_bytes());
            }
            if matches!(entry.section, dns::Section::Question | dns::Section::Answer) {
                about.add(entry.kind);
            }
        }
        let facts = Facts { dns: Some(&about), ..facts };
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        if let Some(search) = self.ids.searches.message(Family::Dns, facts.to_server) {
            may_hold.extend_from_slice(&search.always);
            for (buffer, prefilter) in &search.buffers {
                scene.of(*buffer).for_each(|name| prefilter.find(name, &mut may_hold));
            }
        }
        let port = ports(&facts).server;
        let on_packet = self.ids.searches.packet(facts.protocol, facts.to_server, port, facts.application);
        if let (true, Some(search)) = (is_packet, on_packet) {
            let searched = search.find(bytes, &mut may_hold);
            self.context.count(counter::INSPECTED_BYTES, searched as u64);
        }
        let view = View { payload: bytes, start, scene: &scene, packet: facts.packet };
        self.look(&mut may_hold, Occasion { view, facts, excerpt: bytes, is_stream: !is_packet }, marks);
        scene.clear();
        self.work.empty = scene;
        self.work.may_hold = may_hold;
    }

    fn dns_stream(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        let kept = Kept::Line.of(event.direction);
        let StreamEventKind::Data(bytes) = event.kind else {
            return self.clear(Kept::Line, event.direction);
        };
        let mut buffer = self.context.take_buffer(kept);
        buffer.push(bytes);
        let mut done = 0;
        while let dns::Framed::Message { message, rest } = dns::over_tcp(&buffer.as_slice()[done..]) {
            done = buffer.as_slice().len() - rest.len();
            self.dns(message, 0, facts, &mut state.marks, false);
            if self.is_passed {
                break;
            }
        }
        buffer.consume(done);
        self.context.give_buffer(kept, buffer);
    }

    fn tls(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        let reader = &mut state.tls[event.direction.index()];
        if reader.is_done() {
            return;
        }
        let kept = Kept::Line.of(event.direction);
        let mut scenes = std::mem::take(&mut self.work.scenes);
        let mut used = 0;
        let mut sink = |told: tls::Event<'_>| {
            if let tls::Event::ClientHello(_) | tls::Event::ServerHello(_) | tls::Event::Certificates(_) =
                told
            {
                if used == scenes.len() {
                    scenes.push(Scene::default());
                }
                scenes[used].clear();
                handshake(told, &mut scenes[used]);
                used += 1;
            }
        };
        let mut line = Gathered(self.context.take_buffer(kept));
        match event.kind {
            StreamEventKind::Data(bytes) => reader.take(bytes, &mut line, &mut sink),
            StreamEventKind::Gap(_) => reader.gap(&mut line, &mut sink),
            _ => reader.end(&mut line, &mut sink),
        }
        self.context.give_buffer(kept, line.0);
        self.context.count(counter::TLS_HANDSHAKES, used as u64);
        for scene in &scenes[..used] {
            self.told(Family::Tls, scene, event, facts, state);
        }
        self.work.scenes = scenes;
    }

    fn ssh(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        let reader = &mut state.ssh[event.direction.index()];
        if reader.is_done() {
            return;
        }
        let kept = Kept::Line.of(event.direction);
        let mut scene = Scene::default();
        let mut sink = |greeting: dissect::ssh::Greeting<'_>| {
            scene.add(Buffer::SshProtocol, greeting.protocol);
            scene.add(Buffer::SshSoftware, greeting.software);
        };
        let mut line = Gathered(self.context.take_buffer(kept));
        match event.kind {
            StreamEventKind::Data(bytes) => reader.take(bytes, &mut line, &mut sink),
            _ => reader.end(&mut line, &mut sink),
        }
        self.context.give_buffer(kept, line.0);
        if scene.all().next().is_some() {
            self.told(Family::Ssh, &scene, event, facts, state);
        }
    }

    /// Something was told of a protocol whose messages have no bytes of their own here: the payload is the window.
    fn told(
        &mut self,
        family: Family,
        scene: &Scene,
        event: StreamEvent<'_>,
        facts: Facts<'_>,
        state: &mut State,
    ) {
        let Some(search) = self.ids.searches.message(family, facts.to_server) else { return };
        if self.is_passed {
            return;
        }
        let at = event.direction.index();
        let window = self.context.take_buffer(Kept::Window.of(event.direction));
        let view = View { payload: window.as_slice(), start: state.window_start[at], scene, packet: None };
        let excerpt = match event.kind {
            StreamEventKind::Data(piece) => piece,
            _ => &[],
        };
        self.search_message(search, Occasion { view, facts, excerpt, is_stream: true }, &mut state.marks);
        self.context.give_buffer(Kept::Window.of(event.direction), window);
    }

    /// Looks at rules on an occasion, in their order, and does what those say that hold.
    fn look(&mut self, may_hold: &mut Vec<u32>, occasion: Occasion<'_>, marks: &mut Marks) {
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
                let reason = if self.ids.prevents { self.reject() } else { DropReason::IdsRule };
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
        if self.ids.prevents {
            let counter = if reason == DropReason::IdsRule { counter::DROPPED } else { counter::REJECTED };
            self.context.count(counter, 1);
        }
    }

    /// Answers the packet, if it may be answered.
    fn reject(&mut self) -> DropReason {
        let mut buffer = answer::buffer();
        let network = if self.packet.meta().protocol == protocol::TCP {
            answer::tcp_reset(self.packet, &mut buffer)
        } else {
            let from = self.packet.ends().1.addr;
            answer::icmp_error(self.packet, IcmpError::AdminProhibited, from, &mut buffer)
        };
        match network.map(|network| self.context.answer(self.packet, network)) {
            Ok(Ok(())) => DropReason::IdsRejected,
            _ => DropReason::IdsRule,
        }
    }

    fn tracked(&self, rule: u32, facts: &Facts<'_>) -> Tracked {
        let flow =
            self.context.flow().key.words().iter().fold(0, |mixed: u64, word| split_mix(&mut (mixed ^ word)));
        Tracked { rule, ends: (facts.source, facts.destination), flow }
    }

    fn clear(&mut self, kept: Kept, direction: Direction) {
        if self.context.has_buffer(kept.of(direction)) {
            self.context.give_buffer(kept.of(direction), FlowBuffer::default());
        }
    }

    /// The connection is over, and another one begins.
    fn forget(&mut self, direction: Direction) {
        for kept in [Kept::Window, Kept::Candidates, Kept::Line, Kept::Head, Kept::Body] {
            self.clear(kept, direction);
        }
    }
}

/// What a message of TLS's handshake tells.
fn handshake(told: tls::Event<'_>, scene: &mut Scene) {
    let random = |random: &[u8], scene: &mut Scene| {
        scene.add(Buffer::TlsRandom, random);
        if let Some((time, rest)) = random.split_at_checked(4) {
            scene.add(Buffer::TlsRandomTime, time);
            scene.add(Buffer::TlsRandomBytes, rest);
        }
    };
    match told {
        tls::Event::ClientHello(hello) => {
            if let Some(name) = hello.server_name() {
                scene.add(Buffer::TlsSni, name);
            }
            hello.protocols().for_each(|protocol| scene.add(Buffer::TlsAlpn, protocol));
            random(hello.random(), scene);
        }
        tls::Event::ServerHello(hello) => {
            if let Some(protocol) = hello.protocol() {
                scene.add(Buffer::TlsAlpn, protocol);
            }
            random(hello.random(), scene);
        }
        tls::Event::Certificates(chain) => {
            for (number, der) in chain.iter().enumerate() {
                scene.add(Buffer::TlsCertificates, der);
                if let (0, Ok(certificate)) = (number, tls::Certificate::read(der)) {
                    scene.add(Buffer::TlsCertSubject, certificate.subject().as_bytes());
                    scene.add(Buffer::TlsCertIssuer, certificate.issuer().as_bytes());
                    scene.add(Buffer::TlsCertSerial, certificate.serial().as_bytes());
                    scene.add(Buffer::TlsCertFingerprint, tls::Fingerprint::of(der).to_string().as_bytes());
                    for name in certificate.alternative_names() {
                        scene.add(Buffer::TlsSubjectAltName, name.as_bytes());
                    }
                }
            }
        }
        _ => {}
    }
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
