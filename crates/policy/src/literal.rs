//! Values written as one word: numbers, amounts, addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use values::Quantity;

/// An address prefix, such as `10.0.0.0/8`. Bits after the prefix length may be set, as in the
/// address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// A literal of one word.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigLiteral {
    /// `true`, `false`.
    Bool(bool),
    /// A whole number from `i64::MIN` to `u64::MAX`; multipliers (`1M`) are resolved.
    Integer(i128),
    /// A number with a fraction: `0.75`.
    Float(f64),
    /// An amount with a unit (never a bare count), and its text.
    Amount(Quantity, String),
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
    /// An address prefix.
    Prefix(Prefix),
    /// Addresses of one family, first and last, `first <= last`.
    AddressRange(IpAddr, IpAddr),
    /// Whole numbers, first and last, `first <= last`.
    NumberRange(u64, u64),
    /// An Ethernet address.
    Mac([u8; 6]),
}

impl Prefix {
    /// Returns a prefix of `length` bits; `None` if the address is shorter.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= width(address)).then_some(Self { address, length })
    }

    /// Returns the address as written.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns the prefix with all bits after its length cleared.
    #[must_use]
    pub fn network(&self) -> Self {
        Self { address: self.bounds().0, length: self.length }
    }

    /// Returns whether an address is in the prefix.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits_shared = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        bits_shared >= u32::from(self.length)
    }

    /// Returns the first and the last address of the prefix.
    pub fn bounds(&self) -> (IpAddr, IpAddr) {
        let host_bits = u32::from(width(self.address) - self.length);
        match self.address {
            IpAddr::V4(a) => {
                let host = u32::MAX.checked_shr(32 - host_bits).unwrap_or(0);
                (IpAddr::V4((a.to_bits() & !host).into()), IpAddr::V4((a.to_bits() | host).into()))
            }
            IpAddr::V6(a) => {
                let host = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
                (IpAddr::V6((a.to_bits() & !host).into()), IpAddr::V6((a.to_bits() | host).into()))
            }
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Parses `ADDRESS/LENGTH`, or an address alone.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let error = || PrefixError(text.to_owned());
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let length = if length.is_empty() { width(address) } else { length.parse().map_err(|_| error())? };
        Self::new(address, length).ok_or_else(error)
    }
}

/// The text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address prefix such as 10.0.0.0/8 or 2001:db8::/32, found `{0}`")]
pub struct PrefixError(String);

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// In the syntax of the language.
impl fmt::Display for ConfigLiteral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) if value.fract() == 0.0 => write!(f, "{value}.0"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Amount(_, text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address}"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
            Self::AddressRange(first, last) => write!(f, "{first}-{last}"),
            Self::NumberRange(first, last) => write!(f, "{first}-{last}"),
            Self::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_parsed_strictly() {
        for wrong in ["10.0.0.0/33", "x", "10.0.0/8", "::/129", "", "10.0.0.0/-1"] {
            assert_eq!(wrong.parse::<Prefix>(), Err(PrefixError(wrong.to_owned())));
        }
    }

    #[test]
    fn prefix_contains_addresses_of_its_version_only() {
        let contains = |prefix: &str, address: &str| {
            prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "2001::"));
        assert!(contains("::/0", "2001::") && !contains("::/0", "1.2.3.4"));
        assert!(contains("10.1.2.3/8", "10.255.0.1") && !contains("10.1.2.3/8", "11.0.0.0"));
        assert!(contains("192.0.2.1", "192.0.2.1") && !contains("192.0.2.1", "192.0.2.2"));
    }
}
