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
