//! Packets to the other site: encoding.

use nf::{Context, PacketView, PayloadCache};
use packet::parse::protocol;
use packet::{DropReason, PacketClass};

use super::outline::PacketOutline;
use super::report::PeerState;
use super::shim::{self, CacheReference, SHIM_LEN, TOKEN_LEN, TOKENS_MAX};
use super::{COUNTERS, METERS, Re, SENT, Scratch, State};
use crate::rabin::Sample;

impl Re {
    /// Encodes the packet, if that makes it shorter, and caches its payload.
    pub(super) fn send(
        &self,
        outline: &PacketOutline,
        packet: &mut PacketView<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if outline.protocol == self.protocol {
            return Err(DropReason::ReClash);
        }
        let Some(payload) = outline.content(packet.outermost()) else {
            context.count(COUNTERS.packets_plain, 1);
            return Ok(());
        };
        let may_be_encoded = self.may_be_encoded(packet, state, context);
        self.rabin.sample(payload, &mut scratch.samples);
        let sent = context.payload_cache(SENT);
        scratch.tokens.clear();
        if may_be_encoded {
            find_regions(sent, payload, &scratch.samples, self.rabin.window(), &mut scratch.tokens);
        }
        super::keep(sent, payload, &scratch.samples);
        context.release_shared(); // The rest takes long.
        let regions: usize = scratch.tokens.iter().map(|token| usize::from(token.len)).sum();
        let stands_for_them = SHIM_LEN + scratch.tokens.len() * TOKEN_LEN;
        if regions <= stands_for_them {
            context.count(COUNTERS.packets_plain, 1);
            return Ok(());
        }
        shim::write(outline.protocol, payload, &scratch.tokens, &mut scratch.payload);
        packet.replace_payload(self.protocol, &scratch.payload)?;
        context.count(COUNTERS.packets_encoded, 1);
        context.count(COUNTERS.regions, scratch.tokens.len() as u64);
        context.count(COUNTERS.bytes_saved, (regions - stands_for_them) as u64);
        Ok(())
    }

    /// Returns whether the other end can presumably decode the packet, and it is not a
    /// retransmission after a failure.
    #[inline]
    fn may_be_encoded(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> bool {
        if state.is_sent_again(packet) {
            context.count(COUNTERS.retransmissions, 1);
            return false;
        }
        let now_ns = context.now_ns();
        let is_alive =
            self.patience_ns == 0 || PeerState(context.meters(METERS)).is_alive(self.patience_ns, now_ns);
        context.count(COUNTERS.payloads_unconfirmed, u64::from(!is_alive));
        is_alive
    }
}

impl State {
    /// Returns whether a TCP segment is a retransmission or opens a connection, by its sequence
    /// number (RFC 9293 3.4). Sent unencoded, it arrives however often its encoded form was lost.
    #[inline]
    fn is_sent_again(&mut self, packet: &PacketView<'_>) -> bool {
        const SYN: u8 = 2;
        if packet.meta().protocol != protocol::TCP || packet.meta().class != PacketClass::Whole {
            return false;
        }
        let Some(&[_, _, _, _, a, b, c, d, _, _, _, _, _, flags]) = packet.transport().first_chunk() else {
            return false;
        };
        let first = u32::from_be_bytes([a, b, c, d]);
        let end = first.wrapping_add(packet.payload().len() as u32);
        if flags & SYN != 0 {
            *self = State { end: end.wrapping_add(1), is_known: 1 };
            return true;
        }
        let is_before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() < 0;
        let is_again = self.is_known == 1 && is_before(first, self.end);
        if self.is_known == 0 || is_before(self.end, end) {
            *self = State { end, is_known: 1 };
        }
        is_again
    }
}

/// Finds regions of the payload that were sent before, by extending the match of each known
/// fingerprint in both directions. Regions do not overlap, and each is longer than its token.
#[inline]
fn find_regions(
    sent: &PayloadCache,
    payload: &[u8],
    samples: &[Sample],
    window: usize,
    tokens: &mut Vec<CacheReference>,
) {
    let mut end = 0;
    for sample in samples {
        let at = usize::from(sample.at);
        if at < end {
            continue;
        }
        let Some(found) = sent.find(sample.fingerprint) else { continue };
        // The entry may be of another fingerprint, or of another window with this one.
        let Some((here, there)) = payload.get(at..).zip(found.payload.get(found.offset..)) else { continue };
        let forwards = same_bytes(here, there);
        if forwards < window {
            continue;
        }
        let before = same_bytes_before(&payload[end..at], &found.payload[..found.offset]);
        // All are shorter than a payload, and its length fits 16 bits.
        let (place, len) = ((at - before) as u16, (before + forwards) as u16);
        tokens.push(CacheReference { fingerprint: sample.fingerprint, place, len, before: before as u16 });
        end = at + forwards;
        if tokens.len() == TOKENS_MAX {
            return;
        }
    }
}

/// Returns the length of the common prefix.
#[inline]
fn same_bytes(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).take_while(|(a, b)| a == b).count();
    let at = 8 * words;
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Returns the length of the common suffix.
#[inline]
fn same_bytes_before(a: &[u8], b: &[u8]) -> usize {
    let ends = a.as_rchunks::<8>().1.iter().rev().zip(b.as_rchunks::<8>().1.iter().rev());
    let at = 8 * ends.take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - at], &b[..b.len() - at]);
    at + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_compared_to_the_first_that_differs() {
        let a: Vec<u8> = (0..40).collect();
        for at in 0..40 {
            let mut b = a.clone();
            b[at] ^= 1;
            assert_eq!((same_bytes(&a, &b), same_bytes_before(&a, &b)), (at, 39 - at));
            assert_eq!((same_bytes(&a, &a[..at]), same_bytes_before(&a, &a[at..])), (at, 40 - at));
        }
    }
}
