//! From tokens to the syntax tree: recursive descent that resumes after an error at the next `;`,
//! `}` or entry.

mod filter;
mod value;

use crate::ast::{Arrow, EdgeChain, EdgeChainHop, File, FilterExpr, Name, PolicyItem, Spanned};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::source::{SourceId, Span};
use crate::token::{Token, TokenKind, tokens};

pub(crate) use filter::PROTOCOLS;

/// Limit on the nesting of values and filters, so that no input exhausts the stack.
pub const DEPTH_MAX: usize = 64;

/// Keywords, which cannot name a value, port or NF.
pub const RESERVED: [&str; 10] =
    ["let", "settings", "pipelet", "Port", "Drop", "true", "false", "and", "or", "not"];

/// Parses one source of the report. Faults are reported; the tree holds whatever parsed.
pub(crate) fn parse(source: SourceId, report: &mut Diagnostics) -> File {
    let text = report.sources.text(source).to_owned();
    let tokens = tokens(source, &text, report);
    let mut parser = Parser { text: &text, tokens, at: 0, open: 0, depth: 0, report };
    let mut items = Vec::new();
    while !parser.is_end() {
        let start = parser.at;
        match parser.item() {
            Ok(item) => items.extend(item),
            Err(Reported) => parser.skip_statement(0, start),
        }
    }
    File { items }
}

/// Parses one source of the report as a single filter. `None` if it is not one; the report says
/// why.
pub(crate) fn parse_filter(source: SourceId, report: &mut Diagnostics) -> Option<FilterExpr> {
    let text = report.sources.text(source).to_owned();
    let tokens = tokens(source, &text, report);
    let mut parser = Parser { text: &text, tokens, at: 0, open: 0, depth: 0, report };
    let filter = parser.filter().ok()?;
    if !parser.is_end() {
        let _: Parsed<()> = parser.unexpected("`&&`, `||` or the end of the filter");
        return None;
    }
    Some(filter)
}

/// Marks an error that is already in the report.
struct Reported;

type Parsed<T> = Result<T, Reported>;

struct Parser<'a> {
    text: &'a str,
    /// Never empty: the last token is the end.
    tokens: Vec<Token>,
    at: usize,
    /// Number of open braces before the current token.
    open: usize,
    /// Number of values and filters around the current token.
    depth: usize,
    report: &'a mut Diagnostics,
}

impl Parser<'_> {
    /// Parses one item; `None` for a stray `;`.
    fn item(&mut self) -> Parsed<Option<PolicyItem>> {
        if self.take(";").is_some() {
            return Ok(None);
        }
        let keyword = self.peek().span;
        let item = match self.word() {
            Some("let") => {
                self.bump();
                let name = self.new_name("a name for the value")?;
                self.expect("=")?;
                PolicyItem::Let { name, value: self.value()? }
            }
            Some("Port") => {
                self.bump();
                let (first, last) = self.port_numbers()?;
                let name = self.new_name("a name for the port")?;
                PolicyItem::Port { first, last, name, config: self.block()? }
            }
            Some("settings") => {
                self.bump();
                let Some(config) = self.block()? else { return self.unexpected("`{` and the settings") };
                PolicyItem::Settings { keyword: Spanned::new((), keyword), config }
            }
            Some("pipelet") => return self.pipelet().map(Some),
            Some(word) if !RESERVED.contains(&word) => {
                let type_name = self.name("a type")?;
                let name = self.new_name("a name for the NF")?;
                PolicyItem::Nf { type_name, name, config: self.block()? }
            }
            _ => {
                return self.unexpected("`let`, `Port`, `settings`, `pipelet` or an NF type");
            }
        };
        self.end_statement(matches!(
            &item,
            PolicyItem::Port { config: Some(_), .. }
                | PolicyItem::Nf { config: Some(_), .. }
                | PolicyItem::Settings { .. }
        ))?;
        Ok(Some(item))
    }

    fn port_numbers(&mut self) -> Parsed<(Spanned<u64>, Option<Spanned<u64>>)> {
        self.expect("<")?;
        let first = self.count()?;
        let last = self.take("-").map(|_| self.count()).transpose()?;
        self.expect(">")?;
        Ok((first, last))
    }

    fn pipelet(&mut self) -> Parsed<PolicyItem> {
        let keyword = Spanned::new((), self.bump().span);
        let name = if self.is("{") { None } else { Some(self.new_name("a name for the pipelet, or `{`")?) };
        let level = self.open;
        let brace = self.expect("{")?;
        let mut chains = Vec::new();
        while !self.is("}") {
            if self.is_end() {
                let error =
                    Diagnostic::error("the pipelet is not closed", self.peek().span).remark("expected `}`");
                self.report.push(error.label(brace, "it starts here"));
                break;
            }
            if self.take(";").is_some() {
                continue;
            }
            let start = self.at;
            match self.chain() {
                Ok(chain) => chains.push(chain),
                Err(Reported) => self.skip_statement(level + 1, start),
            }
        }
        self.take("}");
        self.take(";");
        Ok(PolicyItem::Pipelet { keyword, name, chains })
    }

    fn chain(&mut self) -> Parsed<EdgeChain> {
        let mut hops = Vec::new();
        let mut node = self.name("a node: a port, an NF or `Drop`")?;
        loop {
            let filter = self.edge_filter()?;
            let arrow = match self.peek().kind {
                TokenKind::Sign("->") => Arrow::Forward,
                TokenKind::Sign("<->") => Arrow::Both,
                _ if hops.is_empty() => return self.unexpected("`->` or `<->`"),
                _ => {
                    if let Some(filter) = filter {
                        let error = Diagnostic::error("a filter after the last node", filter.span);
                        self.report.push(error.help("a filter belongs after the source of an arrow"));
                        return Err(Reported);
                    }
                    self.end_chain()?;
                    return Ok(EdgeChain { hops, last: node });
                }
            };
            let arrow = Spanned::new(arrow, self.bump().span);
            let next = self.name("the target node")?;
            hops.push(EdgeChainHop { node: std::mem::replace(&mut node, next), filter, arrow });
        }
    }

    /// Parses the `;` after an edge. A `:` in its place, an easy slip, is accepted with a warning.
    fn end_chain(&mut self) -> Parsed<()> {
        if let Some(colon) = self.take(":") {
            let warning = Diagnostic::warning("`:` at the end of a statement", colon);
            self.report.push(warning.help("write `;`"));
            return Ok(());
        }
        self.end_statement(self.is("}"))
    }

    /// Parses the `;` that ends a statement; it may be missing after a block.
    fn end_statement(&mut self, optional: bool) -> Parsed<()> {
        if self.take(";").is_some() || optional {
            return Ok(());
        }
        let found = self.describe();
        let last = self.tokens[self.at.saturating_sub(1)].span;
        let place = Span { start: last.end, ..last };
        let error = Diagnostic::error(format!("expected `;`, found {found}"), place).remark("expected `;`");
        self.report.push(error);
        // The next line most likely begins a statement, so nothing needs to be skipped.
        if self.peek().new_line { Ok(()) } else { Err(Reported) }
    }

    /// Parses a name that is being defined.
    fn new_name(&mut self, what: &str) -> Parsed<Name> {
        let name = self.name(what)?;
        if RESERVED.contains(&name.node.as_str()) {
            let error = Diagnostic::error(format!("`{}` is a keyword", name.node), name.span);
            self.report.push(error.help("choose another name"));
        }
        Ok(name)
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        if self.peek().kind != TokenKind::Name {
            return self.unexpected(what);
        }
        let span = self.bump().span;
        Ok(Spanned::new(self.text[span.range()].to_owned(), span))
    }

    // Tokens.

    fn peek(&self) -> &Token {
        // `bump` never passes the last token.
        &self.tokens[self.at]
    }

    fn peek_second(&self) -> &TokenKind {
        self.tokens.get(self.at + 1).map_or(&TokenKind::End, |t| &t.kind)
    }

    fn bump(&mut self) -> &Token {
        let at = self.at;
        match self.tokens[at].kind {
            TokenKind::Sign("{") => self.open += 1,
            TokenKind::Sign("}") => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.at = (at + 1).min(self.tokens.len() - 1);
        &self.tokens[at]
    }

    fn is_end(&self) -> bool {
        self.peek().kind == TokenKind::End
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek().kind, TokenKind::Sign(s) if s == sign)
    }

    fn take(&mut self, sign: &str) -> Option<Span> {
        self.is(sign).then(|| self.bump().span)
    }

    fn expect(&mut self, sign: &str) -> Parsed<Span> {
        match self.take(sign) {
            Some(span) => Ok(span),
            None => self.unexpected(&format!("`{sign}`")),
        }
    }

    /// Returns the current token's text, if it is a name.
    fn word(&self) -> Option<&str> {
        (self.peek().kind == TokenKind::Name).then(|| &self.text[self.peek().span.range()])
    }

    /// Returns the next token's text, if it is a name.
    fn second_word(&self) -> Option<&str> {
        let token = self.tokens.get(self.at + 1)?;
        (token.kind == TokenKind::Name).then(|| &self.text[token.span.range()])
    }

    fn describe(&self) -> String {
        let token = self.peek();
        match token.kind {
            TokenKind::End => "the end of the policy".to_owned(),
            TokenKind::Text(_) => "a string".to_owned(),
            _ => format!("`{}`", shorten(&self.text[token.span.range()])),
        }
    }

    fn unexpected<T>(&mut self, expected: &str) -> Parsed<T> {
        let message = format!("expected {expected}, found {}", self.describe());
        self.report.push(Diagnostic::error(message, self.peek().span).remark("not expected here"));
        Err(Reported)
    }

    /// Runs `inner` one level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEPTH_MAX {
            let error =
                Diagnostic::error(format!("nested more than {DEPTH_MAX} levels deep"), self.peek().span);
            self.report.push(error.help("define a part of it with `let`, or split the statement"));
            return Err(Reported);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Resumes after the statement that began at token `start` with `level` open braces.
    fn skip_statement(&mut self, level: usize, start: usize) {
        loop {
            let ended = self.at > start
                && self.open <= level
                && matches!(self.tokens[self.at - 1].kind, TokenKind::Sign(";" | "}"));
            let closes = self.is("}") && self.open <= level && level > 0;
            let next_item = self.peek().new_line
                && self.at > start
                && self.open <= level
                && matches!(self.word(), Some("let" | "settings" | "pipelet" | "Port"));
            if self.is_end() || ended || closes || next_item {
                break;
            }
            self.bump();
        }
        self.take(";");
    }
}

/// Returns the start of a text, for quoting in a message.
fn shorten(text: &str) -> String {
    const SHOWN_MAX: usize = 40;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
