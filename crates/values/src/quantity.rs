//! Amounts with a unit.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// An amount, in the base unit of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantity {
    /// The kind.
    pub kind: QuantityKind,
    /// Value in the base unit: ns, bytes, bits/s, packets/s or a plain number.
    pub value: u64,
}

/// Kinds of quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantityKind {
    /// A bare number, or one with a multiplier: `1_000`, `64k`.
    Count,
    /// Time, in nanoseconds.
    Duration,
    /// Memory or data, in bytes.
    Size,
    /// Bits per second.
    BitRate,
    /// Packets per second.
    PacketRate,
}

/// The reason why a text is not a valid amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Digits are missing.
    #[error("expected a number with a unit, such as `10s`, `64KiB` or `1Gbps`")]
    NotANumber,
    /// The letters after the number are not a unit.
    #[error(
        "unknown unit `{0}`: use ns, us, ms, s, m, h, d; B, KB, KiB ... TiB; bps ... Tbps; pps ... Gpps; k, M, G, T"
    )]
    UnknownUnit(String),
    /// Only a duration may have several parts, in descending units.
    #[error("only durations may have several parts, in descending units, such as `2h4m`")]
    Parts,
    /// The amount is not a whole number of base units.
    #[error("not a whole number of {0}")]
    Fraction(&'static str),
    /// The amount does not fit in 64 bits.
    #[error("too large: at most {} is allowed", u64::MAX)]
    TooLarge,
    /// The amount is 0.
    #[error("expected an amount above 0")]
    Zero,
    /// An amount of another kind was expected.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// The expected kind.
        expected: QuantityKind,
        /// The kind found.
        found: QuantityKind,
    },
}

impl Quantity {
    /// Parses an amount of any kind, as given by its unit.
    ///
    /// # Errors
    /// [`QuantityError`]; the crate's documentation has the grammar.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Self::parse_parts(text, |name| Unit::find(name).copied())
    }

    /// Parses a sum of numbers with units that `find` knows.
    fn parse_parts(text: &str, find: impl Fn(&str) -> Option<Unit>) -> Result<Self, QuantityError> {
        let mut rest = text;
        let mut last: Option<Unit> = None;
        let mut value = 0u64;
        loop {
            let (number, after) = Number::split(rest)?;
            let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let (unit_text, after) = after.split_at(end);
            let unit = find(unit_text).ok_or_else(|| QuantityError::UnknownUnit(unit_text.to_owned()))?;
            if last.is_some_and(|l| {
                unit.kind != QuantityKind::Duration || l.kind != unit.kind || l.scale <= unit.scale
            }) {
                return Err(QuantityError::Parts);
            }
            value = value.checked_add(number.scaled(&unit)?).ok_or(QuantityError::TooLarge)?;
            if after.is_empty() {
                return Ok(Self { kind: unit.kind, value });
            }
            (last, rest) = (Some(unit), after);
        }
    }

    /// Parses an amount of one kind.
    fn parse_as(text: &str, expected: QuantityKind) -> Result<u64, QuantityError> {
        Self::parse(text)?.of_kind(expected)
    }

    /// Returns the value of an amount of this kind. The bare number 0 is a duration, too.
    fn of_kind(self, expected: QuantityKind) -> Result<u64, QuantityError> {
        let is_zero =
            expected == QuantityKind::Duration && self.kind == QuantityKind::Count && self.value == 0;
        if self.kind != expected && !is_zero {
            return Err(QuantityError::Kind { expected, found: self.kind });
        }
        Ok(self.value)
    }
}

/// Deserializes a text with a unit, or an integer as a bare number. For fields that take amounts of
/// several kinds.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Prints the shortest text that parses to the same amount: `10s`, `2h4m`, `1.5KB`.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = UNITS.iter().filter(|u| u.kind == self.kind && !u.alias);
        let single = units.clone().filter_map(|u| decimal(self.value, u));
        let several =
            (self.kind == QuantityKind::Duration && self.value > 0).then(|| parts(self.value, units));
        let shortest = several.into_iter().chain(single).min_by_key(String::len).unwrap_or_default();
        f.write_str(&shortest)
    }
}

impl fmt::Display for QuantityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "a number without a unit",
            Self::Duration => "a duration such as `10s`",
            Self::Size => "a size such as `64KiB`",
            Self::BitRate => "a bit rate such as `1Gbps`",
            Self::PacketRate => "a packet rate such as `10Mpps`",
        })
    }
}

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident, $kind:expr) => {
        $(#[$doc])*
        ///
        /// Reads a text with a unit, or an integer in the base unit; prints the shortest text.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl FromStr for $name {
            type Err = QuantityError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Quantity::parse_as(text, $kind).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Quantity { kind: $kind, value: self.0 }.fmt(f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(AmountVisitor($kind)).map(Self)
            }
        }
    };
}

amount!(
    /// A span of time in nanoseconds: `500us`, `10s`, `2h4m`.
    Nanos,
    QuantityKind::Duration
);
amount!(
    /// An amount of data in bytes: `15KB`, `64KiB`.
    ByteCount,
    QuantityKind::Size
);
amount!(
    /// A rate in bits per second: `1Gbps`.
    BitRate,
    QuantityKind::BitRate
);
amount!(
    /// A rate in packets per second: `10Mpps`.
    PacketRate,
    QuantityKind::PacketRate
);

/// A span of time in picoseconds, such as the cost of a byte: `500ps`, `0.8ns`.
///
/// Reads a text with a unit of time; only 0 needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl FromStr for Picos {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let find = |name: &str| match Unit::find(name).copied() {
            Some(unit) if unit.kind == QuantityKind::Duration => {
                Some(Unit { scale: 1_000 * unit.scale, ..unit })
            }
            None if name == "ps" => Some(unit("ps", QuantityKind::Duration, 1)),
            other => other,
        };
        let value =
            Quantity::parse_parts(text, find).and_then(|amount| amount.of_kind(QuantityKind::Duration));
        value.map(Self).map_err(|error| match error {
            QuantityError::Fraction(_) => QuantityError::Fraction("picoseconds"),
            other => other,
        })
    }
}

impl<'de> Deserialize<'de> for Picos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A bit rate above 0, in bits per second: `500Mbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositiveBitRate(pub u64);

impl FromStr for PositiveBitRate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match Quantity::parse_as(text, QuantityKind::BitRate)? {
            0 => Err(QuantityError::Zero),
            rate => Ok(Self(rate)),
        }
    }
}

impl<'de> Deserialize<'de> for PositiveBitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

struct AmountVisitor(QuantityKind);

impl Visitor<'_> for AmountVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        Quantity::parse_as(text, self.0).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        // A bare number would mean nanoseconds, hardly intended. Zero needs no unit.
        match self.0 {
            expected @ QuantityKind::Duration if value > 0 => {
                Err(E::custom(QuantityError::Kind { expected, found: QuantityKind::Count }))
            }
            _ => Ok(value),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
        }
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number with a unit, such as `10s`, `64KiB` or `1Gbps`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        Ok(Quantity { kind: QuantityKind::Count, value })
    }
}

#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    kind: QuantityKind,
    /// Base units in one of this unit.
    scale: u64,
    /// Accepted, never printed.
    alias: bool,
}

const fn unit(name: &'static str, kind: QuantityKind, scale: u64) -> Unit {
    Unit { name, kind, scale, alias: false }
}

const fn alias(name: &'static str, kind: QuantityKind, scale: u64) -> Unit {
    Unit { name, kind, scale, alias: true }
}

/// Within a kind, printed units are in descending order.
static UNITS: [Unit; 36] = {
    use QuantityKind::{BitRate, Count, Duration, PacketRate, Size};
    [
        unit("T", Count, 1_000_000_000_000),
        unit("G", Count, 1_000_000_000),
        unit("M", Count, 1_000_000),
        unit("k", Count, 1_000),
        unit("", Count, 1),
        alias("K", Count, 1_000),
        unit("d", Duration, 86_400_000_000_000),
        unit("h", Duration, 3_600_000_000_000),
        unit("m", Duration, 60_000_000_000),
        unit("s", Duration, 1_000_000_000),
        unit("ms", Duration, 1_000_000),
        unit("us", Duration, 1_000),
        unit("ns", Duration, 1),
        // Both characters that look like mu: MICRO SIGN and GREEK SMALL LETTER MU.
        alias("\u{b5}s", Duration, 1_000),
        alias("\u{3bc}s", Duration, 1_000),
        unit("TiB", Size, 1 << 40),
        unit("TB", Size, 1_000_000_000_000),
        unit("GiB", Size, 1 << 30),
        unit("GB", Size, 1_000_000_000),
        unit("MiB", Size, 1 << 20),
        unit("MB", Size, 1_000_000),
        unit("KiB", Size, 1 << 10),
        unit("KB", Size, 1_000),
        unit("B", Size, 1),
        alias("kB", Size, 1_000),
        unit("Tbps", BitRate, 1_000_000_000_000),
        unit("Gbps", BitRate, 1_000_000_000),
        unit("Mbps", BitRate, 1_000_000),
        unit("kbps", BitRate, 1_000),
        unit("bps", BitRate, 1),
        alias("Kbps", BitRate, 1_000),
        unit("Gpps", PacketRate, 1_000_000_000),
        unit("Mpps", PacketRate, 1_000_000),
        unit("kpps", PacketRate, 1_000),
        unit("pps", PacketRate, 1),
        alias("Kpps", PacketRate, 1_000),
    ]
};

impl Unit {
    fn find(name: &str) -> Option<&'static Self> {
        UNITS.iter().find(|u| u.name == name)
    }

    fn base(&self) -> &'static str {
        match self.kind {
            QuantityKind::Count => "ones",
            QuantityKind::Duration => "nanoseconds",
            QuantityKind::Size => "bytes",
            QuantityKind::BitRate => "bits per second",
            QuantityKind::PacketRate => "packets per second",
        }
    }
}

/// A decimal number: `digits / 10^places`.
struct Number {
    digits: u128,
    places: u32,
}

/// More digits than this fit no amount (except superfluous zeros).
const NUMBER_DIGITS_MAX: usize = 24;

impl Number {
    /// Splits a number off the start of `text`.
    fn split(text: &str) -> Result<(Self, &str), QuantityError> {
        let whole_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let (whole, mut rest) = text.split_at(whole_end);
        if !whole.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(QuantityError::NotANumber);
        }
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            (fraction, rest) = after.split_at(end);
            if fraction.is_empty() {
                return Err(QuantityError::NotANumber);
            }
        }
        let digits = || whole.bytes().chain(fraction.bytes()).filter(|b| *b != b'_');
        if digits().count() > NUMBER_DIGITS_MAX {
            return Err(QuantityError::TooLarge);
        }
        let value = digits().fold(0u128, |value, digit| value * 10 + u128::from(digit - b'0'));
        Ok((Self { digits: value, places: fraction.len() as u32 }, rest))
    }

    /// Converts this number of `unit` to base units.
    fn scaled(&self, unit: &Unit) -> Result<u64, QuantityError> {
        let scaled = self.digits.checked_mul(unit.scale.into()).ok_or(QuantityError::TooLarge)?;
        let divisor = 10u128.pow(self.places);
        if scaled % divisor != 0 {
            return Err(QuantityError::Fraction(unit.base()));
        }
        u64::try_from(scaled / divisor).map_err(|_| QuantityError::TooLarge)
    }
}

/// Formats `value` in `unit`, if it is at least 1 (or the base unit) and a short exact decimal.
fn decimal(value: u64, unit: &Unit) -> Option<String> {
    const PLACES_MAX: usize = 3;
    let (whole, mut rest) = (value / unit.scale, value % unit.scale);
    if whole == 0 && unit.scale > 1 {
        return None;
    }
    let mut text = whole.to_string();
    for place in 0..=PLACES_MAX {
        if rest == 0 {
            return Some(text + unit.name);
        }
        if place == 0 {
            text.push('.');
        }
        // The rest is below the scale, at most 2^47, so ten times the rest fits.
        text.push(char::from(b'0' + (rest * 10 / unit.scale) as u8));
        rest = rest * 10 % unit.scale;
    }
    None
}

/// Formats `value` as parts in descending units: `2h4m`.
fn parts<'u>(mut value: u64, units: impl Iterator<Item = &'u Unit>) -> String {
    let mut text = String::new();
    for unit in units {
        let count = value / unit.scale;
        if count > 0 {
            text.push_str(&format!("{count}{}", unit.name));
        }
        value %= unit.scale;
    }
    text
}
