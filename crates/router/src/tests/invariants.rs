//! What always holds, whatever comes, in every mode.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proto::{FlowId, Handover, Message, Stamp, UnitId};

use super::bench::Bench;
use crate::*;

/// What somebody knows who sees only what the router orders and stamps.
struct Witness {
    config: Config,
    states: Vec<UnitState>,
    flows: BTreeMap<FlowId, Seen>,
    ended: BTreeSet<FlowId>,
    now_ns: u64,
    /// The flow that its owner proposes to end, and is right about.
    proposed: Option<FlowId>,
}

#[derive(Clone, Debug)]
struct Seen {
    owner: UnitId,
    epoch: u32,
    clock: u64,
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
        }
    }

    fn orders(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Start(unit) => {
                    assert!(!self.states.contains(&UnitState::Starting), "one at a time");
                    let first_off = self.states.iter().position(|&state| state == UnitState::Off);
                    assert_eq!(first_off, Some(unit.index()), "the lowest first");
                    self.states[unit.index()] = UnitState::Starting;
                }
                Order::Stop(unit) => {
                    assert_eq!(self.states[unit.index()], UnitState::Draining);
                    assert!(self.flows.values().all(|flow| flow.owner != unit), "it owns nothing");
                    self.states[unit.index()] = UnitState::Off;
                }
                Order::Send { to, message } => self.message(to, message),
            }
        }
        let active = self.states.iter().filter(|&&state| state == UnitState::Active).count();
        assert!(active >= self.config.units_min.into());
    }

    fn message(&mut self, to: UnitId, message: Message) {
        match message {
            Message::Release { flow, epoch, owner, last } => {
                assert_eq!(self.states[owner.index()], UnitState::Active);
                let seen = self.flows.get_mut(&flow).unwrap();
                assert_eq!((to, epoch, last), (seen.owner, seen.epoch + 1, seen.clock));
                assert_ne!(to, owner);
                let handover = Handover::From { previous: to, last };
                *seen = Seen { owner, epoch, clock: last, handover, last_ns: seen.last_ns };
            }
            Message::Adopt { flow, epoch, previous, last } => {
                let seen = &self.flows[&flow];
                assert_eq!((to, epoch), (seen.owner, seen.epoch));
                assert_eq!(seen.handover, Handover::From { previous, last });
            }
            Message::End { flow } => {
                if let Some(seen) = self.flows.remove(&flow) {
                    assert_eq!(to, seen.owner, "the owner is told first");
                    assert!(self.proposed == Some(flow) || self.is_silent(&seen), "nothing is under way");
                    self.ended.insert(flow);
                }
                assert!(self.ended.contains(&flow));
            }
            Message::Drain => {
                let state = &mut self.states[to.index()];
                assert!(matches!(state, UnitState::Active | UnitState::Draining));
                *state = UnitState::Draining;
            }
            other => panic!("the router sends {other:?}"),
        }
    }

    fn is_silent(&self, seen: &Seen) -> bool {
        self.now_ns - seen.last_ns >= DISPLACED_AFTER_NS
    }

    fn packet(&mut self, unit: UnitId, stamp: Stamp) {
        assert!(!self.ended.contains(&stamp.flow), "a name is used once");
        assert_eq!(self.states[unit.index()], UnitState::Active);
        let begins = Seen { owner: unit, epoch: 1, clock: 0, handover: Handover::None, last_ns: 0 };
        let seen = self.flows.entry(stamp.flow).or_insert(begins);
        seen.clock += 1;
        seen.last_ns = self.now_ns;
        assert_eq!((unit, stamp.epoch, stamp.clock), (seen.owner, seen.epoch, seen.clock));
        assert_eq!(stamp.handover, seen.handover);
        let Some(targets) = stamp.targets else { return };
        let len = targets.units().len();
        let targets: BTreeSet<UnitId> = targets.units().iter().copied().collect();
        assert_eq!(targets.len(), len);
        assert!(targets.len() <= self.config.targets_count.max(1).into());
        assert!(targets.iter().all(|&t| t != unit && self.states[t.index()] == UnitState::Active));
    }

    fn agrees_with(&self, router: &Router) {
        for status in router.units() {
            assert_eq!(status.state, self.states[status.unit.index()]);
            let flows = self.flows.values().filter(|flow| flow.owner == status.unit).count();
            assert_eq!(status.flows as usize, flows, "{}", status.unit);
            assert!(status.load_bps.is_finite() && status.load_bps >= 0.0);
        }
        assert_eq!(router.flows() as usize, self.flows.len());
        assert!(router.flows() <= self.config.flows_max);
        let c = router.counters();
        let ended = c.flows_expired + c.flows_displaced + c.flows_forgotten;
        assert_eq!(c.flows, ended + u64::from(router.flows()));
        assert!(c.units_drained >= c.units_stopped);
        assert!(c.assignments >= c.assignments_moved);
        assert!(c.assignments_moved >= c.assignments_moved_to_target);
        assert!(c.packets >= c.flowlets(), "a flowlet begins with a packet");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Packet { flow: u32, len: u32 },
    Wait { ns: u64 },
    Advance,
    Started { unit: u16 },
    Expire { nth: usize, is_right: bool },
    Drained { unit: u16 },
    Noise { unit: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0u32..40, 40u32..9000).prop_map(|(flow, len)| Step::Packet { flow, len }),
        8 => prop_oneof![0u64..1000, 0u64..800_000, 0u64..60_000_000, 900_000_000u64..1_100_000_000].prop_map(|ns| Step::Wait { ns }),
        8 => Just(Step::Advance),
        3 => (0u16..8).prop_map(|unit| Step::Started { unit }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(nth, is_right)| Step::Expire { nth, is_right }),
        3 => (0u16..8).prop_map(|unit| Step::Drained { unit }),
        1 => (0u16..8).prop_map(|unit| Step::Noise { unit }),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Flowlet),
        1 => Just(Mode::Flow),
        1 => Just(Mode::SmartFlow { every_ns: 5_000_000 }),
        1 => Just(Mode::Packet),
        1 => Just(Mode::Rss { buckets: 16, every_ns: Some(5_000_000) }),
        1 => Just(Mode::Rss { buckets: 16, every_ns: None }),
    ]
}

fn targets() -> impl Strategy<Value = TargetChoice> {
    prop_oneof![
        Just(TargetChoice::Weighted),
        Just(TargetChoice::First),
        Just(TargetChoice::LeastLoaded),
        Just(TargetChoice::All),
        Just(TargetChoice::None),
        Just(TargetChoice::Predicted),
    ]
}

fn run(config: &Config, steps: &[Step]) -> Vec<String> {
    let (mut bench, mut witness) = (Bench::new(config.clone()), Witness::new(config));
    let (mut now_ns, mut log) = (0, Vec::new());
    for step in steps {
        match *step {
            Step::Packet { flow, len } => {
                let routed = bench.try_packet(now_ns, flow, len);
                log.push(format!("{:?} {routed:?}", bench.orders));
                witness.orders(bench.take());
                if let Some((unit, stamp)) = routed {
                    witness.packet(unit, stamp);
                }
            }
            Step::Wait { ns } => {
                now_ns += ns;
                witness.now_ns = now_ns;
            }
            Step::Advance => bench.advance(now_ns),
            Step::Started { unit } if unit < config.units_max => {
                bench.router.started(now_ns, UnitId(unit));
                let state = &mut witness.states[usize::from(unit)];
                if *state == UnitState::Starting {
                    *state = UnitState::Active;
                }
            }
            Step::Expire { nth, is_right } => {
                let Some((&flow, seen)) = witness.flows.iter().nth(nth % witness.flows.len().max(1)) else {
                    continue;
                };
                let clock = if is_right { seen.clock } else { seen.clock + 1 };
                bench.receive(now_ns, seen.owner, Message::Expire { flow, epoch: seen.epoch, clock });
                let is_over =
                    bench.orders.contains(&Order::Send { to: seen.owner, message: Message::End { flow } });
                assert_eq!(is_over, is_right || witness.is_silent(seen));
                witness.proposed = is_right.then_some(flow);
            }
            Step::Drained { unit } => bench.receive(now_ns, UnitId(unit), Message::Drained),
            Step::Noise { unit } => {
                let flow = FlowId { slot: 3, generation: 1 };
                bench.receive(now_ns, UnitId(unit), Message::Taken { flow, epoch: 1 });
            }
            Step::Started { .. } => {}
        }
        log.push(format!("{:?}", bench.orders));
        witness.orders(bench.take());
        witness.agrees_with(&bench.router);
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_always_holds(
        mode in mode(),
        targets in targets(),
        choice in prop_oneof![Just(Choice::MostUtilised), Just(Choice::LowestId)],
        units_min in 1u16..4,
        more_units in 0u16..5,
        ends_oldest: bool,
        push_at in prop_oneof![Just(None), Just(Some(0.3f32)), Just(Some(0.9))],
        forget_after_ns in prop_oneof![Just(None), Just(Some(DISPLACED_AFTER_NS))],
        alarm_buckets in prop_oneof![Just(0usize), Just(3), Just(20)],
        seed: u64,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let config = Config {
            mode, targets, choice, units_min, units_max: units_min + more_units, seed, push_at, alarm_buckets, forget_after_ns,
            when_full: if ends_oldest { WhenFull::EndOldest } else { WhenFull::RefuseNew },
            flows_max: 30,
            capacity_bps: 20_000_000,
            buckets: 20,
            idle_ns: 20_000_000,
            ..Config::default()
        };
        let log = run(&config, &steps);
        prop_assert_eq!(run(&config, &steps), log, "the same again is the same");
    }
}
