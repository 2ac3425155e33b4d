//! The Address Resolution Protocol. RFC 826.

use super::bytes::{Field, need, require, room, view};
use super::numbers::numbers;
use super::{EtherType, MacAddress, WireError};
use core::net::Ipv4Addr;
use core::ops::Range;

const NAME: &str = "ARP";

/// The fields before the addresses, in bytes.
const FIXED_LEN: usize = 8;
/// A packet that maps IPv4 to Ethernet addresses, in bytes.
pub const ETHERNET_IPV4_LEN: usize = 28;
/// The hardware type of Ethernet.
pub const HARDWARE_ETHERNET: u16 = 1;

numbers! {
    /// Operation of an ARP packet.
    pub struct Operation(u16);
    /// Request for the target's hardware address.
    REQUEST = 1;
    /// Reply with the sender's hardware address.
    REPLY = 2;
}

view! {
    /// A view of an ARP packet for any kind of addresses.
    pub struct Packet;
    /// Hardware address space.
    hardware_type, set_hardware_type: u16 = 0..2;
    /// Protocol address space.
    protocol_type, set_protocol_type: EtherType = 2..4;
    /// The length of a hardware address in bytes.
    hardware_len, set_hardware_len: u8 = 4..5;
    /// The length of a protocol address in bytes.
    protocol_len, set_protocol_len: u8 = 5..6;
    /// Request or reply.
    operation, set_operation: Operation = 6..8;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the fixed fields and the four addresses are there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), FIXED_LEN)?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the packet's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        FIXED_LEN + 2 * usize::from(self.hardware_len()) + 2 * usize::from(self.protocol_len())
    }

    /// Returns the sender's hardware address.
    #[inline]
    pub fn sender_hardware(&self) -> &[u8] {
        &self.bytes()[self.address(0, 0, self.hardware_len())]
    }

    /// Returns the sender's protocol address.
    #[inline]
    pub fn sender_protocol(&self) -> &[u8] {
        &self.bytes()[self.address(1, 0, self.protocol_len())]
    }

    /// Returns the target's hardware address; without meaning in a request.
    #[inline]
    pub fn target_hardware(&self) -> &[u8] {
        &self.bytes()[self.address(1, 1, self.hardware_len())]
    }

    /// Returns the target's protocol address.
    #[inline]
    pub fn target_protocol(&self) -> &[u8] {
        &self.bytes()[self.address(2, 1, self.protocol_len())]
    }

    /// Returns where the link's padding lies in the buffer: an ARP packet carries nothing.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }

    /// Returns the address of `len` bytes after the given numbers of hardware and protocol
    /// addresses.
    #[inline]
    fn address(&self, hardware_before: usize, protocol_before: usize, len: u8) -> Range<usize> {
        let start = FIXED_LEN
            + hardware_before * usize::from(self.hardware_len())
            + protocol_before * usize::from(self.protocol_len());
        start..start + usize::from(len)
    }
}

/// An ARP packet that maps IPv4 to Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_hardware: MacAddress,
    /// The sender's IPv4 address.
    pub sender_protocol: Ipv4Addr,
    /// The target's Ethernet address; without meaning in a request.
    pub target_hardware: MacAddress,
    /// The target's IPv4 address.
    pub target_protocol: Ipv4Addr,
}

impl Repr {
    /// Parses a checked packet.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] for other kinds of addresses.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Repr, WireError> {
        require(packet.hardware_type() == HARDWARE_ETHERNET, NAME, "hardware type")?;
        require(packet.protocol_type() == EtherType::IPV4, NAME, "protocol type")?;
        require(packet.hardware_len() == 6, NAME, "hardware address length")?;
        require(packet.protocol_len() == 4, NAME, "protocol address length")?;
        Ok(Repr {
            operation: packet.operation(),
            sender_hardware: MacAddress::read(packet.sender_hardware()),
            sender_protocol: Ipv4Addr::read(packet.sender_protocol()),
            target_hardware: MacAddress::read(packet.target_hardware()),
            target_protocol: Ipv4Addr::read(packet.target_protocol()),
        })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        ETHERNET_IPV4_LEN
    }

    /// Writes the packet to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        let mut packet = Packet::new_unchecked(room(NAME, buffer, ETHERNET_IPV4_LEN)?);
        packet.set_hardware_type(HARDWARE_ETHERNET);
        packet.set_protocol_type(EtherType::IPV4);
        packet.set_hardware_len(6);
        packet.set_protocol_len(4);
        packet.set_operation(self.operation);
        let addresses = &mut packet.bytes_mut()[FIXED_LEN..];
        self.sender_hardware.write(&mut addresses[..6]);
        self.sender_protocol.write(&mut addresses[6..10]);
        self.target_hardware.write(&mut addresses[10..16]);
        self.target_protocol.write(&mut addresses[16..20]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request() {
        let bytes = [
            0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2, 0xee, 0xee,
        ];
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        let repr = Repr::parse(&packet).unwrap();
        assert_eq!(repr.operation, Operation::REQUEST);
        assert_eq!(repr.sender_hardware, MacAddress([2, 0, 0, 0, 0, 1]));
        assert_eq!(repr.sender_protocol, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(repr.target_protocol, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(packet.payload(), [0xee, 0xee]);
        assert!(Packet::new_checked(&bytes[..27]).is_err());
    }
}
