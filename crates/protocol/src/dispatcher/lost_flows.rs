//! Flows that ended because their state was lost, for those who reset their hosts.

use packet::FlowKey;

/// Limit on the noted lost flows that nobody has taken. Further ones are not noted.
pub const LOST_FLOWS_MAX: usize = 65_536;

/// A TCP flow whose state was lost with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostFlow {
    /// The key of its first packet.
    pub key: FlowKey,
    /// The key of its packets behind the functions, if it is another one.
    pub alias: Option<FlowKey>,
    /// A packet whose key has its source first has an alias with its source last, or the other way
    /// around. `None` if that is not known.
    pub is_turned: Option<bool>,
}
