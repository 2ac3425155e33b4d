//! Matching of literal bytes.

use memchr::memmem::Finder;
use memchr::{memchr_iter, memchr2_iter};

use crate::inspect::budget::Budget;

/// A compiled literal.
#[derive(Clone, Debug)]
pub(crate) struct Literal {
    /// In lower case if case is ignored.
    pattern: Box<[u8]>,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    Exact(Box<Finder<'static>>),
    /// Ignoring case: searches for the byte of the pattern that is likely to be rarest.
    AnyCase {
        rare: usize,
    },
}

impl Literal {
    pub fn new(pattern: &[u8], nocase: bool) -> Self {
        if !nocase || !pattern.iter().any(u8::is_ascii_alphabetic) {
            let finder = Finder::new(pattern).into_owned();
            return Self { pattern: pattern.into(), how: How::Exact(Box::new(finder)) };
        }
        let pattern = pattern.to_ascii_lowercase().into_boxed_slice();
        let rare = (0..pattern.len()).min_by_key(|index| frequency(pattern[*index])).unwrap_or(0);
        Self { pattern, how: How::AnyCase { rare } }
    }

    pub fn len(&self) -> usize {
        self.pattern.len()
    }

    /// Returns the first match from `first` to `last`, both inclusive. The caller ensures that the
    /// pattern fits at `last`.
    pub fn find(&self, bytes: &[u8], first: usize, last: usize, budget: &mut Budget) -> Option<usize> {
        if first > last {
            return None;
        }
        if first == last {
            budget.charge(self.len());
            return self.is_at(bytes, first).then_some(first);
        }
        let part = &bytes[first..last + self.len()];
        let place = match self.how {
            How::Exact(ref finder) => finder.find(part),
            How::AnyCase { rare } => self.find_in_any_case(part, rare, budget),
        };
        budget.charge(place.unwrap_or(part.len()));
        place.map(|place| first + place)
    }

    fn find_in_any_case(&self, part: &[u8], rare: usize, budget: &mut Budget) -> Option<usize> {
        let byte = self.pattern[rare];
        let rest = self.len() - rare - 1;
        let candidates = &part[rare..part.len() - rest];
        // The offset of the rare byte among the candidates equals the offset of the pattern in the
        // part.
        let mut is_at = |place: &usize| {
            let same = self.same_bytes(&part[*place..]);
            budget.spend(same);
            same == self.len() || budget.is_spent()
        };
        let place = match byte.is_ascii_alphabetic() {
            true => memchr2_iter(byte, byte.to_ascii_uppercase(), candidates).find(&mut is_at),
            false => memchr_iter(byte, candidates).find(&mut is_at),
        };
        place.filter(|_| !budget.is_spent())
    }

    fn is_at(&self, bytes: &[u8], place: usize) -> bool {
        let bytes = &bytes[place..];
        match self.how {
            How::Exact(_) => bytes.starts_with(&self.pattern),
            How::AnyCase { .. } => self.same_bytes(bytes) == self.len(),
        }
    }

    /// Returns the length of the common prefix with the pattern, ignoring case.
    fn same_bytes(&self, bytes: &[u8]) -> usize {
        let same = bytes.iter().zip(&self.pattern).position(|(a, b)| a.to_ascii_lowercase() != *b);
        same.unwrap_or_else(|| self.len().min(bytes.len()))
    }
}

/// Returns the approximate frequency of a byte in text protocols: lower is rarer.
fn frequency(byte: u8) -> u8 {
    const COMMON: &[u8] = b"zqjxkvbywgpfmucdlhrsnioate";
    match byte {
        0 | b' ' => 255,
        b'.' | b'/' | b'-' | b':' | b'=' | b'\r' | b'\n' => 200,
        b'0'..=b'9' => 150,
        b'a'..=b'z' => COMMON.iter().position(|letter| *letter == byte).map_or(255, |i| 100 + 5 * i as u8),
        b' '..=b'~' => 80,
        _ => 50,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_place_is_found(
            pattern in "[aAbB=]{1,4}", text in "[aAbB=]{0,24}", nocase: bool, first in 0usize..8, cut in 0usize..8,
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let literal = Literal::new(pattern, nocase);
            let last = (text.len().saturating_sub(cut)).checked_sub(pattern.len());
            let Some(last) = last else { return Ok(()) };
            let same = |part: &[u8]| if nocase { part.eq_ignore_ascii_case(pattern) } else { part == pattern };
            let expected = (first..=last).find(|place| same(&text[*place..place + pattern.len()]));
            prop_assert_eq!(literal.find(text, first, last, &mut Budget::new(1, text.len(), crate::inspect::STEPS_MAX)), expected);
        }
    }
}
