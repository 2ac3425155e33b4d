//! Errors of reading a capture.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

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
