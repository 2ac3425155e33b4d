//! A second, independent parser of HTTP/1.1: it has all bytes at once, accepts only the grammar of
//! RFC 9112, and stops at the first deviation.
#![allow(dead_code, reason = "each test uses a part")]

use applayer::http::{Framing, HeaderLine, HttpAnomaly, HttpEvent, MessageEnd};

/// Names and values of header lines.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Method, target and version; or version, code and phrase.
    pub start: [Vec<u8>; 3],
    pub headers: Fields,
    pub framing: Option<Framing>,
    pub body: Vec<u8>,
    pub extensions: Vec<Vec<u8>>,
    pub trailers: Fields,
    pub end: Option<MessageEnd>,
}

impl Message {
    fn begun(words: [&[u8]; 3]) -> Message {
        Message { start: words.map(<[u8]>::to_vec), ..Message::default() }
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let same = move |(known, _): &&(Vec<u8>, Vec<u8>)| known.eq_ignore_ascii_case(name.as_bytes());
        self.headers.iter().filter(same).map(|(_, value)| &value[..])
    }
}

/// The result of parsing one direction.
#[derive(Debug, Default)]
pub struct Direction {
    /// The messages; only the last one may be incomplete.
    pub messages: Vec<Message>,
    /// True if all bytes belong to these messages.
    pub clean: bool,
}

/// Maximum unanswered requests.
const PIPELINE_MAX: usize = 32;

/// Parses a client's bytes.
pub fn requests(bytes: &[u8]) -> Direction {
    let mut rest = Rest(bytes);
    let mut read = Direction::default();
    let stopped = loop {
        if read.messages.len() == PIPELINE_MAX {
            break Stop::Odd;
        }
        let framing = |message: &Message| {
            let (length, chunked) = lengths(message)?;
            Ok(match (chunked, length) {
                (true, _) => Framing::Chunked,
                (false, Some(length)) => Framing::Length(length),
                (false, None) => Framing::None,
            })
        };
        if let Err(stop) = rest.message(&mut read.messages, request_line, framing) {
            break stop;
        }
        // The bytes after a CONNECT may not be HTTP.
        if read.messages.last().is_some_and(|message| message.start[0] == b"CONNECT") {
            break Stop::Odd;
        }
    };
    read.clean = stopped == Stop::Short;
    read
}

/// Parses a server's responses to these requests.
pub fn responses(bytes: &[u8], requests: &[Message]) -> Direction {
    let mut rest = Rest(bytes);
    let mut read = Direction::default();
    let mut methods = requests.iter().map(|request| &request.start[0][..]);
    let stopped = loop {
        let framing = |message: &Message| {
            let code = &message.start[1][..];
            let interim = code[0] == b'1';
            let method = if interim { None } else { methods.next() };
            if code == b"101" || method == Some(b"CONNECT") {
                return Err(Stop::Odd);
            }
            if interim || code == b"204" || code == b"304" || method == Some(b"HEAD") {
                return Ok(Framing::None);
            }
            let (length, chunked) = lengths(message)?;
            Ok(match (chunked, length) {
                (true, _) => Framing::Chunked,
                (false, Some(length)) => Framing::Length(length),
                (false, None) => Framing::UntilClose,
            })
        };
        if let Err(stop) = rest.message(&mut read.messages, status_line, framing) {
            break stop;
        }
    };
    read.clean = stopped == Stop::Short;
    read
}

/// The reason why parsing stops.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// The bytes end.
    Short,
    /// The bytes violate the grammar, or their meaning is beyond this parser.
    Odd,
}

/// The unread bytes.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Parses a message. One with a whole head is kept, possibly incomplete; an odd one is not.
    fn message(
        &mut self,
        messages: &mut Vec<Message>,
        start: fn(&[u8]) -> Option<Message>,
        framing: impl FnOnce(&Message) -> Result<Framing, Stop>,
    ) -> Result<(), Stop> {
        while let [b'\r', b'\n', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if self.0.is_empty() {
            return Err(Stop::Short);
        }
        let mut message = start(self.line().map_err(|_| Stop::Odd)?).ok_or(Stop::Odd)?;
        message.headers = self.fields().map_err(|_| Stop::Odd)?;
        let framing = framing(&message)?;
        message.framing = Some(framing);
        let done = match framing {
            Framing::None => Ok(()),
            Framing::Length(length) => self.body(length, &mut message.body),
            Framing::UntilClose => self.body(u64::MAX, &mut message.body),
            Framing::Chunked => self.chunks(&mut message),
        };
        match done {
            Ok(()) => message.end = Some(MessageEnd::Complete),
            Err(Stop::Short) => {}
            Err(Stop::Odd) => return done,
        }
        messages.push(message);
        done
    }

    fn body(&mut self, length: u64, body: &mut Vec<u8>) -> Result<(), Stop> {
        let len = usize::try_from(length).unwrap_or(usize::MAX).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        body.extend_from_slice(taken);
        self.0 = rest;
        if len as u64 == length { Ok(()) } else { Err(Stop::Short) }
    }

    fn chunks(&mut self, message: &mut Message) -> Result<(), Stop> {
        loop {
            let line = self.line()?;
            let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let (digits, extension) = line.split_at(digits);
            let digits = std::str::from_utf8(digits).map_err(|_| Stop::Odd)?;
            let size = u64::from_str_radix(digits, 16).map_err(|_| Stop::Odd)?;
            if !matches!(extension, [] | [b';', ..]) {
                return Err(Stop::Odd);
            }
            if !extension.is_empty() {
                message.extensions.push(extension.to_vec());
            }
            if size == 0 {
                message.trailers = self.fields()?;
                return Ok(());
            }
            self.body(size, &mut message.body)?;
            if !self.line()?.is_empty() {
                return Err(Stop::Odd);
            }
        }
    }

    /// Parses header lines up to the empty one.
    fn fields(&mut self) -> Result<Fields, Stop> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let colon = line.iter().position(|&byte| byte == b':').ok_or(Stop::Odd)?;
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if !is_token(name) {
                return Err(Stop::Odd);
            }
            fields.push((name.to_vec(), value.trim_ascii().to_vec()));
        }
    }

    /// Parses a line without its CR LF and without control characters other than tabs.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let end =
            self.0.iter().position(|&byte| byte.is_ascii_control() && byte != b'\t').ok_or(Stop::Short)?;
        match &self.0[end..] {
            [b'\r', b'\n', rest @ ..] => {
                let line = &self.0[..end];
                self.0 = rest;
                Ok(line)
            }
            [b'\r'] => Err(Stop::Short),
            _ => Err(Stop::Odd),
        }
    }
}

fn request_line(line: &[u8]) -> Option<Message> {
    let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = words[..] else { return None };
    let whole = is_token(method) && !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
    (whole && is_version(version)).then(|| Message::begun([method, target, version]))
}

fn status_line(line: &[u8]) -> Option<Message> {
    let words: Vec<_> = line.splitn(3, |&byte| byte == b' ').collect();
    let [version, code, phrase] = words[..] else { return None };
    let known = matches!(code, [b'1'..=b'5', tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit());
    (known && is_version(version)).then(|| Message::begun([version, code, phrase.trim_ascii()]))
}

fn is_version(word: &[u8]) -> bool {
    matches!(word, b"HTTP/1.0" | b"HTTP/1.1")
}

fn is_token(word: &[u8]) -> bool {
    let sign = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !word.is_empty() && word.iter().all(sign)
}

/// Returns the Content-Length, and whether the body is chunked.
fn lengths(message: &Message) -> Result<(Option<u64>, bool), Stop> {
    let codings: Vec<_> = message.values("transfer-encoding").collect();
    let chunked = match codings[..] {
        [] => false,
        [coding] if coding.eq_ignore_ascii_case(b"chunked") => true,
        [coding] if coding.eq_ignore_ascii_case(b"gzip, chunked") => true,
        _ => return Err(Stop::Odd),
    };
    let mut lengths = message.values("content-length");
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => None,
        (Some(digits), None) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            let digits = std::str::from_utf8(digits).map_err(|_| Stop::Odd)?;
            Some(digits.parse().map_err(|_| Stop::Odd)?)
        }
        _ => return Err(Stop::Odd),
    };
    Ok((length, chunked))
}

/// The events of one direction, in the same form.
#[derive(Debug, Default)]
pub struct ReportedMessages {
    pub messages: Vec<Message>,
    /// Bytes outside messages, and parts of lines that the second parser does not accept.
    pub odd: Vec<String>,
    /// True for a body after a message that must not have one.
    is_behind: bool,
}

impl ReportedMessages {
    pub fn note(&mut self, event: HttpEvent<'_>) {
        let field = |header: HeaderLine<'_>| (header.name.to_vec(), header.value.to_vec());
        match event {
            HttpEvent::Request(r) => self.messages.push(Message::begun([r.name, r.target, r.protocol])),
            HttpEvent::Response(r) => self.messages.push(Message::begun([r.protocol, r.code, r.reason])),
            HttpEvent::Anomaly(anomaly) if is_of_bytes(anomaly) => self.odd.push(anomaly.to_string()),
            HttpEvent::Skipped(_) | HttpEvent::Opaque(_) | HttpEvent::Resynchronised => {
                self.odd.push(format!("{event:?}"))
            }
            _ => {}
        }
        self.is_behind = match event {
            HttpEvent::Request(_) | HttpEvent::Response(_) => false,
            HttpEvent::Anomaly(HttpAnomaly::UnexpectedBody) => true,
            _ => self.is_behind,
        };
        let Some(message) = self.messages.last_mut().filter(|_| !self.is_behind) else { return };
        match event {
            HttpEvent::Header(header) => message.headers.push(field(header)),
            HttpEvent::HeadersEnd(framing) => message.framing = Some(framing),
            HttpEvent::Body(bytes) => message.body.extend_from_slice(bytes),
            HttpEvent::ChunkExtension(bytes) => message.extensions.push(bytes.to_vec()),
            HttpEvent::Trailer(header) => message.trailers.push(field(header)),
            HttpEvent::End(end) => message.end = Some(end),
            _ => {}
        }
    }

    /// Checks that the parser reports each message of the second parser; and no other, and no
    /// anomaly of bytes, if that parsed everything.
    pub fn check(mut self, read: Direction) {
        let whole_heads = self.messages.iter().take_while(|message| message.framing.is_some()).count();
        self.messages.truncate(whole_heads);
        if read.clean {
            assert_eq!(self.messages.len(), read.messages.len(), "{self:?}\n{read:?}");
            assert_eq!(self.odd, [""; 0], "{read:?}");
        }
        assert!(self.messages.len() >= read.messages.len(), "{self:?}\n{read:?}");
        for (mut reported, read) in self.messages.into_iter().zip(read.messages) {
            if read.end.is_none() {
                reported.trailers.clear(); // The last may wait for what follows it.
            }
            assert_eq!(reported, read);
        }
    }
}

/// Returns whether an anomaly is a violation of the grammar, not of the semantics.
fn is_of_bytes(anomaly: HttpAnomaly) -> bool {
    use HttpAnomaly::*;
    matches!(
        anomaly,
        BareLineFeed
            | BareCarriageReturn
            | NulByte
            | LineTooLong
            | InvalidRequestLine
            | RequestLineBlanks
            | SpaceInTarget
            | InvalidTarget
            | InvalidMethod
            | MissingVersion
            | UnknownVersion
            | InvalidStatusLine
            | StatusLineBlanks
            | InvalidStatusCode
            | HeaderWithoutColon
            | EmptyHeaderName
            | BlankBeforeColon
            | IllegalHeaderName
            | IllegalHeaderValue
            | ObsoleteFold
            | BlankBeforeHeaders
            | InvalidChunkSize
            | DecoratedChunkSize
            | MissingChunkEnd
            | BareLineFeedInChunkSize
            | BareLineFeedInChunkExtension
            | BareLineFeedInChunkEnd
            | UnexpectedBody
    )
}
