//! HTTP messages, assembled from parser events, and their inspection buffers.

use std::cmp::Ordering;
use std::ops::Range;

use applayer::http::{FieldName, Framing, HeaderLine, HttpAnomaly, HttpEvent, HttpSink, uri};
use nf::FlowBuffer;
use signatures::Buffer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::config::InspectedLengths;
use super::decoder::ContentDecoder;
use super::inspection_buffers::InspectionBuffers;
use super::multipart;

mod lenient;
mod trailers;

/// Maximum header lines that are compared in pairs; more are sorted.
const PAIRED_LINES: usize = 64;

/// A possibly incomplete message.
#[derive(Default)]
pub struct HttpMessage {
    state: MessageProgress,
    /// The header lines in `text`.
    lines: Vec<StoredHeader>,
    /// The first line, the raw header lines, an empty line; then the unchunked body, up to the
    /// inspection limit, and the raw trailers. This is the payload that rules inspect.
    text: Vec<u8>,
    /// Scratch memory: the numbers of header lines, by header.
    order: Vec<u32>,
}

/// The line ending after the first line, whatever it was, and after the headers.
const LINE_END: &[u8] = b"\r\n";

/// The state of a message besides its bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct MessageProgress {
    /// Offset and length of the three parts of the first line.
    parts: [[u32; 2]; 3],
    /// Length of the first line without its line ending.
    start_len: u32,
    /// Length of everything before the body; 0 until the head is complete.
    head_len: u32,
    /// Number of header lines.
    lines: u32,
    is_request: u8,
    is_head_complete: u8,
    /// 1 if no more of the body is inspected.
    is_body_complete: u8,
    /// 1 if the body is not contiguous in the stream: it was chunked, or a part is missing.
    is_body_apart: u8,
    /// 1 if a header has several lines.
    has_repeated: u8,
    /// 1 for a response that must not have a body, but may be followed by one.
    may_go_on: u8,
    /// 1 if a part of the head is not inspected.
    is_head_cut: u8,
    /// 1 if a part of the body is not inspected, and this was counted.
    is_body_cut: u8,
    /// Length of the text when the message was inspected before its end; 0 if it was not.
    inspected_len: u32,
    /// Offset in the text at which the body ends and trailers begin; 0 if there are none.
    body_end: u32,
}

/// A header line: its place in the text, and of name and value within it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct StoredHeader {
    /// The header: an index into [`FIELDS`], or [`OTHER`].
    field: u16,
    /// 1 if a line before it has the same header.
    is_further: u16,
    /// Number of the next line of the same header, from 1; 0 if this is the last one.
    next: u32,
    start: u32,
    len: u32,
    name: [u32; 2],
    value: [u32; 2],
}

/// A complete part of a message that rules inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyPart {
    /// The head of the message with this number.
    Head(usize),
    /// The whole message, up to the inspection limit.
    Whole(usize),
    /// The head once more, now with its trailers.
    Trailers(usize),
}

/// The messages that a piece of a stream touches, in order.
#[derive(Default)]
pub struct HttpMessages {
    messages: Vec<HttpMessage>,
    used: usize,
    /// True if the last message is a copy of the one before, which may continue.
    is_cut: bool,
    /// The completed parts, in order.
    pub ready: Vec<ReadyPart>,
    /// Bytes of another protocol.
    pub opaque: Vec<u8>,
    /// Messages with more bytes in the piece than are inspected.
    pub cut: CutMessages,
    /// The number of the first message in its direction.
    first: u64,
    lengths: InspectedLengths,
    /// The head of a message without its trailers.
    bare_head: HttpMessage,
}

/// Counts of messages that are not inspected whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutMessages {
    /// Those with a longer head than `head`.
    pub heads: u64,
    /// Those with a longer body than `body`.
    pub bodies: u64,
}

/// The body among the buffers of a message.
#[derive(Clone, Copy, Debug)]
pub struct FilledBody {
    /// True if the body, if any, is contiguous in the stream.
    pub is_in_stream: bool,
    /// True if a part of the body was not decoded or taken apart.
    pub is_cut: bool,
}

impl HttpMessages {
    /// Begins a piece. If `progress` is not empty, the first message is restored from it. `begun`
    /// messages began before.
    pub fn begin(&mut self, progress: &[u8], text: &mut FlowBuffer, lengths: InspectedLengths, begun: u32) {
        self.used = 0;
        self.is_cut = false;
        self.opaque.clear();
        self.ready.clear();
        self.cut = CutMessages::default();
        self.lengths = lengths;
        self.first = u64::from(begun).saturating_sub(u64::from(!progress.is_empty()));
        if !progress.is_empty() {
            let message = self.next();
            message.restore(progress);
            text.exchange(&mut message.text);
        }
    }

    /// Returns the message with this number.
    pub fn get(&self, number: usize) -> &HttpMessage {
        &self.messages[number]
    }

    /// Returns the number of a message's transaction in the connection.
    pub fn transaction(&self, number: usize) -> u64 {
        let is_copy = self.is_cut && number + 1 == self.used;
        self.first + (number - usize::from(is_copy)) as u64
    }

    /// Records that a part of a message's body is not inspected; returns whether that is news.
    pub fn cut_body(&mut self, number: usize) -> bool {
        self.messages[number].cut_body()
    }

    /// Ends a piece: saves the incomplete message, if any.
    pub fn end(&mut self, progress: &mut FlowBuffer, text: &mut FlowBuffer) {
        progress.clear();
        let Some(number) = self.used.checked_sub(1 + usize::from(self.is_cut)) else { return };
        let message = &mut self.messages[number];
        if !message.has_ended() || message.state.may_go_on != 0 {
            message.save(progress);
            text.exchange(&mut message.text);
        }
    }

    /// Returns whether the incomplete message has bytes that were not inspected.
    pub fn has_news(&self) -> bool {
        self.used.checked_sub(1).is_none_or(|number| self.messages[number].is_new())
    }

    /// Handles the apparent end of the connection: the incomplete message is inspected as it is. It
    /// may continue.
    pub fn cut(&mut self) {
        let Some(number) = self.used.checked_sub(1) else { return };
        let message = &mut self.messages[number];
        if message.has_ended() {
            return;
        }
        message.state.inspected_len = message.text.len() as u32;
        if message.state.is_head_complete != 0 {
            self.ready.extend(message.is_in_body().then_some(ReadyPart::Whole(number)));
            return;
        }
        let HttpMessage { state, .. } = *message;
        let (lines, text) = (message.lines.clone(), message.text.clone());
        let copy = self.next();
        (copy.state, copy.lines, copy.text) = (state, lines, text);
        copy.end_head();
        self.is_cut = true;
        self.ready.extend([ReadyPart::Head(number + 1), ReadyPart::Whole(number + 1)]);
    }

    fn next(&mut self) -> &mut HttpMessage {
        if self.used == self.messages.len() {
            self.messages.push(HttpMessage::default());
        }
        self.used += 1;
        let message = &mut self.messages[self.used - 1];
        message.clear();
        message
    }
}

impl HttpSink for HttpMessages {
    fn event(&mut self, event: HttpEvent<'_>) {
        match event {
            HttpEvent::Request(line) => {
                let head_max = self.lengths.head;
                let message = self.next();
                message.begin(true, head_max, line.raw, [line.name, line.target, line.protocol]);
                self.cut.heads += u64::from(message.state.is_head_cut);
                return;
            }
            HttpEvent::Response(line) => {
                let head_max = self.lengths.head;
                let message = self.next();
                message.begin(false, head_max, line.raw, [line.protocol, line.code, line.reason]);
                message.state.may_go_on = u8::from(matches!(line.status, 100..=199 | 204 | 304));
                self.cut.heads += u64::from(message.state.is_head_cut);
                return;
            }
            HttpEvent::Opaque(bytes) => return self.opaque.extend_from_slice(bytes),
            _ => {}
        }
        let Some(number) = self.used.checked_sub(1) else { return };
        let (message, lengths) = (&mut self.messages[number], self.lengths);
        if message.has_ended() {
            if event == HttpEvent::Anomaly(HttpAnomaly::UnexpectedBody) && message.state.may_go_on != 0 {
                message.go_on();
            }
            return;
        }
        match event {
            HttpEvent::Header(header) => {
                let was_cut = message.state.is_head_cut;
                message.header(&header, lengths.head);
                self.cut.heads += u64::from(message.state.is_head_cut - was_cut);
            }
            HttpEvent::HeadersEnd(framing) => {
                message.end_head();
                message.state.is_body_apart = u8::from(framing == Framing::Chunked);
                if let Framing::Length(len) = framing {
                    message
                        .text
                        .reserve(usize::try_from(len).map_or(lengths.body, |len| len.min(lengths.body)));
                }
                self.ready.push(ReadyPart::Head(number));
            }
            HttpEvent::Body(bytes) if message.state.is_body_complete == 0 => {
                let taken = bytes.len().min(lengths.body.saturating_sub(message.body().len()));
                message.text.extend_from_slice(&bytes[..taken]);
                if taken < bytes.len() {
                    message.state.is_body_complete = 1;
                    self.cut.bodies += u64::from(message.cut_body());
                    self.ready.push(ReadyPart::Whole(number));
                }
            }
            HttpEvent::Trailer(header) => {
                let was_cut = message.state.is_head_cut;
                message.trailer(&header, lengths.head);
                self.cut.heads += u64::from(message.state.is_head_cut - was_cut);
            }
            HttpEvent::Gap(_) => message.state.is_body_apart = 1,
            HttpEvent::End(_) => {
                if message.state.is_head_complete == 0 {
                    // The message ends before its head does: the lines so far are all there is.
                    message.end_head();
                    self.ready.push(ReadyPart::Head(number));
                }
                if message.is_in_body() {
                    self.ready.push(ReadyPart::Whole(number));
                }
                self.ready.extend(message.has_trailers().then_some(ReadyPart::Trailers(number)));
                message.state.is_head_complete = OVER;
            }
            _ => {}
        }
    }
}

/// Value of [`MessageProgress::is_head_complete`] after the end of the message.
const OVER: u8 = 2;

impl HttpMessage {
    fn clear(&mut self) {
        self.state = MessageProgress::default();
        self.lines.clear();
        self.text.clear();
    }

    fn has_ended(&self) -> bool {
        self.state.is_head_complete == OVER
    }

    fn cut_body(&mut self) -> bool {
        std::mem::replace(&mut self.state.is_body_cut, 1) == 0
    }

    /// Returns whether the head is complete and the body not finally inspected.
    fn is_in_body(&self) -> bool {
        self.state.is_head_complete == 1 && self.state.is_body_complete == 0
    }

    /// Returns the parts of the first line.
    pub fn words(&self) -> [&[u8]; 3] {
        self.state.parts.map(|part| slice(&self.text, part))
    }

    /// Returns the value of the first line of a known header.
    pub fn first_value(&self, field: FieldName) -> Option<&[u8]> {
        self.line_of(number_of(field)).map(|line| self.value(line))
    }

    /// Returns the bytes of the body so far, up to the inspection limit.
    pub fn body_len(&self) -> usize {
        if self.state.head_len == 0 { 0 } else { self.body().len() }
    }

    /// Returns whether the message has bytes that were not inspected before its end.
    fn is_new(&self) -> bool {
        !self.has_ended() && self.state.inspected_len != self.text.len() as u32
    }

    /// Returns whether the message is a request.
    pub fn is_request(&self) -> bool {
        self.state.is_request != 0
    }

    fn begin(&mut self, is_request: bool, head_max: usize, raw: &[u8], parts: [&[u8]; 3]) {
        let kept = &raw[..raw.len().min(head_max)];
        self.text.extend_from_slice(kept);
        self.text.extend_from_slice(LINE_END);
        self.state.is_head_cut = u8::from(kept.len() < raw.len());
        self.state.is_request = u8::from(is_request);
        self.state.start_len = kept.len() as u32;
        self.state.parts = parts.map(|part| place(raw, part));
    }

    fn header(&mut self, header: &HeaderLine<'_>, head_max: usize) {
        let room = (head_max + LINE_END.len()).saturating_sub(self.text.len());
        let number = number_of(field_of(header.field, header.name));
        self.line(header, number, room);
    }

    /// Adds a header line, cut to the room that is left.
    fn line(&mut self, header: &HeaderLine<'_>, field: u16, room: usize) {
        let HeaderLine { raw, name, value, .. } = *header;
        let kept = &raw[..raw.len().min(room)];
        self.state.is_head_cut |= u8::from(kept.len() < raw.len());
        if kept.is_empty() {
            return;
        }
        let start = self.text.len() as u32;
        self.text.extend_from_slice(kept);
        let line = StoredHeader {
            field,
            is_further: 0,
            next: 0,
            start,
            len: kept.len() as u32,
            name: place(raw, name),
            value: place(raw, value),
        };
        self.lines.push(line);
    }

    /// Joins the lines of each header, in order.
    fn join_lines(&mut self) {
        if self.lines.len() > PAIRED_LINES {
            return self.join_many_lines();
        }
        for at in 1..self.lines.len() {
            let line = &self.lines[at];
            let is_same = |before: &StoredHeader| {
                before.field == line.field
                    && (line.field != OTHER || self.name(before).eq_ignore_ascii_case(self.name(line)))
            };
            if let Some(before) = self.lines[..at].iter().rposition(is_same) {
                self.join(before, at);
            }
        }
    }

    #[cold]
    fn join_many_lines(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..self.lines.len() as u32);
        let compare =
            |one: u32, other: u32| self.compare(&self.lines[one as usize], &self.lines[other as usize]);
        order.sort_unstable_by(|one, other| compare(*one, *other).then(one.cmp(other)));
        for pair in order.windows(2) {
            if self.compare(&self.lines[pair[0] as usize], &self.lines[pair[1] as usize]).is_eq() {
                self.join(pair[0] as usize, pair[1] as usize);
            }
        }
        self.order = order;
    }

    /// Joins two successive lines of a header.
    fn join(&mut self, before: usize, at: usize) {
        self.lines[before].next = at as u32 + 1;
        self.lines[at].is_further = 1;
        self.state.has_repeated = 1;
    }

    /// Orders lines by their headers.
    fn compare(&self, one: &StoredHeader, other: &StoredHeader) -> Ordering {
        let name = |line| self.name(line).iter().map(u8::to_ascii_lowercase);
        one.field.cmp(&other.field).then_with(|| match one.field {
            OTHER => name(one).len().cmp(&name(other).len()).then_with(|| name(one).cmp(name(other))),
            _ => Ordering::Equal,
        })
    }

    /// Begins a body that the message must not have.
    fn go_on(&mut self) {
        self.state.may_go_on = 0;
        self.state.is_head_complete = 1;
        self.state.is_body_apart = 1;
    }

    fn end_head(&mut self) {
        self.join_lines();
        self.text.extend_from_slice(LINE_END);
        self.state.head_len = self.text.len() as u32;
        self.state.is_head_complete = 1;
    }

    /// Saves the state besides the text.
    fn save(&self, progress: &mut FlowBuffer) {
        let state = MessageProgress { lines: self.lines.len() as u32, ..self.state };
        progress.push(state.as_bytes());
        progress.push(self.lines.as_bytes());
    }

    fn restore(&mut self, saved: &[u8]) {
        let Ok((state, rest)) = MessageProgress::read_from_prefix(saved) else { return };
        let len = (state.lines as usize).saturating_mul(size_of::<StoredHeader>());
        let Some(lines) = rest.get(..len) else { return };
        self.state = state;
        self.lines.extend(
            lines
                .chunks_exact(size_of::<StoredHeader>())
                .filter_map(|line| StoredHeader::read_from_bytes(line).ok()),
        );
    }

    /// Returns the range of the first line without its line ending.
    fn start(&self) -> Range<usize> {
        0..self.state.start_len as usize
    }

    /// Returns the range of the header lines and the empty line after them.
    fn header_lines(&self) -> Range<usize> {
        self.state.start_len as usize + LINE_END.len()..self.state.head_len as usize
    }

    fn body(&self) -> &[u8] {
        let end = if self.has_trailers() { self.state.body_end as usize } else { self.text.len() };
        self.text.get(self.state.head_len as usize..end).unwrap_or_default()
    }

    /// Returns the headers by their first lines.
    fn headers(&self) -> impl Iterator<Item = &StoredHeader> {
        self.lines.iter().filter(|line| line.is_further == 0)
    }

    fn name(&self, line: &StoredHeader) -> &[u8] {
        slice(slice(&self.text, [line.start, line.len]), line.name)
    }

    fn value(&self, line: &StoredHeader) -> &[u8] {
        slice(slice(&self.text, [line.start, line.len]), line.value)
    }

    /// Returns the first line of a header.
    fn line_of(&self, wanted: u16) -> Option<&StoredHeader> {
        self.headers().find(|line| line.field == wanted)
    }

    /// Writes the values of all lines of a header, in order.
    fn write_values<'a>(&'a self, mut line: &'a StoredHeader, out: &mut Vec<u8>) {
        unfolded(self.value(line), out);
        let mut behind = 0;
        // Follows links only to later lines: a corrupt saved state must not make a loop.
        while line.next > behind
            && let Some(next) = self.lines.get(line.next as usize - 1)
        {
            behind = line.next;
            line = next;
            out.extend_from_slice(b", ");
            unfolded(self.value(line), out);
        }
    }

    /// Writes a header: name, colon, space, values.
    fn write_header(&self, header: &StoredHeader, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name(header));
        out.extend_from_slice(b": ");
        self.write_values(header, out);
    }

    /// Returns the raw message, with its inspected body if requested: the payload that rules
    /// inspect.
    pub fn payload(&self, with_body: bool) -> &[u8] {
        let end = if with_body { self.text.len() } else { self.state.head_len as usize };
        self.text.get(..end).unwrap_or(&self.text)
    }

    /// Builds the message's buffers that rules require; parts of the payload are only referenced.
    /// With `body_max`, includes the body's buffers, up to this length.
    pub fn fill(
        &self,
        buffers: &mut InspectionBuffers,
        wanted: &BufferMask,
        body_max: Option<usize>,
        decoder: &mut ContentDecoder,
    ) -> FilledBody {
        buffers.clear();
        let [first, second, third] =
            self.state.parts.map(|[start, len]| start as usize..start as usize + len as usize);
        let line = if self.is_request() {
            self.fill_request(buffers, wanted, second.clone());
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
            buffers.share(buffer, range);
        });
        self.fill_headers(buffers, wanted);
        match body_max.filter(|_| self.may_have_body()) {
            Some(body_max) => self.fill_body(buffers, wanted, decoder, body_max),
            None => FilledBody { is_in_stream: true, is_cut: false },
        }
    }

    fn fill_request(&self, buffers: &mut InspectionBuffers, wanted: &BufferMask, target: Range<usize>) {
        let target = self.text.get(target).unwrap_or_default();
        if wanted.has(Buffer::HttpUri) {
            buffers.write(Buffer::HttpUri, |out| {
                let start = out.len();
                out.resize(start + target.len(), 0);
                let len = uri::normalise(target, &mut out[start..]).map_or(0, |normal| normal.uri.len());
                out.truncate(start + len);
            });
        }
        if !wanted.has(Buffer::HttpHost) && !wanted.has(Buffer::HttpHostRaw) {
            return;
        }
        // The target of CONNECT is an authority (RFC 9112 3.2.3).
        let is_connect = slice(&self.text, self.state.parts[0]) == b"CONNECT" && !target.contains(&b'/');
        let named = if is_connect { Some(target) } else { uri::split(target).authority };
        let header = self.line_of(HOST);
        let raw = |out: &mut Vec<u8>| match (named, header) {
            (Some(named), _) => out.extend_from_slice(named),
            (None, Some(header)) => self.write_values(header, out),
            (None, None) => {}
        };
        if named.is_some() || header.is_some() {
            buffers.write(Buffer::HttpHostRaw, raw);
            buffers.write(Buffer::HttpHost, |out| {
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

    fn fill_headers(&self, buffers: &mut InspectionBuffers, wanted: &BufferMask) {
        if wanted.has(Buffer::HttpStart) {
            buffers.write(Buffer::HttpStart, |out| {
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
        let is_cookie = |line: &StoredHeader| line.field == COOKIE || line.field == SET_COOKIE;
        if wanted.has(Buffer::HttpHeader) && !self.lines.iter().all(is_cookie) {
            buffers.write(Buffer::HttpHeader, |out| {
                for header in self.headers().filter(|line| !is_cookie(line)) {
                    self.write_header(header, out);
                    out.extend_from_slice(LINE_END);
                }
            });
        }
        if wanted.has(Buffer::HttpHeaderRaw) {
            match self.has_trailers() {
                true => buffers.write(Buffer::HttpHeaderRaw, |out| self.write_raw_lines(out)),
                false => buffers.share(Buffer::HttpHeaderRaw, self.header_lines()),
            }
        }
        if wanted.has(Buffer::HttpHeaderNames) {
            buffers.write(Buffer::HttpHeaderNames, |out| {
                out.extend_from_slice(LINE_END);
                for line in self.headers() {
                    out.extend_from_slice(self.name(line));
                    out.extend_from_slice(LINE_END);
                }
                out.extend_from_slice(LINE_END);
            });
        }
        let single = if self.is_request() { Buffer::HttpRequestHeader } else { Buffer::HttpResponseHeader };
        if wanted.has(single) {
            for header in self.headers() {
                buffers.write(single, |out| self.write_header(header, out));
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
            if (field == FieldName::SetCookie) == self.is_request() && buffer == Buffer::HttpCookie {
                continue;
            }
            if let Some(header) = self.line_of(number) {
                buffers.write(buffer, |out| self.write_values(header, out));
            }
        }
    }

    fn fill_body(
        &self,
        buffers: &mut InspectionBuffers,
        wanted: &BufferMask,
        decoder: &mut ContentDecoder,
        body_max: usize,
    ) -> FilledBody {
        let own = if self.is_request() { Buffer::HttpRequestBody } else { Buffer::HttpResponseBody };
        let decoded = self.line_of(CONTENT_ENCODING).and_then(|header| match self.state.has_repeated {
            0 => decoder.decode(self.value(header), self.body(), body_max),
            _ => {
                let mut codings = Vec::new();
                self.write_values(header, &mut codings);
                decoder.decode(&codings, self.body(), body_max)
            }
        });
        let kind = self.line_of(CONTENT_TYPE).filter(|_| wanted.has(Buffer::FileData));
        let kind = kind.map(|header| self.value(header)).unwrap_or_default();
        let mut is_cut = false;
        if let Some(decoded) = &decoded {
            buffers.add(own, decoded.bytes);
            buffers.again(Buffer::FileData);
            let files = multipart::files(kind, decoded.bytes);
            for file in files.places {
                buffers.add(Buffer::FileData, &decoded.bytes[file]);
            }
            is_cut = decoded.is_cut || files.is_cut;
        }
        // The host may read the body differently, so both forms are inspected.
        if !self.body().is_empty() && decoded.as_ref().is_none_or(|decoded| !decoded.is_plain) {
            let start = self.state.head_len as usize;
            buffers.share(own, start..start + self.body().len());
            buffers.again(Buffer::FileData);
            let files = multipart::files(kind, self.body());
            for file in files.places {
                buffers.share(Buffer::FileData, start + file.start..start + file.end);
            }
            is_cut |= files.is_cut;
        }
        let is_decoded = decoded.is_some();
        let lenient = self.fill_lenient_body(buffers, own, decoder, is_decoded, body_max);
        FilledBody {
            is_in_stream: lenient.is_none() && !is_decoded && self.state.is_body_apart == 0,
            is_cut: is_cut || lenient.unwrap_or(false),
        }
    }
}

/// The known headers, and the buffers of their values.
const FIELDS: &[(FieldName, Option<Buffer>)] = &[
    (FieldName::Host, None),
    (FieldName::Cookie, Some(Buffer::HttpCookie)),
    (FieldName::SetCookie, Some(Buffer::HttpCookie)),
    (FieldName::ContentEncoding, None),
    (FieldName::UserAgent, Some(Buffer::HttpUserAgent)),
    (FieldName::Accept, Some(Buffer::HttpAccept)),
    (FieldName::AcceptEncoding, Some(Buffer::HttpAcceptEncoding)),
    (FieldName::AcceptLanguage, Some(Buffer::HttpAcceptLanguage)),
    (FieldName::Connection, Some(Buffer::HttpConnection)),
    (FieldName::ContentLength, Some(Buffer::HttpContentLength)),
    (FieldName::ContentType, Some(Buffer::HttpContentType)),
    (FieldName::Referer, Some(Buffer::HttpReferer)),
    (FieldName::Location, Some(Buffer::HttpLocation)),
    (FieldName::Server, Some(Buffer::HttpServer)),
];
const HOST: u16 = 0;
const COOKIE: u16 = 1;
const SET_COOKIE: u16 = 2;
const CONTENT_ENCODING: u16 = 3;
const CONTENT_TYPE: u16 = 10;
/// Any other header.
const OTHER: u16 = u16::MAX;

/// Returns the header that an implementation would see that skips non-letters; only where just the
/// decoding of a body depends on it.
fn field_of(field: FieldName, name: &[u8]) -> FieldName {
    const CODING: &[u8] = b"content-encoding";
    if field != FieldName::Other || name.len() <= CODING.len() {
        return field;
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let start = name.iter().position(is_part).unwrap_or(name.len());
    let end = name.iter().rposition(is_part).map_or(start, |last| last + 1);
    if name[start..end].eq_ignore_ascii_case(CODING) { FieldName::ContentEncoding } else { field }
}

fn number_of(field: FieldName) -> u16 {
    FIELDS.iter().position(|(known, _)| *known == field).map_or(OTHER, |at| at as u16)
}

/// Writes the value with its folds as single spaces (RFC 9112 5.2).
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

/// Returns offset and length of a part within these bytes.
fn place(of: &[u8], part: &[u8]) -> [u32; 2] {
    let start = (part.as_ptr() as usize).wrapping_sub(of.as_ptr() as usize);
    if start > of.len() { [0, 0] } else { [start as u32, part.len() as u32] }
}

/// Returns the bytes at this place that exist.
fn slice(of: &[u8], [start, len]: [u32; 2]) -> &[u8] {
    let start = (start as usize).min(of.len());
    &of[start..(start + len as usize).min(of.len())]
}

/// A set of buffers that rules inspect.
#[derive(Clone, Copy, Default)]
pub struct BufferMask(u128);

const _: () = assert!(Buffer::ALL.len() <= u128::BITS as usize);

impl BufferMask {
    /// Adds a buffer.
    pub fn add(&mut self, buffer: Buffer) {
        self.0 |= 1 << buffer as u32;
    }

    /// Returns whether some rule inspects the buffer.
    pub fn has(&self, buffer: Buffer) -> bool {
        self.0 >> buffer as u32 & 1 != 0
    }
}
