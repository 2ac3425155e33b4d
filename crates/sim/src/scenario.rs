//! Scenarios, in TOML. Every key has a default, the papers' value; an unknown one is an error.

mod dispatcher;
mod links;
mod rate;
mod recorded;
mod state;
mod units;
mod workload;

use protocol::dispatcher::TargetChoice;
use protocol::metering::Tariff;
use serde::Deserialize;
use values::Nanos;

pub use dispatcher::{AssignmentMode, AssignmentModeError, DispatcherSettings};
pub use links::{LinkSettings, Links, MessageFaults};
pub(crate) use rate::Warp;
pub use rate::{RateCurve, RateCurveError};
pub use recorded::{RECORDED_MAX, RecordedPackets, RecordingError};
pub use state::{State, StatePlace};
pub use units::{DropPlace, ServiceKind, UNITS_MAX, UnitCount, UnitCountError, UnitsSettings};
pub use workload::{
    Adversary, BurstSizes, COPIES_MAX, CaptureSource, CapturedTraffic, PacketSpacing, SteadyTraffic,
    SyntheticTrace, TraceProfile, Workload,
};

/// A simulation's scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// The packets and their times.
    pub workload: Workload,
    /// Assignment of packets to units.
    pub dispatcher: DispatcherSettings,
    /// The units.
    pub units: UnitsSettings,
    /// The place of flows' states.
    pub state: State,
    /// The links.
    pub links: Links,
    /// Length of the run.
    pub run: RunSettings,
    /// Prices.
    pub tariff: Tariff,
}

/// Length of a run, and the part of it that counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSettings {
    /// Packets arrive until this time; packets in flight then are still processed.
    pub time: Nanos,
    /// Packets before this time do not count for latencies, nor changes of units for the share
    /// without waiting (R7).
    pub warm_up: Nanos,
    /// Demand and capacity are reported for each interval of this length: 100 ms (S47).
    pub interval: Nanos,
    /// Time after the last packet within which everything must finish; anything later is a
    /// violation.
    pub patience: Nanos,
}

impl Default for RunSettings {
    fn default() -> RunSettings {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        RunSettings { time: ms(2_000), warm_up: ms(100), interval: ms(100), patience: ms(10_000) }
    }
}

/// The reason why a text is no scenario, with line and column.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct ScenarioError(#[from] toml::de::Error);

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// If it is not TOML, or has an unknown key or an invalid value.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Ok(toml::from_str(text)?)
    }

    /// Returns the units that get replicas.
    pub fn targets(&self) -> TargetChoice {
        match self.state.place {
            StatePlace::Unit => self.dispatcher.targets,
            StatePlace::Reactive | StatePlace::Store | StatePlace::StoreNaive => TargetChoice::None,
        }
    }

    /// Returns true if states are replicated, to units or to a store.
    pub fn copies(&self) -> bool {
        self.state.place == StatePlace::Store || self.targets() != TargetChoice::None
    }
}

#[cfg(test)]
mod tests {
    use values::{ByteCount, Picos, PositiveBitRate, Share};

    use super::*;

    #[test]
    fn the_empty_scenario_is_that_of_the_papers() {
        let scenario = Scenario::parse("").unwrap();
        assert_eq!(scenario.dispatcher.gap, Nanos(500_000)); // S30
        assert_eq!(scenario.dispatcher.size_max, Some(ByteCount(15_000))); // S31
        assert_eq!((scenario.dispatcher.lambda, scenario.dispatcher.targets_count), (Share(0.25), 3)); // S37, S55
        assert_eq!(scenario.units.capacity, PositiveBitRate(1_000_000_000)); // S41
        assert_eq!(scenario.dispatcher.bucket.0 * scenario.dispatcher.buckets as u64, 100_000_000); // S40
        assert_eq!(scenario.run.interval, Nanos(100_000_000)); // S47
        assert_eq!(scenario.links.copy_time, Nanos(160_000)); // S64
    }

    #[test]
    fn keys_say_what_they_mean() {
        let scenario = Scenario::parse(
            r#"
            [workload.trace]
            profile = "W-A"
            curve = [["0s", "1Gbps"], ["1s", "4Gbps"]]
            adversary = { every = 50 }
            [dispatcher]
            mode = "smart-flow:50ms"
            [units]
            count = "2..20"
            byte_cost = "0.5ns"
            [links]
            dispatcher_to_unit = { latency = "10us", loss = 0.01 }
            [run]
            time = "1s"
            "#,
        )
        .unwrap();
        assert_eq!(scenario.dispatcher.mode, AssignmentMode::SmartFlow { every: Nanos(50_000_000) });
        assert_eq!(scenario.units.byte_cost, Some(Picos(500)));
        assert_eq!(scenario.links.dispatcher_to_unit.loss, Share(0.01));
        let Workload::Trace(trace) = scenario.workload else { panic!("it is a trace") };
        assert_eq!(trace.profile, TraceProfile::WA);
        assert_eq!(trace.adversary.map(|adversary| adversary.packets.get()), Some(20));
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases = [
            ("[dispatcher]\nlamda = 0.5\n", "line 2, column 1", "unknown field `lamda`"),
            ("[dispatcher]\nlambda = 1.5\n", "line 2, column 10", "expected a share from 0 to 1"),
            ("[run]\n\ntime = \"5\"\n", "line 3, column 8", "expected a duration"),
            ("[workload.random]\n", "line 1, column 11", "expected one of `trace`, `steady`, `capture`"),
            ("[dispatcher]\nmode = \"smart\"\n", "line 2, column 8", "`smart` is not a mode"),
            ("[units]\ncount = \"4..2\"\n", "line 2, column 9", "number of units"),
            ("[workload.trace]\ncurve = []\n", "line 2, column 9", "point"),
            ("[workload.steady]\nrate = \"0bps\"\n", "line 2, column 8", "expected an amount above 0"),
            (
                "[workload.capture]\nfile = \"a.pcap\"\nspeedup = 0\n",
                "line 3, column 11",
                "expected a factor above 0",
            ),
            (
                "[workload.capture]\nfile = \"a.pcap\"\ncopies = 70000\n",
                "line 3, column 10",
                "more than 65536",
            ),
            ("[run\n", "line 1", ""),
        ];
        for (text, place, message) in cases {
            let error = Scenario::parse(text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(message), "{text}: {error}");
        }
    }
}
