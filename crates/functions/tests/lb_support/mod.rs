//! A bench for the load balancer: packets are built and checked field by field from the RFCs, with
//! an independent checksum.
#![allow(dead_code)] // Each test file uses a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // It is test code.

use std::net::{IpAddr, SocketAddr};

use graph::{Graph, Options};
use nf::stage::Stage;
use nf::{Registry, Setup};
use packet::{DropReason, Packet, PacketPool, Side};
use serde_json::Value;

pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

/// An IP packet to build.
#[derive(Clone, Debug)]
pub struct Ip {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    pub dont_fragment: bool,
    pub more: bool,
    /// In units of 8 bytes.
    pub offset: u16,
    pub label: u32,
    pub body: Vec<u8>,
}

impl Ip {
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8, body: Vec<u8>) -> Ip {
        Ip {
            source,
            destination,
            protocol,
            tos: 0,
            ttl: 64,
            id: 0,
            dont_fragment: true,
            more: false,
            offset: 0,
            label: 0,
            body,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out.extend([0x45, self.tos]);
                out.extend((20 + self.body.len() as u16).to_be_bytes());
                out.extend(self.id.to_be_bytes());
                let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more) << 13;
                out.extend((flags | self.offset).to_be_bytes());
                out.extend([self.ttl, self.protocol, 0, 0]);
                out.extend(source.octets());
                out.extend(destination.octets());
                let sum = checksum(&out);
                out[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                out.extend((6 << 28 | u32::from(self.tos) << 20 | self.label).to_be_bytes());
                out.extend((self.body.len() as u16).to_be_bytes());
                out.extend([self.protocol, self.ttl]);
                out.extend(source.octets());
                out.extend(destination.octets());
            }
            _ => panic!("two IP versions in one header"),
        }
        out.extend(&self.body);
        out
    }

    pub fn may_fragment(mut self) -> Ip {
        self.dont_fragment = false;
        self
    }

    pub fn frame(&self) -> Vec<u8> {
        frame(&self.bytes())
    }
}

/// Puts the packet into an Ethernet frame.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    framed(packet, [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
}

/// Puts the packet into a frame of the opposite direction.
pub fn frame_back(packet: &[u8]) -> Vec<u8> {
    framed(packet, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

fn framed(packet: &[u8], to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let ether_type: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    [&to[..], &from[..], &ether_type.to_be_bytes(), packet].concat()
}

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn tcp(source: &str, destination: &str, flags: u8, payload: &[u8]) -> Ip {
    let (s, d) = (at(source), at(destination));
    let mut body = [s.port().to_be_bytes(), d.port().to_be_bytes()].concat();
    body.extend([
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        if flags & ACK != 0 { 9 } else { 0 },
        0x50,
        flags,
        0x20,
        0,
        0,
        0,
        0,
        0,
    ]);
    body.extend(payload);
    with_checksum(Ip::new(s.ip(), d.ip(), 6, body), 16)
}

pub fn udp(source: &str, destination: &str, payload: &[u8]) -> Ip {
    let mut packet = with_checksum(udp_unchecked(source, destination, payload), 6);
    if packet.body[6..8] == [0, 0] {
        packet.body[6..8].fill(0xff);
    }
    packet
}

/// Builds a datagram without a checksum.
pub fn udp_unchecked(source: &str, destination: &str, payload: &[u8]) -> Ip {
    let (s, d) = (at(source), at(destination));
    let mut body = [s.port().to_be_bytes(), d.port().to_be_bytes()].concat();
    body.extend((8 + payload.len() as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    Ip::new(s.ip(), d.ip(), 17, body)
}

pub fn echo(source: &str, destination: &str, request: bool, id: u16, payload: &[u8]) -> Ip {
    let (s, d) = (ip(source), ip(destination));
    let kind = match (s.is_ipv4(), request) {
        (true, true) => 8,
        (true, false) => 0,
        (false, true) => 128,
        (false, false) => 129,
    };
    icmp(s, d, [kind, 0], [id.to_be_bytes(), [0, 1]].concat(), payload)
}

/// Builds an ICMP error that quotes `quoted`.
pub fn error(source: &str, destination: &str, kind: [u8; 2], rest: u32, quoted: &[u8]) -> Ip {
    icmp(ip(source), ip(destination), kind, rest.to_be_bytes().to_vec(), quoted)
}

fn icmp(source: IpAddr, destination: IpAddr, kind: [u8; 2], rest: Vec<u8>, payload: &[u8]) -> Ip {
    let body = [&kind[..], &[0, 0], &rest, payload].concat();
    if source.is_ipv6() {
        return with_checksum(Ip::new(source, destination, 58, body), 2);
    }
    let mut packet = Ip::new(source, destination, 1, body);
    let sum = checksum(&packet.body);
    packet.body[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Fills in the checksum over pseudo-header and body.
pub fn with_checksum(mut packet: Ip, field: usize) -> Ip {
    packet.body[field..field + 2].fill(0);
    let mut covered = match (packet.source, packet.destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => [s.octets(), d.octets()].concat(),
        (IpAddr::V6(s), IpAddr::V6(d)) => [s.octets(), d.octets()].concat(),
        _ => panic!("two IP versions in one header"),
    };
    covered.extend([0, packet.protocol]);
    covered.extend((packet.body.len() as u16).to_be_bytes());
    covered.extend(&packet.body);
    let sum = checksum(&covered);
    packet.body[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Returns the Internet checksum (RFC 1071), word by word.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// Creates a load balancer, or returns the error in its configuration.
pub fn load_balancer(config: &Value) -> Result<Box<dyn Stage>, String> {
    let registry: Registry<Value> = functions::registry();
    let entry = registry.find("LB").unwrap();
    entry.make(config, Setup::new(7, 4096)).map_err(|error| error.to_string())
}

/// A graph with a load balancer.
pub struct Bench {
    pub graph: Graph,
    pool: PacketPool,
    pub now_ns: u64,
}

impl Bench {
    pub fn new(config: &Value) -> Bench {
        Bench::with(config, Vec::new(), false)
    }

    /// Adds functions after the load balancer; parses packets in tunnels if `inner`.
    pub fn with(config: &Value, behind: Vec<Box<dyn Stage>>, inner: bool) -> Bench {
        let mut stages = vec![load_balancer(config).unwrap()];
        stages.extend(behind);
        let options = Options { flows_max: 4096, seed: 7, inner, ..Options::default() };
        let graph = Graph::new(stages, options).unwrap();
        Bench { graph, pool: PacketPool::new(256), now_ns: 1_000_000_000 }
    }

    /// Sends all packets in one batch; returns the output in order.
    pub fn batch(&mut self, packets: &[(Side, Vec<u8>)]) -> Vec<(Side, Vec<u8>)> {
        let mut batch = Vec::new();
        for (side, bytes) in packets {
            let mut packet = self.pool.take(bytes).unwrap();
            let meta = packet.meta_mut();
            (meta.transit.timestamp_ns, meta.transit.side) = (self.now_ns, *side);
            self.now_ns += 1000;
            batch.push(packet);
        }
        let mut out: Vec<Packet> = Vec::new();
        self.graph.process(&mut batch, &mut out, &mut self.pool);
        assert!(self.graph.counters().add_up());
        out.into_iter()
            .map(|packet| {
                let sent = (packet.meta().transit.side, packet.data().to_vec());
                self.pool.give(packet);
                sent
            })
            .collect()
    }

    /// Sends a packet from inside that yields one output packet.
    pub fn pass(&mut self, packet: &Ip) -> Vec<u8> {
        self.through(Side::Inside, packet)
    }

    /// Sends a packet from outside that yields one output packet.
    pub fn reply(&mut self, packet: &Ip) -> Vec<u8> {
        self.through(Side::Outside, packet)
    }

    fn through(&mut self, side: Side, packet: &Ip) -> Vec<u8> {
        let mut out = self.batch(&[(side, packet.frame())]);
        assert_eq!(out.len(), 1, "packets out");
        assert_eq!(out[0].0, side.other());
        out.remove(0).1
    }

    /// Returns the drop reason of a packet.
    pub fn drop(&mut self, side: Side, packet: &Ip) -> DropReason {
        let before = self.graph.counters().drops;
        self.batch(&[(side, packet.frame())]);
        let after = self.graph.counters().drops;
        *DropReason::ALL.iter().find(|r| after[r.index()] > before[r.index()]).expect("it was dropped")
    }

    pub fn control(&mut self, command: &str) {
        self.graph.stage_mut(0).unwrap().control(command).unwrap();
    }

    /// Returns a counter by its key in reports.
    pub fn counter(&self, key: &str) -> u64 {
        self.graph.stages()[0].shared().counters.get(key).expect(key)
    }
}

/// Expected fate of a packet.
pub enum Expect {
    /// Leaves by the other side as this frame.
    Sent(Vec<u8>),
    /// Dropped.
    Dropped(DropReason),
    /// Dropped, and this frame returns to the sender's side.
    Answered(DropReason, Vec<u8>),
}

/// Description, packet and expected fate.
pub struct Row(pub &'static str, pub Side, pub Vec<u8>, pub Expect);

/// Sends all rows through one graph, packet by packet and again in one batch, and compares the
/// outputs.
pub fn check(config: &Value, rows: Vec<Row>) {
    let mut bench = Bench::new(config);
    let mut all = Vec::new();
    for Row(what, side, packet, expect) in &rows {
        let drops = bench.graph.counters().drops;
        let out = bench.batch(&[(*side, packet.clone())]);
        let dropped =
            |reason: DropReason| bench.graph.counters().drops[reason.index()] - drops[reason.index()];
        match expect {
            Expect::Sent(wanted) => same(what, &out, &[(side.other(), wanted.clone())]),
            Expect::Dropped(reason) => {
                same(what, &out, &[]);
                assert_eq!(dropped(*reason), 1, "{what}");
            }
            Expect::Answered(reason, wanted) => {
                same(what, &out, &[(*side, wanted.clone())]);
                assert_eq!(dropped(*reason), 1, "{what}");
            }
        }
        all.extend(out);
    }
    let packets: Vec<_> = rows.into_iter().map(|Row(_, side, packet, _)| (side, packet)).collect();
    same("all in one batch", &Bench::new(config).batch(&packets), &all);
}

fn same(what: &str, out: &[(Side, Vec<u8>)], wanted: &[(Side, Vec<u8>)]) {
    let show = |packets: &[(Side, Vec<u8>)]| {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        packets.iter().map(|(side, bytes)| format!("{side:?} {}\n", hex(bytes))).collect::<String>()
    };
    assert!(out == wanted, "{what}:\ngot\n{}wanted\n{}", show(out), show(wanted));
}
