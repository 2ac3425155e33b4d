//! The fast path: the steps of a program, each over all packets of a group.

use nf::Verdict;
use nf::stage::{PacketTotals, ReadGroup, Stage};
use packet::{DropReason, Packet};

use super::BatchRun;
use super::side_by_side::Sides;
use super::traversal::{GroupCrossing, Traversal};
use crate::cache::{Layer, ProgramId, Step};

/// A group on its way through the steps of a program.
pub(super) struct StepRun<'t> {
    traversal: &'t mut Traversal,
    /// The state for running state functions in parallel, if enabled.
    sides: Option<&'t mut Sides>,
}

impl<'t> StepRun<'t> {
    /// Begins with a group.
    #[inline(always)]
    pub fn new(traversal: &'t mut Traversal, sides: Option<&'t mut Sides>) -> StepRun<'t> {
        StepRun { traversal, sides }
    }

    /// Takes the packets of a crossing through the steps of the program of all their flows' rules.
    #[inline(never)]
    pub fn follow(
        &mut self,
        program: ProgramId,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let Some(cache) = &mut self.traversal.flows.cache else { return };
        // They are back before they are needed: programs are made for slow-path packets.
        let programs = cache.lend_programs(crossing.load.packets);
        if let Some(routing) = &mut self.traversal.flows.routing {
            let visits = programs.steps(program).iter().any(|step| matches!(step, Step::Process(_)));
            routing.follow(crossing.side, visits, packets, verdicts, &self.traversal.flows.table.records);
        }
        let mut steps = programs.steps(program).iter();
        while let Some(step) = steps.next() {
            if let Step::Together(count) = *step {
                let (functions, behind) = steps.as_slice().split_at(count.min(steps.len()));
                if let Some(sides) = &mut self.sides {
                    sides.run(functions, self.traversal, crossing, packets, verdicts);
                }
                steps = behind.iter();
                continue;
            }
            self.take_step(step, crossing, packets, verdicts, run);
        }
        if let Some(cache) = &mut self.traversal.flows.cache {
            cache.take_back(programs);
        }
        self.traversal.flows.forget_rules_of_tagged(crossing.side, packets);
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
            Step::Pass(stage) => self.traversal.stages.all[stage].pass(load, 0),
            Step::Functions(stage, ref functions) => {
                let started = self.traversal.stages.started();
                let (records, effects) =
                    (&mut self.traversal.flows.table.records, &mut self.traversal.stages.effects);
                let mut group =
                    ReadGroup { packets, verdicts, side, load, records, places: None, effects, panicked: 0 };
                self.traversal.stages.all[stage].run_functions(&mut group, functions.as_slice());
                let panicked = group.panicked;
                self.traversal.stages.count_cycles(stage, started);
                if panicked != 0 {
                    crossing.drop_panicked(panicked, packets, verdicts);
                }
            }
            Step::Process(stage) => {
                self.traversal.take_through(stage, crossing, packets, verdicts, run);
            }
            Step::Rewrite { known } => {
                let Some(cache) = &self.traversal.flows.cache else { return };
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

    /// Takes a step that few programs have. Not inlined, so that the other steps stay cheap.
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
                let Some(cache) = &self.traversal.flows.cache else { return };
                let room = |packet: &mut Packet| {
                    let transit = &packet.meta().transit;
                    let outer = cache.outer(transit.flow, transit.direction);
                    outer.and_then(|&outer| packet.encap(&outer).ok()).ok_or(DropReason::NoHeadroom)
                };
                drop_unless(room, &mut *self.traversal.stages.all[stage], crossing, packets, verdicts);
            }
            Step::PushTag(stage, tag) => {
                let room = |packet: &mut Packet| packet.push_tag(tag).map_err(|_| DropReason::NoHeadroom);
                drop_unless(room, &mut *self.traversal.stages.all[stage], crossing, packets, verdicts);
            }
            Step::Decap(stage, len) => {
                let out = |packet: &mut Packet| packet.decap(len).map_err(|_| DropReason::Internal);
                drop_unless(out, &mut *self.traversal.stages.all[stage], crossing, packets, verdicts);
            }
            Step::PopTag(stage, kind) => {
                let off = |packet: &mut Packet| packet.pop_tag(kind).map_err(|_| DropReason::Internal);
                drop_unless(off, &mut *self.traversal.stages.all[stage], crossing, packets, verdicts);
            }
            Step::Cancelled(stage, layer) => {
                let room = |packet: &mut Packet| {
                    if matches!(layer, Layer::Outer(_)) {
                        packet.trim_trailer();
                    }
                    (packet.headroom() >= layer.len()).then_some(()).ok_or(DropReason::NoHeadroom)
                };
                crossing.cancelled_len += layer.len() as u64;
                drop_unless(room, &mut *self.traversal.stages.all[stage], crossing, packets, verdicts);
            }
            Step::Restored(layer) => {
                crossing.cancelled_len -= layer.len() as u64;
                crossing.load.bytes -= load.packets * layer.len() as u64;
            }
            Step::Drop(stage, reason) => {
                let forwarded = verdicts.iter_mut().filter(|verdict| verdict.is_forward());
                forwarded.for_each(|verdict| *verdict = Verdict::Drop(reason));
                self.traversal.stages.all[stage].pass(PacketTotals::default(), load.packets);
            }
            Step::Edge(edge) => {
                if let Some(routing) = &mut self.traversal.flows.routing {
                    routing.count_all(edge, load);
                }
            }
            Step::DropAtEnd(reason) => {
                let forwarded = verdicts.iter_mut().filter(|verdict| verdict.is_forward());
                forwarded.for_each(|verdict| *verdict = Verdict::Drop(reason));
            }
            // `follow` and `take_step` take these.
            Step::Together(_)
            | Step::Pass(_)
            | Step::Functions(..)
            | Step::Process(_)
            | Step::Rewrite { .. } => {}
        }
    }
}

/// Drops packets, as `stage` would, for which `done` fails: there may be no room for headers.
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
    crossing.update_load(packets, verdicts);
}
