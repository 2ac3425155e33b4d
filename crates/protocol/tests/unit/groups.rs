//! Affinity groups: flows take items of pools that each unit has for itself, and no item belongs to
//! two live flows, whatever moves, refuses or crashes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use protocol::dispatcher::{self, Granularity, TargetChoice};
use protocol::message::UnitId;
use protocol::unit;

use crate::common::link::LinkFaults;
use crate::common::pair::Pair;

/// Groups; a flow is in the group of its number.
const GROUPS: u16 = 3;
const FLOWS: u64 = 9;

/// A run of both ends.
#[derive(Clone, Debug)]
struct GroupCourse {
    mode: Granularity,
    targets: TargetChoice,
    steps: usize,
    faults: LinkFaults,
    /// Units that refuse arriving states, as bits.
    refusing: u16,
    /// The step at which a unit crashes.
    crash_at: Option<usize>,
    seed: [u8; 32],
}

prop_compose! {
    fn course()(
        mode in prop_oneof![Just(Granularity::Flowlet), Just(Granularity::Packet), Just(Granularity::Flow)],
        targets in prop_oneof![Just(TargetChoice::Weighted), Just(TargetChoice::All), Just(TargetChoice::None)],
        steps in 50usize..300,
        (twice, peers_fifo) in (0u64..200, any::<bool>()),
        seed in any::<[u8; 32]>(),
    ) -> GroupCourse {
        // Packets that begin flows must arrive, and in order: see `Config::has_groups`.
        let faults = LinkFaults { dispatcher_fifo: true, peers_fifo, loss: 0, mute: 0, twice, queue: 0 };
        GroupCourse { mode, targets, steps, faults, refusing: 0, crash_at: None, seed }
    }
}

impl GroupCourse {
    fn run(&self) -> Pair {
        let config = dispatcher::Config {
            mode: self.mode,
            targets: self.targets,
            units_min: 3,
            units_max: 4,
            gap_ns: 300,
            capacity_bps: 10_000_000_000,
            bucket_ns: 500,
            buckets: 10,
            idle_ns: 20_000,
            flows_max: 8,
            affinity_groups: Some(GROUPS),
            ..dispatcher::Config::default()
        };
        let unit = |id: UnitId| unit::Config {
            replicate_after_ns: Some(200),
            reorder_timeout_ns: u64::MAX / 64,
            retransmit_ns: 5_000,
            has_groups: true,
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
                    let number = pair.link.below(FLOWS) as u32;
                    let group = number as u16 % GROUPS;
                    (0..=pair.link.below(3)).for_each(|_| pair.packet_of(number, 1_000, Some(group)));
                }
                4 => pair.operate(),
                5..8 => (0..=pair.link.below(3)).for_each(|_| pair.arrive()),
                _ => {
                    let ns = pair.link.below(400);
                    pair.advance(ns);
                }
            }
            check_items(&pair);
            check_owners(&pair);
        }
        pair.settle();
        check_items(&pair);
        pair
    }
}

/// No item belongs to two flows that the dispatcher knows.
fn check_items(pair: &Pair) {
    let mut holders = BTreeMap::new();
    for unit in &pair.world.units {
        for (&flow, item) in &unit.engine().items {
            if pair.dispatcher.flows().status(flow).is_some() {
                let holder = *holders.entry(item).or_insert(flow);
                assert_eq!(holder, flow, "{item:?} was handed out twice");
            }
        }
    }
}

/// All flows of a group have one owner, unless some were refused on their way.
fn check_owners(pair: &Pair) {
    if pair.dispatcher.counters().states_refused > 0 {
        return;
    }
    let mut owners = BTreeMap::new();
    for (flow, &(number, _)) in &pair.numbers {
        let Some(status) = pair.dispatcher.flows().status(*flow) else { continue };
        let owner = *owners.entry(number as u16 % GROUPS).or_insert(status.owner);
        assert_eq!(owner, status.owner, "group {} is at two units", number as u16 % GROUPS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // S65
    #[test]
    fn no_item_is_handed_out_twice(course in course(), refusing in prop_oneof![2 => Just(0u16), 1 => 1u16..8]) {
        let pair = GroupCourse { refusing, ..course }.run();
        prop_assert_eq!(pair.waiting.len(), 0, "packets wait for a group that does not move");
        for (flow, &(_, packets)) in &pair.numbers {
            if let Some(status) = pair.dispatcher.flows().status(*flow) {
                prop_assert_eq!(status.packets, packets);
            }
        }
    }

    // S65
    #[test]
    fn a_crash_frees_the_items_of_its_flows(course in course(), crash_at in 0usize..300) {
        let crash_at = Some(crash_at % course.steps);
        let pair = GroupCourse { crash_at, ..course }.run();
        prop_assert_eq!(pair.waiting.len(), 0);
    }
}

/// The course is one: groups move, and packets wait for them.
#[test]
fn groups_move_and_packets_wait() {
    let faults =
        LinkFaults { dispatcher_fifo: true, peers_fifo: false, loss: 0, mute: 0, twice: 0, queue: 0 };
    let (mut moved, mut waited) = (0, 0);
    for seed in 0..20 {
        let (mode, targets, seed) = (Granularity::Flow, TargetChoice::None, [seed; 32]);
        let course = GroupCourse { mode, targets, steps: 300, faults, refusing: 0, crash_at: None, seed };
        let pair = course.run();
        moved += pair.dispatcher.counters().groups_moved;
        waited += pair.waited;
    }
    assert!(moved > 100 && waited > 20, "{moved} groups moved, {waited} packets waited");
}
