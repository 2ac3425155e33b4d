//! Prices for the tenant and costs of units (S83).

use serde::Deserialize;

/// Prices in any currency. By default, a unit that is fully used by packets of 1,000 bytes earns
/// its cost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tariff {
    /// Price of a million processed packets.
    pub million_packets: f64,
    /// Price of a million flowlets, under the tariff that charges for them.
    pub million_flowlets: f64,
    /// Price of a unit-hour, under the tariff that charges for time.
    pub unit_hour: f64,
    /// The provider's cost of a unit-hour.
    pub unit_hour_cost: f64,
}

impl Default for Tariff {
    fn default() -> Tariff {
        // A unit of 1 Gbps is full with 450 million packets of 1,000 bytes an hour.
        Tariff {
            million_packets: 0.05 / 450.0,
            million_flowlets: 0.01 / 450.0,
            unit_hour: 0.05,
            unit_hour_cost: 0.05,
        }
    }
}
