//! The outcome of a call for the timeline: what it added to the outbox, and what it counted.

use crate::message::FlowId;
use crate::trace::{EventSink, FlowPlace, MessagePeer, MessageSummary, TimelineEvent};
use crate::unit::{Counters, Outbox, flow::Tombstone};

/// The noted parts of a unit, as they were before a call.
pub(crate) struct Before {
    to_dispatcher: usize,
    to_units: usize,
    to_all: usize,
    gone: Option<Tombstone>,
    counters: Counters,
}

impl Before {
    /// Returns it if something is noted.
    #[inline]
    pub fn of<P>(
        trace: &EventSink,
        out: &Outbox<P>,
        gone: Option<Tombstone>,
        counters: &Counters,
    ) -> Option<Before> {
        if !trace.is_on() {
            return None;
        }
        let (to_dispatcher, to_units, to_all) =
            (out.to_dispatcher.len(), out.to_units.len(), out.to_all.len());
        Some(Before { to_dispatcher, to_units, to_all, gone, counters: *counters })
    }

    /// Notes the difference.
    #[cold]
    pub fn note<P>(
        self,
        (trace, now_ns, pending): (&EventSink, u64, usize),
        flow: FlowId,
        out: &Outbox<P>,
        gone: Option<Tombstone>,
        counters: &Counters,
    ) {
        let note = |place, event| trace.note(now_ns, place, Some(pending), event);
        let has_more = |count: fn(&Counters) -> u64| count(counters) > count(&self.counters);
        if has_more(|counters| counters.messages_stale) {
            note(FlowPlace::of(flow), TimelineEvent::Discarded { why: "stale" });
        }
        if has_more(|counters| counters.messages_refused) {
            note(FlowPlace::of(flow), TimelineEvent::Discarded { why: "refused" });
        }
        if has_more(|counters| counters.replicas_refused + counters.deltas_without_base) {
            note(FlowPlace::of(flow), TimelineEvent::ReplicaRefused {});
        }
        let epoch = |gone: &Tombstone| gone.epoch;
        if let Some(gone) = gone.filter(|gone| self.gone.as_ref().map(epoch) != Some(gone.epoch)) {
            let place = FlowPlace::new(flow, gone.epoch, gone.last);
            note(place, TimelineEvent::TombstoneMade { owner: gone.owner });
        }
        let sent = |message: MessageSummary, to| note(message.place(), TimelineEvent::Sent { message, to });
        out.to_units[self.to_units..]
            .iter()
            .for_each(|(to, message)| sent(message.into(), MessagePeer::Unit(*to)));
        out.to_all[self.to_all..].iter().for_each(|message| sent(message.into(), MessagePeer::All));
        let to_dispatcher = &out.to_dispatcher[self.to_dispatcher..];
        to_dispatcher.iter().for_each(|message| sent(message.into(), MessagePeer::Dispatcher));
    }
}
