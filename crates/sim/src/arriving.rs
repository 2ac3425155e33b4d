//! A packet of the workload.

/// A packet that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// When.
    pub time_ns: u64,
    /// The number of its flow.
    pub flow: u32,
    /// Bytes on the wire.
    pub len: u32,
}
