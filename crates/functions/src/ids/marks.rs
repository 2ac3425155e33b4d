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
