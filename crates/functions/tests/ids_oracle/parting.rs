//! HTTP/1 (RFC 9112), parsed strictly into the parts of each direction. Bytes that need leniency
//! are reported as ambiguous.

use std::collections::VecDeque;

use super::application::is_method;
pub use super::lines::{Header, Side, Start, values};
use super::lines::{blank, header, is_blank, start, without_end};

/// Maximum unanswered requests.
const WAITING_MAX: usize = 32;

/// A part of a direction.
#[derive(Clone, Debug)]
pub enum Part {
    Start(Start),
    Header(Header),
    HeadEnd,
    /// A piece of the body, without chunks.
    Body(Vec<u8>),
    /// A header after a chunked body.
    Trailer(Header),
    /// The end of the message.
    End,
}

/// An input of a direction.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    Bytes(&'a [u8]),
    Gap(u64),
    End,
}

/// Both directions of a connection.
#[derive(Clone, Debug, Default)]
pub struct Parting {
    halves: [Half; 2],
    /// Methods of unanswered requests.
    waiting: VecDeque<Vec<u8>>,
    /// True after ambiguous bytes.
    pub vague: bool,
    /// True if another protocol follows; its detection is not implemented here.
    pub switched: bool,
}

#[derive(Clone, Debug, Default)]
struct Half {
    /// Unparsed bytes.
    rest: Vec<u8>,
    state: State,
    start: Start,
    headers: Vec<Header>,
    /// True within a message.
    has_begun: bool,
    /// The method of the request that this response answers.
    asked: Vec<u8>,
    /// True for a response that must not have a body; if it has, the body is not parsed here.
    announces: bool,
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Head,
    Sized(u64),
    UntilEnd,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// In another protocol, or after the end.
    Other,
}

impl Parting {
    /// Returns the parts that this input completes.
    pub fn take(&mut self, side: Side, input: Input<'_>) -> Vec<Part> {
        let mut parts = Vec::new();
        let half = &mut self.halves[side as usize];
        match input {
            Input::Bytes(bytes) => {
                half.rest.extend(bytes);
                while self.step(side, &mut parts).is_some() {}
            }
            Input::Gap(len) => match half.state {
                State::Sized(left) if len < left => half.state = State::Sized(left - len),
                State::Chunk(left) if len < left => half.state = State::Chunk(left - len),
                State::UntilEnd | State::Other => {}
                // Anything may follow.
                _ => {
                    parts.push(Part::End);
                    half.state = State::Other;
                    self.vague = true;
                }
            },
            Input::End => {
                self.end_line(side, &mut parts);
                parts.push(Part::End);
                self.halves[side as usize].state = State::Other;
            }
        }
        parts
    }

    /// Ends the rest: a line without its line ending, or with folds that may follow.
    fn end_line(&mut self, side: Side, parts: &mut Vec<Part>) {
        let half = &mut self.halves[side as usize];
        if half.rest.is_empty() {
            return;
        }
        let raw = std::mem::take(&mut half.rest);
        let line = without_end(&raw);
        self.vague |= half.announces && half.state == State::Start;
        match half.state {
            // Bytes in place of a chunk size are finally a body.
            State::ChunkSize if side == Side::Response => parts.push(Part::Body(raw)),
            State::Head if line.is_empty() => {
                parts.push(Part::HeadEnd);
                self.end_head(side, parts);
            }
            State::Head => self.header(side, &raw, parts),
            State::Start => {
                let is_certain = |start: &Start| {
                    let [first, second, third] = &start.words;
                    let has_version = |word: &[u8]| word == b"HTTP/1.0" || word == b"HTTP/1.1";
                    match side {
                        Side::Request => {
                            let is_target = !second.is_empty() && second.iter().all(u8::is_ascii_graphic);
                            is_method(first) && is_target && has_version(third)
                        }
                        Side::Response => {
                            second.len() == 3 && second.iter().all(u8::is_ascii_digit) && has_version(first)
                        }
                    }
                };
                if let Some(start) = start(side, line).filter(is_certain) {
                    self.begin(side, start, parts);
                }
            }
            _ => {}
        }
    }

    /// Parses a header line with its folds.
    fn header(&mut self, side: Side, raw: &[u8], parts: &mut Vec<Part>) {
        let half = &mut self.halves[side as usize];
        // A first line that begins with a blank belongs to nothing.
        if half.headers.is_empty() && blank(&raw[0]) {
            return;
        }
        let header = header(raw);
        let is_odd = |part: &[u8]| part.contains(&b'\n') || part.contains(&b'\r');
        if without_end(raw).contains(&b'\n') && (is_odd(&header.name) || is_odd(&header.value)) {
            return self.lose(side);
        }
        half.headers.push(header.clone());
        parts.push(Part::Header(header));
    }

    /// Parses the next part, if it is complete.
    fn step(&mut self, side: Side, parts: &mut Vec<Part>) -> Option<()> {
        let half = &mut self.halves[side as usize];
        match half.state {
            State::Start if side == Side::Response && !half.has_begun && half.begins_with_no_line() => {
                // The first bytes of a server are a body if they are not a status line.
                self.vague |= half.rest.starts_with(b"\r") && !half.rest.starts_with(b"\r\n");
                half.rest.drain(..half.line_ends());
                self.begin(side, Start::default(), parts);
                parts.push(Part::HeadEnd);
                self.halves[side as usize].state = State::UntilEnd;
            }
            State::Start if half.announces && half.begins_with_no_line() => self.lose(side),
            State::Start => {
                let raw = half.line(false)?;
                let line = without_end(&raw);
                if line.is_empty() {
                    return Some(());
                }
                match start(side, line) {
                    Some(start) => self.begin(side, start, parts),
                    None if side == Side::Response && half.announces => self.lose(side),
                    // Without a version it is HTTP/0.9, or not; invalid lines are skipped.
                    None if side == Side::Request
                        && is_method(line.split(is_blank).find(|word| !word.is_empty())?) =>
                    {
                        self.lose(side)
                    }
                    None => {}
                }
            }
            State::Head => {
                let raw = half.line(true)?;
                if without_end(&raw).is_empty() {
                    parts.push(Part::HeadEnd);
                    self.end_head(side, parts);
                    return Some(());
                }
                self.header(side, &raw, parts);
            }
            State::Sized(left) => {
                let left = half.body(left, parts)?;
                half.state = State::Sized(left);
                if left == 0 {
                    half.end(parts);
                }
            }
            State::UntilEnd => {
                half.body(u64::MAX, parts)?;
            }
            State::ChunkSize => {
                let raw = half.line(false)?;
                let digits = without_end(&raw).split(|byte| b"; \t".contains(byte)).next()?;
                let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
                match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
                    Some(0) => half.state = State::Trailers,
                    Some(len) => half.state = State::Chunk(len),
                    None => self.lose(side),
                }
            }
            State::Chunk(left) => {
                let left = half.body(left, parts)?;
                half.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
            }
            State::ChunkEnd => match without_end(&half.line(false)?) {
                [] => half.state = State::ChunkSize,
                _ => self.lose(side),
            },
            State::Trailers => {
                let raw = half.line(true)?;
                if without_end(&raw).is_empty() {
                    half.end(parts);
                    return Some(());
                }
                let header = header(&raw);
                let is_odd = |part: &[u8]| part.contains(&b'\n') || part.contains(&b'\r');
                self.vague |= is_odd(&header.name) || is_odd(&header.value);
                if !blank(&raw[0]) {
                    parts.push(Part::Trailer(header));
                }
            }
            State::Other => {
                half.rest.clear();
                return None;
            }
        }
        Some(())
    }

    fn begin(&mut self, side: Side, start: Start, parts: &mut Vec<Part>) {
        let server = &self.halves[Side::Response as usize];
        let is_answering = side == Side::Request && server.state == State::Head && server.asked == b"CONNECT";
        let half = &mut self.halves[side as usize];
        match side {
            Side::Request => self.waiting.push_back(start.words[0].clone()),
            Side::Response if start.is_interim() => {
                half.asked = self.waiting.front().cloned().unwrap_or_default();
            }
            Side::Response => half.asked = self.waiting.pop_front().unwrap_or_default(),
        }
        self.vague |= self.waiting.len() > WAITING_MAX;
        // Anything may follow an unanswered CONNECT.
        self.vague |= self.waiting.iter().rev().skip(1).any(|method| method == b"CONNECT") || is_answering;
        half.has_begun = true;
        half.announces = false;
        half.headers.clear();
        half.start = start.clone();
        half.state = State::Head;
        parts.push(Part::Start(start));
    }

    /// Determines the framing after the head (RFC 9112 6.3).
    fn end_head(&mut self, side: Side, parts: &mut Vec<Part>) {
        let half = &mut self.halves[side as usize];
        let method = if side == Side::Request { &half.start.words[0][..] } else { b"" };
        let (status, asked) = (half.start.status(), &half.asked[..]);
        let is_response = side == Side::Response;
        let tunnel = asked == b"CONNECT" && status / 100 == 2;
        if is_response && (tunnel || status == 101) {
            let client = &self.halves[Side::Request as usize];
            self.vague |= client.state != State::Start || !client.rest.is_empty();
            self.halves.iter_mut().for_each(|half| half.state = State::Other);
            self.switched = true;
            self.vague |= self.halves.iter().any(|half| !half.rest.is_empty());
            parts.push(Part::End);
            return;
        }
        let codings: Vec<Vec<u8>> = half
            .values("transfer-encoding")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(|coding| coding.trim_ascii().to_ascii_lowercase())
            .collect();
        let lengths: Vec<&[u8]> = half.values("content-length").collect();
        let is_length = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        // The first valid number counts.
        let length = lengths.iter().find(|value| is_length(value));
        let length = length.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let bodiless = status / 100 == 1 || status == 204 || status == 304 || asked == b"HEAD";
        let announces = is_response && bodiless && (asked != b"HEAD" || status / 100 == 1);
        half.state = match length {
            _ if is_response && bodiless => State::Sized(0),
            _ if codings == [b"chunked"] => State::ChunkSize,
            _ if !codings.is_empty() => return self.lose(side),
            _ if lengths.iter().any(|value| value.contains(&b',') || value.contains(&b'\r')) => {
                return self.lose(side);
            }
            // The body of a CONNECT is undefined (RFC 9110 9.3.6).
            Some(_) if method == b"CONNECT" => return self.lose(side),
            Some(length) => State::Sized(length),
            None if is_response => State::UntilEnd,
            None => State::Sized(0),
        };
        half.announces = announces;
        if half.state == State::Sized(0) {
            half.end(parts);
        }
    }

    fn lose(&mut self, side: Side) {
        self.halves[side as usize].state = State::Other;
        self.vague = true;
    }
}

impl Half {
    /// Takes a line with its line ending and, if `folded`, its continuation lines (RFC 9112 5.2).
    fn line(&mut self, folded: bool) -> Option<Vec<u8>> {
        let mut end = 0;
        loop {
            end += 1 + self.rest[end..].iter().position(|byte| *byte == b'\n')?;
            if !folded || without_end(&self.rest[..end]).is_empty() {
                break;
            }
            if !b" \t".contains(self.rest.get(end)?) {
                break;
            }
        }
        Some(self.rest.drain(..end).collect())
    }

    /// Returns the number of leading line-ending bytes.
    fn line_ends(&self) -> usize {
        self.rest.iter().take_while(|byte| b"\r\n".contains(byte)).count()
    }

    /// Returns whether the rest cannot become a status line.
    fn begins_with_no_line(&self) -> bool {
        self.rest[self.line_ends()..].iter().zip(b"HTTP/").any(|(byte, of)| byte.to_ascii_uppercase() != *of)
    }

    /// Takes the available part of a body; returns the number of bytes left.
    fn body(&mut self, left: u64, parts: &mut Vec<Part>) -> Option<u64> {
        if self.rest.is_empty() {
            return None;
        }
        let count = self.rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        parts.push(Part::Body(self.rest.drain(..count).collect()));
        Some(left - count as u64)
    }

    fn end(&mut self, parts: &mut Vec<Part>) {
        self.state = State::Start;
        parts.push(Part::End);
    }

    /// Returns the values of the headers of a name.
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        values(&self.headers, name)
    }
}
