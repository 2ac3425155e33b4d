//! The caller's buffer for an incomplete line.

/// A bounded buffer for one line of a direction: a start line, a header with its folds, or a chunk
/// size.
///
/// It is usually empty: a line within one piece is parsed in place. Its capacity also limits the
/// length of a line, however the bytes are split. A capacity below [`CAPACITY_MIN`] is allowed, but
/// blank lines are then not recognised.
pub trait LineBuffer {
    /// Returns the buffered bytes.
    fn as_slice(&self) -> &[u8];

    /// Returns the capacity in bytes, a constant.
    fn capacity(&self) -> usize;

    /// Appends the bytes that fit and returns their number.
    fn push(&mut self, bytes: &[u8]) -> usize;

    /// Clears the buffer.
    fn clear(&mut self);
}

/// Minimum useful capacity of a [`LineBuffer`], in bytes: a smaller one truncates each start line.
pub const CAPACITY_MIN: usize = 64;

/// A [`LineBuffer`] backed by an array.
#[derive(Debug, Clone)]
pub struct FixedLineBuffer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for FixedLineBuffer<N> {
    fn default() -> Self {
        Self { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> LineBuffer for FixedLineBuffer<N> {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn capacity(&self) -> usize {
        N
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.bytes[self.len..];
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
        taken
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_line_buffer_accepts_no_bytes() {
        let mut line = FixedLineBuffer::<4>::default();
        assert_eq!((line.push(b"abc"), line.push(b"def"), line.push(b"g")), (3, 1, 0));
        assert_eq!(line.as_slice(), b"abcd");
        line.clear();
        assert_eq!(line.as_slice(), b"");
    }
}
