//! HTTP messages: put together from what the parser tells, and made into buffers.

use std::ops::Range;

use applayer::http::{Anomaly, Event, Field, Framing, Header, Sink, uri};
use nf::FlowBuffer;
use signatures::Buffer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::about::About;
use super::decoder::{Decoded, Decoder};
use super::scene::Scene;

/// The most bytes of a message's first line and headers that are looked at.
pub const HEAD_BYTES: usize = 16 << 10;
/// So many lines of a message's headers are looked through, if another line is of the same header.
pub const REPEATED_MAX: usize = 64;

/// A message, as far as it has come.
#[derive(Default)]
pub struct Message {
    state: Progress,
    /// The header lines in `text`.
    lines: Vec<Line>,
    /// The first line, all header lines as sent, an empty line; then the body without chunks, at
    /// most as much as is looked at. What a rule finds in its payload.
    text: Vec<u8>,
}

/// Behind the first line, whatever it ended with, and behind the headers.
const LINE_END: &[u8] = b"\r\n";

/// What is known of a message beside its bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Progress {
    /// Of the first line: where its three parts begin and how long they are.
    parts: [[u32; 2]; 3],
    /// The first line's length without its end.
    start_len: u32,
    /// The length of all before the body; 0 until that is complete.
    head_len: u32,
    /// How many header lines there are.
    lines: u32,
    is_request: u8,
    is_head_complete: u8,
    /// Whether no more of the body is looked at.
    is_body_complete: u8,
    /// Whether the body does not stand in the stream in one piece: it came in chunks, or a part of
    /// it is missing.
    is_body_apart: u8,
    /// Whether there are several lines of one header.
    has_repeated: u8,
    /// Whether it is a response that cannot have a body: one may follow its end all the same.
    may_go_on: u8,
    reserved: [u8; 2],
    /// How long the text was when the message was looked at before its end; 0 if it was not.
    looked_len: u32,
}

/// A header line in the text: where it stands, and in it the name and the value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Line {
    /// Which header it is: a number of [`FIELDS`], or [`OTHER`].
    field: u32,
    /// The number of the first line of this header, from 1; 0 if this is it.
    first: u32,
    start: u32,
    len: u32,
    name: [u32; 2],
    value: [u32; 2],
}

/// Something is complete that rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The head of the message with this number.
    Head(usize),
    /// The whole of it, or as much as is looked at.
    Whole(usize),
}

/// Messages of one direction that a piece of its stream is about, in order.
#[derive(Default)]
pub struct Messages {
    messages: Vec<Message>,
    used: usize,
    /// The last message is a copy of the one before, which may go on.
    is_cut: bool,
    /// What became complete, in order.
    pub ready: Vec<Ready>,
    /// Bytes that are another protocol's.
    pub opaque: Vec<u8>,
    /// The number of the first message in its direction.
    first: u64,
    body_max: usize,
}

impl Messages {
    /// Begins a piece: the first message is the one of which this was saved, if one was. `begun`
    /// messages have begun before it.
    pub fn begin(&mut self, progress: &[u8], text: &mut FlowBuffer, body_max: usize, begun: u32) {
        self.used = 0;
        self.is_cut = false;
        self.opaque.clear();
        self.ready.clear();
        self.body_max = body_max;
        self.first = u64::from(begun).saturating_sub(u64::from(!progress.is_empty()));
        if !progress.is_empty() {
            let message = self.next();
            message.restore(progress);
            text.exchange(&mut message.text);
        }
    }

    /// The message with this number.
    pub fn get(&self, number: usize) -> &Message {
        &self.messages[number]
    }

    /// What alerts tell of it.
    pub fn about(&self, number: usize) -> About<'_> {
        let is_copy = self.is_cut && number + 1 == self.used;
        About::Http(self.get(number), self.first + (number - usize::from(is_copy)) as u64)
    }

    /// Ends a piece: hands over what has to be kept of a message that is not complete.
    pub fn end(&mut self, progress: &mut FlowBuffer, text: &mut FlowBuffer) {
        progress.clear();
        let Some(number) = self.used.checked_sub(1 + usize::from(self.is_cut)) else { return };
        let message = &mut self.messages[number];
        if !message.is_over() || message.state.may_go_on != 0 {
            message.save(progress);
            text.exchange(&mut message.text);
        }
    }

    /// Whether the message that is not complete was not looked at as far as it has come.
    pub fn has_news(&self) -> bool {
        self.used.checked_sub(1).is_none_or(|number| self.messages[number].is_new())
    }

    /// The connection is gone, or seems to be: what came of a message that is not complete is all
    /// there is. It may go on.
    pub fn cut(&mut self) {
        let Some(number) = self.used.checked_sub(1) else { return };
        let message = &mut self.messages[number];
        if message.is_over() {
            return;
        }
        message.state.looked_len = message.text.len() as u32;
        if message.state.is_head_complete != 0 {
            self.ready.extend(message.is_in_body().then_some(Ready::Whole(number)));
            return;
        }
        let Message { state, .. } = *message;
        let (lines, text) = (message.lines.clone(), message.text.clone());
        let copy = self.next();
        (copy.state, copy.lines, copy.text) = (state, lines, text);
        copy.end_head();
        self.is_cut = true;
        self.ready.extend([Ready::Head(number + 1), Ready::Whole(number + 1)]);
    }

    fn next(&mut self) -> &mut Message {
        if self.used == self.messages.len() {
            self.messages.push(Message::default());
        }
        self.used += 1;
        let message = &mut self.messages[self.used - 1];
        message.clear();
        message
    }
}

impl Sink for Messages {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Request(line) => {
                self.next().begin(true, line.raw, [line.name, line.target, line.protocol]);
                return;
            }
            Event::Response(line) => {
                let message = self.next();
                message.begin(false, line.raw, [line.protocol, line.code, line.reason]);
                message.state.may_go_on = u8::from(matches!(line.status, 100..=199 | 204 | 304));
                return;
            }
            Event::Opaque(bytes) => return self.opaque.extend_from_slice(bytes),
            _ => {}
        }
        let Some(number) = self.used.checked_sub(1) else { return };
        let (message, body_max) = (&mut self.messages[number], self.body_max);
        if message.is_over() {
            if event == Event::Anomaly(Anomaly::UnexpectedBody) && message.state.may_go_on != 0 {
                message.go_on();
            }
            return;
        }
        match event {
            Event::Header(header) => message.header(&header),
            Event::HeadersEnd(framing) => {
                message.end_head();
                message.state.is_body_apart = u8::from(framing == Framing::Chunked);
                if let Framing::Length(len) = framing {
                    message.text.reserve(usize::try_from(len).map_or(body_max, |len| len.min(body_max)));
                }
                self.ready.push(Ready::Head(number));
            }
            Event::Body(bytes) if message.state.is_body_complete == 0 => {
                let taken = bytes.len().min(body_max.saturating_sub(message.body().len()));
                message.text.extend_from_slice(&bytes[..taken]);
                if taken < bytes.len() {
                    message.state.is_body_complete = 1;
                    self.ready.push(Ready::Whole(number));
                }
            }
            Event::Gap(_) => message.state.is_body_apart = 1,
            Event::End(_) => {
                if message.state.is_head_complete == 0 {
                    // It ends before its head: the lines that came are all there is.
                    message.end_head();
                    self.ready.push(Ready::Head(number));
                }
                if message.is_in_body() {
                    self.ready.push(Ready::Whole(number));
                }
                message.state.is_head_complete = OVER;
            }
            _ => {}
        }
    }
}

/// Of [`Progress::is_head_complete`]: the message is over.
const OVER: u8 = 2;

impl Message {
    fn clear(&mut self) {
        self.state = Progress::default();
        self.lines.clear();
        self.text.clear();
    }

    fn is_over(&self) -> bool {
        self.state.is_head_complete == OVER
    }

    /// Whether its head is complete, and its body was not looked at for good.
    fn is_in_body(&self) -> bool {
        self.state.is_head_complete == 1 && self.state.is_body_complete == 0
    }

    /// The parts of its first line.
    pub fn words(&self) -> [&[u8]; 3] {
        self.state.parts.map(|part| slice(&self.text, part))
    }

    /// The value of the first line of a header that is told apart.
    pub fn first_value(&self, field: Field) -> Option<&[u8]> {
        self.line_of(number_of(field)).map(|(_, line)| self.value(line))
    }

    /// Bytes of its body so far, as many as are looked at.
    pub fn body_len(&self) -> usize {
        if self.state.head_len == 0 { 0 } else { self.body().len() }
    }

    /// Whether it has come further than when it was looked at before its end.
    fn is_new(&self) -> bool {
        !self.is_over() && self.state.looked_len != self.text.len() as u32
    }

    /// Whether it is a request.
    pub fn is_request(&self) -> bool {
        self.state.is_request != 0
    }

    fn begin(&mut self, is_request: bool, raw: &[u8], parts: [&[u8]; 3]) {
        let kept = &raw[..raw.len().min(HEAD_BYTES)];
        self.text.extend_from_slice(kept);
        self.text.extend_from_slice(LINE_END);
        self.state.is_request = u8::from(is_request);
        self.state.start_len = kept.len() as u32;
        self.state.parts = parts.map(|part| place(raw, part));
    }

    fn header(&mut self, header: &Header<'_>) {
        let Header { raw, name, value, field, .. } = *header;
        let room = (HEAD_BYTES + LINE_END.len()).saturating_sub(self.text.len());
        let kept = &raw[..raw.len().min(room)];
        if kept.is_empty() {
            return;
        }
        let start = self.text.len() as u32;
        self.text.extend_from_slice(kept);
        let number = number_of(field_of(field, name));
        let first = self.first_line(number, name);
        self.state.has_repeated |= u8::from(first != 0);
        let line = Line {
            field: number,
            first,
            start,
            len: kept.len() as u32,
            name: place(raw, name),
            value: place(raw, value),
        };
        self.lines.push(line);
    }

    /// The number of the first line of a header, from 1; 0 if there was none.
    fn first_line(&self, field: u32, name: &[u8]) -> u32 {
        let is_same = |line: &Line| {
            line.field == field
                && line.first == 0
                && (field != OTHER || self.name(line).eq_ignore_ascii_case(name))
        };
        let known = &self.lines[..self.lines.len().min(REPEATED_MAX)];
        known.iter().position(is_same).map_or(0, |at| at as u32 + 1)
    }

    /// A body follows that it cannot have.
    fn go_on(&mut self) {
        self.state.may_go_on = 0;
        self.state.is_head_complete = 1;
        self.state.is_body_apart = 1;
    }

    fn end_head(&mut self) {
        self.text.extend_from_slice(LINE_END);
        self.state.head_len = self.text.len() as u32;
        self.state.is_head_complete = 1;
    }

    /// What has to be kept until more comes, beside the text.
    fn save(&self, progress: &mut FlowBuffer) {
        let state = Progress { lines: self.lines.len() as u32, ..self.state };
        progress.push(state.as_bytes());
        progress.push(self.lines.as_bytes());
    }

    fn restore(&mut self, saved: &[u8]) {
        let Ok((state, rest)) = Progress::read_from_prefix(saved) else { return };
        let len = (state.lines as usize).saturating_mul(size_of::<Line>());
        let Some(lines) = rest.get(..len) else { return };
        self.state = state;
        self.lines.extend(
            lines.chunks_exact(size_of::<Line>()).filter_map(|line| Line::read_from_bytes(line).ok()),
        );
    }

    /// The first line without its end.
    fn start(&self) -> Range<usize> {
        0..self.state.start_len as usize
    }

    /// The header lines, and the empty one behind them.
    fn header_lines(&self) -> Range<usize> {
        self.state.start_len as usize + LINE_END.len()..self.state.head_len as usize
    }

    fn body(&self) -> &[u8] {
        self.text.get(self.state.head_len as usize..).unwrap_or_default()
    }

    /// The headers, of which each may have several lines: by their first lines, with their numbers.
    fn headers(&self) -> impl Iterator<Item = (u32, &Line)> {
        (1..).zip(&self.lines).filter(|(_, line)| line.first == 0)
    }

    fn name(&self, line: &Line) -> &[u8] {
        slice(slice(&self.text, [line.start, line.len]), line.name)
    }

    fn value(&self, line: &Line) -> &[u8] {
        slice(slice(&self.text, [line.start, line.len]), line.value)
    }

    /// The first line of a header, with its number.
    fn line_of(&self, wanted: u32) -> Option<(u32, &Line)> {
        self.headers().find(|(_, line)| line.field == wanted)
    }

    /// The values of all lines of a header, in order.
    fn write_values(&self, (number, line): (u32, &Line), out: &mut Vec<u8>) {
        unfolded(self.value(line), out);
        // Others have no further lines, so that many headers of one line cost each no look at all.
        if self.state.has_repeated != 0 && number as usize <= REPEATED_MAX {
            for line in self.lines.iter().filter(|line| line.first == number) {
                out.extend_from_slice(b", ");
                unfolded(self.value(line), out);
            }
        }
    }

    /// Name, colon, space, values.
    fn write_header(&self, header: (u32, &Line), out: &mut Vec<u8>) {
        out.extend_from_slice(self.name(header.1));
        out.extend_from_slice(b": ");
        self.write_values(header, out);
    }

    /// The message as sent, with its body if that is looked at: what a rule finds in its payload.
    pub fn payload(&self, with_body: bool) -> &[u8] {
        let end = if with_body { self.text.len() } else { self.state.head_len as usize };
        self.text.get(..end).unwrap_or(&self.text)
    }

    /// Makes those of the message's buffers that some rule wants; those that are parts of the
    /// payload are only named. Whether the body, if there is one, is what stands in the stream.
    pub fn fill(&self, scene: &mut Scene, wanted: &Wanted, with_body: bool, decoder: &mut Decoder) -> bool {
        scene.clear();
        let [first, second, third] =
            self.state.parts.map(|[start, len]| start as usize..start as usize + len as usize);
        let line = if self.is_request() {
            self.fill_request(scene, wanted, second.clone());
            [Buffer::HttpMethod, Buffer::HttpUriRaw, Buffer::HttpProtocol, Buffer::HttpRequestLine]
        } else {
            [
                Buffer::HttpProtocol,
                Buffer::HttpStatusCode,
                Buffer::HttpStatusMessage,
                Buffer::HttpResponseLine,
            ]
        };
        line.into_iter().zip([first, second, third, self.start()]).for_each(|(buffer, range)| {
            scene.share(buffer, range);
        });
        self.fill_headers(scene, wanted);
        !with_body || self.body().is_empty() || self.fill_body(scene, decoder)
    }

    fn fill_request(&self, scene: &mut Scene, wanted: &Wanted, target: Range<usize>) {
        let target = self.text.get(target).unwrap_or_default();
        if wanted.has(Buffer::HttpUri) {
            scene.write(Buffer::HttpUri, |out| {
                let start = out.len();
                out.resize(start + target.len(), 0);
                let len = uri::normalise(target, &mut out[start..]).map_or(0, |normal| normal.uri.len());
                out.truncate(start + len);
            });
        }
        if !wanted.has(Buffer::HttpHost) && !wanted.has(Buffer::HttpHostRaw) {
            return;
        }
        // CONNECT's target is an authority (RFC 9112 3.2.3).
        let is_connect = slice(&self.text, self.state.parts[0]) == b"CONNECT" && !target.contains(&b'/');
        let named = if is_connect { Some(target) } else { uri::split(target).authority };
        let header = self.line_of(HOST);
        let raw = |out: &mut Vec<u8>| match (named, header) {
            (Some(named), _) => out.extend_from_slice(named),
            (None, Some(header)) => self.write_values(header, out),
            (None, None) => {}
        };
        if named.is_some() || header.is_some() {
            scene.write(Buffer::HttpHostRaw, raw);
            scene.write(Buffer::HttpHost, |out| {
                let start = out.len();
                raw(out);
                let (_, host, _) = uri::split_authority(&out[start..]);
                let [at, len] = place(&out[start..], host).map(|number| number as usize);
                out.copy_within(start + at..start + at + len, start);
                out.truncate(start + len);
                out[start..].make_ascii_lowercase();
            });
        }
    }

    fn fill_headers(&self, scene: &mut Scene, wanted: &Wanted) {
        if wanted.has(Buffer::HttpStart) {
            scene.write(Buffer::HttpStart, |out| {
                out.extend_from_slice(self.text.get(self.start()).unwrap_or_default());
                out.extend_from_slice(LINE_END);
                for header in self.headers() {
                    self.write_header(header, out);
                    out.extend_from_slice(LINE_END);
                }
                out.extend_from_slice(LINE_END);
            });
        }
        if self.lines.is_empty() {
            return;
        }
        let is_cookie = |line: &Line| line.field == COOKIE || line.field == SET_COOKIE;
        if wanted.has(Buffer::HttpHeader) && !self.lines.iter().all(is_cookie) {
            scene.write(Buffer::HttpHeader, |out| {
                for header in self.headers().filter(|(_, line)| !is_cookie(line)) {
                    self.write_header(header, out);
                    out.extend_from_slice(LINE_END);
                }
            });
        }
        if wanted.has(Buffer::HttpHeaderRaw) {
            scene.share(Buffer::HttpHeaderRaw, self.header_lines());
        }
        if wanted.has(Buffer::HttpHeaderNames) {
            scene.write(Buffer::HttpHeaderNames, |out| {
                out.extend_from_slice(LINE_END);
                for (_, line) in self.headers() {
                    out.extend_from_slice(self.name(line));
                    out.extend_from_slice(LINE_END);
                }
                out.extend_from_slice(LINE_END);
            });
        }
        let single = if self.is_request() { Buffer::HttpRequestHeader } else { Buffer::HttpResponseHeader };
        if wanted.has(single) {
            for header in self.headers() {
                scene.write(single, |out| self.write_header(header, out));
            }
        }
        let own = |buffer: Buffer| match buffer {
            Buffer::HttpLocation | Buffer::HttpServer => !self.is_request(),
            Buffer::HttpCookie
            | Buffer::HttpConnection
            | Buffer::HttpContentLength
            | Buffer::HttpContentType => true,
            _ => self.is_request(),
        };
        for (number, &(field, buffer)) in (0..).zip(FIELDS) {
            let Some(buffer) = buffer.filter(|buffer| own(*buffer) && wanted.has(*buffer)) else { continue };
            if (field == Field::SetCookie) == self.is_request() && buffer == Buffer::HttpCookie {
                continue;
            }
            if let Some(header) = self.line_of(number) {
                scene.write(buffer, |out| self.write_values(header, out));
            }
        }
    }

    fn fill_body(&self, scene: &mut Scene, decoder: &mut Decoder) -> bool {
        let own = if self.is_request() { Buffer::HttpRequestBody } else { Buffer::HttpResponseBody };
        let decoded = self.line_of(CONTENT_ENCODING).and_then(|header| match self.state.has_repeated {
            0 => decoder.decode(self.value(header.1), self.body()),
            _ => {
                let mut codings = Vec::new();
                self.write_values(header, &mut codings);
                decoder.decode(&codings, self.body())
            }
        });
        if let Some(Decoded { bytes, .. }) = decoded {
            scene.add(own, bytes);
            scene.again(Buffer::FileData);
        }
        // Where its host may read it in another way, it is looked at in both.
        if decoded.as_ref().is_none_or(|decoded| !decoded.is_plain) {
            scene.share(own, self.state.head_len as usize..self.text.len());
            scene.again(Buffer::FileData);
        }
        decoded.is_none() && self.state.is_body_apart == 0
    }
}

/// Headers that are told apart, and the buffers that hold their values.
const FIELDS: &[(Field, Option<Buffer>)] = &[
    (Field::Host, None),
    (Field::Cookie, Some(Buffer::HttpCookie)),
    (Field::SetCookie, Some(Buffer::HttpCookie)),
    (Field::ContentEncoding, None),
    (Field::UserAgent, Some(Buffer::HttpUserAgent)),
    (Field::Accept, Some(Buffer::HttpAccept)),
    (Field::AcceptEncoding, Some(Buffer::HttpAcceptEncoding)),
    (Field::AcceptLanguage, Some(Buffer::HttpAcceptLanguage)),
    (Field::Connection, Some(Buffer::HttpConnection)),
    (Field::ContentLength, Some(Buffer::HttpContentLength)),
    (Field::ContentType, Some(Buffer::HttpContentType)),
    (Field::Referer, Some(Buffer::HttpReferer)),
    (Field::Location, Some(Buffer::HttpLocation)),
    (Field::Server, Some(Buffer::HttpServer)),
];
const HOST: u32 = 0;
const COOKIE: u32 = 1;
const SET_COOKIE: u32 = 2;
const CONTENT_ENCODING: u32 = 3;
/// Any other header.
const OTHER: u32 = u32::MAX;

/// Which header a name is to a reader that passes over bytes which are no letters: only where
/// nothing depends on it but how a body is read.
fn field_of(field: Field, name: &[u8]) -> Field {
    const CODING: &[u8] = b"content-encoding";
    if field != Field::Other || name.len() <= CODING.len() {
        return field;
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let start = name.iter().position(is_part).unwrap_or(name.len());
    let end = name.iter().rposition(is_part).map_or(start, |last| last + 1);
    if name[start..end].eq_ignore_ascii_case(CODING) { Field::ContentEncoding } else { field }
}

fn number_of(field: Field) -> u32 {
    FIELDS.iter().position(|(known, _)| *known == field).map_or(OTHER, |at| at as u32)
}

/// The value with its folds as single spaces (RFC 9112 5.2).
fn unfolded(value: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr(b'\n', value).is_none() {
        return out.extend_from_slice(value);
    }
    for (number, part) in value.split(|&byte| byte == b'\n').enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        let blanks = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
        let start = part.iter().take_while(|byte| blanks(byte)).count();
        let end = part[start..].iter().rev().take_while(|byte| blanks(byte)).count();
        out.extend_from_slice(&part[start..part.len() - end]);
    }
}

/// Where a part of these bytes stands in them.
fn place(of: &[u8], part: &[u8]) -> [u32; 2] {
    let start = (part.as_ptr() as usize).wrapping_sub(of.as_ptr() as usize);
    if start > of.len() { [0, 0] } else { [start as u32, part.len() as u32] }
}

/// The bytes at a place, as far as they are there.
fn slice(of: &[u8], [start, len]: [u32; 2]) -> &[u8] {
    let start = (start as usize).min(of.len());
    &of[start..(start + len as usize).min(of.len())]
}

/// Which buffers rules look at: a bit for each.
#[derive(Clone, Copy, Default)]
pub struct Wanted(u128);

const _: () = assert!(Buffer::ALL.len() <= u128::BITS as usize);

impl Wanted {
    /// Some rule looks at this one.
    pub fn add(&mut self, buffer: Buffer) {
        self.0 |= 1 << buffer as u32;
    }

    /// Whether some rule does.
    pub fn has(&self, buffer: Buffer) -> bool {
        self.0 >> buffer as u32 & 1 != 0
    }
}
