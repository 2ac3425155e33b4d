//! Fragments that are held until their datagram is whole and inspected, where a function prevents
//! attacks.
//!
//! Each fragment visits the functions when it arrives, so that what they do to it does not depend
//! on the others. Then it is held as it will leave.

use packet::{DropReason, Packet, PacketPool};

use super::BatchRun;
use super::exit::Exit;
use crate::reassembly::Reassembly;
use crate::streams::{Passing, Unheld};

/// The held fragments, and where they leave.
pub(super) struct HeldFragments<'p> {
    pub reassembly: &'p mut Reassembly,
    pub exit: &'p mut Exit,
}

impl HeldFragments<'_> {
    /// A fragment passed all functions: it leaves, or is held for the rest of its datagram.
    #[cold]
    pub fn send(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) {
        let (datagrams, lost) = self.reassembly.datagrams_mut();
        match datagrams.pass(packet, lost) {
            Passing::Alone(packet) => self.exit.send(packet, run),
            Passing::Held => {}
            Passing::Whole(held, last) => {
                held.into_iter().chain([last]).for_each(|one| self.exit.send(one, run));
            }
            Passing::Refused(packet) => self.exit.drop_packet(packet, DropReason::FragmentTooMany, run),
        }
        self.drop_unheld(run.pool);
    }

    /// A fragment is dropped. If its datagram is whole with it, or can never be without it, the
    /// held fragments are dropped, too.
    #[cold]
    pub fn drop_rest(&mut self, packet: &Packet, run: &mut BatchRun<'_, '_>) {
        for held in self.reassembly.datagrams_mut().0.drop_noted(packet) {
            self.exit.drop_packet(held, DropReason::FragmentOfDropped, run);
        }
        self.drop_unheld(run.pool);
    }

    /// Gives up expired datagrams.
    #[inline]
    pub fn expire(&mut self, now_ns: u64, pool: &mut PacketPool) {
        if self.reassembly.datagrams().due_ns() <= now_ns {
            let (datagrams, lost) = self.reassembly.datagrams_mut();
            datagrams.expire(now_ns, lost);
            self.drop_unheld(pool);
        }
    }

    /// Drops fragments that are no longer held.
    pub fn drop_unheld(&mut self, pool: &mut PacketPool) {
        while let Some((packet, why)) = self.reassembly.datagrams_mut().0.take_unheld() {
            match why {
                Unheld::Late => self.exit.discard(packet, DropReason::FragmentTimeout, pool),
                Unheld::Displaced => self.exit.discard(packet, DropReason::FragmentTableFull, pool),
                Unheld::TooMany => self.exit.discard(packet, DropReason::FragmentTooMany, pool),
                Unheld::Moved => pool.give(packet),
            }
        }
    }

    /// Drops all held fragments.
    pub fn drop_all(&mut self, pool: &mut PacketPool) {
        self.drop_unheld(pool);
        for packet in self.reassembly.datagrams_mut().0.take_all() {
            self.exit.discard(packet, DropReason::Internal, pool);
        }
    }
}
