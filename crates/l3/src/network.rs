//! An address and the network that it is in.

use std::net::IpAddr;

use packet::Addr;

/// An address of a port, with the prefix of the network at that port: `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: Addr,
    /// Of 128 bits: an IPv4 prefix counts its mapped part.
    length: u8,
}

/// The text is not an address with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotANetwork(String);

impl std::fmt::Display for NotANetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "expected an address and its network's prefix length, such as 10.0.0.1/24 or fd00::1/64, found `{}`",
            self.0
        )
    }
}

impl std::error::Error for NotANetwork {}

impl std::str::FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Network, NotANetwork> {
        let parsed = || {
            let (address, length) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let length = length.parse().ok().filter(|&length: &u8| length <= bits)?;
            let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
            is_host.then(|| Network::new(address.into(), length + (128 - bits)))
        };
        parsed().ok_or_else(|| NotANetwork(text.to_owned()))
    }
}

impl Network {
    /// `length`: of 128 bits.
    pub(crate) fn new(address: Addr, length: u8) -> Network {
        Network { address, length }
    }

    /// Bits of its prefix; those of IPv4 count 96 more.
    pub fn prefix_len(&self) -> u8 {
        self.length
    }

    /// Whether the address is in the network, of the same IP version.
    pub fn contains(&self, address: Addr) -> bool {
        let differ = address.to_u128() ^ self.address.to_u128();
        address.is_v4() == self.address.is_v4()
            && (self.length == 0 || differ >> (128 - u32::from(self.length)) == 0)
    }

    /// Whether it names the whole IPv4 network, or all its hosts (RFC 1122 3.2.1.3); networks of up
    /// to two have none (RFC 3021).
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
    fn networks_hold_their_hosts_of_their_version() {
        let network: Network = "10.0.0.1/24".parse().unwrap();
        assert!(network.contains(addr("10.0.0.255")) && !network.contains(addr("10.0.1.0")));
        assert!(network.is_broadcast(addr("10.0.0.255")) && network.is_broadcast(addr("10.0.0.0")));
        assert!(!network.is_broadcast(addr("10.0.0.1")) && !network.is_broadcast(addr("10.0.1.255")));
        let all: Network = "10.0.0.1/0".parse().unwrap();
        assert!(all.contains(addr("1.2.3.4")) && !all.contains(addr("fd00::1")));
        let pair: Network = "10.0.0.0/31".parse().unwrap();
        assert!(!pair.is_broadcast(addr("10.0.0.1")));
        let six: Network = "fd00::1/64".parse().unwrap();
        assert!(
            six.contains(addr("fd00::ffff"))
                && !six.contains(addr("fd00:1::"))
                && !six.is_broadcast(addr("fd00::"))
        );
    }

    #[test]
    fn only_addresses_of_hosts_with_a_length_are_taken() {
        for wrong in ["10.0.0.1", "10.0.0.1/33", "::/64", "ff02::1/64", "127.0.0.1/8", "x/1", "10.0.0.1/"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
