//! The opening of a connection: HTTP is detected by the beginnings of its directions, or, if those
//! were not seen, by searching for a start line.

use applayer::detect::{HELLO_BYTES, may_be_client_hello};
use applayer::http::{Exchange, ExchangeSide, HttpAnomaly, HttpEvent};
use nf::Context;
use packet::Direction;

use super::inspector::{HttpInspector, LINE_MAX};
use super::recognise::{PROBE_MAX, Recognition, may_be_status_line, recognise_start};
use super::state::{BlockReason, DirectionStart, Phase, State};
use super::{BUFFER_MAX, Http, SEARCH_MAX, buffer, clear};
use crate::lines::FlowLine;
use crate::ports;

impl Http {
    /// Handles a direction without a visible beginning: searches for a start line, unless the first
    /// visible bytes may be the beginning.
    #[cold]
    pub(super) fn begin_mid_stream(
        &self,
        direction: Direction,
        bytes: &[u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        let begins = state.notes.start(direction) == DirectionStart::Unseen && may_be_status_line(bytes);
        state.notes.set_start(direction, DirectionStart::Open);
        if begins {
            return;
        }
        let mut line = FlowLine::new(context.take_buffer(direction.index()), LINE_MAX);
        let side = state.notes.side(direction);
        state.exchange.gap(side, 1, &mut line, &mut |_: HttpEvent<'_>| {});
        context.give_buffer(direction.index(), line.kept);
    }

    /// Searches for a start line.
    #[cold]
    pub(super) fn search(
        &self,
        direction: Direction,
        bytes: &[u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        if state.notes.start(direction) == DirectionStart::GivenUp {
            return;
        }
        let searched = &mut state.notes.searched[direction.index()];
        let left = SEARCH_MAX.saturating_sub(*searched) as usize;
        let (now, rest) = bytes.split_at(bytes.len().min(left));
        *searched += now.len() as u32;
        let is_last = *searched == SEARCH_MAX;
        self.parse(direction, now, state, context);
        if state.notes.phase() == Phase::Http {
            return self.parse(direction, rest, state, context);
        }
        if !is_last {
            return;
        }
        state.notes.set_start(direction, DirectionStart::GivenUp);
        clear(direction.index(), context);
        if state.notes.start(direction.other()) == DirectionStart::GivenUp {
            self.give_up(state, context);
        }
    }

    /// Handles the first bytes of a direction, or more of them, while the protocol is unknown.
    #[cold]
    pub(super) fn probe(
        &self,
        direction: Direction,
        bytes: &[u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        if !self.ports.has_flow(context) {
            return self.give_up(state, context);
        }
        match state.notes.start(direction) {
            DirectionStart::Open => {}
            DirectionStart::Doubted => return self.doubt(direction, [bytes, &[]], state, context),
            _ => return,
        }
        let mut kept = DirectionPrefix::take(direction, context);
        if kept.is_lost {
            self.lose_beginning(direction, state, context);
            return self.search_if_suspected(direction, bytes, state, context);
        }
        let kept_len = kept.len;
        let first = if kept_len == 0 { bytes } else { kept.with(bytes) };
        let recognition = match recognise_start(first) {
            // Another protocol to a port that is configured for HTTP.
            Recognition::Other if self.is_for_server(direction, state, context) => {
                match may_be_client_hello(first) {
                    true if first.len() < HELLO_BYTES => Recognition::Unclear,
                    true => Recognition::Other,
                    false => Recognition::Http(ExchangeSide::Request),
                }
            }
            recognition => recognition,
        };
        let before = &kept.bytes[..kept_len];
        match recognition {
            Recognition::Unclear if keep(direction, [before, bytes], context) => {}
            Recognition::Unclear => self.lose_beginning(direction, state, context),
            Recognition::Other if self.may_be_answered(direction, state) => {
                self.doubt(direction, [before, bytes], state, context);
            }
            Recognition::Other => {
                self.miss(direction, state, context);
                self.search_if_suspected(direction, before, state, context);
                self.search_if_suspected(direction, bytes, state, context);
            }
            Recognition::Http2 => {
                let side = state.notes.side(direction);
                HttpInspector { http: self, notes: &mut state.notes, context, side }
                    .anomaly(HttpAnomaly::Http2Unread);
                self.give_up(state, context);
            }
            Recognition::Http(side) => {
                self.recognise(direction, side, state, context);
                self.parse(direction, before, state, context);
                self.parse(direction, bytes, state, context);
            }
        }
    }

    /// Returns whether the direction is that of the client of a connection to one of the listed
    /// ports.
    fn is_for_server(&self, direction: Direction, state: &State, context: &Context<'_>) -> bool {
        let (source, destination) = ports::of_flow(context);
        let port = if direction == Direction::Original { destination } else { source };
        self.is_client(direction, state) && self.ports.names(port)
    }

    /// Returns whether the direction is known to be that of the end that opened the connection.
    fn is_client(&self, direction: Direction, state: &State) -> bool {
        state.notes.opened != 0 && direction == state.notes.client()
    }

    /// Returns whether a server's answer may still show that the client's bytes are HTTP.
    fn may_be_answered(&self, direction: Direction, state: &State) -> bool {
        self.is_client(direction, state) && state.notes.start(direction.other()) == DirectionStart::Open
    }

    /// Keeps bytes of a client that do not look like HTTP until its server answers, unless there
    /// are too many.
    #[cold]
    fn doubt(&self, direction: Direction, parts: [&[u8]; 2], state: &mut State, context: &mut Context<'_>) {
        let mut kept = context.take_buffer(buffer::DOUBTED);
        let len = kept.as_slice().len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let is_whole = !kept.was_evicted()
            && len <= BUFFER_MAX
            && parts.into_iter().all(|part| kept.push(part) == part.len());
        if !is_whole {
            kept.clear();
        }
        context.give_buffer(buffer::DOUBTED, kept);
        let start = if is_whole { DirectionStart::Doubted } else { DirectionStart::Lost };
        state.notes.set_start(direction, start);
    }

    /// Handles a partial beginning that was lost for lack of memory, as if it had not been seen.
    #[cold]
    fn lose_beginning(&self, direction: Direction, state: &mut State, context: &mut Context<'_>) {
        self.run_short(&mut state.notes, context);
        self.suspect(direction, state, context);
    }

    fn search_if_suspected(
        &self,
        direction: Direction,
        bytes: &[u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        if state.notes.phase() == Phase::Suspected && state.notes.blocked() == BlockReason::No {
            self.search(direction, bytes, state, context);
        }
    }

    /// Handles the next bytes of a direction after the server switched protocols with CONNECT or an
    /// upgrade. Once the client has switched too, HTTP or another protocol may follow. Returns the
    /// bytes left to parse: none if more are needed to decide.
    #[cold]
    pub(super) fn pass_switch<'b>(
        &self,
        direction: Direction,
        bytes: &'b [u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) -> &'b [u8] {
        if direction != state.notes.client() {
            return bytes;
        }
        let used = self.with_parser(direction, bytes.len(), state, context, |exchange, line, inspector| {
            exchange.request_until_switched(bytes, line, inspector)
        });
        let bytes = &bytes[used..];
        if bytes.is_empty() || state.notes.is_behind_http != 0 {
            return bytes;
        }
        // A line may have begun before the server switched.
        let mut kept = DirectionPrefix::see(direction, context);
        let kept_len = kept.len;
        let recognition = recognise_start(kept.with(bytes));
        match recognition {
            Recognition::Unclear if keep(direction, [bytes, &[]], context) => return &[],
            Recognition::Http(ExchangeSide::Request) => {
                HttpInspector { http: self, notes: &mut state.notes, context, side: ExchangeSide::Request }
                    .give_up_requests();
                state.exchange = Exchange::default();
            }
            Recognition::Unclear => {
                self.run_short(&mut state.notes, context);
                state.notes.is_behind_http = 1;
            }
            _ => state.notes.is_behind_http = 1,
        }
        // PROBE_MAX or more bytes without a whole line: pass them to the parser as they are.
        if kept_len < PROBE_MAX {
            clear(direction.index(), context);
            self.parse(direction, &kept.bytes[..kept_len], state, context);
        }
        bytes
    }

    /// Handles a direction that begins with bytes of this side of HTTP.
    #[cold]
    fn recognise(
        &self,
        direction: Direction,
        side: ExchangeSide,
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        let other = direction.other();
        state.notes.set_client(if side == ExchangeSide::Request { direction } else { other });
        let kept = DirectionPrefix::take(other, context);
        if kept.is_lost {
            self.run_short(&mut state.notes, context);
            state.notes.set_start(other, DirectionStart::Missed);
        }
        // If the opening was not seen, the other direction may begin in the middle of a message.
        if state.notes.opened == 0 && state.notes.start(other) == DirectionStart::Open {
            state.notes.set_start(
                other,
                if side == ExchangeSide::Request { DirectionStart::Unseen } else { DirectionStart::Missed },
            );
        }
        let doubted = self.settle(other, side, state, context);
        if state.notes.start(other) == DirectionStart::Missed {
            self.begin_mid_stream(other, &[], state, context);
        }
        HttpInspector { http: self, notes: &mut state.notes, context, side }.recognised();
        // The other direction's bytes so far were too few to decide, or in doubt.
        for bytes in [&kept.bytes[..kept.len], &doubted] {
            if !bytes.is_empty() {
                self.parse(other, bytes, state, context);
            }
        }
    }

    /// Ends the doubt about a client, because its server begins with this side of HTTP, and returns
    /// the client's bytes. If they were not kept, a request may be among them.
    fn settle(
        &self,
        client: Direction,
        server: ExchangeSide,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Vec<u8> {
        let start = state.notes.start(client);
        if !matches!(start, DirectionStart::Doubted | DirectionStart::Lost) {
            return Vec::new();
        }
        let kept = context.take_buffer(buffer::DOUBTED);
        let is_whole = start == DirectionStart::Doubted && !kept.was_evicted();
        let is_read = is_whole && server == ExchangeSide::Response;
        let bytes = if is_read { kept.as_slice().to_vec() } else { Vec::new() };
        context.give_buffer(buffer::DOUBTED, kept);
        clear(buffer::DOUBTED, context);
        state.notes.set_start(client, if is_read { DirectionStart::Open } else { DirectionStart::Missed });
        if !is_whole && server == ExchangeSide::Response {
            HttpInspector { http: self, notes: &mut state.notes, context, side: ExchangeSide::Request }
                .anomaly(HttpAnomaly::InvalidRequestLine);
            self.run_short(&mut state.notes, context);
        }
        bytes
    }

    /// Handles a direction that does not begin like HTTP. If its beginning may not have been seen,
    /// searches for a start line.
    #[cold]
    fn miss(&self, direction: Direction, state: &mut State, context: &mut Context<'_>) {
        state.notes.set_start(direction, DirectionStart::Missed);
        if state.notes.opened == 0 {
            self.suspect(direction, state, context);
        } else if state.notes.start(direction.other()) != DirectionStart::Open {
            self.give_up(state, context);
        }
    }

    /// Begins the search for a start line, because the bytes before are unknown.
    #[cold]
    pub(super) fn suspect(&self, direction: Direction, state: &mut State, context: &mut Context<'_>) {
        if !self.ports.has_flow(context) {
            return self.give_up(state, context);
        }
        if state.notes.opened == 0 {
            let (source, destination) = ports::of_flow(context);
            let client = if destination <= source { Direction::Original } else { Direction::Reply };
            state.notes.set_client(client);
        }
        let other = direction.other();
        let kept = DirectionPrefix::take(other, context);
        if kept.is_lost {
            self.run_short(&mut state.notes, context);
        }
        for number in [direction.index(), buffer::DOUBTED] {
            clear(number, context);
        }
        state.notes.set_start(direction, DirectionStart::Missed);
        state.notes.set_start(other, DirectionStart::Missed);
        state.notes.enter(Phase::Suspected);
        self.search(other, &kept.bytes[..kept.len], state, context);
    }
}

/// Stores the beginning of a direction in its buffer; false if it does not fit.
fn keep(direction: Direction, parts: [&[u8]; 2], context: &mut Context<'_>) -> bool {
    let mut kept = context.take_buffer(direction.index());
    let whole = parts.into_iter().all(|part| kept.push(part) == part.len());
    if !whole {
        kept.clear();
    }
    context.give_buffer(direction.index(), kept);
    whole
}

/// The beginning of a direction, too short to decide.
struct DirectionPrefix {
    bytes: [u8; PROBE_MAX],
    len: usize,
    /// True if the buffer was evicted.
    is_lost: bool,
}

impl DirectionPrefix {
    /// Takes the stored beginning.
    fn take(direction: Direction, context: &mut Context<'_>) -> DirectionPrefix {
        let beginning = DirectionPrefix::see(direction, context);
        if beginning.len > 0 {
            clear(direction.index(), context);
        }
        beginning
    }

    /// Copies the stored beginning, or its first bytes.
    fn see(direction: Direction, context: &mut Context<'_>) -> DirectionPrefix {
        let mut beginning = DirectionPrefix { bytes: [0; PROBE_MAX], len: 0, is_lost: false };
        if !context.has_buffer(direction.index()) {
            return beginning;
        }
        let kept = context.take_buffer(direction.index());
        beginning.is_lost = kept.was_evicted();
        beginning.len = kept.as_slice().len().min(PROBE_MAX);
        beginning.bytes[..beginning.len].copy_from_slice(&kept.as_slice()[..beginning.len]);
        context.give_buffer(direction.index(), kept);
        beginning
    }

    /// Appends as many of the next bytes as are needed to decide.
    fn with(&mut self, more: &[u8]) -> &[u8] {
        let rest = &mut self.bytes[self.len..];
        let len = more.len().min(rest.len());
        rest[..len].copy_from_slice(&more[..len]);
        &self.bytes[..self.len + len]
    }
}
