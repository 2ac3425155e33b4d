//! Values written as one word: numbers, amounts, addresses.

use std::fmt;
use std::net::IpAddr;

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
