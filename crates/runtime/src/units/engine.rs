//! What a unit of this machine runs: the machine's chain, with flows of which some are the unit's
//! own.

use std::cell::RefCell;
use std::rc::Rc;

use graph::Chain;
use packet::{Packet, PacketPool};
use protocol::dispatcher::Guess;
use protocol::message::{FlowId, UnitId};
use protocol::unit::{Engine, Unreadable};

use crate::saved::{Source, release, restore, save};

/// What all units of the machine share, as they share its one thread: functions, the table of
/// flows, buffers, what comes out.
pub(super) struct Machine {
    pub chain: Box<Chain>,
    pub pool: PacketPool,
    pub out: Vec<Packet>,
    /// Packets that units let be processed, in the order in which they came.
    waiting: Vec<Packet>,
    /// The flows of these, by their slots at the router.
    homes: Vec<u32>,
    /// By these slots: the unit whose the flow's state is.
    owners: Vec<UnitId>,
    /// Room for a state.
    saved: Vec<u8>,
    /// Packets crossed the chain, and nobody has looked at what came of that.
    has_news: bool,
}

impl Machine {
    /// One with this chain and these buffers, without flows.
    pub fn new(chain: Box<Chain>, pool: PacketPool) -> Machine {
        Machine {
            chain,
            pool,
            out: Vec::new(),
            waiting: Vec::new(),
            homes: Vec::new(),
            owners: Vec::new(),
            saved: Vec::new(),
            has_news: false,
        }
    }

    /// A packet may be processed: it waits until others may, too, and they cross the chain
    /// together.
    #[inline(always)]
    pub fn add(&mut self, home: u32, packet: Packet) {
        self.waiting.push(packet);
        self.homes.push(home);
    }

    /// The same for several packets, of the flows that were guessed.
    #[inline]
    pub fn add_all(&mut self, guesses: &[Guess], packets: impl Iterator<Item = Packet>) {
        self.waiting.extend(packets);
        self.homes.extend(guesses.iter().map(|guess| guess.slot()));
    }

    /// Takes what waits through the chain.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.chain.process_admitted(&mut self.waiting, &self.homes, &mut self.out, &mut self.pool);
        self.homes.clear();
        self.has_news = true;
    }

    /// The same if a packet of the flow that the router has in this slot waits. Nothing else that
    /// waits has to do with the flow's records: whoever begins flows, or may end others, does not
    /// wait.
    fn flush_flow(&mut self, home: u32) {
        if self.homes.contains(&home) {
            self.flush();
        }
    }

    /// Whether packets crossed the chain since this was asked last.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether a flow that the router has in this slot has a state.
    pub fn has(&self, home: u32) -> bool {
        self.chain.flows_of(home).next().is_some()
    }

    /// Whether the flow's state is here just as it was saved: that of another unit of this machine,
    /// which has nothing to add to it.
    fn has_as_saved(&mut self, home: u32, state: &[u8]) -> bool {
        self.flush_flow(home);
        self.saved.clear();
        save(&mut self.chain, home, &mut self.saved);
        self.saved == state
    }

    /// Whose the state is, or was last, of the flow that the router has in this slot; none if it
    /// never was any unit's.
    pub fn owner(&self, home: u32) -> Option<UnitId> {
        self.owners.get(home as usize).copied().filter(|&owner| owner != NOBODY)
    }

    fn set_owner(&mut self, home: u32, owner: UnitId) {
        let home = home as usize;
        if home >= self.owners.len() {
            self.owners.resize(home + 1, NOBODY); // Not more than the router has slots.
        }
        self.owners[home] = owner;
    }
}

/// There are fewer units.
const NOBODY: UnitId = UnitId(u16::MAX);

/// A unit's engine. All units have the machine's one table of flows; a flow in it is one unit's,
/// and to the others it is not there. Its state goes from unit to unit as bytes, as between
/// machines.
pub(super) struct ChainEngine {
    unit: UnitId,
    machine: Rc<RefCell<Machine>>,
}

impl ChainEngine {
    /// The engine of this unit.
    pub fn new(unit: UnitId, machine: Rc<RefCell<Machine>>) -> ChainEngine {
        ChainEngine { unit, machine }
    }

    /// Lets something be done to a flow's records, if the flow is the unit's own.
    fn at_own(&self, flow: FlowId, act: impl FnOnce(&mut Machine)) {
        let machine = &mut *self.machine.borrow_mut();
        if machine.owner(flow.slot) == Some(self.unit) {
            act(machine);
        }
    }
}

impl Engine for ChainEngine {
    type Packet = Packet;

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, packet: Packet) {
        let machine = &mut *self.machine.borrow_mut();
        machine.set_owner(flow.slot, self.unit);
        machine.add(flow.slot, packet);
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        self.at_own(flow, |machine| {
            machine.flush_flow(flow.slot);
            save(&mut machine.chain, flow.slot, out);
        });
    }

    fn restore(&mut self, _now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), Unreadable> {
        let machine = &mut *self.machine.borrow_mut();
        if !machine.has_as_saved(flow.slot, state) {
            machine.flush();
            let saved = (state, Source::Copied);
            restore(&mut machine.chain, flow.slot, saved, &mut machine.pool)?;
        }
        machine.set_owner(flow.slot, self.unit);
        Ok(())
    }

    fn forget(&mut self, _now_ns: u64, flow: FlowId, ended: bool) {
        self.at_own(flow, |machine| {
            machine.flush();
            match ended {
                true => machine.chain.end_flows_of(flow.slot, &mut machine.pool),
                false => release(&mut machine.chain, flow.slot),
            }
        });
    }
}
