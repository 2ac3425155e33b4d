//! Affinity groups: all flows of a group have one owner, and move together.
//!
//! A group without flows has no owner; its next flow may begin at any unit. While a group
//! moves, its new owner does not have all of its shared state yet, so flows of the group that
//! begin have to wait. Packets of known flows go on.
//!
//! ```text
//! no owner -- a flow begins --> owned <-- all states have arrived -- moving: new flows wait
//!    ^                           | |                                   ^
//!    +------ the last flow ends -+ +---- drain, leveling, a command ---+
//! ```

use nf::AffinityGroup;

use crate::message::UnitId;

/// Difference of two units' groups from which on a group moves.
const UNEVEN: usize = 2;

/// The affinity groups of a dispatcher's flows.
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// By index of the flow.
    of_flows: Vec<Membership>,
    /// The number of groups that each unit owns.
    of_units: Vec<usize>,
    /// Groups that are moving.
    moving: usize,
    /// A unit has come, and lacks its part of the groups.
    levels: bool,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// The owner of its flows; `None` without flows.
    owner: Option<UnitId>,
    flows: u32,
    /// The flow that came last.
    last: Option<u32>,
    /// Flows with a state that has not arrived at the owner.
    awaited: u32,
    /// A unit that refused a flow's state, so that the group has to go back.
    back_to: Option<UnitId>,
    /// Units that refused a flow of the group, until it has no flows.
    refusers: Vec<UnitId>,
}

/// A flow's place in a group.
#[derive(Clone, Copy, Debug, Default)]
struct Membership {
    group: Option<AffinityGroup>,
    is_awaited: bool,
    /// The flows of the group that came before and after this one.
    before: Option<u32>,
    after: Option<u32>,
}

/// The consequence of the arrival or the end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterArrival {
    /// Nothing.
    Nothing,
    /// The group has arrived: flows of it may begin.
    Settled(AffinityGroup),
    /// All flows that could arrive have; the group goes back to this unit.
    GoesBack(AffinityGroup, UnitId),
}

impl Groups {
    pub fn new(count: u16) -> Groups {
        Groups {
            groups: vec![Group::default(); usize::from(count)],
            of_flows: Vec::new(),
            of_units: Vec::new(),
            moving: 0,
            levels: false,
        }
    }

    /// Returns true if flows of the group must not begin now.
    pub fn is_moving(&self, group: AffinityGroup) -> bool {
        self.groups.get(group.index()).is_some_and(|group| group.awaited > 0)
    }

    /// Returns the owner of the group's flows.
    pub fn owner(&self, group: AffinityGroup) -> Option<UnitId> {
        self.groups.get(group.index())?.owner
    }

    /// Makes another unit the owner of a group's flows.
    pub fn set_owner(&mut self, group: AffinityGroup, owner: UnitId) {
        let Some(group) = self.groups.get_mut(group.index()) else { return };
        let before = group.owner.replace(owner);
        self.count_owner(before, Some(owner));
    }

    /// Counts a group that has another owner.
    fn count_owner(&mut self, before: Option<UnitId>, owner: Option<UnitId>) {
        if let Some(before) = before {
            self.of_units[before.index()] -= 1; // It was counted.
        }
        if let Some(owner) = owner {
            let len = self.of_units.len().max(owner.index() + 1);
            self.of_units.resize(len, 0);
            self.of_units[owner.index()] += 1;
        }
    }

    /// Returns the flows of a group, the last one first.
    pub fn flows(&self, group: AffinityGroup) -> impl Iterator<Item = u32> + '_ {
        let last = self.groups.get(group.index()).and_then(|group| group.last);
        std::iter::successors(last, |&index| self.of_flows[index as usize].before)
    }

    /// Returns the group of the flow with this index.
    pub fn of_flow(&self, index: u32) -> Option<AffinityGroup> {
        self.of_flows.get(index as usize)?.group
    }

    /// Adds a flow that begins at this owner of its group.
    pub fn add(&mut self, index: u32, group: AffinityGroup, owner: UnitId) {
        let Some(of_group) = self.groups.get_mut(group.index()) else { return };
        of_group.flows += 1;
        let before = of_group.last.replace(index);
        let at = index as usize;
        if self.of_flows.len() <= at {
            self.of_flows.resize(at + 1, Membership::default());
        }
        if let Some(before) = before {
            self.of_flows[before as usize].after = Some(index);
        }
        self.of_flows[at] = Membership { group: Some(group), is_awaited: false, before, after: None };
        self.set_owner(group, owner);
    }

    /// Removes a flow that ends.
    pub fn remove(&mut self, index: u32) -> AfterArrival {
        let after = self.arrive(index);
        let Some(group) = self.of_flows.get_mut(index as usize).and_then(|of| of.group.take()) else {
            return AfterArrival::Nothing;
        };
        let Membership { before, after: behind, .. } = self.of_flows[index as usize];
        if let Some(before) = before {
            self.of_flows[before as usize].after = behind;
        }
        let of_group = &mut self.groups[group.index()]; // It is there: see `add`.
        match behind {
            Some(behind) => self.of_flows[behind as usize].before = before,
            None => of_group.last = before,
        }
        of_group.flows -= 1;
        if of_group.flows > 0 {
            return after;
        }
        let owner = std::mem::take(of_group).owner;
        self.count_owner(owner, None);
        match after {
            AfterArrival::GoesBack(..) => AfterArrival::Settled(group),
            _ => after,
        }
    }

    /// Notes that a flow's state is on its way to its new owner.
    pub fn await_flow(&mut self, index: u32) {
        let Some(of) = self.of_flows.get_mut(index as usize) else { return };
        let Some(group) = of.group.filter(|_| !of.is_awaited) else { return };
        of.is_awaited = true;
        let of_group = &mut self.groups[group.index()];
        self.moving += usize::from(of_group.awaited == 0);
        of_group.awaited += 1;
    }

    /// Notes that a flow's state has arrived, or will not.
    pub fn arrive(&mut self, index: u32) -> AfterArrival {
        let of = self.of_flows.get_mut(index as usize).filter(|of| of.is_awaited);
        let Some((group, of)) = of.and_then(|of| Some((of.group?, of))) else {
            return AfterArrival::Nothing;
        };
        of.is_awaited = false;
        let of_group = &mut self.groups[group.index()];
        of_group.awaited -= 1;
        if of_group.awaited > 0 {
            return AfterArrival::Nothing;
        }
        self.moving -= 1;
        match of_group.back_to.take() {
            Some(unit) => AfterArrival::GoesBack(group, unit),
            None => AfterArrival::Settled(group),
        }
    }

    /// Notes that a unit has refused a flow of a group, which goes back to this one.
    pub fn refuse(&mut self, index: u32, refuser: UnitId, back_to: UnitId) {
        let Some(group) = self.of_flow(index) else { return };
        let of_group = &mut self.groups[group.index()];
        of_group.back_to = Some(back_to);
        if !of_group.refusers.contains(&refuser) {
            of_group.refusers.push(refuser);
        }
    }

    /// Returns the number of groups with flows that a unit owns.
    fn count_of(&self, unit: UnitId) -> usize {
        self.of_units.get(unit.index()).copied().unwrap_or(0)
    }

    /// Returns the unit with the fewest groups that has refused none of this one.
    pub fn fewest(&self, group: AffinityGroup, active: &[UnitId]) -> Option<UnitId> {
        let refusers = self.groups.get(group.index()).map_or(&[][..], |group| &group.refusers);
        let takes = |unit: &&UnitId| !refusers.contains(unit);
        active.iter().filter(takes).copied().min_by_key(|&unit| (self.count_of(unit), unit))
    }

    /// Forgets that a unit has refused a flow of a group.
    pub fn forget_refuser(&mut self, group: AffinityGroup, unit: UnitId) {
        if let Some(group) = self.groups.get_mut(group.index()) {
            group.refusers.retain(|&refuser| refuser != unit);
        }
    }

    /// Notes that a unit has come, which lacks its part of the groups.
    pub fn level_from_now(&mut self) {
        self.levels = true;
    }

    /// Returns the next group to move, and its new owner, until all units have their parts. `None`
    /// while a group is moving.
    pub fn next_to_level(&mut self, active: &[UnitId]) -> Option<(AffinityGroup, UnitId)> {
        if !self.levels || self.moving > 0 {
            return None;
        }
        let uneven = self.uneven(active);
        self.levels = uneven.is_some();
        uneven
    }

    /// Returns a group to move, and its new owner, if one unit has too many.
    fn uneven(&self, active: &[UnitId]) -> Option<(AffinityGroup, UnitId)> {
        let most = active.iter().copied().max_by_key(|&unit| (self.count_of(unit), unit))?;
        let of_most = self.groups.iter().zip(0..).filter(|(group, _)| group.owner == Some(most));
        of_most.map(|(_, number)| AffinityGroup(number)).find_map(|group| {
            let fewest = self.fewest(group, active)?;
            (self.count_of(most) >= self.count_of(fewest) + UNEVEN).then_some((group, fewest))
        })
    }
}
