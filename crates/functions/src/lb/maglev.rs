//! Lookup tables: a flow's hash selects a slot, and the slot a server.
//!
//! Both kinds are rebuilt when a server comes, goes or changes its weight, never while packets are
//! processed. A lookup costs one division and one load, regardless of the number of servers.

use packet::split_mix;

/// Maximum number of slots of a table.
pub const SLOTS_MAX: u32 = 1 << 23;

/// Maximum weight of a server: with the maximum number of servers, [`MaglevTable::modulo`] stays
/// within [`SLOTS_MAX`].
pub const WEIGHT_MAX: u16 = 1000;

/// A server to put into a table.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Number to store in the table's slots.
    pub number: u16,
    /// Name, which determines the server's slots: the same on every machine.
    pub name: &'a str,
    /// Relative share; 0: none.
    pub weight: u16,
}

/// A table of the server of each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaglevTable {
    slots: Box<[u16]>,
}

impl MaglevTable {
    /// Builds Maglev's table (Eisenbud et al., NSDI 2016, 3.4): servers take turns claiming the
    /// next free slot of their own permutation of all slots. When a server goes, few slots of the
    /// others change. // S24, B24
    ///
    /// Weights determine how often a server takes a turn: in each round it gains its weight, and
    /// takes a turn once it has gained the largest weight. `size` is prime, so every permutation
    /// reaches every slot.
    pub fn maglev(candidates: &[Candidate<'_>], size: u32, seed: u64) -> MaglevTable {
        let candidates = in_order(candidates);
        let heaviest = candidates.iter().map(|c| u32::from(c.weight)).max().unwrap_or(0);
        let mut claimants: Vec<_> = candidates.iter().map(|c| Claimant::new(c, size, seed)).collect();
        let mut slots = vec![FREE; if claimants.is_empty() { 0 } else { size as usize }];
        let mut free = slots.len();
        while free > 0 {
            for claimant in &mut claimants {
                if free == 0 || !claimant.has_turn(heaviest) {
                    continue;
                }
                while slots[claimant.at as usize] != FREE {
                    claimant.advance(size);
                }
                slots[claimant.at as usize] = claimant.number;
                free -= 1;
            }
        }
        MaglevTable { slots: slots.into() }
    }

    /// Builds a table with as many slots per server as its weight, so that the hash modulo the
    /// table's length selects the server. When a server goes, nearly all flows change servers.
    pub fn modulo(candidates: &[Candidate<'_>]) -> MaglevTable {
        let candidates = in_order(candidates);
        let unit = candidates.iter().fold(0, |unit, c| gcd(unit, c.weight)).max(1);
        let slots = candidates.iter().flat_map(|c| (0..c.weight / unit).map(|_| c.number)).collect();
        MaglevTable { slots }
    }

    /// Returns the server of a flow with this hash; none without servers.
    #[inline]
    pub fn pick(&self, hash: u64) -> Option<u16> {
        let slot = (hash as u32).checked_rem(self.slots.len() as u32)?;
        self.slots.get(slot as usize).copied()
    }

    /// Returns the server of each slot.
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }
}

/// Returns the offset and the step of a server's permutation, for a table of this size.
pub fn permutation(name: &str, size: u32, seed: u64) -> (u32, u32) {
    let offset = keyed_hash(name, seed ^ 0x6f66_6673_6574) % u64::from(size);
    let skip = keyed_hash(name, seed ^ 0x736b_6970) % u64::from(size - 1) + 1;
    (offset as u32, skip as u32)
}

/// Marks a free slot: no server has this number.
const FREE: u16 = u16::MAX;

/// A server during construction of the table.
struct Claimant {
    number: u16,
    weight: u32,
    gained: u32,
    at: u32,
    skip: u32,
}

impl Claimant {
    fn new(candidate: &Candidate<'_>, size: u32, seed: u64) -> Claimant {
        let (at, skip) = permutation(candidate.name, size, seed);
        Claimant { number: candidate.number, weight: candidate.weight.into(), gained: 0, at, skip }
    }

    fn has_turn(&mut self, heaviest: u32) -> bool {
        self.gained += self.weight;
        let turn = self.gained >= heaviest;
        if turn {
            self.gained -= heaviest;
        }
        turn
    }

    fn advance(&mut self, size: u32) {
        self.at += self.skip;
        if self.at >= size {
            self.at -= size;
        }
    }
}

/// Sorts candidates with a weight by name, so that their order in the configuration does not
/// matter.
fn in_order<'a>(candidates: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let mut candidates: Vec<_> = candidates.iter().filter(|c| c.weight > 0).copied().collect();
    candidates.sort_unstable_by_key(|c| c.name);
    candidates
}

fn keyed_hash(text: &str, key: u64) -> u64 {
    let mut state = key ^ (text.len() as u64) << 32;
    for chunk in text.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = split_mix(&mut (state ^ u64::from_le_bytes(word)));
    }
    split_mix(&mut state)
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
