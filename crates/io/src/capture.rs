//! Capture files: pcap and pcapng, plain or gzipped, read and written as streams.
//!
//! ```no_run
//! use io::capture::{CaptureFormat, CaptureReader, CaptureWriter};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut input = CaptureReader::open("in.pcapng")?;
//! let mut output = CaptureWriter::create("out.pcap.gz", CaptureFormat::of_path("out.pcap.gz"))?;
//! while let Some(record) = input.next()? {
//!     output.write(&record)?;
//! }
//! output.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. No
//! library that was tried (`pcap-file`, `pcap-parser`) does all of the following: an error names
//! its byte offset; memory is bounded by the data that arrive, not by a length field; and files
//! that other tools accept (sub-second fields out of range, the modified pcap header, the obsolete
//! packet block) are read.
//!
//! # Limits
//!
//! [`RECORD_BYTES_MAX`], [`BLOCK_BYTES_MAX`], [`INTERFACES_MAX`], [`NAME_BYTES_MAX`],
//! [`COMMENT_BYTES_MAX`]. A value above a limit is an error with its offset, never a silent cut;
//! only an interface's name and a comment are shortened.

mod error;
mod fields;
mod format;
mod pcap;
mod pcapng;
mod reader;
mod source;
mod time;
mod writer;

use packet::LinkType;

pub use error::ReadError;
pub use format::{CaptureFormat, FormatKind};
pub use reader::CaptureReader;
pub use writer::{CaptureWriter, WriteError};

/// The largest common snapshot length, in bytes: the default of capturing programs.
pub const SNAPSHOT_BYTES_MAX: u32 = 262_144;

/// Bytes that a record may have above [`SNAPSHOT_BYTES_MAX`]: pseudo-headers that are put before a
/// packet after it was cut.
pub const RECORD_ALLOWANCE_BYTES: u32 = 4_096;

/// Bytes of one record.
pub const RECORD_BYTES_MAX: u32 = SNAPSHOT_BYTES_MAX + RECORD_ALLOWANCE_BYTES;

/// Bytes of a pcapng block of any type.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// Interfaces of one capture, over all its sections.
pub const INTERFACES_MAX: usize = 16_384;

/// Bytes of an interface's name, in UTF-8; the rest is cut off.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a written comment, in UTF-8; the rest is cut off.
pub const COMMENT_BYTES_MAX: usize = 4_096;

/// The application name of a section with records that have a [`CaptureDirection`] relative to a
/// forwarding program: captured before or after it. Flags of other programs are relative to a
/// host's own interface.
pub const DIRECTIONS_APPLICATION: &str = "rivulet capture";

/// A captured packet, borrowed from the reader or from the caller that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureRecord<'a> {
    /// Nanoseconds since 1970-01-01 00:00 UTC; 0 where the file has no time for it (simple packet
    /// blocks), see [`CaptureReader::has_time`].
    pub timestamp_ns: u64,
    /// Index into [`CaptureReader::interfaces`]; always 0 in pcap.
    pub interface: u32,
    /// Type of the first header.
    pub link_type: LinkType,
    /// The packet's length on the wire in bytes, as the file states it. It may be absurd, even
    /// below `data.len()`.
    pub wire_len: u32,
    /// The captured bytes, at most [`RECORD_BYTES_MAX`].
    pub data: &'a [u8],
}

/// Optional fields of a pcapng record; pcap has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes<'a> {
    /// A comment for readers of the capture (`opt_comment`); at most [`COMMENT_BYTES_MAX`].
    pub comment: Option<&'a str>,
    /// Direction of the packet (`epb_flags`).
    pub direction: Option<CaptureDirection>,
    /// A number shared by all records of one packet that was captured at several interfaces
    /// (`epb_packetid`).
    pub packet_id: Option<u64>,
}

/// Direction of a packet at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDirection {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// An interface at which packets were captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Type of the first header of its packets.
    pub link_type: LinkType,
    /// Its name, if known; at most [`NAME_BYTES_MAX`].
    pub name: Option<String>,
    /// The snapshot length in bytes; 0 if packets are whole.
    pub snapshot_bytes: u32,
}

/// Cuts `name` to [`NAME_BYTES_MAX`] at a character's end.
fn bounded_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

/// Cuts `comment` to [`COMMENT_BYTES_MAX`] at a character's end.
fn bounded_comment(comment: &str) -> &str {
    &comment[..comment.floor_char_boundary(COMMENT_BYTES_MAX)]
}
