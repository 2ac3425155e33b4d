//! The hosts of TCP flows that end with a lost unit are reset by the next segment of either host,
//! as by a host that does not know the connection. On virtual time.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use std::net::Ipv4Addr;

use cluster::simulated::{
    LinkFaults, NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults, SimulatedOutcome,
};
use packet::checksum;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;

use support::{Arriving, Sink, assembly_of, receive};

/// The functions translate the addresses of both ends.
const POLICY: &str = "
    settings { flows: 2k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    LoadBalancer l { services: [{ name: web, vip: 203.0.113.90, port: 80, servers: [
        { name: one, address: 198.18.0.1, port: 8000 }, { name: two, address: 198.18.0.2, port: 8000 },
    ] }] };
    NAT n { external: [203.0.113.0/30] };
    pipelet { inside <-> l <-> n <-> outside; }";

const MS: u64 = 1_000_000;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

type End = (Ipv4Addr, u16);

const SERVICE: End = (Ipv4Addr::new(203, 0, 113, 90), 80);

/// A TCP segment over IPv4 and Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    from: End,
    to: End,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: usize,
}

impl Segment {
    fn frame(&self) -> Vec<u8> {
        let mut tcp = vec![0; 20 + self.payload];
        tcp[..2].copy_from_slice(&self.from.1.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.to.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        tcp[12..16].copy_from_slice(&[5 << 4, self.flags, 0x20, 0]);
        let sum = checksum::pseudo_header_v4(self.from.0, self.to.0, 6, tcp.len() as u16);
        let sum = checksum::finish(sum + checksum::sum(&tcp));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut ip = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0];
        ip[2..4].copy_from_slice(&(20 + tcp.len() as u16).to_be_bytes());
        ip.extend(self.from.0.octets());
        ip.extend(self.to.0.octets());
        let sum = checksum::checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &ip[..], &tcp].concat()
    }

    /// Parses a segment, and asserts that its checksums are right.
    fn of(frame: &[u8]) -> Segment {
        let (ip, rest) = frame[14..].split_at(20);
        assert_eq!(checksum::checksum(ip), 0, "of the IP header");
        let tcp = &rest[..usize::from(u16::from_be_bytes([ip[2], ip[3]])) - 20];
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        let sum = checksum::pseudo_header_v4(address(12), address(16), 6, tcp.len() as u16);
        assert!(checksum::verify(sum + checksum::sum(tcp)), "of the segment");
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        Segment {
            from: (address(12), port(0)),
            to: (address(16), port(2)),
            seq: word(4),
            ack: word(8),
            flags: tcp[13],
            payload: tcp.len() - 20,
        }
    }
}

/// A cluster of three units; some crash after two seconds, for this long.
struct Lost {
    cluster: SimulatedCluster,
    sink: Sink,
    now_ns: u64,
    read: usize,
}

impl Lost {
    fn new(resets: bool, crashes: &[usize], back_ms: u64) -> Lost {
        let config = UnitsConfig {
            mode: Granularity::Flow,
            units_min: 3,
            units_max: 30,
            resets,
            ..UnitsConfig::as_published()
        };
        let kind = NodeFaultKind::Crash(back_ms * MS);
        let nodes = crashes.iter().map(|&unit| NodeFault { at_ns: 2_000 * MS, unit, kind }).collect();
        let links = LinkFaults { latency_ns: 50_000, ..LinkFaults::NONE };
        let faults = SimulatedFaults { links, nodes, ..SimulatedFaults::NONE };
        let make = || -> cluster::policies::GraphMaker {
            Box::new(move |_| Ok(assembly_of("test.rvl", POLICY).graph))
        };
        let assembly = assembly_of("test.rvl", POLICY);
        let cluster = SimulatedCluster::start(assembly, config, 3, make, faults, (1, 0)).unwrap();
        Lost { cluster, sink: Sink::default(), now_ns: 0, read: 0 }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ns += ms * MS;
        self.cluster.run_to(self.now_ns, &mut self.sink).unwrap();
    }

    /// Sends a segment. Returns the segments that leave in response, with their ports.
    fn send(&mut self, port: u16, segment: &Segment) -> Vec<(u16, Segment)> {
        let frame = Arriving { timestamp_ns: self.now_ns, port, data: segment.frame() };
        receive(self.cluster.runner(), &frame, &mut self.sink);
        self.pass(20);
        let new = &self.sink.sent[self.read..];
        let left = new.iter().map(|(port, _, frame)| (*port, Segment::of(frame))).collect();
        self.read = self.sink.sent.len();
        left
    }

    /// Opens a connection of a client. Returns its ends from the server's point of view.
    fn open(&mut self, client: End) -> (End, End) {
        let syn = Segment { from: client, to: SERVICE, seq: 99, ack: 0, flags: SYN, payload: 0 };
        let [(1, seen)] = &self.send(0, &syn)[..] else { panic!("no SYN") };
        let (outside, server) = (seen.from, seen.to);
        let answer = Segment { from: server, to: outside, seq: 499, ack: 100, flags: SYN | ACK, payload: 0 };
        assert_eq!(self.send(1, &answer).len(), 1);
        let ack = Segment { from: client, to: SERVICE, seq: 100, ack: 500, flags: ACK, payload: 0 };
        assert_eq!(self.send(0, &ack).len(), 1);
        (outside, server)
    }

    fn finish(mut self) -> SimulatedOutcome {
        self.cluster.finish(&mut self.sink).unwrap()
    }
}

fn client(number: u16) -> End {
    (Ipv4Addr::new(10, 0, 0, number as u8 + 1), 40_000 + number)
}

/// Returns a reset without an acknowledgement number.
fn reset(from: End, to: End, seq: u32) -> Segment {
    Segment { from, to, seq, ack: 0, flags: RST, payload: 0 }
}

/// Returns the probe that follows a reset, for a host that expects another number: it acknowledges
/// what its peer did.
fn probe(reset: &Segment, ack: u32) -> Segment {
    Segment { seq: reset.seq - 1, ack, flags: ACK, ..reset.clone() }
}

/// All units are lost, and some or none come back.
#[test]
fn both_hosts_are_reset_by_the_next_segment() {
    for back_ms in [60_000, 100] {
        let mut lost = Lost::new(true, &[0, 1, 2], back_ms);
        let ends: Vec<_> = (0..4).map(|number| lost.open(client(number))).collect();
        lost.pass(4_000);
        // The client sends first.
        let (outside, server) = ends[0];
        let data = Segment { from: client(0), to: SERVICE, seq: 100, ack: 500, flags: ACK, payload: 30 };
        let (back, on) = (reset(SERVICE, client(0), 500), reset(outside, server, 100));
        let expected = [(0, back), (1, on.clone()), (1, probe(&on, 500))];
        assert_eq!(lost.send(0, &data), expected);
        // A retransmission: the client has not received the reset, the server has.
        assert_eq!(lost.send(0, &data), expected[..1]);
        // The server has received more than the client knows: it answers the probe.
        let ahead = Segment { from: server, to: outside, seq: 500, ack: 130, flags: ACK, payload: 0 };
        assert_eq!(lost.send(1, &ahead)[0], (1, reset(outside, server, 130)));
        // The server sends first.
        let (outside, server) = ends[1];
        let data = Segment { from: server, to: outside, seq: 500, ack: 100, flags: ACK | FIN, payload: 9 };
        let (back, on) = (reset(outside, server, 100), reset(SERVICE, client(1), 500));
        assert_eq!(lost.send(1, &data), [(1, back), (0, on.clone()), (0, probe(&on, 100))]);
        // A reset is passed on without an answer.
        let (outside, server) = ends[2];
        let aborted = Segment { flags: RST, ..reset(client(2), SERVICE, 100) };
        assert_eq!(lost.send(0, &aborted), [(1, reset(outside, server, 100))]);
        // The client begins again with the same ports; without a unit, that is dropped.
        let syn = Segment { from: client(3), to: SERVICE, seq: 7_000, ack: 0, flags: SYN, payload: 0 };
        let seen = lost.send(0, &syn);
        match back_ms {
            100 => assert!(matches!(&seen[..], [(1, syn)] if syn.flags == SYN), "{seen:?}"),
            _ => assert_eq!(seen, []),
        }
        let report = lost.finish().report;
        assert!(report.adds_up(), "{report:?}");
        assert_eq!(report.drops["unit-lost"], 5, "{:?}", report.drops);
        let units = report.units.unwrap();
        assert_eq!((units.flows_reset, units.lost_flows_forgotten), (3, 0));
        // To the client 3, one of them with a probe; to the server 3; the others' ones.
        assert_eq!((units.resets_sent, report.packets_generated), (11, 11));
    }
}

/// Flows of other units continue, and no host is reset without that setting.
#[test]
fn only_hosts_of_lost_flows_are_reset() {
    for resets in [true, false] {
        let mut lost = Lost::new(resets, &[1], 100);
        let ends: Vec<_> = (0..12).map(|number| lost.open(client(number))).collect();
        lost.pass(4_000);
        let mut is_reset = 0;
        for (number, (outside, server)) in (0..12).zip(ends) {
            let from = client(number);
            let data = Segment { from, to: SERVICE, seq: 100, ack: 500, flags: ACK, payload: 30 };
            let passed = (1, Segment { from: outside, to: server, ..data.clone() });
            let (back, on) = (reset(SERVICE, from, 500), reset(outside, server, 100));
            let both = [(0, back), (1, on.clone()), (1, probe(&on, 500))];
            match lost.send(0, &data) {
                seen if seen == [passed.clone()] => {}
                seen if resets && seen == both => is_reset += 1,
                seen => assert!(!resets, "{seen:?}"),
            }
        }
        assert_eq!(resets, (1..12).contains(&is_reset), "{is_reset}");
        let report = lost.finish().report;
        assert!(report.adds_up(), "{report:?}");
        assert_eq!(report.units.unwrap().resets_sent, 3 * is_reset);
    }
}
