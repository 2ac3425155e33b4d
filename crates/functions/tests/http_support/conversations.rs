//! Random conversations.

use proptest::prelude::*;

use super::{Client, Server, Talk, Who};

/// A turn of a conversation: sender and bytes.
pub type Turn = (Who, Vec<u8>);

/// Generates valid and invalid messages, tunnels, garbage; requests and responses need not
/// correspond.
pub fn turn() -> impl Strategy<Value = Turn> {
    let requests: &[&str] = &[
        "GET /a HTTP/1.1\r\nHost: x:8080\r\nUser-Agent: u\r\n\r\n",
        "GET http://y/b HTTP/1.1\r\nHost: x\r\nHost: z\r\nReferer:\r\n r\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "CONNECT y:1 HTTP/1.1\r\nHost: y:1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: w\r\n\r\n",
        "GET /old\r\n",
        "\r\nfoo bar\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}",
    ];
    let responses: &[&str] = &[
        "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n4;x\r\nwxyz\r\n0\r\nT: t\r\n\r\n",
        "HTTP/1.1 101 Up\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        "220 mail\r\n",
        "HT",
    ];
    let pick = |texts: &'static [&'static str]| {
        prop::sample::select(texts).prop_map(|text| text.as_bytes().to_vec())
    };
    // The arrays are constants of the program.
    let (requests, responses) = (leak(requests), leak(responses));
    prop_oneof![
        6 => pick(requests).prop_map(|text| (Client, text)),
        6 => pick(responses).prop_map(|text| (Server, text)),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| (Client, bytes)),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| (Server, bytes)),
    ]
}

fn leak(texts: &[&'static str]) -> &'static [&'static str] {
    Vec::leak(texts.to_vec())
}

/// Generates a conversation.
pub fn turns() -> impl Strategy<Value = Vec<Turn>> {
    prop::collection::vec(turn(), 1..10)
}

/// Sends the turns in segments of these lengths, repeated, and closes the connection.
pub fn in_segments(turns: &[Turn], lens: &[usize]) -> Talk {
    let mut talk = Talk::open(80);
    let mut lens = lens.iter().copied().cycle();
    for (who, bytes) in turns {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // No segment is empty, and there is at least one.
            let (now, later) = rest.split_at(rest.len().min(lens.next().unwrap()));
            talk.piece(*who, now);
            rest = later;
        }
    }
    talk.closes(Client).closes(Server);
    talk
}
