//! How streams are put together.

use super::span::Span;

/// How streams are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Which bytes count where segments overlap.
    pub policy: HostPolicy,
    /// Memory for segments that came too early, all flows together, in bytes. Without room, the
    /// flow that needs it gives up waiting: a gap; or in line, as `when_full` says.
    pub memory: usize,
    /// What the flows of one source may hold of it, and of [`super::SENT_MEMORY`], once three
    /// quarters are taken, in percent.
    pub per_source: u8,
    /// Chooses the accounts of sources.
    pub seed: u64,
    /// The same for one direction of one flow.
    pub memory_per_stream: u32,
    /// Where hosts read urgent bytes.
    pub urgent: Urgent,
    /// Packets with a time to live below this may end before they reach their host; if none is
    /// said, [`TTL_MIN`], or in line [`TTL_MIN_INLINE`].
    pub ttl_min: Option<u8>,
    /// Whether packets pass only if hosts take them as they are inspected, where a function
    /// prevents attacks.
    pub normalize: bool,
    /// What becomes of packets with a lower one, in line.
    pub low_ttl: LowTtl,
    /// What becomes of segments that differ from what was sent before, in line.
    pub differing: Differing,
    /// Whether a function prevents attacks: the chain sets it.
    pub inline: bool,
    /// What becomes of segments that there is no memory to keep, in line.
    pub when_full: WhenFull,
}

/// What [`StreamOptions::ttl_min`] is where packets are only looked at: hosts are on the other side
/// of a router at most.
pub const TTL_MIN: u8 = 2;
/// The same where packets are dropped that end before their host: only what explores the way has
/// less.
pub const TTL_MIN_INLINE: u8 = 5;

/// What becomes of what cannot be inspected for lack of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// It passes.
    Pass,
    /// It is dropped.
    #[default]
    Drop,
}

/// What becomes of packets that may end before they reach their host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LowTtl {
    /// They are dropped.
    #[default]
    Drop,
    /// They get the least time to live that may not.
    Raise,
}

/// What becomes of segments whose bytes differ from those that were sent before for the same place.
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
            when_full: WhenFull::Drop,
        }
    }
}

/// Which bytes count where segments that wait overlap: hosts differ, and who tells their attackers
/// apart must know how (Novak and Sturges, "Target-Based TCP Stream Reassembly", 2007). What was
/// delivered already counts in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostPolicy {
    /// Those that came first.
    First,
    /// Those that came last.
    Last,
    /// Those that came first, unless the later segment begins before theirs (BSD, Windows).
    Bsd,
    /// Those that came first, unless the later segment begins before theirs, or at the same place
    /// and ends after theirs. A segment that follows another one that waits is one with it
    /// (`tcp_data_queue_ofo`).
    #[default]
    Linux,
}

impl HostPolicy {
    /// Whether bytes of a new segment replace those of an old one.
    pub(super) fn prefers_new(self, new: Span, old: Span) -> bool {
        match self {
            HostPolicy::First => false,
            HostPolicy::Last => true,
            HostPolicy::Bsd => new.from < old.from,
            HostPolicy::Linux => new.from < old.from || new.from == old.from && new.until > old.until,
        }
    }
}

/// Where a host reads urgent bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Urgent {
    /// Beside the stream, which goes on without them: what sockets do unless their program asks for
    /// something else.
    #[default]
    OutOfBand,
    /// In the stream (`SO_OOBINLINE`).
    Inline,
}
