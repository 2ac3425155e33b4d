//! Packets of one size at one rate.

use crate::arriving::Arriving;
use crate::random::Random;
use crate::scenario::{PacketSpacing, SteadyTraffic, Warp};

/// Packets of one size at one rate, in order of time.
#[derive(Clone, Debug)]
pub struct SteadyPackets {
    spacing: PacketSpacing,
    flows: u32,
    len: u32,
    until_ns: u64,
    /// Mean time between packets.
    gap_ns: f64,
    random: Random,
    sent: u64,
    /// Time of the next packet.
    next_ns: f64,
    elephant: Option<Elephant>,
}

/// An additional flow with gaps that follow a rate.
#[derive(Clone, Debug)]
struct Elephant {
    warp: Warp,
    sent: u64,
    /// Time of its next packet.
    next_ns: u64,
}

impl Elephant {
    /// Sends its next packet. Returns the packet's time.
    fn send(&mut self, len: u32) -> u64 {
        self.sent += 1;
        let bits = self.sent as f64 * f64::from(len) * 8.0;
        std::mem::replace(&mut self.next_ns, self.warp.time_ns(bits))
    }
}

impl SteadyPackets {
    /// Creates the packets of this seed.
    pub fn new(steady: &SteadyTraffic, seed: u64) -> SteadyPackets {
        let len = steady.packet_size.0.clamp(1, u64::from(u32::MAX));
        let mut packets = SteadyPackets {
            spacing: steady.spacing,
            flows: steady.flows.get(),
            len: len as u32,
            until_ns: steady.until.map_or(u64::MAX, |until| until.0),
            gap_ns: len as f64 * 8e9 / steady.rate.0 as f64,
            random: Random::new(seed, "steady"),
            sent: 0,
            next_ns: 0.0,
            elephant: steady.elephant.clone().map(|rate| Elephant {
                warp: Warp::new(rate),
                sent: 0,
                next_ns: 0,
            }),
        };
        packets.step();
        packets
    }

    fn step(&mut self) {
        self.next_ns = match self.spacing {
            PacketSpacing::Even => self.sent as f64 * self.gap_ns,
            PacketSpacing::Poisson => self.next_ns + self.random.exponential() * self.gap_ns,
        };
    }
}

impl Iterator for SteadyPackets {
    type Item = Arriving;

    #[inline]
    fn next(&mut self) -> Option<Arriving> {
        if let Some(elephant) = &mut self.elephant
            && elephant.next_ns as f64 <= self.next_ns
        {
            let time_ns = elephant.send(self.len);
            return (time_ns < self.until_ns).then_some(Arriving {
                time_ns,
                flow: self.flows,
                len: self.len,
            });
        }
        let time_ns = self.next_ns as u64;
        if time_ns >= self.until_ns {
            return None;
        }
        let flow = match self.spacing {
            PacketSpacing::Even => self.sent % u64::from(self.flows),
            PacketSpacing::Poisson => self.random.below(u64::from(self.flows)),
        };
        self.sent += 1;
        self.step();
        Some(Arriving { time_ns, flow: flow as u32, len: self.len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::RateCurve;
    use values::{ByteCount, Nanos, PositiveBitRate};

    fn steady(spacing: PacketSpacing) -> SteadyTraffic {
        SteadyTraffic {
            rate: PositiveBitRate(1_000_000_000),
            packet_size: ByteCount(1_000),
            flows: 10.try_into().unwrap(),
            spacing,
            elephant: None,
            until: Some(Nanos(80_000_000)),
        }
    }

    #[test]
    fn even_packets_come_at_the_rate_and_flows_take_turns() {
        let packets: Vec<_> = SteadyPackets::new(&steady(PacketSpacing::Even), 1).collect();
        assert_eq!(packets.len(), 10_000);
        assert!(
            packets.iter().enumerate().all(|(i, p)| p.time_ns == i as u64 * 8_000 && p.flow == i as u32 % 10)
        );
    }

    #[test]
    fn an_elephant_sends_as_its_rate_changes() {
        let point = |ms: u64, mbps: u64| (Nanos(ms * 1_000_000), PositiveBitRate(mbps * 1_000_000));
        let rate = RateCurve::new(vec![point(0, 4_000), point(40, 4_000), point(41, 1_000)]).unwrap();
        let steady = SteadyTraffic { elephant: Some(rate), ..steady(PacketSpacing::Poisson) };
        let packets: Vec<_> = SteadyPackets::new(&steady, 1).collect();
        assert!(packets.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
        let of = |from: u64, to: u64| {
            let range = from * 1_000_000..to * 1_000_000;
            packets.iter().filter(|p| p.flow == 10 && range.contains(&p.time_ns)).count()
        };
        assert_eq!((of(0, 40), of(60, 80)), (20_000, 2_500));
    }

    #[test]
    fn poisson_packets_vary_as_much_as_their_mean() {
        let packets: Vec<_> = SteadyPackets::new(&steady(PacketSpacing::Poisson), 1).collect();
        let gaps: Vec<f64> = packets.windows(2).map(|p| (p[1].time_ns - p[0].time_ns) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 8_000.0 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
    }
}
