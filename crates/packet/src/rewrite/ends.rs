//! Combined endpoint rewrites for one direction of a flow. The writes of several NFs become one,
//! and checksums change once, by precomputed sums (B15, B16).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{End, RewriteError, fold};
use crate::{Endpoint, Packet, parse};

/// The new endpoints of packets that all had the same ones.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NewEnds {
    source: Endpoint,
    destination: Endpoint,
    /// Amounts that all writes together add to the sums of an IPv4 header and of a segment or
    /// datagram, in native byte order.
    network_sum: u16,
    transport_sum: u16,
    /// Set of the ends that are written: see [`bit`].
    written: u8,
    /// Set if all written addresses are IPv4.
    is_v4: u8,
}

/// Returns the bit of an end.
const fn bit(end: End) -> u8 {
    match end {
        End::Source => 1,
        End::Destination => 2,
    }
}

/// Endpoints while NFs rewrite them one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndsDraft {
    /// The endpoints so far, without the sums.
    new: NewEnds,
    /// Amounts added to the sums of an IPv4 header and of a segment or datagram.
    network: u64,
    transport: u64,
}

impl EndsDraft {
    /// Returns a draft for packets from `source` to `destination`.
    #[inline(always)]
    pub fn new((source, destination): (Endpoint, Endpoint)) -> EndsDraft {
        let new = NewEnds { source, destination, is_v4: 1, ..NewEnds::default() };
        EndsDraft { new, network: 0, transport: 0 }
    }

    /// Restarts the draft with the endpoints of this packet.
    #[inline(always)]
    pub fn begin(&mut self, packet: &Packet) {
        match parse::plain_ends(packet) {
            Some(ends) => *self = EndsDraft::new(ends),
            None => self.begin_any(packet),
        }
    }

    #[inline(never)]
    fn begin_any(&mut self, packet: &Packet) {
        *self = EndsDraft::new(parse::ends(packet));
    }

    /// Returns the source so far.
    #[inline(always)]
    pub fn source(&self) -> Endpoint {
        self.new.source
    }

    /// Returns the destination so far.
    #[inline(always)]
    pub fn destination(&self) -> Endpoint {
        self.new.destination
    }

    /// Rewrites address and port of one end.
    #[inline(always)]
    pub fn set_end(&mut self, end: End, to: Endpoint) {
        let there = match end {
            End::Source => &mut self.new.source,
            End::Destination => &mut self.new.destination,
        };
        let word = |endpoint: &Endpoint| u32::from_ne_bytes(endpoint.addr.v4_bytes());
        let address = u64::from(!word(there)) + u64::from(word(&to));
        self.network += address;
        self.transport += address + u64::from(!there.port.to_be()) + u64::from(to.port.to_be());
        self.new.is_v4 &= u8::from(to.addr.is_v4());
        self.new.written |= bit(end);
        *there = to;
    }

    /// Combines all writes.
    #[inline(always)]
    pub fn finish(&mut self) -> &NewEnds {
        self.new.network_sum = !fold(self.network);
        self.new.transport_sum = !fold(self.transport);
        &self.new
    }
}

impl NewEnds {
    /// Returns the combined effect of these writes on packets from `source` to `destination`.
    pub fn new(ends: (Endpoint, Endpoint), writes: impl IntoIterator<Item = (End, Endpoint)>) -> NewEnds {
        let mut draft = EndsDraft::new(ends);
        writes.into_iter().for_each(|(end, to)| draft.set_end(end, to));
        *draft.finish()
    }

    /// Returns the written ends and their values.
    pub fn writes(&self) -> impl Iterator<Item = (End, Endpoint)> {
        let ends = [(End::Source, self.source), (End::Destination, self.destination)];
        ends.into_iter().filter(|&(end, _)| self.written & bit(end) != 0)
    }
}

impl Packet {
    /// Rewrites the endpoints. With `known`, the packet is known to have the endpoints that `new`
    /// replaces; otherwise they are compared first.
    ///
    /// # Errors
    /// An address is of the other IP version.
    #[inline(always)]
    pub fn set_ends(&mut self, new: &NewEnds, known: bool) -> Result<(), RewriteError> {
        if known && self.set_ends_plain(new) { Ok(()) } else { self.set_ends_any(new) }
    }

    #[inline(never)]
    fn set_ends_any(&mut self, new: &NewEnds) -> Result<(), RewriteError> {
        new.writes().try_for_each(|(end, to)| self.set_end(end, to))
    }

    /// Handles the common case in one go, as in `set_end_plain`. Returns false if nothing was
    /// changed.
    #[inline(always)]
    fn set_ends_plain(&mut self, new: &NewEnds) -> bool {
        let (data, meta) = self.parts_mut();
        let is_udp = meta.protocol == parse::protocol::UDP;
        let Some((h, rest)) = data.get_mut(meta.l3 as usize..).and_then(<[u8]>::split_first_chunk_mut::<24>)
        else {
            return false;
        };
        let Some(checksum) = (if is_udp { rest.get_mut(2..4) } else { rest.get_mut(12..14) }) else {
            return false;
        };
        if !meta.is_plain() || new.is_v4 == 0 {
            return false;
        }
        h[12..16].copy_from_slice(&new.source.addr.v4_bytes());
        h[16..20].copy_from_slice(&new.destination.addr.v4_bytes());
        h[20..22].copy_from_slice(&new.source.port.to_be_bytes());
        h[22..24].copy_from_slice(&new.destination.port.to_be_bytes());
        let sum = fold(u64::from(new.network_sum) + u64::from(!u16::from_ne_bytes([h[10], h[11]])));
        h[10..12].copy_from_slice(&sum.to_ne_bytes());
        let old_sum = u16::from_ne_bytes([checksum[0], checksum[1]]);
        if is_udp && old_sum == 0 {
            return true; // The sender computed none.
        }
        let sum = fold(u64::from(new.transport_sum) + u64::from(!old_sum));
        let sum = if is_udp && sum == 0 { 0xffff } else { sum };
        checksum.copy_from_slice(&sum.to_ne_bytes());
        true
    }
}
