//! The flow table: whose a flow is and how far it has come, found by its key or by its alias.

use std::ops::Range;

use crate::message::{FlowId, UnitId};
use nf::index::HashIndex;
use packet::FlowKey;
use packet::memory::{OutOfMemory, Zeroed, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::dispatcher::flow::{Flow, Flowlet};
use crate::dispatcher::key::ShortKey;
use crate::dispatcher::owners::Owners;

/// The flows of a router.
pub(crate) struct Flows {
    slots: Zeroed<Flow>,
    flowlets: Zeroed<Flowlet>,
    /// Those keys of which a part stands in the slot: pages of the table that none needs take no
    /// memory.
    keys: Zeroed<WholeKey>,
    backs: Zeroed<Back>,
    owners: Owners,
    index: HashIndex,
    flows_max: u32,
    /// Slots that were ever used.
    used: u32,
    live: u32,
    /// The first free slot among them and 1; 0 for none. The others follow in their `last`.
    free: u64,
    /// Where the search for a flow to displace goes on.
    hand: u32,
    ahead: Ahead,
}

/// Whether flowlets are brought to the cache, too, ahead of their packets: only if many of late
/// began one.
#[derive(Default)]
struct Ahead {
    flowlets: bool,
    /// How many flowlets and packets there were when that was said.
    said_at: (u64, u64),
}

/// A key that is longer than it is in short: one cache line.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct WholeKey {
    key: FlowKey,
    unused: [u64; 2],
}

impl WholeKey {
    /// Whether this slot's flow began with this key, which is longer than it is in short.
    #[inline(never)]
    fn is_of(&self, flow: &Flow, key: &FlowKey) -> bool {
        let short = ShortKey::of(key);
        flow.key == short && !short.is_all() && self.key == *key
    }
}

/// What only packets that came by the alias need: one cache line.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Back {
    /// The key that rewritten packets have; all zero if there is none.
    alias: FlowKey,
    alias_hash: u64,
    unused: u64,
}

/// What was rewritten cannot reach this flow: it looks like another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the alias belongs to {by}")]
pub struct AliasTaken {
    /// The flow that has it, as its key or as its alias.
    pub by: FlowId,
}

/// Why a flow was not given an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAlias {
    Taken(AliasTaken),
    /// The flow is over.
    Late,
}

/// A flow that a packet belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub slot: u32,
    /// The hash of the key that it began with, whichever the packet has.
    pub hash: u64,
}

/// Which flow a hash probably stands for, and whether by its key or by its alias; or none.
#[derive(Clone, Copy, Debug)]
pub struct Guess(u32);

impl Guess {
    /// No entry of the index has this number.
    const NONE: Guess = Guess(u32::MAX);

    /// The slot of the flow that it probably is; of none, one that no router has.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0 >> 1
    }
}

/// Flows that are looked at when one has to go.
const DISPLACEMENT_SAMPLE: u32 = 16;

/// A flow with up to this many packets is taken for a query and its answer, not for a conversation.
const FEW_PACKETS: u64 = 4;

/// If so many packets come to a flowlet, or fewer, then flowlets are brought to the cache ahead of
/// all packets: a line more for each is then about what waiting for the lines of some would cost.
const PACKETS_PER_FLOWLET: u64 = 6;

/// The index names a flow by its key or by its alias; no number stands in it twice.
const fn by_key(slot: u32) -> u32 {
    slot << 1
}

const fn by_alias(slot: u32) -> u32 {
    slot << 1 | 1
}

impl Flows {
    /// Room for so many flows, at most [`FLOWS_MAX`](crate::dispatcher::FLOWS_MAX).
    pub fn new(flows_max: u32) -> Result<Flows, OutOfMemory> {
        let count = flows_max as usize;
        Ok(Flows {
            slots: Zeroed::new(count)?,
            flowlets: Zeroed::new(count)?,
            keys: Zeroed::new(count)?,
            backs: Zeroed::new(count)?,
            owners: Owners::new(count)?,
            index: HashIndex::new(2 * count)?,
            flows_max,
            used: 0,
            live: 0,
            free: 0,
            hand: 0,
            ahead: Ahead::default(),
        })
    }

    /// First step of a look-up: the index's line is on its way.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Second step: the flow that it probably is.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) -> Guess {
        let Some(number) = self.index.guess(hash) else {
            return Guess::NONE;
        };
        let slot = (number >> 1) as usize;
        prefetch(self.slots.as_ptr().wrapping_add(slot));
        if self.ahead.flowlets {
            self.prefetch_flowlet(slot as u32);
        }
        if number & 1 == 1 {
            prefetch(self.backs.as_ptr().wrapping_add(slot));
        }
        Guess(number)
    }

    /// The flowlet of a slot is on its way to the cache.
    #[inline]
    pub fn prefetch_flowlet(&self, slot: u32) {
        prefetch(self.flowlets.as_ptr().wrapping_add(slot as usize));
    }

    /// So many flowlets and packets there were so far: what comes will be like what came since this
    /// was said last.
    pub fn expect_flowlets(&mut self, flowlets: u64, packets: u64) {
        let (flowlets_before, packets_before) = self.ahead.said_at;
        self.ahead.flowlets = (flowlets - flowlets_before) * PACKETS_PER_FLOWLET >= packets - packets_before;
        self.ahead.said_at = (flowlets, packets);
    }

    /// Whether many packets are taken to begin flowlets.
    #[inline]
    pub fn expects_flowlets(&self) -> bool {
        self.ahead.flowlets
    }

    /// The slot of the flow that was guessed.
    #[inline(always)]
    pub fn guessed(&self, guess: Guess) -> Option<u32> {
        Some(guess.slot()).filter(|&slot| slot < self.used)
    }

    /// The flow that was guessed, to be changed, if it has this key or alias.
    #[inline(always)]
    pub fn find_guessed(&mut self, guess: Guess, key: &FlowKey) -> Option<&mut Flow> {
        let slot = guess.slot() as usize;
        let flow = self.slots.get_mut(slot)?;
        let is_it = match guess.0 & 1 {
            0 => flow.key.is_all_of(key) || self.keys[slot].is_of(flow, key),
            _ => flow.is_live() && self.backs[slot].alias == *key,
        };
        is_it.then_some(flow)
    }

    /// The flow with this key or alias.
    #[inline]
    pub fn find(&self, hash: u64, key: &FlowKey) -> Option<Found> {
        let short = ShortKey::of(key);
        let number = self.index.find(hash, |number| {
            let slot = (number >> 1) as usize;
            match number & 1 {
                0 => self.is_at(slot, short, key),
                _ => self.backs[slot].alias == *key,
            }
        })?;
        let slot = number >> 1;
        let hash = if number & 1 == 0 { hash } else { self.hash(slot) };
        Some(Found { slot, hash })
    }

    /// The slot; it must be one of the table's.
    #[inline]
    pub fn get(&self, slot: u32) -> &Flow {
        &self.slots[slot as usize]
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut Flow {
        &mut self.slots[slot as usize]
    }

    /// The flowlet of a slot, which must be one of the table's.
    #[inline]
    pub fn flowlet(&self, slot: u32) -> &Flowlet {
        &self.flowlets[slot as usize]
    }

    /// The slot and its flowlet, to be changed.
    #[inline]
    pub fn both_mut(&mut self, slot: u32) -> (&mut Flow, &mut Flowlet) {
        (&mut self.slots[slot as usize], &mut self.flowlets[slot as usize])
    }

    /// The slot of a flow that is not over, by its name.
    pub fn live(&self, id: FlowId) -> Option<&Flow> {
        let flow = self.slots.get(id.slot as usize)?;
        (flow.is_live() && flow.generation == id.generation).then_some(flow)
    }

    /// Whether there was a flow with this name, and is no longer.
    pub fn is_over(&self, id: FlowId) -> bool {
        id.slot < self.used
            && self.slots.get(id.slot as usize).is_some_and(|flow| {
                // A slot that is retired keeps its last flow's number; one that is free has that of
                // its next.
                let is_retired = flow.generation == u32::MAX && !flow.is_live();
                id.generation < flow.generation || (id.generation == flow.generation && is_retired)
            })
    }

    /// The name of the flow in a slot.
    #[inline]
    pub fn id(&self, slot: u32) -> FlowId {
        FlowId { slot, generation: self.get(slot).generation }
    }

    /// The hash of the key that the flow began with.
    pub fn hash(&self, slot: u32) -> u64 {
        self.flowlets[slot as usize].hash
    }

    /// Slots that were ever used are those below this one.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// How many flows there are.
    pub fn count(&self) -> u32 {
        self.live
    }

    /// Whether there is no slot for another flow.
    pub fn is_full(&self) -> bool {
        self.free == 0 && self.used == self.flows_max
    }

    /// A slot for a flow with this key, which no flow has, in epoch 1 of its owner; none if the
    /// table is full.
    pub fn create(&mut self, hash: u64, key: &FlowKey, owner: UnitId, now_ns: u64) -> Option<u32> {
        let slot = match self.free.checked_sub(1) {
            Some(slot) => slot as u32,
            None if self.used < self.flows_max => self.used,
            None => return None,
        };
        // There is room: the index holds two entries per flow.
        self.index.insert(hash, by_key(slot)).ok()?;
        let flow = &mut self.slots[slot as usize];
        match self.free {
            0 => self.used += 1,
            _ => self.free = flow.last,
        }
        self.live += 1;
        let short = ShortKey::of(key);
        *flow = Flow::new(short, flow.generation, owner, now_ns);
        self.flowlets[slot as usize] = Flowlet::first(hash, now_ns);
        self.owners.set(slot, Some(owner));
        if !short.is_all() {
            self.keys[slot as usize].key = *key;
        }
        Some(slot)
    }

    /// The flow is another unit's from now on; false, and nothing is done, if it had as many owners
    /// as can be counted.
    pub fn hand_to(&mut self, slot: u32, unit: UnitId) -> bool {
        let is_handed = self.slots[slot as usize].hand_to(unit);
        if is_handed {
            self.owners.set(slot, Some(unit));
        }
        is_handed
    }

    /// The first of these slots, which must be the table's, with a flow of this unit.
    pub fn first_of(&self, unit: UnitId, slots: Range<u32>) -> Option<u32> {
        self.owners.first_of(unit, slots)
    }

    /// Forgets the flow; whether its slot may have another.
    pub fn remove(&mut self, slot: u32) -> bool {
        self.drop_alias(slot);
        self.index.remove(self.hash(slot), by_key(slot));
        self.owners.set(slot, None);
        self.live -= 1;
        let flow = &mut self.slots[slot as usize];
        flow.epoch = 0;
        flow.key = ShortKey::default();
        let Some(generation) = flow.generation.checked_add(1) else {
            return false;
        };
        (flow.generation, flow.last) = (generation, self.free);
        self.free = u64::from(slot) + 1;
        true
    }

    /// Whether there is a flow in the slot that had no packet for so long.
    #[inline]
    pub fn is_silent(&self, slot: u32, now_ns: u64, silent_ns: u64) -> bool {
        let flow = self.get(slot);
        flow.is_live() && now_ns.saturating_sub(flow.last_seen_ns) >= silent_ns
    }

    /// A flow to give up for a new one: of a few that are silent for so long, the one silent
    /// longest, first among those with few packets. So a flood of queries displaces itself and not
    /// idle connections.
    pub fn victim(&mut self, now_ns: u64, silent_ns: u64) -> Option<u32> {
        let used = self.used.max(1);
        let sample = (0..DISPLACEMENT_SAMPLE.min(self.used)).map(|i| (self.hand + i) % used);
        let victim = sample
            .filter(|&slot| self.is_silent(slot, now_ns, silent_ns))
            .min_by_key(|&slot| (self.get(slot).clock > FEW_PACKETS, self.get(slot).last_seen_ns, slot));
        self.hand = (self.hand + DISPLACEMENT_SAMPLE) % used;
        victim
    }

    /// Notes the key that the flow's packets have once they are rewritten, in place of the one
    /// noted before.
    pub fn set_alias(&mut self, id: FlowId, alias: &FlowKey, hash: u64) -> Result<(), NoAlias> {
        if self.live(id).is_none() {
            return Err(NoAlias::Late);
        }
        let is_needed =
            !self.is_at(id.slot as usize, ShortKey::of(alias), alias) && *alias != FlowKey::default();
        if let Some(other) = self.find(hash, alias).filter(|other| other.slot != id.slot) {
            return Err(NoAlias::Taken(AliasTaken { by: self.id(other.slot) }));
        }
        self.drop_alias(id.slot);
        // There is room: the index holds two entries per flow.
        if is_needed && self.index.insert(hash, by_alias(id.slot)).is_ok() {
            let back = &mut self.backs[id.slot as usize];
            (back.alias, back.alias_hash) = (*alias, hash);
        }
        Ok(())
    }

    /// Whether the slot's flow began with this key.
    pub fn began_with(&self, slot: u32, key: &FlowKey) -> bool {
        self.is_at(slot as usize, ShortKey::of(key), key)
    }

    /// The same, where it is known how the key is in short.
    #[inline(always)]
    fn is_at(&self, slot: usize, short: ShortKey, key: &FlowKey) -> bool {
        self.slots[slot].key == short && (short.is_all() || self.keys[slot].key == *key)
    }

    /// The flow has no alias any more.
    pub fn drop_alias(&mut self, slot: u32) {
        let back = &mut self.backs[slot as usize];
        if back.alias != FlowKey::default() {
            back.alias = FlowKey::default();
            self.index.remove(back.alias_hash, by_alias(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Addr, Endpoint, FlowHasher, Scope};

    #[test]
    fn a_conversation_outlives_queries() {
        let mut flows = Flows::new(16).unwrap();
        let create = |flows: &mut Flows, port: u16, clock, now_ns| {
            let end = |host| Endpoint::new(Addr::from_v4_bytes([10, 0, 0, host]), port);
            let (key, _) = FlowKey::new(end(1), end(2), 17, 4, Scope::default(), 0);
            let slot = flows.create(FlowHasher::new(1).hash(&key), &key, UnitId(0), now_ns).unwrap();
            flows.get_mut(slot).clock = clock;
            slot
        };
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
        // Of those that are silent for so long it is the only one.
        assert_eq!(flows.victim(1_000, 990), Some(idle));
    }
}
