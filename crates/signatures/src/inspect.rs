//! Inspection of one buffer: evaluates the matches and transforms of a rule.
//!
//! It neither extracts buffers nor knows packets: the caller passes the bytes of a buffer.
//!
//! ```
//! use signatures::inspect::{Inspection, InspectionScratch};
//! use signatures::{Classifications, RuleVariables, Ruleset};
//!
//! let rule = r#"alert tcp any any -> any any (content:"len"; byte_extract:1,0,n,relative; content:"!"; distance:n; sid:1;)"#;
//! let report = Ruleset::read("a.rules", rule, &RuleVariables::default(), &Classifications::default());
//! let inspection = Inspection::new(&report.ruleset.rules()[0].rule)?;
//!
//! let mut scratch = InspectionScratch::new();
//! scratch.begin();
//! assert!(inspection.buffer(0).holds(b"len\x03abc!", &mut scratch));
//! assert!(!inspection.buffer(0).holds(b"len\x04abc!", &mut scratch));
//! # Ok::<(), signatures::inspect::UnsupportedKeyword>(())
//! ```

mod backtrack;
mod base64;
mod budget;
mod expression;
mod inspection;
mod literal;
mod number;
mod order;
mod scratch;
mod search;
mod step;
mod transform;
mod unsupported;
mod view;

pub use base64::decode as decode_base64;
pub use budget::{STEP_BYTES, STEPS_MAX};
pub use inspection::{BufferInspection, Inspection};
pub use scratch::{FLOW_STEPS_MAX, FLOW_STEPS_PER_PACKET, InspectionScratch, PACKET_STEPS_MAX};
pub use transform::Transforms;
pub use unsupported::{EXPRESSION_BYTES_MAX, UnsupportedKeyword, UnsupportedReason};
