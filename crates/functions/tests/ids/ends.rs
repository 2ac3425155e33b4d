//! HTTP messages that are inspected without an end, and oddly written codings.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::ids_support::*;

const RULES: &str = r#"
    alert http any any -> any any (msg:"target"; flow:established,to_server; http.uri; content:"evil"; sid:1;)
    alert http any any -> any any (msg:"asked"; flow:established,to_server; http.header; content:"X-Evil"; sid:2;)
    alert http any any -> any any (msg:"answered"; flow:established,to_client; http.header; content:"X-Evil"; sid:3;)
    alert http any any -> any any (msg:"body"; flow:established,to_client; file.data; content:"evil literal"; sid:4;)"#;
const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends these turns and closes; returns which rules match on which packets.
fn seen(said: &[(Who, &[u8])], closes: &[Who]) -> Vec<(u64, u32)> {
    let mut talk = Talk::open(80);
    said.iter().for_each(|(who, bytes)| talk.piece(*who, bytes));
    closes.iter().for_each(|who| {
        talk.closes(*who);
    });
    watch(RULES, &talk.segments).reported
}

#[test]
fn an_incomplete_head_is_inspected_when_its_stream_ends() {
    let request = b"GET /evil HTTP/1.1\r\nHost: x\r\nX-Evil: 1\r\n";
    assert_eq!(seen(&[(Client, request)], &[Client]), [(5, 1), (5, 2)]);
    // So is a line without its line ending, if it is certainly a header or a start line.
    assert_eq!(seen(&[(Client, &request[..request.len() - 2])], &[Client]), [(5, 1), (5, 2)]);
    assert_eq!(seen(&[(Client, b"GET /evil HTTP/1.1")], &[Client]), [(5, 1)]);
    assert_eq!(seen(&[(Client, b"GET /evil")], &[Client]), []);
    let answer = b"HTTP/1.1 200 OK\r\nX-Evil: 1\r\n";
    assert_eq!(seen(&[(Client, GET), (Server, answer)], &[Server]), [(6, 3)]);
}

#[test]
fn incomplete_messages_are_inspected_when_the_flow_ends() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nX-Evil: 1\r\n\r\nevil literal";
    assert_eq!(seen(&[(Client, GET), (Server, answer)], &[]), [(5, 3), (0, 4)]);
    assert_eq!(seen(&[(Client, b"GET /evil HTTP/1.1\r\nX-Evil: 1\r\n")], &[]), [(0, 1), (0, 2)]);
    let post = b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\nevil literal";
    let rule =
        r#"alert http any any -> any any (msg:"form"; http.request_body; content:"evil literal"; sid:1;)"#;
    let mut talk = Talk::open(80);
    talk.says(Client, post);
    let seen = watch(rule, &talk.segments);
    assert_eq!(seen.reported, [(0, 1)]);
    let alert = &seen.bench.alerts[0];
    assert_eq!((alert.has_packet, alert.key.ends(alert.reversed).0.port), (false, talk_port(&talk)));
    // Bytes that were inspected at a reset are not inspected again.
    let mut reset = Talk::open(80);
    reset.says(Client, post).resets(Client);
    assert_eq!(watch(rule, &reset.segments).reported.len(), 1);
}

/// Returns the client's port.
fn talk_port(talk: &Talk) -> u16 {
    let network = &talk.segments[0].network;
    u16::from_be_bytes([network[20], network[21]])
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn codings_are_decoded_however_they_are_written() {
    let (once, twice) = (gzip(b"an evil literal"), gzip(&gzip(b"an evil literal")));
    for (headers, body) in [
        ("Content-Encoding: gzip", &once),
        ("Content-Encoding: gzip, gzip", &twice),
        ("Content-Encoding: gzip\r\nX: y\r\ncontent-encoding: gzip", &twice),
        ("Content-Encoding: gzip,", &once),
        ("Content-Encoding: , identity, gzip", &once),
        ("Content-Encoding: \"gzip\"", &once),
        ("Content-Encoding:\r\n gzip", &once),
        ("Content-Encoding : gzip", &once),
        ("\x0bContent-Encoding\x01: gzip", &once),
        ("Content-Encoding: deflate", &once),
        ("Content-Encoding: unknown, gzip", &once),
    ] {
        let head = format!("{headers}\r\nContent-Length: {}\r\n", body.len());
        let said = response(&head, body);
        assert_eq!(seen(&[(Client, GET), (Server, &said)], &[]), [(5, 4)], "{headers}");
    }
}

#[test]
fn bodies_not_coded_as_declared_are_inspected_raw() {
    let plain = response("Content-Encoding: gzip\r\nContent-Length: 12\r\n", b"evil literal");
    assert_eq!(seen(&[(Client, GET), (Server, &plain)], &[]), [(5, 4)]);
    let both = [&gzip(b"harmless")[..], b"evil literal"].concat();
    let odd = response(&format!("Content-Encoding: gzip;x\r\nContent-Length: {}\r\n", both.len()), &both);
    assert_eq!(seen(&[(Client, GET), (Server, &odd)], &[]), [(5, 4)]);
}

#[test]
fn bodies_are_decoded_as_by_lenient_clients() {
    for (answer, what) in [
        (&b"HTTP/1.1 204 No\r\nContent-Length: 12\r\n\r\nevil literal"[..], "a body of 204"),
        (b"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevil \r\n7\r\nliteral\r\n0\r\n\r\n", "chunks of 304"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nevil \r\n7\r\nliteral\r\n0\r\n\r\n", "xchunked"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, x\r\n\r\n5\r\nevil \r\n7\r\nliteral\r\n0\r\n\r\n", "x behind"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 !\r\nevil \r\n7,8\r\nliteral\r\n0\r\n\r\n", "sizes"),
    ] {
        assert_eq!(seen(&[(Client, GET), (Server, answer)], &[]).last(), Some(&(5, 4)), "{what}");
        let mut talk = Talk::open(80);
        talk.says(Client, GET);
        answer.chunks(7).for_each(|part| talk.piece(Server, part));
        assert_eq!(watch(RULES, &talk.segments).rules(), [4], "{what}, cut");
    }
}

#[test]
fn unannounced_bodies_are_inspected_when_the_stream_ends() {
    for (answer, what) in [
        (&b"HTTP/1.1 204 No\r\n\r\nevil literal"[..], "lines behind 204"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nan evil literal", "no chunks"),
    ] {
        assert_eq!(seen(&[(Client, GET), (Server, answer)], &[Server]), [(6, 4)], "{what}");
        assert_eq!(seen(&[(Client, GET), (Server, answer)], &[]), [(0, 4)], "{what}");
    }
}
