//! What a tenant pays and what the units cost, under several tariffs (S83, S84).

use serde::Serialize;

use crate::metering::{Interval, Tariff};

/// What a run earns and costs, in the currency of the scenario's prices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bill {
    /// All of it.
    pub total: Money,
    /// Interval by interval.
    pub intervals: Vec<Money>,
    /// IntervalMeter in which packets alone did not earn what the units cost.
    pub intervals_below_cost_per_packet: u64,
    /// The same with flowlets charged, too.
    pub intervals_below_cost_per_packet_and_flowlet: u64,
}

/// Revenue under each tariff, and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Money {
    /// The tenant pays for packets that were processed.
    pub per_packet: f64,
    /// The tenant pays for packets that were processed, and for flowlets.
    pub per_packet_and_flowlet: f64,
    /// The tenant pays for the time of units.
    pub per_unit_time: f64,
    /// What the units cost the provider.
    pub cost: f64,
}

impl Bill {
    /// For these intervals.
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
