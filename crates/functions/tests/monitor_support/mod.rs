//! A bench for the monitor: frames built from a description, so that a test knows their contents
//! without parsing.
#![allow(dead_code)] // Each test file uses a part.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;

use graph::{Graph, Options, Timeouts};
use nf::{FlowReport, Registry, Setup};
use packet::{Packet, PacketPool, Side};
use serde_json::Value;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;
pub const ICMPV6: u8 = 58;
pub const SECOND_NS: u64 = 1_000_000_000;

/// One IP packet.
#[derive(Clone, Debug)]
pub struct Ip {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
    pub protocol: u8,
    pub tos: u8,
    pub vlan: Option<u16>,
    /// TCP flags, or type and code of an ICMP message.
    pub marks: u16,
    /// After the transport header, or after the IP header of a later fragment.
    pub payload: Vec<u8>,
    pub fragment: Option<Fragment>,
}

#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    pub id: u16,
    /// In units of 8 bytes; at 0 there is the transport header.
    pub offset: u16,
    pub more: bool,
}

/// Returns a packet between these endpoints, such as `10.0.0.1:4000`.
pub fn ip(protocol: u8, from: &str, to: &str) -> Ip {
    let end = |text: &str| {
        let addr: std::net::SocketAddr = text.parse().unwrap();
        (addr.ip(), addr.port())
    };
    Ip {
        from: end(from),
        to: end(to),
        protocol,
        tos: 0,
        vlan: None,
        marks: 0,
        payload: Vec::new(),
        fragment: None,
    }
}

impl Ip {
    pub fn marks(mut self, marks: u16) -> Ip {
        self.marks = marks;
        self
    }

    /// Returns a packet in the opposite direction.
    pub fn back(&self) -> Ip {
        Ip { from: self.to, to: self.from, ..self.clone() }
    }

    /// Returns the bytes from the IP header on. Checksums are 0: nothing here verifies them.
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.body();
        let mut out = Vec::new();
        match (self.from.0, self.to.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let Fragment { id, offset, more } =
                    self.fragment.unwrap_or(Fragment { id: 0, offset: 0, more: false });
                out.extend([0x45, self.tos]);
                out.extend((20 + body.len() as u16).to_be_bytes());
                out.extend(id.to_be_bytes());
                out.extend((offset | u16::from(more) << 13).to_be_bytes());
                out.extend([64, self.protocol, 0, 0]);
                out.extend(from.octets());
                out.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = self.fragment.map(|f| {
                    let offset = (f.offset << 3 | u16::from(f.more)).to_be_bytes();
                    let id = u32::from(f.id).to_be_bytes();
                    [&[self.protocol, 0][..], &offset, &id].concat()
                });
                let next = if header.is_some() { 44 } else { self.protocol };
                let header = header.unwrap_or_default();
                out.extend((6 << 28 | u32::from(self.tos) << 20).to_be_bytes());
                out.extend(((header.len() + body.len()) as u16).to_be_bytes());
                out.extend([next, 64]);
                out.extend(from.octets());
                out.extend(to.octets());
                out.extend(header);
            }
            _ => panic!("two IP versions in one header"),
        }
        out.extend(body);
        out
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        if self.fragment.is_some_and(|f| f.offset > 0) {
            return self.payload.clone();
        }
        let ports = [self.from.1.to_be_bytes(), self.to.1.to_be_bytes()].concat();
        match self.protocol {
            TCP => {
                body.extend(ports);
                body.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, self.marks as u8, 0x20, 0, 0, 0, 0, 0]);
            }
            UDP => {
                body.extend(ports);
                body.extend((8 + self.payload.len() as u16).to_be_bytes());
                body.extend([0, 0]);
            }
            ICMP | ICMPV6 => {
                body.extend(self.marks.to_be_bytes());
                body.extend([0, 0]);
                body.extend(self.from.1.to_be_bytes()); // The identifier of a query.
                body.extend([0, 1]);
            }
            _ => {}
        }
        body.extend(&self.payload);
        body
    }

    pub fn frame(&self) -> Vec<u8> {
        let packet = self.bytes();
        let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if let Some(vlan) = self.vlan {
            out.extend([0x81, 0x00]);
            out.extend(vlan.to_be_bytes());
        }
        out.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        out.extend(packet);
        out.resize(out.len().max(60), 0xee); // Padding, which is no part of the IP packet.
        out
    }
}

/// A graph with a monitor in it.
pub struct Bench {
    pub graph: Graph,
    pub monitor: usize,
    pub pool: PacketPool,
}

/// A packet's time, side, and frame.
pub type Arrival = (u64, Side, Vec<u8>);

impl Bench {
    /// Creates a graph of one monitor, with flows that end only with the run.
    pub fn new(config: &Value) -> Bench {
        let forever = u32::MAX;
        let timeouts = Timeouts {
            tcp_established_ms: forever,
            tcp_transitory_ms: forever,
            udp_ms: forever,
            udp_unreplied_ms: forever,
            icmp_ms: forever,
            other_ms: forever,
        };
        Bench::of(&[("monitor", config.clone())], Options { timeouts, ..Options::default() })
    }

    /// Returns a graph of these functions.
    pub fn of(functions: &[(&str, Value)], options: Options) -> Bench {
        let registry: Registry<Value> = functions::registry();
        let stages = functions.iter().map(|(name, config)| {
            let entry = registry.find(name).unwrap();
            entry.make(config, Setup::new(options.seed, options.flows_max)).unwrap()
        });
        let monitor = functions.iter().position(|(name, _)| *name == "monitor").unwrap();
        Bench { graph: Graph::new(stages.collect(), options).unwrap(), monitor, pool: PacketPool::new(512) }
    }

    /// Sends these packets through in one batch; returns the number that came out.
    pub fn batch(&mut self, arrivals: &[Arrival]) -> usize {
        let mut batch = Vec::new();
        for (time_ns, side, frame) in arrivals {
            let mut packet = self.pool.take(frame).unwrap();
            (packet.meta_mut().transit.timestamp_ns, packet.meta_mut().transit.side) = (*time_ns, *side);
            batch.push(packet);
        }
        let mut out: Vec<Packet> = Vec::new();
        self.graph.process(&mut batch, &mut out, &mut self.pool);
        assert!(self.graph.counters().add_up());
        let passed = out.len();
        out.into_iter().for_each(|packet| self.pool.give(packet));
        passed
    }

    pub fn inside(&mut self, time_ns: u64, packet: &Ip) -> usize {
        self.batch(&[(time_ns, Side::Inside, packet.frame())])
    }

    pub fn outside(&mut self, time_ns: u64, packet: &Ip) -> usize {
        self.batch(&[(time_ns, Side::Outside, packet.frame())])
    }

    pub fn reports(&mut self) -> Vec<FlowReport> {
        std::mem::take(&mut self.graph.effects_mut().reports)
    }

    /// Ends the run.
    pub fn finish(&mut self) -> Vec<FlowReport> {
        self.graph.finish(&mut self.pool);
        self.reports()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = &self.graph.stages()[self.monitor].shared().counters;
        counters.get(name).unwrap_or_else(|| panic!("no counter {name}"))
    }
}
