//! Counters of a worker.

use serde::Serialize;
use telemetry::{Family, Kind, MetricUnit, record};

/// Packets and frames that had no room in a ring between workers.
static LOST: Family = Family {
    name: "worker_lost",
    kind: Kind::Counter,
    unit: MetricUnit::Own,
    help: "Packets and neighbour updates between workers dropped because a ring was full, by kind.",
    outer_labels: &["worker"],
    label: Some("kind"),
    known: &[],
};

record! {
    /// Packets and frames of a worker.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct Counters [worker] {
        /// Packets received by a worker.
        pub received: u64 = counter("worker_packets_received"),
        /// Packets that a worker handed over to the owner of their flow. A fragment, or an ICMP
        /// error, may pass two.
        pub handed_over: u64 = counter("worker_packets_handed_over"),
        /// Packets taken over from other workers.
        pub taken: u64 = counter("worker_packets_taken"),
        /// Packets processed by a worker: those of its flows, and of no flow.
        pub processed: u64 = counter("worker_packets_processed"),
        /// Packets dropped (`worker-behind`) because the ring to another worker was full.
        pub no_room: u64 = part(LOST, "packets"),
        /// Frames about neighbours not shared with a worker because the ring to it was full.
        pub neighbours_lost: u64 = part(LOST, "neighbours"),
    }
}
