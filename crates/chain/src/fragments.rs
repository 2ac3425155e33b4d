//! Fragments: later ones follow the flow of their first one, whichever comes first (DESIGN 3.8).
//!
//! A later fragment has no ports, so its flow is known only from the first fragment of its datagram. Until that comes,
//! later ones wait here; the number of datagrams, the fragments waiting in each, and the time are bounded.
//!
//! In a full table the oldest datagram gives way to a new one: of those whose first fragment passed, if they are more than
//! half, else of the others. So bogus fragments, which nothing but their number speaks for, displace each other. A source
//! that has its share of the table displaces datagrams of its own.

use std::collections::HashMap;

use packet::{Addr, FlowHasher, FlowKey, Packet, parse, split_mix};

use crate::classes::source_of;

/// One source has at most this part of the table.
const SOURCE_PART: usize = 4;

/// Fragments that wait for the first one of their datagram at most: a 64 KiB datagram in fragments of 1,500 bytes.
pub const WAITING_MAX: usize = 64;

/// Which datagram a fragment is of: addresses and protocol in one direction, and the identification field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    key: FlowKey,
    reversed: bool,
    id: u32,
}

/// What is known of a datagram's first fragment.
pub(crate) enum First {
    /// It has not come; these wait for it.
    Missing(Vec<Packet>),
    /// It was of this flow, and went this way.
    Passed {
        /// The flow's key.
        key: FlowKey,
        /// Whether the key is reversed.
        reversed: bool,
    },
    /// It was dropped.
    Dropped,
}

/// Why a fragment cannot wait.
pub(crate) enum Refused {
    TableFull,
    TooMany,
}

/// Datagrams that were forgotten before their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Displaced {
    /// Because the table was full.
    pub table: u64,
    /// Because their source had its share of the table.
    pub source: u64,
}

/// The datagrams that fragments were seen of.
pub(crate) struct Fragments {
    /// Where each is among the entries.
    places: HashMap<Datagram, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// By [`First::has_passed`]: in the order in which they came, or passed.
    by_age: [Queue; 2],
    by_source: HashMap<Addr, Queue>,
    displaced: Displaced,
    /// Fragments that waited for datagrams which were displaced.
    dropped: Vec<Packet>,
    max: usize,
    timeout_ns: u64,
}

struct Entry {
    datagram: Datagram,
    first: First,
    /// When it is forgotten.
    until_ns: u64,
    age: Links,
    source: Links,
}

/// No entry.
const NONE: u32 = u32::MAX;

/// Neighbours in a queue.
#[derive(Clone, Copy)]
struct Links {
    next: u32,
    previous: u32,
}

/// Entries in order.
#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
    len: usize,
}

impl Queue {
    const EMPTY: Queue = Queue { first: NONE, last: NONE, len: 0 };

    /// Adds an entry, whose links `of` finds, at the end.
    fn push(&mut self, entries: &mut [Entry], at: u32, of: impl Fn(&mut Entry) -> &mut Links) {
        let previous = std::mem::replace(&mut self.last, at);
        match previous {
            NONE => self.first = at,
            previous => of(&mut entries[previous as usize]).next = at,
        }
        *of(&mut entries[at as usize]) = Links { next: NONE, previous };
        self.len += 1;
    }

    /// Takes out an entry, which must be in it.
    fn remove(&mut self, entries: &mut [Entry], at: u32, of: impl Fn(&mut Entry) -> &mut Links) {
        let Links { next, previous } = *of(&mut entries[at as usize]);
        match previous {
            NONE => self.first = next,
            previous => of(&mut entries[previous as usize]).next = next,
        }
        match next {
            NONE => self.last = previous,
            next => of(&mut entries[next as usize]).previous = previous,
        }
        self.len -= 1;
    }
}

impl First {
    fn has_passed(&self) -> bool {
        matches!(self, First::Passed { .. })
    }
}

impl Datagram {
    /// The datagram that this fragment is of.
    pub(crate) fn of(packet: &Packet) -> Datagram {
        let (mut key, reversed) = parse::portless_key(packet);
        if key.version == 6 {
            key.protocol = 0; // The first fragment may have extension headers that the others have not.
        }
        Datagram { key, reversed, id: parse::fragment_id(packet) }
    }

    /// Who sends it, as far as sources are told apart.
    fn source(&self) -> Addr {
        source_of(self.key.ends(self.reversed).0.addr)
    }

    /// Well mixed bits, the same for all fragments.
    pub(crate) fn mixed(&self, hasher: &FlowHasher) -> u64 {
        split_mix(&mut (hasher.hash(&self.key) ^ u64::from(self.id)))
    }
}

impl Fragments {
    pub fn new(max: usize, timeout_ns: u64) -> Fragments {
        Fragments {
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            by_age: [Queue::EMPTY; 2],
            by_source: HashMap::new(),
            displaced: Displaced::default(),
            dropped: Vec::new(),
            max: max.min(NONE as usize),
            timeout_ns,
        }
    }

    /// What is known of the datagram's first fragment, if anything.
    pub fn get(&self, datagram: &Datagram) -> Option<&First> {
        self.places.get(datagram).map(|&at| &self.entries[at as usize].first)
    }

    /// Datagrams that were forgotten before their time.
    pub fn displaced(&self) -> Displaced {
        self.displaced
    }

    /// Lets a fragment wait for its first one.
    pub fn wait(&mut self, datagram: Datagram, packet: Packet, now_ns: u64) -> Result<(), (Packet, Refused)> {
        if let Some(&at) = self.places.get(&datagram) {
            return match &mut self.entries[at as usize].first {
                First::Missing(waiting) if waiting.len() < WAITING_MAX => {
                    waiting.push(packet);
                    Ok(())
                }
                _ => Err((packet, Refused::TooMany)),
            };
        }
        if !self.make_room(&datagram) {
            return Err((packet, Refused::TableFull));
        }
        self.insert(datagram, First::Missing(vec![packet]), now_ns);
        Ok(())
    }

    /// Notes what became of the first fragment; the fragments that waited for it are added to `waited`. False if the
    /// table has no room, so that later fragments will not find it.
    pub fn first(&mut self, datagram: Datagram, first: First, now_ns: u64, waited: &mut Vec<Packet>) -> bool {
        if let Some(at) = self.places.get(&datagram).copied() {
            if let First::Missing(waiting) = self.remove(at) {
                waited.extend(waiting);
            }
        } else if !self.make_room(&datagram) {
            return false;
        }
        self.insert(datagram, first, now_ns);
        true
    }

    /// Forgets datagrams whose time is over; fragments that waited in vain are added to `late`.
    pub fn expire(&mut self, now_ns: u64, late: &mut Vec<Packet>) {
        for passed in [0, 1] {
            while let Some(entry) = self.entries.get(self.by_age[passed].first as usize) {
                if entry.until_ns > now_ns {
                    break;
                }
                if let First::Missing(waiting) = self.remove(self.by_age[passed].first) {
                    late.extend(waiting);
                }
            }
        }
    }

    /// Fragments that waited for datagrams which were displaced since this was called last.
    pub fn take_dropped(&mut self) -> Option<Packet> {
        self.dropped.pop()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.dropped.is_empty()
    }

    /// Sees to it that there is room for another datagram; false if there is none for any.
    fn make_room(&mut self, datagram: &Datagram) -> bool {
        let of_source = self.by_source.get(&datagram.source()).copied().unwrap_or(Queue::EMPTY);
        let victim = if of_source.len >= self.max.div_ceil(SOURCE_PART) {
            self.displaced.source += u64::from(of_source.len > 0);
            of_source.first
        } else if self.places.len() >= self.max {
            let [others, passed] = self.by_age;
            self.displaced.table += 1;
            if passed.len > self.max / 2 || others.len == 0 { passed.first } else { others.first }
        } else {
            return true;
        };
        if victim == NONE {
            return false; // The table is made for none.
        }
        if let First::Missing(waiting) = self.remove(victim) {
            self.dropped.extend(waiting);
        }
        true
    }

    fn insert(&mut self, datagram: Datagram, first: First, now_ns: u64) {
        let passed = usize::from(first.has_passed());
        let none = Links { next: NONE, previous: NONE };
        let until_ns = now_ns.saturating_add(self.timeout_ns);
        let entry = Entry { datagram, first, until_ns, age: none, source: none };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32 // Not above `max`.
            }
        };
        self.places.insert(datagram, at);
        self.by_age[passed].push(&mut self.entries, at, |entry| &mut entry.age);
        let of_source = self.by_source.entry(datagram.source()).or_insert(Queue::EMPTY);
        of_source.push(&mut self.entries, at, |entry| &mut entry.source);
    }

    fn remove(&mut self, at: u32) -> First {
        let entry = &mut self.entries[at as usize];
        let (datagram, passed) = (entry.datagram, usize::from(entry.first.has_passed()));
        let first = std::mem::replace(&mut entry.first, First::Dropped);
        self.places.remove(&datagram);
        self.by_age[passed].remove(&mut self.entries, at, |entry| &mut entry.age);
        if let Some(of_source) = self.by_source.get_mut(&datagram.source()) {
            of_source.remove(&mut self.entries, at, |entry| &mut entry.source);
            if of_source.len == 0 {
                self.by_source.remove(&datagram.source());
            }
        }
        self.free.push(at);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Endpoint, Scope};

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
        assert_eq!(fragments.places.len(), 64);
        let mut late = Vec::new();
        fragments.expire(2_000_000, &mut late);
        assert!(late.len() == 48 && fragments.is_empty() && fragments.by_source.is_empty());
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
