//! Networks at the ends of a tunnel (RFC 4301 4.4.1) or of a link between two sites.

use std::net::IpAddr;

use packet::Addr;
use values::{ConfigError, Located};

/// A prefix, as a range of addresses of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpNetwork {
    version: u8,
    first: u128,
    last: u128,
}

impl IpNetwork {
    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    ///
    /// # Errors
    /// The text is not a prefix, or has bits set after its length.
    pub fn parse(text: &Located) -> Result<IpNetwork, ConfigError> {
        let error = |message: String| text.error(0..text.len(), message);
        let wrong =
            || error(format!("`{}` is not a prefix such as `10.0.0.0/8` or `2001:db8::/32`", &**text));
        let (address, len) = text.split_once('/').map_or((&**text, None), |(a, len)| (a, Some(len)));
        let address = Addr::from(address.parse::<IpAddr>().map_err(|_| wrong())?);
        let width: u32 = if address.is_v4() { 32 } else { 128 };
        let len = len.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if len > width {
            return Err(wrong());
        }
        let host = 1u128.checked_shl(width - len).map_or(u128::MAX, |bit| bit - 1);
        let first = address.to_u128();
        if first & host != 0 {
            return Err(error(format!("`{}` has bits set after its length", &**text)));
        }
        Ok(IpNetwork { version: address.version(), first, last: first | host })
    }

    /// Returns whether the address is in the network.
    #[inline]
    pub fn contains(&self, addr: Addr) -> bool {
        self.version == addr.version() && (self.first..=self.last).contains(&addr.to_u128())
    }
}

/// Routes from remote addresses to tunnels. Networks of different tunnels do not overlap, so their
/// order does not matter.
#[derive(Debug, Default)]
pub struct TunnelRoutes {
    /// Sorted by version and first address.
    routes: Vec<(IpNetwork, u16)>,
}

impl TunnelRoutes {
    /// Builds routes from networks to tunnel numbers.
    ///
    /// # Errors
    /// Two tunnels with overlapping networks.
    pub fn new(mut routes: Vec<(IpNetwork, u16)>) -> Result<TunnelRoutes, (u16, u16)> {
        routes.sort_unstable();
        let overlap = |a: &IpNetwork, b: &IpNetwork| a.version == b.version && a.last >= b.first;
        match routes.windows(2).find(|pair| overlap(&pair[0].0, &pair[1].0)) {
            Some(pair) => Err((pair[0].1, pair[1].1)),
            None => Ok(TunnelRoutes { routes }),
        }
    }

    /// Returns the number of the tunnel to this address.
    #[inline]
    pub fn find(&self, addr: Addr) -> Option<u16> {
        let place = (addr.version(), addr.to_u128());
        let behind = self.routes.partition_point(|(network, _)| (network.version, network.first) <= place);
        let (network, tunnel) = self.routes.get(behind.checked_sub(1)?)?;
        network.contains(addr).then_some(*tunnel)
    }
}
