//! Backends: the ways to run a policy's graph over batches of packets. The runner does not know
//! which one it has.
//!
//! | backend | runs the graph |
//! |---|---|
//! | [`Inline`] | on the calling thread |
//! | [`Elastic`](crate::elastic::Elastic) | on units that come and go |
//! | [`Shard`](crate::shards::Shard) | on the calling thread, for one worker's share of the flows |

use std::os::fd::BorrowedFd;

use hdrhistogram::Histogram;
use nf::Effects;
use packet::{Packet, PacketPool};
use protocol::message::UnitId;

use crate::batch::Core;
use crate::operator::{DispatcherStatus, OperatorRequest};
use crate::report::Report;
use crate::worker::SnoopedFrame;
use crate::worker::counters::Counters;

/// A way to run a policy's graph.
///
/// Packets that leave, and those that are dropped, are accounted for in the graph or in the report.
pub(crate) trait Backend {
    /// Processes packets in order of arrival and empties the batch.
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>);

    /// Lets time pass up to `now_ns`: flows expire, and fragments give their buffers back.
    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>);

    /// Returns whether packets are pending: they leave during a later call.
    fn has_pending(&self) -> bool {
        false
    }

    /// Returns whether packets that have waited at ports while this process did not run are still
    /// wanted, however long that was.
    fn takes_stale(&self) -> bool {
        true
    }

    /// Returns what becomes readable when something arrives from other machines, such as packets
    /// that were pending there.
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until no packet is pending.
    fn settle(&mut self, _core: Core<'_>) {}

    /// Ends all flows that the graph of the calling thread does not have. Returns false if it must
    /// be called again once the output has been taken.
    fn finish(&mut self, _core: Core<'_>) -> bool {
        true
    }

    /// Repeats an operator's command, which the function `stage` of the calling thread's graph has
    /// accepted, for other graphs.
    fn control(&mut self, _stage: usize, _command: &str) {}

    /// Answers an operator's request about units.
    fn operate(&mut self, request: OperatorRequest, _core: Core<'_>) {
        request.refuse();
    }

    /// Returns the state of the dispatcher, if units run the policy.
    fn dispatcher_status(&self) -> Option<DispatcherStatus> {
        None
    }

    /// Asks other threads for their counters; a later [`add_to_report`](Backend::add_to_report) has
    /// them.
    fn ask_for_figures(&mut self) {}

    /// Adds everything that the graph of the calling thread has not counted.
    fn add_to_report(&self, _report: &mut Report, _names: &[String]) {}

    /// Returns effects of other graphs, to be taken.
    fn effects_mut(&mut self) -> Option<&mut Vec<Effects>> {
        None
    }

    /// Returns whether packets may leave during a later call than the one that brought them; the
    /// backend measures their latency then.
    fn is_deferred(&self) -> bool {
        false
    }

    /// Records the latency of packets that leave now.
    fn record_latency(&mut self, _out: &[Packet], _latency: &mut Histogram<u64>) {}

    /// Counts a packet that a port dropped before the graph.
    fn count_refused(&mut self) {}

    /// Returns buffers beyond `keep` to their owners on other threads.
    fn return_buffers(&mut self, _pool: &mut PacketPool, _keep: usize) {}

    /// Returns the counters of a worker; `None` unless there are several.
    fn worker_counters(&self) -> Option<Counters> {
        None
    }

    /// Shares a received frame about a neighbour of this port with all other workers.
    fn share_snooped(&mut self, _port: u16, _frame: &[u8]) {}

    /// Returns frames about neighbours that other workers have received.
    fn take_snooped(&mut self) -> Vec<SnoopedFrame> {
        Vec::new()
    }

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    fn unit_loads(&self) -> Vec<(UnitId, f64, u32)> {
        Vec::new()
    }
}

/// Runs the graph on the calling thread.
pub(crate) struct Inline;

impl Backend for Inline {
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>) {
        core.graph.process(batch, core.out, core.pool);
    }

    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>) {
        core.graph.handle_timeout(now_ns, core.pool);
    }
}
