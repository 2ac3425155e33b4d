//! What a unit is told when it starts.

use crate::message::{Targets, UnitId};

use crate::unit::timers::NEVER_NS;

/// The most slots of flows that a unit knows. What belongs to a slot beyond them is refused and
/// counted.
pub const FLOWS_MAX: u32 = 1 << 22;

/// The most epochs of one flow that a unit is the owner of and has not done with. What would begin
/// another is refused and counted. Only who assigns packets one by one, and faster than states can
/// follow, has more than a few.
pub const OWNERSHIPS_MAX: usize = 1 << 16;

/// The most flows whose slots others have that a unit remembers, so as not to end them twice. The
/// oldest are forgotten.
pub const TOMBSTONES_MAX: usize = 1 << 16;

/// So many times [`reorder_timeout_ns`](Config::reorder_timeout_ns) after a flow was released its state is sent to the
/// new owner unasked, if nothing has been heard from there: all that told it of the flow may have
/// been lost.
pub const OFFER_AFTER_TIMEOUTS: u64 = 8;

/// So many times the time doubles after which something is said once more.
pub const BACKOFF_DOUBLINGS_MAX: u32 = 6;

/// How a unit works, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Which unit it is.
    pub id: UnitId,
    /// After how much silence a flow's state is copied ahead, ns: 250,000 by default (S51). `None`:
    /// never.
    pub replicate_after_ns: Option<u64>,
    /// Whether copies tell only what has changed since one that the other unit has, as far as is
    /// known; else they are whole.
    pub deltas: bool,
    /// How long a packet that comes out of order waits for those before it, ns. Then they are given
    /// up.
    pub reorder_timeout_ns: u64,
    /// After how long a state that is awaited is asked for once more, and one that was not
    /// acknowledged is sent once more, ns. Each further time it is twice as long, up to
    /// [`BACKOFF_DOUBLINGS_MAX`] times.
    pub retransmit_ns: u64,
    /// The most packets pending, of all flows. Beyond, gaps are given up at once; what waits for a
    /// state is dropped.
    pub pending_max: usize,
    /// The most packets pending of one flow; beyond, the same.
    pub pending_per_flow_max: usize,
    /// The most bytes of copied states kept, with those that tell what has changed since. Beyond,
    /// the oldest go.
    pub replica_bytes_max: usize,
    /// After how much silence a flow's end is proposed to the dispatcher, ns, and proposed again.
    /// `None`: never.
    pub expire_after_ns: Option<u64>,
}

impl Config {
    /// After how much silence something is due for a flow whose state is here and goes to these
    /// targets: a copy, or its end.
    pub(crate) fn silence_ns(&self, targets: &Targets) -> u64 {
        let copy_ns = self.replicate_after_ns.filter(|_| *targets != Targets::NONE);
        copy_ns.unwrap_or(NEVER_NS).min(self.expire_after_ns.unwrap_or(NEVER_NS))
    }

    /// How long to wait after something was said once, and so many times more.
    pub(crate) fn again_ns(&self, times: u32) -> u64 {
        self.retransmit_ns.saturating_mul(1 << times.min(BACKOFF_DOUBLINGS_MAX))
    }

    /// How long something is said again and again: after that nobody waits for what was to follow.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.again_ns(BACKOFF_DOUBLINGS_MAX).saturating_mul(2)
    }

    /// The defaults, for this unit.
    pub fn new(id: UnitId) -> Config {
        Config {
            id,
            replicate_after_ns: Some(250_000), // S51
            deltas: false,
            reorder_timeout_ns: 1_000_000,
            retransmit_ns: 10_000_000,
            pending_max: 65_536,
            pending_per_flow_max: 1_024,
            replica_bytes_max: 64 << 20,
            expire_after_ns: None,
        }
    }
}
