//! A conversation of two hosts, and its packets.

use std::net::Ipv4Addr;

use packet::LinkType;

use crate::ids_oracle::witness::Frame;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// Maximum payload of a packet.
const SEGMENT_BYTES: usize = 1400;
/// Time between two packets.
const GAP_NS: u64 = 100_000;
/// The initial sequence numbers of client and server.
const INITIAL: [u32; 2] = [1_000, 9_000];

/// The sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talker {
    Client,
    Server,
}

/// The transport of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A connection from its handshake to its end.
    Tcp,
    /// TCP packets, one for each turn, without a connection.
    Segments,
    Udp,
    /// With this type and code.
    Icmp(u8, u8),
    /// Of any other protocol.
    Other(u8),
}

/// A turn of a conversation.
#[derive(Clone, Debug)]
pub struct Turn {
    pub from: Talker,
    pub bytes: Vec<u8>,
    /// True for the bytes that the rule matches.
    pub is_planted: bool,
}

/// Header fields of planted packets.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    pub ttl: u8,
    pub tos: u8,
    pub ip_id: u16,
    /// The upper three bits of the fragment field.
    pub fragment_bits: u8,
    pub flags: Option<u8>,
    pub window: u16,
    pub sequence: Option<u32>,
    pub acknowledgement: Option<u32>,
    pub icmp_id: u16,
    pub icmp_sequence: u16,
}

impl Default for Fields {
    fn default() -> Fields {
        Fields {
            ttl: 64,
            tos: 0,
            ip_id: 7,
            fragment_bits: 2,
            flags: None,
            window: 0x2000,
            sequence: None,
            acknowledgement: None,
            icmp_id: 77,
            icmp_sequence: 1,
        }
    }
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub kind: Kind,
    pub client: (Ipv4Addr, u16),
    pub server: (Ipv4Addr, u16),
    pub turns: Vec<Turn>,
    pub fields: Fields,
}

/// A segmentation of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// Each turn in as few packets as possible.
    Whole,
    /// Each planted turn split once, after this many bytes.
    At(usize),
    /// Each planted turn in parts of this size.
    Cut(usize),
    /// Planted turns in parts of this size, the last one first.
    Backwards(usize),
    /// Parts of this size, each beginning with the last bytes of the previous one.
    Overlapping(usize),
    /// Parts of this size, each twice.
    Twice(usize),
}

impl Conversation {
    /// Returns the streams of client and server; `None` without a connection, or if header fields
    /// make it another one.
    pub fn said(&self) -> Option<[Vec<u8>; 2]> {
        let Fields { flags, sequence, acknowledgement, .. } = self.fields;
        if self.kind != Kind::Tcp || flags.is_some() || sequence.is_some() || acknowledgement.is_some() {
            return None;
        }
        let of = |from: Talker| self.turns.iter().filter(move |turn| turn.from == from);
        Some(
            [Talker::Client, Talker::Server]
                .map(|from| of(from).flat_map(|turn| turn.bytes.clone()).collect()),
        )
    }

    /// Returns the frames, the first one at this time.
    pub fn frames(&self, rendering: Rendering, at_ns: u64) -> Vec<Frame> {
        let mut sender = Sender { of: self, at_ns, sent: INITIAL, frames: Vec::new() };
        match self.kind {
            Kind::Tcp => sender.connection(rendering),
            _ => self.turns.iter().for_each(|turn| sender.datagram(turn)),
        }
        sender.frames
    }
}

struct Sender<'a> {
    of: &'a Conversation,
    at_ns: u64,
    /// The next sequence number of each side.
    sent: [u32; 2],
    frames: Vec<Frame>,
}

impl Sender<'_> {
    fn connection(&mut self, rendering: Rendering) {
        let fields = Fields::default();
        self.segment(Talker::Client, SYN, 0, &[], fields);
        self.sent[0] += 1;
        self.segment(Talker::Server, SYN | ACK, 0, &[], fields);
        self.sent[1] += 1;
        self.segment(Talker::Client, ACK, 0, &[], fields);
        for turn in &self.of.turns {
            let fields = if turn.is_planted { self.of.fields } else { fields };
            for (from, until) in parts(turn, rendering) {
                self.segment(turn.from, PSH | ACK, from, &turn.bytes[from..until], fields);
            }
            self.sent[turn.from as usize] += turn.bytes.len() as u32;
            self.segment(other(turn.from), ACK, 0, &[], Fields::default());
        }
        for from in [Talker::Client, Talker::Server] {
            self.segment(from, FIN | ACK, 0, &[], Fields::default());
            self.sent[from as usize] += 1;
        }
        self.segment(Talker::Client, ACK, 0, &[], Fields::default());
    }

    /// Sends a segment that begins this many bytes before the end of the sent bytes.
    fn segment(&mut self, from: Talker, flags: u8, behind: usize, payload: &[u8], fields: Fields) {
        let (own, its) = (self.sent[from as usize], self.sent[1 - from as usize]);
        let sequence = fields.sequence.unwrap_or(own.wrapping_add(behind as u32));
        let acknowledged = if flags & ACK == 0 { 0 } else { its };
        let acknowledged = fields.acknowledgement.unwrap_or(acknowledged);
        let (source, destination) = self.ports(from);
        let mut body = Vec::new();
        body.extend(source.to_be_bytes());
        body.extend(destination.to_be_bytes());
        body.extend(sequence.to_be_bytes());
        body.extend(acknowledged.to_be_bytes());
        body.extend([0x50, fields.flags.unwrap_or(flags)]);
        body.extend(fields.window.to_be_bytes());
        body.extend([0, 0, 0, 0]);
        body.extend(payload);
        self.send(from, 6, body, Some(16), fields);
    }

    fn datagram(&mut self, turn: &Turn) {
        let fields = if turn.is_planted { self.of.fields } else { Fields::default() };
        let (source, destination) = self.ports(turn.from);
        match self.of.kind {
            Kind::Tcp | Kind::Segments => self.segment(turn.from, PSH | ACK, 0, &turn.bytes, fields),
            Kind::Udp => {
                let mut body = Vec::new();
                body.extend(source.to_be_bytes());
                body.extend(destination.to_be_bytes());
                body.extend((8 + turn.bytes.len() as u16).to_be_bytes());
                body.extend([0, 0]);
                body.extend(&turn.bytes);
                self.send(turn.from, 17, body, Some(6), fields);
            }
            Kind::Icmp(kind, code) => {
                let mut body = vec![kind, code, 0, 0];
                body.extend(fields.icmp_id.to_be_bytes());
                body.extend(fields.icmp_sequence.to_be_bytes());
                body.extend(&turn.bytes);
                let sum = checksum(&body);
                body[2..4].copy_from_slice(&sum.to_be_bytes());
                self.send(turn.from, 1, body, None, fields);
            }
            Kind::Other(protocol) => self.send(turn.from, protocol, turn.bytes.clone(), None, fields),
        }
    }

    /// Sends an IP packet; the transport checksum, with the pseudo-header, is at `sum_at`.
    fn send(&mut self, from: Talker, protocol: u8, mut body: Vec<u8>, sum_at: Option<usize>, fields: Fields) {
        let (source, destination) = match from {
            Talker::Client => (self.of.client.0, self.of.server.0),
            Talker::Server => (self.of.server.0, self.of.client.0),
        };
        if let Some(at) = sum_at {
            let mut all = [source.octets(), destination.octets()].concat();
            all.extend([0, protocol]);
            all.extend((body.len() as u16).to_be_bytes());
            all.extend(&body);
            let sum = checksum(&all);
            body[at..at + 2].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
        }
        let mut header = vec![0x45, fields.tos];
        header.extend((20 + body.len() as u16).to_be_bytes());
        header.extend(fields.ip_id.to_be_bytes());
        header.extend([fields.fragment_bits << 5, 0, fields.ttl, protocol, 0, 0]);
        header.extend(source.octets());
        header.extend(destination.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let bytes = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &header, &body].concat();
        let (link, wire_len) = (LinkType::Ethernet, bytes.len() as u32);
        self.frames.push(Frame { time_ns: self.at_ns, link, wire_len, bytes });
        self.at_ns += GAP_NS;
    }

    fn ports(&self, from: Talker) -> (u16, u16) {
        match from {
            Talker::Client => (self.of.client.1, self.of.server.1),
            Talker::Server => (self.of.server.1, self.of.client.1),
        }
    }
}

fn other(from: Talker) -> Talker {
    match from {
        Talker::Client => Talker::Server,
        Talker::Server => Talker::Client,
    }
}

/// Returns the ranges of a turn's packets, in order of sending.
fn parts(turn: &Turn, rendering: Rendering) -> Vec<(usize, usize)> {
    let len = turn.bytes.len();
    let cut = |size: usize| cut_of(len, size).collect::<Vec<_>>();
    match rendering {
        _ if !turn.is_planted => cut(SEGMENT_BYTES),
        Rendering::Whole => cut(SEGMENT_BYTES),
        Rendering::At(at) => {
            let at = at.min(len);
            let behind = |(from, until)| (at + from, at + until);
            cut_of(at, SEGMENT_BYTES).chain(cut_of(len - at, SEGMENT_BYTES).map(behind)).collect()
        }
        Rendering::Cut(size) => cut(size),
        Rendering::Backwards(size) => cut(size).into_iter().rev().collect(),
        Rendering::Overlapping(size) => {
            cut(size).into_iter().map(|(from, until)| (from.saturating_sub(3), until)).collect()
        }
        Rendering::Twice(size) => cut(size).into_iter().flat_map(|part| [part, part]).collect(),
    }
}

/// Splits `len` bytes into ranges of `size`.
fn cut_of(len: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    let size = size.clamp(1, SEGMENT_BYTES);
    (0..len).step_by(size).map(move |from| (from, len.min(from + size)))
}

/// Returns the checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
