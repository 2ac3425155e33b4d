//! The cached rules of flows, apart from their records: for each direction a rule, which replaces
//! the slow path (B6), and the events that end it (B7). Rules are valid in this graph and table
//! only: a flow that moves is recorded again.

use nf::{Cause, Connection, EventCondition};
use packet::memory::{OutOfMemory, SlotArray, SlotField};
use packet::{Direction, Meta, NewEnds, OuterHeaders, OuterMatches, Packet, TagRoom};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::program::{Path, ProgramId, Programs};

/// Maximum number of a rule's events; a recording with more makes no rule.
pub(crate) const EVENTS_MAX: usize = 8;

/// Slow-path packets of a new kind before one is recorded, not counting a flow's first packet.
/// Recording would be wasted on flows and phases of connections that end sooner.
const WALKS_FIRST: u16 = 2;

/// Slow-path packets after a failed recording, before the next one; doubled after each failure, up
/// to `WALKS_DOUBLED_MAX` times. After the same number of packets in a row with outer headers other
/// than those that the rule removes, the flow's outer headers count as changed, as when another
/// router adds labels.
const WALKS_MIN: u16 = 8;
const WALKS_DOUBLED_MAX: u8 = 7;

/// Versions are the upper halves of stamps; none is 0.
const FIRST_VERSION: u64 = 1 << 32;

/// Both rules of each flow, by its record's number.
pub(crate) struct RuleTable {
    slots: SlotArray<[CachedRule; 2]>,
    /// Data that few packets need, stored apart, so that rules are close together: far apart, they
    /// would use only a few sets of the CPU's cache.
    rest: SlotArray<[[StoredEvent; EVENTS_MAX]; 2]>,
    /// The position in `rest` of the outer headers that packets get; `None` if no function adds
    /// any.
    outers: Option<SlotField<[OuterHeaders; 2]>>,
    /// The common part of all stamps: the version, which every command raises. Recorded rules of an
    /// earlier version are revalidated; predicted ones are predicted again.
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
    /// On the slow path: packets before the next recording. On the fast path: packets in a row with
    /// other outer headers before the rule ends.
    walks: u16,
    /// Failed recordings in a row.
    failures: u8,
    /// Recordings since packets arrived in other outer headers.
    changes: u8,
    /// If the program is limited: the length of the longest packet that follows it, in bytes of its
    /// IP packet; `u16::MAX` if packets get no outer headers.
    pub len_max: u16,
    /// The tags that packets must have room for.
    tags: TagRoom,
}

const _: () = assert!(size_of::<CachedRule>() == 64);

/// The room in the rules of a graph.
#[derive(Clone, Copy)]
pub(crate) struct RuleScope {
    /// True if functions add outer headers.
    pub wraps: bool,
}

/// The values of a rule: the flow's own part, without its program.
pub(crate) struct RuleValues<'a> {
    /// The ends that packets get.
    pub ends: &'a NewEnds,
    /// The timeout after a packet, in milliseconds, if functions set it.
    pub keep_ms: u32,
    /// The outer headers that packets get.
    pub outer: Option<&'a OuterHeaders>,
    /// The length of the longest packet that follows the rule, in bytes of its IP packet;
    /// `u16::MAX` without outer headers.
    pub len_max: u16,
    /// The tags that packets must have room for.
    pub tags: TagRoom,
}

/// An event that a function recorded.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct StoredEvent {
    argument: u64,
    id: u16,
    stage: u16,
    /// 0: no event; 1: caused by a command; 2: caused by a packet.
    cause: u8,
    spare: [u8; 3],
}

/// The properties that a packet must share with the recorded one, apart from flow and direction;
/// with the version, a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleKey(u64);

/// The fields that filters of a graph read and that may differ between packets of a flow: part of a
/// rule's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleGuards {
    /// TCP flags.
    pub tcp_flags: bool,
    /// The DSCP.
    pub dscp: bool,
}

impl RuleGuards {
    /// Returns true if filters read any of these fields.
    #[inline]
    pub fn is_any(self) -> bool {
        self.tcp_flags || self.dscp
    }
}

/// TCP flags that change a connection: FIN, SYN, RST.
pub(crate) const CHANGING: u8 = 7;

impl RuleKey {
    /// Returns the key for a packet found by the flow's alias or not, with the connection's phase
    /// after it.
    #[inline(always)]
    pub fn new(meta: &Meta, by_alias: bool, connection: Connection) -> RuleKey {
        let (side, flags) = (meta.transit.side as u64, u64::from(meta.tcp_flags & CHANGING));
        RuleKey(u64::from(connection.phase()) | side << 8 | u64::from(by_alias) << 9 | flags << 16)
    }

    /// Adds the fields that filters of the graph read.
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

    /// Returns true if many more such packets can be expected: the connection is not opening or
    /// closing.
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

    /// Returns true if a rule may apply to the packet: it does not change a connection.
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

    /// Returns true if a packet has the outer headers that the program removes, and room for the
    /// headers and tags that it adds.
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

    /// Prefetches the rule for packets of a direction.
    #[inline(always)]
    pub fn prefetch(&self, record: u32, direction: Direction) {
        self.slots.prefetch(record, direction.index() * size_of::<CachedRule>());
    }

    /// Raises the version after an operator's command.
    pub fn raise_version(&mut self) {
        self.common = self.common.wrapping_add(FIRST_VERSION).max(FIRST_VERSION);
    }

    /// Forgets a record's rules: the flow has none, or another one has the record.
    #[inline]
    pub fn forget(&mut self, record: u32) {
        if let Some(rules) = self.slots.head_mut(record) {
            rules.iter_mut().for_each(|rule| (rule.stamp, rule.failures) = (0, 0));
        }
    }

    /// Returns the rule for packets of a direction. It may be out of date: see [`RuleTable::path`].
    #[inline(always)]
    pub fn get(&self, record: u32, direction: Direction) -> Option<&CachedRule> {
        Some(&self.slots.head(record)?[direction.index()])
    }

    #[inline(always)]
    fn get_mut(&mut self, record: u32, direction: Direction) -> Option<&mut CachedRule> {
        Some(&mut self.slots.head_mut(record)?[direction.index()])
    }

    /// Returns the path of such a packet and its flow's timeout, if the program has no events of
    /// packets and takes every packet; otherwise `None`.
    #[inline(always)]
    pub fn plain_path(&self, (record, direction): (u32, Direction), like: RuleKey) -> Option<(Path, u32)> {
        let rule = self.get(record, direction)?;
        let is_plain = rule.stamp == self.common | like.0 && rule.path.is_plain_fast();
        is_plain.then_some((rule.path, rule.keep_ms))
    }

    /// Returns the flow's timeout after such a packet, if it follows this path of a limited program
    /// without events of packets. `covers`: the outer headers that the program removes.
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

    /// Returns the outer headers that packets of a direction get, if their program adds any.
    #[inline]
    pub fn outer(&self, record: u32, direction: Direction) -> Option<&OuterHeaders> {
        Some(&self.rest.get(record, self.outers?)?[direction.index()])
    }

    /// Returns the path of a packet of this flow and direction.
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
            // A rule predicted before a command is soon predicted again, if not at once.
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

    /// Same as [`RuleTable::path`], for rare calls.
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

    /// Returns true if such a packet must be recorded, as [`RuleTable::path`] decided.
    pub fn is_due(&self, record: u32, direction: Direction, like: RuleKey) -> bool {
        let stamp = self.common | like.0;
        self.get(record, direction)
            .is_some_and(|rule| rule.stamp == stamp && rule.path == Path::SLOW && rule.walks == 0)
    }

    /// Returns the rule for packets of a direction and its program, if it is of the current
    /// version.
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

    /// Returns the path of a packet after its rule was revalidated.
    pub fn revalidated_path(
        &mut self,
        (record, direction): (u32, Direction),
        packet: &Packet,
        programs: &Programs,
    ) -> Path {
        self.get_mut(record, direction).map_or(Path::SLOW, |rule| rule.path_of(packet, programs))
    }

    /// Marks a revalidated rule as current.
    pub fn renew(&mut self, record: u32, direction: Direction) {
        let common = self.common;
        if let Some(rule) = self.get_mut(record, direction) {
            rule.stamp = common | rule.stamp & u64::from(u32::MAX);
        }
    }

    /// Ends a rule: the next packet of its kind is recorded.
    pub fn end(&mut self, record: u32, direction: Direction) {
        let like = self.get(record, direction).map_or(0, |rule| rule.stamp & u64::from(u32::MAX));
        self.record_next(record, direction, RuleKey(like));
    }

    /// Schedules the recording of the next packet of this kind.
    pub fn record_next(&mut self, record: u32, direction: Direction, like: RuleKey) {
        let stamp = self.common | like.0;
        if let Some(rule) = self.get_mut(record, direction) {
            (rule.stamp, rule.path, rule.walks) = (stamp, Path::SLOW, 1);
        }
    }

    /// Returns the events of a rule, with their functions' numbers.
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

    /// Sets the rule for such packets. Its events, if any, are added by [`RuleTable::note_events`].
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

    /// Stores the events of a rule that was just set, at most [`EVENTS_MAX`].
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

    /// Notes that such a packet made no rule: some more take the slow path before the next
    /// recording.
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
