//! This project's migration: a dispatcher and two units, the code that also runs on hosts, on the
//! operator's command (design.md 3.14).

use std::collections::VecDeque;

use packet::{FlowHasher, FlowKey};
use protocol::dispatcher::{Config, Dispatched, Dispatcher, DispatcherOutput, Granularity, PacketArrival};
use protocol::message::{FlowId, RefuseReason, Stamp, UnitId, UnitMessage};
use protocol::unit::{Done, Engine, Outbox, Unit};
use runtime::operator::FLOWS_MIGRATED_MAX;

use super::network::{MoveNetwork, MoveNode, Mover};
use super::witness::{FoldState, SwitchedPacket};
use super::{MigrationCase, MoveQueue};

/// Messages.
pub enum OwnershipMessage {
    /// From the dispatcher, or from the other unit.
    ToUnit(UnitMessage),
    /// The target reports the arrival of a flow's state, if moves take turns.
    Arrived,
    /// The dispatcher continues its command after the packets that have arrived.
    Proceed,
}

const UNITS: [(UnitId, MoveNode); 2] = [(UnitId(0), MoveNode::Source), (UnitId(1), MoveNode::Target)];

/// All nodes.
pub struct Ownership {
    queue: MoveQueue,
    concurrency: u32,
    flows: u32,
    dispatcher: Dispatcher,
    hasher: FlowHasher,
    keys: Vec<FlowKey>,
    ids: Vec<Option<FlowId>>,
    units: [Unit<Folds>; 2],
    outputs: Vec<DispatcherOutput>,
    outbox: Outbox<SwitchedPacket>,
    /// Stamps of packets on the links to the units, in order: these lose and overtake nothing.
    stamps: [VecDeque<Stamp>; 2],
}

/// The engine of a unit: states that encode their packets.
struct Folds {
    /// By the flow's index.
    states: Vec<Option<FoldState>>,
    state_bytes: usize,
    done: Vec<(FlowId, SwitchedPacket)>,
    /// Flows with arrived states.
    arrived: Vec<FlowId>,
}

impl Engine for Folds {
    type Packet = SwitchedPacket;
    type Effects = ();

    fn process(&mut self, _now_ns: u64, flow: FlowId, _seq: u64, packet: SwitchedPacket) {
        self.states[flow.index as usize].get_or_insert_default().add(packet.seq);
        self.done.push((flow, packet));
    }

    fn flush(&mut self, mut done: impl FnMut(Done<SwitchedPacket, ()>)) {
        for (flow, packet) in self.done.drain(..) {
            let mut one = Done::new(flow, packet.seq.into());
            one.outputs.push(packet);
            done(one);
        }
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        if let Some(state) = self.states[flow.index as usize] {
            let begin = out.len();
            out.extend(state.to_bytes());
            out.resize(begin + self.state_bytes.max(size_of::<u64>()), 0);
        }
    }

    fn restore(&mut self, _now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        let bytes = state.first_chunk().ok_or(RefuseReason::Unreadable)?;
        self.states[flow.index as usize] = Some(FoldState::of_bytes(*bytes));
        self.arrived.push(flow);
        Ok(())
    }

    fn forget(&mut self, _now_ns: u64, flow: FlowId, _ended: bool) {
        self.states[flow.index as usize] = None;
    }
}

impl Ownership {
    /// Creates two units; the first one gets all flows.
    ///
    /// # Errors
    ///
    /// If there is no memory for the tables.
    pub fn new(case: &MigrationCase) -> Result<Ownership, String> {
        let config = Config {
            mode: Granularity::Flow,
            capacity_bps: u64::MAX / 1_000_000,
            units_min: 2,
            units_max: 2,
            idle_ns: u64::MAX,
            flows_max: case.flows.max(1),
            ..Config::default()
        };
        let unit = |id| {
            let config = protocol::unit::Config {
                id,
                replicate_after_ns: None,
                deltas: false,
                reorder_timeout_ns: 1_000_000_000,
                retransmit_ns: 1_000_000_000,
                pending_max: 1 << 20,
                pending_per_flow_max: 1 << 20,
                replica_bytes_max: 0,
                expire_after_ns: None,
                has_groups: false,
            };
            let states = vec![None; case.flows as usize];
            let state_bytes = case.state_bytes;
            Unit::new(config, Folds { states, state_bytes, done: Vec::new(), arrived: Vec::new() })
        };
        let key = |flow: u32| {
            let client = (flow.to_be_bytes(), 40_000u16.to_be_bytes());
            FlowKey::of_ipv4(client, ([198, 18, 0, 1], 443u16.to_be_bytes()), 6, 0).0
        };
        Ok(Ownership {
            queue: MoveQueue::new(case.flows),
            concurrency: case.concurrency,
            flows: case.flows,
            dispatcher: Dispatcher::new(config).map_err(|error| error.to_string())?,
            hasher: FlowHasher::new(1),
            keys: (0..case.flows).map(key).collect(),
            ids: vec![None; case.flows as usize],
            units: UNITS.map(|(id, _)| unit(id)),
            outputs: Vec::new(),
            outbox: Outbox::default(),
            stamps: Default::default(),
        })
    }

    /// Migrates up to this many of the flows that are left.
    fn migrate(&mut self, count: usize, net: &mut MoveNetwork<OwnershipMessage>) -> Result<(), String> {
        for _ in 0..count {
            let Some(flow) = self.queue.take() else { return Ok(()) };
            let id = self.ids[flow as usize].ok_or("a flow has not begun")?;
            net.begin(flow);
            let moved =
                self.dispatcher.migrations().migrate(net.now_ns(), id, Some(UNITS[1].0), &mut self.outputs);
            moved.map_err(|error| error.to_string())?;
            self.send_outputs(net);
        }
        Ok(())
    }

    fn send_outputs(&mut self, net: &mut MoveNetwork<OwnershipMessage>) {
        for output in self.outputs.drain(..) {
            if let DispatcherOutput::Send { to, message } = output {
                let message = OwnershipMessage::ToUnit(UnitMessage::FromDispatcher(message));
                net.send(MoveNode::Switch, UNITS[to.index()].1, message);
            }
        }
    }

    /// Sends what a unit has to send, after the packets that it has processed.
    fn follow_up(&mut self, unit: usize, net: &mut MoveNetwork<OwnershipMessage>) -> Result<(), String> {
        let (id, node) = UNITS[unit];
        self.units[unit].flush(|done| done.outputs.into_iter().for_each(|packet| net.leave(node, packet)));
        for flow in std::mem::take(&mut self.units[unit].engine_mut().arrived) {
            net.end(node, self.number_of(flow));
            if self.concurrency < self.flows {
                net.send(node, MoveNode::Switch, OwnershipMessage::Arrived);
            }
        }
        for (to, message) in self.outbox.to_units.drain(..) {
            let has_state = message.state_bytes().is_some();
            let message = OwnershipMessage::ToUnit(UnitMessage::FromPeer(id, message));
            match has_state {
                true => net.send_state(node, UNITS[to.index()].1, message),
                false => net.send(node, UNITS[to.index()].1, message),
            }
        }
        if self.outbox.is_empty() { Ok(()) } else { Err("a unit did what it had no reason for".to_owned()) }
    }

    /// Flows begin in order, so that their indexes are their numbers.
    fn number_of(&self, flow: FlowId) -> u32 {
        flow.index
    }
}

impl Mover for Ownership {
    type Message = OwnershipMessage;

    fn start(&mut self, net: &mut MoveNetwork<OwnershipMessage>) -> Result<(), String> {
        match self.concurrency < self.flows {
            true => self.migrate(self.concurrency as usize, net),
            false => {
                net.yield_to_queue(MoveNode::Switch, OwnershipMessage::Proceed);
                Ok(())
            }
        }
    }

    fn switch(&mut self, packet: SwitchedPacket, net: &mut MoveNetwork<OwnershipMessage>) {
        let key = &self.keys[packet.flow as usize];
        let arrival = PacketArrival { key, hash: self.hasher.hash(key), len: 64 };
        let dispatched = self.dispatcher.handle_packet(net.now_ns(), arrival, &mut self.outputs);
        self.send_outputs(net);
        if let Dispatched::To { unit, stamp } = dispatched {
            self.ids[packet.flow as usize] = Some(stamp.flow);
            self.stamps[unit.index()].push_back(stamp);
            net.forward(MoveNode::Switch, UNITS[unit.index()].1, packet);
        }
    }

    fn packet(&mut self, at: MoveNode, packet: SwitchedPacket, net: &mut MoveNetwork<OwnershipMessage>) {
        let unit = usize::from(at == MoveNode::Target);
        let Some(stamp) = self.stamps[unit].pop_front() else { return };
        self.units[unit].handle_packet(net.now_ns(), stamp, packet, &mut self.outbox);
        // A packet alone causes nothing that could fail here.
        let _ = self.follow_up(unit, net);
    }

    fn message(
        &mut self,
        at: MoveNode,
        message: OwnershipMessage,
        net: &mut MoveNetwork<OwnershipMessage>,
    ) -> Result<(), String> {
        match message {
            OwnershipMessage::ToUnit(message) => {
                let unit = usize::from(at == MoveNode::Target);
                self.units[unit].handle_message(net.now_ns(), message, &mut self.outbox);
                self.follow_up(unit, net)
            }
            OwnershipMessage::Arrived => self.migrate(1, net),
            OwnershipMessage::Proceed => {
                self.migrate(FLOWS_MIGRATED_MAX, net)?;
                if self.queue.next < self.flows {
                    net.yield_to_queue(MoveNode::Switch, OwnershipMessage::Proceed);
                }
                Ok(())
            }
        }
    }

    fn state(&self, flow: u32, _net: &MoveNetwork<OwnershipMessage>) -> Option<FoldState> {
        let id = self.ids[flow as usize]?;
        self.units[1].engine().states[id.index as usize]
    }
}
