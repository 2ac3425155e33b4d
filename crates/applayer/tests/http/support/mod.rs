//! A connection that records its events as text.
#![allow(dead_code, reason = "each test uses a part")]

use applayer::http::{Exchange, ExchangeSide, FixedLineBuffer, HeaderLine, HttpEvent};

/// Maximum line length of the tests' connections, in bytes.
pub const LINE: usize = 256;

/// A connection, and the recorded events of each direction.
#[derive(Default)]
pub struct Connection {
    pub exchange: Exchange,
    pub lines: [FixedLineBuffer<LINE>; 2],
    pub reported: [Vec<String>; 2],
}

impl Connection {
    pub fn take(&mut self, side: ExchangeSide, bytes: &[u8]) {
        let at = side as usize;
        let reported = &mut self.reported[at];
        let mut sink = |event: HttpEvent<'_>| note(reported, event);
        match side {
            ExchangeSide::Request => self.exchange.request(bytes, &mut self.lines[at], &mut sink),
            ExchangeSide::Response => self.exchange.response(bytes, &mut self.lines[at], &mut sink),
        }
    }

    pub fn request(&mut self, text: &str) -> &mut Self {
        self.take(ExchangeSide::Request, text.as_bytes());
        self
    }

    pub fn response(&mut self, text: &str) -> &mut Self {
        self.take(ExchangeSide::Response, text.as_bytes());
        self
    }

    pub fn gap(&mut self, side: ExchangeSide, len: u64) -> &mut Self {
        let reported = &mut self.reported[side as usize];
        self.exchange.gap(side, len, &mut self.lines[side as usize], &mut |event: HttpEvent<'_>| {
            note(reported, event)
        });
        self
    }

    pub fn end(&mut self, side: ExchangeSide) -> &mut Self {
        let reported = &mut self.reported[side as usize];
        self.exchange
            .end(side, &mut self.lines[side as usize], &mut |event: HttpEvent<'_>| note(reported, event));
        self
    }

    /// Takes the recorded events of a direction, one per line.
    pub fn reported(&mut self, side: ExchangeSide) -> String {
        std::mem::take(&mut self.reported[side as usize]).join("\n")
    }
}

/// Records an event. Consecutive pieces of one kind are joined, so segmentation does not show.
fn note(reported: &mut Vec<String>, event: HttpEvent<'_>) {
    let line = show(event);
    for kind in ["body ", "opaque ", "skipped "] {
        if let Some(more) = line.strip_prefix(kind)
            && let Some(last) = reported.last_mut().filter(|last| last.starts_with(kind))
        {
            return last.push_str(more);
        }
    }
    reported.push(line);
}

pub fn show(event: HttpEvent<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let header = |h: HeaderLine<'_>| {
        let value = h.parts().map(text).collect::<Vec<_>>().join(" ");
        format!("{}: {value}{}", text(h.name), if h.folded { " (folded)" } else { "" })
    };
    match event {
        HttpEvent::Request(r) => {
            format!(
                "request {} {} {} {:?} #{}",
                text(r.name),
                text(r.target),
                text(r.protocol),
                r.method,
                r.number
            )
        }
        HttpEvent::Response(r) => {
            let interim = if r.interim { " interim" } else { "" };
            let answers = r.answers.map_or("nothing".to_owned(), |number| format!("#{number}"));
            let shown = format!("{} {} {}", text(r.protocol), r.status, text(r.reason));
            format!("response {shown} to {answers}{interim}")
        }
        HttpEvent::Header(h) => format!("header {}", header(h)),
        HttpEvent::HeadersEnd(framing) => format!("framing {framing:?}"),
        HttpEvent::Body(bytes) => format!("body {}", text(bytes)),
        HttpEvent::ChunkExtension(bytes) => format!("extension {}", text(bytes)),
        HttpEvent::Trailer(h) => format!("trailer {}", header(h)),
        HttpEvent::End(end) => format!("end {end:?}"),
        HttpEvent::Switched(protocol) => format!("switched {protocol:?}"),
        HttpEvent::Opaque(bytes) => format!("opaque {}", text(bytes)),
        HttpEvent::Skipped(bytes) => format!("skipped {}", text(bytes)),
        HttpEvent::Gap(len) => format!("gap {len}"),
        HttpEvent::Resynchronised => "resynchronised".to_owned(),
        HttpEvent::Anomaly(anomaly) => format!("! {}", anomaly.name()),
    }
}
