//! The operator's language.

pub mod ast;
mod check;
mod diagnostic;
mod filter;
mod format;
mod literal;
mod parser;
mod policy;
mod source;
mod suggest;
mod token;
mod value;

pub use diagnostic::{Colour, Diagnostic, Label, MAX_DIAGNOSTICS, Report, Severity};
pub use filter::{AddressSet, Fields, Filter, NumberField, NumberSet, Scalar};
pub use literal::{Literal, Prefix};
pub use parser::{MAX_DEPTH, RESERVED};
pub use policy::{Direction, Edge, Files, MAX_PORT, Nf, Node, Pipelet, Policy, Port, syntax};
pub use source::{MAX_SOURCE_BYTES, SourceId, SourceTooLarge, Sources, Span};
pub use token::MAX_NAME_BYTES;
pub use value::{Entry, Value, ValueKind};
