//! Resolution of values: names are replaced by their values, files by their text.

use std::collections::BTreeMap;
use std::sync::Arc;

use values::{Located, Origin};

use super::{Checker, NamedKind};
use crate::ast::{self, Spanned, TextExpr};
use crate::diagnostic::Diagnostic;
use crate::files::{FileAccess, FileText};
use crate::literal::ConfigLiteral;
use crate::source::Span;
use crate::value::{ConfigEntry, Value, ValueKind};

/// Limit on the bytes of all resolved values and files of a policy, so that values nested by
/// reference cannot exhaust memory.
pub const RESOLVED_BYTES_MAX: usize = 64 << 20;

/// A file's text and access rights; `None` if it could not be loaded, which was reported.
pub(super) type LoadedFile = Option<(Arc<Located>, Option<Arc<FileAccess>>)>;

impl Checker<'_, '_> {
    /// Resolves a value. Faults are reported, and an empty object is returned.
    pub(super) fn value(&mut self, value: &ast::ValueExpr) -> Value {
        let span = value.span;
        if !self.spend(std::mem::size_of::<Value>(), span) {
            return Value::empty(span);
        }
        let kind = match &value.node {
            ast::ValueExprKind::Literal(literal) => ValueKind::Literal(literal.clone()),
            ast::ValueExprKind::Text(text) => ValueKind::Text(Arc::new(self.located(text, span))),
            ast::ValueExprKind::File(path) => return self.file(path, span),
            ast::ValueExprKind::Word(name) => {
                return self.named(name, span).unwrap_or(Value { kind: ValueKind::Word(name.clone()), span });
            }
            ast::ValueExprKind::Reference(name) => {
                return self.named(name, span).unwrap_or_else(|| {
                    if !self.names.contains_key(name) {
                        self.unknown("value", name, span, |what| what == NamedKind::Value, &[]);
                    }
                    Value::empty(span)
                });
            }
            ast::ValueExprKind::List(values) => {
                ValueKind::List(values.iter().map(|v| self.value(v)).collect())
            }
            ast::ValueExprKind::Object(entries) => ValueKind::Object(self.entries(entries)),
        };
        Value { kind, span }
    }

    fn entries(&mut self, entries: &[(ast::Name, ast::ValueExpr)]) -> Vec<ConfigEntry> {
        let mut first: BTreeMap<&str, Span> = BTreeMap::new();
        let mut result = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if let Some(first) = first.get(key.node.as_str()) {
                let error = Diagnostic::error(format!("the key `{}` occurs twice", key.node), key.span);
                self.report.push(error.label(*first, "first here"));
                continue;
            }
            first.insert(&key.node, key.span);
            result.push(ConfigEntry { key: key.node.clone(), key_span: key.span, value: self.value(value) });
        }
        result
    }

    /// Returns the value of a `let`, if `name` is one.
    pub(super) fn named(&mut self, name: &str, span: Span) -> Option<Value> {
        let named = *self.names.get(name).filter(|n| n.what == NamedKind::Value)?;
        self.used.insert(name.to_owned());
        let Some(bytes) = self.lets.get(name).map(|value| size(value, self.budget)) else {
            let error = Diagnostic::error(format!("`{name}` is used before it is defined"), span);
            let error = error.label(named.span, "given here");
            self.report.push(error.help("a `let` can only refer to earlier ones"));
            return Some(Value::empty(span));
        };
        let affordable = self.spend(bytes, span);
        Some(self.lets.get(name).filter(|_| affordable).map_or(Value::empty(span), Value::clone))
    }

    fn file(&mut self, path: &Spanned<TextExpr>, span: Span) -> Value {
        if !self.texts.contains_key(&path.node.text) {
            let text = self.load(path);
            self.texts.insert(path.node.text.clone(), text);
        }
        match self.texts.get(&path.node.text).cloned().flatten() {
            Some((text, access)) => Value { kind: ValueKind::File(text, access), span },
            None => Value::empty(span),
        }
    }

    fn load(&mut self, path: &Spanned<TextExpr>) -> LoadedFile {
        let name = path.node.text.as_str();
        let loaded = (self.files)(name);
        if loaded.as_ref().is_ok_and(|file| !self.spend(file.text.len(), path.span)) {
            return None;
        }
        let loaded = loaded.and_then(|FileText { text, access }| {
            let located = located(&text, name);
            self.report.sources.add(name, text).map_err(|e| e.to_string())?;
            Ok((Arc::new(located), access.map(Arc::new)))
        });
        match loaded {
            Ok(file) => Some(file),
            Err(why) => {
                let error = Diagnostic::error(format!("cannot load the file `{name}`"), path.span);
                self.report.push(error.remark(why));
                None
            }
        }
    }

    fn located(&self, text: &TextExpr, span: Span) -> Located {
        let inner = Span { start: span.start + text.quotes, ..span };
        let (line, column) = self.report.sources.line_column(inner);
        let source = self.report.sources.name(span.source).to_owned();
        let origin =
            Origin { source, line: line as u32, column: column as u32, escapes: text.escapes.clone() };
        Located::with_origin(text.text.clone(), origin)
    }

    /// Takes bytes from the budget. Returns false if they do not fit, with an error the first time.
    fn spend(&mut self, bytes: usize, span: Span) -> bool {
        if bytes <= self.budget {
            self.budget -= bytes;
            return true;
        }
        if self.budget > 0 {
            let message = format!("the values of the policy exceed {RESOLVED_BYTES_MAX} bytes");
            self.report.push(Diagnostic::error(message, span));
            self.budget = 0;
        }
        false
    }
}

fn located(text: &str, name: &str) -> Located {
    Located::with_origin(text, Origin { source: name.to_owned(), line: 1, column: 1, escapes: Vec::new() })
}

/// Returns the bytes of a copy of the value, or a number above `most`. Texts are shared.
fn size(value: &Value, most: usize) -> usize {
    let own = std::mem::size_of::<Value>()
        + match &value.kind {
            ValueKind::Literal(ConfigLiteral::Amount(_, text)) | ValueKind::Word(text) => text.len(),
            _ => 0,
        };
    let inner: &mut dyn Iterator<Item = (&Value, usize)> = match &value.kind {
        ValueKind::List(values) => &mut values.iter().map(|v| (v, 0)),
        ValueKind::Object(entries) => &mut entries.iter().map(|e| (&e.value, e.key.len() + 64)),
        ValueKind::Literal(_) | ValueKind::Text(_) | ValueKind::File(..) | ValueKind::Word(_) => {
            &mut std::iter::empty()
        }
    };
    let mut total = own;
    for (value, extra) in inner {
        if total > most {
            break;
        }
        total += extra + size(value, most - total);
    }
    total
}
