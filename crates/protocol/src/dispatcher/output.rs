//! The packets that a dispatcher gets, and its decisions and actions.

use nf::AffinityGroup;
use packet::FlowKey;

use crate::message::{FlowId, FromDispatcher, Stamp, UnitId};

/// An arriving packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketArrival<'a> {
    /// The flow key. Both directions have the same one (S7).
    pub key: &'a FlowKey,
    /// The key's hash; all by the same [`FlowHasher`](packet::FlowHasher).
    pub hash: u64,
    /// Bytes on the wire.
    pub len: u32,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[allow(clippy::large_enum_variant)] // Made for every packet, and used at once: it is not to be allocated.
pub enum Dispatched {
    /// Send it to a unit.
    To {
        /// The unit.
        unit: UnitId,
        /// The stamp to write on it.
        stamp: Stamp,
    },
    /// Drop it: the flow table is full, or [no flows may
    /// begin](crate::dispatcher::Dispatcher::refuse_flows). That is counted.
    Refused,
    /// Drop it: it begins a flow, and no unit is active. That is counted likewise.
    NoUnit,
    /// It begins a flow of an affinity group that is moving: dispatch it again after
    /// [`DispatcherOutput::GroupSettled`].
    Waits(AffinityGroup),
}

/// A packet that continues a flowlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct NumberedPacket {
    /// Its unit.
    pub unit: UnitId,
    /// Its flow.
    pub flow: FlowId,
    /// Its number in the flow.
    pub seq: u64,
}

/// An action that the caller must execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatcherOutput {
    /// Send a message to a unit, after the packets that were dispatched to it before: those of the
    /// flow that it is about, and of the flow's affinity group; all if it is about no flow.
    Send {
        /// The unit.
        to: UnitId,
        /// The message.
        message: FromDispatcher,
    },
    /// Start a unit, and call [`Membership::started`](crate::dispatcher::Membership::started) when
    /// it is ready. The caller decides how long that takes (S106); until then no other unit starts.
    Start(UnitId),
    /// Stop a unit that has nothing left.
    Stop(UnitId),
    /// Dispatch packets that wait for this affinity group again: its flows are at one unit.
    GroupSettled(AffinityGroup),
    /// The [requested](crate::dispatcher::Migrations::replicate) replica of this flow has come.
    Replicated(FlowId),
}
