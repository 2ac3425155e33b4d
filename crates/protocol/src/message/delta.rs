//! The difference between two versions of a state.

use crate::message::{Epoch, Watermark};
use crate::wire::{FrameError, Reader, Wire, WireForm, part, put_sized};

/// A version of a flow's state. All replicas of one version have the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The epoch of the owner that sent it.
    pub epoch: Epoch,
    /// The last packet that it covers; it covers all earlier ones, too.
    pub seq: u64,
}

impl Version {
    /// The state of a flow that has not begun: no bytes, or zeros. Every unit has it.
    pub const BEGINNING: Version = Version { epoch: 0, seq: 0 };

    /// Returns the version of the state that an epoch begins with: the last one of the epoch
    /// before.
    pub(crate) fn beginning(epoch: Epoch, watermark: Watermark) -> Version {
        Version { epoch: epoch.saturating_sub(1), seq: watermark.contiguous }
    }
}

impl Wire for Version {
    const FORM: WireForm = WireForm::Parts(&[part("epoch", Epoch::FORM), part("seq", u64::FORM)]);

    fn write(&self, out: &mut Vec<u8>) {
        self.epoch.write(out);
        self.seq.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Version, FrameError> {
        Ok(Version { epoch: Wire::read(from)?, seq: Wire::read(from)? })
    }
}

/// The difference between a state and an older version of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateDelta {
    /// Difference of epochs and of seqs; length of the new state; then pieces: number of equal
    /// bytes, number of different bytes, and these bytes. Numbers are in groups of 7 bits, the
    /// lowest first; the highest bit of a byte marks that another follows.
    bytes: Vec<u8>,
}

/// The bytes are not what [`StateDelta::of`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes are damaged")]
pub struct DamagedDelta;

/// Limit on the length of a state with deltas: a few bytes could ask for any number of zeros.
pub const CHANGING_MAX: usize = 1 << 24;

/// Number of equal bytes that are cheaper as part of a piece than as a gap between two.
const SAME_MAX: usize = 2;

impl StateDelta {
    /// Returns the difference between two versions. `None` if it is no shorter than the new one, if
    /// that is longer than [`CHANGING_MAX`], or if the old one is later. Bytes after the end of the
    /// old one count as 0.
    pub fn of((base, old): (Version, &[u8]), (version, new): (Version, &[u8])) -> Option<StateDelta> {
        if new.len() > CHANGING_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(new.len());
        push_number(&mut bytes, version.epoch.checked_sub(base.epoch)?.into());
        push_number(&mut bytes, version.seq.checked_sub(base.seq)?);
        push_number(&mut bytes, new.len() as u64);
        let is_same = |at: usize| new[at] == old.get(at).copied().unwrap_or(0);
        let mut told = 0;
        while let Some(begin) = (told..new.len()).find(|&at| !is_same(at)) {
            let mut end = begin + 1;
            for at in begin + 1..new.len() {
                if !is_same(at) {
                    end = at + 1;
                } else if at - end >= SAME_MAX {
                    break;
                }
            }
            push_number(&mut bytes, (begin - told) as u64);
            push_number(&mut bytes, (end - begin) as u64);
            bytes.extend_from_slice(&new[begin..end]);
            if bytes.len() >= new.len() {
                return None;
            }
            told = end;
        }
        (bytes.len() < new.len()).then_some(StateDelta { bytes })
    }

    /// Returns the base version of a delta that leads to this version.
    ///
    /// # Errors
    ///
    /// [`DamagedDelta`] if there is none: it is not what [`of`](StateDelta::of) wrote.
    pub fn base(&self, version: Version) -> Result<Version, DamagedDelta> {
        let (epochs, seqs, _) = self.split().ok_or(DamagedDelta)?;
        let epoch = Epoch::try_from(epochs).ok().and_then(|epochs| version.epoch.checked_sub(epochs));
        let seq = version.seq.checked_sub(seqs);
        Ok(Version { epoch: epoch.ok_or(DamagedDelta)?, seq: seq.ok_or(DamagedDelta)? })
    }

    /// Returns the new version, made from its base.
    ///
    /// # Errors
    ///
    /// [`DamagedDelta`] if it is not what [`of`](StateDelta::of) wrote for that base, as far as
    /// that can be seen.
    pub fn apply(&self, old: &[u8]) -> Result<Vec<u8>, DamagedDelta> {
        let (.., rest) = self.split().ok_or(DamagedDelta)?;
        let (len, mut rest) = split_len(rest).filter(|&(len, _)| len <= CHANGING_MAX).ok_or(DamagedDelta)?;
        let mut new = old.to_vec();
        new.resize(len, 0);
        let mut left = &mut new[..];
        while !rest.is_empty() {
            let (same, behind) = split_len(rest).ok_or(DamagedDelta)?;
            let (changed, behind) = split_len(behind).ok_or(DamagedDelta)?;
            let (bytes, behind) = behind.split_at_checked(changed).ok_or(DamagedDelta)?;
            let (_, from) = left.split_at_mut_checked(same).ok_or(DamagedDelta)?;
            let (piece, next) = from.split_at_mut_checked(changed).ok_or(DamagedDelta)?;
            piece.copy_from_slice(bytes);
            (left, rest) = (next, behind);
        }
        Ok(new)
    }

    /// Returns a delta of what [`bytes`](StateDelta::bytes) returned. If they are damaged,
    /// [`base`](StateDelta::base) or [`apply`](StateDelta::apply) says so.
    pub fn from_bytes(bytes: Vec<u8>) -> StateDelta {
        StateDelta { bytes }
    }

    /// Returns its bytes on links.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns its length on links.
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the differences of epochs and seqs, and the rest.
    fn split(&self) -> Option<(u64, u64, &[u8])> {
        let (epochs, rest) = split_number(&self.bytes)?;
        let (seqs, rest) = split_number(rest)?;
        Some((epochs, seqs, rest))
    }
}

impl Wire for StateDelta {
    const FORM: WireForm = WireForm::Sized;

    fn write(&self, out: &mut Vec<u8>) {
        put_sized(out, &self.bytes);
    }

    fn read(from: &mut Reader<'_>) -> Result<StateDelta, FrameError> {
        Ok(StateDelta::from_bytes(from.sized()?.to_vec()))
    }

    fn state_bytes(&self) -> Option<usize> {
        Some(self.len())
    }
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns a number at the beginning, and the rest.
fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(u64::BITS.div_ceil(7) as usize).position(|&byte| byte < 0x80)? + 1;
    let (number, rest) = bytes.split_at(end);
    Some((number.iter().rev().fold(0, |sum, &byte| sum << 7 | u64::from(byte & 0x7f)), rest))
}

/// Returns a length at the beginning, and the rest.
fn split_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (len, rest) = split_number(bytes)?;
    Some((usize::try_from(len).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: Version = Version { epoch: 2, seq: 7 };
    const NEW: Version = Version { epoch: 3, seq: 9 };

    fn delta(old: &[u8], new: &[u8]) -> Option<StateDelta> {
        StateDelta::of((BASE, old), (NEW, new))
    }

    /// A state, and the next version of it.
    fn states() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), 1usize..12, any::<u8>()), 0..8);
        (prop::collection::vec(any::<u8>(), 0..400), changes, 0usize..400).prop_map(|(old, changes, len)| {
            let mut new = old.clone();
            if len % 3 == 0 {
                new.resize(len, 0);
            }
            for (at, len, byte) in &changes {
                let begin = at.index(new.len().max(1)).min(new.len());
                let end = (begin + len).min(new.len());
                new[begin..end].iter_mut().for_each(|old| *old = old.wrapping_add(*byte));
            }
            (old, new)
        })
    }

    proptest! {
        #[test]
        fn what_has_changed_makes_of_the_old_state_the_new_one((old, new) in states()) {
            match delta(&old, &new) {
                Some(delta) => {
                    prop_assert_eq!(delta.base(NEW), Ok(BASE));
                    prop_assert_eq!(delta.apply(&old), Ok(new.clone()));
                    prop_assert!(delta.len() < new.len());
                }
                None => {
                    let different = (0..new.len()).filter(|&at| old.get(at).copied().unwrap_or(0) != new[at]);
                    prop_assert!(new.len() <= 10 || different.count() * 6 > new.len() / 2);
                }
            }
        }

        #[test]
        fn whatever_comes_is_applied_or_refused(
            old in prop::collection::vec(any::<u8>(), 0..40),
            bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..40),
        ) {
            let delta = StateDelta { bytes };
            prop_assert!(delta.base(NEW).is_ok_and(|base| base <= NEW) || delta.base(NEW) == Err(DamagedDelta));
            prop_assert!(delta.apply(&old).is_ok_and(|new| new.len() <= CHANGING_MAX) || delta.apply(&old) == Err(DamagedDelta));
        }

        #[test]
        fn numbers_are_written_and_read(number in prop_oneof![0u64..300, any::<u64>()]) {
            let mut bytes = Vec::new();
            push_number(&mut bytes, number);
            prop_assert_eq!(split_number(&bytes), Some((number, &[][..])));
            prop_assert_eq!(split_number(&bytes[1..]).is_some(), bytes.len() > 1);
        }
    }

    #[test]
    fn a_counter_that_goes_on_takes_a_few_bytes() {
        let (mut old, mut new) = ([7; 96], [7; 96]);
        old[40..48].copy_from_slice(&300u64.to_le_bytes());
        new[40..48].copy_from_slice(&301u64.to_le_bytes());
        assert_eq!(delta(&old, &new).unwrap().bytes, [1, 2, 96, 40, 1, 45]);
        assert_eq!(delta(&new, &new).unwrap().bytes, [1, 2, 96]);
        assert_eq!(StateDelta::of((NEW, &old), (BASE, &new)), None, "it is no older one");
    }

    #[test]
    fn a_flow_that_has_not_begun_has_zeros() {
        let mut new = [0; 300];
        new[200] = 1;
        let delta = StateDelta::of((Version::BEGINNING, &[]), (NEW, &new)).unwrap();
        assert_eq!(delta.base(NEW), Ok(Version::BEGINNING));
        assert_eq!(delta.apply(&[]).unwrap(), new);
        assert_eq!(delta.len(), 8);
        assert_eq!(StateDelta::of((BASE, &[]), (NEW, &[1; 50])), None, "larger than the whole");
        assert_eq!(StateDelta::of((BASE, &[]), (NEW, &[0; 3])), None, "as large");
    }
}
