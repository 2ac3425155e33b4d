//! Differential testing of graphs: a function must do the same in a consolidated and in a plain
//! graph (B4).
//!
//! [`compare`] puts functions, yours among them, into random graphs, plays random traffic to each
//! of them twice, consolidated and plain, and compares packets, alerts, events, reports, counters,
//! shared state, and the bytes of all flows. For a difference, it searches a smaller graph and
//! fewer steps that show it.
//!
//! ```
//! use conformance::{CompareOptions, FunctionSpec, compare};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = functions::registry();
//! let policer = FunctionSpec::new("policer", r#"{ "rate": "20kbps" }"#)?;
//! let policer = policer.with_commands(["rate 100kbps"]);
//! let options = CompareOptions { packets: 4_000, ..CompareOptions::default() };
//! let totals = compare(&registry, &[policer], &options, |_| {})?;
//! assert!(totals.packets >= 4_000 && totals.followed > 0);
//! # Ok(())
//! # }
//! ```

mod compare;
mod difference;
mod form;
mod function_spec;
mod tape;
mod trial;
mod witness;

pub use compare::{CompareError, CompareOptions, Totals, compare};
pub use difference::PathDifference;
pub use form::{GraphForm, LineShape};
pub use function_spec::{FunctionSpec, built_in};
pub use tape::{SERVICE, Tape, TapePacket};
pub use trial::{Fork, GraphTrial};
pub use witness::{TrialStep, Witness};
