//! The packets of a capture, in memory.

use std::collections::HashMap;

use packet::FlowKey;

use crate::arriving::Arriving;

/// Limit on the packets of a recording.
pub const RECORDED_MAX: usize = 1 << 26;

/// The packets of a capture, reduced to what a simulation needs.
#[derive(Debug)]
pub struct RecordedPackets {
    /// In order of time, relative to the first one; flows are numbered in order of arrival.
    packets: Vec<Arriving>,
    flows: u32,
}

/// The reason why packets are no workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// There are no packets.
    #[error("no packet of it has an IP header")]
    Empty,
    /// There are more than [`RECORDED_MAX`].
    #[error("it has more than {RECORDED_MAX} packets")]
    TooMany,
}

impl RecordedPackets {
    /// Records packets: time in nanoseconds, flow, and bytes on the wire, in any order. Packets of
    /// the same time keep their order.
    ///
    /// # Errors
    /// If there are none, or too many.
    pub fn new(
        packets: impl IntoIterator<Item = (u64, FlowKey, u32)>,
    ) -> Result<RecordedPackets, RecordingError> {
        let mut found: Vec<(u64, FlowKey, u32)> = packets.into_iter().take(RECORDED_MAX + 1).collect();
        if found.len() > RECORDED_MAX {
            return Err(RecordingError::TooMany);
        }
        found.sort_by_key(|&(time_ns, ..)| time_ns);
        let first_ns = found.first().ok_or(RecordingError::Empty)?.0;
        let mut numbers = HashMap::new();
        let packets = found.into_iter().map(|(time_ns, key, len)| {
            let next = numbers.len() as u32; // At most as many as packets.
            Arriving { time_ns: time_ns - first_ns, flow: *numbers.entry(key).or_insert(next), len }
        });
        let packets = packets.collect();
        Ok(RecordedPackets { packets, flows: numbers.len() as u32 })
    }

    /// Returns the packets, in order of time, relative to the first one.
    pub fn packets(&self) -> &[Arriving] {
        &self.packets
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Returns the time from the first packet to the last one, in ns.
    pub fn length_ns(&self) -> u64 {
        self.packets.last().map_or(0, |last| last.time_ns)
    }

    /// Returns the time from the first packet to the first one of the next round, in ns: the
    /// recording, and one mean gap. At least 1 ns for each packet.
    pub(crate) fn round_ns(&self) -> f64 {
        let packets = self.packets.len() as f64;
        let length_ns = self.length_ns() as f64;
        (length_ns + length_ns / packets).max(packets)
    }
}
