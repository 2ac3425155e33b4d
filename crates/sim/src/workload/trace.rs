//! Packets of a made-up trace.

use packet::memory::prefetch;

use super::profile::{Fitted, Shape, WINDOW};
use crate::arriving::Arriving;
use crate::event::EventQueue;
use crate::random::Random;
use crate::scenario::{Adversary, BurstSizes, SyntheticTrace, Warp};

/// Least bytes of a packet.
const PACKET_MIN: f64 = 60.0;

/// ns between the packets of an adversary's burst, at natural speed.
const ADVERSARY_GAP_NS: f64 = 1_000.0;

/// Packets of a made-up trace, in order of time.
///
/// Flows begin independently of each other, send bursts with pauses between them, and end when they
/// have sent their bytes. Flows that began before the first moment are in progress then. All this
/// is at natural speed, 1 Gbps; then the gaps are scaled such that the rate follows the curve (S86,
/// R5).
#[derive(Clone, Debug)]
pub struct TracePackets {
    fitted: Fitted,
    bursts: BurstSizes,
    adversary: Option<Adversary>,
    warp: Warp,
    random: Random,
    flows: Vec<Flow>,
    /// Places in `flows` of ended flows.
    free: Vec<u32>,
    /// Flows by the natural time of their next packet.
    queue: EventQueue<u32>,
    /// Natural time of the next flow's beginning.
    next_flow_ns: f64,
    begun: u32,
}

/// A flow that has more to send.
#[derive(Clone, Copy, Debug)]
struct Flow {
    number: u32,
    /// Bytes left to send.
    bytes: f64,
    /// Probability that a burst ends after a packet, where bursts grow.
    end: f64,
    /// Packets left of the present window, where bursts are windows.
    left: u32,
    /// Packets that the adversary still sends in this burst.
    extra: u32,
}

impl TracePackets {
    /// Creates the packets of this seed.
    pub fn new(trace: &SyntheticTrace, seed: u64) -> TracePackets {
        let fitted = Shape::of(trace.profile).fitted(trace.bursts);
        let mut packets = TracePackets {
            bursts: trace.bursts,
            adversary: trace.adversary,
            warp: Warp::new(trace.curve.clone()),
            random: Random::new(seed, "trace"),
            flows: Vec::new(),
            free: Vec::new(),
            queue: EventQueue::new(),
            next_flow_ns: 0.0,
            begun: 0,
            fitted,
        };
        packets.begin_before();
        packets.next_flow_ns = packets.until_next_flow();
        packets
    }

    /// Begins the flows that are in progress at the first moment.
    fn begin_before(&mut self) {
        let mut ago_ns = self.until_next_flow();
        while ago_ns < self.fitted.longest_ns {
            let bytes = self.draw_bytes();
            let life_ns = self.fitted.life.ns(bytes);
            if ago_ns < life_ns {
                let pause_ns = self.random.share() * self.fitted.pauses.draw(&mut self.random);
                self.begin(pause_ns, bytes, bytes * (1.0 - ago_ns / life_ns));
            }
            ago_ns += self.until_next_flow();
        }
    }

    fn until_next_flow(&mut self) -> f64 {
        self.random.exponential() / self.fitted.flows_per_ns
    }

    fn draw_bytes(&mut self) -> f64 {
        let is_large = self.random.happens(self.fitted.large_share);
        let sizes = if is_large { &self.fitted.large } else { &self.fitted.small };
        sizes.draw(&mut self.random)
    }

    /// Schedules a flow's next packet: a flow of `bytes`, with `rest` left.
    fn begin(&mut self, at_ns: f64, bytes: f64, rest: f64) {
        let number = self.begun;
        self.begun = self.begun.wrapping_add(1);
        let end = 1.0 / self.fitted.life.burst(bytes);
        let (left, extra) = (self.window(), self.extra(number));
        let flow = Flow { number, bytes: rest, end, left, extra };
        let place = match self.free.pop() {
            Some(place) => {
                self.flows[place as usize] = flow;
                place
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.queue.push(at_ns as u64, place);
    }

    /// Returns the packets of the next window of a flow.
    fn window(&mut self) -> u32 {
        let (least, most) = WINDOW;
        match self.bursts {
            BurstSizes::Growing => 0,
            BurstSizes::Windows => least + self.random.below(u64::from(most - least + 1)) as u32,
        }
    }

    /// Returns the bytes that an adversary adds to each burst of this flow.
    fn extra(&self, number: u32) -> u32 {
        match self.adversary {
            Some(adversary) if number.is_multiple_of(adversary.every.get()) => adversary.packets.get(),
            _ => 0,
        }
    }

    /// Sends a packet of a flow. Returns the time of the flow's next packet, if it has more.
    fn send(&mut self, place: u32) -> (u32, f64, Option<f64>) {
        let flow = &mut self.flows[place as usize];
        if let Some(adversary) = self.adversary
            && flow.extra > 0
        {
            flow.extra -= 1;
            return (flow.number, adversary.packet_size.0 as f64, Some(ADVERSARY_GAP_NS));
        }
        let len = self.fitted.sizes.draw(&mut self.random).min(flow.bytes).max(PACKET_MIN);
        flow.bytes -= len;
        let number = flow.number;
        if flow.bytes <= 0.0 {
            return (number, len, None);
        }
        let is_over = match self.bursts {
            BurstSizes::Growing => self.random.share() < flow.end,
            BurstSizes::Windows => {
                flow.left = flow.left.saturating_sub(1);
                flow.left == 0
            }
        };
        if !is_over {
            return (number, len, Some(self.fitted.gaps.draw(&mut self.random)));
        }
        let (left, extra) = (self.window(), self.extra(number));
        let flow = &mut self.flows[place as usize];
        (flow.left, flow.extra) = (left, extra);
        (number, len, Some(self.fitted.pauses.draw(&mut self.random)))
    }
}

impl Iterator for TracePackets {
    type Item = Arriving;

    #[inline]
    fn next(&mut self) -> Option<Arriving> {
        while self.queue.next_ns() >= self.next_flow_ns as u64 {
            let bytes = self.draw_bytes();
            self.begin(self.next_flow_ns, bytes, bytes);
            self.next_flow_ns += self.until_next_flow();
        }
        let flows = self.flows.as_ptr();
        let show = |events: &[(u64, u32)]| {
            events.iter().for_each(|&(_, place)| prefetch(flows.wrapping_add(place as usize)));
        };
        let (natural_ns, place) = self.queue.pop(show)?;
        let (flow, len, until_next_ns) = self.send(place);
        match until_next_ns {
            Some(until_ns) => self.queue.push(natural_ns + until_ns as u64, place),
            None => self.free.push(place),
        }
        Some(Arriving { time_ns: self.warp.time_ns(natural_ns as f64), flow, len: len as u32 })
    }
}
