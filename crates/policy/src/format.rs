//! Formatting of a syntax tree in one style. Comments are not part of the tree and are lost.

use std::fmt::{self, Formatter, Write};

use crate::ast::{
    Arrow, EdgeChain, File, FilterExpr, FilterExprKind, Name, PolicyItem, TextExpr, ValueExpr, ValueExprKind,
};

/// The output parses to an equal tree.
impl fmt::Display for File {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before: Option<&PolicyItem> = None;
        for item in &self.items {
            let is_pipelet = matches!(item, PolicyItem::Pipelet { .. });
            if before.is_some_and(|b| is_pipelet || matches!(b, PolicyItem::Pipelet { .. })) {
                f.write_char('\n')?;
            }
            writeln!(f, "{item}")?;
            before = Some(item);
        }
        Ok(())
    }
}

impl fmt::Display for PolicyItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Let { name, value } => {
                write!(f, "let {} = ", name.node)?;
                write_value(f, value, 0)?;
            }
            Self::Port { first, last, name, config } => {
                write!(f, "Port<{}", first.node)?;
                if let Some(last) = last {
                    write!(f, "-{}", last.node)?;
                }
                write!(f, "> {}", name.node)?;
                write_block(f, config.as_ref())?;
            }
            Self::Nf { type_name, name, config } => {
                write!(f, "{} {}", type_name.node, name.node)?;
                write_block(f, config.as_ref())?;
            }
            Self::Settings { config, .. } => {
                f.write_str("settings")?;
                write_block(f, Some(config))?;
            }
            Self::Pipelet { name, chains, .. } => {
                f.write_str("pipelet ")?;
                if let Some(name) = name {
                    write!(f, "{} ", name.node)?;
                }
                f.write_str("{\n")?;
                for chain in chains {
                    writeln!(f, "  {chain};")?;
                }
                return f.write_char('}');
            }
        }
        f.write_char(';')
    }
}

impl fmt::Display for EdgeChain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for hop in &self.hops {
            f.write_str(&hop.node.node)?;
            if let Some(filter) = &hop.filter {
                write!(f, " [{filter}]")?;
            }
            f.write_str(match hop.arrow.node {
                Arrow::Forward => " -> ",
                Arrow::Both => " <-> ",
            })?;
        }
        f.write_str(&self.last.node)
    }
}

impl fmt::Display for FilterExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.node {
            FilterExprKind::Always(value) => write!(f, "{value}"),
            FilterExprKind::Not(inner) if inner.is_joined() => write!(f, "!({inner})"),
            // `!dst port 80` would be correct, but looks wrong.
            FilterExprKind::Not(inner)
                if matches!(inner.node, FilterExprKind::Test { .. } | FilterExprKind::Flags(_)) =>
            {
                write!(f, "!({inner})")
            }
            FilterExprKind::Not(inner) => write!(f, "!{inner}"),
            FilterExprKind::All(parts) => write_joined(f, parts, " && "),
            FilterExprKind::Any(parts) => write_joined(f, parts, " || "),
            FilterExprKind::Test { side, field, compare, value } => {
                if let Some(side) = side {
                    write!(f, "{} ", side.word())?;
                }
                write!(f, "{} ", field.word())?;
                if *compare != crate::ast::FilterComparison::Eq {
                    write!(f, "{} ", compare.sign())?;
                }
                write_value(f, value, 0)
            }
            FilterExprKind::Flags(flags) => {
                f.write_str("tcp flags ")?;
                for (at, (flag, set)) in flags.iter().enumerate() {
                    let (comma, not) = (if at > 0 { "," } else { "" }, if *set { "" } else { "!" });
                    write!(f, "{comma}{not}{}", flag.node.word())?;
                }
                Ok(())
            }
            FilterExprKind::Attribute { owner, name, test } => {
                write!(f, "{}.{}", owner.node, name.node)?;
                let Some((compare, value)) = test else { return Ok(()) };
                write!(f, " {} ", compare.sign())?;
                write_value(f, value, 0)
            }
        }
    }
}

impl FilterExpr {
    /// Checks for an operator that binds looser than `!`.
    fn is_joined(&self) -> bool {
        matches!(self.node, FilterExprKind::All(_) | FilterExprKind::Any(_))
    }
}

impl fmt::Display for ValueExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_value(f, self, 0)
    }
}

/// Nested operators get parentheses even where precedence makes them redundant.
fn write_joined(f: &mut Formatter<'_>, parts: &[FilterExpr], operator: &str) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            f.write_str(operator)?;
        }
        if part.is_joined() { write!(f, "({part})")? } else { write!(f, "{part}")? }
    }
    Ok(())
}

fn write_block(f: &mut Formatter<'_>, config: Option<&ValueExpr>) -> fmt::Result {
    let Some(config) = config else { return Ok(()) };
    f.write_char(' ')?;
    write_value(f, config, 0)
}

fn write_value(f: &mut Formatter<'_>, value: &ValueExpr, depth: usize) -> fmt::Result {
    match &value.node {
        ValueExprKind::Literal(literal) => write!(f, "{literal}"),
        ValueExprKind::Text(text) => write_text(f, &text.text),
        ValueExprKind::File(path) => {
            let TextExpr { text, .. } = &path.node;
            f.write_str("file(")?;
            write_text(f, text)?;
            f.write_char(')')
        }
        ValueExprKind::Word(word) => f.write_str(word),
        ValueExprKind::Reference(name) => write!(f, "${name}"),
        ValueExprKind::List(values) => {
            f.write_char('[')?;
            for (at, value) in values.iter().enumerate() {
                f.write_str(if at > 0 { ", " } else { "" })?;
                write_value(f, value, depth)?;
            }
            f.write_char(']')
        }
        ValueExprKind::Object(entries) if entries.is_empty() => f.write_str("{}"),
        ValueExprKind::Object(entries) => {
            f.write_str("{\n")?;
            for (key, value) in entries {
                write!(f, "{:1$}", "", 2 * (depth + 1))?;
                write_key(f, key)?;
                f.write_str(": ")?;
                write_value(f, value, depth + 1)?;
                f.write_str(",\n")?;
            }
            write!(f, "{:1$}}}", "", 2 * depth)
        }
    }
}

fn write_key(f: &mut Formatter<'_>, key: &Name) -> fmt::Result {
    if crate::token::is_name(&key.node) { f.write_str(&key.node) } else { write_text(f, &key.node) }
}

fn write_text(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
