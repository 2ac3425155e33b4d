//! Files attached to mails (RFC 2045, RFC 2046, RFC 2183).

use std::ops::Range;

use memchr::memchr;
use signatures::Base64Mode;

use super::multipart::PARTS_MAX;

/// Maximum depth of parts within parts.
pub const MAIL_DEPTH_MAX: usize = 16;

/// A transfer coding (RFC 2045 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransferCoding {
    #[default]
    Identity,
    Base64,
    QuotedPrintable,
}

/// The facts in the headers of a mail or of a part.
#[derive(Clone, Copy, Debug, Default)]
struct PartHeaders<'a> {
    /// The delimiter of parts within, without its hyphens.
    boundary: Option<&'a [u8]>,
    coding: TransferCoding,
    /// True for a part that has a file's name.
    is_file: bool,
    /// True if the content is a mail itself.
    is_mail: bool,
}

/// Reports the received bytes of each file attached to a mail, without transfer coding: each part
/// with a file name, of up to [`PARTS_MAX`] parts. Returns whether there may be more files, or
/// files nested deeper than [`MAIL_DEPTH_MAX`].
pub fn attachments(mail: &[u8], mut report: impl FnMut(&[u8])) -> bool {
    let mail = without_end(mail);
    let (mut boundaries, mut parts) = (Vec::new(), 0);
    let mut decoded = Vec::new();
    // Headers begin here; or nothing does, up to a delimiter.
    let (mut at, mut has_headers, mut is_cut) = (0, true, false);
    while at < mail.len() && parts < PARTS_MAX {
        let headers = match has_headers {
            true => headers(mail, &mut at),
            false => PartHeaders::default(),
        };
        match boundaries.len() < MAIL_DEPTH_MAX {
            true => boundaries.extend(headers.boundary),
            false => is_cut |= headers.boundary.is_some(),
        }
        if headers.is_mail && headers.coding == TransferCoding::Identity {
            parts += 1;
            continue;
        }
        let delimiter = next_delimiter(mail, at, &boundaries);
        let (content, next) = delimiter
            .as_ref()
            .map_or((at..mail.len(), mail.len()), |found| (at..at.max(found.content_end), found.line_end));
        if headers.is_file {
            decode(&mail[content], headers.coding, &mut decoded);
            report(&decoded);
        }
        if let Some(Delimiter { level, is_last, .. }) = delimiter {
            boundaries.truncate(if is_last { level } else { level + 1 });
            has_headers = !is_last;
        }
        (at, parts) = (next, parts + 1);
    }
    // No part follows the closing delimiter of the outermost multipart.
    is_cut || at < mail.len() && (has_headers || !boundaries.is_empty())
}

/// Returns the mail without the line that ends it (RFC 5321 4.5.2).
fn without_end(mail: &[u8]) -> &[u8] {
    let line = mail.strip_suffix(b"\n").unwrap_or(mail);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.strip_suffix(b".") {
        Some(rest) if rest.is_empty() || rest.ends_with(b"\n") => rest,
        _ => mail,
    }
}

/// Reads headers, and moves `at` past the empty line.
fn headers<'a>(mail: &'a [u8], at: &mut usize) -> PartHeaders<'a> {
    let mut headers = PartHeaders::default();
    while *at < mail.len() {
        let start = *at;
        *at = behind_line(mail, start);
        if mail[start..*at].trim_ascii().is_empty() {
            break;
        }
        while matches!(mail.get(*at), Some(b' ' | b'\t')) && !is_blank_line(mail, *at) {
            *at = behind_line(mail, *at);
        }
        headers.note(&mail[start..*at]);
    }
    headers
}

fn is_blank_line(mail: &[u8], at: usize) -> bool {
    mail[at..behind_line(mail, at)].trim_ascii().is_empty()
}

/// Returns where the line after this one begins.
fn behind_line(mail: &[u8], at: usize) -> usize {
    memchr(b'\n', &mail[at..]).map_or(mail.len(), |end| at + end + 1)
}

impl<'a> PartHeaders<'a> {
    /// Adds a header, with its folds.
    fn note(&mut self, header: &'a [u8]) {
        let Some(colon) = memchr(b':', header) else { return };
        let (name, value) = (header[..colon].trim_ascii(), &header[colon + 1..]);
        if name.eq_ignore_ascii_case(b"Content-Transfer-Encoding") {
            self.coding = match () {
                () if has(value, b"base64") => TransferCoding::Base64,
                () if has(value, b"quoted-printable") => TransferCoding::QuotedPrintable,
                () => TransferCoding::Identity,
            };
        } else if name.eq_ignore_ascii_case(b"Content-Disposition") {
            self.is_file |= parameter(value, b"filename").is_some();
        } else if name.eq_ignore_ascii_case(b"Content-Type") {
            self.is_file |= parameter(value, b"name").is_some();
            self.boundary = parameter(value, b"boundary").filter(|boundary| !boundary.is_empty());
            self.is_mail =
                value.trim_ascii().get(..8).is_some_and(|kind| kind.eq_ignore_ascii_case(b"message/"));
        }
    }
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Returns the value of a parameter, whatever follows its name up to `=` (`filename*0*=`, RFC
/// 2231).
fn parameter<'a>(value: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    value.split(|byte| *byte == b';').skip(1).find_map(|parameter| {
        let equals = memchr(b'=', parameter)?;
        let (name, value) = (parameter[..equals].trim_ascii(), parameter[equals + 1..].trim_ascii());
        let (start, rest) = name.split_at_checked(wanted.len())?;
        let is_named = start.eq_ignore_ascii_case(wanted) && matches!(rest.first(), None | Some(b'*'));
        let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.split(|byte| *byte == b'"').next());
        is_named.then_some(quoted.unwrap_or(value))
    })
}

/// A line between two parts.
struct Delimiter {
    /// Number of the boundary.
    level: usize,
    /// True for the one after the last part.
    is_last: bool,
    /// The end of the content before it; the line ending belongs to the delimiter.
    content_end: usize,
    /// The beginning of the line after it.
    line_end: usize,
}

fn next_delimiter(mail: &[u8], from: usize, boundaries: &[&[u8]]) -> Option<Delimiter> {
    let mut at = from;
    while at < mail.len() && !boundaries.is_empty() {
        let line_end = behind_line(mail, at);
        let found = mail[at..line_end].strip_prefix(b"--").and_then(|line| {
            let level = boundaries.iter().rposition(|boundary| line.starts_with(boundary))?;
            Some((level, line[boundaries[level].len()..].starts_with(b"--")))
        });
        if let Some((level, is_last)) = found {
            let before = mail[..at].strip_suffix(b"\n").unwrap_or(&mail[..at]);
            let content_end = before.strip_suffix(b"\r").unwrap_or(before).len();
            return Some(Delimiter { level, is_last, content_end, line_end });
        }
        at = line_end;
    }
    None
}

/// Undoes a transfer coding, and the dots that SMTP adds to lines with one (RFC 5321 4.5.2).
fn decode(content: &[u8], coding: TransferCoding, out: &mut Vec<u8>) {
    out.clear();
    match coding {
        TransferCoding::Base64 => {
            // Padding within ends a group and not the text, as in lenient clients.
            let mut part = Vec::new();
            for letters in content.split(|byte| *byte == b'=') {
                part.clear();
                part.extend_from_slice(letters);
                signatures::inspect::decode_base64(&mut part, Base64Mode::Rfc2045);
                out.extend_from_slice(&part);
            }
        }
        TransferCoding::Identity => lines(content).for_each(|line| out.extend_from_slice(&content[line])),
        TransferCoding::QuotedPrintable => {
            lines(content).for_each(|line| quoted_printable(&content[line], out));
        }
    }
}

/// Returns the places of the lines, with their endings and without a doubled dot.
fn lines(content: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        at = behind_line(content, start);
        let dots = usize::from(content[start..at].starts_with(b".."));
        (start < content.len()).then_some(start + dots..at)
    })
}

/// Decodes a line (RFC 2045 6.7). Invalid codes stay unchanged.
fn quoted_printable(line: &[u8], out: &mut Vec<u8>) {
    let mut rest = line;
    while let Some(equals) = memchr(b'=', rest) {
        out.extend_from_slice(&rest[..equals]);
        rest = &rest[equals + 1..];
        let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (digit(0), digit(1)) {
            (Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                rest = &rest[2..];
            }
            // A soft line break.
            _ if rest.trim_ascii().is_empty() => return,
            _ => out.push(b'='),
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_and_cut(mail: &str) -> (Vec<String>, bool) {
        let mut files = Vec::new();
        let is_cut =
            attachments(mail.as_bytes(), |file| files.push(String::from_utf8_lossy(file).into_owned()));
        (files, is_cut)
    }

    fn files(mail: &str) -> Vec<String> {
        let (files, is_cut) = files_and_cut(mail);
        assert!(!is_cut, "{mail}");
        files
    }

    #[test]
    fn each_named_part_is_a_file() {
        let mail = "From: a\r\nContent-Type: multipart/mixed;\r\n\tBoundary=\"=_b\"\r\n\r\npreamble\r\n\
            --=_b\r\nContent-Type: text/plain\r\n\r\ntext\r\n\
            --=_b\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n\
            --c\r\nContent-Type: text/html; name*0=\"x\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3d=\r\nb =\r\n=zc\r\n\
            --c--\r\nepilogue\r\n\
            --=_b\r\nContent-Disposition: attachment; filename=\"y;z\"\r\ncontent-transfer-encoding: BASE64\r\n\r\nZXZp\r\nbA==\r\n\
            --=_b\r\nContent-Disposition: attachment;\r\n filename=z\r\n\r\n..dot\r\n.\r\n\r\n\
            --=_b--\r\n--=_b\r\nContent-Type: a/b; name=w\r\n\r\nover\r\n.\r\n";
        assert_eq!(files(mail), ["a=b =zc", "evil", ".dot\r\n.\r\n"]);
        assert_eq!(files(&mail.replace("\r\n", "\n")), ["a=b =zc", "evil", ".dot\n.\n"]);
    }

    #[test]
    fn a_mail_may_be_a_file_or_have_a_mail() {
        assert_eq!(files("Content-Disposition: attachment; filename=a\r\n\r\nx\r\n.\r\n"), ["x\r\n"]);
        let inner = "Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\nContent-Type: message/rfc822\r\n\r\n\
            Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: x/y; name=\"z\"\r\n\r\ninner\r\n--b--\r\n\
            --a\r\nContent-Type: x/y; name=\"z\"\r\n\r\nouter\r\n--a--\r\n.\r\n";
        assert_eq!(files(inner), ["inner", "outer"]);
    }

    #[test]
    fn what_is_cut_or_odd_is_read_as_far_as_possible() {
        let begun = "Content-Type: a/b; name=x\r\nContent-Transfer-Encoding: base64\r\n\r\nZXZpbA";
        assert_eq!(files(begun), ["evil"]);
        for mail in [
            "",
            ".",
            ".\r\n",
            "\r\n",
            "Content-Type: a/b; name=x",
            ":\r\n \r\n",
            "Content-Type: multipart/x; boundary=\r\n\r\n--\r\n",
        ] {
            assert_eq!(files(mail).concat(), "", "{mail:?}");
        }
        let padded =
            "Content-Type: a/b; name=x\r\nContent-Transfer-Encoding: base64\r\n\r\nZQ=\r\n=dm\r\nls==";
        assert_eq!(files(padded), ["evil"]);
    }

    #[test]
    fn parts_and_depth_are_bounded() {
        // The preamble counts as a part.
        for (parts, end, is_cut) in [
            (PARTS_MAX - 1, "--b--\r\nepilogue\r\n.\r\n", false),
            (PARTS_MAX - 1, "", false),
            (PARTS_MAX, "--b--\r\n.\r\n", true),
            (2 * PARTS_MAX, "", true),
        ] {
            let parts = "--b\r\nContent-Type: a/b; name=x\r\n\r\nx\r\n".repeat(parts);
            let mail = format!("Content-Type: multipart/x; boundary=b\r\n\r\n{parts}{end}");
            let (files, cut) = files_and_cut(&mail);
            assert_eq!((files.len(), cut), (PARTS_MAX - 1, is_cut), "{} {end}", mail.len());
        }
        let within = "Content-Type: message/rfc822\r\n\r\n".repeat(2 * PARTS_MAX);
        assert_eq!(files_and_cut(&within), (vec![], true));
        for (depth, expected) in
            [(MAIL_DEPTH_MAX, (vec!["x".to_owned()], false)), (MAIL_DEPTH_MAX + 1, (vec![], true))]
        {
            let begin = |level| format!("Content-Type: a/b; boundary=b{level}.\r\n\r\n--b{level}.\r\n");
            let begins: String = (0..depth).map(begin).collect();
            let ends: String = (0..depth).rev().map(|level| format!("\r\n--b{level}.--\r\n")).collect();
            let mail = format!("{begins}Content-Type: a/b; name=x\r\n\r\nx{ends}.\r\n");
            assert_eq!(files_and_cut(&mail), expected, "{depth}");
        }
    }
}
