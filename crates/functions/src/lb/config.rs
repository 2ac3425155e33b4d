//! The load balancer's configuration, as written in a policy.

use std::fmt;
use std::net::IpAddr;

use packet::Addr;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use values::{ConfigError, Located};

use super::directory::ServiceProtocol;
use super::quic::SERVER_ID_MAX;

/// What a policy says of a load balancer.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The services, each at an address of its own or at other ports of it.
    pub services: Vec<ServiceConfig>,
    /// How packets are wrapped, for services that tunnel.
    #[serde(default)]
    pub tunnel: EncapConfig,
    /// What happens to packets that begin a flow from the port of a `nat` service, or of a server
    /// of it.
    #[serde(default)]
    pub strays: Strays,
    /// Whether echo requests to a service's address are answered here, where no service takes them.
    #[serde(default)]
    pub answer_ping: bool,
    /// Key of all hashes. Machines that share a service must have the same; without it the run's
    /// seed counts.
    #[serde(default)]
    pub hash_seed: Option<u64>,
}

/// A service.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Its name, in commands and counters; see [`ServiceConfig::title`].
    #[serde(default)]
    pub name: Option<Located>,
    /// The address that clients send to.
    pub vip: IpAddr,
    /// The ports that they send to; all, if it is left out.
    #[serde(default)]
    pub port: ServicePorts,
    /// The protocol.
    #[serde(default)]
    pub protocol: ServiceProtocol,
    /// How packets get to a server.
    #[serde(default)]
    pub mode: Mode,
    /// How a server is picked.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// Slots of Maglev's table: a prime, best above a hundred times the number of servers.
    #[serde(default = "default_table_size")]
    pub table_size: u32,
    /// What a server is picked by.
    #[serde(default)]
    pub affinity: Affinity,
    /// What becomes of a server's flows when it goes down.
    #[serde(default)]
    pub on_down: OnDown,
    /// The servers.
    pub servers: Vec<ServerConfig>,
}

impl ServiceConfig {
    /// Its name, or, without one, what tells it from others: `tcp:203.0.113.80:443`.
    pub fn title(&self) -> Located {
        self.name.clone().unwrap_or_else(|| format!("{}:{}{}", self.protocol, self.vip, self.port).into())
    }
}

/// A server of a service.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Its name, in commands, counters and the hash: it keeps its share when its address changes.
    pub name: Located,
    /// Its address.
    pub address: IpAddr,
    /// Its port, if not the service's.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its share of new flows, in proportion to the others'; 0: none.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Whether it is down from the start.
    #[serde(default)]
    pub down: bool,
    /// Its number in the QUIC connection IDs that it gives, for `affinity: quic`.
    #[serde(default)]
    pub quic_id: Option<ServerId>,
}

/// A server's number in connection IDs, written as hexadecimal digits, two for a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerId(pub Box<[u8]>);

impl<'de> Deserialize<'de> for ServerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServerId, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Box<[u8]>> = text.as_bytes().chunks(2).map(byte).collect();
        let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.filter(|bytes| is_hex && (1..=SERVER_ID_MAX).contains(&bytes.len())).map(ServerId).ok_or_else(
            || {
                de::Error::custom(format!(
                    "`quic_id` is 2 to {} hexadecimal digits, two for a byte, not `{text}`",
                    2 * SERVER_ID_MAX
                ))
            },
        )
    }
}

/// How packets are wrapped.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncapConfig {
    /// Source of outer IPv4 headers: an address, or a prefix out of which each flow has its own.
    pub source4: Option<Located>,
    /// Source of outer IPv6 headers.
    pub source6: Option<Located>,
    /// Time to live of outer headers.
    pub ttl: u8,
    /// The longest IP packet that gets to the servers, in bytes.
    pub mtu: u16,
    /// Whether GUE's UDP header has a checksum.
    pub udp_checksum: UdpChecksum,
}

impl Default for EncapConfig {
    fn default() -> EncapConfig {
        EncapConfig { source4: None, source6: None, ttl: 64, mtu: 1500, udp_checksum: UdpChecksum::default() }
    }
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }
    };
}

choice!(
    /// How packets get to a server.
    Mode {
        /// By a new destination address and port; the server's answers come back this way and are
        /// turned into the service's.
        #[default]
        Nat,
        /// In an IP header of their own (RFC 2003, RFC 2473, RFC 4213); the server answers the
        /// client itself.
        Ipip,
        /// In Generic UDP Encapsulation (draft-ietf-intarea-gue), so that links in between spread
        /// the flows.
        Gue,
    }
);

choice!(
    /// How a server is picked.
    Scheduler {
        /// By Maglev's table: few flows change their server when one goes.
        #[default]
        Maglev,
        /// By the hash modulo the servers' weights.
        Hash,
    }
);

choice!(
    /// What a server is picked by.
    Affinity {
        /// Addresses, ports and protocol.
        #[default]
        Connection,
        /// The client's address alone: all its connections have one server.
        Source,
        /// The QUIC connection ID, also when the client's address or port changes; for `udp`
        /// services.
        Quic,
    }
);

choice!(
    /// What becomes of a server's flows when it goes down.
    OnDown {
        /// The next packet of each picks another server (B25).
        #[default]
        Move,
        /// They keep it until they end.
        Finish,
        /// They are dropped; TCP clients are told by a reset.
        Reset,
    }
);

choice!(
    /// What happens to packets of a service's servers that belong to no known flow.
    Strays {
        /// They pass untouched.
        #[default]
        Forward,
        /// They are dropped.
        Drop,
    }
);

choice!(
    /// Whether GUE's UDP header has a checksum.
    UdpChecksum {
        /// None over IPv4; over IPv6 it is computed, as RFC 8200 8.1 wants of whoever was not told
        /// otherwise.
        #[default]
        Auto,
        /// Always computed.
        Always,
        /// Never, over IPv6 by RFC 6935 too.
        Never,
    }
);

/// The ports of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServicePorts {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl Default for ServicePorts {
    fn default() -> ServicePorts {
        ServicePorts { first: 0, last: u16::MAX }
    }
}

impl ServicePorts {
    /// The only port, if it is one.
    pub fn single(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }
}

/// As a part of an endpoint: `:80`, `:8000-8999`, or nothing for all.
impl fmt::Display for ServicePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(port) => write!(f, ":{port}"),
            None if *self == ServicePorts::default() => Ok(()),
            None => write!(f, ":{}-{}", self.first, self.last),
        }
    }
}

impl<'de> Deserialize<'de> for ServicePorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServicePorts, D::Error> {
        deserializer.deserialize_any(PortsVisitor)
    }
}

struct PortsVisitor;

impl Visitor<'_> for PortsVisitor {
    type Value = ServicePorts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port such as 80, a range such as \"8000-8999\", or all")
    }

    fn visit_u64<E: de::Error>(self, port: u64) -> Result<ServicePorts, E> {
        let port = u16::try_from(port).map_err(|_| E::custom(format!("{port} is no port: at most 65535")))?;
        Ok(ServicePorts { first: port, last: port })
    }

    fn visit_i64<E: de::Error>(self, port: i64) -> Result<ServicePorts, E> {
        self.visit_u64(u64::try_from(port).map_err(|_| E::custom(format!("{port} is no port")))?)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ServicePorts, E> {
        if text == "all" {
            return Ok(ServicePorts::default());
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(ServicePorts { first, last }),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

/// Addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePrefix {
    bits: u128,
    /// The bits that differ from address to address.
    host: u128,
}

impl SourcePrefix {
    /// Reads `192.0.2.1` or `198.18.0.0/16` of the IP version that is wanted.
    pub fn parse(text: &Located, version: u8) -> Result<SourcePrefix, ConfigError> {
        let wrong = || text.error(0..text.len(), format!("`{text}` is no IPv{version} address or prefix"));
        let (address, len) = text.split_once('/').map_or((&**text, None), |(a, len)| (a, Some(len)));
        let address = Addr::from(address.parse::<IpAddr>().map_err(|_| wrong())?);
        let width: u32 = if version == 4 { 32 } else { 128 };
        let len = len.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if address.version() != version || len > width {
            return Err(wrong());
        }
        let host = 1u128.checked_shl(width - len).map_or(u128::MAX, |bit| bit - 1);
        Ok(SourcePrefix { bits: address.to_u128() & !host, host })
    }

    /// The address of a flow with this entropy; the same flow, the same address.
    #[inline]
    pub fn address(&self, entropy: u32) -> Addr {
        Addr::from_u128(self.bits | u128::from(entropy) & self.host)
    }
}

fn default_table_size() -> u32 {
    65_537
}

fn default_weight() -> u16 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_ranges_or_all() {
        let ports = |json: &str| serde_json::from_str::<ServicePorts>(json).map(|p| (p.first, p.last)).ok();
        assert_eq!(ports("80"), Some((80, 80)));
        assert_eq!(ports("\"8000-8999\""), Some((8000, 8999)));
        assert_eq!(ports("\"all\""), Some((0, 65535)));
        for wrong in ["65536", "-1", "\"9-8\"", "\"x\"", "true"] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_prefix_gives_each_flow_an_address() {
        let prefix = |text: &str, version| SourcePrefix::parse(&Located::from(text), version);
        let address =
            |text: &str, version, entropy| prefix(text, version).unwrap().address(entropy).to_string();
        assert_eq!(address("198.18.0.0/16", 4, 0xabcd_0102), "198.18.1.2");
        assert_eq!(address("192.0.2.9", 4, 0xffff_ffff), "192.0.2.9");
        assert_eq!(address("2001:db8::/64", 6, 0xffff_0001), "2001:db8::ffff:1");
        assert_eq!(address("0.0.0.0/0", 4, 0x0102_0304), "1.2.3.4");
        for (wrong, version) in [("2001:db8::1", 4), ("192.0.2.1/33", 4), ("192.0.2.1", 6), ("x/8", 4)] {
            assert!(prefix(wrong, version).is_err(), "{wrong}");
        }
    }
}
