//! Aliases: two flows of two units; functions rewrite their packets. The dispatcher knows a flow's
//! alias before the packet that created it leaves, so that an answer finds its flow (design.md
//! 3.8). The real dispatcher runs; units are restated as what they report.
//!
//! Bounds: two clients with two flows each at most, two aliases or one for both, one end per
//! client, and up to two answers to each packet that has left, in every order.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use models::{explore, find_violation, is_deep};
use packet::FlowKey;
use protocol::dispatcher::{Dispatcher, DispatcherOutput};
use protocol::message::{Epoch, FlowId, FromUnit, UnitId};
use protocol::trace::failure::{last_timeline, simulated_timeline};
use protocol::trace::{Machine, TraceDetail};
use stateright::{Model, Property};

use support::{NOW_NS, dispatch, dispatcher, hash, key};

/// An input of the dispatcher. Clients and aliases have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Input {
    /// A client's packet.
    Packet(u32),
    /// An answer to a packet that has left with this alias.
    Answer(u32),
    /// A unit reports the first packet of a flow, and its alias.
    Done(FlowId, u32),
    /// The owner proposes the flow's end.
    Expire(UnitId, FlowId, Epoch, u64),
}

/// A packet that has left, with the alias of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Left {
    alias: u32,
    flow: FlowId,
    /// Answers that may still come.
    answers: u8,
}

/// The state of the model. The dispatcher is the outcome of its inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct AliasState {
    inputs: Vec<Input>,
    /// Reports on their way, of each unit in order.
    reports: BTreeMap<u16, Vec<(FlowId, u32)>>,
    /// Packets that have left.
    outside: Vec<Left>,
    /// The clients' flows, and their aliases.
    flows: BTreeMap<FlowId, u32>,
    /// The flow that was given each alias last.
    granted: BTreeMap<u32, FlowId>,
    /// Packets and ends of each client so far.
    begun: [u8; CLIENTS],
    ended: [u8; CLIENTS],
    /// Flows that have ended.
    ended_flows: BTreeSet<FlowId>,
    /// An answer has found its flow.
    has_found: bool,
    /// An answer has gone elsewhere than to the flow that has its alias.
    has_strayed: bool,
}

const CLIENTS: usize = 2;

/// The model.
#[derive(Clone, Debug)]
struct Aliases {
    /// Both clients get the same alias: their units know nothing of each other.
    is_same: bool,
    flows_of_client: u8,
    answers: u8,
    planted: PlantedFault,
}

/// A rule that the model breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlantedFault {
    None,
    /// Packets leave at their units, and their aliases follow.
    LeavesFirst,
    /// Reports of flow ends do not reach the dispatcher.
    EndLost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Packet(u32),
    End(u32),
    Report(u16),
    Answer(usize),
}

impl Aliases {
    fn alias_of(&self, client: u32) -> u32 {
        if self.is_same { 100 } else { 100 + client }
    }

    /// Returns the dispatcher after these inputs.
    fn dispatcher(&self, inputs: &[Input]) -> Dispatcher {
        let mut dispatcher = dispatcher(2);
        inputs.iter().for_each(|input| _ = feed(&mut dispatcher, *input));
        dispatcher
    }

    /// Gives the dispatcher an input. Returns what it does with a packet.
    fn input(&self, state: &mut AliasState, input: Input) -> Option<(UnitId, FlowId)> {
        let mut dispatcher = self.dispatcher(&state.inputs);
        if let Some(timeline) = last_timeline().filter(|_| models::is_replaying()) {
            dispatcher.set_trace(timeline.trace("model", Machine::Dispatcher, TraceDetail::Packets));
        }
        state.inputs.push(input);
        feed(&mut dispatcher, input)
    }

    fn packet(&self, state: &mut AliasState, client: u32) {
        let alias = self.alias_of(client);
        state.begun[client as usize] += 1;
        let Some((unit, flow)) = self.input(state, Input::Packet(client)) else { return };
        state.flows.insert(flow, alias);
        state.reports.entry(unit.0).or_default().push((flow, alias));
        if self.planted == PlantedFault::LeavesFirst {
            state.outside.push(Left { alias, flow, answers: self.answers });
        }
    }

    fn report(&self, state: &mut AliasState, unit: u16) {
        let Some(reports) = state.reports.get_mut(&unit) else { return };
        let (flow, alias) = reports.remove(0);
        if reports.is_empty() {
            state.reports.remove(&unit);
        }
        self.input(state, Input::Done(flow, alias));
        if self.dispatcher(&state.inputs).flows().status(flow).is_some() {
            state.granted.insert(alias, flow);
        }
        if self.planted != PlantedFault::LeavesFirst {
            state.outside.push(Left { alias, flow, answers: self.answers });
        }
    }

    fn answer(&self, state: &mut AliasState, at: usize) {
        let left = &mut state.outside[at];
        left.answers -= 1;
        let Left { alias, flow, answers } = *left;
        if answers == 0 {
            state.outside.remove(at);
        }
        let dispatcher = self.dispatcher(&state.inputs);
        let is_live = |flow: FlowId| dispatcher.flows().status(flow).is_some();
        // The flow itself, unless it has ended or a later one was given the alias.
        let expected = match state.granted.get(&alias) {
            Some(&last) if is_live(last) => Some(last),
            Some(_) => None,
            None => Some(flow).filter(|flow| is_live(*flow)),
        };
        let found = self.input(state, Input::Answer(alias)).map(|(_, flow)| flow);
        state.has_found |= expected.is_some() && found == expected;
        let is_of_other = found.is_some_and(|found| state.flows.get(&found).is_some_and(|of| *of != alias));
        state.has_strayed |= is_of_other || expected.is_some_and(|expected| found != Some(expected));
    }

    fn end(&self, state: &mut AliasState, client: u32) {
        state.ended[client as usize] += 1;
        let dispatcher = self.dispatcher(&state.inputs);
        let found = dispatcher.flows().find(hash(&key(client)), &key(client));
        let Some(status) = found.and_then(|flow| dispatcher.flows().status(flow)) else { return };
        state.ended_flows.insert(status.flow);
        if self.planted != PlantedFault::EndLost {
            self.input(state, Input::Expire(status.owner, status.flow, status.epoch, status.packets));
        }
    }
}

/// Returns the unit and the flow of a packet.
fn feed(dispatcher: &mut Dispatcher, input: Input) -> Option<(UnitId, FlowId)> {
    let outputs: &mut Vec<DispatcherOutput> = &mut Vec::new();
    let mut packet = |key: &FlowKey| {
        let (unit, stamp) = dispatch(dispatcher, key, outputs)?;
        Some((unit, stamp.flow))
    };
    match input {
        Input::Packet(client) => packet(&key(client)),
        Input::Answer(alias) => packet(&key(alias)),
        Input::Done(flow, alias) => {
            let alias = key(alias);
            dispatcher.aliases().note_report(flow, &alias);
            dispatcher.aliases().take(flow, &alias, hash(&alias), outputs);
            None
        }
        Input::Expire(unit, flow, epoch, seq) => {
            dispatcher.handle_message(NOW_NS, unit, FromUnit::Expire { flow, epoch, seq }, outputs);
            None
        }
    }
}

impl Model for Aliases {
    type State = AliasState;
    type Action = Action;

    fn init_states(&self) -> Vec<AliasState> {
        if models::is_replaying() {
            simulated_timeline();
        }
        vec![AliasState::default()]
    }

    fn actions(&self, state: &AliasState, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS as u32 {
            let (begun, ended) = (state.begun[client as usize], state.ended[client as usize]);
            if begun == ended && begun < self.flows_of_client {
                actions.push(Action::Packet(client));
            }
            if begun > ended {
                actions.push(Action::End(client));
            }
        }
        actions.extend(state.reports.keys().map(|unit| Action::Report(*unit)));
        actions.extend((0..state.outside.len()).map(Action::Answer));
    }

    fn next_state(&self, state: &AliasState, action: Action) -> Option<AliasState> {
        let mut next = state.clone();
        match action {
            Action::Packet(client) => self.packet(&mut next, client),
            Action::End(client) => self.end(&mut next, client),
            Action::Report(unit) => self.report(&mut next, unit),
            Action::Answer(at) => self.answer(&mut next, at),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Aliases>> {
        vec![
            Property::always("an answer finds its flow", |_, state: &AliasState| !state.has_strayed),
            Property::always("an ended flow has no alias", |model: &Aliases, state: &AliasState| {
                let dispatcher = model.dispatcher(&state.inputs);
                state.granted.keys().all(|alias| {
                    let found = dispatcher.flows().find(hash(&key(*alias)), &key(*alias));
                    found.is_none_or(|flow| !state.ended_flows.contains(&flow))
                })
            }),
            Property::sometimes("an answer has found its flow", |_, state: &AliasState| state.has_found),
        ]
    }
}

const MODEL: Aliases =
    Aliases { is_same: false, flows_of_client: 1, answers: 1, planted: PlantedFault::None };

#[test]
fn an_answer_finds_its_flow() {
    explore("two aliases", MODEL);
    explore("one alias", Aliases { is_same: true, ..MODEL });
    if is_deep() {
        explore("two aliases, deep", Aliases { answers: 2, ..MODEL });
        explore("one alias, deep", Aliases { answers: 2, is_same: true, ..MODEL });
    }
}

/// Each property is violated by a planted fault.
#[test]
fn planted_faults_are_found() {
    let fault = Aliases { planted: PlantedFault::LeavesFirst, ..MODEL };
    find_violation("a packet leaves first", fault, "an answer finds its flow");
    let fault = Aliases { planted: PlantedFault::EndLost, ..MODEL };
    find_violation("an end is lost", fault, "an ended flow has no alias");
}
