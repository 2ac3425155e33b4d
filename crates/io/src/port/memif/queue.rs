//! Frames in and out of rings, whatever the peer does with the memory: values from the peer are
//! read once, and checked before use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::doorbell;
use super::region::Region;
use super::ring::{Count, Descriptor, Ring};
use crate::port::offload::FRAME_LEN_MAX;

/// Frames received at once.
const FRAMES: usize = 64;

/// Bytes of frames after which a batch is full.
const BATCH_BYTES: usize = FRAMES * 2_048;

/// Fault of a broken or malicious peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// An index is beyond the ring.
    #[error("an index of its ring is out of range")]
    Index,
    /// A buffer is outside of the peer's memory.
    #[error("a buffer is outside of its memory")]
    Buffer,
    /// A frame has more pieces than the ring has descriptors.
    #[error("an endless frame")]
    Endless,
}

/// Position of a ring's buffers.
pub enum Buffers {
    /// The client's: it made one per descriptor, and does not trust the descriptors' offsets.
    Own { region: Arc<Region>, first: usize, len: u32 },
    /// The server's: at the offsets in the descriptors.
    Peer(Arc<[Arc<Region>]>),
}

impl Buffers {
    /// Returns the index that this side advances.
    fn count(&self) -> Count {
        match self {
            Buffers::Own { .. } => Count::Head,
            Buffers::Peer(_) => Count::Tail,
        }
    }

    /// Returns this side's own buffer of a descriptor.
    fn own(&self, ring: &Ring, number: u16) -> Option<Descriptor> {
        let Buffers::Own { first, len, .. } = self else { return None };
        let at = first + usize::from(number & (ring.len() - 1)) * *len as usize;
        Some(Descriptor { is_continued: false, region: 0, len: *len, offset: u32::try_from(at).ok()? })
    }

    #[inline]
    fn region(&self, descriptor: Descriptor) -> Option<&Region> {
        match self {
            Buffers::Own { region, .. } => Some(region),
            Buffers::Peer(regions) => regions.get(usize::from(descriptor.region)).map(|region| &**region),
        }
    }

    /// Copies the bytes of the descriptor with this number, already read as `descriptor`.
    #[inline]
    fn copy_out(&self, ring: &Ring, number: u16, descriptor: Descriptor, to: &mut [u8]) -> Option<()> {
        let at = match self {
            Buffers::Own { len, .. } => {
                if descriptor.len > *len {
                    return None;
                }
                self.own(ring, number)?
            }
            Buffers::Peer(_) => descriptor,
        };
        self.region(at)?.copy_out(at.offset as usize, to).then_some(())
    }
}

/// A batch of received frames.
pub struct Batch {
    bytes: Box<[u8]>,
    used: usize,
    lens: Vec<usize>,
    /// Frames that were too long or empty.
    pub unreadable: u64,
}

impl Batch {
    pub fn new() -> Batch {
        let bytes = vec![0; BATCH_BYTES + FRAME_LEN_MAX].into_boxed_slice();
        Batch { bytes, used: 0, lens: Vec::with_capacity(FRAMES), unreadable: 0 }
    }

    /// Returns the frames in order of arrival.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.lens.iter().map(move |&len| rest.split_off(..len).unwrap_or_default())
    }

    fn clear(&mut self) {
        (self.used, self.unreadable) = (0, 0);
        self.lens.clear();
    }

    /// Returns room for the longest frame, if there is any.
    fn room(&mut self) -> Option<&mut [u8]> {
        if self.lens.len() == FRAMES || self.used >= BATCH_BYTES {
            return None;
        }
        self.bytes.get_mut(self.used..self.used + FRAME_LEN_MAX)
    }

    /// Keeps this number of bytes of the room as a frame.
    fn keep(&mut self, len: usize) {
        self.used += len;
        self.lens.push(len);
    }
}

/// The receiving side of a ring.
pub struct Receiver {
    ring: Ring,
    buffers: Buffers,
    /// The number of descriptors taken.
    next: u16,
    interrupt: OwnedFd,
}

/// A frame in a ring.
struct FrameSpan {
    /// Its number of descriptors.
    count: u16,
    /// Its bytes; none if it is too long.
    len: Option<usize>,
}

impl Receiver {
    /// Receives from this ring, without interrupts.
    pub fn new(ring: Ring, buffers: Buffers, interrupt: OwnedFd) -> Receiver {
        ring.set_interrupts(false);
        if matches!(buffers, Buffers::Own { .. }) {
            ring.set(Count::Tail, 0);
        }
        let receiver = Receiver { ring, buffers, next: 0, interrupt };
        receiver.mark_empty(receiver.ring.len());
        receiver.return_buffers();
        receiver
    }

    /// Receives up to 64 frames.
    pub fn receive(&mut self, batch: &mut Batch) -> Result<(), RingFault> {
        batch.clear();
        let waiting = self.waiting()?;
        if waiting == 0 {
            return Ok(());
        }
        let mut taken = 0;
        while taken < waiting
            && let Some(room) = batch.room()
        {
            let Some(FrameSpan { count, len }) = self.find(taken, waiting, room)? else { break };
            taken += count;
            match len {
                Some(len) if len > 0 => batch.keep(len),
                _ => batch.unreadable += 1,
            }
        }
        self.mark_empty(taken);
        self.next = self.next.wrapping_add(taken);
        self.return_buffers();
        Ok(())
    }

    /// Copies the frame that begins this number of descriptors after the next one; none if it is
    /// incomplete.
    #[inline]
    fn find(&self, first: u16, waiting: u16, room: &mut [u8]) -> Result<Option<FrameSpan>, RingFault> {
        let mut len = Some(0);
        for at in first..waiting {
            let number = self.next.wrapping_add(at);
            let descriptor = self.ring.descriptor(number);
            let end = len.map(|len| len + descriptor.len as usize);
            match end.and_then(|end| room.get_mut(len.unwrap_or(0)..end)) {
                Some(to) => {
                    self.buffers.copy_out(&self.ring, number, descriptor, to).ok_or(RingFault::Buffer)?;
                    len = end;
                }
                None => len = None,
            }
            if !descriptor.is_continued {
                return Ok(Some(FrameSpan { count: at - first + 1, len }));
            }
        }
        // An incomplete frame in a full ring can never be completed.
        if first == 0 && waiting == self.ring.len() { Err(RingFault::Endless) } else { Ok(None) }
    }

    /// Returns the number of descriptors to take.
    fn waiting(&self) -> Result<u16, RingFault> {
        let others = match self.buffers.count() {
            Count::Head => Count::Tail,
            Count::Tail => Count::Head,
        };
        let waiting = self.ring.get(others).wrapping_sub(self.next);
        if waiting > self.ring.len() { Err(RingFault::Index) } else { Ok(waiting) }
    }

    /// Marks this number of buffers, from the next one on, as empty, if this side does so.
    fn mark_empty(&self, count: u16) {
        for at in 0..count {
            let number = self.next.wrapping_add(at);
            let Some(empty) = self.buffers.own(&self.ring, number) else { return };
            self.ring.set_descriptor(number, empty);
        }
    }

    /// Returns the taken buffers to the other side.
    fn return_buffers(&self) {
        match self.buffers.count() {
            Count::Head => self.ring.set(Count::Head, self.next.wrapping_add(self.ring.len())),
            Count::Tail => self.ring.set(Count::Tail, self.next),
        }
    }

    /// Requests interrupts, see [`Receiver::interrupt`]. Returns whether frames arrived before;
    /// they raise no interrupt.
    pub fn sleep(&self) -> bool {
        self.ring.set_interrupts(true);
        self.waiting() != Ok(0)
    }

    /// Turns interrupts off.
    pub fn wake(&self) {
        self.ring.set_interrupts(false);
        doorbell::clear(&self.interrupt);
    }

    /// Returns the file descriptor that becomes readable on an interrupt.
    pub fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }
}

/// The sending side of a ring.
pub struct Sender {
    ring: Ring,
    buffers: Buffers,
    /// The number of filled descriptors, and of published ones.
    next: u16,
    published: u16,
    /// The number of descriptors known to be free.
    room: u16,
    interrupt: OwnedFd,
}

impl Sender {
    /// Sends into this ring.
    pub fn new(ring: Ring, buffers: Buffers, interrupt: OwnedFd) -> Sender {
        ring.set(buffers.count(), 0);
        if matches!(buffers, Buffers::Own { .. }) {
            ring.set(Count::Tail, 0);
        }
        Sender { ring, buffers, next: 0, published: 0, room: 0, interrupt }
    }

    /// Puts a frame into the ring, to be published; returns whether there was room.
    pub fn put(&mut self, frame: &[u8]) -> Result<bool, RingFault> {
        let mut count = self.fill(frame)?;
        if count.is_none() {
            self.update_room()?;
            count = self.fill(frame)?;
        }
        let Some(count) = count else { return Ok(false) };
        self.next = self.next.wrapping_add(count);
        self.room -= count;
        Ok(true)
    }

    /// Publishes the frames, and wakes the other side if it requested interrupts.
    pub fn publish(&mut self) {
        if self.next == self.published {
            return;
        }
        self.published = self.next;
        self.ring.set(self.buffers.count(), self.next);
        if self.ring.wants_interrupt() {
            doorbell::ring(&self.interrupt);
        }
    }

    /// Updates the number of descriptors that can be filled.
    fn update_room(&mut self) -> Result<(), RingFault> {
        let len = self.ring.len();
        let (room, most) = match self.buffers.count() {
            // Descriptors that the other side has not taken are still in use.
            Count::Head => {
                let waiting = self.next.wrapping_sub(self.ring.get(Count::Tail));
                (len.wrapping_sub(waiting), waiting)
            }
            // Empty buffers of the other side that were not filled.
            Count::Tail => {
                let given = self.ring.get(Count::Head).wrapping_sub(self.next);
                (given, given)
            }
        };
        if most > len {
            return Err(RingFault::Index);
        }
        self.room = room;
        Ok(())
    }

    /// Fills the descriptors of a frame; returns their number, or none if there are not enough.
    #[inline]
    fn fill(&self, frame: &[u8]) -> Result<Option<u16>, RingFault> {
        let mut rest = frame;
        for at in 0..self.room {
            let number = self.next.wrapping_add(at);
            let buffer = match self.buffers.own(&self.ring, number) {
                Some(buffer) => buffer,
                None => self.ring.descriptor(number),
            };
            let Some((piece, left)) = rest.split_at_checked(rest.len().min(buffer.len as usize)) else {
                break;
            };
            let region = self.buffers.region(buffer).ok_or(RingFault::Buffer)?;
            // An empty buffer would use up descriptors without end.
            if piece.is_empty() || !region.copy_in(buffer.offset as usize, piece) {
                return Err(RingFault::Buffer);
            }
            rest = left;
            let filled = Descriptor { is_continued: !rest.is_empty(), len: piece.len() as u32, ..buffer };
            self.ring.set_descriptor(number, filled);
            if rest.is_empty() {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::port::memif::config::{MemifConfig, Role};
    use crate::port::memif::session::{Queues, tests::connected};

    /// Connects both ends, the server first, and returns the memory, too.
    fn ends(ring_log2: u8, buffer: u16) -> ([Queues; 2], Arc<Region>) {
        let server = MemifConfig::new("a");
        let client = MemifConfig { role: Role::Client, ring_log2, buffer, ..MemifConfig::new("a") };
        let (server, client) = connected(&server, &client).unwrap();
        let Buffers::Own { region, .. } = &client.sender.buffers else { panic!("the client has made them") };
        let region = Arc::clone(region);
        ([server, client], region)
    }

    fn frame(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + seed * 7) as u8).collect()
    }

    proptest! {
        /// Both directions at once: all frames that found room arrive in order, in batches.
        #[test]
        fn rings_are_queues_of_frames(
            ring_log2 in 1u8..5,
            buffer in 128u16..300,
            // Sometimes more than 65,536 descriptors.
            laps in prop_oneof![9 => Just(0u32), 1 => Just(66_000u32)],
            steps in prop::collection::vec((0u8..6, 1usize..900), 0..120),
        ) {
            let (mut ends, _) = ends(ring_log2, buffer);
            let mut batch = Batch::new();
            let mut waiting = [VecDeque::new(), VecDeque::new()];
            for lap in 0..laps {
                let frame = [lap as u8];
                prop_assert_eq!(ends[0].sender.put(&frame), Ok(true));
                ends[0].sender.publish();
                ends[1].receiver.receive(&mut batch).unwrap();
                prop_assert!(batch.frames().eq([&frame[..]]));
            }
            for (number, (step, len)) in steps.into_iter().enumerate() {
                let from = usize::from(step % 2);
                match step / 2 {
                    0 => {
                        let frame = frame(len, number);
                        if ends[from].sender.put(&frame).unwrap() {
                            waiting[from].push_back(frame);
                        } else {
                            let pieces = |frame: &Vec<u8>| frame.len().div_ceil(buffer.into());
                            let used: usize = waiting[from].iter().map(pieces).sum();
                            prop_assert!(used + pieces(&frame) > 1 << ring_log2);
                        }
                    }
                    1 => ends[from].sender.publish(),
                    _ => {
                        ends[from].sender.publish();
                        ends[1 - from].receiver.receive(&mut batch).unwrap();
                        prop_assert_eq!(batch.unreadable, 0);
                        for frame in batch.frames() {
                            prop_assert_eq!(Some(frame.to_vec()), waiting[from].pop_front());
                        }
                        prop_assert!(waiting[from].is_empty());
                    }
                }
            }
        }

        /// An end may write anything into the memory: the other one continues or disconnects.
        #[test]
        fn nothing_that_is_in_the_memory_does_harm(
            ring_log2 in 1u8..4,
            steps in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), any::<u32>(), 1usize..900), 0..60),
        ) {
            let (mut ends, region) = ends(ring_log2, 128);
            let mut batch = Batch::new();
            let rings = 2 * Ring::size(ring_log2);
            for (step, at, value, len) in steps {
                let bytes = value.to_ne_bytes();
                let mut fault = None;
                for end in &mut ends {
                    match step {
                        // Mostly indexes, flags and descriptors of the rings.
                        0 => prop_assert!(region.copy_in(at.index(rings - 4), &bytes)),
                        1 => {
                            let numbers = [4, 6, 64].map(|at| [at, at + rings / 2]).concat();
                            prop_assert!(region.copy_in(*at.get(&numbers), &bytes[..2]));
                        }
                        2 => fault = fault.or(end.sender.put(&frame(len, 0)).err()),
                        3 => {
                            end.sender.publish();
                            let _ = end.receiver.sleep();
                            end.receiver.wake();
                        }
                        _ => match end.receiver.receive(&mut batch) {
                            Ok(()) => prop_assert!(batch.frames().all(|frame| !frame.is_empty())),
                            Err(found) => fault = Some(found),
                        },
                    }
                }
                if fault.is_some() {
                    break;
                }
            }
        }
    }

    #[test]
    fn impossible_values_are_faults() {
        let mut batch = Batch::new();
        // Nine frames in a ring of eight.
        let ([mut server, client], _) = ends(3, 128);
        client.sender.ring.set(Count::Head, 9);
        assert_eq!(server.receiver.receive(&mut batch), Err(RingFault::Index));
        let ([server, mut client], _) = ends(3, 128);
        server.sender.ring.set(Count::Tail, 9);
        assert_eq!(client.receiver.receive(&mut batch), Err(RingFault::Index));
        // More buffers than there are, or frames taken that were never sent.
        let ([mut server, client], _) = ends(3, 128);
        client.receiver.ring.set(Count::Head, 9);
        assert_eq!(server.sender.put(&[1]), Err(RingFault::Index));
        let ([server, mut client], _) = ends(3, 128);
        server.receiver.ring.set(Count::Tail, 1);
        assert_eq!(client.sender.put(&[1]), Err(RingFault::Index));
        // Buffers that begin or end outside, have an unknown region, or have no room.
        for (region, len, offset) in [(0, 60, u32::MAX), (0, 65_000, 0), (1, 60, 0), (65_535, 60, 0)] {
            let descriptor = Descriptor { is_continued: false, region, len, offset };
            let ([mut server, client], _) = ends(3, 128);
            client.sender.ring.set_descriptor(0, descriptor);
            client.sender.ring.set(Count::Head, 1);
            assert_eq!(server.receiver.receive(&mut batch), Err(RingFault::Buffer), "{descriptor:?}");
            client.receiver.ring.set_descriptor(0, descriptor);
            assert_eq!(server.sender.put(&[0; 65_000]), Err(RingFault::Buffer), "{descriptor:?}");
        }
        let ([mut server, client], _) = ends(3, 128);
        client.receiver.ring.set_descriptor(0, Descriptor::default());
        assert_eq!(server.sender.put(&[1]), Err(RingFault::Buffer));
        // More bytes in a buffer than it has.
        let ([server, mut client], _) = ends(3, 128);
        server.sender.ring.set_descriptor(0, Descriptor { len: 129, ..Descriptor::default() });
        server.sender.ring.set(Count::Tail, 1);
        assert_eq!(client.receiver.receive(&mut batch), Err(RingFault::Buffer));
        // A frame that fills the whole ring.
        let ([mut server, client], _) = ends(3, 128);
        for number in 0..8 {
            let piece = Descriptor { is_continued: true, region: 0, len: 1, offset: 0 };
            client.sender.ring.set_descriptor(number, piece);
        }
        client.sender.ring.set(Count::Head, 7);
        server.receiver.receive(&mut batch).unwrap();
        assert_eq!((batch.frames().count(), batch.unreadable), (0, 0), "its end may be still to come");
        client.sender.ring.set(Count::Head, 8);
        assert_eq!(server.receiver.receive(&mut batch), Err(RingFault::Endless));
    }

    #[test]
    fn a_client_ignores_offsets_of_its_own_buffers() {
        let ([mut server, mut client], _) = ends(2, 128);
        let mut batch = Batch::new();
        for lap in 0..9 {
            assert_eq!(server.sender.put(&[lap; 100]), Ok(true));
            server.sender.publish();
            let there = client.receiver.ring.descriptor(lap.into());
            let moved = Descriptor { offset: u32::MAX, region: 7, ..there };
            client.receiver.ring.set_descriptor(lap.into(), moved);
            client.receiver.receive(&mut batch).unwrap();
            assert!(batch.frames().eq([&[lap; 100][..]]));
        }
    }

    #[test]
    fn long_and_empty_frames_are_counted_and_skipped() {
        let ([mut server, mut client], _) = ends(12, 128);
        let mut batch = Batch::new();
        for len in [FRAME_LEN_MAX + 1, FRAME_LEN_MAX, 60] {
            assert_eq!(client.sender.put(&vec![1; len]), Ok(true));
        }
        client.sender.ring.set_descriptor(client.sender.next, Descriptor::default());
        client.sender.next += 1;
        client.sender.publish();
        server.receiver.receive(&mut batch).unwrap();
        assert_eq!(batch.frames().map(<[u8]>::len).collect::<Vec<_>>(), [FRAME_LEN_MAX, 60]);
        assert_eq!(batch.unreadable, 2);
    }

    #[test]
    fn a_sleeping_end_is_interrupted_and_an_awake_one_is_not() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let is_woken = |receiver: &Receiver| {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(receiver.interrupt(), PollFlags::IN)], Some(&now)) == Ok(1)
        };
        let (mut ends, _) = ends(3, 128);
        for from in [0, 1] {
            let mut batch = Batch::new();
            let send = |ends: &mut [Queues; 2]| {
                assert_eq!(ends[from].sender.put(&[1; 60]), Ok(true));
                ends[from].sender.publish();
            };
            send(&mut ends);
            assert!(!is_woken(&ends[1 - from].receiver));
            assert!(ends[1 - from].receiver.sleep(), "one is there already");
            ends[1 - from].receiver.receive(&mut batch).unwrap();
            assert!(!ends[1 - from].receiver.sleep());
            send(&mut ends);
            assert!(is_woken(&ends[1 - from].receiver));
            ends[1 - from].receiver.wake();
            assert!(!is_woken(&ends[1 - from].receiver));
            send(&mut ends);
            assert!(!is_woken(&ends[1 - from].receiver));
        }
    }
}
