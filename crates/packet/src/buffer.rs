//! Owned packets and their pool.

use crate::Meta;
use crate::memory::{LINE, prefetch};

/// Bytes kept free in front of a packet, so that headers can be pushed without moving the payload:
/// enough for an IPv6, a UDP and a tunnel header with options, twice. Chosen so that Ethernet, IPv4
/// and TCP headers share a cache line.
pub const HEADROOM: usize = 248;

/// Size of a small buffer, headroom included. With its metadata an odd number of cache lines, so
/// that adjacent buffers do not map to the same cache sets.
pub const SMALL_ROOM: usize = 2096;

/// Size of a large buffer: the longest record of a capture file (262,144) with headroom and some
/// tailroom.
pub const LARGE_ROOM: usize = 262_144 + 2 * HEADROOM;

/// A packet: its bytes with room around them, and its metadata.
///
/// It has one owner and moves as a pointer. Return it to a [`PacketPool`]; a dropped packet frees
/// its memory, and the pool has one fewer.
pub struct Packet(Box<Frame<[u8]>>);

#[repr(C, align(64))]
struct Frame<R: ?Sized> {
    head: u32,
    len: u32,
    meta: Meta,
    room: R,
}

/// Cache lines of a packet's metadata.
const KNOWN_LINES: usize = std::mem::offset_of!(Frame<[u8; SMALL_ROOM]>, room).div_ceil(LINE);

impl<R: ?Sized> Frame<R> {
    /// Returns the range of the packet's bytes in the buffer.
    #[inline(always)]
    fn bytes(&self) -> std::ops::Range<usize> {
        let head = self.head as usize;
        head..head + self.len as usize
    }
}

/// Not enough room before or after the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for {wanted} more bytes in the packet's buffer ({available} free)")]
pub struct NoRoom {
    /// Bytes requested.
    pub wanted: usize,
    /// Bytes free on that side.
    pub available: usize,
}

impl Packet {
    /// Returns a packet outside any pool, for tests and control paths.
    pub fn from_bytes(data: &[u8]) -> Packet {
        let mut packet = if data.len() + HEADROOM <= SMALL_ROOM { new_small() } else { new_large() };
        let fits = data.len().min(packet.0.room.len() - HEADROOM);
        let received = packet.receive(&data[..fits]);
        debug_assert!(received.is_ok());
        packet.0.meta.wire_len = data.len() as u32;
        packet
    }

    /// Returns the bytes, from the link-layer header on.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let frame = &*self.0;
        &frame.room[frame.bytes()]
    }

    /// Returns the bytes for writing. After changing the IP header's length of a parsed packet, set
    /// [`Meta::plain_len`] to 0.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let frame = &mut *self.0;
        let bytes = frame.bytes();
        &mut frame.room[bytes]
    }

    /// Returns the metadata.
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.0.meta
    }

    /// Returns the metadata for writing.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.0.meta
    }

    /// Returns bytes, as with [`Packet::data_mut`], and metadata together.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut Meta) {
        let frame = &mut *self.0;
        let bytes = frame.bytes();
        (&mut frame.room[bytes], &mut frame.meta)
    }

    /// Returns the number of bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // A packet is not a collection.
    pub fn len(&self) -> usize {
        self.0.len as usize
    }

    /// Returns the number of bytes that can be pushed in front.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.0.head as usize
    }

    /// Returns the number of bytes that can be appended.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.0.room.len() - self.0.head as usize - self.0.len as usize
    }

    /// Adds `count` bytes of undefined content in front. The metadata's offsets are unchanged.
    ///
    /// # Errors
    /// There is no headroom.
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

    /// Removes up to `count` bytes in front.
    #[inline]
    pub fn pull_front(&mut self, count: usize) {
        let count = count.min(self.len()) as u32;
        self.0.head += count;
        self.0.len -= count;
    }

    /// Truncates the packet to at most `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len.min(u32::MAX as usize) as u32);
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// There is no room.
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

    /// Fills an empty buffer as a receiver does: copies the bytes after the default headroom and
    /// resets the metadata.
    ///
    /// # Errors
    /// The packet is longer than the buffer.
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

    /// Prefetches the parts that are read first of a packet from another core: its metadata, and
    /// its headers if none were pushed or pulled.
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

/// Copies `from` to `to`, of equal length. The shortest Ethernet frames, the most frequent ones,
/// are copied without a call.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8]) {
    const HALF: usize = 32;
    if (HALF..=2 * HALF).contains(&from.len())
        && let (Some(head), Some(tail)) = (from.first_chunk::<HALF>(), from.last_chunk::<HALF>())
    {
        // The halves overlap if the frame is shorter than both.
        if let Some(to) = to.first_chunk_mut() {
            *to = *head;
        }
        if let Some(to) = to.last_chunk_mut() {
            *to = *tail;
        }
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

/// A bounded pool of packets. Small buffers are allocated at the start, large ones on demand.
/// Taking from an empty pool fails; the caller counts [`crate::DropReason::NoBuffer`].
pub struct PacketPool {
    small: Vec<Packet>,
    large: Vec<Packet>,
    large_unmade: usize,
    refused: u64,
}

impl PacketPool {
    /// Limit on the large buffers of a pool, which are allocated on demand.
    pub const LARGE_MAX: usize = 256;

    /// Returns a pool of `small` buffers of [`SMALL_ROOM`] bytes and up to
    /// [`PacketPool::LARGE_MAX`] of [`LARGE_ROOM`].
    pub fn new(small: usize) -> PacketPool {
        PacketPool {
            small: (0..small).map(|_| new_small()).collect(),
            large: Vec::new(),
            large_unmade: PacketPool::LARGE_MAX,
            refused: 0,
        }
    }

    /// Allows this many large buffers instead of [`PacketPool::LARGE_MAX`]. None may be in use yet.
    #[must_use]
    pub fn with_large(self, count: usize) -> PacketPool {
        PacketPool { large_unmade: count, ..self }
    }

    /// Returns a packet with these bytes and fresh metadata. `None` if the pool is empty or the
    /// packet too long.
    #[inline]
    pub fn take(&mut self, data: &[u8]) -> Option<Packet> {
        let mut packet =
            if data.len() + HEADROOM <= SMALL_ROOM { self.small.pop() } else { self.take_large(data.len()) };
        match &mut packet {
            Some(packet) => packet.receive(data).ok()?, // It has room, by the choice above.
            None => self.refused += 1,
        }
        packet
    }

    /// Returns a packet with these bytes, as [`PacketPool::take`] does, and room for `more`.
    pub fn take_long(&mut self, data: &[u8], more: usize) -> Option<Packet> {
        let len = data.len() + more;
        if len + HEADROOM <= SMALL_ROOM {
            return self.take(data);
        }
        let mut packet = self.take_large(len);
        match &mut packet {
            Some(packet) => packet.receive(data).ok()?, // It has room, by the choice above.
            None => self.refused += 1,
        }
        packet
    }

    /// Adds up to `count` small buffers to `batch`, to be filled by [`Packet::receive`], and
    /// returns their number.
    pub fn take_small(&mut self, count: usize, batch: &mut Vec<Packet>) -> usize {
        let rest = self.small.len().saturating_sub(count);
        let taken = self.small.len() - rest;
        batch.extend(self.small.drain(rest..));
        self.refused += (count - taken) as u64;
        taken
    }

    /// Returns a packet to the pool.
    #[inline]
    pub fn give(&mut self, packet: Packet) {
        if packet.is_small() {
            self.small.push(packet);
        } else {
            self.large.push(packet);
        }
    }

    /// Returns several packets to the pool.
    #[inline]
    pub fn give_all(&mut self, packets: &mut Vec<Packet>) {
        if packets.iter().all(Packet::is_small) {
            self.small.append(packets);
        } else {
            packets.drain(..).for_each(|packet| self.give(packet));
        }
    }

    /// Moves packets to `out`: large ones, and small ones beyond `keep`.
    pub fn take_surplus(&mut self, keep: usize, out: &mut Vec<Packet>) {
        out.append(&mut self.large);
        out.extend(self.small.drain(keep.min(self.small.len())..));
    }

    /// Frees small buffers beyond `keep`.
    pub fn trim(&mut self, keep: usize) {
        self.small.truncate(keep);
    }

    /// Allocates small buffers up to `count`.
    pub fn fill(&mut self, count: usize) {
        self.small.resize_with(count.max(self.small.len()), new_small);
    }

    /// Allocates this many small buffers to replace those lost in a panic.
    pub fn replace_lost(&mut self, count: usize) {
        self.fill(self.free() + count);
    }

    /// Checks if a packet of `len` bytes can be taken now, provided that it is not too long for any
    /// buffer.
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        if len + HEADROOM <= SMALL_ROOM {
            !self.small.is_empty()
        } else {
            !self.large.is_empty() || self.large_unmade > 0
        }
    }

    /// Returns the number of free small buffers.
    pub fn free(&self) -> usize {
        self.small.len()
    }

    /// Returns the number of failed requests.
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
    fn buffer_fills_an_odd_number_of_cache_lines() {
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
    fn headers_are_pushed_and_pulled_in_place() {
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
    fn pool_is_bounded_and_reuses_buffers() {
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
