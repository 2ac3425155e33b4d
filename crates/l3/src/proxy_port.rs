//! The port of a wire with a graph that owns addresses: it answers for those (proxy ARP, RFC 1027;
//! RFC 4389 for IPv6).
//!
//! Everything else passes as on any wire. Only frames to the NFs' addresses arrive at the wire's
//! own interfaces. After an NF rewrote such a packet, its frame goes to the interface of the new
//! destination: the last known sender of that address, or the first to answer a solicitation.

use std::net::{IpAddr, Ipv4Addr};

use packet::Addr;
use packet::wire::{EtherType, MacAddress, arp as wire_arp, ethernet};
use telemetry::event;

use crate::announce::{Announcements, announcement};
use crate::frame::{Ip, link_local};
use crate::in_use::{self, InUse, Leaving};
use crate::nd::NdMessage;
use crate::neighbours::{LookupResult, Neighbours};
use crate::router_port::{Counters, EgressAction, IngressAction};
use crate::{arp, nd};

/// Limit on the senders remembered, a power of two. A later sender displaces one in the same slot.
pub const SENDERS_MAX: usize = 4_096;

/// The configuration of a wire's port on its link.
#[derive(Clone, Debug)]
pub struct ProxyPortConfig {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Ethernet addresses of all the wire's ports.
    pub wire: Vec<MacAddress>,
    /// Ranges of addresses owned by NFs, first and last, for neighbours on this side.
    pub nf_addresses: Vec<(Addr, Addr)>,
    /// Ranges of addresses that NFs own while in use, as for
    /// [`Config::nf_addresses_in_use`](crate::Config::nf_addresses_in_use).
    pub nf_addresses_in_use: Vec<(Addr, Addr)>,
    /// Index and number of the shards of this port.
    pub shard: (usize, usize),
}

/// A wire's port that answers for the addresses of NFs.
pub struct ProxyPort {
    config: ProxyPortConfig,
    announcements: Announcements,
    in_use: InUse,
    neighbours: Neighbours,
    /// By a hash of their addresses.
    senders: Vec<Option<(Addr, MacAddress)>>,
    frames: Vec<Vec<u8>>,
    snooped: Vec<Vec<u8>>,
    counters: Counters,
}

impl ProxyPort {
    /// Returns a port that starts by announcing the addresses of NFs.
    pub fn new(config: ProxyPortConfig) -> ProxyPort {
        ProxyPort {
            announcements: Announcements::new(&config.nf_addresses),
            in_use: InUse::new(&config.nf_addresses_in_use),
            config,
            neighbours: Neighbours::default(),
            senders: vec![None; SENDERS_MAX],
            frames: Vec::new(),
            snooped: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Updates the Ethernet addresses.
    pub fn set_link(&mut self, mac: MacAddress, wire: &[MacAddress]) {
        self.config.mac = mac;
        self.config.wire.clear();
        self.config.wire.extend_from_slice(wire);
    }

    /// Handles a link that came up.
    pub fn handle_link_up(&mut self, now_ns: u64) {
        self.neighbours.mark_stale(now_ns);
        self.announcements.restart(self.in_use.answered(now_ns));
    }

    /// Handles an incoming frame.
    pub fn handle_ingress(&mut self, frame: &[u8], now_ns: u64) -> IngressAction {
        let heard = self.hear(frame, now_ns);
        // Other shards take what has the port's own address for a report of this one.
        let is_foreign = frame.get(6..12) != Some(&self.config.mac.0);
        if self.config.shard.1 > 1 && is_foreign && (heard.is_some() || self.is_claim(frame)) {
            self.snooped.push(frame.to_vec());
        }
        let Some(said) = heard else {
            self.remember_sender(frame);
            return IngressAction::Forward;
        };
        self.frames.extend(said);
        self.counters.consumed += 1;
        IngressAction::Consumed
    }

    /// Learns from a frame about neighbours that another shard received and answers.
    pub fn snoop(&mut self, frame: &[u8], now_ns: u64) {
        match nd::own_target(frame, self.config.mac).filter(|&target| self.in_use.covers(target)) {
            Some(target) => self.in_use.adopt(target, now_ns),
            None => _ = self.hear(frame, now_ns),
        }
    }

    /// Checks for a neighbour's message about an address that NFs own while it is in use.
    fn is_claim(&self, frame: &[u8]) -> bool {
        let is_v6 = Ip::of(frame).is_some_and(|ip| ip.is_v6);
        let said = nd::parse(&frame[ethernet::HEADER_LEN.min(frame.len())..]).filter(|_| is_v6);
        said.is_some_and(|said| {
            let (NdMessage::Solicitation { target, .. } | NdMessage::Advertisement { target, .. }) = said;
            self.in_use.covers(Addr::from(IpAddr::V6(target)))
        })
    }

    /// Handles requests for an NF's address and answers to this port's requests. Returns the
    /// answer, if any. `None` for other frames.
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
        match nd::parse(&frame[ethernet::HEADER_LEN..])? {
            NdMessage::Solicitation { target, source: said } => {
                let address = Addr::from(IpAddr::V6(target));
                if source.ip().is_unspecified() {
                    self.in_use.yield_to_neighbour(address, now_ns);
                }
                let is_owned = self.is_owned(address);
                let overrides = if is_owned { Some(true) } else { self.in_use.answer(address, now_ns) }?;
                let asker = match source.ip() {
                    IpAddr::V6(v6) if !v6.is_unspecified() => Some((said.unwrap_or(link.source()), v6)),
                    _ => None,
                };
                Some(Some(nd::advertisement((self.config.mac, target), asker, overrides)))
            }
            NdMessage::Advertisement { target, mac } => {
                let address = Addr::from(IpAddr::V6(target));
                if mac != self.config.mac {
                    self.in_use.yield_to_neighbour(address, now_ns);
                }
                self.learn(address, mac, now_ns);
                is_to_me.then_some(None)
            }
        }
    }

    fn is_owned(&self, address: Addr) -> bool {
        let number = address.to_u128();
        self.config
            .nf_addresses
            .iter()
            .any(|(first, last)| (first.to_u128()..=last.to_u128()).contains(&number))
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

    /// Handles an outgoing packet: if its frame was addressed to the wire itself, it gets the
    /// Ethernet address of the packet's destination.
    pub fn handle_egress(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction {
        if !self.may_leave(frame, now_ns) {
            self.counters.withheld += 1;
            self.counters.duplicate += 1;
            return EgressAction::Consumed;
        }
        let to = frame.first_chunk().copied().map(MacAddress);
        if !to.is_some_and(|to| self.config.wire.contains(&to)) {
            return EgressAction::Transmit;
        }
        let Some(ip) = Ip::of(frame) else { return EgressAction::Transmit };
        if let Some(&Some((address, mac))) = self.senders.get(place(ip.destination))
            && address == ip.destination
        {
            self.put_addresses(frame, mac);
            return EgressAction::Transmit;
        }
        match self.neighbours.find(ip.destination, frame, now_ns) {
            LookupResult::Resolved { mac, solicit } => {
                self.put_addresses(frame, mac);
                if solicit {
                    self.solicit(ip.destination);
                }
                EgressAction::Transmit
            }
            LookupResult::Pending { solicit, lost } => {
                self.counters.withheld += 1;
                self.counters.unreachable += u64::from(lost);
                if solicit {
                    self.solicit(ip.destination);
                }
                EgressAction::Consumed
            }
        }
    }

    /// Notes that the source of a packet is in use, if NFs own its prefix so. Returns false if a
    /// neighbour has it.
    fn may_leave(&mut self, frame: &[u8], now_ns: u64) -> bool {
        if self.config.nf_addresses_in_use.is_empty() {
            return true;
        }
        let source = Ip::of(frame).map(|ip| ip.source);
        let Some(source) = source.filter(|&source| self.in_use.covers(source)) else { return true };
        let leaving = self.in_use.note(source, now_ns);
        let share = self.config.shard.1 > 1;
        in_use::tell(leaving, self.config.mac, source, &mut self.frames, share.then_some(&mut self.snooped));
        leaving != Leaving::Taken
    }

    fn put_addresses(&self, frame: &mut [u8], to: MacAddress) {
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.config.mac.0);
    }

    /// Solicits an address, from the unspecified address (RFC 5227 1.1) or the interface's
    /// link-local one.
    fn solicit(&mut self, address: Addr) {
        let mac = self.config.mac;
        self.frames.push(match (address.ip(), link_local(mac).ip()) {
            (IpAddr::V4(target), _) => arp::request((mac, Ipv4Addr::UNSPECIFIED), target),
            (IpAddr::V6(target), IpAddr::V6(own)) => nd::solicitation((mac, own), target),
            (IpAddr::V6(_), IpAddr::V4(_)) => return,
        });
    }

    /// Retransmits solicitations and sends announcements.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if self.config.shard.0 == 0 {
            let (due, _) = self.announcements.take_due(now_ns);
            self.counters.announced += due.len() as u64;
            self.frames.extend(due.into_iter().map(|address| announcement(self.config.mac, address)));
        }
        let (mut solicited, mut lost) = (Vec::new(), Vec::new());
        self.neighbours.expire(now_ns, &mut solicited, &mut lost);
        solicited.into_iter().for_each(|address| self.solicit(address));
        if !lost.is_empty() {
            event::neighbour_unresolved(lost.len() as u64);
        }
        self.counters.unreachable += lost.len() as u64;
    }

    /// Takes the frames to send.
    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        self.counters.generated += self.frames.len() as u64;
        std::mem::take(&mut self.frames)
    }

    /// Takes the frames about neighbours, for the port's other shards.
    pub fn take_snooped(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.snooped)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let (in_use, displaced) = self.in_use.count();
        Counters { unannounced: self.announcements.omitted(), in_use, displaced, ..self.counters }
    }

    /// Returns the number of packets waiting for a neighbour's address.
    pub fn pending(&self) -> u64 {
        self.neighbours.pending()
    }
}

/// Returns the slot of a sender's address.
fn place(address: Addr) -> usize {
    let number = address.to_u128();
    let folded = (number as u64 ^ (number >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (folded >> 52) as usize % SENDERS_MAX
}
