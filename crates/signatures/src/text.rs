//! Pieces of a rule's text with their positions.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::RuleError;

/// A part of a rule's text, with its offset in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub text: &'a str,
    pub at: usize,
}

/// An error, and its offset in the rule's text, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub at: usize,
    pub error: RuleError,
}

/// The result of parsing a part of a rule.
pub(crate) type ParseResult<T> = Result<T, SyntaxError>;

impl<'a> Piece<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the part from byte `from` to byte `to`, which must be on character boundaries.
    pub fn part(self, from: usize, to: usize) -> Self {
        Self { text: &self.text[from..to], at: self.at + from }
    }

    pub fn from(self, from: usize) -> Self {
        self.part(from, self.text.len())
    }

    /// Returns the position of byte `at`, within any character.
    pub fn part_at(self, at: usize) -> Self {
        Self { text: "", at: self.at + at }
    }

    pub fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// Trims white space at both ends.
    pub fn trim(self) -> Self {
        let from = self.text.len() - self.text.trim_start().len();
        Self { text: self.text.trim(), at: self.at + from }
    }

    pub fn strip(self, prefix: &str) -> Option<Self> {
        self.text.starts_with(prefix).then(|| self.from(prefix.len()))
    }

    /// Splits off an initial `!`; returns whether there was one.
    pub fn negation(self) -> (bool, Self) {
        match self.strip("!") {
            Some(rest) => (true, rest.trim()),
            None => (false, self),
        }
    }

    /// Splits before and after the first `sign`.
    pub fn cut(self, sign: &str) -> Option<(Self, Self)> {
        let at = self.text.find(sign)?;
        Some((self.part(0, at), self.from(at + sign.len())))
    }

    /// Splits at separators, trimmed.
    pub fn split(self, separator: char) -> impl Iterator<Item = Self> {
        let mut from = 0;
        self.text.split(separator).map(move |text| {
            let part = Self { text, at: self.at + from };
            from += text.len() + separator.len_utf8();
            part.trim()
        })
    }

    /// Splits at white space.
    pub fn words(self) -> impl Iterator<Item = Self> {
        self.text.split_ascii_whitespace().map(move |text| {
            // A part of a text begins within it.
            let from = text.as_ptr() as usize - self.text.as_ptr() as usize;
            Self { text, at: self.at + from }
        })
    }

    /// Returns the error that this is not as expected.
    pub fn wrong(self, expected: impl Into<String>) -> SyntaxError {
        self.error(RuleError::Value { found: self.text.to_owned(), expected: expected.into() })
    }

    pub fn error(self, error: RuleError) -> SyntaxError {
        SyntaxError { at: self.at, error }
    }

    /// Parses an integer in `range`: decimal, or hexadecimal after `0x`.
    pub fn number<T>(self, range: RangeInclusive<T>) -> ParseResult<T>
    where
        T: Copy + PartialOrd + Display + TryFrom<i128>,
    {
        let (negative, digits) = match self.text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, self.text),
        };
        let magnitude: Option<i128> = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => i128::from_str_radix(hex, 16).ok(),
            None if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        magnitude
            .and_then(|n| T::try_from(if negative { -n } else { n }).ok())
            .filter(|n| range.contains(n))
            .ok_or_else(|| self.wrong(format!("a number from {} to {}", range.start(), range.end())))
    }

    /// Parses one of a few words.
    pub fn one_of<T: Copy>(self, words: &[(&str, T)]) -> ParseResult<T> {
        words.iter().find(|(word, _)| *word == self.text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.wrong(match &words[..] {
                [one] => one.clone(),
                _ => format!("one of {}", words.join(", ")),
            })
        })
    }
}
