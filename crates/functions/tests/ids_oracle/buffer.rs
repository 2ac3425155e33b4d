//! Evaluation of a buffer's tests: every place of every content is tried, byte by byte.

use std::cell::{Cell, OnceCell};

use regex::bytes::{Regex, RegexBuilder};
use signatures::{
    BufferMatches, BufferTransform, ByteJump, ByteTest, Content, ContentPosition, DataAt, JumpOrigin,
    NumberField, NumberFormat, Operand, PayloadMatch, TestOperator,
};

/// Maximum steps of one buffer's search; [`Matcher::gave_up`] reports an abandoned one.
const STEPS_MAX: u64 = 2_000_000;

/// The prepared tests of a buffer.
#[derive(Debug)]
pub struct Matcher {
    matches: Vec<PayloadMatch>,
    /// The expression of each match that has one.
    expressions: Vec<Option<Regex>>,
    transforms: Vec<BufferTransform>,
    /// The byte pairs of all positive contents; none after transforms.
    pairs: Vec<u16>,
    gave_up: Cell<bool>,
}

/// Bytes, and their offset in the stream.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    pub bytes: Vec<u8>,
    /// Origin of absolute positions; 0 except for streams.
    pub start: u64,
    /// The byte pairs in it, letters in lower case: a bit each.
    pairs: OnceCell<Vec<u64>>,
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Piece {
        Piece::new(bytes, 0)
    }
}

impl Piece {
    pub fn new(bytes: Vec<u8>, start: u64) -> Piece {
        Piece { bytes, start, pairs: OnceCell::new() }
    }

    /// Returns whether it contains all of these pairs: without all pairs of a content, it lacks the
    /// content.
    pub fn has_all(&self, asked: &[u16]) -> bool {
        let has = self.pairs.get_or_init(|| {
            let mut has = vec![0u64; 1024];
            pairs(&self.bytes).for_each(|pair| has[usize::from(pair / 64)] |= 1 << (pair % 64));
            has
        });
        asked.iter().all(|pair| has[usize::from(pair / 64)] >> (pair % 64) & 1 == 1)
    }
}

/// Returns each pair of consecutive bytes, letters in lower case.
pub fn pairs(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.windows(2).map(|two| u16::from_be_bytes([two[0].to_ascii_lowercase(), two[1].to_ascii_lowercase()]))
}

impl Matcher {
    /// Prepares the tests; the error names the unsupported part.
    pub fn new(asked: &BufferMatches) -> Result<Matcher, String> {
        let mut expressions = Vec::new();
        for one in &asked.matches {
            expressions.push(match one {
                PayloadMatch::Pcre(pcre) if !pcre.captures.is_empty() => return Err("pcre captures".into()),
                PayloadMatch::Pcre(pcre) => {
                    let text = pcre.regex().map_err(|feature| format!("pcre {feature:?}"))?;
                    let regex = RegexBuilder::new(&text).unicode(false).size_limit(1 << 26).build();
                    Some(regex.map_err(|_| "pcre size")?)
                }
                PayloadMatch::Content(_)
                | PayloadMatch::DataAt(_)
                | PayloadMatch::Size(_)
                | PayloadMatch::ByteTest(_)
                | PayloadMatch::ByteJump(_)
                | PayloadMatch::Absent { .. } => None,
                other => return Err(other.keyword().into()),
            });
        }
        if let Some(other) = asked.transforms.iter().find(|transform| apply(transform, vec![]).is_none()) {
            return Err(other.keyword().into());
        }
        let (matches, transforms) = (asked.matches.clone(), asked.transforms.clone());
        let needed = matches.iter().filter_map(|one| match one {
            PayloadMatch::Content(content) if !content.negated && transforms.is_empty() => {
                Some(&content.pattern[..])
            }
            _ => None,
        });
        let pairs = needed.flat_map(pairs).collect();
        Ok(Matcher { matches, expressions, transforms, pairs, gave_up: Cell::new(false) })
    }

    /// Returns whether a search was abandoned.
    pub fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    /// Returns whether a missing buffer matches.
    pub fn holds_without(&self) -> bool {
        self.matches.iter().any(|one| matches!(one, PayloadMatch::Absent { .. }))
    }

    /// Returns whether a buffer matches.
    pub fn holds(&self, piece: &Piece) -> bool {
        if self.matches.iter().any(|one| matches!(one, PayloadMatch::Absent { or_else: false })) {
            return false;
        }
        if !piece.has_all(&self.pairs) {
            return false;
        }
        let bytes = self.transforms.iter().fold(piece.bytes.clone(), |bytes, transform| {
            apply(transform, bytes).unwrap_or_default() // `new` has refused transforms without a result.
        });
        let search = Search { matcher: self, bytes: &bytes, start: piece.start as i64, steps: Cell::new(0) };
        let holds = search.rest(0, 0);
        self.gave_up.set(self.gave_up.get() || search.steps.get() > STEPS_MAX);
        holds
    }
}

/// A search in one buffer. Places count from 0, even if it begins later in a stream.
struct Search<'a> {
    matcher: &'a Matcher,
    bytes: &'a [u8],
    start: i64,
    steps: Cell<u64>,
}

impl Search<'_> {
    /// Returns whether the matches from this one on succeed, with the cursor here.
    fn rest(&self, at: usize, cursor: usize) -> bool {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            return false;
        }
        let Some(one) = self.matcher.matches.get(at) else { return true };
        match one {
            PayloadMatch::Content(content) => self.content(content, at, cursor),
            PayloadMatch::Pcre(pcre) => {
                // Made for each expression.
                let regex = self.matcher.expressions[at].as_ref().unwrap();
                let from = if pcre.relative { cursor } else { 0 };
                self.expression(regex, from, pcre.negated, at, cursor)
            }
            PayloadMatch::DataAt(data) => self.data_at(data, cursor) && self.rest(at + 1, cursor),
            PayloadMatch::Size(size) => size.holds(self.bytes.len() as u64) && self.rest(at + 1, cursor),
            PayloadMatch::ByteTest(test) => self.byte_test(test, cursor) && self.rest(at + 1, cursor),
            PayloadMatch::ByteJump(jump) => {
                self.byte_jump(jump, cursor).is_some_and(|cursor| self.rest(at + 1, cursor))
            }
            _ => self.rest(at + 1, cursor), // `absent:or_else`, of a buffer that there is.
        }
    }

    fn content(&self, content: &Content, at: usize, cursor: usize) -> bool {
        let Some((from, until)) = self.part(content.position, cursor) else { return false };
        let (len, end) = (content.pattern.len() as i64, self.bytes.len() as i64);
        let (from, until) = (from.max(0), until.min(end));
        let is_here = |place: i64| {
            let found = &self.bytes[place as usize..(place + len) as usize];
            let same = if content.nocase {
                found.eq_ignore_ascii_case(&content.pattern)
            } else {
                found == content.pattern
            };
            same && (!content.ends || place + len == end)
        };
        let mut places = (from..=until - len).filter(|place| is_here(*place));
        match content.negated {
            true => places.next().is_none() && self.rest(at + 1, cursor),
            false => places.any(|place| self.rest(at + 1, (place + len) as usize)),
        }
    }

    /// Returns the range of a content, which may exceed the buffer. `None` if a variable is
    /// unknown.
    fn part(&self, position: ContentPosition, cursor: usize) -> Option<(i64, i64)> {
        Some(match position {
            ContentPosition::Absolute { offset, depth } => {
                let from = i64::from(value(offset)?) - self.start;
                let until = match depth {
                    Some(depth) => from + i64::from(value(depth)?),
                    None => i64::MAX,
                };
                (from, until)
            }
            ContentPosition::Relative { distance, within } => {
                let from = cursor as i64 + i64::from(value(distance)?);
                let until = match within {
                    Some(within) => from + i64::from(value(within)?),
                    None => i64::MAX,
                };
                (from, until)
            }
        })
    }

    fn expression(&self, regex: &Regex, from: usize, negated: bool, at: usize, cursor: usize) -> bool {
        let part = &self.bytes[from..];
        if negated {
            return !regex.is_match(part) && self.rest(at + 1, cursor);
        }
        let mut next = 0;
        while next <= part.len()
            && let Some(found) = regex.find_at(part, next)
        {
            if self.rest(at + 1, from + found.end()) {
                return true;
            }
            next = found.start() + 1;
        }
        false
    }

    fn data_at(&self, data: &DataAt, cursor: usize) -> bool {
        let Some(offset) = value(data.offset) else { return false };
        let end = self.bytes.len() as i64;
        let is_there = match data.relative {
            true => cursor as i64 + i64::from(offset) <= end,
            false => i64::from(offset) < self.start + end,
        };
        is_there != data.negated
    }

    fn byte_test(&self, test: &ByteTest, cursor: usize) -> bool {
        let (Some((number, _)), Some(other)) = (self.number(&test.number, cursor), value(test.value)) else {
            return false;
        };
        let holds = match test.operator {
            TestOperator::Less => number < other,
            TestOperator::AtMost => number <= other,
            TestOperator::Greater => number > other,
            TestOperator::AtLeast => number >= other,
            TestOperator::Equal => number == other,
            TestOperator::And => number & other != 0,
            TestOperator::Xor => number ^ other != 0,
        };
        holds != test.negated
    }

    /// Returns the cursor after a jump.
    fn byte_jump(&self, jump: &ByteJump, cursor: usize) -> Option<usize> {
        let (number, behind) = self.number(&jump.number, cursor)?;
        let mut by = i64::try_from(number.checked_mul(u64::from(jump.multiplier))?).ok()?;
        if jump.align {
            by = by.checked_add(3)? & !3;
        }
        let origin = match jump.origin {
            JumpOrigin::Number => behind as i64,
            JumpOrigin::Beginning => -self.start,
            JumpOrigin::End => self.bytes.len() as i64,
        };
        let place = origin.checked_add(by)?.checked_add(i64::from(value(jump.post_offset)?))?;
        // A jump before the beginning leads there; one into the missing part of the stream fails.
        usize::try_from(place.max(-self.start)).ok().filter(|place| *place <= self.bytes.len())
    }

    /// Returns a number, and its end.
    fn number(&self, number: &NumberField, cursor: usize) -> Option<(u64, usize)> {
        let origin = if number.relative { cursor as i64 } else { -self.start };
        let from = usize::try_from(origin + i64::from(value(number.offset)?)).ok()?;
        let count = usize::from(value(number.bytes)?);
        let bytes = self.bytes.get(from..)?.get(..count)?;
        let mut len = count;
        let mut digits = |text: &[u8], radix| {
            let (value, taken) = digits(text, radix)?;
            len = bytes.len() - text.len() + taken;
            Some(value)
        };
        let read = match number.format {
            NumberFormat::Big => bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte)),
            NumberFormat::Little => bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte)),
            NumberFormat::Dce => return None,
            NumberFormat::Hexadecimal => digits(bytes, 16)?,
            NumberFormat::Decimal => digits(bytes, 10)?,
            NumberFormat::Octal => digits(bytes, 8)?,
            NumberFormat::Any => match bytes {
                [b'0', b'x' | b'X', rest @ ..] => digits(rest, 16)?,
                [b'0', rest @ ..] if rest.first().is_some_and(u8::is_ascii_digit) => digits(rest, 8)?,
                _ => digits(bytes, 10)?,
            },
        };
        let read = match number.bitmask {
            Some(mask) => (read & u64::from(mask)) >> mask.trailing_zeros(),
            None => read,
        };
        Some((read, from + len))
    }
}

/// Returns the number of the leading digits, if any, and their end.
fn digits(whole: &[u8], radix: u32) -> Option<(u64, usize)> {
    let text = whole.trim_ascii_start();
    let len = text.iter().take_while(|byte| (**byte as char).is_digit(radix)).count();
    let value = u64::from_str_radix(std::str::from_utf8(&text[..len]).ok()?, radix).ok()?;
    Some((value, whole.len() - text.len() + len))
}

/// Returns the number; `None` for a variable, because rules with variables are refused.
fn value<N>(operand: Operand<N>) -> Option<N> {
    match operand {
        Operand::Value(value) => Some(value),
        Operand::Variable(_) => None,
    }
}

/// Applies a transform; `None` if it is unsupported.
fn apply(transform: &BufferTransform, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    Some(match transform {
        BufferTransform::DotPrefix => [b".", &bytes[..]].concat(),
        BufferTransform::StripWhitespace => bytes.into_iter().filter(|byte| !is_space(byte)).collect(),
        BufferTransform::CompressWhitespace => {
            let mut out: Vec<u8> = Vec::new();
            let mut before = false;
            for byte in bytes {
                let space = is_space(&byte);
                if !(space && before) {
                    out.push(if space { b' ' } else { byte });
                }
                before = space;
            }
            out
        }
        BufferTransform::ToLowercase => bytes.to_ascii_lowercase(),
        BufferTransform::ToUppercase => bytes.to_ascii_uppercase(),
        _ => return None,
    })
}
