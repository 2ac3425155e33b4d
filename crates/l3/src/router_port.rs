//! A router's port: configuration, counters, and the link.

use std::net::IpAddr;

use nf::answer::IcmpError;
use packet::wire::{EtherType, MacAddress, ethernet};
use packet::{Addr, DropReason, FlowHasher, LinkType, Packet, Parser};

use crate::announce::{Announcements, announcement};
use crate::frame::link_local;
use crate::interface_address::InterfaceAddress;
use crate::neighbours::Neighbours;

mod egress;
mod ingress;

/// Limit on ICMP errors per second (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
pub const ERRORS_PER_SECOND: u64 = 1_000;

/// Limit on ICMP errors at once.
const ERRORS_AT_ONCE: u64 = 50;

/// Length of a link-local prefix in bits.
const LINK_LOCAL_LEN: u8 = 64;

/// The configuration of a port on its link.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Length in bytes of the longest IP packet that the link takes.
    pub mtu: u32,
    /// Its addresses; their networks are on the link.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hops for everything else, the first of each IP version. They must be on the link.
    pub gateways: Vec<IpAddr>,
    /// Ranges of addresses owned by NFs, first and last. The port announces and answers for them.
    pub nf_addresses: Vec<(Addr, Addr)>,
    /// Addresses of all the router's ports: packets must not arrive with such a source.
    pub router_addresses: Vec<Addr>,
    /// Drop packets with a source or destination that must not appear on a link.
    pub drop_martians: bool,
    /// Index and number of the shards of this port, each with a share of the incoming frames. The
    /// first one announces addresses. Each sends its share of the errors.
    pub shard: (usize, usize),
}

impl Config {
    /// Returns the link-local address and network, if the port has IPv6.
    fn link_local(&self) -> Option<InterfaceAddress> {
        let has_v6 = self.addresses.iter().any(|network| !network.address.is_v4());
        has_v6.then(|| InterfaceAddress::new(link_local(self.mac), LINK_LOCAL_LEN))
    }
}

/// The treatment of an incoming frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngressAction {
    /// Pass it to the graph.
    Forward,
    /// Nothing: it was for the port itself, or for another machine.
    Consumed,
    /// Drop it for this reason.
    Drop(DropReason),
}

/// The treatment of an outgoing packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressAction {
    /// Send the frame as it is now.
    Transmit,
    /// Nothing: the port kept what must be sent, or the packet is lost and counted.
    Consumed,
}

/// Counters of a port. `generated`, `pending`, `unreachable`, `too_big` and `expired` account for
/// the outgoing packets that were `withheld`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Incoming frames not passed to the graph.
    pub consumed: u64,
    /// Frames sent by the port: requests, answers, fragments, and packets that were pending.
    pub generated: u64,
    /// Errors about outgoing packets, sent back through the graph.
    pub returned: u64,
    /// Outgoing packets kept or lost.
    pub withheld: u64,
    /// Packets without a route, or whose neighbour did not answer.
    pub unreachable: u64,
    /// Packets larger than the MTU that must not be fragmented.
    pub too_big: u64,
    /// Packets whose time to live expired.
    pub expired: u64,
    /// Announcements of NFs' addresses.
    pub announced: u64,
    /// Addresses of NFs not announced because there are too many: see [`crate::ANNOUNCED_MAX`].
    pub unannounced: u64,
}

/// A router's port.
pub struct RouterPort {
    config: Config,
    /// Its link-local address, if it has IPv6.
    link_local: Option<InterfaceAddress>,
    announcements: Announcements,
    neighbours: Neighbours,
    parser: Parser,
    /// Frames to send.
    frames: Vec<Vec<u8>>,
    /// Frames to pass to the graph as if they had arrived.
    returned: Vec<Vec<u8>>,
    /// Frames for the port's other shards.
    snooped: Vec<Vec<u8>>,
    /// Errors that may be sent now, in units of 10^-9, and the time of that balance.
    allowance: u64,
    allowed_ns: u64,
    counters: Counters,
}

impl RouterPort {
    /// Returns a port that starts by announcing its addresses.
    pub fn new(config: Config) -> RouterPort {
        let mut port = RouterPort {
            link_local: config.link_local(),
            announcements: Announcements::new(&config.nf_addresses),
            config,
            neighbours: Neighbours::default(),
            parser: Parser::new(FlowHasher::new(0)),
            frames: Vec::new(),
            returned: Vec::new(),
            snooped: Vec::new(),
            allowance: ERRORS_AT_ONCE * 1_000_000_000,
            allowed_ns: 0,
            counters: Counters::default(),
        };
        port.allowance /= port.shards();
        port.announce();
        port
    }

    /// Updates the link: the interface may have been replaced by one of the same name, or its MTU
    /// changed.
    pub fn set_link(&mut self, mac: MacAddress, mtu: u32) {
        (self.config.mac, self.config.mtu) = (mac, mtu);
        self.link_local = self.config.link_local();
    }

    /// Returns the addresses of the port with their networks.
    fn networks(&self) -> impl Iterator<Item = &InterfaceAddress> + Clone {
        self.config.addresses.iter().chain(&self.link_local)
    }

    /// Handles a link that came up: announces the port's addresses, and solicits neighbours again
    /// before their next use.
    pub fn handle_link_up(&mut self, now_ns: u64) {
        self.neighbours.mark_stale(now_ns);
        self.announce();
        self.announcements.restart();
    }

    /// Announces the port's own addresses (RFC 5227 2.3, RFC 4861 7.2.6).
    fn announce(&mut self) {
        if self.config.shard.0 > 0 {
            return;
        }
        let mac = self.config.mac;
        let frames: Vec<_> = self.networks().map(|network| announcement(mac, network.address)).collect();
        self.frames.extend(frames);
    }

    /// Announces the addresses of NFs in turn, then the port's own once more.
    fn announce_owned(&mut self, now_ns: u64) {
        if self.config.shard.0 > 0 {
            return;
        }
        let (due, again) = self.announcements.take_due(now_ns);
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

    /// Checks if the port itself has the address.
    fn is_own(&self, address: Addr) -> bool {
        self.networks().any(|network| network.address == address)
    }

    /// Checks if an NF owns the address.
    fn is_owned(&self, address: Addr) -> bool {
        let number = address.to_u128();
        self.config
            .nf_addresses
            .iter()
            .any(|(first, last)| (first.to_u128()..=last.to_u128()).contains(&number))
    }

    fn parsed(&self, frame: &[u8]) -> Option<Packet> {
        let mut packet = Packet::from_bytes(frame);
        packet.meta_mut().link = LinkType::Ethernet;
        // The packet is answered as one that was sent to this port only.
        packet.data_mut()[..6].copy_from_slice(&self.config.mac.0);
        self.parser.parse(&mut packet).ok()?;
        Some(packet)
    }

    /// Builds a frame with an IP packet for a neighbour.
    fn framed(&self, to: MacAddress, network: &[u8]) -> Vec<u8> {
        let ethertype = if network[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let header = ethernet::Repr { destination: to, source: self.config.mac, ethertype };
        let mut frame = vec![0; ethernet::HEADER_LEN];
        let written = header.emit(&mut frame);
        debug_assert!(written.is_ok(), "the frame has room");
        frame.extend_from_slice(network);
        frame
    }

    /// Returns the port's address that a packet to `to` would have as its source.
    fn own_address(&self, to: Addr) -> Option<Addr> {
        let mut of_version = self.networks().filter(|network| network.address.is_v4() == to.is_v4());
        if self.is_own(to) {
            return Some(to);
        }
        let near = of_version.clone().find(|network| network.contains(to));
        near.or(of_version.next()).map(|network| network.address)
    }

    /// Returns the number of shards.
    fn shards(&self) -> u64 {
        (self.config.shard.1 as u64).clamp(1, ERRORS_AT_ONCE)
    }

    /// Checks and consumes the rate limit for errors.
    fn may_err(&mut self, now_ns: u64) -> bool {
        const ONE: u64 = 1_000_000_000;
        let since_ns = now_ns.saturating_sub(self.allowed_ns).min(ONE);
        let (per_second, at_once) = (ERRORS_PER_SECOND, ERRORS_AT_ONCE * ONE);
        self.allowance =
            (self.allowance + since_ns * per_second / self.shards()).min(at_once / self.shards());
        self.allowed_ns = now_ns;
        let may = self.allowance >= ONE;
        self.allowance -= if may { ONE } else { 0 };
        may
    }

    fn put_addresses(&self, frame: &mut [u8], to: MacAddress) {
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.config.mac.0);
    }

    /// Retransmits solicitations, and gives up on silent neighbours.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.announce_owned(now_ns);
        let (mut solicited, mut lost) = (Vec::new(), Vec::new());
        self.neighbours.expire(now_ns, &mut solicited, &mut lost);
        for address in solicited {
            self.solicit(address);
        }
        for frame in lost {
            self.counters.unreachable += 1;
            self.send_back(&frame, IcmpError::HostUnreachable, now_ns);
        }
    }

    /// Takes the frames to send.
    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        self.counters.generated += self.frames.len() as u64;
        std::mem::take(&mut self.frames)
    }

    /// Takes the frames to pass to the graph as if they had arrived at this port.
    pub fn take_returned(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.returned)
    }

    /// Takes the frames about neighbours, for the port's other shards to
    /// [snoop](RouterPort::snoop). Empty without other shards.
    pub fn take_snooped(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.snooped)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters { unannounced: self.announcements.omitted(), ..self.counters }
    }

    /// Returns the number of packets waiting for a neighbour's address.
    pub fn pending(&self) -> u64 {
        self.neighbours.pending()
    }
}
