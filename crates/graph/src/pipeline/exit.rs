//! The exit of packets: sent, dropped, or kept until the packet that they answer leaves.

use packet::{DropReason, Packet, PacketPool};

use super::BatchRun;
use crate::Counters;

/// Sends and drops packets, and counts them.
#[derive(Default)]
pub(crate) struct Exit {
    /// Packets that left, that functions made, and that were dropped.
    counters: Counters,
    /// Packets that functions made, until the packets that they answer leave.
    answers: Vec<Packet>,
}

impl Exit {
    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sends a packet to the other side.
    pub fn send(&mut self, mut packet: Packet, run: &mut BatchRun<'_, '_>) {
        self.count_sent(1, packet.len() as u64);
        let meta = packet.meta_mut();
        meta.transit.side = meta.transit.side.other();
        if let Some(observer) = &mut run.observer {
            observer.sent(&packet);
        }
        run.out.push(packet);
    }

    /// Counts packets that leave without [`Exit::send`].
    #[inline(always)]
    pub fn count_sent(&mut self, packets: u64, bytes: u64) {
        self.counters.packets_out += packets;
        self.counters.bytes_out += bytes;
    }

    /// Drops a packet.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason, run: &mut BatchRun<'_, '_>) {
        self.count_dropped(reason, 1);
        if let Some(observer) = &mut run.observer {
            observer.dropped(&packet, reason);
        }
        run.pool.give(packet);
    }

    /// Drops a packet that is not of the current batch.
    pub fn discard(&mut self, packet: Packet, reason: DropReason, pool: &mut PacketPool) {
        self.count_dropped(reason, 1);
        pool.give(packet);
    }

    /// Counts packets that were dropped.
    #[inline]
    pub fn count_dropped(&mut self, reason: DropReason, packets: u64) {
        self.counters.drops[reason.index()] += packets;
    }

    /// Counts a packet that a function made.
    pub fn count_generated(&mut self) {
        self.counters.packets_generated += 1;
    }

    /// Counts a panic of the graph's own code.
    pub fn count_restart(&mut self) {
        self.counters.restarts += 1;
    }

    /// Sets the number of held fragments that moved, when new memory for them does not know it.
    pub fn set_fragments_moved(&mut self, moved: i64) {
        self.counters.fragments_moved = moved;
    }

    /// Keeps a packet that a function made until the packet that it answers leaves.
    pub fn answer(&mut self, packet: Packet) {
        self.answers.push(packet);
    }

    /// Returns true if packets that functions made are kept.
    #[inline(always)]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Sends the answers to packet `sequence`, right after it.
    #[cold]
    pub fn send_answers(&mut self, sequence: u64, run: &mut BatchRun<'_, '_>) {
        let mut answers = std::mem::take(&mut self.answers);
        for packet in answers.extract_if(.., |packet| packet.meta().transit.sequence == sequence) {
            self.send(packet, run);
        }
        self.answers = answers;
    }

    /// Drops all answers.
    #[cold]
    pub fn drop_answers(&mut self, run: &mut BatchRun<'_, '_>) {
        for packet in std::mem::take(&mut self.answers) {
            self.drop_packet(packet, DropReason::Internal, run);
        }
    }
}
