//! The lines of HTTP/1: first lines (RFC 9112 3 and 4) and headers (RFC 9112 5).

/// The sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Request,
    Response,
}

/// A first line without its line ending: method, target, version; or version, status, reason.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub line: Vec<u8>,
    pub words: [Vec<u8>; 3],
}

#[derive(Clone, Debug)]
pub struct Header {
    /// The raw bytes with line ending and folds.
    pub raw: Vec<u8>,
    pub name: Vec<u8>,
    /// The parts of a folded value, joined by a space.
    pub value: Vec<u8>,
}

impl Start {
    /// Returns the status of a response; 0 if it is not three digits.
    pub fn status(&self) -> u16 {
        let digits =
            Some(&self.words[1]).filter(|word| word.len() == 3 && word.iter().all(u8::is_ascii_digit));
        digits.map_or(0, |digits| digits.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0')))
    }

    /// Returns whether this is an interim response (RFC 9110 15.2).
    pub fn is_interim(&self) -> bool {
        self.status() / 100 == 1 && self.status() != 101
    }
}

/// Returns the values of the headers of a name.
pub fn values<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let same = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name.as_bytes()));
    same.map(|header| &header.value[..])
}

/// Removes the line ending.
pub fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

pub fn blank(byte: &u8) -> bool {
    b" \t".contains(byte)
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Returns whether the byte counts as a blank in a first line (RFC 9112 3).
pub fn is_blank(byte: &u8) -> bool {
    b" \t\x0b\x0c\r".contains(byte)
}

/// Parses a first line; `None` if it is not one.
pub fn start(side: Side, mut line: &[u8]) -> Option<Start> {
    while let (Side::Response, [b'\r', rest @ ..]) = (side, line) {
        line = rest;
    }
    let trimmed = |mut text: &'_ [u8]| -> Vec<u8> {
        while text.first().is_some_and(is_blank) {
            text = &text[1..];
        }
        while text.last().is_some_and(is_blank) {
            text = &text[..text.len() - 1];
        }
        text.to_vec()
    };
    let is_http = |text: &[u8]| text.to_ascii_uppercase().starts_with(b"HTTP/");
    let parted = |text: &[u8], at: Option<usize>| {
        let (word, rest) = text.split_at(at.unwrap_or(text.len()));
        (word.to_vec(), trimmed(rest))
    };
    let words = match side {
        Side::Request => {
            let text = trimmed(line);
            let (method, rest) = parted(&text, text.iter().position(is_blank));
            // The version, and everything after it.
            let mut starts = (0..rest.len()).rev().filter(|at| *at == 0 || is_blank(&rest[at - 1]));
            let (target, version) = rest.split_at(starts.find(|at| is_http(&rest[*at..]))?);
            [method, trimmed(target), version.to_vec()]
        }
        Side::Response if is_http(line) => {
            let (version, rest) = parted(line, line.iter().position(is_blank));
            let (status, reason) = parted(&rest, rest.iter().position(is_blank));
            [version, status, reason]
        }
        Side::Response => return None,
    };
    Some(Start { line: line.to_vec(), words })
}

/// Parses a header. A line without a colon has no name.
pub fn header(raw: &[u8]) -> Header {
    let colon = raw.iter().position(|byte| *byte == b':');
    let (name, value) = colon.map_or((&raw[..0], raw), |at| (trim(&raw[..at]), &raw[at + 1..]));
    let parts: Vec<&[u8]> = value.split_inclusive(|byte| *byte == b'\n').map(without_end).map(trim).collect();
    Header { raw: raw.to_vec(), name: name.to_vec(), value: trim(&parts.join(&b' ')).to_vec() }
}
