//! A parsed and checked policy.

use serde::Deserialize;
use values::{ConfigError, Position};

use crate::ast::{self, File};
use crate::check::check;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::external::ExternalNode;
use crate::files::Files;
use crate::filter::Filter;
use crate::parser::{parse, parse_filter};
use crate::pipelet::{Nf, Pipelet, Port};
use crate::source::{SourceId, Span};
use crate::suggest::similar;
use crate::token::is_name;
use crate::value::{ConfigFault, Value};

/// An operator's policy: NFs, and the order of their processing (E2, E3).
#[derive(Clone, Debug)]
pub struct Policy {
    /// Ports in the order of the text, then those of external nodes.
    pub ports: Vec<Port>,
    /// NF instances in the order of the text.
    pub nfs: Vec<Nf>,
    /// External nodes in the order of the text.
    pub externals: Vec<ExternalNode>,
    /// Options of the run: an object, empty if there are none.
    pub settings: Value,
    /// Pipelets in the order of the text.
    pub pipelets: Vec<Pipelet>,
    /// Warnings, and the sources that spans refer to.
    pub report: Diagnostics,
    /// Names of values, for suggestions.
    value_names: Vec<String>,
}

impl Policy {
    /// Parses and checks a policy. `name` appears in messages, normally the file name; `files`
    /// loads the arguments of `file("...")`.
    ///
    /// # Errors
    /// All errors and warnings, if there is at least one error.
    pub fn read(name: &str, text: &str, files: &mut Files<'_>) -> Result<Self, Box<Diagnostics>> {
        let (id, file, report) = read_syntax(name, text)?;
        // A name may refer to something that did not parse: report each fault once.
        if report.has_errors() {
            return Err(Box::new(report));
        }
        Self::check(id, &file, None, files, report).map(|(policy, _)| policy)
    }

    /// Parses and checks a policy as [`Policy::read`] does, and a filter that may use the policy's
    /// names; messages call it `filter_name`.
    ///
    /// # Errors
    /// As [`Policy::read`], for the policy and the filter.
    pub fn read_with_filter(
        (name, text): (&str, &str),
        (filter_name, filter): (&str, &str),
        files: &mut Files<'_>,
    ) -> Result<(Self, Filter), Box<Diagnostics>> {
        let (id, file, mut report) = read_syntax(name, text)?;
        let filter = match report.sources.add(filter_name, filter.to_owned()) {
            Ok(id) => parse_filter(id, &mut report),
            Err(error) => {
                report.refuse(filter_name, error);
                None
            }
        };
        report.sort();
        let Some(filter) = filter.filter(|_| !report.has_errors()) else { return Err(Box::new(report)) };
        let (policy, filter) = Self::check(id, &file, Some(&filter), files, report)?;
        Ok((policy, filter.unwrap_or(Filter::Always(true))))
    }

    fn check(
        id: SourceId,
        file: &File,
        filter: Option<&ast::FilterExpr>,
        files: &mut Files<'_>,
        mut report: Diagnostics,
    ) -> Result<(Self, Option<Filter>), Box<Diagnostics>> {
        let whole = Span { source: id, start: 0, end: 0 };
        let checked = check(file, filter, whole, files, &mut report);
        report.sort();
        if report.has_errors() {
            return Err(Box::new(report));
        }
        let crate::check::Checked { ports, nfs, externals, settings, pipelets, filter, value_names } =
            checked;
        Ok((Self { ports, nfs, externals, settings, pipelets, report, value_names }, filter))
    }

    /// Deserializes a configuration from one of this policy's values.
    ///
    /// # Errors
    /// The fault, at the exact key or value. If a type's own error message begins with a position,
    /// as that of a [`ConfigError`] does, the error points there.
    pub fn config<'v, T: Deserialize<'v>>(&self, value: &'v Value) -> Result<T, Box<Diagnostic>> {
        T::deserialize(value).map_err(|fault| Box::new(self.fault(fault, value.span)))
    }

    /// Returns the diagnostic for a configuration that did not deserialize. `default` is used if
    /// the fault has no position.
    pub fn fault(&self, fault: ConfigFault, default: Span) -> Diagnostic {
        self.suggest_value(self.placed(&fault.message).unwrap_or_else(|| fault.diagnostic(default)))
    }

    /// Suggests the name of a value if a word at the position of a fault is nearly one.
    fn suggest_value(&self, diagnostic: Diagnostic) -> Diagnostic {
        let span = diagnostic.labels.first().map(|label| label.span).filter(|_| diagnostic.help.is_none());
        let word = span.map(|span| self.report.sources.slice(span)).filter(|word| is_name(word));
        match word.and_then(|word| similar(word, self.value_names.iter().map(String::as_str))) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic,
        }
    }

    /// Returns the diagnostic for an error found after deserializing. `default` is used if the
    /// error names no position in this policy's sources.
    pub fn diagnose(&self, error: &ConfigError, default: Span) -> Diagnostic {
        let span = error.position.as_ref().and_then(|position| self.locate(position, error.width));
        match span {
            Some(span) => {
                self.suggest_value(Diagnostic::error(&error.message, span)).label(default, "used here")
            }
            // A position in a text of unknown origin is useless.
            None if error.position.as_ref().is_some_and(|position| position.source.is_none()) => {
                Diagnostic::error(&error.message, default)
            }
            None => Diagnostic::error(error, default),
        }
    }

    fn locate(&self, position: &Position, width: u32) -> Option<Span> {
        let source = self.report.sources.find(position.source.as_ref()?)?;
        self.report.sources.span_at(source, position.line, position.column, width)
    }

    /// Returns the diagnostic for a message `source:line:column: text` about one of the sources.
    fn placed(&self, message: &str) -> Option<Diagnostic> {
        let (place, text) = message.split_once(": ")?;
        let mut parts = place.rsplitn(3, ':');
        let column = parts.next()?.parse().ok()?;
        let line = parts.next()?.parse().ok()?;
        let source = Some(parts.next()?.into());
        Some(Diagnostic::error(text, self.locate(&Position { source, line, column }, 1)?))
    }
}

/// Parses a policy's syntax only, without resolving names or loading files.
///
/// # Errors
/// All errors and warnings, if there is at least one error.
pub fn syntax(name: &str, text: &str) -> Result<File, Box<Diagnostics>> {
    let (_, file, report) = read_syntax(name, text)?;
    if report.has_errors() { Err(Box::new(report)) } else { Ok(file) }
}

fn read_syntax(name: &str, text: &str) -> Result<(SourceId, File, Diagnostics), Box<Diagnostics>> {
    let mut report = Diagnostics::default();
    match report.sources.add(name, text.to_owned()) {
        Ok(id) => {
            let file = parse(id, &mut report);
            report.sort();
            Ok((id, file, report))
        }
        Err(error) => {
            report.refuse(name, error);
            Err(Box::new(report))
        }
    }
}
