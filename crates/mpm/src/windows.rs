//! How text is looked at: words of it, and the windows that are hashed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Eight bytes from `at`, little-endian; where the text ends, zeros.
#[inline(always)]
pub(crate) fn word_at(text: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(text, at))
}

/// The window from `at`, little-endian; where the text ends, zeros.
#[inline(always)]
pub(crate) fn window_at(text: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(text, at))
}

/// `N` bytes from `at`; where the text ends, zeros.
#[inline(always)]
pub(crate) fn array_at<const N: usize>(text: &[u8], at: usize) -> [u8; N] {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => *bytes,
        None => padded(rest),
    }
}

#[cold]
fn padded<const N: usize>(rest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..rest.len()].copy_from_slice(rest);
    bytes
}

/// How windows are hashed: their first so many bytes, without regard to the case of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    multiplier: u32,
}

impl Hash {
    /// The hash of the first 1 to 4 bytes of a window.
    pub(crate) fn new(width: usize) -> Self {
        // What a product has from bit 32 on is lost; so, after a shift by a byte, the window's last
        // byte does not count.
        Self { multiplier: 0x5bd1_e995 << (8 * (4 - width)) }
    }

    /// Of which the highest bits are the best.
    #[inline(always)]
    pub(crate) fn of(self, window: u32) -> u32 {
        folded(window).wrapping_mul(self.multiplier)
    }
}

/// What counts of the first so many bytes of a window: of two that are alike, it is the same.
pub(crate) fn key(window: u32, width: usize) -> u32 {
    folded(window) << (8 * (4 - width))
}

/// Something of each window, by its key. Which ones there are is nobody's choice but that of who
/// wrote the literals.
pub(crate) type ByKey<V> = HashMap<u32, V, BuildHasherDefault<KeyHasher>>;

/// Keys as they are, their bits spread.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, key: u32) {
        let product = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

/// Letters in lower case; some other bytes become one too.
#[inline(always)]
pub(crate) fn folded(window: u32) -> u32 {
    window | 0x2020_2020
}
