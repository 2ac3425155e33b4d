//! Scenarios of the published algorithm that experiments measure and sweeps tune baselines on, and
//! the names of those baselines.

use super::common::{FLOWLET, flat, in_mode, paper, up_and_down};
use crate::runs::RunLength;
use crate::setup::{ScenarioText, toml};

/// The baseline of X5 that fetches states on demand.
pub const ON_DEMAND: &str = "on demand";
/// The baseline of X5 that keeps states in a store.
pub const STORE: &str = "external store";
/// The baseline of X6 that ends flowlets by timeout only.
pub const TIMEOUT: &str = "timeout only";

/// A function, the bytes of a flow's state as `rivulet nf list` shows them, and the time for a
/// packet: published for a NAT only (S93). Other functions on headers count the same, a function on
/// payloads five times that.
pub const FUNCTIONS: [(&str, u32, &str); 5] = [
    ("NAT", 96, "440ns"),
    ("load balancer", 64, "440ns"),
    ("IDS", 384, "2200ns"),
    ("whitelister", 16, "440ns"),
    ("policer", 48, "440ns"),
];

/// The scenario of X1, X2 and X3: their runs are the same.
pub fn tracking(length: RunLength) -> ScenarioText {
    up_and_down(paper(), "W-B", 1.0, length)
}

/// The same with flowlets as published.
pub fn tracking_flowlets(length: RunLength) -> ScenarioText {
    in_mode(&tracking(length), FLOWLET).setup
}

/// Flowlets as published, with states of no function yet.
pub fn storage_flowlets(length: RunLength) -> ScenarioText {
    in_mode(&flat(paper(), "W-B", "4Gbps", length, 500, 2_000), FLOWLET).setup
}

/// The same scenario with a function's states and costs.
pub fn of_function(setup: ScenarioText, (_, bytes, cost): (&str, u32, &str)) -> ScenarioText {
    setup.with("units.state", format!("{bytes}B")).with("units.packet_cost", cost)
}

/// Flowlets as published, through a NAT.
pub fn nat(length: RunLength) -> ScenarioText {
    of_function(storage_flowlets(length), FUNCTIONS[0])
}

/// Flowlets as published, without an adversary.
pub fn adversary_flowlets(length: RunLength) -> ScenarioText {
    in_mode(&flat(paper(), "W-B", "4Gbps", length, 400, 2_000), FLOWLET).setup
}

/// Returns the setup with every n-th flow an adversary.
pub fn attacked(setup: ScenarioText, every: u32) -> ScenarioText {
    setup.with("workload.trace.adversary", toml(format!("{{ every = {every} }}")))
}

/// Flowlets as published, where every tenth flow is an adversary.
pub fn at_worst(length: RunLength) -> ScenarioText {
    attacked(adversary_flowlets(length), 10)
}
