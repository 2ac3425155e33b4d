//! State that the packets of a security association share across flows: the sequence numbers sent,
//! and those received. It is stored in meters; see decision 21.

use nf::{MeterKey, Meters};
use packet::Addr;

use super::suite::IV_LEN;

/// Size of the replay window (RFC 4303 3.4.3, which requires at least 64).
pub const REPLAY_WINDOW: u32 = 1_024;

/// Meters per inbound security association: one for the greatest number, the others for the window.
pub const INBOUND_METERS: u32 = 1 + RING / METER_WORDS;

/// Meters per outbound security association.
pub const OUTBOUND_METERS: u32 = 1;

/// Identity of a security association: the receiver's address, AH or ESP, and the SPI (RFC 4301
/// 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaId {
    words: [u64; 3],
}

impl SaId {
    /// Creates the identity of the association to this receiver; `sends` is true at its sender.
    pub fn new(receiver: Addr, is_ah: bool, spi: u32, sends: bool) -> SaId {
        let addr = receiver.to_u128();
        let last = u64::from(spi) | u64::from(is_ah) << 32 | u64::from(sends) << 33;
        SaId { words: [(addr >> 64) as u64, addr as u64, last] }
    }

    fn meter(&self, number: u32) -> MeterKey {
        let [a, b, c] = self.words;
        [a, b, c, u64::from(number)]
    }
}

/// Values that are unique to an outgoing packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketNonce {
    /// Sequence number.
    pub number: u32,
    /// Initialization vector.
    pub iv: [u8; IV_LEN],
}

impl PacketNonce {
    /// Returns the next values of an association with first sequence number `first`; none if the
    /// numbers are exhausted, because they must not wrap (RFC 4303 3.3.3).
    ///
    /// The initialization vector is the time in nanoseconds, or the previous vector plus one if
    /// that is greater. So no vector repeats, even if sequence numbers restart with the same key,
    /// provided that the clock is not set back and packets are fewer than nanoseconds. RFC 4106 3.1
    /// requires only uniqueness.
    #[inline]
    pub fn next(meters: &mut Meters, of: &SaId, first: u32, now_ns: u64) -> Option<PacketNonce> {
        let [given, last_iv, _] = meters.of(&of.meter(0), now_ns, NEVER_NS)?;
        let number = u32::try_from(u64::from(first) + *given).ok()?;
        let iv = now_ns.max(last_iv.checked_add(1)?);
        (*given, *last_iv) = (*given + 1, iv);
        Some(PacketNonce { number, iv: iv.to_be_bytes() })
    }
}

/// The window of received sequence numbers.
///
/// Its bits are in a ring of words indexed by the numbers themselves, so the window advances
/// without shifting (RFC 6479). The ring has one word more than the window, which is being filled.
pub struct ReplayWindow<'m> {
    meters: &'m mut Meters,
    of: &'m SaId,
    now_ns: u64,
}

impl<'m> ReplayWindow<'m> {
    /// Opens the window of this association.
    pub fn new(meters: &'m mut Meters, of: &'m SaId, now_ns: u64) -> ReplayWindow<'m> {
        ReplayWindow { meters, of, now_ns }
    }

    /// Returns whether a packet with this number may be new, and is worth verifying.
    #[inline]
    pub fn is_new(&mut self, number: u32) -> bool {
        self.top_if_new(number).is_some()
    }

    /// Records the number of a verified packet; false if it was recorded since
    /// [`ReplayWindow::is_new`].
    #[inline]
    pub fn note(&mut self, number: u32) -> bool {
        self.try_note(number).is_some()
    }

    /// Returns the greatest number received, if this one may be new. (Every association has its
    /// meters, so none is missing.)
    fn top_if_new(&mut self, number: u32) -> Option<u32> {
        let top = *self.top()? as u32;
        let is_new = match top.checked_sub(number) {
            _ if number == 0 => false, // Numbers begin with 1 (RFC 4303 2.2).
            None => true,
            Some(behind) => behind < REPLAY_WINDOW && *self.word(number / 64)? & bit(number) == 0,
        };
        is_new.then_some(top)
    }

    fn try_note(&mut self, number: u32) -> Option<()> {
        let top = self.top_if_new(number)?;
        if number > top {
            let begun = (number / 64 - top / 64).min(RING);
            for behind in 0..begun {
                *self.word(number / 64 - behind)? = 0;
            }
            *self.top()? = number.into();
        }
        *self.word(number / 64)? |= bit(number);
        Some(())
    }

    fn top(&mut self) -> Option<&mut u64> {
        Some(&mut self.meter(0)?[0])
    }

    fn word(&mut self, word: u32) -> Option<&mut u64> {
        let at = word % RING;
        Some(&mut self.meter(1 + at / METER_WORDS)?[(at % METER_WORDS) as usize])
    }

    fn meter(&mut self, number: u32) -> Option<&mut [u64; 3]> {
        self.meters.of(&self.of.meter(number), self.now_ns, NEVER_NS)
    }
}

/// Words per meter.
const METER_WORDS: u32 = 3;

/// Words of the ring, in whole meters: the window, and the word being filled.
const RING: u32 = (REPLAY_WINDOW / 64 + 1).next_multiple_of(METER_WORDS);

/// Meters never expire: a forgotten number could be replayed.
const NEVER_NS: u64 = u64::MAX;

fn bit(number: u32) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn name() -> SaId {
        SaId::new(Addr::from_v4_bytes([192, 0, 2, 1]), false, 256, false)
    }

    fn meters() -> Meters {
        Meters::new("numbers", (INBOUND_METERS + OUTBOUND_METERS) as usize, 1).unwrap()
    }

    #[test]
    fn numbers_are_exhausted_and_vectors_increase() {
        let (mut meters, of) = (meters(), name());
        let mut next = |now_ns| PacketNonce::next(&mut meters, &of, u32::MAX - 2, now_ns);
        let stamp = |number, iv: u64| Some(PacketNonce { number, iv: iv.to_be_bytes() });
        assert_eq!(next(500), stamp(u32::MAX - 2, 500));
        assert_eq!(next(400), stamp(u32::MAX - 1, 501));
        assert_eq!(next(502), stamp(u32::MAX, 502));
        assert_eq!([next(503), next(504)], [None, None]);
    }

    #[test]
    fn vectors_do_not_overflow() {
        let (mut meters, of) = (meters(), name());
        let mut next = |now_ns| PacketNonce::next(&mut meters, &of, 1, now_ns).map(|stamp| stamp.iv);
        assert_eq!(next(u64::MAX), Some(u64::MAX.to_be_bytes()));
        assert_eq!(next(u64::MAX), None);
    }

    #[test]
    fn the_window_has_exact_edges() {
        let (mut meters, of) = (meters(), name());
        let mut seen = ReplayWindow::new(&mut meters, &of, 0);
        assert!(!seen.note(0), "no packet has it");
        assert!(seen.note(5_000));
        let lowest = 5_000 - REPLAY_WINDOW + 1;
        assert!(seen.note(lowest) && !seen.note(lowest) && !seen.note(lowest - 1));
        assert!(seen.note(u32::MAX) && !seen.note(u32::MAX) && !seen.is_new(5_001));
        assert!(seen.note(u32::MAX - REPLAY_WINDOW + 1));
    }

    proptest! {
        /// Compares the window with a set of all received numbers.
        #[test]
        fn window_agrees_with_a_set(steps in prop::collection::vec((0u32..5, -1_200i64..1_200), 1..400), start in 1u32..5_000) {
            let (mut meters, of) = (meters(), name());
            let mut seen = ReplayWindow::new(&mut meters, &of, 0);
            let (mut all, mut top) = (BTreeSet::new(), 0u32);
            for (kind, step) in steps {
                let near = i64::from(top.max(start)) + if kind == 0 { step } else { step / 40 };
                let Ok(number) = u32::try_from(near) else { continue };
                let expected = number > 0
                    && !all.contains(&number)
                    && (number > top || top - number < REPLAY_WINDOW);
                prop_assert_eq!(seen.is_new(number), expected, "{} of {}", number, top);
                prop_assert_eq!(seen.note(number), expected);
                all.insert(number);
                if expected { top = top.max(number); }
            }
        }
    }
}
