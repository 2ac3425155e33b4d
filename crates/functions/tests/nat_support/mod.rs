//! A graph with a NAT, packets to send through it, and a parser of its own for the output. It uses
//! none of the parsing, rewriting or checksum code under test.
#![allow(dead_code)] // Each test file uses a part of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;

use functions::nat::Nat;
use graph::{Graph, Options};
use nf::{Alert, LinkAddresses, Setup, stage};
use packet::{DropReason, LinkType, Packet, PacketPool, Side};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;
pub const SECOND: u64 = 1_000_000_000;

pub type End = (Ipv4Addr, u16);

/// Parses an endpoint such as `10.0.0.1:80`.
pub fn end(text: &str) -> End {
    let (address, port) = text.split_once(':').unwrap_or((text, "0"));
    (address.parse().unwrap(), port.parse().unwrap())
}

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Out(Side, Vec<u8>),
    Dropped(DropReason),
    Held,
}

impl Fate {
    pub fn seen(&self) -> Seen {
        match self {
            Fate::Out(_, bytes) => see(bytes),
            other => panic!("the packet did not come out: {other:?}"),
        }
    }
    pub fn dropped(&self) -> DropReason {
        match self {
            Fate::Dropped(reason) => *reason,
            other => panic!("the packet was not dropped: {other:?}"),
        }
    }
}

pub struct Bench {
    pub graph: Graph,
    pool: PacketPool,
    pub now_ns: u64,
}

impl Bench {
    pub fn new(config: &str) -> Bench {
        Bench::with_flows(config, 4096)
    }

    pub fn with_flows(config: &str, flows_max: u32) -> Bench {
        Bench::with_setup(config, Setup::new(7, flows_max))
    }

    /// Neighbours on the links of ports may have these addresses.
    pub fn with_links(config: &str, links: LinkAddresses) -> Bench {
        let mut setup = Setup::new(7, 4096);
        setup.links = links;
        Bench::with_setup(config, setup)
    }

    fn with_setup(config: &str, setup: Setup) -> Bench {
        let (config, flows_max) = (serde_json::from_str(config).unwrap(), setup.flows_max);
        let nat = stage::load::<Nat>(config, setup).unwrap();
        let options = Options { flows_max, seed: 7, ..Options::default() };
        Bench { graph: Graph::new(vec![nat], options).unwrap(), pool: PacketPool::new(256), now_ns: SECOND }
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND;
    }

    fn packet(&self, side: Side, at_ns: u64, bytes: &[u8]) -> Packet {
        let mut packet = Packet::from_bytes(bytes);
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = at_ns;
        meta.transit.side = side;
        meta.link = LinkType::RawIp;
        packet
    }

    /// Sends packets in one batch; returns the output in order.
    pub fn batch(&mut self, packets: &[(u64, Side, Vec<u8>)]) -> Vec<(Side, Vec<u8>)> {
        let mut batch = packets.iter().map(|(at, side, bytes)| self.packet(*side, *at, bytes)).collect();
        let mut out = Vec::new();
        self.graph.process(&mut batch, &mut out, &mut self.pool);
        out.into_iter().map(|packet| (packet.meta().transit.side, packet.data().to_vec())).collect()
    }

    /// Sends one packet now; returns all output.
    pub fn send_all(&mut self, side: Side, bytes: &[u8]) -> Vec<(Side, Vec<u8>)> {
        self.batch(&[(self.now_ns, side, bytes.to_vec())])
    }

    /// Sends one packet now, after expiring all flows past their deadline.
    pub fn send(&mut self, side: Side, bytes: &[u8]) -> Fate {
        self.expire();
        let before = self.graph.counters();
        let mut out = self.send_all(side, bytes);
        let after = self.graph.counters();
        assert!(after.add_up());
        if let Some((side, bytes)) = out.pop() {
            assert!(out.is_empty());
            return Fate::Out(side, bytes);
        }
        match (0..after.drops.len()).find(|&i| after.drops[i] > before.drops[i]) {
            Some(reason) => Fate::Dropped(DropReason::ALL[reason]),
            None => Fate::Held,
        }
    }

    pub fn inside(&mut self, bytes: &[u8]) -> Fate {
        self.send(Side::Inside, bytes)
    }

    pub fn outside(&mut self, bytes: &[u8]) -> Fate {
        self.send(Side::Outside, bytes)
    }

    /// Opens a UDP flow from inside; returns the external endpoint.
    pub fn udp_out(&mut self, from: &str, to: &str) -> End {
        self.inside(&udp(end(from), end(to), b"out")).seen().source
    }

    /// Advances time without a packet of any flow under test.
    pub fn expire(&mut self) {
        let now_ns = self.now_ns;
        self.graph.handle_timeout(now_ns, &mut self.pool);
    }

    pub fn alerts(&mut self) -> Vec<Alert> {
        std::mem::take(&mut self.graph.effects_mut().alerts)
    }

    pub fn ports_in_use(&self) -> u32 {
        self.graph.stages()[0].shared().pools[0].in_use()
    }
}

/// Returns the Internet checksum (RFC 1071), word by word.
pub fn internet_sum(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn pseudo(ip: &[u8], protocol: u8, body: &[u8]) -> u16 {
    let mut bytes = ip[12..20].to_vec();
    bytes.extend([0, protocol]);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    internet_sum(&bytes)
}

/// Builds an IPv4 packet from transport bytes; `fragment` is the flags and offset field.
pub fn ipv4(
    protocol: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    id: u16,
    fragment: u16,
    body: &[u8],
) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend((20 + body.len() as u16).to_be_bytes());
    ip.extend(id.to_be_bytes());
    ip.extend(fragment.to_be_bytes());
    ip.extend([61, protocol, 0, 0]);
    ip.extend(source.octets());
    ip.extend(destination.octets());
    let sum = !internet_sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(body);
    ip
}

fn with_sum(protocol: u8, source: End, destination: End, at: usize, mut body: Vec<u8>) -> Vec<u8> {
    let ip = ipv4(protocol, source.0, destination.0, 0, 0, &[]);
    let sum = match !pseudo(&ip, protocol, &body) {
        0 if protocol == UDP => 0xffff,
        sum => sum,
    };
    body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    body
}

pub fn udp_body(source: End, destination: End, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(source.1.to_be_bytes());
    body.extend(destination.1.to_be_bytes());
    body.extend((8 + payload.len() as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    with_sum(UDP, source, destination, 6, body)
}

pub fn udp(source: End, destination: End, payload: &[u8]) -> Vec<u8> {
    ipv4(UDP, source.0, destination.0, 7, 0, &udp_body(source, destination, payload))
}

pub fn tcp(source: End, destination: End, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(source.1.to_be_bytes());
    body.extend(destination.1.to_be_bytes());
    body.extend([0, 0, 0, 9, 0, 0, 0, 5, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    body.extend(payload);
    ipv4(TCP, source.0, destination.0, 7, 0, &with_sum(TCP, source, destination, 16, body))
}

fn icmp(source: Ipv4Addr, destination: Ipv4Addr, mut body: Vec<u8>) -> Vec<u8> {
    let sum = !internet_sum(&body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4(ICMP, source, destination, 7, 0, &body)
}

/// Builds an ICMP query or answer of this type.
pub fn query(kind: u8, id: u16, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0];
    body.extend(id.to_be_bytes());
    body.extend([0, 1, b'p', b'i', b'n', b'g', b'!']);
    icmp(source, destination, body)
}

/// Builds an ICMP error that quotes `len` bytes of this packet.
pub fn error(
    kind: u8,
    code: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    quoted: &[u8],
    len: usize,
) -> Vec<u8> {
    let mut body = vec![kind, code, 0, 0, 0, 0, 0, 0];
    body.extend(&quoted[..len.min(quoted.len())]);
    icmp(source, destination, body)
}

/// A packet, as parsed by the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub protocol: u8,
    pub source: End,
    pub destination: End,
    /// Bytes after the transport header, or all bytes of a later fragment.
    pub payload: Vec<u8>,
    /// The packet that an ICMP error quotes.
    pub quoted: Option<Box<Seen>>,
    /// ICMP type, or TCP flags.
    pub kind: u8,
    pub id: u16,
    pub fragment: u16,
}

/// Parses a packet; all its checksums must be right.
pub fn see(bytes: &[u8]) -> Seen {
    read(bytes, true)
}

fn read(bytes: &[u8], whole: bool) -> Seen {
    let word = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    assert_eq!(bytes[0], 0x45, "an IPv4 header without options");
    assert_eq!(internet_sum(&bytes[..20]), 0xffff, "the IPv4 header checksum is right");
    let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let (total, fragment, protocol) = (word(2) as usize, word(6) & 0x3fff, bytes[9]);
    assert!(!whole || total == bytes.len(), "the length is right");
    let body = &bytes[20..total.min(bytes.len())];
    let mut seen = Seen {
        protocol,
        source: (address(12), 0),
        destination: (address(16), 0),
        payload: body.to_vec(),
        quoted: None,
        kind: 0,
        id: word(4),
        fragment,
    };
    if fragment & 0x1fff != 0 {
        return seen;
    }
    let complete = fragment == 0 && total <= bytes.len();
    match protocol {
        TCP | UDP => {
            (seen.source.1, seen.destination.1) = (word(20), word(22));
            seen.payload = body.get(if protocol == TCP { 20 } else { 8 }..).unwrap_or_default().to_vec();
            if protocol == TCP {
                seen.kind = *body.get(13).unwrap_or(&0);
            }
            let unsummed = protocol == UDP && word(26) == 0;
            if complete && !unsummed {
                assert_eq!(pseudo(bytes, protocol, body), 0xffff, "the transport checksum is right");
            }
        }
        ICMP => {
            seen.kind = body[0];
            if complete {
                assert_eq!(internet_sum(body), 0xffff, "the ICMP checksum is right");
            }
            if matches!(body[0], 3 | 4 | 5 | 11 | 12) {
                seen.quoted = Some(Box::new(read(&body[8..], false)));
                seen.payload = Vec::new();
            } else {
                (seen.source.1, seen.destination.1) = (word(24), word(24));
                seen.payload = body.get(6..).unwrap_or_default().to_vec();
            }
        }
        _ => {}
    }
    seen
}
