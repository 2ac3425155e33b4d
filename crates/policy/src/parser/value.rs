//! Values: literals, lists, objects.

use std::net::IpAddr;

use values::{Quantity, QuantityKind};

use super::{Parsed, Parser, Reported};
use crate::ast::{Name, Spanned, TextExpr, ValueExpr, ValueExprKind};
use crate::diagnostic::Diagnostic;
use crate::literal::ConfigLiteral;
use crate::source::Span;
use crate::token::TokenKind;

impl Parser<'_> {
    /// Parses a configuration block, if one begins here.
    pub(super) fn block(&mut self) -> Parsed<Option<ValueExpr>> {
        if !self.is("{") {
            return Ok(None);
        }
        self.nested(Self::object).map(Some)
    }

    pub(super) fn value(&mut self) -> Parsed<ValueExpr> {
        let token = self.peek();
        let (span, kind) = (token.span, token.kind.clone());
        let node = match kind {
            TokenKind::Sign("[") => return self.nested(|p| p.list("[", "]")),
            TokenKind::Sign("{") => {
                let keyed = match self.peek_second() {
                    TokenKind::Sign("}") => true,
                    TokenKind::Name | TokenKind::Text(_) => {
                        self.tokens.get(self.at + 2).is_some_and(|t| t.kind == TokenKind::Sign(":"))
                    }
                    _ => false,
                };
                return self.nested(|p| if keyed { p.object() } else { p.list("{", "}") });
            }
            TokenKind::Sign("-") | TokenKind::Number | TokenKind::Address(_) => {
                return self.number_or_range();
            }
            TokenKind::Prefix(prefix) => ValueExprKind::Literal(ConfigLiteral::Prefix(prefix)),
            TokenKind::Mac(mac) => ValueExprKind::Literal(ConfigLiteral::Mac(mac)),
            TokenKind::Text(text) => ValueExprKind::Text(text),
            TokenKind::Reference => ValueExprKind::Reference(self.text[span.range()][1..].to_owned()),
            TokenKind::Name => match &self.text[span.range()] {
                "file" if *self.peek_second() == TokenKind::Sign("(") => return self.file(),
                "true" => ValueExprKind::Literal(ConfigLiteral::Bool(true)),
                "false" => ValueExprKind::Literal(ConfigLiteral::Bool(false)),
                word => ValueExprKind::Word(word.to_owned()),
            },
            _ => return self.unexpected("a value"),
        };
        self.bump();
        Ok(Spanned::new(node, span))
    }

    /// Parses a whole number without a unit.
    pub(super) fn count(&mut self) -> Parsed<Spanned<u64>> {
        if self.peek().kind != TokenKind::Number {
            return self.unexpected("a number");
        }
        let number = self.number()?;
        match number.node {
            ConfigLiteral::Integer(value) if let Ok(value) = u64::try_from(value) => {
                Ok(Spanned::new(value, number.span))
            }
            other => {
                let message = format!("expected a whole number without a unit, found `{other}`");
                self.report.push(Diagnostic::error(message, number.span));
                Err(Reported)
            }
        }
    }

    fn list(&mut self, open: &str, close: &str) -> Parsed<ValueExpr> {
        let start = self.expect(open)?;
        let mut values = Vec::new();
        while !self.is(close) {
            values.push(self.value()?);
            if !(self.take(",").is_some() || self.is(close) || self.new_line()) {
                return self.unexpected(&format!("`,` or `{close}`"));
            }
        }
        let end = self.expect(close)?;
        Ok(Spanned::new(ValueExprKind::List(values), start.to(end)))
    }

    fn object(&mut self) -> Parsed<ValueExpr> {
        let level = self.open;
        let start = self.expect("{")?;
        let mut entries: Vec<(Name, ValueExpr)> = Vec::new();
        while !self.is("}") {
            if self.is_end() {
                let error =
                    Diagnostic::error("the block is not closed", self.peek().span).remark("expected `}`");
                self.report.push(error.label(start, "it starts here"));
                return Err(Reported);
            }
            let at = self.at;
            match self.entry() {
                Ok(entry) => entries.push(entry),
                Err(Reported) => self.skip_entry(level + 1, at),
            }
        }
        let end = self.bump().span;
        Ok(Spanned::new(ValueExprKind::Object(entries), start.to(end)))
    }

    fn entry(&mut self) -> Parsed<(Name, ValueExpr)> {
        let key = match &self.peek().kind {
            TokenKind::Text(text) => Spanned::new(text.text.clone(), self.peek().span),
            TokenKind::Name => Spanned::new(self.text[self.peek().span.range()].to_owned(), self.peek().span),
            _ => return self.unexpected("a key or `}`"),
        };
        self.bump();
        self.expect(":")?;
        let value = self.value()?;
        if self.take(",").or_else(|| self.take(";")).is_some() || self.is("}") || self.new_line() {
            return Ok((key, value));
        }
        self.unexpected("`,` or `}`")
    }

    /// Checks for a token on a new line, which separates entries as a comma does.
    fn new_line(&self) -> bool {
        self.peek().new_line && !self.is_end()
    }

    /// Resumes after the entry that began at token `start` in a block with `level` open braces.
    fn skip_entry(&mut self, level: usize, start: usize) {
        while !(self.is_end() || self.is("}") && self.open <= level) {
            if self.at > start && self.open <= level {
                let separated = self.take(",").or_else(|| self.take(";")).is_some();
                let is_key = matches!(self.peek().kind, TokenKind::Name | TokenKind::Text(_));
                if separated && !self.is(",")
                    || self.peek().new_line && is_key && *self.peek_second() == TokenKind::Sign(":")
                {
                    return;
                }
                if separated {
                    continue;
                }
            }
            self.bump();
        }
    }

    fn file(&mut self) -> Parsed<ValueExpr> {
        let start = self.bump().span;
        self.expect("(")?;
        let TokenKind::Text(text) = self.peek().kind.clone() else {
            return self.unexpected("a path in quotes");
        };
        let path: Spanned<TextExpr> = Spanned::new(text, self.bump().span);
        let end = self.expect(")")?;
        Ok(Spanned::new(ValueExprKind::File(path), start.to(end)))
    }

    /// Parses `80`, `-5`, `80-90`, `10s`, `192.0.2.1` or `192.0.2.1-192.0.2.9`.
    fn number_or_range(&mut self) -> Parsed<ValueExpr> {
        let first = self.number_or_address()?;
        if !self.is("-") {
            return Ok(Spanned::new(ValueExprKind::Literal(first.node), first.span));
        }
        self.bump();
        let last = self.number_or_address()?;
        let span = first.span.to(last.span);
        let range = match (first.node, last.node) {
            (ConfigLiteral::Address(a), ConfigLiteral::Address(b)) => address_range(a, b),
            (ConfigLiteral::Integer(a), ConfigLiteral::Integer(b)) => number_range(a, b),
            _ => Err("a range needs two addresses or two whole numbers"),
        };
        match range {
            Ok(range) => Ok(Spanned::new(ValueExprKind::Literal(range), span)),
            Err(message) => {
                self.report.push(Diagnostic::error(message, span));
                Err(Reported)
            }
        }
    }

    fn number_or_address(&mut self) -> Parsed<Spanned<ConfigLiteral>> {
        if let TokenKind::Address(address) = self.peek().kind {
            return Ok(Spanned::new(ConfigLiteral::Address(address), self.bump().span));
        }
        let minus = self.take("-");
        if self.peek().kind != TokenKind::Number {
            return self.unexpected(if minus.is_some() { "a number" } else { "a number or an address" });
        }
        let number = self.number()?;
        let Some(minus) = minus else { return Ok(number) };
        let span = minus.to(number.span);
        match number.node {
            ConfigLiteral::Integer(value) if -value >= i128::from(i64::MIN) => {
                Ok(Spanned::new(ConfigLiteral::Integer(-value), span))
            }
            ConfigLiteral::Float(value) => Ok(Spanned::new(ConfigLiteral::Float(-value), span)),
            _ => self.bad_number(span, "out of range for a negative number".to_owned()),
        }
    }

    fn number(&mut self) -> Parsed<Spanned<ConfigLiteral>> {
        let span = self.bump().span;
        let text = &self.text[span.range()];
        if let Some(digits) = text.strip_prefix("0x") {
            return match u64::from_str_radix(&digits.replace('_', ""), 16) {
                Ok(value) => Ok(Spanned::new(ConfigLiteral::Integer(value.into()), span)),
                Err(_) => {
                    self.bad_number(span, "a hexadecimal number has 1 to 16 digits 0-9, a-f".to_owned())
                }
            };
        }
        if text.contains('.') && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Spanned::new(ConfigLiteral::Float(value), span)),
                _ => self.bad_number(span, "too large".to_owned()),
            };
        }
        match Quantity::parse(text) {
            Ok(Quantity { kind: QuantityKind::Count, value }) => {
                Ok(Spanned::new(ConfigLiteral::Integer(value.into()), span))
            }
            Ok(amount) => Ok(Spanned::new(ConfigLiteral::Amount(amount, text.to_owned()), span)),
            Err(error) => self.bad_number(span, error.to_string()),
        }
    }

    fn bad_number<T>(&mut self, span: Span, why: String) -> Parsed<T> {
        let text = super::shorten(&self.text[span.range()]);
        self.report.push(Diagnostic::error(format!("`{text}` is not a valid number"), span).help(why));
        Err(Reported)
    }
}

fn address_range(first: IpAddr, last: IpAddr) -> Result<ConfigLiteral, &'static str> {
    if first.is_ipv4() != last.is_ipv4() {
        return Err("an address range needs two addresses of one family");
    }
    if first > last {
        return Err("the range is reversed: its end is below its start");
    }
    Ok(ConfigLiteral::AddressRange(first, last))
}

fn number_range(first: i128, last: i128) -> Result<ConfigLiteral, &'static str> {
    let (Ok(first), Ok(last)) = (u64::try_from(first), u64::try_from(last)) else {
        return Err("a range cannot contain negative numbers");
    };
    if first > last {
        return Err("the range is reversed: its end is below its start");
    }
    Ok(ConfigLiteral::NumberRange(first, last))
}
