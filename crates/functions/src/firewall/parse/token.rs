//! Tokens of a rule line: words, strings and `{`, `}`, `,`.

use std::fmt::Display;
use std::ops::Range;

use values::{ConfigError, Located};

/// The tokens of a line, with a cursor.
pub(crate) struct Tokens<'t> {
    text: &'t Located,
    tokens: Vec<Token<'t>>,
    next: usize,
}

/// A token with its position in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'t> {
    kind: TokenKind<'t>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind<'t> {
    /// A word, or one of `{`, `}`, `,`.
    Word(&'t str),
    /// Text between quotes.
    String(&'t str),
    /// End of the line.
    End,
}

impl<'t> Token<'t> {
    pub(crate) fn word(&self) -> Option<&'t str> {
        if let TokenKind::Word(word) = self.kind { Some(word) } else { None }
    }

    pub(crate) fn string(&self) -> Option<&'t str> {
        if let TokenKind::String(string) = self.kind { Some(string) } else { None }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.kind == TokenKind::End
    }
}

impl<'t> Tokens<'t> {
    /// Splits the line at these bytes into tokens.
    pub(crate) fn read(text: &'t Located, line: Range<usize>) -> Result<Tokens<'t>, ConfigError> {
        let all = text.as_str();
        let mut tokens: Vec<Token<'t>> = Vec::new();
        let mut at = line.start;
        loop {
            let rest = &all[at..line.end];
            let blank = rest.len() - rest.trim_start().len();
            at += blank;
            let rest = &rest[blank..];
            if rest.is_empty() || rest.starts_with('#') || rest.starts_with("//") {
                break;
            }
            let (kind, len) = if let Some(string) = rest.strip_prefix('"') {
                let len = string.find('"').ok_or_else(|| {
                    text.error(at..at + rest.trim_end().len(), "the string has no closing quote")
                })?;
                (TokenKind::String(&string[..len]), len + 2)
            } else if rest.starts_with(['{', '}', ',']) {
                (TokenKind::Word(&rest[..1]), 1)
            } else {
                let ends = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '#');
                let len = rest.find(ends).unwrap_or(rest.len());
                (TokenKind::Word(&rest[..len]), len)
            };
            tokens.push(Token { kind, start: at, end: at + len });
            at += len;
        }
        let end = tokens.last().map_or(line.start, |token| token.end);
        tokens.push(Token { kind: TokenKind::End, start: end, end });
        Ok(Tokens { text, tokens, next: 0 })
    }

    /// Returns the next token; at the end, `End` every time.
    pub(crate) fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.next += 1;
        token
    }

    pub(crate) fn peek(&self) -> Token<'t> {
        // The list contains at least `End`.
        self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.peek().is_end()
    }

    /// Takes the next token if it is `word`.
    pub(crate) fn take(&mut self, word: &str) -> Option<Token<'t>> {
        (self.peek().word() == Some(word)).then(|| self.next())
    }

    /// Builds an error about a token.
    pub(crate) fn error(&self, token: &Token<'_>, message: impl Display) -> ConfigError {
        self.text.error(token.start..token.end, message)
    }

    /// Builds the error that `what` was expected instead of the token.
    pub(crate) fn expected(&self, what: &str, token: &Token<'_>) -> ConfigError {
        match token.kind {
            TokenKind::End => self.error(token, format!("expected {what}, found the end of the line")),
            TokenKind::Word(word) => self.error(token, format!("expected {what}, found `{word}`")),
            TokenKind::String(string) => self.error(token, format!("expected {what}, found \"{string}\"")),
        }
    }
}
