//! Access to text: words, and windows with their hashes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Returns eight bytes from `at`, little-endian; zeros beyond the end.
#[inline(always)]
pub(crate) fn word_at(text: &[u8], at: usize) -> u64 {
    match text.get(at..).unwrap_or_default().first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => last_word(text, at),
    }
}

/// The last eight bytes, less those before `at`: short texts have few other words.
fn last_word(text: &[u8], at: usize) -> u64 {
    let missing = (at + size_of::<u64>()).saturating_sub(text.len());
    match text.last_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes).checked_shr(8 * missing as u32).unwrap_or(0),
        None => u64::from_le_bytes(padded(text.get(at..).unwrap_or_default())),
    }
}

/// Returns the window at `at`, little-endian; zeros beyond the end.
#[inline(always)]
pub(crate) fn window_at(text: &[u8], at: usize) -> u32 {
    match text.get(at..).unwrap_or_default().first_chunk() {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => last_word(text, at) as u32,
    }
}

/// Returns `N` bytes from `at`; zeros beyond the end.
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

/// A hash of the first bytes of a window, ignoring the case of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    multiplier: u32,
}

impl Hash {
    /// Returns the hash of the first 1 to 4 bytes of a window.
    pub(crate) fn new(width: usize) -> Self {
        // Bits of a product from 32 on are lost; so after a shift by a byte, the window's last byte
        // is ignored.
        Self { multiplier: 0x5bd1_e995 << (8 * (4 - width)) }
    }

    /// Returns the hash; its highest bits are the best.
    #[inline(always)]
    pub(crate) fn of(self, window: u32) -> u32 {
        folded(window).wrapping_mul(self.multiplier)
    }
}

/// Returns the significant part of the first `width` bytes of a window; equal for similar windows.
pub(crate) fn key(window: u32, width: usize) -> u32 {
    folded(window) << (8 * (4 - width))
}

/// A value per window, by its key. Keys come only from the authors of literals, so they need no
/// secret hash.
pub(crate) type ByKey<V> = HashMap<u32, V, BuildHasherDefault<KeyHasher>>;

/// Keys as they are, with their bits spread.
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

/// Folds letters to lower case; some other bytes collide with them.
#[inline(always)]
pub(crate) fn folded(window: u32) -> u32 {
    window | 0x2020_2020
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_follow_the_text() {
        let text: Vec<u8> = (1..=20).collect();
        for len in 0..text.len() {
            for at in 0..len + 10 {
                let expected: [u8; 8] = std::array::from_fn(|i| *text[..len].get(at + i).unwrap_or(&0));
                let word = word_at(&text[..len], at);
                assert_eq!(word.to_le_bytes(), expected, "{len} bytes, from {at}");
                assert_eq!(window_at(&text[..len], at), word as u32, "{len} bytes, from {at}");
                assert_eq!(array_at(&text[..len], at), expected, "{len} bytes, from {at}");
            }
        }
    }
}
