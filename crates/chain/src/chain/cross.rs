//! Going through: function by function, each over all packets of a group.

use nf::record::Header;
use nf::stage::{Env, Group, Load};
use nf::{Made, Recording, Verdict};
use packet::{DropReason, Packet, Side};

use super::subscribed::Subscribed;
use super::{Chain, Run};

impl Chain {
    /// Takes packets, of each side so many, through the functions, those from inside before those from outside, and leaves
    /// what was decided about each in `verdicts`.
    #[inline(never)]
    pub(super) fn cross(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        loads: [Load; 2],
        run: &mut Run<'_, '_>,
    ) {
        let (alerts, events) = (self.effects.alerts.len(), self.effects.events.len());
        let mut turned = 0;
        for side in [Side::Inside, Side::Outside] {
            let load = loads[side as usize];
            if load.packets > 0 {
                self.cross_from_side(side, load, packets, verdicts, &mut turned, run);
            }
        }
        if self.effects.alerts.len() > alerts || self.effects.events.len() > events {
            self.complete_effects(alerts, events, packets, verdicts);
        }
    }

    /// Puts the alerts and events from these numbers on, which these packets gave rise to, in the order of packets and
    /// functions, and notes what was decided about the alerts' packets.
    #[cold]
    fn complete_effects(
        &mut self,
        first_alert: usize,
        first_event: usize,
        packets: &[Packet],
        verdicts: &[Verdict],
    ) {
        self.effects.put_in_order(first_alert, first_event);
        for alert in &mut self.effects.alerts[first_alert..] {
            let packet = packets.iter().position(|packet| packet.meta().transit.sequence == alert.sequence);
            alert.blocked = packet.is_some_and(|i| matches!(verdicts[i], Verdict::Drop(_)));
        }
    }

    /// The same for those that entered by `side`. `turned` has a bit for each packet that turned back.
    fn cross_from_side(
        &mut self,
        side: Side,
        mut load: Load,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        turned: &mut u64,
        run: &mut Run<'_, '_>,
    ) {
        let count = self.stages.len();
        let mut assembled = false;
        for step in 0..count {
            let stage = if side == Side::Inside { step } else { count - 1 - step };
            if let Some(subscribed) = &mut self.subscribed
                && subscribed.first(side) == stage
            {
                subscribed.assemble(side, packets, verdicts, &mut self.flows.records);
                assembled = true;
            }
            if self.run_stage(stage, side, load, packets, verdicts, assembled, run) {
                continue;
            }
            for i in 0..packets.len() {
                if verdicts[i] == Verdict::TurnBack && *turned >> i & 1 == 0 {
                    *turned |= 1 << i;
                    self.turn_back(&mut packets[i..=i], &mut verdicts[i..=i], stage, run);
                }
            }
            load = Load::by_side(packets, verdicts)[side as usize];
        }
    }

    /// Runs one function over those of the packets that entered by `side`, which are `load`, and sends what it made back;
    /// whether it forwarded them all. `assembled`: whether what they brought to streams is at hand.
    #[allow(clippy::too_many_arguments, reason = "a struct of them would be built for this call alone")]
    fn run_stage(
        &mut self,
        stage: usize,
        side: Side,
        load: Load,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        assembled: bool,
        run: &mut Run<'_, '_>,
    ) -> bool {
        let made = self.effects.made.len();
        let mut recording = None;
        if let (Some(observer), [packet, ..], [Verdict::Forward, ..]) =
            (&mut run.observer, &*packets, &*verdicts)
            && packet.meta().transit.side == side
        {
            observer.before(stage, packet);
            recording = Some(Recording::default());
        }
        let started = self.options.cycles.map(|cycles| cycles());
        let mut group = Group {
            packets,
            verdicts,
            side,
            load,
            parted: false,
            env: Env { records: &mut self.flows.records, effects: &mut self.effects, buffers: run.pool },
            deliveries: self
                .subscribed
                .as_ref()
                .filter(|_| assembled)
                .map(Subscribed::deliveries)
                .unwrap_or_default(),
            recording: recording.as_mut(),
        };
        match self.is_replaying {
            false => self.stages[stage].process(&mut group),
            true => self.stages[stage].replay(&mut group),
        }
        let parted = group.parted;
        if let (Some(cycles), Some(started)) = (self.options.cycles, started) {
            self.cycles[stage] += cycles().wrapping_sub(started);
        }
        if let (Some(observer), Some(recording)) = (&mut run.observer, &recording) {
            observer.after(stage, &packets[0], verdicts[0], recording);
        }
        while self.effects.made.len() > made {
            let answer = self.effects.made.remove(made);
            self.answer(answer, packets, run);
        }
        !parted
    }

    /// A function turned the packet, a group of its own now, back: it goes through the functions that it passed, in reverse,
    /// as if it had come from the other side. Its flow's packets go alone from now on.
    fn turn_back(
        &mut self,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        stage: usize,
        run: &mut Run<'_, '_>,
    ) {
        let meta = packet[0].meta_mut();
        let back = meta.transit.side.other();
        meta.transit.side = back;
        self.flows.records.header_mut(meta.transit.flow).flags |= Header::FLAG_TURNS;
        verdict[0] = Verdict::Forward;
        self.cross_behind(stage, back, packet, verdict, run);
        if verdict[0] == Verdict::Forward {
            verdict[0] = Verdict::TurnBack; // It is through: none of the others has to see it.
        }
    }

    /// Takes one packet through the functions behind `stage`, as seen from the side that it comes from.
    fn cross_behind(
        &mut self,
        stage: usize,
        side: Side,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        run: &mut Run<'_, '_>,
    ) {
        let mut next = stage;
        loop {
            next = match side {
                Side::Inside if next + 1 < self.stages.len() => next + 1,
                Side::Outside if next > 0 => next - 1,
                _ => return,
            };
            let load = Load::by_side(packet, verdict)[side as usize];
            // Functions that want streams had the packet when it came, or it was made by one.
            self.run_stage(next, side, load, packet, verdict, false, run);
            if verdict[0] == Verdict::TurnBack {
                verdict[0] = Verdict::Drop(DropReason::Internal); // A packet turns once.
            }
        }
    }

    /// Sends a packet that a function made, in answer to one of `packets`, on its way through the functions between it and
    /// the side that it leaves by. To them it is a packet of the flow that it answers, in the other direction; it does not
    /// count in the flow's clock.
    fn answer(&mut self, made: Made, packets: &[Packet], run: &mut Run<'_, '_>) {
        self.counters.packets_made += u64::from(!self.is_replaying);
        let mut packet = made.packet;
        if let Err(reason) = self.parser.parse(&mut packet) {
            return self.drop_packet(packet, reason, run);
        }
        let side = made.towards.other();
        let sequence = packet.meta().transit.sequence;
        let Some(to) = packets.iter().find(|to| to.meta().transit.sequence == sequence) else {
            return self.drop_packet(packet, DropReason::Internal, run); // It answers a packet of the group.
        };
        let (to, meta) = (to.meta(), packet.meta_mut());
        meta.transit.side = side;
        meta.transit.flow = to.transit.flow;
        meta.transit.direction = to.transit.direction.other();
        meta.transit.clock = to.transit.clock;
        meta.transit.phase = to.transit.phase;
        meta.transit.tags = to.transit.tags;
        let mut verdict = Verdict::Forward;
        let (slice, verdicts) = (std::slice::from_mut(&mut packet), std::slice::from_mut(&mut verdict));
        self.cross_behind(made.stage as usize, side, slice, verdicts, run);
        match verdict {
            Verdict::Drop(reason) => self.drop_packet(packet, reason, run),
            Verdict::Forward | Verdict::TurnBack => self.answers.push(packet),
        }
    }
}
