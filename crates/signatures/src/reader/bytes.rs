//! Keywords about numbers in a buffer, and about the presence of data.

use crate::RuleError;
use crate::payload::{
    Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, DataAt, JumpOrigin, MathOperator, NumberField,
    NumberFormat, Operand, PayloadMatch, REACH_BYTES_MAX, TestOperator,
};
use crate::reader::content::operand;
use crate::reader::{Draft, KeywordUse};
use crate::text::{ParseResult, Piece};

/// Maximum bytes of a binary number, and of the value of one in text.
const NUMBER_BYTES_MAX: u8 = 8;
const TEXT_BYTES_MAX: u8 = 23;

pub(crate) fn isdataat(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let mut parts = given.value.split(',');
    let (negated, offset) = parts.next().unwrap_or(given.value).negation();
    let offset = operand(draft, offset, 0..=u16::MAX)?;
    let mut relative = false;
    for option in parts {
        match option.text {
            "relative" => relative = true,
            "rawbytes" => {}
            _ => return Err(option.wrong("`relative` or `rawbytes`")),
        }
    }
    let test = DataAt { offset, relative, negated };
    match draft.ends(test) {
        true => Ok(()),
        false => draft.push_related(given, relative, PayloadMatch::DataAt(test)),
    }
}

pub(crate) fn byte_test(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let parts: Vec<_> = given.value.split(',').collect();
    let [bytes, operator, value, offset, options @ ..] = &parts[..] else {
        return Err(given.value.wrong("`bytes,operator,value,offset` and options"));
    };
    let (negated, operator) = operator.negation();
    let operators = [
        ("<", TestOperator::Less),
        ("<=", TestOperator::AtMost),
        (">", TestOperator::Greater),
        (">=", TestOperator::AtLeast),
        ("=", TestOperator::Equal),
        ("&", TestOperator::And),
        ("^", TestOperator::Xor),
    ];
    let operator = match operator.is_empty() && negated {
        true => TestOperator::Equal,
        false => operator.one_of(&operators)?,
    };
    let value = operand(draft, *value, 0..=u64::MAX)?;
    let options = Options::read(draft, options, &[])?;
    nonzero(*bytes)?;
    // Elsewhere, an offset is short.
    let is_far = |offset: &i32| !(-REACH_BYTES_MAX..=REACH_BYTES_MAX).contains(offset);
    if offset.number(i32::MIN..=i32::MAX).is_ok_and(|offset| is_far(&offset)) {
        return Err(offset.error(RuleError::Unsupported { what: "an offset beyond 1,048,576 bytes" }));
    }
    let number = options.number(draft, *bytes, *offset, 1)?;
    draft.push_related(
        given,
        number.relative,
        PayloadMatch::ByteTest(ByteTest { number, negated, operator, value }),
    )
}

pub(crate) fn byte_jump(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let parts: Vec<_> = given.value.split(',').collect();
    let [bytes, offset, options @ ..] = &parts[..] else {
        return Err(given.value.wrong("`bytes,offset` and options"));
    };
    let own = ["multiplier", "align", "from_beginning", "from_end", "post_offset"];
    let options = Options::read(draft, options, &own)?;
    let number = options.number(draft, *bytes, *offset, 0)?;
    let jump = ByteJump {
        number,
        multiplier: options.multiplier.unwrap_or(1),
        align: options.align.is_some(),
        origin: options.origin.unwrap_or(JumpOrigin::Number),
        post_offset: options.post_offset.unwrap_or(Operand::Value(0)),
    };
    draft.push_related(given, number.relative, PayloadMatch::ByteJump(jump))
}

pub(crate) fn byte_extract(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let parts: Vec<_> = given.value.split(',').collect();
    let [bytes, offset, name, options @ ..] = &parts[..] else {
        return Err(given.value.wrong("`bytes,offset,name` and options"));
    };
    let options = Options::read(draft, options, &["multiplier", "align"])?;
    nonzero(*bytes)?;
    let number = options.number(draft, *bytes, *offset, 1)?;
    let align = match options.align {
        Some(Some(align)) => Some(align),
        Some(None) => return Err(given.value.wrong("`align 2` or `align 4`")),
        None => None,
    };
    let multiplier = options.multiplier.unwrap_or(1);
    let result = draft.define(*name)?;
    let extract = ByteExtract { number, result, multiplier, align };
    draft.push_related(given, number.relative, PayloadMatch::ByteExtract(extract))
}

pub(crate) fn byte_math(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (mut bytes, mut offset, mut operator, mut value, mut result) = (None, None, None, None, None);
    let mut options = Vec::new();
    for option in given.value.split(',') {
        let (word, rest) = word_and_rest(option);
        let place = match word.text {
            "bytes" => &mut bytes,
            "offset" => &mut offset,
            "oper" => &mut operator,
            "rvalue" => &mut value,
            "result" => &mut result,
            // `endian little` and `string hex` equal separate options elsewhere.
            "endian" => {
                options.push(rest);
                continue;
            }
            _ => {
                options.push(option);
                continue;
            }
        };
        if place.replace(rest).is_some() {
            return Err(option.wrong("each option once"));
        }
    }
    let (Some(bytes), Some(offset), Some(operator), Some(value), Some(result)) =
        (bytes, offset, operator, value, result)
    else {
        return Err(given.value.wrong("`bytes N, offset N, oper SIGN, rvalue N, result NAME` and options"));
    };
    let operators = [
        ("+", MathOperator::Add),
        ("-", MathOperator::Subtract),
        ("*", MathOperator::Multiply),
        ("/", MathOperator::Divide),
        ("<<", MathOperator::ShiftLeft),
        (">>", MathOperator::ShiftRight),
    ];
    let operator = operator.one_of(&operators)?;
    let right = operand(draft, value, 0..=u32::MAX)?;
    if operator == MathOperator::Divide && right == Operand::Value(0) {
        return Err(value.error(RuleError::NeverMatches { why: "it divides by 0".into() }));
    }
    let options = Options::read(draft, &options, &[])?;
    let number = options.number(draft, bytes, offset, 1)?;
    let result = draft.define(result)?;
    let math = ByteMath { number, operator, value: right, result };
    draft.push_related(given, number.relative, PayloadMatch::ByteMath(math))
}

pub(crate) fn base64_decode(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let mut decode = Base64Decode { bytes: None, offset: 0, relative: false };
    for option in given.value.split(',').filter(|option| !option.is_empty()) {
        let (word, value) = word_and_rest(option);
        match word.text {
            "bytes" => decode.bytes = Some(value.number(1..=65_536)?),
            "offset" => decode.offset = value.number(0..=65_535)?,
            "relative" if value.is_empty() => decode.relative = true,
            _ => return Err(option.wrong("`bytes N`, `offset N` or `relative`")),
        }
    }
    draft.push_related(given, decode.relative, PayloadMatch::Base64Decode(decode))
}

/// The options after the numbers.
#[derive(Default)]
struct Options {
    relative: bool,
    endian: Option<NumberFormat>,
    text: bool,
    base: Option<NumberFormat>,
    bitmask: Option<u32>,
    multiplier: Option<u16>,
    /// `align` alone, or with a number.
    align: Option<Option<u8>>,
    origin: Option<JumpOrigin>,
    post_offset: Option<Operand<i32>>,
}

impl Options {
    /// Parses options; `own` are accepted besides the common ones.
    fn read(draft: &Draft<'_>, options: &[Piece<'_>], own: &[&str]) -> ParseResult<Self> {
        let mut all = Self::default();
        for option in options {
            let (word, value) = word_and_rest(*option);
            let has_value = !value.is_empty();
            let twice = match word.text.to_ascii_lowercase().as_str() {
                "relative" if !has_value => std::mem::replace(&mut all.relative, true),
                "big" if !has_value => all.endian.replace(NumberFormat::Big).is_some(),
                "little" if !has_value => all.endian.replace(NumberFormat::Little).is_some(),
                "dce" if !has_value => all.endian.replace(NumberFormat::Dce).is_some(),
                "string" => {
                    if has_value {
                        all.base = Some(base(value)?);
                    }
                    std::mem::replace(&mut all.text, true)
                }
                "hex" | "dec" | "oct" if !has_value => all.base.replace(base(word)?).is_some(),
                "bitmask" if has_value => all.bitmask.replace(value.number(1..=u32::MAX)?).is_some(),
                name if !own.contains(&name) => return Err(unknown(*option, own)),
                "multiplier" if has_value => all.multiplier.replace(value.number(1..=u16::MAX)?).is_some(),
                "align" if has_value => {
                    let align = value.one_of(&[("2", 2), ("4", 4)])?;
                    all.align.replace(Some(align)).is_some()
                }
                "align" => all.align.replace(None).is_some(),
                "from_beginning" if !has_value => all.origin.replace(JumpOrigin::Beginning).is_some(),
                "from_end" if !has_value => all.origin.replace(JumpOrigin::End).is_some(),
                "post_offset" if has_value => {
                    let value = operand(draft, value, -REACH_BYTES_MAX..=REACH_BYTES_MAX)?;
                    all.post_offset.replace(value).is_some()
                }
                _ => return Err(unknown(*option, own)),
            };
            if twice {
                return Err(option.wrong("an option that does not repeat or contradict one before it"));
            }
        }
        Ok(all)
    }

    /// Builds the number that the options describe.
    fn number(
        &self,
        draft: &Draft<'_>,
        bytes: Piece<'_>,
        offset: Piece<'_>,
        fewest: u8,
    ) -> ParseResult<NumberField> {
        let format = match (self.text, self.base, self.endian) {
            // Digits have one order whatever the options.
            (true, base, _) => base.unwrap_or(NumberFormat::Any),
            (false, Some(_), _) => {
                return Err(bytes.error(RuleError::Conflict { one: "a base", other: "no `string`" }));
            }
            (false, None, endian) => endian.unwrap_or(NumberFormat::Big),
        };
        let most = if self.text { TEXT_BYTES_MAX } else { NUMBER_BYTES_MAX };
        Ok(NumberField {
            bytes: operand(draft, bytes, fewest..=most)?,
            offset: operand(draft, offset, -REACH_BYTES_MAX..=REACH_BYTES_MAX)?,
            relative: self.relative,
            format,
            bitmask: self.bitmask,
        })
    }
}

/// Refuses a number of no bytes, which is valid in some keywords.
fn nonzero(bytes: Piece<'_>) -> ParseResult<()> {
    match bytes.number(0..=0) {
        Ok(0) => Err(bytes.error(RuleError::Unsupported { what: "a number of 0 bytes" })),
        _ => Ok(()),
    }
}

fn base(word: Piece<'_>) -> ParseResult<NumberFormat> {
    word.one_of(&[
        ("hex", NumberFormat::Hexadecimal),
        ("dec", NumberFormat::Decimal),
        ("oct", NumberFormat::Octal),
    ])
}

fn unknown(option: Piece<'_>, own: &[&str]) -> crate::text::SyntaxError {
    let common = ["relative", "big", "little", "dce", "string", "hex", "dec", "oct", "bitmask"];
    let all: Vec<_> = common.iter().chain(own).copied().collect();
    option.wrong(format!("one of `{}`, with a value where it has one", all.join("`, `")))
}

/// Splits off the first word.
fn word_and_rest(piece: Piece<'_>) -> (Piece<'_>, Piece<'_>) {
    let end = piece.text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(piece.text.len());
    (piece.part(0, end), piece.from(end).trim())
}
