//! Open flows: their arrival, end and replacement.

use super::endpoints::Endpoints;
use super::error::ProfileError;
use super::flow::{ENDLESS, Flow, FlowKind};
use super::generated::Counters;
use super::profile::{FlowLength, TrafficProfile};
use super::random::Random;
use super::schedule::{Arrivals, Schedule};

/// The open flows.
#[derive(Debug)]
pub(super) struct Population {
    pub flows: Vec<Flow>,
    most: usize,
    arrivals: Option<Arrivals>,
    pub endpoints: Endpoints,
    nature: FlowTraits,
    random: Random,
    /// Flows begun; the number of the next one.
    begun: u64,
}

/// Properties of new flows.
#[derive(Debug)]
struct FlowTraits {
    /// Cumulative weights of the kinds.
    kinds: [(FlowKind, f64); 4],
    reset_share: f64,
    ipv6_share: f64,
    length: FlowLength,
}

impl Population {
    pub fn new(
        profile: &TrafficProfile,
        mut random: Random,
        arrivals: Random,
    ) -> Result<Population, ProfileError> {
        Ok(Population {
            flows: Vec::with_capacity(profile.flows as usize),
            most: profile.flows as usize,
            arrivals: profile.arrivals_per_second.map(|rate| Arrivals::new(rate, profile.start_ns, arrivals)),
            endpoints: Endpoints::new(profile, &mut random)?,
            nature: FlowTraits::new(profile),
            random,
            begun: 0,
        })
    }

    /// Admits the flows with an arrival time in the past. Afterwards, at least one flow is open
    /// (time advances until then) or no time is left.
    pub fn admit(&mut self, schedule: &mut Schedule, counters: &mut Counters) {
        let Some(mut arrivals) = self.arrivals.take() else {
            while self.flows.len() < self.most {
                self.begin(counters);
            }
            return;
        };
        if self.flows.is_empty() {
            schedule.wait_until(arrivals.next_ns());
        }
        while arrivals.next_ns() <= schedule.now_ns() && schedule.now_ns() < u64::MAX {
            if self.flows.len() < self.most {
                self.begin(counters);
                arrivals.advance();
            } else {
                let passed = arrivals.pass_over_until(schedule.now_ns());
                counters.flows_refused = counters.flows_refused.saturating_add(passed);
            }
        }
        self.arrivals = Some(arrivals);
    }

    fn begin(&mut self, counters: &mut Counters) {
        let flow = self.new_flow(counters);
        self.flows.push(flow);
    }

    /// Removes a flow that has ended. Without arrivals, another one replaces it.
    pub fn end(&mut self, index: usize, counters: &mut Counters) {
        counters.flows_ended += 1;
        if self.arrivals.is_some() {
            self.flows.swap_remove(index);
            return;
        }
        self.flows[index] = self.new_flow(counters);
    }

    fn new_flow(&mut self, counters: &mut Counters) -> Flow {
        counters.flows_begun += 1;
        let is_v6 = self.random.chance(self.nature.ipv6_share);
        let ends = self.endpoints.ends(self.begun, is_v6, &mut self.random);
        self.begun += 1;
        let kind = self.nature.kind(&mut self.random);
        let length = self.nature.length(&mut self.random);
        Flow::new(ends, kind, length, self.random.bits())
    }
}

impl FlowTraits {
    fn new(profile: &TrafficProfile) -> FlowTraits {
        let weights = profile.protocols;
        let mut kinds = [
            (FlowKind::Tcp { resets: false }, weights.tcp),
            (FlowKind::Udp, weights.udp),
            (FlowKind::Icmp, weights.icmp),
            (FlowKind::Fragments, weights.fragments),
        ];
        let mut sum = 0.0;
        for (_, weight) in &mut kinds {
            sum += *weight;
            *weight = sum;
        }
        FlowTraits {
            kinds,
            reset_share: profile.reset_share,
            ipv6_share: profile.ipv6_share,
            length: profile.flow_length,
        }
    }

    fn kind(&self, random: &mut Random) -> FlowKind {
        let place = random.unit() * self.kinds[3].1;
        let chosen = self.kinds.iter().find(|(_, sum)| place < *sum);
        match chosen.map_or(self.kinds[0].0, |(kind, _)| *kind) {
            FlowKind::Tcp { .. } => FlowKind::Tcp { resets: random.chance(self.reset_share) },
            kind => kind,
        }
    }

    fn length(&self, random: &mut Random) -> u32 {
        let packets = match self.length {
            FlowLength::Endless => return ENDLESS,
            FlowLength::Fixed(packets) => f64::from(packets),
            FlowLength::Geometric(mean) => random.geometric(mean),
            FlowLength::Pareto { least, alpha } => random.pareto(least, alpha),
        };
        // The conversion saturates.
        (packets as u32).clamp(1, ENDLESS - 1)
    }
}
