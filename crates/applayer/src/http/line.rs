//! The caller's store for a line that is not complete yet.

/// A bounded store for one line of a direction: a start line, a header with its folds, a chunk's
/// size.
///
/// It is empty most of the time: a line that lies wholly inside of a piece is read in place. Its
/// capacity is at the same time the limit of a line's length, however the bytes are split. A
/// capacity below [`CAPACITY_MIN`] is allowed, but then blank lines are not recognised for what
/// they are.
pub trait Line {
    /// The bytes that are kept.
    fn as_slice(&self) -> &[u8];

    /// Most bytes that can be kept; always the same.
    fn capacity(&self) -> usize;

    /// Appends what there is room for, and says how many bytes that was.
    fn push(&mut self, bytes: &[u8]) -> usize;

    /// Forgets all bytes.
    fn clear(&mut self);
}

/// Least capacity of a [`Line`] that makes sense, in bytes: a shorter one cuts each start line.
pub const CAPACITY_MIN: usize = 64;

/// A [`Line`] over an array.
#[derive(Debug, Clone)]
pub struct FixedLine<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for FixedLine<N> {
    fn default() -> Self {
        Self { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Line for FixedLine<N> {
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
    fn a_full_line_takes_no_more() {
        let mut line = FixedLine::<4>::default();
        assert_eq!((line.push(b"abc"), line.push(b"def"), line.push(b"g")), (3, 1, 0));
        assert_eq!(line.as_slice(), b"abcd");
        line.clear();
        assert_eq!(line.as_slice(), b"");
    }
}
