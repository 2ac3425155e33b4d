//! The reader: detects a file's format, and yields its records.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::source::Source;
use super::{CaptureDirection, CaptureInterface, CaptureRecord, pcap, pcapng};

/// Reads a capture, record by record, from a file, standard input, or any reader.
///
/// It reads pcap in both byte orders, in micro- and nanoseconds, and with the modified (Kuznetzov)
/// record header; pcapng in both byte orders, with any number of sections; and either within gzip.
/// Unknown blocks are skipped. A truncated or damaged file yields all whole records before the
/// damage, then the error.
#[derive(Debug)]
pub struct CaptureReader {
    source: Source,
    dialect: Dialect,
    interfaces: Vec<CaptureInterface>,
    /// Bytes at the front of the source that the last record borrows.
    lent: usize,
    failed: bool,
    direction: Option<CaptureDirection>,
    /// The file has a time for the last record.
    has_time: bool,
}

#[derive(Debug)]
enum Dialect {
    Pcap(pcap::Parser),
    Pcapng(pcapng::Parser),
}

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

impl CaptureReader {
    /// Opens a capture file; `-` is standard input.
    ///
    /// # Errors
    /// [`ReadError::Open`], and those of [`CaptureReader::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<CaptureReader, ReadError> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return CaptureReader::new(io::stdin());
        }
        let file = File::open(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?;
        CaptureReader::new(file)
    }

    /// Reads the file header of a capture. The input needs no buffer.
    ///
    /// # Errors
    /// Any [`ReadError`] but [`ReadError::Open`].
    pub fn new(input: impl Read + Send + 'static) -> Result<CaptureReader, ReadError> {
        let mut source = Source::new(input).map_err(|source| ReadError::Io { offset: 0, source })?;
        let mut interfaces = Vec::new();
        require(&mut source, 4, "a magic number")?;
        let magic = source.bytes()[..4].try_into().unwrap_or([0; 4]);
        let dialect = if magic == pcapng::SECTION_HEADER {
            Dialect::Pcapng(pcapng::Parser::new(&mut source)?)
        } else if let Some(variant) = pcap::Variant::of_magic(magic) {
            Dialect::Pcap(pcap::Parser::new(variant, &mut source, &mut interfaces)?)
        } else {
            return Err(ReadError::NotACapture { found: magic });
        };
        Ok(CaptureReader {
            source,
            dialect,
            interfaces,
            lent: 0,
            failed: false,
            direction: None,
            has_time: false,
        })
    }

    /// Returns the next record, or `None` at the end and after an error.
    ///
    /// # Errors
    /// Any [`ReadError`] but [`ReadError::Open`] and [`ReadError::NotACapture`].
    #[expect(clippy::should_implement_trait, reason = "an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Result<Option<CaptureRecord<'_>>, ReadError> {
        if self.failed {
            return Ok(None);
        }
        self.source.consume(std::mem::take(&mut self.lent));
        let found = match &mut self.dialect {
            Dialect::Pcap(parser) => parser.next(&mut self.source),
            Dialect::Pcapng(parser) => parser.next(&mut self.source, &mut self.interfaces),
        };
        let Some(found) = found.inspect_err(|_| self.failed = true)? else {
            return Ok(None);
        };
        self.lent = found.total;
        self.direction = found.direction;
        self.has_time = found.timestamp_ns.is_some();
        Ok(Some(CaptureRecord {
            timestamp_ns: found.timestamp_ns.unwrap_or(0),
            interface: found.interface,
            link_type: self.interfaces[found.interface as usize].link_type,
            wire_len: found.wire_len,
            data: &self.source.bytes()[found.data],
        }))
    }

    /// Returns the direction of the last record's packet, in a section of
    /// [`super::DIRECTIONS_APPLICATION`].
    pub fn direction(&self) -> Option<CaptureDirection> {
        self.direction
    }

    /// Returns whether the file has a time for the last record. Simple packet blocks of pcapng have
    /// none.
    pub fn has_time(&self) -> bool {
        self.has_time
    }

    /// Returns the interfaces found so far. Pcap has exactly one. In pcapng they precede their
    /// records, and are numbered over all sections of the file.
    pub fn interfaces(&self) -> &[CaptureInterface] {
        &self.interfaces
    }

    /// Returns the byte offset after the last record, after decompression.
    pub fn position(&self) -> u64 {
        self.source.offset() + self.lent as u64
    }
}

/// Error of reading a capture. Offsets are in bytes after decompression.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The input failed, or its compressed data are damaged.
    #[error("at byte {offset}: cannot read")]
    Io {
        /// Its offset.
        offset: u64,
        /// The system's or the decompressor's error.
        source: io::Error,
    },
    /// The file is neither pcap nor pcapng.
    #[error("at byte 0: expected the magic number of a pcap or pcapng file, found the bytes {found:02x?}")]
    NotACapture {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The format's version is unknown.
    #[error("at byte {offset}: expected {expected}, found version {major}.{minor}")]
    Version {
        /// Its offset.
        offset: u64,
        /// The known versions.
        expected: &'static str,
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// The input ends too early.
    #[error(
        "at byte {offset}: expected {expected} of {needed} bytes, found the end of the file after {found}"
    )]
    Truncated {
        /// Offset of the truncated object.
        offset: u64,
        /// Name of the object.
        expected: &'static str,
        /// Its length in bytes.
        needed: u64,
        /// Bytes of it that are present.
        found: u64,
    },
    /// A length or number exceeds a limit of this reader.
    #[error("at byte {offset}: expected {expected} of at most {limit}, found {found}")]
    TooLarge {
        /// Offset of the object.
        offset: u64,
        /// Name of the object.
        expected: &'static str,
        /// The value in the file.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A field contradicts the format or another field.
    #[error("at byte {offset}: expected {expected}, found {found}")]
    Malformed {
        /// Offset of the field or of the object that holds it.
        offset: u64,
        /// The expected value.
        expected: &'static str,
        /// The field's value.
        found: u64,
    },
}

impl ReadError {
    /// Returns the offset at which reading stopped, after decompression; `None` if nothing was
    /// opened.
    pub fn offset(&self) -> Option<u64> {
        match *self {
            ReadError::Open { .. } => None,
            ReadError::NotACapture { .. } => Some(0),
            ReadError::Io { offset, .. }
            | ReadError::Version { offset, .. }
            | ReadError::Truncated { offset, .. }
            | ReadError::TooLarge { offset, .. }
            | ReadError::Malformed { offset, .. } => Some(offset),
        }
    }
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
