//! The occasions that streams bring: their pieces, with what stands before each.

use applayer::detect::{Application, HELLO_BYTES, Verdict as Found, may_be_client_hello};
use nf::FlowBuffer;
use nf::stream::{StreamEvent, StreamEventKind};
use packet::Direction;

use super::protocols::{Gathered, LINE_BYTES};
use super::{Occasion, Scanned, Watch, ports, side, turned};
use crate::ids::about::About;
use crate::ids::facts::Facts;
use crate::ids::lane::Sought;
use crate::ids::scene::View;
use crate::ids::state::{Flags, Kept, State, TLS_AGREED};
use crate::ids::window::{Window, len_before};
use crate::ids::{LOOKBACK_BYTES, counter};
use applayer::http::Line;
use mpm::Cursor;

impl Watch<'_, '_> {
    /// Something that happened to a stream.
    pub(super) fn stream(&mut self, event: StreamEvent<'_>, facts: Facts<'_>, state: &mut State) {
        match event.kind {
            StreamEventKind::Restart => {
                for direction in [Direction::Original, Direction::Reply] {
                    let facts = if direction == event.direction { facts } else { turned(facts) };
                    self.cut(StreamEvent { direction, ..event }, facts, state);
                    self.forget(direction);
                }
                state.restart();
            }
            StreamEventKind::Data(piece) => self.piece(event, piece, facts, state),
            StreamEventKind::Gap(_) => {
                self.clear(Kept::Window, event.direction);
                self.clear(Kept::Candidates, event.direction);
                state.cursors[event.direction.index()] = Default::default();
                if state.handover.is_again() {
                    state.detector.lose(side(facts.to_server));
                }
                self.application(event, facts, state);
            }
            StreamEventKind::Finished => self.application(event, facts, state),
            // If it was forged, the streams go on.
            StreamEventKind::Reset => {
                state.standing.reset();
                self.cut(event, facts, state);
            }
        }
    }

    /// The next bytes of a stream.
    fn piece(&mut self, event: StreamEvent<'_>, piece: &[u8], facts: Facts<'_>, state: &mut State) {
        self.note_one_sided(event.direction, event.offset, state);
        if self.changes_here(event, piece, &facts, state) {
            self.detect_again(state);
        }
        let was_known = state.detector.verdict();
        let found = self.detect(event, piece, &facts, state);
        let facts = Facts { application: state.application(), ..facts };
        self.look_into(event, piece, facts, state);
        self.read(event, piece, (was_known, found), facts, state);
        if found == Found::Known(Application::Http1) {
            self.behind_http(event, piece, facts, state);
        }
        self.keep(event, piece, state);
    }

    /// Looks for the protocol that these bytes are of.
    fn detect(
        &mut self,
        event: StreamEvent<'_>,
        bytes: &[u8],
        facts: &Facts<'_>,
        state: &mut State,
    ) -> Found {
        let (side, ports) = (side(facts.to_server), ports(facts));
        let was_known = state.detector.verdict();
        let found = match state.handover.is_again() {
            true => state.detector.next(side, bytes, ports),
            false => state.detector.stream(side, event.offset, bytes, ports),
        };
        if was_known != found && found == Found::Known(Application::Http2) {
            self.context.count(counter::HTTP2_UNREAD, 1);
        }
        found
    }

    /// Whether the connection goes on with another protocol here: with TLS, as client and server
    /// agreed, or, of a protocol that is not known, as the client begins with it.
    fn changes_here(&self, event: StreamEvent<'_>, piece: &[u8], facts: &Facts<'_>, state: &State) -> bool {
        facts.to_server
            && match state.detector.verdict() {
                Found::Failed => may_be_client_hello(piece),
                // The server may have said too little to tell.
                Found::Unknown => {
                    event.offset > 0 && piece.len() >= HELLO_BYTES && may_be_client_hello(piece)
                }
                Found::Known(Application::Smtp | Application::Ftp) => state.handover.tls == TLS_AGREED,
                _ => false,
            }
    }

    /// Another protocol follows.
    #[cold]
    fn detect_again(&mut self, state: &mut State) {
        self.context.count(counter::DETECTED_AGAIN, 1);
        for direction in [Direction::Original, Direction::Reply] {
            self.clear(Kept::Line, direction);
            self.clear(Kept::Progress, direction);
        }
        state.detect_again();
    }

    /// Reads bytes, which made of what was known what was found.
    #[inline(always)]
    fn read(
        &mut self,
        event: StreamEvent<'_>,
        piece: &[u8],
        (was_known, found): (Found, Found),
        facts: Facts<'_>,
        state: &mut State,
    ) {
        match (was_known, found) {
            (Found::Unknown, Found::Unknown) => self.hold_back(event.direction, piece),
            // What came before the protocol was known is read now, the other direction's first.
            (Found::Unknown, Found::Known(application)) => {
                let other = event.direction.other();
                if state.detector.found(side(!facts.to_server)) == Some(application) {
                    self.read_held(other, b"", turned(facts), state);
                } else {
                    self.skip_held(other, turned(facts), state);
                }
                if self.context.has_buffer(Kept::Line.of(event.direction)) {
                    self.read_held(event.direction, piece, facts, state);
                } else {
                    self.application(event, facts, state);
                }
            }
            (Found::Unknown, Found::Failed) => {
                for direction in [Direction::Original, Direction::Reply] {
                    self.clear(Kept::Line, direction);
                    self.clear(Kept::InBody, direction);
                }
                if facts.to_server && may_be_client_hello(piece) {
                    self.next_protocol(event, piece, facts, state);
                }
            }
            _ => self.application(event, facts, state),
        }
    }

    /// What follows HTTP behind a CONNECT or an upgrade.
    fn behind_http(&mut self, event: StreamEvent<'_>, piece: &[u8], facts: Facts<'_>, state: &mut State) {
        let direction = event.direction;
        let early = Kept::Text.of(if facts.to_server { direction } else { direction.other() });
        if !state.exchange.is_switched() {
            // What a client sends before the answer waits for that.
            if facts.to_server && !self.work.messages.opaque.is_empty() {
                let mut kept = self.context.take_buffer(early);
                let opaque = &self.work.messages.opaque;
                kept.push(&opaque[..opaque.len().min(LINE_BYTES.saturating_sub(kept.as_slice().len()))]);
                self.context.give_buffer(early, kept);
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
        for (direction, facts) in [(direction.other(), turned(facts)), (direction, facts)] {
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

    /// Bytes with which another protocol begins.
    fn next_protocol(&mut self, event: StreamEvent<'_>, bytes: &[u8], facts: Facts<'_>, state: &mut State) {
        self.detect_again(state);
        self.following(event, bytes, facts, state);
    }

    /// Bytes of the protocol whose detection began again.
    fn following(&mut self, event: StreamEvent<'_>, bytes: &[u8], facts: Facts<'_>, state: &mut State) {
        let was_known = state.detector.verdict();
        let found = self.detect(event, bytes, &facts, state);
        let facts = Facts { application: state.application(), ..facts };
        match (was_known, found) {
            (Found::Unknown, Found::Failed) => {}
            _ => self.read(event, bytes, (was_known, found), facts, state),
        }
    }

    /// Keeps bytes until the protocol is known.
    fn hold_back(&mut self, direction: Direction, piece: &[u8]) {
        let mut line = Gathered::new(self.context.take_buffer(Kept::Line.of(direction)));
        line.push(piece);
        self.context.give_buffer(Kept::Line.of(direction), line.0);
    }

    /// Reads what was held back of a direction, and what comes behind it, as one piece.
    fn read_held(&mut self, direction: Direction, piece: &[u8], facts: Facts<'_>, state: &mut State) {
        let line = Kept::Line.of(direction);
        if !self.context.has_buffer(line) {
            return;
        }
        let mut held = std::mem::take(&mut self.work.held);
        held.clear();
        // The reader keeps in the same buffer what it waits with.
        let mut kept = self.context.take_buffer(line);
        kept.exchange(&mut held);
        self.context.give_buffer(line, kept);
        held.extend_from_slice(piece);
        let kind = StreamEventKind::Data(&held);
        self.application(StreamEvent { direction, offset: 0, kind }, facts, state);
        self.work.held = held;
    }

    /// What was held back of a direction begins within something: its reader looks for what begins
    /// next.
    fn skip_held(&mut self, direction: Direction, facts: Facts<'_>, state: &mut State) {
        if !self.context.has_buffer(Kept::Line.of(direction)) {
            return;
        }
        if !state.flags.has(Flags::PICKED_UP) {
            return self.read_held(direction, b"", facts, state);
        }
        self.clear(Kept::Line, direction);
        let kind = StreamEventKind::Gap(1);
        self.application(StreamEvent { direction, offset: 0, kind }, facts, state);
    }

    /// Rules that look into streams.
    fn look_into(&mut self, event: StreamEvent<'_>, piece: &[u8], facts: Facts<'_>, state: &mut State) {
        let at = event.direction.index();
        let port = ports(&facts).server;
        let scanned = self.scanned.take();
        let same = scanned.as_ref().filter(|scanned| scanned.application == facts.application);
        let is_scanned = same.is_some();
        let searches = &self.ids.searches;
        let search = same.map(|scanned| scanned.search);
        let made = || searches.stream(facts.to_server, port, facts.application);
        let Some(search) = search.or_else(made) else { return };
        let candidates_kept = Kept::Candidates.of(event.direction);
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
            // What was searched for other rules is searched again.
            state.cursors[at] = scanned.map_or(state.cursors[at], |scanned| scanned.before);
            search.piece(&mut state.cursors[at], piece, &mut self.work.hits);
            self.context.count(counter::INSPECTED_BYTES, piece.len() as u64);
        }
        let mut in_body = std::mem::take(&mut self.work.in_body);
        in_body.clear();
        for hit in &self.work.hits {
            match hit.rule {
                Sought::Stream(rule) => {
                    let anchor = (event.offset + hit.end as u64).saturating_sub(hit.len as u64);
                    candidates.found(rule, anchor);
                }
                Sought::Body(rule) => in_body.push(rule),
                Sought::Packet(..) => {}
            }
        }
        self.keep_in_body(event.direction, &in_body);
        self.work.in_body = in_body;
        candidates.settle();
        let mut may_hold = std::mem::take(&mut self.work.may_hold);
        may_hold.clear();
        may_hold.extend(candidates.rules());
        let always = search.always_in_streams();
        may_hold.extend(always.iter().filter(|rule| !candidates.has_acted(**rule)));
        self.work.acted_here.clear();
        if !may_hold.is_empty() {
            let (empty, window) = (std::mem::take(&mut self.work.empty), self.window(event, state));
            let view = View { payload: &window, start, scene: &empty, packet: None };
            let about = About::Nothing;
            let occasion = Occasion { view, facts, excerpt: piece, is_stream: true, about };
            self.look(&mut may_hold, occasion, &mut state.marks);
            self.work.window = window;
            self.work.empty = empty;
            candidates.acted(&self.work.acted_here, |rule| !always.contains(&rule));
            let end = event.offset + piece.len() as u64;
            let forgotten = candidates.limit(end.saturating_sub(LOOKBACK_BYTES as u64));
            if forgotten > 0 {
                self.context.count(counter::CANDIDATES_FORGOTTEN, forgotten as u64);
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
    }

    /// How many bytes before the event's place are looked at with what it brings.
    pub(super) fn window_len(&mut self, event: StreamEvent<'_>, state: &State) -> usize {
        let is_kept = self.context.has_buffer(Kept::Window.of(event.direction));
        if is_kept { len_before(state.window_start[event.direction.index()], event.offset) } else { 0 }
    }

    /// What the event brings, and the window before it: to be given back.
    pub(super) fn window(&mut self, event: StreamEvent<'_>, state: &mut State) -> Vec<u8> {
        let kept = Kept::Window.of(event.direction);
        let mut bytes = std::mem::take(&mut self.work.window);
        bytes.clear();
        if self.window_len(event, state) > 0 {
            let mut ring = self.context.take_buffer(kept);
            let start = &mut state.window_start[event.direction.index()];
            Window { ring: &mut ring, start }.before(event.offset, &mut bytes);
            self.context.give_buffer(kept, ring);
        }
        if let StreamEventKind::Data(piece) = event.kind {
            bytes.extend_from_slice(piece);
        }
        bytes
    }

    /// Keeps the piece for the next one.
    fn keep(&mut self, event: StreamEvent<'_>, piece: &[u8], state: &mut State) {
        let kept = Kept::Window.of(event.direction);
        let mut ring = self.context.take_buffer(kept);
        let start = &mut state.window_start[event.direction.index()];
        Window { ring: &mut ring, start }.push(event.offset, piece);
        self.context.give_buffer(kept, ring);
    }

    /// The payload of the packet at hand is the next piece of its stream: it is searched once for
    /// the rules of both.
    pub(super) fn scan(&mut self, facts: &Facts<'_>, payload: &[u8], cursor: &mut Cursor) {
        let (port, application) = (ports(facts).server, facts.application);
        let Some(search) = self.ids.searches.stream(facts.to_server, port, application) else { return };
        self.scanned = Some(Scanned { search, application, before: *cursor });
        search.piece(cursor, payload, &mut self.work.hits);
        self.context.count(counter::INSPECTED_BYTES, payload.len() as u64);
    }

    /// Keeps the rules whose literal was found where a message's body may be, until the message is
    /// over.
    fn keep_in_body(&mut self, direction: Direction, rules: &[u32]) {
        if rules.is_empty() {
            return;
        }
        let mut kept = self.context.take_buffer(Kept::InBody.of(direction));
        for rule in rules.iter().map(|rule| rule.to_le_bytes()) {
            if !kept.as_slice().as_chunks().0.contains(&rule) {
                kept.push(&rule);
            }
        }
        self.context.give_buffer(Kept::InBody.of(direction), kept);
    }

    pub(super) fn clear(&mut self, kept: Kept, direction: Direction) {
        if self.context.has_buffer(kept.of(direction)) {
            self.context.give_buffer(kept.of(direction), FlowBuffer::default());
        }
    }

    /// The connection is over, and another one begins.
    pub(super) fn forget(&mut self, direction: Direction) {
        for kept in [Kept::Window, Kept::Candidates, Kept::Line, Kept::Progress, Kept::Text, Kept::InBody] {
            self.clear(kept, direction);
        }
    }
}
