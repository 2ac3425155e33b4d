//! Following: the steps of a program, each over all packets of a group.

use nf::Verdict;
use nf::stage::{PacketTotals, ReadGroup, Stage};
use packet::{DropReason, Packet, Side};

use super::crossing::GroupCrossing;
use super::{BatchRun, Pipeline};
use crate::cache::{Layer, ProgramId, Step};

impl Pipeline {
    /// Takes the packets of a crossing through the steps of the program that the rules of all their
    /// flows name.
    #[inline(never)]
    pub(super) fn follow_rules(
        &mut self,
        program: ProgramId,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let Some(cache) = &mut self.flows.cache else { return };
        // They are back in their place before anything could ask for them: programs are made for
        // packets that walk.
        let programs = cache.lend_programs(crossing.load.packets);
        if let Some(routing) = &mut self.flows.routing {
            let visits = programs.steps(program).iter().any(|step| matches!(step, Step::Process(_)));
            routing.follow(crossing.side, visits, packets, verdicts, &self.flows.table.records);
        }
        let mut steps = programs.steps(program).iter();
        while let Some(step) = steps.next() {
            if let Step::Together(count) = *step {
                let (functions, behind) = steps.as_slice().split_at(count.min(steps.len()));
                self.run_together(functions, crossing, packets, verdicts);
                steps = behind.iter();
                continue;
            }
            self.take_step(step, crossing, packets, verdicts, run);
        }
        if let Some(cache) = &mut self.flows.cache {
            cache.take_back(programs);
        }
        self.forget_rules_of_tagged(crossing.side, packets);
    }

    /// Forgets the rules of flows whose attributes have changed: filters on their paths may decide
    /// otherwise now.
    #[inline]
    pub(super) fn forget_rules_of_tagged(&mut self, side: Side, packets: &[Packet]) {
        let Some(routing) = &self.flows.routing else { return };
        if !routing.topology.reads().attributes {
            return;
        }
        for (packet, journey) in packets.iter().zip(&routing.journeys) {
            let transit = packet.meta().transit;
            let tags = self.flows.table.records.header(transit.flow).tags;
            if transit.side == side && tags != journey.tags {
                self.flows.cache.iter_mut().for_each(|cache| cache.forget(transit.flow));
            }
        }
    }

    #[inline(always)]
    fn take_step(
        &mut self,
        step: &Step,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let &mut GroupCrossing { side, load, .. } = crossing;
        match *step {
            Step::Pass(stage) => self.stages.all[stage].pass(load, 0),
            Step::Functions(stage, ref functions) => {
                let started = self.stages.clock.map(|cycles| cycles());
                let (records, effects) = (&mut self.flows.table.records, &mut self.stages.effects);
                let mut group =
                    ReadGroup { packets, verdicts, side, load, records, places: None, effects, panicked: 0 };
                self.stages.all[stage].run_functions(&mut group, functions.as_slice());
                let panicked = group.panicked;
                self.stages.count_cycles(stage, started);
                if panicked != 0 {
                    drop_panicked(panicked, crossing, packets, verdicts);
                }
            }
            Step::Process(stage) => {
                self.take_through(stage, crossing, packets, verdicts, run);
            }
            Step::Rewrite { known } => {
                let Some(cache) = &self.flows.cache else { return };
                for (packet, verdict) in packets.iter_mut().zip(verdicts.iter_mut()) {
                    let transit = &packet.meta().transit;
                    let rule = cache.rule(transit.flow, transit.direction);
                    if verdict.is_forward()
                        && let Some(rule) = rule
                        && packet.set_ends(&rule.ends, known).is_err()
                    {
                        *verdict = Verdict::Drop(DropReason::Internal);
                    }
                }
            }
            _ => self.take_rare_step(step, crossing, packets, verdicts),
        }
    }

    /// Takes one that not many programs have. Apart, so that what it takes costs others nothing.
    #[inline(never)]
    fn take_rare_step(
        &mut self,
        step: &Step,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
    ) {
        let load = crossing.load;
        match *step {
            Step::SetDscp(dscp) => {
                let forwarded = packets.iter_mut().zip(verdicts.iter()).filter(|of| of.1.is_forward());
                forwarded.for_each(|(packet, _)| packet.set_dscp(dscp));
            }
            Step::Encap(stage) => {
                let Some(cache) = &self.flows.cache else { return };
                let room = |packet: &mut Packet| {
                    let transit = &packet.meta().transit;
                    let outer = cache.outer(transit.flow, transit.direction);
                    outer.and_then(|&outer| packet.encap(&outer).ok()).ok_or(DropReason::NoHeadroom)
                };
                drop_unless(room, &mut *self.stages.all[stage], crossing, packets, verdicts);
            }
            Step::PushTag(stage, tag) => {
                let room = |packet: &mut Packet| packet.push_tag(tag).map_err(|_| DropReason::NoHeadroom);
                drop_unless(room, &mut *self.stages.all[stage], crossing, packets, verdicts);
            }
            Step::Decap(stage, len) => {
                let out = |packet: &mut Packet| packet.decap(len).map_err(|_| DropReason::Internal);
                drop_unless(out, &mut *self.stages.all[stage], crossing, packets, verdicts);
            }
            Step::PopTag(stage, kind) => {
                let off = |packet: &mut Packet| packet.pop_tag(kind).map_err(|_| DropReason::Internal);
                drop_unless(off, &mut *self.stages.all[stage], crossing, packets, verdicts);
            }
            Step::Cancelled(stage, layer) => {
                let room = |packet: &mut Packet| {
                    if matches!(layer, Layer::Outer(_)) {
                        packet.trim_trailer();
                    }
                    (packet.headroom() >= layer.len()).then_some(()).ok_or(DropReason::NoHeadroom)
                };
                crossing.cancelled_len += layer.len() as u64;
                drop_unless(room, &mut *self.stages.all[stage], crossing, packets, verdicts);
            }
            Step::Restored(layer) => {
                crossing.cancelled_len -= layer.len() as u64;
                crossing.load.bytes -= load.packets * layer.len() as u64;
            }
            Step::Drop(stage, reason) => {
                let forwarded = verdicts.iter_mut().filter(|verdict| verdict.is_forward());
                forwarded.for_each(|verdict| *verdict = Verdict::Drop(reason));
                self.stages.all[stage].pass(PacketTotals::default(), load.packets);
            }
            Step::Edge(edge) => {
                if let Some(routing) = &mut self.flows.routing {
                    routing.count_all(edge, load);
                }
            }
            Step::DropAtEnd(reason) => {
                let forwarded = verdicts.iter_mut().filter(|verdict| verdict.is_forward());
                forwarded.for_each(|verdict| *verdict = Verdict::Drop(reason));
            }
            // They have been seen to.
            Step::Together(_)
            | Step::Pass(_)
            | Step::Functions(..)
            | Step::Process(_)
            | Step::Rewrite { .. } => {}
        }
    }
}

/// Drops packets at which state functions panicked, a bit for each.
#[cold]
pub(super) fn drop_panicked(
    panicked: u64,
    crossing: &mut GroupCrossing,
    packets: &[Packet],
    verdicts: &mut [Verdict],
) {
    for (number, verdict) in verdicts.iter_mut().enumerate() {
        if verdict.is_forward() && panicked >> number & 1 != 0 {
            *verdict = Verdict::Drop(DropReason::FunctionPanic);
        }
    }
    crossing.load = PacketTotals::by_side(packets, verdicts)[crossing.side as usize];
    crossing.load.bytes += crossing.load.packets * crossing.cancelled_len;
}

/// Drops packets, as `stage` would, of which this cannot be done: there may be no room for headers.
/// The others go on as they are then.
#[inline]
fn drop_unless<T>(
    done: impl Fn(&mut Packet) -> Result<T, DropReason>,
    stage: &mut dyn Stage,
    crossing: &mut GroupCrossing,
    packets: &mut [Packet],
    verdicts: &mut [Verdict],
) {
    let mut dropped = 0;
    for (packet, verdict) in packets.iter_mut().zip(verdicts.iter_mut()) {
        if verdict.is_forward()
            && let Err(reason) = done(packet)
        {
            *verdict = Verdict::Drop(reason);
            dropped += 1;
        }
    }
    stage.pass(PacketTotals::default(), dropped);
    crossing.load = PacketTotals::by_side(packets, verdicts)[crossing.side as usize];
    crossing.load.bytes += crossing.load.packets * crossing.cancelled_len;
}
