//! Functions one after another over the packets of a group, and over the packets that functions
//! make.

use nf::stage::{PacketGroup, PacketTotals, StageEnv};
use nf::{GeneratedPacket, Recording, Verdict};
use packet::{DropReason, Packet, PacketPool, Parser, Side};

use super::BatchRun;
use super::exit::Exit;
use super::holding::HeldFragments;
use crate::cache::FlowCache;
use crate::flows::Flows;
use crate::reassembly::Reassembly;
use crate::routing::Journey;
use crate::stages::Stages;

/// The progress of packets that entered by one side.
pub(super) struct GroupCrossing {
    pub side: Side,
    /// The packets that are still forwarded.
    pub load: PacketTotals,
    /// Bytes of outer headers and tags that a later function removes. They count in each packet's
    /// length, but are not added.
    pub cancelled_len: u64,
    /// True if their bytes have been added to streams.
    assembled: bool,
}

impl GroupCrossing {
    /// Creates the progress of these packets at their port.
    #[inline(always)]
    pub fn new(side: Side, load: PacketTotals) -> GroupCrossing {
        GroupCrossing { side, load, cancelled_len: 0, assembled: false }
    }

    /// Drops packets at which state functions panicked, a bit for each.
    #[cold]
    pub fn drop_panicked(&mut self, panicked: u64, packets: &[Packet], verdicts: &mut [Verdict]) {
        for (number, verdict) in verdicts.iter_mut().enumerate() {
            if verdict.is_forward() && panicked >> number & 1 != 0 {
                *verdict = Verdict::Drop(DropReason::FunctionPanic);
            }
        }
        self.update_load(packets, verdicts);
    }

    /// Adds up the packets that are still forwarded, after some were dropped.
    pub fn update_load(&mut self, packets: &[Packet], verdicts: &[Verdict]) {
        self.load = PacketTotals::by_side(packets, verdicts)[self.side as usize];
        self.load.bytes += self.load.packets * self.cancelled_len;
    }
}

/// The origin of a packet that visits functions in reverse.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketOrigin {
    /// It arrived: it counts in the flow of its second pass, and adds bytes to its streams.
    Arrived,
    /// A function made it: it counts in no flow.
    GeneratedPacket,
}

/// The functions, the flows, and where packets leave.
pub(crate) struct Traversal {
    pub(super) stages: Stages,
    pub(super) flows: Flows,
    pub(super) exit: Exit,
    /// Packets of the group that were turned back, by number and function, until the others are
    /// through.
    turned: Vec<(usize, usize)>,
}

impl Traversal {
    /// Creates the traversal of these functions, for these flows.
    pub fn new(stages: Stages, flows: Flows) -> Traversal {
        Traversal { stages, flows, exit: Exit::default(), turned: Vec::new() }
    }

    /// Returns the held fragments, if a function subscribes to streams.
    #[inline]
    pub(super) fn held_fragments(&mut self) -> Option<HeldFragments<'_>> {
        let reassembly = self.flows.reassembly.as_mut()?;
        Some(HeldFragments { reassembly, exit: &mut self.exit })
    }

    /// Shows a fragment that will be dropped without its first one to the functions that want it
    /// ([`nf::NetworkFunction::lone_fragment`]).
    pub fn show_lone_fragment(&mut self, packet: &mut Packet, pool: &mut PacketPool) {
        let Stages { all, effects, .. } = &mut self.stages;
        let mut env = StageEnv { records: &mut self.flows.table.records, effects, buffers: pool };
        all.iter_mut().for_each(|stage| stage.lone_fragment(packet, &mut env));
    }

    /// Drops the packets on their way after a panic.
    #[cold]
    pub fn abort(&mut self, run: &mut BatchRun<'_, '_>) {
        self.exit.count_restart();
        run.is_alone = false;
        run.observer = None;
        for stage in &mut self.stages.all {
            stage.close();
        }
        self.stages.effects.generated.drain(..).for_each(|made| run.pool.give(made.packet));
        self.exit.drop_answers(run);
        self.turned.clear();
        self.flows.forget_failed();
    }

    /// Returns true if functions turned back packets of the group.
    #[inline(always)]
    pub fn has_turned(&self) -> bool {
        !self.turned.is_empty()
    }

    /// Takes packets that functions turned back on their way back, after all others are through.
    #[cold]
    pub fn turn_all_back(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let mut turned = std::mem::take(&mut self.turned);
        turned.sort_unstable();
        for (i, stage) in turned.drain(..) {
            let (packet, verdict) = (&mut packets[i..=i], &mut verdicts[i..=i]);
            if let Some(routing) = &mut self.flows.routing {
                let visited = routing.journeys()[i].visited_at(stage, packet[0].meta().transit.side);
                // The packets before it are through.
                routing.replace_journey(0, Journey::over(visited));
            }
            self.turn_back(packet, verdict, stage, PacketOrigin::Arrived, run);
        }
        self.turned = turned;
    }

    /// Takes the packets of a crossing through a graph without branches, function by function.
    pub(super) fn cross_line(
        &mut self,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let count = self.stages.all.len();
        // A packet of a flow that turns back is a group of its own.
        let pass = match packets {
            [packet] => self.flows.table.passes.get(packet.meta().transit.flow),
            _ => None,
        };
        for step in 0..count {
            let stage = if crossing.side == Side::Inside { step } else { count - 1 - step };
            if let (Some(_), [packet], [Verdict::Forward]) = (pass, &mut *packets, &*verdicts) {
                self.enter_pass(packet, stage, PacketOrigin::Arrived);
            }
            self.take_through(stage, crossing, packets, verdicts, run);
        }
        if let (Some(pass), [packet]) = (pass, packets) {
            packet.meta_mut().transit.flow = pass.main;
        }
    }

    /// Takes the packets of a crossing through one function. Returns true if it forwarded all of
    /// them and changed no length.
    #[inline(always)]
    pub(super) fn take_through(
        &mut self,
        stage: usize,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) -> bool {
        let (side, mut changed) = (crossing.side, false);
        // In a graph with branches, all packets of a group that visit such functions visit the same
        // one first.
        if let Some(reassembly) = &mut self.flows.reassembly
            && !crossing.assembled
            && reassembly.is_wanted_by(stage)
        {
            let (records, effects) = (&mut self.flows.table.records, &mut self.stages.effects);
            changed = reassembly.assemble((stage, side), packets, verdicts, records, effects);
            if changed {
                crossing.load = PacketTotals::by_side(packets, verdicts)[side as usize];
            }
            crossing.assembled = true;
        }
        let load = crossing.load;
        if self.run_stage(stage, side, load, packets, verdicts, crossing.assembled, run) {
            return !changed;
        }
        for (i, verdict) in verdicts.iter().enumerate() {
            if *verdict == Verdict::TurnBack && !self.turned.iter().any(|&(of, _)| of == i) {
                self.turned.push((i, stage));
            }
        }
        crossing.load = PacketTotals::by_side(packets, verdicts)[side as usize];
        false
    }

    /// Runs one function over the packets that entered by `side`, which are `load`, and sends the
    /// packets that it made. Returns true if it forwarded all of them and changed no length.
    /// `assembled`: their bytes have been added to streams.
    #[allow(clippy::too_many_arguments, reason = "a struct of them would be built for this call alone")]
    pub fn run_stage(
        &mut self,
        stage: usize,
        side: Side,
        load: PacketTotals,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        assembled: bool,
        run: &mut BatchRun<'_, '_>,
    ) -> bool {
        let made = self.stages.effects.generated.len();
        let mut observed = None;
        if let (Some(observer), [packet, ..], [Verdict::Forward, ..]) =
            (&mut run.observer, &*packets, &*verdicts)
            && packet.meta().transit.side == side
        {
            observer.before(stage, packet);
            observed = Some(Recording::default());
        }
        let wishes_ms = self.flows.cache.as_ref().and_then(|cache| cache.begin_wishes(packets));
        let recorded = self.flows.cache.as_mut().and_then(|cache| cache.recording_of(stage));
        let started = self.stages.started();
        let mut group = PacketGroup {
            packets,
            verdicts,
            side,
            load,
            changed: false,
            env: StageEnv {
                records: &mut self.flows.table.records,
                effects: &mut self.stages.effects,
                buffers: run.pool,
            },
            deliveries: self
                .flows
                .reassembly
                .as_ref()
                .filter(|_| assembled)
                .map(Reassembly::deliveries)
                .unwrap_or_default(),
            recording: recorded.or(observed.as_mut()),
        };
        self.stages.all[stage].process(&mut group);
        let changed = group.changed;
        self.stages.count_walk(stage, load.packets, started);
        if let (Some(before_ms), Some(cache)) = (wishes_ms, &mut self.flows.cache) {
            cache.end_wishes(stage, packets, before_ms);
        }
        if let (Some(observer), Some(observed)) = (&mut run.observer, &observed) {
            let recorded = self.flows.cache.as_mut().and_then(|cache| cache.recording_of(stage));
            observer.after(stage, &packets[0], verdicts[0], recorded.map_or(observed, |recorded| recorded));
        }
        self.answer_all(made, packets, run);
        !changed
    }

    /// Sends the packets that a function made for some of `packets`, from this number on.
    #[inline(always)]
    pub fn answer_all(&mut self, made: usize, packets: &[Packet], run: &mut BatchRun<'_, '_>) {
        while self.stages.effects.generated.len() > made {
            let answer = self.stages.effects.generated.remove(made);
            self.answer(answer, packets, run);
        }
    }

    /// Takes a packet that a function made for one of `packets` through the functions between it
    /// and the side that it leaves by. To them it is a packet of the flow that it answers, in the
    /// other direction, without a number of its own. The answer to a packet that turned back may be
    /// turned back at the same function.
    fn answer(&mut self, made: GeneratedPacket, packets: &[Packet], run: &mut BatchRun<'_, '_>) {
        self.exit.count_generated();
        let mut packet = made.packet;
        // The contents of a tunnel that it begins are not for these functions.
        let parser = Parser { inner: run.parser.inner && !made.is_direct, ..run.parser };
        if let Err(reason) = parser.parse(&mut packet) {
            return self.exit.drop_packet(packet, reason, run);
        }
        let sequence = packet.meta().transit.sequence;
        let Some(at) = packets.iter().position(|to| to.meta().transit.sequence == sequence) else {
            return self.exit.drop_packet(packet, DropReason::Internal, run); // Its packet is not in the group.
        };
        let (to, meta) = (packets[at].meta(), packet.meta_mut());
        let goes_back = made.towards == to.transit.side;
        let trail = self.flows.routing.as_ref().and_then(|routing| {
            let visited = routing.journeys().get(at)?.visited_at(made.stage.into(), to.transit.side);
            goes_back.then_some((visited, to.transit.ingress))
        });
        meta.transit.side = made.towards.other();
        meta.transit.flow = to.transit.flow;
        meta.transit.direction = if goes_back { to.transit.direction.other() } else { to.transit.direction };
        meta.transit.seq = to.transit.seq;
        meta.transit.phase = to.transit.phase;
        meta.transit.tags = to.transit.tags;
        if let Some(ingresses) = &self.flows.table.ingresses {
            ingresses.place_made(meta);
        }
        if made.is_direct {
            if let Some(routing) = &mut self.flows.routing
                && let Err(reason) =
                    routing.pass_behind(made.stage.into(), trail, &mut packet, &self.stages.all)
            {
                return self.exit.drop_packet(packet, reason, run);
            }
            return self.exit.answer(packet);
        }
        run.trail = trail;
        self.flows.cache.iter_mut().for_each(FlowCache::stop_recording);
        let mut verdict = Verdict::Forward;
        let (slice, verdicts) = (std::slice::from_mut(&mut packet), std::slice::from_mut(&mut verdict));
        if let Some(stage) =
            self.cross_behind(made.stage as usize, slice, verdicts, PacketOrigin::GeneratedPacket, run)
        {
            self.turn_back(slice, verdicts, stage, PacketOrigin::GeneratedPacket, run);
        }
        run.trail = None;
        match verdict {
            Verdict::Drop(reason) => {
                if reason == DropReason::FunctionPanic {
                    self.flows.note_failed(packet.meta().transit.flow);
                }
                self.exit.drop_packet(packet, reason, run);
            }
            Verdict::Forward | Verdict::TurnBack => self.exit.answer(packet),
        }
    }
}
