//! Group boundaries: a group ends where batch processing would differ from per-packet processing.

use nf::AnswerScope;
use nf::record::RecordHeader;
use nf::stage::{PacketTotals, Stage};
use packet::parse::protocol;
use packet::{Meta, Packet, PacketClass, Side};

use crate::cache::{CHANGING, Path, RuleKey, TakenPath};
use crate::flows::Flows;
use crate::queue::GROUP_MAX;
use crate::routing::Routing;
use crate::topology::NfSet;

/// Packets from the front of what is left of a batch.
pub(crate) struct GatheredGroup {
    /// Their number and bytes.
    pub load: PacketTotals,
    /// Their path, or that of the first one.
    pub path: Path,
    /// True if it is the same for all.
    pub uniform: bool,
}

/// Forms groups of packets of known flows.
pub(crate) struct Groups {
    /// The paths of the group's packets.
    paths: [Path; GROUP_MAX],
    other_paths: OtherPaths,
    /// Maximum time that a group may span.
    span_ns: u64,
    /// In a graph with branches, true if a group has one packet of a flow, as filters may decide
    /// differently about the next one.
    once_per_flow: bool,
    /// True if several functions subscribe to streams. Bytes are added to streams in order of
    /// arrival, so all packets of a group that visit such functions visit the same one first.
    by_listener: bool,
    /// True if the batch may have packets of both sides; then `sides` decides which may be in one
    /// group.
    mixed: bool,
    sides: FlowSides,
    /// The packets of known flows that functions may answer, which are groups of their own; `None`
    /// until the next batch.
    apart: Option<AnsweredPackets>,
}

impl Groups {
    /// Creates groups that span up to `span_ns`. `is_order_sensitive`: a packet from one side may
    /// affect another flow's packet from the other side.
    pub fn new(span_ns: u64, is_order_sensitive: bool) -> Groups {
        Groups {
            paths: [Path::SLOW; _],
            other_paths: [Path::SLOW; _],
            span_ns,
            once_per_flow: false,
            by_listener: false,
            mixed: false,
            sides: FlowSides::new(is_order_sensitive),
            apart: None,
        }
    }

    /// Packets of the graph take different paths.
    pub fn branch(&mut self, once_per_flow: bool, by_listener: bool) {
        (self.once_per_flow, self.by_listener) = (once_per_flow, by_listener);
    }

    /// Begins a batch. `is_mixed`: it may have packets of both sides.
    #[inline]
    pub fn begin_batch(&mut self, stages: &[Box<dyn Stage>], is_mixed: bool) {
        self.mixed = is_mixed;
        if self.apart.is_none() {
            self.apart = Some(AnsweredPackets::of(stages));
        }
    }

    /// Returns true if the batch may have packets of both sides.
    #[inline]
    pub fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Returns the paths of the group's n packets.
    #[inline]
    pub fn paths(&self, count: usize) -> &[Path] {
        &self.paths[..count]
    }

    /// An operator may have changed which packets functions answer.
    pub fn note_command(&mut self) {
        self.apart = None;
    }

    /// Joins packets from the front of `packets` to their flows, up to the end of a group. If there
    /// is none, the path is that of the first packet: it is a group of its own, or its rule must be
    /// revalidated before packets are gathered again.
    #[inline(always)]
    pub fn gather(
        &mut self,
        packets: &mut [Packet],
        flows: &mut Flows,
        stages: &[Box<dyn Stage>],
    ) -> GatheredGroup {
        let may_be_apart = self.apart.is_some_and(|apart| apart.is_any);
        match (&flows.cache, may_be_apart, &flows.routing) {
            (None, false, None) => self.gather_as::<false, false, false>(packets, flows, stages),
            (None, true, None) => self.gather_as::<false, true, false>(packets, flows, stages),
            (Some(_), false, None) => self.gather_as::<true, false, false>(packets, flows, stages),
            (Some(_), true, None) => self.gather_as::<true, true, false>(packets, flows, stages),
            (None, _, Some(_)) => self.gather_as::<false, true, true>(packets, flows, stages),
            (Some(_), _, Some(_)) => self.gather_as::<true, true, true>(packets, flows, stages),
        }
    }

    /// `RULES`: whether there are any. `APART`: whether functions may answer packets of known
    /// flows. `BRANCHES`: whether packets take different paths.
    #[inline(never)]
    fn gather_as<const RULES: bool, const APART: bool, const BRANCHES: bool>(
        &mut self,
        packets: &mut [Packet],
        flows: &mut Flows,
        stages: &[Box<dyn Stage>],
    ) -> GatheredGroup {
        let (mixed, may_be_apart) = (self.mixed, self.apart.is_some_and(|apart| apart.is_any));
        if mixed {
            self.sides.clear();
        }
        let (mut flows_seen, once_per_flow) = (FlowSet::default(), BRANCHES && self.once_per_flow);
        let (by_listener, mut listener) = (BRANCHES && self.by_listener, None);
        let mut now_ns = flows.clock.now_ns();
        let begin_ns =
            packets.first().map_or(now_ns, |packet| now_ns.max(packet.meta().transit.timestamp_ns));
        let until_ns = flows.table.due_ns().min(begin_ns.saturating_add(self.span_ns));
        let (mut load, mut path, mut uniform) = (PacketTotals::default(), Path::SLOW, true);
        let (all, mut flow_paths) = (flows.table.layout().lines(), FlowPaths::default());
        // The path of the last packet, if others may follow it, and what they touch.
        let (mut followed, mut lines) = (Path::RECORD, all);
        let most = packets.len().min(GROUP_MAX);
        for packet in &mut packets[..most] {
            let is_apart = APART
                && may_be_apart
                && self.apart.is_some_and(|apart| apart.has(packet.meta(), packet.len()));
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
                flows.table.records.prefetch_states(meta.transit.flow, lines);
            }
            let listened = match &flows.routing {
                Some(routing) if by_listener => routing.listeners_of(meta.transit.flow, &flows.table.records),
                _ => None,
            };
            let Some(mut header) = flows.table.records.find_header_mut(meta.transit.flow) else { break };
            let (key, reversed) = (&meta.key, meta.reversed);
            let mut by_alias = false;
            let direction = header.direction_if_common(key, reversed).or_else(|| {
                by_alias = RULES && header.key != *key;
                // If both directions come from one side, one packet may end what the next one is
                // found by.
                let in_order = |direction: &_| BRANCHES || header.comes_from(meta.transit.side, *direction);
                header
                    .direction_if_any(key, reversed)
                    .filter(|direction| !header.has(RecordHeader::FLAG_TURNS) && in_order(direction))
            });
            let Some(direction) = direction else { break };
            if BRANCHES {
                let side = Routing::side_of(header, direction);
                if flows.routing.as_ref().is_some_and(|it| !it.admits(meta.transit.ingress, side)) {
                    break;
                }
                if by_listener {
                    let its = Listener::first(listened, side);
                    let is_another = listener.is_some() && its.is_some() && its != listener;
                    if is_another || its == Some(Listener::Unknown) && load.packets > 0 {
                        break;
                    }
                    listener = its.or(listener);
                }
                if once_per_flow {
                    if flows_seen.may_have(meta.transit.flow) {
                        break;
                    }
                    flows_seen.add(meta.transit.flow);
                }
                meta.transit.side = side;
            }
            if header.has_expired(now_ns) {
                break;
            }
            meta.transit.direction = direction;
            if BRANCHES
                && let Some(routing) = &flows.routing
                && routing.brought().take(meta, header)
                && let Some(cache) = &mut flows.cache
            {
                cache.forget(meta.transit.flow);
            }
            let connection = header.connection.after_whole(meta.protocol, meta.tcp_flags, direction);
            let (mut next, mut wish_ms) = (Path::SLOW, 0);
            if RULES && let Some(cache) = &mut flows.cache {
                let flow = meta.transit.flow;
                let mut like = RuleKey::new(meta, by_alias, connection);
                if BRANCHES && cache.guards.is_any() {
                    like = like.guarded(packet, cache.guards);
                    meta = packet.meta_mut();
                }
                if let Some((its, keep_ms)) = cache.plain_path((flow, direction), like) {
                    (next, wish_ms) = (its, keep_ms);
                    if next != followed {
                        (followed, lines) = (next, cache.lines(next, all));
                        if load.packets == 0 {
                            path = next;
                        }
                    }
                } else if let Some(keep_ms) = cache.limited_path(followed, (flow, direction), like, packet) {
                    (next, wish_ms) = (followed, keep_ms);
                    meta = packet.meta_mut();
                } else {
                    let is_seen = !flow_paths.walks(flow, path, &self.other_paths);
                    let seen = (stages, &flows.table.records);
                    let (routing, records) = (flows.routing.as_deref_mut(), &flows.table.records);
                    let its = &*packet;
                    let expected = move || match routing {
                        Some(routing) => routing.expected(its, records),
                        None => Some(TakenPath::LINE),
                    };
                    (next, wish_ms) = cache.choose(seen, its, (like, connection), (is_seen, expected));
                    let Some(again) = flows.table.records.find_header_mut(flow) else { break };
                    header = again;
                    meta = packet.meta_mut();
                    lines = cache.lines(next, all);
                    followed = if next.is_fast() { next } else { Path::RECORD };
                    if load.packets == 0 {
                        path = next;
                    }
                    if matches!(next, Path::RECORD | Path::REVALIDATE) {
                        break;
                    }
                }
                if next != path {
                    if !next.mixes() || !path.mixes() {
                        break;
                    }
                    uniform = false;
                }
                if !flow_paths.add(flow, next, path, &mut self.other_paths) {
                    break;
                }
                self.paths[load.packets as usize % GROUP_MAX] = next;
            }
            let to_all = !next.is_alone_to_itself();
            if mixed && !self.sides.add(meta.transit.flow, meta.transit.side, to_all) {
                break;
            }
            if RULES
                && next == Path::SLOW
                && meta.tcp_flags & CHANGING != 0
                && let Some(cache) = &mut flows.cache
            {
                cache.forget(meta.transit.flow);
            }
            if flows.table.joining.join_whole(meta, header, connection, wish_ms) {
                flows.table.classes.follow(meta.transit.flow, header);
            }
            if RULES {
                flows.table.records.prefetch_states(meta.transit.flow, lines);
            }
            load.add(packet.len());
            if is_apart || by_listener && listener == Some(Listener::Unknown) {
                break;
            }
        }
        flows.clock.advance(now_ns);
        if let Some(ingresses) = &mut flows.table.ingresses {
            let joined = packets.iter_mut().take(load.packets as usize);
            joined.for_each(|packet| ingresses.join(packet.meta_mut()));
        }
        GatheredGroup { load, path, uniform }
    }
}

/// The first function that a packet comes to and that wants streams.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listener {
    /// This one.
    Function(usize),
    /// It is not known which functions the packet comes to.
    Unknown,
}

impl Listener {
    /// Returns the first listener of a packet of this side, with these subscribers on its path.
    fn first(on_path: Option<NfSet>, side: Side) -> Option<Listener> {
        match on_path {
            Some(on_path) => on_path.first(side).map(Listener::Function),
            None => Some(Listener::Unknown),
        }
    }
}

/// The packets of known flows that a function may answer. They are groups of their own: the answer
/// visits the functions before the next packet does.
#[derive(Clone, Copy)]
pub(crate) struct AnsweredPackets {
    answers: AnswerScope,
    /// True if there may be any such packet.
    is_any: bool,
}

impl AnsweredPackets {
    /// Of these functions. Of one alone, answers come to no other.
    pub fn of(stages: &[Box<dyn Stage>]) -> AnsweredPackets {
        let answers = stages.iter().map(|stage| stage.answers()).fold(AnswerScope::NONE, AnswerScope::or);
        let answers = if stages.len() > 1 { answers } else { AnswerScope::NONE };
        AnsweredPackets { answers, is_any: answers != AnswerScope::NONE }
    }

    /// Returns true if a whole packet is one.
    #[inline(always)]
    pub fn has(&self, meta: &Meta, len: usize) -> bool {
        const SYN: u8 = 2;
        let AnswerScope { all, openings, longer_than } = self.answers;
        let opens = match meta.protocol {
            protocol::TCP => meta.tcp_flags & SYN != 0,
            protocol => protocol != protocol::UDP,
        };
        all || openings && opens || len.saturating_sub(usize::from(meta.outer_l3)) > longer_than as usize
    }
}

/// The flows with packets in the group, by the side that these entered by.
///
/// Functions see a group's packets from inside before those from outside. So a flow's packets of
/// both sides do not meet in a group, nor do any from both sides that come to functions that share
/// sets or meters.
pub(crate) struct FlowSides {
    /// For each side, the flows that have a packet in the group.
    flows: [FlowSet; 2],
    /// True if there is a packet of this side that comes to all functions.
    sides: [bool; 2],
    /// True if what a packet from one side does may matter to another flow's packet from the other.
    sides_apart: bool,
}

/// A set of flows, by the low bits of their records' numbers: some share a bit.
#[derive(Clone, Copy, Default)]
struct FlowSet([u64; FlowSet::WORDS]);

impl FlowSet {
    /// Enough for few of [`GROUP_MAX`] flows to share a bit.
    const WORDS: usize = 16;

    #[inline(always)]
    fn place(record: u32) -> (usize, u64) {
        (record as usize / 64 % FlowSet::WORDS, 1 << (record % 64))
    }

    /// Returns true if the flow may be in the set: some share a bit.
    #[inline(always)]
    fn may_have(&self, record: u32) -> bool {
        let (word, bit) = FlowSet::place(record);
        self.0[word] & bit != 0
    }

    #[inline(always)]
    fn add(&mut self, record: u32) {
        let (word, bit) = FlowSet::place(record);
        self.0[word] |= bit;
    }
}

impl FlowSides {
    pub fn new(sides_apart: bool) -> FlowSides {
        FlowSides { flows: [FlowSet::default(); 2], sides: [false; 2], sides_apart }
    }

    /// A packet of this flow joins the group; false if the group must be processed before.
    /// `to_all`: whether it comes to all functions.
    #[inline(always)]
    pub fn add(&mut self, record: u32, side: Side, to_all: bool) -> bool {
        let (side, other) = (side as usize, side.other() as usize);
        if self.flows[other].may_have(record) || self.sides[other] && self.sides_apart && to_all {
            return false;
        }
        self.flows[side].add(record);
        self.sides[side] |= to_all;
        true
    }

    /// The next group begins.
    #[inline]
    pub fn clear(&mut self) {
        self.flows = [FlowSet::default(); 2];
        self.sides = [false; 2];
    }
}

/// The path of each flow's packets in the group, flows by the low bits of their
/// number.
///
/// In a group with several paths, the packets of each path are processed together, slow-path ones
/// last. So a flow's packets take one path, and then may take the slow path, but not the reverse.
#[derive(Default)]
pub(crate) struct FlowPaths {
    /// Flows with a packet of the first packet's path, and with one of another.
    first: u64,
    others: u64,
}

/// The last path of each flow that has a packet of another path than the first one; memory that
/// is used again.
pub(crate) type OtherPaths = [Path; 64];

impl FlowPaths {
    /// Returns true if a packet of the flow is to walk. The group's first packet takes the path
    /// `first`.
    #[inline]
    pub fn walks(&self, record: u32, first: Path, of_others: &OtherPaths) -> bool {
        let (bit, place) = (1 << (record % 64), record as usize % 64);
        first == Path::SLOW && self.first & bit != 0
            || self.others & bit != 0 && of_others[place] == Path::SLOW
    }

    /// A packet of this flow joins the group; false if the group must be processed before.
    #[inline(always)]
    pub fn add(&mut self, record: u32, path: Path, first: Path, of_others: &mut OtherPaths) -> bool {
        let bit = 1 << (record % 64);
        if path == first {
            self.first |= bit;
            return self.others & bit == 0;
        }
        let of_flow = &mut of_others[record as usize % 64];
        let is_known = self.first & bit != 0 || self.others & bit != 0 && *of_flow != path;
        self.others |= bit;
        *of_flow = path;
        !is_known || path == Path::SLOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_takes_one_course_and_may_walk_then() {
        let [a, b, walk] = [Path::RECORD, Path::REVALIDATE, Path::SLOW]; // Any three.
        for (first, paths) in [(a, [b, a]), (a, [a, b]), (a, [walk, a]), (walk, [walk, a]), (a, [walk, b])] {
            let (mut group, others) = (FlowPaths::default(), &mut [walk; 64]);
            assert!(group.add(1, first, first, others));
            assert!(group.add(2, paths[0], first, others));
            assert!(!group.add(2, paths[1], first, others), "{first:?} {paths:?}");
            assert!(FlowPaths::default().add(2, paths[1], paths[1], others));
        }
        let (mut group, others) = (FlowPaths::default(), &mut [walk; 64]);
        for (flow, path) in [(1, a), (2, b), (2, b), (1, a), (1, walk), (2, walk), (66, walk)] {
            assert!(group.add(flow, path, a, others), "{flow}");
        }
        assert!(group.walks(1, a, others) && group.walks(2, a, others) && !group.walks(3, a, others));
    }
}
