//! Application messages, and the contents of their buffers.

use packet::Side;
use serde_json::json;

use crate::ids_oracle::plant::tls;
use crate::ids_support::*;

/// Returns a DNS message (RFC 1035 4.1): a query, or a response with an address.
fn dns(name: &str, is_response: bool) -> Vec<u8> {
    let mut encoded = vec![];
    for label in name.split('.') {
        encoded.push(label.len() as u8);
        encoded.extend_from_slice(label.as_bytes());
    }
    encoded.extend([0, 0, 1, 0, 1]);
    let flags = if is_response { 0x84 } else { 1 };
    let mut message = vec![0, 7, flags, 0, 0, 1, 0, u8::from(is_response), 0, 0, 0, 0];
    message.extend_from_slice(&encoded);
    if is_response {
        message.extend_from_slice(&encoded);
        message.extend([0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
    }
    message
}

/// Adds the length prefix of DNS over TCP (RFC 1035 4.2.2).
fn counted(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

const QUERY: &str =
    r#"alert dns any any -> any any (msg:"query"; dns.query; content:"evil."; startswith; sid:1;)"#;

#[test]
fn dns_is_inspected_on_its_datagram() {
    let answer = r#"alert dns any any -> any any (msg:"answer"; flow:to_client; dns.answers.rrname; content:"evil.example"; sid:2;)"#;
    let both =
        r#"alert dns any any -> any any (msg:"both"; dns.queries.rrname; content:"evil.example"; sid:3;)"#;
    let rules = format!("{QUERY}\n{answer}\n{both}");
    let on = |port: u16, name: &str| {
        let there = datagram(SECOND_NS, 1, port, &dns(name, false));
        let network = udp(v4(192, 0, 2, 1, port), host_end(1), &dns(name, true));
        let back = Arrival { at_ns: 2 * SECOND_NS, side: Side::Outside, network };
        watch(&rules, &[there, back])
    };
    let seen = on(53, "evil.example");
    assert_eq!(
        (seen.reported.as_slice(), seen.counter("dns_messages")),
        (&[(1, 1), (1, 3), (2, 2), (2, 3)][..], 2)
    );
    assert_eq!(on(53, "good.example").reported, []);
    assert_eq!(on(53, "www.evil.example").rules(), [3, 2, 3], "the name is a buffer of its own");
    assert_eq!(on(5_300, "evil.example").reported, [], "it is not DNS there");
}

#[test]
fn dns_is_inspected_when_each_message_of_a_stream_is_complete() {
    let bytes = ["good.example", "evil.example", "evil.test"].map(|name| counted(&dns(name, false)));
    let all = bytes.concat();
    for len in [1, 7, bytes[0].len()] {
        let mut talk = Talk::open(53);
        all.chunks(len).for_each(|part| talk.piece(Client, part));
        let ends = [bytes[..2].concat().len(), all.len()].map(|end| (3 + end.div_ceil(len) as u64, 1));
        assert_eq!(watch(QUERY, &talk.segments).reported, ends, "{len}");
    }
}

#[test]
fn tls_is_inspected_when_its_handshake_shows_names() {
    let rules = [
        r#"alert tls any any -> any any (msg:"sni"; tls.sni; content:"evil.example"; bsize:12; sid:1;)"#,
        r#"alert tls any any -> any any (msg:"subject"; tls.cert_subject; content:"CN=evil.example"; sid:2;)"#,
        r#"alert tls any any -> any any (msg:"issuer"; tls.cert_issuer; content:"CN=Evil Authority"; sid:3;)"#,
        r#"alert tls any any -> any any (msg:"serial"; tls.cert_serial; content:"0A:F1"; sid:4;)"#,
    ]
    .join("\n");
    let seen = |name: &str, subject: &str, len: usize| {
        let mut talk = Talk::open(4_433);
        tls::client_hello(name.as_bytes()).chunks(len).for_each(|part| talk.piece(Client, part));
        let chain = tls::certificate(subject.as_bytes(), b"CN=Evil Authority", b"0A:F1").unwrap();
        chain.chunks(len).for_each(|part| talk.piece(Server, part));
        watch(&rules, &talk.segments).rules()
    };
    for len in [10_000, 50, 1] {
        assert_eq!(seen("evil.example", "C=US, CN=evil.example", len), [1, 2, 3, 4], "{len}");
        assert_eq!(seen("www.evil.example", "CN=good.example", len), [3, 4], "{len}");
    }
}

#[test]
fn hellos_have_fingerprints() {
    let rules = [
        r#"alert tls any any -> any any (msg:"text"; ja3.string; content:"771,"; startswith; sid:1;)"#,
        r#"alert tls any any -> any any (msg:"hash"; ja3.hash; pcre:"/^[0-9a-f]{32}$/"; sid:2;)"#,
        r#"alert tls any any -> any any (msg:"both"; ja3.hash; content:!"g"; tls.sni; content:"evil"; sid:3;)"#,
        r#"alert tls any any -> any any (msg:"server"; ja3s.hash; content:!"g"; sid:4;)"#,
    ]
    .join("\n");
    for len in [10_000, 1] {
        let mut talk = Talk::open(443);
        tls::client_hello(b"evil.example").chunks(len).for_each(|part| talk.piece(Client, part));
        assert_eq!(watch(&rules, &talk.segments).rules(), [1, 2, 3], "{len}");
    }
}

/// Returns the handshake message of a chain with a further certificate of this length, in records.
fn long_chain(len: usize) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat();
    let one = tls::certificate(b"CN=evil.example", b"CN=x", b"0A").unwrap();
    let certificate = &one[RECORD_HEAD + MESSAGE_HEAD + 2 * LENGTH..];
    let last = [vec![0; len - LAST.len()], LAST.to_vec()].concat();
    let message = sized(&sized(&[sized(certificate), sized(&last)].concat()));
    let records = [&[11][..], &message].concat();
    let record = |part: &[u8]| [&[22, 3, 3][..], &(part.len() as u16).to_be_bytes(), part].concat();
    records.chunks(16_000).flat_map(record).collect()
}

const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;
const LENGTH: usize = 3;
const LAST: &[u8] = b"last words";

#[test]
fn handshake_messages_that_are_not_inspected_whole_are_counted() {
    let rule = r#"alert tls any any -> any any (msg:"end"; tls.certs; content:"last words"; sid:1;)
        alert tls any any -> any any (msg:"begin"; tls.cert_subject; content:"evil"; sid:2;)"#;
    for (len, more, rules, cut) in [
        (60_000, json!({}), &[1, 2][..], 0),
        (70_000, json!({ "mode": "detect", "beyond": "drop" }), &[2], 1),
        (70_000, json!({ "handshake": "80KiB", "beyond": "drop" }), &[1, 2], 0),
        (70_000, json!({ "beyond": "drop" }), &[], 1),
    ] {
        let mut talk = Talk::midstream(443).scaled();
        talk.handshake();
        talk.piece(Client, &tls::client_hello(b"evil.example"));
        long_chain(len).chunks(1_400).for_each(|part| talk.piece(Server, part));
        talk.says(Client, "");
        let drops = cut > 0 && more["mode"].is_null();
        let seen = watch_with(rule, more, &talk.segments);
        let mut found = seen.rules();
        found.sort_unstable();
        assert_eq!((&found[..], seen.counter("handshakes_cut")), (rules, cut), "{len}");
        assert_eq!(seen.drops.iter().any(|drop| drop.0 == "ids-beyond"), drops, "{len}");
    }
}

#[test]
fn ssh_is_inspected_on_its_identification_strings() {
    let rules = [
        r#"alert ssh any any -> any any (msg:"software"; flow:to_server; ssh.software; content:"evil_1.0"; sid:1;)"#,
        r#"alert ssh any any -> any any (msg:"version"; flow:to_client; ssh.proto; content:"1.99"; sid:2;)"#,
    ]
    .join("\n");
    for len in [100, 3] {
        let mut talk = Talk::open(22);
        b"SSH-2.0-evil_1.0\r\n".chunks(len).for_each(|part| talk.piece(Client, part));
        b"SSH-1.99-good_2.0\r\n".chunks(len).for_each(|part| talk.piece(Server, part));
        assert_eq!(watch(&rules, &talk.segments).rules(), [1, 2], "{len}");
        let mut talk = Talk::open(22);
        b"SSH-2.0-good_2.0\r\n".chunks(len).for_each(|part| talk.piece(Client, part));
        b"SSH-2.0-evil_1.0\r\n".chunks(len).for_each(|part| talk.piece(Server, part));
        assert_eq!(watch(&rules, &talk.segments).reported, [], "{len}");
    }
}

const REQUEST: &[u8] = b"POST http://Evil.example:81/a/../b%41?q=%20 HTTP/1.1\r\nHost: x\r\nUser-Agent: agent\r\nCookie: c=1\r\n\
    Cookie: d=2\r\nX-Fold: one\r\n two\r\nReferer: http://r/\r\nContent-Length: 4\r\n\r\nform";
const RESPONSE: &[u8] = b"HTTP/1.1 302 Found here\r\nServer: s/1\r\nLocation: /next\r\nSet-Cookie: e=3\r\nContent-Type: text/html\r\n\
    Content-Length: 4\r\n\r\npage";

/// Buffers of the request and the response, and their whole contents.
const BUFFERS: [(&str, &str); 26] = [
    ("http.method", "POST"),
    ("http.uri", "/bA?q= "),
    ("http.uri.raw", "http://Evil.example:81/a/../b%41?q=%20"),
    ("http.host", "evil.example"),
    ("http.host.raw", "Evil.example:81"),
    ("http.user_agent", "agent"),
    ("http.cookie", "c=1, d=2"),
    ("http.cookie", "e=3"),
    ("http.referer", "http://r/"),
    ("http.request_line", "POST http://Evil.example:81/a/../b%41?q=%20 HTTP/1.1"),
    ("http.request_header", "X-Fold|3a| one two"),
    ("http.request_body", "form"),
    ("http.protocol", "HTTP/1.1"),
    ("http.content_len", "4"),
    ("http.stat_code", "302"),
    ("http.stat_msg", "Found here"),
    ("http.server", "s/1"),
    ("http.location", "/next"),
    ("http.content_type", "text/html"),
    ("http.response_line", "HTTP/1.1 302 Found here"),
    ("http.response_header", "Server|3a| s/1"),
    ("http.response_body", "page"),
    ("file.data", "form"),
    ("file.data", "page"),
    (
        "http.header_names",
        "|0d 0a|Server|0d 0a|Location|0d 0a|Set-Cookie|0d 0a|Content-Type|0d 0a|Content-Length|0d 0a 0d 0a|",
    ),
    (
        "http.header",
        "Server|3a| s/1|0d 0a|Location|3a| /next|0d 0a|Content-Type|3a| text/html|0d 0a|Content-Length|3a| 4|0d 0a|",
    ),
];

#[test]
fn buffers_of_http_hold_what_the_manual_says() {
    let rules: String = (1..)
        .zip(BUFFERS)
        .map(|(sid, (buffer, text))| {
            format!("alert http any any -> any any (msg:\"{buffer}\"; {buffer}; content:\"{text}\"; startswith; endswith; sid:{sid};)\n")
        })
        .collect();
    for len in [10_000, 9] {
        let mut talk = Talk::open(8_080);
        REQUEST.chunks(len).for_each(|part| talk.piece(Client, part));
        RESPONSE.chunks(len).for_each(|part| talk.piece(Server, part));
        let mut reported = watch(&rules, &talk.segments).rules();
        reported.sort_unstable();
        reported.dedup();
        let missing: Vec<_> =
            (1..).zip(BUFFERS).filter(|(sid, _)| !reported.contains(sid)).map(|(_, buffer)| buffer).collect();
        assert_eq!(missing, [], "{len}");
    }
}

#[test]
fn a_buffer_that_was_not_sent_is_absent() {
    let rules = [
        r#"alert http any any -> any any (msg:"none"; flow:to_server; http.user_agent; absent; sid:1;)"#,
        r#"alert http any any -> any any (msg:"empty"; flow:to_server; http.user_agent; bsize:0; sid:2;)"#,
        r#"alert http any any -> any any (msg:"not evil"; flow:to_server; http.user_agent; content:!"evil"; sid:3;)"#,
    ]
    .join("\n");
    let of =
        |header: &str| reported(&rules, &[(Client, format!("GET / HTTP/1.1\r\n{header}\r\n").as_bytes())]);
    assert_eq!(of(""), [1]);
    assert_eq!(of("User-Agent:\r\n"), [2, 3]);
    assert_eq!(of("User-Agent: good\r\n"), [3]);
    assert_eq!(of("User-Agent: evil\r\n"), [0; 0]);
}

/// Returns a rule with these options.
fn about(options: &str) -> String {
    format!(r#"alert http any any -> any any (msg:"about"; {options} sid:1;)"#)
}

#[test]
fn a_missing_buffer_is_absent_only_from_messages_that_may_have_it() {
    let rule = r#"alert http any any -> any any (msg:"none"; http.user_agent; absent; sid:1;)"#;
    let answer: (Who, &[u8]) = (Server, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(reported(rule, &[(Client, b"GET / HTTP/1.1\r\nUser-Agent: good\r\n\r\n"), answer]), [0; 0]);
    assert_eq!(reported(rule, &[(Client, b"GET / HTTP/1.1\r\n\r\n"), answer]), [1]);
}

#[test]
fn buffers_of_several_headers_are_there_if_there_is_one() {
    let of = |options: &str, message: &str| {
        reported(&about(options), &[(Client, format!("{message}\r\n\r\n").as_bytes())]).len()
    };
    let start = r#"http.start; content:"GET / HTTP/1.1|0d 0a 0d 0a|"; startswith; endswith;"#;
    assert_eq!(of(start, "GET / HTTP/1.1"), 1, "a first line is always there");
    assert_eq!(of("http.method; bsize:3; http.header; absent;", "GET / HTTP/1.1\r\nCookie: a"), 1);
    let joined = r#"http.cookie; content:", a"; startswith; endswith;"#;
    assert_eq!(of(joined, "GET / HTTP/1.1\r\nCookie:\r\nCookie: a"), 1);
}

#[test]
fn lines_of_one_name_form_one_header_at_the_first_line() {
    let of = |options: &str, headers: &str| {
        let request = format!("GET / HTTP/1.1\r\n{headers}\r\n");
        reported(&about(options), &[(Client, request.as_bytes())]).len()
    };
    let lines = "X-P: a\r\nHost: b\r\nx-p: c\r\nHost: d\r\n";
    for (buffer, holds) in [
        ("http.header", "X-P|3a| a, c|0d 0a|Host|3a| b, d|0d 0a|"),
        ("http.header_names", "|0d 0a|X-P|0d 0a|Host|0d 0a 0d 0a|"),
        ("http.request_header", "X-P|3a| a, c"),
        ("http.start", "GET / HTTP/1.1|0d 0a|X-P|3a| a, c|0d 0a|Host|3a| b, d|0d 0a 0d 0a|"),
        ("http.host", "b, d"),
        ("http.header.raw", "X-P|3a| a|0d 0a|Host|3a| b|0d 0a|x-p|3a| c|0d 0a|Host|3a| d|0d 0a 0d 0a|"),
    ] {
        let options = format!(r#"{buffer}; content:"{holds}"; startswith; endswith;"#);
        assert_eq!(of(&options, lines), 1, "{buffer}");
    }
    // Wherever in the head they are.
    for count in [1, 30, 62, 63, 64, 65, 500] {
        let before: String = (0..count).map(|number| format!("X-{number}: q\r\n")).collect();
        let far = format!(
            "X-P: a\r\nCookie: a\r\nUser-Agent: a\r\n{before}X-P: b\r\nX-p: c\r\nCookie: b\r\nUser-Agent: c\r\n"
        );
        let near = format!(
            "{before}X-P: a\r\nX-P: b\r\nCookie: a\r\nUser-Agent: a\r\nx-p: c\r\nCookie: b\r\nUser-Agent: c\r\n"
        );
        for lines in [far, near] {
            let joined = r#"http.header; content:"X-P|3a| a, b, c|0d 0a|";"#;
            assert_eq!(of(joined, &lines), 1, "{lines}");
            let single = r#"http.request_header; content:"X-0|3a| q"; startswith; endswith;"#;
            assert_eq!(of(single, &lines), 1, "{lines}");
            assert_eq!(of(r#"http.cookie; content:"a, b"; startswith; endswith;"#, &lines), 1, "{lines}");
            assert_eq!(of(r#"http.user_agent; content:"a, c"; startswith; endswith;"#, &lines), 1, "{lines}");
        }
    }
}

/// The rest of a greeting that is too long, or that follows too many lines, is counted.
#[test]
fn greetings_of_ssh_that_are_not_read_are_counted() {
    let rule = r#"alert ssh any any -> any any (msg:"x"; ssh.software; content:"evil"; sid:1;)"#;
    let greeting = |before: usize, len: usize| {
        "welcome\r\n".repeat(before) + "SSH-2.0-" + &"x".repeat(len - 14) + "evil\r\n"
    };
    for (before, len, expected) in
        [(0, 255, (1, 0)), (0, 300, (0, 1)), (0, 20_000, (0, 1)), (64, 255, (1, 0)), (65, 255, (0, 1))]
    {
        let mut talk = Talk::open(22);
        talk.says(Client, "SSH-2.0-client\r\n");
        greeting(before, len).as_bytes().chunks(100).for_each(|part| talk.piece(Server, part));
        talk.says(Client, "x");
        let seen = watch_with(rule, json!({ "beyond": "drop" }), &talk.segments);
        assert_eq!((seen.rules().len() as u64, seen.counter("handshakes_cut")), expected, "{before} {len}");
        let dropped = seen.drops.iter().any(|drop| drop.0 == "ids-beyond");
        assert_eq!(u64::from(dropped), expected.1, "{before} {len}");
    }
}

#[test]
fn empty_lines_before_a_request_hide_nothing() {
    for (lines, len) in [(1, 1_400), (2_000, 1_400), (9_000, 1_400), (2_000, 7)] {
        let request = "\r\n".repeat(lines) + "GET /evil HTTP/1.1\r\n\r\n";
        let mut talk = Talk::open(80);
        for window in request.as_bytes().chunks(4_000) {
            window.chunks(len).for_each(|part| talk.piece(Client, part));
            talk.says(Server, "");
        }
        let seen = watch(&about(r#"http.uri; content:"/evil";"#), &talk.segments);
        assert_eq!((seen.rules(), seen.counter("beginnings_cut")), (vec![1], 0), "{lines}");
    }
}

/// The unparsed beginning of a connection is counted if its protocol is known too late.
#[test]
fn a_beginning_that_is_not_parsed_is_counted() {
    let rules = about(r#"http.header; content:"evil";"#);
    for (len, expected) in [(10_000, (1, 0)), (20_000, (0, 1)), (100_000, (0, 1))] {
        let request = format!("F\u{1}O /{} HTTP/1.1\r\nX: evil\r\n\r\n", "a".repeat(len));
        let mut talk = Talk::open(80);
        for window in request.as_bytes().chunks(4_000) {
            window.chunks(1_000).for_each(|part| talk.piece(Client, part));
            talk.says(Server, "");
        }
        talk.says(Server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.says(Client, "GET /a HTTP/1.1\r\nX: evil\r\n\r\n");
        let seen = watch(&rules, &talk.segments);
        // The second request is parsed in any case.
        let found = (seen.rules().len() as u64 - 1, seen.counter("beginnings_cut"));
        assert_eq!(found, expected, "{len}");
        let seen = watch_with(&rules, json!({ "beyond": "drop" }), &talk.segments);
        assert_eq!(u64::from(seen.drops.iter().any(|drop| drop.0 == "ids-beyond")), expected.1, "{len}");
    }
}

#[test]
fn positions_in_requests_count_from_the_beginning_of_each() {
    let rule = about(r#"flow:to_server; content:"GET /evil"; depth:9; content:"|0d 0a|X"; distance:0;"#);
    let talk = |second: &[u8], len: usize| {
        let mut talk = Talk::open(80);
        [b"GET /good HTTP/1.1\r\n\r\n", second]
            .concat()
            .chunks(len)
            .for_each(|part| talk.piece(Client, part));
        watch(&rule, &talk.segments).reported.len()
    };
    for len in [1, 5, 1_000] {
        assert_eq!(talk(b"GET /evil HTTP/1.1\r\nX: y\r\n\r\n", len), 1, "{len}");
        assert_eq!(talk(b"GET //evil HTTP/1.1\r\nX: y\r\n\r\n", len), 0, "{len}");
    }
}

#[test]
fn the_host_is_the_targets_or_the_headers() {
    let of = |host: &str, message: &str| {
        let options = format!(r#"http.host; content:"{host}"; startswith; endswith;"#);
        reported(&about(&options), &[(Client, format!("{message}\r\n\r\n").as_bytes())]).len()
    };
    assert_eq!(of("evil.example", "CONNECT Evil.example:443 HTTP/1.1\r\nHost: good.example"), 1);
    assert_eq!(of("evil.example", "CONNECT Evil.example:443 HTTP/1.1"), 1);
    assert_eq!(of("evil.example", "GET / HTTP/1.1\r\nHost:\r\n evil.example:80\r\nHost: good.example"), 1);
}

#[test]
fn rules_about_a_protocol_match_once_it_is_known() {
    let rules = r#"alert http any any -> any any (msg:"evil in http"; content:"evil"; sid:1;)"#;
    assert_eq!(reported(rules, &[(Client, b"GET /evil HTTP/1.1\r\n\r\n")]), [1], "on any port");
    assert_eq!(reported(rules, &[(Client, b"GE"), (Client, b"T /evil HTTP/1.1\r\n\r\n")]), [1]);
    assert_eq!(reported(rules, &[(Client, b"EHLO evil\r\n"), (Server, b"220 evil\r\n")]), [0; 0]);
}
