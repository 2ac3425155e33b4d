//! Small rules on texts of few letters: the result equals that of the slow oracle.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::{Union, ValueTree};
use signatures::Buffer;
use signatures::inspect::{Inspection, InspectionScratch};

use crate::support::oracle::{Oracle, State};
use crate::support::try_rule;

const PATTERNS: &[&str] = &["a", "b", "aa", "ab", "ba", "abb", "A", "aB", "|01|", "|02|a", "1", "YWE"];
const EXPRESSIONS: &[&str] =
    &["a", "a+b", "a+?", "^a", "b$", "(a|ab)", "a*", "\\bb", "[^a]b", "a.b", "(b|$)", "\\Ba"];
const SIZES: &[&str] = &["<9", ">3", "4<>20", "!7"];
/// Options that set variables: from a fixed place, or from a place relative to a content.
const VARIABLES: &[&str] = &[
    "byte_extract:1,0,v0; byte_math:bytes 1, offset 1, oper -, rvalue 1, result v1;",
    "content:\"a\"; byte_extract:1,0,v0,relative; byte_math:bytes 1, offset 1, oper >>, rvalue v0, result v1, relative;",
    "pcre:\"/a|b/\"; byte_math:bytes 1, offset 0, oper +, rvalue 1, result v0, relative; byte_extract:1,v0,v1;",
    "byte_extract:1,2,v0,string,dec; content:\"a\"; offset:v0; byte_extract:1,-1,v1,relative;",
];
const BEFORE: &[&str] =
    &["", "", "", "", "http.uri;", "pkt_data;", "base64_data;", "http.header; to_lowercase;"];

/// Generates a number, or sometimes a variable.
fn operand(numbers: std::ops::Range<i32>) -> impl Strategy<Value = String> {
    prop_oneof![5 => numbers.prop_map(|number| number.to_string()), 1 => select(vec!["v0", "v1"]).prop_map(str::to_owned)]
}

fn content() -> impl Strategy<Value = String> {
    let position = prop_oneof![
        2 => Just(String::new()),
        1 => (operand(0..6), operand(1..9)).prop_map(|(offset, depth)| format!("offset:{offset}; depth:{depth};")),
        1 => operand(0..6).prop_map(|offset| format!("offset:{offset};")),
        1 => Just("startswith;".to_owned()),
        3 => operand(-3..4).prop_map(|distance| format!("distance:{distance};")),
        2 => operand(1..6).prop_map(|within| format!("within:{within};")),
        3 => (operand(-3..4), operand(1..6)).prop_map(|(d, w)| format!("distance:{d}; within:{w};")),
    ];
    let ends = prop::bool::weighted(0.1);
    (prop::bool::weighted(0.2), select(PATTERNS), position, any::<bool>(), ends).prop_map(
        |(negated, pattern, position, nocase, ends)| {
            let not = if negated { "!" } else { "" };
            let nocase = if nocase { "nocase;" } else { "" };
            format!("content:{not}\"{pattern}\"; {position} {nocase} {}", if ends { "endswith;" } else { "" })
        },
    )
}

fn expression() -> impl Strategy<Value = String> {
    let flags = select(vec!["", "R", "R", "Ri", "RA", "m", "sR"]);
    (prop::bool::weighted(0.2), select(EXPRESSIONS), flags).prop_map(|(negated, text, flags)| {
        format!("pcre:{}\"/{text}/{flags}\";", if negated { "!" } else { "" })
    })
}

/// Generates the options that numbers share.
fn number() -> impl Strategy<Value = (String, String, String)> {
    let options = select(vec![
        "",
        ",relative",
        ",relative",
        ",relative,little",
        ",relative,string,dec",
        ",string,hex",
        ",relative,string",
        ",relative,bitmask 0x6",
    ]);
    (operand(1..3), operand(-2..4), options.prop_map(str::to_owned))
}

fn numeric() -> impl Strategy<Value = String> {
    let operators = select(vec!["<", "<=", ">", ">=", "=", "&", "^", "!=", "!&"]);
    let jumps = select(vec![
        "",
        ",align",
        ",multiplier 2",
        ",from_beginning",
        ",from_end,post_offset -3",
        ",post_offset -1",
    ]);
    let extracts = select(vec!["", ",multiplier 3", ",align 2"]);
    let math = select(vec!["+", "-", "*", "/", "<<", ">>"]);
    prop_oneof![
        (number(), operators, operand(0..100))
            .prop_map(|((n, at, rest), sign, value)| format!("byte_test:{n},{sign},{value},{at}{rest};")),
        (number(), jumps).prop_map(|((n, at, rest), own)| format!("byte_jump:{n},{at}{rest}{own};")),
        (number(), extracts).prop_map(|((n, at, rest), own)| format!("byte_extract:{n},{at},v2{rest}{own};")),
        (number(), math, operand(0..4)).prop_map(|((n, at, rest), sign, value)| format!(
            "byte_math:bytes {n}, offset {at}, oper {sign}, rvalue {value}, result v3{rest};"
        )),
        (any::<bool>(), operand(0..9), any::<bool>()).prop_map(|(not, at, relative)| format!(
            "isdataat:{}{at}{};",
            if not { "!" } else { "" },
            if relative { ",relative" } else { "" }
        )),
        (0..6u8, any::<bool>()).prop_map(|(at, relative)| format!(
            "base64_decode:offset {at}{};",
            if relative { ",relative" } else { "" }
        )),
        (1..9u8).prop_map(|bytes| format!("base64_decode:bytes {bytes},relative;")),
        select(SIZES).prop_map(|size| format!("bsize:{size};")),
    ]
}

fn options() -> impl Strategy<Value = String> {
    let one =
        Union::new_weighted(vec![(5, content().boxed()), (1, expression().boxed()), (3, numeric().boxed())]);
    let rest = prop::collection::vec((select(BEFORE), one), 1..6);
    (select(VARIABLES), rest).prop_map(|(variables, rest)| {
        let rest = rest.into_iter().map(|(before, one)| format!("{before} {one}")).collect::<String>();
        // Without variables if there are none to set.
        if rest.contains("v0") || rest.contains("v1") { format!("{variables} {rest}") } else { rest }
    })
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(b"aaabbbABAB\x00\x01\x01\x02\x03\n 123xYWEW=".to_vec()), 0..24)
}

/// Evaluates both ways; returns whether anything was compared.
fn compare(options: &str, texts: [&[u8]; 2], start: u64) -> bool {
    let Ok(rule) = try_rule(options) else { return false };
    let Ok(inspection) = Inspection::new(&rule) else { return false };
    let mut scratch = InspectionScratch::new();
    let mut state = State::default();
    scratch.begin();
    for (index, (one, matches)) in inspection.buffers().iter().zip(&rule.buffers).enumerate() {
        let decoded = state.decoded.clone();
        let (text, holds) = match one.buffer() {
            Buffer::Base64Data => (&decoded[..], one.holds_decoded(&mut scratch)),
            _ => (texts[index % 2], one.holds_at(texts[index % 2], start, &mut scratch)),
        };
        let mut transformed = Vec::new();
        one.transforms().apply(text, &mut transformed);
        let start = if one.buffer() == Buffer::Base64Data { 0 } else { start };
        let found = Oracle::new(&matches.matches, &transformed, start, 300_000).holds(&state);
        if scratch.exhausted() > 0 {
            assert!(!holds);
            return false;
        }
        let Ok(found) = found else { return false };
        assert_eq!(holds, found.is_some(), "{options} buffer {index} of {texts:?} at {start}");
        let Some(found) = found else { break };
        state = found;
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_what_the_slow_way_finds(
        options in options(), texts in [text(), text()], start in prop_oneof![3 => Just(0u64), 1 => 1u64..6],
    ) {
        compare(&options, [&texts[0], &texts[1]], start);
    }

    #[test]
    fn chains_of_contents_are_what_the_slow_way_finds(
        chain in prop::collection::vec(content(), 1..6), text in text(), start in prop_oneof![3 => Just(0u64), 1 => 1u64..6],
    ) {
        compare(&chain.concat(), [&text, &text], start);
    }
}

/// The properties above are void if few of the rules load.
#[test]
fn most_rules_are_compared() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut compared, mut all_hold) = (0, 0);
    for _ in 0..2000 {
        let one = (options(), text()).new_tree(&mut runner).unwrap().current();
        compared += usize::from(compare(&one.0, [&one.1, &one.1], 0));
        all_hold += usize::from(try_rule(&one.0).is_ok() && crate::support::tries(&one.0, &one.1));
    }
    println!("{compared} of 2000 rules are compared, {all_hold} hold");
    assert!(compared > 700 && all_hold > 70);
}
