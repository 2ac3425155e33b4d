//! Side by side: state functions that commute, of a group of packets, on two cores at once (B18,
//! B20).
//!
//! The functions of a step are cut in two, first ones and last ones: the first ones run here, on
//! the flows' records, the last ones there, on copies of what they may touch of these, which then
//! take the place of what they were made of. Packets both only read. What the last ones tell is
//! kept apart, and added behind what the first ones told: so all stands as if they had run in
//! order.

use std::ops::Range;

use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{ReadGroup, Stage};
use nf::{Effects, Verdict};
use packet::memory::OutOfMemory;
use packet::{Packet, Side};

use super::Pipeline;
use super::crossing::GroupCrossing;
use super::steps::drop_panicked;
use crate::SideBySide;
use crate::cache::Step;
use crate::queue::GROUP_MAX;

/// Of the groups that go in order, one in n is measured: a prime, so that programs which take
/// turns all have theirs.
const MEASURED_EVERY: u32 = 17;

/// The weight of a measurement in the average, as a power of two: an eighth.
const WEIGHT_SHIFT: u32 = 3;

/// A measurement counts as at most n times the average plus n nanoseconds: something
/// else had the core in the meantime.
const OUTLIER: u64 = 4;
const OUTLIER_NS: u64 = 256;

/// The state for running state functions in parallel.
pub(crate) struct Sides {
    how: SideBySide,
    /// The cost of each function's state functions for a packet.
    paces: Vec<Pace>,
    /// By function, where its part of records stands, and the bits of its attributes.
    parts: Vec<(Range<usize>, u64)>,
    /// The flows' records as the last ones have them, by their number in the group.
    copies: FlowRecords,
    /// Of which records, by the same number; and by packet, its flow's number.
    copied: [u32; GROUP_MAX],
    places: [u32; GROUP_MAX],
    /// The reports of the last ones.
    effects: Effects,
    /// Groups in order since one was measured.
    unmeasured: u32,
}

/// The cost for a packet, in 1/16 ns; 0 if unknown.
#[derive(Clone, Copy, Default)]
struct Pace(u64);

impl Pace {
    fn note(&mut self, ns: u64, packets: u64) {
        let this = (ns * 16 / packets.max(1)).max(1);
        if self.0 == 0 {
            self.0 = this;
            return;
        }
        let this = this.min(self.0 * OUTLIER + OUTLIER_NS * 16);
        self.0 = (self.0 + (this >> WEIGHT_SHIFT)).saturating_sub(self.0 >> WEIGHT_SHIFT).max(1);
    }
}

impl Sides {
    fn new(how: SideBySide, stages: &[Box<dyn Stage>], layout: &RecordLayout) -> Result<Sides, OutOfMemory> {
        let parts = stages.iter().map(|stage| {
            (stage.saved_part().map(|part| part.bytes).unwrap_or_default(), stage.tags().mask())
        });
        Ok(Sides {
            how,
            paces: vec![Pace::default(); stages.len()],
            parts: parts.collect(),
            copies: FlowRecords::new(GROUP_MAX as u32, layout.clone())?,
            copied: [0; GROUP_MAX],
            places: [0; GROUP_MAX],
            effects: Effects::default(),
            unmeasured: 0,
        })
    }

    /// Returns how many of the functions run here, if the others run there: such that the shorter
    /// side has as much to do as can be. None if that is not worth it, or not known yet.
    fn cut(&self, functions: &[Step], packets: u64) -> Option<usize> {
        let pace = |step: &Step| self.paces.get(stage_of(step)?).map(|pace| pace.0);
        let all: u64 = functions.iter().filter_map(pace).sum();
        let (mut here, mut best, mut shorter) = (0, 0, 0);
        for (count, step) in functions.iter().enumerate() {
            let of_shorter = here.min(all - here);
            if of_shorter > shorter {
                (best, shorter) = (count, of_shorter);
            }
            let pace = pace(step)?;
            if pace == 0 {
                return None;
            }
            here += pace;
        }
        let worth_ns = self.how.group_ns.saturating_add(self.how.packet_ns.saturating_mul(packets));
        (best > 0 && shorter * packets / 16 >= worth_ns).then_some(best)
    }

    /// Returns true if the group is measured, which goes side by side or does not: if so, or if
    /// nothing is known of some of these functions, or now and then.
    fn is_to_be_measured(&mut self, functions: &[Step], is_cut: bool) -> bool {
        self.unmeasured = (self.unmeasured + 1) % MEASURED_EVERY;
        let is_unknown = |stage: usize| self.paces[stage].0 == 0;
        is_cut || self.unmeasured == 0 || functions.iter().filter_map(stage_of).any(is_unknown)
    }

    /// Copies what the functions `there` may touch of the records of packets that they are to run
    /// for, once for each flow: of how many.
    fn lend(
        &mut self,
        (packets, verdicts, side): (&[Packet], &[Verdict], Side),
        records: &FlowRecords,
        there: &[Step],
    ) -> usize {
        let (mut seen, mut count) = (0u64, 0);
        for (i, (packet, verdict)) in packets.iter().zip(verdicts).enumerate() {
            let transit = &packet.meta().transit;
            if !verdict.is_forward() || transit.side != side {
                continue;
            }
            let (flow, bit) = (transit.flow, 1 << (transit.flow % 64));
            // Most flows have one packet in a group: only where another may be of this one it is
            // looked for.
            let may_be_known = seen & bit != 0;
            let known =
                if may_be_known { self.copied[..count].iter().position(|&of| of == flow) } else { None };
            seen |= bit;
            self.places[i] = known.unwrap_or(count) as u32;
            if known.is_none() {
                self.copied[count] = flow;
                self.copies.copy(count as u32, records, flow, 0..size_of::<RecordHeader>());
                for stage in there.iter().filter_map(stage_of) {
                    self.copies.copy(count as u32, records, flow, self.parts[stage].0.clone());
                }
                count += 1;
            }
        }
        count
    }

    /// Puts what they made of it, of n flows, in its place.
    fn give_back(&mut self, count: usize, records: &mut FlowRecords, there: &[Step]) {
        let tags = there.iter().filter_map(stage_of).fold(0, |tags, stage| tags | self.parts[stage].1);
        for (place, &flow) in (0..).zip(&self.copied[..count]) {
            for stage in there.iter().filter_map(stage_of) {
                records.copy(flow, &self.copies, place, self.parts[stage].0.clone());
            }
            if tags != 0 {
                let of_copy = self.copies.header(place).tags;
                let header = records.header_mut(flow);
                header.tags = header.tags & !tags | of_copy & tags;
            }
        }
    }
}

/// The function whose state functions a step runs.
fn stage_of(step: &Step) -> Option<usize> {
    match *step {
        Step::Functions(stage, _) => Some(stage),
        _ => None,
    }
}

/// Functions, with what is measured of them: all of a graph, or those of one side.
struct Team<'a> {
    stages: &'a mut [Box<dyn Stage>],
    paces: &'a mut [Pace],
    cycles: &'a mut [u64],
    /// The place of the first of them.
    first: usize,
    clock_ns: Option<fn() -> u64>,
    counter: Option<fn() -> u64>,
}

impl<'a> Team<'a> {
    /// Those before this place, and those from it on.
    fn split(self, at: usize) -> (Team<'a>, Team<'a>) {
        let (stages, later_stages) = self.stages.split_at_mut(at - self.first);
        let (paces, later_paces) = self.paces.split_at_mut(at - self.first);
        let (cycles, later_cycles) = self.cycles.split_at_mut(at - self.first);
        (
            Team { stages, paces, cycles, ..self },
            Team { stages: later_stages, paces: later_paces, cycles: later_cycles, first: at, ..self },
        )
    }

    /// Asks for what these state functions read first, which another core has had until now.
    fn expect(&self, functions: &[Step], group: &ReadGroup<'_>) {
        group.packets.iter().for_each(Packet::prefetch);
        for &place in group.places.iter().copied().flatten().take(group.packets.len()) {
            group.records.prefetch_header(place);
            for stage in functions.iter().filter_map(stage_of) {
                group.records.prefetch_states(place, self.stages[stage - self.first].lines());
            }
        }
    }

    /// Runs these state functions, which are theirs, in order. Says at which packets they panicked.
    fn run(self, functions: &[Step], mut group: ReadGroup<'_>) -> u64 {
        for step in functions {
            let &Step::Functions(stage, ref batch) = step else { continue };
            let at = stage - self.first;
            let started = (self.clock_ns.map(|clock| clock()), self.counter.map(|counter| counter()));
            self.stages[at].run_functions(&mut group, batch.as_slice());
            if let (Some(counter), Some(started)) = (self.counter, started.1) {
                self.cycles[at] += counter().wrapping_sub(started);
            }
            if let (Some(clock_ns), Some(started_ns)) = (self.clock_ns, started.0) {
                self.paces[at].note(clock_ns().saturating_sub(started_ns), group.load.packets);
            }
        }
        group.panicked
    }
}

impl Pipeline {
    /// See [`crate::Graph::run_side_by_side`].
    pub fn run_side_by_side(&mut self, how: SideBySide) -> Result<(), OutOfMemory> {
        if let Some(cache) = &mut self.flows.cache {
            cache.put_together();
        }
        self.sides = Some(Box::new(Sides::new(how, &self.stages.all, &self.flows.table.layout)?));
        Ok(())
    }

    /// Runs state functions that commute, side by side if that is worth it, else in order.
    #[inline(never)]
    pub(super) fn run_together(
        &mut self,
        functions: &[Step],
        crossing: &mut GroupCrossing,
        packets: &[Packet],
        verdicts: &mut [Verdict],
    ) {
        let &mut GroupCrossing { side, load, .. } = crossing;
        let Some(sides) = self.sides.as_deref_mut() else { return };
        let cut = sides.cut(functions, load.packets);
        let is_measured = sides.is_to_be_measured(functions, cut.is_some());
        let (here, there) = functions.split_at(cut.unwrap_or(functions.len()));
        let of_first = |functions: &[Step]| functions.first().and_then(stage_of);
        let lent = match of_first(there) {
            Some(_) => sides.lend((packets, &*verdicts, side), &self.flows.table.records, there),
            None => 0,
        };
        let Sides { how, paces, copies, places, effects, .. } = sides;
        let team = Team {
            stages: &mut self.stages.all,
            paces,
            cycles: &mut self.stages.cycles,
            first: 0,
            clock_ns: is_measured.then_some(how.clock_ns),
            counter: self.stages.clock,
        };
        let records = &mut self.flows.table.records;
        let group = ReadGroup {
            packets,
            verdicts: &*verdicts,
            side,
            load,
            records,
            places: None,
            effects: &mut self.stages.effects,
            panicked: 0,
        };
        let (Some(last), Some(first)) = (here.last().and_then(stage_of), of_first(there)) else {
            let panicked = team.run(functions, group);
            if panicked != 0 {
                drop_panicked(panicked, crossing, packets, verdicts);
            }
            return;
        };
        // Packets from outside come to the functions in reverse.
        let (low, high) = team.split(last.max(first));
        let (team_here, team_there) = if last < first { (low, high) } else { (high, low) };
        let group_there = ReadGroup {
            packets,
            verdicts: &*verdicts,
            side,
            load,
            records: copies,
            places: Some(&places[..]),
            effects,
            panicked: 0,
        };
        let (mut at_here, mut at_there) = (Some((team_here, group)), Some((team_there, group_there)));
        let (mut panicked_here, mut panicked_there) = (0, 0);
        how.runner.run(
            &mut || {
                if let Some((team, group)) = at_here.take() {
                    panicked_here = team.run(here, group);
                }
            },
            &mut || {
                if let Some((team, group)) = at_there.take() {
                    team.expect(there, &group);
                    panicked_there = team.run(there, group);
                }
            },
        );
        if let Some(cache) = &mut self.flows.cache {
            cache.count_beside(load.packets);
        }
        self.stages.effects.append(&mut sides.effects);
        sides.give_back(lent, &mut self.flows.table.records, there);
        if panicked_here | panicked_there != 0 {
            drop_panicked(panicked_here | panicked_there, crossing, packets, verdicts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_follows_what_is_measured_but_not_what_was_interrupted() {
        let mut pace = Pace::default();
        pace.note(32_000, 32);
        assert_eq!(pace.0, 16_000, "a microsecond, known at once");
        (0..100).for_each(|_| pace.note(64_000, 32));
        assert!((31_900..=32_000).contains(&pace.0), "{}", pace.0);
        pace.note(1_000_000_000, 32);
        assert!(pace.0 < 32_000 * 3 / 2, "{}", pace.0);
        (0..100).for_each(|_| pace.note(0, 0));
        assert!((1..=16).contains(&pace.0), "{}: never unknown again", pace.0);
    }
}
