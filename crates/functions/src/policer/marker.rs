//! Token buckets that colour packets: exact integer arithmetic, without division.
//!
//! Tokens are counted in *units* of a billionth of a bit or of a packet. A rate of R per second
//! then adds R units per nanosecond, and nothing is rounded. The state is the number of *spent*
//! units: an unused bucket is full, so the zeroed state is that of a new flow.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Units per byte.
pub const BYTE: u64 = 8_000_000_000;
/// Units per packet.
pub const PACKET: u64 = 1_000_000_000;
/// Maximum size of a bucket in units: 1.15 GB, or 9.2 billion packets. The sum of two such buckets
/// fits a `u64`, so overflow from one into the other is exact.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Units added per nanosecond: bits or packets per second.
    pub rate: u64,
    /// Size in units, at most [`SIZE_MAX`].
    pub size: u64,
}

/// Algorithm that colours packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Single rate (RFC 2697): overflow of the committed bucket fills the excess bucket. With an
    /// excess bucket of size 0, no packet is yellow: the plain policer (S27).
    SingleRate {
        /// Bucket of green packets.
        committed: TokenBucket,
        /// Size in units of the excess bucket, for yellow packets; at most [`SIZE_MAX`].
        excess: u64,
    },
    /// Two rates (RFC 2698).
    TwoRate {
        /// Bucket of green packets, in addition to `peak`.
        committed: TokenBucket,
        /// Bucket of green and yellow packets.
        peak: TokenBucket,
    },
}

/// Conformance of a packet to the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketColour {
    /// Within the committed rate and burst.
    Green,
    /// Beyond that, within the excess burst or the peak rate.
    Yellow,
    /// Beyond all rates and bursts.
    Red,
}

/// Levels of two buckets; all zeros: full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BucketLevels {
    /// Time of the latest packet.
    last_ns: u64,
    /// Units spent from the committed bucket.
    committed: u64,
    /// Units spent from the other bucket, for the excess burst or the peak rate.
    other: u64,
}

impl BucketLevels {
    /// Returns the levels with the later time stamp.
    pub fn newer(self, other: BucketLevels) -> BucketLevels {
        if other.last_ns > self.last_ns { other } else { self }
    }

    /// Reads two of them from their bytes.
    pub fn read_pair(bytes: &[u8]) -> Option<[BucketLevels; 2]> {
        <[BucketLevels; 2]>::read_from_bytes(bytes).ok()
    }
}

impl Marker {
    /// Returns the colour of a packet that costs `cost` units and arrived with the colour `before`.
    /// A late packet adds no tokens. A packet that costs more than a bucket holds never gets its
    /// colour. If a bucket has shrunk, spent units are limited to its size.
    #[inline(always)]
    pub fn colour(
        &self,
        levels: &mut BucketLevels,
        cost: u64,
        now_ns: u64,
        before: PacketColour,
    ) -> PacketColour {
        let elapsed_ns = now_ns.saturating_sub(levels.last_ns);
        levels.last_ns = levels.last_ns.max(now_ns);
        match *self {
            // RFC 2697 3
            Marker::SingleRate { committed, excess } => {
                let filled = committed.rate.saturating_mul(elapsed_ns);
                let spent = levels.committed.min(committed.size);
                levels.committed = spent.saturating_sub(filled);
                levels.other = if excess == 0 {
                    0 // The common case: there is no excess bucket to fill.
                } else {
                    levels.other.min(excess).saturating_sub(filled.saturating_sub(spent))
                };
                if before == PacketColour::Green && take(&mut levels.committed, committed.size, cost) {
                    PacketColour::Green
                } else if before != PacketColour::Red && take(&mut levels.other, excess, cost) {
                    PacketColour::Yellow
                } else {
                    PacketColour::Red
                }
            }
            // RFC 2698 3
            Marker::TwoRate { committed, peak } => {
                let fill = |spent: u64, bucket: TokenBucket| {
                    spent.min(bucket.size).saturating_sub(bucket.rate.saturating_mul(elapsed_ns))
                };
                levels.committed = fill(levels.committed, committed);
                levels.other = fill(levels.other, peak);
                if before == PacketColour::Red || !take(&mut levels.other, peak.size, cost) {
                    PacketColour::Red
                } else if before == PacketColour::Green && take(&mut levels.committed, committed.size, cost) {
                    PacketColour::Green
                } else {
                    PacketColour::Yellow
                }
            }
        }
    }

    /// Returns the time, in nanoseconds, until empty buckets are full. Idle for that long, they can
    /// be forgotten.
    pub fn full_after_ns(&self) -> u64 {
        let time = |units: u64, rate: u64| units.div_ceil(rate.max(1));
        match *self {
            Marker::SingleRate { committed, excess } => time(committed.size + excess, committed.rate),
            Marker::TwoRate { committed, peak } => {
                time(committed.size, committed.rate).max(time(peak.size, peak.rate))
            }
        }
    }
}

/// Takes `cost` units, if `size` minus `spent` has them. `spent` must be at most `size`.
#[inline(always)]
fn take(spent: &mut u64, size: u64, cost: u64) -> bool {
    let fits = cost <= size - *spent;
    if fits {
        *spent += cost;
    }
    fits
}

#[cfg(test)]
mod tests;
