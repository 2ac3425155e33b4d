//! What a function decides about a packet.

use packet::DropReason;

/// What is to become of a packet.
#[must_use = "a verdict that is ignored forwards what a function meant to drop"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On to the next function, or out.
    Forward,
    /// Gone, for this reason; the chain counts it.
    Drop(DropReason),
    /// Back towards the side that it came from, through the functions it already passed, in reverse
    /// (hairpinning).
    TurnBack,
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// No packet for as long as the flow was to be kept.
    Idle,
    /// Its connection was closed or reset, and the time to wait for stragglers is over.
    Closed,
    /// The chain dropped all of its first packets, so it never was one.
    Rejected,
    /// The flow table was full, and this flow was the one to go.
    Evicted,
    /// The run is over.
    Shutdown,
}

impl EndReason {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            EndReason::Idle => "idle",
            EndReason::Closed => "closed",
            EndReason::Rejected => "rejected",
            EndReason::Evicted => "evicted",
            EndReason::Shutdown => "shutdown",
        }
    }
}
