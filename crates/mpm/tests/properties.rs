//! The search compared with a naive one and with the crate `aho-corasick`.

#[path = "support/naive.rs"]
mod naive;

use aho_corasick::{AhoCorasick, MatchKind};
use mpm::{Cursor, LITERAL_MAX, Literal, LiteralSet};
use naive::naive;
use proptest::prelude::*;
use proptest::sample::Index;
use zerocopy::{FromBytes, IntoBytes};

/// Few distinct bytes, so that literals match often, overlap, and begin and end one another. Among
/// them the two cases of letters, and pairs that differ in the case bit without being letters.
fn alphabet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"a".to_vec()),
        Just(b"ab".to_vec()),
        Just(b"aAbB".to_vec()),
        Just(b"@`[{\x00 \r-zZ".to_vec()),
        Just((0..=255).collect()),
    ]
}

fn text(alphabet: Vec<u8>, lengths: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(alphabet), lengths)
}

/// Literals of at least this length, and a text that contains some of them.
fn case() -> impl Strategy<Value = (Vec<Literal>, Vec<u8>)> {
    (alphabet(), 1..=12usize).prop_flat_map(|(alphabet, shortest)| {
        let literal =
            (text(alphabet.clone(), shortest..=LITERAL_MAX), 0..=LITERAL_MAX - shortest, any::<bool>())
                .prop_map(move |(mut bytes, spare, nocase)| {
                    bytes.truncate((LITERAL_MAX - spare).max(shortest));
                    Literal { bytes, nocase }
                });
        let literals = prop::collection::vec(literal, 0..20);
        let put = prop::collection::vec((any::<Index>(), any::<Index>(), any::<bool>()), 0..12);
        (literals, text(alphabet, 0..=400), put).prop_map(|(literals, mut text, put)| {
            for (which, place, upper) in put.iter().filter(|_| !literals.is_empty()) {
                let mut bytes = which.get(&literals).bytes.clone();
                if *upper {
                    bytes.make_ascii_uppercase();
                }
                let at = place.index(text.len() + 1);
                text.splice(at..at, bytes);
            }
            (literals, text)
        })
    })
}

/// The text, cut at these positions.
fn pieces<'a>(text: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).chain([text.len()]).collect();
    ends.sort_unstable();
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// Returns all occurrences in a stream of these pieces, sorted, with ends from the start of the
/// stream. The cursor is moved as bytes between pieces.
fn scanned(set: &LiteralSet, pieces: &[&[u8]]) -> Vec<(u32, usize)> {
    let (mut bytes, mut before, mut found) = ([0u8; size_of::<Cursor>()], 0, Vec::new());
    for piece in pieces {
        let mut cursor: Cursor = zerocopy::transmute!(bytes);
        set.scan(&mut cursor, piece, |literal, end| {
            assert!(0 < end && end <= piece.len());
            found.push((literal, before + end));
        });
        before += piece.len();
        bytes.copy_from_slice(cursor.as_bytes());
    }
    found.sort_unstable();
    found
}

fn found(set: &LiteralSet, text: &[u8]) -> Vec<(u32, usize)> {
    let mut found = Vec::new();
    set.find(text, |literal, end| found.push((literal, end)));
    found.sort_unstable();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_occurrence_is_found_once((literals, text) in case()) {
        let set = LiteralSet::new(literals.clone()).unwrap();
        prop_assert_eq!(found(&set, &text), naive(&literals, &text));
    }

    #[test]
    fn cuts_change_nothing((literals, text) in case(), cuts in prop::collection::vec(any::<Index>(), 0..40)) {
        let set = LiteralSet::new(literals.clone()).unwrap();
        let expected = naive(&literals, &text);
        prop_assert_eq!(&scanned(&set, &pieces(&text, &cuts)), &expected);
        prop_assert_eq!(&scanned(&set, &text.chunks(1).collect::<Vec<_>>()), &expected);
    }

    #[test]
    fn any_bytes_are_a_valid_cursor((literals, text) in case(), bytes: [u8; 32]) {
        let set = LiteralSet::new(literals.clone()).unwrap();
        let mut cursor = Cursor::read_from_bytes(&bytes).unwrap();
        let recent = &bytes[..usize::from(bytes[31]).min(31)];
        let mut seen = Vec::new();
        set.scan(&mut cursor, &text, |literal, end| seen.push((literal, end)));
        seen.sort_unstable();
        let whole = [recent, &text].concat();
        let expected: Vec<_> = naive(&literals, &whole).into_iter()
            .filter_map(|(literal, end)| Some((literal, end.checked_sub(recent.len()).filter(|&end| end > 0)?)))
            .collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn cursor_is_independent_of_the_set((literals, text) in case(), cut: Index) {
        let cut = cut.index(text.len() + 1);
        let mut cursor = Cursor::default();
        LiteralSet::new([]).unwrap().scan(&mut cursor, &text[..cut], |_, _| unreachable!());
        let mut seen = Vec::new();
        LiteralSet::new(literals.clone()).unwrap().scan(&mut cursor, &text[cut..], |literal, end| seen.push((literal, cut + end)));
        seen.sort_unstable();
        let expected: Vec<_> = naive(&literals, &text).into_iter().filter(|&(_, end)| end > cut).collect();
        prop_assert_eq!(seen, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// As many literals as are in use, and another implementation.
    #[test]
    fn large_sets_agree_with_aho_corasick(
        words in prop::collection::vec("[a-eA-E/.=]{2,12}", 1..1500),
        shortest in 1..10usize,
        text in prop::collection::vec("[a-eA-E/.=]{1,12}|GET |Host: |\r\n", 0..1500),
        picks in prop::collection::vec(any::<Index>(), 0..50),
        nocase: bool,
    ) {
        let literals: Vec<Literal> =
            words.into_iter().filter(|word| word.len() >= shortest).map(|word| Literal { bytes: word.into(), nocase }).collect();
        prop_assume!(!literals.is_empty());
        let mut text = text.concat().into_bytes();
        for pick in picks {
            text.extend(&pick.get(&literals).bytes);
        }
        let other = AhoCorasick::builder().match_kind(MatchKind::Standard).ascii_case_insensitive(nocase)
            .build(literals.iter().map(|literal| &literal.bytes)).unwrap();
        let mut expected: Vec<_> =
            other.find_overlapping_iter(&text).map(|found| (found.pattern().as_u32(), found.end())).collect();
        expected.sort_unstable();
        let set = LiteralSet::new(literals).unwrap();
        prop_assert_eq!(&found(&set, &text), &expected);
        prop_assert_eq!(&scanned(&set, &text.chunks(100).collect::<Vec<_>>()), &expected);
    }
}
