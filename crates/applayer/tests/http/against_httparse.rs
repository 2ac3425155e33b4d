//! Start lines and headers that `httparse` accepts are parsed in the same way.

use applayer::http::{Exchange, ExchangeSide, FixedLineBuffer, HttpEvent};
use httparse::Status;
use proptest::prelude::*;

/// The parts of a start line, and its headers, in order.
#[derive(Debug, PartialEq, Eq, Default)]
struct Head {
    words: Vec<Vec<u8>>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    complete: bool,
}

/// Returns httparse's result, if it accepts the bytes.
fn theirs(side: ExchangeSide, bytes: &[u8]) -> Option<Head> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let version = |minor: Option<u8>| format!("HTTP/1.{}", minor.unwrap_or(9)).into_bytes();
    let words = match side {
        ExchangeSide::Request => {
            let mut request = httparse::Request::new(&mut headers);
            let Ok(Status::Complete(_)) = request.parse(bytes) else { return None };
            let words = [request.method, request.path].map(|w| w.unwrap_or_default().as_bytes().to_vec());
            [words.to_vec(), vec![version(request.version)]].concat()
        }
        ExchangeSide::Response => {
            let mut response = httparse::Response::new(&mut headers);
            let Ok(Status::Complete(_)) = response.parse(bytes) else { return None };
            let code = response.code.unwrap_or(0).to_string().into_bytes();
            vec![version(response.version), code, response.reason.unwrap_or_default().as_bytes().to_vec()]
        }
    };
    let headers = headers.iter().take_while(|h| !h.name.is_empty());
    let headers = headers.map(|h| (h.name.as_bytes().to_vec(), h.value.to_vec())).collect();
    Some(Head { words, headers, complete: true })
}

/// Returns the first head reported by the parser.
fn ours(side: ExchangeSide, bytes: &[u8]) -> Head {
    let mut head = Head::default();
    let mut sink = |event: HttpEvent<'_>| match event {
        _ if head.complete => {}
        HttpEvent::Request(r) => head.words = [r.name, r.target, r.protocol].map(<[u8]>::to_vec).to_vec(),
        HttpEvent::Response(r) => head.words = [r.protocol, r.code, r.reason].map(<[u8]>::to_vec).to_vec(),
        HttpEvent::Header(h) => head.headers.push((h.name.to_vec(), h.value.to_vec())),
        HttpEvent::HeadersEnd(_) => head.complete = true,
        _ => {}
    };
    let (mut exchange, mut line) = (Exchange::default(), FixedLineBuffer::<4096>::default());
    match side {
        ExchangeSide::Request => exchange.request(bytes, &mut line, &mut sink),
        ExchangeSide::Response => exchange.response(bytes, &mut line, &mut sink),
    }
    head
}

/// Generates mostly valid pieces of lines.
fn head_text(start: &'static str) -> impl Strategy<Value = String> {
    let header =
        "[A-Za-z!#$%&'*+.^_`|~-]{1,12}:[ \t]{0,2}[ -~\u{a0}-\u{ff}]{0,30}[ \t]{0,2}(\r\n|\r\n|\r\n|\n)";
    let odd = "[ -~\t\r\n\0]{0,10}";
    let lines = prop::collection::vec(prop_oneof![12 => header, 1 => odd], 0..8);
    (start, lines, prop_oneof![9 => Just("\r\n"), 1 => Just("\n"), 1 => Just("")])
        .prop_map(|(start, lines, end)| start + &lines.concat() + end)
}

const REQUEST_LINE: &str = "(\r\n)?[A-Z!#$-]{1,9} [!-~]{1,30} HTTP/1\\.[01](\r\n|\n)";
const STATUS_LINE: &str = "HTTP/1\\.[01] [0-9]{3}( [ -~\t]{0,20})?(\r\n|\n)";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn requests_are_those_of_httparse(text in head_text(REQUEST_LINE)) {
        agree(ExchangeSide::Request, text.as_bytes())?;
    }

    #[test]
    fn responses_are_those_of_httparse(text in head_text(STATUS_LINE)) {
        agree(ExchangeSide::Response, text.as_bytes())?;
    }
}

fn agree(side: ExchangeSide, bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = theirs(side, bytes);
    prop_assume!(theirs.is_some());
    let mut ours = ours(side, bytes);
    if let (ExchangeSide::Response, [_, code, _]) = (side, &mut ours.words[..]) {
        // In httparse a code is a number.
        *code = String::from_utf8_lossy(code).parse::<u16>().unwrap_or(0).to_string().into_bytes();
    }
    prop_assert_eq!(trimmed(ours), theirs.map_or_else(Head::default, trimmed));
    Ok(())
}

/// Removes the blanks around a reason phrase, which httparse keeps.
fn trimmed(mut head: Head) -> Head {
    head.words.iter_mut().for_each(|word| *word = word.trim_ascii().to_vec());
    head
}
