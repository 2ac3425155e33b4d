//! The first bytes of clients and servers, per protocol.
//!
//! A clue from a prefix holds for all longer prefixes: each pattern ends before another one could
//! begin to match. Segmentation therefore does not change the result.

use crate::http::Method;

use super::{AppProtocol, FlowPorts, HEAD_BYTES};
use crate::ExchangeSide;
use crate::input::Input;

/// The result of matching a direction's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clue {
    /// More bytes are needed.
    Open,
    /// No pattern matches.
    Nothing,
    /// The bytes match this protocol.
    Is(AppProtocol),
    /// A server's `220`: SMTP or FTP.
    Greets,
    /// A command of FTP clients that other protocols share: POP3 and IRC have `USER` too.
    AsksLikeFtp,
}

/// Matches first bytes against one protocol.
type Pattern = fn(&[u8], FlowPorts) -> Clue;

const OF_CLIENTS: [Pattern; 8] =
    [http2_preface, http_request, tls_client, ssh, smb, smtp_word, ftp_word, dns_over_tcp];

const OF_SERVERS: [Pattern; 7] =
    [http_response, http2_settings, tls_server, ssh, smb, greeting, dns_over_tcp];

/// Matches the first bytes of a direction, [`HEAD_BYTES`] at most.
pub(super) fn clue(side: ExchangeSide, head: &[u8], ports: FlowPorts) -> Clue {
    let patterns: &[Pattern] = match side {
        ExchangeSide::Request => &OF_CLIENTS,
        ExchangeSide::Response => &OF_SERVERS,
    };
    let mut open = head.is_empty();
    for pattern in patterns {
        match pattern(head, ports) {
            Clue::Nothing => {}
            Clue::Open => open = true,
            clue => return clue,
        }
    }
    if open && head.len() < HEAD_BYTES { Clue::Open } else { Clue::Nothing }
}

/// Returns whether either side uses the DNS port.
pub(super) fn at_dns_port(ports: FlowPorts) -> bool {
    ports.client == 53 || ports.server == 53
}

/// Returns whether the first bytes of a message of `len` bytes are a plausible DNS header: an
/// assigned opcode, and no more entries than fit.
pub(super) fn is_dns(message: &[u8], len: usize) -> bool {
    let mut input = Input(message);
    let (Some(_id), Some(flags)) = (input.u16(), input.u16()) else { return false };
    let counts = [input.u16(), input.u16(), input.u16(), input.u16()];
    let [Some(questions), Some(answers), Some(authorities), Some(additionals)] = counts else { return false };
    let opcode = flags >> 11 & 0xf;
    let records = usize::from(answers) + usize::from(authorities) + usize::from(additionals);
    let least_len = 12 + 5 * usize::from(questions) + 11 * records;
    let is_cut = flags & 0x0200 != 0;
    matches!(opcode, 0..=2 | 4..=6)
        && usize::from(questions) + records > 0
        && (least_len <= len || is_cut && 12 + 5 * usize::from(questions) <= len)
}

// RFC 9113 3.4: the first line of the preface suffices.
fn http2_preface(head: &[u8], _: FlowPorts) -> Clue {
    begins(head, b"PRI * HTTP/2.0\r\n", Clue::Is(AppProtocol::Http2))
}

// RFC 9113 3.4: a server begins with SETTINGS, of six bytes each, on stream 0.
fn http2_settings(head: &[u8], _: FlowPorts) -> Clue {
    fits(head, 9, AppProtocol::Http2, |at, byte| match at {
        2 => byte % 6 == 0,
        3 => byte == 4,
        _ => byte == 0,
    })
}

// RFC 9112 3, 2.2: a known method, after any empty lines.
fn http_request(head: &[u8], _: FlowPorts) -> Clue {
    let start = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(head.len());
    let line = &head[start..];
    let Some(end) = line.iter().position(|byte| !byte.is_ascii_uppercase() && *byte != b'-') else {
        return Clue::Open;
    };
    let method = Method::read(&line[..end]);
    if !matches!(line[end], b' ' | b'\t') || method == Method::Unknown || line.starts_with(b"PRI") {
        return Clue::Nothing;
    }
    let is_shared = matches!(method, Method::Options | Method::Registered);
    match line.get(end + 1) {
        // RTSP and SIP share method names; their targets begin with their own schemes.
        Some(b's' | b'S' | b'r' | b'R') if is_shared => Clue::Nothing,
        None if is_shared && head.len() < HEAD_BYTES => Clue::Open,
        _ => Clue::Is(AppProtocol::Http1),
    }
}

fn http_response(head: &[u8], _: FlowPorts) -> Clue {
    fits(head, 7, AppProtocol::Http1, |at, byte| match at {
        5 => matches!(byte, b'0' | b'1'),
        _ => byte == b"HTTP/1."[at],
    })
}

fn tls_client(head: &[u8], _: FlowPorts) -> Clue {
    any([tls_record(head, 1), ssl2_client(head)])
}

/// Returns whether the bytes begin a ClientHello, or may begin one.
pub(super) fn is_client_hello(bytes: &[u8]) -> bool {
    tls_record(bytes, 1) != Clue::Nothing
}

fn tls_server(head: &[u8], _: FlowPorts) -> Clue {
    any([tls_record(head, 2), tls_alert(head), ssl2_server(head)])
}

// RFC 8446 5.1: a handshake record of legal length that begins with this message.
fn tls_record(head: &[u8], message: u8) -> Clue {
    let is_empty = matches!(head, [_, _, _, 0, 0, ..]);
    if is_empty {
        return Clue::Nothing;
    }
    fits(head, 6, AppProtocol::Tls, |at, byte| match at {
        0 => byte == 22,
        1 => byte == 3,
        2 => byte <= 4,
        3 => byte <= 0x48,
        4 => true,
        _ => byte == message,
    })
}

// RFC 8446 6: a server that refuses the connection.
fn tls_alert(head: &[u8]) -> Clue {
    fits(head, 6, AppProtocol::Tls, |at, byte| match at {
        0 => byte == 21,
        1 => byte == 3,
        2 => byte <= 4,
        3 => byte == 0,
        4 => byte == 2,
        _ => matches!(byte, 1 | 2),
    })
}

// RFC 5246 E.2: an SSL 2 hello, for that version or a later one.
fn ssl2_client(head: &[u8]) -> Clue {
    let is_ssl2 = head.get(3) == Some(&0);
    fits(head, 5, AppProtocol::Tls, |at, byte| match at {
        0 => byte & 0x80 != 0,
        1 => true,
        2 => byte == 1,
        3 => matches!(byte, 0 | 3),
        _ => byte == 2 || !is_ssl2 && byte <= 3,
    })
}

fn ssl2_server(head: &[u8]) -> Clue {
    fits(head, 7, AppProtocol::Tls, |at, byte| match at {
        0 => byte & 0x80 != 0,
        1 => true,
        2 => byte == 4,
        3 | 4 => byte <= 1,
        5 => byte == 0,
        _ => byte == 2,
    })
}

// RFC 4253 4.2.
fn ssh(head: &[u8], _: FlowPorts) -> Clue {
    begins(head, b"SSH-", Clue::Is(AppProtocol::Ssh))
}

// RFC 1002 4.3: a message after a four-byte header; a session request may come first.
fn smb(head: &[u8], ports: FlowPorts) -> Clue {
    let message = fits(head, 8, AppProtocol::Smb, |at, byte| match at {
        0 => byte == 0,
        1..4 => true,
        4 => matches!(byte, 0xfd..=0xff),
        _ => byte == b"SMB"[at - 5],
    });
    let session = match ports.server {
        139 => fits(head, 4, AppProtocol::Smb, |at, byte| match at {
            0 => matches!(byte, 0x81..=0x83),
            1 => byte <= 1,
            2 => byte == 0,
            _ => true,
        }),
        _ => Clue::Nothing,
    };
    any([message, session])
}

// RFC 5321 4.2.
fn greeting(head: &[u8], ports: FlowPorts) -> Clue {
    let clue = match ports.server {
        21 | 2121 => Clue::Is(AppProtocol::Ftp),
        25 | 465 | 587 | 2525 => Clue::Is(AppProtocol::Smtp),
        _ => Clue::Greets,
    };
    any([begins(head, b"220 ", clue), begins(head, b"220-", clue)])
}

// RFC 5321 4.1.1.1.
fn smtp_word(head: &[u8], _: FlowPorts) -> Clue {
    words(head, &[b"EHLO ", b"HELO ", b"EHLO\r", b"HELO\r"], Clue::Is(AppProtocol::Smtp))
}

// RFC 959 4.1, RFC 2389, RFC 4217, RFC 7151: the first commands of clients.
fn ftp_word(head: &[u8], ports: FlowPorts) -> Clue {
    const WORDS: [&[u8]; 9] =
        [b"USER ", b"PASS ", b"PORT ", b"AUTH ", b"HOST ", b"OPTS ", b"FEAT\r", b"SYST\r", b"CLNT "];
    let clue = if ports.server == 21 { Clue::Is(AppProtocol::Ftp) } else { Clue::AsksLikeFtp };
    words(head, &WORDS, clue)
}

// RFC 1035 4.2.2: a message after its length.
fn dns_over_tcp(head: &[u8], ports: FlowPorts) -> Clue {
    if !at_dns_port(ports) {
        return Clue::Nothing;
    }
    match Input(head).u16() {
        Some(len) if head.len() >= 14 && is_dns(&head[2..], usize::from(len)) => Clue::Is(AppProtocol::Dns),
        _ if head.len() >= 14 => Clue::Nothing,
        _ => Clue::Open,
    }
}

/// Matches a literal prefix.
fn begins(head: &[u8], pattern: &[u8], clue: Clue) -> Clue {
    match head.iter().zip(pattern).all(|(byte, other)| byte == other) {
        true if head.len() >= pattern.len() => clue,
        true => Clue::Open,
        false => Clue::Nothing,
    }
}

/// Matches any of these upper-case words, ignoring case.
fn words(head: &[u8], words: &[&[u8]], clue: Clue) -> Clue {
    let capitals: [u8; HEAD_BYTES] = std::array::from_fn(|at| head.get(at).map_or(0, u8::to_ascii_uppercase));
    let head = &capitals[..head.len().min(HEAD_BYTES)];
    words.iter().map(|word| begins(head, word, clue)).fold(Clue::Nothing, stronger)
}

/// Matches if each of the first `len` bytes is right.
fn fits(head: &[u8], len: usize, application: AppProtocol, is_right: impl Fn(usize, u8) -> bool) -> Clue {
    let mut bytes = head.iter().take(len).enumerate();
    if !bytes.all(|(at, byte)| is_right(at, *byte)) {
        return Clue::Nothing;
    }
    if head.len() < len { Clue::Open } else { Clue::Is(application) }
}

fn any<const N: usize>(clues: [Clue; N]) -> Clue {
    clues.into_iter().fold(Clue::Nothing, stronger)
}

fn stronger(one: Clue, other: Clue) -> Clue {
    match (one, other) {
        (Clue::Nothing, _) | (Clue::Open, Clue::Is(_) | Clue::Greets | Clue::AsksLikeFtp) => other,
        _ => one,
    }
}
