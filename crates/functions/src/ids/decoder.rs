//! HTTP content codings, decoded leniently.

use flate2::{Decompress, FlushDecompress, Status};

mod lenient;

/// A decoder of content codings.
pub struct ContentDecoder {
    zlib: Decompress,
    raw: Decompress,
    out: Vec<u8>,
    /// Output of one coding, the input of the next.
    between: Vec<u8>,
    /// The letters of a head, in lower case.
    letters: Vec<u8>,
    /// A body without its chunks.
    unchunked: Vec<u8>,
}

impl Default for ContentDecoder {
    fn default() -> ContentDecoder {
        let [zlib, raw] = [true, false].map(Decompress::new);
        let [out, between, letters, unchunked] = [const { Vec::new() }; 4];
        ContentDecoder { zlib, raw, out, between, letters, unchunked }
    }
}

/// A decoded body.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodedBody<'a> {
    pub bytes: &'a [u8],
    /// True if each coding was decoded as named, to its end; otherwise other implementations may
    /// read the body differently.
    pub is_plain: bool,
    /// True if there is more of it than was decoded.
    pub is_cut: bool,
}

/// Maximum codings of a body that are decoded.
pub const CODINGS_MAX: usize = 8;

/// A supported coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
}

impl ContentDecoder {
    /// Decodes a body; `codings` lists its codings in the order applied (RFC 9110 8.4). Returns
    /// `None` if no coding is supported or decoding fails. Each coding yields up to `len_max`
    /// bytes: whatever was sent, that and [`CODINGS_MAX`] bound the work.
    ///
    /// Several header lines form one list (5.3), and empty elements are ignored (5.6.1.2). Decoding
    /// stops at an unknown coding. A name counts if it contains the name of a coding, as in lenient
    /// clients. If the bytes have another format than named, that format is decoded.
    pub fn decode(&mut self, codings: &[u8], body: &[u8], len_max: usize) -> Option<DecodedBody<'_>> {
        let (mut done, mut is_plain, mut is_cut) = (0, true, false);
        for name in codings.split(|&byte| byte == b',').rev().map(<[u8]>::trim_ascii) {
            if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            let coding = coding(name).filter(|_| done < CODINGS_MAX);
            let Some(coding) = coding else {
                is_plain = false;
                is_cut |= done == CODINGS_MAX;
                break;
            };
            std::mem::swap(&mut self.out, &mut self.between);
            let bytes = if done == 0 { body } else { &self.between[..] };
            self.out.clear();
            // One byte beyond the limit shows that there is more.
            let ended = undo(&mut self.zlib, &mut self.raw, coding, bytes, len_max + 1, &mut self.out);
            is_cut |= self.out.len() > len_max;
            self.out.truncate(len_max);
            is_plain &= ended && is_exact(name);
            if self.out.is_empty() {
                std::mem::swap(&mut self.out, &mut self.between);
                is_plain = false;
                break;
            }
            done += 1;
        }
        (done > 0).then_some(DecodedBody { bytes: &self.out, is_plain, is_cut })
    }
}

/// Returns the coding that a name is or contains.
fn coding(name: &[u8]) -> Option<Coding> {
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    match () {
        () if has(b"gzip") => Some(Coding::Gzip),
        () if has(b"deflate") => Some(Coding::Deflate),
        () => None,
    }
}

/// Returns whether a name is exactly one of RFC 9110 8.4.1.
fn is_exact(name: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"gzip", b"x-gzip", b"deflate"];
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Decodes a coding, or the format that the bytes actually have. Returns whether it was the named
/// one and complete.
fn undo(
    zlib: &mut Decompress,
    raw: &mut Decompress,
    coding: Coding,
    bytes: &[u8],
    room: usize,
    out: &mut Vec<u8>,
) -> bool {
    if let Some(data) = gzip_data(bytes) {
        return gzip(raw, data, room, out) && coding == Coding::Gzip;
    }
    let mut whole = None;
    if is_zlib(bytes) {
        zlib.reset(true);
        whole = inflate(zlib, bytes, room, out);
    }
    if out.is_empty() {
        // Some senders omit the zlib wrapper (RFC 9110 8.4.1.2).
        raw.reset(false);
        whole = inflate(raw, bytes, room, out);
        let is_certain = out.len() == room || whole.is_some_and(|whole| whole.has_ended);
        if coding == Coding::Gzip && !is_certain {
            // Nearly any bytes begin like this format.
            out.clear();
        }
    }
    whole.is_some() && coding == Coding::Deflate
}

/// Decodes gzip members after the first one's header (RFC 1952 2.2); returns whether the last one
/// was complete.
fn gzip(raw: &mut Decompress, mut data: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    loop {
        raw.reset(false);
        let Some(InflateResult { used, .. }) = inflate(raw, data, room, out) else { return false };
        // A checksum and the length follow the data.
        match data.get(used + 8..).and_then(gzip_data) {
            Some(next) if out.len() < room => data = next,
            _ => return true,
        }
    }
}

/// Returns whether bytes begin with a zlib header (RFC 1950 2.2).
fn is_zlib(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|head| head[0] & 0xf == 8 && u16::from_be_bytes(*head) % 31 == 0)
}

/// The result of a successful decoding.
#[derive(Clone, Copy)]
struct InflateResult {
    /// Bytes of input used.
    used: usize,
    /// True if the input was complete.
    has_ended: bool,
}

/// Appends the decoded bytes; `None` on an error.
fn inflate(with: &mut Decompress, bytes: &[u8], room: usize, out: &mut Vec<u8>) -> Option<InflateResult> {
    let (mut rest, mut ended, mut failed) = (bytes, false, false);
    while out.len() < room {
        if out.len() == out.capacity() {
            out.reserve(room.min(out.len().max(1 << 12)));
        }
        let before = (with.total_in(), out.len());
        let status = with.decompress_vec(rest, out, FlushDecompress::None);
        let used = (with.total_in() - before.0) as usize;
        rest = &rest[used.min(rest.len())..];
        let stalled = used == 0 && out.len() == before.1 && out.len() < out.capacity();
        (ended, failed) = (matches!(status, Ok(Status::StreamEnd)), status.is_err());
        if stalled || !matches!(status, Ok(Status::Ok | Status::BufError)) {
            break;
        }
    }
    out.truncate(room);
    // Truncated data, whether by the sender or by the inspection limit, is read by everyone in the
    // same way.
    let is_cut = rest.is_empty() && !failed || out.len() == room;
    (ended || is_cut).then(|| InflateResult { used: bytes.len() - rest.len(), has_ended: ended })
}

/// Returns the data after a gzip header (RFC 1952 2.3).
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn gzipped(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(vec![], Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    const LEN_MAX: usize = 10_000;

    fn decoded(codings: &str, body: &[u8]) -> Option<(Vec<u8>, bool)> {
        let mut decoder = ContentDecoder::default();
        decoder.decode(codings.as_bytes(), body, LEN_MAX).map(|DecodedBody { bytes, is_plain, is_cut }| {
            assert!(!is_cut);
            (bytes.to_vec(), is_plain)
        })
    }

    #[test]
    fn codings_are_decoded_from_the_last_to_the_first() {
        let (once, twice) = (gzipped(b"plain"), gzipped(&gzipped(b"plain")));
        let plain = Some((b"plain".to_vec(), true));
        assert_eq!(decoded("gzip", &once), plain);
        assert_eq!(decoded(",identity, GZip ,,", &once), plain);
        assert_eq!(decoded("gzip,x-gzip", &twice), plain);
        let mut zlib = ZlibEncoder::new(vec![], Compression::default());
        zlib.write_all(&once).unwrap();
        let mixed = zlib.finish().unwrap();
        assert_eq!(decoded("gzip, deflate", &mixed), plain);
        assert_eq!(decoded("br, gzip", &once), Some((b"plain".to_vec(), false)));
        assert_eq!(decoded("gzip, br", &once), None);
        assert_eq!(decoded("gzip, gzip", &once), Some((b"plain".to_vec(), false)), "it was applied once");
    }

    #[test]
    fn oddly_named_or_sent_codings_are_decoded_and_marked() {
        let body = gzipped(b"plain");
        let odd = Some((b"plain".to_vec(), false));
        for codings in ["\"gzip\"", "gzip;q=1", "xgzipx", "deflate", "gzip gzip"] {
            assert_eq!(decoded(codings, &body), odd, "{codings}");
        }
        assert!(decoded("gzip", &body[..body.len() - 10]).unwrap().1, "it is cut");
        // A stored block, then one of an invalid type.
        let broken = [&body[..10], b"\0\x05\0\xfa\xffplain\x07"].concat();
        assert_eq!(decoded("gzip", &broken), odd);
        assert_eq!(decoded("gzip", b"sent as it is"), None);
        assert_eq!(decoded("gzip", b""), None);
    }

    #[test]
    fn members_of_a_gzip_file_are_one_body() {
        let members = [gzipped(b"one "), gzipped(b"two")].concat();
        assert_eq!(decoded("gzip", &members), Some((b"one two".to_vec(), true)));
    }

    #[test]
    fn codings_and_length_are_bounded() {
        let mut decoder = ContentDecoder::default();
        let mut body = b"x".to_vec();
        for number in 0..CODINGS_MAX + 2 {
            let codings = ["gzip"].repeat(number).join(",");
            let left = if number > CODINGS_MAX { gzipped(b"x") } else { b"x".to_vec() };
            let is_whole = number <= CODINGS_MAX;
            let expected = DecodedBody { bytes: &left, is_plain: is_whole, is_cut: !is_whole };
            let decoded = decoder.decode(codings.as_bytes(), &body, LEN_MAX);
            assert_eq!(decoded, (number > 0).then_some(expected), "{number}");
            body = gzipped(&body);
        }
        for (len, is_cut) in [(LEN_MAX - 1, false), (LEN_MAX, false), (LEN_MAX + 1, true), (1 << 20, true)] {
            let plain = vec![0; len];
            let coded = [gzipped(&plain), [gzipped(&plain[1..]), gzipped(&plain[..1])].concat()];
            for coded in coded {
                let bytes = &plain[..len.min(LEN_MAX)];
                let expected = DecodedBody { bytes, is_plain: true, is_cut };
                assert_eq!(decoder.decode(b"gzip", &coded, LEN_MAX), Some(expected), "{len}");
                // What an outer coding lacks, the inner one lacks too.
                let twice = decoder.decode(b"gzip, gzip", &gzipped(&coded), LEN_MAX);
                assert_eq!(twice.map(|body| (body.bytes.len(), body.is_cut)), Some((bytes.len(), is_cut)));
            }
        }
    }
}
