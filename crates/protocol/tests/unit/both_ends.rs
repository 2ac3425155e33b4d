//! The real dispatcher with real units: every mode, over links that delay, reorder, repeat and
//! lose.

use proptest::prelude::*;

use protocol::dispatcher::{self, DISPLACED_AFTER_NS, Granularity, TargetChoice};
use protocol::message::{UnitId, Watermark};
use protocol::unit::{self, DropCause};

use crate::common::link::LinkFaults;
use crate::common::pair::Pair;
use crate::simulations::simulations;

/// A run of both ends.
#[derive(Clone, Debug)]
struct Course {
    mode: Granularity,
    targets: TargetChoice,
    units: (u16, u16),
    flows: u32,
    steps: usize,
    faults: LinkFaults,
    reorder_timeout_ns: u64,
    deltas: bool,
    pre_copy: bool,
    expire_after_ns: Option<u64>,
    /// Units that refuse arriving states, as bits.
    refusing: u16,
    /// An operator intervenes.
    is_operated: bool,
    /// The step at which a unit crashes.
    crash_at: Option<usize>,
    seed: [u8; 32],
}

const NO_FAULTS: LinkFaults =
    LinkFaults { dispatcher_fifo: true, peers_fifo: false, loss: 0, mute: 0, twice: 0, queue: 0 };

/// So long that no gap is ever given up.
const FOREVER_NS: u64 = u64::MAX / 64;

prop_compose! {
    fn course()(
        mode in prop_oneof![
            3 => Just(Granularity::Flowlet),
            2 => Just(Granularity::Packet),
            1 => Just(Granularity::Flow),
            1 => Just(Granularity::SmartFlow { every_ns: 2_000 }),
            1 => Just(Granularity::Rss { buckets: 4, every_ns: Some(2_000) }),
        ],
        targets in prop_oneof![Just(TargetChoice::Weighted), Just(TargetChoice::All), Just(TargetChoice::None)],
        (units_min, more_units) in (1u16..3, 1u16..3),
        (flows, steps) in (1u32..4, 1usize..250),
        (twice, [deltas, is_operated, pre_copy]) in (0u64..200, any::<[bool; 3]>()),
        seed in any::<[u8; 32]>(),
    ) -> Course {
        Course {
            mode, targets, units: (units_min, units_min + more_units), flows, steps, faults: LinkFaults { twice, ..NO_FAULTS },
            reorder_timeout_ns: FOREVER_NS, deltas, pre_copy, expire_after_ns: None, refusing: 0, is_operated, crash_at: None, seed,
        }
    }
}

prop_compose! {
    fn bad_course()(
        course in course(),
        (loss, mute, queue) in (0u64..200, 0u64..300, 0u64..500),
        reorder_timeout_ns in 0u64..2_000,
    ) -> Course {
        Course { faults: LinkFaults { loss, mute, queue, ..course.faults }, reorder_timeout_ns, ..course }
    }
}

prop_compose! {
    /// Epochs are short, and often all of their packets are lost.
    fn crashing_course()(
        course in bad_course(),
        mode in prop_oneof![Just(Granularity::Packet), Just(Granularity::Flowlet)],
        loss in 0u64..600,
        crash_at in 0usize..250,
    ) -> Course {
        let crash_at = Some(crash_at % course.steps);
        Course { mode, crash_at, faults: LinkFaults { loss, ..course.faults }, ..course }
    }
}

impl Course {
    /// The same with units that refuse states. Mode `rss` is left out: it has no other choice than
    /// the bucket's unit.
    fn refusing(self, refusing: u16) -> Course {
        match self.mode {
            Granularity::Rss { .. } => self,
            _ if refusing == 0 => self,
            _ => Course { refusing, ..self },
        }
    }

    fn run(&self) -> Pair {
        let config = dispatcher::Config {
            mode: self.mode,
            targets: self.targets,
            units_min: self.units.0,
            units_max: self.units.1,
            gap_ns: 300,
            size_max: 3_000,
            capacity_bps: 10_000_000_000,
            bucket_ns: 500,
            buckets: 10,
            idle_ns: 20_000,
            flows_max: 10,
            pre_copy: self.pre_copy,
            forget_after_ns: self.expire_after_ns.map(|_| DISPLACED_AFTER_NS),
            ..dispatcher::Config::default()
        };
        let unit = |id: UnitId| unit::Config {
            replicate_after_ns: Some(200),
            reorder_timeout_ns: self.reorder_timeout_ns,
            retransmit_ns: 5_000,
            deltas: self.deltas,
            expire_after_ns: self.expire_after_ns,
            ..unit::Config::new(id)
        };
        let mut pair = Pair::new(config, unit, self.faults, &self.seed);
        for (number, unit) in pair.world.units.iter_mut().enumerate() {
            unit.engine_mut().refuses = self.refusing >> number & 1 == 1;
        }
        for step in 0..self.steps {
            if self.crash_at == Some(step) {
                pair.crash();
            }
            match pair.link.below(10) {
                0..4 => {
                    let number = pair.link.below(u64::from(self.flows)) as u32;
                    (0..=pair.link.below(3)).for_each(|_| pair.packet(number, 1_000));
                }
                4 if self.is_operated => pair.operate(),
                4..8 => (0..=pair.link.below(3)).for_each(|_| pair.arrive()),
                _ => {
                    let ns = pair.link.below(400);
                    pair.advance(ns);
                }
            }
            pair.world.check();
        }
        pair.settle();
        pair
    }
}

simulations! {
    cases = 400;

    /// design.md 3.10: a move loses no packet that reached a live unit.
    #[test]
    fn without_loss_every_packet_is_processed_once_and_in_order(course in course(), refusing in prop_oneof![Just(0u16), 1u16..8]) {
        let pair = course.refusing(refusing).run();
        for flow in pair.flows.values() {
            prop_assert_eq!(pair.world.check_end(flow), 0);
            prop_assert!(pair.world.units[flow.owner.index()].engine().state(flow.id).iter().copied().eq(1..=flow.seq));
        }
        prop_assert_eq!(pair.given_up(), 0);
        prop_assert!(pair.world.dropped.iter().all(|dropped| dropped.0 == DropCause::Stale), "they came twice");
    }

    /// Flows migrate to and fro while packets flow (A16).
    #[test]
    fn flows_that_an_operator_migrates_lose_nothing(course in course()) {
        let course = Course { mode: Granularity::Flow, is_operated: true, steps: 250, units: (3, 3), ..course };
        let pair = course.run();
        // A single unit has no unit to migrate to.
        prop_assert!(pair.migrated > 0 || pair.dispatcher.counters().units_stopped > 0);
        for flow in pair.flows.values() {
            prop_assert_eq!(pair.world.check_end(flow), 0);
        }
    }

    /// design.md 3.13: no packet waits forever for a state that is lost.
    #[test]
    fn a_crash_leaves_nothing_pending(course in crashing_course(), refusing in prop_oneof![Just(0u16), 1u16..8]) {
        let pair = course.refusing(refusing).run();
        for unit in &pair.world.units {
            prop_assert!(unit.pending() == 0 && unit.is_settled());
        }
    }

    /// Flows of a unit that crashes continue elsewhere with their replicas, as long as there are
    /// any: at one owner, in the dispatcher's epoch.
    #[test]
    fn replicas_continue_flows_of_a_crashed_unit(
        course in course(),
        deltas in any::<bool>(),
        (units, crash_at) in (3u16..6, 50usize..200),
    ) {
        // With more than three units, several have replicas, some newer than others.
        let (targets, units) = (TargetChoice::All, (units, units));
        let course = Course { targets, deltas, steps: 250, units, crash_at: Some(crash_at), ..course };
        let pair = course.run();
        let flows = pair.dispatcher.flows();
        for status in flows.statuses(0..flows.indexes_used()) {
            let owned = pair.world.units[status.owner.index()].owned(status.flow);
            prop_assert_eq!(owned, Some((status.epoch, Watermark::up_to(status.packets))));
        }
        let counters = pair.dispatcher.counters();
        prop_assert!(counters.recoveries >= counters.flows_recovered);
    }

    /// Every flow ends at both ends: once, and with all that was processed.
    #[test]
    fn proposed_ends_take_effect_once_the_dispatcher_accepts(
        course in bad_course(),
        expire_after_ns in 50_000_000u64..2_000_000_000,
        refusing in prop_oneof![Just(0u16), 1u16..8],
    ) {
        let course = Course { expire_after_ns: Some(expire_after_ns), ..course };
        let pair = course.refusing(refusing).run();
        prop_assert_eq!(pair.dispatcher.flows().count(), 0);
        for &flow in pair.flows.keys() {
            pair.world.check_ended(flow);
        }
        for unit in &pair.world.units {
            prop_assert!(unit.engine().states.is_empty());
            prop_assert_eq!((unit.flows(), unit.pending()), (0, 0));
        }
    }
}
