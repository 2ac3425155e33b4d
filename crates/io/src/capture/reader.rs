//! The reader: finds out what a file is, and hands out its records.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::source::Source;
use super::{Interface, Record, Way, pcap, pcapng};

/// Reads a capture, record by record, from a file, standard input, or anything that reads.
///
/// pcap in both byte orders, in micro- and nanoseconds, and with the modified (Kuznetzov) record
/// header; pcapng in both byte orders, with any number of sections; either within gzip. Unknown
/// blocks are passed over. A file that is cut or damaged yields all whole records in front of the
/// damage, then the error.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    dialect: Dialect,
    interfaces: Vec<Interface>,
    /// Bytes at the front of the source that the last record handed out still borrows.
    lent: usize,
    failed: bool,
    way: Option<Way>,
    /// Whether the file has a time for the last record.
    has_time: bool,
}

#[derive(Debug)]
enum Dialect {
    Pcap(pcap::Parser),
    Pcapng(pcapng::Parser),
}

/// Where a record lies in the source's window, and what its header says.
pub(super) struct Found {
    /// None: the file has no time for it.
    pub timestamp_ns: Option<u64>,
    pub interface: u32,
    pub wire_len: u32,
    /// The captured bytes, in the window.
    pub data: Range<usize>,
    /// The bytes from the window's front to the end of the record or block.
    pub total: usize,
    /// Which way the packet went, where readers are to go by it.
    pub way: Option<Way>,
}

impl Reader {
    /// Opens a capture file; `-` is standard input.
    ///
    /// # Errors
    /// [`ReadError::Open`], or what [`Reader::new`] returns.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, ReadError> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Reader::new(io::stdin());
        }
        let file = File::open(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?;
        Reader::new(file)
    }

    /// Reads the file header of a capture. The input need not be buffered.
    ///
    /// # Errors
    /// Any [`ReadError`] but [`ReadError::Open`].
    pub fn new(input: impl Read + Send + 'static) -> Result<Reader, ReadError> {
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
        Ok(Reader { source, dialect, interfaces, lent: 0, failed: false, way: None, has_time: false })
    }

    /// The next record, or `None` at the end. After an error there are no more records.
    ///
    /// # Errors
    /// Any [`ReadError`] but [`ReadError::Open`] and [`ReadError::NotACapture`].
    #[expect(clippy::should_implement_trait, reason = "an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
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
        self.way = found.way;
        self.has_time = found.timestamp_ns.is_some();
        Ok(Some(Record {
            timestamp_ns: found.timestamp_ns.unwrap_or(0),
            interface: found.interface,
            link_type: self.interfaces[found.interface as usize].link_type,
            wire_len: found.wire_len,
            data: &self.source.bytes()[found.data],
        }))
    }

    /// Which way the last record's packet went, in a section of [`super::WAYS_APPLICATION`].
    pub fn way(&self) -> Option<Way> {
        self.way
    }

    /// Whether the file has a time for the last record: not for simple packet blocks of pcapng.
    pub fn has_time(&self) -> bool {
        self.has_time
    }

    /// The interfaces met so far: in pcap always one; in pcapng they come with the records,
    /// numbered over the whole file, across its sections.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The byte offset behind the last record, counted after decompression.
    pub fn position(&self) -> u64 {
        self.source.offset() + self.lent as u64
    }
}

/// Why a capture cannot be read (on). Offsets are in bytes, counted after decompression.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file's name.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The input failed, or its compressed data are damaged.
    #[error("at byte {offset}: cannot read")]
    Io {
        /// Where.
        offset: u64,
        /// What the system or the decompressor says.
        source: io::Error,
    },
    /// The file is neither pcap nor pcapng.
    #[error("at byte 0: expected the magic number of a pcap or pcapng file, found the bytes {found:02x?}")]
    NotACapture {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The format's version is one that this reader does not know.
    #[error("at byte {offset}: expected {expected}, found version {major}.{minor}")]
    Version {
        /// Where.
        offset: u64,
        /// Which versions are known.
        expected: &'static str,
        /// The major version found.
        major: u16,
        /// The minor version found.
        minor: u16,
    },
    /// The input ends within something.
    #[error(
        "at byte {offset}: expected {expected} of {needed} bytes, found the end of the file after {found}"
    )]
    Truncated {
        /// Where the cut thing begins.
        offset: u64,
        /// What it is.
        expected: &'static str,
        /// Its length in bytes.
        needed: u64,
        /// How much of it is there, in bytes.
        found: u64,
    },
    /// A length or number is above a limit of this reader.
    #[error("at byte {offset}: expected {expected} of at most {limit}, found {found}")]
    TooLarge {
        /// Where the thing begins.
        offset: u64,
        /// What is too large.
        expected: &'static str,
        /// What the file says.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A field contradicts the format or another field.
    #[error("at byte {offset}: expected {expected}, found {found}")]
    Malformed {
        /// Where the field or the thing that holds it begins.
        offset: u64,
        /// What is wanted.
        expected: &'static str,
        /// The field's value.
        found: u64,
    },
}

impl ReadError {
    /// The byte at which reading stopped, counted after decompression; `None` if nothing was
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

/// Makes `count` bytes available, or says what was cut.
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

/// Whether the input is at its end.
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
    /// The 16-bit field at `offset`, which must lie within `bytes`.
    pub fn u16(self, bytes: &[u8], offset: usize) -> u16 {
        let field = [bytes[offset], bytes[offset + 1]];
        match self {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        }
    }

    /// The 32-bit field at `offset`, which must lie within `bytes`.
    pub fn u32(self, bytes: &[u8], offset: usize) -> u32 {
        let field = [bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        }
    }

    /// The 64-bit field at `offset`, which must lie within `bytes`.
    pub fn u64(self, bytes: &[u8], offset: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, offset)), u64::from(self.u32(bytes, offset + 4)));
        match self {
            ByteOrder::Little => second << 32 | first,
            ByteOrder::Big => first << 32 | second,
        }
    }
}
