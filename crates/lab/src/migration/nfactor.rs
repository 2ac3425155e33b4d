//! NFActor's migration: three requests and responses per flow, between the flow's actors (A15).
//!
//! The source requests a flow actor from the target, then a new route from the switch, and hands
//! over the state after the switch's answer, which arrives after the last packet.

use std::collections::HashMap;

use super::network::{MoveNetwork, MoveNode, Mover};
use super::witness::{FoldState, SwitchedPacket};
use super::{MigrationCase, MoveQueue};

/// Its messages, each about a flow.
pub enum ActorExchange {
    /// The source to the target: makes a flow actor.
    Create(u32),
    Created(u32),
    /// The source to the switch: packets go to the target.
    Reroute(u32),
    Rerouted(u32),
    /// The source to the target.
    State(u32, Option<FoldState>),
    Taken,
}

/// All nodes.
pub struct NfActor {
    queue: MoveQueue,
    concurrency: u32,
    /// Flows that the switch sends to the target.
    is_rerouted: Vec<bool>,
    /// Packets at the target that wait for their flow's state.
    waiting: HashMap<u32, Vec<SwitchedPacket>>,
    has_state: Vec<bool>,
}

impl NfActor {
    /// Flows that are at the source.
    pub fn new(case: &MigrationCase) -> NfActor {
        NfActor {
            queue: MoveQueue::new(case.flows),
            concurrency: case.concurrency,
            is_rerouted: vec![false; case.flows as usize],
            waiting: HashMap::new(),
            has_state: vec![false; case.flows as usize],
        }
    }

    fn begin_next(&mut self, net: &mut MoveNetwork<ActorExchange>) {
        if let Some(flow) = self.queue.take() {
            net.begin(flow);
            net.send(MoveNode::Source, MoveNode::Target, ActorExchange::Create(flow));
        }
    }
}

impl Mover for NfActor {
    type Message = ActorExchange;

    fn start(&mut self, net: &mut MoveNetwork<ActorExchange>) -> Result<(), String> {
        for _ in 0..self.concurrency {
            self.begin_next(net);
        }
        Ok(())
    }

    fn switch(&mut self, packet: SwitchedPacket, net: &mut MoveNetwork<ActorExchange>) {
        let to = if self.is_rerouted[packet.flow as usize] { MoveNode::Target } else { MoveNode::Source };
        net.forward(MoveNode::Switch, to, packet);
    }

    fn packet(&mut self, at: MoveNode, packet: SwitchedPacket, net: &mut MoveNetwork<ActorExchange>) {
        match at == MoveNode::Target && !self.has_state[packet.flow as usize] {
            true => self.waiting.entry(packet.flow).or_default().push(packet),
            false => net.process(at, packet),
        }
    }

    fn message(
        &mut self,
        at: MoveNode,
        message: ActorExchange,
        net: &mut MoveNetwork<ActorExchange>,
    ) -> Result<(), String> {
        match message {
            ActorExchange::Create(flow) => net.send(at, MoveNode::Source, ActorExchange::Created(flow)),
            ActorExchange::Created(flow) => net.send(at, MoveNode::Switch, ActorExchange::Reroute(flow)),
            ActorExchange::Reroute(flow) => {
                self.is_rerouted[flow as usize] = true;
                net.send(at, MoveNode::Source, ActorExchange::Rerouted(flow));
            }
            ActorExchange::Rerouted(flow) => {
                let state = net.take_state(at, flow);
                net.send_state(at, MoveNode::Target, ActorExchange::State(flow, state));
            }
            ActorExchange::State(flow, state) => {
                net.put_state(at, flow, state);
                self.has_state[flow as usize] = true;
                for packet in self.waiting.remove(&flow).unwrap_or_default() {
                    net.process(at, packet);
                }
                net.end(at, flow);
                net.send(at, MoveNode::Source, ActorExchange::Taken);
            }
            ActorExchange::Taken => self.begin_next(net),
        }
        Ok(())
    }
}
