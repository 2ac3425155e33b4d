//! One state of the model: the dispatcher, its units and the wire between them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use packet::FlowKey;
use protocol::dispatcher::{Dispatcher, DispatcherOutput, FlowStatus};
use protocol::message::{FromDispatcher, FromUnit, Stamp, UnitId, UnitMessage};
use protocol::trace::{EventSink, MessagePeer, MessageSummary, TimelineEvent};
use protocol::unit;

use crate::common::world::{Item, World};
use crate::network::{Faults, Handover, PlantedFault};
use crate::support::{NOW_NS, dispatch, dispatcher, hash, key};

/// A step of the outer world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A packet of this flow arrives at the dispatcher.
    Packet(u32),
    /// An operator migrates the flow to this unit.
    Migrate(u32, u16),
    /// A unit crashes.
    Crash(u16),
    /// The dispatcher and the other units notice that.
    Notice(u16),
}

/// An input of the dispatcher.
#[derive(Clone, Debug)]
pub enum Input {
    Packet(FlowKey),
    Migrate(FlowKey, UnitId),
    Lose(UnitId),
    Started(UnitId),
    Message(UnitId, FromUnit),
}

/// The state of the model. The dispatcher is the outcome of its inputs: it is made again from them
/// whenever there is another one.
#[derive(Clone, Debug)]
pub struct Situation {
    pub world: World,
    /// The dispatcher's.
    trace: EventSink,
    /// Units with an unnoticed crash.
    pub crashed: Vec<UnitId>,
    inputs: Vec<Input>,
    /// Hash of the inputs.
    history: u64,
    /// Steps that have been taken.
    pub steps: usize,
    /// Faults that may still happen.
    pub faults: Faults,
}

impl Situation {
    pub fn new(model: &Handover) -> Situation {
        // A pull that a unit got before its crash is answered when it is repeated.
        let has_crash = model.steps.iter().any(|step| matches!(step, Step::Crash(_)));
        let has_retransmissions = has_crash || model.faults.mute + model.faults.early > 0;
        let world = World::new(model.units, |id| unit::Config {
            replicate_after_ns: None,
            reorder_timeout_ns: if model.is_patient { u64::MAX / 64 } else { REORDER_NS },
            retransmit_ns: if has_retransmissions { AGAIN_NS } else { u64::MAX },
            ..unit::Config::new(id)
        });
        let mut world = if models::is_replaying() { world } else { world.without_timeline() };
        Situation {
            trace: std::mem::take(&mut world.dispatcher),
            world,
            crashed: Vec::new(),
            inputs: Vec::new(),
            history: 0,
            steps: 0,
            faults: model.faults,
        }
    }

    /// Takes the next step of the outer world.
    pub fn step(&mut self, model: &Handover, step: Step) {
        self.steps += 1;
        match step {
            Step::Packet(flow) => self.packet(model, &key(flow)),
            Step::Migrate(flow, to) => self.input(model, Input::Migrate(key(flow), UnitId(to))),
            Step::Crash(unit) => {
                self.world.lose(UnitId(unit));
                self.world.lost.clear(); // No unit answers for it yet.
                if model.planted != PlantedFault::NumberReused {
                    self.crashed.push(UnitId(unit));
                }
            }
            Step::Notice(unit) => {
                self.crashed.retain(|crashed| crashed.0 != unit);
                self.world.lost.insert(UnitId(unit));
                self.input(model, Input::Lose(UnitId(unit)));
            }
        }
    }

    /// Delivers an item of the wire, which stays there if it comes twice.
    pub fn arrive(&mut self, model: &Handover, at: usize, comes_twice: bool) {
        let is_lost = self.world.lost.contains(&self.world.wire[at].to);
        if is_lost && model.planted == PlantedFault::LostUnitSilent {
            self.world.wire.remove(at);
        } else {
            self.world.deliver(at, comes_twice);
        }
    }

    /// A packet with this key arrives at the dispatcher.
    pub fn packet(&mut self, model: &Handover, key: &FlowKey) {
        self.input(model, Input::Packet(*key));
    }

    /// Delivers what a unit reported first.
    pub fn report(&mut self, model: &Handover, at: usize) {
        let (from, message) = self.world.to_dispatcher.remove(at);
        self.input(model, Input::Message(from, message));
    }

    /// Gives the dispatcher an input, and sends what it sends.
    fn input(&mut self, model: &Handover, input: Input) {
        self.inputs.push(input);
        let mut hasher = DefaultHasher::new();
        (self.history, format!("{:?}", self.inputs.last())).hash(&mut hasher);
        self.history = hasher.finish();
        let (outputs, dispatched) = replay(model, &self.inputs, &self.trace);
        for output in outputs {
            match output {
                DispatcherOutput::Start(unit) => self.input(model, Input::Started(unit)),
                DispatcherOutput::Send {
                    message: FromDispatcher::Release { .. } | FromDispatcher::Adopt { .. },
                    ..
                } if model.planted == PlantedFault::MoveLost => {}
                DispatcherOutput::Send { to, message } => {
                    let message = model.planted.change_message(message);
                    let summary = MessageSummary::from(&message);
                    let sent = TimelineEvent::Sent { message: summary, to: MessagePeer::Unit(to) };
                    self.trace.note(NOW_NS, summary.place(), None, sent);
                    self.world.post(None, to, Item::Message(UnitMessage::FromDispatcher(message)));
                }
                _ => {} // Others are for operators and meters.
            }
        }
        if let Some((unit, stamp)) = dispatched {
            let stamp = model.planted.change_stamp(stamp);
            self.world.post(None, unit, Item::Packet(stamp, stamp.seq));
        }
    }

    /// Returns the flows that the dispatcher knows.
    pub fn flows(&self, model: &Handover) -> Vec<FlowStatus> {
        let mut dispatcher = dispatcher(model.units);
        self.inputs.iter().for_each(|input| _ = feed(&mut dispatcher, input, &mut Vec::new()));
        dispatcher.flows().statuses(0..u32::MAX).collect()
    }
}

/// Equal situations have the same future.
impl Hash for Situation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.world.fingerprint(), &self.world.lost, &self.crashed).hash(state);
        (self.history, self.steps, self.faults).hash(state);
        let mut reports: BTreeMap<UnitId, Vec<String>> = BTreeMap::new();
        for (unit, message) in &self.world.to_dispatcher {
            reports.entry(*unit).or_default().push(format!("{message:?}"));
        }
        reports.hash(state);
    }
}

impl PartialEq for Situation {
    fn eq(&self, other: &Situation) -> bool {
        let hash = |situation: &Situation| {
            let mut hasher = DefaultHasher::new();
            situation.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}

/// Time until a gap is given up.
const REORDER_NS: u64 = 100;

/// Time until something is sent again: longer than all other timers.
pub const AGAIN_NS: u64 = 1_000;

/// Returns what the last of these inputs brings about.
fn replay(
    model: &Handover,
    inputs: &[Input],
    trace: &EventSink,
) -> (Vec<DispatcherOutput>, Option<(UnitId, Stamp)>) {
    let mut dispatcher = dispatcher(model.units);
    let (mut outputs, mut dispatched) = (Vec::new(), None);
    for (number, input) in (1..).zip(inputs) {
        if number == inputs.len() {
            dispatcher.set_trace(trace.clone());
        }
        outputs.clear();
        dispatched = feed(&mut dispatcher, input, &mut outputs);
    }
    (outputs, dispatched)
}

fn feed(
    dispatcher: &mut Dispatcher,
    input: &Input,
    outputs: &mut Vec<DispatcherOutput>,
) -> Option<(UnitId, Stamp)> {
    match input {
        Input::Packet(key) => return dispatch(dispatcher, key, outputs),
        Input::Migrate(key, to) => {
            if let Some(id) = dispatcher.flows().find(hash(key), key) {
                // It may be there already, or the unit may be lost.
                let _ = dispatcher.migrations().migrate(NOW_NS, id, Some(*to), outputs);
            }
        }
        Input::Lose(unit) => dispatcher.membership().lose(NOW_NS, *unit, outputs),
        Input::Started(unit) => dispatcher.membership().started(NOW_NS, *unit),
        Input::Message(from, message) => dispatcher.handle_message(NOW_NS, *from, message.clone(), outputs),
    }
    None
}
