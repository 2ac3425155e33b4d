//! The revenue from a tenant and the cost of units, under several tariffs (S83, S84).

use serde::Serialize;

use crate::metering::{Interval, Tariff};

/// The revenue and cost of a run, in the currency of the prices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bill {
    /// The total.
    pub total: Money,
    /// Per interval.
    pub intervals: Vec<Money>,
    /// Number of intervals with earnings from packets below the cost of units.
    pub intervals_below_cost_per_packet: u64,
    /// The same with flowlets charged as well.
    pub intervals_below_cost_per_packet_and_flowlet: u64,
}

/// Revenue under each tariff, and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Money {
    /// Revenue from processed packets.
    pub per_packet: f64,
    /// Revenue from processed packets and flowlets.
    pub per_packet_and_flowlet: f64,
    /// Revenue from the time of units.
    pub per_unit_time: f64,
    /// Cost of the units for the provider.
    pub cost: f64,
}

impl Bill {
    /// Computes the bill of these intervals.
    pub fn of(tariff: &Tariff, intervals: &[Interval]) -> Bill {
        let money: Vec<Money> = intervals.iter().map(|interval| Money::of(tariff, interval)).collect();
        let below = |revenue: fn(&Money) -> f64| money.iter().filter(|m| revenue(m) < m.cost).count() as u64;
        Bill {
            total: money.iter().fold(Money::default(), |sum, money| sum.plus(money)),
            intervals_below_cost_per_packet: below(|money| money.per_packet),
            intervals_below_cost_per_packet_and_flowlet: below(|money| money.per_packet_and_flowlet),
            intervals: money,
        }
    }
}

impl Money {
    fn of(tariff: &Tariff, interval: &Interval) -> Money {
        let per_packet = interval.processed as f64 * 1e-6 * tariff.million_packets;
        let hours = interval.unit_seconds / 3_600.0;
        Money {
            per_packet,
            per_packet_and_flowlet: per_packet + interval.flowlets as f64 * 1e-6 * tariff.million_flowlets,
            per_unit_time: hours * tariff.unit_hour,
            cost: hours * tariff.unit_hour_cost,
        }
    }

    fn plus(&self, other: &Money) -> Money {
        Money {
            per_packet: self.per_packet + other.per_packet,
            per_packet_and_flowlet: self.per_packet_and_flowlet + other.per_packet_and_flowlet,
            per_unit_time: self.per_unit_time + other.per_unit_time,
            cost: self.cost + other.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_unit_earns_what_it_costs() {
        // An hour of 1 Gbps in packets of 1,000 bytes.
        let full = Interval {
            processed: 450_000_000,
            flowlets: 1_000_000,
            unit_seconds: 3_600.0,
            ..Interval::default()
        };
        let idle = Interval { unit_seconds: 3_600.0, ..Interval::default() };
        let bill = Bill::of(&Tariff::default(), &[full, idle]);
        let Money { per_packet, per_packet_and_flowlet, per_unit_time, cost } = bill.total;
        assert!((bill.intervals[0].per_packet - bill.intervals[0].cost).abs() < 1e-12);
        assert!((per_packet * 2.0 - cost).abs() < 1e-12 && per_unit_time == cost);
        assert!(per_packet_and_flowlet > per_packet);
        assert_eq!(bill.intervals_below_cost_per_packet_and_flowlet, 1);
    }
}
