//! What an author of network functions uses.
//!
//! A function is a type that implements [`NetworkFunction`]: its configuration, its per-flow state,
//! and `process(packet, state, context) -> Verdict`. See the trait, and
//! `docs/write-your-first-nf.md`.

pub mod answer;
mod bits;
mod buffers;
mod common;
mod connection;
mod contents;
mod context;
mod descriptor;
mod effects;
mod event;
mod foresight;
mod function;
pub mod index;
mod map;
mod meters;
pub mod pool;
pub mod record;
mod recording;
mod registry;
mod rule_counters;
mod set;
mod sources;
pub mod stage;
pub mod stream;
mod verdict;
mod view;

pub use buffers::{BUFFER_SHARE_PERCENT, Buffers, FlowBuffer, Shortage};
pub use common::Common;
pub use connection::Connection;
pub use contents::{CONTENT_MAX, Contents, Found};
pub use context::{Context, CounterGroup, FlowInfo, KEEP_MS_MAX, Owned, SharedState, TagLayout};
pub use descriptor::{
    Access, Affinity, Attribute, BufferSpec, Descriptor, Field, MapSpec, Maturity, Scaling, Shared,
};
pub use effects::{
    Alert, AlertDetail, AlertFlow, AlertMessage, AlertValue, EFFECTS_MAX, Effects, FlowReport, Made,
    Severity, Text, Translation,
};
pub use event::{EVENT_FIELDS_MAX, EVENT_TEXTS_MAX, EVENTS_MAX, Event, EventField, EventValue, Events};
pub use foresight::{FORESEEING_MAX, Foresight, SHAPE_MAX, Said, Shape};
pub use function::{
    Answers, ControlError, GIVE_WAY_MAX, LiveFlow, LiveFlows, NetworkFunction, Setup, UpgradeError,
};
pub use map::{PutError, StateMap};
pub use meters::{METERS_LOOKED_AT, MeterKey, MeterValue, Meters};
pub use recording::{Cause, EventCondition, HeaderAction, RECORD_MAX, Recording, StateFunction};
pub use registry::{ConfigSource, Entry, MakeError, Registry};
pub use rule_counters::{RuleCounters, RuleLabel};
pub use set::Set;
pub use sources::{ACCOUNTS_MIN, ReportLimit, Sources, source_of};
pub use verdict::{EndReason, Verdict};
pub use view::PacketView;
