//! Content codings of HTTP, undone.

use flate2::{Decompress, FlushDecompress, Status};

/// Undoes content codings.
pub struct Decoder {
    zlib: Decompress,
    raw: Decompress,
    out: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { zlib: Decompress::new(true), raw: Decompress::new(false), out: Vec::new() }
    }
}

/// How much larger than what was sent a body may become: the rest is not looked at.
const GROWTH_MAX: usize = 16;

impl Decoder {
    /// The body without this coding (RFC 9110 8.4.1), as far as it can be undone; none if it is another one, or nothing can.
    pub fn decode(&mut self, coding: &[u8], body: &[u8]) -> Option<&[u8]> {
        self.out.clear();
        let room = body.len().saturating_mul(GROWTH_MAX).max(1 << 12);
        if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
            inflate(&mut self.raw, false, gzip_data(body)?, room, &mut self.out);
        } else if coding.eq_ignore_ascii_case(b"deflate") {
            // Some senders leave the zlib format away (RFC 9110 8.4.1.2).
            inflate(&mut self.zlib, true, body, room, &mut self.out);
            if self.out.is_empty() {
                inflate(&mut self.raw, false, body, room, &mut self.out);
            }
        }
        (!self.out.is_empty()).then_some(&self.out)
    }
}

fn inflate(with: &mut Decompress, zlib: bool, mut bytes: &[u8], room: usize, out: &mut Vec<u8>) {
    with.reset(zlib);
    while out.len() < room {
        if out.len() == out.capacity() {
            out.reserve(room.min(out.len().max(1 << 12)));
        }
        let before = (with.total_in(), out.len());
        let status = with.decompress_vec(bytes, out, FlushDecompress::None);
        let used = (with.total_in() - before.0) as usize;
        bytes = &bytes[used.min(bytes.len())..];
        let stalled = used == 0 && out.len() == before.1 && out.len() < out.capacity();
        if stalled || !matches!(status, Ok(Status::Ok | Status::BufError)) {
            break;
        }
    }
    out.truncate(room);
}

/// What is behind a gzip header (RFC 1952 2.3).
fn gzip_data(body: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = body.split_at_checked(10)?;
    let flags = *header.strip_prefix(&[0x1f, 0x8b, 8])?.first()?;
    if flags & 4 != 0 {
        let (len, behind) = rest.split_first_chunk::<2>()?;
        rest = behind.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for text in [8, 16] {
        if flags & text != 0 {
            rest = &rest[rest.iter().position(|&byte| byte == 0)? + 1..];
        }
    }
    rest.get(if flags & 2 != 0 { 2 } else { 0 }..)
}
