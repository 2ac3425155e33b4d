//! Connections that change protocol: after CONNECT, an upgrade, STARTTLS and the like.

use crate::ids_oracle::plant::tls;
use crate::ids_support::*;

const RULES: &str = r#"
    alert tls any any -> any any (msg:"name"; flow:established,to_server; tls.sni; content:"secret.example"; sid:1;)
    alert http any any -> any any (msg:"inner"; flow:established,to_server; http.uri; content:"/inner"; sid:2;)
    alert tls any any -> any any (msg:"certificate"; flow:to_client; tls.cert_subject; content:"CN=secret"; sid:3;)
    alert ssh any any -> any any (msg:"greeting"; ssh.software; content:"secret_1"; sid:4;)
    alert smtp any any -> any any (msg:"mail"; flow:to_server; content:"VRFY secret"; sid:5;)"#;
const CONNECT: &[u8] = b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
const OPENED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

fn hello() -> Vec<u8> {
    tls::client_hello(b"secret.example")
}

fn certificate() -> Vec<u8> {
    tls::certificate(b"CN=secret", b"CN=x", b"0A").unwrap()
}

/// Checks which rules match these turns, whole and in pieces of these lengths.
fn check(port: u16, said: &[(Who, &[u8])], expected: &[u32], what: &str) {
    for len in [10_000, 7, 1] {
        let mut talk = Talk::open(port);
        for (who, bytes) in said {
            bytes.chunks(len).for_each(|part| talk.piece(*who, part));
        }
        assert_eq!(watch(RULES, &talk.segments).rules(), expected, "{what} {len}");
    }
}

#[test]
fn after_a_connect_the_protocol_is_detected_again() {
    let (hello, certificate) = (hello(), certificate());
    let said = [(Client, CONNECT), (Server, OPENED), (Client, &hello), (Server, &certificate)];
    check(8_080, &said, &[1, 3], "TLS");
    let inner = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n";
    check(8_080, &[(Client, CONNECT), (Server, OPENED), (Client, inner)], &[2], "HTTP");
    let greeting = b"SSH-2.0-secret_1\r\n";
    check(8_080, &[(Client, CONNECT), (Server, &[OPENED, greeting].concat())], &[4], "with the answer");
    let early = [CONNECT, &hello].concat();
    check(8_080, &[(Client, &early), (Server, OPENED), (Server, &certificate)], &[1, 3], "before the answer");
    let twice =
        [(Client, CONNECT), (Server, OPENED), (Client, CONNECT), (Server, OPENED), (Client, &hello[..])];
    check(8_080, &twice, &[1], "within another");
}

#[test]
fn a_refused_connect_hides_nothing() {
    let hello = hello();
    let refused = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n";
    let inner = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n";
    let early = [CONNECT, &hello].concat();
    check(8_080, &[(Client, CONNECT), (Server, refused), (Client, inner)], &[2], "refused");
    check(8_080, &[(Client, &early), (Server, refused), (Client, inner)], &[2], "after a hello");
}

#[test]
fn after_an_upgrade_the_protocol_is_detected_again() {
    let hello = hello();
    let ask = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n";
    let agreed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: TLS/1.2\r\n\r\n";
    check(80, &[(Client, ask), (Server, agreed), (Client, &hello)], &[1], "TLS (RFC 2817)");
}

#[test]
fn unparsed_http2_is_counted() {
    let count = |said: &[(Who, &[u8])]| {
        let mut talk = Talk::open(80);
        said.iter().for_each(|(who, bytes)| talk.piece(*who, bytes));
        watch(RULES, &talk.segments).counter("http2_skipped")
    };
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let ask = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let agreed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
    assert_eq!(count(&[(Client, preface)]), 1);
    assert_eq!(count(&[(Client, ask), (Server, agreed), (Client, preface)]), 1);
}

#[test]
fn after_starttls_the_protocol_is_detected_again() {
    let (hello, certificate) = (hello(), certificate());
    let smtp: [(Who, &[u8]); 6] = [
        (Server, b"220 mail.example ESMTP\r\n"),
        (Client, b"EHLO x\r\n"),
        (Server, b"250-mail.example\r\n250 STARTTLS\r\n"),
        (Client, b"starttls\r\n"),
        (Server, b"220 2.0.0 Ready\r\n"),
        (Client, &hello),
    ];
    let said = [&smtp[..], &[(Server, &certificate)]].concat();
    check(25, &said, &[1, 3], "SMTP");
    let ftp: [(Who, &[u8]); 4] =
        [(Server, b"220 ftp\r\n"), (Client, b"AUTH TLS\r\n"), (Server, b"234 go on\r\n"), (Client, &hello)];
    check(21, &ftp, &[1], "FTP");
}

/// Of these protocols, only the beginning of TLS is known.
#[test]
fn tls_within_unknown_protocols_is_detected() {
    let hello = hello();
    type Said<'a> = &'a [(Who, &'a [u8])];
    let cases: [(&str, u16, Said<'_>); 6] = [
        ("POP3", 110, &[(Server, b"+OK ready\r\n"), (Client, b"STLS\r\n"), (Server, b"+OK go on\r\n")]),
        ("IMAP", 143, &[(Server, b"* OK ready\r\n"), (Client, b"a STARTTLS\r\n"), (Server, b"a OK go on\r\n")]),
        ("XMPP", 5222, &[
            (Client, b"<?xml version='1.0'?><stream:stream to='x'>"),
            (Server, b"<?xml version='1.0'?><stream:stream>"),
            (Client, b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
            (Server, b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
        ]),
        ("PostgreSQL", 5432, &[(Client, b"\0\0\0\x08\x04\xd2\x16\x2f"), (Server, b"S")]),
        ("MySQL", 3306, &[
            (Server, b"\x4a\0\0\0\x0a8.0.36\0\x08\0\0\0abcdefgh\0\xff\xff"),
            (Client, b"\x20\0\0\x01\x85\xae\xff\x19\0\0\0\x01\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ]),
        ("LDAP", 389, &[
            (Client, b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"),
            (Server, b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\0\x04\0\x04\0"),
        ]),
    ];
    for (what, port, said) in cases {
        let said = [said, &[(Client, &hello[..])]].concat();
        let mut talk = Talk::open(port);
        said.iter().for_each(|(who, bytes)| talk.piece(*who, bytes));
        assert_eq!(watch(RULES, &talk.segments).rules(), [1], "{what}");
        // The hello may arrive byte by byte if the protocol so far is known to be none of ours.
        let least = if what == "PostgreSQL" { 6 } else { 1 };
        let mut talk = Talk::open(port);
        said[..said.len() - 1].iter().for_each(|(who, bytes)| talk.piece(*who, bytes));
        hello.chunks(least).for_each(|byte| talk.piece(Client, byte));
        assert_eq!(watch(RULES, &talk.segments).rules(), [1], "{what}, byte by byte");
    }
}

#[test]
fn apparent_protocol_changes_change_nothing() {
    let hello = hello();
    let smtp: [(Who, &[u8]); 7] = [
        (Server, b"220 mail.example ESMTP\r\n"),
        (Client, b"EHLO x\r\n"),
        (Server, b"250 mail.example\r\n"),
        (Client, b"STARTTLS\r\n"),
        (Server, b"454 not now\r\n"),
        (Client, &hello),
        (Client, b"\r\nVRFY secret\r\n"),
    ];
    check(25, &smtp, &[5], "the server refuses");
    let mut in_data = smtp;
    in_data[3] = (Client, b"DATA\r\n");
    in_data[4] = (Server, b"354 go on\r\n");
    check(25, &in_data, &[5], "nobody asked");
}
