//! A reader of big-endian fields.

/// The unread bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// Takes the next `len` bytes, if there are that many.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the next `N` bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|&[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(|&bytes| u16::from_be_bytes(bytes))
    }

    pub(crate) fn u24(&mut self) -> Option<u32> {
        self.array().map(|&[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(|&bytes| u32::from_be_bytes(bytes))
    }

    /// Takes a field with a one-byte length prefix.
    pub(crate) fn prefixed_u8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    /// Takes a field with a two-byte length prefix.
    pub(crate) fn prefixed_u16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }
}
