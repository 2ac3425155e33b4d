//! Where a flow is cut into flowlets, and how much a flowlet is expected to bring.

use crate::dispatcher::config::{Config, RateOver};
use crate::dispatcher::flow::{Flow, Flowlet};
use crate::dispatcher::load::rate_bps;

/// Why a flowlet of a known flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowletCut {
    /// Behind a gap (S29).
    Gap,
    /// The one before would have been too long (S29).
    Size,
    /// The mode says so.
    Granularity,
    /// The unit is being drained.
    Drain,
}

/// Whether a packet of `len` bytes begins a new flowlet (S29, S46, Pseudocode 1 l.14-25).
#[inline]
pub(crate) fn cut(flow: &Flow, now_ns: u64, len: u32, config: &Config) -> Option<FlowletCut> {
    if is_behind_gap(flow, now_ns, config) {
        return Some(FlowletCut::Gap);
    }
    (flow.bytes_with(len) > config.size_max).then_some(FlowletCut::Size)
}

/// Whether the flow was silent for longer than a flowlet is.
#[inline]
pub(crate) fn is_behind_gap(flow: &Flow, now_ns: u64, config: &Config) -> bool {
    now_ns.saturating_sub(flow.last_seen_ns) > config.gap_ns
}

/// What flowlets brought so far.
pub(crate) struct Demand {
    alpha: f32,
    rate_over: RateOver,
    gap_ns: u64,
    window_ns: u64,
    /// Of all flowlets that are over, in bits per second.
    sum_bps: f64,
    count: u64,
}

impl Demand {
    pub fn new(config: &Config) -> Demand {
        Demand {
            alpha: config.alpha,
            rate_over: config.rate_over,
            gap_ns: config.gap_ns,
            window_ns: config.bucket_ns.saturating_mul(config.buckets as u64),
            sum_bps: 0.0,
            count: 0,
        }
    }

    /// What to expect of a flow's first flowlet: the mean of all flowlets so far, over all flows
    /// (S33). In bits per second; nothing before there was one.
    pub fn of_new_flow_bps(&self) -> f32 {
        if self.count == 0 { 0.0 } else { (self.sum_bps / self.count as f64) as f32 }
    }

    /// The flow's flowlet is over, now: what to expect of its next one (S34). The flowlet counts at
    /// once, so that one that was cut by its size tells of the spike that it is part of (S45).
    pub fn of_next_bps(&mut self, now_ns: u64, flow: &Flow, flowlet: &Flowlet) -> f32 {
        let measured_bps = self.measure(now_ns, flow, flowlet);
        self.alpha * measured_bps + (1.0 - self.alpha) * flow.estimate_bps
    }

    /// The flow's flowlet is over, now: what it brought. It counts as one of T at least: a lone
    /// packet is no burst.
    pub fn measure(&mut self, now_ns: u64, flow: &Flow, flowlet: &Flowlet) -> f32 {
        let since_start = |at_ns: u64| at_ns.saturating_sub(flowlet.started_ns).max(self.gap_ns);
        let time_ns = match self.rate_over {
            RateOver::Burst => since_start(flow.last_seen_ns),
            RateOver::Interval => since_start(now_ns),
            RateOver::Window => self.window_ns,
        };
        let measured_bps = rate_bps(flow.bytes, time_ns);
        self.sum_bps += f64::from(measured_bps);
        self.count += 1;
        measured_bps
    }
}
