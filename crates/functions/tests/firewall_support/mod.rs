//! A bench with one firewall: builders of packets, and the fate of each packet.
#![allow(dead_code, unused_imports)] // Each test file uses a part of it.
#![allow(clippy::unwrap_used, clippy::panic)] // All of it is test code.

use functions::firewall::{Config, Firewall};
use graph::{Graph, Options};
use nf::{Setup, stage};
use packet::{DropReason, Packet, PacketPool, Side};

pub use packet::Side::{Inside, Outside};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// Inside and outside hosts of the tests.
pub const IN: &str = "10.0.0.5";
pub const OUT: &str = "192.0.2.9";
pub const IN6: &str = "2001:db8:1::5";
pub const OUT6: &str = "2001:db8:2::9";

/// Builds an IP packet on Ethernet around a transport header; transport checksums are zero.
pub fn ip(source: &str, destination: &str, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match (source.parse().unwrap(), destination.parse().unwrap()) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + body.len() as u16).to_be_bytes());
            frame.extend([0, 7, 0, 0, 64, protocol, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((body.len() as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => panic!("two IP versions in one packet"),
    }
    frame.extend(body);
    frame
}

/// Builds a TCP segment of a host that has sent `seq` bytes and received `ack`.
pub fn tcp(from: (&str, u16), to: (&str, u16), flags: u8, seq: u32, ack: u32, payload: usize) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.1.to_be_bytes());
    body.extend(to.1.to_be_bytes());
    body.extend(seq.to_be_bytes());
    body.extend(ack.to_be_bytes());
    body.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    body.extend(vec![b'x'; payload]);
    ip(from.0, to.0, 6, &body)
}

pub fn udp(from: (&str, u16), to: (&str, u16)) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.1.to_be_bytes());
    body.extend(to.1.to_be_bytes());
    body.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    ip(from.0, to.0, 17, &body)
}

/// Builds an ICMP or ICMPv6 message with an identifier.
pub fn icmp(from: &str, to: &str, kind: u8, id: u16) -> Vec<u8> {
    let id = id.to_be_bytes();
    ip(from, to, if from.contains(':') { 58 } else { 1 }, &[kind, 0, 0, 0, id[0], id[1], 0, 1])
}

/// Builds a destination unreachable message that quotes the IP packet in this frame.
pub fn unreachable(from: &str, to: &str, quoted: &[u8]) -> Vec<u8> {
    let v6 = from.contains(':');
    let head = if v6 { [1, 4, 0, 0, 0, 0, 0, 0] } else { [3, 3, 0, 0, 0, 0, 0, 0] };
    ip(from, to, if v6 { 58 } else { 1 }, &[&head, &quoted[14..]].concat())
}

/// Builds one of two fragments of an IPv4 frame: the first `len` bytes after the IP header, or the
/// rest.
pub fn fragment(frame: &[u8], len: usize, first: bool) -> Vec<u8> {
    let (head, body) = frame.split_at(34);
    let part = if first { &body[..len] } else { &body[len..] };
    let mut fragment = [head, part].concat();
    fragment[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
    let field = if first { 0x2000 } else { len as u16 / 8 };
    fragment[20..22].copy_from_slice(&field.to_be_bytes());
    fragment
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passed,
    Dropped(DropReason),
    /// Held: no output yet.
    Held,
}

pub use Fate::{Dropped, Passed};

/// A graph with one firewall.
pub struct Bench {
    pub graph: Graph,
    pub pool: PacketPool,
    pub now_ns: u64,
    /// Answers of the firewall.
    pub answers: Vec<Packet>,
    /// Last packet that passed.
    pub last: Option<Packet>,
}

pub fn config(text: serde_json::Value) -> Config {
    serde_json::from_value(text).unwrap()
}

impl Bench {
    pub fn new(config: Config) -> Bench {
        let options = Options { flows_max: 4096, ..Options::default() };
        let firewall = stage::load::<Firewall>(config, Setup::new(1, options.flows_max)).unwrap();
        let graph = Graph::new(vec![firewall], options).unwrap();
        Bench { graph, pool: PacketPool::new(512), now_ns: 1_000_000_000, answers: Vec::new(), last: None }
    }

    pub fn json(text: serde_json::Value) -> Bench {
        Bench::new(config(text))
    }

    /// Creates a firewall with these rules, and defaults otherwise.
    pub fn rules(rules: &str) -> Bench {
        Bench::json(serde_json::json!({ "rules": rules }))
    }

    /// Sends a frame in by this side, a millisecond after the previous one.
    pub fn send(&mut self, side: Side, frame: &[u8]) -> Fate {
        self.now_ns += 1_000_000;
        let before = self.graph.counters();
        let mut batch = vec![packet_of(&mut self.pool, side, frame, self.now_ns)];
        let mut out = Vec::new();
        self.graph.process(&mut batch, &mut out, &mut self.pool);
        let after = self.graph.counters();
        assert!(after.add_up());
        let mut fate = Fate::Held;
        for packet in out {
            if packet.meta().transit.side == side {
                self.answers.push(packet);
            } else {
                fate = Fate::Passed;
                self.last = Some(packet);
            }
        }
        for &reason in DropReason::ALL {
            if after.drops[reason.index()] > before.drops[reason.index()] {
                fate = Fate::Dropped(reason);
            }
        }
        fate
    }

    pub fn control(&mut self, command: &str) {
        self.graph.stage_mut(0).unwrap().control(command).unwrap();
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.graph.stages()[0].shared().counters.get(name).unwrap()
    }

    /// Returns an attribute of the last packet that passed.
    pub fn tag(&self, name: &str) -> u16 {
        let stage = &self.graph.stages()[0];
        let at = stage.descriptor().attributes.iter().position(|attribute| attribute.name == name).unwrap();
        stage.tags().get(self.last.as_ref().unwrap().meta().transit.tags, at)
    }
}

pub fn packet_of(pool: &mut PacketPool, side: Side, frame: &[u8], now_ns: u64) -> Packet {
    let mut packet = pool.take(frame).unwrap();
    packet.meta_mut().transit.side = side;
    packet.meta_mut().transit.timestamp_ns = now_ns;
    packet
}
