//! Fragments that are held back until their datagram is whole and was inspected, where a function
//! prevents attacks.
//!
//! Each goes through the functions when it comes, so that what they do to it does not depend on the
//! others, and waits as it is to leave.

use packet::{DropReason, Packet, PacketPool};

use super::{BatchRun, Pipeline};
use crate::fragments::Displaced;
use crate::streams::{Passing, Unheld};

impl Pipeline {
    /// A fragment passed all functions: it leaves, or waits for the rest of its datagram.
    #[cold]
    pub(super) fn send_fragment(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) {
        let Some(reassembly) = &mut self.flows.reassembly else { return self.send(packet, run) };
        let (datagrams, lost) = reassembly.datagrams_mut();
        match datagrams.pass(packet, lost) {
            Passing::Alone(packet) => self.send(packet, run),
            Passing::Held => {}
            Passing::Whole(held, last) => held.into_iter().chain([last]).for_each(|one| self.send(one, run)),
            Passing::Refused(packet) => self.drop_packet(packet, DropReason::FragmentTooMany, run),
        }
        self.drop_unheld(run.pool);
    }

    /// A fragment is dropped: if its datagram is whole with it, or can never be without it, those
    /// that are held back go with it.
    #[cold]
    pub(super) fn drop_rest_of_datagram(&mut self, packet: &Packet, run: &mut BatchRun<'_, '_>) {
        let Some(reassembly) = &mut self.flows.reassembly else { return };
        for held in reassembly.datagrams_mut().0.drop_noted(packet) {
            self.drop_packet(held, DropReason::FragmentOfDropped, run);
        }
        self.drop_unheld(run.pool);
    }

    /// Gives up expired datagrams.
    #[inline]
    pub fn expire_datagrams(&mut self, pool: &mut PacketPool) {
        if let Some(reassembly) = &mut self.flows.reassembly
            && reassembly.datagrams().due_ns() <= self.flows.now_ns
        {
            let (datagrams, lost) = reassembly.datagrams_mut();
            datagrams.expire(self.flows.now_ns, lost);
            self.drop_unheld(pool);
        }
    }

    /// Drops fragments that are not held back any more.
    pub(super) fn drop_unheld(&mut self, pool: &mut PacketPool) {
        let Some(reassembly) = &mut self.flows.reassembly else { return };
        while let Some((packet, why)) = reassembly.datagrams_mut().0.take_unheld() {
            let reason = match why {
                Unheld::Late => Some(DropReason::FragmentTimeout),
                Unheld::Displaced => Some(DropReason::FragmentTableFull),
                Unheld::TooMany => Some(DropReason::FragmentTooMany),
                Unheld::Moved => None,
            };
            if let Some(reason) = reason {
                self.counters.drops[reason.index()] += 1;
            }
            pool.give(packet);
        }
    }

    /// Drops all fragments that are held back.
    pub(super) fn drop_held(&mut self, pool: &mut PacketPool) {
        self.drop_unheld(pool);
        let Some(reassembly) = &mut self.flows.reassembly else { return };
        for packet in reassembly.datagrams_mut().0.take_all() {
            self.counters.drops[DropReason::Internal.index()] += 1;
            pool.give(packet);
        }
    }

    /// Fragments that wait for the rest of their datagram.
    pub fn packets_pending(&self) -> u64 {
        self.flows.reassembly.as_ref().map_or(0, |reassembly| reassembly.datagrams().held())
    }

    /// Fragments that were held back elsewhere and came here with their flows, less those that went
    /// elsewhere.
    pub fn fragments_moved(&self) -> i64 {
        let now = self.flows.reassembly.as_ref().map_or(0, |reassembly| reassembly.datagrams().moved());
        self.counters.fragments_moved + now
    }

    /// Datagrams that gave way to others.
    pub fn displaced(&self) -> Displaced {
        self.flows.reassembly.as_ref().map(|it| it.datagrams().displaced()).unwrap_or_default()
    }
}
