//! Configuration as written in a policy; the README documents each key.

use std::fmt;
use std::net::IpAddr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use values::{Located, Secret};

/// Configuration of the gateway.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Tunnels, 1 to [`super::TUNNELS_MAX`].
    pub tunnels: Vec<VpnTunnelConfig>,
    /// Action for packets outside of all tunnels.
    #[serde(default)]
    pub others: UnprotectedAction,
    /// The gateway's own IPv4 address inside, the source of ICMP errors.
    #[serde(default)]
    pub gateway4: Option<std::net::Ipv4Addr>,
    /// The gateway's own IPv6 address inside.
    #[serde(default)]
    pub gateway6: Option<std::net::Ipv6Addr>,
}

/// A tunnel between two sites, with a security association for each direction.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VpnTunnelConfig {
    /// Name, in counters.
    pub name: Located,
    /// Protocol and algorithms.
    #[serde(default)]
    pub protocol: IpsecProtocol,
    /// Outer address of this end.
    pub local: IpAddr,
    /// Outer address of the other end.
    pub remote: IpAddr,
    /// Networks at this end that use the tunnel.
    pub local_networks: Vec<Located>,
    /// Networks at the other end.
    pub remote_networks: Vec<Located>,
    /// Outbound security association.
    pub outbound: OutboundConfig,
    /// Inbound security associations, 1 to [`super::INBOUND_MAX`]: several during a key change.
    pub inbound: Vec<InboundConfig>,
    /// Path MTU to the other end, in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// TTL of outer headers.
    #[serde(default = "default_ttl")]
    pub ttl: u8,
    /// DF bit of outer IPv4 headers.
    #[serde(default)]
    pub df: DontFragment,
    /// Refuses replayed packets.
    #[serde(default = "yes")]
    pub anti_replay: bool,
}

/// An outbound security association.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboundConfig {
    /// Security parameters index, chosen by the receiver.
    pub spi: Spi,
    /// Key.
    pub key: Secret,
    /// First sequence number.
    #[serde(default = "one")]
    pub first_sequence: u32,
}

/// An inbound security association.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboundConfig {
    /// Security parameters index.
    pub spi: Spi,
    /// Key.
    pub key: Secret,
}

/// Protocol and algorithms, always in tunnel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpsecProtocol {
    /// ESP with AES-GCM: confidentiality and integrity (RFC 4303, RFC 4106).
    #[default]
    Esp,
    /// ESP without encryption, with HMAC-SHA-256-128: integrity (RFC 4303, RFC 2410, RFC 4868).
    EspNull,
    /// AH with HMAC-SHA-256-128: integrity, including the immutable outer fields (RFC 4302, RFC
    /// 4868).
    Ah,
}

/// Action for packets outside of all tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnprotectedAction {
    /// Pass unchanged.
    #[default]
    Pass,
    /// Drop.
    Drop,
}

/// DF bit of outer IPv4 headers (RFC 4301 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DontFragment {
    /// Copy of the inner header's; set for IPv6 packets.
    #[default]
    Copy,
    /// Set.
    Set,
    /// Clear.
    Clear,
}

/// A security parameters index: a number, or a text such as `0x1001`. Values below 256 are reserved
/// (RFC 4303 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spi(pub u32);

impl<'de> Deserialize<'de> for Spi {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spi, D::Error> {
        deserializer.deserialize_any(SpiVisitor)
    }
}

struct SpiVisitor;

impl Visitor<'_> for SpiVisitor {
    type Value = Spi;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a security parameters index from 256 to 4294967295, such as 4097 or \"0x1001\"")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Spi, E> {
        match u32::try_from(number) {
            Ok(spi @ 256..) => Ok(Spi(spi)),
            _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Spi, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Spi, E> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        match number {
            Some(number) => self.visit_u64(number),
            None => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

fn default_mtu() -> u16 {
    1500
}

fn default_ttl() -> u8 {
    64
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}
