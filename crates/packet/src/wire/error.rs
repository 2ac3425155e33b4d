//! Errors of reading and writing headers.

use thiserror::Error;

/// The reason why a header could not be read or written. `header` is its common name, `field` the
/// field's in its RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes end before the header does, or before the end that one of its length fields gives.
    #[error("{header} is truncated: {needed_bytes} bytes needed, {available_bytes} there")]
    Truncated {
        /// Name of the header.
        header: &'static str,
        /// Bytes required, from the header's start.
        needed_bytes: usize,
        /// Bytes available.
        available_bytes: usize,
    },
    /// A field has a value that the format forbids, so the bytes after it cannot be parsed.
    #[error("{header} is malformed: {field}")]
    Malformed {
        /// Name of the header.
        header: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// More headers of a kind follow each other than this program looks through.
    #[error("more than {limit} of {header}")]
    TooMany {
        /// Name of the headers.
        header: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The buffer to write to is shorter than the header.
    #[error("no room for {header}: {needed_bytes} bytes needed, {available_bytes} there")]
    NoRoom {
        /// Name of the header.
        header: &'static str,
        /// Bytes required.
        needed_bytes: usize,
        /// Bytes available.
        available_bytes: usize,
    },
    /// A value to write has more bits than its field, or more bytes than its length field can say.
    #[error("{field} does not fit into {header}")]
    Unrepresentable {
        /// Name of the header.
        header: &'static str,
        /// Name of the field.
        field: &'static str,
    },
}
