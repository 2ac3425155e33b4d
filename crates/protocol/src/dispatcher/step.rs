//! The effects of one input of the dispatcher.

use crate::dispatcher::counters::Counters;
use crate::dispatcher::output::DispatcherOutput;
use crate::message::{FromDispatcher, UnitId};

/// One input of the dispatcher: its time, and where its effects are counted and returned.
pub(crate) struct Step<'a> {
    now_ns: u64,
    counters: &'a mut Counters,
    outputs: &'a mut Vec<DispatcherOutput>,
}

impl<'a> Step<'a> {
    /// Begins the input of this time.
    pub fn new(now_ns: u64, counters: &'a mut Counters, outputs: &'a mut Vec<DispatcherOutput>) -> Step<'a> {
        Step { now_ns, counters, outputs }
    }

    /// Returns the time.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the counters, to be increased.
    #[inline]
    pub fn counters(&mut self) -> &mut Counters {
        self.counters
    }

    /// Adds a message to a unit.
    pub fn send(&mut self, to: UnitId, message: FromDispatcher) {
        self.push(DispatcherOutput::Send { to, message });
    }

    /// Adds an output.
    pub fn push(&mut self, output: DispatcherOutput) {
        self.outputs.push(output);
    }
}

impl Extend<DispatcherOutput> for Step<'_> {
    fn extend<I: IntoIterator<Item = DispatcherOutput>>(&mut self, outputs: I) {
        self.outputs.extend(outputs);
    }
}
