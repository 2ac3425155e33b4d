//! The occasions that messages of application protocols bring.

use applayer::detect::{Application, Verdict as Found};
use applayer::http::Side;
use applayer::{dns, starttls, tls};
use nf::FlowBuffer;
use nf::stream::{StreamEvent, StreamEventKind};
use packet::Direction;
use signatures::Buffer;

use super::events::Handshake;
use super::{Occasion, Watch, ports, side};
use crate::ids::about::About;
use crate::ids::counter;
use crate::ids::facts::{DnsFacts, Facts};
use crate::ids::marks::Marks;
use crate::ids::message::{Messages, Ready};
use crate::ids::occasion::Family;
use crate::ids::scene::{Scene, View};
use crate::ids::searches::MessageSearch;
use crate::ids::state::{Kept, State, TLS_AGREED, TLS_ASKED};
use crate::lines::FlowLine;

/// The longest line or message of an application protocol that is put together, in bytes.
pub(super) const LINE_BYTES: usize = tls::MESSAGE_BYTES_MAX;

/// Such a line, as far as it has come.
pub(super) type Gathered = FlowLine<LINE_BYTES>;

/// Where a message's body is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// There is none, or none yet.
    None,
    /// It was, as a part of this direction's stream.
    InStream(Direction),
    /// In the buffer.
    Apart,
}

impl Watch<'_, '_> {
    /// What the protocol's reader makes of it.
    pub(super) fn application(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        match state.detector.verdict() {
            Found::Known(Application::Http1) => self.http(event, facts, state),
            Found::Known(Application::Dns) => self.dns_stream(event, facts, state),
            Found::Known(Application::Tls) => self.tls(event, facts, state),
            Found::Known(Application::Ssh) => self.ssh(event, facts, state),
            Found::Known(application @ (Application::Smtp | Application::Ftp)) => {
                self.starttls(application, event, state);
            }
            _ => {}
        }
    }

    /// The connection is gone, or seems to be: of messages under way, what came of them is looked
    /// at.
    pub(super) fn cut(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        if state.detector.verdict() == Found::Known(Application::Http1) {
            self.http(event, facts, state);
        }
    }

    /// The flow's time is over: messages of this direction that have not ended are looked at as far
    /// as they came.
    pub(super) fn http_over(&mut self, direction: Direction, facts: Facts<'_>, state: &mut State) {
        if [Kept::Progress, Kept::Line].iter().any(|kept| self.context.has_buffer(kept.of(direction))) {
            let kind = StreamEventKind::Finished;
            self.http(StreamEvent { direction, offset: 0, kind }, facts, state);
        }
    }

    fn http(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        let [progress, text, line] =
            [Kept::Progress, Kept::Text, Kept::Line].map(|kept| kept.of(event.direction));
        let begun = state.exchange.half(side(facts.to_server)).messages();
        let mut saved_progress = self.context.take_buffer(progress);
        let mut saved_text = self.context.take_buffer(text);
        let mut messages = std::mem::take(&mut self.work.messages);
        messages.begin(saved_progress.as_slice(), &mut saved_text, self.ids.body_max, begun);
        let mut gathered = Gathered::new(self.context.take_buffer(line));
        let side = side(facts.to_server);
        match (event.kind, side) {
            // All that came was looked at.
            (StreamEventKind::Finished, _)
                if self.packet.is_none() && !messages.has_news() && gathered.0.as_slice().is_empty() => {}
            (StreamEventKind::Data(bytes), Side::Request) => {
                state.exchange.request(bytes, &mut gathered, &mut messages);
            }
            (StreamEventKind::Data(bytes), Side::Response) => {
                state.exchange.response(bytes, &mut gathered, &mut messages);
            }
            (StreamEventKind::Gap(len), _) => state.exchange.gap(side, len, &mut gathered, &mut messages),
            (StreamEventKind::Finished, _) => state.exchange.end(side, &mut gathered, &mut messages),
            (StreamEventKind::Reset | StreamEventKind::Restart, _) => messages.cut(),
        }
        self.context.give_buffer(line, gathered.0);
        for number in 0..messages.ready.len() {
            let (ready, marks) = (messages.ready[number], &mut state.marks);
            self.message(&messages, ready, event.direction, facts, marks);
        }
        messages.end(&mut saved_progress, &mut saved_text);
        if saved_progress.as_slice().is_empty() {
            self.clear(Kept::InBody, event.direction);
        }
        self.context.give_buffer(progress, saved_progress);
        self.context.give_buffer(text, saved_text);
        self.work.messages = messages;
    }

    /// An HTTP message of which something became complete.
    fn message(
        &mut self,
        messages: &Messages,
        ready: Ready,
        direction: Direction,
        facts: Facts<'_>,
        marks: &mut Marks,
    ) {
        let (number, family) = match ready {
            Ready::Head(number) => (number, Family::HttpHead),
            Ready::Whole(number) => (number, Family::HttpBody),
        };
        let (message, about) = (messages.get(number), messages.about(number));
        let with_body = family == Family::HttpBody;
        if !with_body {
            self.context.count(counter::HTTP_MESSAGES, 1);
        }
        let Some(search) = self.ids.searches.message(family, facts.to_server) else { return };
        let mut scene = std::mem::take(&mut self.work.empty);
        let is_in_stream = message.fill(&mut scene, &search.wanted, with_body, &mut self.work.decoder);
        let payload = message.payload(with_body);
        let view = View { payload, start: 0, scene: &scene, packet: None };
        let body = match with_body {
            false => Body::None,
            true if is_in_stream => Body::InStream(direction),
            true => Body::Apart,
        };
        let occasion = Occasion { view, facts, excerpt: payload, is_stream: true, about };
        self.search_message(search, body, occasion, marks);
        scene.clear();
        self.work.empty = scene;
    }

    /// Looks at rules whose literal one of a message's buffers has.
    fn search_message(
        &mut self,
        search: &MessageSearch,
        body: Body,
        occasion: Occasion<'_>,
        marks: &mut Marks,
    ) {
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        may_hold.extend_from_slice(&search.always);
        let mut searched = 0;
        for (buffer, bytes) in occasion.view.all() {
            if let Some(prefilter) = search.of(buffer, body == Body::Apart) {
                searched += bytes.len() as u64;
                prefilter.find(bytes, |hit| may_hold.push(hit.rule));
            }
        }
        if let Body::InStream(direction) = body
            && self.context.has_buffer(Kept::InBody.of(direction))
        {
            let kept = self.context.take_buffer(Kept::InBody.of(direction));
            may_hold.extend(kept.as_slice().as_chunks().0.iter().map(|rule| u32::from_le_bytes(*rule)));
            self.context.give_buffer(Kept::InBody.of(direction), kept);
        }
        self.context.count(counter::INSPECTED_BYTES, searched);
        self.look(&mut may_hold, occasion, marks);
        self.work.may_hold = may_hold;
    }

    /// A DNS message: of a packet, or of a stream.
    pub(super) fn dns(
        &mut self,
        bytes: &[u8],
        start: u64,
        facts: Facts<'_>,
        marks: &mut Marks,
        is_packet: bool,
    ) {
        let Ok(message) = dns::Message::read(bytes) else {
            if let (true, Some(own)) = (is_packet, facts.packet) {
                self.on_packet(facts, own, marks);
            }
            return;
        };
        self.context.count(counter::DNS_MESSAGES, 1);
        if self.ids.tells.dns {
            let flow = self.context.flow();
            let is_original = facts.source == flow.key.ends(flow.reversed).0;
            let direction = if is_original { Direction::Original } else { Direction::Reply };
            self.dns_event(&message, direction);
        }
        let search = self.ids.searches.message(Family::Dns, facts.to_server);
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
            if search.is_some_and(|search| search.wanted.has(buffer)) {
                scene.add(buffer, self.work.name.as_bytes());
            }
            if matches!(entry.section, dns::Section::Question | dns::Section::Answer) {
                about.add(entry.kind);
            }
        }
        let facts = Facts { dns: Some(&about), ..facts };
        let view = View { payload: bytes, start, scene: &scene, packet: facts.packet };
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        if let Some(search) = search {
            may_hold.extend_from_slice(&search.always);
            for (buffer, name) in view.all() {
                if let Some(prefilter) = search.of(buffer, false) {
                    prefilter.find(name, |hit| may_hold.push(hit.rule));
                }
            }
        }
        let port = ports(&facts).server;
        let on_packet = self.ids.searches.packet(facts.protocol, facts.to_server, port, facts.application);
        if let (true, Some(search)) = (is_packet, on_packet) {
            let searched = search.packet(bytes, None, &mut may_hold);
            self.context.count(counter::INSPECTED_BYTES, searched as u64);
        }
        let about = About::Dns(&message);
        let occasion = Occasion { view, facts, excerpt: bytes, is_stream: !is_packet, about };
        self.look(&mut may_hold, occasion, marks);
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
        let (mut used, mut handshake_told) = (0, Handshake::default());
        let mut sink = |told: tls::Event<'_>| {
            handshake_told.note(&told);
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
        let mut line = Gathered::new(self.context.take_buffer(kept));
        match event.kind {
            StreamEventKind::Data(bytes) => reader.take(bytes, &mut line, &mut sink),
            StreamEventKind::Gap(_) => reader.gap(&mut line, &mut sink),
            _ => reader.end(&mut line, &mut sink),
        }
        self.context.give_buffer(kept, line.0);
        self.context.count(counter::TLS_HANDSHAKES, used as u64);
        let is_told = handshake_told.is_client == facts.to_server;
        if self.ids.tells.tls && is_told {
            let client = if facts.to_server { event.direction } else { event.direction.other() };
            self.tls_event(handshake_told, &scenes[..used], client);
        }
        for scene in &scenes[..used] {
            self.told(Family::Tls, scene, event, facts, state);
        }
        self.work.scenes = scenes;
    }

    /// Lines by which client and server agree that TLS follows.
    fn starttls(&mut self, application: Application, event: StreamEvent<'_>, state: &mut State) {
        let (kept, is_client) = (Kept::Line.of(event.direction), state.is_to_server(event.direction));
        let StreamEventKind::Data(mut bytes) = event.kind else {
            state.handover.tls = 0;
            return self.clear(Kept::Line, event.direction);
        };
        if is_client {
            // Who asked and goes on before the answer does not wait for TLS.
            state.handover.tls = 0;
        } else if state.handover.tls == 0 && !self.context.has_buffer(kept) && bytes.last() == Some(&b'\n') {
            return;
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end + 1);
            let mut begun = self.context.take_buffer(kept);
            let whole = match begun.as_slice() {
                [] => line,
                _ => {
                    keep_line(&mut begun, line);
                    begun.as_slice()
                }
            };
            state.handover.tls = match state.handover.tls {
                _ if is_client && starttls::asks(application, whole) => TLS_ASKED,
                _ if is_client => 0,
                TLS_ASKED if starttls::agrees(application, whole) => TLS_AGREED,
                other => other,
            };
            begun.clear();
            self.context.give_buffer(kept, begun);
            bytes = rest;
        }
        if !bytes.is_empty() {
            let mut begun = self.context.take_buffer(kept);
            keep_line(&mut begun, bytes);
            self.context.give_buffer(kept, begun);
        }
    }

    fn ssh(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        let reader = &mut state.ssh[event.direction.index()];
        if reader.is_done() {
            return;
        }
        let kept = Kept::Line.of(event.direction);
        let mut scene = Scene::default();
        let mut sink = |greeting: applayer::ssh::Greeting<'_>| {
            scene.add(Buffer::SshProtocol, greeting.protocol);
            scene.add(Buffer::SshSoftware, greeting.software);
        };
        let mut line = Gathered::new(self.context.take_buffer(kept));
        match event.kind {
            StreamEventKind::Data(bytes) => reader.take(bytes, &mut line, &mut sink),
            _ => reader.end(&mut line, &mut sink),
        }
        self.context.give_buffer(kept, line.0);
        if !scene.is_empty() {
            self.told(Family::Ssh, &scene, event, facts, state);
        }
    }

    /// Something was told of a protocol whose messages have no bytes of their own here: the payload
    /// is the window.
    fn told(
        &mut self,
        family: Family,
        scene: &Scene,
        event: StreamEvent<'_>,
        facts: Facts<'_>,
        state: &mut State,
    ) {
        let Some(search) = self.ids.searches.message(family, facts.to_server) else { return };
        let start = event.offset - self.window_len(event, state) as u64;
        let window = self.window(event, state);
        let view = View { payload: &window, start, scene, packet: None };
        let excerpt = match event.kind {
            StreamEventKind::Data(piece) => piece,
            _ => &[],
        };
        let about = if family == Family::Tls { About::Tls(scene) } else { About::Nothing };
        let occasion = Occasion { view, facts, excerpt, is_stream: true, about };
        self.search_message(search, Body::None, occasion, &mut state.marks);
        self.work.window = window;
    }
}

/// Keeps of a line as much as is looked at.
fn keep_line(begun: &mut FlowBuffer, bytes: &[u8]) {
    let room = starttls::LINE_BYTES.saturating_sub(begun.as_slice().len());
    begun.push(&bytes[..bytes.len().min(room)]);
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
