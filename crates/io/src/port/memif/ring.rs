//! A ring of descriptors in memory of two processes: one side fills buffers, the other takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::region::Region;

/// The first word of a ring.
pub const COOKIE: u32 = 0x03e3_1f20;

/// Logarithm of the longest ring.
pub const LOG2_MAX: u8 = 14;

/// Offsets of flags, indexes and descriptors: on cache lines of their own.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

/// Bytes of a descriptor.
const DESCRIPTOR_LEN: usize = 16;

/// Flag of a ring: the receiver is awake, and needs no interrupt.
const NO_INTERRUPT: u16 = 1;

/// Flag of a descriptor: the frame continues in the next one.
const CONTINUED: u16 = 1;

/// A buffer: empty, or with a piece of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    pub is_continued: bool,
    pub region: u16,
    /// Bytes of the piece, or of the empty buffer.
    pub len: u32,
    pub offset: u32,
}

impl Descriptor {
    /// Decodes flags, region and length, then the offset; metadata follow, which are unused.
    fn of([first, second]: [u64; 2]) -> Descriptor {
        let ([f0, f1, r0, r1, l0, l1, l2, l3], [o0, o1, o2, o3, ..]) =
            (first.to_ne_bytes(), second.to_ne_bytes());
        Descriptor {
            is_continued: u16::from_ne_bytes([f0, f1]) & CONTINUED != 0,
            region: u16::from_ne_bytes([r0, r1]),
            len: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }

    fn words(self) -> [u64; 2] {
        let [f0, f1] = (if self.is_continued { CONTINUED } else { 0 }).to_ne_bytes();
        let ([r0, r1], [l0, l1, l2, l3]) = (self.region.to_ne_bytes(), self.len.to_ne_bytes());
        let [o0, o1, o2, o3] = self.offset.to_ne_bytes();
        let first = u64::from_ne_bytes([f0, f1, r0, r1, l0, l1, l2, l3]);
        [first, u64::from_ne_bytes([o0, o1, o2, o3, 0, 0, 0, 0])]
    }
}

/// A ring.
pub struct Ring {
    region: Arc<Region>,
    at: usize,
    log2: u8,
}

/// One of a ring's two indexes, modulo 2^16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The client's: frames that it has sent, or buffers that it has given.
    Head,
    /// The server's: frames that it has taken, or that it has sent.
    Tail,
}

impl Ring {
    /// Returns the bytes of a ring with this number of descriptors.
    pub const fn size(log2: u8) -> usize {
        DESCRIPTORS + (DESCRIPTOR_LEN << log2)
    }

    /// Returns the ring at this offset of a region; none if it is not within it, or not aligned.
    pub fn new(region: Arc<Region>, at: usize, log2: u8) -> Option<Ring> {
        let is_there = log2 <= LOG2_MAX
            && at.is_multiple_of(DESCRIPTOR_LEN)
            && at.checked_add(Ring::size(log2)).is_some_and(|end| end <= region.len());
        is_there.then_some(Ring { region, at, log2 })
    }

    /// Returns the number of descriptors.
    pub fn len(&self) -> u16 {
        1 << self.log2
    }

    /// Initialises an empty ring.
    pub fn begin(&self) {
        let mut first = [0; 8];
        first[..4].copy_from_slice(&COOKIE.to_ne_bytes());
        // `new` has checked that it is within the region.
        let _ = self.region.copy_in(self.at, &first);
        self.set(Count::Tail, 0);
    }

    /// Returns whether the ring is initialised.
    pub fn has_cookie(&self) -> bool {
        let mut cookie = [0; 4];
        self.region.copy_out(self.at, &mut cookie) && u32::from_ne_bytes(cookie) == COOKIE
    }

    /// Returns an index. Everything that the other side did before it set the index is visible.
    pub fn get(&self, count: Count) -> u16 {
        self.number(self.place(count)).map_or(0, |number| number.load(Ordering::Acquire))
    }

    /// Sets an index, and publishes everything that was done before.
    pub fn set(&self, count: Count, value: u16) {
        if let Some(number) = self.number(self.place(count)) {
            number.store(value, Ordering::Release);
        }
    }

    /// Reads the descriptor with this number, modulo the length.
    #[inline]
    pub fn descriptor(&self, number: u16) -> Descriptor {
        Descriptor::of(self.region.words(self.descriptor_at(number)).unwrap_or_default())
    }

    /// Sets the descriptor with this number.
    #[inline]
    pub fn set_descriptor(&self, number: u16, descriptor: Descriptor) {
        self.region.set_words(self.descriptor_at(number), descriptor.words());
    }

    /// Returns whether the receiver wants an interrupt for the frames published before.
    pub fn wants_interrupt(&self) -> bool {
        // The receiver requests interrupts, and then looks for frames: at least one side sees the
        // other's write.
        fence(Ordering::SeqCst);
        self.number(FLAGS).is_none_or(|flags| flags.load(Ordering::Relaxed) & NO_INTERRUPT == 0)
    }

    /// Turns interrupts on or off. There is none for frames that were published before.
    pub fn set_interrupts(&self, wants: bool) {
        if let Some(flags) = self.number(FLAGS) {
            flags.store(if wants { 0 } else { NO_INTERRUPT }, Ordering::Relaxed);
        }
        if wants {
            fence(Ordering::SeqCst);
        }
    }

    fn place(&self, count: Count) -> usize {
        match count {
            Count::Head => HEAD,
            Count::Tail => TAIL,
        }
    }

    fn number(&self, at: usize) -> Option<&AtomicU16> {
        self.region.number(self.at + at)
    }

    fn descriptor_at(&self, number: u16) -> usize {
        self.at + DESCRIPTORS + DESCRIPTOR_LEN * usize::from(number & (self.len() - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_offsets_of_dpdk_and_vpp() {
        let (region, _file) = Region::make(4096).unwrap();
        let region = Arc::new(region);
        let ring = Ring::new(Arc::clone(&region), 64, 3).unwrap();
        ring.begin();
        ring.set(Count::Head, 0x0102);
        ring.set(Count::Tail, 0x0304);
        ring.set_interrupts(false);
        let descriptor = Descriptor { is_continued: true, region: 2, len: 0x0a0b, offset: 0x0c0d };
        ring.set_descriptor(9, descriptor);
        assert_eq!(ring.descriptor(1), descriptor);
        let mut bytes = [0; 256];
        assert!(region.copy_out(64, &mut bytes));
        assert_eq!(bytes[..8], [0x20, 0x1f, 0xe3, 0x03, 1, 0, 2, 1]);
        assert_eq!(bytes[64..66], [4, 3]);
        assert_eq!(bytes[144..160], [1, 0, 2, 0, 0x0b, 0x0a, 0, 0, 0x0d, 0x0c, 0, 0, 0, 0, 0, 0]);
        assert!(ring.has_cookie() && !ring.wants_interrupt());
    }

    #[test]
    fn a_ring_beyond_its_region_is_refused() {
        let (region, _file) = Region::make(4096).unwrap();
        let region = Arc::new(region);
        let ring = |at, log2| Ring::new(Arc::clone(&region), at, log2);
        assert!(ring(0, 7).is_some() && ring(4096 - 256, 3).is_some());
        assert!(ring(4096 - 240, 3).is_none() && ring(8, 3).is_none());
        assert!(ring(0, 8).is_none() && ring(0, 15).is_none() && ring(0, 255).is_none());
        assert!(ring(usize::MAX - 15, 3).is_none());
    }
}
