//! What is kept of requests until they are answered: in growing buffers of the flow, in their
//! order.
//!
//! A buffer holds *items*: a tag, a length of two bytes, so many bytes. A request begins with
//! [`NUMBER`]; what was found of it follows. The request that is being answered has moved to a
//! buffer of its own, where the response adds to it.

use applayer::http::uri;
use nf::EventField;
use nf::EventValue::{Number, Text};
use nf::FlowBuffer;

/// What an item is: the number of its request in the connection, ...
const NUMBER: u8 = 0;

/// ... or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Item {
    /// The request's method.
    Method = 1,
    /// Its target.
    Url,
    /// Its version, as it came; the response's where there is no request.
    Protocol,
    /// The header Host.
    Host,
    /// The header User-Agent.
    Agent,
    /// The header Referer.
    Referer,
    /// The response's Content-Type.
    ContentType,
}

impl Item {
    /// Bytes of it that are kept.
    pub const fn len_max(self) -> usize {
        match self {
            Item::Protocol => 16,
            Item::Method => 64,
            Item::Host | Item::ContentType => 256,
            Item::Agent => 1_024,
            Item::Referer => 2_048,
            Item::Url => 4_096,
        }
    }

    /// Its bit among those that a request has already.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Bytes before an item's own.
const HEAD_LEN: usize = 3;
/// Bytes that a request takes without any text.
const NUMBER_LEN: usize = HEAD_LEN + size_of::<u32>();

/// Begins a request; false if there is no room.
pub fn begin(queue: &mut FlowBuffer, number: u32) -> bool {
    if room(queue) < NUMBER_LEN {
        return false;
    }
    push(queue, NUMBER, &number.to_le_bytes());
    true
}

/// Adds a text to the newest request; false if it had to be cut.
pub fn add(buffer: &mut FlowBuffer, item: Item, text: &[u8]) -> bool {
    let Some(room) = room(buffer).checked_sub(HEAD_LEN) else { return false };
    let kept = &text[..text.len().min(item.len_max()).min(room)];
    push(buffer, item as u8, kept);
    kept.len() == text.len()
}

/// The oldest request: its number, and its items, that too.
pub fn oldest(queue: &[u8]) -> Option<(u32, &[u8])> {
    let mut all = Items(queue);
    let (tag, bytes) = all.next()?;
    let number = u32::from_le_bytes(*bytes.first_chunk().filter(|_| tag == NUMBER)?);
    let mut behind = all.0;
    while let Some((tag, _)) = all.next() {
        if tag == NUMBER {
            break;
        }
        behind = all.0;
    }
    Some((number, &queue[..queue.len() - behind.len()]))
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// The status; 0 if the response has none.
    pub status: u16,
    /// Bytes of the response's body.
    pub length: u64,
}

/// Fields at most.
const FIELDS_MAX: usize = 10;

/// A transaction's fields, with the names that EVE has for them.
pub struct Fields<'a> {
    fields: [EventField<'a>; FIELDS_MAX],
    len: usize,
}

impl<'a> Fields<'a> {
    /// Those of a request with these items, and its answer if it had one.
    pub fn new(items: &'a [u8], answer: Option<Answer>) -> Fields<'a> {
        let find = |item: Item| Items(items).find(|&(tag, _)| tag == item as u8).map(|(_, text)| text);
        let mut all = Fields { fields: [("", Number(0)); FIELDS_MAX], len: 0 };
        let url = find(Item::Url);
        // RFC 9112 3.2.2: a target's own authority counts.
        let (host, port) = match url.and_then(|url| uri::split(url).host()) {
            Some((host, port)) => (Some(host), port),
            None => find(Item::Host).map_or((None, None), |host| {
                let (_, host, port) = uri::split_authority(host);
                (Some(host), port)
            }),
        };
        all.text("hostname", host);
        if let Some(port) = port.and_then(|port| std::str::from_utf8(port).ok()?.parse::<u16>().ok()) {
            all.add("http_port", Number(port.into()));
        }
        all.text("url", url);
        all.text("http_user_agent", find(Item::Agent));
        all.text("http_content_type", find(Item::ContentType));
        all.text("http_refer", find(Item::Referer));
        all.text("http_method", find(Item::Method));
        all.text("protocol", find(Item::Protocol));
        if let Some(Answer { status, length }) = answer {
            if status != 0 {
                all.add("status", Number(status.into()));
            }
            all.add("length", Number(length));
        }
        all
    }

    /// The fields.
    pub fn as_slice(&self) -> &[EventField<'a>] {
        &self.fields[..self.len]
    }

    fn text(&mut self, name: &'static str, text: Option<&'a [u8]>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.add(name, Text(text));
        }
    }

    fn add(&mut self, name: &'static str, value: nf::EventValue<'a>) {
        if let Some(field) = self.fields.get_mut(self.len) {
            *field = (name, value);
            self.len += 1;
        }
    }
}

fn room(buffer: &FlowBuffer) -> usize {
    buffer.capacity().saturating_sub(buffer.as_slice().len())
}

/// Appends an item, for which there is room.
fn push(buffer: &mut FlowBuffer, tag: u8, bytes: &[u8]) {
    let [low, high] = (bytes.len() as u16).to_le_bytes();
    buffer.push(&[tag, low, high]);
    buffer.push(bytes);
}

/// The items of a buffer. What is no item ends them.
struct Items<'a>(&'a [u8]);

impl<'a> Iterator for Items<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, low, high], rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        self.0 = rest;
        Some((tag, bytes))
    }
}
