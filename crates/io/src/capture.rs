//! Capture files: pcap and pcapng, plain or gzipped, read and written as streams.
//!
//! ```no_run
//! use io::capture::{Format, Reader, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut input = Reader::open("in.pcapng")?;
//! let mut output = Writer::create("out.pcap.gz", Format::of_path("out.pcap.gz"))?;
//! while let Some(record) = input.next()? {
//!     output.write(&record)?;
//! }
//! output.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. They are read
//! here, not with a library, for three reasons that the ones tried (`pcap-file`, `pcap-parser`) do
//! not meet together: an error names the byte at which it was found, memory is bounded by what
//! really arrives and not by what a length field claims, and files that other tools accept
//! (sub-second fields out of range, the modified pcap header, the obsolete packet block) are read
//! rather than refused.
//!
//! # Limits
//!
//! [`RECORD_BYTES_MAX`], [`BLOCK_BYTES_MAX`], [`INTERFACES_MAX`], [`NAME_BYTES_MAX`],
//! [`COMMENT_BYTES_MAX`]. What is over a limit is an error with its offset, never a silent cut;
//! only an interface's name and a comment are shortened.

mod format;
mod pcap;
mod pcapng;
mod reader;
mod source;
mod time;
mod writer;

use packet::LinkType;

pub use format::{Format, FormatKind};
pub use reader::{ReadError, Reader};
pub use writer::{WriteError, Writer};

/// The largest snapshot length in common use, in bytes: what capturing programs write by default.
pub const SNAPSHOT_BYTES_MAX: u32 = 262_144;

/// What a record may have above [`SNAPSHOT_BYTES_MAX`], in bytes: pseudo-headers that are put in
/// front of a packet after it was cut.
pub const RECORD_ALLOWANCE_BYTES: u32 = 4_096;

/// The most bytes that one record may hold.
pub const RECORD_BYTES_MAX: u32 = SNAPSHOT_BYTES_MAX + RECORD_ALLOWANCE_BYTES;

/// The longest block of a pcapng file, in bytes, whatever its type.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// The most interfaces that one capture may name, over all its sections.
pub const INTERFACES_MAX: usize = 16_384;

/// The longest interface name that is kept or written, in bytes of UTF-8; the rest is cut off.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest comment that is written, in bytes of UTF-8; the rest is cut off.
pub const COMMENT_BYTES_MAX: usize = 4_096;

/// The program that a section says to be written by if its records have [`Way`]s that readers are
/// to go by: a capture before and after a program that sends packets on. Other programs' flags mean
/// the way by a host's own interface.
pub const WAYS_APPLICATION: &str = "rivulet capture";

/// One captured packet, borrowed from the reader that found it or the caller that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970-01-01 00:00 UTC; 0 where the file has no time for it (simple packet
    /// blocks), see [`Reader::has_time`].
    pub timestamp_ns: u64,
    /// Index into [`Reader::interfaces`]; always 0 in pcap.
    pub interface: u32,
    /// How to read the first header.
    pub link_type: LinkType,
    /// The packet's length on the wire, in bytes, as the file states it: it may be absurd, even
    /// below `data.len()`.
    pub wire_len: u32,
    /// The captured bytes, at most [`RECORD_BYTES_MAX`].
    pub data: &'a [u8],
}

/// What pcapng can say of a record beside its bytes; pcap cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes<'a> {
    /// For whoever reads the capture (`opt_comment`); at most [`COMMENT_BYTES_MAX`].
    pub comment: Option<&'a str>,
    /// Which way it went (`epb_flags`).
    pub way: Option<Way>,
    /// The same number for each record of one packet that was seen at several interfaces
    /// (`epb_packetid`).
    pub packet_id: Option<u64>,
}

/// Which way a packet went by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It came in.
    In,
    /// It left.
    Out,
}

/// A place at which packets were captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// How to read the first header of its packets.
    pub link_type: LinkType,
    /// Its name, if the file gives one; at most [`NAME_BYTES_MAX`].
    pub name: Option<String>,
    /// The length to which packets were cut, in bytes; 0 means not at all.
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
