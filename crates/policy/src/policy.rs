//! A policy that has been read and checked.

use std::ops::RangeInclusive;

use serde::Deserialize;
use values::{ConfigError, Position};

use crate::ast::{self, File};
use crate::check::check;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::files::Files;
use crate::filter::Filter;
use crate::parser::{parse, parse_filter};
use crate::source::{SourceId, Span};
use crate::value::{ConfigFault, Value};

/// The largest number of a port.
pub const PORT_MAX: u16 = u16::MAX;

/// What an operator wants: which network functions there are, and which packets pass them in which
/// order. Requirements E2, E3.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Ports in the order of the text.
    pub ports: Vec<Port>,
    /// Instances of network functions in the order of the text.
    pub nfs: Vec<Nf>,
    /// Options of the run: an object, empty if the policy gives none.
    pub settings: Value,
    /// Pipelets in the order of the text.
    pub pipelets: Vec<Pipelet>,
    /// Warnings, and the sources that spans are about.
    pub report: Diagnostics,
}

/// One or several ports with one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The port numbers; no two ports of a policy share one.
    pub numbers: RangeInclusive<u16>,
    /// An object, empty if the policy gives none.
    pub config: Value,
    /// Where the name is given.
    pub span: Span,
    pub(crate) numbers_span: Span,
}

/// An instance of a network function.
#[derive(Clone, Debug, PartialEq)]
pub struct Nf {
    /// The type; which types there are is not the language's to know.
    pub type_name: String,
    /// The name of the instance.
    pub name: String,
    /// An object, empty if the policy gives none.
    pub config: Value,
    /// Where the name is given.
    pub span: Span,
    /// Where the type is written.
    pub type_span: Span,
}

/// The way of one class of traffic: an acyclic graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipelet {
    /// The name, if it has one.
    pub name: Option<String>,
    /// Edges in the order of the text; those of a chain of `<->` first forth, then back.
    pub edges: Vec<Edge>,
    /// Where the name is given, or else the word `pipelet`.
    pub span: Span,
}

/// Packets of `from` that pass the filter go to `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The source.
    pub from: Node,
    /// The target.
    pub to: Node,
    /// Which packets; [`Filter::Always`] if the policy gives no filter.
    pub filter: Filter,
    /// Whether the edge is on the way forth or on the way back.
    pub direction: EdgeDirection,
    /// The arrow.
    pub span: Span,
}

/// What an edge joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Index of [`Policy::ports`].
    Port(usize),
    /// Index of [`Policy::nfs`].
    Nf(usize),
    /// Where packets end.
    Drop,
}

/// `a <-> b` is an edge forward from a to b and one in reverse from b to a. A packet that entered
/// on a forward edge stays on forward edges, and likewise in reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeDirection {
    /// As written.
    Forward,
    /// The way back of `<->`, its filter mirrored.
    Reverse,
}

impl Policy {
    /// Reads and checks a policy. `name` is what messages call it, normally its file name; `files`
    /// loads what `file("...")` names.
    ///
    /// # Errors
    /// The report of everything that is wrong, if anything is. Warnings alone are no error.
    pub fn read(name: &str, text: &str, files: &mut Files<'_>) -> Result<Self, Box<Diagnostics>> {
        let (id, file, report) = read_syntax(name, text)?;
        // What could not be read may be what a name refers to: no second error for the same fault.
        if report.has_errors() {
            return Err(Box::new(report));
        }
        Self::check(id, &file, None, files, report).map(|(policy, _)| policy)
    }

    /// Reads and checks a policy as [`Policy::read`] does, and a filter in which the policy's names
    /// may be used; messages call it `filter_name`.
    ///
    /// # Errors
    /// As for [`Policy::read`], of the policy and of the filter.
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
        let crate::check::Checked { ports, nfs, settings, pipelets, filter } = checked;
        Ok((Self { ports, nfs, settings, pipelets, report }, filter))
    }

    /// Reads a configuration from one of the values of this policy.
    ///
    /// # Errors
    /// What is wrong, at the exact key or value. An error that a type makes itself points into a
    /// text when its message begins with a place, as that of a [`ConfigError`] does.
    pub fn config<'v, T: Deserialize<'v>>(&self, value: &'v Value) -> Result<T, Box<Diagnostic>> {
        T::deserialize(value).map_err(|fault| Box::new(self.fault(fault, value.span)))
    }

    /// The diagnostic for a configuration that could not be read; `default` is the place if the
    /// fault has none.
    pub fn fault(&self, fault: ConfigFault, default: Span) -> Diagnostic {
        self.placed(&fault.message).unwrap_or_else(|| fault.diagnostic(default))
    }

    /// The diagnostic for an error that was found in a configuration after it was read; `default`
    /// is the place if the error does not name one in the sources of this policy.
    pub fn diagnose(&self, error: &ConfigError, default: Span) -> Diagnostic {
        let span = error.position.as_ref().and_then(|position| self.locate(position, error.width));
        match span {
            Some(span) => Diagnostic::error(&error.message, span).label(default, "used here"),
            // A place in a text of unknown origin is a place in nothing.
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

    /// The diagnostic for a message `source:line:column: text` about one of the sources.
    fn placed(&self, message: &str) -> Option<Diagnostic> {
        let (place, text) = message.split_once(": ")?;
        let mut parts = place.rsplitn(3, ':');
        let column = parts.next()?.parse().ok()?;
        let line = parts.next()?.parse().ok()?;
        let source = Some(parts.next()?.into());
        Some(Diagnostic::error(text, self.locate(&Position { source, line, column }, 1)?))
    }
}

/// Reads a policy's syntax only: names are not resolved, files not loaded.
///
/// # Errors
/// The report, if anything is wrong.
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
