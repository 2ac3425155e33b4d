//! Overlapping segments in all orders.

use super::Technique;
use crate::talk::{DECOY, REAL, Talk};
use crate::wire::{ACK, FIN, PSH};

/// A segment of the bytes in a range: real ones or decoys, with or without a FIN.
type Part = (usize, usize, bool, bool);

/// Returns a real part.
const fn real(from: usize, until: usize) -> Part {
    (from, until, true, false)
}

const fn decoy(from: usize, until: usize) -> Part {
    (from, until, false, false)
}

/// Sends parts.
fn play(talk: &mut Talk<'_>, parts: &[Part]) {
    talk.open();
    for &(from, until, is_real, ends) in parts {
        let bytes = if is_real { &REAL[from..until] } else { &DECOY[from..until] };
        let flags = ACK | PSH | if ends { FIN } else { 0 };
        let segment = talk.segment(flags, from as i64, bytes);
        talk.send(&segment);
    }
}

/// Segments that wait beyond a gap at 0 to 4, by what they have in common. The gap is filled last.
const WAITING: &[(&str, &[Part])] = &[
    ("same place, same length", &[decoy(8, 16), real(8, 16)]),
    ("same place, the second longer", &[decoy(8, 16), real(8, 20)]),
    ("same place, the second shorter", &[decoy(8, 16), real(8, 12)]),
    ("same place, twice longer", &[decoy(8, 12), real(8, 16), decoy(8, 20)]),
    ("the second begins before", &[decoy(8, 16), real(6, 12)]),
    ("the second begins after", &[decoy(8, 16), real(12, 20)]),
    ("the second covers", &[decoy(8, 16), real(6, 20)]),
    ("the second is within", &[decoy(6, 20), real(8, 16)]),
    ("the second ends with the first", &[decoy(8, 16), real(12, 16)]),
    ("the second begins before and ends with the first", &[decoy(8, 16), real(6, 16)]),
    ("covers two", &[decoy(8, 12), decoy(14, 18), real(6, 20)]),
    ("covers two from the first one's place", &[decoy(8, 12), decoy(14, 18), real(8, 20)]),
    ("between two", &[decoy(8, 12), decoy(14, 18), real(10, 16)]),
    ("from within the first to within the third", &[decoy(6, 10), decoy(11, 13), decoy(14, 18), real(8, 16)]),
    ("two that follow each other, then across", &[decoy(8, 12), decoy(12, 16), real(10, 14)]),
    ("two that follow each other backwards, then across", &[decoy(12, 16), decoy(8, 12), real(10, 14)]),
    ("two that follow each other, then both again", &[decoy(8, 12), decoy(12, 16), real(8, 16)]),
    ("two that follow each other, then from the second on", &[decoy(8, 12), decoy(12, 16), real(12, 20)]),
    ("a chain of overlaps", &[decoy(8, 12), real(10, 14), decoy(12, 16), real(14, 18)]),
    ("a chain of overlaps backwards", &[decoy(14, 18), real(12, 16), decoy(10, 14), real(8, 12)]),
    ("an overlap that another one covers in part", &[decoy(6, 12), decoy(10, 20), real(11, 22)]),
    ("byte by byte over a segment", &[decoy(8, 12), real(8, 9), real(9, 10), real(10, 11), real(11, 12)]),
    ("over the hole's filling", &[decoy(4, 10), real(2, 8)]),
    ("the FIN makes it longer", &[decoy(8, 16), (8, 16, true, true)]),
    ("a FIN that others cover", &[(8, 12, false, true), real(8, 16)]),
    ("a FIN before what waits", &[decoy(14, 20), (8, 12, false, true)]),
    ("a FIN within what waits", &[decoy(6, 16), (8, 12, false, true)]),
    ("a FIN that what begins before overlaps", &[(8, 12, false, true), real(6, 11)]),
];

/// Segments in order and overlapping it.
const IN_ORDER: &[(&str, &[Part])] = &[
    ("whole", &[real(0, 24)]),
    ("byte by byte", &[real(0, 1), real(1, 2), real(2, 3), real(3, 4), real(4, 10), real(10, 24)]),
    ("backwards", &[real(16, 24), real(8, 16), real(4, 8), real(0, 4)]),
    ("sent twice", &[real(0, 12), real(0, 12), real(12, 24), real(12, 24)]),
    ("again with other bytes", &[real(0, 12), decoy(0, 12), real(12, 24)]),
    ("again with other bytes and more", &[real(0, 12), decoy(6, 18), real(12, 24)]),
    ("keep-alive with another byte", &[real(0, 12), decoy(11, 12), real(12, 24)]),
    ("keep-alive before the first byte", &[real(0, 12), decoy(0, 0), real(12, 24)]),
    ("empty segments ahead", &[real(0, 12), decoy(20, 20), real(12, 24)]),
    ("FIN, then more", &[(0, 12, true, true), real(12, 24)]),
    ("FIN, then over its place and more", &[(0, 12, true, true), decoy(8, 20), decoy(13, 24)]),
    ("FIN again at another place", &[(0, 12, true, true), (12, 20, false, true), (6, 8, false, true)]),
    ("empty FIN ahead of its turn", &[real(0, 8), (16, 16, false, true), real(8, 24)]),
    ("empty FIN within what came", &[real(0, 12), (6, 6, false, true), real(12, 24)]),
];

/// Number of random sequences.
const RANDOM: u64 = 24;

/// Returns random overlapping parts.
fn random(seed: u64) -> Vec<Part> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % most as u64) as usize
    };
    let mut parts: Vec<Part> = Vec::new();
    for _ in 0..4 + below(8) {
        let from = 2 + below(18);
        let until = (from + 1 + below(8)).min(24);
        parts.push((from, until, below(2) == 0, false));
    }
    parts
}

pub fn all() -> Vec<Technique> {
    let mut all = Vec::new();
    for &(name, parts) in IN_ORDER {
        all.push(Technique::new(format!("in order: {name}"), move |talk: &mut Talk<'_>| play(talk, parts)));
    }
    let waiting = WAITING.iter().map(|&(name, parts)| (name.to_owned(), parts.to_vec()));
    let random = (0..RANDOM).map(|seed| (format!("at random, seed {seed}"), random(seed)));
    for (name, mut parts) in waiting.chain(random) {
        parts.push(real(0, 4));
        parts.push(real(4, 8));
        parts.push(real(4, 24));
        all.push(Technique::new(format!("waiting: {name}"), move |talk: &mut Talk<'_>| play(talk, &parts)));
    }
    all
}
