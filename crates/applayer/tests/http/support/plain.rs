//! A second reader of HTTP/1.1 that knows nothing of the parser: it has all bytes at once, takes
//! only what the grammar of RFC 9112 allows to the letter, and stops at the first byte that is
//! anything else.
#![allow(dead_code, reason = "each test uses a part")]

use applayer::http::{Anomaly, End, Event, Framing, Header};

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
    pub end: Option<End>,
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

/// What was read of one direction.
#[derive(Debug, Default)]
pub struct Direction {
    /// Messages; only the last one may lack its end.
    pub messages: Vec<Message>,
    /// All bytes are of these messages.
    pub clean: bool,
}

/// Most requests that may wait for their answer.
const PIPELINE_MAX: usize = 32;

/// Reads what a client sends.
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
        // What follows a CONNECT is not for sure HTTP.
        if read.messages.last().is_some_and(|message| message.start[0] == b"CONNECT") {
            break Stop::Odd;
        }
    };
    read.clean = stopped == Stop::Short;
    read
}

/// Reads what a server answers to these.
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

/// Why reading stops.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// There are no more bytes.
    Short,
    /// Something is not as the grammar has it, or what it means is not for this reader.
    Odd,
}

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Reads a message. One whose head is whole is kept, as far as it goes; one that turns out odd
    /// is not.
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
            Ok(()) => message.end = Some(End::Complete),
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

    /// Header lines up to the empty one.
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

    /// A line without its CR LF, in which no other controls stand than tabs.
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

/// The Content-Length, and whether the body is chunked.
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

/// What the parser tells of one direction, put together in the same way.
#[derive(Debug, Default)]
pub struct Told {
    pub messages: Vec<Message>,
    /// Bytes that are of no message, and what no line has that the second reader takes.
    pub odd: Vec<String>,
    /// What comes is behind the message, a body that it may not have.
    is_behind: bool,
}

impl Told {
    pub fn note(&mut self, event: Event<'_>) {
        let field = |header: Header<'_>| (header.name.to_vec(), header.value.to_vec());
        match event {
            Event::Request(r) => self.messages.push(Message::begun([r.name, r.target, r.protocol])),
            Event::Response(r) => self.messages.push(Message::begun([r.protocol, r.code, r.reason])),
            Event::Anomaly(anomaly) if is_of_bytes(anomaly) => self.odd.push(anomaly.to_string()),
            Event::Skipped(_) | Event::Opaque(_) | Event::Resynchronised => {
                self.odd.push(format!("{event:?}"))
            }
            _ => {}
        }
        self.is_behind = match event {
            Event::Request(_) | Event::Response(_) => false,
            Event::Anomaly(Anomaly::UnexpectedBody) => true,
            _ => self.is_behind,
        };
        let Some(message) = self.messages.last_mut().filter(|_| !self.is_behind) else { return };
        match event {
            Event::Header(header) => message.headers.push(field(header)),
            Event::HeadersEnd(framing) => message.framing = Some(framing),
            Event::Body(bytes) => message.body.extend_from_slice(bytes),
            Event::ChunkExtension(bytes) => message.extensions.push(bytes.to_vec()),
            Event::Trailer(header) => message.trailers.push(field(header)),
            Event::End(end) => message.end = Some(end),
            _ => {}
        }
    }

    /// That the parser has each message that the second reader has; and no other, if that read all
    /// there is. Then it has nothing against the bytes either.
    pub fn check(mut self, read: Direction) {
        let whole_heads = self.messages.iter().take_while(|message| message.framing.is_some()).count();
        self.messages.truncate(whole_heads);
        if read.clean {
            assert_eq!(self.messages.len(), read.messages.len(), "{self:?}\n{read:?}");
            assert_eq!(self.odd, [""; 0], "{read:?}");
        }
        assert!(self.messages.len() >= read.messages.len(), "{self:?}\n{read:?}");
        for (mut told, read) in self.messages.into_iter().zip(read.messages) {
            if read.end.is_none() {
                told.trailers.clear(); // The last may wait for what follows it.
            }
            assert_eq!(told, read);
        }
    }
}

/// Whether an anomaly says that bytes are not as the grammar has them, rather than what they say.
fn is_of_bytes(anomaly: Anomaly) -> bool {
    use Anomaly::*;
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
