//! Addresses and numbers in rules. Parsers return none for a word of another kind, and an error for
//! an invalid value.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A range of addresses of one IP version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressRange {
    V4(RangeInclusive<u32>),
    V6(RangeInclusive<u128>),
}

/// Parses an address, a prefix, or two addresses separated by `-`.
pub(super) fn addresses(word: &str) -> Option<Result<AddressRange, String>> {
    if let Some((address, len)) = word.split_once('/') {
        return Some(prefix(address.parse().ok()?, len));
    }
    if let Some((first, last)) = word.split_once('-') {
        return Some(match (first.parse().ok()?, last.parse().ok()?) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                Ok(AddressRange::V4(first.into()..=last.into()))
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                Ok(AddressRange::V6(first.into()..=last.into()))
            }
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                Err(format!("the range `{word}` ends before it begins"))
            }
            _ => Err(format!("the range `{word}` mixes IPv4 and IPv6")),
        });
    }
    Some(Ok(match word.parse().ok()? {
        IpAddr::V4(address) => AddressRange::V4(address.into()..=address.into()),
        IpAddr::V6(address) => AddressRange::V6(address.into()..=address.into()),
    }))
}

fn prefix(address: IpAddr, len: &str) -> Result<AddressRange, String> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let len = len.parse::<u32>().ok().filter(|&len| len <= bits).ok_or_else(|| {
        format!("an IPv{} prefix length must be 0 to {bits}", if bits == 32 { 4 } else { 6 })
    })?;
    let (first, range) = match address {
        IpAddr::V4(address) => {
            let (address, hosts) = (u32::from(address), u32::MAX.checked_shr(len).unwrap_or(0));
            let first = address & !hosts;
            (IpAddr::V4(first.into()), AddressRange::V4(first..=first | hosts))
        }
        IpAddr::V6(address) => {
            let (address, hosts) = (u128::from(address), u128::MAX.checked_shr(len).unwrap_or(0));
            let first = address & !hosts;
            (IpAddr::V6(first.into()), AddressRange::V6(first..=first | hosts))
        }
    };
    if first != address {
        return Err(format!(
            "`{address}/{len}` has bits set after its prefix length; did you mean `{first}/{len}`?"
        ));
    }
    Ok(range)
}

/// Parses a number, or two numbers separated by `-`.
pub(super) fn numbers<T: FromStr + Copy + Ord>(word: &str) -> Option<Result<RangeInclusive<T>, String>> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    if !digits(first) || !digits(last) {
        return None;
    }
    let most = (1u64 << (size_of::<T>() * 8)) - 1;
    Some(match (first.parse::<T>(), last.parse::<T>()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        (Ok(_), Ok(_)) => Err(format!("the range `{word}` ends before it begins")),
        _ => Err(format!("number too large: the maximum is {most}")),
    })
}
