//! The subject of a measurement, and its pace.

use super::tape::Tape;

/// The subject of a measurement.
pub trait Target {
    /// Opens the tape's flows, and plays a warm-up.
    fn warm_up(&mut self, tape: &Tape) -> anyhow::Result<()>;

    /// Plays a part of the tape.
    fn play(&mut self, tape: &Tape, from: usize, count: usize);

    /// Checks that every packet was accounted for and passed: a fast wrong run is a failure.
    fn check(&self, tape: &Tape) -> anyhow::Result<()>;

    /// Returns the bytes of a flow's record.
    fn record_len(&self) -> usize;
}

/// Frames of the tape that are played before the measurement.
pub const WARM_UP: usize = 1 << 16;

/// Virtual nanoseconds between packets.
pub const PACE_NS: u64 = 50;
