//! What clients and servers say first.
//!
//! A clue that is given of some first bytes is given of all longer ones too: each pattern ends
//! before another one could begin to match, so that it does not matter how the bytes arrive.

use crate::http::Method;

use super::{Application, HEAD_BYTES, Ports};
use crate::Side;
use crate::input::Input;

/// What a direction's first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clue {
    /// More bytes are needed.
    Open,
    /// They are not known.
    Nothing,
    /// They are of this protocol.
    Is(Application),
    /// A server's `220`: of SMTP or of FTP.
    Greets,
    /// A word that FTP's clients use, and others: POP3 and IRC have `USER` too.
    AsksLikeFtp,
}

/// A protocol's own view of first bytes.
type Pattern = fn(&[u8], Ports) -> Clue;

const OF_CLIENTS: [Pattern; 8] =
    [http2_preface, http_request, tls_client, ssh, smb, smtp_word, ftp_word, dns_over_tcp];

const OF_SERVERS: [Pattern; 7] =
    [http_response, http2_settings, tls_server, ssh, smb, greeting, dns_over_tcp];

/// What the first bytes of a direction, [`HEAD_BYTES`] at most, say.
pub(super) fn clue(side: Side, head: &[u8], ports: Ports) -> Clue {
    let patterns: &[Pattern] = match side {
        Side::Request => &OF_CLIENTS,
        Side::Response => &OF_SERVERS,
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

/// Whether a side of the flow is at DNS's port.
pub(super) fn at_dns_port(ports: Ports) -> bool {
    ports.client == 53 || ports.server == 53
}

/// Whether the first bytes of a message of so many bytes are a plausible header of DNS: an opcode
/// that is assigned, and no more entries than there is room for.
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

// RFC 9113 3.4: the preface's first line is decisive.
fn http2_preface(head: &[u8], _: Ports) -> Clue {
    begins(head, b"PRI * HTTP/2.0\r\n", Clue::Is(Application::Http2))
}

// RFC 9113 3.4: a server begins with SETTINGS, of six bytes each, on stream 0.
fn http2_settings(head: &[u8], _: Ports) -> Clue {
    fits(head, 9, Application::Http2, |at, byte| match at {
        2 => byte % 6 == 0,
        3 => byte == 4,
        _ => byte == 0,
    })
}

// RFC 9112 3, 2.2: a method that is known, behind any empty lines.
fn http_request(head: &[u8], _: Ports) -> Clue {
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
        // RTSP and SIP have methods of the same names; their targets begin with their own names.
        Some(b's' | b'S' | b'r' | b'R') if is_shared => Clue::Nothing,
        None if is_shared && head.len() < HEAD_BYTES => Clue::Open,
        _ => Clue::Is(Application::Http1),
    }
}

fn http_response(head: &[u8], _: Ports) -> Clue {
    fits(head, 7, Application::Http1, |at, byte| match at {
        5 => matches!(byte, b'0' | b'1'),
        _ => byte == b"HTTP/1."[at],
    })
}

fn tls_client(head: &[u8], _: Ports) -> Clue {
    any([tls_record(head, 1), ssl2_client(head)])
}

/// Whether bytes begin like a client's hello, or may still do so.
pub(super) fn is_client_hello(bytes: &[u8]) -> bool {
    tls_record(bytes, 1) != Clue::Nothing
}

fn tls_server(head: &[u8], _: Ports) -> Clue {
    any([tls_record(head, 2), tls_alert(head), ssl2_server(head)])
}

// RFC 8446 5.1: a record of a handshake, not longer than it may be, that begins with this message.
fn tls_record(head: &[u8], message: u8) -> Clue {
    let is_empty = matches!(head, [_, _, _, 0, 0, ..]);
    if is_empty {
        return Clue::Nothing;
    }
    fits(head, 6, Application::Tls, |at, byte| match at {
        0 => byte == 22,
        1 => byte == 3,
        2 => byte <= 4,
        3 => byte <= 0x48,
        4 => true,
        _ => byte == message,
    })
}

// RFC 8446 6: a server that refuses.
fn tls_alert(head: &[u8]) -> Clue {
    fits(head, 6, Application::Tls, |at, byte| match at {
        0 => byte == 21,
        1 => byte == 3,
        2 => byte <= 4,
        3 => byte == 0,
        4 => byte == 2,
        _ => matches!(byte, 1 | 2),
    })
}

// RFC 5246 E.2: a hello of SSL 2, for that version or for a later one.
fn ssl2_client(head: &[u8]) -> Clue {
    let is_ssl2 = head.get(3) == Some(&0);
    fits(head, 5, Application::Tls, |at, byte| match at {
        0 => byte & 0x80 != 0,
        1 => true,
        2 => byte == 1,
        3 => matches!(byte, 0 | 3),
        _ => byte == 2 || !is_ssl2 && byte <= 3,
    })
}

fn ssl2_server(head: &[u8]) -> Clue {
    fits(head, 7, Application::Tls, |at, byte| match at {
        0 => byte & 0x80 != 0,
        1 => true,
        2 => byte == 4,
        3 | 4 => byte <= 1,
        5 => byte == 0,
        _ => byte == 2,
    })
}

// RFC 4253 4.2.
fn ssh(head: &[u8], _: Ports) -> Clue {
    begins(head, b"SSH-", Clue::Is(Application::Ssh))
}

// RFC 1002 4.3: a message behind a header of four bytes; a session may be asked for first.
fn smb(head: &[u8], ports: Ports) -> Clue {
    let message = fits(head, 8, Application::Smb, |at, byte| match at {
        0 => byte == 0,
        1..4 => true,
        4 => matches!(byte, 0xfd..=0xff),
        _ => byte == b"SMB"[at - 5],
    });
    let session = match ports.server {
        139 => fits(head, 4, Application::Smb, |at, byte| match at {
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
fn greeting(head: &[u8], ports: Ports) -> Clue {
    let clue = match ports.server {
        21 | 2121 => Clue::Is(Application::Ftp),
        25 | 465 | 587 | 2525 => Clue::Is(Application::Smtp),
        _ => Clue::Greets,
    };
    any([begins(head, b"220 ", clue), begins(head, b"220-", clue)])
}

// RFC 5321 4.1.1.1.
fn smtp_word(head: &[u8], _: Ports) -> Clue {
    words(head, &[b"EHLO ", b"HELO ", b"EHLO\r", b"HELO\r"], Clue::Is(Application::Smtp))
}

// RFC 959 4.1, RFC 2389, RFC 4217, RFC 7151: what clients begin with.
fn ftp_word(head: &[u8], ports: Ports) -> Clue {
    const WORDS: [&[u8]; 9] =
        [b"USER ", b"PASS ", b"PORT ", b"AUTH ", b"HOST ", b"OPTS ", b"FEAT\r", b"SYST\r", b"CLNT "];
    let clue = if ports.server == 21 { Clue::Is(Application::Ftp) } else { Clue::AsksLikeFtp };
    words(head, &WORDS, clue)
}

// RFC 1035 4.2.2: a message behind its length.
fn dns_over_tcp(head: &[u8], ports: Ports) -> Clue {
    if !at_dns_port(ports) {
        return Clue::Nothing;
    }
    match Input(head).u16() {
        Some(len) if head.len() >= 14 && is_dns(&head[2..], usize::from(len)) => Clue::Is(Application::Dns),
        _ if head.len() >= 14 => Clue::Nothing,
        _ => Clue::Open,
    }
}

/// What bytes that begin like this are.
fn begins(head: &[u8], pattern: &[u8], clue: Clue) -> Clue {
    match head.iter().zip(pattern).all(|(byte, other)| byte == other) {
        true if head.len() >= pattern.len() => clue,
        true => Clue::Open,
        false => Clue::Nothing,
    }
}

/// What bytes that begin with any of these words in capitals, in whatever case, are.
fn words(head: &[u8], words: &[&[u8]], clue: Clue) -> Clue {
    let capitals: [u8; HEAD_BYTES] = std::array::from_fn(|at| head.get(at).map_or(0, u8::to_ascii_uppercase));
    let head = &capitals[..head.len().min(HEAD_BYTES)];
    words.iter().map(|word| begins(head, word, clue)).fold(Clue::Nothing, stronger)
}

/// What bytes are if each of the first `len` is as it should be.
fn fits(head: &[u8], len: usize, application: Application, is_right: impl Fn(usize, u8) -> bool) -> Clue {
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
