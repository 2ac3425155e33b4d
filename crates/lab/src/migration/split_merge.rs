//! Migration as in Split/Merge: the controller suspends flows and buffers their packets while it
//! moves their states, then resumes them at their new place.
//!
//! It suspends a flow and requests its state at the same time. Packets in flight to the source when
//! it gives the state away are lost, and packets that the switch sends directly may overtake
//! buffered ones.

use super::network::{MoveNetwork, MoveNode, Mover};
use super::witness::{FoldState, SwitchedPacket};
use super::{MigrationCase, MoveQueue};

/// Its messages. A group is the flows of one command.
pub enum SuspendCommand {
    /// To the switch: the group's packets go to the controller.
    Suspend(u32),
    /// To the source: sends the states of a group, each on its own.
    Export(u32),
    Exported(u32, Option<FoldState>),
    Import(u32, Option<FoldState>),
    Imported(u32),
    /// To the switch: the group's packets go to the target.
    Resume(u32),
    Resumed,
    /// A packet from the controller.
    Packet(SwitchedPacket),
}

/// The next node of a flow's packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Source,
    Controller,
    Target,
}

/// A group at the controller.
#[derive(Clone, Default)]
struct Group {
    imported: u32,
    buffered: Vec<SwitchedPacket>,
    is_resumed: bool,
}

/// All nodes.
pub struct SplitMerge {
    queue: MoveQueue,
    concurrency: u32,
    flows: u32,
    /// Flows of a group; the last group may have fewer.
    size: u32,
    routes: Vec<Route>,
    is_exported: Vec<bool>,
    groups: Vec<Group>,
}

impl SplitMerge {
    /// Groups of this many flows.
    pub fn new(case: &MigrationCase, size: u32) -> SplitMerge {
        let groups = case.flows.div_ceil(size);
        SplitMerge {
            queue: MoveQueue::new(groups),
            concurrency: case.concurrency,
            flows: case.flows,
            size,
            routes: vec![Route::Source; groups as usize],
            is_exported: vec![false; case.flows as usize],
            groups: vec![Group::default(); groups as usize],
        }
    }

    fn members(&self, group: u32) -> std::ops::Range<u32> {
        group * self.size..((group + 1) * self.size).min(self.flows)
    }

    fn begin_next(&mut self, net: &mut MoveNetwork<SuspendCommand>) {
        if let Some(group) = self.queue.take() {
            self.members(group).for_each(|flow| net.begin(flow));
            net.send(MoveNode::Controller, MoveNode::Switch, SuspendCommand::Suspend(group));
            net.send(MoveNode::Controller, MoveNode::Source, SuspendCommand::Export(group));
        }
    }
}

impl Mover for SplitMerge {
    type Message = SuspendCommand;

    fn start(&mut self, net: &mut MoveNetwork<SuspendCommand>) -> Result<(), String> {
        for _ in 0..self.concurrency {
            self.begin_next(net);
        }
        Ok(())
    }

    fn switch(&mut self, packet: SwitchedPacket, net: &mut MoveNetwork<SuspendCommand>) {
        match self.routes[(packet.flow / self.size) as usize] {
            Route::Source => net.forward(MoveNode::Switch, MoveNode::Source, packet),
            Route::Controller => {
                net.send(MoveNode::Switch, MoveNode::Controller, SuspendCommand::Packet(packet))
            }
            Route::Target => net.forward(MoveNode::Switch, MoveNode::Target, packet),
        }
    }

    fn packet(&mut self, at: MoveNode, packet: SwitchedPacket, net: &mut MoveNetwork<SuspendCommand>) {
        // The source has the state no more.
        if at == MoveNode::Source && self.is_exported[packet.flow as usize] {
            net.drop_packet(packet);
        } else {
            net.process(at, packet);
        }
    }

    fn message(
        &mut self,
        at: MoveNode,
        message: SuspendCommand,
        net: &mut MoveNetwork<SuspendCommand>,
    ) -> Result<(), String> {
        match message {
            SuspendCommand::Suspend(group) => self.routes[group as usize] = Route::Controller,
            SuspendCommand::Export(group) => {
                for flow in self.members(group) {
                    self.is_exported[flow as usize] = true;
                    let state = net.take_state(at, flow);
                    net.send_state(at, MoveNode::Controller, SuspendCommand::Exported(flow, state));
                }
            }
            SuspendCommand::Exported(flow, state) => {
                net.work_for_flow();
                net.send_state(at, MoveNode::Target, SuspendCommand::Import(flow, state));
            }
            SuspendCommand::Import(flow, state) => {
                net.put_state(at, flow, state);
                net.send(at, MoveNode::Controller, SuspendCommand::Imported(flow));
            }
            SuspendCommand::Imported(flow) => {
                let group = flow / self.size;
                self.groups[group as usize].imported += 1;
                if self.groups[group as usize].imported == self.members(group).len() as u32 {
                    self.groups[group as usize].is_resumed = true;
                    for packet in std::mem::take(&mut self.groups[group as usize].buffered) {
                        net.send(at, MoveNode::Target, SuspendCommand::Packet(packet));
                    }
                    net.send(at, MoveNode::Switch, SuspendCommand::Resume(group));
                }
            }
            SuspendCommand::Resume(group) => {
                self.routes[group as usize] = Route::Target;
                self.members(group).for_each(|flow| net.end(at, flow));
                net.send(at, MoveNode::Controller, SuspendCommand::Resumed);
            }
            SuspendCommand::Resumed => self.begin_next(net),
            SuspendCommand::Packet(packet) if at == MoveNode::Controller => {
                let group = &mut self.groups[(packet.flow / self.size) as usize];
                match group.is_resumed {
                    true => net.send(at, MoveNode::Target, SuspendCommand::Packet(packet)),
                    false => group.buffered.push(packet),
                }
            }
            SuspendCommand::Packet(packet) => net.process(at, packet),
        }
        Ok(())
    }
}
