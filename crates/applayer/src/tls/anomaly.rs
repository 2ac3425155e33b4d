//! What is wrong with a stream.

/// Something that the standards forbid. Each kind is told once per direction; repetitions are
/// counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Anomaly {
    /// What should be a record's header is none; nothing more is read. RFC 8446, section 5.1.
    NotTls,
    /// A record is longer than [`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX); nothing more is
    /// read. RFC 8446, section 5.1.
    RecordTooLong,
    /// A record's version is later than that of TLS 1.3; it is read nevertheless. RFC 8446, section
    /// 5.1.
    UnknownVersion,
    /// A record of a handshake or alert is empty; it is passed over. RFC 8446, section 5.1.
    EmptyRecord,
    /// Another record stands between two of one handshake message; the message goes on behind it.
    /// RFC 8446, section 5.1.
    Interleaved,
    /// A handshake message is longer than the [`Line`](crate::Line) has room for; its beginning is
    /// read.
    MessageTooLong,
    /// A direction ends inside of a handshake message; what there is of it is read.
    MessageCut,
    /// A handshake message's lengths contradict each other; what stands before is read. RFC 8446,
    /// section 4.
    Malformed,
}

impl Anomaly {
    /// All of them.
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

    /// The name in reports.
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
