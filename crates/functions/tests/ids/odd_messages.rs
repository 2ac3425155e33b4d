//! HTTP messages that other implementations would parse differently: whole buffers, against the
//! oracle's own parser.

use std::collections::BTreeSet;

use signatures::Buffer;

use crate::hidden::compared;
use crate::ids_oracle::http::{Input, Messages, Side};
use crate::ids_oracle::plant::random::Random;
use crate::ids_support::*;

const CASES: u64 = 800;
/// Maximum bytes of a content in a rule.
const CONTENT_MAX: usize = 200;

const REQUESTS: [&str; 6] = [
    "GET /a/../b%20c?d=%41#e HTTP/1.1\r\nHost: A.example:80\r\nUser-Agent: q\r\nCookie: a=b\r\n\r\n",
    "POST http://u@B.example:8/x/./y HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nReferer: r\r\n\r\nhello",
    "PUT /%2e%2e/%5cp HTTP/1.0\r\nTransfer-Encoding: chunked\r\nX-Long: a\r\n b\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: t\r\n\r\n",
    "HEAD / HTTP/1.1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nAccept-Language: de\r\n\r\n",
    "CONNECT c.example:443 HTTP/1.1\r\nConnection: close\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
];
const RESPONSES: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nevil",
    "HTTP/1.1 404 Not Found\r\nSet-Cookie: a\r\nset-cookie: b\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nLocation: /x\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nall of it",
];
/// The odd parts that are inserted.
const ODD: [&str; 40] = [
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ",",
    "\r\n ",
    "\r\n\t",
    "\r\nHost: h\r\n",
    "\r\nHost: i.example\r\n j",
    "\r\nCookie: c",
    "\r\nContent-Length: 3\r\n",
    "\r\nContent-Length: 3, 4\r\n",
    "\r\nContent-Length: +3\r\n",
    "\r\nX : y\r\n",
    "\r\nno colon\r\n",
    "\r\n: no name\r\n",
    "\r\nTransfer-Encoding: chunked\r\n",
    "\r\nContent-Encoding: gzip\r\n",
    "%2f",
    "%5C",
    "%u002e",
    "%uff0f",
    "%u1234",
    "%c0%af",
    "%ef%bc%8f",
    "%e0%80%ae",
    "%",
    "%00",
    "/../",
    "/./",
    "//",
    "/..",
    "\\",
    "?",
    "#",
    "http://h:9/",
    "@",
    "HTTP/1.1",
];

#[test]
fn each_buffer_is_what_a_plain_reader_reads() {
    let (mut reports, mut packets, mut vague) = (0, 0, 0);
    for seed in 0..CASES {
        let mut random = Random(seed);
        let said = conversation(&mut random);
        let mut talk = Talk::open(80);
        for (who, text) in &said {
            let size = 1 + random.below(text.len());
            text.chunks(size).for_each(|part| talk.piece(*who, part));
        }
        talk.closes(Client).closes(Server);
        let one = compared(&rules_of(&said), &talk);
        let shown =
            || said.iter().map(|(who, text)| format!("{who:?} {}", text.escape_ascii())).collect::<Vec<_>>();
        assert_eq!(one.streams.differing, Vec::<String>::new());
        assert_eq!(one.differing, [vec![], vec![]], "{seed}: {:#?} {}", shown(), rules_of(&said));
        (reports, packets, vague) = (reports + one.same, packets + one.packets, vague + one.vague);
    }
    println!("{reports} reports the same, {vague} of {packets} packets vague");
    assert!(reports > 20 * CASES as usize && vague * 3 < packets);
}

/// Requests and their responses, with random changes.
fn conversation(random: &mut Random) -> Vec<(Who, Vec<u8>)> {
    let mut said = Vec::new();
    for _ in 0..1 + random.below(3) {
        for (who, texts) in [(Client, &REQUESTS[..]), (Server, &RESPONSES[..])] {
            let mut text = texts[random.below(texts.len())].as_bytes().to_vec();
            for _ in 0..random.below(3) {
                let (at, odd) = (random.below(text.len()), ODD[random.below(ODD.len())]);
                let gone = random.below(4).min(text.len() - at);
                text.splice(at..at + gone, odd.bytes());
            }
            said.push((who, text));
        }
    }
    said
}

/// Returns a rule for the whole content of each buffer of each message; and rules for anything
/// else.
fn rules_of(said: &[(Who, Vec<u8>)]) -> String {
    let (mut messages, mut asked) = (Messages::default(), BTreeSet::new());
    for (who, text) in said {
        let side = if *who == Client { Side::Request } else { Side::Response };
        let looks = messages.take(side, Input::Bytes(text)).into_iter();
        let ends = [Side::Request, Side::Response].map(|side| messages.clone().take(side, Input::End));
        for look in looks.chain(ends.into_iter().flatten()) {
            for (buffer, pieces) in look.buffers {
                asked.extend(pieces.into_iter().map(|piece| (buffer, piece.bytes)));
            }
        }
    }
    let of_buffers = asked
        .into_iter()
        .filter(|(buffer, bytes)| *buffer != Buffer::Payload && (1..=CONTENT_MAX).contains(&bytes.len()));
    let mut options: Vec<String> = of_buffers
        .map(|(buffer, bytes)| {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(r#"{}; content:"|{}|"; bsize:{}"#, buffer.name(), hex.join(" "), bytes.len())
        })
        .collect();
    for buffer in
        ["http.request_line", "http.response_line", "http.start", "http.header", "file.data", "http.host"]
    {
        options.push(format!("{buffer}; bsize:>0"));
        options.push(format!("http.protocol; bsize:>0; {buffer}; absent"));
    }
    let rule = |(number, options): (usize, &String)| {
        format!("alert http any any -> any any (msg:\"{number}\"; {options}; sid:{};)\n", 1 + number)
    };
    options.iter().enumerate().map(rule).collect()
}
