//! Expressions on bytes: the matches equal those of PCRE2.

use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::{Union, ValueTree};
use proptest::test_runner::TestRunner;

use super::*;
use crate::PcreFlags;
use crate::inspect::STEPS_MAX;

/// Reads lines of options, expression, first place and text, in hexadecimal. Prints for each the
/// match that PCRE2 finds, `-` if there is none, or `!` if it refuses the expression.
const PCRE2: &str = r#"
import ctypes, sys
lib = ctypes.CDLL("libpcre2-8.so.0")
sized, pointer = ctypes.c_size_t, ctypes.c_void_p
lib.pcre2_compile_8.restype = lib.pcre2_match_data_create_8.restype = pointer
lib.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(sized)
lib.pcre2_get_ovector_pointer_8.argtypes = lib.pcre2_code_free_8.argtypes = [pointer]
code = ctypes.c_int()
where = sized()
data = lib.pcre2_match_data_create_8(64, None)
for line in sys.stdin:
    options, expression, first, text = line[:-1].split(" ")
    expression, text = bytes.fromhex(expression), bytes.fromhex(text)
    compiled = lib.pcre2_compile_8(expression, sized(len(expression)), ctypes.c_uint32(int(options, 16)),
                                   ctypes.byref(code), ctypes.byref(where), None)
    if not compiled:
        print("!")
        continue
    found = lib.pcre2_match_8(pointer(compiled), text, sized(len(text)), sized(int(first)), 0, pointer(data), None)
    vector = lib.pcre2_get_ovector_pointer_8(data)
    print("-" if found < 0 else f"{vector[0]} {vector[1]}")
    lib.pcre2_code_free_8(compiled)
"#;

/// An expression with its flags, and a text with the first place.
type Case = (String, &'static str, usize, Vec<u8>);

/// Returns PCRE2's result of each case; none if it is not installed.
fn pcre2(cases: &[Case]) -> Option<Vec<String>> {
    let mut command = Command::new("python3");
    command.args(["-c", PCRE2]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return skip("no python3") };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let letters = [('i', 0x8), ('m', 0x400), ('s', 0x20), ('x', 0x80), ('E', 0x10), ('G', 0x40000)];
    let lines: String = cases
        .iter()
        .map(|(pattern, flags, first, text)| {
            let anchored = if flags.contains('A') { 0x8000_0000u32 } else { 0 };
            let options = letters.iter().filter(|(letter, _)| flags.contains(*letter));
            let options = options.fold(anchored, |all, (_, option)| all | option);
            format!("{options:x} {} {first} {}\n", hex(pattern.as_bytes()), hex(text))
        })
        .collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    if !output.status.success() {
        return skip("no PCRE2");
    }
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    println!("SKIPPED: {why}");
    None
}

fn pcre(pattern: &str, letters: &str) -> Pcre {
    let mut flags = PcreFlags::default();
    letters.chars().for_each(|letter| *flags.get_mut(letter).unwrap() = true);
    Pcre { pattern: pattern.to_owned(), negated: false, relative: false, flags, captures: Vec::new() }
}

/// Returns the match, or `None` if the budget is spent.
fn find(matcher: &Backtracker, text: &[u8], first: usize) -> Option<Option<(usize, usize)>> {
    let mut budget = Budget::new(INSTRUCTION_BYTES, text.len(), STEPS_MAX);
    let found = matcher.find(text, 0, first, &mut Backtracks::default(), &mut budget);
    (!budget.is_spent()).then(|| found.map(|span| (span.start, span.end)))
}

/// Compares the cases; returns how many were compared, and how many match.
fn compare(cases: &[Case]) -> Option<(usize, usize)> {
    let (mut compared, mut matched, mut wrong) = (0, 0, 0);
    for (expected, case) in pcre2(cases)?.iter().zip(cases) {
        let (pattern, flags, first, text) = case;
        let matcher = match Backtracker::new(&pcre(pattern, flags)) {
            Ok(matcher) => matcher,
            Err(UnsupportedReason::TooLarge) => continue,
            Err(refused) => {
                if expected != "!" {
                    println!("/{pattern}/{flags} is refused: {refused}");
                    wrong += 1;
                }
                continue;
            }
        };
        let Some(found) = find(&matcher, text, *first) else { continue };
        if expected == "!" {
            continue;
        }
        let found = found.map_or("-".to_owned(), |(start, end)| format!("{start} {end}"));
        if found != *expected {
            println!(
                "/{pattern}/{flags} on {:?} from {first}: {found}, PCRE2: {expected}",
                text.escape_ascii().to_string()
            );
            wrong += 1;
        }
        compared += 1;
        matched += usize::from(found != "-");
    }
    assert_eq!(wrong, 0);
    Some((compared, matched))
}

fn expression() -> BoxedStrategy<String> {
    let atoms = select(vec![
        "a",
        "b",
        "A",
        "ab",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\W",
        r"\xe9",
        r"\n",
        "é",
        r"\b",
        r"\B",
        "^",
        "$",
        r"\A",
        r"\z",
        r"\Z",
        r"\1",
        r"\2",
        r"\g{-1}",
        "(a)",
        "(b|a)",
        "(?i)",
        "(?-i)",
        "(?s)",
        "[[:upper:]]",
        r"\R",
        r"\r",
        "(?<!a)",
        "(?<=b|^)",
        "(?<=ab|a)",
        "(?<!^|b)",
        r"(?<=\w)",
        "(?!$)",
    ]);
    let atoms = atoms.prop_map(str::to_owned);
    atoms
        .prop_recursive(4, 24, 4, |inner| {
            let groups = select(vec!["(", "(", "(", "(?:", "(?:", "(?=", "(?!", "(?>", "(?i:", "(?P<n>"]);
            let repeated = select(vec![
                "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{2,}", "{0,2}?", "{1,}+",
                "{,2}",
            ]);
            let sequence = prop::collection::vec(inner.clone(), 1..4).prop_map(|items| items.concat());
            let either = prop::collection::vec(inner, 2..4).prop_map(|items| items.join("|"));
            Union::new_weighted(vec![
                (3, sequence.clone().boxed()),
                (
                    2,
                    (groups.clone(), sequence.clone())
                        .prop_map(|(open, inside)| format!("{open}{inside})"))
                        .boxed(),
                ),
                (2, (groups.clone(), either).prop_map(|(open, inside)| format!("{open}{inside})")).boxed()),
                (
                    3,
                    (groups, sequence, repeated)
                        .prop_map(|(open, inside, times)| format!("{open}{inside}){times}"))
                        .boxed(),
                ),
            ])
        })
        .boxed()
}

#[test]
fn matches_are_those_of_pcre2() {
    let flags = select(vec!["", "", "", "i", "s", "m", "ms", "x", "A", "E", "G", "iG", "mE"]);
    let text = prop::collection::vec(select(b"aaabbbABb\n\n\r \x00\xe9\xc3\xa9".to_vec()), 0..12);
    let case = (expression(), flags, text, 0usize..4);
    let mut runner = TestRunner::deterministic();
    let cases: Vec<Case> = (0..CASES)
        .map(|_| case.new_tree(&mut runner).unwrap().current())
        // Anchored means at the beginning of the input here, and at the first place in PCRE2.
        .map(|(pattern, flags, text, first)| {
            let first = if flags.contains('A') { 0 } else { first.min(text.len()) };
            (pattern, flags, first, text)
        })
        .collect();
    let Some((compared, matched)) = compare(&cases) else { return };
    println!("{compared} of {CASES} compared, {matched} match");
    assert!(compared > CASES / 2 && matched > CASES / 5);
}

const CASES: usize = 20_000;
