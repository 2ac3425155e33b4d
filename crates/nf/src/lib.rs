//! The API for authors of network functions (NFs).
//!
//! An NF is a type that implements [`NetworkFunction`]: a configuration, per-flow state, and
//! `process(packet, state, context) -> Verdict`. Start with the trait and
//! `docs/write-your-first-nf.md`.

mod affinity;
mod alert;
pub mod answer;
mod bits;
mod buffers;
mod connection;
mod context;
mod counters;
mod descriptor;
mod effects;
mod event;
mod function;
pub mod index;
mod links;
mod map;
mod meters;
mod payload_cache;
mod plan;
pub mod pool;
pub mod record;
mod recording;
mod registry;
mod rule_counters;
mod set;
mod shared_state;
mod sharing;
mod silence;
mod sources;
pub mod stage;
pub mod stream;
mod verdict;
mod view;

pub use affinity::{AFFINITY_GROUPS, AFFINITY_GROUPS_MAX, AffinityGroup, AffinityGroups, AffinityKey};
pub use alert::{
    Alert, AlertDetail, AlertFlow, AlertMessage, AlertSeverity, AlertText, AlertValue, Translation,
};
pub use buffers::{BUFFER_SHARE_PERCENT, Buffers, FlowBuffer, MemoryShortage};
pub use connection::Connection;
pub use context::{Context, FlowInfo, KEEP_MS_MAX, TagLayout};
pub use counters::{
    Counter, CounterDeclaration, CounterLabel, CounterValue, CounterValues, DeclaredCounters,
    LabelledCounter, LabelledDeclaration,
};
pub use descriptor::{
    Access, Affinity, Attribute, BufferSpec, Descriptor, Field, MapSpec, Maturity, NodeSharing, Scaling,
    Shared,
};
pub use effects::{
    EFFECTS_MAX, EffectCause, Effects, EffectsMark, FlowFindings, FlowReport, GeneratedPacket,
};
pub use event::{EVENT_FIELDS_MAX, EVENT_TEXTS_MAX, EVENTS_MAX, Event, EventField, EventValue, Events};
pub use function::{
    AnswerScope, ControlError, LiveFlow, LiveFlows, NetworkFunction, Setup, UpgradeError, VICTIMS_MAX,
};
pub use links::LinkAddresses;
pub use map::{PutError, StateMap};
pub use meters::{METERS_SCANNED_MAX, MeterKey, MeterValue, Meters};
pub use payload_cache::{CACHED_PAYLOAD_MAX, CachedPayload, PayloadCache};
pub use plan::{PLAN_SHAPE_MAX, PREDICTING_NFS_MAX, Plan, PlanShape, PlannedActions};
pub use recording::{Cause, EventCondition, HeaderAction, RECORD_MAX, Recording, StateFunction};
pub use registry::{ConfigSource, Loader, MakeError, Registry, RegistryEntry};
pub use rule_counters::{RuleCounters, RuleLabel};
pub use set::SharedSet;
pub use shared_state::{OwnedAddresses, PassedSources, SharedState};
pub use sharing::SharedHandle;
pub use silence::{FEW_PACKETS, compared_silence_ns};
pub use sources::{ACCOUNTS_MIN, ReportLimit, SourceAccounts, source_of};
pub use verdict::{EndReason, Verdict};
pub use view::PacketView;
