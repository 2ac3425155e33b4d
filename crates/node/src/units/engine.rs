//! What a unit of this machine runs: the machine's chain, with the unit's own table of flows.

use std::cell::RefCell;
use std::rc::Rc;

use chain::Chain;
use packet::{Packet, Pool};
use proto::FlowId;
use unit::{Engine, Unreadable};

use crate::saved::{release, restore, save};

/// What all units of the machine share, as they share its one thread: functions, buffers, what comes out.
pub(super) struct Machine {
    pub chain: Box<Chain>,
    pub pool: Pool,
    pub out: Vec<Packet>,
    /// How many units have processed packets since `out` was put in order last.
    pub flushed: usize,
}

/// A unit's engine. Packets that the unit lets it process wait until it is their turn: then they cross the chain together.
pub(super) struct ChainEngine {
    table: u16,
    machine: Rc<RefCell<Machine>>,
    waiting: Vec<Packet>,
    /// The flows of these, by their slots at the router.
    homes: Vec<u32>,
}

impl ChainEngine {
    /// The engine of the unit that has this table.
    pub fn new(table: u16, machine: Rc<RefCell<Machine>>) -> ChainEngine {
        ChainEngine { table, machine, waiting: Vec::new(), homes: Vec::new() }
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes what waits through the chain.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let Machine { chain, pool, out, flushed } = &mut *self.machine.borrow_mut();
        chain.switch_to(self.table);
        chain.process_admitted(&mut self.waiting, &self.homes, out, pool);
        self.homes.clear();
        *flushed += 1;
    }

    /// Whether a flow that the router has in this slot has a state here.
    pub fn has(&self, home: u32) -> bool {
        let chain = &mut self.machine.borrow_mut().chain;
        chain.switch_to(self.table);
        chain.flows_of(home).next().is_some()
    }
}

impl Engine for ChainEngine {
    type Packet = Packet;

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, packet: Packet) {
        self.waiting.push(packet);
        self.homes.push(flow.slot);
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        self.flush();
        let chain = &mut self.machine.borrow_mut().chain;
        chain.switch_to(self.table);
        save(chain, flow.slot, out);
    }

    fn restore(&mut self, _now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), Unreadable> {
        self.flush();
        let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
        chain.switch_to(self.table);
        restore(chain, flow.slot, state, pool)
    }

    fn forget(&mut self, _now_ns: u64, flow: FlowId, ended: bool) {
        self.flush();
        let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
        chain.switch_to(self.table);
        if ended {
            return chain.end_flows_of(flow.slot, pool);
        }
        release(chain, flow.slot);
    }
}
