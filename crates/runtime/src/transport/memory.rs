//! Units in the memory of the calling thread: each step is a call, and a message is there as soon
//! as it is sent.
//!
//! All units share one flow table, and a flow's state is one unit's at a time. So packets leave
//! byte for byte, and in order, as from a single unit.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use graph::{FlowChange, Graph};
use packet::{DropReason, Packet};
use protocol::dispatcher::{FlowGuess, NumberedPacket};
use protocol::message::{FlowId, FromDispatcher, FromPeer, FromUnit, Stamp, UnitId, UnitMessage};
use protocol::unit::{Counters, Outbox, Unit};

use super::shared_table::{SharedEngine, SharedTable};
use super::unheard::Unheard;
use super::{
    Absent, FastLane, Fleet, LocalGraph, Return, Started, Transport, UnitChange, UnitLink, UnitReports,
};
use crate::units_config::UnitsConfig;
use crate::units_error::ElasticError;

/// Units that share the calling thread and its flow table.
pub struct Memory {
    units: Vec<Unit<SharedEngine>>,
    table: Rc<RefCell<SharedTable>>,
    /// Packets that were processed without notifying their units.
    unheard: Unheard,
    outbox: Outbox<Packet>,
    /// In flight between units.
    mails: VecDeque<(UnitId, Mail)>,
    /// To the dispatcher.
    messages: VecDeque<(UnitId, FromUnit)>,
    now_ns: u64,
    due_ns: u64,
    next: Return,
}

enum Mail {
    Message(UnitId, FromPeer),
    Packet(Stamp, Packet),
}

impl Memory {
    /// Creates units that run this graph, which has no flows yet.
    ///
    /// # Errors
    /// If memory for tables is missing.
    pub fn new(config: &UnitsConfig, graph: &Graph) -> Result<Memory, ElasticError> {
        let table = Rc::new(RefCell::new(SharedTable::new(LocalGraph::placeholder(graph)?)));
        let unit = |id| Unit::new(config.unit(id), SharedEngine::new(id, Rc::clone(&table)));
        Ok(Memory {
            units: (0..config.units_max).map(UnitId).map(unit).collect(),
            table: Rc::clone(&table),
            unheard: Unheard::default(),
            outbox: Outbox::default(),
            mails: VecDeque::new(),
            messages: VecDeque::new(),
            now_ns: 0,
            due_ns: 0,
            next: Return::default(),
        })
    }

    /// Notifies the unit of the flow's packets that it does not know, if it has the state. Must be
    /// called before anything else happens to the flow there.
    fn catch_up(&mut self, unit: UnitId, flow: FlowId) {
        let unit = &mut self.units[unit.index()];
        self.unheard.notify(flow.index, |clock| unit.catch_up(flow, clock));
    }

    /// Delivers a packet that does not just continue its flow at its unit.
    #[inline(never)]
    fn deliver(&mut self, unit: UnitId, stamp: Stamp, packet: Packet) {
        let to = &mut self.units[unit.index()];
        to.handle_packet(self.now_ns, stamp, packet, &mut self.outbox);
        self.due_ns = self.due_ns.min(to.next_timeout_ns());
        self.collect(unit);
        self.deliver_mails();
    }

    fn deliver_message(&mut self, to: UnitId, message: UnitMessage) {
        if let Some(flow) = message.flow() {
            self.catch_up(to, flow);
        }
        let unit = &mut self.units[to.index()];
        unit.handle_message(self.now_ns, message, &mut self.outbox);
        self.due_ns = self.due_ns.min(unit.next_timeout_ns());
        self.collect(to);
    }

    /// Delivers everything that units have sent to each other.
    fn deliver_mails(&mut self) {
        while let Some((to, mail)) = self.mails.pop_front() {
            match mail {
                Mail::Message(from, message) => {
                    self.deliver_message(to, UnitMessage::FromPeer(from, message))
                }
                Mail::Packet(stamp, packet) => {
                    self.catch_up(to, stamp.flow);
                    self.units[to.index()].handle_packet(self.now_ns, stamp, packet, &mut self.outbox);
                    self.collect(to);
                }
            }
        }
    }

    /// Takes what a unit has sent.
    fn collect(&mut self, unit: UnitId) {
        let outbox = &mut self.outbox;
        if outbox.is_empty() {
            return;
        }
        self.messages.extend(outbox.to_dispatcher.drain(..).map(|message| (unit, message)));
        self.mails.extend(outbox.to_units.drain(..).map(|(to, message)| (to, Mail::Message(unit, message))));
        debug_assert!(outbox.to_all.is_empty(), "copies go to units that are named");
        self.mails
            .extend(outbox.forwarded.drain(..).map(|(to, stamp, packet)| (to, Mail::Packet(stamp, packet))));
        for (_, _, packet) in outbox.dropped.drain(..) {
            // Messages arrive as soon as they are sent, so no packet is late or has to wait.
            self.table.borrow_mut().local.drop_packet(packet, DropReason::Internal);
        }
    }

    /// Reports changes of flows in the table.
    fn take_changes(&mut self) {
        if self.table.borrow().local.graph.changes().is_empty() {
            return;
        }
        let mut changes = std::mem::take(self.table.borrow_mut().local.graph.changes_mut());
        for change in changes.drain(..) {
            // The one table tracks its fragments itself.
            if matches!(change, FlowChange::FirstFragment { .. }) {
                continue;
            }
            let table = self.table.borrow();
            let ended = self.next.note(change, |index| table.owner(index).map(|(_, flow)| flow));
            drop(table);
            ended.into_iter().for_each(|index| self.propose_end(index));
        }
        *self.table.borrow_mut().local.graph.changes_mut() = changes;
        self.deliver_mails();
    }

    /// Proposes the end of a flow without state in the table, unless it has begun again.
    fn propose_end(&mut self, index: u32) {
        let table = self.table.borrow();
        let Some((owner, flow)) = table.owner(index).filter(|_| !table.has(index)) else { return };
        drop(table);
        self.catch_up(owner, flow);
        self.units[owner.index()].propose_end(self.now_ns, flow, &mut self.outbox);
        self.collect(owner);
    }
}

impl UnitLink for Memory {
    type Access<'a> = RefMut<'a, LocalGraph>;

    fn core(&mut self) -> RefMut<'_, LocalGraph> {
        RefMut::map(self.table.borrow_mut(), |table| &mut table.local)
    }

    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet) {
        self.now_ns = now_ns;
        self.catch_up(unit, stamp.flow);
        let to = &mut self.units[unit.index()];
        match to.handle_next_packet(now_ns, &stamp, packet) {
            Ok(_) => self.due_ns = self.due_ns.min(to.next_timeout_ns()),
            Err(packet) => self.deliver(unit, stamp, packet),
        }
    }

    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher) {
        self.now_ns = now_ns;
        self.deliver_message(unit, UnitMessage::FromDispatcher(message));
        self.deliver_mails();
    }

    fn receive(&mut self) -> Option<Box<Return>> {
        let has_news = !(self.next.aliases.is_empty() && self.messages.is_empty());
        has_news.then(|| {
            let mut next = std::mem::take(&mut self.next);
            if let Some(&(unit, _)) = self.messages.front() {
                next.unit = unit;
                while self.messages.front().is_some_and(|&(of, _)| of == unit) {
                    next.messages.extend(self.messages.pop_front().map(|(_, message)| message));
                }
            }
            Box::new(next)
        })
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        {
            let LocalGraph { graph, pool, .. } = &mut self.table.borrow_mut().local;
            graph.handle_timeout(now_ns, pool);
        }
        self.take_changes();
        for unit in (0..self.units.len() as u16).map(UnitId) {
            if self.units[unit.index()].next_timeout_ns() <= now_ns {
                self.units[unit.index()].handle_timeout(now_ns, &mut self.outbox);
                self.collect(unit);
            }
        }
        self.deliver_mails();
        let units = self.units.iter().map(Unit::next_timeout_ns);
        self.due_ns = units.min().unwrap_or(u64::MAX).min(self.table.borrow().local.graph.next_timeout_ns());
    }

    fn next_timeout_ns(&self) -> u64 {
        self.due_ns
    }

    fn has_pending(&self) -> bool {
        false
    }

    fn end_batch(&mut self, _now_ns: u64) {}
}

impl Fleet for Memory {
    /// In memory, a start takes no time.
    fn start(&mut self, _unit: UnitId) -> Started {
        Started::Ready
    }

    fn is_ready(&self, unit: UnitId, units_min: u16) -> bool {
        unit.0 < units_min
    }

    fn poll_change(&mut self) -> Option<UnitChange> {
        None
    }

    /// The one graph is the calling thread's.
    fn control(&mut self, _stage: usize, _command: &str) {}

    /// All flows are in the graph of the calling thread, and end there.
    fn finish(&mut self) {}

    fn has_finished(&mut self) -> bool {
        true
    }
}

impl Transport for Memory {
    type FastLane = Self;
    type Barrier = Absent;
    type Nodes = Absent;
    type Federation = Absent;

    #[inline(always)]
    fn fast_lane(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    #[inline(always)]
    fn barrier(&mut self) -> Option<&mut Absent> {
        None
    }

    #[inline(always)]
    fn nodes(&self) -> Option<&Absent> {
        None
    }

    #[inline(always)]
    fn nodes_mut(&mut self) -> Option<&mut Absent> {
        None
    }

    #[inline(always)]
    fn federation(&mut self) -> Option<&mut Absent> {
        None
    }
}

impl UnitReports for Memory {
    fn is_deferred(&self) -> bool {
        false
    }

    fn unit_counters(&self) -> Vec<Counters> {
        self.units.iter().map(|unit| *unit.counters()).collect()
    }
}

impl FastLane for Memory {
    #[inline(always)]
    fn prefetch_index(&self, index: u32) {
        self.unheard.prefetch(index);
    }

    fn prefetch_flow(&self, unit: UnitId, index: u32) {
        self.units[unit.index()].prefetch_flow(index);
    }

    #[inline(always)]
    fn skips_unit(&mut self, packet: &NumberedPacket) -> bool {
        self.unheard.add(packet)
    }

    #[inline(always)]
    fn skip_unit(&mut self, index: u32, packet: Packet) {
        self.table.borrow_mut().add(index, packet);
    }

    #[inline]
    fn skip_unit_all(&mut self, guesses: &[FlowGuess], packets: impl Iterator<Item = Packet>) {
        self.table.borrow_mut().add_all(guesses, packets);
    }

    /// Delivers the second packet of a flowlet, or any if the unit has a deadline for idle flows.
    #[inline(never)]
    fn continue_flowlet(&mut self, now_ns: u64, numbered: &NumberedPacket, stamp: Stamp, packet: Packet) {
        self.now_ns = now_ns;
        let to = &mut self.units[numbered.unit.index()];
        match to.handle_next_packet(now_ns, &stamp, packet) {
            Ok(u64::MAX) => self.unheard.begin(numbered),
            Ok(_) => self.due_ns = self.due_ns.min(to.next_timeout_ns()),
            Err(packet) => self.deliver(numbered.unit, stamp, packet),
        }
    }

    fn packet_alone(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet) {
        self.packet(now_ns, unit, stamp, packet);
        self.flush();
        // The table may have had no room for its flow.
        self.propose_end(stamp.flow.index);
        self.deliver_mails();
    }

    fn expire_flow(&mut self, now_ns: u64, flow: FlowId) {
        self.now_ns = now_ns;
        {
            let LocalGraph { graph, pool, .. } = &mut self.table.borrow_mut().local;
            graph.flows_mut().end_expired(flow.index, now_ns, pool);
        }
        self.take_changes();
    }

    fn flush(&mut self) {
        {
            let table = &mut *self.table.borrow_mut();
            table.flush();
            if !table.take_news() {
                return;
            }
            self.due_ns = self.due_ns.min(table.local.graph.next_timeout_ns());
        }
        self.take_changes();
    }

    fn take_messages(&mut self, take: &mut dyn FnMut(UnitId, FromUnit)) {
        while let Some((unit, message)) = self.messages.pop_front() {
            take(unit, message);
        }
    }
}
