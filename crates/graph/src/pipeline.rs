//! The pipeline: groups of packets on their way through the functions.
//!
//! A group crosses the functions one by one (`crossing`), or follows the steps of its flows' rule
//! (`steps`), or is a single packet that walks (`walking`). Then what was decided is carried out
//! (`settling`). The pipeline has the functions and the flows; it neither parses packets nor forms
//! groups.

mod crossing;
mod edges;
mod holding;
mod settling;
mod side_by_side;
mod steps;
mod turning;
mod walking;

use nf::stage::StageEnv;
use packet::{DropReason, Packet, PacketPool, Parser};

use crate::flows::Flows;
use crate::observer::Observer;
use crate::queue::GROUP_MAX;
use crate::stages::Stages;
use crate::topology::NfSet;
use crate::{Counters, Options, RestoreError};
use edges::KnownGroup;
use side_by_side::Sides;

/// Takes groups of packets through the functions.
pub(crate) struct Pipeline {
    pub stages: Stages,
    pub flows: Flows,
    /// The state for running state functions in parallel, if enabled.
    sides: Option<Box<Sides>>,
    /// Packets that left, that functions made, and that were dropped.
    pub counters: Counters,
    /// Packets that functions made, on their way out.
    answers: Vec<Packet>,
    /// Packets of the group that were turned back, by number and by function, until the others are
    /// through.
    turned: Vec<(usize, usize)>,
    /// Packets of the group by known path, until they are through: memory that is used again.
    known_groups: Vec<KnownGroup>,
}

/// The context of a batch on its way through.
pub(crate) struct BatchRun<'a, 'o> {
    pub out: &'a mut Vec<Packet>,
    pub pool: &'a mut PacketPool,
    pub observer: Option<&'a mut (dyn Observer + 'o)>,
    /// The parser for packets that functions made.
    pub parser: Parser,
    /// True if the packet that is under way is the only one.
    is_alone: bool,
    /// The functions that an answer goes back over, and the port that it leaves by.
    trail: Option<(NfSet, u16)>,
}

impl<'a, 'o> BatchRun<'a, 'o> {
    /// A run whose packets leave to `out`, and whose buffers are from `pool`.
    #[inline]
    pub fn new(out: &'a mut Vec<Packet>, pool: &'a mut PacketPool, parser: &Parser) -> BatchRun<'a, 'o> {
        BatchRun { out, pool, observer: None, parser: *parser, is_alone: false, trail: None }
    }
}

impl Pipeline {
    /// A pipeline of these functions, for these flows.
    pub fn new(stages: Stages, flows: Flows) -> Pipeline {
        Pipeline {
            stages,
            flows,
            sides: None,
            counters: Counters::default(),
            answers: Vec::new(),
            turned: Vec::new(),
            known_groups: Vec::with_capacity(GROUP_MAX),
        }
    }

    /// Advances the time to `now_ns`: expired flows end, and expired datagrams in fragments are
    /// given up.
    pub fn handle_timeout(&mut self, now_ns: u64, pool: &mut PacketPool) {
        self.flows.now_ns = self.flows.now_ns.max(now_ns);
        self.flows.settled_ns = self.flows.now_ns;
        self.flows.expire(&mut self.stages, pool);
        self.expire_datagrams(pool);
    }

    /// Shows a fragment that is about to be dropped without its first one to the functions that ask
    /// for such, see [`nf::NetworkFunction::lone_fragment`].
    pub fn show_lone_fragment(&mut self, packet: &mut Packet, pool: &mut PacketPool) {
        let Stages { all, effects, .. } = &mut self.stages;
        let mut env = StageEnv { records: &mut self.flows.table.records, effects, buffers: pool };
        all.iter_mut().for_each(|stage| stage.lone_fragment(packet, &mut env));
    }

    /// Returns when flows are to end, or datagrams in fragments to be given up.
    pub fn next_timeout_ns(&self) -> u64 {
        let datagrams = self.flows.reassembly.as_ref().map(|it| it.datagrams().due_ns());
        self.flows.table.due_ns().min(datagrams.unwrap_or(u64::MAX))
    }

    /// Takes a saved flow over; see [`crate::Graph::restore_flow`]. `is_copy`: see
    /// [`crate::Graph::restore_copy`].
    pub fn restore_flow(
        &mut self,
        saved: &[u8],
        is_copy: bool,
        pool: &mut PacketPool,
    ) -> Result<u32, RestoreError> {
        let restored = match is_copy {
            true => self.flows.restore_copy(saved, &mut self.stages, pool),
            false => self.flows.restore(saved, &mut self.stages, pool),
        };
        self.drop_unheld(pool);
        restored
    }

    /// The pipeline's own code panicked: drops what was under way, and comes to rest.
    #[cold]
    pub fn abort(&mut self, run: &mut BatchRun<'_, '_>) {
        self.counters.restarts += 1;
        run.is_alone = false;
        run.observer = None;
        for stage in &mut self.stages.all {
            stage.close();
        }
        self.stages.effects.generated.drain(..).for_each(|made| run.pool.give(made.packet));
        for packet in std::mem::take(&mut self.answers) {
            self.drop_packet(packet, DropReason::Internal, run);
        }
        self.turned.clear();
        self.flows.failed.clear();
    }

    /// Ends all flows, as far as that can be done, and empties the tables.
    pub fn clear_tables(&mut self, options: &Options, pool: &mut PacketPool) {
        self.drop_held(pool);
        let moved = self.fragments_moved();
        if self.flows.clear(&mut self.stages, options, pool) {
            self.counters.fragments_moved = moved;
        }
    }
}
