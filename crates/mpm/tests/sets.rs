//! Refused sets, empty ones, and guarantees for all.

use mpm::{Cursor, LITERAL_MAX, LITERALS_MAX, Literal, LiteralSet, LiteralSetError};
use zerocopy::{FromZeros, IntoBytes};

#[test]
fn invalid_literals_are_refused() {
    let refused = |bytes: &[u8]| {
        let literals = [Literal::exact("good"), Literal::exact(bytes)];
        let error = LiteralSet::check(&literals).unwrap_err();
        assert_eq!(LiteralSet::new(literals).unwrap_err(), error);
        error
    };
    assert_eq!(refused(b""), LiteralSetError::Empty { literal: 1 });
    assert_eq!(refused(&[b'a'; LITERAL_MAX + 1]), LiteralSetError::TooLong { literal: 1, bytes: 33 });
    assert_eq!(refused(&[b'a'; 400]).to_string(), "literal 1 has 400 bytes; at most 32 are allowed");
}

#[test]
fn largest_set_is_searched_and_larger_one_refused() {
    let literals = |count| (0..count).map(|number: usize| Literal::exact(format!("<{number:05}>")));
    let checked = |count| LiteralSet::check(&literals(count).collect::<Vec<_>>());
    assert_eq!((checked(LITERALS_MAX), checked(LITERALS_MAX + 1)), (Ok(()), Err(LiteralSetError::TooMany)));
    let set = LiteralSet::new(literals(LITERALS_MAX)).unwrap();
    let mut seen = Vec::new();
    set.find(b"<00000> <65535> <65536> <12345", |literal, end| seen.push((literal, end)));
    seen.sort_unstable();
    assert_eq!(seen, [(0, 7), (65_535, 15)]);
    assert_eq!(LiteralSet::new(literals(LITERALS_MAX + 1)).unwrap_err(), LiteralSetError::TooMany);
}

#[test]
fn empty_set_finds_nothing() {
    let set = LiteralSet::new([]).unwrap();
    assert!(set.is_empty());
    set.find(&[0; 1000], |_, _| unreachable!());
    set.scan(&mut Cursor::default(), &[0; 1000], |_, _| unreachable!());
}

#[test]
fn fresh_cursor_is_32_zeros() {
    assert_eq!(Cursor::default(), Cursor::new_zeroed());
    assert_eq!(size_of::<Cursor>(), 32);
    let mut cursor = Cursor::default();
    LiteralSet::new([]).unwrap().scan(&mut cursor, b"abc", |_, _| ());
    assert_eq!(cursor.as_bytes(), [&b"abc"[..], &[0; 28], &[3]].concat());
}

#[test]
fn long_text_is_searched_to_its_end() {
    let set = LiteralSet::new([Literal::exact("needle")]).unwrap();
    for place in [0, 1, 65_500, 65_535, 65_536, 199_994] {
        let mut text = vec![b'.'; 200_000];
        text[place..place + 6].copy_from_slice(b"needle");
        let mut seen = Vec::new();
        set.find(&text, |literal, end| seen.push((literal, end)));
        assert_eq!(seen, [(0, place + 6)]);
    }
}

/// A few literals of three bytes are searched together with many longer ones.
#[test]
fn three_byte_literals_are_found_at_any_alignment() {
    let longer = (0..200).map(|number| Literal::exact(format!("longer{number:04}")));
    let set =
        LiteralSet::new([Literal::exact("~^|"), Literal::nocase("qX}")].into_iter().chain(longer)).unwrap();
    for (number, bytes) in [(0, b"~^|"), (1, b"Qx}")] {
        for (place, before) in (0..260).zip((0..=255).cycle()) {
            for behind in [0, 1, 200] {
                let mut text = vec![before; place];
                text.extend_from_slice(bytes);
                text.resize(place + 3 + behind, b'.');
                let mut seen = Vec::new();
                set.find(&text, |literal, end| seen.push((literal, end)));
                assert_eq!(seen, [(number, place + 3)], "behind {place} times {before}, before {behind}");
            }
        }
    }
}

#[test]
fn same_literals_give_the_same_order() {
    let literals = || (0..500).map(|number| Literal::nocase(format!("word{}", number % 170)));
    let text: Vec<u8> = (0..500).flat_map(|number| format!("WORD{number} ").into_bytes()).collect();
    let found = |set: LiteralSet| {
        let mut found = Vec::new();
        set.find(&text, |literal, end| found.push((literal, end)));
        found
    };
    assert_eq!(found(LiteralSet::new(literals()).unwrap()), found(LiteralSet::new(literals()).unwrap()));
}
