//! The encoded form of a payload, after the IP header; the README has the format as a table.
//!
//! All numbers are in network byte order. A payload is everything after an IP header: transport
//! header and data.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a shim without tokens.
pub const SHIM_LEN: usize = 12;

/// Bytes of a token.
pub const TOKEN_LEN: usize = 14;

/// Maximum tokens of a packet.
pub const TOKENS_MAX: usize = 64;

/// First byte of an encoded packet, format version 1.
pub const ENCODED: u8 = 0x11;

/// First byte of a report, format version 1.
pub const REPORT: u8 = 0x12;

/// A region of a payload, and a reference to the same bytes in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReference {
    /// The fingerprint of a window within the region.
    pub fingerprint: u64,
    /// Offset of the region in the payload.
    pub place: u16,
    /// Length of the region.
    pub len: u16,
    /// Bytes of the region before the window.
    pub before: u16,
}

/// Returns a 64-bit checksum that verifies a restored payload.
#[inline]
pub fn checksum(protocol: u8, payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, protocol.into())
}

/// Writes the encoded form of a payload with these regions, in order, to `out`.
#[inline]
pub fn write(protocol: u8, payload: &[u8], tokens: &[CacheReference], out: &mut Vec<u8>) {
    out.clear();
    out.extend([ENCODED, protocol, tokens.len() as u8, 0]);
    out.extend(checksum(protocol, payload).to_be_bytes());
    for token in tokens {
        out.extend(token.fingerprint.to_be_bytes());
        out.extend([token.place, token.len, token.before].map(u16::to_be_bytes).as_flattened());
    }
    let mut at = 0;
    for token in tokens {
        out.extend(payload.get(at..usize::from(token.place)).unwrap_or_default());
        at = usize::from(token.place) + usize::from(token.len);
    }
    out.extend(payload.get(at..).unwrap_or_default());
}

/// An encoded payload.
#[derive(Clone, Copy, Debug)]
pub struct EncodedPayload<'a> {
    /// The protocol number of the payload.
    pub protocol: u8,
    /// The payload's [`checksum`].
    pub checksum: u64,
    tokens: &'a [[u8; TOKEN_LEN]],
    /// The bytes outside regions.
    pub literals: &'a [u8],
}

impl<'a> EncodedPayload<'a> {
    /// Parses an encoded payload; `None` if it is truncated, of another version, or has overlapping
    /// tokens.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<EncodedPayload<'a>> {
        let (&[ENCODED, protocol, count, 0, a, b, c, d, e, f, g, h], rest) = bytes.split_first_chunk()?
        else {
            return None;
        };
        let count = usize::from(count);
        let (tokens, literals) = rest.split_at_checked(count * TOKEN_LEN)?;
        let shim = EncodedPayload {
            protocol,
            checksum: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            tokens: tokens.as_chunks().0,
            literals,
        };
        let mut end = 0;
        for token in shim.tokens() {
            if usize::from(token.place) < end || token.len == 0 {
                return None;
            }
            end = usize::from(token.place) + usize::from(token.len);
        }
        ((1..=TOKENS_MAX).contains(&count) && end <= shim.len()).then_some(shim)
    }

    /// Returns the length of the payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.literals.len() + self.tokens().map(|token| usize::from(token.len)).sum::<usize>()
    }

    /// Returns the regions, in order.
    #[inline]
    pub fn tokens(&self) -> impl Iterator<Item = CacheReference> + '_ {
        self.tokens.iter().map(|&[a, b, c, d, e, f, g, h, i, j, k, l, m, n]| CacheReference {
            fingerprint: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            place: u16::from_be_bytes([i, j]),
            len: u16::from_be_bytes([k, l]),
            before: u16::from_be_bytes([m, n]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [CacheReference; 2] = [
        CacheReference { fingerprint: 0x0102_0304_0506_0708, place: 2, len: 3, before: 1 },
        CacheReference { fingerprint: 9, place: 6, len: 2, before: 0 },
    ];

    fn written() -> Vec<u8> {
        let mut out = vec![1];
        write(6, b"abCDEfGH", &TOKENS, &mut out);
        out
    }

    #[test]
    fn a_written_encoding_is_parsed() {
        let out = written();
        assert_eq!(out[..4], [0x11, 6, 2, 0]);
        assert_eq!(out[12..26], [1, 2, 3, 4, 5, 6, 7, 8, 0, 2, 0, 3, 0, 1]);
        assert_eq!(out[40..], *b"abf");
        let shim = EncodedPayload::read(&out).unwrap();
        assert_eq!((shim.protocol, shim.literals, shim.len()), (6, &b"abf"[..], 8));
        assert_eq!(shim.tokens().collect::<Vec<_>>(), TOKENS);
        assert_eq!(shim.checksum, checksum(6, b"abCDEfGH"));
        assert_ne!(shim.checksum, checksum(17, b"abCDEfGH"));
        assert_eq!(checksum(0, b""), 0x2d06_8005_38d3_94c2, "as others have it");
    }

    #[test]
    fn impossible_packets_are_not_parsed() {
        let out = written();
        assert!((0..42).all(|len| EncodedPayload::read(&out[..len]).is_none()), "a token is beyond the end");
        for (at, value) in [(0, 0x21), (2, 0), (2, 3), (3, 1), (21, 6), (23, 0), (35, 4), (35, 9)] {
            let mut changed = out.clone();
            changed[at] = value;
            assert!(EncodedPayload::read(&changed).is_none(), "byte {at} is {value}");
        }
    }
}
