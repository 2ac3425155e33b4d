//! The timers of a flow: which are armed, when they fire, and what they do.

use crate::timer::UnitTimer;
use crate::trace::{FlowPlace, TimelineEvent};

use super::{Context, Ending, Flow, Packets, ownerships::Ownerships, recovery::Recovery, transfer::Fetch};
use crate::unit::{Engine, timers::NEVER_NS};

/// Of the timers that [`Flow::pump`] does not handle, the first that has expired is handled; and
/// [`UnitTimer::Expire`] in addition.
const ONE_AT_A_TIME: [UnitTimer; 6] = [
    UnitTimer::End,
    UnitTimer::Pull,
    UnitTimer::Seek,
    UnitTimer::Offer,
    UnitTimer::State,
    UnitTimer::Replicate,
];

/// The deadlines of a flow's timers.
#[derive(Clone, Copy)]
pub(super) struct Deadlines<'a> {
    packets: &'a Packets,
    ownerships: &'a Ownerships,
    fetch: &'a Fetch,
    recovery: &'a Recovery,
    ending: &'a Ending,
    is_owner: bool,
}

impl Deadlines<'_> {
    /// Returns the timers that may be armed.
    fn armed(self) -> &'static [UnitTimer] {
        if self.packets.is_quiescent() {
            return &[UnitTimer::Replicate, UnitTimer::Expire];
        }
        let Some((state, ownership)) = self.packets.state().zip(self.ownerships.first()) else {
            return &[UnitTimer::Pull, UnitTimer::End];
        };
        match ownership.next() {
            Some(next) if state.mark.covers(next.last()) => &[UnitTimer::Offer, UnitTimer::State],
            Some(_) => &[UnitTimer::Gap, UnitTimer::Release],
            None => &[UnitTimer::Gap, UnitTimer::Pull, UnitTimer::Replicate, UnitTimer::Expire],
        }
    }

    /// Returns the earliest one.
    pub fn next_ns<E: Engine>(self, cx: &Context<'_, E>) -> u64 {
        let armed = self.armed().iter().chain(&[UnitTimer::Seek]);
        let deadlines = armed.filter_map(|&timer| self.of(timer, cx));
        deadlines.min().unwrap_or(NEVER_NS)
    }

    fn has_expired<E: Engine>(self, timer: UnitTimer, cx: &Context<'_, E>) -> bool {
        self.of(timer, cx).is_some_and(|deadline_ns| deadline_ns <= cx.now_ns)
    }

    /// Returns when a timer fires; `None` if it is not armed.
    fn of<E: Engine>(self, timer: UnitTimer, cx: &Context<'_, E>) -> Option<u64> {
        let state = self.packets.state();
        let ready = || self.ownerships.ready_successor(state?.mark, cx.id());
        let (since_ns, wait_ns) = match timer {
            UnitTimer::Gap => (self.packets.gap_since_ns(cx.slab)?, cx.config.reorder_timeout_ns),
            UnitTimer::Release => {
                (self.ownerships.next_owner()?.released_ns()?, cx.config.reorder_timeout_ns)
            }
            UnitTimer::Pull => {
                let (epoch, ..) = self.ownerships.awaited(state.is_some(), cx.id())?;
                self.fetch.timer(epoch, cx.config)?
            }
            UnitTimer::Seek => self.recovery.timer(cx.config)?,
            UnitTimer::Offer => {
                let next = ready().filter(|next| next.answered().is_none())?;
                (next.released_ns()?, cx.config.offer_after_ns())
            }
            UnitTimer::State => {
                let (sent_ns, times) = ready()?.answered()?;
                (sent_ns, cx.config.again_ns(times))
            }
            // Not if the state was copied, and nothing has come since (S51, S52).
            UnitTimer::Replicate => {
                let may_fire = self.is_owner && self.packets.has_news() && self.ending.may_be_copied();
                (self.packets.seen_ns(), cx.config.replicate_after_ns.filter(|_| may_fire)?)
            }
            UnitTimer::Expire => {
                let may_fire = self.is_owner && !self.ending.is_over();
                let silent_since_ns = self.ending.silent_since_ns(self.packets.seen_ns());
                (silent_since_ns, cx.config.expire_after_ns.filter(|_| may_fire)?)
            }
            // Should the state come after all, it ends then.
            UnitTimer::End => {
                let since_ns = self.ending.waits_since_ns().filter(|_| state.is_none())?;
                (since_ns, cx.config.patience_ns())
            }
        };
        Some(since_ns.saturating_add(wait_ns))
    }
}

impl Flow {
    /// Returns the deadlines of the timers.
    #[inline]
    pub(super) fn deadlines(&self) -> Deadlines<'_> {
        let Flow { packets, ownerships, fetch, recovery, ending, .. } = self;
        Deadlines { packets, ownerships, fetch, recovery, ending, is_owner: self.owned().is_some() }
    }

    /// Handles the timers that have expired.
    pub fn handle_timeout<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.pump(cx);
        let deadlines = self.deadlines();
        if let Some(&timer) = ONE_AT_A_TIME.iter().find(|&&timer| deadlines.has_expired(timer, cx)) {
            self.fire(timer, cx);
        }
        if self.deadlines().has_expired(UnitTimer::Expire, cx) {
            self.fire(UnitTimer::Expire, cx);
        }
    }

    fn fire<E: Engine>(&mut self, timer: UnitTimer, cx: &mut Context<'_, E>) {
        cx.note(FlowPlace::of(cx.flow), TimelineEvent::TimerFired { timer });
        match timer {
            UnitTimer::Gap | UnitTimer::Release => self.pump(cx),
            UnitTimer::Pull => self.pull_again(cx),
            UnitTimer::Seek => self.recovery.seek_again(self.packets.version(), cx),
            UnitTimer::Offer => {
                cx.counters.states_offered += 1;
                self.answer(cx);
            }
            UnitTimer::State => {
                cx.counters.states_retransmitted += 1;
                self.answer(cx);
            }
            UnitTimer::Replicate => self.packets.copy_ahead(cx),
            UnitTimer::Expire => self.propose_end(cx),
            UnitTimer::End => {
                cx.counters.ends_given_up += 1;
                self.end(cx);
                self.ownerships.clear();
                self.recovery.stop();
            }
        }
    }
}
