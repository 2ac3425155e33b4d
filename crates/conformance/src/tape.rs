//! Packets in order of arrival: made up, or captured.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path as FilePath;

use graph::Graph;
use io::capture::CaptureReader;
use io::traffic::{
    AddressPrefix, FlowLength, FrameBytes, FrameRate, Generator, Payload, Protocols, TrafficAddresses,
    TrafficProfile,
};
use packet::{
    Addr, End, Endpoint, FlowHasher, FlowKey, LinkType, Packet, PacketClass, PacketPool, Parser, Side,
    split_mix,
};

/// Packets in order of arrival.
#[derive(Clone, Default)]
pub struct Tape {
    bytes: Vec<u8>,
    arrivals: Vec<TapePacket>,
}

/// A packet on arrival.
#[derive(Clone, Copy, Debug)]
pub struct TapePacket {
    /// Time of arrival, in nanoseconds.
    pub at_ns: u64,
    /// Side of arrival.
    pub side: Side,
    /// Position and length of its bytes.
    at: usize,
    len: u32,
}

/// The address of the service, on any port.
pub const SERVICE: [u8; 4] = [198, 18, 0, 1];

/// Start of made-up traffic, in nanoseconds since 1970.
const START_NS: u64 = 1_700_000_000_000_000_000;

impl Tape {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Returns a part of the packets.
    pub fn arrivals(&self, part: Range<usize>) -> &[TapePacket] {
        self.arrivals.get(part).unwrap_or_default()
    }

    /// Returns a packet in a buffer; `None` if there is no buffer.
    pub fn packet(&self, arrival: &TapePacket, pool: &mut PacketPool) -> Option<Packet> {
        let mut packet = pool.take(self.bytes(arrival))?;
        let transit = &mut packet.meta_mut().transit;
        transit.timestamp_ns = arrival.at_ns;
        (transit.side, transit.ingress) = (arrival.side, arrival.side as u16);
        Some(packet)
    }

    fn bytes(&self, arrival: &TapePacket) -> &[u8] {
        self.bytes.get(arrival.at..arrival.at + arrival.len as usize).unwrap_or_default()
    }

    fn push(&mut self, at_ns: u64, side: Side, frame: &[u8]) {
        self.arrivals.push(TapePacket { at_ns, side, at: self.bytes.len(), len: frame.len() as u32 });
        self.bytes.extend(frame);
    }

    /// Creates `times` UDP packets of 64 bytes of each of n flows, from the inside: a pass has one
    /// of each flow, in its own order. `gap_ns` is the time from packet to packet.
    ///
    /// # Errors
    /// If such traffic cannot be made up.
    pub fn passes(flows: u32, times: usize, gap_ns: u64) -> Result<Tape, String> {
        let profile = TrafficProfile {
            flows,
            flow_length: FlowLength::Endless,
            frame_bytes: FrameBytes::Fixed(60),
            protocols: Protocols { tcp: 0.0, udp: 1.0, icmp: 0.0, fragments: 0.0 },
            ipv6_share: 0.0,
            replies: false,
            addresses: TrafficAddresses { server_ports: vec![80], ..to_the_service() },
            ..TrafficProfile::default()
        };
        let mut generator = Generator::new(&profile).map_err(|error| error.to_string())?;
        let (mut tape, mut known) = (Tape::default(), HashSet::new());
        while known.len() < flows as usize {
            let Some(frame) = generator.next() else { break };
            if known.insert(frame.data.get(26..38).unwrap_or_default().to_vec()) {
                tape.push(0, Side::Inside, frame.data);
            }
        }
        let mut pass = std::mem::take(&mut tape.arrivals);
        let mut seed = 1;
        for _ in 0..times {
            for left in (1..pass.len()).rev() {
                pass.swap(left, split_mix(&mut seed) as usize % (left + 1));
            }
            tape.arrivals.extend(&pass);
        }
        let timed = (0..).zip(&mut tape.arrivals);
        timed.for_each(|(number, arrival)| arrival.at_ns = START_NS + number * gap_ns);
        Ok(tape)
    }

    /// Creates n packets of conversations with the service, from both sides, with this share of TCP
    /// and the others UDP: `flows` at a time, of this length.
    ///
    /// # Errors
    /// If such traffic cannot be made up.
    pub fn conversations(packets: u64, flows: u32, length: FlowLength, tcp: f64) -> Result<Tape, String> {
        Tape::generated(&TrafficProfile {
            packets: Some(packets),
            flows,
            flow_length: length,
            frame_bytes: FrameBytes::Fixed(60),
            protocols: Protocols { tcp, udp: 1.0 - tcp, icmp: 0.0, fragments: 0.0 },
            ..Tape::talk(1)
        })
    }

    /// Creates n packets of HTTP requests and responses: `flows` at a time, of this length.
    ///
    /// # Errors
    /// If such traffic cannot be made up.
    pub fn requests(packets: u64, flows: u32, length: FlowLength) -> Result<Tape, String> {
        Tape::generated(&TrafficProfile {
            packets: Some(packets),
            flows,
            flow_length: length,
            protocols: Protocols { tcp: 1.0, udp: 0.0, icmp: 0.0, fragments: 0.0 },
            payload: Payload::Http,
            ..Tape::talk(1)
        })
    }

    /// Returns a profile of conversations with the service, from both sides, by IPv4.
    pub fn talk(seed: u64) -> TrafficProfile {
        TrafficProfile {
            seed,
            start_ns: START_NS,
            ipv6_share: 0.0,
            rate: FrameRate::PacketsPerSecond(1e6),
            addresses: to_the_service(),
            ..TrafficProfile::default()
        }
    }

    /// Generates all frames of a profile, as if no function had rewritten anything.
    ///
    /// # Errors
    /// If the profile contradicts itself.
    pub fn generated(profile: &TrafficProfile) -> Result<Tape, String> {
        let mut generator = Generator::new(profile).map_err(|error| error.to_string())?;
        let mut tape = Tape::default();
        while let Some(frame) = generator.next() {
            let side = if frame.port == 0 { Side::Inside } else { Side::Outside };
            tape.push(frame.timestamp_ns, side, frame.data);
        }
        Ok(tape)
    }

    /// Reads up to n whole IPv4 packets of TCP and UDP from a capture. The sender of a flow's first
    /// packet is inside. Servers get the service's address, and clients an address for each pair of
    /// captured addresses, as input for a load balancer. All else is as captured.
    ///
    /// # Errors
    /// If the capture cannot be read.
    pub fn captured(file: &FilePath, packets_max: usize) -> Result<Tape, String> {
        let wrong = |error: io::capture::ReadError| format!("{}: {error}", file.display());
        let mut reader = CaptureReader::open(file).map_err(wrong)?;
        let parser = Parser::new(FlowHasher::new(1));
        let (mut tape, mut sides, mut clients) = (Tape::default(), HashMap::new(), HashMap::new());
        let mut latest_ns = 0;
        while let Some(record) = reader.next().map_err(wrong)? {
            if tape.len() >= packets_max {
                break;
            }
            if record.link_type != LinkType::Ethernet || (record.wire_len as usize) != record.data.len() {
                continue;
            }
            let mut packet = Packet::from_bytes(record.data);
            if parser.parse(&mut packet).is_err() || !packet.meta().is_plain() {
                continue;
            }
            let meta = packet.meta();
            let from_first = *sides.entry(meta.key).or_insert(meta.reversed) == meta.reversed;
            let (source, destination) = packet::parse::ends(&packet);
            let (client, server) = if from_first { (source, destination) } else { (destination, source) };
            let known = clients.len() as u32;
            let number = *clients.entry((client.addr, server.addr)).or_insert(known);
            let [_, b, c, d] = (number + 1).to_be_bytes();
            let client = Endpoint::new(Addr::from_v4_bytes([10, b, c, d]), client.port);
            let server = Endpoint::new(Addr::from_v4_bytes(SERVICE), server.port);
            let (source, destination) = if from_first { (client, server) } else { (server, client) };
            let rewritten =
                packet.set_end(End::Source, source).and(packet.set_end(End::Destination, destination));
            if rewritten.is_err() {
                continue;
            }
            latest_ns = record.timestamp_ns.max(latest_ns);
            let side = if from_first { Side::Inside } else { Side::Outside };
            tape.push(latest_ns, side, packet.data());
        }
        Ok(tape)
    }

    /// Returns the tape for functions that translate addresses: a packet from outside gets the
    /// translated addresses of the packet that it answers. Replies to packets that never left are
    /// dropped.
    pub fn translated(&self, graph: &mut Graph) -> Tape {
        self.played_to(graph, |_| false)
    }

    /// Returns the translated tape with hairpins: where hosts inside have translated addresses,
    /// every third packet is repeated to the translated address of another such host. The same seed
    /// chooses the same packets.
    pub fn translated_with_hairpins(&self, graph: &mut Graph, mut seed: u64) -> Tape {
        self.played_to(graph, |_| split_mix(&mut seed).is_multiple_of(3))
    }

    fn played_to(&self, graph: &mut Graph, mut is_turned: impl FnMut(&Packet) -> bool) -> Tape {
        let parser = Parser::new(FlowHasher::new(1));
        let mut pool = PacketPool::new(64);
        let mut behind: HashMap<FlowKey, (Endpoint, Endpoint)> = HashMap::new();
        let mut hosts = TranslatedHosts::default();
        let (mut tape, mut batch, mut out) = (Tape::default(), Vec::new(), Vec::new());
        for arrival in &self.arrivals {
            let Some(mut packet) = self.packet(arrival, &mut pool) else { continue };
            if parser.parse(&mut packet).is_err() {
                pool.give(packet);
                continue;
            }
            let (key, source) = (packet.meta().key, packet::parse::ends(&packet).0);
            if arrival.side == Side::Outside {
                let ends = behind.get(&key);
                let rewritten = ends.is_some_and(|&(source, destination)| {
                    packet.set_end(End::Source, destination).is_ok()
                        && packet.set_end(End::Destination, source).is_ok()
                });
                if !rewritten {
                    pool.give(packet);
                    continue;
                }
            }
            tape.push(arrival.at_ns, arrival.side, packet.data());
            batch.push(packet);
            graph.process(&mut batch, &mut out, &mut pool);
            let left = out.iter_mut().find(|packet| packet.meta().transit.side == Side::Outside);
            if let (Side::Inside, Some(packet)) = (arrival.side, left)
                && packet.meta().class == PacketClass::Whole
            {
                let ends = packet::parse::ends(packet);
                behind.insert(key, ends);
                hosts.add(key.protocol, source, ends.0);
            }
            pool.give_all(&mut out);
            if arrival.side == Side::Inside
                && let Some(other) = hosts.neighbour(key.protocol, source)
                && let Some(mut packet) = self.packet(arrival, &mut pool)
            {
                let is_right = parser.parse(&mut packet).is_ok() && packet.meta().class == PacketClass::Whole;
                if is_right && is_turned(&packet) && packet.set_end(End::Destination, other).is_ok() {
                    tape.push(arrival.at_ns, Side::Inside, packet.data());
                    batch.push(packet);
                    graph.process(&mut batch, &mut out, &mut pool);
                    pool.give_all(&mut out);
                } else {
                    pool.give(packet);
                }
            }
            let effects = graph.effects_mut();
            effects.alerts.clear();
            effects.reports.clear();
            effects.events.clear();
        }
        tape
    }

    /// Changes a byte in one of fifty packets. The same seed gives the same changes.
    pub fn damage(&mut self, mut seed: u64) {
        for arrival in &self.arrivals {
            let (draw, at, byte) = (split_mix(&mut seed), split_mix(&mut seed), split_mix(&mut seed));
            if draw % 50 == 0
                && let Some(hit) =
                    self.bytes.get_mut(arrival.at + at as usize % (arrival.len as usize).max(1))
            {
                *hit ^= byte as u8;
            }
        }
    }

    /// Splits the tape into the flows with at least `least` packets, both directions together, and
    /// shorter flows.
    pub fn by_length(&self, least: usize) -> (Tape, Tape) {
        let parser = Parser::new(FlowHasher::new(1));
        let key = |arrival: &TapePacket| {
            let mut packet = Packet::from_bytes(self.bytes(arrival));
            parser.parse(&mut packet).ok().map(|()| packet.meta().key)
        };
        let keys: Vec<Option<FlowKey>> = self.arrivals.iter().map(key).collect();
        let mut lengths: HashMap<FlowKey, usize> = HashMap::new();
        keys.iter().flatten().for_each(|key| *lengths.entry(*key).or_default() += 1);
        let is_long =
            |key: &Option<FlowKey>| key.and_then(|key| lengths.get(&key)).is_some_and(|&len| len >= least);
        let (mut long, mut short) = (Tape::default(), Tape::default());
        for (arrival, key) in self.arrivals.iter().zip(&keys) {
            let tape = if is_long(key) { &mut long } else { &mut short };
            tape.push(arrival.at_ns, arrival.side, self.bytes(arrival));
        }
        (long, short)
    }
}

/// Hosts inside with a translated address, by protocol.
#[derive(Default)]
struct TranslatedHosts {
    /// Protocol, endpoint inside, and translated endpoint.
    hosts: Vec<(u8, Endpoint, Endpoint)>,
}

impl TranslatedHosts {
    /// Adds a host, if it is new and translated.
    fn add(&mut self, protocol: u8, inside: Endpoint, behind: Endpoint) {
        if inside != behind && self.place(protocol, inside).is_none() {
            self.hosts.push((protocol, inside, behind));
        }
    }

    /// Returns the translated endpoint of this host's neighbour. Neighbours come in pairs, so that
    /// they answer each other.
    fn neighbour(&self, protocol: u8, inside: Endpoint) -> Option<Endpoint> {
        let of_other = self.hosts.get(self.place(protocol, inside)? ^ 1)?;
        (of_other.0 == protocol && of_other.2.addr.is_v4() == inside.addr.is_v4()).then_some(of_other.2)
    }

    fn place(&self, protocol: u8, inside: Endpoint) -> Option<usize> {
        self.hosts.iter().position(|host| host.0 == protocol && host.1 == inside)
    }
}

/// Returns the addresses of clients in 10/12, and of one server.
fn to_the_service() -> TrafficAddresses {
    TrafficAddresses {
        servers_v4: AddressPrefix { address: SERVICE.into(), length: 32 },
        ..TrafficAddresses::default()
    }
}
