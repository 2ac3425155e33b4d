//! Where a flow's state goes, and when: to the next owner, ahead of it, or nowhere any more.

use proto::{FlowRecord, Message, Targets};

use super::Flow;
use crate::{Engine, OFFER_AFTER_ORDERS, context::Context};

impl<P> Flow<P> {
    /// The next epoch is this unit's, too.
    pub(super) fn go_on<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = &mut self.state else { return };
        state.epoch += 1;
        let epoch = state.epoch;
        self.tenures.retain(|tenure| tenure.epoch >= epoch);
        self.drop_before(epoch, cx);
    }

    /// Sends the state to the next owner. It is kept until that has it.
    pub(super) fn answer<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let record = self.record(cx);
        let Some(tenure) = self.tenures.first_mut() else { return };
        let epoch = tenure.epoch + 1;
        let Some(next) = &mut tenure.next else { return };
        (next.asked, next.answered) = (false, true);
        cx.counters.states_sent += 1;
        cx.counters.state_bytes_sent += record.bytes.len() as u64;
        cx.out.to_units.push((next.owner, Message::State { flow: self.id, epoch, record }));
    }

    /// Sends copies of the state to where the flow may go on (S51, S54).
    pub(super) fn copy_ahead<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        let (flow, epoch, record) = (self.id, state.epoch, self.record(cx));
        let bytes = record.bytes.len() as u64;
        self.copied = state.mark.contiguous;
        if self.targets.is_all() {
            cx.counters.replicas_sent += 1;
            cx.counters.replica_bytes_sent += bytes;
            cx.out.to_all.push(Message::Replica { flow, epoch, record });
            return;
        }
        for &unit in self.targets.units().iter().filter(|&&unit| unit != cx.config.id) {
            cx.counters.replicas_sent += 1;
            cx.counters.replica_bytes_sent += bytes;
            cx.out.to_units.push((unit, Message::Replica { flow, epoch, record: record.clone() }));
        }
    }

    /// Asks the router whether the flow is over (DESIGN 3.9).
    pub fn propose_end<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        self.proposed_ns = Some(cx.now_ns);
        cx.counters.expiries_proposed += 1;
        let clock = state.mark.highest();
        cx.out.to_router.push(Message::Expire { flow: self.id, epoch: state.epoch, clock });
    }

    pub(super) fn record<E: Engine<Packet = P>>(&self, cx: &mut Context<'_, E>) -> FlowRecord {
        let mut bytes = Vec::new();
        cx.engine.save(self.id, &mut bytes);
        FlowRecord { watermark: self.state.map(|state| state.mark).unwrap_or_default(), bytes }
    }

    /// When the state is to be sent to the next owner although it has not asked.
    pub(super) fn offer_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (state, tenure) = self.state.zip(self.tenures.first())?;
        let next = tenure.next.filter(|next| state.mark.covers(next.last) && !next.answered)?;
        let wait_ns = cx.config.order_ns.saturating_mul(OFFER_AFTER_ORDERS);
        Some(next.released_ns?.saturating_add(wait_ns))
    }

    /// When the state is to be copied ahead: not if it was, and nothing has come since (S51, S52).
    pub(super) fn copy_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (_, mark) = self.owned()?;
        let has_news = mark.contiguous > self.copied && self.targets != Targets::NONE;
        let after_ns = cx.config.replicate_after_ns.filter(|_| has_news)?;
        Some(self.seen_ns.saturating_add(after_ns))
    }

    /// When the flow's end is to be proposed.
    pub(super) fn expiry_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        self.owned()?;
        let since_ns = self.seen_ns.max(self.proposed_ns.unwrap_or(0));
        Some(since_ns.saturating_add(cx.config.expire_after_ns?))
    }
}
