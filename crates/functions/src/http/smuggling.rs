//! Anomalies that permit request smuggling: implementations are known to disagree about the end of
//! such a message, so one's body is another's request.

use applayer::http::HttpAnomaly;

/// Returns whether client, server and intermediaries may disagree about the framing of a message
/// (RFC 9112 11.2).
pub const fn is_smuggling(anomaly: HttpAnomaly) -> bool {
    matches!(
        anomaly,
        HttpAnomaly::BareCarriageReturn
            | HttpAnomaly::BlankBeforeColon
            | HttpAnomaly::BlankBeforeHeaders
            | HttpAnomaly::InvalidContentLength
            | HttpAnomaly::ListedContentLength
            | HttpAnomaly::ConflictingContentLength
            | HttpAnomaly::LengthAndTransferEncoding
            | HttpAnomaly::ObfuscatedTransferEncoding
            | HttpAnomaly::UnknownTransferCoding
            | HttpAnomaly::ChunkedNotFinal
            | HttpAnomaly::RepeatedChunked
            | HttpAnomaly::TransferEncodingInOldVersion
            | HttpAnomaly::InvalidChunkSize
            | HttpAnomaly::DecoratedChunkSize
            | HttpAnomaly::MissingChunkEnd
            | HttpAnomaly::BareLineFeedInChunkSize
            | HttpAnomaly::BareLineFeedInChunkExtension
            | HttpAnomaly::BareLineFeedInChunkEnd
            | HttpAnomaly::ObfuscatedContentLength
            | HttpAnomaly::DisguisedFraming
            | HttpAnomaly::InvalidExpectation
            | HttpAnomaly::RequestInBody
            | HttpAnomaly::BareLineFeedEndsHead
    )
}

/// Returns the sid of alerts about an anomaly.
pub const fn signature(anomaly: HttpAnomaly) -> u32 {
    anomaly as u32 + 1
}

/// The sid of alerts about a forbidden method.
pub const METHOD_SIGNATURE: u32 = 1_000;
