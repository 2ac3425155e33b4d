//! The fleet of units.

use protocol::message::UnitId;

/// The units of a transport, from their start to their end. A stopped unit has no flows, and stays
/// as it is until it is started again, unless [`UnitNodes`](super::UnitNodes) says otherwise.
pub trait Fleet {
    /// Returns whether a unit is there from the beginning.
    fn is_ready(&self, unit: UnitId, units_min: u16) -> bool;

    /// Starts a unit.
    fn start(&mut self, unit: UnitId) -> Started;

    /// Returns the next change of units that the dispatcher did not ask for.
    fn poll_change(&mut self) -> Option<UnitChange>;

    /// Repeats an operator's command for the units' graphs.
    fn control(&mut self, stage: usize, command: &str);

    /// Ends all flows of units.
    fn finish(&mut self);

    /// Returns whether all units have ended their flows.
    fn has_finished(&mut self) -> bool;
}

/// A change of units that the dispatcher did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChange {
    /// One more unit is to run.
    Join,
    /// The unit will stop: it is drained.
    Leave(UnitId),
    /// The unit has crashed, with its flows.
    Crash(UnitId),
    /// The unit was drained, and never runs again.
    Retire(UnitId),
    /// The unit is silent: its flows stay, and new ones go to others.
    Suspect(UnitId),
    /// The unit answers again.
    Heard(UnitId),
}

/// Outcome of starting a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is ready.
    Ready,
    /// It will report when it is ready.
    Pending,
    /// Nothing changes: it is starting already, or cannot be started.
    Unchanged,
}
