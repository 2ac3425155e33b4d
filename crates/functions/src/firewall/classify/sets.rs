//! Storage for thousands of rule sets; most are small, or equal to another.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{ClassifierTooLarge, TABLES_BYTES_MAX};

/// Rule sets. Each has a summary with one bit per block of 64 rules, and its non-empty blocks.
#[derive(Debug)]
pub(super) struct RuleSets {
    /// Length of a summary in words.
    summary_len: usize,
    /// Per set: its summary, then the index of its first block.
    heads: Vec<u64>,
    blocks: Vec<u64>,
}

impl RuleSets {
    /// Returns the first rule that is in all of these sets and in `also`. Calls `read` for each
    /// word of the sets read.
    #[inline]
    pub(super) fn first_common<const N: usize>(
        &self,
        sets: [u32; N],
        also: &[u64],
        read: &mut impl FnMut(),
    ) -> Option<usize> {
        let head_len = self.summary_len + 1;
        let heads = sets.map(|set| &self.heads[set as usize * head_len..][..head_len]);
        let mut blocks = heads.map(|head| head[self.summary_len] as usize);
        for word in 0..self.summary_len {
            let mut common = heads.iter().fold(u64::MAX, |common, head| {
                read();
                common & head[word]
            });
            while common != 0 {
                let bit = common.trailing_zeros();
                let number = word * 64 + bit as usize;
                let mut block = also[number];
                for (head, first) in heads.iter().zip(&blocks) {
                    // Index of the block among the non-empty ones.
                    let rank = (head[word] & ((1 << bit) - 1)).count_ones();
                    read();
                    block &= self.blocks[first + rank as usize];
                    if block == 0 {
                        break;
                    }
                }
                if block != 0 {
                    return Some(number * 64 + block.trailing_zeros() as usize);
                }
                common &= common - 1;
            }
            for (head, first) in heads.iter().zip(&mut blocks) {
                *first += head[word].count_ones() as usize;
            }
        }
        None
    }

    /// Returns whether the set equals `other`, which has one bit per rule.
    fn is(&self, set: u32, other: &[u64]) -> bool {
        let head = &self.heads[set as usize * (self.summary_len + 1)..][..=self.summary_len];
        let mut next = head[self.summary_len] as usize;
        other.iter().enumerate().all(|(number, &block)| {
            let there = head[number / 64] >> (number % 64) & 1 == 1;
            let own = if there { self.blocks[next] } else { 0 };
            next += usize::from(there);
            own == block
        })
    }

    pub(super) fn len_bytes(&self) -> usize {
        (self.heads.len() + self.blocks.len()) * size_of::<u64>()
    }
}

/// Collects sets and stores equal ones once.
pub(super) struct SetsBuilder {
    sets: RuleSets,
    /// By hash. Of two different sets with the same hash, the later one is not found again, only
    /// stored twice.
    known: HashMap<u64, u32>,
    /// The set under construction, one bit per rule.
    current: Vec<u64>,
}

impl SetsBuilder {
    /// Creates a builder for sets of `rules` rules.
    pub(super) fn new(rules: usize) -> SetsBuilder {
        let blocks = rules.div_ceil(64);
        SetsBuilder {
            sets: RuleSets { summary_len: blocks.div_ceil(64), heads: Vec::new(), blocks: Vec::new() },
            known: HashMap::new(),
            current: vec![0; blocks],
        }
    }

    /// Toggles a rule in the current set.
    pub(super) fn turn(&mut self, rule: usize) {
        self.current[rule / 64] ^= 1 << (rule % 64);
    }

    /// Empties the current set.
    pub(super) fn clear(&mut self) {
        self.current.fill(0);
    }

    /// Returns the number of the set of the rules with item `true`.
    pub(super) fn of(&mut self, members: impl Iterator<Item = bool>) -> Result<u32, ClassifierTooLarge> {
        self.clear();
        for (rule, _) in members.enumerate().filter(|&(_, member)| member) {
            self.turn(rule);
        }
        let set = self.intern();
        self.clear();
        set
    }

    /// Returns the number of the current set.
    pub(super) fn intern(&mut self) -> Result<u32, ClassifierTooLarge> {
        let mut hasher = DefaultHasher::new();
        self.current.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(&set) = self.known.get(&hash)
            && self.sets.is(set, &self.current)
        {
            return Ok(set);
        }
        let sets = &mut self.sets;
        let mut head = vec![0; sets.summary_len + 1];
        head[sets.summary_len] = sets.blocks.len() as u64;
        for (number, &block) in self.current.iter().enumerate().filter(|&(_, &block)| block != 0) {
            head[number / 64] |= 1 << (number % 64);
            sets.blocks.push(block);
        }
        let set = (sets.heads.len() / head.len()) as u32;
        sets.heads.extend(head);
        if sets.len_bytes() > TABLES_BYTES_MAX {
            return Err(ClassifierTooLarge);
        }
        self.known.insert(hash, set);
        Ok(set)
    }

    pub(super) fn finish(mut self) -> RuleSets {
        self.sets.heads.shrink_to_fit();
        self.sets.blocks.shrink_to_fit();
        self.sets
    }
}
