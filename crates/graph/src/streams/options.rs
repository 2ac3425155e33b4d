//! Options of stream reassembly.

use super::span::Span;

/// Options of stream reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The bytes that count where segments overlap.
    pub policy: HostPolicy,
    /// Memory of the out-of-order queues of all flows, in bytes. Without room, the flow that needs
    /// it gets a gap; inline, see `when_full`.
    pub memory: usize,
    /// The share of one source in it, and in [`super::SENT_MEMORY`], once three quarters are taken,
    /// in percent.
    pub per_source: u8,
    /// Chooses the accounts of sources.
    pub seed: u64,
    /// Memory of the out-of-order queue of one direction of a flow, in bytes.
    pub memory_per_stream: u32,
    /// The place where hosts read urgent bytes.
    pub urgent: Urgent,
    /// Packets with a lower TTL may expire before they reach their host. Unset: [`TTL_MIN`], or
    /// inline [`TTL_MIN_INLINE`].
    pub ttl_min: Option<u8>,
    /// Inline, passes packets only if hosts read them as they were inspected.
    pub normalize: bool,
    /// Inline, the policy for packets with a lower TTL.
    pub low_ttl: LowTtl,
    /// Inline, the policy for retransmissions with other bytes.
    pub differing: Differing,
    /// True if a function prevents attacks; set by the graph.
    pub inline: bool,
    /// Inline, the policy for segments without memory to keep them.
    pub when_full: WhenMemoryFull,
}

/// Default of [`StreamOptions::ttl_min`] where packets are only inspected: hosts are at most one
/// router away.
pub const TTL_MIN: u8 = 2;
/// Default inline, where packets that expire before their host are dropped: only probes of the
/// route have less.
pub const TTL_MIN_INLINE: u8 = 5;

/// The policy for segments that cannot be inspected for lack of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenMemoryFull {
    /// It passes.
    Pass,
    /// It is dropped.
    #[default]
    Drop,
}

/// The policy for packets that may expire before they reach their host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LowTtl {
    /// They are dropped.
    #[default]
    Drop,
    /// Their TTL is raised to the minimum that reaches the host.
    Raise,
}

/// The policy for retransmissions that differ from the bytes sent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Differing {
    /// They are dropped.
    #[default]
    Drop,
    /// They get the bytes that were sent first.
    Replace,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            policy: HostPolicy::Linux,
            memory: 32 << 20,
            per_source: nf::BUFFER_SHARE_PERCENT,
            seed: 0,
            memory_per_stream: 256 << 10,
            urgent: Urgent::OutOfBand,
            ttl_min: None,
            normalize: true,
            low_ttl: LowTtl::Drop,
            differing: Differing::Drop,
            inline: false,
            when_full: WhenMemoryFull::Drop,
        }
    }
}

/// The bytes that count where segments in the out-of-order queue overlap. Hosts differ (Novak and
/// Sturges, "Target-Based TCP Stream Reassembly", 2007). Delivered bytes count in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostPolicy {
    /// The first to arrive.
    First,
    /// The last to arrive.
    Last,
    /// The first to arrive, unless the later segment begins before theirs (BSD, Windows).
    Bsd,
    /// The first to arrive, unless the later segment begins before theirs, or at the same offset
    /// and ends after theirs. Adjacent queued segments count as one (`tcp_data_queue_ofo`).
    #[default]
    Linux,
}

impl HostPolicy {
    /// Returns true if bytes of a new segment replace those of an old one.
    pub(super) fn prefers_new(self, new: Span, old: Span) -> bool {
        match self {
            HostPolicy::First => false,
            HostPolicy::Last => true,
            HostPolicy::Bsd => new.from < old.from,
            HostPolicy::Linux => new.from < old.from || new.from == old.from && new.until > old.until,
        }
    }
}

/// The place where a host reads urgent bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Urgent {
    /// Outside the stream, which continues without them: the default of sockets.
    #[default]
    OutOfBand,
    /// In the stream (`SO_OOBINLINE`).
    Inline,
}
