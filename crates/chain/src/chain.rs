//! The chain: functions in order, over flows.
//!
//! Packets come in batches. A batch is parsed and looked up in three passes, so that memory is asked for before it is
//! needed; then packets of known flows are gathered into groups, and each function processes a whole group in one
//! call. What may create or end a flow, or depends on another packet's outcome, goes alone, after the group before it;
//! and a group ends before a packet that its packets could matter to otherwise than in order (see `Gathering`).
//! So the result is that of one packet after the other, however they are batched, but for three things: flow reports of
//! one group stand in the order of functions, not of packets; and a packet that a function makes, or the first one that
//! it turns back, in the midst of a known flow may reach the functions on its way back after packets that came behind it.
//!
//! Time is the latest time stamp that any packet had: a packet with an earlier one is late, and comes now.

use nf::record::{Header, Records};
use nf::stage::{Env, Group, Moment, Stage};
use nf::{EFFECTS_MAX, Effects, EndReason, Made, Recording, Verdict};
use packet::memory::OutOfMemory;
use packet::{Class, Direction, DropReason, FlowHasher, Meta, Packet, Parser, Pool, Side, parse};

use crate::flows::{AS_LONG_AS_BEFORE, Flows};
use crate::fragments::{Datagram, First, Fragments, Refused};
use crate::gathering::Gathering;
use crate::observer::Observer;
use crate::{Counters, NotIp, Options, WhenFull};

/// Packets of known flows that are processed together at most: what fits the first-level cache with its records.
pub const GROUP_MAX: usize = 32;

/// Runs network functions in order over flows, from the inside to the outside and back in reverse order.
pub struct Chain {
    stages: Vec<Box<dyn Stage>>,
    options: Options,
    parser: Parser,
    flows: Flows,
    fragments: Fragments,
    effects: Effects,
    counters: Counters,
    cycles: Vec<u64>,
    /// Whether the functions, not the chain, say how long flows are kept.
    keeps_flows: bool,
    /// The latest time that any packet had.
    now_ns: u64,
    /// The same as of the last packet that is settled.
    settled_ns: u64,
    /// Packets under way, and what was decided about them.
    group: Vec<Packet>,
    verdicts: Vec<Verdict>,
    gathering: Gathering,
    /// One bit for each packet of the group: it turned back.
    turned: u64,
    /// Room that is reused from batch to batch.
    parsed: Vec<Result<(), DropReason>>,
    due: Vec<u32>,
    waited: Vec<Packet>,
    /// Packets that functions made, on their way out.
    answers: Vec<Packet>,
}

/// A chain could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// Not enough memory for the flow table.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The attributes of all functions together do not fit a packet's tag word.
    #[error("the attributes of the functions up to `{0}` take more than 64 bits")]
    TooManyTags(&'static str),
}

/// A record number that no record has.
const NO_RECORD: u32 = u32::MAX;

impl Chain {
    /// A chain of these functions, the first one inside.
    pub fn new(mut stages: Vec<Box<dyn Stage>>, options: Options) -> Result<Chain, ChainError> {
        let (mut offset, mut tag_bit) = (0, 0);
        for (number, stage) in stages.iter_mut().enumerate() {
            let name = stage.descriptor().name;
            tag_bit = stage.place(number as u16, offset, tag_bit).ok_or(ChainError::TooManyTags(name))?;
            offset += stage.state_len();
        }
        let hasher = FlowHasher::new(options.seed);
        let flows_max = if stages.is_empty() { 1 } else { options.flows_max };
        let keeps_flows = stages.iter().any(|stage| stage.descriptor().keeps_flows);
        let shares_sets = stages.iter().any(|stage| !stage.shared().sets.is_empty());
        Ok(Chain {
            cycles: vec![0; stages.len()],
            keeps_flows,
            gathering: Gathering::new(
                if keeps_flows { 1 } else { options.timeouts.shortest_ms() },
                shares_sets,
            ),
            turned: 0,
            stages,
            parser: Parser {
                hasher,
                inner: options.inner,
                verify_ipv4_checksum: options.verify_ipv4_checksum,
            },
            flows: Flows::new(flows_max, offset, hasher)?,
            fragments: Fragments::new(options.fragments_max, options.fragment_timeout_ns),
            options,
            effects: Effects::default(),
            counters: Counters::default(),
            now_ns: 0,
            settled_ns: 0,
            group: Vec::with_capacity(GROUP_MAX),
            verdicts: Vec::with_capacity(GROUP_MAX),
            parsed: Vec::new(),
            due: Vec::new(),
            waited: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// Processes packets in order; those that leave are added to `out`, their metadata's `side` now being the side that
    /// they leave by. The receiver has set `timestamp_ns`, `wire_len`, `ingress`, `side` and `link`.
    pub fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut Pool) {
        if self.stages.is_empty() {
            return self.pass_through(batch, out, pool);
        }
        let (first, mut bytes) = (self.counters.packets_in, 0);
        self.counters.packets_in += batch.len() as u64;
        self.parsed.clear();
        self.parsed.extend(batch.iter_mut().zip(first..).map(|(packet, sequence)| {
            bytes += packet.len() as u64;
            packet.meta_mut().sequence = sequence;
            let parsed = self.parser.parse(packet);
            self.flows.prefetch_index(packet.meta().hash);
            parsed
        }));
        self.counters.bytes_in += bytes;
        for packet in batch.iter_mut() {
            let meta = packet.meta_mut();
            meta.flow = self.flows.prefetch_record(meta.hash).unwrap_or(NO_RECORD);
        }
        let mut run = Run { out, pool, observer: None };
        let parsed = std::mem::take(&mut self.parsed);
        for (packet, &parsed) in batch.drain(..).zip(&parsed) {
            match parsed {
                Ok(()) => self.take_in(packet, &mut run),
                Err(reason) => self.drop_packet(packet, reason, &mut run),
            }
        }
        self.parsed = parsed;
        self.flush(&mut run);
        self.advance(self.now_ns, pool);
    }

    /// Processes one packet, and tells `observer` what every function did to it.
    pub fn observe(
        &mut self,
        mut packet: Packet,
        out: &mut Vec<Packet>,
        pool: &mut Pool,
        observer: &mut dyn Observer,
    ) {
        self.counters.packets_in += 1;
        self.counters.bytes_in += packet.len() as u64;
        packet.meta_mut().sequence = self.counters.packets_in - 1;
        packet.meta_mut().flow = NO_RECORD;
        let parsed = self.parser.parse(&mut packet);
        observer.arrived(&packet);
        let mut run = Run { out, pool, observer: Some(observer) };
        match parsed {
            Ok(()) if self.stages.is_empty() => self.pass(packet, &mut run),
            Ok(()) => self.take_in(packet, &mut run),
            Err(reason) => self.drop_packet(packet, reason, &mut run),
        }
        self.flush(&mut run);
        self.advance(self.now_ns, pool);
    }

    /// Lets time pass to `now_ns`: flows and fragments whose time is over go.
    pub fn advance(&mut self, now_ns: u64, pool: &mut Pool) {
        self.now_ns = self.now_ns.max(now_ns);
        self.settled_ns = self.now_ns;
        let mut due = std::mem::take(&mut self.due);
        self.flows.expired(self.now_ns, &mut due);
        for &record in &due {
            self.end_in_time(record, pool);
        }
        self.due = due;
        if self.fragments.is_empty() {
            return;
        }
        let mut late = std::mem::take(&mut self.waited);
        self.fragments.expire(self.now_ns, &mut late);
        for packet in late.drain(..) {
            self.counters.packets_held -= 1;
            self.counters.drops[DropReason::FragmentTimeout.index()] += 1;
            pool.give(packet);
        }
        self.waited = late;
    }

    /// Ends all flows: the run is over. Fragments that still wait stay counted as held.
    ///
    /// False if there are more flows than room for what their ends bring about: then alerts and reports are to be taken
    /// (see [`Chain::effects_mut`]), and the rest ends with the next call.
    pub fn finish(&mut self, pool: &mut Pool) -> bool {
        let mut live = std::mem::take(&mut self.due);
        live.clear();
        live.extend(self.flows.live());
        let mut ended = 0;
        for &record in &live {
            if self.effects.alerts.len().max(self.effects.reports.len()) > EFFECTS_MAX / 2 {
                break;
            }
            self.end_flow(record, EndReason::Shutdown, pool);
            ended += 1;
        }
        let all = ended == live.len();
        self.due = live;
        all
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        Counters { flows_live: u64::from(self.flows.records.live()), ..self.counters.clone() }
    }

    /// The functions, from the inside to the outside.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.stages
    }

    /// A function, to be commanded.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut (dyn Stage + 'static)> {
        self.stages.get_mut(stage).map(|stage| &mut **stage)
    }

    /// Processor cycles spent in each function, if [`Options::cycles`] counts them.
    pub fn cycles(&self) -> &[u64] {
        &self.cycles
    }

    /// What functions put out beside packets, to be looked at.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Alerts and flow reports, to be taken.
    pub fn effects_mut(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Bytes that a flow takes: its record.
    pub fn record_len(&self) -> usize {
        self.flows.records.record_len()
    }

    /// The flows' records, to be looked at.
    pub fn records(&self) -> &Records {
        &self.flows.records
    }

    /// A chain without functions is a wire that parses.
    fn pass_through(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut Pool) {
        let mut run = Run { out, pool, observer: None };
        for mut packet in batch.drain(..) {
            self.counters.packets_in += 1;
            self.counters.bytes_in += packet.len() as u64;
            packet.meta_mut().sequence = self.counters.packets_in - 1;
            match self.parser.parse(&mut packet) {
                Ok(()) => self.pass(packet, &mut run),
                Err(reason) => self.drop_packet(packet, reason, &mut run),
            }
        }
    }

    #[inline]
    fn pass(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        if packet.meta().class == Class::NotIp {
            self.not_ip(packet, run);
        } else {
            self.send(packet, run);
        }
    }

    /// Adds a packet to the group if it is of a known flow; all others go alone.
    #[inline(always)]
    fn take_in(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) {
        let meta = packet.meta_mut();
        self.now_ns = self.now_ns.max(meta.timestamp_ns);
        if self.gathering.ends_before(meta.flow, meta.side, self.now_ns) {
            self.flush(run);
        }
        if self.flows.is_due(self.now_ns) {
            self.flush(run);
            self.advance(self.now_ns, run.pool);
        }
        if meta.class == Class::Whole && meta.flow != NO_RECORD {
            let header = self.flows.records.header_mut(meta.flow);
            if let Some(direction) = header.direction_of(&meta.key, meta.reversed)
                && header.flags & Header::FLAG_TURNS == 0
                && self.now_ns <= header.deadline_ns()
            {
                meta.direction = direction;
                self.gathering.add(meta.flow, meta.side, self.now_ns);
                join(meta, header, &self.options, self.keeps_flows);
                self.group.push(packet);
                if self.group.len() == GROUP_MAX {
                    self.flush(run);
                }
                return;
            }
        }
        self.flush(run);
        self.alone(packet, run);
    }

    /// A packet that may begin a flow, or that is not a plain packet of one.
    #[inline(never)]
    fn alone(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        self.advance(self.now_ns, run.pool);
        match packet.meta().class {
            Class::NotIp => self.not_ip(packet, run),
            Class::Whole => {
                self.walk(packet, run);
            }
            Class::IcmpError => self.icmp_error(packet, run),
            Class::FirstFragment => self.first_fragment(packet, run),
            Class::LaterFragment => self.later_fragment(packet, run),
        }
    }

    fn not_ip(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        match self.options.not_ip {
            NotIp::Pass => {
                self.counters.not_ip_passed += 1;
                self.send(packet, run);
            }
            NotIp::Drop => self.drop_packet(packet, DropReason::NotIp, run),
        }
    }

    /// An ICMP error goes with the flow that it speaks of; if there is none, it is a flow of its own.
    fn icmp_error(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) {
        if self.find(&packet, run.pool).is_none() {
            let (key, reversed) = parse::portless_key(&packet);
            let meta = packet.meta_mut();
            meta.key = key;
            meta.reversed = reversed;
            meta.hash = self.parser.hasher.hash(&key);
        }
        self.walk(packet, run);
    }

    fn first_fragment(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        let datagram = Datagram::of(&packet);
        let (key, reversed) = (packet.meta().key, packet.meta().reversed);
        let passed = self.walk(packet, run);
        let first = if passed { First::Passed { key, reversed } } else { First::Dropped };
        let mut waited = std::mem::take(&mut self.waited);
        self.fragments.first(datagram, first, self.now_ns, &mut waited);
        for packet in waited.drain(..) {
            self.counters.packets_held -= 1;
            self.later_fragment(packet, run);
        }
        self.waited = waited;
    }

    fn later_fragment(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) {
        let datagram = Datagram::of(&packet);
        match self.fragments.get(&datagram) {
            Some(&First::Passed { key, reversed }) => {
                let meta = packet.meta_mut();
                (meta.key, meta.reversed, meta.hash) = (key, reversed, self.parser.hasher.hash(&key));
                if self.find(&packet, run.pool).is_none() {
                    return self.drop_packet(packet, DropReason::FragmentOfDropped, run);
                }
                self.walk(packet, run);
            }
            Some(First::Dropped) => self.drop_packet(packet, DropReason::FragmentOfDropped, run),
            Some(First::Missing(_)) | None => match self.fragments.wait(datagram, packet, self.now_ns) {
                Ok(()) => self.counters.packets_held += 1,
                Err((packet, Refused::TooMany)) => self.drop_packet(packet, DropReason::FragmentTooMany, run),
                Err((packet, Refused::TableFull)) => {
                    self.drop_packet(packet, DropReason::FragmentTableFull, run);
                }
            },
        }
    }

    /// Takes one packet through the chain, with its flow found or begun; whether it passed.
    fn walk(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) -> bool {
        let found = self.find(&packet, run.pool);
        let begins = found.is_none();
        let (record, direction) = match found {
            Some(found) => found,
            None => match self.begin_flow(&packet, run.pool) {
                Some(record) => (record, Direction::Original),
                None => {
                    self.drop_packet(packet, DropReason::FlowTableFull, run);
                    return false;
                }
            },
        };
        let meta = packet.meta_mut();
        meta.flow = record;
        meta.direction = direction;
        self.gathering.add(record, meta.side, self.now_ns);
        join(meta, self.flows.records.header_mut(record), &self.options, self.keeps_flows);
        if begins {
            self.start_flow(&packet, run.pool);
        }
        self.group.push(packet);
        self.flush(run)
    }

    /// The flow that the packet belongs to. One whose time is over is not found, and ends.
    fn find(&mut self, packet: &Packet, pool: &mut Pool) -> Option<(u32, Direction)> {
        let meta = packet.meta();
        let (record, direction) = self.flows.find(meta.hash, &meta.key, meta.reversed)?;
        if self.flows.records.header(record).deadline_ns() < self.now_ns {
            self.end_in_time(record, pool);
            return None;
        }
        Some((record, direction))
    }

    /// A record for the flow that this packet begins; another flow may have to go for it.
    fn begin_flow(&mut self, packet: &Packet, pool: &mut Pool) -> Option<u32> {
        if let Some(record) = self.flows.create(packet, self.now_ns) {
            return Some(record);
        }
        if self.options.when_full == WhenFull::RefuseNew {
            return None;
        }
        let victim = self.flows.victim()?;
        self.end_flow(victim, EndReason::Evicted, pool);
        self.flows.create(packet, self.now_ns)
    }

    fn start_flow(&mut self, packet: &Packet, pool: &mut Pool) {
        self.counters.flows_started += 1;
        self.counters.flows_peak = self.counters.flows_peak.max(u64::from(self.flows.records.live()));
        let meta = packet.meta();
        let at = Moment::of(meta);
        let mut env = Env { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
        for stage in &mut self.stages {
            stage.flow_start(meta.flow, at, &mut env);
        }
    }

    /// A flow's time is over.
    fn end_in_time(&mut self, record: u32, pool: &mut Pool) {
        let over = self.flows.records.header(record).connection.is_over();
        self.end_flow(record, if over { EndReason::Closed } else { EndReason::Idle }, pool);
    }

    fn end_flow(&mut self, record: u32, reason: EndReason, pool: &mut Pool) {
        self.counters.flows_ended[reason as usize] += 1;
        let at = Moment::without_packet(self.flows.records.header(record), self.now_ns);
        let mut env = Env { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
        for stage in &mut self.stages {
            stage.flow_end(record, reason, at, &mut env);
        }
        self.flows.remove(record);
    }

    /// Takes the group through the functions and out; whether its last packet passed.
    #[inline(never)]
    fn flush(&mut self, run: &mut Run<'_, '_>) -> bool {
        if self.group.is_empty() {
            return false;
        }
        self.verdicts.clear();
        self.verdicts.resize(self.group.len(), Verdict::Forward);
        let sides = self.gathering.clear();
        self.turned = 0;
        let alerts = self.effects.alerts.len();
        for side in [Side::Inside, Side::Outside] {
            if sides[side as usize] {
                self.cross(side, run);
            }
        }
        if self.effects.alerts.len() > alerts + 1 {
            self.effects.alerts[alerts..].sort_by_key(|alert| (alert.sequence, alert.stage));
        }
        let mut group = std::mem::take(&mut self.group);
        let verdicts = std::mem::take(&mut self.verdicts);
        let plain = run.observer.is_none() && self.answers.is_empty();
        let (mut passed, mut sent, mut bytes) = (false, 0, 0);
        for (mut packet, &verdict) in group.drain(..).zip(&verdicts) {
            let meta = packet.meta_mut();
            // The packet of a flow that goes on as before: nearly all are.
            if plain && verdict == Verdict::Forward && !meta.realias {
                self.settled_ns = self.settled_ns.max(meta.timestamp_ns);
                if self.flows.go_on(meta.flow, self.settled_ns, meta.keep_ms) {
                    meta.side = meta.side.other();
                    (passed, sent, bytes) = (true, sent + 1, bytes + packet.len() as u64);
                    run.out.push(packet);
                    continue;
                }
            }
            passed = self.settle(packet, verdict, run);
        }
        self.counters.packets_out += sent;
        self.counters.bytes_out += bytes;
        self.verdicts = verdicts;
        self.group = group;
        passed
    }

    /// Takes the group's packets that entered by `side` across, function by function.
    fn cross(&mut self, side: Side, run: &mut Run<'_, '_>) {
        let count = self.stages.len();
        for step in 0..count {
            let stage = if side == Side::Inside { step } else { count - 1 - step };
            if !self.run_stage(stage, side, 0..self.group.len(), run) {
                continue;
            }
            for i in 0..self.group.len() {
                if self.verdicts[i] == Verdict::TurnBack && self.turned >> i & 1 == 0 {
                    self.turn_back(i, stage, run);
                }
            }
        }
    }

    /// Runs one function over a part of the group, and sends what it made back; whether it turned a packet back.
    fn run_stage(
        &mut self,
        stage: usize,
        side: Side,
        part: std::ops::Range<usize>,
        run: &mut Run<'_, '_>,
    ) -> bool {
        let made = self.effects.made.len();
        let takes_part = |packet: &Packet| packet.meta().side == side;
        let mut observer = match self.group.get(part.start) {
            Some(packet) if takes_part(packet) && self.verdicts[part.start] == Verdict::Forward => {
                run.observer.as_deref_mut()
            }
            _ => None,
        };
        let mut recording = observer.is_some().then(Recording::default);
        if let (Some(observer), Some(packet)) = (&mut observer, self.group.get(part.start)) {
            observer.before(stage, packet);
        }
        let started = self.options.cycles.map(|cycles| cycles());
        let mut group = Group {
            packets: &mut self.group[part.clone()],
            verdicts: &mut self.verdicts[part.clone()],
            side,
            turned: false,
            env: Env { records: &mut self.flows.records, effects: &mut self.effects, buffers: run.pool },
            recording: recording.as_mut(),
        };
        self.stages[stage].process(&mut group);
        let turned = group.turned;
        if let (Some(cycles), Some(started)) = (self.options.cycles, started) {
            self.cycles[stage] += cycles().wrapping_sub(started);
        }
        if let (Some(observer), Some(recording)) = (observer, &recording)
            && let Some(packet) = self.group.get(part.start)
        {
            observer.after(stage, packet, self.verdicts[part.start], recording);
        }
        while self.effects.made.len() > made {
            let answer = self.effects.made.remove(made);
            self.answer(answer, run);
        }
        turned
    }

    /// A function turned the packet back: it goes through the functions that it passed, in reverse, as if it had come
    /// from the other side. Its flow's packets go alone from now on.
    fn turn_back(&mut self, i: usize, stage: usize, run: &mut Run<'_, '_>) {
        let meta = self.group[i].meta_mut();
        let back = meta.side.other();
        meta.side = back;
        self.turned |= 1 << i;
        self.flows.records.header_mut(meta.flow).flags |= Header::FLAG_TURNS;
        self.verdicts[i] = Verdict::Forward;
        self.cross_from(i, stage, back, run);
        if self.verdicts[i] == Verdict::Forward {
            self.verdicts[i] = Verdict::TurnBack; // It is through: none of the others has to see it.
        }
    }

    /// Takes one packet through the functions behind `stage`, as seen from the side that it comes from.
    fn cross_from(&mut self, i: usize, stage: usize, side: Side, run: &mut Run<'_, '_>) {
        let mut next = stage;
        loop {
            next = match side {
                Side::Inside if next + 1 < self.stages.len() => next + 1,
                Side::Outside if next > 0 => next - 1,
                _ => return,
            };
            self.run_stage(next, side, i..i + 1, run);
            if self.verdicts[i] == Verdict::TurnBack {
                self.verdicts[i] = Verdict::Drop(DropReason::Internal); // A packet turns once.
            }
        }
    }

    /// Sends a packet that a function made on its way, through the functions between it and the side that it leaves by.
    /// To them it is a packet of the flow that it answers, in the other direction; it does not count in the flow's clock.
    fn answer(&mut self, made: Made, run: &mut Run<'_, '_>) {
        self.counters.packets_made += 1;
        let mut packet = made.packet;
        if let Err(reason) = self.parser.parse(&mut packet) {
            return self.drop_packet(packet, reason, run);
        }
        let side = made.towards.other();
        let sequence = packet.meta().sequence;
        let Some(to) = self.group.iter().rfind(|to| to.meta().sequence == sequence) else {
            return self.drop_packet(packet, DropReason::Internal, run); // It answers a packet of the group.
        };
        let (to, meta) = (to.meta(), packet.meta_mut());
        meta.side = side;
        meta.flow = to.flow;
        meta.direction = to.direction.other();
        meta.clock = to.clock;
        meta.phase = to.phase;
        meta.tags = to.tags;
        self.group.push(packet);
        self.verdicts.push(Verdict::Forward);
        let i = self.group.len() - 1;
        self.cross_from(i, made.stage as usize, side, run);
        let (packet, verdict) = (self.group.pop(), self.verdicts.pop());
        match (packet, verdict) {
            (Some(packet), Some(Verdict::Drop(reason))) => self.drop_packet(packet, reason, run),
            (Some(packet), _) => self.answers.push(packet),
            (None, _) => {} // It was pushed above.
        }
    }

    /// What becomes of a packet, and of its flow, once all functions had it; whether it passed.
    fn settle(&mut self, packet: Packet, verdict: Verdict, run: &mut Run<'_, '_>) -> bool {
        let (record, sequence) = (packet.meta().flow, packet.meta().sequence);
        self.settled_ns = self.settled_ns.max(packet.meta().timestamp_ns);
        let verdict = match verdict {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Forward | Verdict::TurnBack => self.accept(record, &packet, run.pool),
        };
        let passed = verdict.is_ok();
        match verdict {
            Ok(()) => self.send(packet, run),
            Err(reason) => {
                self.drop_packet(packet, reason, run);
                // Of a flow none of whose packets passed, nothing is kept.
                let header = self.flows.records.header(record);
                if header.has(Header::FLAG_LIVE) && !header.has(Header::FLAG_ACCEPTED) {
                    self.end_flow(record, EndReason::Rejected, run.pool);
                }
            }
        }
        if !self.answers.is_empty() {
            self.send_answers(sequence, run);
        }
        passed
    }

    /// A packet of the flow passed: the flow lives on, and its alias is learned when it is new.
    fn accept(&mut self, record: u32, packet: &Packet, pool: &mut Pool) -> Result<(), DropReason> {
        let meta = packet.meta();
        let known = self.flows.records.header(record).has(Header::FLAG_ACCEPTED);
        if known && !meta.realias {
            self.flows.refresh(record, self.settled_ns, meta.keep_ms);
            return Ok(());
        }
        if !self.learn_alias(packet, pool) {
            return Err(DropReason::AliasConflict);
        }
        self.flows.refresh(record, self.settled_ns, meta.keep_ms);
        if !known {
            self.flows.records.header_mut(record).flags |= Header::FLAG_ACCEPTED;
            self.flows.watch(record);
        }
        Ok(())
    }

    /// Learns the key that the flow's packets have behind the chain, from one of them; false if another flow has it.
    fn learn_alias(&mut self, packet: &Packet, pool: &mut Pool) -> bool {
        let meta = packet.meta();
        if meta.direction != Direction::Original || !matches!(meta.class, Class::Whole | Class::FirstFragment)
        {
            return true;
        }
        let (key, reversed) = parse::current_key(packet);
        match self.flows.set_alias(meta.flow, key, reversed) {
            Err(other) if self.flows.records.header(other).deadline_ns() < self.settled_ns => {
                self.end_in_time(other, pool);
                self.flows.set_alias(meta.flow, key, reversed).is_ok()
            }
            learned => learned.is_ok(),
        }
    }

    /// Packets made in answer to packet `sequence` leave right behind it.
    #[cold]
    fn send_answers(&mut self, sequence: u64, run: &mut Run<'_, '_>) {
        let mut answers = std::mem::take(&mut self.answers);
        for packet in answers.extract_if(.., |packet| packet.meta().sequence == sequence) {
            self.send(packet, run);
        }
        self.answers = answers;
    }

    #[inline]
    fn send(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += packet.len() as u64;
        let meta = packet.meta_mut();
        meta.side = meta.side.other();
        if let Some(observer) = &mut run.observer {
            observer.sent(&packet);
        }
        run.out.push(packet);
    }

    fn drop_packet(&mut self, packet: Packet, reason: DropReason, run: &mut Run<'_, '_>) {
        self.counters.drops[reason.index()] += 1;
        if let Some(observer) = &mut run.observer {
            observer.dropped(&packet, reason);
        }
        run.pool.give(packet);
    }
}

/// What goes along with packets on their way through.
struct Run<'a, 'o> {
    out: &'a mut Vec<Packet>,
    pool: &'a mut Pool,
    observer: Option<&'a mut (dyn Observer + 'o)>,
}

/// The packet takes its number in the flow, its tags, and moves the connection on.
#[inline(always)]
fn join(meta: &mut Meta, header: &mut Header, options: &Options, keeps_flows: bool) {
    let connection = header.connection.after(meta, meta.direction);
    header.clock += 1;
    meta.clock = header.clock;
    meta.phase = connection.phase();
    meta.tags = header.tags;
    meta.realias = false;
    meta.keep_ms = if keeps_flows || meta.protocol != header.key.protocol {
        0 // The functions say it; and an ICMP error about the flow does not keep it (RFC 5508 REQ-10).
    } else if connection == header.connection && header.timeout_ms != 0 {
        AS_LONG_AS_BEFORE
    } else {
        options.timeouts.of(meta.protocol, connection)
    };
    header.connection = connection;
}
