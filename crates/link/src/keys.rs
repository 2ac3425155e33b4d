//! Keys of a link: derived from secrets, rotated in use.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

/// Length of the authentication tag at the end of a datagram.
pub const TAG_LEN: usize = 16;

/// Datagrams sent under one key before it is rotated, at most. AES-GCM allows twice as many (RFC
/// 9001 B.1.1).
pub const KEY_DATAGRAMS_MAX: u64 = 1 << 22;

/// Bytes sent under one key before it is rotated, at most.
pub const KEY_BYTES_MAX: u64 = 1 << 35;

/// Time that a replaced receive key is still accepted.
pub const PREVIOUS_KEY_NS: u64 = 1_000_000_000;

/// Forged datagrams after which a link gives up (RFC 9001 6.6: 2^52 for AES-GCM).
pub const FORGED_MAX: u64 = 1 << 52;

/// The secrets of both directions, which both ends exported from a handshake that authenticated
/// the peer. They must be uniformly random, and used for one link only.
#[derive(Clone)]
pub struct LinkKeys {
    /// The secret of what this end sends: the peer's `receive`.
    pub send: [u8; 32],
    /// The secret of what this end receives: the peer's `send`.
    pub receive: [u8; 32],
}

impl LinkKeys {
    /// Returns the keys of the other end.
    #[must_use]
    pub fn reversed(&self) -> LinkKeys {
        LinkKeys { send: self.receive, receive: self.send }
    }
}

impl fmt::Debug for LinkKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkKeys(..)")
    }
}

/// The key of one direction and phase.
struct PhaseKey {
    phase: u32,
    secret: [u8; 32],
    iv: [u8; 12],
    cipher: LessSafeKey,
}

impl PhaseKey {
    fn new(phase: u32, secret: [u8; 32]) -> PhaseKey {
        let key: [u8; 32] = expand(&secret, b"rivulet link key");
        let iv = expand(&secret, b"rivulet link iv");
        // Fails only with another length of the key.
        #[allow(clippy::expect_used)]
        let cipher = UnboundKey::new(&AES_256_GCM, &key).expect("the key has 256 bits");
        PhaseKey { phase, secret, iv, cipher: LessSafeKey::new(cipher) }
    }

    fn next(&self) -> PhaseKey {
        PhaseKey::new(self.phase.wrapping_add(1), expand(&self.secret, b"rivulet link next"))
    }

    #[inline]
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        let input = (u128::from(self.phase) << 64 | u128::from(number)).to_be_bytes();
        nonce.iter_mut().zip(&input[4..]).for_each(|(byte, input)| *byte ^= input);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Returns the phase for a header.
    #[inline]
    fn mark(&self) -> u8 {
        self.phase as u8
    }
}

/// Returns the connection id of datagrams that this secret protects.
#[must_use]
pub fn connection_id(secret: &[u8; 32]) -> u64 {
    u64::from_be_bytes(expand(secret, b"rivulet link id"))
}

/// Derives a secret by HKDF-Expand, up to one hash long (RFC 5869 2.3).
fn expand<const N: usize>(secret: &[u8; 32], label: &[u8]) -> [u8; N] {
    const { assert!(N <= 32) };
    let mut out = [0; N];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let filled = prk.expand(&[label], OutputLen(N)).and_then(|okm| okm.fill(&mut out));
    debug_assert!(filled.is_ok(), "a hash is at most 255 hashes long");
    out
}

/// The length of an expansion.
struct OutputLen(usize);

impl KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}

/// The keys of the sending direction.
pub(crate) struct SendKeys {
    current: PhaseKey,
    first_number: u64,
    datagrams: u64,
    bytes: u64,
    is_confirmed: bool,
    limit_datagrams: u64,
    limit_bytes: u64,
}

/// A key cannot be used any more, and the peer has not confirmed it.
pub(crate) struct KeyExhausted;

impl SendKeys {
    pub(crate) fn new(secret: [u8; 32], limit_datagrams: u64, limit_bytes: u64) -> SendKeys {
        SendKeys {
            current: PhaseKey::new(0, secret),
            first_number: 1,
            datagrams: 0,
            bytes: 0,
            is_confirmed: false,
            limit_datagrams,
            limit_bytes,
        }
    }

    /// Notes that the peer acknowledged this datagram. A key is replaced only after the peer has
    /// decrypted something with it, so that the peer never lags by two phases (RFC 9001 6.1).
    #[inline]
    pub(crate) fn confirm(&mut self, number: u64) {
        self.is_confirmed |= number >= self.first_number;
    }

    /// Rotates the key when it is worn, before datagram `number`; returns whether it did.
    #[inline]
    pub(crate) fn prepare(&mut self, number: u64) -> Result<bool, KeyExhausted> {
        if self.datagrams < self.limit_datagrams && self.bytes < self.limit_bytes {
            return Ok(false);
        }
        if !self.is_confirmed {
            let is_usable = self.datagrams < 2 * KEY_DATAGRAMS_MAX && self.bytes < 2 * KEY_BYTES_MAX;
            return if is_usable { Ok(false) } else { Err(KeyExhausted) };
        }
        self.current = self.current.next();
        (self.first_number, self.datagrams, self.bytes, self.is_confirmed) = (number, 0, 0, false);
        Ok(true)
    }

    /// Returns the key phase for the header.
    #[inline]
    pub(crate) fn mark(&self) -> u8 {
        self.current.mark()
    }

    /// Encrypts `text` in place, and returns the tag of `header` and `text`. A number must never
    /// repeat.
    #[inline]
    pub(crate) fn seal(&mut self, number: u64, header: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        self.datagrams += 1;
        self.bytes += text.len() as u64;
        let nonce = self.current.nonce(number);
        let tag = self.current.cipher.seal_in_place_separate_tag(nonce, Aad::from(header), text);
        // Fails only above 64 GiB. In that case no receiver would accept the datagram.
        tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).unwrap_or([0; TAG_LEN])
    }
}

/// The keys of the receiving direction: the current one, the next, and for a while the previous.
pub(crate) struct ReceiveKeys {
    current: PhaseKey,
    next: PhaseKey,
    previous: Option<(PhaseKey, u64)>,
}

/// A reason why a datagram was not decrypted.
pub(crate) enum OpenFault {
    /// No key of this phase.
    Phase,
    /// The tag is wrong.
    Forged,
}

/// The phase of an authentic datagram.
#[derive(PartialEq)]
pub(crate) enum Opened {
    /// The current phase, or the previous.
    Known,
    /// The next phase, which is the current one from now on.
    Rotated,
}

impl ReceiveKeys {
    pub(crate) fn new(secret: [u8; 32]) -> ReceiveKeys {
        let current = PhaseKey::new(0, secret);
        ReceiveKeys { next: current.next(), current, previous: None }
    }

    /// Decrypts `text` in place if `tag` matches `header` and `text`.
    #[inline]
    pub(crate) fn open(
        &mut self,
        now_ns: u64,
        (mark, number): (u8, u64),
        header: &[u8],
        text: &mut [u8],
        tag: [u8; TAG_LEN],
    ) -> Result<Opened, OpenFault> {
        let key = if mark == self.current.mark() {
            &self.current
        } else if mark == self.next.mark() {
            &self.next
        } else {
            match &self.previous {
                Some((key, until_ns)) if mark == key.mark() && now_ns <= *until_ns => key,
                _ => return Err(OpenFault::Phase),
            }
        };
        let nonce = key.nonce(number);
        let opened =
            key.cipher.open_in_place_separate_tag(nonce, Aad::from(header), Tag::from(tag), text, 0..);
        opened.map_err(|_| OpenFault::Forged)?;
        if mark != self.next.mark() {
            return Ok(Opened::Known);
        }
        let after = self.next.next();
        let next = std::mem::replace(&mut self.next, after);
        let replaced = std::mem::replace(&mut self.current, next);
        self.previous = Some((replaced, now_ns.saturating_add(PREVIOUS_KEY_NS)));
        Ok(Opened::Rotated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    // RFC 5869 A.1: the first 32 bytes of the output, for an arbitrary label in `info`.
    #[test]
    fn expansion_matches_rfc_5869() {
        let prk = [
            0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f, 0x0d, 0xc4, 0x7b, 0xba, 0x63,
            0x90, 0xb6, 0xc7, 0x3b, 0xb5, 0x0f, 0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a, 0xd7, 0xc2, 0xb3, 0xe5,
        ];
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        assert_eq!(
            hex(&expand::<32>(&prk, &info)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
        );
    }

    #[test]
    fn phases_have_keys_of_their_own() {
        let (mut send, mut receive) = (SendKeys::new([1; 32], 1, u64::MAX), ReceiveKeys::new([1; 32]));
        let mut sealed = Vec::new();
        for number in 1..=4 {
            let rotated = send.prepare(number).unwrap_or_else(|_| panic!("exhausted"));
            assert_eq!(rotated, number > 1);
            let mut text = *b"the same text";
            let tag = send.seal(number, b"header", &mut text);
            send.confirm(number);
            sealed.push((send.mark(), number, text, tag));
        }
        let mut open = |at: usize, now_ns| {
            let (mark, number, mut text, tag) = sealed[at];
            receive.open(now_ns, (mark, number), b"header", &mut text, tag).map(|opened| (opened, text)).ok()
        };
        assert!(open(2, 0).is_none(), "two phases ahead");
        assert!(
            open(0, 0).is_some_and(|(opened, text)| opened == Opened::Known && &text == b"the same text")
        );
        assert!(open(1, 0).is_some_and(|(opened, _)| opened == Opened::Rotated));
        assert!(open(0, PREVIOUS_KEY_NS).is_some_and(|(opened, _)| opened == Opened::Known));
        assert!(open(0, PREVIOUS_KEY_NS + 1).is_none(), "the previous key has expired");
        assert!(open(2, 0).is_some() && open(3, 0).is_some());
        assert!(open(1, 0).is_none(), "two phases ago");
    }

    #[test]
    fn a_key_is_kept_until_the_peer_confirms_it() {
        let mut send = SendKeys::new([1; 32], 2, u64::MAX);
        for number in 1..=5 {
            assert!(send.prepare(number).is_ok_and(|rotated| !rotated));
            send.seal(number, &[], &mut []);
        }
        send.confirm(3);
        assert!(send.prepare(6).is_ok_and(|rotated| rotated));
        send.seal(6, &[], &mut []);
        send.seal(7, &[], &mut []);
        send.confirm(5);
        assert!(send.prepare(8).is_ok_and(|rotated| !rotated), "of the key before");
    }

    #[test]
    fn secrets_are_not_printed() {
        assert_eq!(format!("{:?}", LinkKeys { send: [7; 32], receive: [8; 32] }), "LinkKeys(..)");
    }
}
