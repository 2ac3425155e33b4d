//! Datagrams to send.

use super::PeerLink;
use crate::datagram::{DATAGRAM_OVERHEAD, HEADER_LEN, Header, VERSION};
use crate::events::DeadReason;
use crate::frames::{BLOCK_HEAD, FRAME_HEAD, PADDING, push_block, push_packet, push_ping};
use crate::keys::TAG_LEN;

/// Datagrams of one [`PeerLink::poll_transmit`], at most (Linux: `UDP_MAX_SEGMENTS`).
pub const TRANSMIT_DATAGRAMS_MAX: usize = 64;

/// Bytes of one [`PeerLink::poll_transmit`], at most: the payload of UDP over IPv4.
pub const TRANSMIT_BYTES_MAX: usize = 65_507;

/// Datagrams to send together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Length of each datagram but the last, which may be shorter (`UDP_SEGMENT`).
    pub segment: usize,
    /// Length of all of them.
    pub len: usize,
}

/// The contents of a datagram in the making.
#[derive(Default)]
struct Contents {
    block: Option<u64>,
    /// Set if the peer acknowledges it.
    must_ack: bool,
    has_ack: bool,
}

impl PeerLink {
    /// Fills `out` with datagrams to send now, all of one length, of which only the last may be
    /// shorter; none if there is nothing to send. Former contents of `out` are cleared.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let now_ns = self.advance(now_ns);
        out.clear();
        let mut segment = self.config.mtu;
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
        (!out.is_empty()).then_some(Transmit { segment, len: out.len() })
    }

    /// Appends a datagram of at most `room` bytes; returns its length, or 0 if there is nothing to
    /// send that fits.
    fn append_datagram(&mut self, now_ns: u64, room: usize, out: &mut Vec<u8>) -> usize {
        if self.dead.is_some() {
            return 0;
        }
        let rotated = self.send_keys.prepare(self.next_number);
        let Ok(rotated) = rotated else {
            self.end(DeadReason::KeyExhausted);
            return 0;
        };
        self.counters.keys_rotated += u64::from(rotated);
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
            self.counters.acks_sent += 1;
        }
        let number = self.next_number;
        if let Some(block) = contents.block {
            self.counters.blocks_retransmitted += u64::from(self.blocks.note_sent(block, number));
        }
        if contents.must_ack {
            self.recovery.note_sent(now_ns, number, contents.block, len);
        }
        self.next_number += 1;
        self.counters.datagrams_sent += 1;
        self.counters.datagram_bytes_sent += len as u64;
        len
    }

    /// Appends frames, up to position `end`.
    #[inline]
    fn append_frames(&mut self, now_ns: u64, out: &mut Vec<u8>, end: usize) -> Contents {
        let mut contents = Contents::default();
        if self.is_up && self.inbox.credit().is_grant_stale() {
            self.acks.hurry();
        }
        let is_ack_expected = self.acks.is_expected(now_ns);
        let ack_len = self.prepare_ack(is_ack_expected);
        let may_send = self.recovery.may_send();
        let block = if may_send { self.pick_block() } else { None };
        let has_packets = may_send && !self.packets_out.is_empty();
        self.recovery.congestion.note_use(may_send && block.is_none() && !has_packets);
        if let Some(block) = block
            && !(self.is_packets_turn && has_packets)
        {
            self.is_packets_turn = true;
            let bytes = self.blocks.bytes(block);
            let free = (end - out.len()).checked_sub(BLOCK_HEAD + bytes.len());
            contents.has_ack = ack_len > 0 && (is_ack_expected || free.is_some_and(|free| ack_len <= free));
            // An acknowledgement that cannot wait and does not fit beside the block goes alone.
            if free.is_none_or(|free| contents.has_ack && ack_len > free) {
                contents.has_ack &= self.append_ack(out, end);
                return contents;
            }
            push_block(out, block, bytes);
            (contents.block, contents.must_ack) = (Some(block), true);
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
        if self.recovery.must_probe() && !contents.must_ack && out.len() + FRAME_HEAD <= end {
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
        }
        self.ack_frame.len()
    }

    /// Returns the block to send; for a probe also one that was sent before.
    #[inline]
    fn pick_block(&mut self) -> Option<u64> {
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
    fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
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
