//! Sets that are refused, empty ones, and what is promised of all.

use mpm::{Cursor, LITERAL_MAX, LITERALS_MAX, Literal, Set, SetError};
use zerocopy::{FromZeros, IntoBytes};

#[test]
fn what_is_no_literal_is_refused() {
    let refused = |bytes: &[u8]| {
        let literals = [Literal::exact("good"), Literal::exact(bytes)];
        let error = Set::check(&literals).unwrap_err();
        assert_eq!(Set::new(literals).unwrap_err(), error);
        error
    };
    assert_eq!(refused(b""), SetError::Empty { literal: 1 });
    assert_eq!(refused(&[b'a'; LITERAL_MAX + 1]), SetError::TooLong { literal: 1, bytes: 33 });
    assert_eq!(refused(&[b'a'; 400]).to_string(), "literal 1 has 400 bytes; at most 32 are allowed");
}

#[test]
fn the_largest_set_is_searched_and_a_larger_one_refused() {
    let literals = |count| (0..count).map(|number: usize| Literal::exact(format!("<{number:05}>")));
    let checked = |count| Set::check(&literals(count).collect::<Vec<_>>());
    assert_eq!((checked(LITERALS_MAX), checked(LITERALS_MAX + 1)), (Ok(()), Err(SetError::TooMany)));
    let set = Set::new(literals(LITERALS_MAX)).unwrap();
    let mut seen = Vec::new();
    set.find(b"<00000> <65535> <65536> <12345", |literal, end| seen.push((literal, end)));
    seen.sort_unstable();
    assert_eq!(seen, [(0, 7), (65_535, 15)]);
    assert_eq!(Set::new(literals(LITERALS_MAX + 1)).unwrap_err(), SetError::TooMany);
}

#[test]
fn no_literals_are_nowhere() {
    let set = Set::new([]).unwrap();
    assert!(set.is_empty());
    set.find(&[0; 1000], |_, _| unreachable!());
    set.scan(&mut Cursor::default(), &[0; 1000], |_, _| unreachable!());
}

#[test]
fn a_fresh_cursor_is_32_zeros() {
    assert_eq!(Cursor::default(), Cursor::new_zeroed());
    assert_eq!(size_of::<Cursor>(), 32);
    let mut cursor = Cursor::default();
    Set::new([]).unwrap().scan(&mut cursor, b"abc", |_, _| ());
    assert_eq!(cursor.as_bytes(), [&b"abc"[..], &[0; 28], &[3]].concat());
}

#[test]
fn a_long_text_is_searched_to_its_end() {
    let set = Set::new([Literal::exact("needle")]).unwrap();
    for place in [0, 1, 65_500, 65_535, 65_536, 199_994] {
        let mut text = vec![b'.'; 200_000];
        text[place..place + 6].copy_from_slice(b"needle");
        let mut seen = Vec::new();
        set.find(&text, |literal, end| seen.push((literal, end)));
        assert_eq!(seen, [(0, place + 6)]);
    }
}

/// Of literals of three bytes, a few are looked for together with many longer ones.
#[test]
fn three_bytes_among_longer_ones_are_found_wherever_they_lie() {
    let longer = (0..200).map(|number| Literal::exact(format!("longer{number:04}")));
    let set = Set::new([Literal::exact("~^|"), Literal::nocase("qX}")].into_iter().chain(longer)).unwrap();
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
fn the_same_literals_give_the_same_order() {
    let literals = || (0..500).map(|number| Literal::nocase(format!("word{}", number % 170)));
    let text: Vec<u8> = (0..500).flat_map(|number| format!("WORD{number} ").into_bytes()).collect();
    let found = |set: Set| {
        let mut found = Vec::new();
        set.find(&text, |literal, end| found.push((literal, end)));
        found
    };
    assert_eq!(found(Set::new(literals()).unwrap()), found(Set::new(literals()).unwrap()));
}
