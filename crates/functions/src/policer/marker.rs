//! Token buckets that colour packets: exact, in whole numbers, without a division.
//!
//! A bucket is counted in *units* of a billionth of a bit, or of a packet: so a rate of R per
//! second fills R units per nanosecond, whatever R is, and nothing is ever rounded. What is kept is
//! how much of a bucket is *spent*: a bucket that was never used is full, and zeroed state is that
//! of a flow that has not begun.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Units of a byte.
pub const BYTE: u64 = 8_000_000_000;
/// Units of a packet.
pub const PACKET: u64 = 1_000_000_000;
/// Units in a bucket at most: 1.15 GB, or 9.2 billion packets. Two such buckets fit a number, so
/// that what overflows one is known even where it fills the other.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// A bucket of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Units that come in per nanosecond: bits or packets per second.
    pub rate: u64,
    /// Units that it holds, at most [`SIZE_MAX`].
    pub size: u64,
}

/// How packets are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// One rate (RFC 2697): what overflows the committed bucket fills another one. That one may
    /// hold nothing: then no packet is yellow, and it is the plain policer (S27).
    SingleRate {
        /// What a green packet takes from.
        committed: TokenBucket,
        /// Units that the other bucket, from which yellow packets take, holds, at most
        /// [`SIZE_MAX`].
        excess: u64,
    },
    /// Two rates (RFC 2698).
    TwoRate {
        /// What a green packet takes from, beside `peak`.
        committed: TokenBucket,
        /// What green and yellow packets take from.
        peak: TokenBucket,
    },
}

/// How a packet stands to the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Colour {
    /// Within what is committed.
    Green,
    /// Beyond that, and within the excess burst or the peak rate.
    Yellow,
    /// Beyond that.
    Red,
}

/// What is left in two buckets: all zeros are full ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BucketLevels {
    /// The latest time of a packet.
    last_ns: u64,
    /// Units spent of the committed bucket.
    committed: u64,
    /// Units spent of the other one: the excess burst, or the peak rate's.
    other: u64,
}

impl Marker {
    /// The colour of a packet that costs so many units and comes now, and that was given the colour
    /// `before`. A packet that came late fills nothing, and one that costs more than a bucket holds
    /// never gets its colour. Of a bucket that held more before, no more than all is spent.
    #[inline(always)]
    pub fn colour(&self, levels: &mut BucketLevels, cost: u64, now_ns: u64, before: Colour) -> Colour {
        let elapsed_ns = now_ns.saturating_sub(levels.last_ns);
        levels.last_ns = levels.last_ns.max(now_ns);
        match *self {
            // RFC 2697 3
            Marker::SingleRate { committed, excess } => {
                let filled = committed.rate.saturating_mul(elapsed_ns);
                let spent = levels.committed.min(committed.size);
                levels.committed = spent.saturating_sub(filled);
                levels.other = if excess == 0 {
                    0 // Most have no other bucket: then it need not be filled.
                } else {
                    levels.other.min(excess).saturating_sub(filled.saturating_sub(spent))
                };
                if before == Colour::Green && take(&mut levels.committed, committed.size, cost) {
                    Colour::Green
                } else if before != Colour::Red && take(&mut levels.other, excess, cost) {
                    Colour::Yellow
                } else {
                    Colour::Red
                }
            }
            // RFC 2698 3
            Marker::TwoRate { committed, peak } => {
                let fill = |spent: u64, bucket: TokenBucket| {
                    spent.min(bucket.size).saturating_sub(bucket.rate.saturating_mul(elapsed_ns))
                };
                levels.committed = fill(levels.committed, committed);
                levels.other = fill(levels.other, peak);
                if before == Colour::Red || !take(&mut levels.other, peak.size, cost) {
                    Colour::Red
                } else if before == Colour::Green && take(&mut levels.committed, committed.size, cost) {
                    Colour::Green
                } else {
                    Colour::Yellow
                }
            }
        }
    }

    /// The time, in nanoseconds, in which empty buckets fill: after that it makes no difference
    /// whether they were used.
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

/// Takes `cost` units if that much is left of `size`, of which no more is spent.
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
