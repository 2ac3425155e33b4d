//! The length of datagrams, as the path carries them (RFC 8899).

use super::{PeerLink, Transmit};
use crate::datagram::HEADER_LEN;
use crate::frames::{PADDING, push_probe};
use crate::keys::TAG_LEN;

impl PeerLink {
    /// Takes back datagrams that the system has refused as too large (`EMSGSIZE`): those of the
    /// latest [`PeerLink::poll_transmit`] but the first `sent`. Smaller ones, or other probes,
    /// replace them. Returns false if there are no smaller ones: they count as sent.
    pub fn handle_too_large(&mut self, transmit: &Transmit, sent: usize) -> bool {
        if self.mtu.note_refused_probe(transmit.number) {
            return true;
        }
        let count = transmit.len.div_ceil(transmit.segment.max(1)).saturating_sub(sent);
        self.counters.datagrams_too_large += count as u64;
        if transmit.segment <= self.config.mtu_base {
            self.events.too_narrow |= !std::mem::replace(&mut self.is_too_narrow, true);
            return false;
        }
        let blocks = &mut self.blocks;
        self.recovery.take_back(transmit.number + sent as u64, |sent| {
            if let Some(piece) = sent.piece {
                blocks.note_lost(piece, sent.number);
            }
        });
        if self.life.is_up() {
            self.acks.hurry();
        }
        self.lower_mtu(transmit.segment);
        true
    }

    /// Falls back to datagrams that every path carries, and searches again, below `too_large`.
    pub(super) fn lower_mtu(&mut self, too_large: usize) {
        if self.mtu.lower(too_large) {
            self.counters.mtu_lowered += 1;
            self.use_mtu();
        }
    }

    /// Notes that a probe of this length has arrived at the peer.
    pub(super) fn handle_answer(&mut self, size: usize) {
        if self.mtu.note_answer(size) {
            self.counters.mtu_raised += 1;
            self.use_mtu();
        }
    }

    fn use_mtu(&mut self) {
        self.blocks.set_datagram(self.mtu.size());
        self.recovery.congestion.set_datagram(self.mtu.size());
    }

    /// Writes the probe that must be sent now, alone: the system may refuse it.
    pub(super) fn append_probe(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if !self.life.is_up() || self.dead.is_some() {
            return None;
        }
        if let Some(change) = self.mtu.finish(now_ns) {
            self.events.mtu = Some(change);
        }
        let size = self.mtu.probe()?;
        self.prepare_key()?;
        out.resize(HEADER_LEN, 0);
        push_probe(out, size as u16);
        out.push(PADDING);
        out.resize(size - TAG_LEN, 0);
        self.seal(out, 0);
        let number = self.next_number;
        let timeout_ns = self.recovery.probe_timeout_ns() << self.mtu.probes_lost();
        self.mtu.note_probe(number, size, now_ns, now_ns.saturating_add(timeout_ns));
        self.next_number += 1;
        self.counters.mtu_probes_sent += 1;
        self.counters.datagrams_sent += 1;
        self.counters.datagram_bytes_sent += size as u64;
        Some(Transmit { segment: size, len: size, number })
    }
}
