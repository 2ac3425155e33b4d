//! Coming in: parsing, finding the packet's flow or beginning it, and gathering packets of known
//! flows into groups.

use nf::record::RecordHeader;
use nf::stage::{PacketTotals, StageEnv};
use nf::{EndReason, Verdict};
use packet::{Direction, DropReason, Meta, Packet, PacketClass, PacketPool};

use super::{Chain, Change, Run, forwards_unclassified};
use crate::WhenFull;
use crate::cache::{CHANGING, Course, FlowCache, Likeness};
use crate::classifier::LaterFragment;
use crate::flows::Flows;
use crate::fragments::Datagram;
use crate::gathering::{FlowCourses, GROUP_MAX};

/// Packets from the front of what is left of a batch.
pub(super) struct Gathered {
    /// How much they are.
    pub load: PacketTotals,
    /// What is to be done with them, or with the first one.
    pub course: Course,
    /// Whether it is the same for all.
    pub uniform: bool,
}

/// A record number that no record has.
const NO_RECORD: u32 = u32::MAX;

impl Chain {
    /// A chain without functions is a wire that parses.
    pub(super) fn pass_through(&mut self, batch: &mut Vec<Packet>, run: &mut Run<'_, '_>) {
        self.follow_commands();
        let bytes = self.classifier.classify(batch, |_| {});
        if self.classifier.refuses_none()
            && batch.iter().all(|packet| packet.meta().class != PacketClass::NotIp)
        {
            for packet in batch.iter_mut() {
                packet.meta_mut().transit.side = packet.meta().transit.side.other();
            }
            self.counters.packets_out += batch.len() as u64;
            self.counters.bytes_out += bytes;
            run.out.append(batch);
            return;
        }
        for packet in batch.drain(..) {
            match self.classifier.take_refusal(&packet) {
                Ok(()) => self.pass(packet, run),
                Err(reason) => self.drop_packet(packet, reason, run),
            }
        }
    }

    /// Sends a packet on that no function is to see.
    pub(super) fn pass(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        if packet.meta().class == PacketClass::NotIp {
            self.not_ip(packet, run);
        } else {
            self.send(packet, run);
        }
    }

    /// Parses packets, and looks up which flow each probably belongs to. All asks for memory go out
    /// before any is used.
    pub(super) fn look_up(&mut self, batch: &mut [Packet]) {
        self.follow_commands();
        self.classifier.classify(batch, |hash| self.flows.prefetch_index(hash));
        let found = (&self.flows, self.cache.as_ref());
        self.mixed = find_records(found, batch, |(flows, cache), _, meta| {
            flows.prefetch_record(meta.hash, meta.reversed, cache)
        });
    }

    /// The same for packets that were parsed before.
    pub(super) fn look_up_parsed(&mut self, batch: &mut [Packet]) {
        batch.iter().for_each(|packet| self.flows.prefetch_index(packet.meta().hash));
        let found = (&self.flows, self.cache.as_ref());
        self.mixed = find_records(found, batch, |(flows, cache), _, meta| {
            flows.prefetch_record(meta.hash, meta.reversed, cache)
        });
    }

    /// The same for packets that were parsed before, of flows with these homes, one for each.
    pub(super) fn look_up_homes(&mut self, batch: &mut [Packet], homes: &[u32]) {
        debug_assert_eq!(batch.len(), homes.len());
        self.homes.clear();
        let sequences = batch.iter().map(|packet| packet.meta().transit.sequence);
        self.homes.extend(sequences.zip(homes.iter().copied()));
        let found = (&self.flows, self.cache.as_ref());
        self.mixed = find_records(found, batch, |(flows, cache), number, _| {
            flows.prefetch_home(*homes.get(number)?, cache)
        });
    }

    /// What functions cannot judge passes or not as their commands have it by now.
    #[inline]
    pub(super) fn follow_commands(&mut self) {
        if self.is_commanded {
            self.is_commanded = false;
            self.classifier.set_passes_unjudged(forwards_unclassified(&self.stages));
        }
    }

    /// Joins packets from the front of `packets` to their flows, as many as form a group. The next
    /// one begins another group. If it would be the first, the course says whether it goes alone,
    /// or is to be reviewed and gathered again. `RULES`: whether there are any. `APART`: whether
    /// functions may answer packets of known flows.
    #[inline(never)]
    pub(super) fn gather<const RULES: bool, const APART: bool>(
        &mut self,
        packets: &mut [Packet],
    ) -> Gathered {
        if self.mixed {
            self.gathering.clear();
        }
        let mut now_ns = self.now_ns;
        let begin_ns =
            packets.first().map_or(now_ns, |packet| now_ns.max(packet.meta().transit.timestamp_ns));
        let until_ns = self.flows.due_ns().min(begin_ns.saturating_add(self.group_span_ns));
        let (mut load, mut course, mut uniform) = (PacketTotals::default(), Course::WALK, true);
        let (all, mut flow_courses) = (self.layout.lines(), FlowCourses::default());
        // The course of the last packet, if others may follow it, and what they touch.
        let (mut followed, mut lines) = (Course::RECORD, all);
        let most = packets.len().min(GROUP_MAX);
        for packet in &mut packets[..most] {
            let is_apart = APART && self.apart.is_some_and(|apart| apart.has(packet.meta(), packet.len()));
            if is_apart && load.packets > 0 {
                break;
            }
            let mut meta = packet.meta_mut();
            if meta.class != PacketClass::Whole {
                break;
            }
            now_ns = now_ns.max(meta.transit.timestamp_ns);
            if now_ns >= until_ns {
                break;
            }
            if !RULES {
                self.flows.records.prefetch_states(meta.transit.flow, lines);
            }
            let Some(mut header) = self.flows.records.find_header_mut(meta.transit.flow) else { break };
            let (key, reversed) = (&meta.key, meta.reversed);
            let mut by_alias = false;
            let direction = header.direction_if_common(key, reversed).or_else(|| {
                by_alias = RULES && header.key != *key;
                // If both directions come from one side, one packet may end what the next one is
                // found by.
                let in_order = |direction: &_| header.comes_from(meta.transit.side, *direction);
                header
                    .direction_if_any(key, reversed)
                    .filter(|direction| !header.has(RecordHeader::FLAG_TURNS) && in_order(direction))
            });
            let Some(direction) = direction else { break };
            if header.has_expired(now_ns) {
                break;
            }
            meta.transit.direction = direction;
            let connection = header.connection.after_whole(meta.protocol, meta.tcp_flags, direction);
            let (mut next, mut wish_ms) = (Course::WALK, 0);
            if RULES && let Some(cache) = &mut self.cache {
                let (flow, like) = (meta.transit.flow, Likeness::new(meta, by_alias, connection));
                if let Some((its, keep_ms)) = cache.plain_course((flow, direction), like) {
                    (next, wish_ms) = (its, keep_ms);
                    if next != followed {
                        (followed, lines) = (next, cache.lines(next, all));
                        if load.packets == 0 {
                            course = next;
                        }
                    }
                } else if let Some(keep_ms) = cache.follow_limited(followed, (flow, direction), like, packet)
                {
                    (next, wish_ms) = (followed, keep_ms);
                    meta = packet.meta_mut();
                } else {
                    let is_seen = !flow_courses.walks(flow, course, &self.other_courses);
                    let seen = (&self.stages[..], &self.flows.records);
                    (next, wish_ms) = cache.choose(seen, packet, (like, connection), is_seen);
                    let Some(again) = self.flows.records.find_header_mut(flow) else { break };
                    header = again;
                    meta = packet.meta_mut();
                    lines = cache.lines(next, all);
                    followed = if next.is_follow() { next } else { Course::RECORD };
                    if load.packets == 0 {
                        course = next;
                    }
                    if matches!(next, Course::RECORD | Course::REVIEW) {
                        break;
                    }
                }
                if next != course {
                    if !next.mixes() || !course.mixes() {
                        break;
                    }
                    uniform = false;
                }
                if !flow_courses.add(flow, next, course, &mut self.other_courses) {
                    break;
                }
                self.courses[load.packets as usize % GROUP_MAX] = next;
            }
            let to_all = !next.is_alone_to_itself();
            if self.mixed && !self.gathering.add(meta.transit.flow, meta.transit.side, to_all) {
                break;
            }
            if RULES
                && next == Course::WALK
                && meta.tcp_flags & CHANGING != 0
                && let Some(cache) = &mut self.cache
            {
                cache.forget(meta.transit.flow);
            }
            if self.joining.join_whole(meta, header, connection, wish_ms) {
                self.flows.classes.follow(meta.transit.flow, header);
            }
            if RULES {
                self.flows.records.prefetch_states(meta.transit.flow, lines);
            }
            load.add(packet.len());
            if is_apart {
                break;
            }
        }
        self.now_ns = now_ns;
        if let Some(ingresses) = &mut self.ingresses {
            let joined = packets.iter_mut().take(load.packets as usize);
            joined.for_each(|packet| ingresses.join(packet.meta_mut()));
        }
        Gathered { load, course, uniform }
    }

    /// A packet that may begin a flow, that is not a plain packet of one, or that could not be
    /// parsed.
    #[inline(never)]
    pub(super) fn alone(&mut self, packet: Packet, parsed: Result<(), DropReason>, run: &mut Run<'_, '_>) {
        if let Err(reason) = parsed {
            return self.drop_packet(packet, reason, run);
        }
        self.now_ns = self.now_ns.max(packet.meta().transit.timestamp_ns);
        self.advance(self.now_ns, run.pool);
        match packet.meta().class {
            PacketClass::NotIp => return self.not_ip(packet, run),
            PacketClass::Whole => {
                self.walk(packet, run);
            }
            PacketClass::IcmpError => self.icmp_error(packet, run),
            PacketClass::FirstFragment => self.first_fragment(packet, run),
            PacketClass::LaterFragment => self.later_fragment(packet, run),
        }
        if !self.failed.is_empty() {
            self.end_failed(run.pool);
        }
    }

    fn not_ip(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        if !self.classifier.passes_not_ip(&packet) {
            return self.drop_packet(packet, DropReason::NotIp, run);
        }
        self.send(packet, run);
    }

    /// An ICMP error goes with the flow that it speaks of; if there is none, it is a flow of its
    /// own.
    fn icmp_error(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) {
        if self.find(&packet, run.pool).is_none() {
            self.classifier.set_portless_key(&mut packet);
        }
        self.walk(packet, run);
    }

    fn first_fragment(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        let datagram = Datagram::of(&packet);
        let (key, reversed) = (packet.meta().key, packet.meta().reversed);
        let has_home = self.home_of(&packet).is_some();
        let passed = self.walk(packet, run).then_some((key, reversed));
        if has_home {
            self.changes.push(Change::FirstFragment { datagram, passed, at_ns: self.now_ns });
        }
        let mut waited = std::mem::take(&mut self.waited);
        self.classifier.learn_first(datagram, passed, self.now_ns, &mut waited);
        for packet in waited.drain(..) {
            self.later_fragment(packet, run);
        }
        self.waited = waited;
    }

    fn later_fragment(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        // Who says whose it is has given it that flow's key.
        if self.home_of(&packet).is_some() {
            return self.follow(packet, run);
        }
        match self.classifier.place_fragment(packet, run.pool) {
            LaterFragment::Follows(packet) => self.follow(packet, run),
            LaterFragment::Held => {}
            LaterFragment::Refused(packet, reason) => self.drop_packet(packet, reason, run),
        }
    }

    /// A later fragment goes with its first one's flow.
    fn follow(&mut self, packet: Packet, run: &mut Run<'_, '_>) {
        if self.find(&packet, run.pool).is_none() {
            return self.drop_packet(packet, DropReason::FragmentOfDropped, run);
        }
        self.walk(packet, run);
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
        if matches!(meta.class, PacketClass::FirstFragment | PacketClass::LaterFragment)
            && let Some(subscribed) = &mut self.subscribed
        {
            subscribed.datagrams_mut().0.begin();
        }
        meta.transit.flow = record;
        meta.transit.direction = direction;
        self.flows.join(&self.joining, meta);
        if let Some(ingresses) = &mut self.ingresses {
            if begins {
                ingresses.forget(record);
            }
            ingresses.join(meta);
        }
        if begins && !self.start_flow(&packet, run.pool) {
            self.drop_packet(packet, DropReason::FunctionPanic, run);
            self.end_flow(record, EndReason::Rejected, run.pool);
            return false;
        }
        if (begins || packet.meta().class == PacketClass::IcmpError)
            && let Err(reason) = self.classifier.parser().sanity.check_addresses(&packet)
        {
            return self.settle(packet, Verdict::Drop(reason), run);
        }
        let is_observed = run.observer.is_some();
        // Many flows are over before a rule would be of use: one that begins is not recorded,
        // unless somebody looks.
        let begun = match &mut self.cache {
            Some(cache) if is_observed || !begins => {
                cache.begin_recording(self.flows.records.header(record), &packet, is_observed)
            }
            _ => None,
        };
        let mut verdict = Verdict::Forward;
        let (packets, verdicts) = (std::slice::from_mut(&mut packet), std::slice::from_mut(&mut verdict));
        run.is_alone = true;
        self.cross(packets, verdicts, PacketTotals::by_side(packets, verdicts), None, run);
        run.is_alone = false;
        let Some(begun) = begun else { return self.settle(packet, verdict, run) };
        let has_tags = packet.meta().transit.tags == self.flows.records.header(record).tags;
        let repeats = self.cache.as_mut().is_some_and(FlowCache::end_recording);
        let repeats = repeats && (!self.joining.tags || has_tags);
        let (protocol, moves) = (packet.meta().protocol, packet.meta().transit.relearn_alias);
        let passed = self.settle(packet, verdict, run);
        let Some(cache) = &mut self.cache else { return passed };
        if moves {
            cache.expect_like(&begun, (record, direction));
        } else if passed == (verdict == Verdict::Forward) {
            let header = self.flows.records.header(record);
            let come = (protocol, verdict);
            cache.conclude(&self.stages, header, begun, (record, direction), come, repeats);
        }
        passed
    }

    /// The flow that the packet belongs to. One whose time is over is not found, and ends.
    fn find(&mut self, packet: &Packet, pool: &mut PacketPool) -> Option<(u32, Direction)> {
        let meta = packet.meta();
        let (record, direction) = self.flows.find(meta.hash, &meta.key, meta.reversed)?;
        if self.flows.records.header(record).has_expired(self.now_ns) {
            self.end_in_time(record, pool);
            return None;
        }
        Some((record, direction))
    }

    /// A record for the flow that this packet begins; another flow may have to go for it.
    fn begin_flow(&mut self, packet: &Packet, pool: &mut PacketPool) -> Option<u32> {
        if self.is_full() && !self.make_room(pool) {
            return None;
        }
        let record = self.flows.create(packet, self.now_ns);
        let record = record?;
        self.forget_rules(record);
        if let Some(home) = self.home_of(packet) {
            self.flows.homes.add(home, record);
        }
        Some(record)
    }

    /// Ends a flow for another one, if the options say so; whether there is room now.
    pub(super) fn make_room(&mut self, pool: &mut PacketPool) -> bool {
        if self.options.when_full == WhenFull::RefuseNew {
            return false;
        }
        match self.flows.victim() {
            Some(victim) => self.evict(victim, pool),
            None => return false,
        }
        true
    }

    /// Ends flows that functions give up for the one that begins with this packet.
    #[cold]
    fn let_give_way(&mut self, packet: &Packet, pool: &mut PacketPool) {
        let mut victims = Vec::new();
        for stage in 0..self.stages.len() {
            let mut env =
                StageEnv { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
            self.stages[stage].make_room(packet, &mut env, &mut victims);
            for victim in victims.drain(..) {
                if self.flows.is_live(victim) {
                    self.end_flow(victim, EndReason::Evicted, pool);
                }
            }
        }
    }

    /// Tells functions that the flow of this packet begins; false if one of them panicked.
    fn start_flow(&mut self, packet: &Packet, pool: &mut PacketPool) -> bool {
        self.counters.flows_started += 1;
        if let Some(kind) = self.classifier.parser().tunnel_kind(packet) {
            self.counters.tunnels[kind as usize] += 1;
        }
        self.counters.flows_peak = self.counters.flows_peak.max(self.live());
        let mut env =
            StageEnv { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
        // All of them, as each will be told of its end.
        let started = self.stages.iter_mut().map(|stage| stage.flow_start(packet.meta().transit, &mut env));
        let all = started.fold(true, |all, started| all & started);
        if all && self.makes_room {
            self.let_give_way(packet, pool);
        }
        all
    }
}

/// Stores each packet's probable record, which `record` looks up by the packet's number and
/// metadata. Returns true if packets came from both sides.
// Not inlined, so that the compiler knows that stores to packets do not change `flows`.
#[inline(never)]
fn find_records(
    flows: (&Flows, Option<&FlowCache>),
    batch: &mut [Packet],
    record: impl Fn((&Flows, Option<&FlowCache>), usize, &Meta) -> Option<u32>,
) -> bool {
    let mut sides = [false; 2];
    for (number, packet) in batch.iter_mut().enumerate() {
        let meta = packet.meta_mut();
        meta.transit.flow = record(flows, number, meta).unwrap_or(NO_RECORD);
        sides[meta.transit.side as usize] = true;
    }
    sides == [true; 2]
}
