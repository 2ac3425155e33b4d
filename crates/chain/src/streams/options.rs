//! How streams are put together.

/// How streams are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Which bytes count where segments overlap.
    pub policy: HostPolicy,
    /// Memory for segments that came too early, all flows together, in bytes. Without room, the flow that needs it gives up
    /// waiting: a gap.
    pub memory: usize,
    /// The same for one direction of one flow.
    pub memory_per_stream: u32,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { policy: HostPolicy::Linux, memory: 32 << 20, memory_per_stream: 256 << 10 }
    }
}

/// Which bytes count where segments that wait overlap: hosts differ, and who tells their attackers apart must know how
/// (Novak and Sturges, "Target-Based TCP Stream Reassembly", 2007). What was delivered already counts in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostPolicy {
    /// Those that came first.
    First,
    /// Those that came last.
    Last,
    /// Those that came first, unless the later segment begins before theirs (BSD, Windows).
    Bsd,
    /// Those that came first, unless the later segment begins before theirs or at the same place.
    #[default]
    Linux,
}

impl HostPolicy {
    /// Whether bytes of a segment that begins at `new` replace those of an earlier one that begins at `old`.
    pub(super) fn prefers_new(self, new: u64, old: u64) -> bool {
        match self {
            HostPolicy::First => false,
            HostPolicy::Last => true,
            HostPolicy::Bsd => new < old,
            HostPolicy::Linux => new <= old,
        }
    }
}
