//! Migration as with OpenNF's controller: loss-free, or order-preserving as well.
//!
//! The source raises an event with each packet of a moving flow in place of processing it. States
//! go through the controller, which buffers these packets until all states of its command are
//! there, passes them on, and then changes the switch's rule. To preserve order, the switch sends
//! packets to both the source and the controller for a while: the controller then knows the last
//! packet on the old path, and the target holds packets on the new path until it has processed that
//! one.

use super::network::{MoveNetwork, MoveNode, Mover};
use super::witness::{FoldState, SwitchedPacket};
use super::{MigrationCase, MoveQueue};

/// The order of a flow's packets across its move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrder {
    /// Packets that the switch sends to the target may overtake those of the controller.
    Any,
    /// As they came.
    Kept,
}

/// Its messages. A group is the flows of one command.
pub enum ControllerMessage {
    /// To the source: raises events from now on.
    EnableEvents(u32),
    /// To the source: sends the states of a group, each on its own.
    Get(u32),
    Chunk(u32, Option<FoldState>),
    /// To the source: forgets the group.
    Delete,
    Put(u32, Option<FoldState>),
    PutDone(u32),
    /// A packet that the source has not processed.
    Event(SwitchedPacket),
    /// The same, on its way to the target.
    Passed(SwitchedPacket),
    /// To the target: holds packets of the group, except the controller's.
    Hold(u32),
    /// To the switch: packets go to the source and to the controller.
    RouteToBoth(u32),
    Copy(SwitchedPacket),
    /// To the switch: packets go to the target.
    Route(u32),
    Routed(u32),
    /// From the target: this packet is processed.
    Processed(SwitchedPacket),
    /// To the target: nothing is held any more.
    Unhold(u32),
}

/// The next node of a flow's packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Source,
    Both,
    Target,
}

/// A group, as its controller sees it.
#[derive(Clone, Default)]
struct Group {
    put: u32,
    buffered: Vec<SwitchedPacket>,
    /// Packets of the source pass at once.
    passes: bool,
    /// The last packet that went both ways.
    last: Option<SwitchedPacket>,
    /// The last packet that the target has processed.
    processed: Option<SwitchedPacket>,
    is_routed: bool,
}

/// All nodes.
pub struct OpenNf {
    order: PacketOrder,
    queue: MoveQueue,
    concurrency: u32,
    flows: u32,
    /// Flows of a group; the last group may have fewer.
    size: u32,
    groups: Vec<Group>,
    routes: Vec<Route>,
    /// Groups with events raised by the source.
    raises: Vec<bool>,
    /// Groups that the target holds, with their packets.
    held: Vec<Option<Vec<SwitchedPacket>>>,
}

type Net = MoveNetwork<ControllerMessage>;

impl OpenNf {
    /// Groups of this many flows.
    pub fn new(case: &MigrationCase, size: u32, order: PacketOrder) -> OpenNf {
        let groups = case.flows.div_ceil(size) as usize;
        OpenNf {
            order,
            queue: MoveQueue::new(groups as u32),
            concurrency: case.concurrency,
            flows: case.flows,
            size,
            groups: vec![Group::default(); groups],
            routes: vec![Route::Source; groups],
            raises: vec![false; groups],
            held: vec![None; groups],
        }
    }

    fn members(&self, group: u32) -> std::ops::Range<u32> {
        group * self.size..((group + 1) * self.size).min(self.flows)
    }

    fn group_of(&self, flow: u32) -> usize {
        (flow / self.size) as usize
    }

    fn begin_next(&mut self, net: &mut Net) {
        if let Some(group) = self.queue.take() {
            self.members(group).for_each(|flow| net.begin(flow));
            net.send(MoveNode::Controller, MoveNode::Source, ControllerMessage::EnableEvents(group));
            net.send(MoveNode::Controller, MoveNode::Source, ControllerMessage::Get(group));
        }
    }

    /// All states of a group are at the target.
    fn pass_and_route(&mut self, group: u32, net: &mut Net) {
        net.send(MoveNode::Controller, MoveNode::Source, ControllerMessage::Delete);
        let known = &mut self.groups[group as usize];
        known.passes = true;
        for packet in std::mem::take(&mut known.buffered) {
            net.send(MoveNode::Controller, MoveNode::Target, ControllerMessage::Passed(packet));
        }
        match self.order {
            PacketOrder::Any => {
                net.send(MoveNode::Controller, MoveNode::Switch, ControllerMessage::Route(group))
            }
            PacketOrder::Kept => {
                net.send(MoveNode::Controller, MoveNode::Target, ControllerMessage::Hold(group));
                net.send(MoveNode::Controller, MoveNode::Switch, ControllerMessage::RouteToBoth(group));
            }
        }
    }

    /// Ends the hold of a group if the target has had the last packet of the old way.
    fn unhold(&mut self, group: usize, net: &mut Net) {
        let known = &self.groups[group];
        if known.is_routed && known.last == known.processed {
            net.send(MoveNode::Controller, MoveNode::Target, ControllerMessage::Unhold(group as u32));
            self.begin_next(net);
        }
    }

    fn at_source(&mut self, message: &ControllerMessage, net: &mut Net) {
        match *message {
            ControllerMessage::EnableEvents(group) => self.raises[group as usize] = true,
            ControllerMessage::Get(group) => {
                for flow in self.members(group) {
                    let state = net.take_state(MoveNode::Source, flow);
                    net.send_state(
                        MoveNode::Source,
                        MoveNode::Controller,
                        ControllerMessage::Chunk(flow, state),
                    );
                }
            }
            _ => {}
        }
    }

    fn at_target(&mut self, message: ControllerMessage, net: &mut Net) {
        match message {
            ControllerMessage::Put(flow, state) => {
                net.put_state(MoveNode::Target, flow, state);
                net.send(MoveNode::Target, MoveNode::Controller, ControllerMessage::PutDone(flow));
            }
            ControllerMessage::Passed(packet) => {
                net.process(MoveNode::Target, packet);
                if self.held[self.group_of(packet.flow)].is_some() {
                    net.send(MoveNode::Target, MoveNode::Controller, ControllerMessage::Processed(packet));
                }
            }
            ControllerMessage::Hold(group) => self.held[group as usize] = Some(Vec::new()),
            ControllerMessage::Unhold(group) => {
                for packet in self.held[group as usize].take().unwrap_or_default() {
                    net.process(MoveNode::Target, packet);
                }
                self.members(group).for_each(|flow| net.end(MoveNode::Target, flow));
            }
            _ => {}
        }
    }

    fn at_switch(&mut self, message: &ControllerMessage, net: &mut Net) {
        match *message {
            ControllerMessage::RouteToBoth(group) => self.routes[group as usize] = Route::Both,
            ControllerMessage::Route(group) => {
                self.routes[group as usize] = Route::Target;
                if self.order == PacketOrder::Any {
                    self.members(group).for_each(|flow| net.end(MoveNode::Switch, flow));
                }
                net.send(MoveNode::Switch, MoveNode::Controller, ControllerMessage::Routed(group));
            }
            _ => {}
        }
    }

    fn at_controller(&mut self, message: ControllerMessage, net: &mut Net) {
        match message {
            ControllerMessage::Chunk(flow, state) => {
                net.work_for_flow();
                net.send_state(MoveNode::Controller, MoveNode::Target, ControllerMessage::Put(flow, state));
            }
            ControllerMessage::PutDone(flow) => {
                let group = flow / self.size;
                self.groups[group as usize].put += 1;
                if self.groups[group as usize].put == self.members(group).len() as u32 {
                    self.pass_and_route(group, net);
                }
            }
            ControllerMessage::Event(packet) => {
                let group = self.group_of(packet.flow);
                match self.groups[group].passes {
                    true => {
                        net.send(MoveNode::Controller, MoveNode::Target, ControllerMessage::Passed(packet))
                    }
                    false => self.groups[group].buffered.push(packet),
                }
            }
            ControllerMessage::Copy(packet) => {
                let group = self.group_of(packet.flow);
                if self.groups[group].last.replace(packet).is_none() {
                    net.send(MoveNode::Controller, MoveNode::Switch, ControllerMessage::Route(group as u32));
                }
            }
            ControllerMessage::Processed(packet) => {
                let group = self.group_of(packet.flow);
                self.groups[group].processed = Some(packet);
                self.unhold(group, net);
            }
            ControllerMessage::Routed(group) => match self.order {
                PacketOrder::Any => self.begin_next(net),
                PacketOrder::Kept => {
                    self.groups[group as usize].is_routed = true;
                    self.unhold(group as usize, net);
                }
            },
            _ => {}
        }
    }
}

impl Mover for OpenNf {
    type Message = ControllerMessage;

    fn start(&mut self, net: &mut Net) -> Result<(), String> {
        for _ in 0..self.concurrency {
            self.begin_next(net);
        }
        Ok(())
    }

    fn switch(&mut self, packet: SwitchedPacket, net: &mut Net) {
        match self.routes[self.group_of(packet.flow)] {
            Route::Source => net.forward(MoveNode::Switch, MoveNode::Source, packet),
            Route::Target => net.forward(MoveNode::Switch, MoveNode::Target, packet),
            Route::Both => {
                net.forward(MoveNode::Switch, MoveNode::Source, packet);
                net.send(MoveNode::Switch, MoveNode::Controller, ControllerMessage::Copy(packet));
            }
        }
    }

    fn packet(&mut self, at: MoveNode, packet: SwitchedPacket, net: &mut Net) {
        let group = self.group_of(packet.flow);
        match (at, &mut self.held[group]) {
            (MoveNode::Source, _) if self.raises[group] => {
                net.send(at, MoveNode::Controller, ControllerMessage::Event(packet));
            }
            (MoveNode::Target, Some(held)) => held.push(packet),
            _ => net.process(at, packet),
        }
    }

    fn message(&mut self, at: MoveNode, message: ControllerMessage, net: &mut Net) -> Result<(), String> {
        match at {
            MoveNode::Source => self.at_source(&message, net),
            MoveNode::Target => self.at_target(message, net),
            MoveNode::Switch => self.at_switch(&message, net),
            MoveNode::Controller => self.at_controller(message, net),
        }
        Ok(())
    }
}
