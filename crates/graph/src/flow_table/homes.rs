//! Which flows of a table belong to one flow of whoever gives packets to the chain: its home.
//!
//! Who numbers flows before the chain sees them (a router) may still take for one what the chain
//! has ended and begun anew. So a home may have several flows, though nearly all have one.

/// Flows of a table by their homes. Touches no memory for a chain that is not told of homes.
pub(crate) struct Homes {
    /// By home: its newest flow's record.
    first: Vec<u32>,
    /// By record.
    of: Vec<Link>,
}

/// A record's place.
#[derive(Clone, Copy)]
struct Link {
    home: u32,
    /// The next record of the same home.
    next: u32,
}

/// No home, or no record.
const NONE: u32 = u32::MAX;

impl Homes {
    /// For a table of so many records.
    pub fn new(records: u32) -> Homes {
        Homes { first: Vec::with_capacity(records as usize), of: Vec::with_capacity(records as usize) }
    }

    /// The record is of this home from now on. It is of none yet.
    pub fn add(&mut self, home: u32, record: u32) {
        let first = entry(&mut self.first, home, NONE);
        let next = std::mem::replace(first, record);
        *entry(&mut self.of, record, Link { home: NONE, next: NONE }) = Link { home, next };
    }

    /// The record is of no home any more; says of which it was.
    pub fn remove(&mut self, record: u32) -> Option<u32> {
        let link = self.of.get_mut(record as usize)?;
        let Link { home, next } = std::mem::replace(link, Link { home: NONE, next: NONE });
        let first = self.first.get_mut(home as usize)?;
        if *first == record {
            *first = next;
            return Some(home);
        }
        let mut at = *first;
        while let Some(link) = self.of.get_mut(at as usize) {
            if link.next == record {
                link.next = next;
                break;
            }
            at = link.next;
        }
        Some(home)
    }

    /// The home's newest record: nearly always the only one.
    #[inline]
    pub fn newest(&self, home: u32) -> Option<u32> {
        self.first.get(home as usize).copied().filter(|&record| record != NONE)
    }

    /// The home's records, the newest first.
    pub fn records(&self, home: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.newest(home), |&record| {
            self.of.get(record as usize).map(|link| link.next).filter(|&next| next != NONE)
        })
    }

    /// The home of a record.
    pub fn of(&self, record: u32) -> Option<u32> {
        self.of.get(record as usize).map(|link| link.home).filter(|&home| home != NONE)
    }
}

fn entry<T: Clone>(table: &mut Vec<T>, number: u32, empty: T) -> &mut T {
    let at = number as usize;
    if table.len() <= at {
        table.resize(at + 1, empty);
    }
    &mut table[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(homes: &Homes, home: u32) -> Vec<u32> {
        homes.records(home).collect()
    }

    #[test]
    fn a_home_has_the_records_that_were_added_and_not_removed() {
        let mut homes = Homes::new(10);
        assert_eq!((homes.remove(4), homes.of(4)), (None, None));
        for (home, record) in [(7, 0), (7, 3), (2, 1), (7, 9)] {
            homes.add(home, record);
        }
        assert_eq!(records(&homes, 7), [9, 3, 0]);
        assert_eq!((records(&homes, 2), records(&homes, 5)), (vec![1], vec![]));
        assert_eq!(homes.remove(3), Some(7));
        assert_eq!(homes.remove(3), None);
        assert_eq!(records(&homes, 7), [9, 0]);
        assert_eq!(homes.remove(9), Some(7));
        homes.add(2, 9);
        assert_eq!((records(&homes, 7), records(&homes, 2)), (vec![0], vec![9, 1]));
        assert_eq!((homes.remove(0), homes.of(9)), (Some(7), Some(2)));
        assert!(records(&homes, 7).is_empty());
    }
}
