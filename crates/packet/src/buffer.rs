//! Owned packets and the pool that they come from.

use crate::Meta;
use crate::memory::{LINE, prefetch};

/// Room kept free before a packet's first byte, so that headers can be pushed without moving the
/// payload: an IPv6, a UDP and a tunnel header with options, twice. So many bytes that Ethernet,
/// IPv4 and TCP headers lie in one cache line.
pub const HEADROOM: usize = 248;

/// Bytes of a small buffer, headroom included. An odd number of cache lines with what stands before
/// them, so that buffers side by side do not fall onto the same cache sets.
pub const SMALL_ROOM: usize = 2096;

/// Bytes of a large buffer: the longest record of a capture file (262,144) with headroom and some
/// tailroom.
pub const LARGE_ROOM: usize = 262_144 + 2 * HEADROOM;

/// A packet: its bytes with room around them, and what is known of it.
///
/// It is owned by whoever holds it and moves as a pointer. To be given back to a [`PacketPool`]; one that
/// is only dropped frees its memory, and its pool can make that many fewer.
pub struct Packet(Box<Frame<[u8]>>);

#[repr(C, align(64))]
struct Frame<R: ?Sized> {
    head: u32,
    len: u32,
    meta: Meta,
    room: R,
}

/// Cache lines of what is known of a packet.
const KNOWN_LINES: usize = std::mem::offset_of!(Frame<[u8; SMALL_ROOM]>, room).div_ceil(LINE);

impl<R: ?Sized> Frame<R> {
    /// Where in the room the packet's bytes are.
    #[inline(always)]
    fn bytes(&self) -> std::ops::Range<usize> {
        let head = self.head as usize;
        head..head + self.len as usize
    }
}

/// There is not enough room before or behind the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for {wanted} more bytes in the packet's buffer ({available} free)")]
pub struct NoRoom {
    /// How many bytes were wanted.
    pub wanted: usize,
    /// How many were free on that side.
    pub available: usize,
}

impl Packet {
    /// A packet of its own, outside any pool: for tests and for control paths.
    pub fn from_bytes(data: &[u8]) -> Packet {
        let mut packet = if data.len() + HEADROOM <= SMALL_ROOM { new_small() } else { new_large() };
        let fits = data.len().min(packet.0.room.len() - HEADROOM);
        let received = packet.receive(&data[..fits]);
        debug_assert!(received.is_ok());
        packet.0.meta.wire_len = data.len() as u32;
        packet
    }

    /// The bytes, from the link-layer header on.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let frame = &*self.0;
        &frame.room[frame.bytes()]
    }

    /// The bytes, to be changed. Whoever changes the length that the IP header says, after the
    /// packet was parsed, sets [`Meta::plain_len`] to 0.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let frame = &mut *self.0;
        let bytes = frame.bytes();
        &mut frame.room[bytes]
    }

    /// What is known of the packet.
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.0.meta
    }

    /// What is known of the packet, to be changed.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.0.meta
    }

    /// Bytes, as with [`Packet::data_mut`], and metadata at once.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut Meta) {
        let frame = &mut *self.0;
        let bytes = frame.bytes();
        (&mut frame.room[bytes], &mut frame.meta)
    }

    /// How many bytes there are.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // A packet is not a collection.
    pub fn len(&self) -> usize {
        self.0.len as usize
    }

    /// How many bytes can be pushed in front.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.0.head as usize
    }

    /// How many bytes can be added behind.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.0.room.len() - self.0.head as usize - self.0.len as usize
    }

    /// Adds `count` bytes in front; their content is undefined. The metadata's offsets are not
    /// touched.
    #[inline]
    pub fn push_front(&mut self, count: usize) -> Result<(), NoRoom> {
        let available = self.headroom();
        if count > available {
            return Err(NoRoom { wanted: count, available });
        }
        self.0.head -= count as u32;
        self.0.len += count as u32;
        Ok(())
    }

    /// Takes up to `count` bytes away in front.
    #[inline]
    pub fn pull_front(&mut self, count: usize) {
        let count = count.min(self.len()) as u32;
        self.0.head += count;
        self.0.len -= count;
    }

    /// Shortens the packet to at most `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len.min(u32::MAX as usize) as u32);
    }

    /// Adds `bytes` behind.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let available = self.tailroom();
        if bytes.len() > available {
            return Err(NoRoom { wanted: bytes.len(), available });
        }
        let end = self.0.head as usize + self.len();
        self.0.room[end..][..bytes.len()].copy_from_slice(bytes);
        self.0.len += bytes.len() as u32;
        Ok(())
    }

    /// Takes these bytes as content, with the default headroom before them, and fresh metadata:
    /// what a receiver does with an empty buffer.
    #[inline(always)]
    pub fn receive(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        let frame = &mut *self.0;
        let Some(room) = frame.room.get_mut(HEADROOM..).and_then(|room| room.get_mut(..data.len())) else {
            return Err(NoRoom { wanted: data.len(), available: frame.room.len().saturating_sub(HEADROOM) });
        };
        copy(data, room);
        frame.head = HEADROOM as u32;
        frame.len = data.len() as u32;
        frame.meta.receive(data.len() as u32);
        Ok(())
    }

    /// Asks for what is read first of a packet that another core has had: what is known of it, and
    /// where its headers are if nothing was pushed or pulled.
    #[inline]
    pub fn prefetch(&self) {
        let frame = &raw const *self.0;
        let bytes = frame.cast::<u8>();
        const HEADERS: usize = std::mem::offset_of!(Frame<[u8; SMALL_ROOM]>, room) + HEADROOM;
        (0..HEADERS).step_by(LINE).take(KNOWN_LINES).for_each(|at| prefetch(bytes.wrapping_add(at)));
        prefetch(bytes.wrapping_add(HEADERS));
    }

    fn is_small(&self) -> bool {
        self.0.room.len() == SMALL_ROOM
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packet").field("len", &self.len()).field("meta", self.meta()).finish()
    }
}

/// Copies all of `from` to `to`, which is as long: the shortest Ethernet frames, which come by the
/// million, without a call.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8]) {
    const HALF: usize = 32;
    if (HALF..=2 * HALF).contains(&from.len())
        && let (Some(head), Some(tail)) = (from.first_chunk::<HALF>(), from.last_chunk::<HALF>())
    {
        // They overlap where the frame is shorter than both.
        to[..HALF].copy_from_slice(head);
        let last = to.len() - HALF;
        to[last..].copy_from_slice(tail);
    } else {
        to.copy_from_slice(from);
    }
}

fn new_small() -> Packet {
    Packet(Box::new(Frame { meta: Meta::default(), head: 0, len: 0, room: [0; SMALL_ROOM] }))
}

fn new_large() -> Packet {
    Packet(Box::new(Frame { meta: Meta::default(), head: 0, len: 0, room: [0; LARGE_ROOM] }))
}

/// Where packets come from and go back to: a bounded number of buffers, made at the start (small
/// ones) or when first needed (large ones). Taking from an empty pool fails; the caller counts
/// [`crate::DropReason::NoBuffer`].
pub struct PacketPool {
    small: Vec<Packet>,
    large: Vec<Packet>,
    large_unmade: usize,
    refused: u64,
}

impl PacketPool {
    /// Large buffers that a pool makes at most, when first needed.
    pub const LARGE_MAX: usize = 256;

    /// A pool of `small` buffers of [`SMALL_ROOM`] bytes and up to [`PacketPool::LARGE_MAX`] of
    /// [`LARGE_ROOM`].
    pub fn new(small: usize) -> PacketPool {
        PacketPool {
            small: (0..small).map(|_| new_small()).collect(),
            large: Vec::new(),
            large_unmade: PacketPool::LARGE_MAX,
            refused: 0,
        }
    }

    /// A packet with these bytes and fresh metadata, or none if the pool is empty or the packet too
    /// long.
    #[inline]
    pub fn take(&mut self, data: &[u8]) -> Option<Packet> {
        let mut packet =
            if data.len() + HEADROOM <= SMALL_ROOM { self.small.pop() } else { self.take_large(data.len()) };
        match &mut packet {
            Some(packet) => packet.receive(data).ok()?, // It has room: so it was chosen.
            None => self.refused += 1,
        }
        packet
    }

    /// Adds up to `count` small buffers to `batch`, to be filled by [`Packet::receive`]; how many
    /// there were.
    #[inline]
    pub fn take_small(&mut self, count: usize, batch: &mut Vec<Packet>) -> usize {
        let rest = self.small.len().saturating_sub(count);
        let taken = self.small.len() - rest;
        batch.extend(self.small.drain(rest..));
        self.refused += (count - taken) as u64;
        taken
    }

    /// Gives a packet back.
    #[inline]
    pub fn give(&mut self, packet: Packet) {
        if packet.is_small() {
            self.small.push(packet);
        } else {
            self.large.push(packet);
        }
    }

    /// Gives packets back, all at once.
    #[inline]
    pub fn give_all(&mut self, packets: &mut Vec<Packet>) {
        if packets.iter().all(Packet::is_small) {
            self.small.append(packets);
        } else {
            packets.drain(..).for_each(|packet| self.give(packet));
        }
    }

    /// Moves packets to `out`: large ones, and small ones beyond this many.
    pub fn take_surplus(&mut self, keep: usize, out: &mut Vec<Packet>) {
        out.append(&mut self.large);
        out.extend(self.small.drain(keep.min(self.small.len())..));
    }

    /// Frees small buffers beyond this many.
    pub fn trim(&mut self, keep: usize) {
        self.small.truncate(keep);
    }

    /// Makes small buffers until there are this many.
    pub fn fill(&mut self, count: usize) {
        self.small.resize_with(count.max(self.small.len()), new_small);
    }

    /// Makes this many small buffers in the place of ones that were lost, by a panic.
    pub fn replace_lost(&mut self, count: usize) {
        self.fill(self.free() + count);
    }

    /// Whether a packet of `len` bytes could be taken now, if it is not too long at all.
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        if len + HEADROOM <= SMALL_ROOM {
            !self.small.is_empty()
        } else {
            !self.large.is_empty() || self.large_unmade > 0
        }
    }

    /// Small buffers that are free now.
    pub fn free(&self) -> usize {
        self.small.len()
    }

    /// How many times no buffer was to be had.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    #[cold]
    fn take_large(&mut self, len: usize) -> Option<Packet> {
        if len + HEADROOM > LARGE_ROOM {
            return None;
        }
        self.large.pop().or_else(|| {
            self.large_unmade = self.large_unmade.checked_sub(1)?;
            Some(new_large())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fills_an_odd_number_of_cache_lines() {
        assert_eq!(size_of::<Frame<[u8; SMALL_ROOM]>>() / 64 % 2, 1);
        assert!(size_of::<Meta>() <= 136, "{}", size_of::<Meta>());
    }

    #[test]
    fn common_headers_lie_in_one_cache_line() {
        const HEADERS: usize = 14 + 20 + 20;
        let start = std::mem::offset_of!(Frame<[u8; SMALL_ROOM]>, room) + HEADROOM;
        assert!(start % 64 + HEADERS <= 64, "they begin at byte {} of a line", start % 64);
    }

    #[test]
    fn headers_come_and_go_without_moving_the_payload() {
        let mut packet = Packet::from_bytes(b"payload");
        let at = packet.data().as_ptr();
        packet.push_front(4).unwrap();
        packet.data_mut()[..4].copy_from_slice(b"head");
        assert_eq!(packet.data(), b"headpayload");
        packet.pull_front(4);
        assert_eq!(packet.data().as_ptr(), at);
        packet.extend(b"!").unwrap();
        assert_eq!(packet.data(), b"payload!");
        packet.truncate(3);
        assert_eq!(packet.data(), b"pay");
        assert_eq!(
            packet.push_front(HEADROOM + 1),
            Err(NoRoom { wanted: HEADROOM + 1, available: HEADROOM })
        );
    }

    #[test]
    fn a_pool_is_bounded_and_takes_back() {
        let mut pool = PacketPool::new(2);
        let a = pool.take(&[1; 60]).unwrap();
        let _b = pool.take(&[2; 1500]).unwrap();
        assert!(!pool.has_room(60) && pool.has_room(60_000));
        assert!(pool.take(&[3; 60]).is_none());
        assert_eq!(pool.refused(), 1);
        pool.give(a);
        assert!(pool.has_room(60));
        assert_eq!(pool.take(&[4; 60]).unwrap().data(), &[4; 60]);
        let large = pool.take(&vec![5; 80_000]).unwrap();
        assert_eq!(large.len(), 80_000);
        pool.give(large);
        assert!(pool.take(&vec![6; 300_000]).is_none());
    }
}
