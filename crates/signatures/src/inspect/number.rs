//! Numbers in a buffer.

use crate::{
    ByteExtract, ByteJump, ByteMath, ByteTest, JumpOrigin, MathOperator, NumberField, NumberFormat,
    TestOperator,
};

use crate::inspect::scratch::Values;
use crate::inspect::view::BufferView;

/// Maximum bytes of a binary number, and of the value of one in text.
const NUMBER_BYTES_MAX: u8 = 8;
const TEXT_BYTES_MAX: u8 = 23;

/// A parsed number, and the position after it.
struct ParsedNumber {
    value: u64,
    end: i64,
}

impl BufferView<'_> {
    /// Returns whether a `byte_test` passes.
    pub fn byte_test(&self, test: &ByteTest, cursor: i64, values: &Values) -> bool {
        let found = self.number(&test.number, cursor, values);
        let Some((ParsedNumber { value, .. }, right)) = found.zip(values.resolve(test.value)) else {
            return false;
        };
        let holds = match test.operator {
            TestOperator::Less => value < right,
            TestOperator::AtMost => value <= right,
            TestOperator::Greater => value > right,
            TestOperator::AtLeast => value >= right,
            TestOperator::Equal => value == right,
            TestOperator::And => value & right != 0,
            TestOperator::Xor => value ^ right != 0,
        };
        holds != test.negated
    }

    /// Returns the target of a `byte_jump`. The end of the buffer is a valid target; a jump to
    /// before the beginning leads there.
    pub fn byte_jump(&self, jump: &ByteJump, cursor: i64, values: &Values) -> Option<i64> {
        let ParsedNumber { value, end } = self.number(&jump.number, cursor, values)?;
        let origin = match jump.origin {
            JumpOrigin::Number => end,
            JumpOrigin::Beginning => self.beginning,
            JumpOrigin::End => self.end(),
        };
        // 64 bits times 16.
        let product = i128::from(value) * i128::from(jump.multiplier);
        let bytes = if jump.align { (product + 3) & !3 } else { product };
        let place = i128::from(origin) + bytes + i128::from(values.resolve(jump.post_offset)?);
        let place = i64::try_from(place.max(i128::from(self.beginning))).ok()?;
        (place <= self.end()).then_some(place.max(self.beginning))
    }

    /// Returns the value of a `byte_extract`, and the cursor after it.
    pub fn byte_extract(&self, extract: &ByteExtract, cursor: i64, values: &Values) -> Option<(u64, i64)> {
        let ParsedNumber { value, end } = self.number(&extract.number, cursor, values)?;
        let product = value.wrapping_mul(u64::from(extract.multiplier));
        let value = match extract.align {
            Some(align) => product.checked_next_multiple_of(u64::from(align))?,
            None => product,
        };
        Some((value, end))
    }

    /// Returns the value of a `byte_math`, truncated to 64 bits, and the cursor after it.
    pub fn byte_math(&self, math: &ByteMath, cursor: i64, values: &Values) -> Option<(u64, i64)> {
        let ParsedNumber { value, end } = self.number(&math.number, cursor, values)?;
        let right = values.resolve(math.value)?;
        let wide = u64::from(right);
        let value = match math.operator {
            MathOperator::Add => value.wrapping_add(wide),
            MathOperator::Subtract => value.wrapping_sub(wide),
            MathOperator::Multiply => value.wrapping_mul(wide),
            MathOperator::Divide => value.checked_div(wide)?,
            MathOperator::ShiftLeft => value.checked_shl(right).unwrap_or(0),
            MathOperator::ShiftRight => value.checked_shr(right).unwrap_or(0),
        };
        Some((value, end))
    }

    fn number(&self, number: &NumberField, cursor: i64, values: &Values) -> Option<ParsedNumber> {
        let count = values.resolve(number.bytes)?;
        let place = self.base(number.relative, cursor) + i64::from(values.resolve(number.offset)?);
        let end = place + i64::from(count);
        if count == 0 {
            return Some(ParsedNumber { value: 0, end });
        }
        let bytes = self.get(place, usize::from(count))?;
        let whole = usize::from(count);
        let (value, len) = match number.format {
            NumberFormat::Big | NumberFormat::Little if count > NUMBER_BYTES_MAX => return None,
            NumberFormat::Big => (bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)), whole),
            NumberFormat::Little => {
                (bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)), whole)
            }
            // Refused earlier: the byte order is unknown.
            NumberFormat::Dce => return None,
            _ if count > TEXT_BYTES_MAX => return None,
            NumberFormat::Hexadecimal => text(bytes, Some(16))?,
            NumberFormat::Decimal => text(bytes, Some(10))?,
            NumberFormat::Octal => text(bytes, Some(8))?,
            NumberFormat::Any => text(bytes, None)?,
        };
        let value = match number.bitmask {
            Some(mask) => (value & u64::from(mask)) >> mask.trailing_zeros(),
            None => value,
        };
        Some(ParsedNumber { value, end: place + len as i64 })
    }
}

/// Parses digits after white space and a `+`, and returns the position after them; trailing bytes
/// are ignored. `None` if there are none or the value exceeds 64 bits.
fn text(bytes: &[u8], base: Option<u32>) -> Option<(u64, usize)> {
    let digits = bytes.trim_ascii_start();
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    // `0x` is a prefix of base 16 digits; without any, it is a 0 and something else.
    let hexadecimal = match digits {
        [b'0', b'x' | b'X', rest @ ..] if rest.first().is_some_and(u8::is_ascii_hexdigit) => Some(rest),
        _ => None,
    };
    let (digits, base) = match (base, hexadecimal) {
        (Some(16) | None, Some(rest)) => (rest, 16),
        (Some(base), _) => (digits, base),
        (None, None) if digits.first() == Some(&b'0') => (digits, 8),
        (None, None) => (digits, 10),
    };
    let mut values = digits.iter().map_while(|byte| char::from(*byte).to_digit(base)).map(u64::from);
    let first = values.next()?;
    let (value, count) = values.try_fold((first, 1), |(value, count), digit| {
        Some((value.checked_mul(u64::from(base))?.checked_add(digit)?, count + 1))
    })?;
    Some((value, bytes.len() - digits.len() + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_numbers() {
        for (bytes, base, expected) in [
            ("12ab", Some(10), Some(12)),
            ("12ab", Some(16), Some(0x12ab)),
            ("0x1g", Some(16), Some(1)),
            ("0xg", Some(16), Some(0)),
            ("0x1", Some(10), Some(0)),
            ("0789", Some(8), Some(7)),
            (" \t+7;", Some(10), Some(7)),
            ("-7", Some(10), None),
            ("x", Some(10), None),
            ("", Some(10), None),
            ("0x1f", None, Some(31)),
            ("017", None, Some(15)),
            ("17", None, Some(17)),
            ("0", None, Some(0)),
            ("08", None, Some(0)),
            ("18446744073709551615", Some(10), Some(u64::MAX)),
            ("18446744073709551616", Some(10), None),
        ] {
            assert_eq!(
                text(bytes.as_bytes(), base).map(|(value, _)| value),
                expected,
                "{bytes} of base {base:?}"
            );
        }
    }
}
