//! The order of a flow's packets.

use crate::message::{Stamp, Watermark};

use super::{Context, Flow, State};
use crate::unit::{Config, DropCause, Engine, pending::PendingPacket};

impl Flow {
    /// Does all that can be done now: processes the next packets, gives up gaps after their
    /// timeout, and hands the state over at the end of the epoch.
    pub(super) fn pump<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        loop {
            self.process_pending(cx);
            let (is_last, is_over) = (self.ownerships.len() == 1, self.is_over());
            let Some((state, ownership)) = self.state.as_mut().zip(self.ownerships.front()) else { return };
            if is_over {
                match ownership.next {
                    None if is_last => return self.finish(cx),
                    None => return,
                    Some(next) => _ = state.mark.give_up_to(next.last),
                }
            }
            if let Some(next) = ownership.next.filter(|next| state.mark.covers(next.last)) {
                if next.owner == cx.id() {
                    self.go_on(cx);
                    continue;
                }
                let may_leave = !cx.config.has_groups || next.released_ns.is_some();
                if next.asked && may_leave || is_over && next.answered.is_none() {
                    self.answer(cx);
                }
                return;
            }
            let is_due = |since: u64| since.saturating_add(cx.config.reorder_timeout_ns) <= cx.now_ns;
            let before_first = self.pending.first_of(state.epoch, cx.slab).map(|first| first - 1);
            let released = ownership.next.filter(|next| next.released_ns.is_some_and(is_due));
            let until = match (before_first, released) {
                (Some(before), _) if self.pending.oldest_of(state.epoch, cx.slab).is_some_and(is_due) => {
                    before
                }
                (Some(before), Some(next)) => before.min(next.last),
                (None, Some(next)) => next.last,
                (_, None) => return,
            };
            cx.counters.given_up += state.mark.give_up_to(until);
        }
    }

    /// Processes pending packets that are next.
    pub(super) fn process_pending<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        while let Some(state) = self.state
            && self.pending.first_of(state.epoch, cx.slab).is_some()
            && let Some(waiting) = self.pending.take_up_to(state.mark.contiguous + 1, cx.slab)
        {
            if state.mark.covers(waiting.stamp.seq) {
                cx.drop(DropCause::Stale, waiting.stamp, waiting.packet);
                continue;
            }
            cx.counters.pending_ns += cx.now_ns.saturating_sub(waiting.since_ns);
            self.process(waiting.stamp, waiting.packet, cx);
        }
    }

    /// Processes the next packet.
    pub(super) fn process<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        self.cover(cx.now_ns, &stamp, cx.config);
        cx.counters.processed += 1;
        cx.engine.process(cx.now_ns, self.id, stamp.seq, packet);
        if stamp.targets.is_some_and(|targets| targets.are_at_once()) && self.may_be_copied() {
            self.copy_ahead(cx); // The flowlet is about to be cut by its size: no silence will come (S62).
        }
    }

    /// Covers the next packet.
    #[inline]
    pub(super) fn cover(&mut self, now_ns: u64, stamp: &Stamp, config: &Config) {
        self.state = Some(State { epoch: stamp.epoch, mark: Watermark::up_to(stamp.seq) });
        self.seen_ns = now_ns;
        // Most flowlets have the targets of the one before: comparing is cheaper than copying.
        if let Some(targets) = &stamp.targets
            && *targets != self.targets
        {
            self.targets = *targets;
            self.silence_ns = config.silence_ns(targets);
        }
    }

    /// Holds a packet that is not next (S50). At the limit on pending packets, the gap before the
    /// first one is given up; without the state, the packet is dropped.
    pub(super) fn hold<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        while self.pending.len() >= cx.config.pending_per_flow_max
            || cx.slab.packets() >= cx.config.pending_max
        {
            let Some(state) = self.state.as_mut().filter(|state| state.epoch == stamp.epoch) else {
                return cx.drop(DropCause::PendingFull, stamp, packet);
            };
            let first =
                self.pending.first_of(stamp.epoch, cx.slab).map_or(stamp.seq, |first| first.min(stamp.seq));
            cx.counters.given_up += state.mark.give_up_to(first - 1);
            if first == stamp.seq {
                self.process(stamp, packet, cx);
                return self.pump(cx);
            }
            self.process_pending(cx);
            if self.state.is_some_and(|state| state.mark.contiguous + 1 == stamp.seq) {
                self.process(stamp, packet, cx);
                return self.pump(cx);
            }
        }
        cx.counters.pending += 1;
        self.pending.add(PendingPacket { stamp, packet, since_ns: cx.now_ns }, cx.slab);
        self.pump(cx);
    }
}
