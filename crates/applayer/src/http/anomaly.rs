//! Anomalies of messages: each has a name, an RFC section, and a documented recovery.

/// A violation of the standard, or a construct that implementations are known to parse differently.
///
/// An anomaly never stops the parser: parsing continues as a lenient server would, and each kind
/// documents how. A kind is reported once per message, after the event that it belongs to;
/// repetitions are counted. New kinds must come last: saved states and alert numbers refer to
/// positions in this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum HttpAnomaly {
    /// A line ends in LF without CR; it counts as a line ending. RFC 9112, section 2.2.
    BareLineFeed,
    /// A CR without LF; part of the line. RFC 9112, section 2.2.
    BareCarriageReturn,
    /// A NUL byte in a line; part of the line. RFC 9110, section 5.5.
    NulByte,
    /// A line (a header with its folds) exceeds the capacity of the
    /// [`LineBuffer`](crate::http::LineBuffer); it is truncated. RFC 9112, section 3.
    LineTooLong,
    /// The start line and headers together exceed [`HEAD_BYTES_MAX`](crate::http::HEAD_BYTES_MAX);
    /// parsing continues. RFC 9110, section 5.4.
    HeadTooLong,
    /// A message has more than [`HEADER_MAX`](crate::http::HEADER_MAX) headers; parsing continues.
    /// RFC 9110, section 5.4.
    TooManyHeaders,
    /// A line in place of a request line is not one; it is skipped. RFC 9112, section 3.
    InvalidRequestLine,
    /// The parts of the request line are separated by several spaces or by other blanks, or
    /// surrounded by blanks; accepted. RFC 9112, section 3.
    RequestLineBlanks,
    /// The request target contains blanks; it is taken whole. RFC 9112, section 3.2.
    SpaceInTarget,
    /// The request target is empty, or contains control characters or non-ASCII bytes. RFC 9112,
    /// section 3.2.
    InvalidTarget,
    /// The method is not a token. RFC 9110, section 9.1.
    InvalidMethod,
    /// The method is not registered. RFC 9110, section 16.1.
    UnknownMethod,
    /// The request line has no version; taken as HTTP/0.9, which has no headers, unless a header
    /// follows. RFC 9112, section 2.3.
    MissingVersion,
    /// The version is neither HTTP/1.0 nor HTTP/1.1; taken as HTTP/1.1. RFC 9112, section 2.3.
    UnknownVersion,
    /// A line in place of a status line is not one. The first of a connection begins a body without
    /// headers; any other is skipped. RFC 9112, section 4.
    InvalidStatusLine,
    /// The parts of the status line are separated by several spaces or by other blanks; accepted.
    /// RFC 9112, section 4.
    StatusLineBlanks,
    /// The status code is not three digits from 100 to 599. RFC 9110, section 15.
    InvalidStatusCode,
    /// A header line has no colon; it is reported as a header without a name. RFC 9112, section 5.
    HeaderWithoutColon,
    /// A header's name is empty. RFC 9112, section 5.
    EmptyHeaderName,
    /// Blanks between a header's name and its colon; they are not part of the name. RFC 9112,
    /// section 5.1.
    BlankBeforeColon,
    /// A header's name is not a token. RFC 9110, section 5.1.
    IllegalHeaderName,
    /// A header's value contains control characters. RFC 9110, section 5.5.
    IllegalHeaderValue,
    /// A header continues on the next line. RFC 9112, section 5.2.
    ObsoleteFold,
    /// The first line after the start line begins with a blank; it is skipped. RFC 9112, section
    /// 2.2.
    BlankBeforeHeaders,
    /// An HTTP/1.1 request has no Host. RFC 9112, section 3.2.
    MissingHost,
    /// A request has more than one Host; the first counts. RFC 9112, section 3.2.
    DuplicateHost,
    /// Host is not a host with an optional port. RFC 9112, section 3.2.
    InvalidHost,
    /// Host differs from the authority in the request target; the target counts. RFC 9112, section
    /// 3.2.2.
    HostMismatch,
    /// Content-Length is not a number (a sign, other characters, empty, too large); it is ignored.
    /// RFC 9112, section 6.3.
    InvalidContentLength,
    /// Content-Length is a list; its first element counts. RFC 9110, section 8.6.
    ListedContentLength,
    /// Content-Length occurs more than once with the same value. RFC 9110, section 8.6.
    DuplicateContentLength,
    /// Content-Length occurs with different values; the first counts. RFC 9112, section 6.3.
    ConflictingContentLength,
    /// Content-Length and Transfer-Encoding in one message; Transfer-Encoding counts if it is
    /// known. RFC 9112, section 6.3.
    LengthAndTransferEncoding,
    /// Transfer-Encoding is written such that some implementations see it and others do not: folds,
    /// tabs, control characters, quotes, blanks before the colon, empty elements, or LF line
    /// endings among CR LF ones. RFC 9112, section 6.1.
    ObfuscatedTransferEncoding,
    /// An unregistered transfer coding; ignored, unless it is in a response and contains `chunked`.
    /// RFC 9112, section 6.1.
    UnknownTransferCoding,
    /// The last transfer coding is not chunked. A request's body is then framed by Content-Length.
    /// A response's body is chunked if chunked is among the codings, otherwise it extends to the
    /// end. RFC 9112, section 6.1.
    ChunkedNotFinal,
    /// The coding chunked occurs more than once; it is decoded once. RFC 9112, section 6.1.
    RepeatedChunked,
    /// Transfer-Encoding in an HTTP/1.0 message; it counts. RFC 9112, section 6.1.
    TransferEncodingInOldVersion,
    /// Content-Length or Transfer-Encoding in a response that must not have them (1xx, 204, 2xx to
    /// CONNECT); ignored. RFC 9110, section 8.6.
    FramingWithoutBody,
    /// A chunk size is not a hexadecimal number or too large. The rest of a response is body; in a
    /// request direction, the parser searches for the next request. RFC 9112, section 7.1.
    InvalidChunkSize,
    /// A chunk size has a prefix 0x, a sign, surrounding blanks, or trailing characters; the number
    /// counts. RFC 9112, section 7.1.
    DecoratedChunkSize,
    /// A chunk's data is not followed by a line ending; bytes up to it are skipped. RFC 9112,
    /// section 7.1.
    MissingChunkEnd,
    /// Content-Length, Transfer-Encoding or Host in a trailer; ignored. RFC 9110, section 6.5.1.
    FramingInTrailer,
    /// A response without a request. RFC 9110, section 3.4.
    ResponseWithoutRequest,
    /// More unanswered requests than [`PIPELINE_MAX`](crate::http::PIPELINE_MAX); the methods of
    /// further ones are taken as ordinary. RFC 9112, section 9.3.2.
    PipelineFull,
    /// A 101 in response to a request without Upgrade; it counts. RFC 9110, section 7.8.
    UnexpectedUpgrade,
    /// A message after the announced last one; it is parsed. RFC 9112, section 9.6.
    DataAfterClose,
    /// Bytes after an unanswered CONNECT; parsed as a request if they begin like one, otherwise as
    /// tunnel data. RFC 9110, section 9.3.6.
    EarlyTunnelData,
    /// The connection ended within a message. RFC 9112, section 8.
    IncompleteMessage,
    /// A chunk-size line ends in LF without CR; it counts as a line ending. RFC 9112, section 7.1.
    BareLineFeedInChunkSize,
    /// The same with a chunk extension, which may absorb the LF in other implementations. RFC 9112,
    /// section 7.1.1.
    BareLineFeedInChunkExtension,
    /// A chunk's data, or the trailers, end with LF without CR; it counts as a line ending. RFC
    /// 9112, section 7.1.
    BareLineFeedInChunkEnd,
    /// Content-Length is written such that some implementations see it and others do not: folds,
    /// tabs, blanks before the colon, or LF line endings among CR LF ones; it counts. RFC 9112,
    /// section 6.2.
    ObfuscatedContentLength,
    /// A name that equals Content-Length or Transfer-Encoding except for bytes that some
    /// implementations skip or replace, or that appears in a fold, without a colon, or cut by a
    /// line ending; it is another header. RFC 9112, section 6.3.
    DisguisedFraming,
    /// Expect is not just `100-continue`, occurs more than once, or comes without a body. RFC 9110,
    /// section 10.1.1.
    InvalidExpectation,
    /// A request body, or a chunk of it, begins like a request: an implementation that sees no body
    /// would parse one. RFC 9112, section 11.2.
    RequestInBody,
    /// Content-Encoding names several codings, or has empty elements or elements that are not
    /// tokens; each is decoded as far as possible. RFC 9110, section 8.4.
    OddContentCoding,
    /// A response that must not have a body is followed by one, announced by its headers or as
    /// lines before the next status line; reported after the end of the response. RFC 9110, section
    /// 6.4.1.
    UnexpectedBody,
    /// A chunk extension is malformed: it must consist of names, optionally with a token or quoted
    /// string as value; ignored. RFC 9112, section 7.1.1.
    InvalidChunkExtension,
    /// A head with CR LF after its first line ends with LF alone; this counts as its end. RFC 9112,
    /// section 2.2.
    BareLineFeedEndsHead,
    /// The connection continues with HTTP/2, which is not parsed. RFC 9113, section 3.
    Http2Unread,
}

impl HttpAnomaly {
    /// All kinds, in order.
    pub const ALL: [Self; 61] = [
        Self::BareLineFeed,
        Self::BareCarriageReturn,
        Self::NulByte,
        Self::LineTooLong,
        Self::HeadTooLong,
        Self::TooManyHeaders,
        Self::InvalidRequestLine,
        Self::RequestLineBlanks,
        Self::SpaceInTarget,
        Self::InvalidTarget,
        Self::InvalidMethod,
        Self::UnknownMethod,
        Self::MissingVersion,
        Self::UnknownVersion,
        Self::InvalidStatusLine,
        Self::StatusLineBlanks,
        Self::InvalidStatusCode,
        Self::HeaderWithoutColon,
        Self::EmptyHeaderName,
        Self::BlankBeforeColon,
        Self::IllegalHeaderName,
        Self::IllegalHeaderValue,
        Self::ObsoleteFold,
        Self::BlankBeforeHeaders,
        Self::MissingHost,
        Self::DuplicateHost,
        Self::InvalidHost,
        Self::HostMismatch,
        Self::InvalidContentLength,
        Self::ListedContentLength,
        Self::DuplicateContentLength,
        Self::ConflictingContentLength,
        Self::LengthAndTransferEncoding,
        Self::ObfuscatedTransferEncoding,
        Self::UnknownTransferCoding,
        Self::ChunkedNotFinal,
        Self::RepeatedChunked,
        Self::TransferEncodingInOldVersion,
        Self::FramingWithoutBody,
        Self::InvalidChunkSize,
        Self::DecoratedChunkSize,
        Self::MissingChunkEnd,
        Self::FramingInTrailer,
        Self::ResponseWithoutRequest,
        Self::PipelineFull,
        Self::UnexpectedUpgrade,
        Self::DataAfterClose,
        Self::EarlyTunnelData,
        Self::IncompleteMessage,
        Self::BareLineFeedInChunkSize,
        Self::BareLineFeedInChunkExtension,
        Self::BareLineFeedInChunkEnd,
        Self::ObfuscatedContentLength,
        Self::DisguisedFraming,
        Self::InvalidExpectation,
        Self::RequestInBody,
        Self::OddContentCoding,
        Self::UnexpectedBody,
        Self::InvalidChunkExtension,
        Self::BareLineFeedEndsHead,
        Self::Http2Unread,
    ];

    /// Returns the kebab-case name, which never changes.
    pub const fn name(self) -> &'static str {
        self.about().0
    }

    /// Returns the violated section, such as `RFC 9112, section 6.3`.
    pub const fn section(self) -> &'static str {
        self.about().1
    }

    const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::BareLineFeed => ("bare-line-feed", "RFC 9112, section 2.2"),
            Self::BareCarriageReturn => ("bare-carriage-return", "RFC 9112, section 2.2"),
            Self::NulByte => ("nul-byte", "RFC 9110, section 5.5"),
            Self::LineTooLong => ("line-too-long", "RFC 9112, section 3"),
            Self::HeadTooLong => ("head-too-long", "RFC 9110, section 5.4"),
            Self::TooManyHeaders => ("too-many-headers", "RFC 9110, section 5.4"),
            Self::InvalidRequestLine => ("invalid-request-line", "RFC 9112, section 3"),
            Self::RequestLineBlanks => ("request-line-blanks", "RFC 9112, section 3"),
            Self::SpaceInTarget => ("space-in-target", "RFC 9112, section 3.2"),
            Self::InvalidTarget => ("invalid-target", "RFC 9112, section 3.2"),
            Self::InvalidMethod => ("invalid-method", "RFC 9110, section 9.1"),
            Self::UnknownMethod => ("unknown-method", "RFC 9110, section 16.1"),
            Self::MissingVersion => ("missing-version", "RFC 9112, section 2.3"),
            Self::UnknownVersion => ("unknown-version", "RFC 9112, section 2.3"),
            Self::InvalidStatusLine => ("invalid-status-line", "RFC 9112, section 4"),
            Self::StatusLineBlanks => ("status-line-blanks", "RFC 9112, section 4"),
            Self::InvalidStatusCode => ("invalid-status-code", "RFC 9110, section 15"),
            Self::HeaderWithoutColon => ("header-without-colon", "RFC 9112, section 5"),
            Self::EmptyHeaderName => ("empty-header-name", "RFC 9112, section 5"),
            Self::BlankBeforeColon => ("blank-before-colon", "RFC 9112, section 5.1"),
            Self::IllegalHeaderName => ("illegal-header-name", "RFC 9110, section 5.1"),
            Self::IllegalHeaderValue => ("illegal-header-value", "RFC 9110, section 5.5"),
            Self::ObsoleteFold => ("obsolete-fold", "RFC 9112, section 5.2"),
            Self::BlankBeforeHeaders => ("blank-before-headers", "RFC 9112, section 2.2"),
            Self::MissingHost => ("missing-host", "RFC 9112, section 3.2"),
            Self::DuplicateHost => ("duplicate-host", "RFC 9112, section 3.2"),
            Self::InvalidHost => ("invalid-host", "RFC 9112, section 3.2"),
            Self::HostMismatch => ("host-mismatch", "RFC 9112, section 3.2.2"),
            Self::InvalidContentLength => ("invalid-content-length", "RFC 9112, section 6.3"),
            Self::ListedContentLength => ("listed-content-length", "RFC 9110, section 8.6"),
            Self::DuplicateContentLength => ("duplicate-content-length", "RFC 9110, section 8.6"),
            Self::ConflictingContentLength => ("conflicting-content-length", "RFC 9112, section 6.3"),
            Self::LengthAndTransferEncoding => ("length-and-transfer-encoding", "RFC 9112, section 6.3"),
            Self::ObfuscatedTransferEncoding => ("obfuscated-transfer-encoding", "RFC 9112, section 6.1"),
            Self::UnknownTransferCoding => ("unknown-transfer-coding", "RFC 9112, section 6.1"),
            Self::ChunkedNotFinal => ("chunked-not-final", "RFC 9112, section 6.1"),
            Self::RepeatedChunked => ("repeated-chunked", "RFC 9112, section 6.1"),
            Self::TransferEncodingInOldVersion => {
                ("transfer-encoding-in-old-version", "RFC 9112, section 6.1")
            }
            Self::FramingWithoutBody => ("framing-without-body", "RFC 9110, section 8.6"),
            Self::InvalidChunkSize => ("invalid-chunk-size", "RFC 9112, section 7.1"),
            Self::DecoratedChunkSize => ("decorated-chunk-size", "RFC 9112, section 7.1"),
            Self::MissingChunkEnd => ("missing-chunk-end", "RFC 9112, section 7.1"),
            Self::FramingInTrailer => ("framing-in-trailer", "RFC 9110, section 6.5.1"),
            Self::ResponseWithoutRequest => ("response-without-request", "RFC 9110, section 3.4"),
            Self::PipelineFull => ("pipeline-full", "RFC 9112, section 9.3.2"),
            Self::UnexpectedUpgrade => ("unexpected-upgrade", "RFC 9110, section 7.8"),
            Self::DataAfterClose => ("data-after-close", "RFC 9112, section 9.6"),
            Self::EarlyTunnelData => ("early-tunnel-data", "RFC 9110, section 9.3.6"),
            Self::IncompleteMessage => ("incomplete-message", "RFC 9112, section 8"),
            Self::BareLineFeedInChunkSize => ("bare-line-feed-in-chunk-size", "RFC 9112, section 7.1"),
            Self::BareLineFeedInChunkExtension => {
                ("bare-line-feed-in-chunk-extension", "RFC 9112, section 7.1.1")
            }
            Self::BareLineFeedInChunkEnd => ("bare-line-feed-in-chunk-end", "RFC 9112, section 7.1"),
            Self::ObfuscatedContentLength => ("obfuscated-content-length", "RFC 9112, section 6.2"),
            Self::DisguisedFraming => ("disguised-framing", "RFC 9112, section 6.3"),
            Self::InvalidExpectation => ("invalid-expectation", "RFC 9110, section 10.1.1"),
            Self::RequestInBody => ("request-in-body", "RFC 9112, section 11.2"),
            Self::OddContentCoding => ("odd-content-coding", "RFC 9110, section 8.4"),
            Self::UnexpectedBody => ("unexpected-body", "RFC 9110, section 6.4.1"),
            Self::InvalidChunkExtension => ("invalid-chunk-extension", "RFC 9112, section 7.1.1"),
            Self::BareLineFeedEndsHead => ("bare-line-feed-ends-head", "RFC 9112, section 2.2"),
            Self::Http2Unread => ("http2-unread", "RFC 9113, section 3"),
        }
    }
}

impl std::fmt::Display for HttpAnomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.section())
    }
}

/// A set of anomalies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HttpAnomalies(u64);

impl HttpAnomalies {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with one more anomaly.
    #[must_use]
    pub const fn with(self, anomaly: HttpAnomaly) -> Self {
        Self(self.0 | 1 << anomaly as u32)
    }

    /// Adds an anomaly.
    pub fn add(&mut self, anomaly: HttpAnomaly) {
        *self = self.with(anomaly);
    }

    /// Adds an anomaly if the condition holds.
    pub(crate) fn add_if(&mut self, condition: bool, anomaly: HttpAnomaly) {
        self.0 |= u64::from(condition) << anomaly as u32;
    }

    /// Returns whether the anomaly is in the set.
    pub const fn has(self, anomaly: HttpAnomaly) -> bool {
        self.0 & 1 << anomaly as u32 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the anomalies in order.
    pub fn iter(self) -> impl Iterator<Item = HttpAnomaly> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            // A foreign state may have bits above the last kind; they are ignored.
            let anomaly = HttpAnomaly::ALL.get(rest.trailing_zeros() as usize).copied()?;
            rest &= rest - 1;
            Some(anomaly)
        })
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_bit_and_name() {
        let mut all = HttpAnomalies::NONE;
        for (number, anomaly) in HttpAnomaly::ALL.into_iter().enumerate() {
            assert_eq!(anomaly as usize, number);
            assert!(!all.has(anomaly));
            all.add(anomaly);
        }
        assert!(all.iter().eq(HttpAnomaly::ALL));
        let mut names: Vec<_> = HttpAnomaly::ALL.iter().map(|a| a.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HttpAnomaly::ALL.len());
        assert_eq!(HttpAnomaly::BareLineFeed.to_string(), "bare-line-feed (RFC 9112, section 2.2)");
    }

    #[test]
    fn undefined_bits_are_ignored() {
        assert_eq!(HttpAnomalies::from_bits(u64::MAX).iter().count(), HttpAnomaly::ALL.len());
    }
}
