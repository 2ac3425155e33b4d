//! Explanations of packets: the actions of each function of a policy, and the reasons.
//!
//! A [`Tracer`] observes packets in a [`Runner`](runtime::Runner), and gives a [`PacketTrace`] for
//! each; an [`Explanation`] is such a trace as text or as JSON.

mod comment;
mod edges;
mod explanation;
mod headers;
mod midstream;
mod rule;
mod selection;
mod tracer;

pub use comment::comment;
pub use edges::EdgeExplanation;
pub use explanation::{Explanation, deciding_rule};
pub use midstream::BegunConnections;
pub use selection::Selection;
pub use tracer::{
    CollectedOutput, ExplainedEvent, PacketOutcome, PacketTrace, ProcessingStep, TakenEdge, Tracer,
};
