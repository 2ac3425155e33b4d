//! Aliases: second keys of flows, of packets that functions have rewritten.

use packet::FlowKey;
use telemetry::event;

use super::Owners;
use crate::dispatcher::counters::Counters;
use crate::dispatcher::flows::{AliasChange, AliasConflict, AliasRefused};
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::Units;
use crate::message::FlowId;
use crate::trace::{FlowPlace, TimelineEvent};

/// The aliases of a dispatcher's flows.
pub struct Aliases<'a> {
    now_ns: u64,
    owners: &'a mut Owners,
    units: &'a Units,
    counters: &'a mut Counters,
}

impl<'a> Aliases<'a> {
    pub(crate) fn new(
        now_ns: u64,
        owners: &'a mut Owners,
        units: &'a Units,
        counters: &'a mut Counters,
    ) -> Aliases<'a> {
        Aliases { now_ns, owners, units, counters }
    }

    /// Notes in the timeline that a unit reports an alias, before it is set.
    pub fn note_report(&self, flow: FlowId, alias: &FlowKey) {
        self.note(flow, TimelineEvent::AliasReported { alias: *alias });
    }

    /// Returns true if a timeline is kept.
    pub fn is_noted(&self) -> bool {
        self.owners.trace.is_on()
    }

    /// Adds an alias: packets with this key and hash belong to the flow, too. It replaces the
    /// flow's earlier alias. Nothing happens if the flow has ended.
    ///
    /// # Errors
    ///
    /// If another flow has this key, as its own or as its alias. The flow's alias stays as it was.
    pub fn set(&mut self, flow: FlowId, alias: &FlowKey, hash: u64) -> Result<(), AliasConflict> {
        match self.owners.flows.set_alias(flow, alias, hash) {
            Ok(()) => {
                self.counters.aliases += 1;
                self.note(flow, TimelineEvent::AliasSet { alias: *alias });
            }
            Err(AliasRefused::Late) => self.counters.aliases_late += 1,
            Err(AliasRefused::Taken(taken)) => {
                self.counters.aliases_taken += 1;
                self.note(flow, TimelineEvent::AliasRefused { by: taken.by });
                event::alias_conflict(&flow);
                return Err(taken);
            }
        }
        Ok(())
    }

    /// Sets an alias on behalf of a unit that knows better: another flow that has the key loses it.
    pub fn take(&mut self, flow: FlowId, alias: &FlowKey, hash: u64, outputs: &mut Vec<DispatcherOutput>) {
        if let Err(taken) = self.set(flow, alias, hash) {
            self.give_up_key(taken.by, alias, outputs);
            let taken_again = self.set(flow, alias, hash).is_err();
            debug_assert!(!taken_again, "nobody else has it now");
        }
    }

    /// Notes the order of the ends of a flow's alias: see
    /// [`LostFlow::is_turned`](crate::dispatcher::LostFlow::is_turned).
    pub fn set_order(&mut self, flow: FlowId, is_turned: Option<bool>) {
        if self.owners.flows.live(flow).is_some() {
            self.owners.flows.set_alias_order(flow.index, is_turned);
        }
    }

    /// Notes changes from now on, for other dispatchers.
    pub fn note_changes(&mut self) {
        self.owners.flows.note_aliases();
    }

    /// Takes the noted changes, in order: those of flows that may be anywhere. Packets of an
    /// affinity group find their way without.
    pub fn take_changes(&mut self) -> Vec<AliasChange> {
        let mut changes = self.owners.flows.take_alias_changes();
        if let Some(groups) = &self.owners.groups {
            changes.retain(|change| match change {
                AliasChange::Set(index, _) => groups.of_flow(*index).is_none(),
                AliasChange::Freed(_) => true,
            });
        }
        changes
    }

    /// Takes a key from the flow that has it, if there is one: a flow of another dispatcher has it.
    pub fn give_up(&mut self, hash: u64, key: &FlowKey, outputs: &mut Vec<DispatcherOutput>) {
        let flows = &self.owners.flows;
        if let Some(flow) = flows.find(hash, key).map(|found| flows.id(found.index)) {
            self.give_up_key(flow, key, outputs);
        }
    }

    fn note(&self, flow: FlowId, event: TimelineEvent) {
        self.owners.trace.note(self.now_ns, FlowPlace::of(flow), None, event);
    }

    /// Takes a key from a flow: it loses its alias, or ends if it began with this key.
    fn give_up_key(&mut self, flow: FlowId, key: &FlowKey, outputs: &mut Vec<DispatcherOutput>) {
        match self.owners.flows.live(flow) {
            Some(_) if self.owners.flows.began_with(flow.index, key) => {
                let mut step = Step::new(self.now_ns, self.counters, outputs);
                self.owners.end(flow.index, self.units, &mut step);
            }
            Some(_) => {
                self.owners.flows.drop_alias(flow.index);
                self.note(flow, TimelineEvent::AliasFreed {});
            }
            None => {}
        }
    }
}
