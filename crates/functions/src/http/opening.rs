//! How a connection opens: whether it speaks HTTP is found out by what its directions begin with;
//! or, where the beginning was not seen, by searching for a start line.

use applayer::http::{Anomaly, Event, Exchange, Side};
use nf::Context;
use packet::Direction;

use super::recognise::{Look, PROBE_MAX, look, may_be_status_line};
use super::state::{Blocked, Phase, Start, State};
use super::watch::{Kept, Watch};
use super::{Http, SEARCH_MAX, clear};
use crate::ports;

impl Http {
    /// A direction's beginning was not seen: the parser is to search for a start line, unless the
    /// first bytes that were seen may well be the beginning.
    #[cold]
    pub(super) fn begin_in_the_midst(
        &self,
        direction: Direction,
        bytes: &[u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        let begins = state.notes.start(direction) == Start::Unseen && may_be_status_line(bytes);
        state.notes.set_start(direction, Start::Open);
        if begins {
            return;
        }
        let mut line = Kept::new(context.take_buffer(direction.index()));
        let side = state.notes.side(direction);
        state.exchange.gap(side, 1, &mut line, &mut |_: Event<'_>| {});
        context.give_buffer(direction.index(), line.0);
    }

    /// Bytes of a connection in which a start line is searched for.
    #[cold]
    pub(super) fn search(
        &self,
        direction: Direction,
        bytes: &[u8],
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        if state.notes.start(direction) == Start::GivenUp {
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
        state.notes.set_start(direction, Start::GivenUp);
        clear(direction.index(), context);
        if state.notes.start(direction.other()) == Start::GivenUp {
            self.give_up(state, context);
        }
    }

    /// The first bytes of a direction, or more of them, where nobody knows what is spoken.
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
        if state.notes.start(direction) != Start::Open {
            return;
        }
        let mut kept = Beginning::take(direction, context);
        if kept.is_lost {
            self.lose_beginning(direction, state, context);
            return self.search_if_suspected(direction, bytes, state, context);
        }
        let kept_len = kept.len;
        let looked = match kept_len {
            0 => look(bytes),
            _ => look(kept.with(bytes)),
        };
        let before = &kept.bytes[..kept_len];
        match looked {
            Look::Unclear if keep(direction, [before, bytes], context) => {}
            Look::Unclear => self.lose_beginning(direction, state, context),
            Look::Other => {
                self.miss(direction, state, context);
                self.search_if_suspected(direction, before, state, context);
                self.search_if_suspected(direction, bytes, state, context);
            }
            Look::Http2 => {
                let side = state.notes.side(direction);
                Watch { http: self, notes: &mut state.notes, context, side }.anomaly(Anomaly::Http2Unread);
                self.give_up(state, context);
            }
            Look::Http(side) => {
                self.recognise(direction, side, state, context);
                self.parse(direction, before, state, context);
                self.parse(direction, bytes, state, context);
            }
        }
    }

    /// Of the beginning of a direction not all is kept, for want of memory: it is as one that was
    /// not seen.
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
        if state.notes.phase() == Phase::Suspected && state.notes.blocked() == Blocked::No {
            self.search(direction, bytes, state, context);
        }
    }

    /// The next bytes of a direction where the server's is another protocol's, behind a CONNECT or
    /// an upgrade. Where the client's comes to that, too, HTTP may begin again, or something else.
    /// What is left of the bytes: none if more are needed to tell.
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
        let used = self.with_parser(direction, bytes.len(), state, context, |exchange, line, watch| {
            exchange.request_until_switched(bytes, line, watch)
        });
        let bytes = &bytes[used..];
        if bytes.is_empty() || state.notes.is_behind_http != 0 {
            return bytes;
        }
        // A line may have been begun before the server switched.
        let mut kept = Beginning::see(direction, context);
        let kept_len = kept.len;
        let looked = look(kept.with(bytes));
        match looked {
            Look::Unclear if keep(direction, [bytes, &[]], context) => return &[],
            Look::Http(Side::Request) => {
                Watch { http: self, notes: &mut state.notes, context, side: Side::Request }
                    .give_up_requests();
                state.exchange = Exchange::default();
            }
            Look::Unclear => {
                self.run_short(&mut state.notes, context);
                state.notes.is_behind_http = 1;
            }
            _ => state.notes.is_behind_http = 1,
        }
        // Of PROBE_MAX bytes or more there is no whole line among them: they are the parser's as
        // they are.
        if kept_len < PROBE_MAX {
            clear(direction.index(), context);
            self.parse(direction, &kept.bytes[..kept_len], state, context);
        }
        bytes
    }

    /// A direction's first bytes are those of this side of HTTP.
    #[cold]
    fn recognise(&self, direction: Direction, side: Side, state: &mut State, context: &mut Context<'_>) {
        let other = direction.other();
        state.notes.set_client(if side == Side::Request { direction } else { other });
        let kept = Beginning::take(other, context);
        if kept.is_lost {
            self.run_short(&mut state.notes, context);
            state.notes.set_start(other, Start::Missed);
        }
        // What was not seen of a connection from its opening on may be in the midst of something.
        if state.notes.opened == 0 && state.notes.start(other) == Start::Open {
            state.notes.set_start(other, if side == Side::Request { Start::Unseen } else { Start::Missed });
        }
        if state.notes.start(other) == Start::Missed {
            self.begin_in_the_midst(other, &[], state, context);
        }
        Watch { http: self, notes: &mut state.notes, context, side }.recognised();
        // What the other direction has said so far was not enough to tell.
        if kept.len > 0 {
            self.parse(other, &kept.bytes[..kept.len], state, context);
        }
    }

    /// A direction does not begin like HTTP. If that may be because its beginning was not seen, a
    /// start line is searched for.
    #[cold]
    fn miss(&self, direction: Direction, state: &mut State, context: &mut Context<'_>) {
        state.notes.set_start(direction, Start::Missed);
        if state.notes.opened == 0 {
            self.suspect(direction, state, context);
        } else if state.notes.start(direction.other()) == Start::Missed {
            self.give_up(state, context);
        }
    }

    /// A start line is searched for, as nobody knows what was before what this direction brings.
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
        let kept = Beginning::take(other, context);
        if kept.is_lost {
            self.run_short(&mut state.notes, context);
        }
        clear(direction.index(), context);
        state.notes.set_start(direction, Start::Missed);
        state.notes.set_start(other, Start::Missed);
        state.notes.enter(Phase::Suspected);
        self.search(other, &kept.bytes[..kept.len], state, context);
    }
}

/// Keeps the beginning of a direction in its buffer; false if there is no room.
fn keep(direction: Direction, parts: [&[u8]; 2], context: &mut Context<'_>) -> bool {
    let mut kept = context.take_buffer(direction.index());
    let whole = parts.into_iter().all(|part| kept.push(part) == part.len());
    if !whole {
        kept.clear();
    }
    context.give_buffer(direction.index(), kept);
    whole
}

/// The beginning of a direction, which was not enough to tell what is spoken.
struct Beginning {
    bytes: [u8; PROBE_MAX],
    len: usize,
    /// It gave way to others.
    is_lost: bool,
}

impl Beginning {
    /// Takes what is kept of it.
    fn take(direction: Direction, context: &mut Context<'_>) -> Beginning {
        let beginning = Beginning::see(direction, context);
        if beginning.len > 0 {
            clear(direction.index(), context);
        }
        beginning
    }

    /// What is kept of it, or the first bytes of that.
    fn see(direction: Direction, context: &mut Context<'_>) -> Beginning {
        let mut beginning = Beginning { bytes: [0; PROBE_MAX], len: 0, is_lost: false };
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

    /// With as many more bytes as it takes to tell.
    fn with(&mut self, more: &[u8]) -> &[u8] {
        let rest = &mut self.bytes[self.len..];
        let len = more.len().min(rest.len());
        rest[..len].copy_from_slice(&more[..len]);
        &self.bytes[..self.len + len]
    }
}
