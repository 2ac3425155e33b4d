//! A flow key in sixteen bytes, where it fits.

use packet::FlowKey;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The short form of a key: the whole key for IPv4 without tags, so that it shares a cache line
/// with the fields that every packet needs. Of other keys it is a digest, and the whole key must be
/// compared as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ShortKey {
    ends: u64,
    /// Ports, protocol, version and tenant, as in the key; and [`IN_PART`].
    rest: u64,
}

/// The prefix of mapped IPv4 addresses, as the lower half of such an address's second word.
const MAPPED: u64 = 0xffff_0000;

/// The highest bit of the version, which is 4 or 6.
const IN_PART: u64 = 1 << 47;

impl ShortKey {
    #[inline(always)]
    pub fn of(key: &FlowKey) -> ShortKey {
        let [low_prefix, low, high_prefix, high, rest, scope] = key.words().map(u64::from_le);
        let other = low_prefix | high_prefix | scope | rest & IN_PART;
        let is_all = other == 0 && ((low ^ MAPPED) | (high ^ MAPPED)) as u32 == 0;
        let ends = low >> 32 | high & !u64::from(u32::MAX);
        if is_all {
            return ShortKey { ends, rest };
        }
        ShortKey { ends: ends ^ low_prefix ^ high_prefix.rotate_left(32), rest: rest | IN_PART }
    }

    /// Returns true if this is the whole of this key.
    #[inline(always)]
    pub fn is_all_of(self, key: &FlowKey) -> bool {
        let [low_prefix, low, high_prefix, high, rest, scope] = key.words().map(u64::from_le);
        let differs = low ^ (self.ends << 32 | MAPPED) | high ^ (self.ends & !u64::from(u32::MAX) | MAPPED);
        self.is_all() && differs | (rest ^ self.rest) | low_prefix | high_prefix | scope == 0
    }

    /// Returns the key, if this is the whole of it.
    pub fn whole(self) -> Option<FlowKey> {
        let (low, high) = (self.ends << 32 | MAPPED, self.ends & !u64::from(u32::MAX) | MAPPED);
        let words = [0, low, 0, high, self.rest, 0].map(u64::to_le);
        self.is_all().then(|| zerocopy::transmute!(words))
    }

    /// Returns true if equal short forms mean equal keys.
    #[inline(always)]
    pub fn is_all(self) -> bool {
        self.rest & IN_PART == 0
    }
}

#[cfg(test)]
mod tests {
    use packet::{Addr, Endpoint, Scope};
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = FlowKey> {
        let v4 = prop_oneof![Just([10, 0, 0, 1]), any::<[u8; 4]>()].prop_map(Addr::from_v4_bytes);
        let v6 = prop_oneof![Just([0; 16]), any::<[u8; 16]>()].prop_map(Addr::from_bytes);
        let end = move || (prop_oneof![3 => v4.clone(), 1 => v6.clone()], prop_oneof![Just(1), any::<u16>()]);
        let version = prop_oneof![3 => Just(4), 1 => Just(6), 1 => any::<u8>()];
        let tag = prop_oneof![3 => Just(0u8), 1 => Just(1)];
        (end(), end(), any::<bool>(), version, 0u16..2, tag).prop_map(|(a, b, tcp, version, tenant, tag)| {
            let mut scope = [0; size_of::<Scope>()];
            scope[size_of::<Scope>() - 1] = tag;
            let ends = [a, b].map(|(addr, port)| Endpoint::new(addr, port));
            let scope = zerocopy::transmute!(scope);
            FlowKey::new(ends[0], ends[1], if tcp { 6 } else { 17 }, version, scope, tenant).0
        })
    }

    #[test]
    fn of_ipv4_it_is_all() {
        let key = FlowKey::of_ipv4(([10, 0, 0, 1], [1, 2]), ([192, 0, 2, 1], [3, 4]), 6, 7).0;
        let short = ShortKey::of(&key);
        assert!(short.is_all());
        assert_eq!(short.whole(), Some(key));
        assert!(!ShortKey::of(&FlowKey::default()).is_all());
    }

    proptest! {
        /// Short forms of keys that differ in one bit are equal only if they are digests.
        #[test]
        fn keys_that_differ_differ_in_short(key in key(), other in key(), byte in 0usize..48, bit in 0u8..8) {
            let mut bytes: [u8; 48] = zerocopy::transmute!(key);
            bytes[byte] ^= 1 << bit;
            let flipped: FlowKey = zerocopy::transmute!(bytes);
            prop_assert_eq!(ShortKey::of(&key), ShortKey::of(&key));
            prop_assert!(ShortKey::of(&key).whole().is_none_or(|whole| whole == key));
            for other in [other, flipped] {
                let (a, b) = (ShortKey::of(&key), ShortKey::of(&other));
                prop_assert!(key == other || a != b || !a.is_all());
                prop_assert_eq!(a.is_all_of(&other), key == other && a.is_all());
            }
        }
    }
}
