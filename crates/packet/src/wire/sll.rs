//! Linux "cooked" captures, version 1 (LINKTYPE_LINUX_SLL) and 2 (LINKTYPE_LINUX_SLL2), as the
//! tcpdump project defines them.

use super::bytes::{need, view};
use super::numbers::numbers;
use super::{EtherType, WireError};

const NAME: &str = "Linux SLL";
const NAME_2: &str = "Linux SLL2";

/// The header of version 1, in bytes.
pub const HEADER_LEN: usize = 16;
/// The header of version 2, in bytes.
pub const V2_HEADER_LEN: usize = 20;

/// Room for the link-layer address in both versions, in bytes.
const ADDRESS_LEN: usize = 8;

numbers! {
    /// Direction of a packet.
    pub struct PacketType(u16);
    /// To this host.
    HOST = 0;
    /// To all hosts.
    BROADCAST = 1;
    /// To a group of hosts.
    MULTICAST = 2;
    /// From another host to another.
    OTHER_HOST = 3;
    /// From this host.
    OUTGOING = 4;
}

view! {
    /// A view of a packet of version 1.
    pub struct Packet;
    /// Direction of the packet.
    packet_type, set_packet_type: PacketType = 0..2;
    /// The kind of link, an ARPHRD value.
    hardware_type, set_hardware_type: u16 = 2..4;
    /// The length of the sender's link-layer address in bytes; of more than eight only eight are
    /// there.
    address_len, set_address_len: u16 = 4..6;
    /// Protocol of the payload, on most kinds of links; 4 stands for an 802.2 LLC header.
    protocol, set_protocol: EtherType = 14..16;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Returns the sender's link-layer address, at most its first eight bytes.
    #[inline]
    pub fn address(&self) -> &[u8] {
        &self.bytes()[6..6 + usize::from(self.address_len()).min(ADDRESS_LEN)]
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        HEADER_LEN..self.bytes().len()
    }
}

view! {
    /// A view of a packet of version 2.
    pub struct Packet2;
    /// Protocol of the payload, on most kinds of links; 4 stands for an 802.2 LLC header.
    protocol, set_protocol: EtherType = 0..2;
    /// The number of the interface, as the capturing host counts.
    interface_index, set_interface_index: u32 = 4..8;
    /// The kind of link, an ARPHRD value.
    hardware_type, set_hardware_type: u16 = 8..10;
    /// The length of the sender's link-layer address in bytes; of more than eight only eight are
    /// there.
    address_len, set_address_len: u8 = 11..12;
}

impl<T: AsRef<[u8]>> Packet2<T> {
    /// Checks that the header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME_2, self.bytes(), V2_HEADER_LEN)
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        V2_HEADER_LEN
    }

    /// Returns the direction of the packet.
    #[inline]
    pub fn packet_type(&self) -> PacketType {
        PacketType(u16::from(self.bytes()[10]))
    }

    /// Returns the sender's link-layer address, at most its first eight bytes.
    #[inline]
    pub fn address(&self) -> &[u8] {
        &self.bytes()[12..12 + usize::from(self.address_len()).min(ADDRESS_LEN)]
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        V2_HEADER_LEN..self.bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        let bytes = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x86, 0xdd, 0x60];
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!((packet.packet_type(), packet.hardware_type()), (PacketType::OUTGOING, 1));
        assert_eq!((packet.protocol(), packet.address()), (EtherType::IPV6, &[2, 0, 0, 0, 0, 1][..]));
        assert_eq!(packet.payload(), [0x60]);

        let bytes = [8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 1, 200, 1, 2, 3, 4, 5, 6, 7, 8, 0x45];
        let packet = Packet2::new_checked(&bytes[..]).unwrap();
        assert_eq!((packet.packet_type(), packet.interface_index()), (PacketType::BROADCAST, 3));
        assert_eq!((packet.protocol(), packet.address()), (EtherType::IPV4, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(packet.payload(), [0x45]);
    }
}
