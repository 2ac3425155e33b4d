//! Values that hosts derive from the keys of a Multipath TCP connection: tokens, initial data
//! sequence numbers, and the codes that authenticate sub-flows. RFC 8684 section 3.

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::wire::mptcp::HMAC_LEN;

/// A version of Multipath TCP, with its hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MptcpVersion {
    /// RFC 6824, SHA-1.
    V0,
    /// RFC 8684, SHA-256.
    V1,
}

impl MptcpVersion {
    /// Returns the version with this number; `None` if it is not known.
    pub fn of(number: u8) -> Option<MptcpVersion> {
        match number {
            0 => Some(MptcpVersion::V0),
            1 => Some(MptcpVersion::V1),
            _ => None,
        }
    }

    /// Returns the token of the host with this key: the first 32 bits of the key's hash.
    pub fn token(self, key: u64) -> u32 {
        let [a, b, c, d, ..] = self.hash(key);
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the data sequence number before the first byte of the host with this key: the last
    /// 64 bits of the key's hash.
    pub fn initial_data_number(self, key: u64) -> u64 {
        let last = match self {
            MptcpVersion::V0 => 12,
            MptcpVersion::V1 => 24,
        };
        self.hash(key)[last..last + 8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Returns the message authentication code of a host that begins or accepts a sub-flow, cut to
    /// its first 160 bits. `keys` and `nonces`: its own, then those of the other host.
    pub fn join_hmac(self, keys: [u64; 2], nonces: [u32; 2]) -> [u8; HMAC_LEN] {
        let (mut key, mut text) = ([0; 16], [0; 8]);
        key[..8].copy_from_slice(&keys[0].to_be_bytes());
        key[8..].copy_from_slice(&keys[1].to_be_bytes());
        text[..4].copy_from_slice(&nonces[0].to_be_bytes());
        text[4..].copy_from_slice(&nonces[1].to_be_bytes());
        match self {
            MptcpVersion::V0 => code::<Hmac<Sha1>>(&key, &text),
            MptcpVersion::V1 => code::<Hmac<Sha256>>(&key, &text),
        }
    }

    /// Returns the key's hash; that of SHA-1 is followed by zeros.
    fn hash(self, key: u64) -> [u8; 32] {
        let mut hash = [0; 32];
        match self {
            MptcpVersion::V0 => hash[..20].copy_from_slice(&Sha1::digest(key.to_be_bytes())),
            MptcpVersion::V1 => hash.copy_from_slice(&Sha256::digest(key.to_be_bytes())),
        }
        hash
    }
}

fn code<M: Mac + KeyInit>(key: &[u8; 16], text: &[u8; 8]) -> [u8; HMAC_LEN] {
    let mut cut = [0; HMAC_LEN];
    // HMAC takes keys of any length.
    if let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) {
        mac.update(text);
        cut.copy_from_slice(&mac.finalize().into_bytes()[..HMAC_LEN]);
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u64 = 0xac37_d97a_1ecb_8bcb;
    const SERVER: u64 = 0xaf93_9f8b_892a_a3c1;

    /// A connection of Linux 6.18 with a second sub-flow, joined by the client.
    #[test]
    fn values_of_linux() {
        let version = MptcpVersion::of(1).unwrap();
        assert_eq!(version.token(SERVER), 0xc01f_82fa);
        let nonces = [3_865_102_888, 4_130_400_480];
        assert_eq!(
            version.join_hmac([CLIENT, SERVER], nonces),
            *b"\xaf\x49\x99\x8d\x71\x40\xda\xbd\x64\x6a\xe6\xf0\x93\x6c\xea\x2e\x82\x20\x54\x6f"
        );
        let of_server = version.join_hmac([SERVER, CLIENT], [nonces[1], nonces[0]]);
        assert_eq!(of_server[..8], 0x3f04_2a29_2239_746f_u64.to_be_bytes());
        // Acknowledged as the number after the first 1,000 bytes: 12,135,973,624,132,456,945.
        assert_eq!(version.initial_data_number(CLIENT), 12_135_973_624_132_455_944);
    }

    /// Computed by OpenSSL.
    #[test]
    fn values_of_version_0() {
        let version = MptcpVersion::of(0).unwrap();
        assert_eq!(version.token(SERVER), 0xf43f_a2c7);
        assert_eq!(version.initial_data_number(SERVER), 0x1b7c_7d88_6b95_bac0);
        assert_eq!(
            version.join_hmac([CLIENT, SERVER], [1, 2]),
            *b"\x53\xa8\x8f\xee\x1e\x65\x5d\x60\x3d\x11\x76\x61\x87\xa0\xc1\x1b\x56\xbe\x44\x07"
        );
        assert_eq!(MptcpVersion::of(2), None);
    }
}
