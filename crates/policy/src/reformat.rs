//! Formatting of a policy's text in one style. Comments and line breaks stay; white space within
//! lines, indentation and blank lines become uniform.

use crate::ast::File;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parser::parse;
use crate::source::{SourceId, Span};
use crate::token::{Token, TokenKind, tokens};

/// Columns of an indentation.
const INDENT: usize = 2;

/// Returns a policy's text in the usual style. The result has the same meaning and comments.
///
/// # Errors
/// The syntax errors of the text.
pub fn reformat(name: &str, text: &str) -> Result<String, Box<Diagnostics>> {
    let (id, file, report) = read(name, text)?;
    let formatted = Formatter::new(text).format(&tokens(id, text, &mut Diagnostics::default()));
    match read(name, &formatted) {
        Ok((_, same, _)) if same == file && comments(&formatted) == comments(text) => Ok(formatted),
        _ => {
            // A fault of the formatter must not change a policy.
            let mut report = report;
            let start = Span { source: id, start: 0, end: 0 };
            report.push(Diagnostic::error("the formatter would change this policy; please report it", start));
            Err(Box::new(report))
        }
    }
}

fn read(name: &str, text: &str) -> Result<(SourceId, File, Diagnostics), Box<Diagnostics>> {
    let mut report = Diagnostics::default();
    match report.sources.add(name, text.to_owned()) {
        Ok(id) => {
            let file = parse(id, &mut report);
            report.sort();
            if report.has_errors() { Err(Box::new(report)) } else { Ok((id, file, report)) }
        }
        Err(error) => {
            report.refuse(name, error);
            Err(Box::new(report))
        }
    }
}

/// Returns the comments of a text, without space at their ends.
fn comments(text: &str) -> Vec<String> {
    let mut report = Diagnostics::default();
    let Ok(id) = report.sources.add("", text.to_owned()) else { return Vec::new() };
    let mut end = 0;
    let mut found = Vec::new();
    for token in tokens(id, text, &mut report) {
        let gap = &text[end..token.span.start as usize];
        found.extend(gap.lines().map(str::trim).filter(|line| is_comment(line)).map(str::to_owned));
        end = token.span.end as usize;
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.starts_with('#') || line.starts_with("//")
}

/// An open bracket.
#[derive(Clone, Copy, PartialEq)]
enum Bracket {
    /// The braces of a pipelet: statements end with `;`.
    Pipelet,
    /// Braces or brackets of a value, a filter or a group.
    Value,
}

struct Formatter<'t> {
    text: &'t str,
    out: String,
    open: Vec<Bracket>,
    /// Within the angle brackets of a `Port`.
    in_port: bool,
}

impl<'t> Formatter<'t> {
    fn new(text: &'t str) -> Formatter<'t> {
        Formatter { text, out: String::with_capacity(text.len()), open: Vec::new(), in_port: false }
    }

    fn format(mut self, tokens: &[Token]) -> String {
        let mut end = if self.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        for (at, token) in tokens.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &tokens[before]);
            let gap = &self.text[end..token.span.start as usize];
            self.gap(gap, before, token);
            self.token(token, before, at.checked_sub(2).map(|before| &tokens[before]));
            end = token.span.end as usize;
        }
        let length = self.out.trim_end().len();
        self.out.truncate(length);
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    /// Writes what stands between two tokens: line breaks and comments, or a space.
    fn gap(&mut self, gap: &str, before: Option<&Token>, token: &Token) {
        let lines: Vec<&str> = gap.split('\n').map(str::trim).collect();
        let (first, rest) = lines.split_first().unwrap_or((&"", &[]));
        if is_comment(first) {
            if !self.out.is_empty() {
                self.out.push_str("  ");
            }
            self.out.push_str(first);
        }
        if rest.is_empty() {
            if before.is_some_and(|before| self.has_space(before, token)) {
                self.out.push(' ');
            }
            return;
        }
        let mut is_blank = false;
        for line in rest {
            if is_comment(line) {
                self.new_line(is_blank, before, None);
                self.out.push_str(line);
                is_blank = false;
            } else {
                is_blank |= line.is_empty() && !std::ptr::eq(*line, rest[rest.len() - 1]);
            }
        }
        let is_blank = is_blank && !self.is_sign(token, &["}", "]", ")"]);
        self.new_line(is_blank, before, Some(token));
    }

    /// Begins a line, which a comment or the token follows.
    fn new_line(&mut self, is_blank: bool, before: Option<&Token>, token: Option<&Token>) {
        if self.out.is_empty() {
            return;
        }
        let after_open = self.out.ends_with(['{', '[', '(']);
        self.out.push_str(if is_blank && !after_open { "\n\n" } else { "\n" });
        let closes = token.is_some_and(|token| self.is_sign(token, &["}", "]", ")"]));
        let mut depth = self.open.len() - usize::from(closes && !self.open.is_empty());
        if !closes && token.is_some() && self.continues(before) {
            depth += 1;
        }
        self.out.extend(std::iter::repeat_n(' ', depth * INDENT));
    }

    /// Returns whether the next token is in the statement of the one before it.
    fn continues(&self, before: Option<&Token>) -> bool {
        let in_statement = self.open.last().is_none_or(|bracket| *bracket == Bracket::Pipelet);
        in_statement && before.is_some_and(|before| !self.is_sign(before, &[";", "{", "}", ":"]))
    }

    fn token(&mut self, token: &Token, before: Option<&Token>, second: Option<&Token>) {
        let text = self.slice(token);
        self.out.push_str(text);
        match text {
            "{" => {
                let is_pipelet = |token: Option<&Token>| {
                    token.is_some_and(|token| token.kind == TokenKind::Name && self.slice(token) == "pipelet")
                };
                // `pipelet {`, `pipelet name {`: a name after `pipelet` can be nothing else.
                let opens = is_pipelet(before) || is_pipelet(second);
                self.open.push(if opens { Bracket::Pipelet } else { Bracket::Value });
            }
            "[" | "(" => self.open.push(Bracket::Value),
            "}" | "]" | ")" if matches!(token.kind, TokenKind::Sign(_)) => drop(self.open.pop()),
            "<" if before.is_some_and(|before| self.slice(before) == "Port") => self.in_port = true,
            ">" => self.in_port = false,
            _ => {}
        }
    }

    /// Returns whether a space separates two tokens of a line.
    fn has_space(&self, before: &Token, token: &Token) -> bool {
        let (left, right) = (self.slice(before), self.slice(token));
        let is_sign = |token: &Token| matches!(token.kind, TokenKind::Sign(_) | TokenKind::End);
        if self.in_port || (left == "Port" && right == "<") {
            return false;
        }
        match (left, right) {
            (_, "" | ")" | "]" | "," | ";" | ":" | ".") if is_sign(token) => false,
            ("(" | "[" | "!" | "." | "/", _) if is_sign(before) => false,
            (_, "/") if is_sign(token) => false,
            ("{", "}") => false,
            ("file", "(") => false,
            // A range has no spaces; a negative number has one before its sign.
            (_, "-") if is_sign(token) => !matches!(
                before.kind,
                TokenKind::Number | TokenKind::Address(_) | TokenKind::Reference | TokenKind::Name
            ),
            ("-", _) if is_sign(before) => false,
            _ => true,
        }
    }

    fn is_sign(&self, token: &Token, signs: &[&str]) -> bool {
        matches!(token.kind, TokenKind::Sign(sign) if signs.contains(&sign))
    }

    fn slice(&self, token: &Token) -> &'t str {
        &self.text[token.span.start as usize..token.span.end as usize]
    }
}
