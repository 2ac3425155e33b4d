//! The operator's policy language: NFs, and the order of their processing (E2, E3).
//!
//! `docs/policy.md` is the reference.
//!
//! Text becomes tokens, tokens a syntax tree ([`ast`]), and the tree a checked [`Policy`].
//! Everything keeps its source position, so that errors are reported there, even in a rule file
//! that an NF parses. The crate reads no files itself: the caller loads the files that a policy
//! names.
//!
//! ```
//! use policy::{Colour, Policy};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Nat {
//!     external: Vec<String>,
//!     idle: values::Nanos,
//! }
//!
//! let text = "
//! Port<0> inside; Port<1> outside;
//! NAT n { external: [203.0.113.1-203.0.113.4], idle: 2h4m };
//! pipelet web { inside [dst port 80] <-> n <-> outside; }
//! ";
//! let mut no_files = |path: &str| Err(format!("no file `{path}`"));
//! let policy = Policy::read("web.rvl", text, &mut no_files).map_err(|report| report.render(Colour::Off))?;
//! let nat: Nat = policy.config(&policy.nfs[0].config).map_err(|e| e.line(&policy.report.sources))?;
//! assert_eq!(nat.external, ["203.0.113.1-203.0.113.4"]);
//! assert_eq!(nat.idle.0, 7_440_000_000_000);
//! # Ok::<(), String>(())
//! ```

mod analysis;
pub mod ast;
mod check;
mod decision;
mod diagnostic;
mod external;
mod files;
mod filter;
mod format;
mod graph;
mod literal;
mod parser;
mod picture;
mod pipelet;
mod policy;
mod reformat;
mod segments;
mod source;
mod suggest;
mod text;
mod token;
mod travel;
mod value;

pub use analysis::{Analysis, FilterField, NfFacts, PATH_STEPS_MAX, PortFacts};
pub use ast::FilterSide;
pub use check::{NODE_ATTRIBUTES_MAX, NODES_MAX, RESOLVED_BYTES_MAX};
pub use decision::FilterTable;
pub use diagnostic::{Colour, DIAGNOSTICS_MAX, Diagnostic, DiagnosticSeverity, Diagnostics, Label};
pub use external::{ExternalKind, ExternalNode, TagCarrier};
pub use files::{FileAccess, FileText, Files};
pub use filter::{
    AttributeValue, Fields, Filter, FilterAddressSet, FilterInput, FilterNumberField, NumberSet, Scalar,
};
pub use graph::{PacketPath, PathEnd, PolicyGraph};
pub use literal::{ConfigLiteral, Prefix, PrefixError};
pub use parser::{DEPTH_MAX, RESERVED};
pub use pipelet::{Edge, EdgeDirection, Nf, Node, NodeAttribute, PORT_MAX, Pipelet, Port};
pub use policy::{Policy, syntax};
pub use reformat::reformat;
pub use segments::SEGMENTS_MAX;
pub use source::{SOURCE_BYTES_MAX, SourceId, SourceMap, SourceTooLarge, Span};
pub use text::{UNREADABLE, decode_text};
pub use token::NAME_BYTES_MAX;
pub use travel::TravellingAttribute;
pub use value::{ConfigEntry, ConfigFault, Value, ValueKind};
