//! The packets of a flow that a state covers.

use crate::wire::{FrameError, Reader, Wire, WireForm, part};

/// Limit on the distance of a packet from the first missing one. What is missing beyond it is given
/// up as lost.
pub const AHEAD_MAX: u64 = 64;

/// The packets of a flow that a state covers: all up to a seq, and named ones after it.
///
/// The highest seq alone would hide that an earlier packet is missing: hence both (design.md 3.4;
/// S59 has the highest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watermark {
    /// The state covers every packet up to this seq, except those that were given up; 0 for a new
    /// flow.
    pub contiguous: u64,
    /// Bit `i` stands for the packet with seq `contiguous` + 2 + `i`. The packet at `contiguous` +
    /// 1 is missing.
    pub ahead: u64,
}

impl Wire for Watermark {
    const FORM: WireForm = WireForm::Parts(&[part("watermark", u64::FORM), part("ahead", u64::FORM)]);

    fn write(&self, out: &mut Vec<u8>) {
        self.contiguous.write(out);
        self.ahead.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Watermark, FrameError> {
        Ok(Watermark { contiguous: Wire::read(from)?, ahead: Wire::read(from)? })
    }
}

/// The outcome of adding a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqOutcome {
    /// It is new.
    New {
        /// Packets that were given up for it: it is too far ahead.
        lost: u64,
    },
    /// It was there already, or given up.
    Old,
}

impl Watermark {
    /// Creates one that covers all packets up to this seq.
    pub fn up_to(contiguous: u64) -> Watermark {
        Watermark { contiguous, ahead: 0 }
    }

    /// Returns true if all packets up to this seq are covered or given up.
    #[inline]
    pub fn covers(&self, seq: u64) -> bool {
        seq <= self.contiguous
    }

    /// Returns the highest seq that is covered.
    #[inline]
    pub fn highest(&self) -> u64 {
        match self.ahead {
            0 => self.contiguous,
            ahead => self.contiguous + 65 - u64::from(ahead.leading_zeros()),
        }
    }

    /// Returns true if no packet below the highest is missing.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.ahead == 0
    }

    /// Returns true if the packet with this seq is covered or given up.
    pub fn has(&self, seq: u64) -> bool {
        let ahead = seq.saturating_sub(self.contiguous);
        ahead == 0 || (2..=AHEAD_MAX + 1).contains(&ahead) && self.ahead >> (ahead - 2) & 1 == 1
    }

    /// Adds a packet.
    #[inline]
    pub fn add(&mut self, seq: u64) -> SeqOutcome {
        if seq == self.contiguous + 1 {
            self.contiguous = seq;
            self.close_up();
            return SeqOutcome::New { lost: 0 };
        }
        if self.has(seq) {
            return SeqOutcome::Old;
        }
        let mut lost = 0;
        while seq - self.contiguous > AHEAD_MAX + 1 {
            lost += self.give_up_first(seq - AHEAD_MAX);
        }
        match seq - self.contiguous {
            1 => {
                self.contiguous = seq;
                self.close_up();
            }
            ahead => self.ahead |= 1 << (ahead - 2),
        }
        SeqOutcome::New { lost }
    }

    /// Gives up all missing packets up to this seq. Returns their number.
    pub fn give_up_to(&mut self, seq: u64) -> u64 {
        let mut lost = 0;
        while self.contiguous < seq {
            lost += self.give_up_first(seq + 1);
        }
        lost
    }

    /// Gives up the first missing packet; if nothing after it is covered, all before `until`.
    fn give_up_first(&mut self, until: u64) -> u64 {
        let lost = if self.ahead == 0 { until - self.contiguous - 1 } else { 1 };
        self.contiguous += lost;
        self.close_up();
        lost
    }

    /// Moves the packets that are covered right after `contiguous` into it.
    fn close_up(&mut self) {
        // `ahead` was relative to a `contiguous` that was one lower.
        if self.ahead != 0 {
            let run = u64::from(self.ahead.trailing_ones());
            self.contiguous += run;
            self.ahead = self.ahead.checked_shr(run as u32 + 1).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_clocks_with_a_bounded_memory(
            steps in prop::collection::vec((0u64..90, prop::bool::weighted(0.05)), 1..200),
        ) {
            let (mut mark, mut covered, mut given_up) = (Watermark::default(), BTreeSet::new(), BTreeSet::new());
            for (ahead, gives_up) in steps {
                let seq = (mark.contiguous + ahead).saturating_sub(10).max(1);
                if gives_up {
                    let missing: Vec<u64> =
                        (1..=seq).filter(|c| !covered.contains(c) && !given_up.contains(c)).collect();
                    prop_assert_eq!(mark.give_up_to(seq), missing.len() as u64);
                    given_up.extend(missing);
                } else {
                    let is_old = covered.contains(&seq) || given_up.contains(&seq);
                    prop_assert_eq!(mark.has(seq), is_old);
                    match mark.add(seq) {
                        SeqOutcome::Old => prop_assert!(is_old),
                        SeqOutcome::New { lost } => {
                            prop_assert!(!is_old);
                            covered.insert(seq);
                            let limit = seq.saturating_sub(AHEAD_MAX + 1);
                            let missing: Vec<u64> = (1..=limit)
                                .filter(|c| !covered.contains(c) && !given_up.contains(c))
                                .collect();
                            prop_assert_eq!(lost, missing.len() as u64);
                            given_up.extend(missing);
                        }
                    }
                }
                let first_missing = (1..).find(|c| !covered.contains(c) && !given_up.contains(c)).unwrap();
                prop_assert_eq!(mark.contiguous + 1, first_missing);
                let highest = covered.union(&given_up).max().copied().unwrap_or(0);
                prop_assert_eq!(mark.highest(), highest);
                prop_assert_eq!(mark.is_whole(), highest < first_missing);
                prop_assert!(mark.covers(first_missing - 1) && !mark.covers(first_missing));
            }
        }
    }
}
