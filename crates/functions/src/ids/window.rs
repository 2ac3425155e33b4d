//! The last bytes of a stream, which are inspected together with its next piece: a ring in a
//! buffer.

use nf::FlowBuffer;

use super::LOOKBACK_BYTES;

/// A ring of [`LOOKBACK_BYTES`]. The byte `n` bytes after `start` in the stream is at `n` modulo
/// that size in the ring, so each byte is written once and none is moved.
pub struct StreamWindow<'a> {
    /// All bytes since `start`, up to a full ring.
    pub ring: &'a mut FlowBuffer,
    /// Stream offset of the first byte; meaningless while the ring is empty.
    pub start: &'a mut u64,
}

/// Returns the number of bytes before this offset in a window that began at `start`.
pub fn len_before(start: u64, offset: u64) -> usize {
    offset.saturating_sub(start).min(LOOKBACK_BYTES as u64) as usize
}

impl StreamWindow<'_> {
    /// Appends the window's bytes before this stream offset, in order.
    pub fn before(&self, offset: u64, out: &mut Vec<u8>) {
        let ring = self.ring.as_slice();
        let at = if ring.len() < LOOKBACK_BYTES { 0 } else { self.place(offset) };
        out.extend_from_slice(&ring[at..]);
        out.extend_from_slice(&ring[..at]);
    }

    /// Adds the next bytes, at this stream offset. If they do not fit, the window restarts after
    /// them.
    pub fn push(&mut self, offset: u64, piece: &[u8]) {
        let skipped = piece.len().saturating_sub(LOOKBACK_BYTES);
        let (mut offset, mut rest) = (offset + skipped as u64, &piece[skipped..]);
        if skipped > 0 {
            self.ring.clear();
        }
        if self.ring.as_slice().is_empty() {
            *self.start = offset;
        }
        while !rest.is_empty() {
            let at = self.place(offset);
            let (now, later) = rest.split_at(rest.len().min(LOOKBACK_BYTES - at));
            if !self.write(at, now) {
                return self.ring.clear();
            }
            offset += now.len() as u64;
            rest = later;
        }
    }

    /// Returns the position in the ring of the byte at this stream offset.
    fn place(&self, offset: u64) -> usize {
        (offset.saturating_sub(*self.start) % LOOKBACK_BYTES as u64) as usize
    }

    /// Overwrites existing bytes and appends the others; false if they are beyond the end or do not
    /// fit.
    fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(over) = self.ring.as_mut_slice().get_mut(at..) else { return false };
        let (over_len, len) = (over.len().min(bytes.len()), bytes.len());
        over[..over_len].copy_from_slice(&bytes[..over_len]);
        self.ring.push(&bytes[over_len..]) == len - over_len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_window_has_the_last_bytes_before_an_offset(
            first in 0u64..1 << 40,
            lens in prop::collection::vec(prop_oneof![0usize..40, 1000usize..5000], 1..20),
        ) {
            let (mut ring, mut start, mut stream) = (FlowBuffer::with_room(LOOKBACK_BYTES), 7, Vec::<u8>::new());
            for (number, len) in lens.into_iter().enumerate() {
                let mut window = StreamWindow { ring: &mut ring, start: &mut start };
                let piece: Vec<u8> = (0..len).map(|at| (at * 31 + number) as u8).collect();
                window.push(first + stream.len() as u64, &piece);
                stream.extend(&piece);
                let offset = first + stream.len() as u64;
                let expected = &stream[stream.len().saturating_sub(LOOKBACK_BYTES)..];
                let mut held = Vec::new();
                window.before(offset, &mut held);
                prop_assert_eq!(&held, expected);
                if !stream.is_empty() {
                    prop_assert_eq!(len_before(start, offset), expected.len());
                }
            }
        }
    }

    #[test]
    fn without_room_the_window_restarts() {
        let (mut ring, mut start) = (FlowBuffer::with_room(4), 0);
        let mut window = StreamWindow { ring: &mut ring, start: &mut start };
        window.push(10, b"abc");
        window.push(13, b"de");
        window.push(15, b"f");
        let mut held = Vec::new();
        window.before(16, &mut held);
        assert_eq!((held, start), (b"f".to_vec(), 15));
    }
}
