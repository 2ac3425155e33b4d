//! The policer's configuration, as a policy writes it, and what becomes of it.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use values::{ConfigError, Quantity, QuantityKind};

use super::dscp::{self, Dscp};
use super::marker::{BYTE, Marker, PACKET, SIZE_MAX, TokenBucket};

/// The policer's configuration; see its README for what the keys do.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The committed rate, in bits/s or packets/s.
    pub rate: Quantity,
    /// The committed burst: bytes (or packets), or a time at the rate.
    #[serde(default)]
    pub burst: Option<Quantity>,
    /// The excess burst of one rate (RFC 2697), likewise.
    #[serde(default)]
    pub excess_burst: Option<Quantity>,
    /// The peak rate (RFC 2698), of the committed rate's kind.
    #[serde(default)]
    pub peak_rate: Option<Quantity>,
    /// The burst at the peak rate: likewise a size or a time.
    #[serde(default)]
    pub peak_burst: Option<Quantity>,
    /// What has buckets of its own.
    #[serde(default)]
    pub per: MeterScope,
    /// Bits of an IPv4 address that count, where there are buckets by address.
    #[serde(default = "all_bits4")]
    pub prefix4: u8,
    /// Bits of an IPv6 address that count.
    #[serde(default = "subscriber_bits6")]
    pub prefix6: u8,
    /// Which packets are policed.
    #[serde(default)]
    pub direction: PolicedDirection,
    /// What is counted of a packet.
    #[serde(default)]
    pub length: LengthBase,
    /// Bytes that each packet counts beside its length, up to [`OVERHEAD_MAX`].
    #[serde(default)]
    pub overhead: u64,
    /// Whether packets come with a colour.
    #[serde(default)]
    pub aware: ColourMode,
    /// What is done with green packets.
    #[serde(default)]
    pub green: ColourAction,
    /// What is done with yellow packets.
    #[serde(default)]
    pub yellow: ColourAction,
    /// What is done with red packets.
    #[serde(default = "drop_action")]
    pub red: ColourAction,
    /// Buckets at most, where they are not those of connections; up to [`METERS_MAX`].
    #[serde(default = "default_meters")]
    pub meters: u32,
    /// What happens to a packet whose buckets find no room.
    #[serde(default)]
    pub when_full: MeterExhaustion,
}

/// Bytes of overhead at most.
pub const OVERHEAD_MAX: u64 = 1_024;
/// Meters at most.
pub const METERS_MAX: u32 = 16_777_216;

/// The burst unless said: so long at the rate ...
const BURST_NS: u64 = 100_000_000;
/// ... but at least ten packets of this many bytes.
const BURST_MIN_BYTES: u64 = 15_000;
const BURST_MIN_PACKETS: u64 = 10;

/// What has buckets of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterScope {
    /// A connection.
    #[default]
    Connection,
    /// A packet's source address.
    Source,
    /// A packet's destination address.
    Destination,
    /// The address of the host inside: the source of packets from inside, the destination of those
    /// from outside.
    Inside,
    /// The address of the host outside.
    Outside,
    /// A tenant.
    Tenant,
    /// Nothing: there is one meter for all.
    All,
}

/// Which packets are policed, by the side that they come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicedDirection {
    /// All; each direction has buckets of its own.
    #[default]
    Each,
    /// All; both directions take from the same buckets.
    Both,
    /// Those from inside.
    FromInside,
    /// Those from outside.
    FromOutside,
}

/// What is counted of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthBase {
    /// The IP packet, from its outermost IP header on.
    #[default]
    Ip,
    /// The frame as it was received, without its check sequence.
    Link,
}

/// Whether packets come with a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColourMode {
    /// They do not: all are green at first.
    #[default]
    Blind,
    /// The drop precedence of an assured forwarding class says it (RFC 2597); others are green.
    Dscp,
}

/// What is done with packets of a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColourAction {
    /// They pass.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
    /// They pass with the attribute `colour`.
    Mark,
    /// They pass with that and another DSCP.
    Remark(Remark),
}

/// What DSCP packets get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// This one.
    To(Dscp),
    /// In an assured forwarding class, that of their colour's drop precedence; others keep theirs.
    Precedence,
}

/// What happens to a packet whose buckets find no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterExhaustion {
    /// It passes, unmetered.
    #[default]
    Pass,
    /// It is dropped.
    Drop,
}

/// What the amounts of a configuration come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// How packets are coloured.
    pub marker: Marker,
    /// Units that a byte costs; 0 if packets are counted.
    pub per_byte: u64,
    /// Units that a packet costs beside.
    pub per_packet: u64,
}

impl Config {
    /// The buckets, or what is wrong with the amounts.
    pub fn rates(&self) -> Result<Rates, ConfigError> {
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
                return Err(ConfigError::new("`peak_rate` and `rate` have to be of one kind"));
            }
            Some(peak) if peak.value < rate => {
                return Err(ConfigError::new("`peak_rate` has to be at least `rate` (RFC 2698 2)"));
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
        Ok(Rates { marker, per_byte, per_packet })
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

    /// The units of a bucket that is said as a size, or as a time at the rate.
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
            ConfigError::new(format!("`{key}` is too large: the most is {most}"))
        })
    }
}

fn above_zero(key: &str, value: u64) -> Result<u64, ConfigError> {
    if value == 0 {
        return Err(ConfigError::new(format!("`{key}` has to be above zero")));
    }
    Ok(value)
}

fn refused(key: &str, wanted: &str, found: QuantityKind) -> ConfigError {
    ConfigError::new(format!("`{key}` takes {wanted}, not {found}"))
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
