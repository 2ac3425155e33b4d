//! The names of a DNS message (RFC 1035 4).

use signatures::Buffer;

use super::http::Buffers;

/// Maximum entries.
const ENTRIES_MAX: usize = 1024;

/// Returns the buffers of the parsable part of a message.
pub fn buffers(message: &[u8]) -> Buffers {
    let mut buffers = Buffers::new();
    let mut at = 12;
    let mut read = 0;
    for section in 0..4 {
        for _ in 0..word(message, 4 + 2 * section).unwrap_or(0) {
            read += 1;
            let Some((name, behind)) = name(message, at).filter(|_| read <= ENTRIES_MAX) else {
                return buffers;
            };
            let len = match section {
                0 => Some(4),
                _ => word(message, behind + 8).map(|len| 10 + len),
            };
            let Some(len) = len.filter(|len| behind + len <= message.len()) else { return buffers };
            at = behind + len;
            let also: &[Buffer] = match section {
                0 if message[2] & 0x80 == 0 => &[Buffer::DnsQuery, Buffer::DnsQueriesName],
                0 => &[Buffer::DnsQueriesName],
                1 => &[Buffer::DnsAnswersName],
                2 => &[Buffer::DnsAuthoritiesName],
                _ => &[Buffer::DnsAdditionalsName],
            };
            let response = (message[2] & 0x80 != 0).then_some(&Buffer::DnsResponseName);
            for buffer in also.iter().chain(response) {
                buffers.entry(*buffer).or_default().push(name.clone().into());
            }
        }
    }
    buffers
}

/// Returns the name that begins here, and the offset after it.
fn name(message: &[u8], from: usize) -> Option<(Vec<u8>, usize)> {
    let (mut at, mut behind, mut labels, mut len) = (from, None, Vec::<&[u8]>::new(), 0);
    for _ in 0..1024 {
        match *message.get(at)? {
            0 => return Some((labels.join(&b'.'), behind.unwrap_or(at + 1))),
            pointer @ 0xc0.. => {
                behind.get_or_insert(at + 2);
                at = usize::from(pointer & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
            }
            count @ 1..0x40 => {
                let label = message.get(at + 1..at + 1 + usize::from(count))?;
                len += 1 + label.len();
                if len > 254 {
                    return None;
                }
                labels.push(label);
                at += 1 + label.len();
            }
            _ => return None,
        }
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

/// Removes whole messages from the beginning of a stream.
pub fn messages(stream: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(len) = word(stream, 0).filter(|len| stream.len() >= 2 + len) {
        messages.push(stream[2..2 + len].to_vec());
        stream.drain(..2 + len);
    }
    messages
}
