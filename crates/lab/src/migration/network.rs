//! Four nodes, the links between them, and the traffic: what happens next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::MigrationCase;
use super::witness::{FoldState, MigrationOutcome, MoveWitness, SwitchedPacket};

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveNode {
    /// Knows each flow's unit, and sends packets there: a dispatcher, or a switch.
    Switch,
    /// Directs moves, if the system has one.
    Controller,
    /// The unit that has the flows before.
    Source,
    /// The unit that gets them.
    Target,
}

const NODES: usize = 4;

/// Times of nodes and links.
#[derive(Clone, Copy, Debug)]
pub struct MoveCosts {
    /// Time of a packet at a unit, in ns.
    pub packet_ns: u64,
    /// Time of a packet at the switch, in ns.
    pub forward_ns: u64,
    /// Time of a message, in ns: where it is sent, and where it arrives.
    pub message_ns: u64,
    /// Further time of a controller for each flow that it moves, in ns.
    pub controller_ns: u64,
    /// From one node to another, in ns.
    pub latency_ns: u64,
    /// Bits per second at which states leave a node.
    pub bandwidth_bps: u64,
}

impl MoveCosts {
    /// P-paper: 0.44 us for a packet (S93), 65 us each way, 10 Gbit/s. A message takes 0.25 us:
    /// 1,000 flows in 1.5 ms, with six messages each at their source.
    pub const PAPER: MoveCosts = MoveCosts {
        packet_ns: 440,
        forward_ns: 40,
        message_ns: 250,
        controller_ns: 0,
        latency_ns: 65_000,
        bandwidth_bps: 10_000_000_000,
    };
}

/// Flows that begin per microsecond, before the measurement.
const BEGIN_STEP_NS: u64 = 2_000;
/// Time between the last flow's begin and the migration, at least.
const SETTLE_NS: u64 = 2_000_000;
/// Traffic continues for this time after the last move.
const AFTER_NS: u64 = 5_000_000;
/// A migration that takes longer has failed.
const TOTAL_NS_MAX: u64 = 60_000_000_000;

/// A system that moves flows, with all its nodes.
pub trait Mover {
    /// Messages between its nodes.
    type Message;

    /// Begins to move all flows.
    fn start(&mut self, net: &mut MoveNetwork<Self::Message>) -> Result<(), String>;

    /// Handles a packet at the switch.
    fn switch(&mut self, packet: SwitchedPacket, net: &mut MoveNetwork<Self::Message>);

    /// Handles a packet at a unit or at the controller.
    fn packet(&mut self, at: MoveNode, packet: SwitchedPacket, net: &mut MoveNetwork<Self::Message>);

    /// A message has arrived.
    fn message(
        &mut self,
        at: MoveNode,
        message: Self::Message,
        net: &mut MoveNetwork<Self::Message>,
    ) -> Result<(), String>;

    /// The state of a flow at the end.
    fn state(&self, flow: u32, net: &MoveNetwork<Self::Message>) -> Option<FoldState> {
        net.states[MoveNode::Target as usize][flow as usize]
    }
}

/// Something on its way to a node.
enum Parcel<M> {
    Packet(SwitchedPacket),
    Message(M),
}

enum Event<M> {
    Arrive(MoveNode, Parcel<M>),
    /// The node is done with what it was at.
    Serve(MoveNode),
    /// The flow's next packet arrives at the switch.
    Traffic(u32),
    Start,
}

/// An event in the heap: the earliest first, those of one moment in the order of their making.
struct Scheduled<M>(Reverse<(u64, u64)>, Event<M>);

impl<M> PartialEq for Scheduled<M> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<M> Eq for Scheduled<M> {}

impl<M> PartialOrd for Scheduled<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Scheduled<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// Nodes, links and traffic.
pub struct MoveNetwork<M> {
    costs: MoveCosts,
    state_bytes: usize,
    now_ns: u64,
    events: BinaryHeap<Scheduled<M>>,
    scheduled: u64,
    queues: [VecDeque<Parcel<M>>; NODES],
    /// Until when each node is busy.
    busy_ns: [u64; NODES],
    /// A node is going to look at its queue.
    is_woken: [bool; NODES],
    /// When the latest arrives of what each link carries.
    last_ns: [[u64; NODES]; NODES],
    /// Until when each node sends states.
    sending_ns: [u64; NODES],
    /// States at units that have no tables of their own.
    states: [Vec<Option<FoldState>>; NODES],
    period_ns: u64,
    messages: u64,
    witness: MoveWitness,
}

impl<M> MoveNetwork<M> {
    /// Runs a migration.
    pub fn run<S: Mover<Message = M>>(
        case: &MigrationCase,
        seed: u64,
        mut mover: S,
    ) -> Result<MigrationOutcome, String> {
        let mut net = MoveNetwork::new(case, seed);
        while let Some(Scheduled(Reverse((at_ns, _)), event)) = net.events.pop() {
            net.now_ns = at_ns;
            if at_ns > TOTAL_NS_MAX {
                return Err(format!("{} flows have not moved", net.witness.moving()));
            }
            match event {
                Event::Arrive(node, parcel) => {
                    net.queues[node as usize].push_back(parcel);
                    net.wake(node);
                }
                Event::Serve(node) => net.serve(node, &mut mover)?,
                Event::Traffic(flow) => net.send_next(flow),
                Event::Start => {
                    net.witness.start(at_ns);
                    mover.start(&mut net)?;
                }
            }
        }
        let expected_flows = 0..case.flows;
        let states: Vec<_> = expected_flows.map(|flow| mover.state(flow, &net)).collect();
        net.witness.finish(&states, net.messages)
    }

    fn new(case: &MigrationCase, seed: u64) -> MoveNetwork<M> {
        let period_ns = 1_000_000_000 / u64::from(case.flow_pps.max(1));
        let flows = case.flows as usize;
        let mut net = MoveNetwork {
            costs: case.costs,
            state_bytes: case.state_bytes,
            now_ns: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            queues: [const { VecDeque::new() }; NODES],
            busy_ns: [0; NODES],
            is_woken: [false; NODES],
            last_ns: [[0; NODES]; NODES],
            sending_ns: [0; NODES],
            states: [Vec::new(), Vec::new(), vec![None; flows], vec![None; flows]],
            period_ns,
            messages: 0,
            witness: MoveWitness::new(case.flows),
        };
        let began_ns = BEGIN_STEP_NS * u64::from(case.flows) + SETTLE_NS;
        let mut random = seed;
        for flow in 0..case.flows {
            // The flow's first packet; the others at its own phase.
            net.schedule(BEGIN_STEP_NS * u64::from(flow), Event::Traffic(flow));
            let phase_ns = packet::split_mix(&mut random) % period_ns;
            net.witness.set_phase(flow, began_ns + phase_ns);
        }
        net.schedule(began_ns + SETTLE_NS, Event::Start);
        net
    }

    /// Sends a flow's next packet to the switch.
    fn send_next(&mut self, flow: u32) {
        let Some((packet, next_ns)) = self.witness.next_packet(flow, self.now_ns, self.period_ns, AFTER_NS)
        else {
            return;
        };
        self.schedule(next_ns, Event::Traffic(flow));
        self.queues[MoveNode::Switch as usize].push_back(Parcel::Packet(packet));
        self.wake(MoveNode::Switch);
    }

    fn schedule(&mut self, at_ns: u64, event: Event<M>) {
        self.scheduled += 1;
        self.events.push(Scheduled(Reverse((at_ns, self.scheduled)), event));
    }

    fn wake(&mut self, node: MoveNode) {
        if !self.is_woken[node as usize] && !self.queues[node as usize].is_empty() {
            self.is_woken[node as usize] = true;
            self.schedule(self.now_ns.max(self.busy_ns[node as usize]), Event::Serve(node));
        }
    }

    /// A node does the next thing in its queue.
    fn serve(&mut self, node: MoveNode, mover: &mut impl Mover<Message = M>) -> Result<(), String> {
        self.is_woken[node as usize] = false;
        if self.busy_ns[node as usize] <= self.now_ns {
            match self.queues[node as usize].pop_front() {
                Some(Parcel::Packet(packet)) if node == MoveNode::Switch => {
                    self.work(node, self.costs.forward_ns);
                    mover.switch(packet, self);
                }
                Some(Parcel::Packet(packet)) => mover.packet(node, packet, self),
                Some(Parcel::Message(message)) => {
                    self.work(node, self.costs.message_ns);
                    mover.message(node, message, self)?;
                }
                None => {}
            }
        }
        self.wake(node);
        Ok(())
    }

    /// The virtual time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A node is busy for this time.
    pub fn work(&mut self, node: MoveNode, ns: u64) {
        let busy = &mut self.busy_ns[node as usize];
        *busy = self.now_ns.max(*busy) + ns;
    }

    /// Charges the controller's work for a flow, in addition to messages.
    pub fn work_for_flow(&mut self) {
        self.work(MoveNode::Controller, self.costs.controller_ns);
    }

    /// Sends a message.
    pub fn send(&mut self, from: MoveNode, to: MoveNode, message: M) {
        self.messages += 1;
        self.work(from, self.costs.message_ns);
        self.carry(from, to, self.busy_ns[from as usize], Parcel::Message(message));
    }

    /// Sends a message with a flow's state.
    pub fn send_state(&mut self, from: MoveNode, to: MoveNode, message: M) {
        self.messages += 1;
        self.work(from, self.costs.message_ns);
        let send_ns = self.state_bytes as u64 * 8_000_000_000 / self.costs.bandwidth_bps;
        let sending = &mut self.sending_ns[from as usize];
        *sending = self.busy_ns[from as usize].max(*sending) + send_ns;
        let sent_ns = *sending;
        self.carry(from, to, sent_ns, Parcel::Message(message));
    }

    /// Queues a message at the node itself, after all queued ones, for work in parts.
    pub fn yield_to_queue(&mut self, node: MoveNode, message: M) {
        self.queues[node as usize].push_back(Parcel::Message(message));
        self.wake(node);
    }

    /// Sends a packet on.
    pub fn forward(&mut self, from: MoveNode, to: MoveNode, packet: SwitchedPacket) {
        let sent_ns = self.now_ns.max(self.busy_ns[from as usize]);
        self.carry(from, to, sent_ns, Parcel::Packet(packet));
    }

    fn carry(&mut self, from: MoveNode, to: MoveNode, sent_ns: u64, parcel: Parcel<M>) {
        let last = &mut self.last_ns[from as usize][to as usize];
        *last = (sent_ns + self.costs.latency_ns).max(*last);
        let arrives_ns = *last;
        self.schedule(arrives_ns, Event::Arrive(to, parcel));
    }

    /// A unit processes a packet, with the state that it has, and the packet leaves.
    pub fn process(&mut self, unit: MoveNode, packet: SwitchedPacket) {
        let state = self.states[unit as usize][packet.flow as usize].get_or_insert_default();
        state.add(packet.seq);
        self.leave(unit, packet);
    }

    /// A packet leaves a unit that has processed it.
    pub fn leave(&mut self, unit: MoveNode, packet: SwitchedPacket) {
        self.work(unit, self.costs.packet_ns);
        self.witness.left(packet, self.busy_ns[unit as usize]);
    }

    /// A unit drops a packet.
    pub fn drop_packet(&mut self, _packet: SwitchedPacket) {
        // What does not leave is lost; the witness counts it at the end.
    }

    /// Takes a flow's state from a unit.
    pub fn take_state(&mut self, unit: MoveNode, flow: u32) -> Option<FoldState> {
        self.states[unit as usize][flow as usize].take()
    }

    /// Gives a flow's state to a unit.
    pub fn put_state(&mut self, unit: MoveNode, flow: u32, state: Option<FoldState>) {
        self.states[unit as usize][flow as usize] = state;
    }

    /// The move of a flow begins.
    pub fn begin(&mut self, flow: u32) {
        self.witness.begin(flow, self.now_ns);
    }

    /// A flow has moved: its new unit has the state, gets its packets, and no packet waits for the
    /// move any more. Returns true if it is the last one.
    pub fn end(&mut self, node: MoveNode, flow: u32) {
        let at_ns = self.now_ns.max(self.busy_ns[node as usize]);
        self.witness.end(flow, at_ns);
    }
}
