//! Whole connections against a second parser that has all bytes at once: heads, bodies, chunks with
//! extensions and trailers, pipelined requests, responses without bodies, bodies until the end.

#[path = "support/plain.rs"]
mod plain;

use applayer::http::{Exchange, FixedLineBuffer, HttpEvent};
use plain::ReportedMessages;
use proptest::prelude::*;
use proptest::sample::select;

/// Parses both directions in pieces of this size, the requests first.
fn check(requests: &[u8], responses: &[u8], piece: usize) -> [usize; 2] {
    let (mut exchange, mut reported) =
        (Exchange::default(), [ReportedMessages::default(), ReportedMessages::default()]);
    let mut lines = [(); 2].map(|()| FixedLineBuffer::<4096>::default());
    for bytes in requests.chunks(piece) {
        exchange.request(bytes, &mut lines[0], &mut |event: HttpEvent<'_>| reported[0].note(event));
    }
    for bytes in responses.chunks(piece) {
        exchange.response(bytes, &mut lines[1], &mut |event: HttpEvent<'_>| reported[1].note(event));
    }
    let [reported_requests, reported_responses] = reported;
    let requests = plain::requests(requests);
    let responses = plain::responses(responses, if requests.clean { &requests.messages } else { &[] });
    let counts = [requests.messages.len(), responses.messages.len()];
    if requests.clean {
        reported_responses.check(responses);
    }
    reported_requests.check(requests);
    counts
}

#[test]
fn the_second_reader_accepts_plain_messages() {
    let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /b HTTP/1.1\r\n\r\n\
        POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n\
        PUT /d HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET /e HTTP/1.1\r\n\r\n";
    let responses = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxy\
        HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nHTTP/1.1 204 None\r\n\r\n\
        HTTP/1.1 304 Not\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.0 200 \r\n\r\nuntil the end";
    for piece in [1, 2, 3, 7, 4096] {
        assert_eq!(check(requests, responses, piece), [5, 6]);
    }
}

/// Parts of messages, most of them valid.
const HEADERS: [&str; 14] = [
    "Host: a\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5\r\n",
    "content-length:\t007 \r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: gzip, Chunked\r\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "A:\r\n",
    "b:  c:d \r\n",
    "Upgrade: x\r\n",
    "A: b\r\n c\r\n",
    "Content-Length : 5\r\n",
    "A: b\n",
];

const BODIES: [&str; 10] = [
    "",
    "hello",
    "0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "a;b=\"c\"\r\n0123456789\r\n00;x\r\nT: u\r\nv:w\r\n\r\n",
    "5;\nhello\r\n0\r\n\r\n",
    "5\r\nhelloworld\r\n0\r\n\r\n",
    "g\r\n",
    "2\r\n\r\n\r\n0\r\n\r\n",
    "ffffffffffffffff\r\nx",
];

fn message(starts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let headers = prop::collection::vec(select(&HEADERS[..]), 0..4);
    (select(starts), headers, prop_oneof![9 => Just("\r\n"), 1 => Just("\n")], select(&BODIES[..]))
        .prop_map(|(start, headers, end, body)| format!("{start}{}{end}{body}", headers.concat()))
}

fn messages(starts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(message(starts), 0..6).prop_map(|messages| messages.concat())
}

const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "HEAD /a?b HTTP/1.1\r\n",
    "POST /c HTTP/1.1\r\n",
    "\r\nPUT * HTTP/1.0\r\n",
    "brew http://d/ HTTP/1.1\r\n",
    "CONNECT e:1 HTTP/1.1\r\n",
    "GET  / HTTP/1.1\r\n",
];

const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 404 \r\n",
    "HTTP/1.1 100 Continue\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 500 a b\tc\r\n",
    "HTTP/1.1 101 Up\r\n",
    "HTTP/1.1 99 x\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn messages_are_those_of_the_second_reader(
        requests in messages(REQUESTS), responses in messages(RESPONSES), piece in 1..200usize,
    ) {
        check(requests.as_bytes(), responses.as_bytes(), piece);
    }
}
