//! Service times and quotas of units.

use crate::scenario::{ServiceKind, UnitsSettings};

/// Service times of packets, and the quota in bits per period.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    work: Work,
    quota: Option<Quota>,
    message_ps: u64,
}

/// Service times of packets.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Bits at this rate, in bits per second.
    Capacity(u64),
    /// Picoseconds per packet and per byte.
    Costs { packet_ps: u64, byte_ps: u64 },
}

/// A rate in bits per second, accounted over periods: unused quota is lost, overuse is owed by the
/// next period. Linux does so for a container with a CPU quota (CFS bandwidth control).
#[derive(Clone, Copy, Debug)]
struct Quota {
    bps: u64,
    period_ns: u64,
}

/// Used quota of a unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// The period of `nanobits`.
    period: u64,
    /// Used quota in bits, times 10^9.
    nanobits: u128,
}

/// A quota without a cost of packets, or with periods of length 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`service = \"quota\"` needs `packet_cost` or `byte_cost`, what a packet takes, and a `quota_period` above 0"
)]
pub struct NoQuota;

impl Service {
    /// Returns the service of these units: by capacity, unless there are costs; within a quota of
    /// the capacity, if there is one.
    ///
    /// # Errors
    /// If there is a quota without costs.
    pub fn of(units: &UnitsSettings) -> Result<Service, NoQuota> {
        let work = match (units.packet_cost, units.byte_cost) {
            (None, None) => Work::Capacity(units.capacity.0),
            (packet, byte) => {
                Work::Costs { packet_ps: packet.unwrap_or_default().0, byte_ps: byte.unwrap_or_default().0 }
            }
        };
        let quota = match units.service {
            ServiceKind::Rate => None,
            ServiceKind::Quota if matches!(work, Work::Capacity(_)) || units.quota_period.0 == 0 => {
                return Err(NoQuota);
            }
            ServiceKind::Quota => Some(Quota { bps: units.capacity.0, period_ns: units.quota_period.0 }),
        };
        Ok(Service { work, quota, message_ps: units.message_cost.0 })
    }

    /// Returns the service time of a packet of this length, in nanoseconds, rounded.
    #[inline]
    pub fn ns(&self, len: u32) -> u64 {
        match self.work {
            Work::Capacity(bps) => at_rate_ns(len, bps),
            Work::Costs { packet_ps, byte_ps } => {
                let ps = u128::from(packet_ps) + u128::from(byte_ps) * u128::from(len);
                u64::try_from((ps + 500) / 1_000).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the time of a message, in picoseconds.
    #[inline]
    pub fn message_ps(&self) -> u64 {
        self.message_ps
    }

    /// Returns the time that a packet occupies a unit: its service time, or its share of the quota.
    #[inline]
    pub fn load_ns(&self, len: u32) -> u64 {
        self.quota.map_or_else(|| self.ns(len), |quota| at_rate_ns(len, quota.bps))
    }

    /// Charges a packet of this length that begins now. Returns the time when there is quota again.
    #[inline]
    pub fn spend(&self, spent: &mut Spent, begin_ns: u64, len: u32) -> u64 {
        self.quota.as_ref().map_or(0, |quota| quota.spend(spent, begin_ns, len))
    }
}

impl Quota {
    fn spend(&self, spent: &mut Spent, begin_ns: u64, len: u32) -> u64 {
        let budget = u128::from(self.bps) * u128::from(self.period_ns);
        let over = (begin_ns / self.period_ns).saturating_sub(spent.period);
        spent.period += over;
        spent.nanobits = spent.nanobits.saturating_sub(budget.saturating_mul(u128::from(over)));
        spent.nanobits += u128::from(len) * 8_000_000_000;
        if spent.nanobits < budget {
            return begin_ns;
        }
        let used_up = u64::try_from(spent.nanobits / budget).unwrap_or(u64::MAX);
        spent.period = spent.period.saturating_add(used_up);
        spent.nanobits %= budget;
        spent.period.saturating_mul(self.period_ns)
    }
}

/// Returns the time of bytes at a rate, in nanoseconds, rounded.
#[inline]
fn at_rate_ns(len: u32, bps: u64) -> u64 {
    // The usual case, with faster arithmetic.
    if len < 1 << 30 {
        return (u64::from(len) * 8_000_000_000 + bps / 2) / bps;
    }
    let ns = (u128::from(len) * 8_000_000_000 + u128::from(bps) / 2) / u128::from(bps);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use values::{Nanos, Picos, PositiveBitRate};

    fn of(units: UnitsSettings) -> Service {
        Service::of(&units).unwrap()
    }

    /// 1 us per packet, and this quota in 10 us.
    fn quota(bits: u64) -> UnitsSettings {
        UnitsSettings {
            service: ServiceKind::Quota,
            quota_period: Nanos(10_000),
            capacity: PositiveBitRate(bits * 100_000),
            packet_cost: Some(Picos(1_000_000)),
            ..UnitsSettings::default()
        }
    }

    /// Returns when packets with these arrivals and lengths begin.
    fn begin(service: Service, packets: &[(u64, u32)]) -> Vec<u64> {
        let (mut spent, mut free_ns) = (Spent::default(), 0);
        let begins = packets.iter().map(|&(at_ns, len)| {
            let begin_ns = free_ns.max(at_ns);
            free_ns = service.spend(&mut spent, begin_ns, len).max(begin_ns + service.ns(len));
            begin_ns
        });
        begins.collect()
    }

    #[test]
    fn packets_take_what_the_capacity_says() {
        let at = |bps| of(UnitsSettings { capacity: PositiveBitRate(bps), ..UnitsSettings::default() });
        assert_eq!(at(1_000_000_000).ns(1_434), 11_472);
        assert_eq!(at(300_000_000_000).ns(15_000), 400);
        assert_eq!(at(8_000_000_000_000).ns(1_000_000), 1_000);
        assert_eq!(at(1_000).ns(u32::MAX), 34_359_738_360_000_000);
        assert_eq!(at(u64::MAX).ns(u32::MAX), 2);
        assert_eq!(at(1_000_000_000).load_ns(1_434), 11_472);
    }

    #[test]
    fn packets_take_what_their_costs_say() {
        let costs = |packet, byte| {
            of(UnitsSettings {
                packet_cost: Some(Picos(packet)),
                byte_cost: Some(Picos(byte)),
                ..UnitsSettings::default()
            })
        };
        assert_eq!(costs(200_000, 500).ns(1_000), 700);
        assert_eq!(costs(0, u64::MAX).ns(u32::MAX), u64::MAX);
    }

    #[test]
    fn packets_take_their_cost_until_the_quota_is_used_up() {
        let service = of(quota(24_000));
        // Three times 1,000 bytes are the quota of a period.
        let burst = [(500, 1_000); 7];
        assert_eq!(begin(service, &burst), [500, 1_500, 2_500, 10_000, 11_000, 12_000, 20_000]);
        assert_eq!(service.load_ns(1_000), 3_333);
    }

    #[test]
    fn a_period_leaves_nothing_to_the_next() {
        let late = [(95_000, 1_000); 4];
        assert_eq!(begin(of(quota(24_000)), &late), [95_000, 96_000, 97_000, 100_000]);
    }

    #[test]
    fn what_a_period_has_used_too_much_is_owed() {
        // 12,000 bits a period: the second packet begins within the first one's, and leaves 4,000
        // bits to the second.
        assert_eq!(begin(of(quota(12_000)), &[(0, 1_000); 5]), [0, 1_000, 10_000, 20_000, 21_000]);
        // One packet is the quota of four periods.
        assert_eq!(begin(of(quota(2_000)), &[(0, 1_000); 3]), [0, 40_000, 80_000]);
        assert_eq!(begin(of(quota(2_000)), &[(0, 1_000), (65_000, 1_000)]), [0, 65_000]);
    }

    #[test]
    fn a_quota_needs_to_know_what_packets_take() {
        assert_eq!(Service::of(&UnitsSettings { packet_cost: None, ..quota(1) }).err(), Some(NoQuota));
        assert_eq!(Service::of(&UnitsSettings { quota_period: Nanos(0), ..quota(1) }).err(), Some(NoQuota));
    }

    proptest! {
        /// Any arrivals use at most the quota since the start, that of one period, and one packet.
        #[test]
        fn no_unit_processes_more_than_its_quota(
            packets in prop::collection::vec((0u64..20_000, 60u32..9_000), 1..500),
            bits in 1_000u64..200_000,
        ) {
            let mut now_ns = 0;
            let packets: Vec<_> = packets.into_iter().map(|(after_ns, len)| {
                now_ns += after_ns * u64::from(after_ns > 15_000);
                (now_ns, len)
            }).collect();
            let mut before = 0;
            for (begin_ns, (at_ns, len)) in begin(of(quota(bits)), &packets).into_iter().zip(packets) {
                prop_assert!(begin_ns >= at_ns);
                prop_assert!(before < (begin_ns / 10_000 + 1) * bits, "{before} bits until {begin_ns}");
                before += 8 * u64::from(len);
            }
        }
    }
}
