//! Any bytes as a request or a response: a head accepted by `httparse` is parsed alike here.
//!
//! Input: a byte selects request or response; then the bytes.

#![no_main]

use applayer::http::{Exchange, FixedLineBuffer, HttpEvent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [kind, bytes @ ..] = data else { return };
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let theirs = if kind & 1 == 0 {
        let mut request = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(_)) = request.parse(bytes) else { return };
        [request.method, request.path].map(|word| word.unwrap_or_default().as_bytes().to_vec())
    } else {
        let mut response = httparse::Response::new(&mut headers);
        let Ok(httparse::Status::Complete(_)) = response.parse(bytes) else { return };
        let code = format!("{:03}", response.code.unwrap_or_default());
        // The phrase is parsed differently: there it ends at bytes beyond ASCII, and keeps its
        // blanks.
        [b"HTTP/1".to_vec(), code.into_bytes()]
    };
    let (mut ours, mut fields, mut complete) = (None, Vec::new(), false);
    let (mut exchange, mut line) = (Exchange::default(), FixedLineBuffer::<4096>::default());
    let mut sink = |event: HttpEvent<'_>| match event {
        _ if complete => {}
        HttpEvent::Request(r) => ours = Some([r.name.to_vec(), r.target.to_vec()]),
        HttpEvent::Response(r) => ours = Some([r.protocol[..6].to_vec(), r.code.to_vec()]),
        HttpEvent::Header(h) => fields.push((h.name.to_vec(), h.value.to_vec())),
        HttpEvent::HeadersEnd(_) => complete = true,
        _ => {}
    };
    if kind & 1 == 0 {
        exchange.request(bytes, &mut line, &mut sink);
    } else {
        exchange.response(bytes, &mut line, &mut sink);
    }
    assert!(complete);
    assert_eq!(ours, Some(theirs));
    let headers = headers.iter().take_while(|header| !header.name.is_empty());
    let headers: Vec<_> = headers.map(|h| (h.name.as_bytes().to_vec(), h.value.to_vec())).collect();
    assert_eq!(fields, headers);
});
