//! Flows, and the time stamps of captures.

use std::collections::BTreeMap;

use graph::{Counters, FlowClass, Graph};
use nf::EndReason;
use serde::Serialize;
use telemetry::record;

record! {
    /// Flows of a run.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct FlowsReport [] {
        /// Flows started.
        pub started: u64 = counter("flows_started"),
        /// Flows in the table now, or when the run ended.
        pub live: u64 = gauge("flows"),
        /// Most flows in the table at once. With several workers, the sum of each one's peak.
        pub peak: u64,
        /// Capacity of the flow table, of all workers or units together.
        pub size: u64 = gauge("flows_max"),
        /// Flows in the table by class: `tcp_established`, `tcp_half_open`, `udp_answered`,
        /// `udp_unanswered`, `closed` (TCP, waiting for stragglers), `other`.
        pub live_by_class: BTreeMap<&'static str, u64> = gauge("flows_by_class", class),
        /// Flows ended, by reason: `idle` (expired), `closed` (expired after their connection had
        /// ended), `rejected` (no packet passed), `evicted`, `shutdown` (the run ended).
        pub ended: BTreeMap<&'static str, u64> = counter("flows_ended", reason),
        /// Flows evicted from a full table, by class; classes without are left out. See
        /// [`shares`](settings.md#settings).
        pub evicted: BTreeMap<&'static str, u64> = counter("flows_evicted", class, CLASSES),
        /// Evicted flows of sources above their share.
        pub evicted_over_source: u64 = counter("flows_evicted_over_source"),
        /// Bytes of a flow's record, all functions' states included.
        pub record_bytes: usize = level("flow_record_bytes"),
    }
}

const CLASSES: &[&str] = &{
    let mut names = [""; FlowClass::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = FlowClass::ALL[i].name();
        i += 1;
    }
    names
};

impl FlowsReport {
    pub(super) fn of(counters: &Counters, graph: &Graph) -> FlowsReport {
        let reasons = [
            EndReason::Idle,
            EndReason::Closed,
            EndReason::Rejected,
            EndReason::Evicted,
            EndReason::Shutdown,
        ];
        FlowsReport {
            started: counters.flows_started,
            live: counters.flows_live,
            peak: counters.flows_peak,
            size: u64::from(graph.options().flows_max),
            live_by_class: by_class(&counters.flows_by_class).collect(),
            evicted: by_class(&counters.evicted_by_class).filter(|&(_, count)| count > 0).collect(),
            evicted_over_source: counters.evicted_over_source,
            ended: reasons.iter().map(|&reason| (reason.name(), counters.ended(reason))).collect(),
            record_bytes: graph.flows().record_len(),
        }
    }
}

fn by_class(counts: &[u64; FlowClass::COUNT]) -> impl Iterator<Item = (&'static str, u64)> {
    FlowClass::ALL.into_iter().map(|class| (class.name(), counts[class as usize]))
}

record! {
    /// Time stamps of captures that were missing, broken, or jumped by more than a minute.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct TimeJumps [] {
        /// Lasting forward jumps of more than a minute: that time has passed.
        pub ahead: u64 = sum(),
        /// Lasting backward jumps of more than a minute, as in an appended file: time continued.
        pub back: u64 = sum(),
        /// Packets with a broken time stamp of their own: they have the time of the packet before.
        pub broken: u64 = sum(),
        /// Packets without a time stamp: they have their neighbour's time.
        pub without_time: u64 = sum(),
    }
}

impl TimeJumps {
    /// Returns true if there were none.
    pub fn is_none(&self) -> bool {
        *self == TimeJumps::default()
    }
}
