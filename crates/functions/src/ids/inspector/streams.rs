//! The inspection points of streams: their pieces, each with the window before it.

use applayer::detect::{AppProtocol, Detection, HELLO_BYTES, may_be_client_hello};
use nf::FlowBuffer;
use nf::stream::{StreamEvent, StreamEventKind};
use packet::Direction;

use super::protocols::DEFERRED_BYTES;
use super::{InspectionPoint, Inspector, ScannedPiece, ports, side, swapped};
use crate::ids::alert_subject::AlertSubject;
use crate::ids::facts::InspectionFacts;
use crate::ids::inspection_buffers::InspectionInput;
use crate::ids::signature_groups::PatternUse;
use crate::ids::state::{FlowFlags, KeptBuffer, State, TLS_AGREED};
use crate::ids::window::{StreamWindow, len_before};
use crate::ids::{COUNTERS, LOOKBACK_BYTES};
use crate::lines::FlowLine;
use applayer::http::LineBuffer;
use mpm::Cursor;

impl Inspector<'_, '_> {
    /// Handles a stream event.
    pub(super) fn stream(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        match event.kind {
            StreamEventKind::Restart => {
                for direction in [Direction::Original, Direction::Reply] {
                    let facts = if direction == event.direction { facts } else { swapped(facts) };
                    self.cut(StreamEvent { direction, ..event }, facts, state);
                    self.forget(direction);
                }
                state.restart();
            }
            StreamEventKind::Data(piece) => self.piece(event, piece, facts, state),
            StreamEventKind::Gap(_) => {
                self.clear(KeptBuffer::Window, event.direction);
                self.clear(KeptBuffer::Candidates, event.direction);
                state.cursors[event.direction.index()] = Default::default();
                if state.protocol_change.is_again() {
                    state.detector.lose(side(facts.to_server));
                }
                self.application(event, facts, state);
            }
            StreamEventKind::Finished => self.application(event, facts, state),
            // If it was forged, the streams continue.
            StreamEventKind::Reset => {
                state.connection.reset();
                self.cut(event, facts, state);
            }
        }
    }

    /// Handles the next bytes of a stream.
    fn piece(&mut self, event: StreamEvent<'_>, piece: &[u8], facts: InspectionFacts<'_>, state: &mut State) {
        self.note_one_sided(event.direction, event.offset, state);
        if self.changes_here(event, piece, &facts, state) {
            self.detect_again(state);
        }
        let was_known = state.detector.verdict();
        let found = self.detect(event, piece, &facts, state);
        let facts = InspectionFacts { application: state.application(), ..facts };
        self.inspect_stream(event, piece, facts, state);
        self.read(event, piece, (was_known, found), facts, state);
        if found == Detection::Known(AppProtocol::Http1) {
            self.behind_http(event, piece, facts, state);
        }
        self.keep(event, piece, state);
    }

    /// Detects the protocol of these bytes.
    fn detect(
        &mut self,
        event: StreamEvent<'_>,
        bytes: &[u8],
        facts: &InspectionFacts<'_>,
        state: &mut State,
    ) -> Detection {
        let (side, ports) = (side(facts.to_server), ports(facts));
        let was_known = state.detector.verdict();
        let found = match state.protocol_change.is_again() {
            true => state.detector.next(side, bytes, ports),
            false => state.detector.stream(side, event.offset, bytes, ports),
        };
        if was_known != found && found == Detection::Known(AppProtocol::Http2) {
            self.context.count(COUNTERS.http2_skipped, 1);
        }
        found
    }

    /// Returns whether the connection continues with another protocol here: TLS after STARTTLS, or,
    /// after an undetected protocol, any protocol that the client begins.
    fn changes_here(
        &self,
        event: StreamEvent<'_>,
        piece: &[u8],
        facts: &InspectionFacts<'_>,
        state: &State,
    ) -> bool {
        facts.to_server
            && match state.detector.verdict() {
                Detection::Failed => may_be_client_hello(piece),
                // The server may have sent too few bytes for detection.
                Detection::Unknown => {
                    event.offset > 0 && piece.len() >= HELLO_BYTES && may_be_client_hello(piece)
                }
                Detection::Known(AppProtocol::Smtp | AppProtocol::Ftp) => {
                    state.protocol_change.tls == TLS_AGREED
                }
                _ => false,
            }
    }

    /// Restarts the detection for another protocol.
    #[cold]
    fn detect_again(&mut self, state: &mut State) {
        self.context.count(COUNTERS.protocol_changes, 1);
        for direction in [Direction::Original, Direction::Reply] {
            self.clear(KeptBuffer::Line, direction);
            self.clear(KeptBuffer::Progress, direction);
        }
        state.detect_again();
    }

    /// Parses bytes after a change of the detected protocol.
    #[inline(always)]
    fn read(
        &mut self,
        event: StreamEvent<'_>,
        piece: &[u8],
        (was_known, found): (Detection, Detection),
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        match (was_known, found) {
            // The parsers pass over them, too.
            (Detection::Unknown, Detection::Unknown)
                if state.detector.has_only_empty_lines(side(facts.to_server)) => {}
            (Detection::Unknown, Detection::Unknown) => self.defer(event.direction, piece),
            // Bytes from before the detection are parsed now, the other direction's first.
            (Detection::Unknown, Detection::Known(application)) => {
                let other = event.direction.other();
                if state.detector.found(side(!facts.to_server)) == Some(application) {
                    self.read_deferred(other, b"", swapped(facts), state);
                } else {
                    self.skip_deferred(other, swapped(facts), state);
                }
                if self.context.has_buffer(KeptBuffer::Line.of(event.direction)) {
                    self.read_deferred(event.direction, piece, facts, state);
                } else {
                    self.application(event, facts, state);
                }
            }
            (Detection::Unknown, Detection::Failed) => {
                for direction in [Direction::Original, Direction::Reply] {
                    self.clear(KeptBuffer::Line, direction);
                    self.clear(KeptBuffer::InBody, direction);
                }
                if facts.to_server && may_be_client_hello(piece) {
                    self.next_protocol(event, piece, facts, state);
                }
            }
            (Detection::Failed, Detection::Known(_)) => self.read_late(event, facts, state),
            _ => self.application(event, facts, state),
        }
    }

    /// Parses bytes of a protocol recognised after earlier bytes were given up: both parsers search
    /// for the next beginning.
    #[cold]
    fn read_late(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        self.count_cut(COUNTERS.beginnings_cut, 1);
        let gap = StreamEvent { kind: StreamEventKind::Gap(1), ..event };
        self.application(StreamEvent { direction: event.direction.other(), ..gap }, swapped(facts), state);
        if event.offset > 0 {
            self.application(gap, facts, state);
        }
        self.application(event, facts, state);
    }

    /// Handles bytes that follow HTTP after a CONNECT or an upgrade.
    fn behind_http(
        &mut self,
        event: StreamEvent<'_>,
        piece: &[u8],
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        let direction = event.direction;
        let early = KeptBuffer::Text.of(if facts.to_server { direction } else { direction.other() });
        if !state.exchange.is_switched() {
            // Client bytes before the response wait for it.
            if facts.to_server && !self.work.messages.opaque.is_empty() {
                let mut kept = self.context.take_buffer(early);
                let opaque = &self.work.messages.opaque;
                let room = DEFERRED_BYTES.saturating_sub(kept.as_slice().len());
                kept.push(&opaque[..opaque.len().min(room)]);
                let is_cut = opaque.len() > room && !state.flags.has(FlowFlags::BEGINNING_CUT);
                self.context.give_buffer(early, kept);
                if is_cut {
                    state.flags.set(FlowFlags::BEGINNING_CUT);
                    self.count_cut(COUNTERS.beginnings_cut, 1);
                }
            }
            return;
        }
        let mut tail = std::mem::take(&mut self.work.tail);
        tail.clear();
        if !facts.to_server && self.context.has_buffer(early) {
            let mut kept = self.context.take_buffer(early);
            kept.exchange(&mut tail);
            self.context.give_buffer(early, kept);
        }
        self.detect_again(state);
        for (direction, facts) in [(direction.other(), swapped(facts)), (direction, facts)] {
            if direction == event.direction {
                tail.clear();
                tail.extend_from_slice(&self.work.messages.opaque);
                self.work.messages.opaque.clear();
            }
            if !tail.is_empty() {
                let offset = event.offset + piece.len().saturating_sub(tail.len()) as u64;
                let event = StreamEvent { direction, offset, kind: StreamEventKind::Data(&tail) };
                self.following(event, &tail, facts, state);
            }
        }
        self.work.tail = tail;
    }

    /// Handles the first bytes of another protocol.
    fn next_protocol(
        &mut self,
        event: StreamEvent<'_>,
        bytes: &[u8],
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        self.detect_again(state);
        self.following(event, bytes, facts, state);
    }

    /// Handles bytes after a restart of protocol detection.
    fn following(
        &mut self,
        event: StreamEvent<'_>,
        bytes: &[u8],
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        let was_known = state.detector.verdict();
        let found = self.detect(event, bytes, &facts, state);
        let facts = InspectionFacts { application: state.application(), ..facts };
        match (was_known, found) {
            (Detection::Unknown, Detection::Failed) => {}
            _ => self.read(event, bytes, (was_known, found), facts, state),
        }
    }

    /// Defers bytes until the protocol is known.
    fn defer(&mut self, direction: Direction, piece: &[u8]) {
        let kept = self.context.take_buffer(KeptBuffer::Line.of(direction));
        let mut line = FlowLine::new(kept, DEFERRED_BYTES);
        line.push(piece);
        self.context.give_buffer(KeptBuffer::Line.of(direction), line.kept);
    }

    /// Parses a direction's deferred bytes and the ones after them as one piece.
    fn read_deferred(
        &mut self,
        direction: Direction,
        piece: &[u8],
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        let line = KeptBuffer::Line.of(direction);
        if !self.context.has_buffer(line) {
            return;
        }
        let mut held = std::mem::take(&mut self.work.held);
        held.clear();
        // The parser keeps its incomplete line in the same buffer.
        let mut kept = self.context.take_buffer(line);
        kept.exchange(&mut held);
        self.context.give_buffer(line, kept);
        held.extend_from_slice(piece);
        let kind = StreamEventKind::Data(&held);
        self.application(StreamEvent { direction, offset: 0, kind }, facts, state);
        self.work.held = held;
    }

    /// Handles deferred bytes of a direction that begin within a message: its parser searches for
    /// the next beginning.
    fn skip_deferred(&mut self, direction: Direction, facts: InspectionFacts<'_>, state: &mut State) {
        if !self.context.has_buffer(KeptBuffer::Line.of(direction)) {
            return;
        }
        if !state.flags.has(FlowFlags::PICKED_UP) {
            return self.read_deferred(direction, b"", facts, state);
        }
        self.clear(KeptBuffer::Line, direction);
        let kind = StreamEventKind::Gap(1);
        self.application(StreamEvent { direction, offset: 0, kind }, facts, state);
    }

    /// Inspects the rules for streams.
    fn inspect_stream(
        &mut self,
        event: StreamEvent<'_>,
        piece: &[u8],
        facts: InspectionFacts<'_>,
        state: &mut State,
    ) {
        let at = event.direction.index();
        let port = ports(&facts).server;
        let scanned = self.scanned.take();
        let same = scanned.as_ref().filter(|scanned| scanned.application == facts.application);
        let is_scanned = same.is_some();
        let searches = &self.ids.searches;
        let search = same.map(|scanned| scanned.search);
        let made = || searches.stream(facts.to_server, port, facts.application);
        let Some(search) = search.or_else(made) else { return };
        let candidates_kept = KeptBuffer::Candidates.of(event.direction);
        let start = event.offset - self.window_len(event, state) as u64;

        let mut candidates = std::mem::take(&mut self.work.candidates);
        candidates.restore(&[]);
        let had_candidates = self.context.has_buffer(candidates_kept);
        if had_candidates {
            let saved = self.context.take_buffer(candidates_kept);
            candidates.restore(saved.as_slice());
            self.context.give_buffer(candidates_kept, saved);
            candidates.forget_before(start);
        }
        if !is_scanned {
            // Bytes that were searched for other rules are searched again.
            state.cursors[at] = scanned.map_or(state.cursors[at], |scanned| scanned.before);
            search.piece(&mut state.cursors[at], piece, &mut self.work.hits);
            self.context.count(COUNTERS.bytes_searched, piece.len() as u64);
        }
        let mut in_body = std::mem::take(&mut self.work.in_body);
        in_body.clear();
        for hit in &self.work.hits {
            match hit.rule {
                PatternUse::Stream(rule) => {
                    let anchor = (event.offset + hit.end as u64).saturating_sub(hit.len as u64);
                    candidates.found(rule, anchor);
                }
                PatternUse::Body(rule) => in_body.push(rule),
                PatternUse::Packet(..) => {}
            }
        }
        self.keep_in_body(event.direction, &in_body);
        self.work.in_body = in_body;
        candidates.settle();
        let mut may_match = std::mem::take(&mut self.work.may_match);
        may_match.clear();
        may_match.extend(candidates.rules());
        let always = search.always_in_streams();
        may_match.extend(always.iter().filter(|rule| !candidates.has_acted(**rule)));
        self.work.acted_here.clear();
        if !may_match.is_empty() {
            let (empty, window) = (std::mem::take(&mut self.work.empty), self.window(event, state));
            let view = InspectionInput { payload: &window, start, buffers: &empty, packet: None };
            let about = AlertSubject::Nothing;
            let point = InspectionPoint { view, facts, excerpt: piece, is_stream: true, about };
            self.inspect(&mut may_match, point, &mut state.flowbits);
            self.work.window = window;
            self.work.empty = empty;
            candidates.acted(&self.work.acted_here, |rule| !always.contains(&rule));
            let end = event.offset + piece.len() as u64;
            let forgotten = candidates.limit(end.saturating_sub(LOOKBACK_BYTES as u64));
            if forgotten > 0 {
                self.context.count(COUNTERS.candidates_evicted, forgotten as u64);
            }
        }
        self.work.may_match = may_match;
        if had_candidates || !candidates.as_bytes().is_empty() {
            let mut saved = self.context.take_buffer(candidates_kept);
            saved.clear();
            saved.push(candidates.as_bytes());
            self.context.give_buffer(candidates_kept, saved);
        }
        self.work.candidates = candidates;
    }

    /// Returns the number of bytes before the event that are inspected together with it.
    pub(super) fn window_len(&mut self, event: StreamEvent<'_>, state: &State) -> usize {
        let is_kept = self.context.has_buffer(KeptBuffer::Window.of(event.direction));
        if is_kept { len_before(state.window_start[event.direction.index()], event.offset) } else { 0 }
    }

    /// Returns the event's bytes and the window before them; the caller must give them back.
    pub(super) fn window(&mut self, event: StreamEvent<'_>, state: &mut State) -> Vec<u8> {
        let kept = KeptBuffer::Window.of(event.direction);
        let mut bytes = std::mem::take(&mut self.work.window);
        bytes.clear();
        if self.window_len(event, state) > 0 {
            let mut ring = self.context.take_buffer(kept);
            let start = &mut state.window_start[event.direction.index()];
            StreamWindow { ring: &mut ring, start }.before(event.offset, &mut bytes);
            self.context.give_buffer(kept, ring);
        }
        if let StreamEventKind::Data(piece) = event.kind {
            bytes.extend_from_slice(piece);
        }
        bytes
    }

    /// Keeps the piece as the window of the next one.
    fn keep(&mut self, event: StreamEvent<'_>, piece: &[u8], state: &mut State) {
        let kept = KeptBuffer::Window.of(event.direction);
        let mut ring = self.context.take_buffer(kept);
        let start = &mut state.window_start[event.direction.index()];
        StreamWindow { ring: &mut ring, start }.push(event.offset, piece);
        self.context.give_buffer(kept, ring);
    }

    /// Searches the payload once, for packet rules and stream rules, if it is the next piece of its
    /// stream.
    pub(super) fn scan(&mut self, facts: &InspectionFacts<'_>, payload: &[u8], cursor: &mut Cursor) {
        let (port, application) = (ports(facts).server, facts.application);
        let Some(search) = self.ids.searches.stream(facts.to_server, port, application) else { return };
        self.scanned = Some(ScannedPiece { search, application, before: *cursor });
        search.piece(cursor, payload, &mut self.work.hits);
        self.context.count(COUNTERS.bytes_searched, payload.len() as u64);
    }

    /// Keeps the rules found in a possible message body until the message ends.
    fn keep_in_body(&mut self, direction: Direction, rules: &[u32]) {
        if rules.is_empty() {
            return;
        }
        let mut kept = self.context.take_buffer(KeptBuffer::InBody.of(direction));
        for rule in rules.iter().map(|rule| rule.to_le_bytes()) {
            if !kept.as_slice().as_chunks().0.contains(&rule) {
                kept.push(&rule);
            }
        }
        self.context.give_buffer(KeptBuffer::InBody.of(direction), kept);
    }

    pub(super) fn clear(&mut self, kept: KeptBuffer, direction: Direction) {
        if self.context.has_buffer(kept.of(direction)) {
            self.context.give_buffer(kept.of(direction), FlowBuffer::default());
        }
    }

    /// Handles the end of a connection and the beginning of another one.
    pub(super) fn forget(&mut self, direction: Direction) {
        for kept in [
            KeptBuffer::Window,
            KeptBuffer::Candidates,
            KeptBuffer::Line,
            KeptBuffer::Progress,
            KeptBuffer::Text,
            KeptBuffer::InBody,
        ] {
            self.clear(kept, direction);
        }
    }
}
