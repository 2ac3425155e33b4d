//! Addresses, prefixes and ranges as written in configurations.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use packet::Addr;
use serde::Deserialize;

/// A text that is not of the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {wanted}, got `{text}`")]
pub struct TextError {
    wanted: &'static str,
    text: String,
}

/// One or more consecutive IPv4 addresses: `203.0.113.1`, `203.0.113.1-203.0.113.4` or
/// `203.0.113.0/28`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct AddressRange {
    /// The first address, as a number.
    pub first: u32,
    /// The last address, as a number.
    pub last: u32,
}

/// An IPv4 prefix; a single address is a prefix of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix4 {
    range: AddressRange,
}

/// An IPv6 prefix without bits set after its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix6 {
    /// The address with zeros after the prefix.
    pub network: u128,
    /// Prefix length, 0 to 128.
    pub len: u8,
}

/// An inclusive range of nonzero ports: `"1024-65535"`, `"80"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// An IPv4 address with a port or a range of ports: `"203.0.113.1:80"`, `"203.0.113.1:5000-5009"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct EndpointRange {
    /// The address, as a number.
    pub address: u32,
    /// The ports.
    pub ports: PortRange,
}

impl AddressRange {
    /// Returns whether the address is in the range.
    pub fn contains(&self, address: u32) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// Returns the addresses, as numbers.
    pub fn addresses(&self) -> RangeInclusive<u32> {
        self.first..=self.last
    }
}

impl Prefix4 {
    /// Returns the first and the last address.
    pub fn bounds(&self) -> (Addr, Addr) {
        (from_v4(self.range.first), from_v4(self.range.last))
    }

    /// Returns whether the address begins with the prefix.
    pub fn contains(&self, address: u32) -> bool {
        self.range.contains(address)
    }
}

impl Prefix6 {
    /// Returns the mask of the prefix.
    pub fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0)
    }

    /// Returns whether the address begins with the prefix.
    pub fn contains(&self, address: u128) -> bool {
        address & self.mask() == self.network
    }
}

impl PortRange {
    /// Returns the number of ports.
    pub fn count(&self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Returns whether the port is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Returns the intersection of two ranges.
    pub fn overlap(&self, other: PortRange) -> Option<PortRange> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(PortRange { first, last })
    }
}

/// Returns an IPv4 address as a number; none for IPv6.
#[inline]
pub fn v4(addr: Addr) -> Option<u32> {
    addr.is_v4().then(|| u32::from_be_bytes(addr.v4_bytes()))
}

/// Returns the address with this number.
#[inline]
pub fn from_v4(number: u32) -> Addr {
    Addr::from_v4_bytes(number.to_be_bytes())
}

impl TryFrom<String> for AddressRange {
    type Error = TextError;

    fn try_from(text: String) -> Result<AddressRange, TextError> {
        let range = if let Some((first, last)) = text.split_once('-') {
            address(first).zip(address(last)).filter(|(first, last)| first <= last)
        } else if let Some((network, len)) = text.split_once('/') {
            address(network).zip(len.parse().ok().filter(|len| *len <= 32)).and_then(|(network, len)| {
                let hosts = u32::MAX.checked_shr(len).unwrap_or(0);
                (network & hosts == 0).then_some((network, network | hosts))
            })
        } else {
            address(&text).map(|one| (one, one))
        };
        match range {
            Some((first, last)) => Ok(AddressRange { first, last }),
            None => Err(TextError { wanted: "an IPv4 address, range or prefix", text }),
        }
    }
}

impl TryFrom<String> for Prefix4 {
    type Error = TextError;

    fn try_from(text: String) -> Result<Prefix4, TextError> {
        let wanted = "an IPv4 prefix without bits set after its length";
        if text.contains('-') {
            return Err(TextError { wanted, text });
        }
        match AddressRange::try_from(text) {
            Ok(range) => Ok(Prefix4 { range }),
            Err(error) => Err(TextError { wanted, ..error }),
        }
    }
}

impl TryFrom<String> for Prefix6 {
    type Error = TextError;

    fn try_from(text: String) -> Result<Prefix6, TextError> {
        let parsed = text.split_once('/').and_then(|(network, len)| {
            let network = network.trim().parse::<Ipv6Addr>().ok()?.to_bits();
            let len = len.parse().ok().filter(|len| *len <= 128)?;
            let prefix = Prefix6 { network, len };
            prefix.contains(network).then_some(prefix)
        });
        parsed.ok_or(TextError { wanted: "an IPv6 prefix without bits set after its length", text })
    }
}

impl TryFrom<String> for PortRange {
    type Error = TextError;

    fn try_from(text: String) -> Result<PortRange, TextError> {
        let parsed = match text.split_once('-') {
            Some((first, last)) => port(first).zip(port(last)).filter(|(first, last)| first <= last),
            None => port(&text).map(|one| (one, one)),
        };
        match parsed {
            Some((first, last)) => Ok(PortRange { first, last }),
            None => Err(TextError { wanted: "a port or a range of ports from 1 to 65535", text }),
        }
    }
}

impl TryFrom<String> for EndpointRange {
    type Error = TextError;

    fn try_from(text: String) -> Result<EndpointRange, TextError> {
        let parsed = text.split_once(':').and_then(|(host, ports)| {
            Some(EndpointRange {
                address: address(host)?,
                ports: PortRange::try_from(ports.to_owned()).ok()?,
            })
        });
        parsed.ok_or(TextError { wanted: "an IPv4 address with a port or a range of ports", text })
    }
}

fn address(text: &str) -> Option<u32> {
    text.trim().parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits)
}

fn port(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_texts_parse_and_others_are_refused() {
        let range = |text: &str| AddressRange::try_from(text.to_owned()).ok().map(|r| (r.first, r.last));
        assert_eq!(range("203.0.113.1"), Some((0xcb00_7101, 0xcb00_7101)));
        assert_eq!(range("203.0.113.1-203.0.113.4"), Some((0xcb00_7101, 0xcb00_7104)));
        assert_eq!(range("203.0.113.16/28"), Some((0xcb00_7110, 0xcb00_711f)));
        assert_eq!(range("0.0.0.0/0"), Some((0, u32::MAX)));
        for wrong in ["203.0.113.17/28", "203.0.113.4-203.0.113.1", "203.0.113.1/33", "x", "", "::1"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
        assert!(Prefix4::try_from("10.0.0.0-10.0.0.3".to_owned()).is_err());
        assert!(Prefix4::try_from("10.0.0.0/8".to_owned()).unwrap().contains(0x0aff_ffff));
        assert!(Prefix6::try_from("fd01:203:405::/48".to_owned()).is_ok());
        assert!(Prefix6::try_from("fd01:203:405:1::/48".to_owned()).is_err());
        assert!(PortRange::try_from("0-5".to_owned()).is_err());
        assert_eq!(PortRange::try_from("7-7".to_owned()).unwrap().count(), 1);
        let service = EndpointRange::try_from("203.0.113.1:5000-5009".to_owned()).unwrap();
        assert_eq!((service.address, service.ports.count()), (0xcb00_7101, 10));
        assert!(EndpointRange::try_from("203.0.113.1".to_owned()).is_err());
    }
}
