//! Waits for units that run concurrently with the dispatcher.

/// The wait for units that run concurrently with the dispatcher's thread, and answer later. Units
/// in the memory of the thread have none: they have answered when a call returns.
pub trait Barrier {
    /// Waits a little for units.
    fn wait(&mut self);

    /// Returns whether the dispatcher must take no further packets.
    fn is_full(&self) -> bool;

    /// Requests answers of units that were sent messages, once they have handled them.
    fn drain_messages(&mut self);

    /// Returns whether answers, or messages between units, are outstanding.
    fn has_unanswered(&self) -> bool;

    /// Returns whether a flow's state is on its way from unit to unit, or not acknowledged.
    fn is_moving(&self) -> bool;

    /// Returns whether a unit has lost state.
    fn has_failed(&self) -> bool;

    /// Makes all units end their flows and discard what they receive; they answer.
    fn reset_units(&mut self);

    /// Resumes all units after a reset; they answer.
    fn resume_units(&mut self);
}
