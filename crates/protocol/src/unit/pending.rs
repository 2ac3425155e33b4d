//! Pending packets.

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, Stamp};

/// Pending packets of one flow, in the order of their seqs and hence of their epochs: a linked list
/// within the unit's slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingQueue {
    first: u32,
    last: u32,
    len: u32,
}

/// The pending packets of all flows. Free places are reused, the last one first: it may still be in
/// the cache.
#[derive(Clone, Debug)]
pub(crate) struct PacketSlab<P> {
    places: Vec<Place<P>>,
    /// The first free place; the others follow it.
    free: u32,
    /// Number of packets.
    packets: usize,
}

/// A pending packet.
#[derive(Clone, Debug)]
pub(crate) struct PendingPacket<P> {
    pub stamp: Stamp,
    pub packet: P,
    pub since_ns: u64,
}

/// A place in the slab.
#[derive(Clone, Debug)]
struct Place<P> {
    /// `None` if the place is free.
    waiting: Option<PendingPacket<P>>,
    /// Arrival time of the oldest packet from here to the end of the epoch. A packet added at the
    /// end is the newest, and changes nothing for those before it.
    oldest_ns: u64,
    /// Neighbours of the same flow.
    before: u32,
    behind: u32,
}

/// No place. There are fewer than this: each takes over a hundred bytes.
const NONE: u32 = u32::MAX;

impl<P> Default for PacketSlab<P> {
    fn default() -> PacketSlab<P> {
        PacketSlab { places: Vec::new(), free: NONE, packets: 0 }
    }
}

impl<P> PacketSlab<P> {
    /// Returns the number of pending packets.
    #[inline]
    pub fn packets(&self) -> usize {
        self.packets
    }

    #[inline]
    fn place(&self, at: u32) -> Option<&Place<P>> {
        self.places.get(at as usize)
    }

    #[inline]
    fn waiting(&self, at: u32) -> Option<&PendingPacket<P>> {
        self.place(at)?.waiting.as_ref()
    }

    #[inline]
    fn put(&mut self, place: Place<P>) -> u32 {
        self.packets += 1;
        match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let at = std::mem::replace(&mut self.free, free.behind);
                *free = place;
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// Takes the packet out of a place, which becomes free. Returns the places before and after it,
    /// too.
    #[inline]
    fn take(&mut self, at: u32) -> Option<(PendingPacket<P>, u32, u32)> {
        let place = self.places.get_mut(at as usize)?;
        let waiting = place.waiting.take()?;
        let behind = std::mem::replace(&mut place.behind, self.free);
        self.free = at;
        self.packets -= 1;
        Some((waiting, place.before, behind))
    }
}

impl Default for PendingQueue {
    fn default() -> PendingQueue {
        PendingQueue { first: NONE, last: NONE, len: 0 }
    }
}

impl PendingQueue {
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the packet with this seq is pending.
    #[inline]
    pub fn has<P>(&self, seq: u64, slab: &PacketSlab<P>) -> bool {
        slab.waiting(self.last_up_to(seq, slab)).is_some_and(|waiting| waiting.stamp.seq == seq)
    }

    /// Adds a packet. None with the same seq may be pending.
    pub fn add<P>(&mut self, waiting: PendingPacket<P>, slab: &mut PacketSlab<P>) {
        let before = self.last_up_to(waiting.stamp.seq, slab);
        let behind = slab.place(before).map_or(self.first, |place| place.behind);
        let next = slab.place(behind).filter(|_| self.epoch_at(behind, slab) == Some(waiting.stamp.epoch));
        let oldest_ns = next.map_or(waiting.since_ns, |next| next.oldest_ns.min(waiting.since_ns));
        let at = slab.put(Place { waiting: Some(waiting), oldest_ns, before, behind });
        self.len += 1;
        *self.behind(before, slab) = at;
        *self.before(behind, slab) = at;
    }

    /// Returns the lowest seq of an epoch, if none of an earlier epoch is pending.
    #[inline]
    pub fn first_of<P>(&self, epoch: Epoch, slab: &PacketSlab<P>) -> Option<u64> {
        let first = &slab.waiting(self.first)?.stamp;
        (first.epoch == epoch).then_some(first.seq)
    }

    /// Returns the arrival time of the oldest packet of an epoch, if none of an earlier epoch is
    /// pending.
    pub fn oldest_of<P>(&self, epoch: Epoch, slab: &PacketSlab<P>) -> Option<u64> {
        let first = slab.place(self.first).filter(|_| self.epoch_at(self.first, slab) == Some(epoch))?;
        Some(first.oldest_ns)
    }

    /// Takes out the first packet if its seq is at most this.
    #[inline]
    pub fn take_up_to<P>(&mut self, seq: u64, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        self.take_if(slab, |first| first.stamp.seq <= seq)
    }

    /// Takes out the first packet if its epoch is before this one.
    pub fn take_before<P>(&mut self, epoch: Epoch, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        self.take_if(slab, |first| first.stamp.epoch < epoch)
    }

    /// Takes out the first packet.
    pub fn take<P>(&mut self, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        self.take_at(self.first, slab)
    }

    /// Returns all packets, in order.
    pub fn all<'a, P>(&self, slab: &'a PacketSlab<P>) -> impl Iterator<Item = &'a PendingPacket<P>> {
        self.places(slab).filter_map(|at| slab.waiting(at))
    }

    /// Returns their places, in order.
    fn places<P>(&self, slab: &PacketSlab<P>) -> impl Iterator<Item = u32> {
        let is_any = |&at: &u32| at != NONE;
        std::iter::successors(Some(self.first).filter(is_any), move |&at| {
            slab.place(at).map(|place| place.behind).filter(is_any)
        })
    }

    /// Returns the place of the last packet up to this seq: nearly always the last of all.
    #[inline]
    fn last_up_to<P>(&self, seq: u64, slab: &PacketSlab<P>) -> u32 {
        match slab.waiting(self.last) {
            Some(last) if last.stamp.seq > seq => self.search(seq, last.stamp.seq, slab),
            _ => self.last,
        }
    }

    /// Same if it is not the last of all, which has seq `last`: searches from the nearer end.
    #[cold]
    fn search<P>(&self, seq: u64, last: u64, slab: &PacketSlab<P>) -> u32 {
        let clock_at = |at: u32| slab.waiting(at).map(|waiting| waiting.stamp.seq);
        let is_up_to = |&at: &u32| clock_at(at).is_some_and(|at| at <= seq);
        let first = clock_at(self.first).unwrap_or(0);
        if seq < first || seq - first < last - seq {
            return self.places(slab).take_while(is_up_to).last().unwrap_or(NONE);
        }
        let before = |&at: &u32| slab.place(at).map(|place| place.before);
        std::iter::successors(Some(self.last), before).find(is_up_to).unwrap_or(NONE)
    }

    #[inline]
    fn epoch_at<P>(&self, at: u32, slab: &PacketSlab<P>) -> Option<Epoch> {
        slab.waiting(at).map(|waiting| waiting.stamp.epoch)
    }

    #[inline]
    fn take_if<P>(
        &mut self,
        slab: &mut PacketSlab<P>,
        is_wanted: impl FnOnce(&PendingPacket<P>) -> bool,
    ) -> Option<PendingPacket<P>> {
        slab.waiting(self.first).filter(|first| is_wanted(first))?;
        self.take_at(self.first, slab)
    }

    #[inline]
    fn take_at<P>(&mut self, at: u32, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        let (waiting, before, behind) = slab.take(at)?;
        self.len -= 1;
        *self.behind(before, slab) = behind;
        *self.before(behind, slab) = before;
        Some(waiting)
    }

    /// Returns the link to the place after this one, or to the first place.
    #[inline]
    fn behind<'a, P>(&'a mut self, at: u32, slab: &'a mut PacketSlab<P>) -> &'a mut u32 {
        slab.places.get_mut(at as usize).map_or(&mut self.first, |place| &mut place.behind)
    }

    /// Returns the link to the place before this one, or to the last place.
    #[inline]
    fn before<'a, P>(&'a mut self, at: u32, slab: &'a mut PacketSlab<P>) -> &'a mut u32 {
        slab.places.get_mut(at as usize).map_or(&mut self.last, |place| &mut place.before)
    }
}

/// The seq stands for the rest of the stamp.
impl<P: Hash> Hash for PendingPacket<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stamp.epoch, self.stamp.seq, self.since_ns).hash(state);
        self.packet.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{FlowId, Handover};
    use proptest::prelude::*;

    use super::*;

    fn waiting(seq: u64, since_ns: u64) -> PendingPacket<()> {
        let flow = FlowId { index: 0, generation: 0 };
        let stamp = Stamp { flow, seq, epoch: epoch(seq), handover: Handover::None, targets: None };
        PendingPacket { stamp, packet: (), since_ns }
    }

    /// Returns the epoch of a seq; each has ten packets.
    fn epoch(seq: u64) -> Epoch {
        (seq / 10) as Epoch + 1
    }

    proptest! {
        #[test]
        fn it_is_a_list_in_the_order_of_clocks(
            steps in prop::collection::vec(prop_oneof![
                3 => (1u64..40).prop_map(Some),
                1 => Just(None),
            ], 1..100),
        ) {
            let (mut pending, mut slab, mut model) = (PendingQueue::default(), PacketSlab::default(), Vec::new());
            for (now_ns, step) in (0..).zip(steps) {
                match step {
                    Some(seq) => {
                        let is_there = model.iter().any(|&(of, _)| of == seq);
                        prop_assert_eq!(pending.has(seq, &slab), is_there);
                        if !is_there {
                            pending.add(waiting(seq, now_ns), &mut slab);
                            model.push((seq, now_ns));
                            model.sort();
                        }
                    }
                    None => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(pending.take(&mut slab).map(|first| (first.stamp.seq, first.since_ns)), first);
                    }
                }
                prop_assert_eq!((pending.len(), slab.packets()), (model.len(), model.len()));
                let Some(&(first, _)) = model.first() else { continue };
                let of = epoch(first);
                let oldest = model.iter().filter(|&&(seq, _)| epoch(seq) == of).map(|&(_, ns)| ns).min();
                prop_assert_eq!((pending.first_of(of, &slab), pending.oldest_of(of, &slab)), (Some(first), oldest));
                prop_assert_eq!((pending.first_of(of + 1, &slab), pending.oldest_of(of + 1, &slab)), (None, None));
            }
        }
    }
}
