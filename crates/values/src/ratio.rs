//! Shares and factors: numbers without a unit, within bounds.

use serde::de::{Deserialize, Deserializer, Error};

/// A share: a number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// A factor: a number above 0, up to 10^9; 1 by default.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(pub f64);

impl Default for Factor {
    fn default() -> Factor {
        Factor(1.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        match f64::deserialize(deserializer)? {
            share if (0.0..=1.0).contains(&share) => Ok(Share(share)),
            other => Err(D::Error::custom(format!("expected a share from 0 to 1, found {other}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Factor, D::Error> {
        match f64::deserialize(deserializer)? {
            factor if factor > 0.0 && factor <= 1e9 => Ok(Factor(factor)),
            other => Err(D::Error::custom(format!("expected a factor above 0, up to 10^9, found {other}"))),
        }
    }
}
