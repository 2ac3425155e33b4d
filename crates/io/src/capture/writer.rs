//! The writer: puts records into a plain or gzipped pcap or pcapng file.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use packet::LinkType;
use thiserror::Error;

use crate::files;

use super::format::{CaptureFormat, FormatKind};
use super::time::NS_PER_SECOND;
use super::{
    CaptureDirection, CaptureRecord, INTERFACES_MAX, Notes, RECORD_BYTES_MAX, SNAPSHOT_BYTES_MAX,
    bounded_comment, bounded_name, pcap, pcapng,
};

/// Bytes buffered before they are written to the file.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a capture, record by record, in little-endian order and through a buffer.
///
/// [`CaptureWriter::finish`] must be called. Without it, errors of the last writes go unnoticed,
/// and a file without records has no header.
pub struct CaptureWriter {
    output: Output,
    kind: FormatKind,
    /// The file header is written.
    begun: bool,
    interfaces: Interfaces,
    /// Buffer of the current block.
    block: Vec<u8>,
    has_directions: bool,
}

impl CaptureWriter {
    /// Creates or truncates a file, see [`files::create`]; `-` is standard output.
    ///
    /// # Errors
    /// [`WriteError::Create`].
    pub fn create(path: impl AsRef<Path>, format: CaptureFormat) -> Result<CaptureWriter, WriteError> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Ok(CaptureWriter::new(io::stdout(), format));
        }
        let file =
            files::create(path).map_err(|source| WriteError::Create { path: path.to_owned(), source })?;
        Ok(CaptureWriter::new(file, format))
    }

    /// Writes to any output; it needs no buffer.
    pub fn new(output: impl Write + Send + 'static, format: CaptureFormat) -> CaptureWriter {
        let buffered = BufWriter::with_capacity(BUFFER_BYTES, Box::new(output) as Box<dyn Write + Send>);
        let output = match format.gzip {
            true => Output::Gzip(GzEncoder::new(buffered, Compression::fast())),
            false => Output::Plain(buffered),
        };
        CaptureWriter {
            output,
            kind: format.kind,
            begun: false,
            interfaces: Interfaces::default(),
            block: Vec::new(),
            has_directions: false,
        }
    }

    /// Marks the records' directions as those of [`super::DIRECTIONS_APPLICATION`]. Must be called
    /// before anything is written to the pcapng file.
    pub fn with_directions(mut self) -> CaptureWriter {
        self.has_directions = true;
        self
    }

    /// Declares an interface, so that it stands in the file in this order, with a name, even
    /// without records.
    ///
    /// An interface that is not declared is written without a name, before its first record.
    ///
    /// # Errors
    /// [`WriteError::InterfaceExists`], [`WriteError::TooManyInterfaces`],
    /// [`WriteError::SecondLinkType`] (pcap has one link type only), [`WriteError::Io`].
    pub fn add_interface(
        &mut self,
        interface: u32,
        name: &str,
        link_type: LinkType,
    ) -> Result<(), WriteError> {
        if self.interfaces.get(interface).is_some() {
            return Err(WriteError::InterfaceExists { interface });
        }
        self.declare(interface, Some(name), link_type)?;
        Ok(())
    }

    /// Writes a record.
    ///
    /// # Errors
    /// [`WriteError::RecordTooLong`], [`WriteError::SecondLinkType`],
    /// [`WriteError::TooManyInterfaces`], [`WriteError::TimeOutOfRange`], which leave the file
    /// unchanged; [`WriteError::Io`], after which it may end within a record.
    pub fn write(&mut self, record: &CaptureRecord<'_>) -> Result<(), WriteError> {
        self.write_noted(record, &Notes::default())
    }

    /// Writes a record with its optional fields, which pcap drops.
    ///
    /// # Errors
    /// Those of [`CaptureWriter::write`].
    pub fn write_noted(&mut self, record: &CaptureRecord<'_>, notes: &Notes<'_>) -> Result<(), WriteError> {
        // A length beyond `u32` exceeds the limit as well.
        let captured = u32::try_from(record.data.len()).unwrap_or(u32::MAX);
        if captured > RECORD_BYTES_MAX {
            return Err(WriteError::RecordTooLong { bytes: record.data.len() });
        }
        let time = self.time_fields(record.timestamp_ns)?;
        let slot = match self.interfaces.get(record.interface) {
            Some(slot) if slot.link_type == record.link_type => slot,
            Some(slot) => {
                return Err(WriteError::SecondLinkType { first: slot.link_type, second: record.link_type });
            }
            None => self.declare(record.interface, None, record.link_type)?,
        };
        let head = [time.0, time.1, captured, record.wire_len];
        match self.kind {
            FormatKind::Pcapng => self.write_block_record(slot.number, head, record.data, notes),
            FormatKind::Pcap | FormatKind::PcapMicroseconds => self.write_plain_record(head, record.data),
        }
    }

    /// Writes out buffered data, for readers that follow the file.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        match &mut self.output {
            Output::Plain(output) => output.flush()?,
            Output::Gzip(output) => output.flush()?,
        }
        Ok(())
    }

    /// Completes the file. A file without records and interfaces becomes an empty Ethernet capture.
    ///
    /// # Errors
    /// [`WriteError::Io`], also of earlier writes that reach the file only now.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.begin(LinkType::Ethernet)?;
        match self.output {
            Output::Plain(mut output) => output.flush()?,
            Output::Gzip(output) => output.finish()?.flush()?,
        }
        Ok(())
    }

    /// Returns a record's two time fields: seconds and fraction in pcap, upper and lower half in
    /// pcapng.
    fn time_fields(&self, timestamp_ns: u64) -> Result<(u32, u32), WriteError> {
        let fraction_ns = match self.kind {
            FormatKind::Pcapng => return Ok(((timestamp_ns >> 32) as u32, timestamp_ns as u32)),
            FormatKind::Pcap => 1,
            FormatKind::PcapMicroseconds => 1_000,
        };
        let Ok(seconds) = u32::try_from(timestamp_ns / NS_PER_SECOND) else {
            return Err(WriteError::TimeOutOfRange { timestamp_ns });
        };
        Ok((seconds, (timestamp_ns % NS_PER_SECOND / fraction_ns) as u32))
    }

    fn declare(
        &mut self,
        interface: u32,
        name: Option<&str>,
        link_type: LinkType,
    ) -> Result<FileInterface, WriteError> {
        if self.kind != FormatKind::Pcapng
            && let Some(first) = self.interfaces.first()
            && first.link_type != link_type
        {
            return Err(WriteError::SecondLinkType { first: first.link_type, second: link_type });
        }
        let slot = self.interfaces.add(interface, link_type)?;
        self.begin(link_type)?;
        if self.kind == FormatKind::Pcapng {
            self.write_interface_block(name, link_type)?;
        }
        Ok(slot)
    }

    /// Writes the file header, once.
    fn begin(&mut self, link_type: LinkType) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let magic = match self.kind {
            FormatKind::Pcapng => return self.write_section_header(),
            FormatKind::Pcap => pcap::MAGIC_NANOSECONDS,
            FormatKind::PcapMicroseconds => pcap::MAGIC_MICROSECONDS,
        };
        let mut header = [0; pcap::FILE_HEADER_BYTES];
        header[..4].copy_from_slice(&magic.to_le_bytes());
        header[4..6].copy_from_slice(&pcap::VERSION_MAJOR.to_le_bytes());
        header[6..8].copy_from_slice(&pcap::VERSION_MINOR.to_le_bytes());
        header[16..20].copy_from_slice(&SNAPSHOT_BYTES_MAX.to_le_bytes());
        header[20..22].copy_from_slice(&link_type.number().to_le_bytes());
        Ok(self.output.write_all(&header)?)
    }

    fn write_plain_record(&mut self, head: [u32; 4], data: &[u8]) -> Result<(), WriteError> {
        let mut header = [0; pcap::RECORD_HEADER_BYTES];
        for (field, value) in header.chunks_exact_mut(4).zip(head) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        self.output.write_all(&header)?;
        Ok(self.output.write_all(data)?)
    }

    fn write_section_header(&mut self) -> Result<(), WriteError> {
        const UNKNOWN_SECTION_LENGTH: u64 = u64::MAX;
        self.block.clear();
        self.block.extend(pcapng::BYTE_ORDER_MAGIC.to_le_bytes());
        self.block.extend(pcapng::VERSION_MAJOR.to_le_bytes());
        self.block.extend(0_u16.to_le_bytes());
        self.block.extend(UNKNOWN_SECTION_LENGTH.to_le_bytes());
        if self.has_directions {
            self.push_option(pcapng::OPTION_APPLICATION, super::DIRECTIONS_APPLICATION.as_bytes());
            self.push_option(pcapng::OPTION_END, &[]);
        }
        self.write_block(pcapng::BLOCK_SECTION_HEADER)
    }

    fn write_interface_block(&mut self, name: Option<&str>, link_type: LinkType) -> Result<(), WriteError> {
        const NANOSECONDS: u8 = 9;
        const NO_SNAPSHOT_LIMIT: u32 = 0;
        self.block.clear();
        self.block.extend(link_type.number().to_le_bytes());
        self.block.extend(0_u16.to_le_bytes());
        self.block.extend(NO_SNAPSHOT_LIMIT.to_le_bytes());
        if let Some(name) = name {
            self.push_option(pcapng::OPTION_INTERFACE_NAME, bounded_name(name).as_bytes());
        }
        self.push_option(pcapng::OPTION_TIME_RESOLUTION, &[NANOSECONDS]);
        self.push_option(pcapng::OPTION_END, &[]);
        self.write_block(pcapng::BLOCK_INTERFACE)
    }

    fn write_block_record(
        &mut self,
        number: u32,
        head: [u32; 4],
        data: &[u8],
        notes: &Notes<'_>,
    ) -> Result<(), WriteError> {
        self.block.clear();
        self.block.extend(number.to_le_bytes());
        self.block.extend(head.iter().flat_map(|field| field.to_le_bytes()));
        self.block.extend(data);
        if *notes != Notes::default() {
            self.pad_block();
            self.push_notes(notes);
        }
        self.write_block(pcapng::BLOCK_ENHANCED_PACKET)
    }

    fn push_notes(&mut self, notes: &Notes<'_>) {
        if let Some(comment) = notes.comment {
            self.push_option(pcapng::OPTION_COMMENT, bounded_comment(comment).as_bytes());
        }
        if let Some(direction) = notes.direction {
            let flags: u32 = match direction {
                CaptureDirection::In => 1,
                CaptureDirection::Out => 2,
            };
            self.push_option(pcapng::OPTION_FLAGS, &flags.to_le_bytes());
        }
        if let Some(packet_id) = notes.packet_id {
            self.push_option(pcapng::OPTION_PACKET_ID, &packet_id.to_le_bytes());
        }
        self.push_option(pcapng::OPTION_END, &[]);
    }

    /// Appends an option of at most [`super::COMMENT_BYTES_MAX`] to the block.
    fn push_option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend(value);
        self.pad_block();
    }

    fn pad_block(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn write_block(&mut self, kind: u32) -> Result<(), WriteError> {
        self.pad_block();
        // A record is within RECORD_BYTES_MAX, so the length fits.
        let total = (pcapng::BLOCK_HEAD_BYTES + self.block.len() + pcapng::BLOCK_TAIL_BYTES) as u32;
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&total.to_le_bytes())?;
        self.output.write_all(&self.block)?;
        Ok(self.output.write_all(&total.to_le_bytes())?)
    }
}

/// Error of writing a capture.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be created.
    #[error("cannot create {}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The output failed.
    #[error("cannot write the capture")]
    Io(#[from] io::Error),
    /// A record has another link type than the file or its interface.
    #[error(
        "the capture has link type {first:?} and this record {second:?}: write pcapng, with an interface for each link type"
    )]
    SecondLinkType {
        /// Link type of the file or the interface.
        first: LinkType,
        /// Link type of the record.
        second: LinkType,
    },
    /// An interface is declared twice, or after its first record.
    #[error("interface {interface} is in the capture already")]
    InterfaceExists {
        /// Its number.
        interface: u32,
    },
    /// The interface's number reaches [`INTERFACES_MAX`].
    #[error("interface {interface} exceeds the limit: a capture has at most {INTERFACES_MAX} interfaces")]
    TooManyInterfaces {
        /// Its number.
        interface: u32,
    },
    /// A record exceeds [`RECORD_BYTES_MAX`].
    #[error("a record of {bytes} bytes is too long: the limit is {RECORD_BYTES_MAX}")]
    RecordTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A time is after February 2106, which pcap cannot express.
    #[error("{timestamp_ns} ns after 1970 is beyond the range of pcap: write pcapng")]
    TimeOutOfRange {
        /// The time.
        timestamp_ns: u64,
    },
}

enum Output {
    Plain(BufWriter<Box<dyn Write + Send>>),
    Gzip(GzEncoder<BufWriter<Box<dyn Write + Send>>>),
}

impl Output {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Plain(output) => output.write_all(bytes),
            Output::Gzip(output) => output.write_all(bytes),
        }
    }
}

/// An interface of the file.
#[derive(Clone, Copy)]
struct FileInterface {
    /// Its number in the file, in order of declaration.
    number: u32,
    link_type: LinkType,
}

/// The caller's interface numbers, and those of the file.
#[derive(Default)]
struct Interfaces {
    slots: Vec<Option<FileInterface>>,
    first: Option<FileInterface>,
    count: u32,
}

impl Interfaces {
    fn get(&self, interface: u32) -> Option<FileInterface> {
        *self.slots.get(interface as usize)?
    }

    fn first(&self) -> Option<FileInterface> {
        self.first
    }

    fn add(&mut self, interface: u32, link_type: LinkType) -> Result<FileInterface, WriteError> {
        let index = interface as usize;
        if index >= INTERFACES_MAX {
            return Err(WriteError::TooManyInterfaces { interface });
        }
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        let slot = FileInterface { number: self.count, link_type };
        self.slots[index] = Some(slot);
        self.first.get_or_insert(slot);
        self.count += 1;
        Ok(slot)
    }
}
