//! Addresses and endpoints: one representation for IPv4 and IPv6.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An IPv4 or IPv6 address in 16 bytes, network byte order; IPv4 in its mapped form
/// (`::ffff:a.b.c.d`, RFC 4291 2.5.5.2).
///
/// All zeros is the unspecified IPv6 address and means "none" in zeroed state.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Addr([u8; 16]);

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl Addr {
    /// No address: all bytes zero.
    pub const NONE: Addr = Addr([0; 16]);

    /// Returns the address of these 16 bytes.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 16]) -> Addr {
        Addr(bytes)
    }

    /// Returns the IPv4 address of these 4 bytes.
    #[inline]
    pub const fn from_v4_bytes(v4: [u8; 4]) -> Addr {
        Addr([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4[0], v4[1], v4[2], v4[3]])
    }

    /// Returns all 16 bytes.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the last four bytes: the IPv4 address, if it is one.
    #[inline]
    pub const fn v4_bytes(&self) -> [u8; 4] {
        [self.0[12], self.0[13], self.0[14], self.0[15]]
    }

    /// Checks for an IPv4 address in mapped form.
    #[inline]
    pub fn is_v4(&self) -> bool {
        self.0[..12] == MAPPED
    }

    /// Returns the IP version, 4 or 6.
    #[inline]
    pub fn version(&self) -> u8 {
        if self.is_v4() { 4 } else { 6 }
    }

    /// Converts to a number, most significant byte first; the order is the usual one of addresses.
    #[inline]
    pub const fn to_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Converts from a number, the inverse of [`Addr::to_u128`].
    #[inline]
    pub const fn from_u128(number: u128) -> Addr {
        Addr(number.to_be_bytes())
    }

    /// Converts to the standard library's type.
    pub fn ip(self) -> IpAddr {
        if self.is_v4() {
            IpAddr::V4(Ipv4Addr::from(self.v4_bytes()))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.0))
        }
    }
}

impl PartialOrd for Addr {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Addr {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.to_u128().cmp(&other.to_u128())
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(v4) => Addr::from_v4_bytes(v4.octets()),
            IpAddr::V6(v6) => Addr(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Addr {
    fn from(v4: Ipv4Addr) -> Addr {
        Addr::from_v4_bytes(v4.octets())
    }
}

impl From<Ipv6Addr> for Addr {
    fn from(v6: Ipv6Addr) -> Addr {
        Addr(v6.octets())
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One end of a flow: an address and a transport port (or an ICMP query identifier; 0 if the
/// protocol has neither).
#[derive(
    Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Endpoint {
    /// The address.
    pub addr: Addr,
    /// The port, in host byte order.
    pub port: u16,
}

impl Endpoint {
    /// Returns the endpoint `addr:port`.
    #[inline]
    pub const fn new(addr: Addr, port: u16) -> Endpoint {
        Endpoint { addr, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr.ip() {
            IpAddr::V4(v4) => write!(f, "{v4}:{}", self.port),
            IpAddr::V6(v6) => write!(f, "[{v6}]:{}", self.port),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
