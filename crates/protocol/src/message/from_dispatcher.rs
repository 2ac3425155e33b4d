//! Messages of the dispatcher.

use crate::message::declare::messages;
use crate::message::{Epoch, FlowId, Handover, UnitId};
use crate::timer::{DispatcherTimer, UnitTimer};

messages! {
    /// A message from the dispatcher to a unit. The transport must not lose it.
    pub enum FromDispatcher of Option<FlowId> {
        /// Ends the receiver's ownership: no packet of its epoch follows.
        Release = 0 {
            /// The flow.
            flow: FlowId,
            /// The new owner's epoch.
            epoch: Epoch,
            /// The new owner.
            owner: UnitId,
            /// The seq of the last packet of the receiver's epoch.
            last: u64,
            /// The place of the state that the receiver's epoch begins with: its packets, which
            /// name it, may all be lost.
            start: Handover,
        } => {
            from: "dispatcher",
            to: "previous owner",
            lane: Ordered,
            answer: "none; the state goes to the new owner",
            timers: [UnitTimer::Release, UnitTimer::Offer],
            repeated_by: "the new owner: a repeated `Pull` counts as a release, except with affinity groups",
            if_lost: "only together with the link, and the unit then counts as lost; the new owner's repeated `Pull` would do the same, so that the flow moves anyway",
        }
        /// Makes the receiver the owner without a packet: it fetches the state.
        Adopt = 1 {
            /// The flow.
            flow: FlowId,
            /// The receiver's epoch.
            epoch: Epoch,
            /// The previous owner.
            previous: UnitId,
            /// The seq of the last packet of the previous owner's epoch.
            last: u64,
        } => {
            from: "dispatcher",
            to: "new owner",
            lane: Free,
            answer: "`Pull` to the previous owner; `StateAck` if a replica is the state",
            timers: [UnitTimer::Pull],
            repeated_by: "the flow's next packet, which names the same",
            if_lost: "only together with the link; the next packet begins the move, or the previous owner offers the state",
        }
        /// Makes the receiver the owner after the owner before, and its state with it, was lost: it
        /// collects replicas of the state, and continues with the newest one.
        Recover = 5 {
            /// The flow.
            flow: FlowId,
            /// The receiver's epoch.
            epoch: Epoch,
            /// The seq of the last packet before the epoch.
            last: u64,
            /// Units that may have a replica.
            holders: Vec<UnitId>,
            /// Units that get a replica as soon as the state is there.
            targets: Vec<UnitId>,
        } => {
            from: "dispatcher",
            to: "new owner, or an owner that has reported `Lost`",
            lane: Ordered,
            answer: "`Recovered`",
            timers: [UnitTimer::Seek],
            repeated_by: "each repeated `Lost`",
            if_lost: "only together with the link, and the unit then counts as lost: the flow is recovered elsewhere",
        }
        /// Requests a replica at the flow's next owner: packets are processed while most of the
        /// state is on its way (pre-copy).
        Replicate = 4 {
            /// The flow.
            flow: FlowId,
            /// The owner's epoch.
            epoch: Epoch,
            /// The next owner.
            to: UnitId,
        } => {
            from: "dispatcher",
            to: "owner",
            lane: Free,
            answer: "`Replicate` to the next owner, which answers with `Replicated`",
            timers: [DispatcherTimer::Bucket],
            repeated_by: "nothing",
            if_lost: "the flow moves after a wait, with its whole state",
        }
        /// Ends the flow at its owner once the state is there. Elsewhere, replicas become
        /// worthless.
        End = 2 {
            /// The flow.
            flow: FlowId,
        } => {
            from: "dispatcher",
            to: "owner, previous owner, and units with replicas",
            lane: Ordered,
            answer: "none",
            timers: [UnitTimer::End],
            repeated_by: "each repeated `Expire`",
            if_lost: "only together with the link; the owner proposes the end again",
        }
        /// Announces that the unit will stop: it gets no new flowlets, and its flows move away.
        Drain = 3 => {
            from: "dispatcher",
            to: "unit",
            lane: Ordered,
            answer: "`Drained`, once no flow is left",
            timers: [DispatcherTimer::Drain],
            repeated_by: "the timer, once the dispatcher has moved all flows of the unit",
            if_lost: "the timer repeats it",
        }
    }
}
