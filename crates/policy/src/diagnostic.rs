//! Diagnostics: errors and warnings about a policy, with positions and remedies.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};

use crate::source::{SourceMap, SourceTooLarge, Span};

/// Limit on the diagnostics kept. Further ones are only counted.
pub const DIAGNOSTICS_MAX: usize = 100;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosticSeverity {
    /// The policy cannot be used.
    Error,
    /// The policy can be used, but probably does not mean what its author intended.
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: DiagnosticSeverity,
    /// One line.
    pub message: String,
    /// Positions: first that of the fault, then others that explain it.
    pub labels: Vec<Label>,
    /// The remedy, if known.
    pub help: Option<String>,
}

/// A position with a remark, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The position.
    pub span: Span,
    /// The remark.
    pub text: String,
}

/// Use of terminal colours in rendered diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// ANSI escape sequences.
    On,
    /// Plain text.
    Off,
}

impl Diagnostic {
    /// Returns an error at a position.
    pub fn error(message: impl fmt::Display, span: Span) -> Self {
        Self::new(DiagnosticSeverity::Error, message, span)
    }

    /// Returns a warning at a position.
    pub fn warning(message: impl fmt::Display, span: Span) -> Self {
        Self::new(DiagnosticSeverity::Warning, message, span)
    }

    /// Adds a remark at the position of the fault.
    #[must_use]
    pub fn remark(mut self, text: impl fmt::Display) -> Self {
        if let Some(first) = self.labels.first_mut() {
            first.text = text.to_string();
        }
        self
    }

    /// Adds another position that explains the fault.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl fmt::Display) -> Self {
        self.labels.push(Label { span, text: text.to_string() });
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn help(mut self, text: impl fmt::Display) -> Self {
        self.help = Some(text.to_string());
        self
    }

    /// Returns the position of the fault, if it has one.
    pub fn position(&self) -> Option<Span> {
        self.labels.first().map(|label| label.span)
    }

    /// Renders the diagnostic with its source lines, as compilers do, ending in a newline.
    pub fn render(&self, sources: &SourceMap, colour: Colour) -> String {
        let level = match self.severity {
            DiagnosticSeverity::Error => Level::ERROR,
            DiagnosticSeverity::Warning => Level::WARNING,
        };
        let message = self.shown_message(sources);
        let main = level.primary_title(message).elements(pieces(sources, &self.labels));
        let help = self.help.as_ref().map(|help| Group::with_title(Level::HELP.secondary_title(help)));
        let groups: Vec<Group<'_>> = std::iter::once(main).chain(help).collect();
        let renderer = match colour {
            Colour::On => Renderer::styled(),
            Colour::Off => Renderer::plain(),
        };
        renderer.render(&groups) + "\n"
    }

    /// Renders the diagnostic in one line: `edge.rvl:12:5: error: unknown name `wam_net`; did you
    /// mean `wan_net`?`.
    pub fn line(&self, sources: &SourceMap) -> String {
        let place = self.labels.first().map(|label| {
            let (line, column) = sources.line_column(label.span);
            format!("{}:{line}:{column}: ", sources.name(label.span.source))
        });
        let help = self.help.as_ref().map(|help| format!("; {help}"));
        format!(
            "{}{}: {}{}",
            place.unwrap_or_default(),
            self.severity,
            self.shown_message(sources),
            help.unwrap_or_default().replace('\n', " ")
        )
    }

    /// Returns the message with any secret masked.
    fn shown_message(&self, sources: &SourceMap) -> String {
        let mut message = self.message.clone();
        for label in &self.labels {
            let (span, written) = (label.span, sources.slice(label.span));
            if !written.is_empty() && message.contains(written) {
                message = message.replace(written, &sources.shown(span.source, span.range()));
            }
        }
        message
    }

    fn new(severity: DiagnosticSeverity, message: impl fmt::Display, span: Span) -> Self {
        let labels = vec![Label { span, text: String::new() }];
        Self { severity, message: message.to_string(), labels, help: None }
    }
}

impl fmt::Display for DiagnosticSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// All diagnostics of one policy, with the sources to render them.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// The texts that the diagnostics refer to.
    pub sources: SourceMap,
    /// At most [`DIAGNOSTICS_MAX`], in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of diagnostics not kept.
    pub omitted: usize,
}

impl Diagnostics {
    /// Checks if there is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == DiagnosticSeverity::Error)
    }

    /// Adds diagnostics, and sorts all by position. Of more than [`DIAGNOSTICS_MAX`], warnings are
    /// omitted before errors, and later positions before earlier ones.
    pub fn extend(&mut self, more: impl IntoIterator<Item = Diagnostic>) {
        self.diagnostics.extend(more);
        if self.diagnostics.len() > DIAGNOSTICS_MAX {
            self.sort();
            self.diagnostics.sort_by_key(|d| d.severity == DiagnosticSeverity::Warning);
            self.omitted += self.diagnostics.len() - DIAGNOSTICS_MAX;
            self.diagnostics.truncate(DIAGNOSTICS_MAX);
        }
        self.sort();
    }

    /// Renders all diagnostics as compilers do, separated by empty lines.
    pub fn render(&self, colour: Colour) -> String {
        let rendered: Vec<String> =
            self.diagnostics.iter().map(|d| d.render(&self.sources, colour)).collect();
        rendered.join("\n") + &self.rest()
    }

    /// Adds a diagnostic. When full, errors replace warnings.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            return self.diagnostics.push(diagnostic);
        }
        self.omitted += 1;
        if diagnostic.severity == DiagnosticSeverity::Error && !self.has_errors() {
            self.diagnostics.pop();
            self.diagnostics.push(diagnostic);
        }
    }

    /// Sorts the diagnostics by position.
    pub(crate) fn sort(&mut self) {
        self.diagnostics.sort_by_key(Diagnostic::position);
    }

    /// Adds an error about a text that is too large to be a source.
    pub(crate) fn refuse(&mut self, name: &str, error: SourceTooLarge) {
        let message = format!("{name}: {error}");
        self.push(Diagnostic {
            severity: DiagnosticSeverity::Error,
            message,
            labels: Vec::new(),
            help: None,
        });
    }

    fn rest(&self) -> String {
        match self.omitted {
            0 => String::new(),
            n => format!("... and {n} more\n"),
        }
    }
}

/// One line per diagnostic.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{}", diagnostic.line(&self.sources))?;
        }
        f.write_str(&self.rest())
    }
}

impl std::error::Error for Diagnostics {}

/// Limit on the characters of a line shown on each side of a position.
const SHOWN_CHARS: usize = 120;
/// Labels of one source farther apart than this are shown as separate snippets.
const SHOWN_LINES: usize = 30;

/// Returns the snippets to show. Each is a few whole lines, or the surroundings of a position in a
/// very long line, so the output does not grow with the source.
fn pieces<'a>(sources: &'a SourceMap, labels: &'a [Label]) -> Vec<Element<'a>> {
    if let Some(window) = common_window(sources, labels) {
        let name = sources.name(labels[0].span.source);
        return vec![snippet(sources, labels, window, true).path(name).into()];
    }
    let mut elements = Vec::new();
    for (at, label) in labels.iter().enumerate() {
        let (line, column) = sources.line_column(label.span);
        let Some(range) = sources.line_range(label.span.source, line) else { continue };
        let window = clip(sources.text(label.span.source), range.clone(), label.span.start as usize);
        let name = sources.name(label.span.source);
        let snippet = snippet(sources, std::slice::from_ref(label), window.clone(), at == 0);
        if window == range {
            elements.push(snippet.path(name).into());
        } else {
            // The position is given explicitly, as the snippet begins or ends within the line.
            elements.push(Origin::path(name).line(line).char_column(column).into());
            elements.push(snippet.into());
        }
    }
    elements
}

/// Returns the lines that hold all labels, if they are of one source, close together and not too
/// long.
fn common_window(sources: &SourceMap, labels: &[Label]) -> Option<Range<usize>> {
    let id = labels.first()?.span.source;
    let lines = || labels.iter().map(|label| sources.line_column(label.span).0);
    let (first, last) = (lines().min()?, lines().max()?);
    if last - first > SHOWN_LINES || labels.iter().any(|label| label.span.source != id) {
        return None;
    }
    let short = |line| sources.line_range(id, line).is_some_and(|range| range.len() <= 2 * SHOWN_CHARS);
    let window = sources.line_range(id, first)?.start..sources.line_range(id, last)?.end;
    (first..=last).all(short).then_some(window)
}

/// Returns a part of a source with its labels; `first` if the first label is the fault.
fn snippet<'a>(
    sources: &'a SourceMap,
    labels: &'a [Label],
    window: Range<usize>,
    first: bool,
) -> Snippet<'a, Annotation<'a>> {
    let id = labels[0].span.source;
    let line_of = |label: &Label| sources.line_column(label.span).0;
    let annotations = labels.iter().enumerate().map(|(at, label)| {
        let kind = if first && at == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
        // A label marks one line at most: the first one of its span.
        let line_end = sources.line_range(id, line_of(label)).map_or(window.end, |r| r.end.min(window.end));
        let start = (label.span.start as usize).clamp(window.start, line_end);
        let end = (label.span.end as usize).clamp(start, line_end);
        let annotation = kind.span(start - window.start..end - window.start);
        if label.text.is_empty() { annotation } else { annotation.label(&label.text) }
    });
    let line_start = labels.iter().map(line_of).min().unwrap_or(1);
    Snippet::source(sources.shown(id, window.clone())).line_start(line_start).annotations(annotations)
}

/// Returns the part of `line` within [`SHOWN_CHARS`] of `at`.
fn clip(text: &str, line: Range<usize>, at: usize) -> Range<usize> {
    let at = at.clamp(line.start, line.end);
    let start = text[line.start..at]
        .char_indices()
        .rev()
        .nth(SHOWN_CHARS - 1)
        .map_or(line.start, |(i, _)| line.start + i);
    let end = text[at..line.end].char_indices().nth(SHOWN_CHARS).map_or(line.end, |(i, _)| at + i);
    start..end
}
