//! `[workload.trace]`, `[workload.steady]` or `[workload.capture]`: the packets.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::{RateCurve, RecordedPackets};
use values::{ByteCount, Factor, Nanos, PositiveBitRate};

/// The packets of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Made up after one of the traces that the papers used (S86).
    Trace(SyntheticTrace),
    /// Packets of one size at one rate.
    Steady(SteadyTraffic),
    /// Packets of a capture (S86).
    Capture(CapturedTraffic),
}

impl Default for Workload {
    fn default() -> Workload {
        Workload::Trace(SyntheticTrace::default())
    }
}

impl Workload {
    /// Reads the capture that the scenario names, if any: this crate reads no files.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn supply<E>(
        &mut self,
        read: impl FnOnce(&Path) -> Result<Arc<RecordedPackets>, E>,
    ) -> Result<(), E> {
        if let Workload::Capture(CapturedTraffic { file, .. }) = self
            && let CaptureSource::File(path) = file
        {
            let recording = read(path)?;
            *file = CaptureSource::Read { path: std::mem::take(path), recording };
        }
        Ok(())
    }
}

/// A workload with the published properties of a trace, sped up by shrinking its gaps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyntheticTrace {
    /// The trace.
    pub profile: TraceProfile,
    /// Sizes of bursts.
    pub bursts: BurstSizes,
    /// The total rate over time: points of time and rate, with straight lines between them,
    /// constant after the last one.
    pub curve: RateCurve,
    /// Flows that send additional bursts.
    pub adversary: Option<Adversary>,
}

impl Default for SyntheticTrace {
    fn default() -> SyntheticTrace {
        SyntheticTrace {
            profile: TraceProfile::WB,
            bursts: BurstSizes::Growing,
            curve: RateCurve::up_and_down(),
            adversary: None,
        }
    }
}

/// One of the traces that the papers used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TraceProfile {
    /// 3.8 M packets of 1.7 K connections, median packet 368 bytes.
    #[serde(rename = "W-A")]
    WA,
    /// 6.4 M packets of 199 K connections, median packet 1434 bytes.
    #[serde(rename = "W-B")]
    WB,
}

/// Sizes of bursts of a synthetic trace: the papers publish bursts per flow only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BurstSizes {
    /// Growing with the flow's size, without a limit.
    Growing,
    /// 6 to 10 packets, as TCP sends windows: 10 segments at first (RFC 6928).
    Windows,
}

/// Flows that send additional bursts (S96).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adversary {
    /// Every n-th flow sends bursts.
    pub every: NonZeroU32,
    /// Packets of an additional burst.
    #[serde(default = "burst_packets")]
    pub packets: NonZeroU32,
    /// Size of its packets.
    #[serde(default = "burst_packet_size")]
    pub packet_size: ByteCount,
}

fn burst_packets() -> NonZeroU32 {
    const { NonZeroU32::new(20).unwrap() }
}

fn burst_packet_size() -> ByteCount {
    ByteCount(1_400)
}

/// Packets of one size at one rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SteadyTraffic {
    /// The rate.
    pub rate: PositiveBitRate,
    /// Bytes of each packet.
    pub packet_size: ByteCount,
    /// Flows that send them.
    pub flows: NonZeroU32,
    /// Rate of one more flow with even gaps; may change over time.
    pub elephant: Option<RateCurve>,
    /// Gaps between packets.
    pub spacing: PacketSpacing,
    /// Time of the last packet; by default, the whole run.
    pub until: Option<Nanos>,
}

impl Default for SteadyTraffic {
    fn default() -> SteadyTraffic {
        SteadyTraffic {
            rate: PositiveBitRate(500_000_000),
            packet_size: ByteCount(1_000),
            flows: const { NonZeroU32::new(100).unwrap() },
            elephant: None,
            spacing: PacketSpacing::Even,
            until: None,
        }
    }
}

/// Gaps between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketSpacing {
    /// Always the same time, and flows take turns.
    Even,
    /// Packets come independently of each other, of any flow.
    Poisson,
}

/// Packets of a capture, with their times, flows and lengths; both directions of a connection are
/// one flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedTraffic {
    /// The capture.
    pub file: CaptureSource,
    /// All gaps are shorter by this factor; below 1, they are longer.
    #[serde(default)]
    pub speedup: Factor,
    /// Copies that play at the same time, each with flows of its own: the first from the beginning,
    /// others from points that the seed determines. At its end, a copy begins again with other
    /// flows.
    #[serde(default = "one", deserialize_with = "copies")]
    pub copies: NonZeroU32,
}

/// A capture's file, and its packets after it was read.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PathBuf")]
pub enum CaptureSource {
    /// Not read yet.
    File(PathBuf),
    /// Read.
    Read {
        /// Its path.
        path: PathBuf,
        /// Its packets.
        recording: Arc<RecordedPackets>,
    },
}

impl From<PathBuf> for CaptureSource {
    fn from(path: PathBuf) -> CaptureSource {
        CaptureSource::File(path)
    }
}

/// Limit on the copies of a capture that are played at the same time.
pub const COPIES_MAX: u32 = 65_536;

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn copies<'de, D: serde::Deserializer<'de>>(from: D) -> Result<NonZeroU32, D::Error> {
    let copies = NonZeroU32::deserialize(from)?;
    if copies.get() > COPIES_MAX {
        let most = format!("{copies} copies are more than {COPIES_MAX}");
        return Err(serde::de::Error::custom(most));
    }
    Ok(copies)
}
