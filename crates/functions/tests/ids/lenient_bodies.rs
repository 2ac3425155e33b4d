//! Bodies that only lenient clients read as their sender means them.

use std::io::Write;

use crate::ids_support::*;

const RULE: &str = r#"alert http any any -> any any (msg:"evil"; file.data; content:"evil literal"; sid:1;)"#;
const CHUNKS: &str = "5\r\nevil \r\n7\r\nliteral\r\n0\r\n\r\n";

/// Returns the reports about a response in one piece, and in small ones.
fn answered(response: &[u8]) -> [Vec<u32>; 2] {
    [10_000, 5].map(|len| {
        let mut talk = Talk::open(80);
        talk.says(Client, "GET /a HTTP/1.1\r\n\r\n");
        response.chunks(len).for_each(|part| talk.piece(Server, part));
        talk.closes(Server);
        watch(RULE, &talk.segments).rules()
    })
}

#[test]
fn chunks_that_the_head_names_in_an_odd_way_are_undone() {
    for head in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\n Transfer-Encoding: chunked\r\n",
        "HTTP/1.1 200 OK\r\nTransfer\0-Encoding: chunked\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chu\0nked\r\n",
        "HTTP/1.1 200 OK\r\nX: y\rTransfer-Encoding: chunked\r\n",
        "HTTP/1.1 200\rTransfer-Encoding:chunked\r\n",
    ] {
        assert_eq!(answered([head, "\r\n", CHUNKS].concat().as_bytes()), [[1], [1]], "{head:?}");
    }
    let without = ["HTTP/1.1 200 OK\r\nX: y\r\n\r\n", CHUNKS].concat();
    assert_eq!(answered(without.as_bytes()), [[], []] as [[u32; 0]; 2]);
}

#[test]
fn odd_sizes_of_chunks_are_read() {
    for chunks in
        ["5x\r\nevil \r\n7x\r\nliteral\r\n0\r\n\r\n", "\n\r\n5\r\nevil \r\n\n7\r\nliteral\r\n0\r\n\r\n"]
    {
        let response = response("Transfer-Encoding: chunked\r\n", chunks.as_bytes());
        assert_eq!(answered(&response), [[1], [1]], "{chunks:?}");
    }
}

#[test]
fn codings_that_the_head_names_in_an_odd_way_are_undone() {
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
    gzip.write_all(b"some evil literal").unwrap();
    let body = gzip.finish().unwrap();
    for header in ["Content\0-Encoding: gzip", "Content-Encoding: g\0zip", "X: y\rContent-Encoding: gzip"] {
        let response = response(&format!("{header}\r\nContent-Length: {}\r\n", body.len()), &body);
        assert_eq!(answered(&response), [[1], [1]], "{header:?}");
    }
    let other = response(&format!("X: gzip\r\nContent-Length: {}\r\n", body.len()), &body);
    assert_eq!(answered(&other), [[], []] as [[u32; 0]; 2]);
}

#[test]
fn a_head_with_an_odd_end_has_a_body() {
    for end in ["\r\r\n", " \n", "\t\r\n"] {
        for (headers, body) in
            [("Content-Length: 12\r\n", "evil literal"), ("Transfer-Encoding: chunked\r\n", CHUNKS)]
        {
            let response = ["HTTP/1.1 200 OK\r\n", headers, end, body].concat();
            assert_eq!(answered(response.as_bytes()), [[1], [1]], "{end:?} {headers}");
        }
    }
}

#[test]
fn a_response_after_other_bytes_is_read() {
    for before in ["junk\r\n", " \r\n", "\0", " junk\n\t\n", "\r", "\r\n\r\r"] {
        let response = [before, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKS].concat();
        assert_eq!(answered(response.as_bytes()), [[1], [1]], "{before:?}");
    }
}
