//! A flow's entry in the dispatcher's table.

use crate::message::{Epoch, FlowId, Handover, ReplicaTargets, Stamp, UnitId};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::dispatcher::config::TARGETS_COUNT_MAX;
use crate::dispatcher::key::ShortKey;

/// The fields that every packet of a flow needs: one cache line. All zero: an index that never had
/// a flow.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// The key of its first packet.
    key: ShortKey,
    /// Arrival time of its last packet.
    last_seen_ns: u64,
    /// Number of its packets (S58).
    seq: u64,
    /// Bytes of its present flowlet.
    bytes: u64,
    /// The seq of the last packet to the previous owner; in a free index, the next free index plus
    /// 1.
    last: u64,
    /// The owner's epoch; 0 in a free index.
    epoch: u32,
    /// Number of earlier flows of the index.
    generation: u32,
    owner: u16,
    previous: u16,
    /// The rate estimated for its flowlet, in bits per second.
    estimate_bps: f32,
}

/// Bytes of a flowlet after its end: more than any limit, so that its next packet is looked at.
const ENDED: u64 = u64::MAX;

/// The fields that only the first packet of a flowlet and a flow's end need: one more cache line.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub(crate) struct Flowlet {
    /// Arrival time of its first packet.
    started_ns: u64,
    /// The hash of the flow's first key.
    hash: u64,
    /// The targets of its replicas.
    targets: TargetList,
    /// Units that refused the flow's state. Beyond its length, further ones are not remembered.
    refusers: TargetList,
}

const _: () = assert!(size_of::<Flow>() == 64 && size_of::<Flowlet>() == 64, "a cache line each");

impl Flowlet {
    /// Creates the first flowlet of a flow.
    pub fn first(hash: u64, now_ns: u64) -> Flowlet {
        Flowlet { started_ns: now_ns, hash, targets: TargetList::NONE, refusers: TargetList::NONE }
    }

    /// Begins the flow's next flowlet.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) {
        self.started_ns = now_ns;
    }

    /// Returns the arrival time of its first packet.
    #[inline]
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Returns the hash of the flow's first key.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the targets of its replicas.
    #[inline]
    pub fn targets(&self) -> &TargetList {
        &self.targets
    }

    /// Sets the targets of its replicas.
    #[inline]
    pub fn set_targets(&mut self, targets: TargetList) {
        self.targets = targets;
    }

    /// Returns the units that refused the flow's state.
    #[inline]
    pub fn refusers(&self) -> &TargetList {
        &self.refusers
    }

    /// Notes a unit that refused the flow's state.
    pub fn add_refuser(&mut self, unit: UnitId) {
        if !self.refusers.contains(unit) {
            self.refusers.push(unit);
        }
    }

    /// Forgets that a unit refused the flow's state.
    pub fn forget_refuser(&mut self, unit: UnitId) {
        self.refusers.remove(unit);
    }
}

impl Flow {
    /// Begins a flow in epoch 1 without packets, in a free index. Returns the next free index plus
    /// 1, if this one was freed before.
    pub fn begin(&mut self, key: ShortKey, owner: UnitId, now_ns: u64) -> u64 {
        let next_free = self.last;
        *self = Flow {
            key,
            last_seen_ns: now_ns,
            seq: 0,
            bytes: 0,
            last: 0,
            epoch: 1,
            generation: self.generation,
            owner: owner.0,
            previous: 0,
            estimate_bps: 0.0,
        };
        next_free
    }

    /// Ends the flow, and frees the index; `next_free` is the next free index plus 1. Returns false
    /// if the index is retired: its generations are exhausted.
    pub fn end(&mut self, next_free: u64) -> bool {
        (self.epoch, self.key) = (0, ShortKey::default());
        let Some(generation) = self.generation.checked_add(1) else {
            return false;
        };
        (self.generation, self.last) = (generation, next_free);
        true
    }

    /// Returns the number of earlier flows of the index.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true if the index had a flow of this generation, which has ended.
    pub fn has_ended(&self, generation: u32) -> bool {
        // A retired index keeps the generation of its last flow; a free one has that of its next.
        let is_retired = self.generation == u32::MAX && !self.is_live();
        generation < self.generation || (generation == self.generation && is_retired)
    }

    /// Returns the key of its first packet.
    #[inline(always)]
    pub fn key(&self) -> ShortKey {
        self.key
    }

    /// Returns the arrival time of its last packet.
    #[inline(always)]
    pub fn last_seen_ns(&self) -> u64 {
        self.last_seen_ns
    }

    /// Returns the number of its packets (S58).
    #[inline(always)]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the bytes of its present flowlet; `None` if it [has ended](Flow::end_flowlet).
    #[inline]
    pub fn bytes(&self) -> Option<u64> {
        (!self.has_ended_flowlet()).then_some(self.bytes)
    }

    /// Returns the seq of the last packet to the previous owner.
    #[inline]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the owner's epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the rate estimated for its flowlet, in bits per second.
    #[inline]
    pub fn estimate_bps(&self) -> f32 {
        self.estimate_bps
    }

    /// Ends the present flowlet: the next packet begins one, at the same unit.
    pub fn end_flowlet(&mut self) {
        self.bytes = ENDED;
    }

    /// Returns true if the present flowlet [has ended](Flow::end_flowlet) before the next begins.
    #[inline]
    pub fn has_ended_flowlet(&self) -> bool {
        self.bytes == ENDED
    }

    /// Begins a flowlet with this estimated rate, in bits per second.
    #[inline]
    pub fn begin_flowlet(&mut self, estimate_bps: f32) {
        (self.bytes, self.estimate_bps) = (0, estimate_bps);
    }

    #[inline]
    pub fn owner(&self) -> UnitId {
        UnitId(self.owner)
    }

    /// Returns the previous owner; meaningless in epoch 1.
    #[inline]
    pub fn previous(&self) -> UnitId {
        UnitId(self.previous)
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        self.epoch != 0
    }

    /// Returns the bytes of its flowlet with a packet of this length.
    #[inline(always)]
    pub fn bytes_with(&self, len: u32) -> u64 {
        self.bytes.saturating_add(len.into())
    }

    /// Numbers another packet (S58), with which its flowlet has this many bytes.
    #[inline(always)]
    pub fn number(&mut self, now_ns: u64, bytes: u64) {
        self.seq += 1;
        self.last_seen_ns = now_ns;
        self.bytes = bytes;
    }

    /// Returns the stamp of the last packet of the flow, which has this index (S13); with `targets`
    /// if it begins a flowlet.
    #[inline(always)]
    pub fn stamp(&self, index: u32, targets: Option<ReplicaTargets>) -> Stamp {
        let flow = FlowId { index, generation: self.generation };
        Stamp { flow, seq: self.seq, epoch: self.epoch, handover: self.handover(), targets }
    }

    /// Returns the place of the state that the owner's epoch begins with.
    #[inline(always)]
    pub fn handover(&self) -> Handover {
        match self.epoch {
            1 => Handover::None,
            _ => Handover::From { previous: self.previous(), last: self.last },
        }
    }

    /// Makes another unit the owner. Returns false, and nothing has changed, if the epochs are
    /// exhausted.
    pub fn hand_to(&mut self, unit: UnitId) -> bool {
        let Some(epoch) = self.epoch.checked_add(1) else {
            return false;
        };
        (self.epoch, self.last) = (epoch, self.seq);
        (self.previous, self.owner) = (self.owner, unit.0);
        true
    }
}

/// The targets of a flowlet's replicas, as stored in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TargetList {
    /// The number of units; [`ALL`](TargetList::ALL)'s value for all active ones.
    len: u8,
    unused: u8,
    units: [u16; TARGETS_COUNT_MAX as usize],
}

impl TargetList {
    pub const NONE: TargetList = TargetList { len: 0, unused: 0, units: [0; TARGETS_COUNT_MAX as usize] };
    pub const ALL: TargetList = TargetList { len: u8::MAX, ..TargetList::NONE };

    /// Adds a unit, if there is room.
    pub fn push(&mut self, unit: UnitId) {
        if let Some(place) = self.units.get_mut(usize::from(self.len)) {
            *place = unit.0;
            self.len += 1;
        }
    }

    /// Removes a unit, if it is named.
    pub fn remove(&mut self, unit: UnitId) {
        let Some(place) = self.named().iter().position(|&named| named == unit.0) else { return };
        let len = usize::from(self.len);
        self.units.copy_within(place + 1..len, place);
        self.len -= 1; // One is named.
        self.units[len - 1] = 0;
    }

    #[inline]
    pub fn is_all(&self) -> bool {
        self.len == u8::MAX
    }

    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns the named units.
    #[inline]
    pub fn units(&self) -> impl Iterator<Item = UnitId> + '_ {
        self.named().iter().map(|&unit| UnitId(unit))
    }

    #[inline]
    fn named(&self) -> &[u16] {
        self.units.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns true if the unit, which is active, is a target.
    pub fn contains(&self, unit: UnitId) -> bool {
        self.is_all() || self.units().any(|target| target == unit)
    }
}

impl From<TargetList> for ReplicaTargets {
    fn from(list: TargetList) -> ReplicaTargets {
        if list.is_all() {
            return ReplicaTargets::ALL;
        }
        ReplicaTargets::of_distinct(list.units())
    }
}
