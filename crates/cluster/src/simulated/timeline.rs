//! The timeline of a simulated run.

use protocol::trace::{FlowPlace, Machine, TimelineEvent, TraceDetail};
use runtime::timeline;

use super::world::{Node, NodeId, World};

impl World {
    /// Lets machines that are created in this call note what happens, as those of this node.
    pub fn recorded<R>(&self, node: NodeId, create: impl FnOnce() -> R) -> R {
        let name = self.nodes.borrow()[node.0].name.clone();
        timeline::recorded(&self.timeline, &name, TraceDetail::Packets, create)
    }

    /// Notes a fault of a node.
    pub fn note_fault(&self, node: &Node, kind: &'static str) {
        let trace = self.timeline.trace(&node.name, Machine::Host, TraceDetail::Packets);
        trace.note(self.run_time_ns(), FlowPlace::NONE, None, TimelineEvent::Fault { kind });
    }

    /// Sets the time of what is noted from now on.
    pub fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
        self.timeline.set_time(self.run_time_ns());
    }
}
