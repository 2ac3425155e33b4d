//! Encapsulation to a server: IP in IP, or Generic UDP Encapsulation.

use nf::PacketView;
use packet::parse::protocol;
use packet::{Addr, DropReason, OuterHeaders, RewriteError};
use values::ConfigError;

use super::config::{EncapConfig, GueChecksum, SourcePrefix};

/// Port of Generic UDP Encapsulation (IANA; draft-ietf-intarea-gue 3.1).
pub const GUE_PORT: u16 = 6080;

/// Length of the longest outer headers: IPv6, UDP, GUE.
pub const HEADERS_MAX: usize = 40 + 8 + 4;

/// Minimum of [`EncapConfig::mtu`]: the longest headers plus IPv6's minimum MTU (RFC 8200 5).
pub const MTU_MIN: u16 = 1280 + HEADERS_MAX as u16;

/// Builds outer headers for packets to servers.
#[derive(Clone, Debug)]
pub struct Encapsulator {
    source4: Option<SourcePrefix>,
    source6: Option<SourcePrefix>,
    ttl: u8,
    mtu: u16,
    udp_checksum: GueChecksum,
}

/// Destination and form of an encapsulation.
#[derive(Clone, Copy, Debug)]
pub struct EncapTarget {
    pub server: Addr,
    /// Inserts UDP and GUE headers.
    pub gue: bool,
    /// Varies source, port and flow label among flows.
    pub entropy: u32,
}

/// Error of an encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncapError {
    /// The packet exceeds the path MTU and must not be fragmented.
    TooBig {
        /// Length of the longest packet that fits.
        mtu: u16,
        /// True if the sender must be notified.
        notify: bool,
    },
    /// The packet cannot be encapsulated.
    Refused(DropReason),
}

impl Encapsulator {
    /// Builds an encapsulator from its configuration.
    pub fn new(config: &EncapConfig) -> Result<Encapsulator, ConfigError> {
        if config.mtu < MTU_MIN {
            return Err(ConfigError::new(format!(
                "`tunnel.mtu` must be at least {MTU_MIN}, not {}",
                config.mtu
            )));
        }
        if config.ttl == 0 {
            return Err(ConfigError::new("`tunnel.ttl` must be at least 1"));
        }
        let source =
            |text: &Option<_>, version| text.as_ref().map(|t| SourcePrefix::parse(t, version)).transpose();
        Ok(Encapsulator {
            source4: source(&config.source4, 4)?,
            source6: source(&config.source6, 6)?,
            ttl: config.ttl,
            mtu: config.mtu,
            udp_checksum: config.udp_checksum,
        })
    }

    /// Returns the length of the longest packet that fits into every kind of headers: IPv6 with UDP
    /// and GUE are the longest.
    pub fn inner_mtu(&self) -> u16 {
        self.mtu.saturating_sub(40 + 8 + 4)
    }

    /// Returns whether there is a source address for this server.
    pub fn reaches(&self, server: Addr) -> bool {
        self.source(server).is_some()
    }

    /// Returns the outer headers to a server for packets of an IP version, and the length of the
    /// longest packet that fits; none without a source address.
    pub fn outer(&self, route: EncapTarget, version: u8) -> Option<(OuterHeaders, u16)> {
        let source = self.source(route.server)?.address(route.entropy);
        let outer = OuterHeaders::new(source, route.server, self.ttl, route.entropy);
        let outer = if route.gue {
            // Variant 0, without extension fields (draft-ietf-intarea-gue 3.2).
            let shim = [0, if version == 4 { protocol::IPV4 } else { protocol::IPV6 }, 0, 0];
            let has_checksum = self.wants_checksum(route.server.is_v4());
            outer.over_udp(GUE_PORT, has_checksum).with_shim(protocol::UDP, &shim).ok()?
        } else {
            outer
        };
        Some((outer, self.mtu - outer.header_len() as u16))
    }

    /// Encapsulates the packet. Returns whether it now exceeds the MTU and will be fragmented.
    pub fn encapsulate(&self, packet: &mut PacketView<'_>, route: EncapTarget) -> Result<bool, EncapError> {
        let refused = EncapError::Refused(DropReason::LbProtocol);
        let (meta, len) = (packet.meta(), packet.ip_len());
        if meta.l3 != meta.outer_l3 {
            return Err(refused); // Its outer destination is not the service.
        }
        let (outer, len_max) = self.outer(route, meta.version).ok_or(refused)?;
        let oversize = len > usize::from(len_max);
        if oversize {
            let dont_fragment = must_stay_whole(packet);
            let too_long = len + outer.header_len() > usize::from(u16::MAX);
            if dont_fragment || outer.version() == 6 || too_long {
                return Err(EncapError::TooBig { mtu: len_max, notify: dont_fragment });
            }
        }
        packet.encap(&outer, len_max).map_err(|error| EncapError::Refused(reason(error)))?;
        Ok(oversize)
    }

    fn source(&self, server: Addr) -> Option<SourcePrefix> {
        if server.is_v4() { self.source4 } else { self.source6 }
    }

    fn wants_checksum(&self, over_v4: bool) -> bool {
        match self.udp_checksum {
            GueChecksum::Auto => !over_v4,
            GueChecksum::Always => true,
            GueChecksum::Never => false,
        }
    }
}

/// Returns the drop reason for a packet with headers that could not be rewritten.
#[cold]
pub fn reason(error: RewriteError) -> DropReason {
    error.reason_or(DropReason::LbProtocol)
}

/// Returns whether the packet must not be fragmented.
fn must_stay_whole(packet: &PacketView<'_>) -> bool {
    packet.meta().version != 4 || packet.network().get(6).is_some_and(|flags| flags & DONT_FRAGMENT != 0)
}

const DONT_FRAGMENT: u8 = 0x40;
