//! Classes: sets of bytes in brackets.

use super::ExpressionFeature;
use super::escape::set;
use super::reader::{Reader, Step};

impl Reader<'_> {
    /// Translates the part after `[`.
    pub fn class(&mut self) -> Step {
        use ExpressionFeature::*;
        self.out.push('[');
        if self.skip(b"^") {
            self.out.push('^');
        }
        let mut first = true;
        // The byte that may begin a range.
        let mut low = None;
        loop {
            let byte = self.next().ok_or(Malformed)?;
            if byte == b']' && !first {
                break;
            }
            first = false;
            if byte == b'[' && matches!(self.rest.first(), Some(b':' | b'.' | b'=')) && self.posix()? {
                low = None;
                continue;
            }
            let is_range =
                byte == b'-' && low.is_some() && self.rest.first().is_some_and(|next| *next != b']');
            if is_range {
                let next = self.next().ok_or(Malformed)?;
                match (self.class_item(next)?, low.take()) {
                    (Item::Byte(high), Some(low)) if low <= high => {
                        self.out.push('-');
                        self.literal(high);
                    }
                    (Item::Byte(_), _) => return Err(Malformed),
                    // An apparent range to a set of bytes is a dash and that set.
                    (Item::Set(set), _) => {
                        self.literal(b'-');
                        self.out.push_str(set);
                    }
                    (Item::Nothing, _) => self.literal(b'-'),
                }
                continue;
            }
            match self.class_item(byte)? {
                Item::Byte(byte) => {
                    self.literal(byte);
                    low = Some(byte);
                }
                Item::Set(set) => {
                    self.out.push_str(set);
                    low = None;
                }
                Item::Nothing => {}
            }
        }
        self.out.push(']');
        Ok(())
    }

    /// Translates a named class, such as `[:alpha:]`, if one is next.
    fn posix(&mut self) -> Result<bool, ExpressionFeature> {
        let Some(end) = self.rest.windows(2).position(|two| two == b":]") else { return Ok(false) };
        let name = &self.rest[..end];
        let plain = |name: &[u8]| name.iter().all(u8::is_ascii_lowercase);
        if name.first() != Some(&b':') || !plain(name[1..].strip_prefix(b"^").unwrap_or(&name[1..])) {
            return Ok(false);
        }
        self.out.push('[');
        self.out.extend(name.iter().map(|byte| char::from(*byte)));
        self.out.push_str(":]");
        self.rest = &self.rest[end + 2..];
        Ok(true)
    }

    fn class_item(&mut self, byte: u8) -> Result<Item, ExpressionFeature> {
        if byte != b'\\' {
            return Ok(Item::Byte(byte));
        }
        let letter = self.next().ok_or(ExpressionFeature::Malformed)?;
        Ok(match letter {
            b'b' => Item::Byte(0x08),
            b'Q' | b'E' => Item::Nothing,
            b'1'..=b'7' => Item::Byte(self.octal(letter, 2)),
            _ => match set(letter) {
                Some(set) => Item::Set(set),
                None => Item::Byte(self.byte(letter)?),
            },
        })
    }
}

/// An element of a class.
enum Item {
    Byte(u8),
    Set(&'static str),
    Nothing,
}
