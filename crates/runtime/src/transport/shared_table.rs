//! The flow table that units on one thread share, and their engines.

use std::cell::RefCell;
use std::rc::Rc;

use nf::Effects;
use packet::Packet;
use protocol::dispatcher::FlowGuess;
use protocol::message::{FlowId, RefuseReason, UnitId};
use protocol::unit::{Done, Engine};

use super::LocalGraph;
use crate::saved::{Source, release, restore, save};

/// The one graph and flow table of all units on a thread.
pub(super) struct SharedTable {
    pub local: LocalGraph,
    /// Packets that units have accepted, in the order of their arrival.
    waiting: Vec<Packet>,
    /// The flows of these, by index.
    indexes: Vec<u32>,
    /// By index: the unit that has the flow's state, and the flow.
    owners: Vec<(UnitId, FlowId)>,
    /// Scratch space for a state.
    saved: Vec<u8>,
    /// Packets have crossed the graph, and the result was not taken yet.
    has_news: bool,
}

impl SharedTable {
    /// Creates a table without flows.
    pub fn new(local: LocalGraph) -> SharedTable {
        SharedTable {
            local,
            waiting: Vec::new(),
            indexes: Vec::new(),
            owners: Vec::new(),
            saved: Vec::new(),
            has_news: false,
        }
    }

    /// Accepts a packet: it crosses the graph together with others.
    #[inline(always)]
    pub fn add(&mut self, index: u32, packet: Packet) {
        self.waiting.push(packet);
        self.indexes.push(index);
    }

    /// Accepts several packets, of the flows that were guessed.
    #[inline]
    pub fn add_all(&mut self, guesses: &[FlowGuess], packets: impl Iterator<Item = Packet>) {
        self.waiting.extend(packets);
        self.indexes.extend(guesses.iter().map(|guess| guess.index()));
    }

    /// Sends accepted packets through the graph.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let LocalGraph { graph, pool, out } = &mut self.local;
        graph.process_batch(&mut self.waiting, &self.indexes, out, pool);
        self.indexes.clear();
        self.has_news = true;
    }

    /// Sends accepted packets through the graph if one of them is of this flow. The others do not
    /// touch the flow's record: packets that begin flows, or may end others, cross alone.
    fn flush_flow(&mut self, index: u32) {
        if self.indexes.contains(&index) {
            self.flush();
        }
    }

    /// Returns whether packets have crossed the graph since the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Returns whether the flow with this index has state.
    pub fn has(&self, index: u32) -> bool {
        self.local.graph.flows().of_handle(index).next().is_some()
    }

    /// Returns whether the table has the flow's state just as it was saved by another unit, which
    /// shares the table.
    fn has_as_saved(&mut self, index: u32, state: &[u8]) -> bool {
        self.flush_flow(index);
        self.saved.clear();
        save(&mut self.local.graph, index, &mut self.saved);
        self.saved == state
    }

    /// Returns the unit that has, or last had, the state of the flow with this index, and the flow.
    pub fn owner(&self, index: u32) -> Option<(UnitId, FlowId)> {
        self.owners.get(index as usize).copied().filter(|&(owner, _)| owner != NOBODY)
    }

    fn set_owner(&mut self, flow: FlowId, owner: UnitId) {
        let index = flow.index as usize;
        if index >= self.owners.len() {
            // Not more than the dispatcher has indices.
            self.owners.resize(index + 1, (NOBODY, FlowId { index: 0, generation: 0 }));
        }
        self.owners[index] = (owner, flow);
    }
}

/// Owner of flows that never had one; no unit has this number.
const NOBODY: UnitId = UnitId(u16::MAX);

/// A unit's engine. Each flow in the shared table is one unit's, and absent to the others. Its
/// state goes from unit to unit as bytes, as between machines.
pub(super) struct SharedEngine {
    unit: UnitId,
    table: Rc<RefCell<SharedTable>>,
}

impl SharedEngine {
    /// Creates the engine of this unit.
    pub fn new(unit: UnitId, table: Rc<RefCell<SharedTable>>) -> SharedEngine {
        SharedEngine { unit, table }
    }

    /// Runs `act` if the flow is the unit's own.
    fn at_own(&self, flow: FlowId, act: impl FnOnce(&mut SharedTable)) {
        let table = &mut *self.table.borrow_mut();
        if table.owner(flow.index).is_some_and(|(owner, _)| owner == self.unit) {
            act(table);
        }
    }
}

impl Engine for SharedEngine {
    type Packet = Packet;
    type Effects = Effects;

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, _seq: u64, packet: Packet) {
        let table = &mut *self.table.borrow_mut();
        table.set_owner(flow, self.unit);
        table.add(flow.index, packet);
    }

    /// Yields nothing: units fail together with their dispatcher here. Output leaves through the
    /// table, in the order of arrival, as a single unit would send it.
    fn flush(&mut self, _done: impl FnMut(Done<Packet, Effects>)) {
        self.table.borrow_mut().flush();
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        self.at_own(flow, |table| {
            table.flush_flow(flow.index);
            save(&mut table.local.graph, flow.index, out);
        });
    }

    fn restore(&mut self, _now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        let table = &mut *self.table.borrow_mut();
        if !table.has_as_saved(flow.index, state) {
            table.flush();
            let saved = (state, Source::Copied);
            restore(&mut table.local.graph, flow.index, saved, &mut table.local.pool)?;
        }
        table.set_owner(flow, self.unit);
        Ok(())
    }

    fn forget(&mut self, _now_ns: u64, flow: FlowId, ended: bool) {
        self.at_own(flow, |table| {
            table.flush();
            match ended {
                true => table.local.graph.flows_mut().end(flow.index, &mut table.local.pool),
                false => release(&mut table.local.graph, flow.index),
            }
        });
    }
}
