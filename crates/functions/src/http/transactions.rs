//! Fields of pending requests, stored in the flow's buffers, in order.
//!
//! A buffer holds *items*: a tag, a two-byte length, and the bytes. A request begins with
//! [`NUMBER`], and its fields follow. The request whose response is in progress moves to a buffer
//! of its own, where the fields of the response are added.

use applayer::http::uri;
use nf::EventField;
use nf::EventValue::{Number, Text};
use nf::FlowBuffer;

/// Tag of an item that holds the request's number in the connection.
const NUMBER: u8 = 0;

/// Tag of an item that holds a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StoredField {
    /// The request's method.
    Method = 1,
    /// Its request target.
    Url,
    /// Its raw version; the response's if there is no request.
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

impl StoredField {
    /// Returns the maximum bytes stored.
    pub const fn len_max(self) -> usize {
        match self {
            StoredField::Protocol => 16,
            StoredField::Method => 64,
            StoredField::Host | StoredField::ContentType => 256,
            StoredField::Agent => 1_024,
            StoredField::Referer => 2_048,
            StoredField::Url => 4_096,
        }
    }

    /// Returns the bit in the set of fields that a request has.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Bytes before an item's content.
const HEAD_LEN: usize = 3;
/// Bytes of a request without any text.
const NUMBER_LEN: usize = HEAD_LEN + size_of::<u32>();

/// Begins a request; false if it does not fit.
pub fn begin(queue: &mut FlowBuffer, number: u32) -> bool {
    if room(queue) < NUMBER_LEN {
        return false;
    }
    push(queue, NUMBER, &number.to_le_bytes());
    true
}

/// Adds a text to the newest request; false if it was truncated.
pub fn add(buffer: &mut FlowBuffer, item: StoredField, text: &[u8]) -> bool {
    let Some(room) = room(buffer).checked_sub(HEAD_LEN) else { return false };
    let kept = &text[..text.len().min(item.len_max()).min(room)];
    push(buffer, item as u8, kept);
    kept.len() == text.len()
}

/// Returns the oldest request: its number, and all its items.
pub fn oldest(queue: &[u8]) -> Option<(u32, &[u8])> {
    let mut all = StoredFields(queue);
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

/// The response to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseFields {
    /// The status; 0 if there is none.
    pub status: u16,
    /// Bytes of the response's body.
    pub length: u64,
}

/// Maximum fields of a transaction.
const FIELDS_MAX: usize = 10;

/// The fields of a transaction, with EVE's names.
pub struct TransactionFields<'a> {
    fields: [EventField<'a>; FIELDS_MAX],
    len: usize,
}

impl<'a> TransactionFields<'a> {
    /// Reads the items of a request, and adds its response if there is one.
    pub fn new(items: &'a [u8], answer: Option<ResponseFields>) -> TransactionFields<'a> {
        let find =
            |item: StoredField| StoredFields(items).find(|&(tag, _)| tag == item as u8).map(|(_, text)| text);
        let mut all = TransactionFields { fields: [("", Number(0)); FIELDS_MAX], len: 0 };
        let url = find(StoredField::Url);
        // RFC 9112 3.2.2: an authority in the target overrides Host.
        let (host, port) = match url.and_then(|url| uri::split(url).host()) {
            Some((host, port)) => (Some(host), port),
            None => find(StoredField::Host).map_or((None, None), |host| {
                let (_, host, port) = uri::split_authority(host);
                (Some(host), port)
            }),
        };
        all.text("hostname", host);
        if let Some(port) = port.and_then(|port| std::str::from_utf8(port).ok()?.parse::<u16>().ok()) {
            all.add("http_port", Number(port.into()));
        }
        all.text("url", url);
        all.text("http_user_agent", find(StoredField::Agent));
        all.text("http_content_type", find(StoredField::ContentType));
        all.text("http_refer", find(StoredField::Referer));
        all.text("http_method", find(StoredField::Method));
        all.text("protocol", find(StoredField::Protocol));
        if let Some(ResponseFields { status, length }) = answer {
            if status != 0 {
                all.add("status", Number(status.into()));
            }
            all.add("length", Number(length));
        }
        all
    }

    /// Returns the fields.
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

/// Appends an item that fits.
fn push(buffer: &mut FlowBuffer, tag: u8, bytes: &[u8]) {
    let [low, high] = (bytes.len() as u16).to_le_bytes();
    buffer.push(&[tag, low, high]);
    buffer.push(bytes);
}

/// An iterator over the items of a buffer, up to the first invalid one.
struct StoredFields<'a>(&'a [u8]);

impl<'a> Iterator for StoredFields<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, low, high], rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        self.0 = rest;
        Some((tag, bytes))
    }
}
