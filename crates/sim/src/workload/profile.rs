//! The published figures of the papers' traces, and further parameters of synthetic ones.

use super::sizes::{BoundedPareto, packet_sizes};
use crate::random::Table;
use crate::scenario::{BurstSizes, TraceProfile};

/// Flows with more bytes than this are large (S86).
pub const LARGE_BYTES: f64 = 10_000.0;

/// The shape of a trace at its natural speed of 1 Gbps. Packets, flows, the median packet and the
/// share of large flows are published (S86); the other figures are ours.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Packets of the whole trace.
    pub packets: f64,
    /// Flows of the whole trace.
    pub flows: f64,
    /// Share of flows that are large.
    pub large_share: f64,
    /// Share of packets up to a size, and the size in bytes.
    quantiles: &'static [(f64, f64)],
    /// The largest flow's bytes.
    largest: f64,
}

/// Least bytes of a flow: a packet.
const SMALLEST: f64 = 60.0;

/// Exponent of the sizes of small flows.
const SMALL_ALPHA: f64 = 0.5;

/// Limits on the packets of a window burst. The initial window of TCP is 10 segments (RFC 6928);
/// with these, W-B has the published bursts per flow (S99).
pub const WINDOW: (u32, u32) = (6, 10);

/// Packets per burst, as a multiple of the root of the flow's packets, at least one. With this, W-B
/// has the published bursts per flow (S99).
const BURST: f64 = 0.22;

/// Rate of a burst, in bits per nanosecond: 100 Mbit/s, as over an access link.
const BURST_RATE: f64 = 0.1;

/// Median time between two bursts of a flow, in ns: a round trip.
const PAUSE_NS: f64 = 10e6;

/// Standard deviations of the logarithms of gaps and pauses.
const GAP_SIGMA: f64 = 0.5;
const PAUSE_SIGMA: f64 = 1.0;

impl Shape {
    /// Returns the shape of this profile.
    pub fn of(profile: TraceProfile) -> Shape {
        match profile {
            TraceProfile::WA => Shape {
                packets: 3.8e6,
                flows: 1.7e3,
                large_share: 0.05,
                quantiles: &[(0.0, 60.0), (0.25, 90.0), (0.5, 368.0), (0.8, 900.0), (1.0, 1434.0)],
                largest: 200e6,
            },
            TraceProfile::WB => Shape {
                packets: 6.4e6,
                flows: 199e3,
                large_share: 0.05,
                quantiles: &[(0.0, 60.0), (0.36, 90.0), (0.45, 1434.0), (0.95, 1434.0), (1.0, 1514.0)],
                largest: 50e6,
            },
        }
    }

    /// Returns the distributions of this shape's packets and flows.
    pub fn fitted(&self, bursts: BurstSizes) -> Fitted {
        let sizes = packet_sizes(self.quantiles);
        let gaps = Table::log_normal(sizes.mean() * 8.0 / BURST_RATE, GAP_SIGMA);
        let pauses = Table::log_normal(PAUSE_NS, PAUSE_SIGMA);
        let small = BoundedPareto::new(SMALL_ALPHA, SMALLEST, LARGE_BYTES);
        let life = Life { bursts, packet: sizes.mean(), gap_ns: gaps.mean(), pause_ns: pauses.mean() };
        let bytes = self.packets * sizes.mean();
        // At 1 Gbps, a bit takes a nanosecond.
        let trace_ns = bytes * 8.0;
        // A flow is seen in a window if it begins there, or begins before and lasts until then.
        let begin = |share: f64, life_ns: f64| share * self.flows / (trace_ns + life_ns);
        let smalls_per_ns = begin(1.0 - self.large_share, life.mean_ns(&small));
        let larges_per_ns = |large: &BoundedPareto| begin(self.large_share, life.mean_ns(large));
        let bits_per_ns = |large: &BoundedPareto| {
            8.0 * (smalls_per_ns * small.moment(1.0) + larges_per_ns(large) * large.moment(1.0))
        };
        let large = BoundedPareto::fitted(LARGE_BYTES, self.largest, 1.0, bits_per_ns);
        let larges_per_ns = larges_per_ns(&large);
        let flows_per_ns = smalls_per_ns + larges_per_ns;
        let longest_ns = life.ns(self.largest);
        Fitted {
            sizes,
            gaps,
            pauses,
            small,
            large,
            large_share: larges_per_ns / flows_per_ns,
            flows_per_ns,
            life,
            longest_ns,
            trace_ns,
        }
    }
}

/// Distributions of a made-up trace; times are at its natural speed, 1 Gbps.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Bytes of packets.
    pub sizes: Table,
    /// ns between the packets of a burst.
    pub gaps: Table,
    /// ns between bursts.
    pub pauses: Table,
    /// Bytes of small flows.
    pub small: BoundedPareto,
    /// Bytes of large flows.
    pub large: BoundedPareto,
    /// Share of large flows among new ones.
    pub large_share: f64,
    /// New flows per ns.
    pub flows_per_ns: f64,
    /// Lifetimes of flows.
    pub life: Life,
    /// Lifetime of the largest flow.
    pub longest_ns: f64,
    /// Length of the trace.
    pub trace_ns: f64,
}

/// Lifetimes of flows.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    bursts: BurstSizes,
    packet: f64,
    gap_ns: f64,
    pause_ns: f64,
}

impl Life {
    /// Returns the mean packets per burst of a flow of this size: larger flows have more bursts,
    /// and, if bursts grow, larger ones.
    pub fn burst(&self, bytes: f64) -> f64 {
        match self.bursts {
            BurstSizes::Growing => (BURST * self.packets(bytes).sqrt()).max(1.0),
            BurstSizes::Windows => window_mean(),
        }
    }

    /// Returns the mean lifetime of a flow of this size.
    pub fn ns(&self, bytes: f64) -> f64 {
        let (packets, burst) = (self.packets(bytes), self.burst(bytes));
        packets * self.gap_ns + packets / burst * self.pause_ns
    }

    /// Returns the mean lifetime of flows of these sizes.
    fn mean_ns(&self, bytes: &BoundedPareto) -> f64 {
        let packets = bytes.moment(1.0) / self.packet;
        let bursts = match self.bursts {
            BurstSizes::Growing => bytes.moment(0.5) / self.packet.sqrt() / BURST,
            BurstSizes::Windows => packets / window_mean(),
        };
        packets * self.gap_ns + bursts * self.pause_ns
    }

    fn packets(&self, bytes: f64) -> f64 {
        (bytes / self.packet).max(1.0)
    }
}

fn window_mean() -> f64 {
    f64::from(WINDOW.0 + WINDOW.1) / 2.0
}
