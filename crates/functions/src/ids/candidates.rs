//! Rules whose anchor a stream has had, and that may still hold when more of it comes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most candidates of a direction; the oldest is forgotten for a further one.
pub const CANDIDATES_MAX: usize = 64;

/// A rule, and where in the stream its anchor begins that was found last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    rule: u32,
    reserved: u32,
    anchor: u64,
}

/// Of an entry: the rule has no anchor, and has acted.
const ACTED: u64 = u64::MAX;

/// The candidates of a direction.
#[derive(Default)]
pub struct Candidates(Vec<Entry>);

impl Candidates {
    /// Those that were saved.
    pub fn restore(&mut self, saved: &[u8]) {
        self.0.clear();
        self.0.extend(
            saved.chunks_exact(size_of::<Entry>()).filter_map(|one| Entry::read_from_bytes(one).ok()),
        );
    }

    /// To be saved.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The rule's anchor was found at this place of the stream. Whether another rule was forgotten for it.
    pub fn found(&mut self, rule: u32, anchor: u64) -> bool {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.rule == rule) {
            entry.anchor = entry.anchor.max(anchor);
            return false;
        }
        let is_full = self.0.len() >= CANDIDATES_MAX;
        if is_full {
            self.0.remove(0);
        }
        self.0.push(Entry { rule, reserved: 0, anchor });
        is_full
    }

    /// Forgets those whose anchor began before this place.
    pub fn forget_before(&mut self, place: u64) {
        self.0.retain(|entry| entry.anchor >= place);
    }

    /// The rules that may hold.
    pub fn rules(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter(|entry| entry.anchor != ACTED).map(|entry| entry.rule)
    }

    /// Whether a rule without an anchor has acted.
    pub fn has_acted(&self, rule: u32) -> bool {
        self.0.iter().any(|entry| entry.rule == rule && entry.anchor == ACTED)
    }

    /// The rule has acted: it waits for its anchor again, or, without one, for nothing.
    pub fn acted(&mut self, rule: u32, is_anchored: bool) {
        self.0.retain(|entry| entry.rule != rule);
        if !is_anchored {
            self.found(rule, ACTED);
        }
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
            assert!(!candidates.found(rule, anchor));
        }
        assert_eq!(rules(&candidates), [7, 3]);
        candidates.forget_before(100);
        assert_eq!(rules(&candidates), [7, 3], "an anchor at the window's beginning is in it");
        candidates.forget_before(101);
        assert_eq!(rules(&candidates), [3]);
    }

    #[test]
    fn the_oldest_is_forgotten_for_one_too_many() {
        let mut candidates = Candidates::default();
        let all = 0..CANDIDATES_MAX as u32;
        assert!(all.clone().all(|rule| !candidates.found(rule, 0)));
        assert!(!candidates.found(0, 9), "it is one already");
        assert!(candidates.found(1_000, 9));
        assert_eq!(rules(&candidates), all.skip(1).chain([1_000]).collect::<Vec<_>>());
    }

    #[test]
    fn a_rule_that_acted_waits_for_its_anchor_or_for_nothing() {
        let mut candidates = Candidates::default();
        candidates.found(1, 10);
        candidates.acted(1, true);
        assert_eq!((rules(&candidates), candidates.has_acted(1)), (vec![], false));
        candidates.found(1, 20);
        candidates.acted(2, false);
        candidates.forget_before(u64::MAX - 1);
        assert_eq!(
            (rules(&candidates), candidates.has_acted(1), candidates.has_acted(2)),
            (vec![], false, true)
        );
    }

    #[test]
    fn what_is_saved_comes_back() {
        let (mut candidates, mut other) = (Candidates::default(), Candidates::default());
        candidates.found(1, 10);
        candidates.acted(2, false);
        other.found(9, 9);
        other.restore(candidates.as_bytes());
        assert_eq!((rules(&other), other.has_acted(2)), (vec![1], true));
        let cut = &candidates.as_bytes()[..candidates.as_bytes().len() - 1];
        other.restore(cut);
        assert_eq!(
            (rules(&other), other.has_acted(2)),
            (vec![1], false),
            "of one that was cut short, the whole entries"
        );
        other.restore(&[]);
        assert_eq!(rules(&other), [0; 0]);
    }
}
