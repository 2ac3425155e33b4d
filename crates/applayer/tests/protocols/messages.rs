//! Tables of messages and their events, one per protocol.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use applayer::detect::{AppProtocol, Detection, Detector, FlowPorts};
use applayer::tls::{Certificate, Fingerprint, ProtocolVersion, TlsAnomaly, TlsEvent, TlsStream};
use applayer::{ExchangeSide, FixedLineBuffer, LineBuffer, dns, ssh};

const HEADER: &[u8] = b"\x12\x34\x81\x83\0\x01\0\x01\0\0\0\0";

#[test]
fn dns_entries() {
    let rows: [(&str, &[u8], &[&str]); 9] = [
        (
            "a pointer into the question",
            b"\x03WwW\x07example\0\0\x01\0\x01\xc0\x10\0\x05\0\x01\0\0\0\x09\0\x02\xc0\x0c",
            &["Question \"WwW.example\" 1 ", "Answer \"example\" 5 \\xc0\\x0c"],
        ),
        (
            "bytes are not escaped, the root is empty",
            b"\x04a.b\xff\0\0\x10\0\x01\0\0\x29\x10\0\0\0\0\0\0\0",
            &["Question \"a.b\\xff\" 16 ", "Answer \"\" 41 "],
        ),
        (
            "a circle",
            b"\x01a\xc0\x0c\0\x01\0\x01",
            &[
                "\"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a\" ! malformed name in section Question: more than 32 pointers",
            ],
        ),
        (
            "a pointer out of the message",
            b"\xc1\0",
            &["\"\" ! malformed name in section Question: a pointer leads beyond the message"],
        ),
        (
            "an unknown label",
            b"\x01a\x41",
            &["\"a\" ! malformed name in section Question: a label of unknown type"],
        ),
        ("cut in a label", b"\x07exam", &["\"exam\" ! the message ends within an entry of section Question"]),
        (
            "cut in a question",
            b"\x01a\0\0",
            &["\"a\" ! the message ends within an entry of section Question"],
        ),
        (
            "cut in an answer's data",
            b"\x01a\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04abc",
            &["Question \"a\" 1 ", "\"a\" ! the message ends within an entry of section Answer"],
        ),
        ("nothing", b"", &["\"\" ! the message ends within an entry of section Question"]),
    ];
    for (what, entries, expected) in rows {
        assert_eq!(crate::reported::dns(&[HEADER, entries].concat()), expected, "{what}");
    }
    assert_eq!(
        crate::reported::dns(&HEADER[..11]),
        ["a DNS message of 11 bytes is too short for its header of 12 bytes"]
    );
}

#[test]
fn dns_flags() {
    let message = dns::DnsMessage::read(HEADER).unwrap();
    assert_eq!((message.id, message.is_response, message.opcode, message.rcode), (0x1234, true, 0, 3));
    assert_eq!((message.flags, message.counts), (0x8183, [1, 1, 0, 0]));
    let update = dns::DnsMessage::read(b"\0\0\x28\0\0\0\0\0\0\0\0\0").unwrap();
    assert_eq!((update.is_response, update.opcode, update.rcode), (false, 5, 0));
}

#[test]
fn dns_entries_are_limited() {
    let entry = b"\xc0\x0c\0\x01\0\x01";
    let message = [b"\0\0\0\0\xff\xff\0\0\0\0\0\0\x01a\0\0\x01\0\x01", &entry.repeat(2000)[..]].concat();
    let reported = crate::reported::dns(&message);
    assert_eq!(reported.len(), dns::ENTRY_MAX as usize + 1);
    assert_eq!(reported.last().unwrap(), "\"\" ! the message has more than 1024 entries");
}

#[test]
fn dns_over_tcp() {
    use dns::TcpFrame::{Message, Needs};
    assert_eq!(dns::over_tcp(b""), Needs(2));
    assert_eq!(dns::over_tcp(b"\0"), Needs(2));
    assert_eq!(dns::over_tcp(b"\0\x02a"), Needs(4));
    assert_eq!(dns::over_tcp(b"\0\x02ab"), Message { message: b"ab", rest: b"" });
    assert_eq!(dns::over_tcp(b"\0\0\0\x01"), Message { message: b"", rest: b"\0\x01" });
}

#[test]
fn states_have_the_documented_sizes() {
    assert_eq!(
        [size_of::<Detector>(), size_of::<TlsStream>(), size_of::<ssh::GreetingReader>()],
        [46, 28, 4]
    );
}

/// Bytes that a side sends at once.
type Turn = (ExchangeSide, &'static [u8]);

#[test]
fn verdicts() {
    use ExchangeSide::{Request, Response};
    use applayer::detect::AppProtocol::*;
    let rows: [(&[Turn], u16, Detection); 26] = [
        (&[(Request, b"GET /")], 9, Detection::Known(Http1)),
        (&[(Request, b"\r\nPOST /")], 9, Detection::Known(Http1)),
        (&[(Request, b"GE")], 80, Detection::Unknown),
        (&[(Request, b"OPTIONS rtsp://a"), (Response, b"RTSP/1.0 200")], 80, Detection::Failed),
        (&[(Request, b"OPTIONS /a")], 80, Detection::Known(Http1)),
        (&[(Response, b"HTTP/1.0 200")], 9, Detection::Known(Http1)),
        (&[(Request, b"PRI * HTTP/2.0\r\n\r\n")], 80, Detection::Known(Http2)),
        (&[(Request, b"\x16\x03\x01\x02\x00\x01")], 80, Detection::Known(Tls)),
        (&[(Request, b"\x16\x03\x01\x00\x00\x01")], 443, Detection::Unknown),
        (&[(Request, b"\x80\x2e\x01\x00\x02")], 443, Detection::Known(Tls)),
        (&[(Request, b"\x80\x2e\x01\x03\x00")], 443, Detection::Known(Tls)),
        (&[(Response, b"SSH-2.0")], 2222, Detection::Known(Ssh)),
        (&[(Response, b"220 a")], 25, Detection::Known(Smtp)),
        (&[(Response, b"220 a")], 21, Detection::Known(Ftp)),
        (&[(Response, b"220 a")], 9, Detection::Unknown),
        (&[(Response, b"220-a"), (Request, b"ehlo a")], 9, Detection::Known(Smtp)),
        (&[(Response, b"220-a"), (Request, b"user a")], 9, Detection::Known(Ftp)),
        (&[(Request, b"USER a"), (Response, b"220 a")], 9, Detection::Known(Ftp)),
        (&[(Response, b"+OK"), (Request, b"USER a")], 110, Detection::Failed),
        (&[(Request, b"\0\0\0\x45\xfeSMB")], 9, Detection::Known(Smb)),
        (&[(Request, b"\x81\0\0\x44")], 139, Detection::Known(Smb)),
        (&[(Request, b"\x81\0\0\x44")], 445, Detection::Unknown),
        (&[(Request, b"\0\x1d\0\x01\x01\0\0\x01\0\0\0\0\0\0")], 53, Detection::Known(Dns)),
        (&[(Request, b"\0\x1d\0\x01\x01\0\0\x01\0\0\0\0\0\0"), (Response, b"xx")], 54, Detection::Failed),
        (&[(Request, &[b'x'; 16_384])], 80, Detection::Unknown),
        (&[(Request, &[b'x'; 16_385])], 80, Detection::Failed),
    ];
    for (turns, server, expected) in rows {
        let turns: Vec<_> = turns.iter().map(|(side, bytes)| (*side, vec![*bytes])).collect();
        let (verdict, _) =
            crate::reported::detect(Detector::default(), &turns, FlowPorts { client: 40_000, server });
        assert_eq!(verdict, expected, "{:?} {server}", turns[0].1[0].escape_ascii().to_string());
    }
}

#[test]
fn empty_lines_before_a_request_do_not_count() {
    use ExchangeSide::{Request, Response};
    let known = Detection::Known(AppProtocol::Http1);
    for (lines, len) in [(1, 1), (5, 3), (9_000, 1_400), (30_000, 1_400)] {
        let bytes = ["\r\n".repeat(lines).as_bytes(), b"GET / HTTP/1.1\r\n"].concat();
        let ports = FlowPorts { client: 40_000, server: 80 };
        let [mut detector, mut next] = [Detector::default(); 2];
        for (number, piece) in bytes.chunks(len).enumerate() {
            assert_eq!(detector.has_only_empty_lines(Request), number * len <= 2 * lines);
            detector.stream(Request, (number * len) as u64, piece, ports);
            next.next(Request, piece, ports);
            // Once more.
            detector.stream(Request, (number * len) as u64, piece, ports);
        }
        assert_eq!((detector.verdict(), next.verdict()), (known, known), "{lines}");
        assert_eq!(detector.found(Request), Some(AppProtocol::Http1));
        assert_eq!(detector.found(Response), None);
    }
    // A gap among them.
    let (mut detector, ports) = (Detector::default(), FlowPorts { client: 40_000, server: 80 });
    detector.stream(Request, 0, b"\r\n", ports);
    detector.stream(Request, 3, b"GET /", ports);
    assert_eq!((detector.verdict(), detector.has_only_empty_lines(Request)), (Detection::Unknown, false));
}

#[test]
fn a_direction_that_was_silent_may_still_decide() {
    let (long, ports) = (vec![b'x'; 20_000], FlowPorts { client: 40_000, server: 80 });
    for (first, then, found) in [
        (ExchangeSide::Request, &b"HTTP/1.1 200"[..], AppProtocol::Http1),
        (ExchangeSide::Response, b"GET / HTTP/1.1", AppProtocol::Http1),
        (ExchangeSide::Request, b"SSH-2.0-x", AppProtocol::Ssh),
    ] {
        let other =
            if first == ExchangeSide::Request { ExchangeSide::Response } else { ExchangeSide::Request };
        let mut detector = Detector::default();
        assert_eq!(detector.stream(first, 0, &long, ports), Detection::Failed);
        assert_eq!(detector.stream(other, 0, &then[..2], ports), Detection::Failed);
        assert_eq!(detector.stream(other, 2, &then[2..], ports), Detection::Known(found));
        let mut detector = Detector::default();
        detector.stream(first, 0, &long, ports);
        assert_eq!(detector.stream(other, 0, b"yyyyyyyyyyyyyyyyyyyy", ports), Detection::Failed);
        assert_eq!(detector.stream(other, 20, then, ports), Detection::Failed);
    }
}

#[test]
fn datagrams() {
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    let at = |port| FlowPorts { client: 40_000, server: port };
    let mut detector = Detector::default();
    assert_eq!(detector.datagram(ExchangeSide::Request, query, at(53)), Detection::Known(AppProtocol::Dns));
    assert_eq!(detector.found(ExchangeSide::Request), Some(AppProtocol::Dns));
    assert_eq!(detector.found(ExchangeSide::Response), None);
    assert_eq!(Detector::default().datagram(ExchangeSide::Request, query, at(5353)), Detection::Failed);
    let mut detector = Detector::default();
    let verdicts = [(); 4].map(|()| detector.datagram(ExchangeSide::Request, b"garbage", at(53)));
    assert_eq!(verdicts, [Detection::Unknown, Detection::Unknown, Detection::Unknown, Detection::Failed]);
}

#[test]
fn a_lost_beginning_is_not_detected() {
    let ports = FlowPorts { client: 40_000, server: 80 };
    let mut detector = Detector::default();
    detector.stream(ExchangeSide::Request, 0, b"GE", ports);
    detector.stream(ExchangeSide::Request, 3, b" / HTTP/1.1\r\n", ports);
    assert_eq!(detector.verdict(), Detection::Unknown);
    assert_eq!(
        detector.stream(ExchangeSide::Response, 0, b"HTTP/1.1 200", ports),
        Detection::Known(AppProtocol::Http1)
    );
    assert_eq!(detector.found(ExchangeSide::Request), None);

    let mut again = Detector::default();
    again.stream(ExchangeSide::Request, 0, b"GE", ports);
    assert_eq!(again.stream(ExchangeSide::Request, 1, b"ET /", ports), Detection::Known(AppProtocol::Http1));
}

#[test]
fn ssh_greetings() {
    let rows: [(&[u8], &[&str]); 8] = [
        (b"SSH-2.0-OpenSSH_9.6 Debian-2\r\nrest", &["[\"2.0\", \"OpenSSH_9.6\", \"Debian-2\"] cut false"]),
        (b"SSH-1.99-x\n", &["[\"1.99\", \"x\", \"\"] cut false"]),
        (b"welcome\r\nto\nSSH-2.0-x\r\nSSH-2.0-y\r\n", &["[\"2.0\", \"x\", \"\"] cut false"]),
        (b"SSH-2.0-a-b-c\r\n", &["[\"2.0\", \"a-b-c\", \"\"] cut false"]),
        (b"SSH-2.0", &["[\"2.0\", \"\", \"\"] cut true"]),
        (b"SSH-\r\n", &["[\"\", \"\", \"\"] cut false"]),
        (b"hello", &[]),
        (&[b'\n'; 100], &[]),
    ];
    for (bytes, expected) in rows {
        assert_eq!(
            crate::reported::ssh(ssh::GreetingReader::default(), &[bytes]).1,
            expected,
            "{}",
            bytes.escape_ascii()
        );
    }
    let long = [b"SSH-2.0-", &[b'x'; 300][..]].concat();
    let expected = format!("[\"2.0\", \"{}\", \"\"] cut true", "x".repeat(ssh::GREETING_BYTES_MAX - 8));
    assert_eq!(crate::reported::ssh(ssh::GreetingReader::default(), &[&long]).1, [expected]);
}

fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1], &(payload.len() as u16).to_be_bytes()[..], payload].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

fn client_hello() -> Vec<u8> {
    let extensions =
        b"\0\0\0\x10\0\x0e\0\0\x0bexample.org\0\x10\0\x05\0\x03\x02h2\0\x2b\0\x05\x04\x0a\x0a\x03\x04";
    let lists = b"\0\0\x04\x13\x01\x13\x02\x01\0";
    message(1, &[b"\x03\x03", &[9; 32][..], lists, &[0, extensions.len() as u8], extensions].concat())
}

const HELLO: &str = "client hello TLS 1.3 name example.org protocols h2 suites 2 extensions 3 whole true";

#[test]
fn tls_streams() {
    let hello = client_hello();
    let server = message(2, &[b"\x03\x03", &[7; 32][..], b"\0\xc0\x2f\0"].concat());
    let reported = "server hello TLS 1.2 retry false protocol none suite 0xc02f whole true";
    let rows: [(&str, Vec<u8>, &[&str]); 10] = [
        ("a hello over two records", [record(22, &hello[..9]), record(22, &hello[9..])].concat(), &[HELLO]),
        (
            "a server's flight",
            [
                record(22, &[server, message(11, b"\0\0\x05\0\0\x02ab"), message(14, b"")].concat()),
                record(20, b"\x01"),
                record(22, b"encrypted"),
            ]
            .concat(),
            &[reported, "certificates ab whole true", "Message(14)", "Encrypted"],
        ),
        (
            "another hello behind a change of ciphers",
            [
                record(22, &hello),
                record(20, b"\x01"),
                record(22, &hello),
                record(23, b"x"),
                record(22, &hello),
            ]
            .concat(),
            &[HELLO, HELLO, "Encrypted"],
        ),
        ("data", record(23, b"x"), &["Encrypted"]),
        (
            "an alert in a hello",
            [record(22, &hello[..9]), record(21, b"\x01\0"), record(22, &hello[9..])].concat(),
            &["Anomaly(Interleaved)", HELLO],
        ),
        (
            "a hello that ends early",
            record(22, &hello[..60]),
            &[
                "Anomaly(MessageCut)",
                "client hello TLS 1.2 name none protocols  suites 2 extensions 0 whole false",
                "Anomaly(Malformed)",
            ],
        ),
        (
            "certificates whose lengths disagree",
            record(22, &message(11, b"\0\0\x09\0\0\x02ab\0\0\x09c")),
            &["certificates ab whole false", "Anomaly(Malformed)"],
        ),
        (
            "a message that is too long",
            record(22, &message(11, &[&b"\0\x02\x55\0\0\x02ab\0\x02\x50"[..], &[0; 0x250]].concat())),
            &["Anomaly(MessageTooLong)", "certificates ab whole false", "Anomaly(Malformed)"],
        ),
        ("no TLS", b"GET / HTTP/1.1\r\n".to_vec(), &["Anomaly(NotTls)"]),
        ("a long record", b"\x16\x03\x01\xff\xff\x01".to_vec(), &["Anomaly(RecordTooLong)"]),
    ];
    for (what, bytes, expected) in rows {
        let (stream, mut reported) = crate::reported::tls(TlsStream::default(), &[&bytes]);
        reported.retain(|event| !event.starts_with("Record"));
        assert_eq!(reported, expected, "{what}");
        assert!(stream.is_done());
    }
}

#[test]
fn ssl_2() {
    let later = [b"\x80\x06\x01\x03\x01\0\0\0".to_vec(), record(23, b"x")].concat();
    let rows: [(&[u8], &[&str]); 4] = [
        (b"\x80\x2e\x01\0\x02\0\x15", &["Ssl2ClientHello(ProtocolVersion(2))"]),
        (b"\x84\x0b\x04\0\x01\0\x02\x03", &["Ssl2ServerHello(ProtocolVersion(2))"]),
        (b"\x84\x0b\x05\0\x01\0\x02\x03", &["Anomaly(NotTls)"]),
        (
            &later,
            &[
                "Ssl2ClientHello(ProtocolVersion(769))",
                "Record { kind: 23, version: ProtocolVersion(769), len: 1 }",
                "Encrypted",
            ],
        ),
    ];
    for (bytes, expected) in rows {
        assert_eq!(crate::reported::tls(TlsStream::default(), &[bytes]).1, expected);
    }
}

#[test]
fn no_event_follows_a_gap() {
    let (mut stream, mut line) = (TlsStream::default(), FixedLineBuffer::<64>::default());
    let mut reported = Vec::new();
    let mut sink = |event: TlsEvent<'_>| reported.push(crate::reported::show(event));
    stream.take(&record(22, &client_hello())[..8], &mut line, &mut sink);
    stream.gap(&mut line, &mut sink);
    stream.take(&record(23, b"x"), &mut line, &mut sink);
    assert_eq!(reported[1..], ["Anomaly(MessageCut)", "Lost"]);
    assert!(stream.is_done() && line.as_slice().is_empty());
}

#[test]
fn each_anomaly_is_reported_once() {
    let bytes = [record(21, b""), record(21, b""), record(22, b"")].concat();
    let (stream, reported) = crate::reported::tls(TlsStream::default(), &[&bytes]);
    let expected = crate::reported::show(TlsEvent::Anomaly(TlsAnomaly::EmptyRecord));
    assert_eq!(reported.iter().filter(|event| **event == expected).count(), 1);
    assert_eq!(stream.repeated_anomalies(), 2);
}

#[test]
fn versions_are_shown() {
    let shown =
        [2, 0x300, 0x301, 0x302, 0x303, 0x304, 0x7f12].map(|number| ProtocolVersion(number).to_string());
    assert_eq!(shown, ["SSLv2", "SSLv3", "TLS 1.0", "TLS 1.1", "TLS 1.2", "TLS 1.3", "0x7f12"]);
    assert!(ProtocolVersion(0x3a3a).is_grease() && !ProtocolVersion(0x3a4a).is_grease());
}

/// A certificate with a random key and three alternative names.
const CERTIFICATE: &[u8] = include_bytes!("support/certificate.der");

#[test]
fn a_certificate() {
    let certificate = Certificate::read(CERTIFICATE).unwrap();
    assert_eq!(certificate.subject(), "C=US, O=Example, CN=example.org");
    assert_eq!(certificate.issuer(), certificate.subject());
    assert_eq!(certificate.alternative_names(), ["example.org", "192.0.2.1", "a@example.org"]);
    assert_eq!(certificate.serial(), "4D:86:CC:5D:E2:FC:59:09:66:3F:96:4D:27:22:51:46:89:59:84:4B");
    assert_eq!(
        Fingerprint::of(CERTIFICATE).to_string(),
        "1c:a2:ac:50:34:c0:83:94:66:01:be:f9:2b:bc:f8:7c:f6:8f:24:fd"
    );
    let validity = ["2026-11-21T15:24:15", "2036-11-18T15:24:15"].map(str::to_owned);
    assert_eq!(<[String; 2]>::from(certificate.validity()), validity);
    let cut = &CERTIFICATE[..CERTIFICATE.len() - 1];
    assert_eq!(
        Certificate::read(cut).unwrap_err().to_string(),
        format!("{} bytes are not a certificate in DER", cut.len())
    );
}
