//! Bounds-checked reading.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// A frame is not what its sender should have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame ends before its fields do.
    #[error("the frame is truncated")]
    Truncated,
    /// A field has a value that it must not have.
    #[error("the frame has an invalid {0}")]
    Invalid(&'static str),
    /// The kind is not known: a later version may have it.
    #[error("frames of kind {0:#04x} are not known")]
    UnknownKind(u8),
}

/// Reads the fields of a frame in order.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if there are fewer.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(FrameError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Returns the next `size_of::<T>()` bytes as a `T`, which any bytes are.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if there are fewer.
    #[inline]
    pub fn head<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T, FrameError> {
        let (head, rest) = T::ref_from_prefix(self.0).map_err(|_| FrameError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    /// Returns all bytes that are left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Returns true if all bytes were read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next `N` bytes.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(FrameError::Truncated)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// Reads a number of one byte.
    ///
    /// # Errors
    /// [`FrameError::Truncated`]
    #[inline]
    pub fn u8(&mut self) -> Result<u8, FrameError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a number of two bytes.
    ///
    /// # Errors
    /// [`FrameError::Truncated`]
    #[inline]
    pub fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a number of four bytes.
    ///
    /// # Errors
    /// [`FrameError::Truncated`]
    #[inline]
    pub fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a number of eight bytes.
    ///
    /// # Errors
    /// [`FrameError::Truncated`]
    #[inline]
    pub fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads bytes with their length before them.
    ///
    /// # Errors
    /// [`FrameError::Truncated`]
    pub fn sized(&mut self) -> Result<&'a [u8], FrameError> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    /// Reads a text with its length before it.
    ///
    /// # Errors
    /// [`FrameError::Truncated`], or [`FrameError::Invalid`] if it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, FrameError> {
        std::str::from_utf8(self.sized()?).map_err(|_| FrameError::Invalid("text"))
    }

    /// Reads the number of elements that follow, of at least `each_len` bytes each.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if there are not enough bytes for them.
    pub fn count(&mut self, each_len: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        if count.checked_mul(each_len).is_none_or(|len| len > self.0.len()) {
            return Err(FrameError::Truncated);
        }
        Ok(count)
    }
}
