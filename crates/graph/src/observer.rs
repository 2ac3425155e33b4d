//! Watching single packets on their way through a chain.

use nf::{Recording, Verdict};
use packet::{DropReason, Packet};

/// Is told what happens to a packet, step by step (see [`crate::Chain::observe`]).
pub trait Observer {
    /// It arrived; its metadata are as parsed, if it could be.
    fn arrived(&mut self, packet: &Packet);
    /// It is about to be processed by this function.
    fn before(&mut self, stage: usize, packet: &Packet);
    /// The function is done with it: what was decided, and what was recorded.
    fn after(&mut self, stage: usize, packet: &Packet, verdict: Verdict, recording: &Recording);
    /// It left.
    fn sent(&mut self, packet: &Packet);
    /// It was dropped.
    fn dropped(&mut self, packet: &Packet, reason: DropReason);
}
