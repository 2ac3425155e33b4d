//! Differential testing of graphs: what a function does when its graph is consolidated is what it
//! does in the plain graph (B4).
//!
//! [`compare`] puts functions, yours among them, into random graphs, plays random traffic to each
//! of them twice, consolidated and plain, and looks for anything that is not the same: packets,
//! alerts, events, reports, counters, shared state, the bytes of all flows. If something is, it
//! looks for a smaller graph and fewer steps that show it.
//!
//! ```
//! use conformance::{Plan, Subject, compare};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = functions::registry(); let policer = Subject::new("policer", r#"{ "rate":
//! "20kbps" }"#)?.with_commands(["rate 100kbps"]); let totals = compare(&registry, &[policer],
//! &Plan { packets: 4_000, ..Plan::default() }, |_| {})?; assert!(totals.packets >= 4_000 &&
//! totals.followed > 0);
//! # Ok(())
//! # }
//! ```

mod compare;
mod difference;
mod subject;
mod tape;
mod trial;
mod witness;

pub use compare::{Failure, Plan, Totals, compare};
pub use difference::Difference;
pub use subject::{Subject, built_in};
pub use tape::{Arrival, SERVICE, Tape};
pub use trial::Trial;
pub use witness::{Step, Witness};
