//! Messages of units to the dispatcher.

use crate::message::declare::messages;
use crate::message::{Epoch, FlowId, RefuseReason, UnitId};
use crate::timer::{DispatcherTimer, UnitTimer};

messages! {
    /// A message from a unit to the dispatcher. It may be lost, except where it says otherwise.
    pub enum FromUnit of Option<FlowId> {
        /// Proposes the end of a flow. The flow ends only once the dispatcher answers with `End`.
        Expire = 0 {
            /// The flow.
            flow: FlowId,
            /// The owner's epoch.
            epoch: Epoch,
            /// The highest seq that the state covers.
            seq: u64,
        } => {
            from: "owner",
            to: "dispatcher",
            lane: Free,
            answer: "`End`; nothing while packets are on their way, or the flow has another owner",
            timers: [UnitTimer::Expire],
            repeated_by: "the timer",
            if_lost: "the timer repeats it; the dispatcher ends silent flows by itself, later",
        }
        /// Reports that the owner has the flow's state, which another unit had before. Sent for all
        /// flows if some are in affinity groups; the transport must not lose it.
        Arrived = 4 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
        } => {
            from: "new owner",
            to: "dispatcher",
            lane: Free,
            answer: "none",
            timers: [],
            repeated_by: "nothing",
            if_lost: "only together with the link, and the unit then counts as lost: its flows end, and leave their groups. Otherwise packets that begin flows of the group would wait",
        }
        /// Reports that a replica has come that the dispatcher requested with its `Replicate`,
        /// whether it is kept or not.
        Replicated = 5 {
            /// The flow.
            flow: FlowId,
            /// The epoch of the owner that sent it.
            epoch: Epoch,
        } => {
            from: "next owner",
            to: "dispatcher",
            lane: Free,
            answer: "none; the flow moves",
            timers: [DispatcherTimer::Bucket],
            repeated_by: "nothing",
            if_lost: "the flow moves after a wait",
        }
        /// Reports that a draining unit has no flows left.
        Drained = 1 => {
            from: "draining unit",
            to: "dispatcher",
            lane: Free,
            answer: "none; the unit stops, or gets another `Drain` once the dispatcher knows no flow there",
            timers: [DispatcherTimer::Drain],
            repeated_by: "each further `Drain`",
            if_lost: "the dispatcher repeats `Drain`",
        }
        /// Reports the outcome of a `Recover`.
        Recovered = 6 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
            /// The number of packets before the epoch that the state does not cover; `None` if no
            /// unit had a replica.
            lacks: Option<u64>,
        } => {
            from: "new owner",
            to: "dispatcher",
            lane: Free,
            answer: "none; `End` if there was no replica",
            timers: [],
            repeated_by: "nothing if the flow continues; otherwise each further packet, by `Lost`",
            if_lost: "the flow counts as recovered later, or never; without a replica, the next packet reports it",
        }
        /// Reports that the state of the flow was lost with the previous owner.
        Lost = 2 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
        } => {
            from: "new owner",
            to: "dispatcher",
            lane: Free,
            answer: "`Recover`, or `End` if no unit can have a replica",
            timers: [],
            repeated_by: "each further packet and `Adopt` of the flow",
            if_lost: "the next packet repeats it; a flow without packets ends by its silence",
        }
        /// Reports that the owner could not take the state. The flow stays where the state is.
        Refuse = 3 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
            /// The unit that holds the state.
            holder: UnitId,
            /// The reason.
            reason: RefuseReason,
        } => {
            from: "new owner",
            to: "dispatcher",
            lane: Free,
            answer: "`Release` to the sender, `Adopt` to the holder",
            timers: [],
            repeated_by: "each packet that the sender forwards to the holder, and each repeated `State`",
            if_lost: "packets take the detour until one repeats it",
        }
    }
}
