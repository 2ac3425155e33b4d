//! The dispatch of a packet: its flow, its flowlet, its unit, its stamp.

use std::ops::Range;

use nf::AffinityGroup;
use telemetry::event;

use crate::message::{Epoch, FlowId, FromDispatcher, ReplicaTargets, Stamp, UnitId};

use crate::dispatcher::assign::UnitPick;
use crate::dispatcher::config::{Granularity, UnitChoice};
use crate::dispatcher::flow::TargetList;
use crate::dispatcher::flowlet::{self, FlowletCut};
use crate::dispatcher::flows::{FlowGuess, FlowMatch};
use crate::dispatcher::machine::{Dispatched, Dispatcher, DispatcherOutput, NumberedPacket, PacketArrival};
use crate::dispatcher::units::UnitState;

impl Dispatcher {
    /// Dispatches a packet. The caller must execute what is added to `outputs` before it sends the
    /// packet: usually nothing, at most two for a packet of a known flow, and one for each unit
    /// that must end a flow to make room.
    ///
    /// Allocates only if `outputs` has no room for these.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        arrival: PacketArrival<'_>,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Dispatched {
        self.handle_packet_of(now_ns, arrival, None, outputs)
    }

    /// The same for a packet of this affinity group: if it begins a flow, that is where the group
    /// is.
    #[inline]
    pub fn handle_packet_of(
        &mut self,
        now_ns: u64,
        arrival: PacketArrival<'_>,
        group: Option<AffinityGroup>,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Dispatched {
        match self.handle_known_packet(now_ns, arrival, outputs) {
            Some(routed) => routed,
            None => self.begin(now_ns, arrival, group, outputs),
        }
    }

    /// Dispatches a packet of a known flow. Returns `None`, and nothing has changed, if it would
    /// begin one: the caller can then first apply what earlier packets bring about, such as an
    /// alias.
    #[inline]
    pub fn handle_known_packet(
        &mut self,
        now_ns: u64,
        arrival: PacketArrival<'_>,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Option<Dispatched> {
        let now_ns = self.at(now_ns);
        if now_ns >= self.meter.ends_ns() {
            self.roll(now_ns);
            self.next_timeout_ns = self.next_timeout_ns.min(self.meter.ends_ns());
        }
        let found = self.flows.find(arrival.hash, arrival.key)?;
        Some(match self.cut(now_ns, found, arrival.len) {
            None if self.is_near_its_end(found.index, arrival.len) => {
                let targets = self.targets_at_once(found.index);
                self.send(now_ns, found, arrival.len, targets)
            }
            None => self.send(now_ns, found, arrival.len, None),
            Some(cut) => self.begin_flowlet(now_ns, found, arrival.len, cut, outputs),
        })
    }

    /// Dispatches a packet that continues a flowlet, as most do, of the
    /// [guessed](Dispatcher::guess) flow; there are no outputs. Returns `None`, and nothing has
    /// changed, for any other packet.
    #[inline(always)]
    pub fn stamp_next(
        &mut self,
        now_ns: u64,
        arrival: PacketArrival<'_>,
        guess: FlowGuess,
    ) -> Option<(UnitId, Stamp)> {
        let numbered = self.number_next(now_ns, arrival, guess)?;
        Some((numbered.unit, self.stamp_numbered(&numbered)))
    }

    /// Returns the stamp of the packet that [was numbered](Dispatcher::number_next) last.
    #[inline(always)]
    pub fn stamp_numbered(&self, numbered: &NumberedPacket) -> Stamp {
        let index = numbered.flow.index;
        self.flows.get(index).stamp(index, None)
    }

    /// The same as [`stamp_next`](Dispatcher::stamp_next) without the stamp, for units that need
    /// none.
    #[inline(always)]
    pub fn number_next(
        &mut self,
        now_ns: u64,
        arrival: PacketArrival<'_>,
        guess: FlowGuess,
    ) -> Option<NumberedPacket> {
        let now_ns = self.at(now_ns);
        if now_ns >= self.meter.ends_ns() {
            return None;
        }
        let numbered = self.number(now_ns, &arrival, guess, |_| true)?;
        self.counters.packets += 1;
        self.counters.bytes += u64::from(arrival.len);
        Some(numbered)
    }

    /// Numbers the first packets of a batch, as long as each continues a flowlet and `go_on`
    /// returns true. Returns their number. Arrival times count as monotone and at least
    /// `times.start`; numbering stops at `times.end`.
    #[inline(always)]
    pub fn number_batch<'a>(
        &mut self,
        times: Range<u64>,
        packets: impl Iterator<Item = (u64, PacketArrival<'a>, FlowGuess)>,
        mut go_on: impl FnMut(&NumberedPacket) -> bool,
    ) -> usize {
        let mut now_ns = self.at(times.start);
        let until_ns = times.end.min(self.meter.ends_ns());
        let (mut count, mut bytes) = (0, 0);
        for (at_ns, arrival, guess) in packets {
            now_ns = now_ns.max(at_ns);
            if now_ns >= until_ns || self.number(now_ns, &arrival, guess, &mut go_on).is_none() {
                break;
            }
            count += 1;
            bytes += u64::from(arrival.len);
        }
        self.at(now_ns);
        self.counters.packets += count as u64;
        self.counters.bytes += bytes;
        count
    }

    /// Numbers a packet that continues a flowlet, if `go_on` returns true; the caller counts it.
    #[inline(always)]
    fn number(
        &mut self,
        now_ns: u64,
        arrival: &PacketArrival<'_>,
        guess: FlowGuess,
        go_on: impl FnOnce(&NumberedPacket) -> bool,
    ) -> Option<NumberedPacket> {
        let flow = self.flows.find_guessed(guess, arrival.key)?;
        let (unit, bytes) = (flow.owner(), flow.bytes_with(arrival.len));
        let silence_ns = now_ns.saturating_sub(flow.last_seen_ns);
        let may_be_cut = silence_ns > self.midst_gap_ns || bytes >= self.midst_end;
        if may_be_cut || !self.units.is_active(unit) {
            return None;
        }
        let id = FlowId { index: guess.index(), generation: flow.generation };
        let numbered = NumberedPacket { unit, flow: id, seq: flow.seq + 1 };
        if !go_on(&numbered) {
            return None;
        }
        flow.number(now_ns, bytes);
        self.meter.add(unit, arrival.len.into(), now_ns);
        Some(numbered)
    }

    /// Returns true if the flow with this index is in an affinity group.
    #[inline]
    fn is_grouped(&self, index: u32) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.of_flow(index).is_some())
    }

    fn is_moving(&self, group: AffinityGroup) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.is_moving(group))
    }

    /// Begins the next bucket of the load meter.
    #[cold]
    pub(crate) fn roll(&mut self, now_ns: u64) {
        let buckets = self.meter.roll(now_ns);
        if let Some(follow) = &mut self.follow {
            follow.turn(buckets, self.counters.bytes + self.bytes_refused);
        }
        self.flows.expect_flowlets(self.counters.flowlets(), self.counters.packets);
    }

    /// Returns the cut if this packet begins a flowlet of a known flow (S29, S32).
    #[inline]
    fn cut(&self, now_ns: u64, found: FlowMatch, len: u32) -> Option<FlowletCut> {
        let flow = self.flows.get(found.index);
        if !self.units.is_active(flow.owner()) {
            // A group moves at once, when the next timers are handled.
            if self.is_grouped(found.index) {
                return None;
            }
            if !self.leaves_with_copy(flow.owner()) {
                return Some(FlowletCut::Drain);
            }
        }
        // Its state cannot be fetched now.
        if self.units.is_passed_over(flow.owner()) {
            return None;
        }
        let by_mode = match self.config.mode {
            Granularity::Flowlet => return flowlet::cut(flow, now_ns, len, &self.config),
            Granularity::Flow => false,
            Granularity::SmartFlow { every_ns } => {
                now_ns / every_ns != self.flows.flowlet(found.index).started_ns / every_ns
            }
            Granularity::Packet => true,
            Granularity::Rss { .. } => {
                self.rss.as_ref().is_some_and(|rss| rss.owner(found.hash) != flow.owner())
            }
        };
        by_mode.then_some(FlowletCut::Granularity)
    }

    /// Returns true if the flowlet is likely to be cut after this packet (S62).
    #[inline]
    fn is_near_its_end(&self, index: u32, len: u32) -> bool {
        self.flows.get(index).bytes_with(len) > self.push_above
    }

    /// Returns the flowlet's targets that are still active, to be replicated to at once; `None` if
    /// there are none. One may be the owner by now, if the flow's unit was drained.
    #[cold]
    fn targets_at_once(&mut self, index: u32) -> Option<ReplicaTargets> {
        let owner = self.flows.get(index).owner();
        let list = &self.flows.flowlet(index).targets;
        let targets = match list.is_all() {
            true => ReplicaTargets::ALL,
            false => ReplicaTargets::of_distinct(
                list.units().filter(|&unit| unit != owner && self.units.is_active(unit)),
            ),
        };
        if targets == ReplicaTargets::NONE {
            return None;
        }
        self.counters.pushes += 1;
        Some(targets.at_once())
    }

    /// Begins a flow with its first packet (S33, S49).
    #[cold]
    fn begin(
        &mut self,
        now_ns: u64,
        arrival: PacketArrival<'_>,
        group: Option<AffinityGroup>,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Dispatched {
        let now_ns = self.at(now_ns);
        let group = group.filter(|_| self.groups.is_some());
        if let Some(group) = group.filter(|&group| self.is_moving(group)) {
            return Dispatched::Waits(group);
        }
        if self.refuses_flows {
            self.counters.refused += 1;
            return Dispatched::Refused;
        }
        if self.flows.is_full()
            && let Some(silent_ns) = self.config.displaced_after_ns()
            && let Some(victim) = self.flows.victim(now_ns, silent_ns)
        {
            self.counters.flows_displaced += 1;
            self.end(victim, outputs);
        }
        if self.flows.is_full() {
            self.counters.refused += 1;
            return Dispatched::Refused;
        }
        self.meter.reckon();
        let estimate_bps = self.demand.of_new_flow_bps();
        let chosen = match group {
            Some(group) => self.owner_in_group(group).map(|unit| UnitPick { unit, fits: true }),
            None => self.choose(estimate_bps, arrival.hash, None),
        };
        let Some(chosen) = chosen else {
            self.counters.refused += 1;
            return Dispatched::NoUnit;
        };
        let Some(index) = self.flows.create(arrival.hash, arrival.key, chosen.unit, now_ns) else {
            self.counters.refused += 1; // Cannot be: there is an index.
            return Dispatched::Refused;
        };
        let found = FlowMatch { index, hash: arrival.hash };
        if let Some((groups, group)) = self.groups.as_mut().zip(group) {
            groups.add(found.index, group, chosen.unit);
        }
        self.counters.flows += 1;
        self.counters.flowlets_of_new_flows += 1;
        // There may have been nothing to do without flows.
        self.next_timeout_ns = self.next_timeout_ns.min(self.meter.ends_ns());
        self.count_assignment(chosen, outputs);
        self.units.gains(chosen.unit);
        self.flows.get_mut(found.index).estimate_bps = estimate_bps;
        let targets = self.choose_targets(found.index, arrival.len);
        self.send(now_ns, found, arrival.len, Some(targets))
    }

    /// Begins a flowlet of a known flow with this packet.
    #[inline(never)] // So that what it needs is no burden to other packets.
    fn begin_flowlet(
        &mut self,
        now_ns: u64,
        found: FlowMatch,
        len: u32,
        cut: FlowletCut,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Dispatched {
        let counter = match cut {
            FlowletCut::Gap => &mut self.counters.flowlets_by_gap,
            FlowletCut::Size => &mut self.counters.flowlets_by_size,
            FlowletCut::Granularity => &mut self.counters.flowlets_by_mode,
            FlowletCut::Drain => &mut self.counters.flowlets_by_drain,
        };
        *counter += 1;
        self.meter.reckon();
        let (flow, flowlet) = self.flows.both_mut(found.index);
        flow.estimate_bps = self.demand.of_next_bps(now_ns, flow, flowlet);
        (flow.bytes, flowlet.started_ns) = (0, now_ns);
        let (owner, estimate_bps, targets) = (flow.owner(), flow.estimate_bps, flowlet.targets);
        let is_grouped = self.is_grouped(found.index);
        let chosen = match self.flows.flowlet(found.index).refusers.len() {
            _ if is_grouped => None, // It stays with its group.
            0 => self.choose_again(cut, found, owner, estimate_bps, &targets, outputs),
            _ => {
                let refusers = self.flows.flowlet(found.index).refusers;
                self.choose_another(&refusers, cut, found, (owner, estimate_bps), &targets, outputs)
            }
        };
        if let Some(chosen) = chosen {
            self.count_assignment(chosen, outputs);
            if chosen.unit != owner && self.hand_over(found.index, chosen.unit, outputs).is_some() {
                self.counters.assignments_moved += 1;
                self.counters.assignments_moved_to_target += u64::from(targets.contains(chosen.unit));
            }
        }
        let targets = self.choose_targets(found.index, len);
        self.send(now_ns, found, len, Some(targets))
    }

    /// Chooses the unit for a known flow's next flowlet; `None` if it stays without a choice.
    #[inline(always)] // One caller is hot; the others are cold.
    fn choose_again(
        &mut self,
        cut: FlowletCut,
        found: FlowMatch,
        owner: UnitId,
        estimate_bps: f32,
        targets: &TargetList,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Option<UnitPick> {
        if let Some(below_bps) = self.stay_below_bps {
            let load_bps = self.meter.loads().of(owner);
            let is_copied = cut == FlowletCut::Gap || self.push_above < u64::MAX;
            match cut {
                FlowletCut::Gap | FlowletCut::Size if load_bps < below_bps => return None,
                FlowletCut::Gap | FlowletCut::Size if is_copied => {
                    if let Some(unit) = self.copy_below(below_bps, targets) {
                        return Some(UnitPick { unit, fits: true });
                    }
                }
                // The state could not be elsewhere in time.
                FlowletCut::Size if load_bps <= self.config.capacity_bps as f32 => return None,
                FlowletCut::Gap | FlowletCut::Size | FlowletCut::Granularity | FlowletCut::Drain => {}
            }
        }
        if !matches!(self.config.mode, Granularity::SmartFlow { .. }) || cut == FlowletCut::Drain {
            return self.choose(estimate_bps, found.hash, Some((owner, targets)));
        }
        if self.meter.loads().of(owner) <= self.config.capacity_bps as f32 {
            return None;
        }
        let chosen = self.choose(estimate_bps, found.hash, Some((owner, targets)))?;
        if !chosen.fits {
            self.start_for_room(outputs); // There is nowhere to go: it stays (S88).
            return None;
        }
        Some(chosen)
    }

    /// The same for a flow whose state units have refused: these get it only if the owner is
    /// draining and no other unit is active.
    #[cold]
    fn choose_another(
        &mut self,
        refusers: &TargetList,
        cut: FlowletCut,
        found: FlowMatch,
        (owner, estimate_bps): (UnitId, f32),
        targets: &TargetList,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Option<UnitPick> {
        let hidden_bps = self.meter.hide(refusers);
        let another = self.choose_again(cut, found, owner, estimate_bps, targets, outputs);
        self.meter.show(refusers, hidden_bps);
        match another.filter(|another| another.unit == owner || !refusers.contains(another.unit)) {
            None if !self.units.is_active(owner) => {
                self.choose_again(cut, found, owner, estimate_bps, targets, outputs)
            }
            another => another,
        }
    }

    /// Returns the least loaded unit of those with a replica, if its load is below this; the first
    /// of equal ones.
    fn copy_below(&self, below_bps: f32, targets: &TargetList) -> Option<UnitId> {
        let loads = self.meter.loads();
        let least = match targets.is_all() {
            true => loads.least_loaded()?,
            false => targets.units().min_by(|&a, &b| loads.of(a).total_cmp(&loads.of(b)))?,
        };
        (loads.of(least) < below_bps).then_some(least)
    }

    /// Chooses the unit for a flowlet with this estimated rate; `None` if no unit is active.
    fn choose(
        &mut self,
        estimate_bps: f32,
        hash: u64,
        so_far: Option<(UnitId, &TargetList)>,
    ) -> Option<UnitPick> {
        if let Some(rss) = &self.rss {
            return Some(UnitPick { unit: rss.owner(hash), fits: true });
        }
        if self.config.mode == Granularity::Packet || self.config.choice == UnitChoice::RoundRobin {
            return self.next_in_turn().map(|unit| UnitPick { unit, fits: true });
        }
        let active = self.units.active();
        // If all units have the state, it makes no difference.
        let some_have = so_far.filter(|(_, targets)| !targets.is_all());
        let having_state =
            some_have.into_iter().flat_map(|(owner, targets)| std::iter::once(owner).chain(targets.units()));
        let chosen = self.assigner.choose(self.meter.loads(), estimate_bps, having_state, active.len())?;
        match so_far {
            Some((owner, _)) if !chosen.fits && self.may_stay(owner) => {
                Some(UnitPick { unit: owner, ..chosen })
            }
            _ => Some(chosen),
        }
    }

    /// Returns the next active unit in turn that is not hidden.
    pub(crate) fn next_in_turn(&mut self) -> Option<UnitId> {
        let (active, loads) = (self.units.active(), self.meter.loads());
        let mut turns = (0..active.len()).map(|more| (self.turn + more) % active.len());
        let turn = turns.find(|&turn| loads.of(active[turn]) < f32::INFINITY)?;
        self.turn = turn + 1;
        Some(active[turn])
    }

    /// Returns true if a flowlet that fits nowhere may stay with its state: no units start for it,
    /// and its unit is active and not full.
    fn may_stay(&self, owner: UnitId) -> bool {
        self.follow.is_some() && self.meter.loads().of(owner) < self.config.capacity_bps as f32
    }

    fn count_assignment(&mut self, chosen: UnitPick, outputs: &mut Vec<DispatcherOutput>) {
        self.counters.assignments += 1;
        event::flow_assigned(chosen.unit.0.into(), chosen.fits);
        if !chosen.fits {
            self.counters.assignments_without_room += 1;
            self.start_for_room(outputs);
        }
    }

    /// Chooses the targets of a flowlet that begins with a packet of this length (S54); none if its
    /// unit will have room for the next one, too.
    fn choose_targets(&mut self, index: u32, len: u32) -> ReplicaTargets {
        let (flow, flowlet) = self.flows.both_mut(index);
        let active = self.units.active();
        if self.meter.loads().of(flow.owner()) < self.copy_from_bps {
            flowlet.targets = TargetList::NONE; // The next one stays.
            return ReplicaTargets::NONE;
        }
        flowlet.targets = self.assigner.targets(flow.owner(), flow.estimate_bps, active, &mut self.meter);
        let targets = flowlet.targets.into();
        if self.is_near_its_end(index, len) {
            self.targets_at_once(index).unwrap_or(targets)
        } else {
            targets
        }
    }

    /// Makes another unit the flow's owner, and notifies the previous one (design.md 3.1). Returns
    /// the new epoch; `None`, and nothing has changed, if the epochs are exhausted.
    pub(crate) fn hand_over(
        &mut self,
        index: u32,
        to: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Option<Epoch> {
        let (id, start) = (self.flows.id(index), self.flows.get(index).handover());
        if !self.flows.hand_to(index, to) {
            self.counters.epochs_exhausted += 1;
            return None;
        }
        let flow = self.flows.get(index);
        self.units.loses(flow.previous());
        self.units.gains(to);
        let (epoch, last) = (flow.epoch, flow.last);
        let message = FromDispatcher::Release { flow: id, epoch, owner: to, last, start };
        outputs.push(DispatcherOutput::Send { to: flow.previous(), message });
        Some(epoch)
    }

    /// Numbers and stamps the packet for its flow's owner; `targets` if it begins a flowlet.
    #[inline(always)]
    fn send(
        &mut self,
        now_ns: u64,
        found: FlowMatch,
        len: u32,
        targets: Option<ReplicaTargets>,
    ) -> Dispatched {
        if let Some(rss) = &mut self.rss {
            rss.add(found.hash, len.into());
        }
        let flow = self.flows.get_mut(found.index);
        flow.number(now_ns, flow.bytes_with(len));
        let (unit, stamp) = (flow.owner(), flow.stamp(found.index, targets));
        self.count_packet(unit, now_ns, len);
        Dispatched::To { unit, stamp }
    }

    /// Counts a packet to a unit.
    #[inline(always)]
    fn count_packet(&mut self, unit: UnitId, now_ns: u64, len: u32) {
        self.counters.packets += 1;
        self.counters.bytes += u64::from(len);
        self.meter.add(unit, len.into(), now_ns);
    }

    /// Ends a flow. Notifies its owner, the previous one, and the units that have replicas of this
    /// flowlet. Older replicas elsewhere are worthless, and go with the index's next flow.
    pub(crate) fn end(&mut self, index: u32, outputs: &mut Vec<DispatcherOutput>) {
        let now_ns = self.now_ns();
        let message = FromDispatcher::End { flow: self.flows.id(index) };
        let (flow, flowlet) = (self.flows.get(index), self.flows.flowlet(index));
        self.demand.measure(now_ns, flow, flowlet);
        let (owner, targets) = (flow.owner(), flowlet.targets);
        let before = (flow.epoch > 1).then(|| flow.previous()).filter(|&unit| !targets.contains(unit));
        outputs.push(DispatcherOutput::Send { to: owner, message: message.clone() });
        let mut tell = |to: UnitId| {
            if to != owner && matches!(self.units.state(to), UnitState::Active | UnitState::Draining) {
                outputs.push(DispatcherOutput::Send { to, message: message.clone() });
            }
        };
        if targets.is_all() {
            self.units.all().for_each(&mut tell);
        } else {
            targets.units().chain(before).for_each(&mut tell);
        }
        self.units.loses(owner);
        if !self.flows.remove(index) {
            self.counters.indexes_retired += 1;
        }
        self.leave_group(index, outputs);
    }
}
