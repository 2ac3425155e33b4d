//! Incoming frames: neighbour discovery, packets to the port itself, and checks.

use std::net::{IpAddr, Ipv4Addr};

use nf::PacketView;
use nf::answer::{self, IcmpError};
use packet::parse::protocol;
use packet::wire::{EtherType, MacAddress, arp as wire_arp, ethernet};
use packet::{Addr, DropReason, sanity};

use super::{IngressAction, RouterPort};
use crate::frame::Ip;
use crate::nd::NdMessage;
use crate::{arp, echo, nd};

impl RouterPort {
    /// Handles an incoming frame. Answers are returned by [`RouterPort::take_frames`].
    pub fn handle_ingress(&mut self, frame: &[u8], now_ns: u64) -> IngressAction {
        let arrival = self.look_at(frame, now_ns);
        self.counters.consumed += u64::from(arrival == IngressAction::Consumed);
        arrival
    }

    fn look_at(&mut self, frame: &[u8], now_ns: u64) -> IngressAction {
        let Ok(link) = ethernet::Frame::new_checked(frame) else { return IngressAction::Consumed };
        if link.destination() != self.config.mac && !link.destination().is_multicast() {
            return IngressAction::Consumed;
        }
        if let Some(said) = self.hear(frame, now_ns) {
            self.frames.extend(said);
            // Other shards take what has the port's own address for a report of this one.
            if self.config.shard.1 > 1 && link.source() != self.config.mac {
                self.snooped.push(frame.to_vec());
            }
            return IngressAction::Consumed;
        }
        let Some(ip) = Ip::of(frame) else { return IngressAction::Consumed };
        let (source, destination, ttl) = (ip.source, ip.destination, ip.ttl);
        if self.config.drop_martians && self.is_martian(&ip) {
            return IngressAction::Drop(DropReason::Martian);
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
            return IngressAction::Consumed;
        }
        if ttl <= 1 {
            self.counters.expired += 1;
            self.answer(frame, IcmpError::TimeExceeded, now_ns);
            return IngressAction::Consumed;
        }
        IngressAction::Forward
    }

    /// Checks for a forbidden source, or a destination that must not appear on a link (RFC 1812
    /// 5.3.7).
    fn is_martian(&self, ip: &Ip) -> bool {
        let (from, to) = (ip.source.ip(), ip.destination.ip());
        let is_mapped = ip.is_v6 && (ip.source.is_v4() || ip.destination.is_v4());
        // Hosts without an address request one, or check if one is free.
        let is_request =
            from.is_unspecified() && (to.is_multicast() || to == IpAddr::V4(Ipv4Addr::BROADCAST));
        is_mapped
            || sanity::is_martian_source(from) && !is_request
            || sanity::is_martian_destination(to)
            || self.is_own(ip.source)
            || !self.config.is_at_program && self.config.router_addresses.contains(&ip.source)
    }

    /// Learns from a frame about neighbours that another shard received
    /// ([`RouterPort::take_snooped`]) and answers.
    pub fn snoop(&mut self, frame: &[u8], now_ns: u64) {
        match nd::own_target(frame, self.config.mac).filter(|&target| self.in_use.covers(target)) {
            Some(target) => self.in_use.adopt(target, now_ns),
            None => _ = self.hear(frame, now_ns),
        }
    }

    /// Handles ARP and neighbour discovery and returns the answer, if any. `None` for other frames.
    fn hear(&mut self, frame: &[u8], now_ns: u64) -> Option<Option<Vec<u8>>> {
        let link = ethernet::Frame::new_checked(frame).ok()?;
        if link.ethertype() == Some(EtherType::ARP) {
            return Some(self.take_arp(frame, now_ns));
        }
        let source = Ip::of(frame).filter(|ip| !ip.destination.is_v4())?.source;
        let message = nd::parse(&frame[ethernet::HEADER_LEN..])?;
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
        message: NdMessage,
        now_ns: u64,
    ) -> Option<Vec<u8>> {
        match message {
            NdMessage::Solicitation { target, source: said } => {
                let address = Addr::from(IpAddr::V6(target));
                let is_own = self.is_own(address);
                if !is_own && source.ip().is_unspecified() {
                    self.in_use.yield_to_neighbour(address, now_ns);
                }
                let overrides = if is_own { Some(true) } else { self.answer_for(address, now_ns) }?;
                let asker = match source.ip() {
                    IpAddr::V6(v6) if !v6.is_unspecified() => Some((said.unwrap_or(mac), v6)),
                    _ => None,
                };
                if let Some((mac, _)) = asker
                    && self.is_neighbour(source)
                {
                    self.learn(source, mac, true, now_ns);
                }
                Some(nd::advertisement((self.config.mac, target), asker, overrides))
            }
            NdMessage::Advertisement { target, mac } => {
                let address = Addr::from(IpAddr::V6(target));
                if mac != self.config.mac {
                    self.in_use.yield_to_neighbour(address, now_ns);
                }
                self.learn(address, mac, false, now_ns);
                None
            }
        }
    }

    /// Checks for an address on the link that is not the port's own.
    fn is_neighbour(&self, address: Addr) -> bool {
        self.networks().any(|network| network.contains(address)) && !self.is_own(address)
    }

    fn learn(&mut self, address: Addr, mac: MacAddress, spoke: bool, now_ns: u64) {
        for mut frame in self.neighbours.learn(address, mac, spoke, now_ns) {
            self.put_addresses(&mut frame, mac);
            self.frames.push(frame);
        }
    }

    /// Handles a packet to one of the port's own addresses; it goes to the graph if an NF owns it
    /// too.
    fn take_own(&mut self, frame: &[u8], destination: Addr, now_ns: u64) -> IngressAction {
        let mut reply = frame.to_vec();
        if echo::answer(&mut reply[ethernet::HEADER_LEN..]) {
            let to = MacAddress(*reply[6..].first_chunk().unwrap_or(&[0; 6]));
            self.put_addresses(&mut reply, to);
            self.frames.push(reply);
            return IngressAction::Consumed;
        }
        if self.is_owned(destination) {
            return IngressAction::Forward;
        }
        self.answer(frame, IcmpError::PortUnreachable, now_ns);
        IngressAction::Consumed
    }

    /// Answers an incoming frame: a reset for TCP to a closed port, else this error.
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
}
