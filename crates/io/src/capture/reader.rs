//! The reader: detects a file's format, and yields its records.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::ReadError;
use super::fields::require;
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
