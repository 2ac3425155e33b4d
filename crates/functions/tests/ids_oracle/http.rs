//! The buffers of HTTP messages, and the times of their inspection.

use std::collections::BTreeMap;
use std::io::Read;

use signatures::Buffer;

use super::buffer::Piece;
use super::lenient;
use super::parting::{Header, Part, Parting, Start};
pub use super::parting::{Input, Side};
use super::uri;

/// Inspected bytes of a body.
pub const BODY_BYTES: usize = 100 << 10;
/// Inspected bytes of a head.
const HEAD_BYTES: usize = 64 << 10;

/// Buffers by kind, possibly several of a kind.
pub type Buffers = BTreeMap<Buffer, Vec<Piece>>;

/// An inspection of a message.
#[derive(Clone, Debug)]
pub struct Look {
    pub side: Side,
    /// True for rules about a body.
    pub with_body: bool,
    pub buffers: Buffers,
    /// The buffers of the head, if it was looked at before its trailers came: rules that matched
    /// then do not match again.
    pub before: Option<Buffers>,
    /// True if the function's behaviour is unspecified: a head or a coding beyond what is supported
    /// here.
    pub vague: bool,
}

/// The messages of a connection.
#[derive(Clone, Default)]
pub struct Messages {
    parting: Parting,
    open: [Option<Message>; 2],
}

#[derive(Clone, Debug, Default)]
struct Message {
    start: Start,
    headers: Vec<Header>,
    head_ended: bool,
    body: Vec<u8>,
    body_looked_at: bool,
    trailers: Vec<Header>,
}

impl Messages {
    /// Returns the inspections at this input.
    pub fn take(&mut self, side: Side, input: Input<'_>) -> Vec<Look> {
        let (mut looks, open) = (Vec::new(), &mut self.open[side as usize]);
        for part in self.parting.take(side, input) {
            take(side, part, open, &mut looks);
        }
        looks
    }

    /// Returns the inspections when the stream may end here.
    pub fn reset(&self, side: Side) -> Vec<Look> {
        let unseen = self.open[side as usize].iter().filter(|message| !message.body_looked_at);
        let mut copies: Vec<Message> = unseen.cloned().collect();
        copies.iter_mut().flat_map(|message| message.end(side)).collect()
    }

    /// Returns the inspections when the connection has ended.
    pub fn cut_short(&mut self) -> Vec<Look> {
        let sides = [Side::Request, Side::Response].into_iter().zip(&mut self.open);
        sides.filter_map(|(side, open)| Some(open.take()?.end(side))).flatten().collect()
    }

    /// Returns whether another protocol follows.
    pub fn is_switched(&self) -> bool {
        self.parting.switched
    }

    /// Returns whether the messages are ambiguous.
    pub fn is_vague(&self) -> bool {
        self.parting.vague
    }
}

fn take(side: Side, part: Part, open: &mut Option<Message>, looks: &mut Vec<Look>) {
    if let Part::Start(start) = part {
        *open = Some(Message { start, ..Message::default() });
        return;
    }
    let Some(message) = open else { return };
    match part {
        Part::Header(header) => message.headers.push(header),
        Part::HeadEnd => {
            message.head_ended = true;
            looks.push(message.look(side, false));
        }
        Part::Body(bytes) => {
            message.body.extend(bytes);
            if message.body.len() > BODY_BYTES {
                looks.extend(message.end(side));
            }
        }
        Part::Trailer(header) => message.trailers.push(header),
        _ => {
            let Some(mut message) = open.take() else { return };
            looks.extend(message.end(side));
            if !message.trailers.is_empty() {
                let with_trailers = message.look(side, false);
                message.trailers.clear();
                let before = Some(message.look(side, false).buffers);
                looks.push(Look { before, ..with_trailers });
            }
        }
    }
}

impl Message {
    /// Returns the inspection of the body, and that of the head if it was incomplete.
    fn end(&mut self, side: Side) -> Vec<Look> {
        let first = !std::mem::replace(&mut self.body_looked_at, true);
        let with_body = if self.head_ended { &[true][..] } else { &[false, true] };
        let looks = with_body.iter().filter(|_| first);
        looks.map(|with_body| self.look(side, *with_body)).collect()
    }

    fn look(&self, side: Side, with_body: bool) -> Look {
        let mut all = Buffers::new();
        let mut put = |buffer: Buffer, bytes: Vec<u8>| all.entry(buffer).or_default().push(bytes.into());
        let Start { line, words: [first, second, third] } = &self.start;
        let parts = match side {
            Side::Request => [
                (Buffer::HttpMethod, first),
                (Buffer::HttpUriRaw, second),
                (Buffer::HttpProtocol, third),
                (Buffer::HttpRequestLine, line),
            ],
            Side::Response => [
                (Buffer::HttpProtocol, first),
                (Buffer::HttpStatusCode, second),
                (Buffer::HttpStatusMessage, third),
                (Buffer::HttpResponseLine, line),
            ],
        };
        for (buffer, bytes) in parts.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            put(*buffer, bytes.to_vec());
        }
        if side == Side::Request && !second.is_empty() {
            put(Buffer::HttpUri, uri::normal(first, second));
        }
        self.put_headers(side, &mut put);
        let body = &self.body[..self.body.len().min(BODY_BYTES)];
        let (plain, understood) = self.decoded(body);
        let mut payload = [&line[..], b"\r\n"].concat();
        payload.extend(self.headers.iter().flat_map(|header| &header.raw));
        payload.extend(b"\r\n");
        let lenient = self.lenient(side, &payload, plain != body).filter(|_| with_body);
        let vague = payload.len() > HEAD_BYTES
            || with_body && !(understood && lenient.as_ref().is_none_or(|(_, understood)| *understood));
        let readings = (with_body && !body.is_empty()).then_some(plain);
        for reading in readings.into_iter().chain(lenient.map(|(reading, _)| reading)) {
            let of_side = match side {
                Side::Request => Buffer::HttpRequestBody,
                Side::Response => Buffer::HttpResponseBody,
            };
            put(of_side, reading.clone());
            put(Buffer::FileData, reading);
        }
        if with_body {
            payload.extend(body);
            payload.extend(self.trailers.iter().flat_map(|header| &header.raw));
        }
        put(Buffer::Payload, payload);
        Look { side, with_body, buffers: all, before: None, vague }
    }

    /// Returns the body as lenient clients read it, if that differs, and whether it could be
    /// decoded. `is_decoded`: its content codings were undone.
    fn lenient(&self, side: Side, head: &[u8], is_decoded: bool) -> Option<(Vec<u8>, bool)> {
        let body = &self.body[..self.body.len().min(BODY_BYTES)];
        let raw: Vec<u8> = self.headers.iter().flat_map(|header| header.raw.clone()).collect();
        let hidden = match side {
            Side::Response if self.start.line.is_empty() => lenient::late_response(body),
            Side::Response if body.is_empty() => lenient::behind_blank_line(&raw).map(|body| (head, body)),
            _ => None,
        };
        match hidden.filter(|(_, body)| self.start.line.is_empty() || !body.is_empty()) {
            Some((head, body)) => Some(lenient::reading(head, body, false).unwrap_or((body.to_vec(), true))),
            None if body.is_empty() => None,
            None => lenient::reading(head, body, is_decoded),
        }
    }

    fn put_headers(&self, side: Side, put: &mut impl FnMut(Buffer, Vec<u8>)) {
        let is_cookie =
            |name: &[u8]| name.eq_ignore_ascii_case(b"cookie") || name.eq_ignore_ascii_case(b"set-cookie");
        let shown = |name: &[u8], value: &[u8]| [name, b": ", value].concat();
        let mut start = [&self.start.line[..], b"\r\n"].concat();
        let (mut plain, mut raw, mut names) = (Vec::new(), Vec::new(), b"\r\n".to_vec());
        raw.extend(self.headers.iter().flat_map(|header| &header.raw));
        if !self.trailers.is_empty() {
            raw.extend(b"\r\n");
            raw.extend(self.trailers.iter().flat_map(|header| &header.raw));
        }
        let trailers = self.trailers.iter().map(|header| (&header.name[..], header.value.clone()));
        for (name, value) in &self.joined().into_iter().chain(trailers).collect::<Vec<_>>() {
            let each = [&shown(name, value)[..], b"\r\n"].concat();
            start.extend(&each);
            if !is_cookie(name) {
                plain.extend(&each);
            }
            names.extend([&name[..], b"\r\n"].concat());
            let buffer = match side {
                Side::Request => Buffer::HttpRequestHeader,
                Side::Response => Buffer::HttpResponseHeader,
            };
            put(buffer, shown(name, value));
        }
        put(Buffer::HttpStart, [&start[..], b"\r\n"].concat());
        if !plain.is_empty() {
            put(Buffer::HttpHeader, plain);
        }
        if !self.headers.is_empty() || !self.trailers.is_empty() {
            put(Buffer::HttpHeaderRaw, [&raw[..], b"\r\n"].concat());
            put(Buffer::HttpHeaderNames, [&names[..], b"\r\n"].concat());
        }
        let cookie = if side == Side::Request { "cookie" } else { "set-cookie" };
        let single = [
            (Buffer::HttpCookie, cookie),
            (Buffer::HttpUserAgent, "user-agent"),
            (Buffer::HttpAccept, "accept"),
            (Buffer::HttpAcceptEncoding, "accept-encoding"),
            (Buffer::HttpAcceptLanguage, "accept-language"),
            (Buffer::HttpConnection, "connection"),
            (Buffer::HttpContentLength, "content-length"),
            (Buffer::HttpContentType, "content-type"),
            (Buffer::HttpLocation, "location"),
            (Buffer::HttpReferer, "referer"),
            (Buffer::HttpServer, "server"),
        ];
        for (buffer, name) in single {
            if let Some(value) = self.header(name) {
                put(buffer, value);
            }
        }
        let [method, target, _] = &self.start.words;
        let named = uri::authority(method, target).0.map(<[u8]>::to_vec);
        let host = named.or_else(|| self.header("host")).filter(|_| side == Side::Request);
        if let Some(host) = host {
            put(Buffer::HttpHost, uri::host(&host).to_ascii_lowercase());
            put(Buffer::HttpHostRaw, host);
        }
    }

    /// Returns names and values: lines of one name form one header at the first of them.
    fn joined(&self) -> Vec<(&[u8], Vec<u8>)> {
        let mut all: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for header in &self.headers {
            let same = |(name, _): &&mut (&[u8], _)| name.eq_ignore_ascii_case(&header.name);
            match all.iter_mut().find(same) {
                Some((.., value)) => value.extend([b", ", &header.value[..]].concat()),
                None => all.push((&header.name, header.value.clone())),
            }
        }
        all
    }

    /// Returns the values of a header.
    fn header(&self, wanted: &str) -> Option<Vec<u8>> {
        let mut all = self.joined().into_iter();
        all.find(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes())).map(|(_, value)| value)
    }

    /// Returns the body without its content codings, and whether all of them could be decoded.
    fn decoded(&self, body: &[u8]) -> (Vec<u8>, bool) {
        let Some(codings) = self.header("content-encoding") else { return (body.to_vec(), true) };
        let (mut bytes, mut understood) = (body.to_vec(), true);
        for coding in codings.split(|byte| *byte == b',').rev() {
            let mut out = Vec::new();
            let result = match &coding.trim_ascii().to_ascii_lowercase()[..] {
                b"gzip" | b"x-gzip" => flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut out),
                b"deflate" if flate2::read::ZlibDecoder::new(&bytes[..]).read(&mut [0]).is_ok() => {
                    flate2::read::ZlibDecoder::new(&bytes[..]).read_to_end(&mut out)
                }
                b"deflate" => flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut out),
                b"identity" | b"" => continue,
                _ => return (bytes, false),
            };
            understood &= result.is_ok();
            bytes = out;
            bytes.truncate(BODY_BYTES);
        }
        (bytes, understood)
    }
}
