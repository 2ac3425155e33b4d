//! Any bytes of both directions of a connection, in pieces: the HTTP parser reports the messages
//! that a second reader of whole bytes finds in them, as far as it goes, with headers, bodies,
//! chunk extensions and trailers.
//!
//! Input: a byte gives the length of pieces; then the requests; after a byte of 0xff, the
//! responses.

#![no_main]

#[path = "../../crates/applayer/tests/http/support/plain.rs"]
mod plain;

use applayer::http::{Exchange, FixedLineBuffer, HttpEvent};
use libfuzzer_sys::fuzz_target;
use plain::ReportedMessages;

fuzz_target!(|data: &[u8]| {
    let [piece, rest @ ..] = data else { return };
    let end = rest.iter().position(|&byte| byte == 0xff).unwrap_or(rest.len());
    let (requests, responses) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let (mut exchange, mut reported) =
        (Exchange::default(), [ReportedMessages::default(), ReportedMessages::default()]);
    let mut lines = [(); 2].map(|()| FixedLineBuffer::<8192>::default());
    let piece = usize::from(*piece) + 1;
    for bytes in requests.chunks(piece) {
        exchange.request(bytes, &mut lines[0], &mut |event: HttpEvent<'_>| reported[0].note(event));
    }
    for bytes in responses.chunks(piece) {
        exchange.response(bytes, &mut lines[1], &mut |event: HttpEvent<'_>| reported[1].note(event));
    }
    let [reported_requests, reported_responses] = reported;
    let requests = plain::requests(requests);
    // The request, and so the end of the response, is known only if all requests are there.
    if requests.clean {
        reported_responses.check(plain::responses(responses, &requests.messages));
    }
    reported_requests.check(requests);
});
