//! The frames that a generator yields, and their counters.

/// A frame, borrowed from the generator until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedFrame<'a> {
    /// Send time in nanoseconds, never earlier than that of the previous frame.
    pub timestamp_ns: u64,
    /// The receiving port: 0 on the clients' side, 1 on the servers'.
    pub port: u16,
    /// Kind.
    pub kind: FrameKind,
    /// The frame without frame check sequence: at least [`super::FRAME_BYTES_MIN`].
    pub data: &'a [u8],
}

/// Kind of traffic that a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// A TCP connection.
    Tcp,
    /// A UDP exchange.
    Udp,
    /// ICMP or ICMPv6 echo.
    Icmp,
    /// A UDP datagram in fragments.
    Fragment,
    /// A port scan.
    PortScan,
    /// A SYN flood.
    SynFlood,
    /// A UDP flood.
    UdpFlood,
    /// Packets from an address to itself.
    Land,
    /// Packets with a defect; only these may have wrong checksums.
    Malformed,
}

/// Counters of a generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames yielded.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows begun.
    pub flows_begun: u64,
    /// Flows ended.
    pub flows_ended: u64,
    /// Arrivals refused because the maximum number of flows was open; of more than a thousand
    /// arrivals in one gap, the mean number.
    pub flows_refused: u64,
}
