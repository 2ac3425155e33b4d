//! Configuration as written in a policy; the README documents each key.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::wire::MacAddress;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Configuration of a tunnel.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Encapsulation protocol.
    #[serde(default)]
    pub protocol: EncapProtocol,
    /// Outer address of this end.
    pub local: IpAddr,
    /// Outer address of the other end.
    pub remote: IpAddr,
    /// GRE key (RFC 2890), the same in both directions; none: packets have no key.
    #[serde(default)]
    pub key: Option<u32>,
    /// Virtual network identifier of VXLAN and Geneve, 0 to 2^24 - 1, the same in both directions.
    #[serde(default)]
    pub vni: Option<u32>,
    /// Ethernet address of this end, for VXLAN and Geneve.
    #[serde(default)]
    pub local_mac: Option<StationMac>,
    /// Ethernet address of the other end.
    #[serde(default)]
    pub remote_mac: Option<StationMac>,
    /// Path MTU to the other end in bytes, including outer headers.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// TTL of outer headers.
    #[serde(default = "default_ttl")]
    pub ttl: u8,
    /// DSCP of outer headers.
    #[serde(default)]
    pub dscp: OuterDscp,
    /// Use of the UDP checksum in VXLAN and Geneve.
    #[serde(default)]
    pub udp_checksum: UdpChecksum,
    /// Action for packets from outside that did not come through the tunnel.
    #[serde(default)]
    pub others: UntunneledAction,
    /// The tunnel's own IPv4 address inside, the source of ICMP errors.
    #[serde(default)]
    pub gateway4: Option<Ipv4Addr>,
    /// The tunnel's own IPv6 address inside.
    #[serde(default)]
    pub gateway6: Option<Ipv6Addr>,
}

/// Encapsulation protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncapProtocol {
    /// GRE (RFC 2784, RFC 2890).
    #[default]
    Gre,
    /// IP in IP (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
    /// VXLAN over UDP, with an Ethernet header (RFC 7348).
    Vxlan,
    /// Geneve without options over UDP, with an Ethernet header (RFC 8926).
    Geneve,
}

/// Use of the UDP checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpChecksum {
    /// None over IPv4, as RFC 7348 5 recommends; computed over IPv6 (RFC 8200 8.1).
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never, as RFC 6935 allows over IPv6.
    Never,
}

/// Action for packets from outside that did not come through the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UntunneledAction {
    /// Drop.
    #[default]
    Drop,
    /// Pass unchanged.
    Pass,
}

/// DSCP of outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OuterDscp {
    /// Copy of the inner DSCP (RFC 2983 3.1: the uniform model).
    #[default]
    Copy,
    /// This DSCP, 0 to 63 (the pipe model).
    Of(u8),
}

impl<'de> Deserialize<'de> for OuterDscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OuterDscp, D::Error> {
        deserializer.deserialize_any(DscpVisitor)
    }
}

struct DscpVisitor;

impl Visitor<'_> for DscpVisitor {
    type Value = OuterDscp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`copy` or a DSCP from 0 to 63")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<OuterDscp, E> {
        match u8::try_from(number) {
            Ok(dscp @ ..64) => Ok(OuterDscp::Of(dscp)),
            _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<OuterDscp, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OuterDscp, E> {
        match text {
            "copy" => Ok(OuterDscp::Copy),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

/// A unicast Ethernet address, such as `02:00:5e:10:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StationMac(pub MacAddress);

impl<'de> Deserialize<'de> for StationMac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StationMac, D::Error> {
        deserializer.deserialize_str(MacVisitor)
    }
}

struct MacVisitor;

impl Visitor<'_> for MacVisitor {
    type Value = StationMac;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a unicast Ethernet address, such as \"02:00:5e:10:00:01\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StationMac, E> {
        let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
        let (mut bytes, mut parts) = ([0; 6], text.split(':'));
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        let mac = MacAddress(bytes);
        if parts.next().is_some() || mac.is_multicast() || bytes == [0; 6] {
            return Err(wrong());
        }
        Ok(StationMac(mac))
    }
}

fn default_mtu() -> u16 {
    1500
}

fn default_ttl() -> u8 {
    64
}
