//! The order of the dispatcher's steps.
//!
//! [`pump`](Elastic::pump) applies what has arrived, after each batch and after each wait. One thing
//! brings about others: a report has messages, a message leads to outputs of the dispatcher, and
//! these to messages of units. So each step runs until there is nothing left for it:
//!
//! ```text
//! flush:  pending packets cross the graph, where this thread has it
//! pump:   changes of units -> reports, each with outputs -> claimed keys -> packets that waited
//! wait:   (start over if state was lost) -> units work -> pump
//! ```

use protocol::dispatcher::DispatcherOutput;

use super::Elastic;
use crate::transport::{Barrier, FastLane, Started, Transport, UnitNodes};

impl<T: Transport> Elastic<T> {
    /// Applies everything that has arrived. The order matters: the loss of a unit comes before the
    /// reports that rest on it; a report's aliases, ends and messages come before the packets that
    /// have waited for them.
    pub(super) fn pump(&mut self) {
        self.take_changes();
        self.take_returns();
        self.give_claimed_up();
        self.dispatch_again();
    }

    /// Sends pending packets through the graph where this thread can do that, and applies the
    /// result.
    pub(super) fn flush(&mut self) {
        if let Some(lane) = self.transport.fast_lane() {
            lane.flush();
        }
        self.pump();
    }

    /// Notifies units of the time after a batch, and applies what has arrived.
    pub(super) fn end_batch(&mut self) {
        self.transport.end_batch(self.now_ns);
        self.pump();
    }

    /// Waits as long as this is the case, and starts over if a unit has lost state.
    pub(super) fn wait_while(&mut self, is_so: impl Fn(&mut Elastic<T>) -> bool) {
        while is_so(self) {
            if self.has_failed() {
                self.start_over();
            }
            self.wait();
        }
    }

    /// Waits a little for units, and applies what has arrived.
    fn wait(&mut self) {
        if let Some(units) = self.transport.barrier() {
            units.wait();
        }
        self.pump();
    }

    /// Returns whether a unit has lost state.
    fn has_failed(&mut self) -> bool {
        self.transport.barrier().is_some_and(|units| units.has_failed())
    }

    /// Returns whether the dispatcher must take no further packets, or start over first.
    pub(super) fn is_full(&mut self) -> bool {
        self.transport.barrier().is_some_and(|units| units.is_full() || units.has_failed())
    }

    /// Waits until no packet is pending at a unit.
    pub(super) fn settle_units(&mut self) {
        self.flush();
        self.wait_while(|this| this.transport.has_pending() || this.has_failed());
    }

    /// Waits until no packet waits for its affinity group.
    pub(super) fn await_groups(&mut self) {
        self.wait_while(|this| !this.waiting.is_empty());
    }

    /// Waits until units have answered and nothing is in flight between them.
    pub(super) fn await_answers(&mut self) {
        self.pump();
        while self.transport.barrier().is_some_and(|units| units.has_unanswered()) {
            self.wait();
        }
        // Sent before the last message was handled.
        self.pump();
    }

    /// Ends all flows of all units after one has lost some of its state, so that no unit waits for
    /// lost state. Packets that wait for state are dropped.
    #[cold]
    fn start_over(&mut self) {
        self.is_starting_over = true;
        while let Some(units) = self.transport.barrier()
            && units.has_failed()
        {
            units.reset_units();
            self.await_answers();
        }
        self.dispatcher.end_all();
        self.outputs.clear();
        self.waiting.take_all(&mut self.again);
        // A unit that still discards what it receives must not get messages of others.
        if let Some(units) = self.transport.barrier() {
            units.resume_units();
        }
        self.await_answers();
        self.is_starting_over = false;
    }

    /// Executes the dispatcher's outputs, and the outputs that follow from them.
    pub(super) fn execute_outputs(&mut self) {
        while !self.outputs.is_empty() {
            let mut outputs = std::mem::take(&mut self.outputs);
            outputs.drain(..).for_each(|output| self.execute(output));
            if self.outputs.is_empty() {
                self.outputs = outputs; // Keeps its capacity.
            }
            self.handle_messages();
        }
        self.due_ns =
            self.due_ns.min(self.dispatcher.next_timeout_ns()).min(self.transport.next_timeout_ns());
    }

    /// Applies messages that units in memory sent just now.
    pub(super) fn take_messages(&mut self) {
        self.handle_messages();
        self.execute_outputs();
    }

    fn handle_messages(&mut self) {
        if let Some(lane) = self.transport.fast_lane() {
            lane.take_messages(&mut |unit, message| {
                self.dispatcher.handle_message(self.now_ns, unit, message, &mut self.outputs);
            });
        }
    }

    fn execute(&mut self, output: DispatcherOutput) {
        let since_ns = self.since_ns(self.now_ns);
        match output {
            DispatcherOutput::Send { to, message } => self.transport.message(self.now_ns, to, message),
            DispatcherOutput::Start(unit) => match self.transport.start(unit) {
                Started::Ready => {
                    self.intervals.set_on(since_ns, unit, true);
                    self.set_ready(unit);
                }
                Started::Pending => self.intervals.set_on(since_ns, unit, true),
                Started::Unchanged => {}
            },
            DispatcherOutput::GroupSettled(group) => self.waiting.take(group, &mut self.again),
            DispatcherOutput::Replicated(flow) => self.copying.replicated(self.now_ns, flow),
            DispatcherOutput::Stop(unit) => {
                self.intervals.set_ready(since_ns, unit, false);
                self.intervals.set_on(since_ns, unit, false);
                if let Some(nodes) = self.transport.nodes_mut()
                    && !nodes.stopped(unit)
                {
                    self.dispatcher.membership().retire(unit);
                }
            }
        }
    }
}
