//! Configuration as written in a policy; the README documents each key.

use std::net::IpAddr;

use packet::Side;
use values::ConfigError;

use super::Selection;
use crate::numbers::within;

/// Configuration of a mirror.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address that copies are sent to.
    pub collector: IpAddr,
    /// Source address of copies.
    pub source: IpAddr,
    /// Encapsulation of copies.
    #[serde(default)]
    pub protocol: MirrorProtocol,
    /// VXLAN network identifier, up to [`VNI_MAX`].
    #[serde(default)]
    pub vni: Option<u32>,
    /// ERSPAN session, up to [`SESSION_MAX`].
    #[serde(default)]
    pub session: Option<u16>,
    /// Side that copies leave by.
    #[serde(default)]
    pub side: CollectorSide,
    /// Packets to copy, by their side of origin.
    #[serde(default)]
    pub direction: MirroredDirection,
    /// Copies one packet in this many.
    #[serde(default)]
    pub sample: Option<u32>,
    /// Copies this many packets of each flow.
    #[serde(default)]
    pub first: Option<u32>,
    /// Limit on the bytes of a frame that are copied.
    #[serde(default)]
    pub snap: Option<u16>,
    /// Limit on the IP packet that carries a copy, in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// Time to live, or hop limit, of copies.
    #[serde(default = "default_ttl")]
    pub ttl: u8,
    /// DSCP of copies, 0 to 63.
    #[serde(default)]
    pub dscp: u8,
}

/// Maximum VXLAN network identifier (RFC 7348 5).
pub const VNI_MAX: u32 = 0xff_ffff;
/// Maximum ERSPAN session.
pub const SESSION_MAX: u16 = 0x3ff;
/// Minimum of `snap`: Ethernet with tags, IP and transport headers.
pub const SNAP_MIN: u16 = 64;
/// Minimum MTU by IPv4 (RFC 791 3.1).
pub const MTU_MIN_V4: u16 = 576;
/// Minimum MTU by IPv6 (RFC 8200 5).
pub const MTU_MIN_V6: u16 = 1280;

/// Encapsulation of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorProtocol {
    /// VXLAN over UDP (RFC 7348).
    #[default]
    Vxlan,
    /// ERSPAN type II over GRE.
    Erspan2,
    /// ERSPAN type III over GRE, with time stamps.
    Erspan3,
}

/// Side of the collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectorSide {
    /// Left end of the graph.
    Inside,
    /// Right end of the graph.
    #[default]
    Outside,
}

/// Packets to copy, by their side of origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirroredDirection {
    /// All.
    #[default]
    Both,
    /// Packets from inside.
    FromInside,
    /// Packets from outside.
    FromOutside,
}

impl CollectorSide {
    /// Returns the side of the graph.
    pub(super) fn side(self) -> Side {
        match self {
            CollectorSide::Inside => Side::Inside,
            CollectorSide::Outside => Side::Outside,
        }
    }
}

impl Config {
    /// Returns the packets to copy.
    pub(super) fn selection(&self) -> Result<Selection, ConfigError> {
        for (key, count) in [("sample", self.sample), ("first", self.first)] {
            within(key, count.unwrap_or(1).into(), 1..=u32::MAX.into())?;
        }
        match (self.sample, self.first) {
            (Some(_), Some(_)) => Err(ConfigError::new("`sample` and `first` exclude each other")),
            (_, Some(count)) => Ok(Selection::First(count)),
            (every, None) => Ok(Selection::Sample(every.unwrap_or(1))),
        }
    }

    /// Checks the values that headers contain.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.collector.is_ipv4() != self.source.is_ipv4() {
            return Err(ConfigError::new("`source` and `collector` must be of one IP version"));
        }
        for (key, addr) in [("source", self.source), ("collector", self.collector)] {
            let is_many = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast()) || addr.is_multicast();
            if addr.is_unspecified() || is_many {
                return Err(ConfigError::new(format!("`{key}` must be the address of one host, not {addr}")));
            }
        }
        let (own, other) = match self.protocol {
            MirrorProtocol::Vxlan => (("vni", self.vni.is_some()), ("session", self.session.is_some())),
            _ => (("session", self.session.is_some()), ("vni", self.vni.is_some())),
        };
        if !own.1 || other.1 {
            return Err(ConfigError::new(format!(
                "`protocol` needs `{}` and no `{}`: `vxlan` has a `vni`, `erspan2` and `erspan3` a `session`",
                own.0, other.0
            )));
        }
        within("vni", self.vni.unwrap_or(0).into(), 0..=VNI_MAX.into())?;
        within("session", self.session.unwrap_or(0).into(), 0..=SESSION_MAX.into())?;
        within("dscp", self.dscp.into(), 0..=63)?;
        within("ttl", self.ttl.into(), 1..=u8::MAX.into())?;
        within("snap", self.snap.unwrap_or(u16::MAX).into(), SNAP_MIN.into()..=u16::MAX.into())?;
        let mtu_min = if self.collector.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 };
        within("mtu", self.mtu.into(), mtu_min.into()..=u16::MAX.into())
    }
}

fn default_mtu() -> u16 {
    1500
}

fn default_ttl() -> u8 {
    64
}
