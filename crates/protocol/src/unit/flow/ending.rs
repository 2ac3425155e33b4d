//! The end of a flow at a unit.

use crate::message::Epoch;

/// The end of a flow, as it is known here.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Ending {
    /// Time of the last proposal to end the flow; 0 if there is none.
    proposed_ns: u64,
    /// Time since which nothing is processed: the flow ends once its last owner's state is here.
    over_since_ns: Option<u64>,
    /// Time at which another flow took the index.
    gave_way_ns: Option<u64>,
    /// The epoch with the state that ended here.
    ended: Option<Epoch>,
}

impl Ending {
    /// Creates the ending of a flow that may have ended, or given way to another one.
    pub fn new(over_since_ns: Option<u64>, gave_way_ns: Option<u64>) -> Ending {
        Ending { proposed_ns: 0, over_since_ns, gave_way_ns, ended: None }
    }

    /// Returns true if nothing is processed any more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over_since_ns.is_some()
    }

    /// Returns true if the flow is not known to have ended: otherwise replicas are useless.
    pub fn may_be_copied(&self) -> bool {
        !self.is_over() && self.gave_way_ns.is_none()
    }

    /// Returns the epoch with the state that ended here.
    pub fn ended(&self) -> Option<Epoch> {
        self.ended
    }

    /// Notes that the flow has ended. Returns true if that was proposed.
    pub fn begin(&mut self, now_ns: u64) -> bool {
        self.over_since_ns.get_or_insert(now_ns);
        std::mem::take(&mut self.proposed_ns) > 0
    }

    /// Notes that another flow has the index.
    pub fn give_way(&mut self, now_ns: u64) {
        self.gave_way_ns.get_or_insert(now_ns);
    }

    /// Notes the epoch with the state that ended here.
    pub fn finish(&mut self, epoch: Option<Epoch>) {
        self.ended = epoch;
    }

    /// Notes a proposal to end the flow.
    pub fn propose(&mut self, now_ns: u64) {
        self.proposed_ns = now_ns;
    }

    /// Forgets the proposal: another epoch has begun.
    pub fn withdraw(&mut self) {
        self.proposed_ns = 0;
    }

    /// Returns the time of the last packet, `seen_ns`, or of the last proposal to end the flow, if
    /// that is later.
    pub fn silent_since_ns(&self, seen_ns: u64) -> u64 {
        seen_ns.max(self.proposed_ns)
    }

    /// Returns the time since which the unit waits for a state only to end it.
    pub fn waits_since_ns(&self) -> Option<u64> {
        self.over_since_ns.or(self.gave_way_ns)
    }
}
