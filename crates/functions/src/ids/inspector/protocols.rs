//! The inspection points of application messages.

use applayer::detect::{AppProtocol, DETECTION_BYTES_MAX, Detection};
use applayer::http::ExchangeSide;
use applayer::{dns, ssh, starttls, tls};
use nf::FlowBuffer;
use nf::stream::{StreamEvent, StreamEventKind};
use packet::Direction;
use signatures::{Buffer, TlsState};

use super::events::Handshake;
use super::fingerprints::fingerprint;
use super::{InspectionPoint, Inspector, ports, side};
use crate::ids::COUNTERS;
use crate::ids::alert_subject::AlertSubject;
use crate::ids::facts::{DnsFacts, HelloFacts, InspectionFacts};
use crate::ids::flowbits::Flowbits;
use crate::ids::inspection_buffers::{InspectionBuffers, InspectionInput};
use crate::ids::inspection_point::MessageKind;
use crate::ids::message::{HttpMessages, ReadyPart};
use crate::ids::prefilters::MessagePrefilter;
use crate::ids::state::{KeptBuffer, State, TLS_AGREED, TLS_ASKED};
use crate::lines::FlowLine;

/// Maximum bytes of a direction that wait until its protocol is known.
pub const DEFERRED_BYTES: usize = DETECTION_BYTES_MAX as usize;

/// The place where a message's body is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyLocation {
    /// There is no body yet.
    None,
    /// It was searched as a part of this direction's stream.
    InStream(Direction),
    /// It is searched in its buffer.
    Apart,
}

impl Inspector<'_, '_> {
    /// Parses stream bytes of the application protocol and inspects the result.
    pub(super) fn application(
        &mut self,
        event: StreamEvent<'_>,
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        match state.detector.verdict() {
            Detection::Known(AppProtocol::Http1) => self.http(event, facts, state),
            Detection::Known(AppProtocol::Dns) => self.dns_stream(event, facts, state),
            Detection::Known(AppProtocol::Tls) => self.tls(event, facts, state),
            Detection::Known(AppProtocol::Ssh) => self.ssh(event, facts, state),
            Detection::Known(AppProtocol::Smtp) => self.smtp(event, facts, state),
            Detection::Known(AppProtocol::Ftp) => self.starttls(AppProtocol::Ftp, event, state),
            _ => {}
        }
    }

    /// Inspects the incomplete messages, because the connection has apparently ended.
    pub(super) fn cut(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        match state.detector.verdict() {
            Detection::Known(AppProtocol::Http1) => self.http(event, facts, state),
            Detection::Known(AppProtocol::Smtp) if event.kind == StreamEventKind::Restart => {
                self.mail(event.direction, facts, state);
            }
            _ => {}
        }
    }

    /// Inspects the incomplete messages of this direction at the end of the flow.
    pub(super) fn end_http(&mut self, direction: Direction, facts: InspectionFacts<'_>, state: &mut State) {
        if [KeptBuffer::Progress, KeptBuffer::Line]
            .iter()
            .any(|kept| self.context.has_buffer(kept.of(direction)))
        {
            let kind = StreamEventKind::Finished;
            self.http(StreamEvent { direction, offset: 0, kind }, facts, state);
        }
    }

    fn http(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        let [progress, text, line] =
            [KeptBuffer::Progress, KeptBuffer::Text, KeptBuffer::Line].map(|kept| kept.of(event.direction));
        let begun = state.exchange.direction(side(facts.to_server)).messages();
        let mut saved_progress = self.context.take_buffer(progress);
        let mut saved_text = self.context.take_buffer(text);
        let mut messages = std::mem::take(&mut self.work.messages);
        messages.begin(saved_progress.as_slice(), &mut saved_text, self.ids.lengths, begun);
        // A longer line is known to be cut.
        let mut gathered = FlowLine::new(self.context.take_buffer(line), self.ids.lengths.head + 1);
        let side = side(facts.to_server);
        match (event.kind, side) {
            // Everything was inspected.
            (StreamEventKind::Finished, _)
                if self.packet.is_none() && !messages.has_news() && gathered.kept.as_slice().is_empty() => {}
            (StreamEventKind::Data(bytes), ExchangeSide::Request) => {
                state.exchange.request(bytes, &mut gathered, &mut messages);
            }
            (StreamEventKind::Data(bytes), ExchangeSide::Response) => {
                state.exchange.response(bytes, &mut gathered, &mut messages);
            }
            (StreamEventKind::Gap(len), _) => state.exchange.gap(side, len, &mut gathered, &mut messages),
            (StreamEventKind::Finished, _) => state.exchange.end(side, &mut gathered, &mut messages),
            (StreamEventKind::Reset | StreamEventKind::Restart, _) => messages.cut(),
        }
        self.context.give_buffer(line, gathered.kept);
        let cut = messages.cut;
        self.count_cut(COUNTERS.heads_cut, cut.heads);
        self.count_cut(COUNTERS.bodies_cut, cut.bodies);
        for number in 0..messages.ready.len() {
            let (ready, flowbits) = (messages.ready[number], &mut state.flowbits);
            match ready {
                ReadyPart::Trailers(number) => self.trailers(&mut messages, number, facts, flowbits),
                ReadyPart::Head(number) => {
                    messages.part_head(number);
                    self.message(&messages, ready, event.direction, facts, flowbits);
                }
                ReadyPart::Whole(number) => {
                    if self.message(&messages, ready, event.direction, facts, flowbits) {
                        self.count_cut(COUNTERS.bodies_cut, u64::from(messages.cut_body(number)));
                    }
                }
            }
        }
        messages.end(&mut saved_progress, &mut saved_text);
        if saved_progress.as_slice().is_empty() {
            self.clear(KeptBuffer::InBody, event.direction);
        }
        self.context.give_buffer(progress, saved_progress);
        self.context.give_buffer(text, saved_text);
        self.work.messages = messages;
    }

    /// Counts messages that are not inspected whole.
    pub(super) fn count_cut(&mut self, counter: nf::Counter, messages: u64) {
        if messages > 0 {
            self.context.count(counter, messages);
            self.is_beyond = true;
        }
    }

    /// Inspects the complete parts of an HTTP message. Returns whether the body has more bytes than
    /// are inspected, not counting those left out on arrival.
    fn message(
        &mut self,
        messages: &HttpMessages,
        ready: ReadyPart,
        direction: Direction,
        facts: InspectionFacts<'_>,
        flowbits: &mut Flowbits,
    ) -> bool {
        let (number, family) = match ready {
            ReadyPart::Head(number) | ReadyPart::Trailers(number) => (number, MessageKind::HttpHead),
            ReadyPart::Whole(number) => (number, MessageKind::HttpBody),
        };
        let message = match family {
            MessageKind::HttpHead => messages.head(number),
            _ => messages.get(number),
        };
        let about = AlertSubject::Http(message, messages.transaction(number));
        let with_body = family == MessageKind::HttpBody;
        if !with_body {
            self.context.count(COUNTERS.http_messages, 1);
        }
        let Some(search) = self.ids.searches.message(family, facts.to_server) else { return false };
        let mut buffers = std::mem::take(&mut self.work.empty);
        let body_max = with_body.then_some(self.ids.lengths.body);
        let filled = message.fill(&mut buffers, &search.wanted, body_max, &mut self.work.decoder);
        let payload = message.payload(with_body);
        let view = InspectionInput { payload, start: 0, buffers: &buffers, packet: None };
        let body = match with_body {
            false => BodyLocation::None,
            true if filled.is_in_stream => BodyLocation::InStream(direction),
            true => BodyLocation::Apart,
        };
        let point = InspectionPoint { view, facts, excerpt: payload, is_stream: true, about };
        self.search_message(search, body, point, flowbits);
        buffers.clear();
        self.work.empty = buffers;
        filled.is_cut
    }

    /// Inspects the rules that have their pattern in a buffer of the message.
    pub(super) fn search_message(
        &mut self,
        search: &MessagePrefilter,
        body: BodyLocation,
        point: InspectionPoint<'_>,
        flowbits: &mut Flowbits,
    ) {
        let mut may_match = std::mem::take(&mut self.work.may_match);
        may_match.clear();
        may_match.extend_from_slice(&search.always);
        let mut searched = 0;
        for (buffer, bytes) in point.view.all() {
            if let Some(prefilter) = search.of(buffer, body == BodyLocation::Apart) {
                searched += bytes.len() as u64;
                prefilter.find(bytes, |hit| may_match.push(hit.rule));
            }
        }
        if let BodyLocation::InStream(direction) = body
            && self.context.has_buffer(KeptBuffer::InBody.of(direction))
        {
            let kept = self.context.take_buffer(KeptBuffer::InBody.of(direction));
            may_match.extend(kept.as_slice().as_chunks().0.iter().map(|rule| u32::from_le_bytes(*rule)));
            self.context.give_buffer(KeptBuffer::InBody.of(direction), kept);
        }
        self.context.count(COUNTERS.bytes_searched, searched);
        self.inspect(&mut may_match, point, flowbits);
        self.work.may_match = may_match;
    }

    /// Inspects a DNS message from a packet or a stream.
    pub(super) fn dns(
        &mut self,
        bytes: &[u8],
        start: u64,
        facts: InspectionFacts<'_>,
        state: &mut State,
        is_packet: bool,
    ) {
        let Ok(message) = dns::DnsMessage::read(bytes) else {
            if let (true, Some(own)) = (is_packet, facts.packet) {
                self.on_packet(facts, own, &mut state.flowbits);
            }
            return;
        };
        self.context.count(COUNTERS.dns_messages, 1);
        let number = u64::from(state.dns_messages);
        state.dns_messages = state.dns_messages.wrapping_add(1);
        if self.ids.reports.dns {
            // As in Suricata, events about answers go from the client to the server, too.
            let to_server = Direction::Original;
            self.dns_event(&message, number, state.way(to_server));
        }
        let search = self.ids.searches.message(MessageKind::Dns, facts.to_server);
        let mut buffers = std::mem::take(&mut self.work.empty);
        let mut about = DnsFacts::of(&message);
        let mut entries = message.entries();
        while let Some(Ok(entry)) = entries.next(&mut self.work.name) {
            let buffer = match entry.section {
                dns::DnsSection::Question => Buffer::DnsQueriesName,
                dns::DnsSection::Answer => Buffer::DnsAnswersName,
                dns::DnsSection::Authority => Buffer::DnsAuthoritiesName,
                dns::DnsSection::Additional => Buffer::DnsAdditionalsName,
            };
            // A response repeats the question, and is none.
            let is_asked = entry.section == dns::DnsSection::Question && !message.is_response;
            let names = [Some(buffer), is_asked.then_some(Buffer::DnsQuery)];
            for buffer in names.into_iter().flatten() {
                if search.is_some_and(|search| search.wanted.has(buffer)) {
                    buffers.add(buffer, self.work.name.as_bytes());
                }
            }
            if matches!(entry.section, dns::DnsSection::Question | dns::DnsSection::Answer) {
                about.add(entry.kind);
            }
        }
        let facts = InspectionFacts { dns: Some(&about), ..facts };
        let view = InspectionInput { payload: bytes, start, buffers: &buffers, packet: facts.packet };
        let mut may_match = std::mem::take(&mut self.work.may_match);
        may_match.clear();
        if let Some(search) = search {
            may_match.extend_from_slice(&search.always);
            for (buffer, name) in view.all() {
                if let Some(prefilter) = search.of(buffer, false) {
                    prefilter.find(name, |hit| may_match.push(hit.rule));
                }
            }
        }
        let port = ports(&facts).server;
        let on_packet = self.ids.searches.packet(facts.protocol, facts.to_server, port, facts.application);
        if let (true, Some(search)) = (is_packet, on_packet) {
            let searched = search.packet(bytes, None, &mut may_match);
            self.context.count(COUNTERS.bytes_searched, searched as u64);
        }
        let about = AlertSubject::Dns(&message, number);
        let point = InspectionPoint { view, facts, excerpt: bytes, is_stream: !is_packet, about };
        self.inspect(&mut may_match, point, &mut state.flowbits);
        buffers.clear();
        self.work.empty = buffers;
        self.work.may_match = may_match;
    }

    fn dns_stream(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        let kept = KeptBuffer::Line.of(event.direction);
        let StreamEventKind::Data(bytes) = event.kind else {
            return self.clear(KeptBuffer::Line, event.direction);
        };
        let mut buffer = self.context.take_buffer(kept);
        buffer.push(bytes);
        let mut done = 0;
        while let dns::TcpFrame::Message { message, rest } = dns::over_tcp(&buffer.as_slice()[done..]) {
            done = buffer.as_slice().len() - rest.len();
            self.dns(message, 0, facts, state, false);
        }
        buffer.consume(done);
        self.context.give_buffer(kept, buffer);
    }

    fn tls(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        let reader = &mut state.tls[event.direction.index()];
        if reader.is_done() {
            return;
        }
        let kept = KeptBuffer::Line.of(event.direction);
        let search = self.ids.searches.message(MessageKind::Tls, facts.to_server);
        let wanted = search.map(|search| search.wanted).unwrap_or_default();
        let mut all_buffers = std::mem::take(&mut self.work.all_buffers);
        let mut hellos = std::mem::take(&mut self.work.hellos);
        hellos.clear();
        let (mut used, mut cut, mut handshake_event) = (0, 0, Handshake::default());
        let mut sink = |reported: tls::TlsEvent<'_>| {
            handshake_event.note(&reported);
            cut += u64::from(matches!(reported, tls::TlsEvent::Anomaly(tls::TlsAnomaly::MessageTooLong)));
            if let tls::TlsEvent::ClientHello(_)
            | tls::TlsEvent::ServerHello(_)
            | tls::TlsEvent::Certificates(_) = reported
            {
                if used == all_buffers.len() {
                    all_buffers.push(InspectionBuffers::default());
                }
                all_buffers[used].clear();
                hellos.push(hello(&reported));
                fingerprint(&reported, &mut all_buffers[used], &wanted);
                let validity = handshake(reported, &mut all_buffers[used]);
                handshake_event.validity = handshake_event.validity.take().or(validity);
                used += 1;
            }
        };
        let mut line = FlowLine::new(self.context.take_buffer(kept), self.ids.lengths.handshake);
        match event.kind {
            StreamEventKind::Data(bytes) => reader.take(bytes, &mut line, &mut sink),
            StreamEventKind::Gap(_) => reader.gap(&mut line, &mut sink),
            _ => reader.end(&mut line, &mut sink),
        }
        self.context.give_buffer(kept, line.kept);
        self.context.count(COUNTERS.tls_messages, used as u64);
        self.count_cut(COUNTERS.handshakes_cut, cut);
        let is_told = handshake_event.is_client == facts.to_server;
        if self.ids.reports.tls && is_told {
            let client = if facts.to_server { event.direction } else { event.direction.other() };
            self.tls_event(handshake_event, &all_buffers[..used], client);
        }
        for (buffers, hello) in all_buffers[..used].iter().zip(&hellos) {
            let facts = InspectionFacts { hello: *hello, ..facts };
            self.reported(MessageKind::Tls, buffers, event, facts, state);
        }
        self.work.all_buffers = all_buffers;
        self.work.hellos = hellos;
    }

    /// Handles the lines of a STARTTLS negotiation.
    pub(super) fn starttls(&mut self, application: AppProtocol, event: StreamEvent<'_>, state: &mut State) {
        let (kept, is_client) = (KeptBuffer::Line.of(event.direction), state.is_to_server(event.direction));
        let StreamEventKind::Data(mut bytes) = event.kind else {
            state.protocol_change.tls = 0;
            return self.clear(KeptBuffer::Line, event.direction);
        };
        if is_client {
            // A client that continues before the reply does not wait for TLS.
            state.protocol_change.tls = 0;
        } else if state.protocol_change.tls == 0
            && !self.context.has_buffer(kept)
            && !state.mail.is_asked()
            && bytes.last() == Some(&b'\n')
        {
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
            state.protocol_change.tls = match state.protocol_change.tls {
                _ if is_client && starttls::asks(application, whole) => TLS_ASKED,
                _ if is_client => 0,
                TLS_ASKED if starttls::agrees(application, whole) => TLS_AGREED,
                other => other,
            };
            match (application, is_client) {
                (AppProtocol::Smtp, true) => state.mail.command(whole),
                (AppProtocol::Smtp, false) => state.mail.reply(whole),
                _ => {}
            }
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

    fn ssh(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        let reader = &mut state.ssh[event.direction.index()];
        if reader.is_done() {
            return;
        }
        let kept = KeptBuffer::Line.of(event.direction);
        let (mut buffers, mut is_cut) = (InspectionBuffers::default(), false);
        let mut sink = |greeting: ssh::SshGreeting<'_>| {
            buffers.add(Buffer::SshProtocol, greeting.protocol);
            buffers.add(Buffer::SshSoftware, greeting.software);
            is_cut = greeting.is_cut;
        };
        let mut line = FlowLine::new(self.context.take_buffer(kept), ssh::GREETING_BYTES_MAX);
        match event.kind {
            StreamEventKind::Data(bytes) => {
                reader.take(bytes, &mut line, &mut sink);
                is_cut |= reader.has_given_up();
            }
            _ => {
                reader.end(&mut line, &mut sink);
                is_cut = false;
            }
        }
        self.context.give_buffer(kept, line.kept);
        self.count_cut(COUNTERS.handshakes_cut, u64::from(is_cut));
        if !buffers.is_empty() {
            self.reported(MessageKind::Ssh, &buffers, event, facts, state);
        }
    }

    /// Inspects an event of a protocol without message buffers: the payload is the window.
    fn reported(
        &mut self,
        family: MessageKind,
        buffers: &InspectionBuffers,
        event: StreamEvent<'_>,
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        let Some(search) = self.ids.searches.message(family, facts.to_server) else { return };
        let start = event.offset - self.window_len(event, state) as u64;
        let window = self.window(event, state);
        let view = InspectionInput { payload: &window, start, buffers, packet: None };
        let excerpt = match event.kind {
            StreamEventKind::Data(piece) => piece,
            _ => &[],
        };
        let about =
            if family == MessageKind::Tls { AlertSubject::Tls(buffers) } else { AlertSubject::Nothing };
        let point = InspectionPoint { view, facts, excerpt, is_stream: true, about };
        self.search_message(search, BodyLocation::None, point, &mut state.flowbits);
        self.work.window = window;
    }
}

/// Keeps the inspected part of a line.
fn keep_line(begun: &mut FlowBuffer, bytes: &[u8]) {
    let room = starttls::LINE_BYTES.saturating_sub(begun.as_slice().len());
    begun.push(&bytes[..bytes.len().min(room)]);
}

/// Returns the facts of a hello.
fn hello(reported: &tls::TlsEvent<'_>) -> Option<HelloFacts> {
    match reported {
        tls::TlsEvent::ClientHello(hello) => {
            Some(HelloFacts { state: TlsState::ClientHello, version: hello.version() })
        }
        tls::TlsEvent::ServerHello(hello) => {
            Some(HelloFacts { state: TlsState::ServerHello, version: hello.version() })
        }
        _ => None,
    }
}

/// Adds the buffers of a TLS handshake message; returns the validity of the certificate in it.
fn handshake(reported: tls::TlsEvent<'_>, buffers: &mut InspectionBuffers) -> Option<(String, String)> {
    let mut validity = None;
    let random = |random: &[u8], buffers: &mut InspectionBuffers| {
        buffers.add(Buffer::TlsRandom, random);
        if let Some((time, rest)) = random.split_at_checked(4) {
            buffers.add(Buffer::TlsRandomTime, time);
            buffers.add(Buffer::TlsRandomBytes, rest);
        }
    };
    match reported {
        tls::TlsEvent::ClientHello(hello) => {
            if let Some(name) = hello.server_name() {
                buffers.add(Buffer::TlsSni, name);
            }
            hello.protocols().for_each(|protocol| buffers.add(Buffer::TlsAlpn, protocol));
            random(hello.random(), buffers);
        }
        tls::TlsEvent::ServerHello(hello) => {
            if let Some(protocol) = hello.protocol() {
                buffers.add(Buffer::TlsAlpn, protocol);
            }
            random(hello.random(), buffers);
        }
        tls::TlsEvent::Certificates(chain) => {
            for (number, der) in chain.iter().enumerate() {
                buffers.add(Buffer::TlsCertificates, der);
                if let (0, Ok(certificate)) = (number, tls::Certificate::read(der)) {
                    validity = Some(certificate.validity());
                    buffers.add(Buffer::TlsCertSubject, certificate.subject().as_bytes());
                    buffers.add(Buffer::TlsCertIssuer, certificate.issuer().as_bytes());
                    buffers.add(Buffer::TlsCertSerial, certificate.serial().as_bytes());
                    buffers.add(Buffer::TlsCertFingerprint, tls::Fingerprint::of(der).to_string().as_bytes());
                    for name in certificate.alternative_names() {
                        buffers.add(Buffer::TlsSubjectAltName, name.as_bytes());
                    }
                }
            }
        }
        _ => {}
    }
    validity
}
