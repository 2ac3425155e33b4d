//! Flowlets, estimates and assignment implemented again, slowly: from lists of all events, after
//! the pseudocode.

use std::collections::HashMap;

use crate::message::UnitId;
use proptest::prelude::*;

use super::bench::{Bench, fixed};
use crate::dispatcher::*;

/// Pseudocode 1 over the whole history.
struct Reference {
    config: Config,
    /// Time, unit and bytes of each packet.
    sent: Vec<(u64, usize, u64)>,
    /// The time at which each unit's load was last updated: a packet to it, or the first packet of
    /// a bucket.
    measured_ns: Vec<u64>,
    flows: HashMap<u32, Flow>,
    /// The rates of all past flowlets.
    flowlets_bps: Vec<f32>,
    now_ns: u64,
}

#[derive(Clone)]
struct Flow {
    /// Time and bytes of the packets of the current flowlet.
    packets: Vec<(u64, u64)>,
    estimate_bps: f32,
    unit: usize,
    targets: Vec<usize>,
    epoch: u32,
}

impl Reference {
    fn new(config: Config) -> Reference {
        let units = usize::from(config.units_max);
        Reference {
            config,
            sent: Vec::new(),
            measured_ns: vec![0; units],
            flows: HashMap::new(),
            flowlets_bps: Vec::new(),
            now_ns: 0,
        }
    }

    /// Returns a packet's unit and epoch, and the targets if it begins a flowlet.
    fn packet(&mut self, now_ns: u64, flow: u32, len: u64) -> (usize, u32, Option<Vec<usize>>) {
        if self.sent.is_empty() || self.bucket(now_ns) != self.bucket(self.now_ns) {
            self.measured_ns.fill(now_ns);
        }
        self.now_ns = now_ns;
        let next = match self.flows.remove(&flow) {
            None => {
                let estimate_bps = self.mean_bps();
                let unit = self.choose(estimate_bps, &[]);
                self.begin(unit, estimate_bps, 1)
            }
            Some(old) if !self.is_over(&old, now_ns, len) => old,
            Some(old) => {
                let measured_bps = self.measure(now_ns, &old);
                self.flowlets_bps.push(measured_bps);
                let alpha = self.config.alpha;
                let estimate_bps = alpha * measured_bps + (1.0 - alpha) * old.estimate_bps;
                let mut having_state = old.targets.clone();
                having_state.push(old.unit);
                let unit = self.choose(estimate_bps, &having_state);
                self.begin(unit, estimate_bps, old.epoch + u32::from(unit != old.unit))
            }
        };
        let begins = next.packets.is_empty();
        let answer = (next.unit, next.epoch, begins.then(|| next.targets.clone()));
        self.sent.push((now_ns, next.unit, len));
        self.measured_ns[next.unit] = now_ns;
        let mut next = next;
        next.packets.push((now_ns, len));
        self.flows.insert(flow, next);
        answer
    }

    fn begin(&self, unit: usize, estimate_bps: f32, epoch: u32) -> Flow {
        let k = self.config.targets_count.into();
        let mut others: Vec<usize> = (0..self.measured_ns.len()).filter(|&other| other != unit).collect();
        if self.config.targets == TargetChoice::LeastLoaded {
            others.sort_by(|&a, &b| self.load_bps(a).total_cmp(&self.load_bps(b)).then(a.cmp(&b)));
        }
        others.truncate(k);
        Flow { packets: Vec::new(), estimate_bps, unit, targets: others, epoch }
    }

    fn is_over(&self, flow: &Flow, now_ns: u64, len: u64) -> bool {
        let last_ns = flow.packets.last().unwrap().0;
        let size: u64 = flow.packets.iter().map(|packet| packet.1).sum();
        now_ns - last_ns > self.config.gap_ns || size + len > self.config.size_max
    }

    fn measure(&self, now_ns: u64, flow: &Flow) -> f32 {
        let bytes: u64 = flow.packets.iter().map(|packet| packet.1).sum();
        let (first_ns, last_ns) = (flow.packets[0].0, flow.packets.last().unwrap().0);
        let time_ns = match self.config.rate_over {
            RateWindow::Burst => (last_ns - first_ns).max(self.config.gap_ns),
            RateWindow::Interval => (now_ns - first_ns).max(self.config.gap_ns),
            RateWindow::Window => self.config.bucket_ns * self.config.buckets as u64,
        };
        bits_per_second(bytes, time_ns)
    }

    fn mean_bps(&self) -> f32 {
        let count = self.flowlets_bps.len() as f64;
        let sum: f64 = self.flowlets_bps.iter().map(|&bps| f64::from(bps)).sum();
        if count == 0.0 { 0.0 } else { (sum / count) as f32 }
    }

    fn bucket(&self, at_ns: u64) -> u64 {
        let first_ns = self.sent.first().map_or(at_ns, |first| first.0);
        (at_ns - first_ns) / self.config.bucket_ns
    }

    /// Over the window, or the last few buckets if it is higher there.
    fn load_bps(&self, unit: usize) -> f32 {
        let over = |buckets| self.load_over_bps(unit, buckets);
        match self.config.alarm_buckets {
            0 => over(self.config.buckets),
            watched => over(self.config.buckets).max(over(watched)),
        }
    }

    fn load_over_bps(&self, unit: usize, buckets: usize) -> f32 {
        let Some(&(first_ns, ..)) = self.sent.first() else {
            return 0.0;
        };
        let at_ns = self.measured_ns[unit];
        let oldest = (self.bucket(at_ns) + 1).saturating_sub(buckets as u64);
        let within = self.sent.iter().filter(|sent| sent.1 == unit && self.bucket(sent.0) >= oldest);
        let time_ns = at_ns - (first_ns + oldest * self.config.bucket_ns);
        bits_per_second(within.map(|sent| sent.2).sum(), time_ns.max(self.config.bucket_ns))
    }

    fn choose(&self, estimate_bps: f32, having_state: &[usize]) -> usize {
        let capacity_bps = self.config.capacity_bps as f32;
        let loads_bps: Vec<f32> = (0..self.measured_ns.len()).map(|unit| self.load_bps(unit)).collect();
        let candidates: Vec<usize> =
            (0..loads_bps.len()).filter(|&unit| estimate_bps + loads_bps[unit] < capacity_bps).collect();
        let Some(&lowest) = candidates.first() else {
            return (0..loads_bps.len()).min_by(|&a, &b| loads_bps[a].total_cmp(&loads_bps[b])).unwrap();
        };
        let score = |unit: usize| match (self.config.choice, having_state.contains(&unit)) {
            (UnitChoice::MostUtilised, false) => loads_bps[unit],
            (UnitChoice::MostUtilised, true) => loads_bps[unit] + self.config.lambda * capacity_bps,
            (UnitChoice::LowestId, false) => -((unit - lowest) as f32),
            (UnitChoice::LowestId, true) => {
                self.config.lambda * loads_bps.len() as f32 - (unit - lowest) as f32
            }
            (UnitChoice::LeastLoaded, false) => -loads_bps[unit],
            (UnitChoice::LeastLoaded, true) => self.config.lambda * capacity_bps - loads_bps[unit],
            (UnitChoice::RoundRobin, _) => unreachable!("it has no score"),
        };
        let mut best = lowest;
        for &unit in &candidates {
            if score(unit) > score(best) {
                best = unit;
            }
        }
        best
    }
}

fn bits_per_second(bytes: u64, time_ns: u64) -> f32 {
    (bytes as f64 * 8e9 / time_ns as f64) as f32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// S29-S45, S54, S57: all choices, with few and small units, so that they fill and run over.
    #[test]
    fn the_dispatcher_is_the_pseudocode(
        choice in prop_oneof![Just(UnitChoice::MostUtilised), Just(UnitChoice::LowestId), Just(UnitChoice::LeastLoaded)],
        targets in prop_oneof![Just(TargetChoice::First), Just(TargetChoice::LeastLoaded)],
        targets_count in 0u8..4,
        lambda in prop_oneof![Just(0.0f32), Just(0.25), Just(0.6), Just(1.0)],
        units in 1u16..20,
        rate_over in prop_oneof![Just(RateWindow::Burst), Just(RateWindow::Interval), Just(RateWindow::Window)],
        alarm_buckets in prop_oneof![2 => Just(0usize), 1 => 1usize..20],
        capacity_mbps in 5u64..200,
        packets in prop::collection::vec((0u32..12, prop_oneof![0u64..50_000, 0u64..1_500_000], 40u32..1515), 1..300),
    ) {
        let config = Config {
            choice, targets, targets_count, lambda, rate_over, buckets: 20, alarm_buckets, size_max: 6000,
            capacity_bps: capacity_mbps * 1_000_000, ..fixed(units)
        };
        let (mut bench, mut reference) = (Bench::new(config.clone()), Reference::new(config));
        let mut now_ns = 12_345;
        for (flow, pause_ns, len) in packets {
            now_ns += pause_ns;
            let (unit, stamp) = bench.packet(now_ns, flow, len);
            let targets = stamp.targets.map(|targets| targets.units().iter().map(|unit| unit.index()).collect());
            prop_assert_eq!((unit.index(), stamp.epoch, targets), reference.packet(now_ns, flow, len.into()));
        }
        for unit in 0..units {
            let flows = reference.flows.values().filter(|flow| flow.unit == usize::from(unit)).count();
            prop_assert_eq!(bench.dispatcher.units().find(|u| u.unit == UnitId(unit)).unwrap().flows, flows as u32);
        }
    }
}
