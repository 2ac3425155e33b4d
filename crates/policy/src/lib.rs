//! The operator's language.

pub mod ast;
mod diagnostic;
mod literal;
mod parser;
mod source;
mod token;

pub use diagnostic::{Colour, Diagnostic, Label, MAX_DIAGNOSTICS, Report, Severity};
pub use literal::{Literal, Prefix};
pub use parser::{MAX_DEPTH, RESERVED};
pub use source::{MAX_SOURCE_BYTES, SourceId, SourceTooLarge, Sources, Span};
