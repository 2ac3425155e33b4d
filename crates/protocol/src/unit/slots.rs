//! The slots of the router's table, as far as a unit knows flows of them.

use std::hash::{Hash, Hasher};

use crate::unit::slot::Slot;

/// The slots of which a unit knows flows: few of all that there are, so that they lie close
/// together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// By the slot's number, where it is, from 1; 0: nothing is known.
    places: Vec<u32>,
    slots: Vec<Slot>,
}

impl Slots {
    /// Where a slot is is on its way to the cache.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        packet::memory::prefetch(self.places.as_ptr().wrapping_add(slot as usize));
    }

    /// A slot is on its way to the cache, if anything is known of it.
    #[inline]
    pub fn prefetch_slot(&self, slot: u32) {
        if let Some(slot) = self.get(slot) {
            packet::memory::prefetch_all(slot);
        }
    }

    /// A slot; none if nothing is known of it.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&Slot> {
        let place = self.places.get(slot as usize)?.checked_sub(1)?;
        self.slots.get(place as usize)
    }

    /// All slots of which anything is known.
    pub fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// A slot, to be changed; none if nothing is known of it.
    #[inline]
    pub fn find_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        let place = self.places.get(slot as usize)?.checked_sub(1)?;
        self.slots.get_mut(place as usize)
    }

    /// A slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut Slot {
        let place = match self.places.get(slot as usize) {
            Some(place) if *place > 0 => *place as usize - 1,
            _ => self.add(slot),
        };
        &mut self.slots[place]
    }

    #[cold]
    fn add(&mut self, slot: u32) -> usize {
        if slot as usize >= self.places.len() {
            self.places.resize(slot as usize + 1, 0);
        }
        self.slots.push(Slot::default());
        // Not more than there are numbers of slots.
        self.places[slot as usize] = self.slots.len() as u32;
        self.slots.len() - 1
    }
}

impl Hash for Slots {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.slots.hash(state);
    }
}
