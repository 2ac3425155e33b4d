//! The dispatcher's flow table: owner and progress of each flow, found by key or alias.

use std::cmp::Reverse;
use std::ops::Range;

use crate::message::{FlowId, UnitId};
use nf::compared_silence_ns;
use nf::index::HashIndex;
use packet::FlowKey;
use packet::memory::{OutOfMemory, Zeroed, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::dispatcher::flow::{Flow, Flowlet};
use crate::dispatcher::key::ShortKey;
use crate::dispatcher::owner_column::OwnerColumn;

/// The flows of a dispatcher.
pub(crate) struct Flows {
    entries: Zeroed<Flow>,
    flowlets: Zeroed<Flowlet>,
    /// Keys that do not fit into the entry. Unused pages of the table take no memory.
    keys: Zeroed<LongKey>,
    aliases: Zeroed<AliasEntry>,
    owners: OwnerColumn,
    lookup: HashIndex,
    flows_max: u32,
    /// Indexes below this were used at least once.
    used: u32,
    live: u32,
    /// The first free index plus 1; 0 if there is none. The others follow in their `last`.
    free: u64,
    /// Position of the search for a flow to displace.
    hand: u32,
    ahead: Ahead,
    /// Changes of aliases that nobody has taken yet; `None` if nobody will.
    alias_changes: Option<Vec<AliasChange>>,
}

/// A change of the keys by which packets of flows arrive beside those that they began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasChange {
    /// The flow with this index has this alias.
    Set(u32, FlowKey),
    /// No flow has this alias any more.
    Freed(FlowKey),
}

/// The decision to prefetch flowlets with their flows: if many recent packets began one.
#[derive(Default)]
struct Ahead {
    flowlets: bool,
    /// Flowlets and packets at the last decision.
    said_at: (u64, u64),
}

/// A key that does not fit into a [`ShortKey`]: one cache line.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct LongKey {
    key: FlowKey,
    unused: [u64; 2],
}

impl LongKey {
    /// Returns true if this index's flow began with this key, which does not fit into a
    /// [`ShortKey`].
    #[inline(never)]
    fn is_of(&self, flow: &Flow, key: &FlowKey) -> bool {
        let short = ShortKey::of(key);
        flow.key() == short && !short.is_all() && self.key == *key
    }
}

/// The fields that only packets found by alias need: one cache line.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct AliasEntry {
    /// The key of rewritten packets; all zero if there is none.
    alias: FlowKey,
    alias_hash: u64,
    /// The order of the ends, see [`LostFlow::is_turned`](crate::dispatcher::LostFlow): 0 if it is
    /// not known, 1 if it is the same, 2 if it is turned.
    order: u64,
}

/// Another flow has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the alias belongs to {by}")]
pub struct AliasConflict {
    /// The flow that has it, as its key or its alias.
    pub by: FlowId,
}

/// The reason for which an alias was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasRefused {
    Taken(AliasConflict),
    /// The flow has ended.
    Late,
}

/// The flow of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMatch {
    pub index: u32,
    /// The hash of the key that the flow began with, whichever the packet has.
    pub hash: u64,
}

/// The likely flow of a hash, and whether by key or by alias; or none.
#[derive(Clone, Copy, Debug)]
pub struct FlowGuess(u32);

impl FlowGuess {
    /// No index entry has this number.
    const NONE: FlowGuess = FlowGuess(u32::MAX);

    /// Returns the index of the likely flow; for none, an index that no dispatcher has.
    #[inline]
    pub fn index(self) -> u32 {
        self.0 >> 1
    }
}

/// Number of flows sampled for displacement.
const DISPLACEMENT_SAMPLE: u32 = 16;

/// Packets per flowlet up to which flowlets are prefetched for all packets: one more line for each
/// then costs about as much as waiting for the lines of some.
const PACKETS_PER_FLOWLET: u64 = 6;

/// Returns the index entry for a flow's key. Entries for aliases differ, so no number is used
/// twice.
const fn by_key(index: u32) -> u32 {
    index << 1
}

const fn by_alias(index: u32) -> u32 {
    index << 1 | 1
}

impl Flows {
    /// Creates a table for this many flows, at most [`FLOWS_MAX`](crate::dispatcher::FLOWS_MAX).
    pub fn new(flows_max: u32) -> Result<Flows, OutOfMemory> {
        let count = flows_max as usize;
        Ok(Flows {
            entries: Zeroed::new(count)?,
            flowlets: Zeroed::new(count)?,
            keys: Zeroed::new(count)?,
            aliases: Zeroed::new(count)?,
            owners: OwnerColumn::new(count)?,
            lookup: HashIndex::new(2 * count)?,
            flows_max,
            used: 0,
            live: 0,
            free: 0,
            hand: 0,
            ahead: Ahead::default(),
            alias_changes: None,
        })
    }

    /// First step of a lookup: prefetches the index line.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.lookup.prefetch(hash);
    }

    /// Second step: prefetches the likely flow.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) -> FlowGuess {
        let Some(number) = self.lookup.guess(hash) else {
            return FlowGuess::NONE;
        };
        let index = (number >> 1) as usize;
        prefetch(self.entries.as_ptr().wrapping_add(index));
        if self.ahead.flowlets {
            self.prefetch_flowlet(index as u32);
        }
        if number & 1 == 1 {
            prefetch(self.aliases.as_ptr().wrapping_add(index));
        }
        FlowGuess(number)
    }

    /// Prefetches the flowlet of an index.
    #[inline]
    pub fn prefetch_flowlet(&self, index: u32) {
        prefetch(self.flowlets.as_ptr().wrapping_add(index as usize));
    }

    /// Predicts from the packets and flowlets since the last call whether packets to come begin
    /// flowlets. Both arguments are totals.
    pub fn expect_flowlets(&mut self, flowlets: u64, packets: u64) {
        let (flowlets_before, packets_before) = self.ahead.said_at;
        self.ahead.flowlets = (flowlets - flowlets_before) * PACKETS_PER_FLOWLET >= packets - packets_before;
        self.ahead.said_at = (flowlets, packets);
    }

    /// Returns true if many packets are expected to begin flowlets.
    #[inline]
    pub fn expects_flowlets(&self) -> bool {
        self.ahead.flowlets
    }

    /// Returns the index of a guessed flow.
    #[inline(always)]
    pub fn guessed(&self, guess: FlowGuess) -> Option<u32> {
        Some(guess.index()).filter(|&index| index < self.used)
    }

    /// Returns a guessed flow, to be changed, if it has this key or alias.
    #[inline(always)]
    pub fn find_guessed(&mut self, guess: FlowGuess, key: &FlowKey) -> Option<&mut Flow> {
        let index = guess.index() as usize;
        let flow = self.entries.get_mut(index)?;
        let is_it = match guess.0 & 1 {
            0 => flow.key().is_all_of(key) || self.keys[index].is_of(flow, key),
            _ => flow.is_live() && self.aliases[index].alias == *key,
        };
        is_it.then_some(flow)
    }

    /// Finds the flow with this key or alias.
    #[inline]
    pub fn find(&self, hash: u64, key: &FlowKey) -> Option<FlowMatch> {
        let short = ShortKey::of(key);
        let number = self.lookup.find(hash, |number| {
            let index = (number >> 1) as usize;
            match number & 1 {
                0 => self.is_at(index, short, key),
                _ => self.aliases[index].alias == *key,
            }
        })?;
        let index = number >> 1;
        let hash = if number & 1 == 0 { hash } else { self.hash(index) };
        Some(FlowMatch { index, hash })
    }

    /// Returns the entry of an index, which must be in the table.
    #[inline]
    pub fn get(&self, index: u32) -> &Flow {
        &self.entries[index as usize]
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut Flow {
        &mut self.entries[index as usize]
    }

    /// Returns the flowlet of an index, which must be in the table.
    #[inline]
    pub fn flowlet(&self, index: u32) -> &Flowlet {
        &self.flowlets[index as usize]
    }

    /// Notes a unit that refused the flow's state.
    pub fn add_refuser(&mut self, index: u32, unit: UnitId) {
        self.flowlets[index as usize].add_refuser(unit);
    }

    /// Forgets that a unit refused the flow's state.
    pub fn forget_refuser(&mut self, index: u32, unit: UnitId) {
        self.flowlets[index as usize].forget_refuser(unit);
    }

    /// Returns the key that the index's flow began with.
    pub fn key(&self, index: u32) -> FlowKey {
        self.get(index).key().whole().unwrap_or(self.keys[index as usize].key)
    }

    /// Returns entry and flowlet of an index, to be changed.
    #[inline]
    pub fn both_mut(&mut self, index: u32) -> (&mut Flow, &mut Flowlet) {
        (&mut self.entries[index as usize], &mut self.flowlets[index as usize])
    }

    /// Returns a live flow.
    pub fn live(&self, id: FlowId) -> Option<&Flow> {
        let flow = self.entries.get(id.index as usize)?;
        (flow.is_live() && flow.generation() == id.generation).then_some(flow)
    }

    /// Returns true if there was such a flow and it has ended.
    pub fn is_over(&self, id: FlowId) -> bool {
        id.index < self.used
            && self.entries.get(id.index as usize).is_some_and(|flow| flow.has_ended(id.generation))
    }

    /// Returns the flow with this index.
    #[inline]
    pub fn id(&self, index: u32) -> FlowId {
        FlowId { index, generation: self.get(index).generation() }
    }

    /// Returns the hash of the key that the flow began with.
    pub fn hash(&self, index: u32) -> u64 {
        self.flowlets[index as usize].hash()
    }

    /// Returns the end of the indexes that were ever used.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Returns the number of live flows.
    pub fn count(&self) -> u32 {
        self.live
    }

    /// Returns true if there is no index for another flow.
    pub fn is_full(&self) -> bool {
        self.free == 0 && self.used == self.flows_max
    }

    /// Creates a flow with this key, which no flow has, in epoch 1 of its owner. Returns its index;
    /// `None` if the table is full.
    pub fn create(&mut self, hash: u64, key: &FlowKey, owner: UnitId, now_ns: u64) -> Option<u32> {
        let index = match self.free.checked_sub(1) {
            Some(index) => index as u32,
            None if self.used < self.flows_max => self.used,
            None => return None,
        };
        // There is room: the hash index holds two entries per flow.
        self.lookup.insert(hash, by_key(index)).ok()?;
        let short = ShortKey::of(key);
        let next_free = self.entries[index as usize].begin(short, owner, now_ns);
        match self.free {
            0 => self.used += 1,
            _ => self.free = next_free,
        }
        self.live += 1;
        self.flowlets[index as usize] = Flowlet::first(hash, now_ns);
        self.owners.set(index, Some(owner));
        if !short.is_all() {
            self.keys[index as usize].key = *key;
        }
        Some(index)
    }

    /// Makes another unit the flow's owner. Returns false, and nothing has changed, if the epochs
    /// are exhausted.
    pub fn hand_to(&mut self, index: u32, unit: UnitId) -> bool {
        let is_handed = self.entries[index as usize].hand_to(unit);
        if is_handed {
            self.owners.set(index, Some(unit));
        }
        is_handed
    }

    /// Returns the first index of this range, which must be in the table, with a flow of this unit.
    pub fn first_of(&self, unit: UnitId, indexes: Range<u32>) -> Option<u32> {
        self.owners.first_of(unit, indexes)
    }

    /// Removes a flow. Returns true if its index may be used again.
    pub fn remove(&mut self, index: u32) -> bool {
        self.drop_alias(index);
        self.lookup.remove(self.hash(index), by_key(index));
        self.owners.set(index, None);
        self.live -= 1;
        let is_free = self.entries[index as usize].end(self.free);
        if is_free {
            self.free = u64::from(index) + 1;
        }
        is_free
    }

    /// Returns true if the index has a flow that has been silent for this long.
    #[inline]
    pub fn is_silent(&self, index: u32, now_ns: u64, silent_ns: u64) -> bool {
        let flow = self.get(index);
        flow.is_live() && now_ns.saturating_sub(flow.last_seen_ns()) >= silent_ns
    }

    /// Returns a flow to end for a new one: of a few sampled flows that have been silent for this
    /// long, the longest silent by [`compared_silence_ns`]. So a flood of queries displaces itself
    /// and no idle connections.
    pub fn victim(&mut self, now_ns: u64, silent_ns: u64) -> Option<u32> {
        let used = self.used.max(1);
        let sample = (0..DISPLACEMENT_SAMPLE.min(self.used)).map(|i| (self.hand + i) % used);
        let silence_ns = |index| {
            let flow = self.get(index);
            compared_silence_ns(now_ns.saturating_sub(flow.last_seen_ns()), flow.seq())
        };
        let victim = sample
            .filter(|&index| self.is_silent(index, now_ns, silent_ns))
            .max_by_key(|&index| (silence_ns(index), Reverse(index)));
        self.hand = (self.hand + DISPLACEMENT_SAMPLE) % used;
        victim
    }

    /// Sets the key of the flow's rewritten packets, in place of the previous one.
    pub fn set_alias(&mut self, id: FlowId, alias: &FlowKey, hash: u64) -> Result<(), AliasRefused> {
        if self.live(id).is_none() {
            return Err(AliasRefused::Late);
        }
        let is_needed =
            !self.is_at(id.index as usize, ShortKey::of(alias), alias) && *alias != FlowKey::default();
        if let Some(other) = self.find(hash, alias).filter(|other| other.index != id.index) {
            return Err(AliasRefused::Taken(AliasConflict { by: self.id(other.index) }));
        }
        self.drop_alias(id.index);
        // There is room: the hash index holds two entries per flow.
        if is_needed && self.lookup.insert(hash, by_alias(id.index)).is_ok() {
            let back = &mut self.aliases[id.index as usize];
            (back.alias, back.alias_hash, back.order) = (*alias, hash, 0);
            if let Some(changes) = &mut self.alias_changes {
                changes.push(AliasChange::Set(id.index, *alias));
            }
        }
        Ok(())
    }

    /// Returns the flow's alias, and whether its ends are turned, as far as that is known. Without
    /// an alias they are not.
    pub fn alias(&self, index: u32) -> (Option<FlowKey>, Option<bool>) {
        let back = &self.aliases[index as usize];
        match (back.alias == FlowKey::default(), back.order) {
            (true, _) => (None, Some(false)),
            (false, 0) => (Some(back.alias), None),
            (false, order) => (Some(back.alias), Some(order == 2)),
        }
    }

    /// Notes the order of the ends of the flow's alias.
    pub fn set_alias_order(&mut self, index: u32, is_turned: Option<bool>) {
        self.aliases[index as usize].order = is_turned.map_or(0, |is_turned| 1 + u64::from(is_turned));
    }

    /// Notes changes of aliases from now on.
    pub fn note_aliases(&mut self) {
        self.alias_changes = Some(Vec::new());
    }

    /// Takes the next noted changes of aliases, in order.
    pub fn take_alias_changes(&mut self) -> Vec<AliasChange> {
        self.alias_changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns true if the index's flow began with this key.
    pub fn began_with(&self, index: u32, key: &FlowKey) -> bool {
        self.is_at(index as usize, ShortKey::of(key), key)
    }

    /// The same for a caller that has the key's short form.
    #[inline(always)]
    fn is_at(&self, index: usize, short: ShortKey, key: &FlowKey) -> bool {
        self.entries[index].key() == short && (short.is_all() || self.keys[index].key == *key)
    }

    /// Removes the flow's alias.
    pub fn drop_alias(&mut self, index: u32) {
        let back = &mut self.aliases[index as usize];
        if back.alias != FlowKey::default() {
            let freed = std::mem::take(&mut back.alias);
            self.lookup.remove(back.alias_hash, by_alias(index));
            if let Some(changes) = &mut self.alias_changes {
                changes.push(AliasChange::Freed(freed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Addr, Endpoint, FlowHasher, Scope};

    fn create(flows: &mut Flows, port: u16, seq: u64, now_ns: u64) -> u32 {
        let end = |host| Endpoint::new(Addr::from_v4_bytes([10, 0, 0, host]), port);
        let (key, _) = FlowKey::new(end(1), end(2), 17, 4, Scope::default(), 0);
        let index = flows.create(FlowHasher::new(1).hash(&key), &key, UnitId(0), now_ns).unwrap();
        (0..seq).for_each(|_| flows.get_mut(index).number(now_ns, 0));
        index
    }

    #[test]
    fn conversations_that_are_over_give_way_to_short_flows_that_are_not() {
        let mut flows = Flows::new(16).unwrap();
        let old: Vec<u32> = (1..16).map(|port| create(&mut flows, port, 16, 0)).collect();
        let young = create(&mut flows, 16, 2, 90_000);
        for _ in 0..15 {
            let victim = flows.victim(100_000, 5_000).unwrap();
            assert!(old.contains(&victim), "{young} has been silent for a tenth of the time");
            flows.remove(victim);
        }
    }

    #[test]
    fn a_conversation_outlives_queries() {
        let mut flows = Flows::new(16).unwrap();
        let idle = create(&mut flows, 1, 100, 0);
        (2..17).for_each(|port| {
            create(&mut flows, port, 2, 10);
        });
        for port in 17..100 {
            let victim = flows.victim(1_000, 500).unwrap();
            assert_ne!(victim, idle);
            flows.remove(victim);
            create(&mut flows, port, 2, 20);
        }
        // It is the only one that has been silent for so long.
        assert_eq!(flows.victim(1_000, 990), Some(idle));
    }
}
