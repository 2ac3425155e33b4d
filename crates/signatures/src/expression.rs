//! Translation of rules' regular expressions, which are Perl's, to those of finite automata.

use crate::pcre::Pcre;

/// A feature that finite automata lack, or the fault of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ExpressionFeature {
    /// A lookahead or lookbehind: `(?=`, `(?!`, `(?<=`, `(?<!`.
    LookAround,
    /// A reference to a group's match: `\1`, `\k<name>`, `(?P=name)`.
    BackReference,
    /// An atomic group or possessive repetition: `(?>..)`, `a++`.
    Atomic,
    /// A recursion into a group by number or name: `(?R)`, `(?1)`, `(?&name)`.
    Recursion,
    /// A conditional: `(?(1)..|..)`.
    Conditional,
    /// A changed start of the match: `\K`, `\G`.
    Restart,
    /// A verb or callout: `(*..)`, `(?C)`.
    Verb,
    /// Characters that are not bytes: `\p{..}`, `\X`, `\x{100}`.
    Unicode,
    /// Another feature without an equivalent: a branch reset, a repetition that is too large.
    Other,
    /// The expression is not well formed.
    Malformed,
}

/// Maximum nesting of groups.
const NESTING_MAX: usize = 100;

impl Pcre {
    /// Returns an equivalent expression for the crates `regex` and `regex-automata`, over bytes
    /// (`utf8(false)`), with the same flags inline and the same groups. The error is the feature
    /// that prevents it.
    ///
    /// It matches where this expression matches. If `$` or `\Z` precedes a final line ending, the
    /// match includes that line ending.
    pub fn regex(&self) -> Result<String, ExpressionFeature> {
        let mut flags = String::from("(?");
        let letters = [('i', self.flags.caseless), ('s', self.flags.dot_all), ('U', self.flags.ungreedy)];
        flags.extend(letters.iter().filter(|(_, set)| *set).map(|(letter, _)| letter));
        flags.push_str("-u)");
        if self.flags.anchored {
            flags.push_str(r"\A");
        }
        flags.push_str("(?:");
        let mode = Mode { multiline: self.flags.multiline, extended: self.flags.extended };
        let end = if self.flags.dollar_end_only { r"\z" } else { LAST_LINE_END };
        let reader = Reader { rest: self.pattern.as_bytes(), out: flags, mode, end, stack: Vec::new() };
        let regex = reader.whole()?;
        let mut parser =
            regex_syntax::ParserBuilder::new().utf8(false).nest_limit(2 * NESTING_MAX as u32).build();
        match parser.parse(&regex) {
            Ok(_) => Ok(regex),
            Err(_) => Err(ExpressionFeature::Other),
        }
    }
}

/// The end, or a line ending at the end.
const LAST_LINE_END: &str = r"(?:\n\z|\z)";

/// The flags that an expression can change within a group.
#[derive(Clone, Copy)]
struct Mode {
    multiline: bool,
    extended: bool,
}

struct Reader<'a> {
    rest: &'a [u8],
    out: String,
    mode: Mode,
    /// The translation of `$`.
    end: &'static str,
    /// The modes outside the open groups.
    stack: Vec<Mode>,
}

type Step = Result<(), ExpressionFeature>;

impl Reader<'_> {
    fn whole(mut self) -> Result<String, ExpressionFeature> {
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.class()?,
                b'(' => self.open()?,
                b')' => {
                    self.mode = self.stack.pop().ok_or(ExpressionFeature::Malformed)?;
                    self.out.push(')');
                }
                b'^' => self.out.push_str(if self.mode.multiline { "(?m:^)" } else { r"\A" }),
                b'$' => self.out.push_str(if self.mode.multiline { "(?m:$)" } else { self.end }),
                b'|' | b'.' => self.out.push(char::from(byte)),
                b'*' | b'+' | b'?' => self.repeat(&[byte])?,
                b'{' => match self.count() {
                    Some(length) => {
                        let count = [b"{", &self.rest[..length]].concat();
                        self.rest = &self.rest[length..];
                        self.repeat(&count)?;
                    }
                    None => self.literal(b'{'),
                },
                _ if self.mode.extended && byte.is_ascii_whitespace() => {}
                b'#' if self.mode.extended => while self.next().is_some_and(|byte| byte != b'\n') {},
                _ => self.literal(byte),
            }
        }
        if !self.stack.is_empty() {
            return Err(ExpressionFeature::Malformed);
        }
        self.out.push(')');
        Ok(self.out)
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, prefix: &[u8]) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    /// Appends a byte as a literal.
    fn literal(&mut self, byte: u8) {
        match byte.is_ascii_alphanumeric() {
            true => self.out.push(char::from(byte)),
            false => self.out.push_str(&format!(r"\x{byte:02X}")),
        }
    }

    /// Translates a repetition with its greediness.
    fn repeat(&mut self, sign: &[u8]) -> Step {
        self.out.extend(sign.iter().map(|byte| char::from(*byte)));
        if self.skip(b"+") {
            return Err(ExpressionFeature::Atomic);
        }
        if self.skip(b"?") {
            self.out.push('?');
        }
        Ok(())
    }

    /// Returns the length of `n}`, `n,}` or `n,m}`, if one of these is next.
    fn count(&self) -> Option<usize> {
        let end = self.rest.iter().position(|byte| *byte == b'}')?;
        let (low, high) = match self.rest[..end].iter().position(|byte| *byte == b',') {
            Some(comma) => (&self.rest[..comma], &self.rest[comma + 1..end]),
            None => (&self.rest[..end], &b""[..]),
        };
        let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        (!low.is_empty() && digits(low) && digits(high)).then_some(end + 1)
    }

    /// Translates the part after `(`.
    fn open(&mut self) -> Step {
        use ExpressionFeature::*;
        if self.skip(b"*") {
            return Err(Verb);
        }
        if !self.skip(b"?") {
            return self.group("(");
        }
        if self.skip(b"#") {
            while self.next().ok_or(Malformed)? != b')' {}
            return Ok(());
        }
        let named = match self.rest {
            [b'P', b'<', ..] => Some((2, b'>')),
            [b'<', second, ..] if !matches!(second, b'=' | b'!') => Some((1, b'>')),
            [b'\'', ..] => Some((1, b'\'')),
            _ => None,
        };
        if let Some((skipped, end)) = named {
            self.rest = &self.rest[skipped..];
            while self.next().ok_or(Malformed)? != end {}
            return self.group("(");
        }
        match self.rest {
            [b':', rest @ ..] => {
                self.rest = rest;
                self.group("(?:")
            }
            [b'=' | b'!', ..] | [b'<', ..] => Err(LookAround),
            [b'>', ..] => Err(Atomic),
            [b'(', ..] => Err(Conditional),
            [b'P', b'=', ..] => Err(BackReference),
            [b'R' | b'&' | b'+' | b'0'..=b'9', ..] | [b'P', b'>', ..] | [b'-', b'0'..=b'9', ..] => {
                Err(Recursion)
            }
            [b'C', ..] => Err(Verb),
            _ => self.inline_flags(),
        }
    }

    fn group(&mut self, sign: &str) -> Step {
        if self.stack.len() == NESTING_MAX {
            return Err(ExpressionFeature::Other);
        }
        self.stack.push(self.mode);
        self.out.push_str(sign);
        Ok(())
    }

    /// Translates `(?i)`, `(?i-s:`; flags of the target syntax are passed on.
    fn inline_flags(&mut self) -> Step {
        let outside = self.mode;
        let (mut on, mut off, mut set) = (String::new(), String::new(), true);
        loop {
            match self.next().ok_or(ExpressionFeature::Malformed)? {
                b'-' if set => set = false,
                b'm' => self.mode.multiline = set,
                b'x' => self.mode.extended = set,
                letter @ (b'i' | b's' | b'U') => {
                    if set { &mut on } else { &mut off }.push(char::from(letter))
                }
                end @ (b')' | b':') => {
                    let flags = if off.is_empty() { on } else { format!("{on}-{off}") };
                    if end == b':' {
                        let inside = std::mem::replace(&mut self.mode, outside);
                        self.group(&format!("(?{flags}:"))?;
                        self.mode = inside;
                    } else if !flags.is_empty() {
                        self.out.push_str(&format!("(?{flags})"));
                    }
                    return Ok(());
                }
                _ => return Err(ExpressionFeature::Other),
            }
        }
    }

    /// Translates the part after `\` outside brackets.
    fn escape(&mut self) -> Step {
        use ExpressionFeature::*;
        let byte = self.next().ok_or(Malformed)?;
        match byte {
            b'A' | b'z' | b'b' | b'B' => {
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            b'Z' => self.out.push_str(LAST_LINE_END),
            b'R' => self.out.push_str(r"(?:\r\n|[\n\x0B\x0C\r\x85])"),
            b'N' => self.out.push_str(r"[^\n]"),
            b'Q' => loop {
                if self.rest.is_empty() || self.skip(b"\\E") {
                    return Ok(());
                }
                if let Some(byte) = self.next() {
                    self.literal(byte);
                }
            },
            b'E' => {}
            b'K' | b'G' => return Err(Restart),
            b'k' | b'g' => return Err(BackReference),
            b'1'..=b'9' => match self.rest {
                // Three octal digits: a byte.
                [b'0'..=b'7', b'0'..=b'7', ..] if byte <= b'3' => {
                    let byte = self.octal(byte, 2);
                    self.literal(byte);
                }
                _ => return Err(BackReference),
            },
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

    /// Parses a byte from its first octal digit and up to `more` others. As in Perl, excess upper
    /// bits are lost.
    fn octal(&mut self, first: u8, more: usize) -> u8 {
        let mut value = u32::from(first - b'0');
        for _ in 0..more {
            let Some(digit @ b'0'..=b'7') = self.rest.first().copied() else { break };
            self.rest = &self.rest[1..];
            value = value << 3 | u32::from(digit - b'0');
        }
        value as u8
    }

    /// Returns the byte of an escape.
    fn byte(&mut self, letter: u8) -> Result<u8, ExpressionFeature> {
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

    /// Translates the part after `[`.
    fn class(&mut self) -> Step {
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

/// Returns the bytes of an escape within brackets.
fn set(letter: u8) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcre::PcreFlags;

    fn regex(pattern: &str, letters: &str) -> Result<String, ExpressionFeature> {
        let mut flags = PcreFlags::default();
        letters.chars().for_each(|letter| *flags.get_mut(letter).unwrap() = true);
        let pattern = pattern.to_owned();
        Pcre { pattern, negated: false, relative: false, flags, captures: Vec::new() }.regex()
    }

    #[test]
    fn expressions_translate_to_automata_syntax() {
        for (pattern, letters, expected) in [
            ("a/b", "", r"(?-u)(?:a\x2Fb)"),
            ("^a$", "", r"(?-u)(?:\Aa(?:\n\z|\z))"),
            ("^a$", "E", r"(?-u)(?:\Aa\z)"),
            ("^a$", "m", r"(?-u)(?:(?m:^)a(?m:$))"),
            ("a.*?b{2,}c{,3}{", "isGA", r"(?isU-u)\A(?:a.*?b{2,}c\x7B\x2C3\x7D\x7B)"),
            (r"[]a-z\d\-[\x41]&&[^]x]", "", r"(?-u)(?:[\x5Da-z\d\x2D\x5BA]\x26\x26[^\x5Dx])"),
            (
                r"[[:alpha:]\w-z]\Qa.b\E\x{ff}\;\012\cA",
                "",
                r"(?-u)(?:[[:alpha:]\w\x2Dz]a\x2Eb\xFF\x3B\x0A\x01)",
            ),
            ("(?<n>a)(?P<m>b)(?i)c(?m-s:^d)^(?#e)", "", r"(?-u)(?:(a)(b)(?i)c(?-s:(?m:^)d)\A)"),
            ("a b # c\n[ d]", "x", r"(?-u)(?:ab[\x20d])"),
            ("é\u{200b}", "", r"(?-u)(?:\xC3\xA9\xE2\x80\x8B)"),
            (
                r"\h\R[\V]\Z",
                "",
                r"(?-u)(?:[\t \xA0](?:\r\n|[\n\x0B\x0C\r\x85])[\x00-\x09\x0E-\x84\x86-\xFF](?:\n\z|\z))",
            ),
        ] {
            assert_eq!(regex(pattern, letters).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn features_beyond_automata_are_named() {
        use ExpressionFeature::*;
        for (pattern, feature) in [
            ("a(?!b)", LookAround),
            ("(?<=a)b", LookAround),
            (r"(a)\1", BackReference),
            (r"(?P<a>a)(?P=a)", BackReference),
            ("a++", Atomic),
            ("(?>a)b", Atomic),
            ("(?R)", Recursion),
            ("(a)?(?(1)b|c)", Conditional),
            (r"a\Kb", Restart),
            ("(*ACCEPT)", Verb),
            (r"\p{L}", Unicode),
            (r"\x{100}", Unicode),
            ("(?|a|b)", Other),
            ("*a", Other),
            ("(a", Malformed),
            ("a)", Malformed),
            ("[a", Malformed),
            ("[z-a]", Malformed),
            ("a\\", Malformed),
        ] {
            assert_eq!(regex(pattern, ""), Err(feature), "{pattern}");
        }
    }
}
