//! Flow keys, the same for both directions of a flow, and their keyed hash.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Addr, Endpoint, memory};

/// The identity of a flow: the 5-tuple with its ends in canonical order, and what distinguishes
/// equal 5-tuples (S7).
///
/// Both directions have the same key; the `reversed` flag of [`FlowKey::new`] distinguishes them.
/// The 48 bytes without padding are compared and hashed as six words.
///
/// The canonical order is fast to compute: by the addresses' bytes in memory, read as little-endian
/// numbers, then by ports.
#[derive(Clone, Copy, Default, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(clippy::derived_hash_with_manual_eq)] // Equal words are equal fields.
pub struct FlowKey {
    low: Addr,
    high: Addr,
    /// In network byte order, like the addresses.
    low_port: [u8; 2],
    high_port: [u8; 2],
    /// IP protocol number of the transport header (IANA).
    pub protocol: u8,
    /// 4 or 6; 0 in a zeroed key, which matches no packet.
    pub version: u8,
    /// [Tenant](FlowKey::tenant) and [segment](FlowKey::segment), as [`FlowKey::place_of`] joins them.
    pub place: u16,
    /// VLAN tags and virtual network of the packet.
    pub scope: Scope,
}

const TENANT_BITS: u32 = 10;
/// Largest number of a tenant in a flow key.
pub const TENANT_MAX: u16 = (1 << TENANT_BITS) - 1;
/// Largest number of a segment in a flow key.
pub const SEGMENT_MAX: u16 = u16::MAX >> TENANT_BITS;

const KEY_LEN: usize = size_of::<FlowKey>();

impl FlowKey {
    /// Returns the key of a packet from `source` to `destination`, and true if the canonical order
    /// reversed them.
    #[inline]
    pub fn new(
        source: Endpoint,
        destination: Endpoint,
        protocol: u8,
        version: u8,
        scope: Scope,
        place: u16,
    ) -> (FlowKey, bool) {
        let order = |end: Endpoint| (u128::from_le_bytes(*end.addr.as_bytes()), end.port.swap_bytes());
        let reversed = order(source) > order(destination);
        let (low, high) = if reversed { (destination, source) } else { (source, destination) };
        let key = FlowKey {
            low: low.addr,
            high: high.addr,
            low_port: low.port.to_be_bytes(),
            high_port: high.port.to_be_bytes(),
            protocol,
            version,
            place,
            scope,
        };
        (key, reversed)
    }

    /// Creates the key of an untagged IPv4 packet from the header's fields in memory.
    #[inline(always)]
    pub fn of_ipv4(
        source: ([u8; 4], [u8; 2]),
        destination: ([u8; 4], [u8; 2]),
        protocol: u8,
        place: u16,
    ) -> (FlowKey, bool) {
        // Each end as one number: the lower half of the mapped address, with the port in its zeros.
        // One comparison covers address and port, and the minimum needs no branch.
        let end = |(address, port): ([u8; 4], [u8; 2])| {
            let (address, port) = (u32::from_le_bytes(address), u16::from_le_bytes(port));
            u64::from(address) << 32 | 0xffff_0000 | u64::from(port)
        };
        let (source, destination) = (end(source), end(destination));
        let (low, high) = (source.min(destination), source.max(destination));
        let address = |end: u64| (end & !0xffff).to_le_bytes();
        let port = |end: u64| (end as u16).to_le_bytes();
        let rest = [port(low), port(high), [protocol, 4], place.to_ne_bytes()];
        let words = [[0; 8], address(low), [0; 8], address(high), zerocopy::transmute!(rest), [0; 8]];
        (zerocopy::transmute!(words), source > destination)
    }

    /// Joins a tenant and a segment to a [`place`](FlowKey::place).
    ///
    /// Neither may exceed its maximum, [`TENANT_MAX`] and [`SEGMENT_MAX`]; higher bits are lost.
    #[inline]
    pub const fn place_of(tenant: u16, segment: u16) -> u16 {
        segment << TENANT_BITS | tenant & TENANT_MAX
    }

    /// Returns the packet's tenant; 0 if there is only one.
    #[inline]
    pub fn tenant(&self) -> u16 {
        self.place & TENANT_MAX
    }

    /// Returns the part of the policy's graph that the packet is in. A program between two parts
    /// may return packets with the same addresses and ports; they are another flow there.
    #[inline]
    pub fn segment(&self) -> u16 {
        self.place >> TENANT_BITS
    }

    /// Returns source and destination of a packet with this key.
    #[inline]
    pub fn ends(&self, reversed: bool) -> (Endpoint, Endpoint) {
        let low = Endpoint::new(self.low, u16::from_be_bytes(self.low_port));
        let high = Endpoint::new(self.high, u16::from_be_bytes(self.high_port));
        if reversed { (high, low) } else { (low, high) }
    }

    /// Compares all but the scopes.
    #[inline(always)]
    pub fn equals_without_scope(&self, other: &FlowKey) -> bool {
        const LEN: usize = std::mem::offset_of!(FlowKey, scope);
        memory::equal::<LEN, KEY_LEN>(zerocopy::transmute_ref!(self), zerocopy::transmute_ref!(other))
    }

    /// Returns the key as six words, for hashing and comparing.
    #[inline(always)]
    pub fn words(&self) -> [u64; 6] {
        zerocopy::transmute!(*self)
    }
}

impl PartialEq for FlowKey {
    #[inline(always)]
    fn eq(&self, other: &FlowKey) -> bool {
        memory::equal::<KEY_LEN, KEY_LEN>(zerocopy::transmute_ref!(self), zerocopy::transmute_ref!(other))
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, other) = self.ends(false);
        let (low, high) = (one.min(other), one.max(other));
        write!(f, "{low} <-> {high} proto {}", self.protocol)?;
        if self.scope != Scope::default() {
            write!(f, " {}", self.scope)?;
        }
        Ok(())
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Distinguishes flows with equal 5-tuples: two VLAN identifiers and a virtual network identifier.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Scope(u64);

impl Scope {
    /// Adds the next inner VLAN tag. Tags after the outermost two are not part of the key, nor is
    /// identifier 0, which is a priority tag (IEEE 802.1Q 9.6).
    #[inline]
    pub fn with_vlan(self, id: u16) -> Scope {
        if id & 0xfff == 0 {
            return self;
        }
        let field = u64::from(id & 0xfff) | 0x1000;
        if self.0 & 0x1fff == 0 {
            Scope(self.0 | field)
        } else if (self.0 >> 13) & 0x1fff == 0 {
            Scope(self.0 | field << 13)
        } else {
            self
        }
    }

    /// Adds the identifier of a virtual network: VXLAN or Geneve VNI, GRE key.
    #[inline]
    pub fn with_network(self, id: u32) -> Scope {
        Scope((self.0 & 0xffff_ffff) | u64::from(id) << 32)
    }

    /// Removes the VLANs, for links with tags that give the direction rather than the network.
    #[inline]
    pub fn without_vlans(self) -> Scope {
        Scope(self.0 & !0xffff_ffff)
    }

    /// Checks that there is neither VLAN tag nor virtual network.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the outermost VLAN identifier, if tagged.
    pub fn vlan(self) -> Option<u16> {
        (self.0 & 0x1000 != 0).then_some((self.0 & 0xfff) as u16)
    }

    /// Returns the second VLAN identifier (QinQ), if any.
    pub fn inner_vlan(self) -> Option<u16> {
        ((self.0 >> 13) & 0x1000 != 0).then_some(((self.0 >> 13) & 0xfff) as u16)
    }

    /// Returns the virtual network identifier; 0 if there is none.
    pub fn network(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(vlan) = self.vlan() {
            write!(f, "vlan {vlan}")?;
        }
        if let Some(vlan) = self.inner_vlan() {
            write!(f, ".{vlan}")?;
        }
        if self.network() != 0 {
            let space = if self.vlan().is_some() { " " } else { "" };
            write!(f, "{space}vni {}", self.network())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({self})")
    }
}

/// A keyed hash of flow keys. Senders choose the keys, so the hash must be unpredictable: the seed
/// is a secret in production, and a parameter in repeatable runs.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    secrets: [u64; 6],
    /// Contribution of the words that are zero in the key of every untagged IPv4 packet.
    untagged_ipv4: u64,
}

impl FlowHasher {
    /// For parsing where the hash does not matter.
    pub(crate) const UNKEYED: FlowHasher = FlowHasher { secrets: [0; 6], untagged_ipv4: 0 };

    /// Returns the hasher with this seed.
    pub fn new(seed: u64) -> FlowHasher {
        let mut state = seed;
        let secrets: [u64; 6] = std::array::from_fn(|_| split_mix(&mut state));
        FlowHasher { untagged_ipv4: seldom_words(&secrets, 0, 0, 0), secrets }
    }

    /// Returns 64 well-mixed bits, the same for both directions.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hash_words(&key.words())
    }

    /// Returns 64 well-mixed bits of any six words.
    #[inline]
    pub fn hash_words(&self, w: &[u64; 6]) -> u64 {
        self.mix(w[1], w[3], w[4], seldom_words(&self.secrets, w[0], w[2], w[5]))
    }

    /// Hashes a key made by [`FlowKey::of_ipv4`], in half the time.
    #[inline(always)]
    pub(crate) fn hash_untagged_ipv4(&self, key: &FlowKey) -> u64 {
        let w = key.words();
        self.mix(w[1], w[3], w[4], self.untagged_ipv4)
    }

    #[inline(always)]
    fn mix(&self, low: u64, high: u64, rest: u64, seldom: u64) -> u64 {
        let s = &self.secrets;
        fold(fold(low ^ s[0], high ^ s[1]) ^ seldom, rest ^ s[2])
    }
}

/// Mixes the upper halves of both addresses, and the scope.
#[inline]
fn seldom_words(s: &[u64; 6], low: u64, high: u64, scope: u64) -> u64 {
    fold(fold(low ^ s[3], high ^ s[4]), scope ^ s[5])
}

/// Returns the next number of a SplitMix64 sequence (Steele et al., 2014).
#[inline]
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds both halves of a 128-bit product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        (any::<[u8; 4]>(), any::<u16>()).prop_map(|(a, p)| Endpoint::new(Addr::from_v4_bytes(a), p))
    }

    proptest! {
        #[test]
        fn both_directions_have_one_key(a in endpoint(), b in endpoint(), protocol: u8) {
            let (forth, r1) = FlowKey::new(a, b, protocol, 4, Scope::default(), 0);
            let (back, r2) = FlowKey::new(b, a, protocol, 4, Scope::default(), 0);
            prop_assert_eq!(forth, back);
            prop_assert!(a == b || r1 != r2);
            prop_assert_eq!(forth.ends(r1), (a, b));
            prop_assert_eq!(back.ends(r2), (b, a));
        }
    }

    proptest! {
        #[test]
        fn fast_ipv4_key_equals_the_general_one(
            a: ([u8; 4], [u8; 2]),
            b: ([u8; 4], [u8; 2]),
            same_address: bool,
            protocol: u8,
            tenant: u16,
        ) {
            let b = if same_address { (a.0, b.1) } else { b };
            let end = |(address, port): ([u8; 4], [u8; 2])| {
                Endpoint::new(Addr::from_v4_bytes(address), u16::from_be_bytes(port))
            };
            let long = FlowKey::new(end(a), end(b), protocol, 4, Scope::default(), tenant);
            prop_assert_eq!(FlowKey::of_ipv4(a, b, protocol, tenant), long);
            let hasher = FlowHasher::new(7);
            prop_assert_eq!(hasher.hash_untagged_ipv4(&long.0), hasher.hash(&long.0));
        }
    }

    #[test]
    fn tenant_and_segment_share_a_field() {
        let key =
            |tenant, segment| FlowKey { place: FlowKey::place_of(tenant, segment), ..FlowKey::default() };
        let last = key(TENANT_MAX, SEGMENT_MAX);
        assert_eq!((last.tenant(), last.segment(), last.place), (TENANT_MAX, SEGMENT_MAX, u16::MAX));
        assert_eq!((key(7, 3).tenant(), key(7, 3).segment()), (7, 3));
        let hasher = FlowHasher::new(1);
        assert_ne!(key(7, 3), key(7, 4));
        assert_ne!(hasher.hash(&key(7, 3)), hasher.hash(&key(7, 4)));
    }

    #[test]
    fn hash_spreads_and_depends_on_the_seed() {
        let hashers = [FlowHasher::new(1), FlowHasher::new(2)];
        let mut buckets = [[0u32; 256]; 2];
        for i in 0..65536u32 {
            let a = Endpoint::new(Addr::from_v4_bytes(i.to_be_bytes()), 1);
            let b = Endpoint::new(Addr::from_v4_bytes([10, 0, 0, 1]), 80);
            let (key, _) = FlowKey::new(a, b, 6, 4, Scope::default(), 0);
            for (h, counts) in hashers.iter().zip(&mut buckets) {
                counts[(h.hash(&key) & 255) as usize] += 1;
            }
        }
        assert!(buckets.iter().flatten().all(|&n| (160..370).contains(&n)), "{buckets:?}");
        assert_ne!(buckets[0], buckets[1]);
    }

    #[test]
    fn scopes_keep_vlans_and_networks_apart() {
        let plain = Scope::default();
        assert_eq!(plain.with_vlan(0), plain, "a priority tag");
        assert_eq!(plain.with_vlan(0xe000).with_vlan(7), plain.with_vlan(7));
        assert_eq!(plain.with_vlan(7).with_vlan(9).with_network(3).without_vlans(), plain.with_network(3));
        assert_ne!(plain.with_vlan(1).with_vlan(2), plain.with_vlan(2).with_vlan(1));
        let s = plain.with_vlan(7).with_vlan(9).with_network(0xdead_beef);
        assert_eq!((s.vlan(), s.inner_vlan(), s.network()), (Some(7), Some(9), 0xdead_beef));
    }
}
