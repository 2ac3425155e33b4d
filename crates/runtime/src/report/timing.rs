//! Values that depend on the machine.

use std::collections::BTreeMap;

use graph::{FastPath, Graph};
use serde::Serialize;
use telemetry::record;

record! {
    /// Values that depend on the machine; all others are the same for the same input and seed.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct Timing [] {
        /// Time since the start, in seconds, reading and writing included.
        pub seconds: f64 = level("uptime_seconds"),
        /// Packets per second of processing alone.
        pub packets_per_second: f64,
        /// Time from the start of a packet's batch to its end, by percentile, since the start of
        /// the run: `p1`, `p25`, `p50`, `p75`, `p99`, `p99.9`, `max`.
        pub latency_ns: BTreeMap<&'static str, u64> = level_ns("processing_seconds", percentile),
        /// Cycles of the time stamp counter per packet, by function name, on the slow path; empty
        /// where they cannot be counted. Other work of the machine is included.
        pub cycles_per_packet: BTreeMap<String, f64>,
        /// Places of panics since the program began, absent without any: `place` (file and line),
        /// the first `message`, `count`; up to 16 places.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub panics: Vec<crate::panics::Panicked>,
        /// The fast path, absent with [`consolidate: false`](settings.md) or if no two adjacent
        /// functions take part; see below. It depends on batches.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fast_path: Option<FastPathReport> = nested(),
        /// Rounds of the threads that drive interfaces, absent over captures; see below.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub polling: Option<PollingReport> = nested(),
    }
}

record! {
    /// Rounds of a thread that drives interfaces. A round receives, processes and sends; after some
    /// rounds without a frame, each ends with a sleep. `rounds - sleeps` is bounded by the frames
    /// received, however slow the machine is.
    #[derive(Clone, Copy, Debug, Default, Serialize)]
    pub struct PollingReport [] {
        /// Rounds of receiving, processing and sending. `rounds - sleeps` is bounded by the frames
        /// received.
        pub rounds: u64 = counter("rounds"),
        /// Rounds that ended in a sleep because no frame arrived.
        pub sleeps: u64 = counter("sleeps"),
        /// Sleeps that ended before their time limit.
        pub wakeups: u64 = counter("wakeups"),
        /// Notifications of link changes.
        pub link_news: u64 = counter("link_notifications"),
    }
}

record! {
    /// The fast path of a graph.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct FastPathReport [] {
        /// Packets on the fast path: they followed a cached rule.
        pub packets: u64 = counter("fast_path_packets"),
        /// Packets with a predicted rule: the first of their kind, or the first after a command.
        pub predicted: u64 = counter("fast_path_packets_predicted"),
        /// Packets recorded to make rules.
        pub recorded: u64 = counter("fast_path_packets_recorded"),
        /// Packets recorded without giving a rule.
        pub failed: u64 = counter("fast_path_recordings_failed"),
        /// CPU cycles of state functions on the fast path.
        #[serde(skip)]
        pub cycles: u64 = hidden_sum(),
        /// CPU cycles of all state functions for a packet on the fast path, left out where they
        /// cannot be counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cycles_per_packet: Option<f64> = level("fast_path_cycles_per_packet"),
    }
}

impl FastPathReport {
    pub(super) fn of(graph: &Graph) -> FastPathReport {
        let FastPath { packets, predicted, recorded, failed, beside: _ } = graph.report().fast_path();
        let walked: u64 = graph.report().walked().iter().map(|walked| walked.cycles).sum();
        let cycles = graph.report().cycles().iter().sum::<u64>().saturating_sub(walked);
        let mut report =
            FastPathReport { packets, predicted, recorded, failed, cycles, cycles_per_packet: None };
        report.set_cycles_per_packet();
        report
    }

    pub(super) fn set_cycles_per_packet(&mut self) {
        let is_counted = self.cycles > 0 && self.packets > 0;
        self.cycles_per_packet = is_counted.then(|| self.cycles as f64 / self.packets as f64);
    }
}
