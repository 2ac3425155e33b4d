//! The rate that a flowlet is expected to have.

use crate::dispatcher::config::{Config, RateWindow};
use crate::dispatcher::flow::{Flow, Flowlet};
use crate::dispatcher::load::rate_bps;

/// The rates of flowlets so far.
pub(crate) struct Demand {
    alpha: f32,
    rate_over: RateWindow,
    gap_ns: u64,
    window_ns: u64,
    /// Sum over all past flowlets, in bits per second.
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

    /// Returns the estimate for a flow's first flowlet: the mean over all past flowlets of all
    /// flows, in bits per second (S33); 0 before the first.
    pub fn of_new_flow_bps(&self) -> f32 {
        if self.count == 0 { 0.0 } else { (self.sum_bps / self.count as f64) as f32 }
    }

    /// Measures the flow's past flowlet, and returns the estimate for its next one (S34). The past
    /// one counts at once, so that a cut by size reveals the spike that it belongs to (S45).
    pub fn of_next_bps(&mut self, now_ns: u64, flow: &Flow, flowlet: &Flowlet) -> f32 {
        let measured_bps = self.measure(now_ns, flow, flowlet);
        self.alpha * measured_bps + (1.0 - self.alpha) * flow.estimate_bps()
    }

    /// Measures the flow's past flowlet. Its time counts as at least T: a single packet is no
    /// burst. Of one that was [ended](Flow::end_flowlet), only the estimate is known.
    pub fn measure(&mut self, now_ns: u64, flow: &Flow, flowlet: &Flowlet) -> f32 {
        let since_start = |at_ns: u64| at_ns.saturating_sub(flowlet.started_ns()).max(self.gap_ns);
        let time_ns = match self.rate_over {
            RateWindow::Burst => since_start(flow.last_seen_ns()),
            RateWindow::Interval => since_start(now_ns),
            RateWindow::Window => self.window_ns,
        };
        let Some(bytes) = flow.bytes() else { return flow.estimate_bps() };
        let measured_bps = rate_bps(bytes, time_ns);
        self.sum_bps += f64::from(measured_bps);
        self.count += 1;
        measured_bps
    }
}
