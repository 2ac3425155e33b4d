//! The cached rules of flows, beside their records: a rule for each direction that stands for
//! the walk through the graph (B6), and the events that end it (B7). A rule is of this graph and
//! table only: a flow that moves is recorded again.

use nf::{Cause, Connection, EventCondition};
use packet::memory::{OutOfMemory, SlotArray, SlotField};
use packet::{Direction, Meta, NewEnds, OuterHeaders, OuterMatches, Packet, TagRoom};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::program::{Path, ProgramId, Programs};

/// Events that a rule can have; a walk with more is not made a rule.
pub(crate) const EVENTS_MAX: usize = 8;

/// Packets of a kind that was not seen before that walk before one is recorded, beside a flow's
/// first one: what recording takes is lost for flows that are over by then, and for connections in
/// a phase that is.
const WALKS_FIRST: u16 = 2;

/// Packets that walk after one of which no rule could be made, before another one is recorded;
/// twice as many the next time, up to `WALKS_DOUBLED_MAX` times. As many walk in a row that come in
/// something else than what their rule takes off: what the flow comes in has changed then, as when
/// another router puts labels before it.
const WALKS_MIN: u16 = 8;
const WALKS_DOUBLED_MAX: u8 = 7;

/// Versions stand in stamps' upper halves; none is 0, which no rule has.
const FIRST_VERSION: u64 = 1 << 32;

/// Both rules of each flow, by the number of its record.
pub(crate) struct RuleTable {
    slots: SlotArray<[CachedRule; 2]>,
    /// Data that few packets need stands apart: rules that are far from one another would share few
    /// of a cache's sets.
    rest: SlotArray<[[StoredEvent; EVENTS_MAX]; 2]>,
    /// The outer headers that packets get, in the rest; none in a graph of which no function puts
    /// any on.
    outers: Option<SlotField<[OuterHeaders; 2]>>,
    /// The common part of all stamps: the version, which every command raises. Rules from before
    /// hold only if none of their events does; what was predicted before is predicted again.
    common: u64,
}

/// The rule for packets of one direction of a flow: a cache line.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct CachedRule {
    /// The packets that it applies to; 0 for none.
    stamp: u64,
    /// The timeout after a packet, in milliseconds, if functions set it.
    pub keep_ms: u32,
    /// The ends that packets get.
    pub ends: NewEnds,
    /// The path of packets of the stamp: a program, or the slow path.
    path: Path,
    /// On the slow path: packets before one is recorded. On the fast path: packets in a row
    /// that come in something else.
    walks: u16,
    /// Failed recordings in a row.
    failures: u8,
    /// Recordings since packets arrived in other outer headers.
    changes: u8,
    /// If the program is limited: the longest packets that follow it, in bytes of their IP packets;
    /// `u16::MAX` if they get no outer headers.
    pub len_max: u16,
    /// The tags that packets which follow it have room for.
    tags: TagRoom,
}

const _: () = assert!(size_of::<CachedRule>() == 64);

/// The room in the rules of a graph.
#[derive(Clone, Copy)]
pub(crate) struct RuleScope {
    /// True if functions put outer headers on.
    pub wraps: bool,
}

/// The values of a rule: what its program leaves to each flow.
pub(crate) struct RuleValues<'a> {
    /// The ends that packets get.
    pub ends: &'a NewEnds,
    /// The timeout after a packet, in milliseconds, if functions set it.
    pub keep_ms: u32,
    /// The outer headers that packets get.
    pub outer: Option<&'a OuterHeaders>,
    /// The longest packets that are treated so, in bytes of their IP packets; `u16::MAX` without
    /// outer headers.
    pub len_max: u16,
    /// The tags that packets are to have room for.
    pub tags: TagRoom,
}

/// An event that a function recorded.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct StoredEvent {
    argument: u64,
    id: u16,
    stage: u16,
    /// 0: there is none; 1: it may come by a command; 2: by a packet.
    cause: u8,
    spare: [u8; 3],
}

/// The properties that a packet must share with the recorded one, beside flow and direction;
/// with the version, a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleKey(u64);

/// The fields that branches of a graph ask for and that may differ between packets of a flow: part
/// of a rule's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleGuards {
    /// TCP flags.
    pub tcp_flags: bool,
    /// The DSCP.
    pub dscp: bool,
}

impl RuleGuards {
    /// Returns true if any field is asked for.
    #[inline]
    pub fn is_any(self) -> bool {
        self.tcp_flags || self.dscp
    }
}

/// TCP flags that change a connection: FIN, SYN, RST.
pub(crate) const CHANGING: u8 = 7;

impl RuleKey {
    /// Of a packet whose key is the flow's alias, or not, and that has brought the connection to
    /// this.
    #[inline(always)]
    pub fn new(meta: &Meta, by_alias: bool, connection: Connection) -> RuleKey {
        let (side, flags) = (meta.transit.side as u64, u64::from(meta.tcp_flags & CHANGING));
        RuleKey(u64::from(connection.phase()) | side << 8 | u64::from(by_alias) << 9 | flags << 16)
    }

    /// The same with the fields that branches of the graph ask for.
    #[inline]
    pub fn guarded(self, packet: &Packet, guards: RuleGuards) -> RuleKey {
        let mut key = self.0;
        if guards.tcp_flags {
            key |= u64::from(packet.meta().tcp_flags & !CHANGING) << 8 & 0xf800;
        }
        if guards.dscp {
            key |= u64::from(packet.dscp().unwrap_or_default()) << 24;
        }
        RuleKey(key)
    }

    /// Returns true if more such packets can be expected than a connection has while it is
    /// opened or closed.
    #[inline]
    fn is_lasting(self) -> bool {
        let connection = Connection::from_phase(self.0 as u8);
        !matches!(
            connection,
            Connection::SYN_SENT
                | Connection::SYN_RECEIVED
                | Connection::FIN_ORIGINAL
                | Connection::FIN_REPLY
                | Connection::CLOSED
                | Connection::RESET
        )
    }

    /// Returns true if the packet could be treated as others: it does not change a connection.
    #[inline(always)]
    pub fn is_ordinary(self) -> bool {
        self.0 >> 16 & u64::from(CHANGING) == 0
    }
}

impl CachedRule {
    /// Returns the path of a packet that the rule applies to: slow if the program does not take it.
    #[inline(never)]
    fn path_of(&mut self, packet: &Packet, programs: &Programs) -> Path {
        let path = self.path;
        let Some(program) = path.program().filter(|program| program.is_limited()) else { return path };
        let Some(covers) = programs.covers(program) else { return Path::SLOW };
        if self.takes(packet, covers) {
            return path;
        }
        if !covers.are_of(packet) {
            self.walks = self.walks.saturating_sub(1);
            if self.walks == 0 {
                (self.path, self.walks) = (Path::SLOW, 1);
                self.changes = (self.changes + 1).min(WALKS_DOUBLED_MAX);
            }
        }
        Path::SLOW
    }

    /// Returns true if a packet comes in what is taken off, and is not too long, and has not too
    /// many tags, for what is put before it.
    #[inline]
    fn takes(&mut self, packet: &Packet, covers: &OuterMatches) -> bool {
        if !covers.are_of(packet) {
            return false;
        }
        self.walks = WALKS_MIN << self.changes;
        let fits = self.len_max == u16::MAX || packet.fits_after_decap(covers.outer_len(), self.len_max);
        fits && packet.takes_tags(self.tags)
    }
}

impl RuleTable {
    pub fn new(flows_max: u32, scope: RuleScope) -> Result<Option<RuleTable>, OutOfMemory> {
        let without = size_of::<[[StoredEvent; EVENTS_MAX]; 2]>();
        let Some(behind) = SlotField::at(without) else { return Ok(None) };
        let (len, outers) = if scope.wraps {
            (without + size_of::<[OuterHeaders; 2]>(), Some(behind))
        } else {
            (without, None)
        };
        let slots = SlotArray::new(flows_max, size_of::<[CachedRule; 2]>())?;
        Ok(Some(RuleTable { slots, rest: SlotArray::new(flows_max, len)?, outers, common: FIRST_VERSION }))
    }

    /// Asks for the rule for packets of a direction to be brought to the cache.
    #[inline(always)]
    pub fn prefetch(&self, record: u32, direction: Direction) {
        self.slots.prefetch(record, direction.index() * size_of::<CachedRule>());
    }

    /// Operators gave a command.
    pub fn raise_version(&mut self) {
        self.common = self.common.wrapping_add(FIRST_VERSION).max(FIRST_VERSION);
    }

    /// The record is another flow's, or the flow has no rules: nothing is known of it.
    #[inline]
    pub fn forget(&mut self, record: u32) {
        if let Some(rules) = self.slots.head_mut(record) {
            rules.iter_mut().for_each(|rule| (rule.stamp, rule.failures) = (0, 0));
        }
    }

    /// The rule for packets of a direction. It need not be one: [`RuleTable::path`] says which are.
    #[inline(always)]
    pub fn get(&self, record: u32, direction: Direction) -> Option<&CachedRule> {
        Some(&self.slots.head(record)?[direction.index()])
    }

    #[inline(always)]
    fn get_mut(&mut self, record: u32, direction: Direction) -> Option<&mut CachedRule> {
        Some(&mut self.slots.head_mut(record)?[direction.index()])
    }

    /// Returns the path of such a packet, and its flow's timeout, if it follows a program that
    /// is not looked at and takes all of them. None in all other cases.
    #[inline(always)]
    pub fn plain_path(&self, (record, direction): (u32, Direction), like: RuleKey) -> Option<(Path, u32)> {
        let rule = self.get(record, direction)?;
        let is_plain = rule.stamp == self.common | like.0 && rule.path.is_plain_fast();
        is_plain.then_some((rule.path, rule.keep_ms))
    }

    /// Returns its flow's timeout after such a packet, if it follows this path, that of a program
    /// that is not looked at, and takes packets which come in this, or need room for what is put
    /// before them.
    #[inline(never)]
    pub fn limited_path(
        &mut self,
        (path, covers): (Path, &OuterMatches),
        (record, direction): (u32, Direction),
        like: RuleKey,
        packet: &Packet,
    ) -> Option<u32> {
        let stamp = self.common | like.0;
        let rule = self.get_mut(record, direction)?;
        let takes = rule.stamp == stamp && rule.path == path && rule.takes(packet, covers);
        takes.then_some(rule.keep_ms)
    }

    /// The outer headers that packets of a direction get, if their program puts some on.
    #[inline]
    pub fn outer(&self, record: u32, direction: Direction) -> Option<&OuterHeaders> {
        Some(&self.rest.get(record, self.outers?)?[direction.index()])
    }

    /// Returns the path of such a packet, of this flow and direction.
    #[inline(always)]
    pub fn path(
        &mut self,
        (record, direction): (u32, Direction),
        like: RuleKey,
        packet: &Packet,
        programs: &Programs,
    ) -> Path {
        let stamp = self.common | like.0;
        let Some(rule) = self.get_mut(record, direction) else { return Path::SLOW };
        if rule.stamp == stamp && rule.path.is_plain_fast() {
            return rule.path;
        }
        if !like.is_ordinary() {
            return Path::SLOW;
        }
        if rule.stamp != stamp {
            let of_before = rule.stamp as u32 == stamp as u32 && rule.stamp != 0;
            let before = rule.path.program().filter(|_| of_before);
            if before.is_some_and(|program| !program.is_predicted()) {
                return Path::REVALIDATE;
            }
            // What was predicted before a command is soon predicted again, if not at once.
            let walks = if before.is_some() { 1 } else { WALKS_FIRST };
            (rule.stamp, rule.path, rule.walks) = (stamp, Path::SLOW, walks);
            return if before.is_some() || like.is_lasting() { Path::PREDICT } else { Path::SLOW };
        }
        if let Some(program) = rule.path.program() {
            return if program.is_unwatched() { rule.path_of(packet, programs) } else { Path::REVALIDATE };
        }
        rule.walks = rule.walks.saturating_sub(1);
        if rule.walks == 0 { Path::RECORD } else { Path::SLOW }
    }

    /// The same, where it is asked seldom.
    #[cold]
    #[inline(never)]
    pub fn path_at_last(
        &mut self,
        of: (u32, Direction),
        like: RuleKey,
        packet: &Packet,
        programs: &Programs,
    ) -> Path {
        self.path(of, like, packet, programs)
    }

    /// Returns true if such a packet must be recorded, as [`RuleTable::path`] said.
    pub fn is_due(&self, record: u32, direction: Direction, like: RuleKey) -> bool {
        let stamp = self.common | like.0;
        self.get(record, direction)
            .is_some_and(|rule| rule.stamp == stamp && rule.path == Path::SLOW && rule.walks == 0)
    }

    /// The rule for packets of a direction, and its program, if there is one that no command came
    /// behind.
    pub fn current(&self, record: u32, direction: Direction) -> Option<(&CachedRule, ProgramId)> {
        let rule = self.get(record, direction)?;
        let is_current = rule.stamp & !u64::from(u32::MAX) == self.common;
        rule.path.program().filter(|_| is_current).map(|program| (rule, program))
    }

    /// Returns true if any packet may end the rule for packets of a direction.
    pub fn is_watched(&self, record: u32, direction: Direction) -> bool {
        let program = self.get(record, direction).and_then(|rule| rule.path.program());
        program.is_some_and(|program| !program.is_unwatched())
    }

    /// Returns the path of a packet whose rule was revalidated.
    pub fn revalidated_path(
        &mut self,
        (record, direction): (u32, Direction),
        packet: &Packet,
        programs: &Programs,
    ) -> Path {
        self.get_mut(record, direction).map_or(Path::SLOW, |rule| rule.path_of(packet, programs))
    }

    /// The rule was looked at, after a command: it holds on.
    pub fn renew(&mut self, record: u32, direction: Direction) {
        let common = self.common;
        if let Some(rule) = self.get_mut(record, direction) {
            rule.stamp = common | rule.stamp & u64::from(u32::MAX);
        }
    }

    /// The rule is none any more: the next packet of its kind is recorded.
    pub fn end(&mut self, record: u32, direction: Direction) {
        let like = self.get(record, direction).map_or(0, |rule| rule.stamp & u64::from(u32::MAX));
        self.record_next(record, direction, RuleKey(like));
    }

    /// The next packet of this kind is recorded.
    pub fn record_next(&mut self, record: u32, direction: Direction, like: RuleKey) {
        let stamp = self.common | like.0;
        if let Some(rule) = self.get_mut(record, direction) {
            (rule.stamp, rule.path, rule.walks) = (stamp, Path::SLOW, 1);
        }
    }

    /// The events of a rule, by their functions' places.
    pub fn events(&self, record: u32, direction: Direction) -> impl Iterator<Item = (usize, EventCondition)> {
        let program = self.get(record, direction).and_then(|rule| rule.path.program());
        let rest = program.filter(|program| program.has_events()).and_then(|_| self.rest.head(record));
        let events = rest.map_or(&[][..], |both| &both[direction.index()]);
        events.iter().map_while(|&StoredEvent { argument, id, stage, cause, .. }| {
            let cause = match cause {
                0 => return None,
                1 => Cause::Command,
                _ => Cause::Packet,
            };
            Some((usize::from(stage), EventCondition { id, argument, cause }))
        })
    }

    /// Such packets are treated so from now on. Events, if there are, are noted next.
    #[inline(always)]
    pub fn set(
        &mut self,
        record: u32,
        direction: Direction,
        like: RuleKey,
        (program, values): (ProgramId, RuleValues<'_>),
    ) {
        let stamp = self.common | like.0;
        if let Some(rule) = self.get_mut(record, direction) {
            let RuleValues { ends, keep_ms, len_max, tags, .. } = values;
            let path = Path::fast(program);
            let changes = if rule.stamp == stamp { rule.changes } else { 0 };
            let walks = WALKS_MIN << changes;
            *rule =
                CachedRule { stamp, keep_ms, ends: *ends, path, walks, failures: 0, changes, len_max, tags };
        }
        if let (Some(outers), Some(outer)) = (self.outers, values.outer)
            && let Some(both) = self.rest.get_mut(record, outers)
        {
            both[direction.index()] = *outer;
        }
    }

    /// Notes the events of a rule that was just set, at most [`EVENTS_MAX`].
    pub fn note_events(
        &mut self,
        record: u32,
        direction: Direction,
        events: impl Iterator<Item = (u16, EventCondition)>,
    ) {
        let Some(noted) = self.rest.head_mut(record) else { return };
        let noted = &mut noted[direction.index()];
        let mut free = noted.iter_mut();
        for (stage, EventCondition { id, argument, cause }) in events {
            let Some(noted) = free.next() else { return };
            *noted = StoredEvent { argument, id, stage, cause: cause as u8, spare: [0; 3] };
        }
        if let Some(end) = free.next() {
            end.cause = 0;
        }
    }

    /// No rule could be made of such a packet: some more of them walk before the next one is
    /// recorded.
    pub fn give_up(&mut self, record: u32, direction: Direction, like: RuleKey) {
        let stamp = self.common | like.0;
        if let Some(rule) = self.get_mut(record, direction) {
            let failures = if rule.path == Path::SLOW { rule.failures } else { 0 };
            rule.stamp = stamp;
            rule.path = Path::SLOW;
            rule.walks = WALKS_MIN << failures;
            rule.failures = (failures + 1).min(WALKS_DOUBLED_MAX);
        }
    }
}
