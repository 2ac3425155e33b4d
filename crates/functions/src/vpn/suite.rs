//! Cryptographic algorithms, from libraries. This module does not know packet formats.

use aes_gcm::aead::{AeadInOut, KeyInit, array::Array, inout::InOutBuf};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Length of an integrity check value, for all algorithms.
pub const ICV_LEN: usize = 16;

/// Length of the initialization vector in AES-GCM packets (RFC 4106 3.1).
pub const IV_LEN: usize = 8;

/// Length of an HMAC-SHA-256 key (RFC 4868 2.1.1).
pub const HMAC_KEY_LEN: usize = 32;

/// Length of the salt after an AES key (RFC 4106 4, 8.1).
pub const SALT_LEN: usize = 4;

/// An integrity check value is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityFailure;

/// AES in Galois/Counter Mode with a check value of 16 bytes (RFC 4106).
pub struct Gcm {
    cipher: Aes,
    salt: [u8; SALT_LEN],
}

enum Aes {
    Key128(Box<Aes128Gcm>),
    Key256(Box<Aes256Gcm>),
}

impl Gcm {
    /// Creates a cipher from a key of 16 or 32 bytes followed by the salt (RFC 4106 8.1); none for
    /// another length.
    pub fn new(key: &[u8]) -> Option<Gcm> {
        let (key, salt) = key.split_last_chunk::<SALT_LEN>()?;
        let cipher = match key.len() {
            16 => Aes::Key128(Box::new(Aes128Gcm::new_from_slice(key).ok()?)),
            32 => Aes::Key256(Box::new(Aes256Gcm::new_from_slice(key).ok()?)),
            _ => return None,
        };
        Some(Gcm { cipher, salt: *salt })
    }

    /// Encrypts `text` in place, and returns the check value of `header` and `text`. An `iv` must
    /// never repeat under one key.
    pub fn seal(&self, iv: [u8; IV_LEN], header: &[u8], text: &mut [u8]) -> [u8; ICV_LEN] {
        let nonce = Array(self.nonce(iv));
        let text = InOutBuf::from(text);
        let tag = match &self.cipher {
            Aes::Key128(cipher) => cipher.encrypt_inout_detached(&nonce, header, text),
            Aes::Key256(cipher) => cipher.encrypt_inout_detached(&nonce, header, text),
        };
        // Fails only above 64 GiB. In that case no receiver would accept the packet.
        tag.map_or([0; ICV_LEN], Into::into)
    }

    /// Decrypts `text` in place, if the check value matches `header` and `text`.
    pub fn open(
        &self,
        iv: [u8; IV_LEN],
        header: &[u8],
        text: &mut [u8],
        icv: &[u8; ICV_LEN],
    ) -> Result<(), IntegrityFailure> {
        let (nonce, icv) = (Array(self.nonce(iv)), Array(*icv));
        let text = InOutBuf::from(text);
        let opened = match &self.cipher {
            Aes::Key128(cipher) => cipher.decrypt_inout_detached(&nonce, header, text, &icv),
            Aes::Key256(cipher) => cipher.decrypt_inout_detached(&nonce, header, text, &icv),
        };
        opened.map_err(|_| IntegrityFailure)
    }

    /// Builds the nonce (RFC 4106 4).
    fn nonce(&self, iv: [u8; IV_LEN]) -> [u8; SALT_LEN + IV_LEN] {
        let mut nonce = [0; SALT_LEN + IV_LEN];
        nonce[..SALT_LEN].copy_from_slice(&self.salt);
        nonce[SALT_LEN..].copy_from_slice(&iv);
        nonce
    }
}

/// HMAC-SHA-256 truncated to 128 bits (RFC 4868).
pub struct Hmac128(Box<Hmac<Sha256>>);

impl Hmac128 {
    /// Creates a MAC from a key of [`HMAC_KEY_LEN`] bytes; none for another length.
    pub fn new(key: &[u8]) -> Option<Hmac128> {
        let key: &[u8; HMAC_KEY_LEN] = key.try_into().ok()?;
        Some(Hmac128(Box::new(<Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?)))
    }

    /// Returns the check value of the concatenated pieces.
    pub fn icv(&self, pieces: &[&[u8]]) -> [u8; ICV_LEN] {
        let full: [u8; 32] = self.over(pieces).finalize().into_bytes().into();
        let mut icv = [0; ICV_LEN];
        icv.copy_from_slice(&full[..ICV_LEN]);
        icv
    }

    /// Verifies the check value of the pieces in constant time.
    pub fn verify(&self, pieces: &[&[u8]], icv: &[u8; ICV_LEN]) -> Result<(), IntegrityFailure> {
        self.over(pieces).verify_truncated_left(icv).map_err(|_| IntegrityFailure)
    }

    fn over(&self, pieces: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::clone(&self.0);
        pieces.iter().for_each(|piece| mac.update(piece));
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    // RFC 4868 2.7.2.1 (the HMAC-SHA-256-128 column), with 256-bit keys.
    #[test]
    fn hmac_matches_the_test_vectors_of_rfc_4868() {
        let mac = Hmac128::new(&[0x0b; 32]).unwrap();
        assert_eq!(mac.icv(&[b"Hi", b" There"]).to_vec(), hex("198a607eb44bfbc69903a0f1cf2bbdc5"));
        let mac = Hmac128::new(b"JefeJefeJefeJefeJefeJefeJefeJefe").unwrap();
        let icv = mac.icv(&[b"what do ya want for nothing?"]);
        assert_eq!(icv.to_vec(), hex("167f928588c5cc2eef8e3093caa0e87c"));
        let mac = Hmac128::new(&[0xaa; 32]).unwrap();
        let icv = mac.icv(&[&[0xdd; 50]]);
        assert_eq!(icv.to_vec(), hex("cdcb1220d1ecccea91e53aba3092f962"));
        assert_eq!(mac.verify(&[&[0xdd; 49], &[0xdd]], &icv), Ok(()));
        assert_eq!(mac.verify(&[&[0xdd; 49]], &icv), Err(IntegrityFailure));
        assert!(Hmac128::new(&[0; 31]).is_none());
    }

    // draft-mcgrew-gcm-test-01, ESP cases: key, salt, header, IV, plaintext, ciphertext and check
    // value.
    #[test]
    fn gcm_matches_the_test_vectors_of_the_draft() {
        let cases = [
            (
                "4c80cdefbb5d10da906ac73c3613a634 2e443b68",
                "00004321 87654321 00000000", // with an extended sequence number
                "4956ed7e3b244cfe",
                "45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000
                 00000000045f736970045f756470037369700963796265726369747902646b00
                 0021000101020201",
                "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34
                 cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce
                 61bc17d768fd9732 459018148f6cbe722fd04796562dfdb4",
            ),
            (
                "feffe9928665731c6d6a8f9467308308 cafebabe",
                "0000a5f8 0000000a",
                "facedbaddecaf888",
                "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d00100
                 0001000000000000037369700963796265726369747902646b00000100010001",
                "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c
                 3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1
                 83b70d3aa8bc6ee4c309e9d85a41ad4a",
            ),
            (
                "abbccddef00112233445566778899aab abbccddef00112233445566778899aab 11223344",
                "4a2cbfe3 00000002",
                "0102030405060708",
                "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee000000000
                 7002400020bf0000020405b40101040201020201",
                "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763
                 748a637985771d347f0545659f14e99def842d8e b335f4eecfdbf831824b4c4915956c96",
            ),
        ];
        for (key, header, iv, plain, sealed) in
            cases.map(|(a, b, c, d, e)| (hex(a), hex(b), hex(c), hex(d), hex(e)))
        {
            let gcm = Gcm::new(&key).unwrap();
            let iv: [u8; IV_LEN] = iv.try_into().unwrap();
            let mut text = plain.clone();
            let icv = gcm.seal(iv, &header, &mut text);
            assert_eq!([&text[..], &icv].concat(), sealed);
            assert_eq!(gcm.open(iv, &header[..7], &mut text.clone(), &icv), Err(IntegrityFailure));
            assert_eq!(gcm.open(iv, &header, &mut text, &icv), Ok(()));
            assert_eq!(text, plain);
        }
        assert!(Gcm::new(&[0; 16]).is_none() && Gcm::new(&[0; 28]).is_none() && Gcm::new(&[]).is_none());
    }
}
