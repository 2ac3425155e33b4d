//! A packet of the workload.

/// A packet of the workload on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Time of arrival.
    pub time_ns: u64,
    /// The number of its flow.
    pub flow: u32,
    /// Bytes on the wire.
    pub len: u32,
}
