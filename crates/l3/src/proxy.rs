//! A wire's port whose chain owns addresses: it answers for them, as nobody else has them (proxy
//! ARP, RFC 1027; RFC 4389 for IPv6).
//!
//! Everything else passes as on any wire. Frames come to the wire's own cards for those addresses
//! alone; when such a frame leaves again, with the address that a function gave it, it goes to the
//! card of whoever has that: the one that packets from this address last came from, or the one that
//! says so when it is asked.

use std::net::{IpAddr, Ipv4Addr};

use packet::Addr;
use packet::wire::{EtherType, MacAddress, arp as wire_arp, ethernet};

use crate::announce::{Announcements, announcement};
use crate::host::{Arrival, Counters, Departure, Ip, link_local};
use crate::neighbours::{Found, Neighbours};
use crate::solicit::Message;
use crate::{arp, solicit};

/// Senders whose cards are remembered, a power of two; of two with one place, the later one is.
pub const SENDERS_MAX: usize = 4_096;

/// What a wire's port is on its link.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Those of all ports of the wire.
    pub wire: Vec<MacAddress>,
    /// Addresses that functions own, from the first to the last, for neighbours here.
    pub owned: Vec<(Addr, Addr)>,
    /// Which part of the port it is, and how many there are.
    pub part: (usize, usize),
}

/// A wire's side of one port.
pub struct Proxy {
    config: ProxyConfig,
    announcements: Announcements,
    neighbours: Neighbours,
    /// By a hash of their addresses.
    senders: Vec<Option<(Addr, MacAddress)>>,
    frames: Vec<Vec<u8>>,
    told: Vec<Vec<u8>>,
    counters: Counters,
}

impl Proxy {
    /// One that begins by announcing what functions own.
    pub fn new(config: ProxyConfig) -> Proxy {
        Proxy {
            announcements: Announcements::new(&config.owned),
            config,
            neighbours: Neighbours::default(),
            senders: vec![None; SENDERS_MAX],
            frames: Vec::new(),
            told: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The cards are these now.
    pub fn set_link(&mut self, mac: MacAddress, wire: &[MacAddress]) {
        self.config.mac = mac;
        self.config.wire.clear();
        self.config.wire.extend_from_slice(wire);
    }

    /// The link has come up.
    pub fn come_up(&mut self, now_ns: u64) {
        self.neighbours.doubt(now_ns);
        self.announcements.restart();
    }

    /// A frame has arrived: whether it goes through the chain.
    pub fn arrive(&mut self, frame: &[u8], now_ns: u64) -> Arrival {
        let Some(said) = self.hear(frame, now_ns) else {
            self.remember_sender(frame);
            return Arrival::Through;
        };
        self.frames.extend(said);
        if self.config.part.1 > 1 {
            self.told.push(frame.to_vec());
        }
        self.counters.kept += 1;
        Arrival::Kept
    }

    /// A frame that tells of a neighbour has arrived at another part of the port.
    pub fn overhear(&mut self, frame: &[u8], now_ns: u64) {
        let _said_there = self.hear(frame, now_ns);
    }

    /// A frame that asks for an address of a function, or answers what this port has asked: what is
    /// to be said to it. None: it is others' business.
    fn hear(&mut self, frame: &[u8], now_ns: u64) -> Option<Option<Vec<u8>>> {
        let link = ethernet::Frame::new_checked(frame).ok()?;
        let is_to_me = link.destination() == self.config.mac;
        if link.ethertype() == Some(EtherType::ARP) {
            let packet = arp::parse(frame)?;
            let sender = Addr::from(IpAddr::V4(packet.sender_protocol));
            let target = Addr::from(IpAddr::V4(packet.target_protocol));
            self.learn(sender, packet.sender_hardware, now_ns);
            if packet.operation == wire_arp::Operation::REQUEST && sender != target && self.is_owned(target) {
                let own = (self.config.mac, packet.target_protocol);
                return Some(Some(arp::reply(own, (packet.sender_hardware, packet.sender_protocol))));
            }
            return is_to_me.then_some(None);
        }
        let source = Ip::of(frame).filter(|ip| !ip.destination.is_v4())?.source;
        match solicit::parse(&frame[ethernet::HEADER_LEN..])? {
            Message::Solicitation { target, source: said } => {
                if !self.is_owned(Addr::from(IpAddr::V6(target))) {
                    return None;
                }
                let asker = match source.ip() {
                    IpAddr::V6(v6) if !v6.is_unspecified() => Some((said.unwrap_or(link.source()), v6)),
                    _ => None,
                };
                Some(Some(solicit::advertisement((self.config.mac, target), asker)))
            }
            Message::Advertisement { target, mac } => {
                self.learn(Addr::from(IpAddr::V6(target)), mac, now_ns);
                is_to_me.then_some(None)
            }
        }
    }

    fn is_owned(&self, address: Addr) -> bool {
        let number = address.to_u128();
        self.config.owned.iter().any(|(first, last)| (first.to_u128()..=last.to_u128()).contains(&number))
    }

    fn learn(&mut self, address: Addr, mac: MacAddress, now_ns: u64) {
        for mut frame in self.neighbours.learn(address, mac, false, now_ns) {
            self.put_addresses(&mut frame, mac);
            self.frames.push(frame);
        }
    }

    fn remember_sender(&mut self, frame: &[u8]) {
        let Some(ip) = Ip::of(frame) else { return };
        let Some(&mac) = frame[6..].first_chunk() else { return };
        let place = place(ip.source);
        if let Some(sender) = self.senders.get_mut(place) {
            *sender = Some((ip.source, MacAddress(mac)));
        }
    }

    /// A packet is to leave by this port: if its frame came to the wire itself, it gets the card of
    /// the packet's destination.
    pub fn depart(&mut self, frame: &mut [u8], now_ns: u64) -> Departure {
        let to = frame.first_chunk().copied().map(MacAddress);
        if !to.is_some_and(|to| self.config.wire.contains(&to)) {
            return Departure::Leaves;
        }
        let Some(ip) = Ip::of(frame) else { return Departure::Leaves };
        if let Some(&Some((address, mac))) = self.senders.get(place(ip.destination))
            && address == ip.destination
        {
            self.put_addresses(frame, mac);
            return Departure::Leaves;
        }
        match self.neighbours.find(ip.destination, frame, now_ns) {
            Found::Here { mac, ask } => {
                self.put_addresses(frame, mac);
                if ask {
                    self.ask(ip.destination);
                }
                Departure::Leaves
            }
            Found::Waits { ask, lost } => {
                self.counters.withheld += 1;
                self.counters.unreachable += u64::from(lost);
                if ask {
                    self.ask(ip.destination);
                }
                Departure::Kept
            }
        }
    }

    fn put_addresses(&self, frame: &mut [u8], to: MacAddress) {
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.config.mac.0);
    }

    /// Asks who has an address, in nobody's name (RFC 5227 1.1), or in that of the card's
    /// link-local address.
    fn ask(&mut self, address: Addr) {
        let mac = self.config.mac;
        self.frames.push(match (address.ip(), link_local(mac).ip()) {
            (IpAddr::V4(target), _) => arp::request((mac, Ipv4Addr::UNSPECIFIED), target),
            (IpAddr::V6(target), IpAddr::V6(own)) => solicit::solicitation((mac, own), target),
            (IpAddr::V6(_), IpAddr::V4(_)) => return,
        });
    }

    /// Time has come so far.
    pub fn pass_time(&mut self, now_ns: u64) {
        if self.config.part.0 == 0 {
            let (due, _) = self.announcements.due(now_ns);
            self.counters.announced += due.len() as u64;
            self.frames.extend(due.into_iter().map(|address| announcement(self.config.mac, address)));
        }
        let (mut ask, mut lost) = (Vec::new(), Vec::new());
        self.neighbours.overdue(now_ns, &mut ask, &mut lost);
        ask.into_iter().for_each(|address| self.ask(address));
        self.counters.unreachable += lost.len() as u64;
    }

    /// Frames that are to be sent.
    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        self.counters.made += self.frames.len() as u64;
        std::mem::take(&mut self.frames)
    }

    /// Frames that told of neighbours, for the port's other parts.
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

/// Where an address's card is remembered.
fn place(address: Addr) -> usize {
    let number = address.to_u128();
    let folded = (number as u64 ^ (number >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (folded >> 52) as usize % SENDERS_MAX
}
