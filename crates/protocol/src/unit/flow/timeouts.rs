//! The timers of a flow: which are armed, when they fire, and what they do.

use crate::message::ReplicaTargets;
use crate::timer::UnitTimer;

use super::{Context, Flow};
use crate::unit::{Engine, ownership::Successor, timers::NEVER_NS};

/// Of the timers that [`Flow::pump`] does not handle, the first that has expired is handled; and
/// [`UnitTimer::Expire`] besides.
const ONE_AT_A_TIME: [UnitTimer; 5] =
    [UnitTimer::End, UnitTimer::Pull, UnitTimer::Offer, UnitTimer::State, UnitTimer::Replicate];

impl Flow {
    /// Returns the timers that may be armed.
    fn armed(&self) -> &'static [UnitTimer] {
        if self.is_quiescent {
            return &[UnitTimer::Replicate, UnitTimer::Expire];
        }
        let Some((state, ownership)) = self.state.zip(self.ownerships.front()) else {
            return &[UnitTimer::Pull, UnitTimer::End];
        };
        match ownership.next {
            Some(next) if state.mark.covers(next.last) => &[UnitTimer::Offer, UnitTimer::State],
            Some(_) => &[UnitTimer::Gap, UnitTimer::Release],
            None => &[UnitTimer::Gap, UnitTimer::Pull, UnitTimer::Replicate, UnitTimer::Expire],
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn next_timeout_ns<E: Engine>(&self, cx: &Context<'_, E>) -> u64 {
        let deadlines = self.armed().iter().filter_map(|&timer| self.deadline_ns(timer, cx));
        deadlines.min().unwrap_or(NEVER_NS)
    }

    /// Handles the timers that have expired.
    pub fn handle_timeout<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.pump(cx);
        if let Some(&timer) = ONE_AT_A_TIME.iter().find(|&&timer| self.has_expired(timer, cx)) {
            self.fire(timer, cx);
        }
        if self.has_expired(UnitTimer::Expire, cx) {
            self.fire(UnitTimer::Expire, cx);
        }
    }

    fn has_expired<E: Engine>(&self, timer: UnitTimer, cx: &Context<'_, E>) -> bool {
        self.deadline_ns(timer, cx).is_some_and(|deadline_ns| deadline_ns <= cx.now_ns)
    }

    fn fire<E: Engine>(&mut self, timer: UnitTimer, cx: &mut Context<'_, E>) {
        match timer {
            UnitTimer::Gap | UnitTimer::Release => self.pump(cx),
            UnitTimer::Pull => self.pull_again(cx),
            UnitTimer::Offer | UnitTimer::State => self.offer(cx),
            UnitTimer::Replicate => self.copy_ahead(cx),
            UnitTimer::Expire => self.propose_end(cx),
            UnitTimer::End => {
                cx.counters.ends_given_up += 1;
                self.end(cx);
                self.ownerships.clear();
            }
        }
    }

    /// Returns when the timer fires; `None` if it is not armed.
    fn deadline_ns<E: Engine>(&self, timer: UnitTimer, cx: &Context<'_, E>) -> Option<u64> {
        let (since_ns, wait_ns) = match timer {
            UnitTimer::Gap => {
                let epoch = self.state?.epoch;
                (self.pending.oldest_of(epoch, cx.slab)?, cx.config.reorder_timeout_ns)
            }
            UnitTimer::Release => {
                let next = self.ownerships.front()?.next?;
                (next.released_ns?, cx.config.reorder_timeout_ns)
            }
            UnitTimer::Pull => {
                let (epoch, ..) = self.awaited(cx)?;
                let asked = self.asked.filter(|asked| asked.epoch == epoch)?;
                (asked.at_ns, cx.config.again_ns(asked.times))
            }
            UnitTimer::Offer => {
                let next = self.ready_successor(cx).filter(|next| next.answered.is_none())?;
                (next.released_ns?, cx.config.offer_after_ns())
            }
            UnitTimer::State => {
                let (sent_ns, times) = self.ready_successor(cx)?.answered?;
                (sent_ns, cx.config.again_ns(times))
            }
            // Not if the state was copied, and nothing has come since (S51, S52).
            UnitTimer::Replicate => {
                let (_, mark) = self.owned()?;
                let has_news = mark.contiguous > self.copied && self.targets != ReplicaTargets::NONE;
                (self.seen_ns, cx.config.replicate_after_ns.filter(|_| has_news && self.may_be_copied())?)
            }
            UnitTimer::Expire => {
                self.owned().filter(|_| !self.is_over())?;
                (self.seen_ns.max(self.proposed_ns.unwrap_or(0)), cx.config.expire_after_ns?)
            }
            // Should the state come after all, it ends then.
            UnitTimer::End => {
                let since_ns = self.over_since_ns.or(self.gave_way_ns).filter(|_| self.state.is_none())?;
                (since_ns, cx.config.patience_ns())
            }
        };
        Some(since_ns.saturating_add(wait_ns))
    }

    /// Returns the next owner if it is another unit and the state covers all of this unit's epoch.
    fn ready_successor<E: Engine>(&self, cx: &Context<'_, E>) -> Option<Successor> {
        let (state, ownership) = self.state.zip(self.ownerships.front())?;
        ownership.next.filter(|next| next.owner != cx.id() && state.mark.covers(next.last))
    }
}
