//! HTTP conversations: each frame of the tape becomes the next segment of its flow.

use packet::checksum::{finish, sum};
use packet::parse::protocol;
use packet::{Packet, Side, split_mix};

/// Offsets in an Ethernet frame with IPv4 and TCP without options.
const ADDRESSES: usize = 26;
const PORTS: usize = 34;
const SEQUENCE: usize = 38;
const ACKNOWLEDGEMENT: usize = 42;
const CHECKSUM: usize = 50;
/// Offset of the payload.
pub const PAYLOAD: usize = 54;

/// Minimum number of segments of a response.
const RESPONSE_SEGMENTS: usize = 8;

/// Content of the conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// HTTP requests and responses padded with one character.
    Padding,
    /// Requests with a cookie and pages of text with links.
    Pages,
    /// Random bytes without a protocol.
    Noise,
}

/// The conversations of all flows, each at its own position: a request, a response, and so on, in
/// full segments.
pub struct Conversations {
    /// The client's segments, followed by the server's.
    text: Vec<u8>,
    /// Partial checksum of each segment's payload.
    sums: Vec<u32>,
    payload_len: usize,
    client_segments: u32,
    segments: u32,
    flows: Vec<Flow>,
}

/// Position of a flow.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Next segment.
    segment: u32,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl Conversations {
    /// Creates the conversations of this many flows, with `payload_len` bytes per segment.
    pub fn new(said: Content, flows: u32, payload_len: usize) -> Conversations {
        let payload_len = payload_len.max(1);
        let (request, response) = match said {
            Content::Padding => (request(payload_len, zeros), response(payload_len, zeros)),
            Content::Pages => (request(payload_len, hexadecimal), response(payload_len, page)),
            Content::Noise => (noise(payload_len, 1), noise(RESPONSE_SEGMENTS * payload_len, 2)),
        };
        let segments = |text: &[u8]| (text.len() / payload_len) as u32;
        let text = [&request[..], &response].concat();
        Conversations {
            payload_len,
            sums: text.chunks(payload_len).map(sum).collect(),
            client_segments: segments(&request),
            segments: segments(&request) + segments(&response),
            text,
            flows: vec![Flow::default(); flows as usize],
        }
    }

    /// Returns the minimum number of conversations that this many packets have completed. Each flow
    /// may have one in progress, and was opened with fewer packets than a conversation has.
    pub fn completed_at_least(&self, packets: u64) -> u64 {
        (packets / u64::from(self.segments)).saturating_sub(2 * self.flows.len() as u64)
    }

    /// Writes the next segment of its flow into the packet. The sequence number holds the number of
    /// the flow.
    #[inline]
    pub fn fill(&mut self, packet: &mut Packet) {
        let (data, meta) = packet.parts_mut();
        let Some(number) = word(data, SEQUENCE) else { return };
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let from_server = flow.segment >= self.client_segments;
        let from = usize::from(from_server);
        let start = flow.segment as usize * self.payload_len;
        let payload_sum = self.sums[flow.segment as usize];
        data[PAYLOAD..].copy_from_slice(&self.text[start..start + self.payload_len]);
        data[SEQUENCE..SEQUENCE + 4].copy_from_slice(&flow.next[from].to_be_bytes());
        data[ACKNOWLEDGEMENT..ACKNOWLEDGEMENT + 4].copy_from_slice(&flow.next[1 - from].to_be_bytes());
        flow.next[from] = flow.next[from].wrapping_add(self.payload_len as u32);
        flow.segment = (flow.segment + 1) % self.segments;
        meta.transit.side = if from_server { Side::Outside } else { Side::Inside };
        if from_server {
            data[ADDRESSES..PORTS].rotate_left(4);
            data[PORTS..SEQUENCE].rotate_left(2);
        }
        data[CHECKSUM..CHECKSUM + 2].fill(0);
        let pseudo_len = u32::from(protocol::TCP) + (data.len() - PORTS) as u32;
        let checksum = finish(pseudo_len + sum(&data[ADDRESSES..PAYLOAD]) + payload_sum);
        data[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

/// Returns a browser's request, padded by its cookie to fill its segments.
fn request(payload_len: usize, cookie: fn(usize) -> String) -> Vec<u8> {
    let head = "GET /wiki/Special:Search?search=network+functions&go=Go HTTP/1.1\r\n\
        Host: en.example.org\r\n\
        User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
        Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8\r\n\
        Accept-Language: en-US,en;q=0.5\r\n\
        Accept-Encoding: gzip, deflate, br\r\n\
        Referer: https://en.example.org/wiki/Main_Page\r\n\
        Connection: keep-alive\r\n\
        Cookie: session=";
    let end = "\r\n\r\n";
    let len = (head.len() + end.len()).next_multiple_of(payload_len);
    format!("{head}{}{end}", cookie(len - head.len() - end.len())).into_bytes()
}

/// Returns a server's response; the body fills its segments.
fn response(payload_len: usize, body: fn(usize) -> String) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\n\
        Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
        Server: Apache/2.4.57 (Debian)\r\n\
        ETag: \"2d-432a5e4a73a80\"\r\n\
        Cache-Control: max-age=3600\r\n\
        Content-Type: text/html; charset=utf-8\r\n\
        Content-Length: ";
    let rest = head.len() + "00000000\r\n\r\n".len();
    let len = rest.next_multiple_of(payload_len).max(RESPONSE_SEGMENTS * payload_len);
    let body_len = len - rest;
    format!("{head}{body_len:08}\r\n\r\n{}", body(body_len)).into_bytes()
}

fn zeros(len: usize) -> String {
    "0".repeat(len)
}

/// Returns random hexadecimal digits.
fn hexadecimal(len: usize) -> String {
    let mut state = 3;
    (0..len).map(|_| char::from(b"0123456789abcdef"[split_mix(&mut state) as usize % 16])).collect()
}

/// Returns a page of text with links.
fn page(len: usize) -> String {
    const WORDS: [&str; 24] = [
        "the", "network", "of", "packets", "and", "a", "function", "is", "to", "server", "in", "that",
        "router", "with", "flow", "for", "traffic", "on", "protocol", "as", "address", "by", "system",
        "which",
    ];
    let mut state = 4;
    let mut word = || WORDS[split_mix(&mut state) as usize % WORDS.len()];
    let mut text = String::from("<!DOCTYPE html>\n<html><head><title>Wiki</title></head><body>\n");
    while text.len() < len {
        text += &format!("<p>{} {} <a href=\"/wiki/{}_{}\">{}</a> ", word(), word(), word(), word(), word());
        (0..12).for_each(|_| text += &format!("{} ", word()));
        text += "</p>\n";
    }
    text.truncate(len);
    text
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len).map(|_| split_mix(&mut state) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fill_their_segments() {
        for payload_len in [1, 6, 536, 1460] {
            for text in [request(payload_len, hexadecimal), response(payload_len, page)] {
                assert_eq!(text.len() % payload_len, 0);
            }
            let text = String::from_utf8(response(payload_len, zeros)).unwrap_or_default();
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
            assert!(head.ends_with(&format!("Content-Length: {:08}", body.len())));
        }
    }
}
