//! Datagrams to send.

use super::PeerLink;
use crate::config::packet_max;
use crate::datagram::{DATAGRAM_OVERHEAD, HEADER_LEN, Header, VERSION};
use crate::events::DeadReason;
use crate::frames::{FRAME_HEAD, PADDING, push_answer, push_packet, push_ping};
use crate::keys::TAG_LEN;
use crate::sending::Piece;

/// Datagrams of one [`PeerLink::poll_transmit`], at most (Linux: `UDP_MAX_SEGMENTS`).
pub const TRANSMIT_DATAGRAMS_MAX: usize = 64;

/// Bytes of several datagrams of one [`PeerLink::poll_transmit`], at most. With the headers of
/// Ethernet, IPv6 and UDP they must be shorter than a device's `gso_max_size` of 65,536 bytes:
/// Linux cuts up longer ones before the device, which then gets each datagram by itself.
pub const TRANSMIT_BYTES_MAX: usize = 65_535 - (14 + 40 + 8);

/// Datagrams to send together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Length of each datagram but the last, which may be shorter (`UDP_SEGMENT`).
    pub segment: usize,
    /// Length of all of them.
    pub len: usize,
    /// Number of the first.
    pub(super) number: u64,
}

/// The contents of a datagram in the making.
#[derive(Default)]
struct Contents {
    piece: Option<Piece>,
    /// Set if the peer acknowledges it.
    must_ack: bool,
    has_ack: bool,
}

impl PeerLink {
    /// Fills `out` with datagrams to send now, all of one length except a shorter last one; none if
    /// there is nothing to send. Former contents of `out` are cleared.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let now_ns = self.advance(now_ns);
        out.clear();
        if let Some(probe) = self.append_probe(now_ns, out) {
            return Some(probe);
        }
        let number = self.next_number;
        let mut segment = self.mtu.size();
        for count in 0..TRANSMIT_DATAGRAMS_MAX {
            if out.len() + segment > TRANSMIT_BYTES_MAX && count > 0 {
                break;
            }
            let len = self.append_datagram(now_ns, segment, out);
            if len == 0 || len < segment && count > 0 {
                break;
            }
            segment = len;
        }
        (!out.is_empty()).then_some(Transmit { segment, len: out.len(), number })
    }

    /// Appends a datagram of at most `room` bytes; returns its length, or 0 if there is nothing to
    /// send that fits.
    fn append_datagram(&mut self, now_ns: u64, room: usize, out: &mut Vec<u8>) -> usize {
        if self.dead.is_some() {
            return 0;
        }
        if self.prepare_key().is_none() {
            return 0;
        }
        let start = out.len();
        let end = start + room - TAG_LEN;
        out.resize(start + HEADER_LEN, 0);
        let contents = self.append_frames(now_ns, out, end);
        if out.len() == start + HEADER_LEN {
            out.truncate(start);
            return 0;
        }
        self.pad(out, end, room);
        self.seal(out, start);
        let len = out.len() - start;
        if contents.has_ack {
            self.acks.note_sent(now_ns);
            self.answer = None;
            self.counters.acks_sent += 1;
        }
        let number = self.next_number;
        if let Some(piece) = contents.piece {
            self.counters.blocks_retransmitted += u64::from(self.blocks.note_sent(piece, number));
        }
        if contents.must_ack {
            self.recovery.note_sent(now_ns, number, contents.piece, len);
        }
        self.next_number += 1;
        self.counters.datagrams_sent += 1;
        self.counters.datagram_bytes_sent += len as u64;
        len
    }

    /// Has a key for the next datagram; none if the link has ended instead.
    #[inline]
    pub(super) fn prepare_key(&mut self) -> Option<()> {
        let Ok(rotated) = self.send_keys.prepare(self.next_number) else {
            self.end(DeadReason::KeyExhausted);
            return None;
        };
        self.counters.keys_rotated += u64::from(rotated);
        Some(())
    }

    /// Appends frames, up to position `end`.
    #[inline]
    fn append_frames(&mut self, now_ns: u64, out: &mut Vec<u8>, end: usize) -> Contents {
        let mut contents = Contents::default();
        if self.life.is_up() && self.inbox.credit().is_grant_stale() {
            self.acks.hurry();
        }
        let is_ack_expected = self.acks.is_expected(now_ns);
        let ack_len = self.prepare_ack(is_ack_expected);
        let is_confirmed = self.life.is_confirmed();
        let may_send = is_confirmed && self.recovery.may_send();
        let piece = if may_send { self.pick_piece() } else { None };
        self.discard_large_packets();
        let has_packets = may_send && !self.packets_out.is_empty();
        self.recovery.congestion.note_use(may_send && piece.is_none() && !has_packets);
        if let Some(piece) = piece
            && !(self.is_packets_turn && has_packets)
        {
            self.is_packets_turn = true;
            let free = (end - out.len()).checked_sub(self.blocks.len(piece));
            contents.has_ack = ack_len > 0 && (is_ack_expected || free.is_some_and(|free| ack_len <= free));
            // An urgent acknowledgement that does not fit together with the block is sent alone.
            if free.is_none_or(|free| contents.has_ack && ack_len > free) {
                contents.has_ack &= self.append_ack(out, end);
                return contents;
            }
            self.blocks.write_piece(piece, out);
            (contents.piece, contents.must_ack) = (Some(piece), true);
            if contents.has_ack {
                self.append_ack(out, end);
            }
            self.append_packets(out, end);
            return contents;
        }
        self.is_packets_turn = false;
        let packet_len = self.packets_out.front_len().filter(|_| has_packets);
        let is_beside = packet_len.is_some_and(|len| out.len() + ack_len + FRAME_HEAD + len <= end);
        if is_ack_expected || is_beside {
            contents.has_ack = ack_len > 0 && self.append_ack(out, end);
        }
        if has_packets {
            contents.must_ack = self.append_packets(out, end);
        }
        let must_ping = self.recovery.must_probe() || !is_confirmed && contents.has_ack;
        if must_ping && !contents.must_ack && out.len() + FRAME_HEAD <= end {
            push_ping(out);
            contents.must_ack = true;
        }
        contents
    }

    /// Appends the prepared acknowledgement; returns whether it fitted.
    #[inline]
    fn append_ack(&self, out: &mut Vec<u8>, end: usize) -> bool {
        let fits = out.len() + self.ack_frame.len() <= end;
        if fits {
            out.extend_from_slice(&self.ack_frame);
        }
        fits
    }

    /// Writes the acknowledgement that the datagram may carry; returns its length.
    fn prepare_ack(&mut self, is_expected: bool) -> usize {
        self.ack_frame.clear();
        if is_expected || self.acks.is_pending() {
            let granted = self.inbox.credit().announce();
            self.acks.write(self.now_ns, granted, &mut self.ack_frame);
            if let Some(size) = self.answer {
                push_answer(&mut self.ack_frame, size);
            }
        }
        self.ack_frame.len()
    }

    /// Discards packets at the front that are too large for the path now.
    #[inline]
    fn discard_large_packets(&mut self) {
        let max = packet_max(self.mtu.size());
        while self.packets_out.front_len().is_some_and(|len| len > max) {
            self.packets_out.pop();
            self.counters.packets_too_large += 1;
        }
    }

    /// Returns the block or part to send; for a probe possibly a repeated one.
    #[inline]
    fn pick_piece(&mut self) -> Option<Piece> {
        let pending = self.blocks.pending();
        if pending.is_none() && self.recovery.must_probe() {
            return self.blocks.oldest_sent();
        }
        pending
    }

    /// Appends the packets that fit; returns whether there are any.
    #[inline]
    fn append_packets(&mut self, out: &mut Vec<u8>, end: usize) -> bool {
        let start = out.len();
        while let Some(len) = self.packets_out.front_len()
            && out.len() + FRAME_HEAD + len <= end
            && let Some(((), packet)) = self.packets_out.pop()
        {
            push_packet(out, packet);
            self.counters.packets_sent += 1;
        }
        out.len() > start
    }

    /// Pads a datagram that is almost full to its full length, if others follow, so that all have
    /// the same.
    #[inline]
    fn pad(&self, out: &mut Vec<u8>, end: usize, room: usize) {
        let is_almost_full = out.len() + room / 8 >= end && out.len() < end;
        if is_almost_full && (self.blocks.has_pending() || !self.packets_out.is_empty()) {
            out.push(PADDING);
            out.resize(end, 0);
        }
    }

    /// Writes the header of the datagram from `start` on, encrypts it and appends the tag.
    #[inline]
    pub(super) fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let (version, phase, number) = (VERSION, self.send_keys.mark(), self.next_number);
        let header = Header { version, phase, connection: self.send_id, number };
        if let Some((bytes, frames)) = out[start..].split_first_chunk_mut::<HEADER_LEN>() {
            header.write(bytes);
            let tag = self.send_keys.seal(number, bytes, frames);
            out.extend_from_slice(&tag);
        }
    }
}

const _: () = assert!(DATAGRAM_OVERHEAD == HEADER_LEN + TAG_LEN);
