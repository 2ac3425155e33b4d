//! Configuration as written in a policy, and the rates derived from it.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use values::{ConfigError, Quantity, QuantityKind};

use super::dscp::{self, Dscp};
use super::marker::{BYTE, Marker, PACKET, SIZE_MAX, TokenBucket};

/// Configuration of the policer; the README documents each key.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Committed rate, in bits/s or packets/s.
    pub rate: Quantity,
    /// Committed burst: a size, or a time at the rate.
    #[serde(default)]
    pub burst: Option<Quantity>,
    /// Excess burst of a single rate (RFC 2697): a size, or a time at the rate.
    #[serde(default)]
    pub excess_burst: Option<Quantity>,
    /// Peak rate (RFC 2698), in the unit of the committed rate.
    #[serde(default)]
    pub peak_rate: Option<Quantity>,
    /// Burst at the peak rate: a size, or a time at the rate.
    #[serde(default)]
    pub peak_burst: Option<Quantity>,
    /// Scope of a meter.
    #[serde(default)]
    pub per: MeterScope,
    /// Significant bits of an IPv4 address, for meters by address.
    #[serde(default = "all_bits4")]
    pub prefix4: u8,
    /// Significant bits of an IPv6 address.
    #[serde(default = "subscriber_bits6")]
    pub prefix6: u8,
    /// Packets to police.
    #[serde(default)]
    pub direction: PolicedDirection,
    /// Counted length of a packet.
    #[serde(default)]
    pub length: LengthBase,
    /// Bytes to add to the length of each packet, up to [`OVERHEAD_MAX`].
    #[serde(default)]
    pub overhead: u64,
    /// Use of a colour that packets arrive with.
    #[serde(default)]
    pub aware: ColourMode,
    /// Action for green packets.
    #[serde(default)]
    pub green: ColourAction,
    /// Action for yellow packets.
    #[serde(default)]
    pub yellow: ColourAction,
    /// Action for red packets.
    #[serde(default = "drop_action")]
    pub red: ColourAction,
    /// Maximum number of shared meters, up to [`METERS_MAX`].
    #[serde(default = "default_meters")]
    pub meters: u32,
    /// Action for packets without a meter, when the table is full.
    #[serde(default)]
    pub when_full: MeterExhaustion,
}

/// Maximum overhead in bytes.
pub const OVERHEAD_MAX: u64 = 1_024;
/// Maximum number of meters.
pub const METERS_MAX: u32 = 16_777_216;

/// Default burst: this time at the rate ...
const BURST_NS: u64 = 100_000_000;
/// ... but at least ten packets of 1,500 bytes.
const BURST_MIN_BYTES: u64 = 15_000;
const BURST_MIN_PACKETS: u64 = 10;

/// Scope of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterScope {
    /// Connection.
    #[default]
    Connection,
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Address of the inside host: the source of packets from inside, the destination of packets
    /// from outside.
    Inside,
    /// Address of the outside host.
    Outside,
    /// Tenant.
    Tenant,
    /// One meter for all packets.
    All,
}

/// Packets to police, by their side of origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicedDirection {
    /// All, with a meter per direction.
    #[default]
    Each,
    /// All, with one meter for both directions.
    Both,
    /// Packets from inside.
    FromInside,
    /// Packets from outside.
    FromOutside,
}

/// Counted length of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthBase {
    /// The IP packet, from its outermost IP header.
    #[default]
    Ip,
    /// The frame as received, without its check sequence.
    Link,
}

/// Use of a colour that packets arrive with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColourMode {
    /// None: all packets start as green.
    #[default]
    Blind,
    /// Drop precedence of an assured forwarding class (RFC 2597); other packets start as green.
    Dscp,
}

/// Action for packets of a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColourAction {
    /// Pass.
    #[default]
    Pass,
    /// Drop.
    Drop,
    /// Pass with the attribute `colour`.
    Mark,
    /// Pass with the attribute `colour` and another DSCP.
    Remark(Remark),
}

/// DSCP to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// This DSCP.
    To(Dscp),
    /// In an assured forwarding class, the drop precedence of the colour; other classes stay.
    Precedence,
}

/// Action for packets without a meter, when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterExhaustion {
    /// Pass unmetered.
    #[default]
    Pass,
    /// Drop.
    Drop,
}

/// The rates of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicerRates {
    /// Token buckets.
    pub marker: Marker,
    /// Units that a byte costs; 0 if packets are counted.
    pub per_byte: u64,
    /// Additional units that a packet costs.
    pub per_packet: u64,
}

impl Config {
    /// Converts the amounts to buckets; refuses incompatible amounts.
    ///
    /// # Errors
    /// Amounts contradict each other, or exceed their limits.
    pub fn rates(&self) -> Result<PolicerRates, ConfigError> {
        let kind = self.rate.kind;
        let (per_byte, per_packet) = match kind {
            QuantityKind::BitRate => (BYTE, self.overhead * BYTE),
            QuantityKind::PacketRate => (0, PACKET),
            other => return Err(refused("rate", "`10Mbps` or `10kpps`", other)),
        };
        let rate = above_zero("rate", self.rate.value)?;
        let committed = self.bucket("burst", rate, self.burst)?;
        let marker = match self.peak_rate {
            None if self.peak_burst.is_some() => {
                return Err(ConfigError::new("`peak_burst` needs a `peak_rate`"));
            }
            None => Marker::SingleRate { committed, excess: self.excess(rate)? },
            Some(_) if self.excess_burst.is_some() => {
                return Err(ConfigError::new(
                    "`excess_burst` is for one rate (RFC 2697), `peak_rate` for two (RFC 2698)",
                ));
            }
            Some(peak) if peak.kind != kind => {
                return Err(ConfigError::new("`peak_rate` and `rate` must have the same unit"));
            }
            Some(peak) if peak.value < rate => {
                return Err(ConfigError::new("`peak_rate` must be at least `rate` (RFC 2698 2)"));
            }
            Some(peak) => {
                let peak = self.bucket("peak_burst", peak.value, self.peak_burst)?;
                Marker::TwoRate { committed, peak }
            }
        };
        let usable = match marker {
            Marker::SingleRate { committed, excess } => committed.size > 0 || excess > 0,
            Marker::TwoRate { committed, peak } => committed.size > 0 && peak.size > 0,
        };
        if !usable {
            return Err(ConfigError::new("a burst of 0 lets no packet pass"));
        }
        Ok(PolicerRates { marker, per_byte, per_packet })
    }

    fn excess(&self, rate: u64) -> Result<u64, ConfigError> {
        self.excess_burst.map_or(Ok(0), |burst| self.size("excess_burst", rate, burst))
    }

    fn bucket(&self, key: &str, rate: u64, burst: Option<Quantity>) -> Result<TokenBucket, ConfigError> {
        let size = match burst {
            Some(burst) => self.size(key, rate, burst)?,
            None => {
                let least = match self.rate.kind {
                    QuantityKind::PacketRate => BURST_MIN_PACKETS * PACKET,
                    _ => BURST_MIN_BYTES * BYTE,
                };
                rate.saturating_mul(BURST_NS).clamp(least, SIZE_MAX)
            }
        };
        Ok(TokenBucket { rate, size })
    }

    /// Converts a burst, given as a size or as a time at the rate, to units.
    fn size(&self, key: &str, rate: u64, burst: Quantity) -> Result<u64, ConfigError> {
        let units = match (burst.kind, self.rate.kind) {
            (QuantityKind::Duration, _) => burst.value.checked_mul(rate),
            (QuantityKind::Size, QuantityKind::BitRate) => burst.value.checked_mul(BYTE),
            (QuantityKind::Count, QuantityKind::PacketRate) => burst.value.checked_mul(PACKET),
            (other, QuantityKind::PacketRate) => {
                return Err(refused(
                    key,
                    "a number of packets, or a time at the rate such as `100ms`",
                    other,
                ));
            }
            (other, _) => {
                return Err(refused(
                    key,
                    "a size such as `64KiB`, or a time at the rate such as `100ms`",
                    other,
                ));
            }
        };
        units.filter(|&units| units <= SIZE_MAX).ok_or_else(|| {
            let most = match self.rate.kind {
                QuantityKind::PacketRate => format!("{} packets", SIZE_MAX / PACKET),
                _ => format!("{} bytes", SIZE_MAX / BYTE),
            };
            ConfigError::new(format!("`{key}` is too large: the maximum is {most}"))
        })
    }
}

fn above_zero(key: &str, value: u64) -> Result<u64, ConfigError> {
    if value == 0 {
        return Err(ConfigError::new(format!("`{key}` must be above zero")));
    }
    Ok(value)
}

fn refused(key: &str, wanted: &str, found: QuantityKind) -> ConfigError {
    ConfigError::new(format!("`{key}` must be {wanted}, not {found}"))
}

fn all_bits4() -> u8 {
    32
}

fn subscriber_bits6() -> u8 {
    64
}

fn default_meters() -> u32 {
    65_536
}

fn drop_action() -> ColourAction {
    ColourAction::Drop
}

impl<'de> Deserialize<'de> for Remark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Remark, D::Error> {
        deserializer.deserialize_any(RemarkVisitor)
    }
}

struct RemarkVisitor;

impl Visitor<'_> for RemarkVisitor {
    type Value = Remark;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a DSCP, as a number from 0 to 63 or by name such as `af12`, or `precedence`")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Remark, E> {
        let dscp = u8::try_from(value).ok().and_then(Dscp::new);
        dscp.map(Remark::To).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Remark, E> {
        if text == "precedence" {
            return Ok(Remark::Precedence);
        }
        let dscp = dscp::named(text);
        dscp.map(Remark::To).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
