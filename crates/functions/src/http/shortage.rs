//! Memory for what is kept of messages runs short: they are not readable from there on, and are
//! never read as if they were whole.

use applayer::http::{Event, Exchange, Sink};

use super::state::{Blocked, Notes, Phase};
use super::watch::{Kept, LINE_MAX, Watch};
use super::{Http, Smuggling, counter};
use nf::Context;

/// Whether the beginning of a line gave way to others, or there may be no room for its rest, of up
/// to `more` bytes.
#[inline(always)]
pub(super) fn is_not_whole(line: &Kept, more: usize) -> bool {
    let kept = &line.0;
    let len = kept.as_slice().len();
    kept.was_evicted() || len > 0 && kept.capacity() < LINE_MAX.min(len + more)
}

impl Watch<'_, '_> {
    /// What is kept of the direction's line is lost, or not all of it: the next start line is
    /// searched for.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_line(&mut self, exchange: &mut Exchange, line: &mut Kept) {
        self.http.run_short(self.notes, self.context);
        if exchange.is_switched() {
            // Nobody knows any more how what follows HTTP begins.
            self.notes.is_behind_http = 1;
        }
        // How many bytes are lost nobody knows: they are not counted as a gap.
        let side = self.side;
        exchange.lose_line(side, line, &mut |event: Event<'_>| {
            if !matches!(event, Event::Gap(_)) {
                self.event(event);
            }
        });
    }
}

impl Http {
    /// Something of the flow that was to be read is not there any more, or found no room. What is
    /// only searched for HTTP passes.
    #[cold]
    pub(super) fn run_short(&self, notes: &mut Notes, context: &mut Context<'_>) {
        context.count(counter::MEMORY_FULL, 1);
        if self.smuggling == Smuggling::Drop && notes.phase() != Phase::Suspected {
            notes.block(Blocked::Memory);
        }
    }
}
