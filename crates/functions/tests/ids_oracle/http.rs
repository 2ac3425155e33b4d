//! The buffers of HTTP messages. The crate `http` parts the stream; what the buffers hold is put together here.

use std::collections::BTreeMap;
use std::io::Read;

use http::{Event, Exchange, FixedLine, Side};
use rules::Buffer;

use super::buffer::Piece;

/// Bytes of a body that are looked at.
pub const BODY_BYTES: usize = 16 << 10;
/// Bytes of a head that are looked at.
const HEAD_BYTES: usize = 16 << 10;

/// Buffers by what they are; several where there may be.
pub type Buffers = BTreeMap<Buffer, Vec<Piece>>;

/// A time at which a message is looked at.
#[derive(Clone, Debug)]
pub struct Look {
    pub side: Side,
    /// Whether it is for rules that ask for a body.
    pub with_body: bool,
    pub buffers: Buffers,
    /// What the function does here is not said well enough: a head or a coding beyond what is understood.
    pub vague: bool,
}

/// The messages of a connection.
#[derive(Default)]
pub struct Messages {
    exchange: Exchange,
    lines: [Box<FixedLine<HEAD_BYTES>>; 2],
    open: [Option<Message>; 2],
}

#[derive(Clone, Debug, Default)]
struct Message {
    line: Vec<u8>,
    parts: Vec<(Buffer, Vec<u8>)>,
    target: Vec<u8>,
    /// The line as it came, name, value.
    headers: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
    head_ended: bool,
    body: Vec<u8>,
    body_looked_at: bool,
}

/// What happens to a direction.
pub enum Input<'a> {
    Bytes(&'a [u8]),
    Gap(u64),
    End,
    /// The stream may end here, or not.
    Reset,
}

impl Messages {
    /// What is to be looked at when this comes.
    pub fn take(&mut self, side: Side, input: Input<'_>) -> Vec<Look> {
        let mut looks = Vec::new();
        let (open, line) = (&mut self.open[side as usize], &mut *self.lines[side as usize]);
        let mut sink = |event: Event<'_>| take(side, event, open, &mut looks);
        match (input, side) {
            (Input::Bytes(bytes), Side::Request) => self.exchange.request(bytes, line, &mut sink),
            (Input::Bytes(bytes), Side::Response) => self.exchange.response(bytes, line, &mut sink),
            (Input::Gap(len), _) => self.exchange.gap(side, len, line, &mut sink),
            (Input::End, _) => self.exchange.end(side, line, &mut sink),
            (Input::Reset, _) => {
                let unseen = open.iter().filter(|message| message.head_ended && !message.body_looked_at);
                looks.extend(unseen.map(|message| message.look(side, true)));
            }
        }
        looks
    }

    /// What is to be looked at when the connection is gone.
    pub fn cut_short(&mut self) -> Vec<Look> {
        let sides = [Side::Request, Side::Response].into_iter().zip(&mut self.open);
        sides.filter_map(|(side, open)| open.take()?.end(side)).collect()
    }
}

fn take(side: Side, event: Event<'_>, open: &mut Option<Message>, looks: &mut Vec<Look>) {
    match event {
        Event::Request(line) => {
            let parts = [
                (Buffer::HttpMethod, line.name),
                (Buffer::HttpUriRaw, line.target),
                (Buffer::HttpProtocol, line.protocol),
                (Buffer::HttpRequestLine, line.raw),
            ];
            *open = Some(Message::new(line.raw, line.target, &parts));
        }
        Event::Response(line) => {
            let parts = [
                (Buffer::HttpProtocol, line.protocol),
                (Buffer::HttpStatusCode, line.code),
                (Buffer::HttpStatusMessage, line.reason),
                (Buffer::HttpResponseLine, line.raw),
            ];
            *open = Some(Message::new(line.raw, b"", &parts));
        }
        _ => {}
    }
    let Some(message) = open else { return };
    match event {
        Event::Header(header) => {
            let value = header.parts().collect::<Vec<_>>().join(&b' ');
            message.headers.push((header.raw.to_vec(), header.name.to_vec(), value));
        }
        Event::HeadersEnd(_) => {
            message.head_ended = true;
            looks.push(message.look(side, false));
        }
        Event::Body(bytes) => {
            message.body.extend_from_slice(bytes);
            if message.body.len() > BODY_BYTES {
                looks.extend(message.end(side));
            }
        }
        Event::End(_) => looks.extend(open.take().and_then(|mut message| message.end(side))),
        _ => {}
    }
}

impl Message {
    fn new(line: &[u8], target: &[u8], parts: &[(Buffer, &[u8])]) -> Message {
        let sent = parts.iter().filter(|(_, bytes)| !bytes.is_empty());
        Message {
            line: line.to_vec(),
            target: target.to_vec(),
            parts: sent.map(|(buffer, bytes)| (*buffer, bytes.to_vec())).collect(),
            ..Message::default()
        }
    }

    /// The one look at the body, if the head is complete.
    fn end(&mut self, side: Side) -> Option<Look> {
        let first = !std::mem::replace(&mut self.body_looked_at, true);
        (first && self.head_ended).then(|| self.look(side, true))
    }

    fn look(&self, side: Side, with_body: bool) -> Look {
        let mut all = Buffers::new();
        let mut put = |buffer: Buffer, bytes: Vec<u8>| all.entry(buffer).or_default().push(bytes.into());
        for (buffer, bytes) in &self.parts {
            put(*buffer, bytes.clone());
        }
        if side == Side::Request && !self.target.is_empty() {
            let mut room = vec![0; self.target.len()];
            put(Buffer::HttpUri, http::uri::normalise(&self.target, &mut room).unwrap().uri.to_vec());
        }
        self.put_headers(side, &mut put);
        let body = &self.body[..self.body.len().min(BODY_BYTES)];
        let (plain, understood) = self.decoded(body);
        if with_body && !body.is_empty() {
            let of_side = match side {
                Side::Request => Buffer::HttpRequestBody,
                Side::Response => Buffer::HttpResponseBody,
            };
            put(of_side, plain.clone());
            put(Buffer::FileData, plain);
        }
        let raw = self.headers.iter().flat_map(|header| header.0.clone());
        let mut payload = [&self.line[..], b"\r\n"].concat();
        payload.extend(raw);
        payload.extend(b"\r\n");
        let vague = payload.len() > HEAD_BYTES || with_body && !understood;
        if with_body {
            payload.extend(body);
        }
        put(Buffer::Payload, payload);
        Look { side, with_body, buffers: all, vague }
    }

    fn put_headers(&self, side: Side, put: &mut impl FnMut(Buffer, Vec<u8>)) {
        let is_cookie =
            |name: &[u8]| name.eq_ignore_ascii_case(b"cookie") || name.eq_ignore_ascii_case(b"set-cookie");
        let shown = |name: &[u8], value: &[u8]| [name, b": ", value].concat();
        let mut start = [&self.line[..], b"\r\n"].concat();
        let (mut plain, mut raw, mut names) = (Vec::new(), Vec::new(), b"\r\n".to_vec());
        for (line, name, value) in &self.headers {
            let each = [&shown(name, value)[..], b"\r\n"].concat();
            start.extend(&each);
            if !is_cookie(name) {
                plain.extend(&each);
            }
            raw.extend(line);
            names.extend([name, &b"\r\n"[..]].concat());
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
        if !self.headers.is_empty() {
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
        let authority = http::uri::split(&self.target).authority.map(<[u8]>::to_vec);
        if let Some(host) = authority.or_else(|| self.header("host")) {
            put(Buffer::HttpHost, http::uri::split_authority(&host).1.to_ascii_lowercase());
            put(Buffer::HttpHostRaw, host);
        }
    }

    /// The values of the headers of a name.
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        let same = self.headers.iter().filter(|header| header.1.eq_ignore_ascii_case(name.as_bytes()));
        let values: Vec<&[u8]> = same.map(|header| &header.2[..]).collect();
        (!values.is_empty()).then(|| values.join(&b", "[..]))
    }

    /// The body without its content codings, and whether all of them could be undone.
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
