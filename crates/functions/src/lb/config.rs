//! Configuration as written in a policy.

use std::fmt;
use std::net::IpAddr;

use packet::Addr;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use values::{ConfigError, Located};

use super::directory::ServiceProtocol;

/// Maximum length of a server ID in a connection ID, in bytes (draft-ietf-quic-load-balancers 5.2).
const SERVER_ID_MAX: usize = 15;

/// Configuration of a load balancer.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The services, which differ in address, protocol or ports.
    pub services: Vec<ServiceConfig>,
    /// Encapsulation, for services in tunnel mode.
    #[serde(default)]
    pub tunnel: EncapConfig,
    /// Action for packets that begin a flow from the port of a `nat` service, or of one of its
    /// servers.
    #[serde(default)]
    pub strays: StrayAction,
    /// Answers echo requests to a service's address, if no service takes them.
    #[serde(default)]
    pub answer_ping: bool,
    /// Key of all hashes. Machines that share a service need the same key; the default is the run's
    /// seed.
    #[serde(default)]
    pub hash_seed: Option<u64>,
}

/// A service.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Name, in commands and counters; see [`ServiceConfig::title`].
    #[serde(default)]
    pub name: Option<Located>,
    /// Virtual address: the destination of clients' packets.
    pub vip: IpAddr,
    /// Destination ports of clients' packets; default: all.
    #[serde(default)]
    pub port: ServicePorts,
    /// Protocol.
    #[serde(default)]
    pub protocol: ServiceProtocol,
    /// Forwarding mode.
    #[serde(default)]
    pub mode: ForwardingMode,
    /// Algorithm for choosing a server.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// Size of Maglev's table: a prime, preferably above a hundred times the number of servers.
    #[serde(default = "default_table_size")]
    pub table_size: u32,
    /// Fields that determine the server.
    #[serde(default)]
    pub affinity: ServerAffinity,
    /// Treatment of a server's flows when it goes down.
    #[serde(default)]
    pub on_down: DownAction,
    /// The servers.
    pub servers: Vec<ServerConfig>,
}

impl ServiceConfig {
    /// Returns the name or, without one, a unique description: `tcp:203.0.113.80:443`.
    pub fn title(&self) -> Located {
        self.name.clone().unwrap_or_else(|| format!("{}:{}{}", self.protocol, self.vip, self.port).into())
    }
}

/// A server of a service.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Name, in commands, counters and the hash: a server keeps its share when its address changes.
    pub name: Located,
    /// Address.
    pub address: IpAddr,
    /// Port, if different from the service's.
    #[serde(default)]
    pub port: Option<u16>,
    /// Share of new flows, relative to the other servers; 0: none.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Starts the server as down.
    #[serde(default)]
    pub down: bool,
    /// Server ID in the QUIC connection IDs that the server issues, for `affinity: quic`.
    #[serde(default)]
    pub quic_id: Option<ServerId>,
}

/// A server ID in connection IDs, written as hexadecimal digits, two per byte.
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
                    "`quic_id` must be 2 to {} hexadecimal digits, two per byte, not `{text}`",
                    2 * SERVER_ID_MAX
                ))
            },
        )
    }
}

/// Encapsulation of packets to servers.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncapConfig {
    /// Source of outer IPv4 headers: an address, or a prefix from which each flow gets an address.
    pub source4: Option<Located>,
    /// Source of outer IPv6 headers.
    pub source6: Option<Located>,
    /// TTL of outer headers.
    pub ttl: u8,
    /// Path MTU to the servers, in bytes.
    pub mtu: u16,
    /// Use of the checksum in GUE's UDP header.
    pub udp_checksum: GueChecksum,
}

impl Default for EncapConfig {
    fn default() -> EncapConfig {
        EncapConfig { source4: None, source6: None, ttl: 64, mtu: 1500, udp_checksum: GueChecksum::default() }
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
    /// Forwarding mode.
    ForwardingMode {
        /// Rewrite destination address and port. The server's answers return this way and are
        /// rewritten back.
        #[default]
        Nat,
        /// Encapsulate in IP (RFC 2003, RFC 2473, RFC 4213); the server answers the client
        /// directly.
        Ipip,
        /// Encapsulate in Generic UDP Encapsulation (draft-ietf-intarea-gue), so that links between
        /// can spread the flows.
        Gue,
    }
);

choice!(
    /// Algorithm for choosing a server.
    Scheduler {
        /// Maglev's table: few flows change their server when one goes down.
        #[default]
        Maglev,
        /// Hash modulo the sum of the servers' weights.
        Hash,
    }
);

choice!(
    /// Fields that determine the server.
    ServerAffinity {
        /// Addresses, ports and protocol.
        #[default]
        Connection,
        /// The client's address only: all its connections go to one server.
        Source,
        /// The QUIC connection ID, even if the client's address or port changes; for `udp`
        /// services.
        Quic,
    }
);

choice!(
    /// Treatment of a server's flows when it goes down.
    DownAction {
        /// The next packet of each flow picks another server (B25).
        #[default]
        Move,
        /// Flows stay with the server until they end.
        Finish,
        /// Flows are dropped; TCP clients get a reset.
        Reset,
    }
);

choice!(
    /// Action for packets of a service's servers that belong to no known flow.
    StrayAction {
        /// Pass unchanged.
        #[default]
        Forward,
        /// Drop.
        Drop,
    }
);

choice!(
    /// Use of the checksum in GUE's UDP header.
    GueChecksum {
        /// None over IPv4; computed over IPv6, as RFC 8200 8.1 requires by default.
        #[default]
        Auto,
        /// Always computed.
        Always,
        /// Never, not even over IPv6 (RFC 6935).
        Never,
    }
);

/// A range of service ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServicePorts {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

impl Default for ServicePorts {
    fn default() -> ServicePorts {
        ServicePorts { first: 0, last: u16::MAX }
    }
}

impl ServicePorts {
    /// Returns the port, if there is exactly one.
    pub fn single(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }
}

/// Formats the ports as part of an endpoint: `:80`, `:8000-8999`, or nothing for all.
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
        let port = u16::try_from(port)
            .map_err(|_| E::custom(format!("{port} is not a port; expected at most 65535")))?;
        Ok(ServicePorts { first: port, last: port })
    }

    fn visit_i64<E: de::Error>(self, port: i64) -> Result<ServicePorts, E> {
        self.visit_u64(u64::try_from(port).map_err(|_| E::custom(format!("{port} is not a port")))?)
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

/// An address prefix from which each flow gets a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePrefix {
    bits: u128,
    /// Mask of the host bits.
    host: u128,
}

impl SourcePrefix {
    /// Parses `192.0.2.1` or `198.18.0.0/16` of the given IP version.
    ///
    /// # Errors
    /// The text is no address or prefix of this IP version.
    pub fn parse(text: &Located, version: u8) -> Result<SourcePrefix, ConfigError> {
        let wrong =
            || text.error(0..text.len(), format!("`{text}` is not an IPv{version} address or prefix"));
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

    /// Returns the address for this entropy. A flow always gets the same address.
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
