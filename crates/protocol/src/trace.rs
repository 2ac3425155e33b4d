//! The timeline: what dispatchers and units of a flow did, one line per event.
//!
//! ```text
//! Dispatcher, Unit --(EventSink)--> EventTimeline: a ring of the last lines --> text, in columns
//! ```
//!
//! A [`FlowTimeline`] has the lines of one flow, out of the timelines of one or more processes.
//!
//! A machine has an [`EventSink`], which is off unless its driver
//! [sets](crate::unit::Unit::set_trace) another. The machine notes transitions: messages, states,
//! owners, tombstones, timers; and, with [`TraceDetail::Packets`], each packet. A machine has no
//! clock: a line has the time of the call that caused it. [`EVENTS`] lists all kinds of lines.
//!
//! Off, a sink costs a comparison per transition. A packet that continues a flow costs nothing at
//! the dispatcher, and a comparison at the unit: with [`TraceDetail::Packets`], the dispatcher
//! takes its slower way for each packet, on which it notes them.

pub mod audit;
mod event;
mod excerpt;
pub mod failure;
mod flow_timeline;
mod line;
mod place;
mod summary;
mod timeline;

pub use event::{EVENTS, TimelineEvent, TimelineEventInfo, events_table};
pub use excerpt::excerpt;
pub use flow_timeline::{FlowTimeline, TimelineRow};
pub use line::{Machine, TimelineLine, heading};
pub use place::FlowPlace;
pub use summary::{MessagePeer, MessageSummary};
pub use timeline::{EventSink, EventTimeline, TraceDetail};
