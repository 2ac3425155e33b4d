//! Several workers, each with a part of the flows: a thread, a graph, and sockets of its own on
//! each interface. A packet runs to completion on one thread, that of the worker which has its
//! flow.
//!
//! ```text
//! interface a --> worker 0: parse, whose is it? --mine--> graph --> interface b
//!                     |  ^
//!                     |  | rings, one for each two workers and each way
//!                     v  |
//! interface a --> worker 1: parse, whose is it? --mine--> graph --> interface b
//! ```
//!
//! Whose a packet is, a hash of its flow's key says, the same for both directions; or the directory
//! of aliases, where it comes back with what functions made of the key. A worker that receives a
//! packet of another one's hands it over. What functions share beside counters, all graphs have in
//! common, see [`nf::SharedHandle`]. `docs/decisions/0025-workers-own-flows.md` has the reasons.

mod crew;
mod directory;
mod link;

use std::sync::Arc;

use graph::{FlowLookup, Graph};
use nf::SharedHandle;
use packet::{DropReason, Packet, PacketClass, PacketPool};
use serde::Serialize;

use crate::assembly::Assembly;
use crate::backend::{Backend, Core};
use crate::runner::BATCH;

pub use crew::{Failure, Place, Workers, WorkersError};
use directory::{Directory, Own};
pub(crate) use link::Bell;
pub use link::RING;
use link::{FromWorker, Handed, ToWorker, link};

/// The most workers.
pub const WORKERS_MAX: usize = 64;
const _: () = assert!(WORKERS_MAX <= directory::NAMED_MAX);

/// Things from one other worker that are taken before others have their turn.
const TAKEN_AT_ONCE: usize = BATCH;

/// Small buffers that a worker has at least, however many are with others.
const BUFFERS_LEAST: usize = 4 * BATCH;

/// A worker's part of the flows, and its ways to others.
pub struct Shard {
    number: usize,
    directory: Arc<Directory>,
    bell: Arc<Bell>,
    /// By worker; none to itself.
    to: Vec<Option<ToWorker>>,
    from: Vec<Option<FromWorker>>,
    /// Packets that are to be processed here, in order.
    here: Vec<Packet>,
    /// Frames that others told of neighbours, with their ports.
    heard: Vec<(u16, Box<[u8]>)>,
    /// Room that is reused.
    waited: Vec<Packet>,
    surplus: Vec<Packet>,
    counters: Counters,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that it received.
    pub received: u64,
    /// Packets that it handed over to others, each time; those that found no room are not among
    /// them.
    pub handed_over: u64,
    /// Packets that others handed over to it.
    pub taken: u64,
    /// Packets that it processed, of flows that it has, or of none.
    pub processed: u64,
    /// Packets that found no room in the ring to another one: they were dropped, `worker-behind`.
    pub no_room: u64,
    /// Frames about neighbours that others were not told of, as there was no room in the ring to
    /// them.
    pub neighbours_lost: u64,
}

/// What one worker runs.
pub struct Part {
    pub(crate) assembly: Assembly,
    pub(crate) name: String,
    pub(crate) shard: Box<Shard>,
}

/// The parts of as many workers as there are assemblies, which report under `name`. The assemblies
/// are of the same policy, with the same seed ([`crate::assemble_part`]); they have what functions
/// share in common from then on.
///
/// # Errors
/// If the system has no descriptors left to wake workers by.
pub fn parts(assemblies: Vec<Assembly>, name: &str) -> std::io::Result<Vec<Part>> {
    let count = assemblies.len();
    let flows_max = assemblies.iter().map(|assembly| assembly.graph.options().flows_max as usize).sum();
    let directory = Arc::new(Directory::new(count, flows_max));
    let bells = (0..count).map(|_| Bell::new().map(Arc::new)).collect::<std::io::Result<Vec<_>>>()?;
    let mut commons: Option<Vec<SharedHandle>> = None;
    let mut parts = Vec::new();
    for (number, mut assembly) in assemblies.into_iter().enumerate() {
        match &commons {
            None => commons = Some(assembly.graph.share()),
            Some(commons) => assembly.graph.join(commons.clone()),
        }
        assembly.graph.tell_aliases(Arc::new(Own { directory: Arc::clone(&directory), worker: number }));
        let shard = Shard {
            number,
            directory: Arc::clone(&directory),
            bell: Arc::clone(&bells[number]),
            to: (0..count).map(|_| None).collect(),
            from: (0..count).map(|_| None).collect(),
            here: Vec::with_capacity(BATCH),
            heard: Vec::new(),
            waited: Vec::new(),
            surplus: Vec::new(),
            counters: Counters::default(),
        };
        parts.push(Part { assembly, name: name.to_owned(), shard: Box::new(shard) });
    }
    for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
        if from != to {
            let (way_to, way_from) = link(&bells[to]);
            parts[from].shard.to[to] = Some(way_to);
            parts[to].shard.from[from] = Some(way_from);
        }
    }
    Ok(parts)
}

impl Shard {
    /// Which worker it is, and how many there are.
    pub fn place(&self) -> (usize, usize) {
        (self.number, self.to.len())
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes packets in that were received, and those that others have handed over, and processes
    /// those that are of its flows.
    pub(crate) fn process(
        &mut self,
        graph: &mut Graph,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
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
            self.received(packet, &mut work);
        }
        self.take(&mut work);
        self.run(&mut work);
        self.ship(&mut work);
    }

    /// Whether others have handed something over.
    pub fn has_work(&self) -> bool {
        self.from.iter().flatten().any(|from| !from.ring.is_empty())
    }

    /// Tells all others of a frame that is about a neighbour of this port.
    pub(crate) fn tell(&mut self, port: u16, frame: &[u8]) {
        for to in self.to.iter_mut().flatten() {
            if to.ring.push(Handed::Told(port, frame.into())).is_err() {
                self.counters.neighbours_lost += 1;
            }
            to.bell.ring();
        }
    }

    /// Frames that others told of neighbours, with their ports.
    pub(crate) fn take_heard(&mut self) -> Vec<(u16, Box<[u8]>)> {
        std::mem::take(&mut self.heard)
    }

    /// How it is woken.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Gives buffers beyond so many back to those that they came from.
    pub(crate) fn give_back(&mut self, pool: &mut PacketPool, keep: usize) {
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

    fn take_buffers(&mut self, pool: &mut PacketPool) {
        for to in self.to.iter_mut().flatten() {
            while let Ok(buffer) = to.buffers.pop() {
                pool.give(buffer);
            }
        }
        pool.fill(BUFFERS_LEAST);
    }

    /// A packet that came by an interface.
    fn received(&mut self, packet: Packet, work: &mut Work<'_>) {
        match packet.meta().class {
            // What is of no flow stays.
            _ if work.graph.stages().is_empty() => self.here(packet, work),
            PacketClass::NotIp => self.here(packet, work),
            PacketClass::FirstFragment | PacketClass::LaterFragment => {
                match self.directory.home(work.graph.classifier().datagram_hash(&packet)) {
                    to if to == self.number => self.fragment(packet, work),
                    to => self.hand(to, Handed::Fragment(packet), work),
                }
            }
            PacketClass::Whole | PacketClass::IcmpError => match self.directory.owner(packet.meta().hash) {
                to if to == self.number => self.of_flow(packet, work),
                to => self.hand(to, Handed::Flow(packet), work),
            },
        }
    }

    /// A fragment of a datagram that this worker keeps track of: the later ones go where the first
    /// one went, and behind it.
    fn fragment(&mut self, mut packet: Packet, work: &mut Work<'_>) {
        if packet.meta().class == PacketClass::LaterFragment {
            return match work.graph.flow_of(&mut packet, work.pool) {
                FlowLookup::Flow { hash, .. } if self.directory.owner(hash) != self.number => {
                    self.hand(self.directory.owner(hash), Handed::Flow(packet), work);
                }
                _ => self.here(packet, work),
            };
        }
        let owner = self.directory.owner(packet.meta().hash);
        if owner == self.number {
            return self.here(packet, work);
        }
        // Later ones that stand here in the same batch are to find those before them waiting.
        self.run(work);
        let mut waited = std::mem::take(&mut self.waited);
        work.graph.classifier_mut().learn_elsewhere(&packet, &mut waited);
        self.hand(owner, Handed::Flow(packet), work);
        for packet in waited.drain(..) {
            self.fragment(packet, work);
        }
        self.waited = waited;
    }

    /// A packet whose flow, if it is known, this worker has.
    fn of_flow(&mut self, mut packet: Packet, work: &mut Work<'_>) {
        if packet.meta().class == PacketClass::IcmpError {
            // The flow may begin with a packet that waits.
            self.run(work);
            let meta = packet.meta();
            if work.graph.flow(meta.hash, &meta.key, meta.reversed).is_none()
                && let FlowLookup::Either { hash, .. } = work.graph.flow_of(&mut packet, work.pool)
                && self.directory.owner(hash) != self.number
            {
                return self.hand(self.directory.owner(hash), Handed::Aside(packet), work);
            }
        }
        self.here(packet, work);
    }

    /// A packet is to be processed here, behind those that are already.
    fn here(&mut self, packet: Packet, work: &mut Work<'_>) {
        self.here.push(packet);
        if self.here.len() >= BATCH {
            self.run(work);
        }
    }

    fn run(&mut self, work: &mut Work<'_>) {
        self.counters.processed += self.here.len() as u64;
        work.graph.process_classified(&mut self.here, work.out, work.pool);
    }

    /// Something goes to another worker, with the rest of its batch.
    fn hand(&mut self, to: usize, handed: Handed, work: &mut Work<'_>) {
        let Some(Some(way)) = self.to.get_mut(to) else {
            debug_assert!(false, "nothing is handed over to the worker itself");
            return;
        };
        way.next.push(handed);
        if way.next.len() >= BATCH {
            self.ship(work);
        }
    }

    /// Takes what others have handed over.
    fn take(&mut self, work: &mut Work<'_>) {
        let mut taken = 0;
        for number in 0..self.from.len() {
            for _ in 0..TAKEN_AT_ONCE {
                let Some(from) = &mut self.from[number] else { break };
                let Ok(handed) = from.ring.pop() else { break };
                if !matches!(handed, Handed::Told(..)) {
                    from.owed += 1;
                    taken += 1;
                }
                match handed {
                    Handed::Fragment(packet) => self.fragment(packet, work),
                    Handed::Flow(packet) => self.of_flow(packet, work),
                    Handed::Aside(packet) => self.here(packet, work),
                    Handed::Told(port, frame) => self.heard.push((port, frame)),
                }
            }
        }
        self.counters.taken += taken;
    }

    /// What is to go to others goes, as far as there is room.
    fn ship(&mut self, work: &mut Work<'_>) {
        for to in self.to.iter_mut().flatten().filter(|to| !to.next.is_empty()) {
            let count = to.next.len().min(to.ring.slots());
            if let Ok(room) = to.ring.write_chunk_uninit(count) {
                self.counters.handed_over += count as u64;
                room.fill_from_iter(to.next.drain(..count));
            }
            to.bell.ring();
            for packet in to.next.drain(..).filter_map(Handed::packet) {
                self.counters.no_room += 1;
                work.graph.classifier_mut().discard(packet, DropReason::WorkerBehind, work.pool);
            }
        }
    }
}

impl Backend for Shard {
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>) {
        Shard::process(self, core.graph, batch, core.out, core.pool);
    }

    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>) {
        core.graph.handle_timeout(now_ns, core.pool);
    }

    fn has_pending(&self) -> bool {
        self.has_work()
    }

    /// The first worker ends last and then has the shared state for itself.
    fn finish(&mut self, core: Core<'_>) -> bool {
        if self.number == 0 {
            core.graph.part();
        }
        true
    }

    fn count_refused(&mut self) {
        self.counters.received += 1;
        self.counters.processed += 1;
    }

    fn return_buffers(&mut self, pool: &mut PacketPool, keep: usize) {
        self.give_back(pool, keep);
    }

    fn shard(&self) -> Option<&Shard> {
        Some(self)
    }

    fn shard_mut(&mut self) -> Option<&mut Shard> {
        Some(self)
    }
}

/// What a worker works with.
struct Work<'a> {
    graph: &'a mut Graph,
    out: &'a mut Vec<Packet>,
    pool: &'a mut PacketPool,
}
