//! `[workload.trace]` or `[workload.steady]`: which packets come.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::{Rate, Size, Time};
use crate::workload::RateCurve;

/// Which packets come.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Made up after one of the traces that the papers used (S86).
    Trace(Trace),
    /// Packets of one size at one rate.
    Steady(Steady),
}

impl Default for Workload {
    fn default() -> Workload {
        Workload::Trace(Trace::default())
    }
}

/// A workload with the published properties of a trace, sped up by shrinking its gaps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// Which trace.
    pub profile: Profile,
    /// The total rate over time: points of time and rate, with straight lines between them. The last one stays.
    pub curve: RateCurve,
    /// Flows that send bursts on top.
    pub adversary: Option<Adversary>,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { profile: Profile::WB, curve: RateCurve::up_and_down(), adversary: None }
    }
}

/// One of the traces that the papers used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Profile {
    /// 3.8 M packets of 1.7 K connections, median packet 368 bytes.
    #[serde(rename = "W-A")]
    WA,
    /// 6.4 M packets of 199 K connections, median packet 1434 bytes.
    #[serde(rename = "W-B")]
    WB,
}

/// Flows that send bursts on top of what they send anyway (S96).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adversary {
    /// Every so many flows, one does.
    pub every: NonZeroU32,
    /// Packets of such a burst.
    #[serde(default = "burst_packets")]
    pub packets: NonZeroU32,
    /// Size of its packets.
    #[serde(default = "burst_packet_size")]
    pub packet_size: Size,
}

fn burst_packets() -> NonZeroU32 {
    const { NonZeroU32::new(20).unwrap() }
}

fn burst_packet_size() -> Size {
    Size(1_400)
}

/// Packets of one size at one rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Steady {
    /// The rate.
    pub rate: Rate,
    /// Bytes of each packet.
    pub packet_size: Size,
    /// Flows that send them.
    pub flows: NonZeroU32,
    /// One flow more sends at this rate, evenly, or at one that changes.
    pub elephant: Option<RateCurve>,
    /// What lies between packets.
    pub spacing: Spacing,
    /// No packet comes after this time; unless said, as long as the run takes.
    pub until: Option<Time>,
}

impl Default for Steady {
    fn default() -> Steady {
        Steady {
            rate: Rate(500_000_000),
            packet_size: Size(1_000),
            flows: const { NonZeroU32::new(100).unwrap() },
            elephant: None,
            spacing: Spacing::Even,
            until: None,
        }
    }
}

/// What lies between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Always the same time, and flows take turns.
    Even,
    /// Packets come independently of each other, of any flow.
    Poisson,
}
