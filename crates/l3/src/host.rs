//! What happens to frames that arrive, and to packets that depart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nf::PacketView;
use nf::answer::{self, IcmpError};
use packet::checksum;
use packet::parse::protocol;
use packet::sanity;
use packet::wire::{EtherType, MacAddress, arp as wire_arp, ethernet, ipv4, ipv6};
use packet::{Addr, DropReason, FlowHasher, LinkType, Packet, Parser};

use crate::announce::{Announcements, announcement};
use crate::neighbours::{Found, Neighbours};
use crate::network::Network;
use crate::solicit::Message;
use crate::{arp, echo, fragment, solicit};

/// ICMP errors in a second at most (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
pub const ERRORS_PER_SECOND: u64 = 1_000;

/// ICMP errors at once at most.
const ERRORS_AT_ONCE: u64 = 50;

/// Bits of a link-local prefix.
const LINK_LOCAL_LEN: u8 = 64;

/// What a port is on its link.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Bytes of the longest IP packet that the link takes.
    pub mtu: u32,
    /// Its addresses, with their networks, which are on the link.
    pub networks: Vec<Network>,
    /// Next hops for all that is not on the link, the first of each IP version; they are on the
    /// link.
    pub gateways: Vec<IpAddr>,
    /// Addresses that functions own, from the first to the last: neighbours are told that they are
    /// here.
    pub owned: Vec<(Addr, Addr)>,
    /// Addresses of all the router's ports: nobody else may send from them.
    pub router: Vec<Addr>,
    /// Whether packets are refused that come from addresses that nobody may send from, or go to
    /// such that must not be on a link.
    pub refuses_martians: bool,
    /// Which host of the port it is, and how many there are, each with a part of what arrives: the
    /// first one tells neighbours of the port, and each sends its part of the errors.
    pub part: (usize, usize),
}

impl Config {
    /// The network of link-local addresses, if it has IPv6.
    fn link_local(&self) -> Option<Network> {
        let has_v6 = self.networks.iter().any(|network| !network.address.is_v4());
        has_v6.then(|| Network::new(link_local(self.mac), LINK_LOCAL_LEN))
    }
}

/// What becomes of a frame that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It goes through the chain.
    Through,
    /// It was for the host itself, or for nobody here.
    Kept,
    /// It is dropped, for this reason.
    Refused(DropReason),
}

/// What becomes of a packet that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It leaves as it is now.
    Leaves,
    /// The host has kept what is to be sent of it, or it is lost, and counted.
    Kept,
}

/// What a host has done. Of packets that departed, `sent`, `waiting`, `unreachable` and `lost` tell
/// what became of those that did not leave at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that arrived and did not go through the chain.
    pub kept: u64,
    /// Frames that the host had sent: questions, answers, fragments, and packets that had waited.
    pub made: u64,
    /// Errors about packets that departed, which went back through the chain.
    pub returned: u64,
    /// Packets that departed, and were kept or lost.
    pub withheld: u64,
    /// Packets without a route, or whose neighbour did not answer.
    pub unreachable: u64,
    /// Packets longer than the link takes, which must not be cut.
    pub too_big: u64,
    /// Packets whose time to live was over.
    pub expired: u64,
    /// Announcements of functions' addresses.
    pub announced: u64,
    /// Addresses of functions that are not announced, as there are too many: see
    /// [`crate::ANNOUNCED_MAX`].
    pub unannounced: u64,
}

/// A router's side of one port.
pub struct Host {
    config: Config,
    /// Its link-local address, if it has IPv6.
    link_local: Option<Network>,
    announcements: Announcements,
    neighbours: Neighbours,
    parser: Parser,
    /// Frames that are to be sent.
    frames: Vec<Vec<u8>>,
    /// Frames that are to go through the chain, as if they had arrived.
    returned: Vec<Vec<u8>>,
    /// Frames that the port's other hosts are to hear.
    told: Vec<Vec<u8>>,
    /// Errors that may be sent now, in thousand-millionths, and since when.
    allowance: u64,
    allowed_ns: u64,
    counters: Counters,
}

/// Takes the tags of a frame away that name no VLAN but a priority (IEEE 802.1Q 9.6): leaves the
/// frame without them in `untagged`, and says whether it had any. Such a frame belongs to the
/// untagged network.
pub fn untag(frame: &[u8], untagged: &mut Vec<u8>) -> bool {
    const ADDRESSES_LEN: usize = 12;
    let mut at = ADDRESSES_LEN;
    while let Some([0x81, 0x00, high, low] | [0x88, 0xa8, high, low]) = frame.get(at..at + 4)
        && high & 0xf == 0
        && *low == 0
        && at < ADDRESSES_LEN + 4 * PRIORITY_TAGS_MAX
    {
        at += 4;
    }
    if at == ADDRESSES_LEN {
        return false;
    }
    untagged.clear();
    untagged.extend_from_slice(&frame[..ADDRESSES_LEN]);
    untagged.extend_from_slice(&frame[at..]);
    true
}

/// Priority tags that are taken off a frame.
const PRIORITY_TAGS_MAX: usize = 2;

impl Host {
    /// A host that begins by telling its addresses to its neighbours.
    pub fn new(config: Config) -> Host {
        let mut host = Host {
            link_local: config.link_local(),
            announcements: Announcements::new(&config.owned),
            config,
            neighbours: Neighbours::default(),
            parser: Parser::new(FlowHasher::new(0)),
            frames: Vec::new(),
            returned: Vec::new(),
            told: Vec::new(),
            allowance: ERRORS_AT_ONCE * 1_000_000_000,
            allowed_ns: 0,
            counters: Counters::default(),
        };
        host.allowance /= host.parts();
        host.announce();
        host
    }

    /// The link is like that now: its interface may be another one, of the same name, and its MTU
    /// may have been changed.
    pub fn set_link(&mut self, mac: MacAddress, mtu: u32) {
        (self.config.mac, self.config.mtu) = (mac, mtu);
        self.link_local = self.config.link_local();
    }

    /// The networks that are on the link, with the host's addresses in them.
    fn networks(&self) -> impl Iterator<Item = &Network> + Clone {
        self.config.networks.iter().chain(&self.link_local)
    }

    /// The link has come up: neighbours are told the host's own addresses, and asked for theirs
    /// again when they are next spoken to.
    pub fn come_up(&mut self, now_ns: u64) {
        self.neighbours.doubt(now_ns);
        self.announce();
        self.announcements.restart();
    }

    /// Tells neighbours the host's own addresses (RFC 5227 2.3, RFC 4861 7.2.6).
    fn announce(&mut self) {
        if self.config.part.0 > 0 {
            return;
        }
        let mac = self.config.mac;
        let told: Vec<_> = self.networks().map(|network| announcement(mac, network.address)).collect();
        self.frames.extend(told);
    }

    /// Announces the addresses of functions, in turn, and the host's own once more.
    fn announce_owned(&mut self, now_ns: u64) {
        if self.config.part.0 > 0 {
            return;
        }
        let (due, again) = self.announcements.due(now_ns);
        if again {
            self.announce();
        }
        for address in due {
            if !self.is_own(address) {
                self.counters.announced += 1;
                self.frames.push(announcement(self.config.mac, address));
            }
        }
    }

    /// Whether the host itself has the address.
    fn is_own(&self, address: Addr) -> bool {
        self.networks().any(|network| network.address == address)
    }

    /// Whether a function has it.
    fn is_owned(&self, address: Addr) -> bool {
        let number = address.to_u128();
        self.config.owned.iter().any(|(first, last)| (first.to_u128()..=last.to_u128()).contains(&number))
    }

    /// A frame has arrived: whether it goes through the chain. What the host has to say to it is in
    /// [`Host::take_frames`].
    pub fn arrive(&mut self, frame: &[u8], now_ns: u64) -> Arrival {
        let arrival = self.look_at(frame, now_ns);
        self.counters.kept += u64::from(arrival == Arrival::Kept);
        arrival
    }

    fn look_at(&mut self, frame: &[u8], now_ns: u64) -> Arrival {
        let Ok(link) = ethernet::Frame::new_checked(frame) else { return Arrival::Kept };
        if link.destination() != self.config.mac && !link.destination().is_multicast() {
            return Arrival::Kept;
        }
        if let Some(said) = self.hear(frame, now_ns) {
            self.frames.extend(said);
            if self.config.part.1 > 1 {
                self.told.push(frame.to_vec());
            }
            return Arrival::Kept;
        }
        let Some(ip) = Ip::of(frame) else { return Arrival::Kept };
        let (source, destination, ttl) = (ip.source, ip.destination, ip.ttl);
        if self.config.refuses_martians && self.is_martian(&ip) {
            return Arrival::Refused(DropReason::Martian);
        }
        let is_to_link = |address: Addr| match address.ip() {
            IpAddr::V4(v4) => {
                v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || v4.is_link_local()
            }
            IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified() || v6.is_unicast_link_local(),
        };
        if self.is_own(destination) {
            return self.take_own(frame, destination, now_ns);
        }
        let is_broadcast = self.networks().any(|network| network.is_broadcast(destination));
        if link.destination().is_multicast() || is_broadcast || is_to_link(destination) || is_to_link(source)
        {
            return Arrival::Kept;
        }
        if ttl <= 1 {
            self.counters.expired += 1;
            self.answer(frame, IcmpError::TimeExceeded, now_ns);
            return Arrival::Kept;
        }
        Arrival::Through
    }

    /// Whether the packet comes from an address that nobody may send from, or goes to one that must
    /// not be on a link (RFC 1812 5.3.7).
    fn is_martian(&self, ip: &Ip) -> bool {
        let (from, to) = (ip.source.ip(), ip.destination.ip());
        let is_mapped = ip.is_v6 && (ip.source.is_v4() || ip.destination.is_v4());
        // Hosts without an address ask for one, or whether one is free.
        let asks = from.is_unspecified() && (to.is_multicast() || to == IpAddr::V4(Ipv4Addr::BROADCAST));
        is_mapped
            || sanity::is_martian_source(from) && !asks
            || sanity::is_martian_destination(to)
            || self.is_own(ip.source)
            || self.config.router.contains(&ip.source)
    }

    /// A frame that tells of a neighbour has arrived at another host of the port
    /// ([`Host::take_told`]), which answers, if there is to be an answer.
    pub fn overhear(&mut self, frame: &[u8], now_ns: u64) {
        let _said_there = self.hear(frame, now_ns);
    }

    /// A frame that may tell of neighbours: what is to be said to it; none if it is no such frame.
    fn hear(&mut self, frame: &[u8], now_ns: u64) -> Option<Option<Vec<u8>>> {
        let link = ethernet::Frame::new_checked(frame).ok()?;
        if link.ethertype() == Some(EtherType::ARP) {
            return Some(self.take_arp(frame, now_ns));
        }
        let source = Ip::of(frame).filter(|ip| !ip.destination.is_v4())?.source;
        let message = solicit::parse(&frame[ethernet::HEADER_LEN..])?;
        Some(self.take_discovery(link.source(), source, message, now_ns))
    }

    fn take_arp(&mut self, frame: &[u8], now_ns: u64) -> Option<Vec<u8>> {
        let packet = arp::parse(frame)?;
        let (sender, target) =
            (Addr::from(IpAddr::V4(packet.sender_protocol)), Addr::from(IpAddr::V4(packet.target_protocol)));
        let is_here = self.is_own(target) || self.is_owned(target);
        if self.is_neighbour(sender) {
            self.learn(sender, packet.sender_hardware, is_here, now_ns);
        }
        let is_asked = is_here && packet.operation == wire_arp::Operation::REQUEST && sender != target;
        let own = (self.config.mac, packet.target_protocol);
        is_asked.then(|| arp::reply(own, (packet.sender_hardware, packet.sender_protocol)))
    }

    fn take_discovery(
        &mut self,
        mac: MacAddress,
        source: Addr,
        message: Message,
        now_ns: u64,
    ) -> Option<Vec<u8>> {
        match message {
            Message::Solicitation { target, source: said } => {
                let address = Addr::from(IpAddr::V6(target));
                if !(self.is_own(address) || self.is_owned(address)) {
                    return None;
                }
                let asker = match source.ip() {
                    IpAddr::V6(v6) if !v6.is_unspecified() => Some((said.unwrap_or(mac), v6)),
                    _ => None,
                };
                if let Some((mac, _)) = asker
                    && self.is_neighbour(source)
                {
                    self.learn(source, mac, true, now_ns);
                }
                Some(solicit::advertisement((self.config.mac, target), asker))
            }
            Message::Advertisement { target, mac } => {
                self.learn(Addr::from(IpAddr::V6(target)), mac, false, now_ns);
                None
            }
        }
    }

    /// Whether the address is of the link, and not the host's own.
    fn is_neighbour(&self, address: Addr) -> bool {
        self.networks().any(|network| network.contains(address)) && !self.is_own(address)
    }

    fn learn(&mut self, address: Addr, mac: MacAddress, spoke: bool, now_ns: u64) {
        for mut frame in self.neighbours.learn(address, mac, spoke, now_ns) {
            self.put_addresses(&mut frame, mac);
            self.frames.push(frame);
        }
    }

    /// A packet to one of the host's own addresses: a function's business, if it owns it, too.
    fn take_own(&mut self, frame: &[u8], destination: Addr, now_ns: u64) -> Arrival {
        let mut reply = frame.to_vec();
        if echo::answer(&mut reply[ethernet::HEADER_LEN..]) {
            let to = MacAddress(*reply[6..].first_chunk().unwrap_or(&[0; 6]));
            self.put_addresses(&mut reply, to);
            self.frames.push(reply);
            return Arrival::Kept;
        }
        if self.is_owned(destination) {
            return Arrival::Through;
        }
        self.answer(frame, IcmpError::PortUnreachable, now_ns);
        Arrival::Kept
    }

    /// Answers a frame that arrived: a reset, if it is of TCP and nobody listens, else this error.
    fn answer(&mut self, frame: &[u8], error: IcmpError, now_ns: u64) {
        if !self.may_err(now_ns) {
            return;
        }
        let Some(mut packet) = self.parsed(frame) else { return };
        let view = PacketView::new(&mut packet, None);
        let mut buffer = answer::buffer();
        let asks_port = error == IcmpError::PortUnreachable;
        if asks_port && !matches!(view.meta().protocol, protocol::TCP | protocol::UDP) {
            return;
        }
        let built = match asks_port && view.meta().protocol == protocol::TCP {
            true => answer::tcp_reset(&view, &mut buffer),
            false => match self.own_address(view.ends().1.addr) {
                Some(from) => answer::icmp_error(&view, error, from, &mut buffer),
                None => return,
            },
        };
        if let Ok(network) = built {
            let to = MacAddress(*frame[6..].first_chunk().unwrap_or(&[0; 6]));
            self.frames.push(self.framed(to, network));
        }
    }

    /// Sends an error about a packet that was to depart back through the chain.
    fn send_back(&mut self, frame: &[u8], error: IcmpError, now_ns: u64) {
        if !self.may_err(now_ns) {
            return;
        }
        let Some(mut packet) = self.parsed(frame) else { return };
        let view = PacketView::new(&mut packet, None);
        let mut buffer = answer::buffer();
        let Some(from) = self.own_address(view.ends().1.addr) else { return };
        if let Ok(network) = answer::icmp_error(&view, error, from, &mut buffer) {
            let frame = self.framed(self.config.mac, network);
            self.returned.push(frame);
            self.counters.returned += 1;
        }
    }

    fn parsed(&self, frame: &[u8]) -> Option<Packet> {
        let mut packet = Packet::from_bytes(frame);
        packet.meta_mut().link = LinkType::Ethernet;
        // It is answered as what came to this host alone.
        packet.data_mut()[..6].copy_from_slice(&self.config.mac.0);
        self.parser.parse(&mut packet).ok()?;
        Some(packet)
    }

    /// An IP packet in a frame to a neighbour.
    fn framed(&self, to: MacAddress, network: &[u8]) -> Vec<u8> {
        let ethertype = if network[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let header = ethernet::Repr { destination: to, source: self.config.mac, ethertype };
        let mut frame = vec![0; ethernet::HEADER_LEN];
        let written = header.emit(&mut frame);
        debug_assert!(written.is_ok(), "the frame has room");
        frame.extend_from_slice(network);
        frame
    }

    /// The host's address that a packet to this one would come from.
    fn own_address(&self, to: Addr) -> Option<Addr> {
        let mut of_version = self.networks().filter(|network| network.address.is_v4() == to.is_v4());
        if self.is_own(to) {
            return Some(to);
        }
        let near = of_version.clone().find(|network| network.contains(to));
        near.or(of_version.next()).map(|network| network.address)
    }

    /// Hosts that the port has.
    fn parts(&self) -> u64 {
        (self.config.part.1 as u64).clamp(1, ERRORS_AT_ONCE)
    }

    /// Whether an error may be sent now, by rate.
    fn may_err(&mut self, now_ns: u64) -> bool {
        const ONE: u64 = 1_000_000_000;
        let since_ns = now_ns.saturating_sub(self.allowed_ns).min(ONE);
        let (per_second, at_once) = (ERRORS_PER_SECOND, ERRORS_AT_ONCE * ONE);
        self.allowance = (self.allowance + since_ns * per_second / self.parts()).min(at_once / self.parts());
        self.allowed_ns = now_ns;
        let may = self.allowance >= ONE;
        self.allowance -= if may { ONE } else { 0 };
        may
    }

    /// A packet is to leave by this port: it gets the next hop's address, and a time to live that
    /// is one less.
    pub fn depart(&mut self, frame: &mut [u8], now_ns: u64) -> Departure {
        let departure = self.send(frame, now_ns);
        self.counters.withheld += u64::from(departure == Departure::Kept);
        departure
    }

    fn send(&mut self, frame: &mut [u8], now_ns: u64) -> Departure {
        let Some(ip) = Ip::of(frame) else { return Departure::Kept };
        if ip.ttl <= 1 {
            self.counters.expired += 1;
            return Departure::Kept;
        }
        if self.is_own(ip.destination) {
            self.answer_through(frame, now_ns);
            return Departure::Kept;
        }
        let Some(hop) = self.next_hop(ip.destination) else {
            self.counters.unreachable += 1;
            self.send_back(frame, IcmpError::NoRoute, now_ns);
            return Departure::Kept;
        };
        if ip.len > self.config.mtu as usize {
            return self.send_in_pieces(frame, hop, now_ns);
        }
        take_hop(frame);
        self.send_to(frame, hop, now_ns)
    }

    /// A packet came through the chain to one of the host's own addresses: so does the answer.
    fn answer_through(&mut self, frame: &[u8], now_ns: u64) {
        let mut reply = frame.to_vec();
        if echo::answer(&mut reply[ethernet::HEADER_LEN..]) {
            self.put_addresses(&mut reply, self.config.mac);
            self.returned.push(reply);
            self.counters.returned += 1;
        } else {
            self.send_back(frame, IcmpError::PortUnreachable, now_ns);
        }
    }

    fn send_in_pieces(&mut self, frame: &mut [u8], hop: Addr, now_ns: u64) -> Departure {
        let Some(mut pieces) = fragment::cut(frame, self.config.mtu as usize) else {
            self.counters.too_big += 1;
            self.send_back(frame, IcmpError::TooBig { mtu: self.config.mtu }, now_ns);
            return Departure::Kept;
        };
        for piece in &mut pieces {
            take_hop(piece);
            if self.send_to(piece, hop, now_ns) == Departure::Leaves {
                self.frames.push(std::mem::take(piece));
            }
        }
        Departure::Kept
    }

    /// Gives a frame to the neighbour with this address, once it is known.
    fn send_to(&mut self, frame: &mut [u8], hop: Addr, now_ns: u64) -> Departure {
        let (ask, departure) = match self.neighbours.find(hop, frame, now_ns) {
            Found::Here { mac, ask } => {
                self.put_addresses(frame, mac);
                (ask, Departure::Leaves)
            }
            Found::Waits { ask, lost } => {
                self.counters.unreachable += u64::from(lost);
                (ask, Departure::Kept)
            }
        };
        if ask {
            self.ask(hop);
        }
        departure
    }

    fn put_addresses(&self, frame: &mut [u8], to: MacAddress) {
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.config.mac.0);
    }

    /// Where a packet to this address is sent: there, if it is on the link, else to the gateway.
    fn next_hop(&self, destination: Addr) -> Option<Addr> {
        if self.networks().any(|network| network.is_broadcast(destination)) {
            return None;
        }
        if self.networks().any(|network| network.contains(destination)) {
            return Some(destination);
        }
        let gateways = self.config.gateways.iter().map(|&gateway| Addr::from(gateway));
        gateways.into_iter().find(|gateway| gateway.is_v4() == destination.is_v4())
    }

    fn ask(&mut self, address: Addr) {
        let Some(own) = self.own_address(address) else { return };
        let mac = self.config.mac;
        self.frames.push(match (own.ip(), address.ip()) {
            (IpAddr::V4(own), IpAddr::V4(target)) => arp::request((mac, own), target),
            (IpAddr::V6(own), IpAddr::V6(target)) => solicit::solicitation((mac, own), target),
            _ => return,
        });
    }

    /// Time has come so far: neighbours that have not answered are asked again, or given up.
    pub fn pass_time(&mut self, now_ns: u64) {
        self.announce_owned(now_ns);
        let (mut ask, mut lost) = (Vec::new(), Vec::new());
        self.neighbours.overdue(now_ns, &mut ask, &mut lost);
        for address in ask {
            self.ask(address);
        }
        for frame in lost {
            self.counters.unreachable += 1;
            self.send_back(&frame, IcmpError::HostUnreachable, now_ns);
        }
    }

    /// Frames that are to be sent.
    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        self.counters.made += self.frames.len() as u64;
        std::mem::take(&mut self.frames)
    }

    /// Frames that are to go through the chain, as if they had arrived at this port.
    pub fn take_returned(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.returned)
    }

    /// Frames that told of neighbours, for the port's other hosts to [overhear](Host::overhear);
    /// none if it is the only one.
    pub fn take_told(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.told)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        Counters { unannounced: self.announcements.left_out(), ..self.counters }
    }

    /// Packets that wait for a neighbour's address now.
    pub fn waiting(&self) -> u64 {
        self.neighbours.waiting()
    }
}

/// What a frame's IP header says, that a router asks for.
pub(crate) struct Ip {
    pub source: Addr,
    pub destination: Addr,
    ttl: u8,
    /// Bytes of the IP packet.
    len: usize,
    is_v6: bool,
}

impl Ip {
    /// None for a frame that has no IP packet right behind its Ethernet header.
    pub fn of(frame: &[u8]) -> Option<Ip> {
        let link = ethernet::Frame::new_checked(frame).ok()?;
        let packet = &frame[ethernet::HEADER_LEN..];
        let of = |source: IpAddr, destination: IpAddr| (Addr::from(source), Addr::from(destination));
        let ((source, destination), ttl, len) = match link.ethertype()? {
            EtherType::IPV4 => {
                let header = ipv4::Packet::new_checked(packet).ok()?;
                let ends = of(header.source().into(), header.destination().into());
                (ends, header.ttl(), usize::from(header.total_len()))
            }
            EtherType::IPV6 => {
                let header = ipv6::Packet::new_checked(packet).ok()?;
                let ends = of(header.source().into(), header.destination().into());
                (ends, header.hop_limit(), ipv6::HEADER_LEN + usize::from(header.payload_len()))
            }
            _ => return None,
        };
        Some(Ip { source, destination, ttl, len, is_v6: packet[0] >> 4 == 6 })
    }
}

/// Takes one from the time to live of the packet in a frame, which is above 1.
fn take_hop(frame: &mut [u8]) {
    let packet = &mut frame[ethernet::HEADER_LEN..];
    if packet[0] >> 4 == 6 {
        let mut header = ipv6::Packet::new_unchecked(packet);
        header.set_hop_limit(header.hop_limit().saturating_sub(1));
        return;
    }
    let mut header = ipv4::Packet::new_unchecked(packet);
    let word = |ttl: u8, next: u8| u16::from_be_bytes([ttl, next]);
    let (ttl, next) = (header.ttl(), header.protocol().0);
    let left = ttl.saturating_sub(1);
    let sum = checksum::update16(header.checksum(), word(ttl, next), word(left, next));
    header.set_ttl(left);
    header.set_checksum(sum);
}

/// The link-local address that an Ethernet address makes (RFC 4291 2.5.6, appendix A).
pub(crate) fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Addr {
    let v6 = Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Addr::from(IpAddr::V6(v6))
}
