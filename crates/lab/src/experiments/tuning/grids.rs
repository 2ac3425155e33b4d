//! Settings that are tried for each baseline. The first value of each is the published one, or the
//! default where nothing is published.

use super::SettingsSweep;
use crate::experiments::{bases, common};
use crate::gauges;
use crate::runs::RunLength;

/// Settings that go together: values as TOML, by section and key.
pub type Keys = &'static [(&'static str, &'static str)];

/// The values of each setting that are tried, each with each: the first is the published one.
pub type Grid = &'static [&'static [Keys]];

/// A baseline, with what is tried of it.
#[derive(Clone, Copy, Debug)]
pub struct TunedBaseline {
    /// Its name.
    pub name: &'static str,
    /// Keys that define the baseline.
    pub fixed: Keys,
    /// Keys that vary.
    pub grid: Grid,
}

impl TunedBaseline {
    /// All points of the grid, the published one first.
    pub fn points(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        self.grid.iter().fold(vec![Vec::new()], |points, axis| {
            let longer = |point: &Vec<_>| {
                let point = point.clone();
                axis.iter().map(move |keys| [&point[..], keys].concat())
            };
            points.iter().flat_map(longer).collect()
        })
    }
}

/// The load of active units above which another one starts.
const STARTS: &[Keys] = &[
    &[("dispatcher.start_at", "0.9")],
    &[("dispatcher.start_at", "0.7")],
    &[("dispatcher.start_at", "0.5")],
];

/// The load that the number of units follows, by total demand: Rivulet's own rule, also for
/// baselines that "follow".
const FOLLOWS: &[Keys] = &[
    &[("dispatcher.follow_at", "1.0")],
    &[("dispatcher.follow_at", "0.85")],
    &[("dispatcher.follow_at", "0.75")],
];

/// Choice among units with room.
const CHOICE: &[Keys] =
    &[&[("dispatcher.choice", "\"most_utilised\"")], &[("dispatcher.choice", "\"least_loaded\"")]];

/// Window of a unit's load: 100 ms or 20 ms.
const WINDOW: &[Keys] = &[&[("dispatcher.buckets", "200")], &[("dispatcher.buckets", "40")]];

/// Worth of having the flow's state at a unit (lambda).
const STATE: &[Keys] =
    &[&[("dispatcher.lambda", "0.25")], &[("dispatcher.lambda", "0.75")], &[("dispatcher.lambda", "1.0")]];

/// The size at which a flowlet ends (B).
const SIZE: &[Keys] = &[
    &[("dispatcher.size_max", "\"15KB\"")],
    &[("dispatcher.size_max", "\"64KB\"")],
    &[("dispatcher.size_max", "\"none\"")],
];

/// The silence that ends a flowlet (T).
const GAP: &[Keys] = &[&[("dispatcher.gap", "\"500us\"")], &[("dispatcher.gap", "\"2ms\"")]];

/// The number of units that states are copied to (K).
const COPIES: &[Keys] = &[&[("dispatcher.targets_count", "3")], &[("dispatcher.targets_count", "9")]];

/// Period after which flows may move.
const PERIOD: &[Keys] = &[
    &[("dispatcher.mode", "\"smart-flow:100ms\"")],
    &[("dispatcher.mode", "\"smart-flow:50ms\"")],
    &[("dispatcher.mode", "\"smart-flow:20ms\"")],
    &[("dispatcher.mode", "\"smart-flow:10ms\"")],
];

/// Number of buckets, and the period after which they move.
const BUCKETS: &[Keys] = &[
    &[("dispatcher.mode", "\"rss:128:100ms\"")],
    &[("dispatcher.mode", "\"rss:128:20ms\"")],
    &[("dispatcher.mode", "\"rss:128:5ms\"")],
    &[("dispatcher.mode", "\"rss:512:100ms\"")],
    &[("dispatcher.mode", "\"rss:512:20ms\"")],
    &[("dispatcher.mode", "\"rss:512:5ms\"")],
    &[("dispatcher.mode", "\"rss:2048:100ms\"")],
    &[("dispatcher.mode", "\"rss:2048:20ms\"")],
    &[("dispatcher.mode", "\"rss:2048:5ms\"")],
];

/// Flows for all of their life.
const FLOW: Keys = &[("dispatcher.mode", "\"flow\"")];

/// Packets in turn.
const PACKET: Keys = &[("dispatcher.mode", "\"packet\"")];

/// Smart flows with the periods that are published.
const SMART_100: Keys = &[("dispatcher.mode", "\"smart-flow:100ms\"")];
const SMART_50: Keys = &[("dispatcher.mode", "\"smart-flow:50ms\"")];

/// Modes: the baselines of X1, X2 and X3, which share their runs. First the published ones, with
/// their own settings; smart flows with the published periods, and with any.
const MODES: &[TunedBaseline] = &[
    TunedBaseline { name: "flow", fixed: FLOW, grid: &[STARTS, CHOICE, WINDOW] },
    TunedBaseline { name: common::SMART_100, fixed: SMART_100, grid: &[STARTS, CHOICE, WINDOW] },
    TunedBaseline { name: common::SMART_50, fixed: SMART_50, grid: &[STARTS, CHOICE, WINDOW] },
    TunedBaseline { name: "smart-flow", fixed: &[], grid: &[PERIOD, STARTS, CHOICE, WINDOW] },
    TunedBaseline { name: "packet", fixed: PACKET, grid: &[STARTS] },
    TunedBaseline { name: "rss", fixed: &[], grid: &[BUCKETS, STARTS] },
    TunedBaseline { name: "flowlet", fixed: &[], grid: &[GAP, SIZE, STATE, COPIES] },
    TunedBaseline { name: "following flow", fixed: FLOW, grid: &[FOLLOWS, CHOICE, WINDOW] },
    TunedBaseline { name: "following smart-flow", fixed: &[], grid: &[PERIOD, FOLLOWS, CHOICE, WINDOW] },
    TunedBaseline { name: "following packet", fixed: PACKET, grid: &[FOLLOWS] },
    TunedBaseline { name: "following rss", fixed: &[], grid: &[BUCKETS, FOLLOWS] },
];

/// A flowlet reads its state even if its unit has had the flow since.
const REREAD: &[Keys] = &[&[("state.reread", "true")], &[("state.reread", "false")]];

/// Places of states. The naive store has no settings that a packet, which reads and writes wherever
/// it goes, could be faster by.
const PLACES: &[TunedBaseline] = &[
    TunedBaseline {
        name: bases::STORE,
        fixed: &[("state.where", "\"store\""), ("state.store_time", "\"100ns\"")],
        grid: &[REREAD, GAP, SIZE, STATE],
    },
    TunedBaseline {
        name: bases::ON_DEMAND,
        fixed: &[("state.where", "\"reactive\"")],
        grid: &[GAP, SIZE, STATE],
    },
];

/// The silence that ends flowlets without a size limit.
const GAPS: &[Keys] = &[
    &[("dispatcher.gap", "\"500us\"")],
    &[("dispatcher.gap", "\"100us\"")],
    &[("dispatcher.gap", "\"200us\"")],
    &[("dispatcher.gap", "\"1ms\"")],
    &[("dispatcher.gap", "\"2ms\"")],
];

/// Flowlets that end by timeout only.
const TIMEOUTS: &[TunedBaseline] = &[TunedBaseline {
    name: bases::TIMEOUT,
    fixed: &[("dispatcher.size_max", "\"none\"")],
    grid: &[GAPS, STATE],
}];

pub const SWEEPS: &[SettingsSweep] = &[
    SettingsSweep {
        id: "X1",
        objectives: &[&gauges::ERROR],
        baselines: MODES,
        base: bases::tracking_flowlets,
        length: RunLength::Quick,
    },
    SettingsSweep {
        id: "X2",
        objectives: &[&gauges::P75, &gauges::P99],
        baselines: MODES,
        base: bases::tracking_flowlets,
        length: RunLength::Full,
    },
    SettingsSweep {
        id: "X3",
        objectives: &[&gauges::OVERLOADED],
        baselines: MODES,
        base: bases::tracking_flowlets,
        length: RunLength::Quick,
    },
    SettingsSweep {
        id: "X5",
        objectives: &[&gauges::P99],
        baselines: PLACES,
        base: bases::nat,
        length: RunLength::Quick,
    },
    SettingsSweep {
        id: "X6",
        objectives: &[&gauges::P99],
        baselines: TIMEOUTS,
        base: bases::at_worst,
        length: RunLength::Quick,
    },
];
