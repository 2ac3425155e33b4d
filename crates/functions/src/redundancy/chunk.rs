//! Content-defined chunking of streams: a chunk ends with a window that has a selected fingerprint.
//! Repeated bytes, in whatever stream and after whatever bytes, are therefore soon cut at the same
//! places into the same chunks.
//!
//! A window belongs to one chunk, so a chunk does not depend on earlier bytes. A chunk consists of
//! consecutive windows, and its digest of their fingerprints: one pass both cuts a stream and
//! identifies its chunks.

use packet::split_mix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::rabin::{Rabin, WINDOW_MAX};

/// Maximum length of a chunk in multiples of `sample` bytes, rounded up to a window. Of random
/// chunks, one in about 3,000 would be longer.
pub const CHUNK_SAMPLES_MAX: u32 = 8;

/// A complete chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamChunk {
    /// Identifies the content. A collision is as unlikely as 64 equal random bits.
    pub digest: u64,
    /// Length in bytes.
    pub len: u32,
}

/// The chunk in progress. All zeros is an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PartialChunk {
    /// The fingerprint of the last window, or of the whole chunk if that is shorter.
    fingerprint: u64,
    /// The digest of the windows so far.
    digest: u64,
    /// Bytes so far.
    pub len: u32,
    /// Position in `window` of the next byte.
    at: u32,
    /// The last bytes. The byte that enters the window replaces the byte that leaves it.
    window: [u8; WINDOW_MAX as usize],
}

impl Default for PartialChunk {
    fn default() -> PartialChunk {
        PartialChunk { fingerprint: 0, digest: 0, len: 0, at: 0, window: [0; WINDOW_MAX as usize] }
    }
}

/// Cuts streams into chunks.
pub struct Chunker {
    rabin: Rabin,
    sample: u32,
    len_max: u32,
}

impl Chunker {
    /// Cuts after one of `sample` windows, a power of two, of `window` bytes.
    pub fn new(window: usize, sample: u32) -> Chunker {
        // Whole windows: the length of a chunk is checked only between them.
        let len_max = (CHUNK_SAMPLES_MAX * sample).next_multiple_of(window as u32);
        Chunker { rabin: Rabin::new(window, sample.into()), sample, len_max }
    }

    /// Returns the mean length of a chunk of random bytes.
    pub fn expected_len(&self) -> u64 {
        self.rabin.window() as u64 + u64::from(self.sample)
    }

    /// Consumes bytes up to the end of the first chunk, and returns that chunk if there is one.
    #[inline]
    pub fn next(&self, begun: &mut PartialChunk, bytes: &mut &[u8]) -> Option<StreamChunk> {
        while !bytes.is_empty() {
            let is_cut = self.go_on(begun, bytes);
            if is_cut {
                return self.end(begun);
            }
        }
        None
    }

    /// Ends the stream and returns its last chunk, if there is one.
    pub fn end(&self, begun: &mut PartialChunk) -> Option<StreamChunk> {
        let PartialChunk { fingerprint, digest, len, .. } = std::mem::take(begun);
        let digest = joined(joined(digest, fingerprint), len.into());
        (len > 0).then_some(StreamChunk { digest, len })
    }

    /// Consumes bytes up to the end of a window or a cut; returns whether there is a cut.
    #[inline(always)]
    fn go_on(&self, begun: &mut PartialChunk, bytes: &mut &[u8]) -> bool {
        let window = self.rabin.window();
        // Within the window, unless the flow is from an instance with longer windows.
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

/// Combines a digest with the next number.
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

    /// Returns the chunks of a stream of these pieces.
    fn chunks<'a>(cutter: &Chunker, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<StreamChunk> {
        let (mut begun, mut chunks) = (PartialChunk::default(), vec![]);
        for mut piece in pieces {
            while let Some(chunk) = cutter.next(&mut begun, &mut piece) {
                chunks.push(chunk);
            }
            assert!(piece.is_empty());
        }
        chunks.extend(cutter.end(&mut begun));
        assert_eq!((begun, cutter.end(&mut begun)), (PartialChunk::default(), None));
        chunks
    }

    #[test]
    fn chunks_of_random_bytes_are_as_long_as_expected() {
        for (window, sample) in [(16, 16), (32, 128), (64, 1_024)] {
            let cutter = Chunker::new(window, sample);
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
    fn inserted_bytes_change_few_chunks() {
        let cutter = Chunker::new(32, 128);
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
    fn runs_of_one_byte_are_cut_alike() {
        let cutter = Chunker::new(32, 128);
        for byte in [0, b' ', 0xff] {
            let found = chunks(&cutter, [&[byte; 100_000][..]]);
            // Either one of its windows is selected, or none is.
            assert!(found[0].len == 33 || found[0].len == 1_024);
            assert!(found[..found.len() - 1].iter().all(|chunk| *chunk == found[0]));
        }
        let of_zeros = (0..200).map(|len| chunks(&Chunker::new(64, 4_096), [&[0; 200][..len]]));
        let digests: Vec<_> = of_zeros.flatten().map(|chunk| chunk.digest).collect();
        assert!(!digests[..65].iter().enumerate().any(|(at, digest)| digests[..at].contains(digest)));
    }

    #[test]
    fn a_chunk_begun_with_another_window_continues() {
        let mut begun = PartialChunk::default();
        let mut rest = &[7; 60][..];
        assert_eq!(Chunker::new(64, 16).next(&mut begun, &mut rest), None);
        rest = &[8; 1_000];
        assert!(Chunker::new(16, 16).next(&mut begun, &mut rest).is_some());
    }

    proptest! {
        #[test]
        fn segmentation_makes_no_difference_to_chunks(
            seed in 0u64..4, len in 0usize..3_000, zeros in 0usize..300, window in 16usize..=64,
            sizes in prop::collection::vec(1usize..200, 1..9),
        ) {
            let cutter = Chunker::new(window, 64);
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
