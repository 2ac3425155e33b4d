//! The tunnels of a gateway and their security associations, as they come of the configuration: by
//! where a packet goes, and by which association it comes (RFC 4301 4.4).

use std::collections::HashSet;

use packet::Addr;
use values::{ConfigError, Located, Secret};

use super::config::{Config, IpsecProtocol, VpnTunnelConfig};
use super::frame::{AH, ESP, OVERHEAD_MAX, Transform, TunnelOuter};
use super::numbers::SaId;
use super::suite::{Gcm, HMAC_KEY_LEN, Hmac128};
use crate::networks::{Network, TunnelRoutes};

/// Tunnels of a gateway at most.
pub const TUNNELS_MAX: usize = 1_024;

/// Security associations that a tunnel's packets may come by, at most.
pub const INBOUND_MAX: usize = 4;

/// Networks at one end of a tunnel at most.
pub const NETWORKS_MAX: usize = 256;

/// The least path MTU of a tunnel: within the longest headers, a packet of IPv6's least MTU (RFC
/// 8200 5).
pub const MTU_MIN: u16 = 1280 + OVERHEAD_MAX as u16;

/// All tunnels.
pub struct TunnelTable {
    tunnels: Vec<OutboundTunnel>,
    routes: TunnelRoutes,
    /// By [`InboundSa::order`].
    inbound: Vec<InboundSa>,
    /// The addresses at this end, in order.
    locals: Vec<Addr>,
}

/// A tunnel, as seen by packets that leave.
pub struct OutboundTunnel {
    /// Its outer headers.
    pub outer: TunnelOuter,
    /// How packets are protected that leave.
    pub transform: Transform,
    /// Their index.
    pub spi: u32,
    /// Where their numbers are.
    pub name: SaId,
    /// The first of these.
    pub first_sequence: u32,
    /// The longest IP packet that gets to the other end.
    pub mtu: usize,
    /// The longest one that does from within.
    pub inner_mtu: usize,
    local_networks: Vec<Network>,
    remote_networks: Vec<Network>,
}

/// A security association that packets come by.
pub struct InboundSa {
    /// The number of its tunnel.
    pub tunnel: u16,
    /// How they are protected.
    pub transform: Transform,
    /// Where the numbers are that were there; none: they may come again.
    pub name: Option<SaId>,
    spi: u32,
    local: Addr,
    remote: Addr,
}

impl TunnelTable {
    /// Those of a configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(config: &Config) -> Result<TunnelTable, ConfigError> {
        if !(1..=TUNNELS_MAX).contains(&config.tunnels.len()) {
            let message = format!("a gateway has 1 to {TUNNELS_MAX} tunnels, not {}", config.tunnels.len());
            return Err(ConfigError::new(message));
        }
        let (mut tunnels, mut inbound, mut routes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut names, mut ciphers, mut outbound) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (number, config) in (0u16..).zip(&config.tunnels) {
            let error = |message: String| config.name.error(0..config.name.len(), message);
            if !names.insert(config.name.as_str()) {
                return Err(error(format!("two tunnels are called `{}`", &*config.name)));
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
                let message = format!("two tunnels send to {} by one index", config.remote);
                return Err(error(message));
            }
            routes.extend(tunnel.remote_networks.iter().map(|&network| (network, number)));
            inbound.extend(inbound_of(config, number)?);
            tunnels.push(tunnel);
        }
        inbound.sort_unstable_by_key(InboundSa::order);
        if let Some([one, other]) = inbound.array_windows().find(|[a, b]| a.order() == b.order()) {
            let [a, b] = [one, other].map(|sa| &config.tunnels[usize::from(sa.tunnel)].name);
            let message = format!("`{}` and `{}` receive by one index at one address", &**a, &**b);
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

    /// The tunnel of this number.
    #[inline]
    pub fn get(&self, number: u16) -> Option<&OutboundTunnel> {
        self.tunnels.get(usize::from(number))
    }

    /// The tunnel between the networks of these addresses here and there, with its number.
    #[inline]
    pub fn between(&self, here: Addr, there: Addr) -> Option<(u16, &OutboundTunnel)> {
        let number = self.routes.find(there)?;
        let tunnel = self.get(number)?;
        tunnel.local_networks.iter().any(|network| network.contains(here)).then_some((number, tunnel))
    }

    /// The association that a packet from `remote` to `local` names; `protocol` is AH or ESP.
    #[inline]
    pub fn inbound(&self, local: Addr, remote: Addr, protocol: u8, spi: u32) -> Option<&InboundSa> {
        let at = self.inbound.binary_search_by_key(&(spi, protocol, local), InboundSa::order).ok()?;
        self.inbound.get(at).filter(|sa| sa.remote == remote)
    }

    /// Whether tunnels end here at this address.
    #[inline]
    pub fn end_at(&self, addr: Addr) -> bool {
        self.locals.binary_search(&addr).is_ok()
    }

    /// How many associations packets leave by, and come by.
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

    /// Whether a packet between these addresses may come out of it.
    #[inline]
    pub fn lets_out(&self, there: Addr, here: Addr) -> bool {
        let has = |networks: &[Network], addr| networks.iter().any(|network| network.contains(addr));
        has(&self.remote_networks, there) && has(&self.local_networks, here)
    }
}

impl InboundSa {
    fn order(&self) -> (u32, u8, Addr) {
        (self.spi, self.transform.protocol(), self.local)
    }
}

/// RFC 4106 2, 10: a key that has encrypted with a vector never does so again with the same one.
const SAME_KEY: &str =
    "another security association has a key and salt of this one: AES-GCM keeps no secrets then";

fn check(config: &VpnTunnelConfig) -> Result<(), ConfigError> {
    let error = |message: String| Err(config.name.error(0..config.name.len(), message));
    if config.local.is_ipv4() != config.remote.is_ipv4() {
        return error("`local` and `remote` are addresses of one IP version".to_owned());
    }
    if config.local == config.remote {
        return error("`local` and `remote` are the same address".to_owned());
    }
    if config.mtu < MTU_MIN {
        return error(format!("`mtu` is at least {MTU_MIN}, not {}", config.mtu));
    }
    if config.ttl == 0 {
        return error("`ttl` is at least 1".to_owned());
    }
    if config.outbound.first_sequence == 0 {
        return error("`first_sequence` is at least 1".to_owned());
    }
    if !(1..=INBOUND_MAX).contains(&config.inbound.len()) {
        let message = format!("a tunnel has 1 to {INBOUND_MAX} `inbound`, not {}", config.inbound.len());
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

/// How packets are protected by a key of this tunnel. What is wrong with a key is said of the
/// tunnel's name: what stands around a place in the policy is shown with it.
fn transform(config: &VpnTunnelConfig, key: &Secret) -> Result<Transform, ConfigError> {
    let error = |message: String| config.name.error(0..config.name.len(), message);
    let bytes = key.bytes().map_err(error)?;
    let hmac = || {
        Hmac128::new(&bytes).ok_or_else(|| {
            error(format!("the key of HMAC-SHA-256 has {HMAC_KEY_LEN} bytes, not {}", bytes.len()))
        })
    };
    match config.protocol {
        IpsecProtocol::Ah => hmac().map(Transform::Ah),
        IpsecProtocol::EspNull => hmac().map(Transform::Null),
        IpsecProtocol::Esp => Gcm::new(&bytes).map(Transform::Gcm).ok_or_else(|| {
            let len = bytes.len();
            error(format!(
                "the key of AES-GCM has 16 or 32 bytes and 4 of salt behind them, not {len} in all"
            ))
        }),
    }
}

fn networks(key: &str, tunnel: &Located, texts: &[Located]) -> Result<Vec<Network>, ConfigError> {
    if !(1..=NETWORKS_MAX).contains(&texts.len()) {
        let message = format!("`{key}` has 1 to {NETWORKS_MAX} networks, not {}", texts.len());
        return Err(tunnel.error(0..tunnel.len(), message));
    }
    texts.iter().map(Network::parse).collect()
}
