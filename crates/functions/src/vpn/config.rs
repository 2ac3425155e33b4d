//! The configuration as a policy writes it; see the README for what the keys do.

use std::fmt;
use std::net::IpAddr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use values::{Located, Secret};

/// The gateway's configuration.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The tunnels, 1 to [`super::TUNNELS_MAX`].
    pub tunnels: Vec<VpnTunnelConfig>,
    /// What becomes of packets that go through none.
    #[serde(default)]
    pub others: UnprotectedAction,
    /// The gateway's own IPv4 address inside, which answers come from.
    #[serde(default)]
    pub gateway4: Option<std::net::Ipv4Addr>,
    /// Its IPv6 address.
    #[serde(default)]
    pub gateway6: Option<std::net::Ipv6Addr>,
}

/// A tunnel between two sites, with a security association for each direction.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VpnTunnelConfig {
    /// Its name, in counters.
    pub name: Located,
    /// How packets are protected.
    #[serde(default)]
    pub protocol: IpsecProtocol,
    /// The outer address at this end.
    pub local: IpAddr,
    /// The outer address at the other end.
    pub remote: IpAddr,
    /// Where packets that go through it may come from here.
    pub local_networks: Vec<Located>,
    /// Where they go to.
    pub remote_networks: Vec<Located>,
    /// What is sent with.
    pub outbound: OutboundConfig,
    /// What is received with, 1 to [`super::INBOUND_MAX`]: several while keys are changed.
    pub inbound: Vec<InboundConfig>,
    /// The longest IP packet that gets to the other end, in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// Time to live of outer headers.
    #[serde(default = "default_ttl")]
    pub ttl: u8,
    /// The DF bit of outer IPv4 headers.
    #[serde(default)]
    pub df: DontFragment,
    /// Whether packets that come again are refused.
    #[serde(default = "yes")]
    pub anti_replay: bool,
}

/// The security association that packets leave by.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboundConfig {
    /// Its index, which the receiver chose.
    pub spi: Spi,
    /// Its key.
    pub key: Secret,
    /// The sequence number that it begins with.
    #[serde(default = "one")]
    pub first_sequence: u32,
}

/// A security association that packets come by.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboundConfig {
    /// Its index.
    pub spi: Spi,
    /// Its key.
    pub key: Secret,
}

/// How packets are protected, always in tunnel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpsecProtocol {
    /// ESP with AES-GCM: secret and genuine (RFC 4303, RFC 4106).
    #[default]
    Esp,
    /// ESP that hides nothing, with HMAC-SHA-256-128: genuine (RFC 4303, RFC 2410, RFC 4868).
    EspNull,
    /// AH with HMAC-SHA-256-128: genuine, as far as may be with the outer header (RFC 4302, RFC
    /// 4868).
    Ah,
}

/// What becomes of packets that go through no tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnprotectedAction {
    /// They pass untouched.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
}

/// The DF bit of outer IPv4 headers (RFC 4301 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DontFragment {
    /// That of the inner header; over IPv6 packets it is set.
    #[default]
    Copy,
    /// Set.
    Set,
    /// Not set.
    Clear,
}

/// A security parameters index: a number, or a text such as `0x1001`. Those below 256 are reserved
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
