//! Printing of buffers and their matches.

use std::fmt::{self, Display, Formatter, Write};

use super::not;
use crate::buffer::Buffer;
use crate::payload::*;
use crate::pcre::{Pcre, PcreFlags};
use crate::transform::{Base64Mode, BufferTransform};

/// Prints a buffer's name, if necessary, its transforms and its matches.
pub(super) fn buffer(
    f: &mut Formatter<'_>,
    buffer: &BufferMatches,
    first: bool,
    names: &[String],
) -> fmt::Result {
    if !(first && buffer.buffer == Buffer::Payload) {
        write!(f, "{}; ", buffer.buffer)?;
    }
    for transform in &buffer.transforms {
        write!(f, "{transform}; ")?;
    }
    for one in &buffer.matches {
        show_match(f, one, names)?;
    }
    Ok(())
}

/// Prints the keyword and the argument, if any.
impl Display for BufferTransform {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword())?;
        match self {
            Self::Xor { offset, key } => {
                f.write_str(":")?;
                if *offset > 0 {
                    write!(f, "offset {offset},")?;
                }
                f.write_str("\"")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("\"")
            }
            // Escapes are kept as written.
            Self::Pcre { pattern } => write!(f, ":\"{pattern}\""),
            Self::FromBase64 { bytes, offset, mode } => {
                let mode = match mode {
                    Base64Mode::Rfc4648 => "rfc4648",
                    Base64Mode::Rfc2045 => "rfc2045",
                    Base64Mode::Strict => "strict",
                };
                f.write_str(":")?;
                if let Some(bytes) = bytes {
                    write!(f, "bytes {bytes}, ")?;
                }
                write!(f, "offset {offset}, mode {mode}")
            }
            _ => Ok(()),
        }
    }
}

fn show_match(f: &mut Formatter<'_>, one: &PayloadMatch, names: &[String]) -> fmt::Result {
    match one {
        PayloadMatch::Content(content) => show_content(f, content, names)?,
        PayloadMatch::Pcre(pcre) => show_pcre(f, pcre)?,
        PayloadMatch::DataAt(DataAt { offset, relative, negated }) => {
            let relative = if *relative { ",relative" } else { "" };
            write!(f, "isdataat:{}{}{relative}", not(*negated), show(offset, names))?;
        }
        PayloadMatch::Size(size) => write!(f, "bsize:{size}")?,
        PayloadMatch::ByteTest(ByteTest { number, negated, operator, value }) => {
            let operator = match operator {
                TestOperator::Less => "<",
                TestOperator::AtMost => "<=",
                TestOperator::Greater => ">",
                TestOperator::AtLeast => ">=",
                TestOperator::Equal => "=",
                TestOperator::And => "&",
                TestOperator::Xor => "^",
            };
            let (bytes, offset) = (show(&number.bytes, names), show(&number.offset, names));
            write!(f, "byte_test:{bytes},{}{operator},{},{offset}", not(*negated), show(value, names))?;
            number_options(f, number)?;
        }
        PayloadMatch::ByteJump(ByteJump { number, multiplier, align, origin, post_offset }) => {
            write!(f, "byte_jump:{},{}", show(&number.bytes, names), show(&number.offset, names))?;
            number_options(f, number)?;
            if *multiplier != 1 {
                write!(f, ",multiplier {multiplier}")?;
            }
            f.write_str(if *align { ",align" } else { "" })?;
            f.write_str(match origin {
                JumpOrigin::Number => "",
                JumpOrigin::Beginning => ",from_beginning",
                JumpOrigin::End => ",from_end",
            })?;
            if *post_offset != Operand::Value(0) {
                write!(f, ",post_offset {}", show(post_offset, names))?;
            }
        }
        PayloadMatch::ByteExtract(ByteExtract { number, result, multiplier, align }) => {
            let (bytes, offset) = (show(&number.bytes, names), show(&number.offset, names));
            write!(f, "byte_extract:{bytes},{offset},{}", name(*result, names))?;
            number_options(f, number)?;
            if *multiplier != 1 {
                write!(f, ",multiplier {multiplier}")?;
            }
            if let Some(align) = align {
                write!(f, ",align {align}")?;
            }
        }
        PayloadMatch::ByteMath(ByteMath { number, operator, value, result }) => {
            let operator = match operator {
                MathOperator::Add => "+",
                MathOperator::Subtract => "-",
                MathOperator::Multiply => "*",
                MathOperator::Divide => "/",
                MathOperator::ShiftLeft => "<<",
                MathOperator::ShiftRight => ">>",
            };
            write!(f, "byte_math:bytes {}", show(&number.bytes, names))?;
            write!(f, ",offset {},oper {operator}", show(&number.offset, names))?;
            write!(f, ",rvalue {},result {}", show(value, names), name(*result, names))?;
            number_options(f, number)?;
        }
        PayloadMatch::Base64Decode(Base64Decode { bytes, offset, relative }) => {
            f.write_str("base64_decode:")?;
            if let Some(bytes) = bytes {
                write!(f, "bytes {bytes},")?;
            }
            write!(f, "offset {offset}{}", if *relative { ",relative" } else { "" })?;
        }
        PayloadMatch::Absent { or_else } => {
            f.write_str(if *or_else { "absent:or_else" } else { "absent" })?
        }
    }
    f.write_str("; ")
}

fn show_content(f: &mut Formatter<'_>, content: &Content, names: &[String]) -> fmt::Result {
    write!(f, "content:{}\"", not(content.negated))?;
    let mut plain = true;
    for byte in &content.pattern {
        let is_plain = (b' '..=b'~').contains(byte) && !matches!(byte, b'|' | b'"' | b';' | b':' | b'\\');
        if is_plain != plain {
            f.write_str("|")?;
        } else if !plain {
            f.write_str(" ")?;
        }
        plain = is_plain;
        match plain {
            true => f.write_char(*byte as char)?,
            false => write!(f, "{byte:02X}")?,
        }
    }
    f.write_str(if plain { "\"" } else { "|\"" })?;

    f.write_str(if content.nocase { "; nocase" } else { "" })?;
    match content.position {
        ContentPosition::Absolute { offset: Operand::Value(0), depth: Some(Operand::Value(depth)) }
            if usize::from(depth) == content.pattern.len() =>
        {
            f.write_str("; startswith")?;
        }
        ContentPosition::Absolute { offset, depth } => {
            if offset != Operand::Value(0) {
                write!(f, "; offset:{}", show(&offset, names))?;
            }
            if let Some(depth) = depth {
                write!(f, "; depth:{}", show(&depth, names))?;
            }
        }
        ContentPosition::Relative { distance, within } => {
            if distance != Operand::Value(0) || within.is_none() {
                write!(f, "; distance:{}", show(&distance, names))?;
            }
            if let Some(within) = within {
                write!(f, "; within:{}", show(&within, names))?;
            }
        }
    }
    f.write_str(if content.ends { "; endswith" } else { "" })?;
    match content.fast_pattern {
        None => Ok(()),
        Some(FastPattern::Whole) => f.write_str("; fast_pattern"),
        Some(FastPattern::Only) => f.write_str("; fast_pattern:only"),
        Some(FastPattern::Part { offset, length }) => write!(f, "; fast_pattern:{offset},{length}"),
    }
}

fn show_pcre(f: &mut Formatter<'_>, pcre: &Pcre) -> fmt::Result {
    write!(f, "pcre:{}\"/{}/", not(pcre.negated), pcre.pattern)?;
    let flags = PcreFlags::LETTERS.into_iter().filter(|letter| pcre.flags.get(*letter));
    flags.chain(pcre.relative.then_some('R')).try_for_each(|letter| f.write_char(letter))?;
    pcre.captures.iter().try_for_each(|capture| write!(f, ",{capture}"))?;
    f.write_str("\"")
}

fn number_options(f: &mut Formatter<'_>, number: &NumberField) -> fmt::Result {
    f.write_str(if number.relative { ",relative" } else { "" })?;
    f.write_str(match number.format {
        NumberFormat::Big => "",
        NumberFormat::Little => ",little",
        NumberFormat::Dce => ",dce",
        NumberFormat::Hexadecimal => ",string,hex",
        NumberFormat::Decimal => ",string,dec",
        NumberFormat::Octal => ",string,oct",
        NumberFormat::Any => ",string",
    })?;
    number.bitmask.map_or(Ok(()), |mask| write!(f, ",bitmask {mask:#x}"))
}

fn show<N: Display>(operand: &Operand<N>, names: &[String]) -> String {
    match operand {
        Operand::Value(number) => number.to_string(),
        Operand::Variable(variable) => name(*variable, names).to_owned(),
    }
}

fn name(variable: ByteVariable, names: &[String]) -> &str {
    names.get(usize::from(variable.0)).map_or("?", String::as_str)
}
