//! What stands behind the IP header of an encoded packet in place of its payload; the README has it
//! as a table.
//!
//! All numbers are in network byte order. A payload is what stands behind an IP header: transport
//! header and data.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a shim without tokens.
pub const SHIM_LEN: usize = 12;

/// Bytes of a token.
pub const TOKEN_LEN: usize = 14;

/// Tokens of a packet at most.
pub const TOKENS_MAX: usize = 64;

/// Version 1 of the format, and what the packet is.
pub const ENCODED: u8 = 0x11;

/// The first byte of a report, of the same version.
pub const REPORT: u8 = 0x12;

/// A region of a payload, and where the same bytes are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// The fingerprint of a window within the region.
    pub fingerprint: u64,
    /// Where in the payload the region begins.
    pub place: u16,
    /// Bytes of the region.
    pub len: u16,
    /// Bytes of the region before the window.
    pub before: u16,
}

/// 64 bits that tell whether a payload is the one that was encoded.
#[inline]
pub fn checksum(protocol: u8, payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, protocol.into())
}

/// Writes into `out` what stands for a payload whose regions, in order, are these.
#[inline]
pub fn write(protocol: u8, payload: &[u8], tokens: &[Token], out: &mut Vec<u8>) {
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
pub struct Shim<'a> {
    /// The protocol number of the payload.
    pub protocol: u8,
    /// Its [`checksum`].
    pub checksum: u64,
    tokens: &'a [[u8; TOKEN_LEN]],
    /// What is not in regions.
    pub literals: &'a [u8],
}

impl<'a> Shim<'a> {
    /// Reads it; none if it is cut, of another version, or has tokens that overlap.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<Shim<'a>> {
        let (&[ENCODED, protocol, count, 0, a, b, c, d, e, f, g, h], rest) = bytes.split_first_chunk()?
        else {
            return None;
        };
        let count = usize::from(count);
        let (tokens, literals) = rest.split_at_checked(count * TOKEN_LEN)?;
        let shim = Shim {
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

    /// Bytes of the payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.literals.len() + self.tokens().map(|token| usize::from(token.len)).sum::<usize>()
    }

    /// Its regions, in order.
    #[inline]
    pub fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.tokens.iter().map(|&[a, b, c, d, e, f, g, h, i, j, k, l, m, n]| Token {
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

    const TOKENS: [Token; 2] = [
        Token { fingerprint: 0x0102_0304_0506_0708, place: 2, len: 3, before: 1 },
        Token { fingerprint: 9, place: 6, len: 2, before: 0 },
    ];

    fn written() -> Vec<u8> {
        let mut out = vec![1];
        write(6, b"abCDEfGH", &TOKENS, &mut out);
        out
    }

    #[test]
    fn what_is_written_is_read() {
        let out = written();
        assert_eq!(out[..4], [0x11, 6, 2, 0]);
        assert_eq!(out[12..26], [1, 2, 3, 4, 5, 6, 7, 8, 0, 2, 0, 3, 0, 1]);
        assert_eq!(out[40..], *b"abf");
        let shim = Shim::read(&out).unwrap();
        assert_eq!((shim.protocol, shim.literals, shim.len()), (6, &b"abf"[..], 8));
        assert_eq!(shim.tokens().collect::<Vec<_>>(), TOKENS);
        assert_eq!(shim.checksum, checksum(6, b"abCDEfGH"));
        assert_ne!(shim.checksum, checksum(17, b"abCDEfGH"));
        assert_eq!(checksum(0, b""), 0x2d06_8005_38d3_94c2, "as others have it");
    }

    #[test]
    fn what_cannot_be_is_not_read() {
        let out = written();
        assert!((0..42).all(|len| Shim::read(&out[..len]).is_none()), "a token lies behind the end");
        for (at, value) in [(0, 0x21), (2, 0), (2, 3), (3, 1), (21, 6), (23, 0), (35, 4), (35, 9)] {
            let mut changed = out.clone();
            changed[at] = value;
            assert!(Shim::read(&changed).is_none(), "byte {at} is {value}");
        }
    }
}
