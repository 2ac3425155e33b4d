//! `http` in a graph: detection, events, counters and drops.

use serde_json::json;

use crate::http_support::*;

const GET: &str =
    "GET /a?b HTTP/1.1\r\nHost: example.org:8080\r\nUser-Agent: test/1\r\nReferer: http://r/\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello";
const TOLD: &str = "GET example.org 8080 /a?b HTTP/1.1 test/1 http://r/ -> 200 text/html 5";

fn reported(said: &[(Who, &str)]) -> Vec<String> {
    run(json!({}), &talk(said).segments).reported
}

#[test]
fn a_transaction_is_reported_when_its_response_ends() {
    let mut talk = talk(&[(Client, GET), (Server, OK)]);
    let run = run(json!({}), &talk.segments);
    assert_eq!(run.reported, [TOLD]);
    let line = &run.bench.told[0];
    assert!(
        line.contains("by 0 10.0.0.1:40000 -> 192.0.2.1:80:"),
        "of the client, though with the server's packet: {line}"
    );
    assert!(line.contains("http Some(4) at"), "{line}");
    for (name, value) in
        [("flows", 1), ("requests", 1), ("responses", 1), ("method_get", 1), ("status_2xx", 1)]
    {
        assert_eq!(run.counter(name), value, "{name}");
    }
    assert_eq!(run.sent, talk.segments.len());
    talk.says(Client, GET);
    let silent = crate::http_support::run(json!({ "events": false }), &talk.segments);
    assert_eq!((silent.reported.len(), silent.counter("requests")), (0, 2));
}

#[test]
fn http_is_detected_on_any_port_unless_configured_otherwise() {
    for (config, port, flows) in
        [(json!({}), 9999, 1), (json!({ "ports": [80, 8080] }), 8080, 1), (json!({ "ports": [80] }), 8080, 0)]
    {
        let mut talk = Talk::open(port);
        talk.says(Client, GET).says(Server, OK);
        let run = run(config, &talk.segments);
        assert_eq!((run.counter("flows"), run.reported.len() as u64), (flows, flows));
    }
}

#[test]
fn other_protocols_are_ignored() {
    let others: [&[(Who, &str)]; 5] = [
        &[(Server, "220 mail ESMTP\r\n"), (Client, "EHLO x\r\n"), (Server, "250 x\r\n")],
        &[(Client, "\x16\x03\x01"), (Server, "\x16\x03\x03")],
        &[(Client, "OPTIONS sip:a SIP/2.0\r\n\r\n"), (Server, "SIP/2.0 200 OK\r\n\r\n")],
        &[(Client, "QUIT"), (Client, "E\r\n"), (Server, "x")],
        &[(Client, "G")],
    ];
    for said in others {
        let run = run(json!({ "anomalies": "alert", "smuggling": "drop" }), &talk(said).segments);
        assert_eq!((run.reported.len(), run.counter("flows"), run.drops.len()), (0, 0, 0), "{said:?}");
        assert_eq!(run.anomalies(), [""; 0]);
    }
}

#[test]
fn an_unclear_client_is_identified_by_the_reply() {
    let socks = talk(&[(Client, "\x04\x01"), (Server, "\0\x5a"), (Client, GET), (Server, OK)]);
    assert_eq!(run(json!({}), &socks.segments).counter("flows"), 0);
    let said = [
        (Client, "nonsense\r\n\r\n"),
        (Server, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"),
        (Client, GET),
        (Server, OK),
    ];
    let run = run(json!({}), &talk(&said).segments);
    assert_eq!(run.reported, ["HTTP/1.1 -> 400 0", TOLD]);
}

#[test]
fn requests_are_parsed_when_split_at_every_byte() {
    for cut in 1..GET.len() {
        let (a, b) = GET.split_at(cut);
        assert_eq!(reported(&[(Client, a), (Client, b), (Server, OK)]), [TOLD], "{cut}");
    }
    for cut in 1..OK.len() {
        let (a, b) = OK.split_at(cut);
        assert_eq!(reported(&[(Client, GET), (Server, a), (Server, b)]), [TOLD], "{cut}");
    }
    let mut talk = Talk::open(80);
    GET.bytes().for_each(|byte| talk.piece(Client, &[byte]));
    OK.bytes().for_each(|byte| talk.piece(Server, &[byte]));
    assert_eq!(run(json!({}), &talk.segments).reported, [TOLD]);
}

#[test]
fn pipelined_requests_are_reported_in_order() {
    let requests: String = (0..5).map(|i| format!("GET /{i} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
    let responses: String = (0..5)
        .map(|i| format!("HTTP/1.1 40{i} OK\r\nContent-Length: {i}\r\n\r\n{}", "x".repeat(i)))
        .collect();
    let expected: Vec<_> = (0..5).map(|i| format!("GET x /{i} HTTP/1.1 -> 40{i} {i}")).collect();
    assert_eq!(reported(&[(Client, &requests), (Server, &responses)]), expected);
    // The responses arrive before the last requests.
    let (first, second) = requests.split_at(40);
    let (a, b) = responses.split_at(45);
    assert_eq!(reported(&[(Client, first), (Server, a), (Client, second), (Server, b)]), expected);
}

#[test]
fn unanswered_requests_are_reported_at_the_end() {
    let mut talk = talk(&[(Client, GET), (Client, "GET /2 HTTP/1.1\r\nHost: y\r\n\r\n"), (Server, OK)]);
    let second = "GET y /2 HTTP/1.1";
    assert_eq!(run(json!({}), &talk.segments).reported, [TOLD, second]);
    let with_flow = run(json!({}), &talk.segments).bench.told[1].clone();
    assert!(with_flow.contains("http None"), "{with_flow}");
    talk.closes(Server);
    let run = run(json!({}), &talk.segments);
    assert_eq!(run.reported, [TOLD, second]);
    assert!(run.bench.told[1].contains("http Some(6)"), "with the server's last packet");
}

#[test]
fn interim_responses_are_no_answers() {
    let post = "POST /p HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let run = run(
        json!({}),
        &talk(&[(Client, post), (Server, "HTTP/1.1 100 Continue\r\n\r\n"), (Client, "abc"), (Server, OK)])
            .segments,
    );
    assert_eq!(run.reported, ["POST x /p HTTP/1.1 -> 200 text/html 5"]);
    assert_eq!((run.counter("status_1xx"), run.counter("responses")), (1, 2));
}

#[test]
fn bodies_are_counted_without_their_chunks() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
    let until_close = "HTTP/1.0 200 OK\r\n\r\nabc";
    assert_eq!(
        reported(&[(Client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), (Server, chunked)]),
        ["GET x / HTTP/1.1 -> 200 19"]
    );
    let mut open = talk(&[(Client, "GET / HTTP/1.0\r\n\r\n"), (Server, until_close), (Server, "def")]);
    assert_eq!(run(json!({}), &open.segments).reported, ["GET / HTTP/1.0 -> 200 6"]);
    open.closes(Server);
    assert_eq!(run(json!({}), &open.segments).reported, ["GET / HTTP/1.0 -> 200 6"]);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    assert_eq!(
        reported(&[
            (Client, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"),
            (Server, head),
            (Client, GET),
            (Server, OK)
        ]),
        ["HEAD x / HTTP/1.1 -> 200 0", TOLD]
    );
}

#[test]
fn tunnels_and_other_protocols_follow() {
    let connect = [
        (Client, "CONNECT y:443 HTTP/1.1\r\nHost: y:443\r\n\r\n"),
        (Server, "HTTP/1.1 200 OK\r\n\r\n"),
        (Client, "\x16\x03GET / HTTP/1.1\r\n"),
        (Server, "\x16\x03"),
    ];
    let tunnel = run(json!({}), &talk(&connect).segments);
    assert_eq!(tunnel.reported, ["CONNECT y 443 y:443 HTTP/1.1 -> 200 0"]);
    assert_eq!(tunnel.counter("bytes_opaque"), 20);
    let upgrade = [
        (Client, "GET /w HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        (
            Server,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\u{1}",
        ),
        (Client, "\u{1}\u{2}"),
    ];
    let upgraded = run(json!({}), &talk(&upgrade).segments);
    assert_eq!(upgraded.reported, ["GET x /w HTTP/1.1 -> 101 0"]);
    assert_eq!(upgraded.counter("bytes_opaque"), 3);
    let h2 =
        run(json!({}), &talk(&[(Client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (Server, "\0\0\0")]).segments);
    assert_eq!((h2.counter("flows"), h2.reported.len()), (0, 0));
}

/// Requests that implementations are known to parse differently.
const SMUGGLING: [(&str, &str); 21] = [
    ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "length-and-transfer-encoding"),
    ("Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", "conflicting-content-length"),
    ("Content-Length: +4\r\n\r\n", "invalid-content-length"),
    ("Transfer-Encoding:\x0bchunked\r\n\r\n", "obfuscated-transfer-encoding"),
    ("Transfer-Encoding: xchunked\r\n\r\n", "unknown-transfer-coding"),
    ("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "blank-before-colon"),
    ("Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", "decorated-chunk-size"),
    ("Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "invalid-chunk-size"),
    ("Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", "bare-line-feed-in-chunk-size"),
    ("Transfer-Encoding: chunked\r\n\r\n1;\na\r\n0\r\n\r\n", "bare-line-feed-in-chunk-extension"),
    ("Transfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n", "bare-line-feed-in-chunk-end"),
    ("Content-Length:\r\n 4\r\n\r\nabcd", "obfuscated-content-length"),
    ("Content_Length: 4\r\n\r\n", "disguised-framing"),
    ("Content-Length 33\r\n\r\n", "disguised-framing"),
    ("Transfer-Encoding\n: chunked\r\n\r\n", "disguised-framing"),
    ("Transfer-\r\nEncoding: chunked\r\n\r\n", "disguised-framing"),
    ("Transfer-Encoding: , chunked\r\n\r\n0\r\n\r\n", "obfuscated-transfer-encoding"),
    ("A: b\nContent-Length: 0\r\n\r\n", "obfuscated-content-length"),
    ("\nTransfer-Encoding: chunked\r\n\r\n", "bare-line-feed-ends-head"),
    ("Expect: x 100-continue\r\n\r\n", "invalid-expectation"),
    ("Content-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n", "request-in-body"),
];

#[test]
fn smuggling_is_reported_and_dropped() {
    for (rest, name) in SMUGGLING {
        let text = format!("POST / HTTP/1.1\r\nHost: x\r\n{rest}");
        let mut talk =
            talk(&[(Client, &text), (Server, OK), (Client, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n")]);
        let alert = format!("! {name}");
        let alerted = run(json!({}), &talk.segments);
        assert!(alerted.reported.contains(&alert), "{name}: {:?}", alerted.reported);
        assert!(alerted.drops.is_empty());
        let off = run(json!({ "smuggling": "off" }), &talk.segments);
        assert!(!off.reported.iter().any(|line| line.starts_with('!')));
        assert!(off.anomalies().iter().any(|anomaly| anomaly == name), "{name}: {:?}", off.anomalies());
        let dropped = run(json!({ "smuggling": "drop" }), &talk.segments);
        assert_eq!(dropped.drops, [("http-smuggling", 3)], "{name}");
        assert_eq!(dropped.sent, 3, "the handshake");
        // Another connection on the same ports is innocent.
        talk.closes(Client).closes(Server).reopen();
        talk.says(Client, GET).says(Server, OK);
        let dropped = run(json!({ "smuggling": "drop" }), &talk.segments);
        assert_eq!(dropped.sent, 3 + 5, "{name}: {:?} {:?}", dropped.drops, dropped.reported);
        assert!(dropped.reported.contains(&TOLD.to_owned()));
    }
}

/// A message after its first line; readers disagree about the end of the body.
const DISAGREED: &str = "Host: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX";

#[test]
fn no_first_line_hides_a_connection_of_a_port_or_a_server_that_speaks_http() {
    let drop = || json!({ "smuggling": "drop" });
    let anywhere = [" POST / HTTP/1.1", "\r\n \tPOST / HTTP/1.1", "P(ST / HTTP/1.1", "\"\" /a b HTTP/1.0 "];
    for line in anywhere {
        let asked = talk(&[(Client, &format!("{line}\r\n{DISAGREED}"))]);
        assert_eq!(run(drop(), &asked.segments).drops, [("http-smuggling", 1)], "{line:?}");
    }
    let filled = format!("POST{}/ HTTP/1.1", " ".repeat(600));
    let long = format!("{} / HTTP/1.1", "A".repeat(600));
    for line in ["P\x01ST / HTTP/1.1", "POST / http 1.1", "nonsense", "", &filled, &long] {
        let text = format!("{line}\r\n{DISAGREED}");
        for cut in [1, 7, text.len() / 2, text.len() - 1] {
            let (begun, rest) = text.split_at(cut.max(line.len().min(600)));
            let asked = [(Client, begun), (Client, rest)];
            let on_port = run(json!({ "smuggling": "drop", "ports": [80] }), &talk(&asked).segments);
            assert_eq!(on_port.drops.first().map(|drop| drop.0), Some("http-smuggling"), "{line:?} {cut}");
            let answered = talk(&[asked[0], asked[1], (Server, OK), (Client, GET)]);
            let answered = run(drop(), &answered.segments);
            assert_eq!(answered.drops.first().map(|drop| drop.0), Some("http-smuggling"), "{line:?} {cut}");
        }
    }
}

#[test]
fn what_is_not_http_passes_on_the_ports_of_a_list() {
    // The client has such a port by chance.
    let mut other = Talk::open(9999);
    other.says(Client, "\x01\rGET\r").says(Server, "\x02\r");
    let tls = talk(&[(Client, "\x16\x03\x01\x02\0\x01\r\r"), (Server, "\x16\x03\x03\r\r")]);
    let late = talk(&[(Server, "220 hello\r\n"), (Client, GET), (Server, OK)]);
    for (talk, requests) in [(other, 0), (tls, 0), (late, 1)] {
        let run = run(json!({ "smuggling": "drop", "ports": [80, 40000] }), &talk.segments);
        assert_eq!((run.counter("requests"), run.drops.len()), (requests, 0));
    }
}

#[test]
fn more_than_is_kept_before_an_answer_by_http_is_said() {
    let before = |len: usize, answer: &str| {
        let mut talk = Talk::open(80);
        for part in vec![b'\x01'; len].chunks(1000) {
            talk.says(Client, part).says(Server, "");
        }
        talk.says(Server, answer).says(Client, GET).says(Server, OK);
        talk.segments
    };
    let long = before(40_000, OK);
    let seen = run(json!({ "anomalies": "alert" }), &long);
    assert_eq!((seen.counter("requests"), seen.counter("responses"), seen.drops.len()), (1, 2, 0));
    assert_eq!((seen.counter("memory_full"), seen.counter("anomaly_invalid-request-line")), (1, 1));
    assert!(seen.reported.contains(&"! invalid-request-line".to_owned()), "{:?}", seen.reported);
    let seen = run(json!({ "smuggling": "drop" }), &long);
    assert_eq!(seen.drops, [("stream-memory", 3)]);
    // Another protocol.
    let seen = run(json!({ "smuggling": "drop" }), &before(40_000, "220 ok\r\n"));
    assert_eq!((seen.drops.len(), seen.counter("memory_full")), (0, 0));
    // As much as is kept.
    let seen = run(json!({ "smuggling": "drop" }), &before(32_000, OK));
    assert_eq!(seen.counter("memory_full"), 0);
}

/// On a port of the list, what begins a little like TLS hides no request, answered or not.
#[test]
fn only_a_hello_of_tls_is_none_of_http_on_a_port() {
    for begin in ["\x16\x03\x01\0\x05", "\x16\x03", "\x16", "\x16\x03\x01\0\0\x01"] {
        let text = format!("{begin}\r\nPOST / HTTP/1.1\r\n{DISAGREED}");
        for len in [1, 3, 1_000] {
            let mut talk = Talk::open(80);
            text.as_bytes().chunks(len).for_each(|part| talk.piece(Client, part));
            let seen = run(json!({ "smuggling": "drop", "ports": [80] }), &talk.segments);
            assert_eq!(seen.drops.first().map(|drop| drop.0), Some("http-smuggling"), "{begin:?} {len}");
        }
    }
}

#[test]
fn malformed_chunk_extensions_are_reported() {
    for extension in [";", ";a=\"b", ";a=", "; =b"] {
        let text = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1{extension}\r\na\r\n0\r\n\r\n"
        );
        let settings = json!({ "anomalies": "alert", "smuggling": "drop" });
        let run = run(settings, &talk(&[(Client, &text), (Server, OK)]).segments);
        assert!(
            run.reported.contains(&"! invalid-chunk-extension".to_owned()),
            "{extension}: {:?}",
            run.reported
        );
        assert_eq!(run.drops, [], "{extension}");
    }
}

#[test]
fn unparsed_http2_is_reported() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let upgrade = [
        (Client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
        (Server, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"),
        (Client, preface),
    ];
    for said in [&upgrade[..], &[(Client, preface)]] {
        let quiet = run(json!({}), &talk(said).segments);
        assert_eq!(quiet.counter("anomaly_http2-unread"), 1);
        assert!(!quiet.reported.iter().any(|line| line.starts_with('!')), "{:?}", quiet.reported);
        for settings in [json!({ "anomalies": "alert" }), json!({ "methods": ["GET"] })] {
            let reported = run(settings, &talk(said).segments).reported;
            assert!(reported.contains(&"! http2-unread".to_owned()), "{reported:?}");
        }
    }
}

#[test]
fn http_in_a_tunnel_is_parsed() {
    let delete = "DELETE /inner HTTP/1.1\r\nHost: x\r\n\r\n";
    let said = [
        (Client, "CONNECT y:80 HTTP/1.1\r\nHost: y:80\r\n\r\n"),
        (Server, "HTTP/1.1 200 OK\r\n\r\n"),
        (Client, delete),
        (Server, OK),
    ];
    let methods = json!({ "methods": ["GET", "CONNECT"] });
    let whole = run(methods.clone(), &talk(&said).segments);
    assert_eq!(
        whole.reported,
        [
            "CONNECT y 80 y:80 HTTP/1.1 -> 200 0",
            "! method-not-allowed",
            "DELETE x /inner HTTP/1.1 -> 200 text/html 5"
        ]
    );
    let mut bytes = talk(&said[..2]);
    delete.bytes().for_each(|byte| bytes.piece(Client, &[byte]));
    bytes.says(Server, OK);
    assert_eq!(run(methods, &bytes.segments).reported, whole.reported);
}

#[test]
fn each_kind_of_alert_is_raised_once_per_connection() {
    let odd = "GET / HTTP/1.1\nHost: x\n\n";
    let said = [(Client, odd), (Client, odd), (Client, odd)];
    let run = run(json!({ "anomalies": "alert", "events": false }), &talk(&said).segments);
    assert_eq!(run.reported, ["! bare-line-feed"]);
    assert_eq!(run.counter("anomaly_bare-line-feed"), 3);
}

#[test]
fn forbidden_methods_are_reported_or_dropped() {
    let said = [(Client, GET), (Server, OK), (Client, "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n"), (Server, OK)];
    let alert = run(json!({ "methods": ["GET", "HEAD"] }), &talk(&said).segments);
    assert_eq!(alert.reported[..2], [TOLD.to_owned(), "! method-not-allowed".to_owned()]);
    assert_eq!((alert.counter("methods_refused"), alert.drops.len()), (1, 0));
    let drop = run(json!({ "methods": ["GET"], "method_policy": "drop" }), &talk(&said).segments);
    assert_eq!(drop.drops, [("http-method", 2)]);
}

#[test]
fn gaps_are_counted_and_messages_after_them_found() {
    let mut talk = talk(&[(Client, GET), (Server, &OK[..OK.len() - 3])]);
    talk.loses(Server, 3).says(Server, OK).says(Client, GET).says(Server, OK);
    let run = run(json!({}), &talk.segments);
    // The gap is known once the client acknowledges the bytes after it; the lost bytes are the rest
    // of a body.
    assert_eq!((run.counter("gaps"), run.counter("bytes_missing")), (1, 3));
    assert_eq!(run.counter("responses"), 3);
    assert_eq!(run.reported.len(), 3, "{:?}", run.reported);
    assert!(run.reported.contains(&TOLD.replace(" 5", " 2")));
}

#[test]
fn a_connection_whose_beginning_was_not_seen_is_picked_up() {
    let texts = ["and the rest of some body\r\n", GET, OK];
    let mut midst = Talk::midstream(80);
    midst.says(Server, texts[0]).says(Client, GET).says(Server, OK);
    let picked_up = run(json!({ "anomalies": "alert" }), &midst.segments);
    assert_eq!(picked_up.reported, [TOLD]);
    // The server's packet came first: the flow's original direction is its own.
    let mut answer = Talk::midstream(80);
    answer.says(Server, OK).says(Client, GET).says(Server, OK);
    let answered = run(json!({ "anomalies": "alert" }), &answer.segments);
    assert_eq!(answered.reported, ["HTTP/1.1 -> 200 text/html 5", TOLD]);
    // Within a request head.
    let mut head = Talk::midstream(80);
    head.says(Client, "Accept: */*\r\n\r\n").says(Server, OK).says(Client, GET).says(Server, OK);
    assert_eq!(run(json!({}), &head.segments).reported.last().unwrap(), TOLD);
    // The first segment is lost.
    let mut lost = Talk::open(80);
    lost.loses(Client, 10).says(Client, "rest\r\n\r\n").says(Server, OK).says(Client, GET).says(Server, OK);
    assert_eq!(run(json!({}), &lost.segments).reported.last().unwrap(), TOLD);
}

#[test]
fn a_search_ends() {
    let mut talk = Talk::midstream(4000);
    for _ in 0..70 {
        talk.says(Server, [b'x'; 1000]).says(Client, [b'y'; 1000]);
    }
    talk.says(Client, GET).says(Server, OK);
    let run = run(json!({}), &talk.segments);
    assert_eq!((run.counter("flows"), run.reported.len()), (0, 0));
}

#[test]
fn a_reset_may_be_forged() {
    let mut talk = talk(&[(Client, GET)]);
    talk.resets(Client).says(Server, OK).says(Client, GET).says(Server, OK);
    assert_eq!(run(json!({}), &talk.segments).reported, [TOLD, TOLD]);
}

#[test]
fn long_texts_are_cut_and_counted() {
    let path = "p".repeat(6_000);
    let text = format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut talk = Talk::open(80);
    text.as_bytes().chunks(1_400).for_each(|part| talk.piece(Client, part));
    talk.says(Server, OK);
    let run = run(json!({}), &talk.segments);
    assert_eq!(run.reported, [format!("GET x /{} HTTP/1.1 -> 200 text/html 5", &path[..4_095])]);
    assert_eq!(run.counter("fields_truncated"), 1);
    // More requests than are remembered.
    let many = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(40);
    let run = crate::http_support::run(
        json!({}),
        &crate::http_support::talk(&[
            (Client, &many),
            (Server, &OK.repeat(10)),
            (Server, &OK.repeat(20)),
            (Server, &OK.repeat(10)),
        ])
        .segments,
    );
    assert_eq!(run.reported.len(), 40);
    assert!(
        run.reported.iter().all(|line| line == "GET x / HTTP/1.1 -> 200 text/html 5"),
        "{:?}",
        run.reported
    );
    assert_eq!(run.anomalies(), ["pipeline-full"]);
}

#[test]
fn configuration_errors_are_reported() {
    let registry: nf::Registry<serde_json::Value> = functions::registry();
    let make = |config| {
        registry.find("http").unwrap().make(&config, nf::Setup::new(7, 16)).err().map(|e| e.to_string())
    };
    assert_eq!(make(json!({ "methods": ["GET", "P@T"] })).unwrap(), "`P@T` is not a method (RFC 9110 9.1)");
    assert!(make(json!({ "methods": vec!["GET"; 65] })).is_some());
    assert!(make(json!({ "ports": vec![1; 1025] })).is_some());
    assert!(make(json!({ "port": 80 })).is_some());
    assert!(make(json!({ "smuggling": "maybe" })).is_some());
}
