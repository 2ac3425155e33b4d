//! Reports of units, and changes of units that the dispatcher did not request.

use packet::FlowKey;
use protocol::message::{FlowId, UnitId};
use protocol::unit::FlowAlias;

use super::Elastic;
use crate::transport::{Return, Transport, UnitChange};

impl<T: Transport> Elastic<T> {
    pub(super) fn set_ready(&mut self, unit: UnitId) {
        let since_ns = self.since_ns(self.now_ns);
        self.intervals.set_ready(since_ns, unit, true);
        self.dispatcher.membership().started(self.now_ns, unit);
    }

    /// Applies changes of units that the dispatcher did not ask for.
    pub(super) fn take_changes(&mut self) {
        while let Some(change) = self.transport.poll_change() {
            self.change_units(change);
        }
    }

    #[cold]
    fn change_units(&mut self, change: UnitChange) {
        match change {
            UnitChange::Join => self.dispatcher.membership().add(&mut self.outputs),
            UnitChange::Leave(unit) => {
                self.dispatcher.membership().remove(self.now_ns, unit, &mut self.outputs)
            }
            UnitChange::Crash(unit) => {
                let since_ns = self.since_ns(self.now_ns);
                self.intervals.set_ready(since_ns, unit, false);
                self.intervals.set_on(since_ns, unit, false);
                self.dispatcher.membership().lose(self.now_ns, unit, &mut self.outputs);
                self.remember_lost();
            }
            UnitChange::Retire(unit) => self.dispatcher.membership().retire(unit),
            UnitChange::Suspect(unit) => self.dispatcher.membership().suspect(unit, true),
            UnitChange::Alive(unit) => self.dispatcher.membership().suspect(unit, false),
        }
        self.execute_outputs();
    }

    /// Applies what units have reported.
    pub(super) fn take_returns(&mut self) {
        while let Some(report) = self.transport.receive() {
            self.apply(*report);
        }
    }

    /// Returns the key and hash of a reported alias as packets of the flow carry them.
    fn sent_alias(&mut self, flow: FlowId, alias: &FlowAlias) -> (FlowKey, u64) {
        let begun = self.dispatcher.flows().status(flow).map(|status| status.key);
        match begun.filter(|_| self.transport.fast_lane().is_none()) {
            Some(begun) => self.transport.core().graph.flows().sent_alias(alias.key, &begun),
            None => (alias.key, alias.hash),
        }
    }

    /// Applies what became of packets at a unit.
    fn apply(&mut self, report: Return) {
        let Return { unit, is_ready, has_left, aliases, fragments, messages, effects, .. } = report;
        if is_ready {
            self.set_ready(unit);
        }
        if has_left {
            let since_ns = self.since_ns(self.now_ns);
            self.intervals.set_on(since_ns, unit, false);
        }
        if self.dispatcher.aliases().is_noted() {
            for (flow, alias) in &aliases {
                let (key, _) = self.sent_alias(*flow, alias);
                self.dispatcher.aliases().note_report(*flow, &key);
            }
        }
        // Known to the dispatcher before the packet that created it leaves (design.md 3.8). A unit
        // has looked among its own flows only: if another unit's flow has the key, the later one
        // gets it.
        for (flow, alias) in aliases {
            let (key, hash) = self.sent_alias(flow, &alias);
            self.dispatcher.aliases().take(flow, &key, hash, &mut self.outputs);
            self.dispatcher.aliases().set_order(flow, alias.is_turned);
            if !self.lost.is_empty() {
                self.forget_lost(&key);
            }
        }
        for (datagram, passed, at_ns) in fragments {
            self.transport.core().learn_first(datagram, passed, at_ns, &mut self.again);
        }
        for message in messages {
            self.dispatcher.handle_message(self.now_ns, unit, message, &mut self.outputs);
        }
        self.remember_lost();
        self.execute_outputs();
        self.announce_aliases();
        self.effects.extend(effects);
    }
}
