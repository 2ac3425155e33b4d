//! `[links]`: links between the dispatcher and the units, and between units.

use serde::Deserialize;

use values::{Nanos, PositiveBitRate, Share};

/// Links between the dispatcher and the units, and between units. The defaults are those of the
/// papers' test bed: a round trip of 130 us, and 160 us for a state (S64).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Links {
    /// From the dispatcher to a unit: packets, and messages in order with them.
    pub dispatcher_to_unit: LinkSettings,
    /// From a unit to another: messages, states, late packets.
    pub unit_to_unit: LinkSettings,
    /// Faults of messages that units send, to each other and to the dispatcher; units retransmit
    /// the essential ones. The dispatcher's messages arrive.
    pub messages: MessageFaults,
    /// From a unit to the dispatcher: messages.
    pub unit_to_router: LinkSettings,
    /// From a unit to the store, and back, if states are in a store.
    pub unit_to_store: LinkSettings,
    /// Latency of a replica between units (S64). A pulled state has the latency of the link.
    pub copy_time: Nanos,
    /// Bits per second at which states leave a unit, one after the other.
    pub bandwidth: PositiveBitRate,
}

impl Default for Links {
    fn default() -> Links {
        Links {
            dispatcher_to_unit: LinkSettings::default(),
            unit_to_unit: LinkSettings::default(),
            messages: MessageFaults::default(),
            unit_to_router: LinkSettings::default(),
            unit_to_store: LinkSettings::default(),
            copy_time: Nanos(160_000),
            bandwidth: PositiveBitRate(10_000_000_000),
        }
    }
}

/// A class of links. A link delivers in order, except for reordered packets and for the message
/// faults of `[links.messages]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSettings {
    /// One-way latency.
    pub latency: Nanos,
    /// Random addition to the latency, at most this.
    pub jitter: Nanos,
    /// Share of packets that are lost.
    pub loss: Share,
    /// Share of packets that take `reorder_by` longer, so that others overtake them.
    pub reorder: Share,
    /// Additional latency of those packets.
    pub reorder_by: Nanos,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            latency: Nanos(65_000),
            jitter: Nanos(0),
            loss: Share(0.0),
            reorder: Share(0.0),
            reorder_by: Nanos(50_000),
        }
    }
}

/// Faults of messages.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessageFaults {
    /// Share of messages that are lost.
    pub loss: Share,
    /// Share of messages that arrive once more, up to `late_by` later.
    pub again: Share,
    /// Share of messages that take up to `late_by` longer, so that others overtake them.
    pub late: Share,
    /// Additional latency of those messages, at most.
    pub late_by: Nanos,
}

impl Default for MessageFaults {
    fn default() -> MessageFaults {
        MessageFaults { loss: Share(0.0), again: Share(0.0), late: Share(0.0), late_by: Nanos(1_000_000) }
    }
}
