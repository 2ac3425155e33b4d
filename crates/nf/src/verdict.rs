//! An NF's decision about a packet, and the reasons for a flow's end.

use packet::DropReason;

/// An NF's decision about a packet.
#[must_use = "a verdict that is ignored forwards what a function meant to drop"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To the next NF, or out.
    Forward,
    /// Discarded and counted for this reason.
    Drop(DropReason),
    /// Back to its side of entry, through the NFs that it passed, in reverse (hairpinning).
    TurnBack,
}

impl Verdict {
    /// Returns true if the packet is forwarded. Cheaper than a comparison, for loops over packets.
    #[inline(always)]
    pub const fn is_forward(self) -> bool {
        matches!(self, Verdict::Forward)
    }
}

/// The reason for a flow's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// No packet within the flow's timeout.
    Idle,
    /// The connection was closed or reset, and its linger time has passed.
    Closed,
    /// All first packets were dropped, so the flow was never accepted.
    Rejected,
    /// Evicted from the full flow table.
    Evicted,
    /// The run ended.
    Shutdown,
}

impl EndReason {
    /// Returns the name in reports.
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
