//! Outputs, operators' commands, and workers.

use serde::Serialize;
use telemetry::{Family, Kind, MetricUnit, record};

use crate::worker::counters::Counters;

static RECORDS: Family = Family {
    name: "output_records",
    kind: Kind::Counter,
    unit: MetricUnit::Own,
    help: "Records of the outputs `captures`, `alerts` and `ipfix`, by result.",
    outer_labels: &["output"],
    label: Some("result"),
    known: &[],
};

record! {
    /// The records of an output: lines, packets or messages.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct OutputReport [output] {
        /// Records written.
        pub written: u64 = part(RECORDS, "written"),
        /// Records not written: there was no room, or the output failed.
        pub not_written: u64 = part(RECORDS, "not_written"),
        /// [Repeated alerts](alerts.md#repeated-alerts) that were not written.
        pub suppressed: u64 = part(RECORDS, "suppressed"),
    }
}

static COMMANDS: Family = Family {
    name: "commands",
    kind: Kind::Counter,
    unit: MetricUnit::Own,
    help: "Operators' commands of `--control`, by result.",
    outer_labels: &[],
    label: Some("result"),
    known: &[],
};

record! {
    /// Operators' commands.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct CommandsReport [] {
        /// Commands executed.
        pub executed: u64 = part(COMMANDS, "executed"),
        /// Commands refused by their function at their time.
        pub refused: u64 = part(COMMANDS, "refused"),
    }
}

record! {
    /// The work of a worker.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct WorkerReport [worker] {
        /// Packets.
        #[serde(flatten)]
        pub counters: Counters = hidden(),
        /// Share of the time that a worker has slept.
        pub asleep_share: f64 = level("worker_asleep_share"),
    }
}
