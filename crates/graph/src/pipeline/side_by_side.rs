//! Parallel state functions: those of a group of packets that commute run on two cores (B18, B20).
//!
//! The functions of a step are divided into first ones and last ones. The first ones run here, on
//! the flows' records. The last ones run there, on copies of their parts of these, which then
//! replace the originals. Both only read packets. The output of the last ones is kept apart, and
//! appended to that of the first ones: so the result is that of running in order.

use std::ops::Range;

use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{ReadGroup, Stage};
use nf::{Effects, Verdict};
use packet::memory::OutOfMemory;
use packet::{Packet, Side};

use super::traversal::{GroupCrossing, Traversal};
use crate::SideBySide;
use crate::cache::Step;
use crate::queue::GROUP_MAX;
use crate::stages::StageParts;

/// Of the groups in order, one in n is measured: a prime, so that alternating programs are all
/// measured.
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
    /// For each function, its part of records and the bits of its attributes.
    parts: Vec<(Range<usize>, u64)>,
    /// The records of the last functions, by the flow's number in the group.
    copies: FlowRecords,
    /// The original records, by the same number; and for each packet, its flow's number.
    copied: [u32; GROUP_MAX],
    places: [u32; GROUP_MAX],
    /// The output of the last functions.
    effects: Effects,
    /// Groups in order since the last measurement.
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
    /// Creates the state for these functions and records.
    ///
    /// # Errors
    /// If there is no memory for the copies of records.
    pub fn new(
        how: SideBySide,
        stages: &[Box<dyn Stage>],
        layout: &RecordLayout,
    ) -> Result<Sides, OutOfMemory> {
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

    /// Returns the number of functions that run here while the others run there, so that the
    /// shorter side has the most work. `None` if that is not worth it, or not known yet.
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

    /// Returns true if the group is measured: if it runs in parallel, if the cost of a function is
    /// not known, or one time in n.
    fn is_measured(&mut self, functions: &[Step], is_cut: bool) -> bool {
        self.unmeasured = (self.unmeasured + 1) % MEASURED_EVERY;
        let is_unknown = |stage: usize| self.paces[stage].0 == 0;
        is_cut || self.unmeasured == 0 || functions.iter().filter_map(stage_of).any(is_unknown)
    }

    /// Runs state functions that commute, in parallel if that is worth it, otherwise in order.
    #[inline(never)]
    pub fn run(
        &mut self,
        functions: &[Step],
        traversal: &mut Traversal,
        crossing: &mut GroupCrossing,
        packets: &[Packet],
        verdicts: &mut [Verdict],
    ) {
        let &mut GroupCrossing { side, load, .. } = crossing;
        let cut = self.cut(functions, load.packets);
        let is_measured = self.is_measured(functions, cut.is_some());
        let (here, there) = functions.split_at(cut.unwrap_or(functions.len()));
        let of_first = |functions: &[Step]| functions.first().and_then(stage_of);
        let lent = match of_first(there) {
            Some(_) => self.lend((packets, &*verdicts, side), &traversal.flows.table.records, there),
            None => 0,
        };
        let Sides { how, paces, copies, places, effects, .. } = self;
        let StageParts { all, effects: effects_here, cycles, clock } = traversal.stages.parts();
        let clock_ns = is_measured.then_some(how.clock_ns);
        let team = Team { stages: all, paces, cycles, first: 0, clock_ns, counter: clock };
        let records = &mut traversal.flows.table.records;
        let group = ReadGroup {
            packets,
            verdicts: &*verdicts,
            side,
            load,
            records,
            places: None,
            effects: effects_here,
            panicked: 0,
        };
        let (Some(last), Some(first)) = (here.last().and_then(stage_of), of_first(there)) else {
            let panicked = team.run(functions, group);
            if panicked != 0 {
                crossing.drop_panicked(panicked, packets, verdicts);
            }
            return;
        };
        // Packets from outside visit the functions in reverse.
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
        if let Some(cache) = &mut traversal.flows.cache {
            cache.count_beside(load.packets);
        }
        traversal.stages.effects.append(&mut self.effects);
        self.give_back(lent, &mut traversal.flows.table.records, there);
        if panicked_here | panicked_there != 0 {
            crossing.drop_panicked(panicked_here | panicked_there, packets, verdicts);
        }
    }

    /// Copies the parts of the functions `there` of the packets' records, once for each flow.
    /// Returns the number of flows.
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
            // Most flows have one packet in a group. Only if another may have this flow, it is
            // looked up.
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

    /// Copies the parts of n flows back.
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

/// Returns the function that has the state functions of a step.
fn stage_of(step: &Step) -> Option<usize> {
    match *step {
        Step::Functions(stage, _) => Some(stage),
        _ => None,
    }
}

/// Functions and their measurements: all of a graph, or those of one core.
struct Team<'a> {
    stages: &'a mut [Box<dyn Stage>],
    paces: &'a mut [Pace],
    cycles: &'a mut [u64],
    /// The number of the first one.
    first: usize,
    clock_ns: Option<fn() -> u64>,
    counter: Option<fn() -> u64>,
}

impl<'a> Team<'a> {
    /// Divides them into those before this number, and the others.
    fn split(self, at: usize) -> (Team<'a>, Team<'a>) {
        let (stages, later_stages) = self.stages.split_at_mut(at - self.first);
        let (paces, later_paces) = self.paces.split_at_mut(at - self.first);
        let (cycles, later_cycles) = self.cycles.split_at_mut(at - self.first);
        (
            Team { stages, paces, cycles, ..self },
            Team { stages: later_stages, paces: later_paces, cycles: later_cycles, first: at, ..self },
        )
    }

    /// Prefetches what these state functions read first, which is in another core's cache.
    fn expect(&self, functions: &[Step], group: &ReadGroup<'_>) {
        group.packets.iter().for_each(Packet::prefetch);
        for &place in group.places.iter().copied().flatten().take(group.packets.len()) {
            group.records.prefetch_header(place);
            for stage in functions.iter().filter_map(stage_of) {
                group.records.prefetch_states(place, self.stages[stage - self.first].lines());
            }
        }
    }

    /// Runs these state functions in order. Returns the packets at which they panicked, a bit for
    /// each.
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
