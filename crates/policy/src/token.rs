//! From text to tokens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ast::TextExpr;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::literal::Prefix;
use crate::source::{SourceId, Span};

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub span: Span,
    /// Set if a line ended between the previous token and this one.
    pub new_line: bool,
}

/// Kinds of tokens. Names and numbers are read from the source by their span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Name,
    /// A number with its unit, if any: `80`, `0.75`, `2h4m`.
    Number,
    Address(IpAddr),
    Prefix(Prefix),
    Mac([u8; 6]),
    Text(TextExpr),
    /// `$name`; the span includes the sign.
    Reference,
    /// Punctuation, as written.
    Sign(&'static str),
    End,
}

/// Limit on the bytes of a name.
pub const NAME_BYTES_MAX: usize = 100;

const NAME_HELP: &str = "names consist of ASCII letters, digits, `_` and inner `-`; put other text in quotes";

/// Signs, longer ones before their own prefixes.
const SIGNS: [&str; 24] = [
    "<->", "->", "<=", ">=", "==", "!=", "&&", "||", "{", "}", "[", "]", "(", ")", "<", ">", ";", ":", ",",
    "=", "!", "-", ".", "/",
];

/// Splits a source into tokens; the last is always [`TokenKind::End`]. Invalid text is reported and
/// skipped.
pub(crate) fn tokens(source: SourceId, text: &str, report: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer { source, text, at: 0, report };
    let mut tokens = Vec::new();
    if text.starts_with('\u{feff}') {
        lexer.at = '\u{feff}'.len_utf8();
    }
    loop {
        let new_line = lexer.skip_blank();
        let start = lexer.at;
        let Some(first) = lexer.rest().chars().next() else {
            tokens.push(Token { kind: TokenKind::End, span: lexer.span(start), new_line });
            return tokens;
        };
        if let Some(kind) = lexer.token(first) {
            tokens.push(Token { kind, span: lexer.span(start), new_line });
        }
    }
}

struct Lexer<'a> {
    source: SourceId,
    text: &'a str,
    at: usize,
    report: &'a mut Diagnostics,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn span(&self, start: usize) -> Span {
        // Sources are at most SOURCE_BYTES_MAX long, which fits.
        Span { source: self.source, start: start as u32, end: self.at as u32 }
    }

    /// Skips white space and comments. Returns true if a line ended there.
    fn skip_blank(&mut self) -> bool {
        let mut new_line = false;
        loop {
            let blank = run(self.rest(), char::is_whitespace);
            new_line |= self.rest()[..blank].contains('\n');
            self.at += blank;
            if !self.rest().starts_with('#') && !self.rest().starts_with("//") {
                return new_line;
            }
            self.at += run(self.rest(), |c| c != '\n');
        }
    }

    fn token(&mut self, first: char) -> Option<TokenKind> {
        let start = self.at;
        if (first.is_ascii_hexdigit() || self.rest().starts_with("::"))
            && let Some(kind) = self.colons()
        {
            return Some(kind);
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if is_name_start(first) {
            return Some(self.name());
        }
        if first == '"' {
            return self.string();
        }
        if first == '$' && self.rest()[1..].starts_with(is_name_start) {
            self.at += 1 + name_length(&self.rest()[1..]);
            return Some(TokenKind::Reference);
        }
        if let Some(sign) = SIGNS.iter().find(|s| self.rest().starts_with(**s)) {
            self.at += sign.len();
            return Some(TokenKind::Sign(sign));
        }
        self.at += first.len_utf8();
        match first {
            // A typing error: report it and continue as if the sign were doubled.
            '&' | '|' => {
                let sign = if first == '&' { "&&" } else { "||" };
                let error = Diagnostic::error(format!("unexpected `{first}`"), self.span(start));
                self.report.push(error.help(format!("write `{sign}`")));
                return Some(TokenKind::Sign(sign));
            }
            '$' => {
                let error = Diagnostic::error("`$` without a name", self.span(start));
                self.report.push(error.help("`$name` is the value of `let name = ...;`"));
            }
            _ => {
                self.at += run(self.rest(), |c| !c.is_ascii() && c.is_alphanumeric());
                let text = self.text[start..self.at].escape_debug();
                let error = Diagnostic::error(format!("unexpected `{text}`"), self.span(start));
                let alphabetic = first.is_alphabetic();
                let help =
                    "names consist of ASCII letters, digits, `_` and inner `-`; put other text in quotes";
                self.report.push(if alphabetic { error.help(help) } else { error });
            }
        }
        None
    }

    fn name(&mut self) -> TokenKind {
        let start = self.at;
        self.at += name_length(self.rest());
        if self.at - start > NAME_BYTES_MAX {
            let error =
                Diagnostic::error("the name is too long", self.span(start).head(NAME_BYTES_MAX as u32));
            self.report.push(error.help(format!("a name may have at most {NAME_BYTES_MAX} characters")));
        }
        if self.rest().starts_with(char::is_alphabetic) {
            self.at += run(self.rest(), |c| c.is_alphanumeric() || c == '_');
            let error = Diagnostic::error("the name contains non-ASCII letters", self.span(start));
            self.report.push(error.help(NAME_HELP));
        }
        TokenKind::Name
    }

    /// Scans text with colons: an IPv6 address or prefix, or a MAC address.
    fn colons(&mut self) -> Option<TokenKind> {
        let start = self.at;
        let length = run(self.rest(), |c| c.is_ascii_hexdigit() || c == ':' || c == '.');
        let word = &self.rest()[..length];
        if word.bytes().filter(|b| *b == b':').count() < 2 || self.rest()[length..].starts_with(is_name_start)
        {
            return None;
        }
        if let Ok(address) = word.parse::<Ipv6Addr>() {
            self.at += length;
            return Some(self.address(start, IpAddr::V6(address)));
        }
        let mac = mac(word)?;
        self.at += length;
        Some(TokenKind::Mac(mac))
    }

    /// Scans text that begins with a digit: an IPv4 address or prefix, or a number with its unit.
    fn number(&mut self) -> Option<TokenKind> {
        let start = self.at;
        let mut length = 0;
        loop {
            length += run(&self.rest()[length..], |c| c.is_alphanumeric() || c == '_');
            let after = &self.rest()[length..];
            if !after.starts_with('.') || !after[1..].starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            length += 1;
        }
        let word = &self.rest()[..length];
        self.at += length;
        if word.bytes().filter(|b| *b == b'.').count() < 2 {
            return Some(TokenKind::Number);
        }
        match word.parse::<Ipv4Addr>() {
            Ok(address) => Some(self.address(start, IpAddr::V4(address))),
            Err(_) => {
                let error = Diagnostic::error(format!("`{word}` is not an IPv4 address"), self.span(start));
                self.report.push(
                    error.help(
                        "an IPv4 address consists of four numbers from 0 to 255, without leading zeros",
                    ),
                );
                Some(TokenKind::Address(Ipv4Addr::UNSPECIFIED.into()))
            }
        }
    }

    /// Returns the scanned address, or the prefix that it begins.
    fn address(&mut self, start: usize, address: IpAddr) -> TokenKind {
        let after = self.rest();
        if !after.starts_with('/') || !after[1..].starts_with(|c: char| c.is_ascii_digit()) {
            return TokenKind::Address(address);
        }
        let digits = run(&after[1..], |c| c.is_ascii_alphanumeric());
        self.at += 1 + digits;
        let length = &after[1..=digits];
        match length.parse().ok().and_then(|length| Prefix::new(address, length)) {
            Some(prefix) => TokenKind::Prefix(prefix),
            None => {
                let most = if address.is_ipv4() { 32 } else { 128 };
                let error =
                    Diagnostic::error(format!("`/{length}` is not a prefix length"), self.span(start));
                self.report.push(error.help(format!("expected a number from 0 to {most}")));
                TokenKind::Address(address)
            }
        }
    }

    fn string(&mut self) -> Option<TokenKind> {
        let start = self.at;
        if let Some(inner) = self.rest().strip_prefix("\"\"\"") {
            let end = inner.find("\"\"\"");
            self.at += 3 + end.map_or(inner.len(), |end| end + 3);
            if end.is_none() {
                self.report
                    .push(Diagnostic::error("the text has no closing `\"\"\"`", self.span(start).head(3)));
            }
            let text = inner[..end.unwrap_or(inner.len())].to_owned();
            return Some(TokenKind::Text(TextExpr { text, escapes: Vec::new(), quotes: 3 }));
        }
        let (mut text, mut escapes) = (String::new(), Vec::new());
        self.at += 1;
        loop {
            let plain = run(self.rest(), |c| !matches!(c, '"' | '\\' | '\n' | '\r'));
            text.push_str(&self.rest()[..plain]);
            self.at += plain;
            if self.rest().starts_with('"') {
                self.at += 1;
                break;
            }
            if !self.rest().starts_with('\\') {
                // A `;` at the end of the line more likely belongs to the statement than to the
                // string.
                if text.ends_with(';') && self.text[..self.at].ends_with(';') {
                    text.pop();
                    self.at -= 1;
                }
                let error = Diagnostic::error("the string is not closed", self.span(start));
                self.report.push(
                    error.help("a string must end on its line; use `\"\"\"` for text of several lines"),
                );
                break;
            }
            let escape = self.at;
            if let Some(c) = self.escape() {
                escapes.push((text.len() as u32, (self.at - escape) as u32));
                text.push(c);
            }
        }
        Some(TokenKind::Text(TextExpr { text, escapes, quotes: 1 }))
    }

    /// Returns the character of an escape sequence. All sequences are ASCII: bytes are characters.
    fn escape(&mut self) -> Option<char> {
        let start = self.at;
        self.at += 1;
        let first = self.rest().chars().next().filter(|c| !matches!(c, '\n' | '\r'));
        self.at += first.map_or(0, char::len_utf8);
        let found = match first {
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('0') => Some('\0'),
            Some(c @ ('\\' | '"')) => Some(c),
            Some('u') => self.rest().strip_prefix('{').and_then(|inner| {
                let digits = run(inner, |c| c.is_ascii_hexdigit());
                inner[digits..].starts_with('}').then(|| self.at += digits + 2)?;
                u32::from_str_radix(&inner[..digits], 16).ok().and_then(char::from_u32)
            }),
            _ => None,
        };
        if found.is_none() {
            let error = Diagnostic::error("unknown escape sequence", self.span(start));
            self.report
                .push(error.help("expected one of \\n, \\r, \\t, \\0, \\\\, \\\" and \\u{hex digits}"));
        }
        found
    }
}

/// Returns the length in bytes of the longest prefix of `text` with only characters that pass.
fn run(text: &str, pass: impl Fn(char) -> bool) -> usize {
    text.find(|c| !pass(c)).unwrap_or(text.len())
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// Returns the length of a name: letters, digits, `_`, and `-` between two of them.
fn name_length(text: &str) -> usize {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut length = run(text, inner);
    while text[length..].starts_with('-') && text[length + 1..].starts_with(inner) {
        length += 1 + run(&text[length + 1..], inner);
    }
    length
}

fn mac(word: &str) -> Option<[u8; 6]> {
    let mut parts = word.split(':');
    let mut mac = [0; 6];
    for byte in &mut mac {
        let part = parts.next().filter(|p| p.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// Checks if the text is exactly one name.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && name_length(text) == text.len()
}
