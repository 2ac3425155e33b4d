//! Random schedules: several flows, two to four units, and a network that delays, reorders, repeats
//! and loses.

use proptest::prelude::*;
use protocol::message::{FlowId, FromUnit, Handover, ReplicaTargets, UnitId};
use protocol::unit::{Config, DropCause, Unit};

use crate::common::link::{LinkFaults, LossyLink};
use crate::common::world::{Flow, World};
use crate::simulations::simulations;

/// The behaviour of a network, and the limits of units.
#[derive(Clone, Debug)]
struct Nature {
    units: u16,
    flows: u32,
    steps: usize,
    faults: LinkFaults,
    /// Per 1,000 times that the dispatcher does something for a flow.
    new_owner: u64,
    copy: u64,
    end: u64,
    /// Limit on the time between two steps, in ns.
    pace_ns: u64,
    /// Time until a gap is given up; `None` for so long that none ever is.
    reorder_timeout_ns: Option<u64>,
    pending_per_flow_max: usize,
    replica_bytes_max: usize,
    replicate_after_ns: u64,
    /// Packets with the mark to replicate at once, per 1,000.
    at_once: u64,
    deltas: bool,
    /// Units that refuse arriving states, as bits.
    refusing: u16,
    seed: [u8; 32],
}

impl Nature {
    fn config(&self, id: UnitId) -> Config {
        Config {
            replicate_after_ns: Some(self.replicate_after_ns),
            reorder_timeout_ns: self.reorder_timeout_ns.unwrap_or(u64::MAX / 64),
            retransmit_ns: 5_000,
            pending_max: 3 * self.pending_per_flow_max,
            pending_per_flow_max: self.pending_per_flow_max,
            replica_bytes_max: self.replica_bytes_max,
            deltas: self.deltas,
            ..Config::new(id)
        }
    }
}

prop_compose! {
    fn network()(
        (units, flows, steps) in (2u16..=4, 1u32..=3, 1usize..250),
        (dispatcher_fifo, peers_fifo, deltas) in any::<(bool, bool, bool)>(),
        (twice, new_owner, copy) in (0u64..200, prop_oneof![0u64..50, 0u64..500], prop_oneof![Just(0), 0u64..500]),
        (replicate_after_ns, at_once) in (prop_oneof![Just(10), Just(500)], prop_oneof![Just(0), 0u64..1_000]),
        pace_ns in 0u64..300,
        replica_bytes_max in prop_oneof![Just(0), Just(400), Just(1 << 20)],
        seed in any::<[u8; 32]>(),
    ) -> Nature {
        let (end, reorder_timeout_ns, pending_per_flow_max) = (0, None, 1 << 10);
        let faults = LinkFaults { dispatcher_fifo, peers_fifo, loss: 0, mute: 0, twice, queue: 0 };
        Nature {
            units, flows, steps, faults, new_owner, copy, end, pace_ns, reorder_timeout_ns,
            pending_per_flow_max, replica_bytes_max, replicate_after_ns, at_once, deltas, refusing: 0, seed,
        }
    }
}

prop_compose! {
    fn bad_network()(
        nature in network(),
        loss in prop_oneof![Just(0), 1u64..300],
        (mute, queue) in (prop_oneof![Just(0), 1u64..300], prop_oneof![Just(0), 1u64..1_000]),
        reorder_timeout_ns in 0u64..2_000,
        pending_per_flow_max in prop_oneof![0usize..6, Just(1 << 10)],
    ) -> Nature {
        let faults = LinkFaults { loss, mute, queue, ..nature.faults };
        Nature { faults, reorder_timeout_ns: Some(reorder_timeout_ns), pending_per_flow_max, ..nature }
    }
}

/// A dispatcher that acts at random, and its world.
struct Play {
    nature: Nature,
    link: LossyLink,
    world: World,
    flows: Vec<Flow>,
    /// Flows that have ended.
    over: Vec<FlowId>,
}

impl Play {
    fn new(nature: Nature) -> Play {
        let mut link = LossyLink::new(nature.faults, &nature.seed);
        let mut world = World::new(nature.units, |id| nature.config(id));
        for (number, unit) in world.units.iter_mut().enumerate() {
            unit.engine_mut().refuses = nature.refusing >> number & 1 == 1;
        }
        let flows = (0..nature.flows)
            .map(|index| Flow::new(FlowId { index, generation: 1 }, unit(&mut link, nature.units)))
            .collect();
        Play { nature, link, world, flows, over: Vec::new() }
    }

    fn run(mut self) -> Play {
        for _ in 0..self.nature.steps {
            match self.link.below(10) {
                0..4 => self.route(),
                4..9 => self.link.arrive(&mut self.world),
                _ => {
                    let now_ns = self.world.now_ns + self.link.below(self.nature.pace_ns + 1);
                    self.world.handle_timeout(now_ns);
                }
            }
            self.take_refusals();
            self.world.check();
        }
        loop {
            self.world.settle();
            if !self.take_refusals() {
                return self;
            }
        }
    }

    /// Gives flows back after their new owners have refused their states. Returns true if there
    /// were any.
    fn take_refusals(&mut self) -> bool {
        let mut is_any = false;
        for (_, message) in std::mem::take(&mut self.world.to_dispatcher) {
            let FromUnit::Refuse { flow: id, epoch, holder, .. } = message else { continue };
            let refused = self.flows.iter_mut().find(|flow| flow.id == id && flow.epoch == epoch);
            if let Some(flow) = refused {
                flow.release_to(holder, &mut self.world);
                flow.adopt(&mut self.world);
                is_any = true;
            }
        }
        is_any
    }

    /// Lets the dispatcher do something for a flow.
    fn route(&mut self) {
        let (units, link, world) = (self.nature.units, &mut self.link, &mut self.world);
        let at = link.below(self.flows.len() as u64) as usize;
        let flow = &mut self.flows[at];
        if link.happens(self.nature.copy) {
            flow.copy_to(unit(link, units), world);
        }
        if link.happens(self.nature.new_owner) {
            flow.release_to(unit(link, units), world);
            if link.below(4) == 0 {
                flow.adopt(world);
            }
        }
        if link.happens(self.nature.end) {
            flow.end(some_units(link, units), world);
            self.over.push(flow.id);
            let id = FlowId { generation: flow.id.generation + 1, ..flow.id };
            *flow = Flow::new(id, unit(link, units));
        }
        let targets = some_units(link, units);
        for _ in 0..=link.below(3) {
            let is_at_once = link.happens(self.nature.at_once);
            flow.packet(if is_at_once { targets.at_once() } else { targets }, world);
        }
    }

    fn given_up(&self) -> u64 {
        self.world.units.iter().map(|unit| unit.counters().given_up).sum()
    }

    /// Returns the flows with a last owner that can know of its ownership: it got a packet, or the
    /// previous owner a release.
    fn begun(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|flow| {
            let is_known = self.world.units[flow.owner.index()].owned(flow.id).is_some();
            is_known || flow.handover != Handover::None
        })
    }
}

fn unit(link: &mut LossyLink, units: u16) -> UnitId {
    UnitId(link.below(u64::from(units)) as u16)
}

/// Returns none, one, two, or all units.
fn some_units(link: &mut LossyLink, units: u16) -> ReplicaTargets {
    match link.below(4) {
        0 => ReplicaTargets::NONE,
        1 => ReplicaTargets::ALL,
        _ => {
            let mut some = ReplicaTargets::NONE;
            some.add(unit(link, units));
            some.add(unit(link, units));
            some
        }
    }
}

simulations! {
    cases = 600;

    /// design.md 3.10: a move loses no packet that reached a live unit, whatever is repeated or
    /// overtaken.
    #[test]
    fn without_loss_everything_is_processed_once_and_in_order(nature in network()) {
        let play = Play::new(nature).run();
        for flow in play.flows.iter().filter(|flow| flow.seq > 0) {
            prop_assert_eq!(play.world.check_end(flow), 0);
            prop_assert!(play.world.processed(flow.id).into_iter().eq(1..=flow.seq));
            prop_assert!(play.world.units[flow.owner.index()].engine().state(flow.id).iter().copied().eq(1..=flow.seq));
        }
        prop_assert_eq!(play.given_up(), 0);
        prop_assert!(play.world.dropped.iter().all(|dropped| dropped.0 == DropCause::Stale), "they came twice");
    }

    /// A flow with a refused state continues at the state's holder, without a loss.
    #[test]
    fn a_refused_state_costs_no_packet(nature in network(), refusing in 1u16..8) {
        let play = Play::new(Nature { refusing, ..nature }).run();
        for flow in play.flows.iter().filter(|flow| flow.seq > 0) {
            prop_assert_eq!(play.world.check_end(flow), 0);
            prop_assert!(play.world.processed(flow.id).into_iter().eq(1..=flow.seq));
        }
        prop_assert_eq!(play.given_up(), 0);
    }

    /// The same with losses: packets that were not processed have been given up.
    #[test]
    fn refused_states_leave_nothing_behind(nature in bad_network(), refusing in 1u16..8) {
        let play = Play::new(Nature { refusing, ..nature }).run();
        let lost: u64 = play.begun().map(|flow| play.world.check_end(flow)).sum();
        prop_assert_eq!(lost, play.given_up());
        prop_assert_eq!(play.world.units.iter().map(Unit::flows).sum::<usize>(), play.begun().count());
    }

    /// Lost and late packets are given up and counted; nothing waits forever, and only the last
    /// owners keep anything.
    #[test]
    fn what_is_not_processed_has_been_given_up(nature in bad_network()) {
        let play = Play::new(nature).run();
        let lost: u64 = play.begun().map(|flow| play.world.check_end(flow)).sum();
        prop_assert_eq!(lost, play.given_up());
        prop_assert_eq!(play.world.units.iter().map(Unit::flows).sum::<usize>(), play.begun().count());
        for &(reason, flow, seq) in &play.world.dropped {
            prop_assert!(matches!(reason, DropCause::Stale | DropCause::PendingFull));
            let is_explained = play.given_up() > 0 || play.world.processed(flow).contains(&seq);
            prop_assert!(is_explained || reason == DropCause::PendingFull);
        }
    }

    /// Ended flows leave nothing, and do not come back.
    #[test]
    fn what_has_ended_leaves_nothing(nature in bad_network(), end in 1u64..100) {
        let mut play = Play::new(Nature { end, ..nature }).run();
        for flow in &play.flows {
            flow.end(ReplicaTargets::ALL, &mut play.world);
            play.over.push(flow.id);
        }
        play.world.settle();
        // If the dispatcher's messages are reordered, a unit may end the flow as its supposed
        // owner.
        for &flow in play.over.iter().filter(|_| play.nature.faults.dispatcher_fifo) {
            play.world.check_ended(flow);
        }
        for unit in &play.world.units {
            prop_assert!(unit.engine().states.is_empty());
            prop_assert_eq!((unit.flows(), unit.pending(), unit.replica_bytes(), unit.next_timeout_ns()), (0, 0, 0, u64::MAX));
        }
    }
}
