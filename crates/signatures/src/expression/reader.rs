//! The reader of expressions: all their syntax except escapes and classes.

use super::{BacktrackingSyntax, ExpressionFeature, Group};

/// Maximum nesting of groups.
pub(super) const NESTING_MAX: usize = 100;

/// The end, or a line ending at the end.
const LAST_LINE_END: &str = r"(?:\n\z|\z)";

/// A line ending.
pub(super) const LINE_END: &str = r"\r\n|[\n\x0B\x0C\r\x85]";

/// The flags that an expression can change within a group.
#[derive(Clone, Copy, Default)]
pub(super) struct Mode {
    pub multiline: bool,
    pub extended: bool,
    pub caseless: bool,
    pub ungreedy: bool,
}

/// A place in the translation: the bytes and groups before it.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub bytes: usize,
    pub groups: usize,
}

/// An open group.
pub(super) struct OpenGroup {
    pub begin: Place,
    /// The mode outside.
    pub mode: Mode,
}

#[derive(Default)]
pub(super) struct Reader<'a> {
    pub rest: &'a [u8],
    pub out: String,
    pub groups: Vec<Group>,
    pub mode: Mode,
    pub dollar_end_only: bool,
    /// True if the translation is for the backtracking matcher.
    pub backtracks: bool,
    /// The open groups.
    pub stack: Vec<OpenGroup>,
    /// The beginning of the last item, which a repetition repeats.
    pub item: Place,
    /// Names of captured groups, by number.
    pub names: Vec<Option<Vec<u8>>>,
}

pub(super) type Step = Result<(), ExpressionFeature>;

impl<'a> Reader<'a> {
    pub fn whole(mut self) -> Result<BacktrackingSyntax, ExpressionFeature> {
        while let Some(byte) = self.next() {
            let here = self.here();
            match byte {
                b'*' | b'+' | b'?' => {
                    self.repeat(&[byte])?;
                    continue;
                }
                b'{' if let Some(length) = self.count() => {
                    let count = [b"{", &self.rest[..length]].concat();
                    self.rest = &self.rest[length..];
                    self.repeat(&count)?;
                    continue;
                }
                _ if self.mode.extended && byte.is_ascii_whitespace() => continue,
                b'#' if self.mode.extended => {
                    while self.next().is_some_and(|byte| byte != b'\n') {}
                    continue;
                }
                _ => self.item = here,
            }
            match byte {
                b'\\' => self.escape()?,
                b'[' => {
                    self.class()?;
                    self.item = here;
                }
                b'(' => self.open()?,
                b')' => {
                    let open = self.stack.pop().ok_or(ExpressionFeature::Malformed)?;
                    (self.mode, self.item) = (open.mode, open.begin);
                    self.out.push(')');
                }
                b'^' => self.line_begins()?,
                b'$' if self.mode.multiline => self.out.push_str("(?m:$)"),
                b'$' if self.dollar_end_only => self.out.push_str(r"\z"),
                b'$' => self.last_line_end(),
                b'.' => self.out.push('.'),
                b'|' => {
                    self.out.push('|');
                    if self.backtracks {
                        self.mark(Group::Alternative, "");
                    }
                }
                _ => self.literal(byte),
            }
        }
        if !self.stack.is_empty() {
            return Err(ExpressionFeature::Malformed);
        }
        self.out.push(')');
        self.resolve()
    }

    /// Resolves references by name.
    pub fn resolve(mut self) -> Result<BacktrackingSyntax, ExpressionFeature> {
        for group in &mut self.groups {
            if let Group::Name { name, caseless } = group {
                let to = self.names.iter().position(|known| known.as_ref() == Some(name));
                let to = to.ok_or(ExpressionFeature::Malformed)?;
                *group = Group::Reference { to, caseless: *caseless };
            }
            if matches!(group, Group::Reference { to, .. } if *to >= self.names.len()) {
                return Err(ExpressionFeature::Malformed);
            }
        }
        Ok(BacktrackingSyntax { regex: self.out, groups: self.groups })
    }

    pub fn here(&self) -> Place {
        Place { bytes: self.out.len(), groups: self.groups.len() }
    }

    /// Appends a group of this meaning.
    pub fn mark(&mut self, group: Group, inside: &str) {
        self.groups.push(group);
        self.out.push('(');
        self.out.push_str(inside);
        self.out.push(')');
    }

    /// Translates `^`.
    pub fn line_begins(&mut self) -> Step {
        match (self.mode.multiline, self.backtracks) {
            // An automaton would find an empty line after the last line ending.
            (true, false) if self.rest.starts_with(b"$") => return Err(ExpressionFeature::LookAround),
            (false, _) => self.out.push_str(r"\A"),
            (true, false) => self.out.push_str("(?m:^)"),
            // No line begins after the last line ending.
            (true, true) => {
                self.out.push_str(r"(?:\A|(?m:^)");
                self.mark(Group::Look { behind: false, negated: true }, r"\z");
                self.out.push(')');
            }
        }
        Ok(())
    }

    /// Translates `$` and `\Z`.
    pub fn last_line_end(&mut self) {
        match self.backtracks {
            false => self.out.push_str(LAST_LINE_END),
            true => self.mark(Group::Look { behind: false, negated: false }, LAST_LINE_END),
        }
    }

    /// Returns the bytes before the next such byte, and skips both.
    pub fn until(&mut self, end: u8) -> Result<&'a [u8], ExpressionFeature> {
        let length = self.rest.iter().position(|byte| *byte == end).ok_or(ExpressionFeature::Malformed)?;
        let before = &self.rest[..length];
        self.rest = &self.rest[length + 1..];
        Ok(before)
    }

    pub fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub fn skip(&mut self, prefix: &[u8]) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    /// Appends a byte as a literal.
    pub fn literal(&mut self, byte: u8) {
        match byte.is_ascii_alphanumeric() {
            true => self.out.push(char::from(byte)),
            false => self.out.push_str(&format!(r"\x{byte:02X}")),
        }
    }

    /// Translates a repetition with its greediness.
    pub fn repeat(&mut self, sign: &[u8]) -> Step {
        self.out.extend(sign.iter().map(|byte| char::from(*byte)));
        if self.skip(b"+") {
            if !self.backtracks {
                return Err(ExpressionFeature::Atomic);
            }
            self.out.insert(self.item.bytes, '(');
            // It takes all that it can, in any mode.
            self.out.push_str(if self.mode.ungreedy { "?)" } else { ")" });
            self.groups.insert(self.item.groups, Group::Atomic);
        } else if self.skip(b"?") {
            self.out.push('?');
        }
        Ok(())
    }

    /// Returns the length of `n}`, `n,}` or `n,m}`, if one of these is next.
    pub fn count(&self) -> Option<usize> {
        let end = self.rest.iter().position(|byte| *byte == b'}')?;
        let (low, high) = match self.rest[..end].iter().position(|byte| *byte == b',') {
            Some(comma) => (&self.rest[..comma], &self.rest[comma + 1..end]),
            None => (&self.rest[..end], &b""[..]),
        };
        let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        (!low.is_empty() && digits(low) && digits(high)).then_some(end + 1)
    }

    /// Translates the part after `(`.
    pub fn open(&mut self) -> Step {
        use ExpressionFeature::*;
        if self.skip(b"*") {
            return Err(Verb);
        }
        if !self.skip(b"?") {
            return self.capture(None);
        }
        if self.skip(b"#") {
            return self.until(b')').map(|_| ());
        }
        let named = match self.rest {
            [b'P', b'<', ..] => Some((2, b'>')),
            [b'<', second, ..] if !matches!(second, b'=' | b'!') => Some((1, b'>')),
            [b'\'', ..] => Some((1, b'\'')),
            _ => None,
        };
        if let Some((skipped, end)) = named {
            self.rest = &self.rest[skipped..];
            let name = self.until(end)?.to_vec();
            return self.capture(Some(name));
        }
        let looks: [(&[u8], bool, bool); 4] =
            [(b"=", false, false), (b"!", false, true), (b"<=", true, false), (b"<!", true, true)];
        for (sign, behind, negated) in looks {
            if self.skip(sign) {
                return self.mark_open(LookAround, Group::Look { behind, negated });
            }
        }
        if self.skip(b">") {
            return self.mark_open(Atomic, Group::Atomic);
        }
        if self.skip(b"P=") {
            return self.refer_by_name(b')');
        }
        match self.rest {
            [b':', rest @ ..] => {
                self.rest = rest;
                self.group("(?:")
            }
            [b'(', ..] => Err(Conditional),
            [b'R' | b'&' | b'+' | b'0'..=b'9', ..] | [b'P', b'>', ..] | [b'-', b'0'..=b'9', ..] => {
                Err(Recursion)
            }
            [b'C', ..] => Err(Verb),
            _ => self.inline_flags(),
        }
    }

    pub fn group(&mut self, sign: &str) -> Step {
        if self.stack.len() == NESTING_MAX {
            return Err(ExpressionFeature::Other);
        }
        self.stack.push(OpenGroup { begin: self.item, mode: self.mode });
        self.out.push_str(sign);
        Ok(())
    }

    pub fn capture(&mut self, name: Option<Vec<u8>>) -> Step {
        self.groups.push(Group::Capture(self.names.len()));
        self.names.push(name);
        self.group("(")
    }

    /// Opens a group that only the backtracking matcher has.
    pub fn mark_open(&mut self, feature: ExpressionFeature, group: Group) -> Step {
        if !self.backtracks {
            return Err(feature);
        }
        self.groups.push(group);
        self.group("(")
    }

    /// Translates `(?i)`, `(?i-s:`; flags of the target syntax are passed on.
    pub fn inline_flags(&mut self) -> Step {
        let outside = self.mode;
        let (mut on, mut off, mut set) = (String::new(), String::new(), true);
        loop {
            match self.next().ok_or(ExpressionFeature::Malformed)? {
                b'-' if set => set = false,
                b'm' => self.mode.multiline = set,
                b'x' => self.mode.extended = set,
                letter @ (b'i' | b's' | b'U') => {
                    match letter {
                        b'i' => self.mode.caseless = set,
                        b'U' => self.mode.ungreedy = set,
                        _ => {}
                    }
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
}
