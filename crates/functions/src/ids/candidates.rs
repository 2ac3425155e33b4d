//! Candidates: rules with an anchor found in a stream that may still match with later bytes.

use std::cmp::Reverse;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum candidates of a direction that wait for its next piece. Those with the earliest anchors
/// are evicted first.
pub const CANDIDATES_MAX: usize = 64;

/// A rule, and the stream offset of its last anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Candidate {
    rule: u32,
    reserved: u32,
    anchor: u64,
}

/// Offset of an entry for a rule without anchor that has acted.
const ACTED: u64 = u64::MAX;

/// The candidates of a direction.
#[derive(Default)]
pub struct Candidates(Vec<Candidate>);

impl Candidates {
    /// Restores saved candidates.
    pub fn restore(&mut self, saved: &[u8]) {
        self.0.clear();
        self.0.extend(
            saved.chunks_exact(size_of::<Candidate>()).filter_map(|one| Candidate::read_from_bytes(one).ok()),
        );
    }

    /// Returns the bytes to save.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Records an anchor of the rule at this stream offset. After all anchors of a piece, call
    /// [`Candidates::settle`].
    pub fn found(&mut self, rule: u32, anchor: u64) {
        self.0.push(Candidate { rule, reserved: 0, anchor });
    }

    /// Merges the entries of each rule, keeping its last anchor.
    pub fn settle(&mut self) {
        self.0.sort_unstable_by_key(|entry| (entry.rule, Reverse(entry.anchor)));
        self.0.dedup_by_key(|entry| entry.rule);
    }

    /// Removes candidates that cannot match the next piece. Its window begins at this offset or
    /// later. Returns the number evicted although their anchor is in the window.
    pub fn limit(&mut self, window: u64) -> usize {
        self.forget_before(window);
        let acted = self.0.iter().filter(|entry| entry.anchor == ACTED).count();
        let forgotten = self.0.len().saturating_sub(acted + CANDIDATES_MAX);
        if forgotten > 0 {
            self.0.sort_unstable_by_key(|entry| (Reverse(entry.anchor), entry.rule));
            self.0.truncate(acted + CANDIDATES_MAX);
        }
        forgotten
    }

    /// Removes candidates with an anchor before this offset.
    pub fn forget_before(&mut self, place: u64) {
        self.0.retain(|entry| entry.anchor >= place);
    }

    /// Returns the candidate rules.
    pub fn rules(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter(|entry| entry.anchor != ACTED).map(|entry| entry.rule)
    }

    /// Returns whether a rule without an anchor has acted.
    pub fn has_acted(&self, rule: u32) -> bool {
        self.0.iter().any(|entry| entry.rule == rule && entry.anchor == ACTED)
    }

    /// Records that these rules, in ascending order, have acted: a rule waits for its anchor again;
    /// one without an anchor never acts again.
    pub fn acted(&mut self, rules: &[u32], is_anchored: impl Fn(u32) -> bool) {
        self.0.retain(|entry| rules.binary_search(&entry.rule).is_err());
        rules.iter().filter(|rule| !is_anchored(**rule)).for_each(|rule| self.found(*rule, ACTED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(candidates: &Candidates) -> Vec<u32> {
        candidates.rules().collect()
    }

    #[test]
    fn a_rule_is_one_candidate_at_its_last_anchor() {
        let mut candidates = Candidates::default();
        for (rule, anchor) in [(7, 100), (3, 50), (7, 80), (3, 120)] {
            candidates.found(rule, anchor);
        }
        candidates.settle();
        assert_eq!(rules(&candidates), [3, 7]);
        candidates.forget_before(100);
        assert_eq!(rules(&candidates), [3, 7], "an anchor at the window's beginning is in it");
        candidates.forget_before(101);
        assert_eq!(rules(&candidates), [3]);
    }

    #[test]
    fn candidates_with_the_earliest_anchors_are_evicted_first() {
        let mut candidates = Candidates::default();
        let many = CANDIDATES_MAX as u32 + 5;
        (0..many).for_each(|rule| candidates.found(rule, u64::from(1_000 + rule)));
        candidates.found(0, 9_000);
        candidates.settle();
        assert_eq!(rules(&candidates).len() as u32, many, "all of a piece are looked at");
        candidates.acted(&[4, 77], |rule| rule != 77);
        assert_eq!(candidates.limit(1_002), 3, "one acted, and one is in no window any more");
        let mut left = rules(&candidates);
        left.sort_unstable();
        assert_eq!(left, [0].into_iter().chain(many + 1 - CANDIDATES_MAX as u32..many).collect::<Vec<_>>());
        assert!(candidates.has_acted(77));
        assert_eq!(candidates.limit(1_002), 0);
    }

    #[test]
    fn a_rule_that_acted_waits_for_its_anchor_or_for_nothing() {
        let mut candidates = Candidates::default();
        candidates.found(1, 10);
        candidates.acted(&[1], |_| true);
        assert_eq!((rules(&candidates), candidates.has_acted(1)), (vec![], false));
        candidates.found(1, 20);
        candidates.acted(&[2], |_| false);
        candidates.forget_before(u64::MAX - 1);
        assert_eq!(
            (rules(&candidates), candidates.has_acted(1), candidates.has_acted(2)),
            (vec![], false, true)
        );
    }

    #[test]
    fn saved_candidates_are_restored() {
        let (mut candidates, mut other) = (Candidates::default(), Candidates::default());
        candidates.found(1, 10);
        candidates.acted(&[2], |_| false);
        other.found(9, 9);
        other.restore(candidates.as_bytes());
        assert_eq!((rules(&other), other.has_acted(2)), (vec![1], true));
        let cut = &candidates.as_bytes()[..candidates.as_bytes().len() - 1];
        other.restore(cut);
        assert_eq!(
            (rules(&other), other.has_acted(2)),
            (vec![1], false),
            "of a truncated one, the whole entries"
        );
        other.restore(&[]);
        assert_eq!(rules(&other), [0; 0]);
    }
}
