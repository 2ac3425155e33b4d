//! Flowbits.

use std::collections::BTreeMap;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum distinct flowbits of all rules.
pub const FLOWBITS_MAX: usize = 256;

/// The flowbits of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Flowbits([u64; FLOWBITS_MAX / 64]);

/// A test: any of the flowbits is set, or any is not.
#[derive(Clone, Debug)]
pub struct FlowbitTest {
    pub any: Vec<u8>,
    pub set: bool,
}

/// A change of flowbits by a rule.
#[derive(Clone, Debug)]
pub enum FlowbitChange {
    Set(Vec<u8>),
    Unset(Vec<u8>),
    Toggle(Vec<u8>),
}

/// The numbers of flowbits by name.
#[derive(Default)]
pub struct FlowbitNames(BTreeMap<String, u8>);

impl FlowbitNames {
    /// Returns the numbers of these names; `None` if there would be more than [`FLOWBITS_MAX`].
    pub fn of(&mut self, names: &[String]) -> Option<Vec<u8>> {
        names.iter().map(|name| self.number(name)).collect()
    }

    fn number(&mut self, name: &str) -> Option<u8> {
        if let Some(&number) = self.0.get(name) {
            return Some(number);
        }
        let number = u8::try_from(self.0.len()).ok()?;
        self.0.insert(name.to_owned(), number);
        Some(number)
    }
}

impl Flowbits {
    /// Returns whether the test passes.
    pub fn holds(&self, test: &FlowbitTest) -> bool {
        test.any.iter().any(|&flowbit| self.is_set(flowbit) == test.set)
    }

    /// Applies a change.
    pub fn change(&mut self, change: &FlowbitChange) {
        match change {
            FlowbitChange::Set(flowbits) => {
                flowbits.iter().for_each(|&flowbit| *self.word(flowbit) |= bit(flowbit))
            }
            FlowbitChange::Unset(flowbits) => {
                flowbits.iter().for_each(|&flowbit| *self.word(flowbit) &= !bit(flowbit))
            }
            FlowbitChange::Toggle(flowbits) => {
                flowbits.iter().for_each(|&flowbit| *self.word(flowbit) ^= bit(flowbit))
            }
        }
    }

    fn is_set(&self, flowbit: u8) -> bool {
        self.0[usize::from(flowbit) / 64] & bit(flowbit) != 0
    }

    fn word(&mut self, flowbit: u8) -> &mut u64 {
        &mut self.0[usize::from(flowbit) / 64]
    }
}

fn bit(flowbit: u8) -> u64 {
    1 << (flowbit % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(flowbits: &Flowbits, any: &[u8], set: bool) -> bool {
        flowbits.holds(&FlowbitTest { any: any.to_vec(), set })
    }

    #[test]
    fn flowbits_are_set_unset_and_toggled_independently() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for flowbit in [0, 63, 64, 128, 255] {
            let mut flowbits = Flowbits::default();
            for change in
                [FlowbitChange::Set, FlowbitChange::Toggle, FlowbitChange::Toggle, FlowbitChange::Set]
            {
                flowbits.change(&change(vec![flowbit]));
            }
            let set: Vec<u8> =
                all.iter().copied().filter(|&other| holds(&flowbits, &[other], true)).collect();
            assert_eq!(set, [flowbit]);
            flowbits.change(&FlowbitChange::Unset(vec![flowbit]));
            assert_eq!(flowbits, Flowbits::default());
            flowbits.change(&FlowbitChange::Unset(vec![flowbit]));
            assert_eq!(flowbits, Flowbits::default(), "what is not set stays so");
        }
        let mut flowbits = Flowbits::default();
        flowbits.change(&FlowbitChange::Set(all.clone()));
        assert!(all.iter().all(|&flowbit| holds(&flowbits, &[flowbit], true)));
    }

    #[test]
    fn any_of_several_is_enough() {
        let mut flowbits = Flowbits::default();
        flowbits.change(&FlowbitChange::Set(vec![1, 200]));
        assert!(holds(&flowbits, &[7, 200], true) && holds(&flowbits, &[7, 200], false));
        assert!(!holds(&flowbits, &[7, 8], true) && !holds(&flowbits, &[1, 200], false));
        assert!(!holds(&flowbits, &[], true) && !holds(&flowbits, &[], false));
    }

    #[test]
    fn names_get_numbers_up_to_the_limit() {
        let mut names = FlowbitNames::default();
        let name = |number: usize| format!("mark {number}");
        for number in 0..FLOWBITS_MAX {
            assert_eq!(names.of(&[name(number)]), Some(vec![number as u8]));
        }
        assert_eq!(names.of(&[name(9), name(3)]), Some(vec![9, 3]), "a known one keeps its own");
        assert_eq!(names.of(&[name(9), name(FLOWBITS_MAX)]), None);
    }
}
