//! Why bytes are not a header, or a header not bytes.

use thiserror::Error;

/// Why a header could not be read or written. `header` is its common name, `field` the field's in
/// its RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes end before the header does, or before the end that one of its length fields gives.
    #[error("{header} is truncated: {needed_bytes} bytes needed, {available_bytes} there")]
    Truncated {
        /// Which header.
        header: &'static str,
        /// How many bytes it takes, counted from its first.
        needed_bytes: usize,
        /// How many there are.
        available_bytes: usize,
    },
    /// A field has a value that the format forbids, so that what follows cannot be told.
    #[error("{header} is malformed: {field}")]
    Malformed {
        /// Which header.
        header: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// More headers of a kind follow each other than this program looks through.
    #[error("more than {limit} of {header}")]
    TooMany {
        /// Which kind of header.
        header: &'static str,
        /// The most that are looked through.
        limit: usize,
    },
    /// The buffer to write to is shorter than the header.
    #[error("no room for {header}: {needed_bytes} bytes needed, {available_bytes} there")]
    NoRoom {
        /// Which header.
        header: &'static str,
        /// How many bytes it takes.
        needed_bytes: usize,
        /// How many there are.
        available_bytes: usize,
    },
    /// A value to write has more bits than its field, or more bytes than its length field can say.
    #[error("{field} does not fit into {header}")]
    Unrepresentable {
        /// Which header.
        header: &'static str,
        /// Which field.
        field: &'static str,
    },
}
