//! What a unit of this machine runs: the machine's chain, with the unit's own table of flows.

use std::cell::RefCell;
use std::rc::Rc;

use chain::Chain;
use packet::{Packet, Pool};
use proto::FlowId;
use unit::{Engine, Unreadable};

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

/// What stands before each saved flow: its length.
const PREFIX_LEN: usize = size_of::<u32>();

/// A flow of the router's is, nearly always, one of the chain's; see [`chain::Chain::flows_of`].
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
        let mut before = Vec::new();
        save(chain, flow.slot, &mut before);
        release(chain, flow.slot);
        restore(chain, flow.slot, state, pool).inspect_err(|_| {
            release(chain, flow.slot);
            let _ = restore(chain, flow.slot, &before, pool); // What was here a moment ago has room here.
        })
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

/// Appends all flows of the active table that have this home.
fn save(chain: &mut Chain, home: u32, out: &mut Vec<u8>) {
    let records: Vec<u32> = chain.flows_of(home).collect();
    for record in records {
        let begin = out.len();
        out.extend_from_slice(&[0; PREFIX_LEN]);
        chain.save_flow(record, out);
        let len = (out.len() - begin - PREFIX_LEN) as u32;
        out[begin..begin + PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
    }
}

/// Takes the flows that [`save`] wrote over.
fn restore(chain: &mut Chain, home: u32, saved: &[u8], pool: &mut Pool) -> Result<(), Unreadable> {
    let mut rest = saved;
    while let Some((len, behind)) = rest.split_first_chunk::<PREFIX_LEN>() {
        let (flow, next) = behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(Unreadable)?;
        let record = chain.restore_flow(flow, pool).map_err(|_| Unreadable)?;
        chain.set_home(record, home);
        rest = next;
    }
    if rest.is_empty() { Ok(()) } else { Err(Unreadable) }
}

/// The flows that have this home are elsewhere.
fn release(chain: &mut Chain, home: u32) {
    let records: Vec<u32> = chain.flows_of(home).collect();
    records.into_iter().for_each(|record| chain.release_flow(record));
}
