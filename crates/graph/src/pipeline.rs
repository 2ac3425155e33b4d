//! The pipeline: groups of packets through the functions.
//!
//! Slow-path packets visit the functions one by one (`traversal`), in a graph with branches along
//! its edges (`edges`). Fast-path packets follow the steps of their flows' program (`steps`). A
//! packet that may begin a flow is a group of its own (`walking`). Then packets leave, and their
//! flows are updated (`settling`). The pipeline has the functions and the flows. It neither parses
//! packets nor forms groups.
//!
//! | object | purpose |
//! |---|---|
//! | `Pipeline` | chooses the path of each group |
//! | `Traversal` | runs one function after another |
//! | `EdgeRun` | a group along the edges |
//! | `StepRun` | a group through a program |
//! | `Sides` | state functions on two cores |
//! | `Exit` | sends, drops and counts packets |
//! | `HeldFragments` | holds fragments until their datagram is whole |

mod crossing;
mod edges;
mod exit;
mod holding;
mod path_order;
mod settling;
mod side_by_side;
mod steps;
mod traversal;
mod turning;
mod walking;

use packet::memory::OutOfMemory;
use packet::{Packet, PacketPool, Parser};

use crate::flows::{FlowTransfer, Flows};
use crate::fragments::Displaced;
use crate::observer::Observer;
use crate::queue::GROUP_MAX;
use crate::stages::Stages;
use crate::topology::NfSet;
use crate::{Counters, Options, RestoreError, SideBySide};
use edges::KnownGroup;
pub(crate) use exit::Exit;
use side_by_side::Sides;
pub(crate) use traversal::Traversal;

/// Takes groups of packets through the functions.
pub(crate) struct Pipeline {
    traversal: Traversal,
    transfer: FlowTransfer,
    /// The state for running state functions in parallel, if enabled.
    sides: Option<Box<Sides>>,
    /// Packets of a group by known path: memory that is reused.
    known_groups: Vec<KnownGroup>,
}

/// The context of a batch on its way through.
pub(crate) struct BatchRun<'a, 'o> {
    pub out: &'a mut Vec<Packet>,
    pub pool: &'a mut PacketPool,
    pub observer: Option<&'a mut (dyn Observer + 'o)>,
    /// The parser for packets that functions made.
    parser: Parser,
    /// True if the current packet is a group of its own.
    is_alone: bool,
    /// The functions that an answer visits in reverse, and the port where it leaves.
    trail: Option<(NfSet, u16)>,
}

impl<'a, 'o> BatchRun<'a, 'o> {
    /// Creates a run with packets that leave to `out`, and buffers from `pool`.
    #[inline]
    pub fn new(out: &'a mut Vec<Packet>, pool: &'a mut PacketPool, parser: &Parser) -> BatchRun<'a, 'o> {
        BatchRun { out, pool, observer: None, parser: *parser, is_alone: false, trail: None }
    }
}

impl Pipeline {
    /// Creates the pipeline of these functions, for these flows.
    pub fn new(stages: Stages, flows: Flows, transfer: FlowTransfer) -> Pipeline {
        Pipeline {
            traversal: Traversal::new(stages, flows),
            transfer,
            sides: None,
            known_groups: Vec::with_capacity(GROUP_MAX),
        }
    }

    /// Returns the flows.
    #[inline]
    pub fn flows(&self) -> &Flows {
        &self.traversal.flows
    }

    /// Returns the functions.
    #[inline]
    pub fn stages(&self) -> &Stages {
        &self.traversal.stages
    }

    /// Returns the flows and the functions, to be changed.
    #[inline]
    pub fn parts(&mut self) -> (&mut Flows, &mut Stages) {
        (&mut self.traversal.flows, &mut self.traversal.stages)
    }

    /// Returns the layouts of saved flows.
    pub fn transfer(&self) -> &FlowTransfer {
        &self.transfer
    }

    /// Returns the object that saves and restores flows, with what it needs.
    pub fn transfer_parts(&mut self) -> (&mut FlowTransfer, &mut Flows, &mut Stages) {
        (&mut self.transfer, &mut self.traversal.flows, &mut self.traversal.stages)
    }

    /// Returns the exit of packets.
    #[inline]
    pub fn exit(&self) -> &Exit {
        &self.traversal.exit
    }

    /// Returns the exit of packets, to be changed.
    #[inline]
    pub fn exit_mut(&mut self) -> &mut Exit {
        &mut self.traversal.exit
    }

    /// Returns the functions and flows that single packets need.
    #[inline]
    pub fn traversal(&mut self) -> &mut Traversal {
        &mut self.traversal
    }

    /// See [`crate::Graph::run_side_by_side`].
    pub fn run_side_by_side(&mut self, how: SideBySide) -> Result<(), OutOfMemory> {
        let Traversal { flows, stages, .. } = &mut self.traversal;
        if let Some(cache) = &mut flows.cache {
            cache.put_together();
        }
        self.sides = Some(Box::new(Sides::new(how, &stages.all, flows.table.layout())?));
        Ok(())
    }

    /// Advances the time to `now_ns`: expired flows end, and expired datagrams in fragments are
    /// given up.
    pub fn handle_timeout(&mut self, now_ns: u64, pool: &mut PacketPool) {
        let Traversal { flows, stages, .. } = &mut self.traversal;
        flows.clock.advance(now_ns);
        flows.clock.settle_now();
        flows.expire(stages, pool);
        self.expire_datagrams(pool);
    }

    /// Gives up expired datagrams in fragments.
    #[inline]
    pub fn expire_datagrams(&mut self, pool: &mut PacketPool) {
        let now_ns = self.traversal.flows.clock.now_ns();
        if let Some(mut held) = self.traversal.held_fragments() {
            held.expire(now_ns, pool);
        }
    }

    /// Returns the next time at which a flow or a datagram in fragments expires.
    pub fn next_timeout_ns(&self) -> u64 {
        let flows = &self.traversal.flows;
        let datagrams = flows.reassembly.as_ref().map(|it| it.datagrams().due_ns());
        flows.table.due_ns().min(datagrams.unwrap_or(u64::MAX))
    }

    /// Takes a saved flow over. `is_copy`: see [`crate::FlowsMut::restore_copy`].
    pub fn restore_flow(
        &mut self,
        saved: &[u8],
        is_copy: bool,
        pool: &mut PacketPool,
    ) -> Result<u32, RestoreError> {
        let Traversal { flows, stages, .. } = &mut self.traversal;
        let restored = match is_copy {
            true => self.transfer.restore_copy(saved, flows, stages, pool),
            false => self.transfer.restore(saved, flows, stages, pool),
        };
        if let Some(mut held) = self.traversal.held_fragments() {
            held.drop_unheld(pool);
        }
        restored
    }

    /// Ends all flows, as far as possible, and empties the tables.
    pub fn clear_tables(&mut self, options: &Options, pool: &mut PacketPool) {
        if let Some(mut held) = self.traversal.held_fragments() {
            held.drop_all(pool);
        }
        let moved = self.fragments_moved();
        let Traversal { flows, stages, exit, .. } = &mut self.traversal;
        if flows.clear(stages, options, pool) {
            exit.set_fragments_moved(moved);
        }
    }

    /// Returns the number of held fragments.
    pub fn packets_pending(&self) -> u64 {
        self.traversal.flows.reassembly.as_ref().map_or(0, |reassembly| reassembly.datagrams().held())
    }

    /// Returns the number of held fragments that moved here with their flows, less those that moved
    /// elsewhere.
    fn fragments_moved(&self) -> i64 {
        let reassembly = self.traversal.flows.reassembly.as_ref();
        let now = reassembly.map_or(0, |reassembly| reassembly.datagrams().moved());
        self.traversal.exit.counters().fragments_moved + now
    }

    /// Returns the counters of packets and flows. Those of the classifier are zero.
    pub fn counters(&self) -> Counters {
        let flows = &self.traversal.flows;
        let displaced = flows.reassembly.as_ref().map(|it| it.datagrams().displaced());
        let Displaced { table, source } = displaced.unwrap_or_default();
        let mut counters = Counters {
            packets_pending: self.packets_pending(),
            fragments_moved: self.fragments_moved(),
            fragments_displaced: table,
            fragments_displaced_by_source: source,
            ..self.traversal.exit.counters().clone()
        };
        flows.count(&mut counters);
        self.transfer.count(&mut counters);
        counters
    }
}
