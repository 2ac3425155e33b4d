//! Header fields that both formats read alike.

use std::io;
use std::ops::Range;

use super::CaptureDirection;
use super::error::ReadError;
use super::source::Source;

/// Position of a record in the source's window, and the fields of its header.
pub(super) struct RecordFields {
    /// None if the file has no time for it.
    pub timestamp_ns: Option<u64>,
    pub interface: u32,
    pub wire_len: u32,
    /// Position of the captured bytes in the window.
    pub data: Range<usize>,
    /// Bytes from the window's front to the end of the record or block.
    pub total: usize,
    /// Direction of the packet, in a section of [`super::DIRECTIONS_APPLICATION`].
    pub direction: Option<CaptureDirection>,
}

/// Makes `count` bytes available, or returns what was truncated.
pub(super) fn require(source: &mut Source, count: usize, expected: &'static str) -> Result<(), ReadError> {
    match source.fill(count) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ReadError::Truncated {
            offset: source.offset(),
            expected,
            needed: count as u64,
            found: source.bytes().len() as u64,
        }),
        Err(error) => Err(read_failure(source, error)),
    }
}

/// Returns whether the input is at its end.
pub(super) fn at_end(source: &mut Source) -> Result<bool, ReadError> {
    let more = source.fill(1).map_err(|error| read_failure(source, error))?;
    Ok(!more)
}

pub(super) fn read_failure(source: &Source, error: io::Error) -> ReadError {
    ReadError::Io { offset: source.offset() + source.bytes().len() as u64, source: error }
}

/// Reads the fields of a header in the file's byte order.
#[derive(Clone, Copy, Debug)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Returns the 16-bit field at `offset`, which must lie within `bytes`.
    pub fn u16(self, bytes: &[u8], offset: usize) -> u16 {
        let field = [bytes[offset], bytes[offset + 1]];
        match self {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        }
    }

    /// Returns the 32-bit field at `offset`, which must lie within `bytes`.
    pub fn u32(self, bytes: &[u8], offset: usize) -> u32 {
        let field = [bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        }
    }

    /// Returns the 64-bit field at `offset`, which must lie within `bytes`.
    pub fn u64(self, bytes: &[u8], offset: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, offset)), u64::from(self.u32(bytes, offset + 4)));
        match self {
            ByteOrder::Little => second << 32 | first,
            ByteOrder::Big => first << 32 | second,
        }
    }
}
