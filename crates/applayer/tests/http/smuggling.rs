//! Published smuggling techniques: each is reported, at least with the anomaly named here.

use crate::support::Connection;
use applayer::http::HttpAnomaly::*;
use applayer::http::{ExchangeSide, HttpAnomaly};

/// The name; the bytes after `POST / HTTP/1.1`, `Host: x`; the anomaly.
type Row = (&'static str, &'static str, HttpAnomaly);

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n";

/// "Funky chunks": differences in parsing chunk lines (w4ke.info, 2025). After [`CHUNKED`].
const CHUNKS: [Row; 14] = [
    ("TERM.EXT, EXT.TERM", "2;\nxx\r\n45\r\n0\r\n\r\n", BareLineFeedInChunkExtension),
    ("TERM.EXT with a value", "2;a=\"\nxx\"\r\n45\r\n0\r\n\r\n", BareLineFeedInChunkExtension),
    ("TERM.EXT of the last chunk", "0;\n\r\nGET /in HTTP/1.1\r\n\r\n", BareLineFeedInChunkExtension),
    ("an extension by a CR alone", "2;\rxx\r\n45\r\n0\r\n\r\n", BareCarriageReturn),
    ("a size by LF alone", "2\nxx\r\n0\r\n\r\n", BareLineFeedInChunkSize),
    ("a size by CR alone", "2\rxx\r\n0\r\n\r\n", BareCarriageReturn),
    ("TERM.SPILL, SPILL.TERM", "5\r\nAAAAAXX2\r\n45\r\n0\r\n\r\n", MissingChunkEnd),
    ("ONE.TWO, TWO.ONE", "5\r\nAAAAA\n0\r\n\r\n", BareLineFeedInChunkEnd),
    ("ZERO.TWO, TWO.ZERO", "5\r\nAAAAA0\r\n\r\n", MissingChunkEnd),
    ("the trailers by LF alone", "0\r\n\n", BareLineFeedInChunkEnd),
    ("a length in the trailers", "0\r\nContent-Length: 9\r\n\r\n", FramingInTrailer),
    ("a size beyond 64 bits", "10000000000000002\r\nxx\r\n0\r\n\r\n", InvalidChunkSize),
    ("a size that is negative", "-2\r\nxx\r\n0\r\n\r\n", InvalidChunkSize),
    ("a size with a prefix", "0x2\r\nxx\r\n0\r\n\r\n", DecoratedChunkSize),
];

/// Headers that only some implementations see; bodies that some take for empty ("HTTP/1.1 must
/// die", PortSwigger, 2025, and its predecessors). After the header Host.
const HEADS: [Row; 40] = [
    (
        "CL.TE, TE.CL",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        LengthAndTransferEncoding,
    ),
    ("TE.TE", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", UnknownTransferCoding),
    ("CL.0", "Content-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n", RequestInBody),
    ("CL.0 behind empty lines", "Content-Length: 20\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", RequestInBody),
    ("TE.0", "Transfer-Encoding: chunked\r\n\r\n12\r\nGET / HTTP/1.1\r\n\r\n\r\n0\r\n\r\n", RequestInBody),
    ("0.CL by a blank", "Content-Length : 3\r\n\r\nabc", ObfuscatedContentLength),
    ("0.CL by a fold", "Content-Length:\r\n 3\r\n\r\nabc", ObfuscatedContentLength),
    ("0.CL by a tab", "Content-Length:\t3\r\n\r\nabc", ObfuscatedContentLength),
    ("0.CL in a fold", "A: b\r\n Content-Length: 3\r\n\r\nabc", DisguisedFraming),
    ("0.TE in a fold", "A: b\r\n\tTransfer-Encoding : chunked\r\n\r\n", DisguisedFraming),
    ("a length as CGI has it", "Content_Length: 3\r\n\r\nabc", DisguisedFraming),
    ("a name with a NUL", "Content-Length\0: 3\r\n\r\nabc", DisguisedFraming),
    ("a name behind a NUL", "\0Transfer-Encoding: chunked\r\n\r\n", DisguisedFraming),
    ("a name with a vertical tab", "Transfer-Encoding\x0b: chunked\r\n\r\n", DisguisedFraming),
    ("a name with a space", "Transfer Encoding: chunked\r\n\r\n", DisguisedFraming),
    ("a name on a line of its own", "Transfer-Encoding\r\n : chunked\r\n\r\n", DisguisedFraming),
    ("a length without colon", "Content-Length 33\r\n\r\n", DisguisedFraming),
    ("a coding without colon", "Transfer-Encoding\r\n\r\n", DisguisedFraming),
    ("a colon on the next line", "Transfer-Encoding\n: chunked\r\n\r\n", DisguisedFraming),
    ("a name over two lines", "Transfer-\r\nEncoding: chunked\r\n\r\n", DisguisedFraming),
    ("a name over three lines", "Con\r\ntent-\nLength: 3\r\n\r\nabc", DisguisedFraming),
    ("a name over two lines, behind another", "C\r\nTransfer\r\n-Encoding: x\r\n\r\n", DisguisedFraming),
    ("an empty element", "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", ObfuscatedTransferEncoding),
    ("an empty length", "Content-Length: 3,\r\n\r\nabc", InvalidContentLength),
    ("a length behind an LF, hidden", "A: b\nContent-Length: 3\r\n\r\nabc", ObfuscatedContentLength),
    ("a coding that an LF ends", "Transfer-Encoding: chunked\n\r\n0\r\n\r\n", ObfuscatedTransferEncoding),
    ("a head that an LF ends", "A: b\r\n\nTransfer-Encoding: chunked\r\n\r\n", BareLineFeedEndsHead),
    ("a header where a request is", "A: b\r\n\r\nContent-Length: 3\r\n\r\n", DisguisedFraming),
    ("another name with a NUL", "A\0: b\r\n\r\n", IllegalHeaderName),
    ("another name with a space", "A b: c\r\n\r\n", IllegalHeaderName),
    ("a length behind a CR", "A: b\rContent-Length: 3\r\n\r\nabc", BareCarriageReturn),
    ("a length behind an LF", "A: b\nContent-Length: 3\r\n\r\nabc", BareLineFeed),
    ("a fold", "A: b\r\n c\r\n\r\n", ObsoleteFold),
    ("Expect obfuscated", "Expect: y 100-continue\r\nContent-Length: 3\r\n\r\nabc", InvalidExpectation),
    ("Expect folded", "Expect:\r\n 100-continue, x\r\nContent-Length: 3\r\n\r\nabc", InvalidExpectation),
    (
        "Expect twice",
        "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        InvalidExpectation,
    ),
    ("Expect without a body", "Expect: 100-continue\r\n\r\n", InvalidExpectation),
    ("Expect with an empty body", "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", InvalidExpectation),
    ("several hosts", "Host: y\r\n\r\n", DuplicateHost),
    ("a host that is two", "host:y\r\n\r\n", DuplicateHost),
];

#[test]
fn published_smuggling_techniques_are_reported() {
    let chunks = CHUNKS.map(|(what, rest, kind)| (what, format!("{CHUNKED}{rest}"), kind));
    let heads = HEADS.map(|(what, rest, kind)| (what, rest.to_owned(), kind));
    for (what, rest, kind) in chunks.into_iter().chain(heads) {
        check(what, &format!("POST / HTTP/1.1\r\nHost: x\r\n{rest}"), kind);
    }
    let absolute = "GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n";
    check("a target with another host", absolute, HostMismatch);
    check(
        "a blank before the first header",
        "GET / HTTP/1.1\r\n Content-Length: 3\r\n\r\n",
        BlankBeforeHeaders,
    );
}

/// Common messages raise no anomaly: chunks with extensions and trailers, Expect with a body, a
/// form.
#[test]
fn plain_requests_raise_no_anomaly() {
    for rest in [
        "Transfer-Encoding: gzip, chunked\r\n\r\n2;a=\"b\"\r\nGE\r\n0\r\nA: b\r\n\r\n",
        "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 30\r\nContent-Type: text/plain\r\n\r\nPOST is a method, HTTP/1.1 has it",
        "Content-Language: de\r\nTransfer-Id: 1\r\nContentLength: 3\r\nTE: trailers\r\nX-Content-Length: 3\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n2; a ; b=c\r\nGE\r\n0\r\n\r\n",
    ] {
        let reported = reported(&format!("POST / HTTP/1.1\r\nHost: x\r\n{rest}"));
        assert!(!reported.contains("! "), "{rest:?}: {reported}");
    }
}

fn check(what: &str, bytes: &str, kind: HttpAnomaly) {
    let reported = reported(bytes);
    assert!(reported.lines().any(|line| line == format!("! {}", kind.name())), "{what}: {reported}");
}

fn reported(bytes: &str) -> String {
    Connection::default().request(bytes).reported(ExchangeSide::Request)
}
