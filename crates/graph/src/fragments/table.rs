//! A bounded table of datagrams with a share for each source.
//!
//! Each entry has a number, fixed until it is removed, and may have a weight: its part of a bounded
//! memory.

use std::collections::HashMap;

use packet::Addr;

use super::Datagram;

/// One source has at most this part of the table, and of the memory.
pub(crate) const SOURCE_PART: usize = 4;

/// The classes of entries. Each is in order of age.
pub(crate) const CLASSES: usize = 2;

/// Datagrams that were forgotten before their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Displaced {
    /// Because the table was full.
    pub table: u64,
    /// Because their source had its share of the table.
    pub source: u64,
}

/// Datagrams with a value for each.
pub(crate) struct Table<T> {
    places: HashMap<Datagram, u32>,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    by_age: [Queue; CLASSES],
    by_source: HashMap<Addr, Queue>,
    displaced: Displaced,
    max: usize,
}

struct Entry<T> {
    datagram: Datagram,
    class: usize,
    weight: usize,
    value: T,
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

impl Links {
    const NONE: Links = Links { next: NONE, previous: NONE };
}

/// Entries in order.
#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
    len: usize,
    weight: usize,
}

impl Queue {
    const EMPTY: Queue = Queue { first: NONE, last: NONE, len: 0, weight: 0 };

    /// Appends an entry; `of` returns its links.
    fn push<T>(&mut self, entries: &mut [Entry<T>], at: u32, of: impl Fn(&mut Entry<T>) -> &mut Links) {
        let previous = std::mem::replace(&mut self.last, at);
        match previous {
            NONE => self.first = at,
            previous => of(&mut entries[previous as usize]).next = at,
        }
        *of(&mut entries[at as usize]) = Links { next: NONE, previous };
        self.len += 1;
        self.weight += entries[at as usize].weight;
    }

    /// Removes an entry, which must be in it.
    fn remove<T>(&mut self, entries: &mut [Entry<T>], at: u32, of: impl Fn(&mut Entry<T>) -> &mut Links) {
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
        self.weight -= entries[at as usize].weight;
    }
}

impl<T> Table<T> {
    /// Creates a table for up to `max` datagrams.
    pub fn new(max: usize) -> Table<T> {
        Table {
            places: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            by_age: [Queue::EMPTY; CLASSES],
            by_source: HashMap::new(),
            displaced: Displaced::default(),
            max: max.min(NONE as usize),
        }
    }

    /// Returns the number of datagrams.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the weight of all entries.
    pub fn weight(&self) -> usize {
        self.by_age.iter().map(|queue| queue.weight).sum()
    }

    /// Returns the number of datagrams found by [`Table::victim`].
    pub fn displaced(&self) -> Displaced {
        self.displaced
    }

    /// Returns the number of a datagram's entry.
    pub fn find(&self, datagram: &Datagram) -> Option<u32> {
        self.places.get(datagram).copied()
    }

    /// Returns the value of the entry with this number.
    ///
    /// # Panics
    /// If there never was one.
    pub fn get(&self, at: u32) -> &T {
        &self.entries[at as usize].value
    }

    /// Returns the value of the entry with this number, to be changed.
    ///
    /// # Panics
    /// If there never was one.
    pub fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.entries[at as usize].value
    }

    /// Returns the datagram of the entry with this number.
    pub fn datagram(&self, at: u32) -> Datagram {
        self.entries[at as usize].datagram
    }

    /// Returns the oldest entry of a class.
    pub fn oldest(&self, class: usize) -> Option<u32> {
        some(self.by_age[class].first)
    }

    /// Returns the number of entries of this class.
    pub fn class_len(&self, class: usize) -> usize {
        self.by_age[class].len
    }

    /// Returns true if there is room for a datagram that it does not have yet.
    pub fn has_room(&self, datagram: &Datagram) -> bool {
        self.len() < self.max && self.of_source(datagram).len < self.max.div_ceil(SOURCE_PART)
    }

    /// Returns the entry to displace if there is no room for this datagram: for a source at its
    /// share, its oldest entry that `may` give way, else the choice of `oldest`; `None` if there is
    /// none.
    pub fn victim(
        &mut self,
        datagram: &Datagram,
        may: impl Fn(&T) -> bool,
        oldest: impl Fn(&Table<T>) -> Option<u32>,
    ) -> Option<u32> {
        let of_source = self.of_source(datagram);
        let is_source_full = of_source.len >= self.max.div_ceil(SOURCE_PART);
        let victim = if is_source_full { self.first_of(of_source, NONE, may) } else { oldest(self) };
        self.note_victim(victim, is_source_full)
    }

    /// Returns the entry, other than this one, to displace if the total weight with `more` exceeded
    /// `max`, or the source's weight exceeded its share of that: the oldest of them, of the first
    /// class. `None` if that would not help.
    pub fn heavy_victim(&mut self, at: u32, more: usize, max: usize) -> Option<u32> {
        let of_source = self.of_source(&self.datagram(at));
        let is_source_full = of_source.weight + more > max / SOURCE_PART;
        let victim = match is_source_full {
            true => self.first_of(of_source, at, |_| true),
            false => some(self.by_age[0].first).filter(|first| *first != at).or_else(|| {
                let next = self.entries.get(self.by_age[0].first as usize).map_or(NONE, |it| it.age.next);
                some(next)
            }),
        };
        self.note_victim(victim, is_source_full)
    }

    /// Returns true if this entry may weigh `more` more: see [`Table::heavy_victim`].
    pub fn has_weight(&self, at: u32, more: usize, max: usize) -> bool {
        self.weight() + more <= max && self.of_source(&self.datagram(at)).weight + more <= max / SOURCE_PART
    }

    /// Adds to an entry's weight.
    pub fn add_weight(&mut self, at: u32, more: usize) {
        let entry = &mut self.entries[at as usize];
        entry.weight += more;
        let (class, source) = (entry.class, entry.datagram.source());
        self.by_age[class].weight += more;
        if let Some(of_source) = self.by_source.get_mut(&source) {
            of_source.weight += more;
        }
    }

    /// Clears an entry's weight, and makes it the youngest of this class.
    pub fn reclass(&mut self, at: u32, class: usize) {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        (entry.class, entry.weight) = (class, 0);
        self.link(at);
    }

    /// Adds an entry; there must be room. Returns its number, which is below the table's size.
    pub fn insert(&mut self, datagram: Datagram, class: usize, value: T) -> u32 {
        let entry = Entry { datagram, class, weight: 0, value, age: Links::NONE, source: Links::NONE };
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
        self.link(at);
        at
    }

    /// Removes the entry with this number, which must exist. Returns its value.
    pub fn remove(&mut self, at: u32) -> T
    where
        T: Default,
    {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        self.places.remove(&entry.datagram);
        self.free.push(at);
        std::mem::take(&mut entry.value)
    }

    fn link(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (class, source) = (entry.class, entry.datagram.source());
        self.by_age[class].push(&mut self.entries, at, |entry| &mut entry.age);
        let of_source = self.by_source.entry(source).or_insert(Queue::EMPTY);
        of_source.push(&mut self.entries, at, |entry| &mut entry.source);
    }

    fn unlink(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (class, source) = (entry.class, entry.datagram.source());
        self.by_age[class].remove(&mut self.entries, at, |entry| &mut entry.age);
        if let Some(of_source) = self.by_source.get_mut(&source) {
            of_source.remove(&mut self.entries, at, |entry| &mut entry.source);
            if of_source.len == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    fn of_source(&self, datagram: &Datagram) -> Queue {
        self.by_source.get(&datagram.source()).copied().unwrap_or(Queue::EMPTY)
    }

    /// Returns the first entry of a source, other than `except`, that `may` accepts.
    fn first_of(&self, of_source: Queue, except: u32, may: impl Fn(&T) -> bool) -> Option<u32> {
        let mut at = of_source.first;
        while at != NONE && (at == except || !may(self.get(at))) {
            at = self.entries[at as usize].source.next;
        }
        some(at)
    }

    fn note_victim(&mut self, victim: Option<u32>, is_source_full: bool) -> Option<u32> {
        if victim.is_some() {
            match is_source_full {
                true => self.displaced.source += 1,
                false => self.displaced.table += 1,
            }
        }
        victim
    }
}

fn some(at: u32) -> Option<u32> {
    (at != NONE).then_some(at)
}
