//! Measures the search for sets of literals: `cargo run --profile dist -p mpm --example speed`.
//!
//! A seeded generator makes sets and texts. Every text is searched in pieces of 1,460 bytes, and
//! all matches are reported. Figures are medians; the searches take turns so that conditions are
//! equal.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::hint::black_box;
use std::time::Instant;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, automaton::OverlappingState};
use mpm::{Cursor, Literal, LiteralSet};

#[path = "support/text.rs"]
mod text;

use text::{Lengths, Random, http, literals, near_misses};

/// Size of a text: larger than the L1 cache, and small enough that a busy machine rarely interrupts
/// a round.
const TEXT_BYTES: usize = 256 << 10;
/// A packet's payload.
const PIECE_BYTES: usize = 1460;
const ROUNDS: usize = 31;

fn main() {
    println!("                                              GB/s (one match in bytes)           KiB");
    println!("literals            search           HTTP           random     near misses");
    for (lengths, name) in [
        (Lengths::Long, "of 7-32 bytes"),
        (Lengths::Medium, "of 5-32 bytes"),
        (Lengths::Short, "of 4-32 bytes"),
        (Lengths::AsInRules, "as in rules"),
    ] {
        for count in [10, 30, 100, 500, 2000] {
            compare(&literals(count, lengths, &mut Random::new(7)), &format!("{count} {name}"));
        }
    }
}

/// Counts the matches in a text.
type Search<'a> = Box<dyn Fn(&[u8]) -> usize + 'a>;

/// A search, and its memory in bytes.
struct Entrant<'a> {
    name: &'static str,
    bytes: usize,
    search: Search<'a>,
}

fn compare(literals: &[Literal], title: &str) {
    let set = LiteralSet::new(literals.to_vec()).unwrap();
    let automaton = |kind| {
        let bytes = literals.iter().map(|literal| &literal.bytes);
        let mut builder = AhoCorasick::builder();
        builder
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(true)
            .kind(Some(kind))
            .build(bytes)
            .unwrap()
    };
    let (dfa, nfa) = (automaton(AhoCorasickKind::DFA), automaton(AhoCorasickKind::ContiguousNFA));
    let entrants = [
        Entrant { name: "this", bytes: set.memory_bytes(), search: Box::new(|text| scan(&set, text)) },
        Entrant { name: "DFA", bytes: dfa.memory_usage(), search: Box::new(|text| overlapping(&dfa, text)) },
        Entrant { name: "NFA", bytes: nfa.memory_usage(), search: Box::new(|text| overlapping(&nfa, text)) },
    ];
    let mut random = Random::new(1);
    let texts = [
        http(TEXT_BYTES, literals, &mut random),
        (0..TEXT_BYTES).map(|_| random.next() as u8).collect(),
        near_misses(TEXT_BYTES, literals, &mut random),
    ];
    let columns = texts.map(|text| measure(&entrants, &text));
    for (row, entrant) in entrants.iter().enumerate() {
        let cells = columns.iter().map(|column| format!("{:6.2} ({:>6.0})", column[row].0, column[row].1));
        let cells = cells.collect::<Vec<_>>().join("  ");
        println!("{title:20}{:8}{cells}  {:>8}", entrant.name, entrant.bytes / 1024);
    }
}

/// Returns each entrant's rate, and the bytes of text per match.
fn measure(entrants: &[Entrant], text: &[u8]) -> Vec<(f64, f64)> {
    let mut rates = vec![Vec::new(); entrants.len()];
    let mut matches = vec![0; entrants.len()];
    for _ in 0..ROUNDS {
        for (which, entrant) in entrants.iter().enumerate() {
            let begin = Instant::now();
            matches[which] = (entrant.search)(black_box(text));
            rates[which].push(text.len() as f64 / begin.elapsed().as_secs_f64() / 1e9);
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    rates
        .iter()
        .zip(matches)
        .map(|(rates, matches)| (rates[ROUNDS / 2], text.len() as f64 / matches as f64))
        .collect()
}

/// Counts the matches in a stream.
fn scan(set: &LiteralSet, text: &[u8]) -> usize {
    let (mut cursor, mut matches) = (Cursor::default(), 0);
    for piece in text.chunks(PIECE_BYTES) {
        set.scan(&mut cursor, piece, |literal, end| {
            black_box((literal, end));
            matches += 1;
        });
    }
    matches
}

/// Counts the matches in separate pieces: an automaton of that crate cannot be left and resumed.
fn overlapping(automaton: &AhoCorasick, text: &[u8]) -> usize {
    let mut matches = 0;
    for piece in text.chunks(PIECE_BYTES) {
        let mut state = OverlappingState::start();
        loop {
            automaton.find_overlapping(piece, &mut state);
            let Some(found) = state.get_match() else { break };
            black_box((found.pattern(), found.end()));
            matches += 1;
        }
    }
    matches
}
