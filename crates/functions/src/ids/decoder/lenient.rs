//! Readings of a body by lenient clients, where headers name its codings in an odd way.

use super::{ContentDecoder, DecodedBody};

/// Maximum bytes of a chunk's size line.
const SIZE_LINE_BYTES: usize = 64;
/// Maximum letters between the name of a header and that of its coding.
const APART_LETTERS: usize = 32;

impl ContentDecoder {
    /// Returns the body as a lenient client may read it, if that differs: without chunks where the
    /// head names them and the body begins with one, though not in the form of RFC 9112, and
    /// without a content coding that the head names likewise. Names count however they are spelt or
    /// folded: of the head only letters do. `is_decoded`: the content codings of these bytes were
    /// undone.
    ///
    /// A body that begins with neither costs a look at its first bytes.
    pub fn lenient(
        &mut self,
        head: &[u8],
        body: &[u8],
        is_decoded: bool,
        len_max: usize,
    ) -> Option<DecodedBody<'_>> {
        let (may_be_chunked, may_be_coded) =
            (begins_like_chunk(body), !is_decoded && !begins_like_text(body));
        if !may_be_chunked && !may_be_coded {
            return None;
        }
        self.letters.clear();
        self.letters
            .extend(head.iter().filter(|byte| byte.is_ascii_alphabetic()).map(u8::to_ascii_lowercase));
        let mut unchunked = std::mem::take(&mut self.unchunked);
        unchunked.clear();
        if may_be_chunked && names(&self.letters, b"transferencoding", b"chunked") {
            unchunk(body, &mut unchunked);
        }
        let bytes = if unchunked.is_empty() { body } else { &unchunked };
        let may_be_coded = (!is_decoded || !unchunked.is_empty()) && !begins_like_text(bytes);
        let mut codings = [&b"gzip"[..], b"deflate"].into_iter().filter(|_| may_be_coded);
        let coding = codings.find(|coding| names(&self.letters, b"contentencoding", coding));
        let is_cut =
            coding.and_then(|coding| self.decode(coding, bytes, len_max)).map(|decoded| decoded.is_cut);
        let is_read = is_cut.is_some() || !unchunked.is_empty();
        if is_cut.is_none() {
            std::mem::swap(&mut self.out, &mut unchunked);
        }
        self.unchunked = unchunked;
        let is_cut = is_cut.unwrap_or(false);
        is_read.then_some(DecodedBody { bytes: &self.out, is_plain: false, is_cut })
    }
}

/// Returns whether a header of this name is followed by the name of a coding.
fn names(letters: &[u8], header: &[u8], coding: &[u8]) -> bool {
    memchr::memmem::find_iter(letters, header).any(|at| {
        let value = &letters[at + header.len()..];
        let value = &value[..value.len().min(APART_LETTERS)];
        memchr::memmem::find(value, coding).is_some()
    })
}

/// Returns whether these bytes begin with a chunk's size, blanks and empty lines before it left
/// out.
fn begins_like_chunk(body: &[u8]) -> bool {
    let size = without_blanks(body);
    size.first().is_some_and(u8::is_ascii_hexdigit)
        && memchr::memchr(b'\n', &size[..size.len().min(SIZE_LINE_BYTES)]).is_some()
}

/// Returns whether a body begins with characters of a text.
fn begins_like_text(body: &[u8]) -> bool {
    let start = &body[..body.len().min(4)];
    start.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'))
}

fn without_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    &bytes[blanks..]
}

/// Writes the data of all chunks. Whatever follows the digits of a size is ignored.
fn unchunk(mut body: &[u8], out: &mut Vec<u8>) {
    loop {
        let line = without_blanks(body);
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size =
            std::str::from_utf8(&line[..digits]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let end = memchr::memchr(b'\n', &line[..line.len().min(SIZE_LINE_BYTES)]);
        let (Some(size @ 1..), Some(end)) = (size, end) else { return };
        let data = &line[end + 1..];
        let (data, rest) = data.split_at(size.min(data.len()));
        out.extend_from_slice(data);
        body = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str, body: &[u8], is_decoded: bool) -> Option<String> {
        let mut decoder = ContentDecoder::default();
        let read = decoder.lenient(head.as_bytes(), body, is_decoded, 10_000);
        read.map(|DecodedBody { bytes, .. }| String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn chunks_are_undone_where_the_head_names_them() {
        let body = b"\r\n2x\r\nab\r\n 3 ;x\ncde0\r\n\r\n";
        for head in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\rTransfer-Encoding:x, chu\0nked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: y\r\n Transfer_Encoding\r\n :\r\n Chunked\r\n\r\n",
        ] {
            assert_eq!(read(head, body, false).as_deref(), Some("abcde"), "{head:?}");
            for body in [&b"<p>"[..], b"", b"2", b"xyz\r\n", b"0\r\n\r\n"] {
                assert_eq!(read(head, body, false), None, "{body:?}");
            }
        }
        for head in ["HTTP/1.1 200 OK\r\n\r\n", "Transfer-Encoding: gzip\r\nX: chunke\r\n", "X: chunked\r\n"]
        {
            assert_eq!(read(head, body, false), None, "{head:?}");
        }
        // A size beyond the body.
        assert_eq!(read("Transfer-Encoding: chunked", b"ffff\r\nab", false).as_deref(), Some("ab"));
    }

    #[test]
    fn codings_are_undone_where_the_head_names_them() {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(b"text").unwrap();
        let gzip = gzip.finish().unwrap();
        let odd = "HTTP/1.1 200 OK\r\nX: y\rContent-Encoding: g\0zip\r\n\r\n";
        assert_eq!(read(odd, &gzip, false).as_deref(), Some("text"));
        // It was undone already.
        assert_eq!(read(odd, &gzip, true), None);
        assert_eq!(read("Accept-Encoding: gzip", &gzip, false), None);
        assert_eq!(read(odd, b"text", false), None);
        let chunked = [format!("{:x} odd\r\n", gzip.len()).as_bytes(), &gzip, b"0\r\n\r\n"].concat();
        let head = "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n";
        for is_decoded in [false, true] {
            assert_eq!(read(head, &chunked, is_decoded).as_deref(), Some("text"));
        }
    }
}
