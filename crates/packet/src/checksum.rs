//! The Internet checksum: computed (RFC 1071) and kept up to date (RFC 1624).
//!
//! | want | use |
//! |---|---|
//! | a checksum over bytes | [`checksum`], or [`sum`] the pieces, add them up, and [`finish`] |
//! | a transport checksum | [`pseudo_header_v4`] or [`pseudo_header_v6`] + [`sum`] of the segment, then [`finish`] or [`finish_udp`] |
//! | to check a received checksum | [`verify`] |
//! | one field rewritten | [`update16`], [`update32`], [`update128`] |
//! | several fields rewritten, or one change kept and replayed on a whole flow | [`Delta`] |
//!
//! All values are in host order: a 16-bit word is what `u16::from_be_bytes` makes of the two bytes
//! on the wire.
//!
//! ```
//! use packet::checksum::{self, Delta};
//! let before = [0x45, 0x00, 0x00, 0x54, 0x40, 0x01];
//! let after = [0x45, 0x00, 0x00, 0x54, 0x3f, 0x01];
//! let updated = Delta::of16(0x4001, 0x3f01).apply(checksum::checksum(&before));
//! assert_eq!(updated, checksum::checksum(&after));
//! ```

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::{Add, AddAssign, Neg, Sub, SubAssign};

/// Returns the checksum over `bytes`: the complement of their one's complement sum. RFC 1071
/// section 1.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// Returns the partial one's complement sum of `bytes` as big-endian 16-bit words, at most
/// `0xffff`.
///
/// Sums of pieces may be added with `+`, up to 65,537 of them, if every piece but the last has an
/// even length; an odd last byte counts as the high half of a word with a zero low half. RFC 1071
/// section 2.
///
/// # Limits
///
/// A piece has at most 16 GiB; beyond that the accumulator would lose carries.
#[inline]
pub fn sum(bytes: &[u8]) -> u32 {
    let total = if bytes.len() < MANY { total(bytes) } else { total_of_many(bytes) };
    u32::from(u16::from_be(fold(total)))
}

/// From this many bytes on, wider vectors are worth checking the processor's features.
const MANY: usize = 128;

/// Sums the bytes as words in native order: byte order does not matter until the end (RFC 1071
/// section 2 (B)). 32-bit words go into a 64-bit accumulator: there is no carry chain, and the loop
/// vectorises.
#[inline(always)]
fn total(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        total += u64::from(u32::from_ne_bytes(word));
    }
    total
}

#[inline(never)]
fn total_of_many(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn total_wide(bytes: &[u8]) -> u64 {
            total(bytes)
        }
        // SAFETY: the processor has the features that the function is compiled for, as just
        // checked.
        return unsafe { total_wide(bytes) };
    }
    total(bytes)
}

/// Folds the carries of a partial sum and complements it: the value for a checksum field.
#[inline]
pub fn finish(partial: u32) -> u16 {
    !fold(u64::from(partial))
}

/// Finishes a checksum of UDP, where zero means "no checksum" and is written as `0xffff`. RFC 768,
/// RFC 8200 section 8.1.
#[inline]
pub fn finish_udp(partial: u32) -> u16 {
    udp_zero(finish(partial))
}

/// Checks a partial sum over data *and* its checksum field (and pseudo-header).
#[inline]
pub fn verify(partial: u32) -> bool {
    finish(partial) == 0
}

/// Returns the partial sum of the pseudo-header of an IPv4 transport segment of `len_bytes`. RFC
/// 768, RFC 9293 section 3.1.
#[inline]
pub fn pseudo_header_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len_bytes: u16) -> u32 {
    let total = u64::from(source.to_bits())
        + u64::from(destination.to_bits())
        + u64::from(protocol)
        + u64::from(len_bytes);
    u32::from(fold(total))
}

/// Returns the partial sum of the pseudo-header of an IPv6 upper-layer packet of `len_bytes`. RFC
/// 8200 section 8.1.
///
/// `destination` is the final one (the last address of a routing header), `next_header` the
/// upper-layer protocol.
#[inline]
pub fn pseudo_header_v6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, len_bytes: u32) -> u32 {
    let total = sum128(source.to_bits())
        + sum128(destination.to_bits())
        + u64::from(next_header)
        + u64::from(len_bytes);
    u32::from(fold(total))
}

/// Updates a checksum for a 16-bit word that changed from `old` to `new`. RFC 1624 equation 3.
///
/// Not for UDP, where zero has a meaning: see [`Delta::apply_udp`].
#[inline]
pub fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    Delta::of16(old, new).apply(checksum)
}

/// Updates a checksum for a 32-bit value at an even offset. RFC 1624 equation 3.
#[inline]
pub fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    Delta::of32(old, new).apply(checksum)
}

/// Updates a checksum for a 128-bit value at an even offset. RFC 1624 equation 3.
#[inline]
pub fn update128(checksum: u16, old: u128, new: u128) -> u16 {
    Delta::of128(old, new).apply(checksum)
}

/// The effect of a set of rewritten fields on a checksum: the sum of `~old + new` over them, in
/// one's complement arithmetic.
///
/// Deltas add up in any order, `-delta` undoes `delta`, and [`Delta::ZERO`] changes nothing. So the
/// delta of all header changes on a path is computed once and applied to each packet with one
/// addition. Equal changes compare equal. Fields must be at even offsets of the checksummed data.
///
/// For valid data other than all zeros, the result is bit for bit that of a full computation. (Data
/// of zeros only has two valid checksums, `0` and `0xffff`; no IP, TCP or ICMP header is like
/// that.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Delta(
    /// The residue modulo `0xffff`, in `0..0xffff`: one's complement addition is addition modulo
    /// `2^16 - 1`.
    u16,
);

impl Delta {
    /// No change.
    pub const ZERO: Delta = Delta(0);

    /// Returns the change of a 16-bit word from `old` to `new`.
    #[inline]
    pub const fn of16(old: u16, new: u16) -> Delta {
        Delta(((!old as u32 + new as u32) % 0xffff) as u16)
    }

    /// Returns the change of a 32-bit value from `old` to `new`.
    #[inline]
    pub const fn of32(old: u32, new: u32) -> Delta {
        // 2^16 = 1 modulo 0xffff, so a 32-bit value is congruent to the sum of its words, and !old
        // to -old.
        Delta(((!old as u64 + new as u64) % 0xffff) as u16)
    }

    /// Returns the change of a 128-bit value from `old` to `new`.
    #[inline]
    pub const fn of128(old: u128, new: u128) -> Delta {
        Delta(((sum128(!old) + sum128(new)) % 0xffff) as u16)
    }

    /// Returns the change of a run of bytes, by its partial [`sum`] before and after.
    #[inline]
    pub const fn of_sums(old: u32, new: u32) -> Delta {
        Delta::of32(old, new)
    }

    /// Returns the checksum field after the change. RFC 1624 equation 3.
    #[inline]
    pub const fn apply(self, checksum: u16) -> u16 {
        let total = !checksum as u32 + self.0 as u32;
        !((total & 0xffff) + (total >> 16)) as u16
    }

    /// Returns the UDP checksum field after the change. Zero (none computed) stays zero, and a
    /// result of zero is written as `0xffff`. RFC 768; RFC 6935 for the zero in IPv6 tunnels.
    #[inline]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 {
            return 0;
        }
        udp_zero(self.apply(checksum))
    }
}

impl Add for Delta {
    type Output = Delta;

    #[inline]
    fn add(self, other: Delta) -> Delta {
        Delta(((u32::from(self.0) + u32::from(other.0)) % 0xffff) as u16)
    }
}

impl Neg for Delta {
    type Output = Delta;

    #[inline]
    fn neg(self) -> Delta {
        Delta(((0xffff - u32::from(self.0)) % 0xffff) as u16)
    }
}

impl Sub for Delta {
    type Output = Delta;

    #[inline]
    fn sub(self, other: Delta) -> Delta {
        self + -other
    }
}

impl AddAssign for Delta {
    #[inline]
    fn add_assign(&mut self, other: Delta) {
        *self = *self + other;
    }
}

impl SubAssign for Delta {
    #[inline]
    fn sub_assign(&mut self, other: Delta) {
        *self = *self - other;
    }
}

impl core::iter::Sum for Delta {
    #[inline]
    fn sum<I: Iterator<Item = Delta>>(deltas: I) -> Delta {
        deltas.fold(Delta::ZERO, Add::add)
    }
}

/// Folds the carries until 16 bits are left.
#[inline]
const fn fold(total: u64) -> u16 {
    let total = (total & 0xffff_ffff) + (total >> 32); // < 2^33
    let total = (total & 0xffff) + (total >> 16); // < 2^18
    let total = (total & 0xffff) + (total >> 16); // <= 0x10002
    ((total & 0xffff) + (total >> 16)) as u16
}

/// Returns the sum of the four 32-bit parts, congruent to that of the eight 16-bit words.
#[inline]
const fn sum128(value: u128) -> u64 {
    let (high, low) = ((value >> 64) as u64, value as u64);
    (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff)
}

#[inline]
const fn udp_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the checksum of RFC 1071 section 4.1, word by word.
    fn reference(bytes: &[u8]) -> u16 {
        let mut total = 0u64;
        for pair in bytes.chunks(2) {
            total += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
        }
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        !(total as u16)
    }

    #[test]
    fn example_of_rfc_1071_section_3() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn example_of_rfc_1624_section_4() {
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn all_ones_and_empty_data_have_known_sums() {
        assert_eq!(checksum(&[]), 0xffff);
        for len in 2..200 {
            let bytes = vec![0xff; len];
            assert_eq!(checksum(&bytes), reference(&bytes), "{len}");
        }
    }

    #[test]
    fn fold_of_extremes() {
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0), 0);
        assert_eq!(finish(u32::MAX), 0);
    }

    #[test]
    fn udp_zero_rules() {
        // RFC 768: no checksum stays none, and a computed zero is sent as all ones.
        assert_eq!(Delta::of16(1, 2).apply_udp(0), 0);
        let to_zero = Delta::of16(0x5555, 0x3285);
        assert_eq!(to_zero.apply(0xdd2f), 0);
        assert_eq!(to_zero.apply_udp(0xdd2f), 0xffff);
        assert_eq!((-to_zero).apply_udp(0xffff), 0xdd2f);
        assert_eq!(Delta::ZERO.apply_udp(0xffff), 0xffff);
        assert_eq!(finish_udp(0xffff), 0xffff);
    }

    fn words() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff)], 0..200),
        ]
    }

    proptest! {
        #[test]
        fn fast_sum_equals_the_reference(bytes in words(), skip in 0usize..8) {
            let bytes = &bytes[skip.min(bytes.len())..];
            prop_assert_eq!(checksum(bytes), reference(bytes));
        }

        #[test]
        fn pieces_add_up(bytes in words(), cut in 0usize..100) {
            let cut = (cut * 2).min(bytes.len() & !1);
            prop_assert_eq!(finish(sum(&bytes[..cut]) + sum(&bytes[cut..])), reference(&bytes));
        }

        #[test]
        fn pseudo_headers(source: u32, destination: u32, high: u128, low: u128, protocol: u8, len: u16) {
            let mut bytes = [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0, protocol]].concat();
            bytes.extend(len.to_be_bytes());
            prop_assert_eq!(
                finish(pseudo_header_v4(source.into(), destination.into(), protocol, len)),
                reference(&bytes)
            );
            let len = u32::from(len) * 7919;
            let mut bytes = [high.to_be_bytes(), low.to_be_bytes()].concat();
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
            prop_assert_eq!(finish(pseudo_header_v6(high.into(), low.into(), protocol, len)), reference(&bytes));
        }

        #[test]
        fn incremental_is_full(
            mut bytes in proptest::collection::vec(any::<u8>(), 64),
            new16: u16, new32: u32, new128: u128,
        ) {
            bytes[0] = 0x45; // not all zero
            let before = reference(&bytes);
            let field16 = u16::from_be_bytes(bytes[2..4].try_into().unwrap());
            let field32 = u32::from_be_bytes(bytes[10..14].try_into().unwrap());
            let field128 = u128::from_be_bytes(bytes[24..40].try_into().unwrap());
            bytes[2..4].copy_from_slice(&new16.to_be_bytes());
            prop_assert_eq!(update16(before, field16, new16), reference(&bytes));
            bytes[10..14].copy_from_slice(&new32.to_be_bytes());
            let two = update32(update16(before, field16, new16), field32, new32);
            prop_assert_eq!(two, reference(&bytes));
            bytes[24..40].copy_from_slice(&new128.to_be_bytes());
            prop_assert_eq!(update128(two, field128, new128), reference(&bytes));

            let deltas =
                [Delta::of128(field128, new128), Delta::of16(field16, new16), Delta::of32(field32, new32)];
            let whole: Delta = deltas.into_iter().sum();
            prop_assert_eq!(whole.apply(before), reference(&bytes));
            prop_assert_eq!((-whole).apply(reference(&bytes)), before);
            prop_assert_eq!(whole - whole, Delta::ZERO);
        }

        #[test]
        fn delta_of_sums(mut bytes in words(), tail in words()) {
            let old = sum(&tail);
            bytes.truncate(bytes.len() & !1);
            bytes.extend([0x45, 0x00]);
            let before = finish(sum(&bytes) + old);
            prop_assert_eq!(Delta::of_sums(old, 0).apply(before), reference(&bytes));
        }

        #[test]
        fn deltas_that_change_nothing_are_equal(value: u128) {
            prop_assert_eq!(Delta::of128(value, value), Delta::ZERO);
            prop_assert_eq!(Delta::of32(value as u32, value as u32), Delta::ZERO);
            prop_assert_eq!(Delta::of16(value as u16, value as u16), Delta::ZERO);
            prop_assert_eq!(Delta::of16(0, 0xffff), Delta::ZERO);
            prop_assert_eq!(-Delta::ZERO, Delta::ZERO);
        }
    }
}
