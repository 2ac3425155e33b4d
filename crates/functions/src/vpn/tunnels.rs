//! The tunnels of a gateway, found by a packet's addresses, and their security associations (RFC
//! 4301 4.4).

use std::collections::HashSet;

use packet::Addr;
use values::{ConfigError, Located, Secret};

use super::config::{Config, IpsecProtocol, VpnTunnelConfig};
use super::frame::{AH, ESP, OVERHEAD_MAX, SaTransform, TunnelOuter};
use super::numbers::SaId;
use super::suite::{Gcm, HMAC_KEY_LEN, Hmac128};
use crate::networks::{IpNetwork, TunnelRoutes};

/// Maximum number of tunnels.
pub const TUNNELS_MAX: usize = 1_024;

/// Maximum number of inbound security associations per tunnel.
pub const INBOUND_MAX: usize = 4;

/// Maximum number of networks at one end of a tunnel.
pub const NETWORKS_MAX: usize = 256;

/// Minimum path MTU of a tunnel: the longest headers plus IPv6's minimum MTU (RFC 8200 5).
pub const MTU_MIN: u16 = 1280 + OVERHEAD_MAX as u16;

/// All tunnels.
pub struct TunnelTable {
    tunnels: Vec<OutboundTunnel>,
    routes: TunnelRoutes,
    /// Sorted by [`InboundSa::order`].
    inbound: Vec<InboundSa>,
    /// Addresses of this end, sorted.
    locals: Vec<Addr>,
}

/// A tunnel with its outbound security association.
pub struct OutboundTunnel {
    pub outer: TunnelOuter,
    /// Algorithm and key.
    pub transform: SaTransform,
    /// Security parameters index.
    pub spi: u32,
    /// Identity of the association, for its sequence numbers.
    pub name: SaId,
    /// First sequence number.
    pub first_sequence: u32,
    /// Path MTU.
    pub mtu: usize,
    /// Length of the longest inner packet.
    pub inner_mtu: usize,
    local_networks: Vec<IpNetwork>,
    remote_networks: Vec<IpNetwork>,
}

/// An inbound security association.
pub struct InboundSa {
    /// Number of its tunnel.
    pub tunnel: u16,
    /// Algorithm and key.
    pub transform: SaTransform,
    /// Identity for the replay window; none: replayed packets are accepted.
    pub name: Option<SaId>,
    spi: u32,
    local: Addr,
    remote: Addr,
}

impl TunnelTable {
    /// Builds the tables of a configuration.
    ///
    /// # Errors
    /// A value is invalid, or contradicts others.
    pub fn new(config: &Config) -> Result<TunnelTable, ConfigError> {
        if !(1..=TUNNELS_MAX).contains(&config.tunnels.len()) {
            let message = format!("expected 1 to {TUNNELS_MAX} tunnels, got {}", config.tunnels.len());
            return Err(ConfigError::new(message));
        }
        let (mut tunnels, mut inbound, mut routes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut names, mut ciphers, mut outbound) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (number, config) in (0u16..).zip(&config.tunnels) {
            let error = |message: String| config.name.error(0..config.name.len(), message);
            if !names.insert(config.name.as_str()) {
                return Err(error(format!("duplicate tunnel name `{}`", &*config.name)));
            }
            check(config)?;
            let keys = config.inbound.iter().map(|sa| &sa.key).chain([&config.outbound.key]);
            for key in keys.filter(|_| config.protocol == IpsecProtocol::Esp) {
                if !ciphers.insert(key.bytes().map_err(error)?) {
                    return Err(error(SAME_KEY.to_owned()));
                }
            }
            let tunnel = OutboundTunnel::new(config)?;
            if !outbound.insert((config.remote, config.protocol == IpsecProtocol::Ah, tunnel.spi)) {
                let message = format!("two tunnels to {} have the same outbound `spi`", config.remote);
                return Err(error(message));
            }
            routes.extend(tunnel.remote_networks.iter().map(|&network| (network, number)));
            inbound.extend(inbound_of(config, number)?);
            tunnels.push(tunnel);
        }
        inbound.sort_unstable_by_key(InboundSa::order);
        if let Some([one, other]) = inbound.array_windows().find(|[a, b]| a.order() == b.order()) {
            let [a, b] = [one, other].map(|sa| &config.tunnels[usize::from(sa.tunnel)].name);
            let message = format!("`{}` and `{}` have the same inbound `spi` at one address", &**a, &**b);
            return Err(b.error(0..b.len(), message));
        }
        let routes = TunnelRoutes::new(routes).map_err(|(a, b)| {
            let [a, b] = [a, b].map(|tunnel| &config.tunnels[usize::from(tunnel)].name);
            let message = format!("remote networks of `{}` and `{}` overlap", &**a, &**b);
            b.error(0..b.len(), message)
        })?;
        let mut locals: Vec<Addr> = inbound.iter().map(|sa| sa.local).collect();
        locals.sort_unstable();
        locals.dedup();
        Ok(TunnelTable { tunnels, routes, inbound, locals })
    }

    /// Returns the tunnel with this number.
    #[inline]
    pub fn get(&self, number: u16) -> Option<&OutboundTunnel> {
        self.tunnels.get(usize::from(number))
    }

    /// Returns the tunnel between the networks of these addresses at this and the other end, with
    /// its number.
    #[inline]
    pub fn between(&self, here: Addr, there: Addr) -> Option<(u16, &OutboundTunnel)> {
        let number = self.routes.find(there)?;
        let tunnel = self.get(number)?;
        tunnel.local_networks.iter().any(|network| network.contains(here)).then_some((number, tunnel))
    }

    /// Returns the association of a packet from `remote` to `local`; `protocol` is AH or ESP.
    #[inline]
    pub fn inbound(&self, local: Addr, remote: Addr, protocol: u8, spi: u32) -> Option<&InboundSa> {
        let at = self.inbound.binary_search_by_key(&(spi, protocol, local), InboundSa::order).ok()?;
        self.inbound.get(at).filter(|sa| sa.remote == remote)
    }

    /// Returns whether tunnels end at this address.
    #[inline]
    pub fn end_at(&self, addr: Addr) -> bool {
        self.locals.binary_search(&addr).is_ok()
    }

    /// Returns the number of outbound and of inbound associations.
    pub fn associations(&self) -> (usize, usize) {
        (self.tunnels.len(), self.inbound.len())
    }
}

impl OutboundTunnel {
    fn new(config: &VpnTunnelConfig) -> Result<OutboundTunnel, ConfigError> {
        let transform = transform(config, &config.outbound.key)?;
        let (source, destination) = (Addr::from(config.local), Addr::from(config.remote));
        let outer = TunnelOuter { source, destination, ttl: config.ttl, dont_fragment: config.df };
        let mtu = usize::from(config.mtu);
        let spi = config.outbound.spi.0;
        Ok(OutboundTunnel {
            inner_mtu: transform.inner_mtu(mtu, source.version()),
            name: SaId::new(destination, config.protocol == IpsecProtocol::Ah, spi, true),
            first_sequence: config.outbound.first_sequence,
            local_networks: networks("local_networks", &config.name, &config.local_networks)?,
            remote_networks: networks("remote_networks", &config.name, &config.remote_networks)?,
            outer,
            transform,
            spi,
            mtu,
        })
    }

    /// Returns whether the tunnel accepts a received packet between these addresses.
    #[inline]
    pub fn lets_out(&self, there: Addr, here: Addr) -> bool {
        let has = |networks: &[IpNetwork], addr| networks.iter().any(|network| network.contains(addr));
        has(&self.remote_networks, there) && has(&self.local_networks, here)
    }
}

impl InboundSa {
    fn order(&self) -> (u32, u8, Addr) {
        (self.spi, self.transform.protocol(), self.local)
    }
}

/// RFC 4106 2, 10: an initialization vector must never repeat under one key.
const SAME_KEY: &str =
    "another security association has the same key and salt, which breaks AES-GCM; use a key only once";

fn check(config: &VpnTunnelConfig) -> Result<(), ConfigError> {
    let error = |message: String| Err(config.name.error(0..config.name.len(), message));
    if config.local.is_ipv4() != config.remote.is_ipv4() {
        return error("`local` and `remote` must have one IP version".to_owned());
    }
    if config.local == config.remote {
        return error("`local` and `remote` must be different addresses".to_owned());
    }
    if config.mtu < MTU_MIN {
        return error(format!("`mtu` must be at least {MTU_MIN}, not {}", config.mtu));
    }
    if config.ttl == 0 {
        return error("`ttl` must be at least 1".to_owned());
    }
    if config.outbound.first_sequence == 0 {
        return error("`first_sequence` must be at least 1".to_owned());
    }
    if !(1..=INBOUND_MAX).contains(&config.inbound.len()) {
        let message = format!("expected 1 to {INBOUND_MAX} `inbound`, got {}", config.inbound.len());
        return error(message);
    }
    Ok(())
}

fn inbound_of(config: &VpnTunnelConfig, tunnel: u16) -> Result<Vec<InboundSa>, ConfigError> {
    let (local, remote) = (Addr::from(config.local), Addr::from(config.remote));
    let is_ah = config.protocol == IpsecProtocol::Ah;
    let inbound = config.inbound.iter().map(|sa| {
        let transform = transform(config, &sa.key)?;
        debug_assert_eq!(transform.protocol(), if is_ah { AH } else { ESP });
        let name = config.anti_replay.then(|| SaId::new(local, is_ah, sa.spi.0, false));
        Ok(InboundSa { tunnel, transform, name, spi: sa.spi.0, local, remote })
    });
    inbound.collect()
}

/// Builds the algorithm with a key of this tunnel. Errors point to the tunnel's name, because an
/// error shows the text around its position, which must not be the key.
fn transform(config: &VpnTunnelConfig, key: &Secret) -> Result<SaTransform, ConfigError> {
    let error = |message: String| config.name.error(0..config.name.len(), message);
    let bytes = key.bytes().map_err(error)?;
    let hmac = || {
        Hmac128::new(&bytes).ok_or_else(|| {
            error(format!("an HMAC-SHA-256 key must have {HMAC_KEY_LEN} bytes, not {}", bytes.len()))
        })
    };
    match config.protocol {
        IpsecProtocol::Ah => hmac().map(SaTransform::Ah),
        IpsecProtocol::EspNull => hmac().map(SaTransform::Null),
        IpsecProtocol::Esp => Gcm::new(&bytes).map(SaTransform::Gcm).ok_or_else(|| {
            let len = bytes.len();
            error(format!(
                "an AES-GCM key must have 16 or 32 bytes followed by 4 bytes of salt, not {len} in total"
            ))
        }),
    }
}

fn networks(key: &str, tunnel: &Located, texts: &[Located]) -> Result<Vec<IpNetwork>, ConfigError> {
    if !(1..=NETWORKS_MAX).contains(&texts.len()) {
        let message = format!("`{key}` must have 1 to {NETWORKS_MAX} networks, not {}", texts.len());
        return Err(tunnel.error(0..tunnel.len(), message));
    }
    texts.iter().map(IpNetwork::parse).collect()
}
