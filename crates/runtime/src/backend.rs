//! Backends: the ways to run a policy's graph over batches of packets.
//!
//! | backend | runs the graph |
//! |---|---|
//! | [`Inline`] | on the calling thread |
//! | [`Elastic`](crate::elastic::Elastic) | on units that come and go |
//! | [`Shard`](crate::shards::Shard) | on the calling thread, for one worker's share of the flows |
//!
//! All are a [`Backend`]. Workers and units have further methods, so a runner is built with one or
//! the other: see [`AnyBackend`].

use std::os::fd::BorrowedFd;

use hdrhistogram::Histogram;
use nf::Effects;
use packet::{Packet, PacketPool};
use protocol::message::UnitId;

use crate::batch::Core;
use crate::operator::{DispatcherStatus, OperatorRequest};
use crate::report::Report;
use crate::worker::counters::Counters;
use crate::worker::{SnoopedFrame, WorkerPlace};

/// A way to run a policy's graph.
///
/// Packets that leave or are dropped are accounted for in the graph or in the report.
pub(crate) trait Backend {
    /// Processes packets in order of arrival and empties the batch.
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>);

    /// Advances the time to `now_ns`: flows expire, and fragments return their buffers.
    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>);

    /// Returns whether packets are pending: they leave during a later call.
    fn has_pending(&self) -> bool;

    /// Ends all flows that the graph of the calling thread does not have. Returns false if it must
    /// be called again once the output has been taken.
    fn finish(&mut self, core: Core<'_>) -> bool;
}

/// A backend of one of several workers.
pub(crate) trait WorkerBackend: Backend {
    /// Counts a packet that a port dropped before the graph.
    fn count_refused(&mut self);

    /// Returns buffers beyond `keep` to their owners on other threads.
    fn return_buffers(&mut self, pool: &mut PacketPool, keep: usize);

    /// Returns the worker's counters.
    fn counters(&self) -> Counters;

    /// Shares a received frame about a neighbour of this port with all other workers.
    fn share_snooped(&mut self, port: u16, frame: &[u8]);

    /// Returns frames about neighbours that other workers have received.
    fn take_snooped(&mut self) -> Vec<SnoopedFrame>;
}

/// A backend of a dispatcher with its units.
pub(crate) trait UnitsBackend: Backend + UnitsFigures {
    /// Waits until no packet is pending.
    fn settle(&mut self, core: Core<'_>);

    /// Returns whether packets that have waited at ports while this process did not run are still
    /// wanted, however long that was.
    fn takes_stale(&self) -> bool;

    /// Returns what becomes readable when something arrives from other machines, such as packets
    /// that were pending there.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Repeats an operator's command, which the function `stage` of the calling thread's graph has
    /// accepted, for other graphs.
    fn control(&mut self, stage: usize, command: &str);

    /// Answers an operator's request about units.
    fn operate(&mut self, request: OperatorRequest, core: Core<'_>);

    /// Returns effects of other graphs, to be taken.
    fn effects_mut(&mut self) -> &mut Vec<Effects>;
}

/// Figures of a dispatcher and its units.
pub(crate) trait UnitsFigures {
    /// Returns the state of the dispatcher.
    fn dispatcher_status(&self) -> DispatcherStatus;

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    fn unit_loads(&self) -> Vec<(UnitId, f64, u32)>;

    /// Requests the counters of other threads; a later
    /// [`add_to_report`](UnitsFigures::add_to_report) has them.
    fn ask_for_figures(&mut self);

    /// Adds everything that the graph of the calling thread has not counted.
    fn add_to_report(&self, report: &mut Report, names: &[String]);

    /// Returns whether packets may leave during a later call; the backend measures their latency
    /// then.
    fn is_deferred(&self) -> bool;

    /// Records the latency of packets that leave now.
    fn record_latency(&mut self, out: &[Packet], latency: &mut Histogram<u64>);
}

/// The backend that a runner is built with.
pub(crate) enum AnyBackend {
    /// The calling thread alone.
    Inline(Inline),
    /// One of several workers, and its place.
    Worker(WorkerPlace, Box<dyn WorkerBackend>),
    /// A dispatcher with its units.
    Units(Box<dyn UnitsBackend>),
}

impl AnyBackend {
    /// Returns the place among workers, if there are several.
    pub fn place(&self) -> Option<&WorkerPlace> {
        match self {
            AnyBackend::Worker(place, _) => Some(place),
            AnyBackend::Inline(_) | AnyBackend::Units(_) => None,
        }
    }

    /// Returns what all backends do.
    pub fn any(&self) -> &dyn Backend {
        match self {
            AnyBackend::Inline(inline) => inline,
            AnyBackend::Worker(_, worker) => &**worker,
            AnyBackend::Units(units) => &**units,
        }
    }

    /// Returns what all backends do, to be done.
    pub fn any_mut(&mut self) -> &mut dyn Backend {
        match self {
            AnyBackend::Inline(inline) => inline,
            AnyBackend::Worker(_, worker) => &mut **worker,
            AnyBackend::Units(units) => &mut **units,
        }
    }

    /// Returns the worker, if there are several.
    pub fn worker(&self) -> Option<&dyn WorkerBackend> {
        if let AnyBackend::Worker(_, worker) = self { Some(&**worker) } else { None }
    }

    /// Returns the worker, to be changed.
    pub fn worker_mut(&mut self) -> Option<&mut dyn WorkerBackend> {
        if let AnyBackend::Worker(_, worker) = self { Some(&mut **worker) } else { None }
    }

    /// Returns the dispatcher with its units, if units run the policy.
    pub fn units(&self) -> Option<&dyn UnitsBackend> {
        if let AnyBackend::Units(units) = self { Some(&**units) } else { None }
    }

    /// Returns the dispatcher with its units, to be changed.
    pub fn units_mut(&mut self) -> Option<&mut dyn UnitsBackend> {
        if let AnyBackend::Units(units) = self { Some(&mut **units) } else { None }
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

    fn has_pending(&self) -> bool {
        false
    }

    fn finish(&mut self, _core: Core<'_>) -> bool {
        true
    }
}
