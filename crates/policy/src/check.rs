//! From the syntax tree to a [`Policy`]: resolves names, checks numbers, rejects cycles.

mod external;
mod filter;
mod pipelet;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use external::NODE_ATTRIBUTES_MAX;
pub use value::RESOLVED_BYTES_MAX;

use crate::ast::{self, File, Name, PolicyItem};
use crate::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics};
use crate::external::{ExternalKind, ExternalNode, TagCarrier};
use crate::files::Files;
use crate::filter::Filter;
use crate::pipelet::{Nf, PORT_MAX, Pipelet, Port};
use crate::source::Span;
use crate::suggest::similar;
use crate::value::Value;

/// Limit on the ports and NFs of a policy.
pub const NODES_MAX: usize = 4096;

/// The parts of a policy that passed the checks.
pub(crate) struct Checked {
    pub ports: Vec<Port>,
    pub nfs: Vec<Nf>,
    pub externals: Vec<ExternalNode>,
    pub settings: Value,
    pub pipelets: Vec<Pipelet>,
    /// The filter passed in addition to the policy.
    pub filter: Option<Filter>,
    /// Names of values.
    pub value_names: Vec<String>,
}

/// Checks a tree, and a filter that may use its names. Faults are added to the report.
pub(crate) fn check(
    file: &File,
    filter: Option<&ast::FilterExpr>,
    whole: Span,
    files: &mut Files<'_>,
    report: &mut Diagnostics,
) -> Checked {
    let mut checker = Checker {
        report,
        files,
        texts: BTreeMap::new(),
        budget: RESOLVED_BYTES_MAX,
        lets: BTreeMap::new(),
        names: BTreeMap::new(),
        used: BTreeSet::new(),
        ports: Vec::new(),
        nfs: Vec::new(),
        externals: Vec::new(),
        types: BTreeMap::new(),
    };
    checker.declare(file);
    checker.make_external_ports();
    checker.resolve_lets(file);
    let settings = checker.configure(file).unwrap_or_else(|| Value::empty(whole));
    checker.read_tags();
    checker.check_port_numbers();
    let pipelets = checker.pipelets(file);
    let filter = filter.map(|filter| checker.filter(filter));
    // An error may hide uses and duplicates, so these warnings come only without errors.
    if !checker.report.has_errors() {
        checker.warn_unused(file);
        pipelets.iter().for_each(|pipelet| checker.warn_of_pipelet(pipelet));
    }
    let value_names = checker.lets.into_keys().collect();
    let Checker { ports, nfs, externals, .. } = checker;
    Checked { ports, nfs, externals, settings, pipelets, filter, value_names }
}

struct Checker<'a, 'f> {
    report: &'a mut Diagnostics,
    files: &'a mut Files<'f>,
    /// Loaded files, by path.
    texts: BTreeMap<String, value::LoadedFile>,
    /// Bytes left for resolved values.
    budget: usize,
    /// Values of the `let`s so far.
    lets: BTreeMap<String, Value>,
    /// All names outside pipelets.
    names: BTreeMap<String, Named>,
    /// Names that are referred to.
    used: BTreeSet<String>,
    ports: Vec<Port>,
    nfs: Vec<Nf>,
    externals: Vec<ExternalNode>,
    /// The instances of each type.
    types: BTreeMap<String, Arc<[usize]>>,
}

/// A name's meaning and position.
#[derive(Clone, Copy)]
struct Named {
    what: NamedKind,
    span: Span,
}

#[derive(Clone, Copy, PartialEq)]
enum NamedKind {
    Value,
    /// Index of a port.
    Port(usize),
    /// Index of an NF.
    Nf(usize),
    /// Index of an external node.
    External(usize),
}

impl Checker<'_, '_> {
    /// Declares all names first, so that their order in the text does not matter.
    fn declare(&mut self, file: &File) {
        for item in &file.items {
            match item {
                PolicyItem::Let { name, .. } => {
                    self.enter(name, NamedKind::Value);
                }
                PolicyItem::Port { first, last, name, .. } => {
                    let end = last.as_ref().unwrap_or(first);
                    let numbers = first.span.to(end.span);
                    if first.node > end.node {
                        self.report.push(Diagnostic::error(
                            "the range is reversed: its end is below its start",
                            numbers,
                        ));
                    }
                    if first.node.max(end.node) > PORT_MAX.into() {
                        let message = format!("the port number exceeds {PORT_MAX}");
                        self.report.push(Diagnostic::error(message, numbers));
                    }
                    if self.enter(name, NamedKind::Port(self.ports.len())) {
                        self.ports.push(Port {
                            name: name.node.clone(),
                            // Out of range: already reported, and the policy will not be used.
                            numbers: u16::try_from(first.node).unwrap_or(PORT_MAX)
                                ..=u16::try_from(end.node).unwrap_or(PORT_MAX),
                            config: Value::empty(name.span),
                            span: name.span,
                            numbers_span: numbers,
                        });
                    }
                }
                PolicyItem::Nf { type_name, name, config }
                    if let Some(kind) = ExternalKind::of_type(&type_name.node)
                        && !external::delivers_streams(kind, config.as_ref()) =>
                {
                    if self.enter(name, NamedKind::External(self.externals.len())) {
                        let (name, config, span) = (name.node.clone(), Value::empty(name.span), name.span);
                        self.externals.push(ExternalNode {
                            name,
                            kind,
                            config,
                            span,
                            inside: 0,
                            outside: 0,
                            tags: TagCarrier::None,
                            sets: Vec::new(),
                        });
                    }
                }
                PolicyItem::Nf { type_name, name, .. } => {
                    if self.enter(name, NamedKind::Nf(self.nfs.len())) {
                        self.nfs.push(Nf {
                            type_name: type_name.node.clone(),
                            name: name.node.clone(),
                            config: Value::empty(name.span),
                            span: name.span,
                            type_span: type_name.span,
                            sets: Vec::new(),
                        });
                    }
                }
                PolicyItem::Settings { .. } | PolicyItem::Pipelet { .. } => {}
            }
        }
        let mut types: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, nf) in self.nfs.iter().enumerate() {
            types.entry(nf.type_name.clone()).or_default().push(at);
        }
        self.types = types.into_iter().map(|(name, nfs)| (name, nfs.into())).collect();
    }

    /// Adds the two ports of each external node, numbered after those of the text.
    fn make_external_ports(&mut self) {
        let mut next = self.ports.iter().map(|port| u32::from(*port.numbers.end()) + 1).max().unwrap_or(0);
        for node in &mut self.externals {
            if next + 1 > u32::from(PORT_MAX) {
                let message = format!("no port numbers are left for `{}`: it takes two", node.name);
                let help = format!("the highest is {PORT_MAX}; give the policy's ports lower ones");
                self.report.push(Diagnostic::error(message, node.span).help(help));
                return;
            }
            (node.inside, node.outside) = (self.ports.len(), self.ports.len() + 1);
            for side in ["inside", "outside"] {
                self.ports.push(Port {
                    name: format!("{}.{side}", node.name),
                    // Checked above.
                    numbers: next as u16..=next as u16,
                    config: Value::empty(node.span),
                    span: node.span,
                    numbers_span: node.span,
                });
                next += 1;
            }
        }
    }

    /// Returns the number of ports and NFs so far; an external node counts as two ports.
    fn nodes(&self) -> usize {
        self.ports.len() + self.nfs.len() + 2 * self.externals.len()
    }

    /// Declares a name. Reports an error and returns false if it is taken or there are too many.
    fn enter(&mut self, name: &Name, what: NamedKind) -> bool {
        if let Some(first) = self.names.get(&name.node) {
            let error = Diagnostic::error(format!("the name `{}` is defined twice", name.node), name.span);
            self.report.push(error.remark("defined again here").label(first.span, "first defined here"));
            return false;
        }
        if what != NamedKind::Value && self.nodes() >= NODES_MAX {
            let message = format!("a policy may have at most {NODES_MAX} ports and NFs");
            self.report.push(Diagnostic::error(message, name.span));
            return false;
        }
        self.names.insert(name.node.clone(), Named { what, span: name.span });
        true
    }

    /// Resolves the `let`s in order: each may refer to earlier ones.
    fn resolve_lets(&mut self, file: &File) {
        for item in &file.items {
            if let PolicyItem::Let { name, value } = item
                && self.names.get(&name.node).is_some_and(|n| n.span == name.span)
            {
                let value = self.value(value);
                self.lets.insert(name.node.clone(), value);
            }
        }
    }

    /// Resolves configuration blocks and returns the settings, if any.
    fn configure(&mut self, file: &File) -> Option<Value> {
        let mut settings: Option<Value> = None;
        for item in &file.items {
            match item {
                PolicyItem::Port { name, config: Some(config), .. }
                | PolicyItem::Nf { name, config: Some(config), .. } => {
                    let value = Value { span: name.span, ..self.value(config) };
                    match self.names.get(&name.node).filter(|n| n.span == name.span).map(|n| n.what) {
                        Some(NamedKind::Port(at)) => self.ports[at].config = value,
                        Some(NamedKind::Nf(at)) => self.nfs[at].config = value,
                        Some(NamedKind::External(at)) => self.externals[at].config = value,
                        _ => {}
                    }
                }
                PolicyItem::Settings { keyword, config } => {
                    if let Some(first) = &settings {
                        let error = Diagnostic::error("there are two `settings` blocks", keyword.span);
                        self.report.push(error.label(first.span, "the first one"));
                        continue;
                    }
                    settings = Some(Value { span: keyword.span, ..self.value(config) });
                }
                _ => {}
            }
        }
        settings
    }

    fn check_port_numbers(&mut self) {
        let mut order: Vec<&Port> = self.ports.iter().collect();
        order.sort_by_key(|p| *p.numbers.start());
        let mut reaching: Option<&Port> = None;
        for port in order {
            if let Some(before) = reaching.filter(|b| b.numbers.end() >= port.numbers.start()) {
                let message = format!("port {} already belongs to `{}`", port.numbers.start(), before.name);
                let error = Diagnostic::error(message, port.numbers_span);
                self.report.push(error.label(before.numbers_span, format!("the ports of `{}`", before.name)));
            }
            reaching = Some(reaching.filter(|b| b.numbers.end() >= port.numbers.end()).unwrap_or(port));
        }
    }

    fn warn_unused(&mut self, file: &File) {
        for item in &file.items {
            let (name, what) = match item {
                PolicyItem::Let { name, .. } => (name, "value"),
                PolicyItem::Port { name, .. } => (name, "port"),
                PolicyItem::Nf { name, .. } => (name, "NF"),
                PolicyItem::Settings { .. } | PolicyItem::Pipelet { .. } => continue,
            };
            if !self.used.contains(&name.node) {
                self.report
                    .push(Diagnostic::warning(format!("the {what} `{}` is not used", name.node), name.span));
            }
        }
    }

    /// Reports an undefined name and suggests the nearest of the picked names and `more`.
    fn unknown(
        &mut self,
        what: &str,
        name: &str,
        span: Span,
        pick: impl Fn(NamedKind) -> bool,
        more: &[&str],
    ) {
        let mut error = Diagnostic::error(format!("unknown {what} `{name}`"), span);
        // The search takes time, and a full report would discard the result.
        if self.report.diagnostics.len() < DIAGNOSTICS_MAX {
            let picked =
                self.names.iter().filter(|(_, named)| pick(named.what)).map(|(name, _)| name.as_str());
            if let Some(near) = similar(name, picked.chain(more.iter().copied())) {
                error = error.help(format!("did you mean `{near}`?"));
            }
        }
        self.report.push(error);
    }

    fn is_drop(name: &ast::Name) -> bool {
        name.node == "Drop"
    }
}
