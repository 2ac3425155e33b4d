//! From tokens to the syntax tree: recursive descent that goes on after an error at the next `;`,
//! `}` or entry.

mod filter;
mod value;

use crate::ast::{Arrow, EdgeChain, File, FilterExpr, EdgeChainHop, PolicyItem, Name, Spanned};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::source::{SourceId, Span};
use crate::token::{Kind, Token, tokens};

pub(crate) use filter::PROTOCOLS;

/// How deep values and filters may nest. Deeper ones are an error, so that no input exhausts the
/// stack.
pub const DEPTH_MAX: usize = 64;

/// Words that mean something to the language and cannot name a value, port or NF.
pub const RESERVED: [&str; 10] =
    ["let", "settings", "pipelet", "Port", "Drop", "true", "false", "and", "or", "not"];

/// Reads one source of the report. What is wrong is reported; the tree holds what could be read.
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

/// Reads one source of the report as a filter, and nothing else. None if it is not one; the report
/// says why.
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

/// An error was found, and is in the report.
struct Reported;

type Parsed<T> = Result<T, Reported>;

struct Parser<'a> {
    text: &'a str,
    /// Never empty: the last one is the end.
    tokens: Vec<Token>,
    at: usize,
    /// Braces that are open before the current token.
    open: usize,
    /// Values and filters around the current token.
    depth: usize,
    report: &'a mut Diagnostics,
}

impl Parser<'_> {
    /// One item; `None` for a stray `;`.
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
                let name = self.new_name("a name for the network function")?;
                PolicyItem::Nf { type_name, name, config: self.block()? }
            }
            _ => {
                return self
                    .unexpected("`let`, `Port`, `settings`, `pipelet` or the type of a network function");
            }
        };
        self.end_statement(matches!(
            &item,
            PolicyItem::Port { config: Some(_), .. } | PolicyItem::Nf { config: Some(_), .. } | PolicyItem::Settings { .. }
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
                self.report.push(error.label(brace, "it begins here"));
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
        let mut node = self.name("a node: a port, a network function or `Drop`")?;
        loop {
            let filter = self.edge_filter()?;
            let arrow = match self.peek().kind {
                Kind::Sign("->") => Arrow::Forward,
                Kind::Sign("<->") => Arrow::Both,
                _ if hops.is_empty() => return self.unexpected("`->` or `<->`"),
                _ => {
                    if let Some(filter) = filter {
                        let error = Diagnostic::error("a filter behind the last node", filter.span);
                        self.report
                            .push(error.help("a filter stands behind the node that the packets come from"));
                        return Err(Reported);
                    }
                    self.end_chain()?;
                    return Ok(EdgeChain { hops, last: node });
                }
            };
            let arrow = Spanned::new(arrow, self.bump().span);
            let next = self.name("the node that the packets go to")?;
            hops.push(EdgeChainHop { node: std::mem::replace(&mut node, next), filter, arrow });
        }
    }

    /// The `;` behind an edge. A `:` in its place, an easy slip, is read as `;` with a warning.
    fn end_chain(&mut self) -> Parsed<()> {
        if let Some(colon) = self.take(":") {
            let warning = Diagnostic::warning("`:` at the end of a statement", colon);
            self.report.push(warning.help("write `;`"));
            return Ok(());
        }
        self.end_statement(self.is("}"))
    }

    /// The `;` that ends a statement; it may be missing behind a block.
    fn end_statement(&mut self, optional: bool) -> Parsed<()> {
        if self.take(";").is_some() || optional {
            return Ok(());
        }
        let found = self.describe();
        let last = self.tokens[self.at.saturating_sub(1)].span;
        let place = Span { start: last.end, ..last };
        let error = Diagnostic::error(format!("expected `;`, found {found}"), place).remark("expected `;`");
        self.report.push(error);
        // The next line most likely begins a statement: nothing of it has to be skipped.
        if self.peek().new_line { Ok(()) } else { Err(Reported) }
    }

    /// A name that is being given to something.
    fn new_name(&mut self, what: &str) -> Parsed<Name> {
        let name = self.name(what)?;
        if RESERVED.contains(&name.node.as_str()) {
            let error = Diagnostic::error(format!("`{}` is a word of the language", name.node), name.span);
            self.report.push(error.help("choose another name"));
        }
        Ok(name)
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        if self.peek().kind != Kind::Name {
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

    fn peek_second(&self) -> &Kind {
        self.tokens.get(self.at + 1).map_or(&Kind::End, |t| &t.kind)
    }

    fn bump(&mut self) -> &Token {
        let at = self.at;
        match self.tokens[at].kind {
            Kind::Sign("{") => self.open += 1,
            Kind::Sign("}") => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.at = (at + 1).min(self.tokens.len() - 1);
        &self.tokens[at]
    }

    fn is_end(&self) -> bool {
        self.peek().kind == Kind::End
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek().kind, Kind::Sign(s) if s == sign)
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

    /// The current token's text, if it is a name.
    fn word(&self) -> Option<&str> {
        (self.peek().kind == Kind::Name).then(|| &self.text[self.peek().span.range()])
    }

    /// The text of the token behind the current one, if that is a name.
    fn second_word(&self) -> Option<&str> {
        let token = self.tokens.get(self.at + 1)?;
        (token.kind == Kind::Name).then(|| &self.text[token.span.range()])
    }

    fn describe(&self) -> String {
        let token = self.peek();
        match token.kind {
            Kind::End => "the end of the policy".to_owned(),
            Kind::Text(_) => "a string".to_owned(),
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
            let error = Diagnostic::error(format!("nested more than {DEPTH_MAX} deep"), self.peek().span);
            self.report.push(error.help("name a part of it with `let`, or split the statement"));
            return Err(Reported);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Goes on behind the statement that began at token `start` with `level` open braces.
    fn skip_statement(&mut self, level: usize, start: usize) {
        loop {
            let ended = self.at > start
                && self.open <= level
                && matches!(self.tokens[self.at - 1].kind, Kind::Sign(";" | "}"));
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

/// The head of a text, for a message that repeats it.
fn shorten(text: &str) -> String {
    const SHOWN_MAX: usize = 40;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
