//! Times, sizes, rates and shares, as people write them: `500us`, `15KB`, `1Gbps`, `0.9`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

/// What is wrong with a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

/// A time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// What a packet or a byte takes, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost(pub u64);

/// A size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A rate, in bits per second; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A number of 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// A number above 0, up to 10^9: 1 unless said.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(pub f64);

impl Default for Factor {
    fn default() -> Factor {
        Factor(1.0)
    }
}

const TIMES_NS: &[(&str, f64)] = &[("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
const TIMES_PS: &[(&str, f64)] = &[("s", 1e12), ("ms", 1e9), ("us", 1e6), ("ns", 1e3), ("ps", 1.0)];
const SIZES: &[(&str, f64)] = &[("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("kB", 1e3), ("B", 1.0)];
const RATES: &[(&str, f64)] = &[("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)];

impl FromStr for Time {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Time, QuantityError> {
        if text.trim() == "0" {
            return Ok(Time(0));
        }
        parse(text, TIMES_NS, "a time, such as 500us, 100ms or 2s").map(Time)
    }
}

impl FromStr for Cost {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Cost, QuantityError> {
        parse(text, TIMES_PS, "a time, such as 500ps or 0.8ns").map(Cost)
    }
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Size, QuantityError> {
        parse(text, SIZES, "a size, such as 64B or 15KB").map(Size)
    }
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Rate, QuantityError> {
        let expected = "a rate above 0, such as 500Mbps or 1Gbps";
        match parse(text, RATES, expected)? {
            0 => Err(QuantityError { text: text.to_owned(), expected }),
            rate => Ok(Rate(rate)),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|(factor, _)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .map_or((self.0, "ns"), |(factor, unit)| (self.0 / factor, unit));
        write!(f, "{number}{unit}")
    }
}

/// A number with one of the units. At most 2^53 of the smallest, so that it is exact.
fn parse(text: &str, units: &[(&str, f64)], expected: &'static str) -> Result<u64, QuantityError> {
    let wrong = || QuantityError { text: text.to_owned(), expected };
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let &(_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(wrong)?;
    let value = (number * factor).round();
    if value > (1u64 << 53) as f64 { Err(wrong()) } else { Ok(value as u64) }
}

macro_rules! deserialize_from_text {
    ($($quantity:ty),*) => {$(
        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$quantity, D::Error> {
                Cow::<'de, str>::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

deserialize_from_text!(Time, Cost, Size, Rate);

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Factor, D::Error> {
        match f64::deserialize(from)? {
            factor if factor > 0.0 && factor <= 1e9 => Ok(Factor(factor)),
            other => Err(D::Error::custom(format!("{other} is not a factor above 0, up to 10^9"))),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Share, D::Error> {
        match f64::deserialize(from)? {
            share if (0.0..=1.0).contains(&share) => Ok(Share(share)),
            other => Err(D::Error::custom(format!("{other} is not a share of 0 to 1"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_with_units() {
        assert_eq!("500us".parse(), Ok(Time(500_000)));
        assert_eq!("1.5 ms".parse(), Ok(Time(1_500_000)));
        assert_eq!("0.8ns".parse(), Ok(Cost(800)));
        assert_eq!("15KB".parse(), Ok(Size(15_000)));
        assert_eq!("2.5Gbps".parse(), Ok(Rate(2_500_000_000)));
    }

    #[test]
    fn what_is_none_says_what_would_be() {
        for text in ["", "5", "us", "5 parsecs", "-1s", "1.2.3s", "99999999999s", "1e3s"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert!("0Gbps".parse::<Rate>().is_err());
        let error = "7 apples".parse::<Size>().unwrap_err();
        assert_eq!(error.to_string(), "`7 apples` is not a size, such as 64B or 15KB");
    }
}
