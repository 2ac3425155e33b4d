//! What is wrong with messages: each kind has a name, a section of an RFC, and says how the parser
//! goes on.

/// Something in a message that the standard forbids, or that readers are known to disagree about.
///
/// An anomaly never stops the parser: it goes on as a lenient server would, and each kind says how.
/// A kind is told once per message, behind the event that it belongs to; repetitions are counted.
/// New kinds come last: saved states and numbers of alerts stand by the place in this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Anomaly {
    /// A line ends in LF without CR; taken as a line's end. RFC 9112, section 2.2.
    BareLineFeed,
    /// A CR that no LF follows; part of the line. RFC 9112, section 2.2.
    BareCarriageReturn,
    /// A NUL byte in a line; part of the line. RFC 9110, section 5.5.
    NulByte,
    /// A line (a header with its folds) is longer than the [`Line`](crate::http::Line) has room
    /// for; it is read as if it ended there. RFC 9112, section 3.
    LineTooLong,
    /// A message's start line and headers have more than
    /// [`HEAD_BYTES_MAX`](crate::http::HEAD_BYTES_MAX) together; reading goes on. RFC 9110,
    /// section 5.4.
    HeadTooLong,
    /// A message has more than [`HEADER_MAX`](crate::http::HEADER_MAX) headers; reading goes
    /// on. RFC 9110, section 5.4.
    TooManyHeaders,
    /// A line where a request line should be is none; it is skipped. RFC 9112, section 3.
    InvalidRequestLine,
    /// Words of the request line are separated by more than one space, by other blanks, or blanks
    /// stand around them; tolerated. RFC 9112, section 3.
    RequestLineBlanks,
    /// The request's target has blanks in it; it is taken whole. RFC 9112, section 3.2.
    SpaceInTarget,
    /// The request's target is empty, or holds controls or bytes beyond ASCII. RFC 9112, section
    /// 3.2.
    InvalidTarget,
    /// The method is not a token. RFC 9110, section 9.1.
    InvalidMethod,
    /// The method is not registered. RFC 9110, section 16.1.
    UnknownMethod,
    /// The request line has no version; taken as HTTP/0.9, a line without headers, unless a header
    /// follows. RFC 9112, section 2.3.
    MissingVersion,
    /// The version is neither HTTP/1.0 nor HTTP/1.1; taken as HTTP/1.1. RFC 9112, section 2.3.
    UnknownVersion,
    /// A line where a status line should be is none; the first of a connection begins a body
    /// without headers, another is skipped. RFC 9112, section 4.
    InvalidStatusLine,
    /// Words of the status line are separated by more than one space or by other blanks; tolerated.
    /// RFC 9112, section 4.
    StatusLineBlanks,
    /// The status code is not of three digits from 100 to 599. RFC 9110, section 15.
    InvalidStatusCode,
    /// A header line has no colon; it is told as a header without name. RFC 9112, section 5.
    HeaderWithoutColon,
    /// A header's name is empty. RFC 9112, section 5.
    EmptyHeaderName,
    /// Blanks between a header's name and its colon; the name counts without them. RFC 9112,
    /// section 5.1.
    BlankBeforeColon,
    /// A header's name is not a token. RFC 9110, section 5.1.
    IllegalHeaderName,
    /// A header's value holds controls. RFC 9110, section 5.5.
    IllegalHeaderValue,
    /// A header goes on in a next line. RFC 9112, section 5.2.
    ObsoleteFold,
    /// The first line after the start line begins with a blank; it is skipped. RFC 9112, section
    /// 2.2.
    BlankBeforeHeaders,
    /// A request of HTTP/1.1 has no Host. RFC 9112, section 3.2.
    MissingHost,
    /// A request has more than one Host; the first counts. RFC 9112, section 3.2.
    DuplicateHost,
    /// Host is not a host with or without port. RFC 9112, section 3.2.
    InvalidHost,
    /// Host differs from the authority in the request's target, which counts. RFC 9112, section
    /// 3.2.2.
    HostMismatch,
    /// Content-Length is not a number (a sign, other characters, empty, too large); it is ignored.
    /// RFC 9112, section 6.3.
    InvalidContentLength,
    /// Content-Length is a list; its first element counts. RFC 9110, section 8.6.
    ListedContentLength,
    /// Content-Length comes more than once, with the same value. RFC 9110, section 8.6.
    DuplicateContentLength,
    /// Content-Length has values that differ; the first counts. RFC 9112, section 6.3.
    ConflictingContentLength,
    /// Content-Length and Transfer-Encoding in one message; the latter counts if it is known. RFC
    /// 9112, section 6.3.
    LengthAndTransferEncoding,
    /// Transfer-Encoding is written so that some readers see it and others do not: folds, tabs,
    /// controls, quotes, blanks before the colon, empty elements, lines that end in LF among
    /// others. RFC 9112, section 6.1.
    ObfuscatedTransferEncoding,
    /// A transfer coding that is not registered; ignored, unless it is a response's and `chunked`
    /// is a part of it. RFC 9112, section 6.1.
    UnknownTransferCoding,
    /// Transfer-Encoding whose last coding is not chunked; a request's body is then what
    /// Content-Length says, a response's is in chunks if chunked is among the codings, else it goes
    /// on until the end. RFC 9112, section 6.1.
    ChunkedNotFinal,
    /// The coding chunked comes more than once; it is undone once. RFC 9112, section 6.1.
    RepeatedChunked,
    /// Transfer-Encoding in a message of HTTP/1.0; it counts. RFC 9112, section 6.1.
    TransferEncodingInOldVersion,
    /// Content-Length or Transfer-Encoding in a response that cannot have them (1xx, 204, 2xx to
    /// CONNECT); ignored. RFC 9110, section 8.6.
    FramingWithoutBody,
    /// A chunk's size is not a hexadecimal number or too large; the rest of a response is body, in
    /// the rest of requests one is searched for. RFC 9112, section 7.1.
    InvalidChunkSize,
    /// A chunk's size has a prefix 0x, a sign, blanks around it, or other signs after it; the
    /// number counts. RFC 9112, section 7.1.
    DecoratedChunkSize,
    /// A chunk's data is not followed by a line's end; up to there is skipped. RFC 9112, section
    /// 7.1.
    MissingChunkEnd,
    /// Content-Length, Transfer-Encoding or Host in a trailer; ignored. RFC 9110, section 6.5.1.
    FramingInTrailer,
    /// A response to which no request was seen. RFC 9110, section 3.4.
    ResponseWithoutRequest,
    /// More requests are unanswered than are remembered; their methods are taken as ordinary. RFC
    /// 9112, section 9.3.2.
    PipelineFull,
    /// A 101 to a request that did not ask for an upgrade; it counts. RFC 9110, section 7.8.
    UnexpectedUpgrade,
    /// A message behind one that said it was the last; it is read. RFC 9112, section 9.6.
    DataAfterClose,
    /// Bytes behind a CONNECT that is not answered yet; as a request if they begin like one, else
    /// as the tunnel's. RFC 9110, section 9.3.6.
    EarlyTunnelData,
    /// The connection ended inside of a message. RFC 9112, section 8.
    IncompleteMessage,
    /// The line with a chunk's size ends in LF without CR; taken as its end. RFC 9112, section 7.1.
    BareLineFeedInChunkSize,
    /// The same with an extension, of which others may take the LF as a part. RFC 9112, section
    /// 7.1.1.
    BareLineFeedInChunkExtension,
    /// A chunk's data, or the trailers, end with LF without CR; taken as their end. RFC 9112,
    /// section 7.1.
    BareLineFeedInChunkEnd,
    /// Content-Length is written so that some readers see it and others do not: folds, tabs, blanks
    /// before the colon, lines that end in LF among others; it counts. RFC 9112, section 6.2.
    ObfuscatedContentLength,
    /// A name that is Content-Length or Transfer-Encoding but for bytes which some readers pass
    /// over or replace, either in a fold, without a colon, or cut by a line's end; it is another
    /// header. RFC 9112, section 6.3.
    DisguisedFraming,
    /// Expect is not `100-continue` alone, comes more than once, or without a body. RFC 9110,
    /// section 10.1.1.
    InvalidExpectation,
    /// A request's body, or a chunk of it, begins like a request: who takes the body for empty
    /// reads one. RFC 9112, section 11.2.
    RequestInBody,
    /// Content-Encoding names several codings, has empty elements, or elements that are no tokens;
    /// each is undone as far as it can be. RFC 9110, section 8.4.
    OddContentCoding,
    /// A response that cannot have a body is followed by one, as its headers announce it, or by
    /// lines up to the next status line; it is told after the response's end. RFC 9110, section
    /// 6.4.1.
    UnexpectedBody,
    /// A chunk extension is not of names, or of names and values that are tokens or quoted strings;
    /// ignored. RFC 9112, section 7.1.1.
    InvalidChunkExtension,
    /// The head of a message whose first line ends with CR LF ends with LF alone; taken as its end.
    /// RFC 9112, section 2.2.
    BareLineFeedEndsHead,
    /// The connection goes on with HTTP/2, which is not read. RFC 9113, section 3.
    Http2Unread,
}

impl Anomaly {
    /// All kinds, in their order.
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

    /// A short name in kebab case, which never changes.
    pub const fn name(self) -> &'static str {
        self.about().0
    }

    /// The section that it offends, such as `RFC 9112, section 6.3`.
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

impl std::fmt::Display for Anomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.section())
    }
}

/// A set of anomalies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies(u64);

impl Anomalies {
    /// The set of none.
    pub const NONE: Self = Self(0);

    /// The set with one more.
    #[must_use]
    pub const fn with(self, anomaly: Anomaly) -> Self {
        Self(self.0 | 1 << anomaly as u32)
    }

    /// Adds one.
    pub fn add(&mut self, anomaly: Anomaly) {
        *self = self.with(anomaly);
    }

    /// Adds one if so.
    pub(crate) fn add_if(&mut self, condition: bool, anomaly: Anomaly) {
        self.0 |= u64::from(condition) << anomaly as u32;
    }

    /// Whether it is in the set.
    pub const fn has(self, anomaly: Anomaly) -> bool {
        self.0 & 1 << anomaly as u32 != 0
    }

    /// Those of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether none is.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of the set, in their order.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            // Bits above the last kind may come from a state of elsewhere: they stand for nothing.
            let anomaly = Anomaly::ALL.get(rest.trailing_zeros() as usize).copied()?;
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
        let mut all = Anomalies::NONE;
        for (number, anomaly) in Anomaly::ALL.into_iter().enumerate() {
            assert_eq!(anomaly as usize, number);
            assert!(!all.has(anomaly));
            all.add(anomaly);
        }
        assert!(all.iter().eq(Anomaly::ALL));
        let mut names: Vec<_> = Anomaly::ALL.iter().map(|a| a.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Anomaly::ALL.len());
        assert_eq!(Anomaly::BareLineFeed.to_string(), "bare-line-feed (RFC 9112, section 2.2)");
    }

    #[test]
    fn bits_that_stand_for_nothing_are_passed_over() {
        assert_eq!(Anomalies::from_bits(u64::MAX).iter().count(), Anomaly::ALL.len());
    }
}
