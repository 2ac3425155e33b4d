//! Filters, from the loosest binding to the tightest: `||`, `&&`, `!`.

use super::{Parsed, Parser, RESERVED};
use crate::ast::{
    Field, FilterComparison, FilterExpr, FilterExprKind, FilterSide, Spanned, TcpFlag, ValueExprKind,
};
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::token::TokenKind;

/// Protocols that may be used alone as a filter: `tcp` is `proto tcp`.
pub(crate) const PROTOCOLS: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmp6", 58), ("sctp", 132)];

impl Parser<'_> {
    /// Parses the `[...]` after a node, if one begins here.
    pub(super) fn edge_filter(&mut self) -> Parsed<Option<FilterExpr>> {
        if self.take("[").is_none() {
            return Ok(None);
        }
        let filter = self.filter()?;
        if !self.is("]") {
            return self.unexpected("`&&`, `||` or `]`");
        }
        self.bump();
        Ok(Some(filter))
    }

    pub(super) fn filter(&mut self) -> Parsed<FilterExpr> {
        self.operators("||", "or", FilterExprKind::Any, |p| {
            p.operators("&&", "and", FilterExprKind::All, Self::factor)
        })
    }

    /// Parses `part`s separated by the same operator.
    fn operators(
        &mut self,
        sign: &str,
        word: &str,
        join: impl FnOnce(Vec<FilterExpr>) -> FilterExprKind,
        part: impl Fn(&mut Self) -> Parsed<FilterExpr>,
    ) -> Parsed<FilterExpr> {
        let first = part(self)?;
        let mut parts = vec![first];
        while self.take(sign).or_else(|| self.take_word(word)).is_some() {
            parts.push(part(self)?);
        }
        if parts.len() == 1 {
            // One element was pushed and none taken.
            return Ok(parts.remove(0));
        }
        let span = parts[0].span.to(parts[parts.len() - 1].span);
        Ok(Spanned::new(join(parts), span))
    }

    fn factor(&mut self) -> Parsed<FilterExpr> {
        if let Some(not) = self.take("!").or_else(|| self.take_word("not")) {
            let inner = self.nested(Self::factor)?;
            let span = not.to(inner.span);
            return Ok(Spanned::new(FilterExprKind::Not(Box::new(inner)), span));
        }
        if let Some(open) = self.take("(") {
            let inner = self.nested(Self::filter)?;
            let close = self.expect(")")?;
            return Ok(Spanned::new(inner.node, open.to(close)));
        }
        self.test()
    }

    fn test(&mut self) -> Parsed<FilterExpr> {
        let span = self.peek().span;
        let word = self.word().unwrap_or_default().to_owned();
        if self.peek().kind == TokenKind::Name && *self.peek_second() == TokenKind::Sign(".") {
            return self.attribute();
        }
        let side = match word.as_str() {
            "src" => Some(FilterSide::Src),
            "dst" => Some(FilterSide::Dst),
            _ => None,
        };
        if side.is_some() {
            self.bump();
            let field = self.word().and_then(Field::find);
            return match field {
                Some(field @ (Field::Ip | Field::Ip6 | Field::Net | Field::Port)) => {
                    self.field(span, side, field)
                }
                _ => self.unexpected("`ip`, `ip6`, `net` or `port`"),
            };
        }
        if let Some(field) = Field::find(&word) {
            return self.field(span, None, field);
        }
        if matches!(word.as_str(), "true" | "false") {
            self.bump();
            return Ok(Spanned::new(FilterExprKind::Always(word == "true"), span));
        }
        if word == "tcp" && self.second_word() == Some("flags") {
            self.bump();
            self.bump();
            return self.flags(span);
        }
        if PROTOCOLS.iter().any(|(name, _)| *name == word) {
            self.bump();
            let value = Spanned::new(ValueExprKind::Word(word), span);
            let test = FilterExprKind::Test {
                side: None,
                field: Field::Proto,
                compare: FilterComparison::Eq,
                value,
            };
            return Ok(Spanned::new(test, span));
        }
        if self.peek().kind == TokenKind::Name && !RESERVED.contains(&word.as_str()) {
            let error = Diagnostic::error(format!("unknown test `{word}`"), span);
            self.report.push(error.help(
                "tests begin with src, dst, ip, ip6, net, port, proto, tcp, udp, icmp, icmp6, sctp, vlan, tenant, dscp, or an attribute such as `FW.safe`",
            ));
            return Err(super::Reported);
        }
        self.unexpected("a test such as `dst port 80`")
    }

    /// Parses a test; the field's word is the current token.
    fn field(&mut self, start: Span, side: Option<FilterSide>, field: Field) -> Parsed<FilterExpr> {
        self.bump();
        let compare = self.compare().unwrap_or(FilterComparison::Eq);
        let value = self.value()?;
        let span = start.to(value.span);
        Ok(Spanned::new(FilterExprKind::Test { side, field, compare, value }, span))
    }

    /// Parses `syn,!ack` after `tcp flags`.
    fn flags(&mut self, start: Span) -> Parsed<FilterExpr> {
        let mut flags = Vec::new();
        loop {
            let set = self.take("!").is_none();
            let Some(flag) = self.word().and_then(TcpFlag::find) else {
                return self.unexpected("a TCP flag: fin, syn, rst, psh, ack, urg, ece or cwr");
            };
            let span = self.bump().span;
            flags.push((Spanned::new(flag, span), set));
            if self.take(",").is_none() {
                return Ok(Spanned::new(FilterExprKind::Flags(flags), start.to(span)));
            }
        }
    }

    fn attribute(&mut self) -> Parsed<FilterExpr> {
        let owner = self.name("an NF")?;
        self.expect(".")?;
        let name = self.name("an attribute")?;
        let mut span = owner.span.to(name.span);
        let mut test = None;
        if let Some(compare) = self.compare() {
            let value = self.value()?;
            span = span.to(value.span);
            test = Some((compare, value));
        }
        Ok(Spanned::new(FilterExprKind::Attribute { owner, name, test }, span))
    }

    fn compare(&mut self) -> Option<FilterComparison> {
        let compare = match self.peek().kind {
            TokenKind::Sign("==" | "=") => FilterComparison::Eq,
            TokenKind::Sign("!=") => FilterComparison::Ne,
            TokenKind::Sign("<") => FilterComparison::Lt,
            TokenKind::Sign("<=") => FilterComparison::Le,
            TokenKind::Sign(">") => FilterComparison::Gt,
            TokenKind::Sign(">=") => FilterComparison::Ge,
            _ => return None,
        };
        self.bump();
        Some(compare)
    }

    fn take_word(&mut self, word: &str) -> Option<Span> {
        (self.word() == Some(word)).then(|| self.bump().span)
    }
}
