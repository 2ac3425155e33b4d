//! Bytes that match a rule's tests of a buffer.

use signatures::{
    BufferMatches, ByteTest, Comparison, Content, ContentPosition, NumberFormat, Operand, PayloadMatch,
    TestOperator,
};

use super::expression;
use super::random::Random;
use crate::ids_oracle::buffer::Matcher;

/// Maximum bytes of a planted buffer.
const BYTES_MAX: usize = 8000;
/// Attempts per buffer.
const ATTEMPTS: usize = 24;

/// The content where nothing is tested.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// At the beginning; contents may overwrite it.
    pub soft: Vec<u8>,
    /// Must be at the beginning.
    pub hard: Vec<u8>,
    /// The required length.
    pub size: Option<Comparison<u16>>,
}

/// Returns bytes that match, verified.
pub fn bytes(asked: &BufferMatches, ground: &Ground, random: &mut Random) -> Option<Vec<u8>> {
    let matcher = Matcher::new(asked).ok()?;
    (0..ATTEMPTS).find_map(|attempt| {
        let filler = [b'q', b'z', b'7', b' ', 0, 0xf1, b'\n', b'"'][attempt % 8];
        let mut canvas = Canvas { cells: Vec::new(), loose: attempt / 8, filler };
        ground.hard.iter().enumerate().for_each(|(at, byte)| canvas.set(at, *byte));
        canvas.place_all(asked, random)?;
        let bytes = canvas.finish(ground, asked)?;
        matcher.holds(&bytes.clone().into()).then_some(bytes)
    })
}

/// Bytes; some are fixed.
struct Canvas {
    cells: Vec<Option<u8>>,
    /// The room left between contents.
    loose: usize,
    filler: u8,
}

impl Canvas {
    fn place_all(&mut self, asked: &BufferMatches, random: &mut Random) -> Option<()> {
        let mut cursor = 0;
        for one in &asked.matches {
            match one {
                PayloadMatch::Content(content) if content.negated => {}
                PayloadMatch::Content(content) => {
                    let pattern = flipped(content, random);
                    let (from, until) = self.part(content.position, cursor)?;
                    let at = self.fit(&pattern, from, until)?;
                    self.write(at, &pattern);
                    cursor = at + pattern.len();
                }
                PayloadMatch::Pcre(pcre) if pcre.negated => {}
                PayloadMatch::Pcre(pcre) => {
                    let known = self.known();
                    let regex = regex::bytes::Regex::new(&pcre.regex().ok()?).ok()?;
                    let from = if pcre.relative { cursor.min(known.len()) } else { 0 };
                    if let Some(found) = regex.find(&known[from..]) {
                        self.write(from + found.start(), found.as_bytes());
                        cursor = from + found.end();
                        continue;
                    }
                    let text = expression::text(pcre, random)?;
                    let begins = pcre.pattern.starts_with('^') && !pcre.flags.multiline;
                    let from = match (pcre.relative, begins || pcre.flags.anchored) {
                        (true, _) => cursor,
                        (false, true) => 0,
                        (false, false) => self.cells.len() + self.loose,
                    };
                    if pcre.pattern.starts_with('^') && pcre.flags.multiline && from > 0 && !pcre.relative {
                        self.write(from, b"\n");
                        self.write(from + 1, &text);
                        cursor = from + 1 + text.len();
                        continue;
                    }
                    let fits = pcre.relative && !begins;
                    let from = if fits { self.fit(&text, from, usize::MAX)? } else { from };
                    self.write(from, &text);
                    cursor = from + text.len();
                }
                PayloadMatch::DataAt(data) if !data.negated => {
                    let Operand::Value(offset) = data.offset else { return None };
                    let from = if data.relative { cursor } else { 1 };
                    self.reach(from + usize::from(offset));
                }
                PayloadMatch::ByteTest(test) => self.number(test, cursor)?,
                PayloadMatch::ByteJump(jump) => {
                    // A jump of just its offset, unless a number is there.
                    let Operand::Value(offset) = jump.number.offset else { return None };
                    let Operand::Value(count) = jump.number.bytes else { return None };
                    let origin = if jump.number.relative { cursor as i64 } else { 0 };
                    let from = usize::try_from(origin + i64::from(offset)).ok()?;
                    let by = 4 * self.loose as u8;
                    for at in 0..usize::from(count) {
                        let low = match jump.number.format {
                            NumberFormat::Little => at == 0,
                            _ => at + 1 == usize::from(count),
                        };
                        if self.cells.get(from + at).copied().flatten().is_none() {
                            self.set(from + at, if low { by } else { 0 });
                        }
                    }
                    let Operand::Value(post) = jump.post_offset else { return None };
                    let behind = (from + usize::from(count)) as i64 + i64::from(by) + i64::from(post);
                    cursor = usize::try_from(behind).ok()?;
                    self.reach(cursor);
                }
                _ => {}
            }
        }
        (self.cells.len() <= BYTES_MAX).then_some(())
    }

    /// Returns the range of a content; `None` if it depends on a variable.
    fn part(&self, position: ContentPosition, cursor: usize) -> Option<(usize, usize)> {
        let part = |from: i64, len: Option<i64>| {
            let until = len.map_or(usize::MAX, |len| usize::try_from(from + len).unwrap_or(0));
            (from.max(0) as usize, until)
        };
        Some(match position {
            ContentPosition::Absolute { offset: Operand::Value(offset), depth: None } => {
                let free = if offset == 0 { self.cells.len() + self.loose } else { 0 };
                (usize::from(offset).max(free), usize::MAX)
            }
            ContentPosition::Absolute {
                offset: Operand::Value(offset),
                depth: Some(Operand::Value(depth)),
            } => part(i64::from(offset), Some(i64::from(depth))),
            ContentPosition::Relative { distance: Operand::Value(distance), within } => {
                let from = cursor as i64 + i64::from(distance);
                match within {
                    None => part(from + self.loose as i64, None),
                    Some(Operand::Value(within)) => part(from, Some(i64::from(within))),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// Returns the first place from `from` on, and before `until`, that is not fixed.
    fn fit(&self, pattern: &[u8], from: usize, until: usize) -> Option<usize> {
        let last = until.checked_sub(pattern.len())?.min(self.cells.len().max(from));
        (from..=last).find(|at| {
            let cells = self.cells.iter().skip(*at).zip(pattern);
            cells.into_iter().all(|(cell, byte)| cell.is_none_or(|cell| cell == *byte))
        })
    }

    /// Writes a number that passes the test.
    fn number(&mut self, test: &ByteTest, cursor: usize) -> Option<()> {
        let Operand::Value(value) = test.value else { return None };
        let (Operand::Value(offset), Operand::Value(count)) = (test.number.offset, test.number.bytes) else {
            return None;
        };
        let origin = if test.number.relative { cursor as i64 } else { 0 };
        let from = usize::try_from(origin + i64::from(offset)).ok()?;
        let count = usize::from(count);
        let bits = if count < 8 { (1u64 << (8 * count)) - 1 } else { u64::MAX };
        let number = match (test.operator, test.negated) {
            (TestOperator::Less, false) | (TestOperator::AtLeast, true) => value.checked_sub(1)?,
            (TestOperator::Greater, false) | (TestOperator::AtMost, true) => value.checked_add(1)?,
            (TestOperator::And, true) => !value & bits & 0x7f,
            (TestOperator::Equal, true) | (TestOperator::Xor, false) => value ^ 1,
            _ => value,
        };
        let number = match test.number.bitmask {
            Some(mask) => number << mask.trailing_zeros(),
            None => number,
        };
        let text = match test.number.format {
            NumberFormat::Big => number.to_be_bytes()[8 - count.min(8)..].to_vec(),
            NumberFormat::Little => number.to_le_bytes()[..count.min(8)].to_vec(),
            NumberFormat::Hexadecimal => format!("{number:0count$x}").into_bytes(),
            NumberFormat::Octal => format!("{number:0count$o}").into_bytes(),
            NumberFormat::Decimal | NumberFormat::Any => format!("{number:0count$}").into_bytes(),
            NumberFormat::Dce => return None,
        };
        // Several tests of one number: existing digits may pass this one, too. The end result is
        // verified.
        for (at, byte) in text.iter().take(count).enumerate() {
            let here = self.cells.get(from + at).copied().flatten();
            let merged = match (here, test.operator) {
                (Some(old), TestOperator::And) if !test.negated => old | byte,
                (Some(old), TestOperator::And) => {
                    let cleared = value.to_be_bytes()[8 - count.min(8)..][at];
                    old & !cleared
                }
                (Some(old), _) => old,
                (None, _) => *byte,
            };
            self.set(from + at, merged);
        }
        Some(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        bytes.iter().enumerate().for_each(|(i, byte)| self.set(at + i, *byte));
    }

    fn set(&mut self, at: usize, byte: u8) {
        self.reach(at + 1);
        self.cells[at] = Some(byte);
    }

    fn reach(&mut self, len: usize) {
        if self.cells.len() < len {
            self.cells.resize(len.min(BYTES_MAX + 1), None);
        }
    }

    fn known(&self) -> Vec<u8> {
        self.cells.iter().map(|cell| cell.unwrap_or(self.filler)).collect()
    }

    fn finish(&mut self, ground: &Ground, asked: &BufferMatches) -> Option<Vec<u8>> {
        let ends = asked.matches.iter().any(|one| match one {
            PayloadMatch::Content(content) => content.ends && !content.negated,
            PayloadMatch::DataAt(data) => data.negated,
            PayloadMatch::Pcre(pcre) => pcre.pattern.ends_with('$'),
            _ => false,
        });
        let size = asked.matches.iter().find_map(|one| match one {
            PayloadMatch::Size(size) => Some(*size),
            _ => None,
        });
        if let Some(size) = size {
            let len = (self.cells.len()..BYTES_MAX).find(|len| size.holds(*len as u64))?;
            self.reach(len);
        }
        if !ends && size.is_none() && ground.size.is_none() {
            self.reach(ground.soft.len());
        }
        if let Some(size) = ground.size {
            let len = (self.cells.len()..BYTES_MAX).find(|len| size.holds(*len as u16))?;
            self.reach(len);
        }
        let cells = self.cells.iter().enumerate();
        Some(cells.map(|(at, cell)| cell.or(ground.soft.get(at).copied()).unwrap_or(self.filler)).collect())
    }
}

/// Returns a content with random case, if case is ignored.
fn flipped(content: &Content, random: &mut Random) -> Vec<u8> {
    if !content.nocase {
        return content.pattern.clone();
    }
    let flip = |byte: &u8| {
        let upper = random.one_in(2);
        if upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
    };
    content.pattern.iter().map(flip).collect()
}

/// Returns the lowest number that passes a test.
pub fn passing<T: signatures::Unsigned + TryFrom<u64>>(test: &Comparison<T>, from: u64) -> Option<u64> {
    (from..from + 70_000)
        .chain([u64::from(u32::MAX)])
        .find(|number| T::try_from(*number).is_ok_and(|n| test.holds(n)))
}
