//! A witness sees only the dispatcher's outputs and stamps, and objects when an invariant is
//! broken.
#![allow(clippy::panic, clippy::unwrap_used, reason = "it objects by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use packet::{Addr, Endpoint, FlowHasher, FlowKey, Scope};
use protocol::dispatcher::*;
use protocol::message::{FlowId, FromDispatcher, FromUnit, Handover, RefuseReason, Stamp, UnitId};

/// An event at a dispatcher. Units and flows are arbitrary.
#[derive(Clone, Debug)]
pub enum Step {
    /// A packet of a known or a new flow.
    Packet {
        flow: u32,
        len: u32,
    },
    /// Time advances, or seems to go back.
    Wait {
        ns: u64,
    },
    Back {
        ns: u64,
    },
    Advance,
    Started {
        unit: u16,
    },
    /// A flow's owner proposes its end, with a right or a wrong seq.
    Expire {
        nth: usize,
        is_right: bool,
    },
    /// A unit proposes the end of anything.
    Claim {
        from: u16,
        flow: FlowId,
        epoch: u32,
        seq: u64,
    },
    /// A flow gets an alias, which may be another flow's key.
    Alias {
        nth: usize,
        flow: u32,
    },
    Drained {
        unit: u16,
    },
    /// Packets to a unit were dropped.
    Drops {
        unit: u16,
        count: u64,
    },
    /// A flow's owner refuses its state; or another unit claims so.
    Refuse {
        nth: usize,
        is_owner: bool,
    },
    /// An operator migrates a flow, drains a unit, or resumes it.
    Migrate {
        nth: usize,
        to: Option<u16>,
    },
    Drain {
        unit: u16,
    },
    Resume {
        unit: u16,
    },
}

/// A dispatcher, and a witness.
pub struct Trial {
    dispatcher: Dispatcher,
    hasher: FlowHasher,
    outputs: Vec<DispatcherOutput>,
    now_ns: u64,
    witness: Witness,
    /// The log of outputs.
    pub log: Option<Vec<String>>,
}

impl Trial {
    /// Creates one with this configuration, which must be valid.
    pub fn new(config: Config) -> Trial {
        let witness = Witness::new(&config);
        Trial {
            dispatcher: Dispatcher::new(config).unwrap(),
            hasher: FlowHasher::new(1),
            outputs: Vec::new(),
            now_ns: 0,
            witness,
            log: None,
        }
    }

    /// Takes a step. Panics if an invariant is broken.
    pub fn step(&mut self, step: &Step) {
        let mut routed = None;
        match *step {
            Step::Advance => {
                self.witness.sees(self.now_ns);
                self.dispatcher.handle_timeout(self.now_ns, &mut self.outputs);
            }
            Step::Started { unit } => self.started(UnitId(unit)),
            Step::Expire { nth, is_right } => self.expire(nth, is_right),
            Step::Claim { from, flow, epoch, seq } => self.claim(UnitId(from), flow, epoch, seq),
            Step::Alias { nth, flow } => self.alias(nth, &key(flow)),
            Step::Drained { unit } => self.handle_message(UnitId(unit), FromUnit::Drained),
            Step::Drops { unit, count } => self.dispatcher.count_drops(self.now_ns, UnitId(unit), count),
            Step::Refuse { nth, is_owner } => self.refuse(nth, is_owner),
            Step::Migrate { nth, to } => self.migrate(nth, to.map(UnitId)),
            Step::Drain { unit } => self.drain(UnitId(unit)),
            Step::Resume { unit } => self.resume(UnitId(unit)),
            Step::Packet { flow, len } => routed = Some(self.packet(&key(flow), len)),
            Step::Wait { ns } => self.now_ns += ns,
            Step::Back { ns } => self.now_ns = self.now_ns.saturating_sub(ns),
        }
        if let Some(log) = &mut self.log {
            log.push(format!("{:?} {routed:?}", self.outputs));
        }
        self.witness.outputs(self.outputs.drain(..));
        self.witness.refused = None;
        if let Some(Dispatched::To { unit, stamp }) = routed {
            self.witness.packet(unit, stamp);
        }
        self.witness.agrees_with(&self.dispatcher);
    }

    fn packet(&mut self, key: &FlowKey, len: u32) -> Dispatched {
        let hash = self.hasher.hash(key);
        self.dispatcher.prefetch(hash);
        self.dispatcher.guess(hash);
        self.witness.sees(self.now_ns);
        self.dispatcher.handle_packet(self.now_ns, PacketArrival { key, hash, len }, &mut self.outputs)
    }

    fn handle_message(&mut self, from: UnitId, message: FromUnit) {
        self.witness.sees(self.now_ns);
        self.dispatcher.handle_message(self.now_ns, from, message, &mut self.outputs);
    }

    fn started(&mut self, unit: UnitId) {
        self.witness.sees(self.now_ns);
        self.dispatcher.membership().started(self.now_ns, unit);
        if let Some(state @ UnitState::Starting) = self.witness.states.get_mut(unit.index()) {
            *state = UnitState::Active;
        }
    }

    fn nth(&self, nth: usize) -> Option<(FlowId, Seen)> {
        let flows = &self.witness.flows;
        flows.iter().nth(nth % flows.len().max(1)).map(|(&flow, seen)| (flow, seen.clone()))
    }

    fn expire(&mut self, nth: usize, is_right: bool) {
        let Some((flow, seen)) = self.nth(nth) else { return };
        let seq = if is_right { seen.seq } else { seen.seq + 1 };
        self.claim(seen.owner, flow, seen.epoch, seq);
    }

    /// Returns a flow to its previous owner, if that unit runs.
    fn refuse(&mut self, nth: usize, is_owner: bool) {
        let Some((flow, seen)) = self.nth(nth) else { return };
        let from = if is_owner { seen.owner } else { UnitId(seen.owner.0 + 1) };
        let refused_before = self.dispatcher.counters().states_refused;
        let (holder, is_right) = match seen.handover {
            Handover::From { previous, .. } => {
                let state = self.witness.states[previous.index()];
                (previous, is_owner && matches!(state, UnitState::Active | UnitState::Draining))
            }
            Handover::None => (from, false),
        };
        self.witness.refused = is_right.then_some(flow);
        let reason = RefuseReason::NoRoom;
        self.handle_message(from, FromUnit::Refuse { flow, epoch: seen.epoch, reason, holder });
        assert_eq!(self.dispatcher.counters().states_refused - refused_before, u64::from(is_right));
    }

    /// Migrates a flow; the outputs must be those of the result.
    fn migrate(&mut self, nth: usize, to: Option<UnitId>) {
        let Some((flow, seen)) = self.nth(nth) else { return };
        let status = self.dispatcher.flows().status(flow).unwrap();
        assert_eq!((status.owner, status.epoch, status.packets), (seen.owner, seen.epoch, seen.seq));
        self.witness.sees(self.now_ns);
        match self.dispatcher.migrations().migrate(self.now_ns, flow, to, &mut self.outputs) {
            Ok(moved) => {
                assert!(moved.from == seen.owner && to.is_none_or(|to| to == moved.to));
                assert_eq!((moved.epoch, self.outputs.len()), (seen.epoch + 1, 2));
                assert_eq!(self.witness.states[moved.to.index()], UnitState::Active);
                assert!(!self.dispatcher.flows().has_refused(flow, moved.to));
            }
            Err(_) => assert_eq!(self.outputs, []),
        }
    }

    /// Drains a unit, unless it is the last one.
    fn drain(&mut self, unit: UnitId) {
        self.witness.sees(self.now_ns);
        let active = self.witness.states.iter().filter(|&&state| state == UnitState::Active).count();
        let is_active = self.witness.states.get(unit.index()) == Some(&UnitState::Active);
        let drained = self.dispatcher.membership().drain(self.now_ns, unit, &mut self.outputs);
        assert_eq!(drained.is_ok(), is_active && active > 1, "{drained:?}");
        self.witness.is_operated |= drained.is_ok();
    }

    fn resume(&mut self, unit: UnitId) {
        self.witness.sees(self.now_ns);
        let resumed = self.dispatcher.membership().resume(self.now_ns, unit);
        match self.witness.states.get_mut(unit.index()) {
            Some(state @ UnitState::Draining) => {
                assert_eq!(resumed, Ok(()));
                *state = UnitState::Active;
            }
            _ => assert!(resumed.is_err()),
        }
    }

    /// Ends a flow if its owner has seen every stamped packet, or all that will come. A repeated
    /// proposal gets the same answer.
    fn claim(&mut self, from: UnitId, flow: FlowId, epoch: u32, seq: u64) {
        self.witness.sees(self.now_ns);
        let is_right = self.witness.flows.get(&flow).is_some_and(|seen| {
            let is_all = seen.seq == seq || self.witness.is_silent(seen);
            (from, epoch) == (seen.owner, seen.epoch) && is_all
        });
        self.handle_message(from, FromUnit::Expire { flow, epoch, seq });
        let is_told = self
            .outputs
            .contains(&DispatcherOutput::Send { to: from, message: FromDispatcher::End { flow } });
        assert_eq!(is_told, is_right || self.witness.ended.contains(&flow));
        self.witness.proposed = is_right.then_some(flow);
    }

    fn alias(&mut self, nth: usize, alias: &FlowKey) {
        let Some((flow, _)) = self.nth(nth) else { return };
        if let Err(taken) = self.dispatcher.aliases().set(flow, alias, self.hasher.hash(alias)) {
            assert!(taken.by != flow && self.witness.flows.contains_key(&taken.by));
        }
    }
}

/// Returns the key of a flow by number: most fit into a short key, each fourth does not.
fn key(flow: u32) -> FlowKey {
    let client = match flow % 4 {
        3 => Addr::from_bytes([[0x20; 12].as_slice(), &flow.to_be_bytes()].concat().try_into().unwrap()),
        _ => Addr::from_v4_bytes(flow.to_be_bytes()),
    };
    let server = Endpoint::new(Addr::from_v4_bytes([192, 0, 2, 1]), 443);
    let version = if flow % 4 == 3 { 6 } else { 4 };
    FlowKey::new(Endpoint::new(client, 1024), server, 6, version, Scope::default(), 0).0
}

/// An observer of outputs and stamps.
pub struct Witness {
    config: Config,
    states: Vec<UnitState>,
    flows: BTreeMap<FlowId, Seen>,
    ended: BTreeSet<FlowId>,
    now_ns: u64,
    /// The flow with an end that its owner rightly proposes.
    proposed: Option<FlowId>,
    /// The flow with a state that its owner has just refused.
    refused: Option<FlowId>,
    /// An operator has drained a unit.
    is_operated: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    owner: UnitId,
    epoch: u32,
    seq: u64,
    handover: Handover,
    last_ns: u64,
}

impl Witness {
    fn new(config: &Config) -> Witness {
        let mut states = vec![UnitState::Off; config.units_max.into()];
        states[..config.units_min.into()].fill(UnitState::Active);
        Witness {
            config: config.clone(),
            states,
            flows: BTreeMap::new(),
            ended: BTreeSet::new(),
            now_ns: 0,
            proposed: None,
            refused: None,
            is_operated: false,
        }
    }

    /// Notes the time.
    fn sees(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    fn outputs(&mut self, outputs: impl Iterator<Item = DispatcherOutput>) {
        for order in outputs {
            match order {
                DispatcherOutput::Start(unit) => {
                    assert!(!self.states.contains(&UnitState::Starting), "one at a time");
                    let first_off = self.states.iter().position(|&state| state == UnitState::Off);
                    assert_eq!(first_off, Some(unit.index()), "the lowest first");
                    self.states[unit.index()] = UnitState::Starting;
                }
                DispatcherOutput::Stop(unit) => {
                    assert_eq!(self.states[unit.index()], UnitState::Draining);
                    assert!(self.flows.values().all(|flow| flow.owner != unit), "it owns nothing");
                    self.states[unit.index()] = UnitState::Off;
                }
                DispatcherOutput::Send { to, message } => self.message(to, message),
                DispatcherOutput::GroupSettled(_) | DispatcherOutput::Replicated(_) => {}
            }
        }
        let active = self.states.iter().filter(|&&state| state == UnitState::Active).count();
        // An operator may leave fewer than run by themselves.
        let least = if self.is_operated { 1 } else { self.config.units_min.into() };
        assert!(active >= least);
    }

    fn message(&mut self, to: UnitId, message: FromDispatcher) {
        match message {
            FromDispatcher::Release { flow, epoch, owner, last, start } => {
                let is_back = self.refused == Some(flow) && self.states[owner.index()] == UnitState::Draining;
                assert!(is_back || self.states[owner.index()] == UnitState::Active);
                let seen = self.flows.get_mut(&flow).unwrap();
                assert_eq!((to, epoch, last), (seen.owner, seen.epoch + 1, seen.seq));
                assert_eq!(start, seen.handover);
                assert_ne!(to, owner);
                let handover = Handover::From { previous: to, last };
                *seen = Seen { owner, epoch, seq: last, handover, last_ns: seen.last_ns };
            }
            FromDispatcher::Adopt { flow, epoch, previous, last } => {
                let seen = &self.flows[&flow];
                assert_eq!((to, epoch), (seen.owner, seen.epoch));
                assert_eq!(seen.handover, Handover::From { previous, last });
            }
            FromDispatcher::Recover { flow, .. } => panic!("{flow}: no unit was lost"),
            FromDispatcher::Replicate { flow, epoch, to: next } => {
                let seen = &self.flows[&flow];
                assert_eq!((to, epoch), (seen.owner, seen.epoch));
                assert!(next != to && self.states[next.index()] == UnitState::Active);
            }
            FromDispatcher::End { flow } => {
                if let Some(seen) = self.flows.remove(&flow) {
                    assert_eq!(to, seen.owner, "the owner is notified first");
                    assert!(self.proposed == Some(flow) || self.is_silent(&seen), "nothing is under way");
                    self.ended.insert(flow);
                }
                assert!(self.ended.contains(&flow));
            }
            FromDispatcher::Drain => {
                let state = &mut self.states[to.index()];
                assert!(matches!(state, UnitState::Active | UnitState::Draining));
                *state = UnitState::Draining;
            }
        }
    }

    fn is_silent(&self, seen: &Seen) -> bool {
        self.now_ns - seen.last_ns >= DISPLACED_AFTER_NS
    }

    fn packet(&mut self, unit: UnitId, stamp: Stamp) {
        assert!(!self.ended.contains(&stamp.flow), "a name is used once");
        assert_eq!(self.states[unit.index()], UnitState::Active);
        let begins = Seen { owner: unit, epoch: 1, seq: 0, handover: Handover::None, last_ns: 0 };
        let seen = self.flows.entry(stamp.flow).or_insert(begins);
        seen.seq += 1;
        seen.last_ns = self.now_ns;
        assert_eq!((unit, stamp.epoch, stamp.seq), (seen.owner, seen.epoch, seen.seq));
        assert_eq!(stamp.handover, seen.handover);
        let Some(targets) = stamp.targets else { return };
        let len = targets.units().len();
        let targets: BTreeSet<UnitId> = targets.units().iter().copied().collect();
        assert_eq!(targets.len(), len);
        assert!(targets.len() <= self.config.targets_count.max(1).into());
        assert!(targets.iter().all(|&t| t != unit && self.states[t.index()] == UnitState::Active));
    }

    fn agrees_with(&self, dispatcher: &Dispatcher) {
        for status in dispatcher.units() {
            assert_eq!(status.state, self.states[status.unit.index()]);
            let flows = self.flows.values().filter(|flow| flow.owner == status.unit).count();
            assert_eq!(status.flows as usize, flows, "{}", status.unit);
            assert!(status.load_bps.is_finite() && status.load_bps >= 0.0);
        }
        assert_eq!(dispatcher.flows().count() as usize, self.flows.len());
        assert!(dispatcher.flows().count() <= self.config.flows_max);
        let c = dispatcher.counters();
        let ended = c.flows_expired + c.flows_displaced + c.flows_forgotten;
        assert_eq!(c.flows, ended + u64::from(dispatcher.flows().count()));
        assert!(c.units_drained >= c.units_stopped);
        assert!(c.assignments >= c.assignments_moved);
        assert!(c.assignments_moved >= c.assignments_moved_to_target);
        assert!(c.packets >= c.flowlets(), "a flowlet begins with a packet");
    }
}
