//! Going through: function by function, each over all packets of a group.

use nf::stage::{PacketGroup, PacketTotals, StageEnv};
use nf::{GeneratedPacket, Recording, Verdict};
use packet::{DropReason, Packet, Parser, Side};

use super::turning::PacketOrigin;
use super::{BatchRun, Pipeline};
use crate::cache::{FlowCache, Path, ProgramId};
use crate::queue::GROUP_MAX;
use crate::reassembly::Reassembly;
use crate::routing::Journey;

/// The progress of packets that entered by one side.
pub(super) struct GroupCrossing {
    pub side: Side,
    /// Those that are still to be forwarded.
    pub load: PacketTotals,
    /// Bytes that each counts as longer than it is: what would have been put before it, but is
    /// taken away again.
    pub cancelled_len: u64,
    /// True if what they brought to streams is at hand.
    assembled: bool,
}

/// An order in which the packets of a group stand for a while.
struct PathOrder {
    /// The original position of each.
    places: [u8; GROUP_MAX],
    /// With which one each place is exchanged, one after the other.
    swaps: [u8; GROUP_MAX],
}

const _: () = assert!(GROUP_MAX <= u64::BITS as usize && GROUP_MAX <= u8::MAX as usize);

impl PathOrder {
    /// Packets of one path stand together, in their order, and those that walk come last.
    fn by_path(paths: &[Path]) -> PathOrder {
        let mut order = PathOrder { places: [0; GROUP_MAX], swaps: [0; GROUP_MAX] };
        // The packets of each path, in the order of the first ones.
        let (mut distinct, mut count) = ([(Path::SLOW, 0_u64); GROUP_MAX], 0);
        let mut walking = 0_u64;
        for (at, &path) in paths.iter().enumerate() {
            let own = match distinct[..count].iter_mut().rev().find(|(of, _)| *of == path) {
                _ if path == Path::SLOW => &mut walking,
                Some((_, own)) => own,
                None => {
                    distinct[count].0 = path;
                    count += 1;
                    &mut distinct[count - 1].1
                }
            };
            *own |= 1 << at;
        }
        let mut places = order.places.iter_mut();
        for (_, mut set) in distinct[..count].iter().copied().chain([(Path::SLOW, walking)]) {
            while set != 0
                && let Some(place) = places.next()
            {
                *place = set.trailing_zeros() as u8;
                set &= set - 1;
            }
        }
        for at in 0..paths.len() {
            // What stood there may have been exchanged for another one.
            let mut from = order.places[at];
            while usize::from(from) < at {
                from = order.swaps[usize::from(from)];
            }
            order.swaps[at] = from;
        }
        order
    }

    /// Puts them in this order.
    fn arrange<T>(&self, all: &mut [T]) {
        (0..all.len()).for_each(|at| all.swap(at, self.swaps[at].into()));
    }

    /// Puts what stands in this order where it was before.
    fn put_back<T>(&self, all: &mut [T]) {
        (0..all.len()).rev().for_each(|at| all.swap(at, self.swaps[at].into()));
    }
}

impl Pipeline {
    /// Takes packets, by side, through the functions, those from inside before those
    /// from outside, or through the steps of a program, and leaves what was decided about each in
    /// `verdicts`.
    #[inline(never)]
    pub fn cross(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        loads: [PacketTotals; 2],
        program: Option<ProgramId>,
        run: &mut BatchRun<'_, '_>,
    ) {
        let (before, reports) = (self.told(), self.stages.effects.reports.len());
        self.cross_sides(packets, verdicts, loads, program, run);
        self.complete_effects(before, packets, verdicts);
        self.end_reports(reports);
    }

    /// The same for packets of which each has a path of its own: those of one program together,
    /// then those that walk. So a flow's packets keep their order: none follows a rule behind one
    /// that walked.
    #[inline(never)]
    pub fn cross_mixed(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        paths: &[Path],
        run: &mut BatchRun<'_, '_>,
    ) {
        let (before, reports) = (self.told(), self.stages.effects.reports.len());
        let order = PathOrder::by_path(paths);
        order.arrange(packets); // Their verdicts are all the same so far.
        let mut begin = 0;
        while let Some(&first) = order.places.get(begin..packets.len()).and_then(<[u8]>::first) {
            let path = paths[usize::from(first)];
            let is_its = |&&place: &&u8| paths[usize::from(place)] == path;
            let end = begin + order.places[begin..packets.len()].iter().take_while(is_its).count();
            let (own, decided) = (&mut packets[begin..end], &mut verdicts[begin..end]);
            let loads = PacketTotals::by_side(own, decided);
            self.cross_sides(own, decided, loads, path.program(), run);
            begin = end;
        }
        order.put_back(packets);
        if verdicts.iter().any(|verdict| !verdict.is_forward()) {
            order.put_back(verdicts);
        }
        self.complete_effects(before, packets, verdicts);
        self.end_reports(reports);
    }

    /// Takes those packets that will be forwarded, from both sides in turn.
    #[inline(always)]
    fn cross_sides(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        loads: [PacketTotals; 2],
        program: Option<ProgramId>,
        run: &mut BatchRun<'_, '_>,
    ) {
        for side in [Side::Inside, Side::Outside] {
            let load = loads[side as usize];
            let mut crossing = GroupCrossing { side, load, cancelled_len: 0, assembled: false };
            if crossing.load.packets > 0 {
                match program {
                    Some(program) => self.follow_rules(program, &mut crossing, packets, verdicts, run),
                    None if self.flows.routing.is_some() => {
                        self.cross_edges(&mut crossing, packets, verdicts, run);
                    }
                    None => self.cross_from_side(&mut crossing, packets, verdicts, run),
                }
            }
        }
        if !self.turned.is_empty() {
            self.turn_all_back(packets, verdicts, run);
        }
    }

    /// Takes those packets that functions turned back on their way back, once all are through.
    #[cold]
    fn turn_all_back(
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
                let visited = routing.journeys[i].visited_at(stage, packet[0].meta().transit.side);
                // Those before it are through.
                routing.journeys[0] = Journey::over(visited);
            }
            self.turn_back(packet, verdict, stage, PacketOrigin::Arrived, run);
        }
        self.turned = turned;
    }

    /// Takes the packets of a crossing through, function by function.
    fn cross_from_side(
        &mut self,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let count = self.stages.all.len();
        // A packet of a flow that turns back is alone.
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
        // In a graph with branches, those of a group that come to such a function come to the same
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

    /// Returns the numbers of alerts and events.
    #[inline(always)]
    fn told(&self) -> (usize, usize) {
        (self.stages.effects.alerts.len(), self.stages.effects.events.len())
    }

    /// Puts the flow reports of a group, from this number on, in the order of packets.
    #[inline(always)]
    fn end_reports(&mut self, before: usize) {
        if self.stages.effects.reports.len() != before {
            self.stages.effects.put_reports_in_order(before);
        }
    }

    /// Completes the alerts and events that these packets gave rise to, those from these numbers
    /// on.
    #[inline(always)]
    fn complete_effects(&mut self, before: (usize, usize), packets: &[Packet], verdicts: &[Verdict]) {
        if self.told() != before {
            self.put_effects_in_order(before, packets, verdicts);
        }
    }

    /// Puts them in the order of packets and functions, and notes what was decided about the
    /// alerts' packets.
    #[cold]
    fn put_effects_in_order(
        &mut self,
        (first_alert, first_event): (usize, usize),
        packets: &[Packet],
        verdicts: &[Verdict],
    ) {
        self.stages.effects.put_in_order(first_alert, first_event);
        for alert in &mut self.stages.effects.alerts[first_alert..] {
            let packet = packets.iter().position(|packet| packet.meta().transit.sequence == alert.sequence);
            alert.has_packet = true;
            alert.blocked = packet.is_some_and(|i| matches!(verdicts[i], Verdict::Drop(_)));
        }
    }

    /// Runs one function over those of the packets that entered by `side`, which are `load`, and
    /// sends the packets that it made. Returns true if it forwarded all of them and changed no
    /// length. `assembled`: their bytes have been added to streams.
    #[allow(clippy::too_many_arguments, reason = "a struct of them would be built for this call alone")]
    pub(super) fn run_stage(
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
        let started = self.stages.clock.map(|cycles| cycles());
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
    pub(super) fn answer_all(&mut self, made: usize, packets: &[Packet], run: &mut BatchRun<'_, '_>) {
        while self.stages.effects.generated.len() > made {
            let answer = self.stages.effects.generated.remove(made);
            self.answer(answer, packets, run);
        }
    }

    /// Sends a packet that a function made for one of `packets` on its way through the functions
    /// between it and the side that it leaves by, if it visits any. To them it is a packet of the
    /// flow that it answers, in the other direction; it does not count in the flow's clock. What
    /// answers a packet that turned back may be turned back where that was.
    fn answer(&mut self, made: GeneratedPacket, packets: &[Packet], run: &mut BatchRun<'_, '_>) {
        self.counters.packets_generated += 1;
        let mut packet = made.packet;
        // The contents of a tunnel that it begins concern nobody here.
        let parser = Parser { inner: run.parser.inner && !made.is_direct, ..run.parser };
        if let Err(reason) = parser.parse(&mut packet) {
            return self.drop_packet(packet, reason, run);
        }
        let sequence = packet.meta().transit.sequence;
        let Some(at) = packets.iter().position(|to| to.meta().transit.sequence == sequence) else {
            return self.drop_packet(packet, DropReason::Internal, run); // It was made for one of the group.
        };
        let (to, meta) = (packets[at].meta(), packet.meta_mut());
        let goes_back = made.towards == to.transit.side;
        let trail = self.flows.routing.as_ref().and_then(|routing| {
            let visited = routing.journeys.get(at)?.visited_at(made.stage.into(), to.transit.side);
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
                return self.drop_packet(packet, reason, run);
            }
            return self.answers.push(packet);
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
                self.drop_packet(packet, reason, run);
            }
            Verdict::Forward | Verdict::TurnBack => self.answers.push(packet),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn courses_stand_together_and_go_back(of in prop::collection::vec(0_usize..4, 1..=GROUP_MAX)) {
            let any = [Path::SLOW, Path::RECORD, Path::REVALIDATE, Path::PREDICT];
            let paths: Vec<Path> = of.iter().map(|&i| any[i]).collect();
            let order = PathOrder::by_path(&paths);
            let mut all: Vec<usize> = (0..paths.len()).collect();
            order.arrange(&mut all);
            let mut expected: Vec<usize> = (0..paths.len()).collect();
            let first = |i: usize| paths.iter().position(|&path| path == paths[i]);
            expected.sort_by_key(|&i| (paths[i] == Path::SLOW, first(i), i));
            prop_assert_eq!(&all, &expected);
            prop_assert!(all.iter().zip(&order.places).all(|(&i, &place)| i == usize::from(place)));
            order.put_back(&mut all);
            prop_assert!(all.iter().copied().eq(0..paths.len()));
        }
    }
}
