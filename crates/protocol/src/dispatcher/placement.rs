//! The choice of a unit for a flow's next flowlet, or for a flow that has to leave its unit.

use crate::message::UnitId;

use crate::dispatcher::assign::UnitPick;
use crate::dispatcher::config::{Config, Granularity, ScalingRule, UnitChoice};
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::flow::TargetList;
use crate::dispatcher::flowlet::FlowletCut;
use crate::dispatcher::owners::{NextFlowlet, Owners};
use crate::dispatcher::step::Step;

/// The rules for keeping or moving flowlets.
pub(crate) struct Placement {
    mode: Granularity,
    choice: UnitChoice,
    capacity_bps: f32,
    /// States are replicated before a flowlet is cut by its size.
    is_pushed: bool,
    /// Load below which a unit keeps its flowlets, in bits per second; `None` assigns every flowlet
    /// again.
    stay_below_bps: Option<f32>,
    /// Load below which a unit's states are not replicated, in bits per second.
    copy_from_bps: f32,
    /// Units follow demand: none starts for a flowlet.
    follows_demand: bool,
    /// Next turn among the active units when packets are sprayed.
    turn: usize,
}

impl Placement {
    pub fn new(config: &Config) -> Placement {
        let capacity_bps = config.capacity_bps as f32;
        let copy_from = config.copy_from.filter(|_| config.mode == Granularity::Flowlet);
        Placement {
            mode: config.mode,
            choice: config.choice,
            capacity_bps,
            is_pushed: config.push_above() < u64::MAX,
            stay_below_bps: config.stay_below.map(|share| share * capacity_bps),
            copy_from_bps: copy_from.unwrap_or(0.0) * capacity_bps,
            follows_demand: matches!(config.scaling, ScalingRule::Demand { .. }),
            turn: 0,
        }
    }

    /// Chooses the unit for a known flow's next flowlet; `None` if it stays without a choice.
    #[inline(always)] // One caller is hot; the others are cold.
    pub fn choose_next(
        &mut self,
        (cut, hash): (FlowletCut, u64),
        next: &NextFlowlet,
        fleet: &mut Fleet,
        step: &mut Step<'_>,
    ) -> Option<UnitPick> {
        if let Some(below_bps) = self.stay_below_bps {
            let load_bps = fleet.meter().loads().of(next.owner);
            let is_copied = cut == FlowletCut::Gap || self.is_pushed;
            match cut {
                FlowletCut::Gap | FlowletCut::Size if load_bps < below_bps => return None,
                FlowletCut::Gap | FlowletCut::Size if is_copied => {
                    if let Some(unit) = copy_below(below_bps, &next.targets, fleet) {
                        return Some(UnitPick { unit, fits: true });
                    }
                }
                // The state could not be elsewhere in time.
                FlowletCut::Size if load_bps <= self.capacity_bps => return None,
                FlowletCut::Gap
                | FlowletCut::Size
                | FlowletCut::Granularity
                | FlowletCut::Drain
                | FlowletCut::Silence
                | FlowletCut::Targets => {}
            }
        }
        if !matches!(self.mode, Granularity::SmartFlow { .. }) || cut == FlowletCut::Drain {
            return self.choose(next.estimate_bps, hash, Some(next), fleet);
        }
        if fleet.meter().loads().of(next.owner) <= self.capacity_bps {
            return None;
        }
        let chosen = self.choose(next.estimate_bps, hash, Some(next), fleet)?;
        if !chosen.fits {
            fleet.start_for_room(step); // There is nowhere to go: it stays (S88).
            return None;
        }
        Some(chosen)
    }

    /// Same for a flow with a state that units have refused: they get it only if the owner is
    /// draining and no other unit is active.
    #[cold]
    pub fn choose_another(
        &mut self,
        refusers: &TargetList,
        cut: (FlowletCut, u64),
        next: &NextFlowlet,
        fleet: &mut Fleet,
        step: &mut Step<'_>,
    ) -> Option<UnitPick> {
        let hidden_bps = fleet.hide(refusers);
        let another = self.choose_next(cut, next, fleet, step);
        fleet.show(refusers, hidden_bps);
        match another.filter(|another| another.unit == next.owner || !refusers.contains(another.unit)) {
            None if !fleet.units().is_active(next.owner) => self.choose_next(cut, next, fleet, step),
            another => another,
        }
    }

    /// Chooses the unit for a flowlet with this estimated rate, of a flow with this hash, and
    /// `next` if the flow is known; `None` if no unit is active.
    pub fn choose(
        &mut self,
        estimate_bps: f32,
        hash: u64,
        next: Option<&NextFlowlet>,
        fleet: &Fleet,
    ) -> Option<UnitPick> {
        if let Some(unit) = fleet.bucket_owner(hash) {
            return Some(UnitPick { unit, fits: true });
        }
        if self.mode == Granularity::Packet || self.choice == UnitChoice::RoundRobin {
            return self.next_in_turn(fleet).map(|unit| UnitPick { unit, fits: true });
        }
        // If all units have the state, it makes no difference.
        let some_have = next.filter(|next| !next.targets.is_all());
        let having_state =
            some_have.into_iter().flat_map(|next| std::iter::once(next.owner).chain(next.targets.units()));
        let chosen = fleet.choose(estimate_bps, having_state)?;
        match next {
            Some(next) if !chosen.fits && self.may_stay(next.owner, fleet) => {
                Some(UnitPick { unit: next.owner, ..chosen })
            }
            _ => Some(chosen),
        }
    }

    /// Chooses the targets of a flowlet; none if its unit will have room for the next one, too.
    pub fn choose_targets(&self, owner: UnitId, estimate_bps: f32, fleet: &mut Fleet) -> TargetList {
        match fleet.meter().loads().of(owner) < self.copy_from_bps {
            true => TargetList::NONE, // The next one stays.
            false => fleet.choose_targets(owner, estimate_bps),
        }
    }

    /// Returns the next unit for a flow of a draining unit: the lowest with room, or a near unit
    /// with the state; the next one in turn if flows are spread over all units; for a flow of an
    /// affinity group, the unit with the fewest groups. `None` if all have refused the flow.
    pub fn refuge(&mut self, index: u32, owners: &Owners, fleet: &mut Fleet) -> Option<UnitId> {
        if let Some(groups) = owners.groups()
            && let Some(group) = groups.of_flow(index)
        {
            return groups.fewest(group, fleet.units().active()).filter(|_| !groups.is_moving(group));
        }
        let (flow, flowlet) = (owners.flows().get(index), owners.flows().flowlet(index));
        if let Some(owner) = fleet.bucket_owner(flowlet.hash()) {
            return Some(owner);
        }
        let hidden_bps = fleet.hide(flowlet.refusers());
        let refuge = match self.choice {
            UnitChoice::MostUtilised | UnitChoice::LowestId => {
                fleet.lowest_with_room(flow.estimate_bps(), flowlet.targets())
            }
            UnitChoice::LeastLoaded | UnitChoice::RoundRobin => self.next_in_turn(fleet),
        };
        fleet.show(flowlet.refusers(), hidden_bps);
        refuge
    }

    /// Returns the next active unit in turn that is not hidden.
    fn next_in_turn(&mut self, fleet: &Fleet) -> Option<UnitId> {
        let (active, loads) = (fleet.units().active(), fleet.meter().loads());
        let mut turns = (0..active.len()).map(|more| (self.turn + more) % active.len());
        let turn = turns.find(|&turn| loads.of(active[turn]) < f32::INFINITY)?;
        self.turn = turn + 1;
        Some(active[turn])
    }

    /// Returns true if a flowlet that fits nowhere may stay with its state: no units start for it,
    /// and its unit is active and not full.
    fn may_stay(&self, owner: UnitId, fleet: &Fleet) -> bool {
        self.follows_demand && fleet.meter().loads().of(owner) < self.capacity_bps
    }
}

/// Returns the least loaded unit of those with a replica, if its load is below this; the first of
/// equal ones.
fn copy_below(below_bps: f32, targets: &TargetList, fleet: &Fleet) -> Option<UnitId> {
    let loads = fleet.meter().loads();
    let least = match targets.is_all() {
        true => loads.least_loaded()?,
        false => targets.units().min_by(|&a, &b| loads.of(a).total_cmp(&loads.of(b)))?,
    };
    (loads.of(least) < below_bps).then_some(least)
}
