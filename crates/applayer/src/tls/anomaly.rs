//! Violations of the TLS standards.

/// A violation of the standards. Each kind is reported once per direction; repetitions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TlsAnomaly {
    /// The record header is invalid; parsing stops. RFC 8446, section 5.1.
    NotTls,
    /// A record is longer than [`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX); parsing stops. RFC
    /// 8446, section 5.1.
    RecordTooLong,
    /// A record's version is later than that of TLS 1.3; the record is parsed anyway. RFC 8446,
    /// section 5.1.
    UnknownVersion,
    /// A handshake or alert record is empty; it is skipped. RFC 8446, section 5.1.
    EmptyRecord,
    /// Another record separates two records of one handshake message; the message continues after
    /// it. RFC 8446, section 5.1.
    Interleaved,
    /// A handshake message exceeds the capacity of the [`LineBuffer`](crate::LineBuffer); it is
    /// truncated.
    MessageTooLong,
    /// The direction ends within a handshake message; the partial message is parsed.
    MessageCut,
    /// Lengths in a handshake message contradict each other; the part before is parsed. RFC 8446,
    /// section 4.
    Malformed,
}

impl TlsAnomaly {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::NotTls,
        Self::RecordTooLong,
        Self::UnknownVersion,
        Self::EmptyRecord,
        Self::Interleaved,
        Self::MessageTooLong,
        Self::MessageCut,
        Self::Malformed,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotTls => "not-tls",
            Self::RecordTooLong => "record-too-long",
            Self::UnknownVersion => "unknown-version",
            Self::EmptyRecord => "empty-record",
            Self::Interleaved => "interleaved",
            Self::MessageTooLong => "message-too-long",
            Self::MessageCut => "message-cut",
            Self::Malformed => "malformed",
        }
    }
}
