//! TLS handshake messages (RFC 5246 7.4, RFC 8446 4), and the SSH identification string (RFC 4253
//! 4.2).

use signatures::Buffer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::http::Buffers;

/// Maximum bytes of a direction: a handshake ends long before.
const STREAM_MAX: usize = 1 << 18;
/// Maximum bytes of an identification string.
const GREETING_MAX: usize = 255;

/// One direction of a connection, parsed from its beginning at each addition.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    stream: Vec<u8>,
    reported: usize,
    over: bool,
}

impl Handshake {
    /// Adds bytes; returns the buffers of each completed message.
    pub fn tls(&mut self, bytes: &[u8]) -> Vec<Buffers> {
        if !self.keep(bytes) {
            return Vec::new();
        }
        let bytes = handshake(&self.stream);
        let all = messages(&bytes);
        let fresh = all.iter().skip(self.reported).map(|message| buffers(message)).collect();
        self.reported = all.len();
        fresh
    }

    /// Adds bytes; returns the buffers of the identification string when it is complete.
    pub fn ssh(&mut self, bytes: &[u8]) -> Option<Buffers> {
        if !self.keep(bytes) {
            return None;
        }
        let lines = self.stream.split_inclusive(|byte| *byte == b'\n');
        let line = lines.filter(|line| line.ends_with(b"\n") || line.len() > GREETING_MAX);
        let rest = line.into_iter().find_map(|line| line.strip_prefix(b"SSH-"))?;
        self.over = true;
        let line = rest.strip_suffix(b"\n").unwrap_or(rest);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let dash = line.iter().position(|byte| *byte == b'-').unwrap_or(line.len());
        let software = line.get(dash + 1..).unwrap_or_default();
        let software = software.split(|byte| *byte == b' ').next().unwrap_or_default();
        let parts = [(Buffer::SshProtocol, &line[..dash]), (Buffer::SshSoftware, software)];
        let sent = parts.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        Some(sent.map(|(buffer, bytes)| (buffer, vec![bytes.to_vec().into()])).collect())
    }

    /// Handles missing bytes or the end of the stream.
    pub fn end(&mut self) {
        self.over = true;
    }

    fn keep(&mut self, bytes: &[u8]) -> bool {
        self.over |= self.stream.len() + bytes.len() > STREAM_MAX;
        if !self.over {
            self.stream.extend(bytes);
        }
        !self.over
    }
}

/// Returns the contents of the handshake records, up to the first encrypted record.
fn handshake(stream: &[u8]) -> Vec<u8> {
    let (mut rest, mut bytes) = (stream, Vec::new());
    while let [kind @ (21 | 22), 3, _, high, low, behind @ ..] = rest {
        let len = (usize::from(*high) << 8 | usize::from(*low)).min(behind.len());
        if *kind == 22 {
            bytes.extend(&behind[..len]);
        }
        rest = &behind[len..];
    }
    bytes
}

/// Returns the complete messages.
fn messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let [_, a, b, c, behind @ ..] = bytes {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if behind.len() < len {
            break;
        }
        all.push(&bytes[..4 + len]);
        bytes = &behind[len..];
    }
    all
}

fn buffers(message: &[u8]) -> Buffers {
    let body = &message[4..];
    let found = match message[0] {
        1 => client_hello(body),
        11 => certificates(body),
        _ => None,
    };
    found.unwrap_or_default()
}

/// Takes bytes with a length prefix of `width` bytes.
fn counted<'a>(from: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let len = take(from, width)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    take(from, len)
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

fn client_hello(mut body: &[u8]) -> Option<Buffers> {
    let mut found = Buffers::new();
    let random = body.get(2..34)?;
    found.insert(Buffer::TlsRandom, vec![random.to_vec().into()]);
    found.insert(Buffer::TlsRandomTime, vec![random[..4].to_vec().into()]);
    found.insert(Buffer::TlsRandomBytes, vec![random[4..].to_vec().into()]);
    body = &body[34..];
    counted(&mut body, 1)?;
    counted(&mut body, 2)?;
    counted(&mut body, 1)?;
    let Some(mut extensions) = counted(&mut body, 2) else { return Some(found) };
    while let Some(kind) = take(&mut extensions, 2) {
        let Some(mut extension) = counted(&mut extensions, 2) else { break };
        match kind {
            [0, 0] => {
                let mut list = counted(&mut extension, 2).unwrap_or_default();
                if take(&mut list, 1) == Some(&[0])
                    && let Some(name) = counted(&mut list, 2)
                {
                    found.insert(Buffer::TlsSni, vec![name.to_vec().into()]);
                }
            }
            [0, 16] => {
                let mut list = counted(&mut extension, 2).unwrap_or_default();
                while let Some(name) = counted(&mut list, 1) {
                    found.entry(Buffer::TlsAlpn).or_default().push(name.to_vec().into());
                }
            }
            _ => {}
        }
    }
    Some(found)
}

fn certificates(mut body: &[u8]) -> Option<Buffers> {
    let mut found = Buffers::new();
    let mut list = counted(&mut body, 3)?;
    while let Some(der) = counted(&mut list, 3) {
        let all = found.entry(Buffer::TlsCertificates).or_default();
        all.push(der.to_vec().into());
        if all.len() > 1 {
            continue;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { continue };
        let serial: Vec<String> =
            certificate.tbs_certificate.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect();
        let texts = [
            (Buffer::TlsCertSubject, certificate.subject().to_string()),
            (Buffer::TlsCertIssuer, certificate.issuer().to_string()),
            (Buffer::TlsCertSerial, serial.join(":")),
        ];
        found.extend(texts.map(|(buffer, text)| (buffer, vec![text.into_bytes().into()])));
    }
    Some(found)
}
