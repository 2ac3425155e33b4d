//! The sharded backend: several workers, each with a fixed share of the flows.
//!
//! A worker is a thread with a graph, and with sockets of its own on each interface. A packet runs
//! to completion on the worker that owns its flow:
//!
//! ```text
//! interface a --> worker 0: classify --own flow--> graph --> interface b
//!                     |  ^
//!                     |  | a ring per pair of workers and direction
//!                     v  |
//! interface a --> worker 1: classify --own flow--> graph --> interface b
//! ```
//!
//! The owner follows from a hash of the flow's key, the same for both directions, or from the
//! directory of aliases for keys that NFs rewrote. A worker hands packets of other workers' flows
//! over to them. The NFs of all graphs share their state, except counters, see
//! [`nf::SharedHandle`]. `docs/decisions/0025-workers-own-flows.md` has the reasons.

mod crew;
mod directory;
mod link;

use std::sync::Arc;

use graph::{FlowLookup, Graph};
use nf::SharedHandle;
use packet::{DropReason, Packet, PacketClass, PacketPool};

use crate::assembly::Assembly;
use crate::backend::{AnyBackend, Backend, WorkerBackend};
use crate::batch::{BATCH, Core};
use crate::doorbell::{Doorbell, EventWaker};
use crate::runner::Runner;
pub use crate::worker::counters::Counters;
use crate::worker::{SnoopedFrame, WorkerPlace};

pub use crew::{OutputError, WorkerSetup, Workers, WorkersError};
use directory::{Directory, WorkerAliases};
pub use link::RING;
use link::{FromWorker, Handover, ToWorker, link};

/// Limit on workers.
pub const WORKERS_MAX: usize = 64;
const _: () = assert!(WORKERS_MAX <= directory::NAMED_MAX);

/// Handovers taken from one worker before the next one has its turn.
const HANDOVERS_PER_TURN: usize = BATCH;

/// Least number of small buffers of a worker, even if many are at other workers.
const BUFFERS_MIN: usize = 4 * BATCH;

/// A worker's share of the flows, and its rings to other workers.
pub struct Shard {
    number: usize,
    directory: Arc<Directory>,
    doorbell: Arc<Doorbell<EventWaker>>,
    /// By worker; `None` for itself.
    to: Vec<Option<ToWorker>>,
    from: Vec<Option<FromWorker>>,
    /// Packets to process here, in order.
    own: Vec<Packet>,
    /// Frames about neighbours that other workers received, with their ports.
    snooped: Vec<SnoopedFrame>,
    /// Scratch space.
    waited: Vec<Packet>,
    surplus: Vec<Packet>,
    counters: Counters,
}

/// The parts that one worker runs.
pub struct WorkerPart {
    pub(crate) assembly: Assembly,
    pub(crate) name: String,
    pub(crate) shard: Box<Shard>,
}

/// Creates a worker for each assembly; their reports carry `name`. The assemblies must be of the
/// same policy with the same seed ([`crate::assemble_part`]). Their NFs share state from then on.
///
/// # Errors
/// If the process has no file descriptors left, which wake workers.
pub fn parts(assemblies: Vec<Assembly>, name: &str) -> std::io::Result<Vec<WorkerPart>> {
    let count = assemblies.len();
    let flows_max = assemblies.iter().map(|assembly| assembly.graph.options().flows_max as usize).sum();
    let directory = Arc::new(Directory::new(count, flows_max));
    let doorbells = (0..count)
        .map(|_| EventWaker::new().map(|waker| Arc::new(Doorbell::new(waker))))
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut commons: Option<Vec<SharedHandle>> = None;
    let mut parts = Vec::new();
    for (number, mut assembly) in assemblies.into_iter().enumerate() {
        match &commons {
            None => commons = Some(assembly.graph.sharing().share()),
            Some(commons) => assembly.graph.sharing().join(commons.clone()),
        }
        assembly
            .graph
            .sharing()
            .claim_aliases_in(Arc::new(WorkerAliases { directory: Arc::clone(&directory), worker: number }));
        let shard = Shard {
            number,
            directory: Arc::clone(&directory),
            doorbell: Arc::clone(&doorbells[number]),
            to: (0..count).map(|_| None).collect(),
            from: (0..count).map(|_| None).collect(),
            own: Vec::with_capacity(BATCH),
            snooped: Vec::new(),
            waited: Vec::new(),
            surplus: Vec::new(),
            counters: Counters::default(),
        };
        parts.push(WorkerPart { assembly, name: name.to_owned(), shard: Box::new(shard) });
    }
    for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
        if from != to {
            let (sender, receiver) = link(&doorbells[to]);
            parts[from].shard.to[to] = Some(sender);
            parts[to].shard.from[from] = Some(receiver);
        }
    }
    Ok(parts)
}

impl Runner {
    /// Creates the runner of one worker, for a thread of its own. It hands packets of other
    /// workers' flows over to them.
    pub fn of_part(part: WorkerPart) -> Runner {
        let WorkerPart { assembly, name, shard } = part;
        let backend = AnyBackend::Worker(shard.place(), shard);
        Runner::on(backend, assembly, &name)
    }
}

/// Runs the graph on the calling thread for the flows of one worker.
impl Backend for Shard {
    /// Processes received packets of its flows, and those taken over from other workers. Hands the
    /// other packets over.
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>) {
        let Core { graph, out, pool } = core;
        self.take_buffers(pool);
        self.counters.received += batch.len() as u64;
        let directory = Arc::clone(&self.directory);
        graph.classify(batch, |hash| directory.prefetch(hash));
        let mut work = Work { graph, out, pool };
        for packet in batch.drain(..) {
            if packet.meta().class == PacketClass::NotIp && work.graph.classifier().is_refused(&packet) {
                self.counters.processed += 1;
                work.graph.process_without_flow(packet, work.out, work.pool);
                continue;
            }
            self.receive(packet, &mut work);
        }
        self.take_over(&mut work);
        self.run(&mut work);
        self.send(&mut work);
    }

    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>) {
        core.graph.handle_timeout(now_ns, core.pool);
    }

    /// Returns whether other workers have handed something over.
    fn has_pending(&self) -> bool {
        self.from.iter().flatten().any(|from| !from.ring.is_empty())
    }

    /// The first worker ends last and then has the shared state for itself.
    fn finish(&mut self, core: Core<'_>) -> bool {
        if self.number == 0 {
            core.graph.sharing().part();
        }
        true
    }
}

impl WorkerBackend for Shard {
    fn count_refused(&mut self) {
        self.counters.received += 1;
        self.counters.processed += 1;
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn share_snooped(&mut self, port: u16, frame: &[u8]) {
        for to in self.to.iter_mut().flatten() {
            if to.ring.push(Handover::Snooped(port, frame.into())).is_err() {
                self.counters.neighbours_lost += 1;
            }
            to.doorbell.ring();
        }
    }

    fn take_snooped(&mut self) -> Vec<SnoopedFrame> {
        std::mem::take(&mut self.snooped)
    }

    /// Returns buffers beyond `keep` to their workers.
    fn return_buffers(&mut self, pool: &mut PacketPool, keep: usize) {
        if self.from.iter().flatten().all(|from| from.owed == 0) {
            return;
        }
        pool.take_surplus(keep, &mut self.surplus);
        for from in self.from.iter_mut().flatten() {
            while from.owed > 0
                && !from.buffers.is_full()
                && let Some(buffer) = self.surplus.pop()
            {
                from.owed -= usize::from(from.buffers.push(buffer).is_ok());
            }
        }
        pool.give_all(&mut self.surplus);
    }
}

impl Shard {
    fn place(&self) -> WorkerPlace {
        WorkerPlace { number: self.number, count: self.to.len(), doorbell: Arc::clone(&self.doorbell) }
    }

    fn take_buffers(&mut self, pool: &mut PacketPool) {
        for to in self.to.iter_mut().flatten() {
            while let Ok(buffer) = to.buffers.pop() {
                pool.give(buffer);
            }
        }
        pool.fill(BUFFERS_MIN);
    }

    /// Processes a packet from an interface, or hands it over.
    fn receive(&mut self, packet: Packet, work: &mut Work<'_>) {
        match packet.meta().class {
            // Packets of no flow stay here.
            _ if work.graph.is_wire() => self.process_here(packet, work),
            PacketClass::NotIp => self.process_here(packet, work),
            PacketClass::FirstFragment | PacketClass::LaterFragment => {
                match self.directory.home(work.graph.classifier().datagram_hash(&packet)) {
                    to if to == self.number => self.fragment(packet, work),
                    to => self.hand(to, Handover::Fragment(packet), work),
                }
            }
            PacketClass::Whole | PacketClass::IcmpError => match self.directory.owner(packet.meta().hash) {
                to if to == self.number => self.of_flow(packet, work),
                to => self.hand(to, Handover::Flow(packet), work),
            },
        }
    }

    /// Routes a fragment of a datagram that this worker tracks: later fragments follow the first
    /// one.
    fn fragment(&mut self, mut packet: Packet, work: &mut Work<'_>) {
        if packet.meta().class == PacketClass::LaterFragment {
            return match work.graph.flow_of(&mut packet, work.pool) {
                FlowLookup::Flow { hash, .. } if self.directory.owner(hash) != self.number => {
                    self.hand(self.directory.owner(hash), Handover::Flow(packet), work);
                }
                _ => self.process_here(packet, work),
            };
        }
        let owner = self.directory.owner(packet.meta().hash);
        if owner == self.number {
            return self.process_here(packet, work);
        }
        // Later fragments in the same batch must find the earlier ones pending.
        self.run(work);
        let mut waited = std::mem::take(&mut self.waited);
        work.graph.classifier_mut().learn_elsewhere(&packet, &mut waited);
        self.hand(owner, Handover::Flow(packet), work);
        for packet in waited.drain(..) {
            self.fragment(packet, work);
        }
        self.waited = waited;
    }

    /// Routes a packet that belongs to this worker if its flow is known.
    fn of_flow(&mut self, mut packet: Packet, work: &mut Work<'_>) {
        if packet.meta().class == PacketClass::IcmpError {
            // A pending packet may create the flow.
            self.run(work);
            let meta = packet.meta();
            if work.graph.flows().find(meta.hash, &meta.key, meta.reversed).is_none()
                && let FlowLookup::Either { hash, .. } = work.graph.flow_of(&mut packet, work.pool)
                && self.directory.owner(hash) != self.number
            {
                return self.hand(self.directory.owner(hash), Handover::Aside(packet), work);
            }
        }
        self.process_here(packet, work);
    }

    /// Enqueues a packet to process here.
    fn process_here(&mut self, packet: Packet, work: &mut Work<'_>) {
        self.own.push(packet);
        if self.own.len() >= BATCH {
            self.run(work);
        }
    }

    fn run(&mut self, work: &mut Work<'_>) {
        self.counters.processed += self.own.len() as u64;
        work.graph.process_classified(&mut self.own, work.out, work.pool);
    }

    /// Enqueues a handover to another worker.
    fn hand(&mut self, to: usize, handover: Handover, work: &mut Work<'_>) {
        let Some(Some(worker)) = self.to.get_mut(to) else {
            debug_assert!(false, "a worker hands nothing over to itself");
            return;
        };
        worker.next.push(handover);
        if worker.next.len() >= BATCH {
            self.send(work);
        }
    }

    /// Takes over what other workers have handed over.
    fn take_over(&mut self, work: &mut Work<'_>) {
        let mut taken = 0;
        for number in 0..self.from.len() {
            for _ in 0..HANDOVERS_PER_TURN {
                let Some(from) = &mut self.from[number] else { break };
                let Ok(handover) = from.ring.pop() else { break };
                if !matches!(handover, Handover::Snooped(..)) {
                    from.owed += 1;
                    taken += 1;
                }
                match handover {
                    Handover::Fragment(packet) => self.fragment(packet, work),
                    Handover::Flow(packet) => self.of_flow(packet, work),
                    Handover::Aside(packet) => self.process_here(packet, work),
                    Handover::Snooped(port, frame) => self.snooped.push((port, frame)),
                }
            }
        }
        self.counters.taken += taken;
    }

    /// Sends enqueued handovers until the rings are full; the remaining packets are dropped.
    fn send(&mut self, work: &mut Work<'_>) {
        for to in self.to.iter_mut().flatten().filter(|to| !to.next.is_empty()) {
            let count = to.next.len().min(to.ring.slots());
            if let Ok(room) = to.ring.write_chunk_uninit(count) {
                self.counters.handed_over += count as u64;
                room.fill_from_iter(to.next.drain(..count));
            }
            to.doorbell.ring();
            for packet in to.next.drain(..).filter_map(Handover::packet) {
                self.counters.no_room += 1;
                work.graph.classifier_mut().discard(packet, DropReason::WorkerBehind, work.pool);
            }
        }
    }
}

/// The graph and buffers of a worker during a call.
struct Work<'a> {
    graph: &'a mut Graph,
    out: &'a mut Vec<Packet>,
    pool: &'a mut PacketPool,
}
