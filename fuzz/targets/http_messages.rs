//! Any bytes of both directions of a connection, in pieces: the HTTP parser tells the messages that
//! a second reader of whole bytes finds in them, as far as that takes them, with headers, bodies,
//! chunk extensions and trailers.
//!
//! Input: a byte says how long pieces are; then the requests; behind a byte of 0xff, the responses.

#![no_main]

#[path = "../../crates/applayer/tests/http/support/plain.rs"]
mod plain;

use applayer::http::{Event, Exchange, FixedLine};
use libfuzzer_sys::fuzz_target;
use plain::Told;

fuzz_target!(|data: &[u8]| {
    let [piece, rest @ ..] = data else { return };
    let end = rest.iter().position(|&byte| byte == 0xff).unwrap_or(rest.len());
    let (requests, responses) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let (mut exchange, mut told) = (Exchange::default(), [Told::default(), Told::default()]);
    let mut lines = [(); 2].map(|()| FixedLine::<8192>::default());
    let piece = usize::from(*piece) + 1;
    for bytes in requests.chunks(piece) {
        exchange.request(bytes, &mut lines[0], &mut |event: Event<'_>| told[0].note(event));
    }
    for bytes in responses.chunks(piece) {
        exchange.response(bytes, &mut lines[1], &mut |event: Event<'_>| told[1].note(event));
    }
    let [told_requests, told_responses] = told;
    let requests = plain::requests(requests);
    // What is answered, and so how a response ends, is known only where all requests are.
    if requests.clean {
        told_responses.check(plain::responses(responses, &requests.messages));
    }
    told_requests.check(requests);
});
