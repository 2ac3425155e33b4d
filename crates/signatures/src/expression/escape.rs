//! Escapes outside classes, and references to groups.

use super::reader::{LINE_END, Reader, Step};
use super::{ExpressionFeature, Group};

impl Reader<'_> {
    /// Translates the part after `\` outside brackets.
    pub fn escape(&mut self) -> Step {
        use ExpressionFeature::*;
        let byte = self.next().ok_or(Malformed)?;
        match byte {
            b'A' | b'z' | b'b' | b'B' => {
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            b'Z' => self.last_line_end(),
            // It takes CR and LF together, or fails.
            b'R' if self.backtracks => self.mark(Group::Atomic, LINE_END),
            b'R' => return Err(Atomic),
            b'N' => self.out.push_str(r"[^\n]"),
            b'Q' => loop {
                if self.rest.is_empty() || self.skip(b"\\E") {
                    return Ok(());
                }
                if let Some(byte) = self.next() {
                    self.item = self.here();
                    self.literal(byte);
                }
            },
            b'E' => {}
            b'K' | b'G' => return Err(Restart),
            b'k' => match self.next() {
                Some(b'<') => self.refer_by_name(b'>')?,
                Some(b'\'') => self.refer_by_name(b'\'')?,
                Some(b'{') => self.refer_by_name(b'}')?,
                _ => return Err(Malformed),
            },
            b'g' => self.numbered_reference()?,
            b'1'..=b'9' => {
                let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let number = decimal(byte, &self.rest[..digits]);
                // Other numbers are octal.
                if number < 10 || byte >= b'8' || number <= self.names.len() {
                    self.rest = &self.rest[digits..];
                    self.refer_by_number(number)?;
                } else {
                    let byte = self.octal(byte, 2);
                    self.literal(byte);
                }
            }
            _ => match set(byte) {
                Some(set) => self.out.push_str(&format!("[{set}]")),
                None => {
                    let byte = self.byte(byte)?;
                    self.literal(byte);
                }
            },
        }
        Ok(())
    }

    /// Translates the part after `\g`: a number, one in braces, which is relative if it has a sign,
    /// or a name in braces.
    pub fn numbered_reference(&mut self) -> Step {
        use ExpressionFeature::*;
        if matches!(self.rest.first(), Some(b'<' | b'\'')) {
            return Err(Recursion);
        }
        if !self.skip(b"{") {
            let sign = self.rest.iter().take_while(|byte| matches!(byte, b'-' | b'+')).count();
            let digits = self.rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (number, rest) = self.rest.split_at(sign + digits);
            self.rest = rest;
            return self.refer_by_text(number);
        }
        let inside = self.until(b'}')?.to_vec();
        match inside.first() {
            Some(b'-' | b'+' | b'0'..=b'9') => self.refer_by_text(&inside),
            _ => self.refer(Group::Name { name: inside, caseless: self.mode.caseless }),
        }
    }

    pub fn refer_by_text(&mut self, text: &[u8]) -> Step {
        use ExpressionFeature::Malformed;
        let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
        let (first, more) = digits.split_first().ok_or(Malformed)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(Malformed);
        }
        let (number, known) = (decimal(*first, more), self.names.len());
        let number = match text[0] {
            b'-' => (known + 1).checked_sub(number).ok_or(Malformed)?,
            b'+' => known.saturating_add(number),
            _ => number,
        };
        self.refer_by_number(number)
    }

    /// Translates a reference to a captured group.
    pub fn refer(&mut self, reference: Group) -> Step {
        match self.backtracks {
            false => Err(ExpressionFeature::BackReference),
            true => {
                self.mark(reference, "(?s:.)");
                Ok(())
            }
        }
    }

    pub fn refer_by_number(&mut self, number: usize) -> Step {
        let to = number.checked_sub(1).ok_or(ExpressionFeature::Malformed)?;
        self.refer(Group::Reference { to, caseless: self.mode.caseless })
    }

    /// Translates a reference to a name that ends with this byte.
    pub fn refer_by_name(&mut self, end: u8) -> Step {
        let name = self.until(end)?.to_vec();
        self.refer(Group::Name { name, caseless: self.mode.caseless })
    }

    /// Parses a byte from its first octal digit and up to `more` others. As in Perl, excess upper
    /// bits are lost.
    pub fn octal(&mut self, first: u8, more: usize) -> u8 {
        let mut value = u32::from(first - b'0');
        for _ in 0..more {
            let Some(digit @ b'0'..=b'7') = self.rest.first().copied() else { break };
            self.rest = &self.rest[1..];
            value = value << 3 | u32::from(digit - b'0');
        }
        value as u8
    }

    /// Returns the byte of an escape.
    pub fn byte(&mut self, letter: u8) -> Result<u8, ExpressionFeature> {
        use ExpressionFeature::*;
        Ok(match letter {
            b'a' => 0x07,
            b'e' => 0x1b,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'c' => self.next().ok_or(Malformed)?.to_ascii_uppercase() ^ 0x40,
            b'0' => self.octal(b'0', 2),
            b'x' if self.skip(b"{") => {
                let end = self.rest.iter().position(|byte| *byte == b'}').ok_or(Malformed)?;
                let digits = std::str::from_utf8(&self.rest[..end]).map_err(|_| Malformed)?;
                let value = u32::from_str_radix(digits, 16).map_err(|_| Malformed)?;
                self.rest = &self.rest[end + 1..];
                u8::try_from(value).map_err(|_| Unicode)?
            }
            b'x' => {
                let mut value = 0;
                for _ in 0..2 {
                    let digit = self.rest.first().and_then(|byte| char::from(*byte).to_digit(16));
                    let Some(digit) = digit else { break };
                    self.rest = &self.rest[1..];
                    value = value << 4 | digit;
                }
                value as u8
            }
            b'p' | b'P' | b'X' => return Err(Unicode),
            b'C' | b'o' => return Err(Other),
            // Any other character means itself.
            other => other,
        })
    }
}

/// Returns the number of these digits, or a number above all limits.
fn decimal(first: u8, more: &[u8]) -> usize {
    more.iter().fold(usize::from(first - b'0'), |value, digit| {
        value.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    })
}

/// Returns the bytes of an escape within brackets.
pub(super) fn set(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => r"\d",
        b'D' => r"\D",
        b's' => r"\s",
        b'S' => r"\S",
        b'w' => r"\w",
        b'W' => r"\W",
        b'h' => r"\t \xA0",
        b'H' => r"\x00-\x08\x0A-\x1F\x21-\x9F\xA1-\xFF",
        b'v' => r"\n\x0B\x0C\r\x85",
        b'V' => r"\x00-\x09\x0E-\x84\x86-\xFF",
        _ => return None,
    })
}
