//! The syntax tree as text, in one style. Comments are not part of the tree: they are lost.

use std::fmt::{self, Formatter, Write};

use crate::ast::{Arrow, Chain, File, Filter, FilterKind, Item, Name, Text, Value, ValueKind};

/// What reads back as an equal tree.
impl fmt::Display for File {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before: Option<&Item> = None;
        for item in &self.items {
            let is_pipelet = matches!(item, Item::Pipelet { .. });
            if before.is_some_and(|b| is_pipelet || matches!(b, Item::Pipelet { .. })) {
                f.write_char('\n')?;
            }
            writeln!(f, "{item}")?;
            before = Some(item);
        }
        Ok(())
    }
}

impl fmt::Display for Item {
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

impl fmt::Display for Chain {
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

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.node {
            FilterKind::Always(value) => write!(f, "{value}"),
            FilterKind::Not(inner) if inner.is_joined() => write!(f, "!({inner})"),
            // `!dst port 80` would be right, but does not look it.
            FilterKind::Not(inner)
                if matches!(inner.node, FilterKind::Test { .. } | FilterKind::Flags(_)) =>
            {
                write!(f, "!({inner})")
            }
            FilterKind::Not(inner) => write!(f, "!{inner}"),
            FilterKind::All(parts) => write_joined(f, parts, " && "),
            FilterKind::Any(parts) => write_joined(f, parts, " || "),
            FilterKind::Test { side, field, compare, value } => {
                if let Some(side) = side {
                    write!(f, "{} ", side.word())?;
                }
                write!(f, "{} ", field.word())?;
                if *compare != crate::ast::Compare::Eq {
                    write!(f, "{} ", compare.sign())?;
                }
                write_value(f, value, 0)
            }
            FilterKind::Flags(flags) => {
                f.write_str("tcp flags ")?;
                for (at, (flag, set)) in flags.iter().enumerate() {
                    let (comma, not) = (if at > 0 { "," } else { "" }, if *set { "" } else { "!" });
                    write!(f, "{comma}{not}{}", flag.node.word())?;
                }
                Ok(())
            }
            FilterKind::Attribute { owner, name, test } => {
                write!(f, "{}.{}", owner.node, name.node)?;
                let Some((compare, value)) = test else { return Ok(()) };
                write!(f, " {} ", compare.sign())?;
                write_value(f, value, 0)
            }
        }
    }
}

impl Filter {
    /// Whether it has an operator that binds looser than `!`.
    fn is_joined(&self) -> bool {
        matches!(self.node, FilterKind::All(_) | FilterKind::Any(_))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_value(f, self, 0)
    }
}

/// A joined part of a joined filter gets parentheses, needed or not: nobody has to know what binds
/// tighter.
fn write_joined(f: &mut Formatter<'_>, parts: &[Filter], operator: &str) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            f.write_str(operator)?;
        }
        if part.is_joined() { write!(f, "({part})")? } else { write!(f, "{part}")? }
    }
    Ok(())
}

fn write_block(f: &mut Formatter<'_>, config: Option<&Value>) -> fmt::Result {
    let Some(config) = config else { return Ok(()) };
    f.write_char(' ')?;
    write_value(f, config, 0)
}

fn write_value(f: &mut Formatter<'_>, value: &Value, depth: usize) -> fmt::Result {
    match &value.node {
        ValueKind::Literal(literal) => write!(f, "{literal}"),
        ValueKind::Text(text) => write_text(f, &text.text),
        ValueKind::File(path) => {
            let Text { text, .. } = &path.node;
            f.write_str("file(")?;
            write_text(f, text)?;
            f.write_char(')')
        }
        ValueKind::Word(word) => f.write_str(word),
        ValueKind::Reference(name) => write!(f, "${name}"),
        ValueKind::List(values) => {
            f.write_char('[')?;
            for (at, value) in values.iter().enumerate() {
                f.write_str(if at > 0 { ", " } else { "" })?;
                write_value(f, value, depth)?;
            }
            f.write_char(']')
        }
        ValueKind::Object(entries) if entries.is_empty() => f.write_str("{}"),
        ValueKind::Object(entries) => {
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
