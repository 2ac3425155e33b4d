//! The context of a call: flow facts, maps, buffers, shared state, alerts and answers.

use std::any::Any;

use packet::{Direction, DropReason, Endpoint, FlowKey, Side, Transit, split_mix};

use crate::affinity::AffinityGroup;
use crate::alert::{Alert, AlertDetail, AlertSeverity, AlertText};
use crate::buffers::{Buffers, FlowBuffer, MemoryShortage, number_of};
use crate::counters::{Counter, LabelledCounter};
use crate::effects::{Effects, FlowFindings, FlowReport};
use crate::event::{EventField, EventHeader};
use crate::map::StateMap;
use crate::meters::Meters;
use crate::payload_cache::PayloadCache;
use crate::pool::SharedPool;
use crate::record::RecordHeader;
use crate::rule_counters::{RuleCounters, RuleLabel};
use crate::set::SharedSet;
use crate::shared_state::SharedState;
use crate::sharing::Access;
use crate::{Connection, PacketView};

/// Longest time that a packet can keep a flow, in milliseconds: 49 days.
pub const KEEP_MS_MAX: u32 = u32::MAX - 1;

/// An instance's data except its configuration.
pub(crate) struct Instance {
    pub shared: SharedState,
    /// Access to sets, pools and meters shared with other threads.
    pub access: Access,
    /// Bit positions of the NF's attributes in tag words.
    pub tags: TagLayout,
    /// Index of the NF in the graph.
    pub stage: u16,
    pub seed: u64,
    /// The NF's working memory, without meaning between packets.
    pub scratch: Option<Box<dyn Any + Send>>,
}

impl Instance {
    /// Returns the shared state after acquiring sets, pools and meters.
    #[inline]
    fn open(&mut self) -> &mut SharedState {
        self.access.open(&mut self.shared);
        &mut self.shared
    }

    /// Releases sets, pools and meters to other instances that share them.
    #[inline]
    pub fn close(&mut self) {
        self.access.close(&mut self.shared);
    }
}

/// An NF's access to everything but the packet and the flow's state.
pub struct Context<'a> {
    pub(crate) transit: Transit,
    pub(crate) header: &'a mut RecordHeader,
    pub(crate) map: StateMap<'a>,
    pub(crate) instance: &'a mut Instance,
    pub(crate) effects: &'a mut Effects,
    /// Source of generated packets; `None` while packets are read-only.
    pub(crate) buffers: Option<&'a mut packet::PacketPool>,
    pub(crate) draws: u32,
}

/// Facts about the flow and the current packet.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// The current time: that of the packet or of the timer.
    pub now_ns: u64,
    /// The packet's number in order of arrival at the graph.
    pub sequence: u64,
    /// The packet's number in its flow, from 1 (S58).
    pub seq: u64,
    /// The flow's key when it began.
    pub key: FlowKey,
    /// Set if the first packet's source is the key's second end.
    pub reversed: bool,
    /// Direction of the packet in the flow.
    pub direction: Direction,
    /// The side that the packet entered by.
    pub side: Side,
    /// The side that the flow's first packet entered by.
    pub origin: Side,
    /// State of the connection, this packet included.
    pub connection: Connection,
}

/// Bit positions of an NF's attributes in the tag word; assigned by the graph.
#[derive(Clone, Debug, Default)]
pub struct TagLayout {
    /// For each attribute: shift and mask (before shifting).
    pub(crate) fields: Vec<(u32, u64)>,
}

impl TagLayout {
    /// Lays out the attributes from bit `first` on and returns the next free bit. `None` if 64 bits
    /// do not suffice.
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

    /// Returns the value of an attribute in a tag word.
    pub fn get(&self, tags: u64, attribute: usize) -> u16 {
        self.fields.get(attribute).map_or(0, |&(shift, mask)| (tags >> shift & mask) as u16)
    }

    /// Returns the place of an attribute in a tag word: its shift, and its mask before shifting.
    pub fn field(&self, attribute: usize) -> Option<(u32, u64)> {
        self.fields.get(attribute).copied()
    }

    /// Returns the mask of all attributes in a tag word.
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
    /// Returns the facts about flow and packet.
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

    /// Returns the flow's affinity group, by its first packet as it entered the graph
    /// ([`crate::NetworkFunction::group_of`]).
    pub fn affinity_group(&self) -> Option<AffinityGroup> {
        self.header.affinity_group()
    }

    /// Returns the number of the flow's record, which identifies the flow in this graph while it
    /// lives. It has no meaning elsewhere.
    #[inline]
    pub fn record(&self) -> u32 {
        self.transit.flow
    }

    /// Returns the time of the packet, in nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.transit.timestamp_ns
    }

    /// Returns the direction of the packet in its flow.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.transit.direction
    }

    /// Returns the side that the packet entered by.
    #[inline]
    pub fn side(&self) -> Side {
        self.transit.side
    }

    /// Returns the state of the connection, this packet included.
    #[inline]
    pub fn connection(&self) -> Connection {
        Connection::from_phase(self.transit.phase)
    }

    /// Returns source and destination of original-direction packets as they leave the graph: those
    /// of the flow's alias, or of its key if nothing rewrites them. `None` until a packet of the
    /// flow has left.
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

    /// Keeps the flow for at least this long after the packet, up to [`KEEP_MS_MAX`]. The longest
    /// time requested by any NF counts. A packet without any request does not refresh its flow (RFC
    /// 4787 REQ-6).
    #[inline]
    pub fn keep_flow_ms(&mut self, ms: u32) {
        self.transit.keep_ms = self.transit.keep_ms.max(ms.min(KEEP_MS_MAX));
    }

    /// Same as [`Context::keep_flow_ms`], in nanoseconds, rounded up to milliseconds.
    pub fn keep_flow_ns(&mut self, ns: u64) {
        self.keep_flow_ms(u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(KEEP_MS_MAX));
    }

    /// Returns the value under `key` in the flow's map (S21).
    pub fn get(&self, key: u64) -> Option<&[u8]> {
        self.map.get(key)
    }

    /// Sets the value under `key` in the flow's map (S21).
    ///
    /// # Errors
    /// The map is full, or the value is too long.
    pub fn put(&mut self, key: u64, value: &[u8]) -> Result<(), crate::PutError> {
        self.map.put(key, value)
    }

    /// Removes `key` from the flow's map. Returns false if it was absent.
    pub fn remove(&mut self, key: u64) -> bool {
        self.map.remove(key)
    }

    /// Takes a growing buffer out of the flow. Return it with [`Context::give_buffer`], or it will
    /// be empty. If the descriptor declares no such buffer, the result has no capacity.
    pub fn take_buffer(&mut self, buffer: usize) -> FlowBuffer {
        match &mut self.instance.shared.buffers {
            Some(buffers) => buffers.take(self.map.behind(), buffer, self.header),
            None => FlowBuffer::default(),
        }
    }

    /// Stores a buffer in the flow, replacing its current content. An empty one takes no memory.
    pub fn give_buffer(&mut self, buffer: usize, bytes: FlowBuffer) {
        if let Some(buffers) = &mut self.instance.shared.buffers {
            buffers.give(self.map.behind(), buffer, bytes, self.header);
        }
    }

    /// Returns the number of times that buffer content was refused or evicted for lack of memory,
    /// see [`Context::shortage`].
    pub fn shortages(&self) -> u64 {
        self.instance.shared.buffers.as_ref().map_or(0, Buffers::shortages)
    }

    /// Returns the cause of the latest shortage, and true if it should be reported now: reports are
    /// rate-limited per kind, per source and in total.
    pub fn shortage(&mut self) -> Option<(MemoryShortage, bool)> {
        let buffers = self.instance.shared.buffers.as_mut()?;
        let kind = buffers.last_shortage()?;
        Some((kind, buffers.is_to_report(kind, self.header, self.transit.timestamp_ns)))
    }

    /// Checks if the flow's buffer has content.
    pub fn has_buffer(&mut self, buffer: usize) -> bool {
        number_of(self.map.behind(), buffer).iter().any(|&byte| byte != 0)
    }

    /// Takes the instance's scratch memory. Its content may be lost between packets. Returns a
    /// default value unless the previous one was returned with [`Context::give_scratch`].
    #[inline(always)]
    pub fn take_scratch<T: Any + Send + Default>(&mut self) -> Box<T> {
        self.instance.scratch.take().and_then(|scratch| scratch.downcast().ok()).unwrap_or_default()
    }

    /// Returns the working memory for the next packet.
    #[inline]
    pub fn give_scratch<T: Any + Send>(&mut self, scratch: Box<T>) {
        self.instance.scratch = Some(scratch);
    }

    /// Adds to a counter of [`counters!`](crate::counters!).
    #[inline]
    pub fn count(&mut self, counter: Counter, by: u64) {
        self.instance.shared.counters.add(counter, by);
    }

    /// Adds to a counter with a label. `value` is the position of the label's value in
    /// [`crate::Setup::label_counters`].
    #[inline]
    pub fn count_at(&mut self, counter: LabelledCounter, value: usize, by: u64) {
        self.instance.shared.counters.add_at(counter, value, by);
    }

    /// Returns the counters of a rule, by its position in [`crate::Setup::rules`].
    #[inline]
    pub fn rule(&mut self, rule: usize) -> Option<&mut RuleCounters> {
        self.instance.shared.rules.get_mut(rule)
    }

    /// Returns the time of the last packet that refreshed the flow.
    pub fn last_seen_ns(&self) -> u64 {
        self.header.last_seen_ns
    }

    /// Returns a set, by its number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such set, a bug in the NF that its first test finds.
    pub fn set(&mut self, set: usize) -> &mut SharedSet {
        &mut self.instance.open().sets[set]
    }

    /// Returns a pool, by its number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such pool, a bug in the NF that its first test finds.
    #[inline]
    pub fn pool(&mut self, pool: usize) -> &mut SharedPool {
        &mut self.instance.open().pools[pool]
    }

    /// Returns a table of meters, by its number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such table, a bug in the NF that its first test finds.
    #[inline]
    pub fn meters(&mut self, meters: usize) -> &mut Meters {
        &mut self.instance.open().meters[meters]
    }

    /// Returns a payload cache, by its number in the descriptor.
    ///
    /// # Panics
    /// If the descriptor declares no such cache, a bug in the NF that its first test finds.
    #[inline]
    pub fn payload_cache(&mut self, contents: usize) -> &mut PayloadCache {
        &mut self.instance.open().contents[contents]
    }

    /// Releases sets, pools, meters and payload caches to other instances before a long
    /// computation. Others may change them until this instance uses them again.
    #[inline]
    pub fn release_shared(&mut self) {
        self.instance.close();
    }

    /// Sets one of the NF's attributes on this packet (E4).
    pub fn tag_packet(&mut self, attribute: usize, value: u16) {
        self.instance.tags.set(&mut self.transit.tags, attribute, value);
    }

    /// Sets one of the NF's attributes on the flow: on this packet and all later ones (A29).
    pub fn tag_flow(&mut self, attribute: usize, value: u16) {
        self.instance.tags.set(&mut self.header.tags, attribute, value);
        self.tag_packet(attribute, value);
    }

    /// Returns the value of one of the NF's attributes on this packet.
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

    /// Raises an alert about this packet, with details of the match.
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

    /// Raises an alert about this packet on behalf of one of the NF's [rules](crate::Setup::rules).
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
            // As for events: the first packet's flag is set when its group completes.
            has_packet: flow.sequence > 0,
            ingress: self.transit.ingress,
            place,
            detail,
        });
    }

    /// Sets the direction of alerts raised in `flow_end`, where no packet gives one.
    pub fn set_direction(&mut self, direction: Direction) {
        debug_assert!(self.transit.sequence == 0, "a packet has a direction of its own");
        self.transit.direction = direction;
    }

    /// Emits an event about the flow's `about` direction. `kind` is EVE's `event_type`. Fields
    /// beyond [`crate::EVENT_FIELDS_MAX`] are cut; nothing is allocated.
    pub fn event(&mut self, kind: &'static str, about: Direction, fields: &[EventField<'_>]) {
        let flow = self.flow();
        let head = EventHeader {
            timestamp_ns: flow.now_ns,
            sequence: flow.sequence,
            // Without a packet the number is 0. The first packet, also number 0, is marked when its
            // group completes.
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
        self.effects.events.push(head, fields);
    }

    /// Sends a flow's counters to the collectors.
    pub fn report_flow(&mut self, report: FlowReport) {
        self.effects.report(report, self.transit.sequence);
    }

    /// Adds findings to the flow's reports. For `flow_end`.
    pub fn find(&mut self, findings: FlowFindings) {
        self.effects.find(findings);
    }

    /// Sends `network`, an IP packet with valid checksums, to the sender of this packet.
    ///
    /// # Errors
    /// The drop reason, if no buffer is free or the packet is too long.
    pub fn answer(&mut self, packet: &PacketView<'_>, network: &[u8]) -> Result<(), DropReason> {
        let buffers = self.buffers.as_deref_mut().ok_or(DropReason::Internal)?;
        let towards = self.transit.side;
        self.effects.generate(buffers, packet, &[network], (self.instance.stage, towards, false))
    }

    /// Sends an IP packet with valid checksums, given in parts, by the side `towards`, directly
    /// after this packet, whatever its verdict. It visits no other NF and counts in no flow, so it
    /// must not be meant for the flow's hosts. Its link layer is that of this packet.
    ///
    /// Mark the packet with [`PacketView::mark_one_off`] or [`PacketView::mark_per_packet`]: a rule
    /// emits nothing.
    ///
    /// # Errors
    /// The drop reason, if no buffer is free or the packet is too long.
    pub fn emit(
        &mut self,
        packet: &PacketView<'_>,
        towards: Side,
        parts: &[&[u8]],
    ) -> Result<(), DropReason> {
        let buffers = self.buffers.as_deref_mut().ok_or(DropReason::Internal)?;
        self.effects.generate(buffers, packet, parts, (self.instance.stage, towards, true))
    }

    /// Declares that the NF now rewrites the flow differently (for example, to another server). The
    /// graph then learns the new reverse 5-tuple.
    pub fn relearn_alias(&mut self) {
        self.transit.relearn_alias = true;
    }

    /// Returns 64 random bits: seeded, and the same wherever and whenever this packet is processed.
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
