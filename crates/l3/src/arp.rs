//! ARP, for IPv4 (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

use packet::wire::{EtherType, MacAddress, arp, ethernet};

/// Length of an ARP packet with its Ethernet header.
const LEN: usize = ethernet::HEADER_LEN + arp::ETHERNET_IPV4_LEN;

/// Parses the ARP packet of a frame; `None` unless it is for IPv4 on Ethernet.
pub fn parse(frame: &[u8]) -> Option<arp::Repr> {
    let packet = arp::Packet::new_checked(frame.get(ethernet::HEADER_LEN..)?).ok()?;
    arp::Repr::parse(&packet).ok()
}

/// Builds a broadcast request for an address.
pub fn request(own: (MacAddress, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    frame(
        MacAddress::BROADCAST,
        arp::Repr {
            operation: arp::Operation::REQUEST,
            sender_hardware: own.0,
            sender_protocol: own.1,
            target_hardware: MacAddress::default(),
            target_protocol: target,
        },
    )
}

/// Builds a reply that the address is here.
pub fn reply(own: (MacAddress, Ipv4Addr), to: (MacAddress, Ipv4Addr)) -> Vec<u8> {
    frame(
        to.0,
        arp::Repr {
            operation: arp::Operation::REPLY,
            sender_hardware: own.0,
            sender_protocol: own.1,
            target_hardware: to.0,
            target_protocol: to.1,
        },
    )
}

fn frame(destination: MacAddress, packet: arp::Repr) -> Vec<u8> {
    let mut frame = vec![0; LEN];
    let header = ethernet::Repr { destination, source: packet.sender_hardware, ethertype: EtherType::ARP };
    let (front, behind) = frame.split_at_mut(ethernet::HEADER_LEN);
    let written = header.emit(front).and_then(|()| packet.emit(behind));
    debug_assert!(written.is_ok(), "the frame has room for both");
    frame
}
