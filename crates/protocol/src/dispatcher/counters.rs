//! What a dispatcher counts.

/// What a dispatcher has done so far. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were given to units.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets of new flows that there was no room for.
    pub refused: u64,

    /// Flows that began.
    pub flows: u64,
    /// Flows that their owners proposed to end, and that did.
    pub flows_expired: u64,
    /// Flows that ended because they were silent for too long.
    pub flows_forgotten: u64,
    /// Flows that ended to make room for another.
    pub flows_displaced: u64,
    /// Proposals to end a flow that were not accepted: the flow had gone on, or to another owner.
    pub expiries_refused: u64,
    /// Proposals to end a flow that had ended: answered once more.
    pub expiries_repeated: u64,

    /// Flowlets that began because a flow did.
    pub flowlets_of_new_flows: u64,
    /// Flowlets that began behind a gap (S29).
    pub flowlets_by_gap: u64,
    /// Flowlets that began because the one before would have been too long (S29, S45).
    pub flowlets_by_size: u64,
    /// Flowlets that began because the mode says so: a period is over, a bucket was moved, every
    /// packet is one.
    pub flowlets_by_mode: u64,
    /// Flowlets that were cut because their unit is being drained.
    pub flowlets_by_drain: u64,

    /// Times that a unit was chosen for a flowlet, a new flow's or another.
    pub assignments: u64,
    /// Of these, times that it was another than the flow's owner so far.
    pub assignments_moved: u64,
    /// Of these, times that it was one that the state was to be copied to (S95).
    pub assignments_moved_to_target: u64,
    /// Times that no active unit had room, and the least loaded one was chosen (S44); or, if
    /// provision [follows demand](crate::dispatcher::Config::follow_at) and the flow's own was not
    /// full, that one.
    pub assignments_without_room: u64,

    /// Packets that say that the state is to be copied at once (S62).
    pub pushes: u64,

    /// Flows that went back to the holder of their state, which the owner refused.
    pub states_refused: u64,

    /// Units that were ordered to start.
    pub units_started: u64,
    /// Units that were told to hand over their flows (S43).
    pub units_drained: u64,
    /// Units that were ordered to stop.
    pub units_stopped: u64,
    /// Flows that a unit got from one being drained, without a packet.
    pub flows_moved: u64,
    /// Buckets of flows that were moved to another unit.
    pub buckets_moved: u64,

    /// Aliases that were entered.
    pub aliases: u64,
    /// Aliases that were not, because another flow has them.
    pub aliases_taken: u64,
    /// Aliases that were not, because the flow had ended.
    pub aliases_late: u64,
    /// Times that a flow stayed where it was because it has had as many owners as can be counted.
    pub epochs_exhausted: u64,
    /// Slots that are not used any more, because they have had as many flows as can be counted.
    pub indexes_retired: u64,
}

impl Counters {
    /// All flowlets that began.
    pub fn flowlets(&self) -> u64 {
        self.flowlets_of_new_flows
            + self.flowlets_by_gap
            + self.flowlets_by_size
            + self.flowlets_by_mode
            + self.flowlets_by_drain
    }
}
