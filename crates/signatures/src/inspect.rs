//! Inspection of one buffer: evaluates the matches and transforms of a rule.
//!
//! It finds no buffers and knows nothing of packets; the bytes of a buffer go in, and the result
//! comes out.
//!
//! ```
//! use signatures::inspect::{Inspection, Scratch};
//! use signatures::{Classifications, Ruleset, Variables};
//!
//! let rule = r#"alert tcp any any -> any any (content:"len"; byte_extract:1,0,n,relative; content:"!"; distance:n; sid:1;)"#;
//! let report = Ruleset::read("a.rules", rule, &Variables::default(), &Classifications::default());
//! let inspection = Inspection::new(&report.ruleset.rules()[0].rule)?;
//!
//! let mut scratch = Scratch::new();
//! scratch.begin();
//! assert!(inspection.buffer(0).holds(b"len\x03abc!", &mut scratch));
//! assert!(!inspection.buffer(0).holds(b"len\x04abc!", &mut scratch));
//! # Ok::<(), signatures::inspect::Unsupported>(())
//! ```

mod base64;
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

pub use expression::EXPRESSION_BYTES_MAX;
pub use inspection::{Inspected, Inspection};
pub use scratch::{FLOW_STEPS_MAX, FLOW_STEPS_PER_PACKET, PACKET_STEPS_MAX, STEP_BYTES, STEPS_MAX, Scratch};
pub use transform::Transforms;
pub use unsupported::{Reason, Unsupported};
