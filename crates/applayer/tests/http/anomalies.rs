//! Smuggling and other evasions: bytes, the reported anomalies, and the requests or responses that
//! are parsed anyway.

use crate::support::{Connection, LINE};
use applayer::http::{ExchangeSide, HttpAnomaly};

use HttpAnomaly::*;

/// The bytes; the anomalies, in order; the start, framing, body and end of the messages.
type Case = (&'static str, &'static [HttpAnomaly], &'static str);

/// A head with one more header.
macro_rules! post {
    ($headers:literal, $rest:literal) => {
        concat!("POST / HTTP/1.1\r\nHost: x\r\n", $headers, "\r\n", $rest)
    };
}

/// The same for a response.
macro_rules! ok {
    ($headers:literal, $rest:literal) => {
        concat!("HTTP/1.1 200 OK\r\n", $headers, "\r\n", $rest)
    };
}

const REQUESTS: &[Case] = &[
    // Content-Length against Transfer-Encoding (RFC 9112 6.3).
    (
        post!(
            "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\nGET /in HTTP/1.1\r\nHost: x\r\n\r\n"
        ),
        &[LengthAndTransferEncoding],
        "POST / Chunked end; GET /in None end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "1\r\nZ\r\n0\r\n\r\n"),
        &[LengthAndTransferEncoding],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Content-Length: 3\r\nTransfer-Encoding: xchunked\r\n", "abc"),
        &[UnknownTransferCoding, LengthAndTransferEncoding, ChunkedNotFinal],
        "POST / Length(3) [abc] end",
    ),
    // Content-Length.
    (
        post!("Content-Length: 3\r\nContent-Length: 5\r\n", "abc"),
        &[ConflictingContentLength],
        "POST / Length(3) [abc] end",
    ),
    (
        post!("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"),
        &[DuplicateContentLength],
        "POST / Length(3) [abc] end",
    ),
    (post!("Content-Length: 3, 3\r\n", "abc"), &[ListedContentLength], "POST / Length(3) [abc] end"),
    (
        post!("Content-Length: 3,4\r\n", "abc"),
        &[ListedContentLength, ConflictingContentLength],
        "POST / Length(3) [abc] end",
    ),
    (post!("Content-Length: +3\r\n", ""), &[InvalidContentLength], "POST / None end"),
    (post!("Content-Length: -3\r\n", ""), &[InvalidContentLength], "POST / None end"),
    (post!("Content-Length: 0x3\r\n", ""), &[InvalidContentLength], "POST / None end"),
    (post!("Content-Length: 3 3\r\n", ""), &[InvalidContentLength], "POST / None end"),
    (post!("Content-Length: 99999999999999999999\r\n", ""), &[InvalidContentLength], "POST / None end"),
    (post!("Content-Length: \r\n", ""), &[InvalidContentLength], "POST / None end"),
    (
        post!("Content-Length : 3\r\n", "abc"),
        &[BlankBeforeColon, ObfuscatedContentLength],
        "POST / Length(3) [abc] end",
    ),
    // Transfer codings (RFC 9112 6.1).
    (
        post!("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        &[BlankBeforeColon, ObfuscatedTransferEncoding],
        "POST / Chunked end",
    ),
    (
        post!("Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n"),
        &[ObfuscatedTransferEncoding],
        "POST / Chunked end",
    ),
    (
        post!("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"),
        &[ObsoleteFold, ObfuscatedTransferEncoding],
        "POST / Chunked end",
    ),
    (
        post!("Transfer-Encoding: \x0bchunked\r\n", ""),
        &[IllegalHeaderValue, ObfuscatedTransferEncoding, UnknownTransferCoding, ChunkedNotFinal],
        "POST / None end",
    ),
    (
        post!("Transfer-Encoding: \"chunked\"\r\n", ""),
        &[ObfuscatedTransferEncoding, UnknownTransferCoding, ChunkedNotFinal],
        "POST / None end",
    ),
    (post!("Transfer-Encoding: chunked, gzip\r\n", ""), &[ChunkedNotFinal], "POST / None end"),
    (post!("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), &[], "POST / Chunked end"),
    (
        post!("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", ""),
        &[UnknownTransferCoding, ChunkedNotFinal],
        "POST / None end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        &[RepeatedChunked],
        "POST / Chunked end",
    ),
    (
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[TransferEncodingInOldVersion],
        "POST / Chunked end",
    ),
    // Chunks (RFC 9112 7.1).
    (
        post!("Transfer-Encoding: chunked\r\n", "0x1\r\nZ\r\n0\r\n\r\n"),
        &[DecoratedChunkSize],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1 \r\nZ\r\n0\r\n\r\n"),
        &[DecoratedChunkSize],
        "POST / Chunked [Z] end",
    ),
    (
        post!(
            "Transfer-Encoding: chunked\r\n",
            "10000000000000001\r\nZ\r\nGET /n HTTP/1.1\r\nHost: x\r\n\r\n"
        ),
        &[InvalidChunkSize],
        "POST / Chunked lost; GET /n None end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "-1\r\nZ\r\nGET /n HTTP/1.1\r\nHost: x\r\n\r\n"),
        &[InvalidChunkSize],
        "POST / Chunked lost; GET /n None end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1\r\nZZZ\r\n0\r\n\r\n"),
        &[MissingChunkEnd],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1;\nZ\r\n0\r\n\r\n"),
        &[BareLineFeed, BareLineFeedInChunkExtension, InvalidChunkExtension],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "0\r\nContent-Length: 5\r\n\r\n"),
        &[FramingInTrailer],
        "POST / Chunked end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1\nZ\r\n0\r\n\r\n"),
        &[BareLineFeed, BareLineFeedInChunkSize],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1\r\nZ\n0\r\n\n"),
        &[BareLineFeed, BareLineFeedInChunkEnd],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1;a=\"b\r\nZ\r\n0\r\n\r\n"),
        &[InvalidChunkExtension],
        "POST / Chunked [Z] end",
    ),
    (
        post!("Transfer-Encoding: chunked\r\n", "1,x\r\nZ\r\n0\r\n\r\n"),
        &[DecoratedChunkSize],
        "POST / Chunked [Z] end",
    ),
    // Framing headers that only some implementations see.
    (
        post!("Transfer-Encoding: , chunked\r\n", "0\r\n\r\n"),
        &[ObfuscatedTransferEncoding],
        "POST / Chunked end",
    ),
    (
        post!("A: b\nContent-Length: 1\r\n", "Z"),
        &[BareLineFeed, ObfuscatedContentLength],
        "POST / Length(1) [Z] end",
    ),
    (post!("Content-Length 33\r\n", ""), &[HeaderWithoutColon, DisguisedFraming], "POST / None end"),
    (
        post!("Transfer-\r\nEncoding: chunked\r\n", ""),
        &[HeaderWithoutColon, DisguisedFraming],
        "POST / None end",
    ),
    (
        "POST / HTTP/1.1\r\nHost: x\r\n\nTransfer-Encoding: chunked\r\n",
        &[BareLineFeed, BareLineFeedEndsHead, InvalidRequestLine, DisguisedFraming],
        "POST / None end",
    ),
    // Content codings (RFC 9110 8.4).
    (post!("Content-Encoding: gzip\r\n", ""), &[], "POST / None end"),
    (post!("Content-Encoding: gzip, gzip\r\n", ""), &[OddContentCoding], "POST / None end"),
    (post!("Content-Encoding: gzip\r\nContent-Encoding: br\r\n", ""), &[OddContentCoding], "POST / None end"),
    (post!("Content-Encoding: , gzip\r\n", ""), &[OddContentCoding], "POST / None end"),
    (post!("Content-Encoding: \"gzip\"\r\n", ""), &[OddContentCoding], "POST / None end"),
    ("PRI * HTTP/2.0\r\n\r\n", &[Http2Unread], ""),
    // A body that is a request (RFC 9112 11.2).
    (
        post!("Content-Length: 18\r\n", "GET / HTTP/1.1\r\n\r\n"),
        &[RequestInBody],
        "POST / Length(18) [GET / HTTP/1.] [1\\r\\n\\r\\n] end",
    ),
    // Lines and names.
    ("GET / HTTP/1.1\nHost: x\n\n", &[BareLineFeed], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA: b\rContent-Length: 9\r\n\r\n", &[BareCarriageReturn], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", &[NulByte], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", &[ObsoleteFold], "GET / None end"),
    ("GET / HTTP/1.1\r\n Host: y\r\nHost: x\r\n\r\n", &[BlankBeforeHeaders], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", &[HeaderWithoutColon], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\n: a\r\n\r\n", &[EmptyHeaderName], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA(b: a\r\n\r\n", &[IllegalHeaderName], "GET / None end"),
    (
        "GET / HTTP/1.1\r\nHost: x\r\n\0Content-Length: 3\r\n\r\n",
        &[NulByte, IllegalHeaderName, DisguisedFraming],
        "GET / None end",
    ),
    (post!("Transfer_Encoding: chunked\r\n", ""), &[DisguisedFraming], "POST / None end"),
    // Expect (RFC 9110 10.1.1).
    (post!("Expect: 100-Continue\r\nContent-Length: 3\r\n", "abc"), &[], "POST / Length(3) [abc] end"),
    (post!("Expect: 100-continue\r\n", ""), &[InvalidExpectation], "POST / None end"),
    // Request lines.
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", &[], "GET / None end"),
    ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n", &[RequestLineBlanks], "GET / None end"),
    ("FOO / HTTP/1.1\r\nHost: x\r\n\r\n", &[UnknownMethod], "FOO / None end"),
    ("GET / HTTP/1.2\r\nHost: x\r\n\r\n", &[UnknownVersion], "GET / None end"),
    ("junk\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", &[InvalidRequestLine], "GET / None end"),
    // Host (RFC 9112 3.2).
    ("GET / HTTP/1.1\r\n\r\n", &[MissingHost], "GET / None end"),
    ("GET / HTTP/1.0\r\n\r\n", &[], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", &[DuplicateHost], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: x, y\r\n\r\n", &[InvalidHost], "GET / None end"),
    ("GET / HTTP/1.1\r\nHost: a@x\r\n\r\n", &[InvalidHost], "GET / None end"),
    ("GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n", &[HostMismatch], "GET http://y/ None end"),
    ("GET http://X:80/ HTTP/1.1\r\nHost: x\r\n\r\n", &[], "GET http://X:80/ None end"),
    // The body of a GET is not an anomaly and is reported.
    ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", &[], "GET / Length(3) [abc] end"),
    (
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n",
        &[DataAfterClose],
        "GET / None end; GET /2 None end",
    ),
];

const RESPONSES: &[Case] = &[
    (
        ok!("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "1\r\nZ\r\n0\r\n\r\n"),
        &[LengthAndTransferEncoding],
        "200 Chunked [Z] end",
    ),
    (ok!("Transfer-Encoding: gzip\r\n", "abc"), &[ChunkedNotFinal], "200 UntilClose [abc]"),
    (ok!("Content-Length: 1x\r\n", "abc"), &[InvalidContentLength], "200 UntilClose [abc]"),
    (ok!("Transfer-Encoding: chunked\r\n", "zz\r\nabc"), &[InvalidChunkSize], "200 Chunked [zz\\r\\n] [abc]"),
    ("HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n", &[FramingWithoutBody], "204 None end"),
    ("HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\n", &[], "304 None end"),
    ("HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\nabc", &[UnexpectedBody], "304 None end [abc] end"),
    ("HTTP/1.1 204 No\r\n\r\nabc\r\n", &[UnexpectedBody], "204 None end [abc\\r\\n]"),
    (
        "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nZ\r\n0\r\n\r\n",
        &[FramingWithoutBody, UnexpectedBody],
        "204 None end [Z] end",
    ),
    (
        ok!("Transfer-Encoding: chunked, gzip\r\n", "1\r\nZ\r\n0\r\n\r\n"),
        &[ChunkedNotFinal],
        "200 Chunked [Z] end",
    ),
    (
        ok!("Transfer-Encoding: xchunked\r\n", "1\r\nZ\r\n0\r\n\r\n"),
        &[UnknownTransferCoding],
        "200 Chunked [Z] end",
    ),
    ("HTTP/1.1 101 Up\r\n\r\n", &[UnexpectedUpgrade], "101 None end"),
    ("HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", &[InvalidStatusCode], "0 Length(0) end"),
    ("HTTP/1.1\t200 OK\r\nContent-Length: 0\r\n\r\n", &[StatusLineBlanks], "200 Length(0) end"),
    ("<html>", &[InvalidStatusLine], "0 UntilClose [<html>]"),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        &[ResponseWithoutRequest],
        "200 Length(0) end; 200 Length(0) end",
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore\r\n", &[InvalidStatusLine], "200 Length(0) end"),
];

#[test]
fn evasions_are_reported_and_parsed_as_documented() {
    for (side, cases) in [(ExchangeSide::Request, REQUESTS), (ExchangeSide::Response, RESPONSES)] {
        for (bytes, anomalies, messages) in cases {
            let reported = reported(side, bytes);
            let found: Vec<_> = reported.lines().filter_map(|line| line.strip_prefix("! ")).collect();
            let mut expected: Vec<_> = anomalies.iter().map(|a| a.name()).collect();
            let mut sorted = found.clone();
            sorted.sort_unstable();
            expected.sort_unstable();
            assert_eq!(sorted, expected, "{}: {reported}", bytes.escape_debug());
            assert_eq!(summary(&reported), *messages, "{}: {reported}", bytes.escape_debug());
        }
    }
}

#[test]
fn exceeded_limits_are_reported_and_parsing_continues() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(LINE));
    let long_report = reported(ExchangeSide::Request, &long);
    assert!(long_report.contains("! line-too-long\nheader Host: x\n"), "{long_report}");
    let many =
        format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(usize::from(applayer::http::HEADER_MAX) + 2));
    let many_report = reported(ExchangeSide::Request, &many);
    assert_eq!(many_report.matches("header a: b").count(), usize::from(applayer::http::HEADER_MAX) + 2);
    assert!(many_report.contains("! too-many-headers"));
    let large = format!("GET / HTTP/1.0\r\n{}\r\n", format!("a: {}\r\n", "b".repeat(200)).repeat(400));
    assert!(reported(ExchangeSide::Request, &large).contains("! head-too-long"));
}

#[test]
fn every_anomaly_is_tested() {
    let mut reported_kinds: Vec<HttpAnomaly> =
        REQUESTS.iter().chain(RESPONSES).flat_map(|case| case.1.iter().copied()).collect();
    // The tests of limits below, and those of whole connections, cover these.
    reported_kinds.extend([
        LineTooLong,
        HeadTooLong,
        TooManyHeaders,
        PipelineFull,
        EarlyTunnelData,
        IncompleteMessage,
    ]);
    reported_kinds.extend([MissingVersion]);
    // The unit tests of start lines cover these.
    reported_kinds.extend([SpaceInTarget, InvalidTarget, InvalidMethod]);
    let missing: Vec<_> = HttpAnomaly::ALL.iter().filter(|a| !reported_kinds.contains(a)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn reported(side: ExchangeSide, bytes: &str) -> String {
    let mut c = Connection::default();
    if side == ExchangeSide::Response {
        c.request("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    c.take(side, bytes.as_bytes());
    c.reported(side)
}

/// Summarises messages: start, framing, body, end.
fn summary(reported: &str) -> String {
    let mut out = String::new();
    for line in reported.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let separator = if out.is_empty() { "" } else { "; " };
        match words[..] {
            ["request", name, target, ..] => out += &format!("{separator}{name} {target}"),
            ["response", _, status, ..] => out += &format!("{separator}{status}"),
            ["framing", framing] => out += &format!(" {framing}"),
            ["body", ..] => out += &format!(" [{}]", &line["body ".len()..]),
            ["end", "Complete"] => out += " end",
            ["end", "Lost"] => out += " lost",
            _ => {}
        }
    }
    out
}
