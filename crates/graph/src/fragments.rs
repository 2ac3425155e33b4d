//! Fragments: later ones take the flow of their first one, in any order of arrival (design.md 3.8).
//!
//! A later fragment has no ports, so its flow is known only from the first fragment of its
//! datagram. Until it arrives, later ones wait here. The number of datagrams, the waiting fragments
//! of each, and the time are bounded.
//!
//! In a full table the oldest datagram of a class gives way to a new one: the class with a passed
//! first fragment if it has more than half of the table, else the class without. So floods of bogus
//! fragments displace themselves. A source at its share of the table displaces its own datagrams.
//! The same holds for the memory of waiting fragments.

mod datagram;
mod table;

use packet::{FlowKey, HEADROOM, Packet, SMALL_ROOM};

pub use datagram::Datagram;
pub(crate) use table::{Displaced, Table};

/// Maximum number of waiting fragments of a datagram: 64 KiB in fragments of 1,500 bytes.
pub const WAITING_MAX: usize = 64;

/// Maximum memory of waiting fragments, as in Linux, each counted with its whole buffer. So a flood
/// of fragments leaves most of a pool's buffers to other packets.
pub const WAITING_MEMORY: usize = 4 << 20;
/// The memory of a fragment in a small buffer, and in a large one; a pool has few large ones.
const SMALL_WEIGHT: usize = 2 << 10;
const LARGE_WEIGHT: usize = 32 << 10;

/// Returns the memory that a waiting fragment takes.
pub(crate) fn weight(packet: &Packet) -> usize {
    if packet.len() + HEADROOM <= SMALL_ROOM { SMALL_WEIGHT } else { LARGE_WEIGHT }
}

/// The outcome for a datagram's first fragment.
#[derive(Default)]
pub(crate) enum First {
    /// It has not arrived; these wait for it.
    Missing(Vec<Packet>),
    /// It passed as a packet of this flow.
    Passed {
        /// The flow's key.
        key: FlowKey,
        /// True if the key is reversed.
        reversed: bool,
    },
    /// It was dropped.
    #[default]
    Dropped,
}

/// The reason to refuse a fragment.
pub(crate) enum Refused {
    TableFull,
    TooMany,
}

/// The datagrams with known fragments.
pub(crate) struct Fragments {
    /// Datagrams with a passed first fragment are of class 1.
    table: Table<Entry>,
    /// Waiting fragments of displaced datagrams.
    dropped: Vec<Packet>,
    max: usize,
    timeout_ns: u64,
}

#[derive(Default)]
struct Entry {
    first: First,
    /// The deadline at which it is forgotten.
    until_ns: u64,
}

impl First {
    fn has_passed(&self) -> bool {
        matches!(self, First::Passed { .. })
    }
}

impl Fragments {
    pub fn new(max: usize, timeout_ns: u64) -> Fragments {
        Fragments { table: Table::new(max), dropped: Vec::new(), max, timeout_ns }
    }

    /// Returns the outcome for the datagram's first fragment, if it is known.
    pub fn get(&self, datagram: &Datagram) -> Option<&First> {
        self.table.find(datagram).map(|at| &self.table.get(at).first)
    }

    /// Returns the numbers of datagrams that were forgotten before their time.
    pub fn displaced(&self) -> Displaced {
        self.table.displaced()
    }

    /// Queues a fragment until its first one arrives.
    pub fn wait(&mut self, datagram: Datagram, packet: Packet, now_ns: u64) -> Result<(), (Packet, Refused)> {
        let at = match self.table.find(&datagram) {
            Some(at) => at,
            None if self.make_room(&datagram) => self.insert(datagram, First::Missing(Vec::new()), now_ns),
            None => return Err((packet, Refused::TableFull)),
        };
        if !matches!(self.get_at(at), First::Missing(waiting) if waiting.len() < WAITING_MAX) {
            return Err((packet, Refused::TooMany));
        }
        let weight = weight(&packet);
        while !self.table.has_weight(at, weight, WAITING_MEMORY) {
            match self.table.heavy_victim(at, weight, WAITING_MEMORY) {
                Some(victim) => self.displace(victim),
                None => return Err((packet, Refused::TableFull)),
            }
        }
        self.table.add_weight(at, weight);
        if let First::Missing(waiting) = &mut self.table.get_mut(at).first {
            waiting.push(packet);
        }
        Ok(())
    }

    /// Notes the outcome for the first fragment; adds the fragments that waited for it to `waited`.
    /// Returns false if the table has no room, so that later fragments will not find it.
    pub fn first(&mut self, datagram: Datagram, first: First, now_ns: u64, waited: &mut Vec<Packet>) -> bool {
        if let Some(at) = self.table.find(&datagram) {
            if let First::Missing(waiting) = self.table.remove(at).first {
                waited.extend(waiting);
            }
        } else if !self.make_room(&datagram) {
            return false;
        }
        self.insert(datagram, first, now_ns);
        true
    }

    /// Forgets expired datagrams; adds their waiting fragments to `late`.
    pub fn expire(&mut self, now_ns: u64, late: &mut Vec<Packet>) {
        for passed in [0, 1] {
            while let Some(at) = self.table.oldest(passed) {
                if self.table.get(at).until_ns > now_ns {
                    break;
                }
                if let First::Missing(waiting) = self.table.remove(at).first {
                    late.extend(waiting);
                }
            }
        }
    }

    /// Takes a waiting fragment of a displaced datagram.
    pub fn take_dropped(&mut self) -> Option<Packet> {
        self.dropped.pop()
    }

    /// Returns the time at which the next datagram is forgotten.
    pub fn next_timeout_ns(&self) -> u64 {
        let oldest = [0, 1].into_iter().filter_map(|passed| self.table.oldest(passed));
        oldest.map(|at| self.table.get(at).until_ns).min().unwrap_or(u64::MAX)
    }

    /// Returns true if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0 && self.dropped.is_empty()
    }

    /// Makes room for another datagram. Returns false if there is none.
    fn make_room(&mut self, datagram: &Datagram) -> bool {
        if self.table.has_room(datagram) {
            return true;
        }
        let half = self.max / 2;
        let oldest = |table: &Table<Entry>| {
            let [others, passed] = [0, 1].map(|class| table.oldest(class));
            if table.class_len(1) > half { passed } else { others.or(passed) }
        };
        let Some(victim) = self.table.victim(datagram, |_| true, oldest) else {
            return false; // The table is made for none.
        };
        self.displace(victim);
        true
    }

    fn displace(&mut self, victim: u32) {
        if let First::Missing(waiting) = self.table.remove(victim).first {
            self.dropped.extend(waiting);
        }
    }

    fn get_at(&self, at: u32) -> &First {
        &self.table.get(at).first
    }

    fn insert(&mut self, datagram: Datagram, first: First, now_ns: u64) -> u32 {
        let until_ns = now_ns.saturating_add(self.timeout_ns);
        self.table.insert(datagram, usize::from(first.has_passed()), Entry { first, until_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::table::SOURCE_PART;
    use super::*;
    use packet::{Addr, Endpoint, Scope};

    fn datagram(source: u32, id: u32) -> Datagram {
        let end = |addr: u32| Endpoint::new(Addr::from_v4_bytes(addr.to_be_bytes()), 0);
        let (key, reversed) = FlowKey::new(end(source), end(1), 17, 4, Scope::default(), 0);
        Datagram { key, reversed, id }
    }

    fn passed() -> First {
        First::Passed { key: FlowKey::default(), reversed: false }
    }

    fn wait(fragments: &mut Fragments, datagram: Datagram, now_ns: u64) -> bool {
        fragments.wait(datagram, Packet::from_bytes(&[0; 60]), now_ns).is_ok()
    }

    #[test]
    fn bogus_fragments_displace_each_other() {
        let mut fragments = Fragments::new(64, 1_000_000);
        let mut waited = Vec::new();
        for i in 0..20 {
            assert!(fragments.first(datagram(7, i), passed(), 0, &mut waited));
        }
        for i in 0..10_000 {
            assert!(wait(&mut fragments, datagram(0x0a00_0000 + i, 9), 1));
        }
        // A source of its own has a quarter; they stay, however many others come.
        assert!((4..20).all(|i| fragments.get(&datagram(7, i)).is_some()));
        assert_eq!(fragments.displaced(), Displaced { table: 10_000 - 48, source: 4 });
        assert_eq!(std::iter::from_fn(|| fragments.take_dropped()).count(), 10_000 - 48);
        assert_eq!(fragments.table.len(), 64);
        let mut late = Vec::new();
        fragments.expire(2_000_000, &mut late);
        assert!(late.len() == 48 && fragments.is_empty());
    }

    #[test]
    fn a_source_displaces_its_own_datagrams() {
        let mut fragments = Fragments::new(64, 1_000_000);
        assert!((0..10).all(|i| wait(&mut fragments, datagram(5, i), 0)));
        assert!((0..1000).all(|i| wait(&mut fragments, datagram(6, i), 1)));
        assert!((0..10).all(|i| fragments.get(&datagram(5, i)).is_some()));
        assert_eq!(fragments.displaced(), Displaced { table: 0, source: 1000 - 16 });
        assert!(fragments.get(&datagram(6, 999)).is_some() && fragments.get(&datagram(6, 983)).is_none());
    }

    #[test]
    fn those_that_wait_leave_buffers_to_others() {
        let mut fragments = Fragments::new(10_000, 1_000_000);
        let most = WAITING_MEMORY / SMALL_WEIGHT;
        // Of one source, a quarter; of many, all.
        for (sources, most) in [(1, most / SOURCE_PART), (100, most)] {
            assert!((0..20_000u32).all(|i| wait(&mut fragments, datagram(i % sources, i / 4), 0)));
            let waiting = |at| match fragments.get(&datagram(at % sources, at / 4)) {
                Some(First::Missing(waiting)) => waiting.len(),
                _ => 0,
            };
            let all: usize = (0..20_000 / 4).map(|id| if sources == 1 { waiting(4 * id) } else { 0 }).sum();
            assert!(sources > 1 || all == most, "{all}");
            assert_eq!(fragments.table.weight(), most * SMALL_WEIGHT);
        }
    }

    #[test]
    fn those_that_wait_get_their_first_one() {
        let (mut fragments, mut waited) = (Fragments::new(8, 1000), Vec::new());
        assert!(wait(&mut fragments, datagram(1, 1), 0) && wait(&mut fragments, datagram(1, 1), 0));
        assert!(fragments.first(datagram(1, 1), passed(), 1, &mut waited));
        assert_eq!(waited.len(), 2);
        assert!(fragments.get(&datagram(1, 1)).is_some_and(First::has_passed));
        let mut none = Fragments::new(0, 1000);
        assert!(!wait(&mut none, datagram(1, 1), 0));
        assert!(!none.first(datagram(1, 1), passed(), 1, &mut waited));
    }
}
