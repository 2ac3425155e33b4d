//! The packets of a workload: made up on demand, never all in memory, or recorded in a capture.

mod capture;
mod profile;
mod sizes;
mod statistics;
mod steady;
mod trace;

pub use capture::CapturePackets;
pub use profile::{LARGE_BYTES, Shape};
pub use statistics::{Statistics, WorkloadStatistics};
pub use steady::SteadyPackets;
pub use trace::TracePackets;

pub use crate::arriving::Arriving;
use crate::scenario::{CaptureSource, Workload};

/// The packets of a workload, in order of time, without end.
#[derive(Clone, Debug)]
pub enum Packets {
    /// Packets of a synthetic trace.
    Trace(Box<TracePackets>),
    /// Packets at one rate.
    Steady(SteadyPackets),
    /// Packets of a capture.
    Capture(CapturePackets),
    /// A capture that was not read: no packets.
    None,
}

impl Packets {
    /// Creates the packets of this workload and seed; none for a capture that was not
    /// [supplied](Workload::supply).
    pub fn new(workload: &Workload, seed: u64) -> Packets {
        match workload {
            Workload::Trace(trace) => Packets::Trace(Box::new(TracePackets::new(trace, seed))),
            Workload::Steady(steady) => Packets::Steady(SteadyPackets::new(steady, seed)),
            Workload::Capture(capture) => match &capture.file {
                CaptureSource::File(_) => Packets::None,
                CaptureSource::Read { recording, .. } => {
                    Packets::Capture(CapturePackets::new(capture, recording, seed))
                }
            },
        }
    }
}

impl Iterator for Packets {
    type Item = Arriving;

    #[inline]
    fn next(&mut self) -> Option<Arriving> {
        match self {
            Packets::Trace(packets) => packets.next(),
            Packets::Steady(packets) => packets.next(),
            Packets::Capture(packets) => packets.next(),
            Packets::None => None,
        }
    }
}
