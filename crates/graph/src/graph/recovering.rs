//! The account of packets around a panic of the graph's own code. Stages catch those of functions.

use super::arrivals::Arrivals;
use crate::pipeline::Pipeline;

/// The packets of a graph before or after a batch. Each must be accounted for.
pub(super) struct PacketAccount {
    /// Packets of the batch that are still to be processed.
    packets: u64,
    generated: u64,
    sent: u64,
    dropped: u64,
    held: u64,
}

impl PacketAccount {
    /// Returns the account with n packets still to be processed.
    pub fn of(arrivals: &Arrivals, pipeline: &Pipeline, packets: usize) -> PacketAccount {
        let (own, classified) = (pipeline.exit().counters(), arrivals.classifier().counted());
        PacketAccount {
            packets: packets as u64,
            generated: own.packets_generated,
            sent: own.packets_out + classified.packets_out,
            dropped: own.dropped() + classified.dropped(),
            held: pipeline.packets_pending() + classified.packets_pending,
        }
    }

    /// Returns the number of packets that are lost since an earlier account.
    pub fn lost_since(&self, before: &PacketAccount) -> u64 {
        let came = before.packets + before.held + (self.generated - before.generated);
        let went = self.held + (self.sent - before.sent) + (self.dropped - before.dropped);
        came.saturating_sub(went)
    }
}
