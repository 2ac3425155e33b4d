//! Prefetching for coming events: a hundred units have more flows than fit into the cache.

use protocol::message::UnitId;

use super::Event;
use crate::checks::Checks;
use crate::server::{Parcel, Server, Slab};

/// The data that coming events need.
pub(super) struct Ahead<'a> {
    pub parcels: &'a Slab<Parcel>,
    pub servers: &'a [Server],
    pub checks: &'a Checks,
    /// Units and flow indexes; a field only to reuse its memory.
    pub coming: &'a mut Vec<(UnitId, u32)>,
}

impl Ahead<'_> {
    /// Prefetches for these events. Pointers are followed level by level: all first ones are
    /// requested before any second one.
    pub fn show(&mut self, events: &[(u64, Event)]) {
        let arrivals = || events.iter().filter_map(|(_, event)| event.arrival());
        arrivals().for_each(|(_, parcel)| self.parcels.prefetch(parcel));
        let indexes =
            arrivals().filter_map(|(unit, parcel)| Some((unit, self.parcels.get(parcel)?.flow_index()?)));
        self.coming.clear();
        self.coming.extend(indexes);
        for &(unit, index) in &*self.coming {
            self.checks.prefetch(index);
            self.servers[unit.index()].unit.prefetch(index);
        }
        self.coming.iter().for_each(|&(unit, index)| self.servers[unit.index()].unit.prefetch_entry(index));
        self.coming.iter().for_each(|&(unit, index)| self.servers[unit.index()].unit.prefetch_flow(index));
    }
}
