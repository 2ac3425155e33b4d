//! Received datagrams.

use super::{Decisions, PeerLink, has_packet_room};
use crate::datagram::{DATAGRAM_MAX, DATAGRAM_OVERHEAD, HEADER_LEN, Header, VERSION};
use crate::errors::DatagramRefusal;
use crate::events::DeadReason;
use crate::frames::{AckFrame, Frame, Malformed, next_frame};
use crate::keys::{FORGED_MAX, OpenFault, Opened, TAG_LEN};

impl PeerLink {
    /// Takes a received datagram, and decrypts it in place.
    ///
    /// # Errors
    ///
    /// The datagram was refused and counted; nothing else has changed.
    pub fn handle_datagram(&mut self, now_ns: u64, datagram: &mut [u8]) -> Result<(), DatagramRefusal> {
        let now_ns = self.advance(now_ns);
        let len = datagram.len();
        let (number, frames) = match self.open(now_ns, datagram) {
            Ok(opened) => opened,
            Err(refusal) => {
                self.counters.refused.count(refusal);
                if self.counters.refused.forged >= FORGED_MAX {
                    self.end(DeadReason::Forgeries);
                }
                return Err(refusal);
            }
        };
        self.counters.datagrams_received += 1;
        self.counters.datagram_bytes_received += len as u64;
        self.handle_authentic(now_ns, number, frames);
        Ok(())
    }

    /// Takes the frames of a datagram as if it were authentic, so that a fuzzer reaches the code
    /// after the authentication.
    #[cfg(fuzzing)]
    pub fn handle_plaintext(&mut self, now_ns: u64, number: u64, frames: &[u8]) {
        let now_ns = self.advance(now_ns);
        if self.dead.is_none() && self.acks.window.is_new(number) {
            self.handle_authentic(now_ns, number, frames);
        }
    }

    /// Verifies and decrypts a datagram; returns its number and frames.
    #[inline]
    fn open<'a>(&mut self, now_ns: u64, datagram: &'a mut [u8]) -> Result<(u64, &'a [u8]), DatagramRefusal> {
        if self.dead.is_some() {
            return Err(DatagramRefusal::Dead);
        }
        if datagram.len() > DATAGRAM_MAX {
            return Err(DatagramRefusal::Oversized);
        }
        if datagram.len() < DATAGRAM_OVERHEAD {
            return Err(DatagramRefusal::Truncated);
        }
        let header = Header::parse(datagram).ok_or(DatagramRefusal::Truncated)?;
        if header.version != VERSION {
            return Err(DatagramRefusal::Version);
        }
        if header.connection != self.receive_id {
            return Err(DatagramRefusal::Connection);
        }
        if !self.acks.window.is_new(header.number) {
            return Err(DatagramRefusal::Replayed);
        }
        let (bytes, frames) = datagram.split_at_mut(HEADER_LEN);
        let (frames, tag) = frames.split_last_chunk_mut::<TAG_LEN>().ok_or(DatagramRefusal::Truncated)?;
        let opened = self.receive_keys.open(now_ns, (header.phase, header.number), bytes, frames, *tag);
        match opened {
            Ok(opened) => self.counters.peer_keys_rotated += u64::from(opened == Opened::Rotated),
            Err(OpenFault::Phase) => return Err(DatagramRefusal::Phase),
            Err(OpenFault::Forged) => return Err(DatagramRefusal::Forged),
        }
        Ok((header.number, frames))
    }

    #[inline]
    pub(super) fn handle_authentic(&mut self, now_ns: u64, number: u64, frames: &[u8]) {
        if self.life.hear(now_ns) {
            self.events.up = true;
            self.recovery.reset_backoff();
        }
        let is_reordered = self.acks.note(now_ns, number);
        match self.handle_frames(now_ns, frames) {
            Ok(true) => self.acks.expect(now_ns, is_reordered),
            Ok(false) => {}
            Err(Malformed) => self.end(DeadReason::Violation),
        }
    }

    /// Handles all frames of a datagram; returns whether it must be acknowledged.
    #[inline]
    fn handle_frames(&mut self, now_ns: u64, mut frames: &[u8]) -> Result<bool, Malformed> {
        let mut must_ack = false;
        while let Some(frame) = next_frame(&mut frames)? {
            match frame {
                Frame::Block { number, parts } => {
                    must_ack = true;
                    let is_new = self.inbox.receive(number, parts)?;
                    self.counters.blocks_repeated += u64::from(!is_new);
                }
                Frame::Packet(packet) => {
                    must_ack = true;
                    if has_packet_room(&self.packets_in, packet.len(), self.config.packet_buffer) {
                        self.packets_in.push((), packet);
                    } else {
                        self.counters.packets_discarded += 1;
                    }
                }
                Frame::Ack(ack) => self.handle_ack(now_ns, ack)?,
                Frame::Ping => must_ack = true,
                Frame::Probe(size) => {
                    self.answer = self.answer.max(Some(size));
                    self.acks.hurry();
                }
                Frame::Answer(size) => self.handle_answer(size.into()),
                Frame::Piece { number, total, offset, bytes } => {
                    must_ack = true;
                    let is_new = self.inbox.receive_piece(number, total.into(), offset, bytes)?;
                    self.counters.blocks_repeated += u64::from(!is_new);
                }
                Frame::Close => self.end(DeadReason::Closed),
                Frame::Unknown => self.counters.frames_unknown += 1,
            }
        }
        Ok(must_ack)
    }

    fn handle_ack(&mut self, now_ns: u64, ack: AckFrame<'_>) -> Result<(), Malformed> {
        if ack.largest >= self.next_number {
            return Err(Malformed);
        }
        self.counters.acks_received += 1;
        self.send_keys.confirm(ack.largest);
        self.life.confirm(ack.largest);
        self.blocks.note_grant(ack.granted);
        let rtt_ns = self.recovery.rtt.smoothed_ns();
        let mut decisions =
            Decisions { blocks: &mut self.blocks, mtu: &mut self.mtu, counters: &mut self.counters, rtt_ns };
        let mut is_narrower = false;
        self.recovery.note_ack(now_ns, ack, |sent, fate| is_narrower |= decisions.decide(sent, fate))?;
        if is_narrower {
            self.lower_mtu(self.mtu.above_size());
        }
        if self.events.is_room_awaited && self.blocks.has_room() {
            (self.events.is_room_awaited, self.events.room) = (false, true);
        }
        Ok(())
    }
}
