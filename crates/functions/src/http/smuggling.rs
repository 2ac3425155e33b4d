//! Which anomalies are more than bad manners: readers are known to disagree about where a message
//! ends behind them, so that what is a body to one is a request to the other.

use applayer::http::Anomaly;

/// Whether client, server and whatever stands between them may disagree about a message's framing
/// (RFC 9112 11.2).
pub const fn is_smuggling(anomaly: Anomaly) -> bool {
    matches!(
        anomaly,
        Anomaly::BareCarriageReturn
            | Anomaly::BlankBeforeColon
            | Anomaly::BlankBeforeHeaders
            | Anomaly::InvalidContentLength
            | Anomaly::ListedContentLength
            | Anomaly::ConflictingContentLength
            | Anomaly::LengthAndTransferEncoding
            | Anomaly::ObfuscatedTransferEncoding
            | Anomaly::UnknownTransferCoding
            | Anomaly::ChunkedNotFinal
            | Anomaly::RepeatedChunked
            | Anomaly::TransferEncodingInOldVersion
            | Anomaly::InvalidChunkSize
            | Anomaly::DecoratedChunkSize
            | Anomaly::MissingChunkEnd
            | Anomaly::BareLineFeedInChunkSize
            | Anomaly::BareLineFeedInChunkExtension
            | Anomaly::BareLineFeedInChunkEnd
            | Anomaly::ObfuscatedContentLength
            | Anomaly::DisguisedFraming
            | Anomaly::InvalidExpectation
            | Anomaly::RequestInBody
            | Anomaly::BareLineFeedEndsHead
    )
}

/// The number of an alert about an anomaly.
pub const fn signature(anomaly: Anomaly) -> u32 {
    anomaly as u32 + 1
}

/// The number of an alert about a method that is not allowed.
pub const METHOD_SIGNATURE: u32 = 1_000;
