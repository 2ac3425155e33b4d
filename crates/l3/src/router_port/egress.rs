//! Outgoing packets: next hops, neighbours, fragments and errors.

use std::net::IpAddr;

use nf::PacketView;
use nf::answer::{self, IcmpError};
use packet::Addr;
use packet::wire::ethernet;

use super::{EgressAction, RouterPort};
use crate::frame::{Ip, decrement_ttl};
use crate::in_use::{self, Leaving};
use crate::neighbours::LookupResult;
use crate::route_table::NextHop;
use crate::{arp, echo, fragment, nd};

impl RouterPort {
    /// Sends an error about an outgoing packet back through the graph.
    pub(super) fn send_back(&mut self, frame: &[u8], error: IcmpError, now_ns: u64) {
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

    /// Handles an outgoing packet: sets the next hop's address and decrements the time to live.
    pub fn handle_egress(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction {
        let departure = self.send(frame, now_ns);
        self.counters.withheld += u64::from(departure == EgressAction::Consumed);
        departure
    }

    fn send(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction {
        let Some(ip) = Ip::of(frame) else { return EgressAction::Consumed };
        if ip.ttl <= 1 {
            self.counters.expired += 1;
            return EgressAction::Consumed;
        }
        if self.in_use.covers(ip.source) && !self.may_use(ip.source, now_ns) {
            self.counters.duplicate += 1;
            return EgressAction::Consumed;
        }
        if self.is_own(ip.destination) {
            self.answer_through(frame, now_ns);
            return EgressAction::Consumed;
        }
        let Some(hop) = self.next_hop(ip.destination) else {
            self.counters.unreachable += 1;
            self.send_back(frame, IcmpError::NoRoute, now_ns);
            return EgressAction::Consumed;
        };
        if ip.len > self.config.mtu as usize {
            return self.send_in_pieces(frame, hop, now_ns);
        }
        decrement_ttl(frame);
        self.send_to(frame, hop, now_ns)
    }

    /// Notes that an address of an NF's prefix is in use. Returns false if it is somebody else's.
    fn may_use(&mut self, address: Addr, now_ns: u64) -> bool {
        if self.is_own(address) || self.is_taken(address) {
            return false;
        }
        let leaving = self.in_use.note(address, now_ns);
        let share = self.config.shard.1 > 1;
        in_use::tell(leaving, self.config.mac, address, &mut self.frames, share.then_some(&mut self.snooped));
        leaving != Leaving::Taken
    }

    /// Answers a packet that came through the graph to one of the port's own addresses, through the
    /// graph.
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

    fn send_in_pieces(&mut self, frame: &mut [u8], hop: Addr, now_ns: u64) -> EgressAction {
        let Some(mut pieces) = fragment::cut(frame, self.config.mtu as usize) else {
            self.counters.too_big += 1;
            self.send_back(frame, IcmpError::TooBig { mtu: self.config.mtu }, now_ns);
            return EgressAction::Consumed;
        };
        for piece in &mut pieces {
            decrement_ttl(piece);
            if self.send_to(piece, hop, now_ns) == EgressAction::Transmit {
                self.frames.push(std::mem::take(piece));
            }
        }
        EgressAction::Consumed
    }

    /// Sends a frame to a neighbour, or keeps it until the neighbour's address is known.
    fn send_to(&mut self, frame: &mut [u8], hop: Addr, now_ns: u64) -> EgressAction {
        let (solicit, departure) = match self.neighbours.find(hop, frame, now_ns) {
            LookupResult::Resolved { mac, solicit } => {
                self.put_addresses(frame, mac);
                (solicit, EgressAction::Transmit)
            }
            LookupResult::Pending { solicit, lost } => {
                self.counters.unreachable += u64::from(lost);
                (solicit, EgressAction::Consumed)
            }
        };
        if solicit {
            self.solicit(hop);
        }
        departure
    }

    /// Returns the neighbour that gets packets to a destination.
    fn next_hop(&self, destination: Addr) -> Option<Addr> {
        Some(match self.routes.find(destination)? {
            NextHop::Destination => destination,
            NextHop::Neighbour(neighbour) => neighbour,
        })
    }

    pub(super) fn solicit(&mut self, address: Addr) {
        let Some(own) = self.own_address(address) else { return };
        let mac = self.config.mac;
        self.frames.push(match (own.ip(), address.ip()) {
            (IpAddr::V4(own), IpAddr::V4(target)) => arp::request((mac, own), target),
            (IpAddr::V6(own), IpAddr::V6(target)) => nd::solicitation((mac, own), target),
            _ => return,
        });
    }
}
