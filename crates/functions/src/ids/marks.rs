//! Marks of flows: what rules call `flowbits`.

use std::collections::BTreeMap;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most different marks of all rules.
pub const FLOWBITS_MAX: usize = 256;

/// A flow's marks, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Marks([u64; FLOWBITS_MAX / 64]);

/// Whether any of the marks is set, or any is not.
#[derive(Clone, Debug)]
pub struct Test {
    pub any: Vec<u8>,
    pub set: bool,
}

/// What a rule does to marks.
#[derive(Clone, Debug)]
pub enum Change {
    Set(Vec<u8>),
    Unset(Vec<u8>),
    Toggle(Vec<u8>),
}

/// The numbers of marks.
#[derive(Default)]
pub struct Names(BTreeMap<String, u8>);

impl Names {
    /// The numbers of these; none if there are more than [`FLOWBITS_MAX`] in all.
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

impl Marks {
    /// Whether the test holds.
    pub fn holds(&self, test: &Test) -> bool {
        test.any.iter().any(|&mark| self.is_set(mark) == test.set)
    }

    /// Carries a change out.
    pub fn change(&mut self, change: &Change) {
        match change {
            Change::Set(marks) => marks.iter().for_each(|&mark| *self.word(mark) |= bit(mark)),
            Change::Unset(marks) => marks.iter().for_each(|&mark| *self.word(mark) &= !bit(mark)),
            Change::Toggle(marks) => marks.iter().for_each(|&mark| *self.word(mark) ^= bit(mark)),
        }
    }

    fn is_set(&self, mark: u8) -> bool {
        self.0[usize::from(mark) / 64] & bit(mark) != 0
    }

    fn word(&mut self, mark: u8) -> &mut u64 {
        &mut self.0[usize::from(mark) / 64]
    }
}

fn bit(mark: u8) -> u64 {
    1 << (mark % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(marks: &Marks, any: &[u8], set: bool) -> bool {
        marks.holds(&Test { any: any.to_vec(), set })
    }

    #[test]
    fn marks_are_set_unset_and_toggled_each_by_itself() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for mark in [0, 63, 64, 128, 255] {
            let mut marks = Marks::default();
            for change in [Change::Set, Change::Toggle, Change::Toggle, Change::Set] {
                marks.change(&change(vec![mark]));
            }
            let set: Vec<u8> = all.iter().copied().filter(|&other| holds(&marks, &[other], true)).collect();
            assert_eq!(set, [mark]);
            marks.change(&Change::Unset(vec![mark]));
            assert_eq!(marks, Marks::default());
            marks.change(&Change::Unset(vec![mark]));
            assert_eq!(marks, Marks::default(), "what is not set stays so");
        }
        let mut marks = Marks::default();
        marks.change(&Change::Set(all.clone()));
        assert!(all.iter().all(|&mark| holds(&marks, &[mark], true)));
    }

    #[test]
    fn any_of_several_is_enough() {
        let mut marks = Marks::default();
        marks.change(&Change::Set(vec![1, 200]));
        assert!(holds(&marks, &[7, 200], true) && holds(&marks, &[7, 200], false));
        assert!(!holds(&marks, &[7, 8], true) && !holds(&marks, &[1, 200], false));
        assert!(!holds(&marks, &[], true) && !holds(&marks, &[], false));
    }

    #[test]
    fn names_have_numbers_as_long_as_there_are_some() {
        let mut names = Names::default();
        let name = |number: usize| format!("mark {number}");
        for number in 0..FLOWBITS_MAX {
            assert_eq!(names.of(&[name(number)]), Some(vec![number as u8]));
        }
        assert_eq!(names.of(&[name(9), name(3)]), Some(vec![9, 3]), "a known one keeps its own");
        assert_eq!(names.of(&[name(9), name(FLOWBITS_MAX)]), None);
    }
}
