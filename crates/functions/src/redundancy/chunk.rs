//! Cuts streams into chunks by what is in them: a chunk ends with a window whose fingerprint is
//! chosen. So where the same bytes come again, in whatever stream and behind whatever, the cuts are
//! soon the same, and so are the chunks.
//!
//! A window belongs to one chunk, so that what a chunk is depends on nothing before it. Windows
//! that follow each other make up a chunk, and their fingerprints its digest: to cut a stream and
//! to know its chunks again takes the same fingerprints.

use packet::split_mix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::rabin::{Rabin, WINDOW_MAX};

/// A chunk has at most so many times `sample` bytes, and what is missing of a window: of random
/// bytes, one of some 3,000 would have more.
pub const CHUNK_SAMPLES_MAX: u32 = 8;

/// A chunk that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// What tells its bytes from all others: that others have the same is as unlikely as that 64
    /// random bits are the same.
    pub digest: u64,
    /// How many bytes it has.
    pub len: u32,
}

/// The chunk that a stream is in the midst of. All zeros is one that has no byte yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Begun {
    /// The fingerprint of its last window, or of all of it if it is shorter.
    fingerprint: u64,
    /// What the windows that make it up come to.
    digest: u64,
    /// Its bytes so far.
    pub len: u32,
    /// Where in `window` the next byte goes.
    at: u32,
    /// Its last bytes. The byte that leaves the window is in the place of the one that enters it.
    window: [u8; WINDOW_MAX as usize],
}

impl Default for Begun {
    fn default() -> Begun {
        Begun { fingerprint: 0, digest: 0, len: 0, at: 0, window: [0; WINDOW_MAX as usize] }
    }
}

/// Cuts streams.
pub struct Cutter {
    rabin: Rabin,
    sample: u32,
    len_max: u32,
}

impl Cutter {
    /// Cuts behind one of `sample` windows, a power of two, of so many bytes.
    pub fn new(window: usize, sample: u32) -> Cutter {
        // Whole windows: how long a chunk is gets looked at only between these.
        let len_max = (CHUNK_SAMPLES_MAX * sample).next_multiple_of(window as u32);
        Cutter { rabin: Rabin::new(window, sample.into()), sample, len_max }
    }

    /// Bytes of a chunk of random bytes, on average.
    pub fn expected_len(&self) -> u64 {
        self.rabin.window() as u64 + u64::from(self.sample)
    }

    /// Takes the next bytes of a stream, up to the end of the first chunk among them; that chunk,
    /// if there is one.
    #[inline]
    pub fn next(&self, begun: &mut Begun, bytes: &mut &[u8]) -> Option<Chunk> {
        while !bytes.is_empty() {
            let is_cut = self.go_on(begun, bytes);
            if is_cut {
                return self.end(begun);
            }
        }
        None
    }

    /// The stream ends: so does its last chunk, if there is one.
    pub fn end(&self, begun: &mut Begun) -> Option<Chunk> {
        let Begun { fingerprint, digest, len, .. } = std::mem::take(begun);
        let digest = joined(joined(digest, fingerprint), len.into());
        (len > 0).then_some(Chunk { digest, len })
    }

    /// Takes bytes up to the end of a window, or to a cut; whether there is one.
    #[inline(always)]
    fn go_on(&self, begun: &mut Begun, bytes: &mut &[u8]) -> bool {
        let window = self.rabin.window();
        // It is within the window, unless the flow comes from where windows are longer.
        let at = (begun.at as usize).min(window - 1);
        let places = &mut begun.window[at..window];
        let (mut fingerprint, mut taken, mut is_cut) = (begun.fingerprint, 0, false);
        if (begun.len as usize) < window {
            for (place, &byte) in places.iter_mut().zip(*bytes) {
                *place = byte;
                fingerprint = self.rabin.push(fingerprint, byte);
                taken += 1;
            }
        } else {
            for (place, &byte) in places.iter_mut().zip(*bytes) {
                fingerprint = self.rabin.roll(fingerprint, byte, std::mem::replace(place, byte));
                taken += 1;
                if self.rabin.is_chosen(fingerprint) {
                    is_cut = true;
                    break;
                }
            }
        }
        *bytes = bytes.get(taken..).unwrap_or_default();
        begun.fingerprint = fingerprint;
        begun.len = begun.len.wrapping_add(taken as u32);
        begun.at = (at + taken) as u32;
        if at + taken == window {
            begun.at = 0;
            begun.digest = joined(begun.digest, fingerprint);
            is_cut |= begun.len >= self.len_max;
        }
        is_cut
    }
}

/// A digest with another number joined to what it is of.
#[inline]
fn joined(digest: u64, number: u64) -> u64 {
    split_mix(&mut (digest ^ number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut random = seed;
        (0..len).map(|_| split_mix(&mut random) as u8).collect()
    }

    /// The chunks of a stream that comes in these pieces.
    fn chunks<'a>(cutter: &Cutter, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Chunk> {
        let (mut begun, mut chunks) = (Begun::default(), vec![]);
        for mut piece in pieces {
            while let Some(chunk) = cutter.next(&mut begun, &mut piece) {
                chunks.push(chunk);
            }
            assert!(piece.is_empty());
        }
        chunks.extend(cutter.end(&mut begun));
        assert_eq!((begun, cutter.end(&mut begun)), (Begun::default(), None));
        chunks
    }

    #[test]
    fn chunks_of_random_bytes_are_as_long_as_expected() {
        for (window, sample) in [(16, 16), (32, 128), (64, 1_024)] {
            let cutter = Cutter::new(window, sample);
            let stream = bytes(7, 4_000_000);
            let found = chunks(&cutter, [&stream[..]]);
            let lens = found.iter().map(|chunk| chunk.len as usize);
            assert_eq!(lens.clone().sum::<usize>(), stream.len());
            let (expected, mean) = (cutter.expected_len() as usize, stream.len() / found.len());
            assert!((expected * 97..expected * 103).contains(&(100 * mean)), "{mean}, not {expected}");
            let longest = lens.clone().max().unwrap();
            assert_eq!(longest, (8 * sample as usize).next_multiple_of(window), "some would be longer");
            let shortest = lens.take(found.len() - 1).min().unwrap();
            assert_eq!(shortest, window + 1);
        }
    }

    #[test]
    fn what_is_put_before_changes_few_chunks() {
        let cutter = Cutter::new(32, 128);
        let page = bytes(7, 40_000);
        let before = chunks(&cutter, [&page[..]]);
        for shift in [1, 31, 32, 33, 1_000] {
            let after = chunks(&cutter, [&bytes(9, shift)[..], &page]);
            let new = after.iter().filter(|chunk| !before.contains(chunk));
            let new: usize = new.map(|chunk| chunk.len as usize).sum();
            assert!(new < shift + 2_000, "{new} bytes are new behind {shift}");
        }
    }

    #[test]
    fn the_same_byte_on_and_on_is_cut_alike() {
        let cutter = Cutter::new(32, 128);
        for byte in [0, b' ', 0xff] {
            let found = chunks(&cutter, [&[byte; 100_000][..]]);
            // A window of it is chosen, or none is.
            assert!(found[0].len == 33 || found[0].len == 1_024);
            assert!(found[..found.len() - 1].iter().all(|chunk| *chunk == found[0]));
        }
        let of_zeros = (0..200).map(|len| chunks(&Cutter::new(64, 4_096), [&[0; 200][..len]]));
        let digests: Vec<_> = of_zeros.flatten().map(|chunk| chunk.digest).collect();
        assert!(!digests[..65].iter().enumerate().any(|(at, digest)| digests[..at].contains(digest)));
    }

    #[test]
    fn a_chunk_that_was_begun_with_another_window_goes_on() {
        let mut begun = Begun::default();
        let mut rest = &[7; 60][..];
        assert_eq!(Cutter::new(64, 16).next(&mut begun, &mut rest), None);
        rest = &[8; 1_000];
        assert!(Cutter::new(16, 16).next(&mut begun, &mut rest).is_some());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            seed in 0u64..4, len in 0usize..3_000, zeros in 0usize..300, window in 16usize..=64,
            sizes in prop::collection::vec(1usize..200, 1..9),
        ) {
            let cutter = Cutter::new(window, 64);
            let stream = [bytes(seed, len), vec![0; zeros], bytes(seed, len)].concat();
            let (mut pieces, mut rest, mut sizes) = (vec![], &stream[..], sizes.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                pieces.push(piece);
                rest = behind;
            }
            prop_assert_eq!(chunks(&cutter, pieces), chunks(&cutter, [&stream[..]]));
        }
    }
}
