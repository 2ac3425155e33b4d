//! Which packet of a flow is next.

use crate::message::{Stamp, Watermark};

use super::{Flow, State};
use crate::unit::{Config, Dropped, Engine, context::Context, held::Waiting};

impl Flow {
    /// Does all that can be done now: processes what is next, gives up what has been waited for
    /// long enough, and hands the state over when the epoch is over.
    pub(super) fn pump<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        loop {
            self.process_held(cx);
            let (is_last, is_over) = (self.tenures.len() == 1, self.is_over());
            let Some((state, tenure)) = self.state.as_mut().zip(self.tenures.front()) else { return };
            if is_over {
                match tenure.next {
                    None if is_last => return self.finish(cx),
                    None => return,
                    Some(next) => _ = state.mark.give_up_to(next.last),
                }
            }
            if let Some(next) = tenure.next.filter(|next| state.mark.covers(next.last)) {
                if next.owner == cx.id() {
                    self.go_on(cx);
                    continue;
                }
                if next.asked || is_over && next.answered.is_none() {
                    self.answer(cx);
                }
                return;
            }
            let is_due = |since: u64| since.saturating_add(cx.config.order_ns) <= cx.now_ns;
            let before_first = self.held.first_of(state.epoch, cx.hall).map(|first| first - 1);
            let released = tenure.next.filter(|next| next.released_ns.is_some_and(is_due));
            let until = match (before_first, released) {
                (Some(before), _) if self.held.oldest_of(state.epoch, cx.hall).is_some_and(is_due) => before,
                (Some(before), Some(next)) => before.min(next.last),
                (None, Some(next)) => next.last,
                (_, None) => return,
            };
            cx.counters.given_up += state.mark.give_up_to(until);
        }
    }

    /// Processes the packets held that are next.
    pub(super) fn process_held<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        while let Some(state) = self.state
            && self.held.first_of(state.epoch, cx.hall).is_some()
            && let Some(waiting) = self.held.take_up_to(state.mark.contiguous + 1, cx.hall)
        {
            if state.mark.covers(waiting.stamp.clock) {
                cx.drop(Dropped::Old, waiting.stamp, waiting.packet);
                continue;
            }
            cx.counters.held_ns += cx.now_ns.saturating_sub(waiting.since_ns);
            self.process(waiting.stamp, waiting.packet, cx);
        }
    }

    /// Processes the packet that is next.
    pub(super) fn process<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        self.cover(cx.now_ns, &stamp, cx.config);
        cx.counters.processed += 1;
        cx.engine.process(cx.now_ns, self.id, packet);
        if stamp.targets.is_some_and(|targets| targets.are_at_once()) && self.may_be_copied() {
            self.copy_ahead(cx); // The flowlet is about to be cut by its size: no silence will come (S62).
        }
    }

    /// The state covers the packet that is next.
    #[inline]
    pub(super) fn cover(&mut self, now_ns: u64, stamp: &Stamp, config: &Config) {
        self.state = Some(State { epoch: stamp.epoch, mark: Watermark::up_to(stamp.clock) });
        self.seen_ns = now_ns;
        // Where many flowlets begin, most have the targets of those before: to compare them is less
        // than to copy them.
        if let Some(targets) = &stamp.targets
            && *targets != self.targets
        {
            self.targets = *targets;
            self.silence_ns = config.silence_ns(targets);
        }
    }

    /// Holds a packet that is not next (S50). If no more may be held, what it waits for is given
    /// up; a state is not.
    pub(super) fn hold<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        while self.held.len() >= cx.config.held_per_flow_max || cx.hall.packets() >= cx.config.held_max {
            let Some(state) = self.state.as_mut().filter(|state| state.epoch == stamp.epoch) else {
                return cx.drop(Dropped::Full, stamp, packet);
            };
            let first =
                self.held.first_of(stamp.epoch, cx.hall).map_or(stamp.clock, |first| first.min(stamp.clock));
            cx.counters.given_up += state.mark.give_up_to(first - 1);
            if first == stamp.clock {
                self.process(stamp, packet, cx);
                return self.pump(cx);
            }
            self.process_held(cx);
            if self.state.is_some_and(|state| state.mark.contiguous + 1 == stamp.clock) {
                self.process(stamp, packet, cx);
                return self.pump(cx);
            }
        }
        cx.counters.held += 1;
        self.held.add(Waiting { stamp, packet, since_ns: cx.now_ns }, cx.hall);
        self.pump(cx);
    }
}
