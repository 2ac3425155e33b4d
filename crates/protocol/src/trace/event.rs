//! The catalogue of the timeline's events.

use std::fmt::{self, Write};

use packet::FlowKey;

use crate::message::{FlowId, RefuseReason, UnitId, Version};
use crate::timer::UnitTimer;

use super::summary::{MessagePeer, MessageSummary};

/// A kind of event, as the documentation lists it.
#[derive(Debug)]
pub struct TimelineEventInfo {
    /// The name.
    pub name: &'static str,
    /// The explanation, in the Markdown of the documentation.
    pub help: &'static str,
    /// The names of its fields.
    pub fields: &'static [&'static str],
}

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident $name:literal ($($field:ident $label:literal: $type:ty),*);
    )+) => {
        /// An event of the timeline.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum TimelineEvent {
            $(
                $(#[doc = $doc])+
                $variant {
                    $(
                        #[doc = concat!("The `", stringify!($field), "` of the line.")]
                        $field: $type,
                    )*
                },
            )+
        }

        /// All kinds of events.
        pub const EVENTS: &[TimelineEventInfo] = &[$(TimelineEventInfo {
            name: $name,
            help: concat!($($doc),+).trim_ascii(),
            fields: &[$(stringify!($field)),*],
        }),+];

        impl TimelineEvent {
            /// Returns the name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(TimelineEvent::$variant { .. } => $name,)+
                }
            }
        }

        /// Writes the fields.
        impl fmt::Display for TimelineEvent {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(TimelineEvent::$variant { $($field),* } => write_fields(f, &[$(($label, $field)),*]),)+
                }
            }
        }
    };
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[(&str, &dyn fmt::Display)]) -> fmt::Result {
    for (number, (label, field)) in fields.iter().enumerate() {
        let gap = if number > 0 { ", " } else { "" };
        let space = if label.is_empty() { "" } else { " " };
        write!(f, "{gap}{label}{space}{field}")?;
    }
    Ok(())
}

events! {
    /// The first packet of a flow: the dispatcher chose its unit.
    FlowBegan "flow-began" (unit "at": UnitId, key "": FlowKey);
    /// The flow that began is in an affinity group.
    GroupJoined "group-joined" (group "group": u16);
    /// The dispatcher numbered a packet and sent it to a unit.
    Dispatched "dispatched" (unit "to": UnitId);
    /// The flow has another owner from this epoch on; `seq` is the last packet of the owner before.
    OwnerChanged "owner-changed" (from "from": UnitId, to "to": UnitId);
    /// The dispatcher ended a flow.
    FlowEnded "flow-ended" (owner "at": UnitId);
    /// All flows of an affinity group begin to move to another unit.
    GroupMoved "group-moved" (group "group": u16, to "to": UnitId);
    /// All flows of an affinity group are at their unit.
    GroupSettled "group-settled" (group "group": u16);
    /// A unit reports that packets of the flow leave with another key. They leave after this
    /// report, and the dispatcher must know the key before.
    AliasReported "alias-reported" (alias "": FlowKey);
    /// The dispatcher knows another key of the flow.
    AliasSet "alias-set" (alias "": FlowKey);
    /// The dispatcher forgot the other key of the flow.
    AliasFreed "alias-freed" ();
    /// Another flow has the key that the flow was to have as well.
    AliasRefused "alias-refused" (by "by": FlowId);
    /// A unit starts, is active, drains, is off, or is lost.
    UnitChanged "unit-changed" (unit "": UnitId, state "is": &'static str);
    /// A process of a host is the unit from now on; it has no flows.
    UnitAssigned "unit-assigned" (unit "": UnitId, incarnation "process": u64);
    /// At the end of a run, or before all flows end, the dispatcher waits for packets of a unit.
    Awaited "awaited" (packets "packets": u64, unit "of": UnitId);
    /// A unit is silent: it may be lost.
    UnitSuspect "unit-suspect" (unit "": UnitId);
    /// A suspect unit answers again.
    UnitHeard "unit-heard" (unit "": UnitId);
    /// A message was sent. `seq` is the last packet that it covers or demands.
    Sent "sent" (message "": MessageSummary, to "to": MessagePeer);
    /// A message arrived.
    Received "received" (message "": MessageSummary, from "from": MessagePeer);
    /// The message that arrived before this line had no effect: `stale` answers what is past,
    /// `refused` breaks a limit or a rule.
    Discarded "discarded" (why "": &'static str);
    /// The unit processed a packet.
    Processed "processed" ();
    /// A packet waits for the state or for earlier packets.
    Pending "pending" ();
    /// A packet was dropped.
    Dropped "dropped" (why "": &'static str);
    /// A late packet was forwarded to the owner, in the owner's epoch.
    Relayed "relayed" (to "to": UnitId);
    /// Missing packets, up to `seq`, count as lost.
    GivenUp "given-up" (packets "packets": u64);
    /// The state that an epoch begins with is here, and covers the packets up to `seq`: that of a
    /// new flow, a stored replica, or a message with the state or its changes.
    StateInstalled "state-installed" (source "": &'static str);
    /// The unit keeps the state for its own next epoch.
    StateContinued "state-continued" ();
    /// The next owner has the state: the unit released it.
    StateReleased "state-released" ();
    /// The flow ended here with its state.
    StateEnded "state-ended" ();
    /// The unit cannot take a state.
    StateRefused "state-refused" (why "": RefuseReason, holder "stays at": UnitId);
    /// A refused state is back.
    StateReturned "state-returned" (from "from": UnitId);
    /// A replica was stored; it covers the packets up to `seq`.
    ReplicaStored "replica-stored" ();
    /// Changes were applied to the replica that is here, which made the state or replica with this
    /// `seq`.
    ChangesApplied "changes-applied" (base "to replica": Version);
    /// A replica was not stored, or changes lack their base.
    ReplicaRefused "replica-refused" ();
    /// The unit remembers that the flow left to another one: it relays late packets there.
    TombstoneMade "tombstone-made" (owner "owner": UnitId);
    /// The unit forgot flows that had left, for others.
    TombstoneForgotten "tombstone-forgotten" (flows "flows": u64);
    /// Another flow has the index.
    IndexTaken "index-taken" ();
    /// A timer of the unit expired.
    TimerFired "timer-fired" (timer "": UnitTimer);
    /// The unit lost everything that it had.
    Reset "reset" ();
    /// In a simulation: the link loses a message.
    Lost "lost" (message "": MessageSummary, to "to": MessagePeer);
    /// In a simulation: a packet does not arrive.
    PacketLost "packet-lost" (to "to": MessagePeer);
    /// In a simulation: a fault happens to the host.
    Fault "fault" (kind "": &'static str);
}

/// Writes epoch and seq.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.seq)
    }
}

impl fmt::Display for UnitTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// Returns the table of all events, in Markdown.
pub fn events_table() -> String {
    let mut table = "| event | fields | meaning |\n|---|---|---|\n".to_owned();
    for TimelineEventInfo { name, help, fields } in EVENTS {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{name}` | {} | {help} |", fields.join(", "));
    }
    table
}
