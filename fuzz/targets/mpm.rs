//! Any literals in any text, in any pieces: the matches are those of a naive search, each once.
//!
//! Input: the number of literals; each literal with its length and case flag before it; the number
//! of pieces; the lengths of the pieces; the rest is the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mpm::{Cursor, Literal, LITERAL_MAX, LiteralSet};
use zerocopy::{FromBytes, IntoBytes};

#[path = "../../crates/mpm/tests/support/naive.rs"]
mod naive;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut literals = Vec::new();
    for _ in 0..take(&mut rest, 1).first().map_or(0, |count| count % 32) {
        let [head] = *take(&mut rest, 1) else { break };
        let bytes = take(&mut rest, usize::from(head >> 1) % LITERAL_MAX + 1);
        if !bytes.is_empty() {
            literals.push(Literal { bytes: bytes.to_vec(), nocase: head & 1 == 1 });
        }
    }
    let count = take(&mut rest, 1).first().map_or(0, |&count| usize::from(count));
    let lengths = take(&mut rest, count);
    let text = rest;

    let Ok(set) = LiteralSet::new(literals.clone()) else { unreachable!("their lengths are allowed") };
    let expected = naive::naive(&literals, text);
    let mut whole = Vec::new();
    set.find(text, |literal, end| whole.push((literal, end)));
    whole.sort_unstable();
    assert_eq!(whole, expected);

    let (mut cursor, mut before, mut seen) = ([0; size_of::<Cursor>()], 0, Vec::new());
    for length in lengths.iter().map(|&length| usize::from(length)).chain([text.len()]) {
        let piece = take(&mut rest, length);
        let mut moved = Cursor::read_from_bytes(&cursor).unwrap_or_default();
        set.scan(&mut moved, piece, |literal, end| seen.push((literal, before + end)));
        before += piece.len();
        cursor.copy_from_slice(moved.as_bytes());
    }
    seen.sort_unstable();
    assert_eq!(seen, expected);
});

/// Returns the next `count` bytes, or the rest.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}
