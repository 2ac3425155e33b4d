//! The bodies of HTTP messages.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::json;

use crate::ids_support::*;

const EVIL: &str = "evil literal";
const RULE: &str =
    r#"alert http any any -> any any (msg:"evil body"; file.data; content:"evil literal"; sid:1;)"#;
const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
/// Packets of the handshake and the request, before the response.
const BEFORE: u64 = 4;

/// Inspects a request and its response, in segments of these lengths.
fn answered(response: &[u8], len: usize) -> Seen {
    let mut talk = Talk::open(80);
    talk.says(Client, GET);
    response.chunks(len).for_each(|part| talk.piece(Server, part));
    watch(RULE, &talk.segments)
}

/// Returns a body of this length with the literal at this offset.
fn body(len: usize, at: usize) -> Vec<u8> {
    let mut body = b"benign ".repeat(len / 7 + 1);
    body.truncate(len);
    body[at..at + EVIL.len()].copy_from_slice(EVIL.as_bytes());
    body
}

/// Encodes chunks with these contents (RFC 9112 7.1).
fn chunked(chunks: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![];
    for chunk in chunks {
        write!(bytes, "{:x};x=y\r\n", chunk.len()).unwrap();
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    [&bytes[..], b"0\r\n\r\n"].concat()
}

#[test]
fn a_literal_is_found_when_its_message_ends() {
    let page = page(&body(3_000, 1_500));
    let segments = page.len().div_ceil(1_000) as u64;
    assert_eq!(answered(&page, 1_000).reported, [(BEFORE + segments, 1)]);
    // Each offset in the segments, and therefore each split of the literal.
    for at in 980..1_020 {
        let page = crate::ids_support::page(&body(1_200, at));
        assert_eq!(answered(&page, 1_000).rules(), [1], "{at}");
    }
}

#[test]
fn a_literal_across_two_segments_is_found() {
    let page = page(&body(60, 20));
    let start = page.len() - 40;
    for cut in start..=start + EVIL.len() {
        let said = [(Client, GET), (Server, &page[..cut]), (Server, &page[cut..])];
        assert_eq!(reported(RULE, &said), [1], "{cut}");
    }
    assert_eq!(answered(&page, 1).reported, [(BEFORE + page.len() as u64, 1)], "byte by byte");
}

#[test]
fn a_literal_across_two_chunks_is_found() {
    let body = body(60, 20);
    for cut in 20..=20 + EVIL.len() {
        let chunks = chunked(&[&body[..cut], &body[cut..]]);
        let response = response("Transfer-Encoding: chunked\r\n", &chunks);
        for len in [10_000, 7, 1] {
            assert_eq!(answered(&response, len).rules(), [1], "{cut} {len}");
        }
    }
}

#[test]
fn a_literal_in_a_coded_body_is_found() {
    let body = body(5_000, 4_000);
    let level = Compression::default();
    let mut gzip = GzEncoder::new(vec![], level);
    let mut zlib = ZlibEncoder::new(vec![], level);
    let mut raw = DeflateEncoder::new(vec![], level);
    gzip.write_all(&body).unwrap();
    zlib.write_all(&body).unwrap();
    raw.write_all(&body).unwrap();
    for (coding, coded) in [
        ("gzip", gzip.finish().unwrap()),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", raw.finish().unwrap()),
    ] {
        assert!(!coded.windows(EVIL.len()).any(|part| part == EVIL.as_bytes()), "it is hidden");
        let head = format!("Content-Encoding: {coding}\r\nContent-Length: {}\r\n", coded.len());
        for len in [10_000, 7] {
            assert_eq!(answered(&response(&head, &coded), len).rules(), [1], "{coding} {len}");
        }
        // The chunked coding is decoded first.
        let head = format!("Content-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n");
        let chunks = chunked(&[&coded[..9], &coded[9..]]);
        assert_eq!(answered(&response(&head, &chunks), 11).rules(), [1], "{coding} in chunks");
        // The raw literal is found if nothing declares a coding.
        assert_eq!(answered(&page(&coded), 10_000).rules(), [0; 0], "{coding} that is not named");
    }
}

#[test]
fn a_body_truncated_by_a_gap_is_inspected() {
    let page = page(&body(100, 20));
    let (seen, lost) = page.split_at(page.len() - 30);
    let mut talk = Talk::open(80);
    talk.says(Client, GET)
        .says(Server, seen)
        .loses(Server, lost.len())
        .says(Server, crate::ids_support::page(b"x"));
    assert_eq!(watch(RULE, &talk.segments).reported, [(0, 1)], "what is missing may still come");
    talk.says(Client, GET);
    let proof = talk.segments.len() as u64;
    assert_eq!(watch(RULE, &talk.segments).reported, [(proof, 1)], "the client has what is behind the gap");
}

#[test]
fn a_body_is_inspected_when_its_stream_ends() {
    let mut talk = Talk::open(80);
    talk.says(Client, GET).says(Server, response("", &body(100, 20)));
    assert_eq!(watch(RULE, &talk.segments).reported, [(0, 1)], "more of the body may come");
    talk.closes(Server);
    let last = talk.segments.len() as u64;
    assert_eq!(watch(RULE, &talk.segments).reported, [(last, 1)]);
}

#[test]
fn a_body_is_inspected_when_its_connection_is_reset() {
    let established = RULE.replace("file.data", "flow:established; file.data");
    let post = [b"POST / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n", &body(100, 20)[..]].concat();
    let answer = response("Content-Length: 2000\r\n", &body(100, 20));
    for (who, sends, said) in [(Server, Client, &post), (Client, Client, &post), (Client, Server, &answer)] {
        let mut talk = Talk::open(80);
        if sends == Server {
            talk.says(Client, GET);
        }
        talk.says(sends, said).forges(who, RST, 9);
        assert_eq!(watch(&established, &talk.segments).reported, [(0, 1)], "hosts do not heed it");
        talk.resets(who);
        let reset = talk.segments.len() as u64;
        assert_eq!(watch(&established, &talk.segments).reported, [(reset, 1)]);
        // It does not end the message either: it may be forged, and visible to us only. Only an
        // acknowledgement decides.
        talk.says(sends, body(1_900, 1_000)).says(if sends == Client { Server } else { Client }, "");
        let last = talk.segments.len() as u64;
        let seen = watch_with(&established, json!({ "mode": "detect" }), &talk.segments);
        assert_eq!(seen.reported, [(reset, 1), (last, 1)]);
    }
}

#[test]
fn a_body_is_inspected_when_another_connection_begins_on_its_ports() {
    let mut talk = Talk::open(80);
    talk.says(Client, GET).says(Server, response("", &body(100, 20))).closes(Client);
    let closed = talk.segments.len() as u64;
    assert_eq!(watch(RULE, &talk.segments).reported, [(0, 1)]);
    talk.reopen();
    let established = RULE.replace("file.data", "flow:established,to_client; file.data");
    assert_eq!(watch(&established, &talk.segments).reported, [(closed + 2, 1)], "once its SYN is answered");
    let gone = talk.says(Client, GET).says(Server, page(b"x")).closes(Server);
    assert_eq!(watch(RULE, &gone.segments).rules(), [1], "of the connection before nothing is left");
}

#[test]
fn messages_in_one_segment_are_kept_apart() {
    const OF_404: &str = r#"alert http any any -> any any (msg:"evil body of an error"; http.stat_code; content:"404"; file.data; content:"evil literal"; sid:1;)"#;
    let not_found = |body: &[u8]| {
        let text = String::from_utf8(page(body)).unwrap();
        text.replace("200 OK", "404 No").into_bytes()
    };
    let (evil, benign) = (body(40, 9), b"benign".to_vec());
    for (responses, expected) in [
        ([page(&benign), not_found(&evil)], &[1][..]),
        ([not_found(&evil), page(&benign)], &[1]),
        ([page(&evil), not_found(&benign)], &[]),
        ([not_found(&benign), page(&evil)], &[]),
        // Half of it at the end of one body, half at the beginning of the next.
        ([not_found(b"evil "), not_found(b"literal")], &[]),
    ] {
        let requests = GET.repeat(2);
        let said = [(Client, &requests[..]), (Server, &responses.concat())];
        assert_eq!(reported(OF_404, &said), expected, "{responses:?}");
    }
}

#[test]
fn a_literal_outside_of_the_body_is_not_in_it() {
    let heads = [
        response("X: evil literal\r\nContent-Length: 2\r\n", b"ok"),
        response("evil literal: x\r\nContent-Length: 2\r\n", b"ok"),
        response("Content-Length: 0\r\nX: evil literal\r\n", b""),
        b"HTTP/1.1 200 evil literal\r\nContent-Length: 2\r\n\r\nok".to_vec(),
        response("Transfer-Encoding: chunked\r\n", b"2;evil literal\r\nok\r\n0\r\n\r\n"),
        response("Transfer-Encoding: chunked\r\n", b"2\r\nok\r\n0;evil literal\r\n\r\n"),
        response("Transfer-Encoding: chunked\r\n", b"2\r\nok\r\n0\r\nX: evil literal\r\n\r\n"),
    ];
    for response in heads {
        for len in [10_000, 5] {
            assert_eq!(answered(&response, len).rules(), [0; 0], "{}", response.escape_ascii());
        }
    }
}

#[test]
fn the_configured_part_of_a_body_is_inspected() {
    for (at, expected) in [(0, &[1][..]), (1_024 - EVIL.len(), &[1]), (1_025 - EVIL.len(), &[]), (1_500, &[])]
    {
        for len in [10_000, 100] {
            let mut talk = Talk::open(80);
            talk.says(Client, GET);
            page(&body(2_000, at)).chunks(len).for_each(|part| talk.piece(Server, part));
            let seen = watch_with(RULE, json!({ "body": "1KiB" }), &talk.segments);
            assert_eq!(seen.rules(), expected, "{at} {len}");
        }
    }
}

#[test]
fn a_rule_is_reported_once_per_message() {
    let twice = page(&body(100, 20).repeat(3));
    assert_eq!(answered(&twice, 10_000).rules(), [1]);
    assert_eq!(answered(&twice, 10).rules(), [1]);
    let mut talk = Talk::open(80);
    for _ in 0..3 {
        talk.says(Client, GET).says(Server, &twice);
    }
    assert_eq!(watch(RULE, &talk.segments).reported, [(5, 1), (7, 1), (9, 1)]);
    // It acts once per packet, however many messages the packet has.
    assert_eq!(reported(RULE, &[(Client, &GET.repeat(2)), (Server, &twice.repeat(2))]), [1]);
}

/// The protocol may become known with the segment that contains the literal.
#[test]
fn the_first_message_of_a_connection_may_be_split_anywhere() {
    let post = format!("POST /f HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{EVIL}", EVIL.len());
    for cut in 1..post.len() {
        let (a, b) = post.as_bytes().split_at(cut);
        assert_eq!(reported(RULE, &[(Client, a), (Client, b)]), [1], "{cut}");
        assert_eq!(
            reported(RULE, &[(Client, a), (Server, b"x"), (Client, b)]),
            [1],
            "{cut}, the other side in between"
        );
    }
}

#[test]
fn request_bodies_are_inspected_too() {
    const POSTED: &str = r#"alert http any any -> any any (msg:"evil form"; http.method; content:"POST"; http.request_body; content:"evil literal"; sid:1;)"#;
    let post =
        |body: &str| format!("POST /f HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (evil, page) = (post("a=evil literal"), page(EVIL.as_bytes()));
    assert_eq!(reported(POSTED, &[(Client, evil.as_bytes())]), [1]);
    assert_eq!(reported(POSTED, &[(Client, GET), (Server, &page)]), [0; 0]);
    assert_eq!(reported(RULE, &[(Client, evil.as_bytes())]), [1], "`file.data` is of both");
}

#[test]
fn each_file_in_a_body_of_several_parts_is_inspected() {
    const FILE: &str = r#"alert http any any -> any any (msg:"evil file"; file.data; content:"evil literal"; startswith; isdataat:!1,relative; sid:1;)"#;
    let part = |header: &str, content: &str| format!("--x\r\n{header}\r\n\r\n{content}\r\n");
    let post = |parts: &[String]| {
        let body = [parts.concat(), "--x--\r\n".to_owned()].concat();
        let kind = "multipart/form-data; boundary=x";
        let len = body.len();
        format!("POST /f HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\r\n{body}")
    };
    let file = "Content-Disposition: form-data; name=\"a\"; filename=\"b\"";
    let field = "Content-Disposition: form-data; name=\"a\"";
    for (parts, rules) in [
        ([part(file, "benign"), part(file, EVIL)], &[1][..]),
        ([part(field, "benign"), part(field, EVIL)], &[]),
        ([part(file, "benign"), part(file, "no evil literal")], &[]),
    ] {
        let post = post(&parts);
        assert_eq!(reported(FILE, &[(Client, post.as_bytes())]), rules, "{post}");
        let mut talk = Talk::open(80);
        post.as_bytes().chunks(7).for_each(|piece| talk.piece(Client, piece));
        assert_eq!(watch(FILE, &talk.segments).rules(), rules, "{post}");
        let mut chunks = b"POST /f HTTP/1.1\r\nContent-Type: multipart/a; boundary=x\r\n".to_vec();
        chunks.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        chunks.extend(chunked(&[parts[0].as_bytes(), parts[1].as_bytes(), b"--x--\r\n"]));
        assert_eq!(reported(FILE, &[(Client, &chunks)]), rules, "{post}");
    }
}

/// Returns the packets that were dropped because they bring more of a message than is inspected.
fn dropped(seen: &Seen) -> u64 {
    seen.drops.iter().find(|(reason, _)| *reason == "ids-beyond").map_or(0, |(_, count)| *count)
}

#[test]
fn a_hundred_kilobytes_of_a_body_are_inspected_and_more_is_counted() {
    const KB: usize = 1 << 10;
    let inspected = |len: usize, at: usize, more: serde_json::Value| {
        let mut talk = Talk::midstream(80).scaled();
        talk.handshake();
        talk.says(Client, GET);
        page(&body(len, at)).chunks(1_400).for_each(|part| talk.piece(Server, part));
        talk.says(Client, "");
        watch_with(RULE, more, &talk.segments)
    };
    let cut = |seen: &Seen| (seen.counter("bodies_cut"), seen.drops.clone());
    let seen = inspected(100 * KB, 100 * KB - EVIL.len(), json!({}));
    assert_eq!((seen.rules(), cut(&seen)), (vec![1], (0, vec![])));
    let (len, at) = (120 * KB, 110 * KB);
    for more in [json!({}), json!({ "mode": "detect", "beyond": "drop" })] {
        let seen = inspected(len, at, more);
        assert_eq!((seen.rules(), cut(&seen)), (vec![], (1, vec![])));
    }
    let seen = inspected(len, at, json!({ "body": "128KiB", "beyond": "drop" }));
    assert_eq!((seen.rules(), cut(&seen)), (vec![1], (0, vec![])));
    let seen = inspected(len, at, json!({ "beyond": "drop" }));
    assert_eq!((seen.rules(), seen.counter("bodies_cut")), (vec![], 1));
    assert_eq!(dropped(&seen), 1);
}

#[test]
fn heads_that_are_not_inspected_whole_are_counted() {
    let request = |len: usize| {
        let lines: String =
            (0..len / 1_000).map(|line| format!("X-{line}: {}\r\n", "x".repeat(990))).collect();
        [b"GET /a HTTP/1.1\r\n", lines.as_bytes(), b"\r\n"].concat()
    };
    let line = [b"GET /".to_vec(), b"a".repeat(70_000), b" HTTP/1.1\r\n\r\n".to_vec()].concat();
    for (request, count) in [(request(60_000), 0), (request(70_000), 1), (line, 1)] {
        let len = request.len();
        let mut talk = Talk::midstream(80).scaled();
        talk.handshake();
        for window in request.chunks(40_000) {
            window.chunks(1_400).for_each(|part| talk.piece(Client, part));
            talk.says(Server, "");
        }
        talk.says(Server, page(b"body"));
        let seen = watch(RULE, &talk.segments);
        assert_eq!((seen.counter("heads_cut"), seen.drops.len()), (count, 0), "{len}");
        let seen = watch_with(RULE, json!({ "beyond": "drop" }), &talk.segments);
        assert_eq!(dropped(&seen), count, "{len}");
        let seen = watch_with(RULE, json!({ "beyond": "drop", "head": "128KiB" }), &talk.segments);
        assert_eq!((seen.counter("heads_cut"), dropped(&seen)), (0, 0), "{len}");
    }
}

fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(vec![], Compression::default());
    gzip.write_all(body).unwrap();
    gzip.finish().unwrap()
}

/// Inspects a response of these codings, dropping what is beyond: returns the rules, the bodies
/// that were cut, and the drops.
fn decoded(codings: &str, body: &[u8]) -> (Vec<u32>, u64, u64) {
    let mut talk = Talk::open(80);
    let head = format!("Content-Encoding: {codings}\r\nContent-Length: {}\r\n", body.len());
    talk.says(Client, GET).says(Server, response(&head, body)).says(Client, GET);
    let seen = watch_with(RULE, json!({ "beyond": "drop" }), &talk.segments);
    (seen.rules(), seen.counter("bodies_cut"), dropped(&seen))
}

#[test]
fn decoded_bodies_are_inspected_as_far_as_others() {
    let text = |len: usize| [b"<p>hello world</p>\n".repeat(len / 19), EVIL.as_bytes().to_vec()].concat();
    // It grows more than a hundredfold.
    assert_eq!(decoded("gzip", &gzipped(&text(60_000))), (vec![1], 0, 0));
    assert_eq!(decoded("gzip", &gzipped(&text(200_000))), (vec![], 1, 1));
    assert_eq!(decoded("gzip, gzip", &gzipped(&gzipped(&text(200_000)))), (vec![], 1, 1));
    // As lenient clients read it.
    let odd = "x\r\nContent_Encoding: gzip";
    assert_eq!(decoded(odd, &gzipped(&text(60_000))), (vec![1], 0, 0));
    assert_eq!(decoded(odd, &gzipped(&text(200_000))), (vec![], 1, 1));
}

#[test]
fn bodies_with_more_codings_than_are_undone_are_counted() {
    let coded = |codings: usize| (0..codings).fold(EVIL.as_bytes().to_vec(), |body, _| gzipped(&body));
    for (codings, expected) in [(8, (vec![1], 0, 0)), (9, (vec![], 1, 1))] {
        let names = ["gzip"].repeat(codings).join(", ");
        assert_eq!(decoded(&names, &coded(codings)), expected, "{codings}");
        assert_eq!(decoded(&names.replace(", ", "\r\nContent-Encoding: "), &coded(codings)), expected);
    }
}

#[test]
fn bodies_with_more_parts_than_are_inspected_are_counted() {
    const START: &str =
        r#"alert http any any -> any any (msg:"x"; file.data; content:"evil literal"; startswith; sid:1;)"#;
    for (parts, expected) in [(256, (1, 0)), (257, (0, 1))] {
        let part = |content: &str| format!("--x\r\nX: filename\r\n\r\n{content}\r\n");
        let body = part("benign").repeat(parts - 1) + &part(EVIL) + "--x--\r\n";
        let head = format!("Content-Type: multipart/a; boundary=x\r\nContent-Length: {}\r\n", body.len());
        let mut talk = Talk::open(80);
        talk.says(Client, GET);
        response(&head, body.as_bytes()).chunks(1_400).for_each(|part| talk.piece(Server, part));
        let seen = watch_with(START, json!({ "beyond": "drop" }), &talk.segments);
        assert_eq!((seen.rules().len(), seen.counter("bodies_cut")), expected, "{parts}");
        assert_eq!(dropped(&seen), expected.1, "{parts}");
    }
}

/// A body that is inspected once more counts once.
#[test]
fn a_body_is_counted_once() {
    let coded = gzipped(&vec![0; 200_000]);
    let head = format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", coded.len() + 120_000);
    let mut talk = Talk::midstream(80).scaled();
    talk.handshake();
    talk.says(Client, GET).says(Server, response(&head, &coded)).resets(Client);
    vec![0; 120_000].chunks(1_400).for_each(|part| talk.piece(Server, part));
    talk.says(Client, "");
    let seen = watch_with(RULE, json!({ "mode": "detect" }), &talk.segments);
    assert_eq!(seen.counter("bodies_cut"), 1);
}
