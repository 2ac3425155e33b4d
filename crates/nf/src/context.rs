//! What a function has at hand beside the packet and its state.

use std::any::Any;

use packet::{Addr, Direction, DropReason, Endpoint, FlowKey, Side, Transit, split_mix};

use crate::buffers::{Buffers, FlowBuffer, MemoryShortage, number_of};
use crate::common::Access;
use crate::contents::PayloadCache;
use crate::effects::{Alert, AlertDetail, AlertSeverity, AlertText, Effects, FlowReport};
use crate::event::{EventField, Head};
use crate::map::StateMap;
use crate::meters::Meters;
use crate::pool::SharedPool;
use crate::record::RecordHeader;
use crate::rule_counters::{RuleCounters, RuleLabel};
use crate::set::SharedSet;
use crate::{Connection, PacketView};

/// The longest that a flow can be kept after a packet, in milliseconds: some 49 days.
pub const KEEP_MS_MAX: u32 = u32::MAX - 1;

/// State of a function that its flows share, of the kinds that its descriptor declares.
#[derive(Default)]
pub struct SharedState {
    /// Counters, in the order of the descriptor.
    pub counters: Vec<u64>,
    /// Groups of counters, in the order of the descriptor.
    pub groups: Vec<CounterGroup>,
    /// Sets, in the order of the descriptor. These, pools and meters may be elsewhere if instances
    /// on other threads share them.
    pub sets: Vec<SharedSet>,
    /// Pools, in the order of the descriptor.
    pub pools: Vec<SharedPool>,
    /// Tables of meters, in the order of the descriptor.
    pub meters: Vec<Meters>,
    /// Contents, in the order of the descriptor; where they are, see `sets`.
    pub contents: Vec<PayloadCache>,
    /// The growing buffers of flows, if the descriptor wants some.
    pub buffers: Option<Buffers>,
    /// The function's rules, if it has some that operators write.
    pub rules: Vec<RuleCounters>,
    /// What the function told the operator about its configuration.
    pub warnings: Vec<String>,
    /// Addresses that the function owns.
    pub owned: Vec<OwnedAddresses>,
    /// Whether it keeps bytes of TCP streams from their receivers.
    pub prevents: bool,
}

/// Addresses that a function owns, as a NAT its external ones: whoever runs the chain between
/// networks tells neighbours that they are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedAddresses {
    /// The side whose neighbours use them; none: both.
    pub side: Option<Side>,
    /// The first of them.
    pub first: Addr,
    /// The last of them.
    pub last: Addr,
}

impl SharedState {
    /// Whether what one flow's packet does to it may matter to another flow's, so that their order
    /// counts. Counters are only added to, and pools change with flows that begin and end.
    pub fn is_order_sensitive(&self) -> bool {
        !self.sets.is_empty()
            || !self.contents.is_empty()
            || self.meters.iter().any(|meters| meters.capacity() > 0)
    }
}

/// Counters whose number and names follow from a function's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterGroup {
    /// The group's name in the descriptor.
    pub name: &'static str,
    /// The counters' names, as the function gave them.
    pub names: Vec<String>,
    /// What they have come to, in the same order.
    pub values: Vec<u64>,
}

impl CounterGroup {
    pub(crate) fn new(name: &'static str, names: Vec<String>) -> CounterGroup {
        let values = vec![0; names.len()];
        CounterGroup { name, names, values }
    }
}

/// What belongs to an instance of a function beside its configuration.
pub(crate) struct Instance {
    pub shared: SharedState,
    /// Whether its sets, pools and meters are others' too.
    pub access: Access,
    /// Where its attributes stand in tag words.
    pub tags: TagLayout,
    /// Its place in the chain.
    pub stage: u16,
    pub seed: u64,
    /// What the function works with from packet to packet, and what has no meaning between them.
    pub scratch: Option<Box<dyn Any + Send>>,
}

impl Instance {
    /// What flows share, with sets, pools and meters.
    #[inline]
    fn open(&mut self) -> &mut SharedState {
        self.access.open(&mut self.shared);
        &mut self.shared
    }

    /// Lets other instances have sets, pools and meters again, if they are theirs too.
    #[inline]
    pub fn close(&mut self) {
        self.access.close(&mut self.shared);
    }
}

/// What a function has at hand while it processes a packet or hears of its flow.
pub struct Context<'a> {
    pub(crate) transit: Transit,
    pub(crate) header: &'a mut RecordHeader,
    pub(crate) map: StateMap<'a>,
    pub(crate) instance: &'a mut Instance,
    pub(crate) effects: &'a mut Effects,
    /// Where made packets come from; none if packets are only read.
    pub(crate) buffers: Option<&'a mut packet::PacketPool>,
    pub(crate) draws: u32,
}

/// What the chain knows of the flow and of the packet at hand.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// Now: the packet's time, or the timer's.
    pub now_ns: u64,
    /// The packet's number in order of arrival.
    pub sequence: u64,
    /// The packet's number in its flow, from 1 (S58).
    pub seq: u64,
    /// The flow's key as it began.
    pub key: FlowKey,
    /// Whether the first packet's ends were in the key's opposite order.
    pub reversed: bool,
    /// Which way the packet goes in the flow.
    pub direction: Direction,
    /// The side that the packet entered by.
    pub side: Side,
    /// The side that the flow's first packet entered by.
    pub origin: Side,
    /// What the connection has come to, this packet included.
    pub connection: Connection,
}

/// Where a function's attributes stand in the packets' tag word; laid out by the chain.
#[derive(Clone, Debug, Default)]
pub struct TagLayout {
    /// For each attribute: shift and mask (before shifting).
    pub(crate) fields: Vec<(u32, u64)>,
}

impl TagLayout {
    /// A layout of these attributes from bit `first` on; none if 64 bits are not enough.
    pub fn new(attributes: &[crate::Attribute], mut first: u32) -> Option<(TagLayout, u32)> {
        let mut fields = Vec::new();
        for attribute in attributes {
            let bits = u32::from(attribute.bits.clamp(1, 16));
            if first + bits > 64 {
                return None;
            }
            fields.push((first, (1 << bits) - 1));
            first += bits;
        }
        Some((TagLayout { fields }, first))
    }

    /// The value of attribute number `attribute` in a tag word.
    pub fn get(&self, tags: u64, attribute: usize) -> u16 {
        self.fields.get(attribute).map_or(0, |&(shift, mask)| (tags >> shift & mask) as u16)
    }

    /// The bits of a tag word in which they stand.
    pub fn mask(&self) -> u64 {
        self.fields.iter().fold(0, |all, &(shift, mask)| all | mask << shift)
    }

    fn set(&self, tags: &mut u64, attribute: usize, value: u16) {
        if let Some(&(shift, mask)) = self.fields.get(attribute) {
            *tags = *tags & !(mask << shift) | (u64::from(value) & mask) << shift;
        }
    }
}

impl Context<'_> {
    /// What is known of flow and packet.
    #[inline(always)]
    pub fn flow(&self) -> FlowInfo {
        FlowInfo {
            now_ns: self.transit.timestamp_ns,
            sequence: self.transit.sequence,
            seq: self.transit.seq,
            key: self.header.key,
            reversed: self.header.has(RecordHeader::FLAG_REVERSED),
            direction: self.transit.direction,
            side: self.transit.side,
            origin: self.header.origin(),
            connection: self.connection(),
        }
    }

    /// The number of the flow's record: it names the flow in this chain for as long as it lasts. It
    /// means nothing elsewhere.
    #[inline]
    pub fn record(&self) -> u32 {
        self.transit.flow
    }

    /// The time of the packet, in nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.transit.timestamp_ns
    }

    /// Which way the packet goes in its flow.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.transit.direction
    }

    /// The side that the packet entered by.
    #[inline]
    pub fn side(&self) -> Side {
        self.transit.side
    }

    /// What the connection has come to, this packet included.
    #[inline]
    pub fn connection(&self) -> Connection {
        Connection::from_phase(self.transit.phase)
    }

    /// Source and destination that packets of the original direction leave the chain with: those of
    /// the flow's alias, or of its key if nothing rewrites them. None until a packet of the flow
    /// has left.
    pub fn ends_at_exit(&self) -> Option<(Endpoint, Endpoint)> {
        let header = &self.header;
        header.has(RecordHeader::FLAG_ACCEPTED).then(|| {
            if header.has(RecordHeader::FLAG_ALIAS) {
                header.alias.ends(header.has(RecordHeader::FLAG_ALIAS_REVERSED))
            } else {
                header.key.ends(header.has(RecordHeader::FLAG_REVERSED))
            }
        })
    }

    /// Asks for the flow to be kept for this long after the packet, at most [`KEEP_MS_MAX`]. The
    /// longest wish in the chain counts; a packet for which no function asks does not refresh its
    /// flow (RFC 4787 REQ-6).
    #[inline]
    pub fn keep_flow_ms(&mut self, ms: u32) {
        self.transit.keep_ms = self.transit.keep_ms.max(ms.min(KEEP_MS_MAX));
    }

    /// The same in nanoseconds, rounded up to milliseconds.
    pub fn keep_flow_ns(&mut self, ns: u64) {
        self.keep_flow_ms(u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(KEEP_MS_MAX));
    }

    /// The value under `key` in the flow's map (S21).
    pub fn get(&self, key: u64) -> Option<&[u8]> {
        self.map.get(key)
    }

    /// Sets the value under `key` in the flow's map (S21).
    pub fn put(&mut self, key: u64, value: &[u8]) -> Result<(), crate::PutError> {
        self.map.put(key, value)
    }

    /// Takes `key` out of the flow's map; whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        self.map.remove(key)
    }

    /// Takes a growing buffer out of the flow, to be changed and given back with
    /// [`Context::give_buffer`]; one that is not given back is empty afterwards. A function without
    /// such a buffer gets one that nothing fits in.
    pub fn take_buffer(&mut self, buffer: usize) -> FlowBuffer {
        match &mut self.instance.shared.buffers {
            Some(buffers) => buffers.take(self.map.behind(), buffer, self.header),
            None => FlowBuffer::default(),
        }
    }

    /// Gives the flow a buffer back, in place of whatever is there. An empty one takes no memory.
    pub fn give_buffer(&mut self, buffer: usize, bytes: FlowBuffer) {
        if let Some(buffers) = &mut self.instance.shared.buffers {
            buffers.give(self.map.behind(), buffer, bytes, self.header);
        }
    }

    /// How often something of a flow was not kept in growing buffers, or gave way to others, for
    /// want of memory: see [`Context::shortage`].
    pub fn shortages(&self) -> u64 {
        self.instance.shared.buffers.as_ref().map_or(0, Buffers::shortages)
    }

    /// Why that was the last time, and whether it is time to report it: seldom of one kind, of one
    /// source and of all.
    pub fn shortage(&mut self) -> Option<(MemoryShortage, bool)> {
        let buffers = self.instance.shared.buffers.as_mut()?;
        let kind = buffers.last_shortage()?;
        Some((kind, buffers.is_to_report(kind, self.header, self.transit.timestamp_ns)))
    }

    /// Whether the flow's buffer holds anything.
    pub fn has_buffer(&mut self, buffer: usize) -> bool {
        number_of(self.map.behind(), buffer).iter().any(|&byte| byte != 0)
    }

    /// Takes the instance's working memory: whatever a function needs while it processes a packet
    /// and may lose afterwards. A new one, unless it was given back with [`Context::give_scratch`].
    #[inline(always)]
    pub fn take_scratch<T: Any + Send + Default>(&mut self) -> Box<T> {
        self.instance.scratch.take().and_then(|scratch| scratch.downcast().ok()).unwrap_or_default()
    }

    /// Gives the working memory back for the next packet.
    #[inline]
    pub fn give_scratch<T: Any + Send>(&mut self, scratch: Box<T>) {
        self.instance.scratch = Some(scratch);
    }

    /// Adds to the counter with this number in the descriptor.
    #[inline]
    pub fn count(&mut self, counter: usize, by: u64) {
        if let Some(counter) = self.instance.shared.counters.get_mut(counter) {
            *counter = counter.wrapping_add(by);
        }
    }

    /// What the counter with this number in the descriptor has come to.
    #[inline]
    pub fn counted(&self, counter: usize) -> u64 {
        self.instance.shared.counters.get(counter).copied().unwrap_or(0)
    }

    /// Adds to a counter of the group with this number in the descriptor: the counter's number is
    /// its name's in [`crate::Setup::counters`].
    #[inline]
    pub fn count_in(&mut self, group: usize, counter: usize, by: u64) {
        if let Some(counter) =
            self.instance.shared.groups.get_mut(group).and_then(|g| g.values.get_mut(counter))
        {
            *counter = counter.wrapping_add(by);
        }
    }

    /// The counters of the group with this number in the descriptor, in the order of their names;
    /// none if there is no such group. For functions that add to several at once.
    #[inline]
    pub fn counters_of(&mut self, group: usize) -> &mut [u64] {
        self.instance.shared.groups.get_mut(group).map_or(&mut [], |group| &mut group.values)
    }

    /// The counters of the rule with this place in [`crate::Setup::rules`].
    #[inline]
    pub fn rule(&mut self, rule: usize) -> Option<&mut RuleCounters> {
        self.instance.shared.rules.get_mut(rule)
    }

    /// When the last packet came that keeps the flow.
    pub fn last_seen_ns(&self) -> u64 {
        self.header.last_seen_ns
    }

    /// The set with this number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such set: a mistake in the function's code, found by its first
    /// test.
    pub fn set(&mut self, set: usize) -> &mut SharedSet {
        &mut self.instance.open().sets[set]
    }

    /// The pool with this number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such pool: a mistake in the function's code, found by its
    /// first test.
    #[inline]
    pub fn pool(&mut self, pool: usize) -> &mut SharedPool {
        &mut self.instance.open().pools[pool]
    }

    /// The table of meters with this number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such table: a mistake in the function's code, found by its
    /// first test.
    #[inline]
    pub fn meters(&mut self, meters: usize) -> &mut Meters {
        &mut self.instance.open().meters[meters]
    }

    /// The contents with this number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such contents: a mistake in the function's code, found by its
    /// first test.
    #[inline]
    pub fn payload_cache(&mut self, contents: usize) -> &mut PayloadCache {
        &mut self.instance.open().contents[contents]
    }

    /// Lets other instances have sets, pools, meters and contents before the packet is through: for
    /// functions whose work behind that is long. What they hold may then be changed by others,
    /// until they are asked for again.
    #[inline]
    pub fn release_shared(&mut self) {
        self.instance.close();
    }

    /// Sets one of the function's attributes on this packet (E4).
    pub fn tag_packet(&mut self, attribute: usize, value: u16) {
        self.instance.tags.set(&mut self.transit.tags, attribute, value);
    }

    /// Sets one of the function's attributes on the flow: on this packet and all later ones (A29).
    pub fn tag_flow(&mut self, attribute: usize, value: u16) {
        self.instance.tags.set(&mut self.header.tags, attribute, value);
        self.tag_packet(attribute, value);
    }

    /// The value of one of the function's attributes on this packet.
    pub fn tag(&self, attribute: usize) -> u16 {
        self.instance.tags.get(self.transit.tags, attribute)
    }

    /// Raises an alert about this packet.
    pub fn alert(
        &mut self,
        signature_id: u32,
        signature: impl Into<AlertText>,
        category: impl Into<AlertText>,
        severity: AlertSeverity,
    ) {
        self.raise(signature_id, signature.into(), category.into(), severity, None, None);
    }

    /// Raises an alert about this packet, with what was found where.
    pub fn alert_in_detail(
        &mut self,
        signature_id: u32,
        signature: impl Into<AlertText>,
        category: impl Into<AlertText>,
        severity: AlertSeverity,
        detail: AlertDetail,
    ) {
        let detail = Some(Box::new(detail));
        self.raise(signature_id, signature.into(), category.into(), severity, detail, None);
    }

    /// Raises an alert about this packet by one of the function's [rules](crate::Setup::rules).
    pub fn alert_by_rule(
        &mut self,
        rule: &RuleLabel,
        category: impl Into<AlertText>,
        severity: AlertSeverity,
    ) {
        let place = (!rule.place.is_empty()).then(|| AlertText::from(&rule.place));
        self.raise(rule.number, AlertText::from(&rule.name), category.into(), severity, None, place);
    }

    fn raise(
        &mut self,
        signature_id: u32,
        signature: AlertText,
        category: AlertText,
        severity: AlertSeverity,
        detail: Option<Box<AlertDetail>>,
        place: Option<AlertText>,
    ) {
        let flow = self.flow();
        self.effects.alert(Alert {
            timestamp_ns: flow.now_ns,
            sequence: flow.sequence,
            stage: self.instance.stage,
            signature_id,
            signature,
            category,
            severity,
            key: flow.key,
            reversed: flow.reversed ^ (flow.direction == Direction::Reply),
            blocked: false,
            // As for events: the first packet's is noted when its group is through.
            has_packet: flow.sequence > 0,
            ingress: self.transit.ingress,
            place,
            detail,
        });
    }

    /// Where the flow's end is the occasion, and no packet goes a way: what alerts from here on are
    /// about goes this way.
    pub fn set_direction(&mut self, direction: Direction) {
        debug_assert!(self.transit.sequence == 0, "a packet goes its own way");
        self.transit.direction = direction;
    }

    /// Tells those who listen of something that happened in the flow's `about` direction: `kind` is
    /// what, in the words of EVE's `event_type`. Up to [`crate::EVENT_FIELDS_MAX`] fields; nothing
    /// is allocated for them.
    pub fn event(&mut self, kind: &'static str, about: Direction, fields: &[EventField<'_>]) {
        let flow = self.flow();
        let head = Head {
            timestamp_ns: flow.now_ns,
            sequence: flow.sequence,
            // Without a packet the number is 0; that of the first packet is told apart when its
            // group is through.
            packet: flow.sequence > 0,
            stage: self.instance.stage,
            reversed: flow.reversed ^ (about == Direction::Reply),
            ingress: self.transit.ingress,
            key: flow.key,
            kind,
            alerts_before: self.effects.alerts.len() as u32,
            first_field: 0,
            fields: 0,
            number: 0,
        };
        self.effects.events.tell(head, fields);
    }

    /// Reports a flow's counts to collectors.
    pub fn report_flow(&mut self, report: FlowReport) {
        self.effects.report(report, self.transit.sequence);
    }

    /// Sends `network`, an IP packet with its checksums, back to where this packet came from.
    pub fn answer(&mut self, packet: &PacketView<'_>, network: &[u8]) -> Result<(), DropReason> {
        let buffers = self.buffers.as_deref_mut().ok_or(DropReason::Internal)?;
        self.effects.answer(buffers, packet, network, self.instance.stage)
    }

    /// Says that the function now rewrites the flow's packets otherwise than before (a server was
    /// exchanged): the chain then learns the new reverse 5-tuple.
    pub fn relearn_alias(&mut self) {
        self.transit.relearn_alias = true;
    }

    /// 64 random bits: seeded, and the same wherever and whenever this packet is processed.
    pub fn random(&mut self) -> u64 {
        self.draws += 1;
        let words = self.header.key.words();
        let mut state = self.instance.seed
            ^ u64::from(self.instance.stage) << 48
            ^ u64::from(self.draws) << 32
            ^ self.transit.seq;
        for word in words {
            state = split_mix(&mut (state ^ word));
        }
        split_mix(&mut state)
    }
}
