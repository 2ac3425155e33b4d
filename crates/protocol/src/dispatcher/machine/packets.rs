//! The dispatch of a packet: its flow, its flowlet, its unit, its stamp.

use std::ops::Range;

use nf::AffinityGroup;

use super::Dispatcher;
use crate::message::{FlowId, ReplicaTargets, Stamp, UnitId};
use crate::trace::{FlowPlace, TimelineEvent};

use crate::dispatcher::assign::UnitPick;
use crate::dispatcher::flowlet::FlowletCut;
use crate::dispatcher::flows::{FlowGuess, FlowMatch};
use crate::dispatcher::output::{Dispatched, DispatcherOutput, NumberedPacket, PacketArrival};
use crate::dispatcher::owners::sound_target;
use crate::dispatcher::step::Step;

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
        let now_ns = self.clock.at(now_ns);
        if now_ns >= self.fleet.meter().ends_ns() {
            self.roll(now_ns);
            self.clock.bring_forward(self.fleet.meter().ends_ns());
        }
        let found = self.owners.flows().find(arrival.hash, arrival.key)?;
        Some(match self.cuts.cut(now_ns, found, arrival.len, &self.owners, &self.fleet) {
            None if self.cuts.is_near_its_end(self.owners.flows().get(found.index), arrival.len) => {
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
        self.owners.flows().get(index).stamp(index, None)
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
        let now_ns = self.clock.at(now_ns);
        if now_ns >= self.fleet.meter().ends_ns() {
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
        let mut now_ns = self.clock.at(times.start);
        let until_ns = times.end.min(self.fleet.meter().ends_ns());
        let (mut count, mut bytes) = (0, 0);
        for (at_ns, arrival, guess) in packets {
            now_ns = now_ns.max(at_ns);
            if now_ns >= until_ns || self.number(now_ns, &arrival, guess, &mut go_on).is_none() {
                break;
            }
            count += 1;
            bytes += u64::from(arrival.len);
        }
        self.clock.at(now_ns);
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
        let flow = self.owners.find_guessed(guess, arrival.key)?;
        let (unit, bytes) = (flow.owner(), flow.bytes_with(arrival.len));
        if self.cuts.may_cut(now_ns, flow, bytes) || !self.fleet.units().is_sound(unit) {
            return None;
        }
        let id = FlowId { index: guess.index(), generation: flow.generation() };
        let numbered = NumberedPacket { unit, flow: id, seq: flow.seq() + 1 };
        if !go_on(&numbered) {
            return None;
        }
        flow.number(now_ns, bytes);
        self.fleet.add(unit, arrival.len, now_ns);
        Some(numbered)
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
        let now_ns = self.clock.at(now_ns);
        let group = group.filter(|_| self.owners.groups().is_some());
        if let Some(group) = group.filter(|&group| self.owners.is_moving(group)) {
            return Dispatched::Waits(group);
        }
        let step = &mut Step::new(now_ns, &mut self.counters, outputs);
        if self.refuses_flows || !self.owners.make_room(self.fleet.units(), step) {
            step.counters().refused += 1;
            return Dispatched::Refused;
        }
        self.fleet.reckon();
        let estimate_bps = self.owners.estimate_of_new_bps();
        let chosen = match group {
            Some(group) => {
                let owner = self.owners.owner_in_group(group, self.fleet.units().active());
                owner.map(|unit| UnitPick { unit, fits: true })
            }
            None => self.placement.choose(estimate_bps, arrival.hash, None, &self.fleet),
        };
        let Some(chosen) = chosen else {
            step.counters().refused += 1;
            return Dispatched::NoUnit;
        };
        let Some(index) = self.owners.create(now_ns, &arrival, group, chosen.unit) else {
            step.counters().refused += 1; // Cannot be: there is an index.
            return Dispatched::Refused;
        };
        step.counters().flows += 1;
        step.counters().flowlets_of_new_flows += 1;
        self.fleet.count_assignment(chosen, step);
        // There may have been nothing to do without flows.
        self.clock.bring_forward(self.fleet.meter().ends_ns());
        let targets = self.choose_targets(index, arrival.len, (chosen.unit, estimate_bps));
        self.send(now_ns, FlowMatch { index, hash: arrival.hash }, arrival.len, Some(targets))
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
        let step = &mut Step::new(now_ns, &mut self.counters, outputs);
        *match cut {
            FlowletCut::Gap => &mut step.counters().flowlets_by_gap,
            FlowletCut::Size => &mut step.counters().flowlets_by_size,
            FlowletCut::Granularity => &mut step.counters().flowlets_by_mode,
            FlowletCut::Drain => &mut step.counters().flowlets_by_drain,
            FlowletCut::Silence => &mut step.counters().flowlets_by_silence,
            FlowletCut::Targets => &mut step.counters().flowlets_by_targets,
        } += 1;
        self.fleet.reckon();
        let next = self.owners.begin_flowlet(now_ns, found.index);
        let refusers = self.owners.flows().flowlet(found.index).refusers();
        let is_grouped = self.owners.group_of(found.index).is_some();
        let refuge = match cut {
            FlowletCut::Silence => sound_target(&self.owners, found.index, self.fleet.units()),
            _ => None,
        };
        let fleet = &mut self.fleet;
        let chosen = match refusers.len() {
            _ if is_grouped => None, // It stays with its group.
            _ if cut == FlowletCut::Targets => None,
            _ if refuge.is_some() => refuge.map(|unit| UnitPick { unit, fits: true }),
            0 => self.placement.choose_next((cut, found.hash), &next, fleet, step),
            _ => self.placement.choose_another(refusers, (cut, found.hash), &next, fleet, step),
        };
        let mut owner = next.owner;
        if let Some(chosen) = chosen {
            self.fleet.count_assignment(chosen, step);
            if chosen.unit != owner && self.owners.hand_over(found.index, chosen.unit, step).is_some() {
                owner = chosen.unit;
                step.counters().assignments_moved += 1;
                let is_target = next.targets.contains(chosen.unit);
                step.counters().assignments_moved_to_target += u64::from(is_target);
            }
        }
        let targets = self.choose_targets(found.index, len, (owner, next.estimate_bps));
        self.send(now_ns, found, len, Some(targets))
    }

    /// Chooses the targets of a flowlet that begins with a packet of this length, given its owner
    /// and estimated rate (S54).
    fn choose_targets(
        &mut self,
        index: u32,
        len: u32,
        (owner, estimate_bps): (UnitId, f32),
    ) -> ReplicaTargets {
        let list = self.placement.choose_targets(owner, estimate_bps, &mut self.fleet);
        self.owners.set_targets(index, list);
        let at_once = match self.cuts.is_near_its_end(self.owners.flows().get(index), len) {
            true => self.targets_at_once(index),
            false => None,
        };
        at_once.unwrap_or_else(|| list.into())
    }

    /// Returns the flowlet's targets, to be replicated to at once; `None` if there are none.
    #[cold]
    fn targets_at_once(&mut self, index: u32) -> Option<ReplicaTargets> {
        let targets = self.owners.targets_at_once(index, self.fleet.units());
        self.counters.pushes += u64::from(targets.is_some());
        targets
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
        self.fleet.add_to_bucket(found.hash, len);
        let (unit, stamp) = self.owners.number(now_ns, found.index, len, targets);
        self.counters.packets += 1;
        self.counters.bytes += u64::from(len);
        self.fleet.add(unit, len, now_ns);
        if self.trace.has_packets() {
            let place = FlowPlace::new(stamp.flow, stamp.epoch, stamp.seq);
            self.trace.note(now_ns, place, None, TimelineEvent::Dispatched { unit });
        }
        Dispatched::To { unit, stamp }
    }
}
