//! A slow oracle of matches: it tries every place of every content and expression, nested,
//! remembers nothing and skips nothing. It is written from the documentation of the rules alone.
//!
//! For expressions, each place where a match begins is tried, with its preferred end (that of an
//! anchored search by another engine of the same library, `PikeVM`). Neither implementation tries
//! other ends of a match that begins at the same place.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use signatures::{
    Content, ContentPosition, JumpOrigin, MathOperator, NumberField, NumberFormat, Operand, PayloadMatch,
    Pcre, TestOperator,
};

/// The variables and decoded data of a rule.
#[derive(Clone, Default)]
pub struct State {
    variables: Vec<u64>,
    pub decoded: Vec<u8>,
}

/// A buffer: `bytes` are available, from `start` on.
pub struct Oracle<'a> {
    matches: &'a [PayloadMatch],
    expressions: Vec<Option<PikeVM>>,
    bytes: &'a [u8],
    start: i128,
    /// Remaining matches to try.
    work: u64,
}

impl<'a> Oracle<'a> {
    /// Creates a matcher. `work` limits the matches tried; an expression counts for more.
    pub fn new(matches: &'a [PayloadMatch], bytes: &'a [u8], start: u64, work: u64) -> Self {
        let expressions = matches.iter().map(|one| match one {
            PayloadMatch::Pcre(pcre) => compile(pcre),
            _ => None,
        });
        Self { matches, expressions: expressions.collect(), bytes, start: start.into(), work }
    }

    /// Returns the state after the first assignment of places that matches, in the order of the
    /// buffer; `None` if there is none. An error if that takes too long.
    pub fn holds(mut self, state: &State) -> Result<Option<State>, TooLong> {
        let mut state = state.clone();
        state.variables.resize(256, 0);
        self.rest_holds(0, 0, state)
    }

    /// Returns whether the matches from `at` on succeed, with the cursor at this distance from the
    /// beginning.
    fn rest_holds(&mut self, at: usize, cursor: i128, mut state: State) -> Result<Option<State>, TooLong> {
        self.work = self.work.checked_sub(1).ok_or(TooLong)?;
        let Some(one) = self.matches.get(at) else { return Ok(Some(state)) };
        let end = self.start + self.bytes.len() as i128;
        let holds = match one {
            PayloadMatch::Content(content) => {
                let Some(ends) = self.content_ends(content, cursor, &state) else { return Ok(None) };
                if !content.negated {
                    return self.any_holds(at, ends, &state);
                }
                ends.is_empty()
            }
            PayloadMatch::Pcre(pcre) => {
                if self.expressions[at].is_none() {
                    return Err(TooLong);
                }
                let searched = self.bytes.len() as u64 + 1;
                self.work = self.work.checked_sub(searched * searched / 16).ok_or(TooLong)?;
                let ends = self.pcre_ends(at, pcre, cursor);
                if !pcre.negated {
                    return self.any_holds(at, ends, &state);
                }
                ends.is_empty()
            }
            PayloadMatch::DataAt(test) => {
                let Some(offset) = resolve(test.offset, &state) else { return Ok(None) };
                let has = match test.relative {
                    true => cursor + i128::from(offset) <= end,
                    false => i128::from(offset) < end,
                };
                has ^ test.negated
            }
            PayloadMatch::Size(size) => size.holds(end as u64),
            PayloadMatch::ByteTest(test) => {
                let number = self.number(&test.number, cursor, &state);
                let Some(((value, _), right)) = number.zip(resolve(test.value, &state)) else {
                    return Ok(None);
                };
                let holds = match test.operator {
                    TestOperator::Less => value < right,
                    TestOperator::AtMost => value <= right,
                    TestOperator::Greater => value > right,
                    TestOperator::AtLeast => value >= right,
                    TestOperator::Equal => value == right,
                    TestOperator::And => (value & right).count_ones() > 0,
                    TestOperator::Xor => (value ^ right).count_ones() > 0,
                };
                holds ^ test.negated
            }
            PayloadMatch::ByteJump(jump) => {
                let Some((value, behind)) = self.number(&jump.number, cursor, &state) else {
                    return Ok(None);
                };
                let Some(post) = resolve(jump.post_offset, &state) else { return Ok(None) };
                let mut bytes = i128::from(value) * i128::from(jump.multiplier);
                while jump.align && bytes % 4 != 0 {
                    bytes += 1;
                }
                let from = match jump.origin {
                    JumpOrigin::Number => behind,
                    JumpOrigin::Beginning => 0,
                    JumpOrigin::End => end,
                };
                let to = from + bytes + i128::from(post);
                if to > end {
                    return Ok(None);
                }
                return self.rest_holds(at + 1, to.max(0), state);
            }
            PayloadMatch::ByteExtract(extract) => {
                let Some((value, behind)) = self.number(&extract.number, cursor, &state) else {
                    return Ok(None);
                };
                let mut value = value.wrapping_mul(extract.multiplier.into());
                if let Some(align) = extract.align {
                    while value % u64::from(align) != 0 {
                        let Some(next) = value.checked_add(1) else { return Ok(None) };
                        value = next;
                    }
                }
                state.variables[usize::from(extract.result.0)] = value;
                return self.rest_holds(at + 1, behind, state);
            }
            PayloadMatch::ByteMath(math) => {
                let number = self.number(&math.number, cursor, &state);
                let Some(((value, behind), right)) = number.zip(resolve(math.value, &state)) else {
                    return Ok(None);
                };
                let (left, right) = (i128::from(value), i128::from(right));
                let result = match math.operator {
                    MathOperator::Add => left + right,
                    MathOperator::Subtract => left - right,
                    MathOperator::Multiply => left * right,
                    MathOperator::Divide if right == 0 => return Ok(None),
                    MathOperator::Divide => left / right,
                    MathOperator::ShiftLeft if right > 63 => 0,
                    MathOperator::ShiftLeft => left << right,
                    MathOperator::ShiftRight => left >> right.min(64),
                };
                // The lower 64 bits.
                state.variables[usize::from(math.result.0)] = result as u64;
                return self.rest_holds(at + 1, behind, state);
            }
            PayloadMatch::Base64Decode(decode) => {
                let place = if decode.relative { cursor } else { 0 } + i128::from(decode.offset);
                let Ok(first) = usize::try_from(place - self.start) else { return Ok(None) };
                let encoded = self.bytes.get(first..).unwrap_or_default();
                let encoded =
                    &encoded[..encoded.len().min(decode.bytes.unwrap_or(65_536) as usize).min(65_536)];
                state.decoded = decoded(encoded);
                !state.decoded.is_empty()
            }
            PayloadMatch::Absent { or_else } => *or_else,
            _ => return Err(TooLong),
        };
        if holds { self.rest_holds(at + 1, cursor, state) } else { Ok(None) }
    }

    fn any_holds(&mut self, at: usize, ends: Vec<i128>, state: &State) -> Result<Option<State>, TooLong> {
        for end in ends {
            let found = self.rest_holds(at + 1, end, state.clone())?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the ends of all occurrences of a content.
    fn content_ends(&self, content: &Content, cursor: i128, state: &State) -> Option<Vec<i128>> {
        let (from, to) = match content.position {
            ContentPosition::Absolute { offset, depth } => {
                let from = i128::from(resolve(offset, state)?);
                let to = match depth {
                    Some(depth) => from + i128::from(resolve(depth, state)?),
                    None => i128::MAX,
                };
                (from, to)
            }
            ContentPosition::Relative { distance, within } => {
                let from = cursor + i128::from(resolve(distance, state)?);
                let to = match within {
                    Some(within) => from + i128::from(resolve(within, state)?),
                    None => i128::MAX,
                };
                (from, to)
            }
        };
        let end = self.start + self.bytes.len() as i128;
        let pattern = &content.pattern;
        let places =
            self.bytes.windows(pattern.len()).enumerate().filter(|(_, window)| match content.nocase {
                true => window.eq_ignore_ascii_case(pattern),
                false => window == pattern,
            });
        let spans = places.map(|(index, _)| {
            let first = self.start + index as i128;
            (first, first + pattern.len() as i128)
        });
        let inside =
            spans.filter(|(first, last)| *first >= from && *last <= to && (!content.ends || *last == end));
        Some(inside.map(|(_, last)| last).collect())
    }

    fn pcre_ends(&self, at: usize, pcre: &Pcre, cursor: i128) -> Vec<i128> {
        let Some(vm) = &self.expressions[at] else { return Vec::new() };
        let first = if pcre.relative { (cursor - self.start).max(0) as usize } else { 0 };
        let visible = &self.bytes[first.min(self.bytes.len())..];
        let mut cache = vm.create_cache();
        let mut ends = Vec::new();
        for place in 0..=visible.len() {
            let input = Input::new(visible).range(place..).anchored(Anchored::Yes);
            let mut slots = [None; 2];
            if vm.search_slots(&mut cache, &input, &mut slots).is_some() {
                ends.push(self.start + (first + slots[1].unwrap().get()) as i128);
            }
        }
        ends
    }

    /// Returns a number, and its end.
    fn number(&self, number: &NumberField, cursor: i128, state: &State) -> Option<(u64, i128)> {
        let count = resolve(number.bytes, state)?;
        let base = if number.relative { cursor } else { 0 };
        let place = base + i128::from(resolve(number.offset, state)?);
        let end = place + i128::from(count);
        if count == 0 {
            return Some((0, end));
        }
        let first = usize::try_from(place - self.start).ok()?;
        let bytes = self.bytes.get(first..first + usize::from(count))?;
        let binary = matches!(number.format, NumberFormat::Big | NumberFormat::Little);
        if count > if binary { 8 } else { 23 } {
            return None;
        }
        let mut end = end;
        let mut value = match number.format {
            NumberFormat::Big => bytes.iter().fold(0, |value, byte| value * 256 + u64::from(*byte)),
            NumberFormat::Little => bytes.iter().rfold(0, |value, byte| value * 256 + u64::from(*byte)),
            format => {
                let (value, len) = digits(bytes, format)?;
                end = place + len as i128;
                value
            }
        };
        if let Some(mask) = number.bitmask {
            value &= u64::from(mask);
            for _ in 0..(0..32).take_while(|bit| mask >> bit & 1 == 0).count() {
                value /= 2;
            }
        }
        Some((value, end))
    }
}

/// The evaluation takes too long, or has an expression that has no automaton.
#[derive(Debug)]
pub struct TooLong;

fn resolve<N: Copy + TryFrom<u64>>(operand: Operand<N>, state: &State) -> Option<N> {
    match operand {
        Operand::Value(value) => Some(value),
        Operand::Variable(variable) => N::try_from(state.variables[usize::from(variable.0)]).ok(),
    }
}

/// Returns the number, and its length in bytes.
fn digits(bytes: &[u8], format: NumberFormat) -> Option<(u64, usize)> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
    let text = text.strip_prefix('+').unwrap_or(text);
    let of_base = |text: &str, base: u32| {
        let length = text.find(|digit: char| !digit.is_digit(base)).unwrap_or(text.len());
        let value = u64::from_str_radix(&text[..length], base).ok()?;
        Some((value, bytes.len() - text[length..].chars().count()))
    };
    let prefixed = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let prefixed = prefixed.filter(|rest| rest.starts_with(|digit: char| digit.is_ascii_hexdigit()));
    match format {
        NumberFormat::Hexadecimal => of_base(prefixed.unwrap_or(text), 16),
        NumberFormat::Decimal => of_base(text, 10),
        NumberFormat::Octal => of_base(text, 8),
        NumberFormat::Any => match prefixed {
            Some(rest) => of_base(rest, 16),
            None if text.starts_with('0') => of_base(text, 8),
            None => of_base(text, 10),
        },
        _ => None,
    }
}

fn decoded(encoded: &[u8]) -> Vec<u8> {
    let lenient = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone);
    let letters =
        encoded.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte)).count();
    let letters = if letters % 4 == 1 { letters - 1 } else { letters };
    GeneralPurpose::new(&STANDARD, lenient).decode(&encoded[..letters]).unwrap()
}

fn compile(pcre: &Pcre) -> Option<PikeVM> {
    let regex = pcre.regex().ok()?;
    let config = syntax::Config::new().utf8(false);
    let thompson = regex_automata::nfa::thompson::Config::new().utf8(false);
    Some(PikeVM::builder().syntax(config).thompson(thompson).build(&regex).unwrap())
}
