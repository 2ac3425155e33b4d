//! Shortage of buffer memory: messages are unreadable from there on, and never parsed as if they
//! were whole.

use applayer::http::{Exchange, HttpEvent, HttpSink};

use super::inspector::{HttpInspector, LINE_MAX};
use super::state::{BlockReason, FlowNotes, Phase};
use super::{COUNTERS, Http, SmugglingPolicy};
use crate::lines::FlowLine;
use nf::Context;

/// Returns whether the beginning of a line was evicted, or its rest of up to `more` bytes may not
/// fit.
#[inline(always)]
pub(super) fn is_not_whole(line: &FlowLine, more: usize) -> bool {
    let kept = &line.kept;
    let len = kept.as_slice().len();
    kept.was_evicted() || len > 0 && kept.capacity() < LINE_MAX.min(len + more)
}

impl HttpInspector<'_, '_> {
    /// Handles the loss of a direction's partial line, whole or in part: searches for the next
    /// start line.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_line(&mut self, exchange: &mut Exchange, line: &mut FlowLine) {
        self.http.run_short(self.notes, self.context);
        if exchange.is_switched() {
            // The beginning of the bytes after HTTP is lost.
            self.notes.is_behind_http = 1;
        }
        // The number of lost bytes is unknown, so they are not counted as a gap.
        let side = self.side;
        exchange.lose_line(side, line, &mut |event: HttpEvent<'_>| {
            if !matches!(event, HttpEvent::Gap(_)) {
                self.event(event);
            }
        });
    }
}

impl Http {
    /// Handles bytes of the flow that were evicted or did not fit before they were parsed. Bytes
    /// that are only searched for HTTP pass.
    #[cold]
    pub(super) fn run_short(&self, notes: &mut FlowNotes, context: &mut Context<'_>) {
        context.count(COUNTERS.memory_full, 1);
        if self.smuggling == SmugglingPolicy::Drop && notes.phase() != Phase::Suspected {
            notes.block(BlockReason::Memory);
        }
    }
}
