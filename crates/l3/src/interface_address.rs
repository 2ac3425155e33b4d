//! The address of an interface, with its network.

use std::net::IpAddr;

use packet::Addr;

/// An address of a port with the prefix length of its network: `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: Addr,
    /// Prefix length out of 128 bits, for IPv4 of the mapped address.
    length: u8,
}

/// The role of an address in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRole {
    /// A host may have it.
    Host,
    /// It names the network itself.
    Network,
    /// It is the broadcast address.
    Broadcast,
}

/// A text that is not an address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddressError(String);

impl std::fmt::Display for InterfaceAddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "expected an address with a prefix length, such as 10.0.0.1/24 or fd00::1/64, found `{}`",
            self.0
        )
    }
}

impl std::error::Error for InterfaceAddressError {}

impl std::str::FromStr for InterfaceAddress {
    type Err = InterfaceAddressError;

    fn from_str(text: &str) -> Result<InterfaceAddress, InterfaceAddressError> {
        let parsed = || {
            let (address, length) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let length = length.parse().ok().filter(|&length: &u8| length <= bits)?;
            let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
            is_host.then(|| InterfaceAddress::new(address.into(), length + (128 - bits)))
        };
        parsed().ok_or_else(|| InterfaceAddressError(text.to_owned()))
    }
}

impl InterfaceAddress {
    /// `length` is out of 128 bits.
    pub(crate) fn new(address: Addr, length: u8) -> InterfaceAddress {
        InterfaceAddress { address, length }
    }

    /// Returns the role of the address in its network. IPv4 networks of two or more host bits have
    /// an address of their own and a broadcast address (RFC 1122 3.2.1.3, RFC 3021).
    pub fn role(&self) -> AddressRole {
        let host_bits = 128 - u32::from(self.length);
        if !self.address.is_v4() || host_bits < 2 {
            return AddressRole::Host;
        }
        let mask = (1u128 << host_bits) - 1;
        match self.address.to_u128() & mask {
            0 => AddressRole::Network,
            host if host == mask => AddressRole::Broadcast,
            _ => AddressRole::Host,
        }
    }

    /// Returns the prefix length; for IPv4 it is 96 more.
    pub fn prefix_len(&self) -> u8 {
        self.length
    }

    /// Returns the network: its first address, and the prefix length of its IP version.
    pub fn network(&self) -> (IpAddr, u8) {
        let host_mask = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
        let first = Addr::from_u128(self.address.to_u128() & !host_mask);
        (first.ip(), if first.is_v4() { self.length - 96 } else { self.length })
    }

    /// Checks if the network contains the address, of the same IP version.
    pub fn contains(&self, address: Addr) -> bool {
        let differ = address.to_u128() ^ self.address.to_u128();
        address.is_v4() == self.address.is_v4()
            && (self.length == 0 || differ >> (128 - u32::from(self.length)) == 0)
    }

    /// Returns the first and the last address of the network.
    pub fn bounds(&self) -> (Addr, Addr) {
        let host_mask = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
        let number = self.address.to_u128();
        (Addr::from_u128(number & !host_mask), Addr::from_u128(number | host_mask))
    }

    /// Returns the IPv4 network address and the broadcast address, unless it has neither.
    pub fn broadcasts(&self) -> impl Iterator<Item = Addr> + use<> {
        let mask = (1u128 << (128 - u32::from(self.length)).min(127)) - 1;
        let ends = [self.address.to_u128() & !mask, self.address.to_u128() | mask].map(Addr::from_u128);
        let network = *self;
        ends.into_iter().filter(move |&address| network.is_broadcast(address))
    }

    /// Checks for the IPv4 network address or the broadcast address (RFC 1122 3.2.1.3); networks of
    /// up to two addresses have neither (RFC 3021).
    pub fn is_broadcast(&self, address: Addr) -> bool {
        let host_bits = 128 - u32::from(self.length);
        let host = address.to_u128() & ((1u128 << host_bits.min(127)) - 1);
        self.address.is_v4()
            && (2..=32).contains(&host_bits)
            && self.contains(address)
            && (host == 0 || host == (1u128 << host_bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Addr {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn networks_contain_their_hosts_of_one_version() {
        let network: InterfaceAddress = "10.0.0.1/24".parse().unwrap();
        assert!(network.contains(addr("10.0.0.255")) && !network.contains(addr("10.0.1.0")));
        assert!(network.is_broadcast(addr("10.0.0.255")) && network.is_broadcast(addr("10.0.0.0")));
        assert!(!network.is_broadcast(addr("10.0.0.1")) && !network.is_broadcast(addr("10.0.1.255")));
        let all: InterfaceAddress = "10.0.0.1/0".parse().unwrap();
        assert!(all.contains(addr("1.2.3.4")) && !all.contains(addr("fd00::1")));
        let pair: InterfaceAddress = "10.0.0.0/31".parse().unwrap();
        assert!(!pair.is_broadcast(addr("10.0.0.1")));
        let six: InterfaceAddress = "fd00::1/64".parse().unwrap();
        assert!(
            six.contains(addr("fd00::ffff"))
                && !six.contains(addr("fd00:1::"))
                && !six.is_broadcast(addr("fd00::"))
        );
    }

    #[test]
    fn only_host_addresses_with_a_prefix_length_parse() {
        for wrong in ["10.0.0.1", "10.0.0.1/33", "::/64", "ff02::1/64", "127.0.0.1/8", "x/1", "10.0.0.1/"] {
            assert!(wrong.parse::<InterfaceAddress>().is_err(), "{wrong}");
        }
    }
}
