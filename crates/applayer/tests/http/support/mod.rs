//! A connection whose events are written down as text.
#![allow(dead_code, reason = "each test uses a part")]

use applayer::http::{Event, Exchange, FixedLine, Header, Side};

/// Longest line of the tests' connections, in bytes.
pub const LINE: usize = 256;

/// A connection and what was told of each direction.
#[derive(Default)]
pub struct Connection {
    pub exchange: Exchange,
    pub lines: [FixedLine<LINE>; 2],
    pub told: [Vec<String>; 2],
}

impl Connection {
    pub fn take(&mut self, side: Side, bytes: &[u8]) {
        let at = side as usize;
        let told = &mut self.told[at];
        let mut sink = |event: Event<'_>| note(told, event);
        match side {
            Side::Request => self.exchange.request(bytes, &mut self.lines[at], &mut sink),
            Side::Response => self.exchange.response(bytes, &mut self.lines[at], &mut sink),
        }
    }

    pub fn request(&mut self, text: &str) -> &mut Self {
        self.take(Side::Request, text.as_bytes());
        self
    }

    pub fn response(&mut self, text: &str) -> &mut Self {
        self.take(Side::Response, text.as_bytes());
        self
    }

    pub fn gap(&mut self, side: Side, len: u64) -> &mut Self {
        let told = &mut self.told[side as usize];
        self.exchange
            .gap(side, len, &mut self.lines[side as usize], &mut |event: Event<'_>| note(told, event));
        self
    }

    pub fn end(&mut self, side: Side) -> &mut Self {
        let told = &mut self.told[side as usize];
        self.exchange.end(side, &mut self.lines[side as usize], &mut |event: Event<'_>| note(told, event));
        self
    }

    /// What was told of a direction, a line an event; forgets it.
    pub fn told(&mut self, side: Side) -> String {
        std::mem::take(&mut self.told[side as usize]).join("\n")
    }
}

/// Writes an event down; pieces of one kind are put together, so that cuts do not show.
fn note(told: &mut Vec<String>, event: Event<'_>) {
    let line = show(event);
    for kind in ["body ", "opaque ", "skipped "] {
        if let Some(more) = line.strip_prefix(kind)
            && let Some(last) = told.last_mut().filter(|last| last.starts_with(kind))
        {
            return last.push_str(more);
        }
    }
    told.push(line);
}

pub fn show(event: Event<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let header = |h: Header<'_>| {
        let value = h.parts().map(text).collect::<Vec<_>>().join(" ");
        format!("{}: {value}{}", text(h.name), if h.folded { " (folded)" } else { "" })
    };
    match event {
        Event::Request(r) => {
            format!(
                "request {} {} {} {:?} #{}",
                text(r.name),
                text(r.target),
                text(r.protocol),
                r.method,
                r.number
            )
        }
        Event::Response(r) => {
            let interim = if r.interim { " interim" } else { "" };
            let answers = r.answers.map_or("nothing".to_owned(), |number| format!("#{number}"));
            let shown = format!("{} {} {}", text(r.protocol), r.status, text(r.reason));
            format!("response {shown} to {answers}{interim}")
        }
        Event::Header(h) => format!("header {}", header(h)),
        Event::HeadersEnd(framing) => format!("framing {framing:?}"),
        Event::Body(bytes) => format!("body {}", text(bytes)),
        Event::ChunkExtension(bytes) => format!("extension {}", text(bytes)),
        Event::Trailer(h) => format!("trailer {}", header(h)),
        Event::End(end) => format!("end {end:?}"),
        Event::Switched(protocol) => format!("switched {protocol:?}"),
        Event::Opaque(bytes) => format!("opaque {}", text(bytes)),
        Event::Skipped(bytes) => format!("skipped {}", text(bytes)),
        Event::Gap(len) => format!("gap {len}"),
        Event::Resynchronised => "resynchronised".to_owned(),
        Event::Anomaly(anomaly) => format!("! {}", anomaly.name()),
    }
}
