//! Requests and responses with buffers that match a rule.

use signatures::{Buffer, FlowDirection, Rule};

use super::conversation::{Talker, Turn};
use super::fill::{self, Ground};
use super::random::Random;

/// A request that no rule matches.
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Headers that have their own buffers.
const OWN: [(Buffer, &str); 12] = [
    (Buffer::HttpHost, "Host"),
    (Buffer::HttpHostRaw, "Host"),
    (Buffer::HttpUserAgent, "User-Agent"),
    (Buffer::HttpAccept, "Accept"),
    (Buffer::HttpAcceptEncoding, "Accept-Encoding"),
    (Buffer::HttpAcceptLanguage, "Accept-Language"),
    (Buffer::HttpConnection, "Connection"),
    (Buffer::HttpContentType, "Content-Type"),
    (Buffer::HttpLocation, "Location"),
    (Buffer::HttpReferer, "Referer"),
    (Buffer::HttpServer, "Server"),
    (Buffer::HttpCookie, ""),
];

/// Returns the turns of a connection for a rule with HTTP buffers; `variant` selects a layout.
pub fn turns(rule: &Rule, variant: usize, random: &mut Random) -> Option<Vec<Turn>> {
    let is_response = match rule.flow.direction {
        Some(way) => way == FlowDirection::ToClient,
        None => rule.buffers.iter().any(|b| {
            matches!(b.buffer, Buffer::HttpStatusCode | Buffer::HttpStatusMessage | Buffer::HttpResponseBody)
        }),
    };
    let mut message = Message { rule, random, variant, headers: Vec::new(), body: Vec::new() };
    message.put_body()?;
    message.put_headers(is_response)?;
    let line = if is_response { message.status_line()? } else { message.request_line()? };
    let planted = message.finish(line);
    let turn = |from, bytes, is_planted| Turn { from, bytes, is_planted };
    Some(match is_response {
        false => vec![turn(Talker::Client, planted, true)],
        true => vec![turn(Talker::Client, REQUEST.to_vec(), false), turn(Talker::Server, planted, true)],
    })
}

struct Message<'a> {
    rule: &'a Rule,
    random: &'a mut Random,
    variant: usize,
    headers: Vec<Vec<u8>>,
    body: Vec<u8>,
}

impl Message<'_> {
    /// Returns bytes for a buffer; `Some(None)` if it is not tested, `None` if no bytes match.
    fn fill(&mut self, buffer: Buffer, ground: &Ground) -> Option<Option<Vec<u8>>> {
        match self.rule.buffers.iter().find(|asked| asked.buffer == buffer) {
            None => Some(None),
            Some(asked) => fill::bytes(asked, ground, self.random).map(Some),
        }
    }

    fn plain(&mut self, buffer: Buffer) -> Option<Option<Vec<u8>>> {
        self.fill(buffer, &Ground::default())
    }

    fn request_line(&mut self) -> Option<Vec<u8>> {
        if let Some(line) = self.plain(Buffer::HttpRequestLine)? {
            return Some(line);
        }
        let default: &[u8] = if self.body.is_empty() { b"GET" } else { b"POST" };
        let asked = self.plain(Buffer::HttpMethod)?;
        let mut method = asked.filter(|method| !method.is_empty()).unwrap_or(default.to_vec());
        if self.variant.is_multiple_of(2) {
            method.make_ascii_uppercase(); // As servers know it.
        }
        let hard = [&b"/"[..], b"", b"/q?"][self.variant % 3].to_vec();
        let ground = Ground { hard, ..Ground::default() };
        let uri = self.fill(Buffer::HttpUri, &ground)?.map(|uri| escaped(&uri));
        let raw = self.fill(Buffer::HttpUriRaw, &ground)?;
        // One target may match both tests; otherwise each has its part.
        let target = match (raw, uri) {
            (Some(raw), Some(uri)) => Some(match self.variant / 3 % 4 {
                0 => raw,
                1 => uri,
                2 => [raw, uri].concat(),
                _ => [uri, raw].concat(),
            }),
            (raw, uri) => raw.or(uri),
        };
        let target = target.filter(|target| !target.is_empty()).unwrap_or(b"/".to_vec());
        let version = self.plain(Buffer::HttpProtocol)?.unwrap_or(b"HTTP/1.1".to_vec());
        Some([method, target, version].join(&b' '))
    }

    fn status_line(&mut self) -> Option<Vec<u8>> {
        let version = self.plain(Buffer::HttpProtocol)?.unwrap_or(b"HTTP/1.1".to_vec());
        let code = self.plain(Buffer::HttpStatusCode)?.filter(|code| !code.is_empty());
        let reason = self.plain(Buffer::HttpStatusMessage)?.unwrap_or(b"OK".to_vec());
        Some([version, code.unwrap_or(b"200".to_vec()), reason].join(&b' '))
    }

    fn put_body(&mut self) -> Option<()> {
        for buffer in [Buffer::HttpRequestBody, Buffer::HttpResponseBody, Buffer::FileData] {
            let ground = Ground { soft: b"q".to_vec(), ..Ground::default() };
            if let Some(part) = self.fill(buffer, &ground)? {
                self.body.extend(part);
            }
        }
        Some(())
    }

    fn put_headers(&mut self, is_response: bool) -> Option<()> {
        for buffer in [Buffer::HttpHeader, Buffer::HttpHeaderRaw] {
            let soft = if self.variant % 4 == 1 { b"X-P: ".to_vec() } else { Vec::new() };
            let Some(text) = self.fill(buffer, &Ground { soft, ..Ground::default() })? else { continue };
            if text.starts_with(b"\r\n") {
                self.headers.push(b"X-A: q".to_vec());
            }
            for mut line in lines(&text) {
                if line.eq_ignore_ascii_case(b"Content-Length: ") {
                    line.extend(self.body.len().to_string().into_bytes());
                } else if line.ends_with(b" ") {
                    line.push(b'q');
                }
                self.headers.push(match (is_header(&line), self.variant % 4 >= 2) {
                    (true, _) => line,
                    (false, true) => [&line[..], b": q"].concat(),
                    (false, false) => [b"X-P: ", &line[..]].concat(),
                });
            }
        }
        for (buffer, name) in OWN {
            let name = match (buffer, is_response) {
                (Buffer::HttpCookie, false) => "Cookie",
                (Buffer::HttpCookie, true) => "Set-Cookie",
                _ => name,
            };
            // Blanks at either end are not part of a value.
            let hard = if self.variant % 2 == 1 { b"q".to_vec() } else { Vec::new() };
            if let Some(value) = self.fill(buffer, &Ground { hard, ..Ground::default() })?
                && !self.has(name)
            {
                let end: &[u8] = if value.is_empty() || value.ends_with(b" ") { b"q" } else { b"" };
                self.headers.push([name.as_bytes(), b": ", &value, end].concat());
            }
        }
        if let Some(names) = self.plain(Buffer::HttpHeaderNames)? {
            for name in lines(&names).into_iter().rev() {
                let here = self.headers.iter().position(|line| {
                    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(&name))
                });
                let line = match here {
                    Some(at) => self.headers.remove(at),
                    None => [&name[..], b": q"].concat(),
                };
                self.headers.insert(0, line);
            }
        }
        if let Some(text) = self.plain(Buffer::Payload)? {
            match self.body.is_empty() {
                true => self.headers.push([b"X-Q: ", &text[..]].concat()),
                false => self.body.extend(text),
            }
        }
        if !is_response && !self.has("Host") && self.variant % 8 < 6 {
            self.headers.insert(0, b"Host: a.example".to_vec());
        }
        Some(())
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|line| {
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
                && line.get(name.len()) == Some(&b':')
        })
    }

    fn finish(mut self, line: Vec<u8>) -> Vec<u8> {
        if !self.has("Content-Length") && (!self.body.is_empty() || line.starts_with(b"HTTP/")) {
            self.headers.push(format!("Content-Length: {}", self.body.len()).into_bytes());
        }
        let mut out = line;
        out.extend(b"\r\n");
        for header in self.headers {
            out.extend(header);
            out.extend(b"\r\n");
        }
        out.extend(b"\r\n");
        out.extend(self.body);
        out
    }
}

/// Returns the nonempty lines of a text.
fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

fn is_header(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    name.len() < line.len() && !name.is_empty() && !name.contains(&b' ')
}

/// Returns a target with this normal form.
fn escaped(uri: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'%' | ..=b' ' | 0x7f.. => format!("%{byte:02X}").into_bytes(),
        _ => vec![*byte],
    };
    uri.iter().flat_map(escape).collect()
}
