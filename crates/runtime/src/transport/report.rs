//! Reports of units to their dispatcher.

use graph::{Datagram, FlowChange};
use nf::Effects;
use packet::{FlowKey, Packet};
use protocol::message::{FlowId, FromUnit, UnitId};
use protocol::unit::FlowAlias;

/// A report of a unit to its dispatcher: what became of packets. The fields are in the order of
/// their effect, so that the dispatcher knows what a packet created before it leaves.
#[derive(Default)]
pub struct Return {
    /// The unit.
    pub unit: UnitId,
    /// It has just started.
    pub is_ready: bool,
    /// It could not be started.
    pub has_left: bool,
    /// It panicked: it is unknown what its flows have lost, and what others wait for.
    pub has_failed: bool,
    /// Packets that were lost, and their buffers with them.
    pub lost: u64,
    /// Aliases of flows.
    pub aliases: Vec<(FlowId, FlowAlias)>,
    /// First fragments: datagram, key of the flow if it passed, and when.
    pub fragments: Vec<FirstFragment>,
    /// Messages.
    pub messages: Vec<FromUnit>,
    /// Packets that leave.
    pub out: Vec<Packet>,
    /// Buffers of packets that do not.
    pub buffers: Vec<Packet>,
    /// Alerts, events and flow reports.
    pub effects: Vec<Effects>,
    /// Packets that have left or were dropped at the unit since its start.
    pub through: u64,
    /// The unit's earliest deadline.
    pub due_ns: u64,
    /// This answers a question.
    pub has_answered: bool,
}

/// A first fragment's datagram, the key of its flow if it passed, and when.
pub type FirstFragment = (Datagram, Option<(FlowKey, bool)>, u64);

impl Return {
    /// Notes a change in the graph's flow table. Returns the handle of a flow that has ended.
    pub(crate) fn note(
        &mut self,
        change: FlowChange,
        flow_at: impl Fn(u32) -> Option<FlowId>,
    ) -> Option<u32> {
        match change {
            FlowChange::Alias { handle, key, hash } => {
                let alias = FlowAlias { key, hash, is_turned: None };
                self.aliases.extend(flow_at(handle).map(|flow| (flow, alias)));
                None
            }
            FlowChange::FirstFragment { datagram, passed, at_ns } => {
                self.fragments.push((datagram, passed, at_ns));
                None
            }
            FlowChange::Ended { handle, .. } => Some(handle),
        }
    }

    /// Returns whether the report is of packets alone: the number that the unit has finished, and
    /// the packets that leave. A dispatcher can handle them without the rest of it.
    pub fn is_progress(&self) -> bool {
        !(self.is_ready || self.has_left || self.has_failed || self.has_answered)
            && self.lost == 0
            && self.aliases.is_empty()
            && self.fragments.is_empty()
            && self.messages.is_empty()
    }

    /// Returns whether there is nothing to report beyond a count and a deadline that were reported
    /// before.
    pub(crate) fn is_empty(&self, (through, due_ns): (u64, u64)) -> bool {
        (self.through, self.due_ns) == (through, due_ns)
            && !self.is_ready
            && !self.has_failed
            && self.lost == 0
            && self.aliases.is_empty()
            && self.fragments.is_empty()
            && self.messages.is_empty()
            && self.out.is_empty()
            && self.buffers.is_empty()
            && self.effects.is_empty()
            && !self.has_answered
    }
}
