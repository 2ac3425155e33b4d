//! Comparisons of numbers.

use std::fmt::{self, Display};

use crate::RuleError;
use crate::text::{ParseResult, Piece};

/// A comparison with an unsigned number, as in Suricata's integer keywords.
///
/// In text: `5` or `=5`, `!5` or `!=5`, `<5`, `<=5`, `>5`, `>=5`, `1<>5` or `1-5` (both ends
/// *excluded*), `!1-5` (both ends included), `&0xc0=0x80` and `&0xc0!=0x80`. Numbers may be
/// hexadecimal, and may end in `kb`, `mb` or `gb` (1024, 1024², 1024³).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison<T> {
    /// Equal.
    Equal(T),
    /// Not equal.
    NotEqual(T),
    /// Less.
    Less(T),
    /// Less or equal.
    AtMost(T),
    /// Greater.
    Greater(T),
    /// Greater or equal.
    AtLeast(T),
    /// Strictly between the two: `1<>5` matches 2, 3 and 4.
    Between(T, T),
    /// The complement of [`Comparison::Between`]: `!1-5` matches 1 and below, and 5 and above.
    Outside(T, T),
    /// The masked number equals the value.
    Masked {
        /// The mask.
        mask: T,
        /// The value; a subset of the mask.
        value: T,
    },
    /// The masked number differs from the value.
    NotMasked {
        /// The mask.
        mask: T,
        /// The value; a subset of the mask.
        value: T,
    },
}

impl<T: Unsigned> Comparison<T> {
    /// Returns whether a number matches.
    #[inline]
    pub fn holds(self, number: T) -> bool {
        match self {
            Self::Equal(n) => number == n,
            Self::NotEqual(n) => number != n,
            Self::Less(n) => number < n,
            Self::AtMost(n) => number <= n,
            Self::Greater(n) => number > n,
            Self::AtLeast(n) => number >= n,
            Self::Between(low, high) => low < number && number < high,
            Self::Outside(low, high) => number <= low || high <= number,
            Self::Masked { mask, value } => number & mask == value,
            Self::NotMasked { mask, value } => number & mask != value,
        }
    }

    pub(crate) fn read(piece: Piece<'_>) -> ParseResult<Self> {
        let piece = piece.trim();
        if let Some(rest) = piece.strip("&") {
            return Self::masked(piece, rest);
        }
        // Longer operators first.
        let signs: [(&str, MakeComparison<T>); 8] = [
            ("<=", Self::AtMost),
            (">=", Self::AtLeast),
            ("!=", Self::NotEqual),
            ("=", Self::Equal),
            ("<", Self::Less),
            (">", Self::Greater),
            ("!", Self::NotEqual),
            ("", Self::Equal),
        ];
        if let Some((low, high)) = range(piece) {
            let (negated, low) = low.trim().negation();
            let (low, high) = (number(low)?, number(high.trim())?);
            // Both ends are excluded.
            if low >= high || (!negated && T::is_next(low, high)) {
                return Err(piece.error(RuleError::NeverMatches {
                    why: format!(
                        "nothing lies between {low} and {high}, which are themselves not in the range"
                    ),
                }));
            }
            return Ok(if negated { Self::Outside(low, high) } else { Self::Between(low, high) });
        }
        for (sign, make) in signs {
            if let Some(rest) = piece.strip(sign) {
                let test = make(number(rest.trim())?);
                return match test {
                    Self::Less(n) if n == T::LOWEST => Err(never(piece)),
                    Self::Greater(n) if n == T::HIGHEST => Err(never(piece)),
                    _ => Ok(test),
                };
            }
        }
        Err(piece.wrong("a number"))
    }

    fn masked(piece: Piece<'_>, rest: Piece<'_>) -> ParseResult<Self> {
        let Some((mask, value)) = rest.cut("=") else {
            return Err(piece.wrong("a mask and a value, such as `&0xc0=0x80`"));
        };
        let (equal, mask) = match mask.text.strip_suffix('!') {
            Some(shorter) => (false, mask.part(0, shorter.len())),
            None => (true, mask),
        };
        let (mask, value) = (number(mask.trim())?, number(value.trim())?);
        if value & mask != value {
            return Err(
                piece.error(RuleError::NeverMatches { why: "the value has bits outside of the mask".into() })
            );
        }
        Ok(if equal { Self::Masked { mask, value } } else { Self::NotMasked { mask, value } })
    }
}

/// Constructs a comparison with one number.
type MakeComparison<T> = fn(T) -> Comparison<T>;

/// Splits a range into its ends. A `!` stays with the first.
fn range(piece: Piece<'_>) -> Option<(Piece<'_>, Piece<'_>)> {
    let (low, high) = piece.cut("<>").or_else(|| piece.cut("-"))?;
    (!low.trim().is_empty()).then_some((low, high))
}

fn never(piece: Piece<'_>) -> crate::text::SyntaxError {
    piece.error(RuleError::NeverMatches { why: format!("no number is `{}`", piece.text) })
}

fn number<T: Unsigned>(piece: Piece<'_>) -> ParseResult<T> {
    let units = [
        ("kib", 1u64 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
    ];
    let lower = piece.text.to_ascii_lowercase();
    let wrong = || piece.wrong(format!("a number from {} to {}", T::LOWEST, T::HIGHEST));
    // `0x1gb` has no unit. Hexadecimal digits share no first letter with the units but `b`, which
    // is not a unit.
    match units.iter().find(|(unit, _)| lower.ends_with(unit)) {
        Some((unit, factor)) => {
            let digits = piece.part(0, piece.text.len() - unit.len()).trim();
            let count: u64 = digits.number(0..=u64::MAX).map_err(|_| wrong())?;
            count.checked_mul(*factor).and_then(|n| T::try_from(i128::from(n)).ok()).ok_or_else(wrong)
        }
        None => piece.number(T::LOWEST..=T::HIGHEST),
    }
}

impl<T: Unsigned> Display for Comparison<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(n) => write!(f, "{n}"),
            Self::NotEqual(n) => write!(f, "!{n}"),
            Self::Less(n) => write!(f, "<{n}"),
            Self::AtMost(n) => write!(f, "<={n}"),
            Self::Greater(n) => write!(f, ">{n}"),
            Self::AtLeast(n) => write!(f, ">={n}"),
            Self::Between(low, high) => write!(f, "{low}<>{high}"),
            Self::Outside(low, high) => write!(f, "!{low}-{high}"),
            Self::Masked { mask, value } => write!(f, "&{mask}={value}"),
            Self::NotMasked { mask, value } => write!(f, "&{mask}!={value}"),
        }
    }
}

/// An unsigned integer type that keywords compare: `u8`, `u16`, `u32`, `u64`.
pub trait Unsigned:
    Copy + Ord + Display + std::ops::BitAnd<Output = Self> + TryFrom<i128> + private::Sealed
{
    /// The minimum.
    const LOWEST: Self;
    /// The maximum.
    const HIGHEST: Self;
    /// Returns whether `high` is the successor of `low`.
    fn is_next(low: Self, high: Self) -> bool;
}

mod private {
    pub trait Sealed {}
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl private::Sealed for $number {}
        impl Unsigned for $number {
            const LOWEST: Self = <$number>::MIN;
            const HIGHEST: Self = <$number>::MAX;
            fn is_next(low: Self, high: Self) -> bool {
                low.checked_add(1) == Some(high)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64);
