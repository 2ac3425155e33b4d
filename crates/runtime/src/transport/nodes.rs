//! Units on other machines.

use std::os::fd::BorrowedFd;

use nf::AffinityGroup;
use protocol::message::{FlowId, UnitId};

/// The nodes of units: other machines, or other processes. Units there handle their deadlines by
/// clocks of their own; the dispatcher does not wait for that. While this process does not run,
/// others may take its flows: packets that have waited that long at ports are stale.
pub trait UnitNodes {
    /// Notes that a flow begins, in this affinity group.
    fn begin(&mut self, flow: FlowId, group: Option<AffinityGroup>);

    /// Notes that the dispatcher has stopped a unit, which has no flows. Returns whether it may be
    /// started again; if not, a replacement has another number.
    fn stopped(&mut self, unit: UnitId) -> bool;

    /// Notes that an operator drains a unit, or has resumed it.
    fn set_draining(&mut self, unit: UnitId, is_draining: bool);

    /// Returns true if there is something that can become one more unit at once.
    fn has_spare(&self) -> bool;

    /// Returns true if a unit has as many packets in flight as it may: further ones must be
    /// dropped.
    fn has_full_units(&self) -> bool;

    /// Returns true if this unit is such a one.
    fn is_unit_full(&self, unit: UnitId) -> bool;

    /// Returns what becomes readable when something arrives from other machines, such as packets
    /// that were pending there.
    fn event(&self) -> Option<BorrowedFd<'_>>;
}
