//! The flow table: finds a packet's record by its key, alias or handle, and expires flows.

mod classes;
mod handles;
mod ingresses;
mod joining;
mod second_passes;
mod timeouts;
mod wheel;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use nf::index::HashIndex;
use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use packet::memory::OutOfMemory;
use packet::{Direction, FlowHasher, FlowKey, Meta, Packet, Side};
use zerocopy::FromBytes;

use crate::cache::FlowCache;
use classes::Classes;
pub(crate) use classes::Victim;
pub use classes::{FlowClass, Shares};
use handles::FlowHandles;
use ingresses::Ingresses;
use joining::AS_LONG_AS_BEFORE;
pub(crate) use joining::Joining;
pub(crate) use second_passes::SecondPass;
use second_passes::SecondPasses;
pub use timeouts::Timeouts;
use wheel::Wheel;

/// The flows' records, the index of their keys and aliases, their handles, classes and timers.
pub(crate) struct FlowTable {
    pub records: FlowRecords,
    index: HashIndex,
    wheel: Wheel,
    hasher: FlowHasher,
    /// The flows by class: which of them gives way.
    pub classes: Classes,
    pub handles: FlowHandles,
    /// The flows that turn back.
    pub passes: SecondPasses,
    /// The way packets join their flows.
    pub joining: Joining,
    /// The ports where flows entered, if that matters.
    pub ingresses: Option<Ingresses>,
    layout: RecordLayout,
    /// The registry of aliases, if other graphs have other shares of the flows.
    ledger: Option<Arc<dyn Ledger>>,
}

/// The registry of aliases of graphs that each have a share of the flows. Packets with an alias
/// must reach the graph that claimed it. The graphs have one seed, so that a key has one hash.
pub trait Ledger: Send + Sync {
    /// Claims packets with keys of this hash for this graph. Returns false if another graph has
    /// them, or there is no room.
    fn claim(&self, hash: u64) -> bool;

    /// Releases a claim.
    fn release(&self, hash: u64);
}

/// A saved record cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOverError {
    /// It is not a saved record of this table.
    Damaged,
    /// A flow with its key or alias is already here.
    Known,
    /// The table is full.
    Full,
}

/// The holder of the key that a flow needs as its alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasHolder {
    /// The flow with this record.
    ByFlow(u32),
    /// A flow of another graph.
    Elsewhere,
}

/// An index entry: the number of the flow's record, whether the entry is for its alias
/// (no entry stands in the index twice), and which direction packets have whose key is not
/// reversed.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    /// Returns the entry for the flow's own key.
    fn by_key(record: u32, header: &RecordHeader) -> Entry {
        Entry(record << 2 | u32::from(header.has(RecordHeader::FLAG_REVERSED)))
    }

    /// Returns the entry for the flow's alias, the key of its packets after functions rewrote them.
    fn by_alias(record: u32, header: &RecordHeader) -> Entry {
        Entry(record << 2 | 2 | u32::from(header.has(RecordHeader::FLAG_ALIAS_REVERSED)))
    }

    #[inline(always)]
    fn record(self) -> u32 {
        self.0 >> 2
    }

    /// The direction of a packet that was found by it.
    #[inline(always)]
    fn direction(self, reversed: bool) -> Direction {
        if reversed == (self.0 & 1 != 0) { Direction::Original } else { Direction::Reply }
    }
}

impl FlowTable {
    pub fn new(
        flows_max: u32,
        layout: RecordLayout,
        hasher: FlowHasher,
        (shares, seed): (Shares, u64),
        (joining, remembers_ports): (Joining, bool),
    ) -> Result<FlowTable, OutOfMemory> {
        let flows_max = flows_max.clamp(1, u32::MAX / 4);
        Ok(FlowTable {
            records: FlowRecords::new(flows_max, layout.clone())?,
            index: HashIndex::new(2 * flows_max as usize)?,
            wheel: Wheel::new(flows_max),
            hasher,
            classes: Classes::new(flows_max, &shares, seed)?,
            handles: FlowHandles::new(flows_max),
            passes: SecondPasses::default(),
            joining,
            ingresses: remembers_ports.then(|| Ingresses::new(flows_max)),
            layout,
            ledger: None,
        })
    }

    /// Replaces the table by an empty one. Without memory for another one the records stay, and
    /// those of `live` flows are none of any flow.
    pub fn renew(&mut self, live: &[u32], shares: (Shares, u64)) {
        let capacity = self.records.capacity();
        match FlowTable::new(capacity, self.layout.clone(), self.hasher, shares, (self.joining, false)) {
            Ok(new) => {
                let (ledger, ingresses) = (self.ledger.take(), self.ingresses.take());
                *self = FlowTable { ledger, ingresses, ..new };
            }
            Err(_) => live.iter().for_each(|&record| {
                if self.records.header(record).has(RecordHeader::FLAG_LIVE) {
                    let removed = catch_unwind(AssertUnwindSafe(|| self.remove(record)));
                    drop(removed);
                }
            }),
        }
    }

    /// Claims aliases in this ledger from now on.
    pub fn set_ledger(&mut self, ledger: Arc<dyn Ledger>) {
        self.ledger = Some(ledger);
    }

    /// Returns the layout of records.
    #[inline]
    pub fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// Returns the hash of a key.
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hasher.hash(key)
    }

    /// Prefetches the index's line: the first step of a look-up.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Returns the probable record, and prefetches its header and the rule for such packets: the
    /// second step.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: u64, reversed: bool, cache: Option<&FlowCache>) -> Option<u32> {
        let entry = Entry(self.index.guess(hash)?);
        self.records.prefetch_header(entry.record());
        if let Some(cache) = cache {
            cache.prefetch(entry.record(), entry.direction(reversed));
        }
        Some(entry.record())
    }

    /// Returns the newest record with this handle, and prefetches its header and rules.
    #[inline]
    pub fn prefetch_handle(&self, handle: u32, cache: Option<&FlowCache>) -> Option<u32> {
        let record = self.handles.newest(handle)?;
        self.records.prefetch_header(record);
        if let Some(cache) = cache {
            cache.prefetch(record, Direction::Original);
            cache.prefetch(record, Direction::Reply);
        }
        Some(record)
    }

    /// Returns the flow with this key or alias.
    pub fn find(&self, hash: u64, key: &FlowKey, reversed: bool) -> Option<(u32, Direction)> {
        let mut direction = None;
        let entry = self.index.find(hash, |entry| {
            direction = self.records.header(Entry(entry).record()).direction_of(key, reversed);
            direction.is_some()
        })?;
        Some((Entry(entry).record(), direction?))
    }

    /// Creates a record for the flow that this packet begins at `now_ns`; `None` if the table is
    /// full.
    pub fn create(&mut self, packet: &Packet, now_ns: u64) -> Option<u32> {
        let record = self.records.allocate()?;
        let meta = packet.meta();
        let header = self.records.header_mut(record);
        header.flags = RecordHeader::FLAG_LIVE;
        header.set_key(meta.key, meta.reversed);
        if meta.transit.side == Side::Outside {
            header.flags |= RecordHeader::FLAG_FROM_OUTSIDE;
        }
        header.last_seen_ns = now_ns;
        if self.index.insert(meta.hash, Entry::by_key(record, header).0).is_err() {
            self.records.release(record); // As if the table were full: too many keys have hashes like this one's.
            return None;
        }
        self.classes.enter(record, header);
        Some(record)
    }

    /// Returns true if the record is that of a flow.
    pub fn is_live(&self, record: u32) -> bool {
        self.records.used().contains(&record) && self.records.header(record).has(RecordHeader::FLAG_LIVE)
    }

    /// Checks that a saved record can be taken over. Returns the keys that find it: its own, and
    /// its alias if it has one.
    pub fn check(&self, bytes: &[u8]) -> Result<[Option<FlowKey>; 2], TakeOverError> {
        let Ok((header, _)) = RecordHeader::read_from_prefix(bytes) else {
            return Err(TakeOverError::Damaged);
        };
        if bytes.len() != self.records.record_len() || !header.has(RecordHeader::FLAG_LIVE) {
            return Err(TakeOverError::Damaged);
        }
        let keys = [Some(header.key), header.has(RecordHeader::FLAG_ALIAS).then_some(header.alias)];
        let is_known = |key: &FlowKey| self.find(self.hasher.hash(key), key, false).is_some();
        if keys.iter().flatten().any(is_known) { Err(TakeOverError::Known) } else { Ok(keys) }
    }

    /// Creates a record from a saved one.
    pub fn take_over(&mut self, bytes: &[u8]) -> Result<u32, TakeOverError> {
        let keys = self.check(bytes)?;
        debug_assert!(self.ledger.is_none(), "flows do not move between graphs that have parts of them each");
        let record = self.records.allocate().ok_or(TakeOverError::Full)?;
        self.records.load(record, bytes);
        let header = self.records.header(record);
        let entries = [Entry::by_key(record, header), Entry::by_alias(record, header)];
        let entries =
            keys.into_iter().zip(entries).filter_map(|(key, entry)| Some((self.hasher.hash(&key?), entry)));
        let mut entered = Ok(());
        for (hash, entry) in entries.clone() {
            entered = entered.and_then(|()| self.index.insert(hash, entry.0));
        }
        if entered.is_err() {
            for (hash, entry) in entries {
                self.index.remove(hash, entry.0);
            }
            self.records.release(record);
            return Err(TakeOverError::Full);
        }
        self.classes.enter(record, self.records.header(record));
        self.watch(record);
        Ok(record)
    }

    /// Sets the key of the flow's packets after the graph, or returns its holder.
    pub fn set_alias(&mut self, record: u32, alias: FlowKey, reversed: bool) -> Result<(), AliasHolder> {
        self.drop_alias(record);
        let header = self.records.header(record);
        if header.key == alias {
            return Ok(());
        }
        let hash = self.hasher.hash(&alias);
        if let Some((other, _)) = self.find(hash, &alias, reversed) {
            return Err(AliasHolder::ByFlow(other));
        }
        if self.ledger.as_ref().is_some_and(|ledger| !ledger.claim(hash)) {
            return Err(AliasHolder::Elsewhere);
        }
        let header = self.records.header_mut(record);
        header.alias = alias;
        header.flags |= RecordHeader::FLAG_ALIAS;
        if reversed {
            header.flags |= RecordHeader::FLAG_ALIAS_REVERSED;
        }
        if self.index.insert(hash, Entry::by_alias(record, header).0).is_err() {
            // Too many keys have hashes like this one's.
            self.drop_alias(record);
            return Err(AliasHolder::Elsewhere);
        }
        Ok(())
    }

    /// Removes a flow's alias.
    pub fn drop_alias(&mut self, record: u32) {
        let header = self.records.header_mut(record);
        if header.has(RecordHeader::FLAG_ALIAS) {
            let (entry, hash) = (Entry::by_alias(record, header), self.hasher.hash(&header.alias));
            header.flags &= !(RecordHeader::FLAG_ALIAS | RecordHeader::FLAG_ALIAS_REVERSED);
            self.index.remove(hash, entry.0);
            if let Some(ledger) = &self.ledger {
                ledger.release(hash);
            }
        }
    }

    /// Removes a flow. Returns its handle.
    pub fn remove(&mut self, record: u32) -> Option<u32> {
        self.drop_alias(record);
        let header = self.records.header(record);
        self.index.remove(self.hasher.hash(&header.key), Entry::by_key(record, header).0);
        self.classes.leave(record, header);
        self.wheel.cancel(record);
        self.records.release(record);
        self.handles.remove(record)
    }

    /// Joins a packet to its flow, which gets the class of its connection.
    #[inline]
    pub fn join(&mut self, meta: &mut Meta) {
        let record = meta.transit.flow;
        let header = self.records.header_mut(record);
        if self.joining.join(meta, header) {
            self.classes.follow(record, header);
        }
    }

    /// Refreshes a flow: its timeout is `keep_ms` from now, or [`AS_LONG_AS_BEFORE`]; 0 leaves it
    /// unchanged.
    pub fn refresh(&mut self, record: u32, now_ns: u64, keep_ms: u32) {
        if refresh(self.records.header_mut(record), now_ns, keep_ms) {
            self.bring_forward(record);
        }
    }

    /// Refreshes a flow for a packet that changes nothing else. Returns false, and does nothing, if
    /// the flow was not accepted before.
    #[inline]
    pub fn go_on(&mut self, record: u32, now_ns: u64, keep_ms: u32) -> bool {
        let header = self.records.header_mut(record);
        if !header.has(RecordHeader::FLAG_ACCEPTED) {
            return false;
        }
        if refresh(header, now_ns, keep_ms) {
            self.bring_forward(record);
        }
        true
    }

    #[cold]
    fn bring_forward(&mut self, record: u32) {
        self.wheel.bring_forward(record, self.records.header(record).deadline_ns());
    }

    /// Starts the flow's timer.
    pub fn watch(&mut self, record: u32) {
        self.wheel.set(record, self.records.header(record).deadline_ns());
    }

    /// Returns the next time at which a flow may expire.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.wheel.due_ns()
    }

    /// Collects the flows that have expired at `now_ns` in `due`, in order of their deadlines:
    /// exactly those with a last tick in the past, whenever this is called. They stay in the table.
    pub fn expired(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        due.clear();
        self.wheel.advance(now_ns, due);
        due.retain(|&record| {
            let header = self.records.header(record);
            let over = Wheel::tick(header.deadline_ns()) < Wheel::tick(now_ns);
            if !over {
                self.wheel.set(record, header.deadline_ns());
            }
            over
        });
        due.sort_unstable_by_key(|&record| (self.records.header(record).deadline_ns(), record));
    }

    /// Returns a flow to evict for a new one, if there is any.
    pub fn victim(&mut self, now_ns: u64) -> Option<Victim> {
        self.classes.victim(&self.records, now_ns)
    }

    /// Creates a record for the second pass of this packet's flow, which a function has just turned
    /// back. `key` is its current key.
    pub fn begin_second(
        &mut self,
        packet: &Packet,
        (key, reversed): (FlowKey, bool),
        now_ns: u64,
    ) -> Option<u32> {
        let record = self.records.allocate()?;
        let meta = packet.meta();
        let is_original = meta.transit.direction == Direction::Original;
        let header = self.records.header_mut(record);
        header.flags = RecordHeader::FLAG_TURNS;
        header.set_key(key, reversed == is_original);
        // The first packet of a second pass comes from the other side.
        if (meta.transit.side == Side::Inside) == is_original {
            header.flags |= RecordHeader::FLAG_FROM_OUTSIDE;
        }
        header.last_seen_ns = now_ns;
        Some(record)
    }

    /// Creates a record from a saved one of a second pass.
    pub fn take_second_over(&mut self, bytes: &[u8], pass: SecondPass) -> Result<u32, TakeOverError> {
        let Ok((header, _)) = RecordHeader::read_from_prefix(bytes) else {
            return Err(TakeOverError::Damaged);
        };
        let is_second = header.has(RecordHeader::FLAG_TURNS) && !header.has(RecordHeader::FLAG_LIVE);
        if bytes.len() != self.records.record_len() || !is_second {
            return Err(TakeOverError::Damaged);
        }
        let second = self.records.allocate().ok_or(TakeOverError::Full)?;
        self.records.load(second, bytes);
        self.passes.add(SecondPass { second, ..pass }, self.records.capacity());
        Ok(second)
    }

    /// Removes a flow's second pass.
    pub fn forget_second(&mut self, main: u32) {
        if let Some(second) = self.passes.remove(main) {
            self.records.release(second);
        }
    }

    /// Returns all flows, by number.
    pub fn live(&self) -> impl Iterator<Item = u32> + '_ {
        self.records.used().filter(|&record| self.records.header(record).has(RecordHeader::FLAG_LIVE))
    }
}

/// Refreshes a flow. Returns true if its deadline is earlier now, so that its timer must be brought
/// forward.
#[inline(always)]
fn refresh(header: &mut RecordHeader, now_ns: u64, keep_ms: u32) -> bool {
    if keep_ms == 0 {
        return false;
    }
    header.last_seen_ns = header.last_seen_ns.max(now_ns);
    if keep_ms == AS_LONG_AS_BEFORE {
        return false;
    }
    let shorter = keep_ms < header.timeout_ms;
    header.timeout_ms = keep_ms;
    shorter
}
