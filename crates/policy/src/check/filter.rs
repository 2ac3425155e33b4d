//! Resolution of filters: operands become sets, `port` without a side matches either, `!=` negates.

use std::sync::Arc;

use super::{Checker, NamedKind};
use crate::ast::{self, Field, FilterComparison, FilterExprKind, FilterSide, Name};
use crate::diagnostic::Diagnostic;
use crate::filter::{Filter, FilterAddressSet, FilterNumberField, NumberSet, Scalar};
use crate::literal::ConfigLiteral;
use crate::parser::PROTOCOLS;
use crate::source::Span;
use crate::value::{Value, ValueKind};

impl Checker<'_, '_> {
    /// Resolves a filter. Faults are reported, and a filter that always matches is returned.
    pub(super) fn filter(&mut self, filter: &ast::FilterExpr) -> Filter {
        match &filter.node {
            FilterExprKind::Always(value) => Filter::Always(*value),
            FilterExprKind::Not(inner) => Filter::Not(Box::new(self.filter(inner))),
            FilterExprKind::All(parts) => Filter::All(parts.iter().map(|p| self.filter(p)).collect()),
            FilterExprKind::Any(parts) => Filter::Any(parts.iter().map(|p| self.filter(p)).collect()),
            FilterExprKind::Test { side, field, compare, value } => {
                self.test(*side, *field, *compare, value, filter.span).unwrap_or(Filter::Always(true))
            }
            FilterExprKind::Flags(flags) => {
                let bits = |wanted: bool| {
                    flags
                        .iter()
                        .filter(|(_, set)| *set == wanted)
                        .fold(0, |bits, (flag, _)| bits | flag.node.bit())
                };
                let (set, clear) = (bits(true), bits(false));
                if set & clear != 0 {
                    let message = "a flag cannot be both set and clear";
                    self.report.push(Diagnostic::error(message, filter.span));
                }
                Filter::TcpFlags { set, clear }
            }
            FilterExprKind::Attribute { owner, name, test } => self.attribute(owner, name, test.as_ref()),
        }
    }

    fn test(
        &mut self,
        side: Option<FilterSide>,
        field: Field,
        compare: FilterComparison,
        value: &ast::ValueExpr,
        span: Span,
    ) -> Option<Filter> {
        let number = |field| move |set| Filter::Number { field, set };
        let test = match field {
            Field::Ip | Field::Ip6 | Field::Net => {
                if !matches!(compare, FilterComparison::Eq | FilterComparison::Ne) {
                    let message = format!("addresses cannot be compared with `{}`", compare.sign());
                    self.report.push(Diagnostic::error(message, span).help("use `==`, `!=` or a range"));
                    return None;
                }
                let set = self.addresses(value, field)?;
                either(side, |side| Filter::Address { side, set: set.clone() })
            }
            Field::Port => {
                let set = self.numbers(value, compare, FilterNumberField::SrcPort, &[])?;
                either(side, |side| match side {
                    FilterSide::Src => number(FilterNumberField::SrcPort)(set.clone()),
                    FilterSide::Dst => number(FilterNumberField::DstPort)(set.clone()),
                })
            }
            Field::Proto => number(FilterNumberField::Proto)(self.numbers(
                value,
                compare,
                FilterNumberField::Proto,
                &PROTOCOLS,
            )?),
            Field::Vlan => {
                number(FilterNumberField::Vlan)(self.numbers(value, compare, FilterNumberField::Vlan, &[])?)
            }
            Field::Tenant => number(FilterNumberField::Tenant)(self.numbers(
                value,
                compare,
                FilterNumberField::Tenant,
                &[],
            )?),
            Field::Dscp => {
                number(FilterNumberField::Dscp)(self.numbers(value, compare, FilterNumberField::Dscp, &[])?)
            }
        };
        Some(if compare == FilterComparison::Ne { Filter::Not(Box::new(test)) } else { test })
    }

    fn addresses(&mut self, operand: &ast::ValueExpr, field: Field) -> Option<FilterAddressSet> {
        let value = self.operand(operand, &[])?;
        let mut ranges = Vec::new();
        for leaf in leaves(&value) {
            let range = match &leaf.kind {
                ValueKind::Literal(ConfigLiteral::Address(address)) => (*address, *address),
                ValueKind::Literal(ConfigLiteral::AddressRange(first, last)) => (*first, *last),
                ValueKind::Literal(ConfigLiteral::Prefix(prefix)) => {
                    if prefix.network() != *prefix {
                        let message = format!("`{prefix}` has bits set after its prefix length");
                        let error = Diagnostic::error(message, leaf.span);
                        let help = format!(
                            "write `{}` for the network, or `{}` for the address",
                            prefix.network(),
                            prefix.address()
                        );
                        self.report.push(error.help(help));
                        return None;
                    }
                    prefix.bounds()
                }
                _ => {
                    return self.misfit(
                        leaf.span,
                        operand.span,
                        "an address, a prefix or a range of addresses",
                    );
                }
            };
            if field == Field::Ip6 && range.0.is_ipv4() {
                return self.misfit(leaf.span, operand.span, "an IPv6 address");
            }
            ranges.push(range);
        }
        self.not_empty(&ranges, operand.span)?;
        Some(FilterAddressSet::new(ranges))
    }

    /// Returns the numbers that pass the comparison; for `!=`, the numbers that do not.
    fn numbers(
        &mut self,
        operand: &ast::ValueExpr,
        compare: FilterComparison,
        field: FilterNumberField,
        words: &[(&str, u8)],
    ) -> Option<NumberSet> {
        let value = self.operand(operand, words)?;
        let mut ranges = Vec::new();
        for leaf in leaves(&value) {
            let range = match &leaf.kind {
                ValueKind::Literal(ConfigLiteral::Integer(n)) if let Ok(n) = u64::try_from(*n) => (n, n),
                ValueKind::Literal(ConfigLiteral::NumberRange(first, last)) => (*first, *last),
                ValueKind::Word(word) if let Some((_, n)) = words.iter().find(|(name, _)| name == word) => {
                    (u64::from(*n), u64::from(*n))
                }
                _ if words.is_empty() => {
                    return self.misfit(leaf.span, operand.span, "a number or a range of numbers");
                }
                _ => {
                    return self.misfit(
                        leaf.span,
                        operand.span,
                        "a protocol: tcp, udp, icmp, icmp6, sctp or a number",
                    );
                }
            };
            if range.1 > field.max() {
                return self.misfit(leaf.span, operand.span, &format!("a number up to {}", field.max()));
            }
            ranges.push(range);
        }
        self.not_empty(&ranges, operand.span)?;
        let single = match ranges[..] {
            [(first, last)] if first == last => Some(first),
            _ => None,
        };
        let range = match (compare, single) {
            (FilterComparison::Eq | FilterComparison::Ne, _) => return Some(NumberSet::new(ranges)),
            (_, None) => return self.misfit(value.span, operand.span, "a single number"),
            (FilterComparison::Lt, Some(0)) => return Some(NumberSet::default()),
            (FilterComparison::Lt, Some(n)) => (0, n - 1),
            (FilterComparison::Le, Some(n)) => (0, n),
            // No field's maximum is `u64::MAX`, and `n` is at most that maximum.
            (FilterComparison::Gt, Some(n)) => (n + 1, field.max()),
            (FilterComparison::Ge, Some(n)) => (n, field.max()),
        };
        Some(NumberSet::new(vec![range]))
    }

    fn attribute(
        &mut self,
        owner: &Name,
        name: &Name,
        test: Option<&(FilterComparison, ast::ValueExpr)>,
    ) -> Filter {
        let instance = self.names.get(&owner.node).map(|n| n.what);
        if let Some(NamedKind::External(at)) = instance {
            self.used.insert(owner.node.clone());
            if !self.is_set_by(at, owner, name) {
                return Filter::Always(true);
            }
        }
        if let Some(NamedKind::Nf(at)) = instance
            && !self.is_set_by_nf(at, owner, name)
        {
            return Filter::Always(true);
        }
        let nfs: Arc<[usize]> = match instance {
            Some(NamedKind::Nf(at)) => [at].into(),
            // External nodes are numbered after the NFs.
            Some(NamedKind::External(at)) => [self.nfs.len() + at].into(),
            _ => self.types.get(&owner.node).cloned().unwrap_or_default(),
        };
        if nfs.is_empty() {
            let types: Vec<String> = self.types.keys().take(SUGGESTED_MAX).cloned().collect();
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            let pick = |what| matches!(what, NamedKind::Nf(_));
            self.unknown("NF", &owner.node, owner.span, pick, &types);
        }
        let test = match test {
            None => None,
            Some((compare, operand)) => match self.scalar(operand, *compare) {
                Some(scalar) => Some((*compare, scalar)),
                None => return Filter::Always(true),
            },
        };
        let attribute = |test| Filter::Attribute { nfs, name: name.node.clone(), test };
        match test {
            // As for header fields: an absent attribute is unequal.
            Some((FilterComparison::Ne, value)) => {
                Filter::Not(Box::new(attribute(Some((FilterComparison::Eq, value)))))
            }
            test => attribute(test),
        }
    }

    fn scalar(&mut self, operand: &ast::ValueExpr, compare: FilterComparison) -> Option<Scalar> {
        let value = self.value(operand);
        let scalar = match value.kind {
            ValueKind::Literal(ConfigLiteral::Bool(truth)) => Scalar::Number(truth.into()),
            ValueKind::Literal(ConfigLiteral::Integer(n)) if let Ok(n) = u64::try_from(n) => {
                Scalar::Number(n)
            }
            ValueKind::Literal(ConfigLiteral::Amount(amount, _)) => Scalar::Number(amount.value),
            ValueKind::Literal(ConfigLiteral::Address(address)) => Scalar::Text(address.to_string()),
            ValueKind::Text(text) | ValueKind::File(text, _) => Scalar::Text(text.as_str().to_owned()),
            ValueKind::Word(word) => Scalar::Text(word),
            _ => return self.misfit(value.span, operand.span, "a number, a string or a word"),
        };
        if matches!(scalar, Scalar::Text(_))
            && !matches!(compare, FilterComparison::Eq | FilterComparison::Ne)
        {
            return self.misfit(value.span, operand.span, "a number: text has no order");
        }
        Some(scalar)
    }

    /// Resolves an operand. Its words, except `known` ones, must be names of values.
    fn operand(&mut self, operand: &ast::ValueExpr, known: &[(&str, u8)]) -> Option<Value> {
        let value = self.value(operand);
        let unknown = leaves(&value).into_iter().find_map(|leaf| match &leaf.kind {
            ValueKind::Word(word) if known.iter().all(|(name, _)| name != word) => {
                Some((word.clone(), leaf.span))
            }
            _ => None,
        });
        if let Some((word, span)) = unknown {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            self.unknown("value", &word, span, |what| what == NamedKind::Value, &known);
            return None;
        }
        Some(value)
    }

    /// Reports a value of the wrong kind, which may be defined away from the filter that uses it.
    fn misfit<T>(&mut self, at: Span, operand: Span, expected: &str) -> Option<T> {
        let error = Diagnostic::error(format!("expected {expected}"), at);
        self.report.push(if at == operand { error } else { error.label(operand, "used here") });
        None
    }

    fn not_empty<T>(&mut self, set: &[T], span: Span) -> Option<()> {
        if set.is_empty() {
            self.report.push(Diagnostic::error("the set is empty: no packet would match", span));
            return None;
        }
        Some(())
    }
}

/// Limit on the types that a misspelt name is compared with.
const SUGGESTED_MAX: usize = 64;

/// Returns the test for one side, or for either.
fn either(side: Option<FilterSide>, test: impl Fn(FilterSide) -> Filter) -> Filter {
    match side {
        Some(side) => test(side),
        None => Filter::Any(vec![test(FilterSide::Src), test(FilterSide::Dst)]),
    }
}

/// Returns the value itself, or all values in a list, to any depth.
fn leaves(value: &Value) -> Vec<&Value> {
    let mut result = Vec::new();
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match &value.kind {
            ValueKind::List(values) => rest.extend(values.iter().rev()),
            _ => result.push(value),
        }
    }
    result
}
