//! Counters of a dispatcher.

/// Counters of a dispatcher. None decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent to units.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets of new flows refused because the table was full, or no unit was active.
    pub refused: u64,

    /// Flows that began.
    pub flows: u64,
    /// Flows that ended after their owners' proposals.
    pub flows_expired: u64,
    /// Flows that ended after too long a silence.
    pub flows_forgotten: u64,
    /// Flows that ended for a new one.
    pub flows_displaced: u64,
    /// Proposals to end a flow that were refused: packets followed, or the owner had changed.
    pub expiries_refused: u64,
    /// Proposals to end a flow that had ended already: answered again.
    pub expiries_repeated: u64,

    /// Flowlets that began with their flows.
    pub flowlets_of_new_flows: u64,
    /// Flowlets that began after a gap (S29).
    pub flowlets_by_gap: u64,
    /// Flowlets that began because the previous one reached its size limit (S29, S45).
    pub flowlets_by_size: u64,
    /// Flowlets that began by the mode: after a period, a moved bucket, or with every packet.
    pub flowlets_by_mode: u64,
    /// Flowlets cut because their unit was draining.
    pub flowlets_by_drain: u64,

    /// Flowlets cut because their unit was silent, and another one had a replica.
    pub flowlets_by_silence: u64,
    /// Flowlets cut because other units than before shall have replicas: the owner or a target has
    /// changed, or a unit has come.
    pub flowlets_by_targets: u64,

    /// Units chosen for flowlets, the first of a flow or later ones.
    pub assignments: u64,
    /// Of these, choices of another unit than the owner.
    pub assignments_moved: u64,
    /// Of these, choices of a unit that had been a target of replicas (S95).
    pub assignments_moved_to_target: u64,
    /// Choices when no active unit had room: the least loaded (S44), or the owner if units [follow
    /// demand](crate::dispatcher::ScalingRule::Demand) and it was not full.
    pub assignments_without_room: u64,

    /// Packets dropped because their units were too slow.
    pub drops: u64,

    /// Packets with the mark to replicate at once (S62).
    pub pushes: u64,

    /// Flows returned to the holder of a state that the owner refused.
    pub states_refused: u64,

    /// Units ordered to start.
    pub units_started: u64,
    /// Units ordered to drain (S43).
    pub units_drained: u64,
    /// Units ordered to stop.
    pub units_stopped: u64,
    /// Units that another one was started for, or relieved, because packets to them were dropped.
    pub units_relieved: u64,
    /// Units that crashed.
    pub units_lost: u64,
    /// Flows with a state that was lost, and sought at units with replicas.
    pub recoveries: u64,
    /// Of these, flows that continue with a replica.
    pub flows_recovered: u64,
    /// Packets that these replicas did not cover.
    pub packets_unrecovered: u64,
    /// Flows lost with their units.
    pub flows_lost: u64,
    /// Lost flows that were not noted for resets: too many at once.
    pub flows_lost_unnoted: u64,
    /// Flows moved without a packet: from draining or overloaded units, or with their affinity
    /// groups.
    pub flows_moved: u64,
    /// Flows migrated by an operator.
    pub flows_migrated: u64,
    /// Draining units that an operator made active again.
    pub units_resumed: u64,
    /// Affinity groups moved to another unit.
    pub groups_moved: u64,
    /// Buckets of flows moved to another unit.
    pub buckets_moved: u64,

    /// Aliases set.
    pub aliases: u64,
    /// Aliases refused because another flow has them.
    pub aliases_taken: u64,
    /// Aliases refused because the flow had ended.
    pub aliases_late: u64,
    /// Moves that did not happen because the flow's epochs were exhausted.
    pub epochs_exhausted: u64,
    /// Indexes retired because their generations were exhausted.
    pub indexes_retired: u64,
}

impl Counters {
    /// Returns the number of all flowlets.
    pub fn flowlets(&self) -> u64 {
        self.flowlets_of_new_flows
            + self.flowlets_by_gap
            + self.flowlets_by_size
            + self.flowlets_by_mode
            + self.flowlets_by_drain
            + self.flowlets_by_silence
            + self.flowlets_by_targets
    }
}
