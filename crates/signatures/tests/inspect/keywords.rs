//! Each keyword, on bytes that match and on bytes that do not.
//!
//! The expectations are those of Suricata's user guide: payload keywords, Base64 keywords,
//! transforms.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{all_hold, holds, holds_at, rule};
use signatures::ExpressionFeature;
use signatures::inspect::{
    FLOW_STEPS_MAX, FLOW_STEPS_PER_PACKET, Inspection, InspectionScratch, PACKET_STEPS_MAX, STEPS_MAX,
    UnsupportedReason,
};

/// Checks rows of options, bytes, and whether they match.
fn check(rows: &[(&str, &[u8], bool)]) {
    for (options, bytes, expected) in rows {
        assert_eq!(holds(options, bytes), *expected, "{options} on {}", bytes.escape_ascii());
    }
}

#[test]
fn content() {
    check(&[
        (r#"content:"bc";"#, b"abcd", true),
        (r#"content:"bc";"#, b"aBcd", false),
        (r#"content:"bC"; nocase;"#, b"aBcd", true),
        (r#"content:"b|3b 00|"; nocase;"#, b"aB;\0", true),
        (r#"content:"bc";"#, b"", false),
        (r#"content:!"bc";"#, b"abd", true),
        (r#"content:!"bc";"#, b"abc", false),
        (r#"content:!"bc";"#, b"", true),
        (r#"content:"a"; content:"b";"#, b"ba", true),
        (r#"content:"a"; content:"a";"#, b"a", true),
    ]);
}

#[test]
fn offset_and_depth() {
    check(&[
        (r#"content:"ab"; offset:2;"#, b"ab_", false),
        (r#"content:"ab"; offset:2;"#, b"__ab", true),
        (r#"content:"ab"; depth:3;"#, b"_ab", true),
        (r#"content:"ab"; depth:3;"#, b"__ab", false),
        // The depth counts from the offset.
        (r#"content:"ab"; offset:2; depth:3;"#, b"___ab", true),
        (r#"content:"ab"; offset:2; depth:3;"#, b"____ab", false),
        (r#"content:"ab"; offset:9;"#, b"ab", false),
        (r#"content:!"ab"; offset:9;"#, b"ab", true),
        (r#"content:!"ab"; depth:2;"#, b"_ab", true),
        (r#"content:!"ab"; depth:2;"#, b"ab", false),
        (r#"content:"ab"; startswith;"#, b"ab_", true),
        (r#"content:"ab"; startswith;"#, b"_ab", false),
        (r#"content:"AB"; startswith; nocase;"#, b"ab_", true),
        (r#"content:"ab"; endswith;"#, b"ab_ab", true),
        (r#"content:"ab"; endswith;"#, b"ab_", false),
        (r#"content:!"ab"; endswith;"#, b"ab_", true),
        (r#"content:!"ab"; endswith;"#, b"_ab", false),
        (r#"content:"ab"; depth:2; endswith;"#, b"ab", true),
        (r#"content:"ab"; depth:2; endswith;"#, b"abab", false),
    ]);
}

#[test]
fn distance_and_within() {
    check(&[
        (r#"content:"a"; content:"b"; distance:0;"#, b"ab", true),
        (r#"content:"a"; content:"b"; distance:0;"#, b"ba", false),
        (r#"content:"a"; content:"b"; distance:2;"#, b"a_b", false),
        (r#"content:"a"; content:"b"; distance:2;"#, b"a__b", true),
        (r#"content:"a"; content:"bc"; within:3;"#, b"a_bc", true),
        (r#"content:"a"; content:"bc"; within:3;"#, b"a__bc", false),
        (r#"content:"a"; content:"b"; distance:1; within:2;"#, b"a__b", true),
        (r#"content:"a"; content:"b"; distance:1; within:2;"#, b"a___b", false),
        (r#"content:"b"; content:"ab"; distance:-2;"#, b"ab", true),
        (r#"content:"b"; content:"ab"; distance:-9; within:8;"#, b"ab", false),
        (r#"content:"b"; content:"ab"; distance:-9; within:9;"#, b"abbbbbbbb", true),
        (r#"content:"a"; content:!"b"; within:2;"#, b"a_cb", true),
        (r#"content:"a"; content:!"b"; within:2;"#, b"a_b", false),
        // A negated content does not move the cursor.
        (r#"content:"a"; content:!"x"; distance:0; content:"b"; within:1;"#, b"ab", true),
        // A content without a relative position starts at the beginning.
        (r#"content:"b"; content:"a"; content:"b"; distance:0;"#, b"ba", false),
    ]);
}

#[test]
fn other_places_are_tried() {
    check(&[
        (r#"content:"a"; content:"b"; within:1;"#, b"a_ab", true),
        (r#"content:"a"; content:"b"; distance:1; within:1; content:"c"; within:1;"#, b"a_b_a_bc", true),
        (r#"content:"a"; content:!"b"; within:1;"#, b"abab", false),
        (r#"content:"a"; content:!"b"; within:1;"#, b"abac", true),
        (r#"content:"aa"; content:"b"; within:1;"#, b"aaab", true),
        (r#"pcre:"/a+/"; content:"b"; within:1;"#, b"a_aab", true),
        // At another place, other bytes precede the expression.
        (r#"content:"a"; pcre:"/\bb/R";"#, b"aab", true),
        (r#"content:"a"; isdataat:!1,relative;"#, b"aba", true),
        (
            r#"content:"a"; byte_extract:1,0,n,relative; content:"b"; distance:n; within:1;"#,
            b"a\x02a\x02_b",
            false,
        ),
        (
            r#"content:"a"; byte_extract:1,0,n,relative; content:"b"; distance:n; within:1;"#,
            b"a\x02a\x01_b",
            true,
        ),
    ]);
}

#[test]
fn pcre() {
    check(&[
        (r#"pcre:"/b+c/";"#, b"abbc", true),
        (r#"pcre:"/B/";"#, b"abbc", false),
        (r#"pcre:"/B/i";"#, b"abbc", true),
        (r#"pcre:!"/b/";"#, b"ac", true),
        (r#"pcre:!"/b/";"#, b"abc", false),
        (r#"pcre:"/^b/";"#, b"a\nb", false),
        (r#"pcre:"/^b/m";"#, b"a\nb", true),
        // No line begins after the last line ending.
        (r#"pcre:"/^$/m";"#, b"a\n", false),
        (r#"pcre:"/^$/m";"#, b"a\n\nb", true),
        // CR and LF are one line ending.
        (r#"pcre:"/a\R\n/";"#, b"a\r\n", false),
        (r#"pcre:"/a\R\n/";"#, b"a\r\n\n", true),
        (r#"pcre:"/a.b/";"#, b"a\nb", false),
        (r#"pcre:"/a.b/s";"#, b"a\nb", true),
        (r#"pcre:"/\xff\x00/";"#, b"\xff\x00", true),
        (r#"content:"a"; pcre:"/^b/R";"#, b"_ab", true),
        (r#"content:"a"; pcre:"/^b/R";"#, b"_a_b", false),
        (r#"content:"a"; pcre:!"/b/R";"#, b"ba", true),
        (r#"pcre:"/a+?/"; content:"a"; within:1;"#, b"aa", true),
        (r#"pcre:"/a+/"; content:"a"; within:1;"#, b"aa", false),
    ]);
}

#[test]
fn isdataat() {
    check(&[
        ("isdataat:2;", b"abc", true),
        ("isdataat:3;", b"abc", false),
        ("isdataat:!3;", b"abc", true),
        (r#"content:"a"; isdataat:2,relative;"#, b"abc", true),
        (r#"content:"a"; isdataat:3,relative;"#, b"abc", false),
        (r#"content:"a"; content:"b"; within:9; isdataat:!1,relative;"#, b"ab", true),
        ("byte_extract:1,0,n; isdataat:n;", b"\x01_", true),
        ("byte_extract:1,0,n; isdataat:n;", b"\x02_", false),
    ]);
}

#[test]
fn bsize() {
    check(&[
        ("http.uri; bsize:3;", b"abc", true),
        ("http.uri; bsize:3;", b"ab", false),
        ("http.uri; bsize:1<>4;", b"abc", true),
        ("http.uri; bsize:1<>3;", b"abc", false),
        ("urilen:<3;", b"ab", true),
    ]);
}

#[test]
fn byte_test() {
    check(&[
        ("byte_test:2,>,255,0;", b"\x01\x00", true),
        ("byte_test:2,>,255,0,little;", b"\x01\x00", false),
        ("byte_test:2,=,1,0,little;", b"\x01\x00", true),
        ("byte_test:2,=,1,0;", b"\x01", false),
        ("byte_test:2,!=,1,0;", b"\x01", false),
        ("byte_test:1,&,6,0;", b"\x04", true),
        ("byte_test:1,&,6,0;", b"\x01", false),
        ("byte_test:1,!&,6,0;", b"\x01", true),
        ("byte_test:1,^,5,0;", b"\x05", false),
        ("byte_test:1,>=,5,1;", b"\x09\x05", true),
        ("byte_test:1,<=,5,1;", b"\x01\x06", false),
        ("byte_test:2,=,6,0,bitmask 0x0f00;", b"\x16\xff", true),
        ("byte_test:3,=,123,0,string,dec;", b"123", true),
        ("byte_test:3,=,0x12,0,string,hex;", b"12\r", true),
        ("byte_test:3,=,8,0,string,oct;", b"010", true),
        ("byte_test:4,=,16,0,string;", b"0x10", true),
        ("byte_test:3,>,0,0,string,dec;", b"abc", false),
        (r#"content:"a"; byte_test:1,=,1,1,relative;"#, b"_a\x02\x01", true),
        (r#"content:"a"; byte_test:1,=,1,-2,relative;"#, b"\x01a", true),
        (r#"content:"a"; byte_test:1,=,1,-3,relative;"#, b"\x01a", false),
        ("byte_extract:1,0,n; byte_test:1,>,n,1;", b"\x01\x02", true),
        ("byte_extract:1,0,n; byte_test:n,=,258,1;", b"\x02\x01\x02", true),
        ("byte_extract:1,0,n; byte_test:n,=,0,1;", b"\x09\0\0\0\0\0\0\0\0\0", false),
        ("byte_test:8,>,0xfffffffffffffffe,0;", &[0xff; 8], true),
    ]);
}

#[test]
fn byte_jump() {
    check(&[
        (r#"byte_jump:1,0; content:"x"; within:1;"#, b"\x02__x", true),
        (r#"byte_jump:1,0; content:"x"; within:1;"#, b"\x01__x", false),
        (r#"content:"a"; byte_jump:1,1,relative; content:"x"; within:1;"#, b"_a_\x01_x", true),
        (r#"byte_jump:1,1,from_beginning; content:"x"; within:1;"#, b"_\x03_x", true),
        (r#"byte_jump:0,0,from_end,post_offset -2; content:"x"; within:1;"#, b"____x_", true),
        (r#"byte_jump:1,0,multiplier 2; content:"x"; within:1;"#, b"\x02____x", true),
        (r#"byte_jump:1,0,align; content:"x"; within:1;"#, b"\x01____x", true),
        (r#"byte_jump:1,0,align; content:"x"; within:1;"#, b"\x04____x", true),
        (r#"byte_jump:1,0,post_offset -1; content:"x"; within:1;"#, b"\x02_x", true),
        (r#"byte_jump:2,0,string,dec; content:"x"; within:1;"#, b"02__x", true),
        ("byte_jump:1,0;", b"\x02__", true),
        ("byte_jump:1,0;", b"\x03__", false),
        // A jump to before the beginning leads to the beginning.
        (r#"byte_jump:1,0,post_offset -2; content:"a"; within:1;"#, b"\x00a", false),
        (r#"byte_jump:1,1,post_offset -9; content:"a"; within:1;"#, b"a\x00", true),
        (r#"content:"bc"; byte_jump:0,0,relative,post_offset -100; content:"a"; within:1;"#, b"a_bc", true),
        // From the end of the digits, however many were allowed.
        (r#"byte_jump:4,0,string,dec; content:"x"; within:1;"#, b"02____x", false),
        (r#"byte_jump:4,0,string,dec; content:"x"; within:1;"#, b"02__x", true),
        ("byte_jump:1,1;", b"\x00", false),
        ("byte_jump:1,0; isdataat:!1,relative;", b"\x01_", true),
        ("byte_jump:8,0,multiplier 65535;", &[0xff; 8], false),
    ]);
}

#[test]
fn byte_extract_and_byte_math() {
    check(&[
        (r#"byte_extract:1,0,n; content:"x"; offset:n; depth:1;"#, b"\x02_x", true),
        (r#"byte_extract:1,0,n; content:"x"; offset:n; depth:1;"#, b"\x02__x", false),
        (r#"byte_extract:1,0,n; content:"xy"; depth:n;"#, b"\x03xy", true),
        (r#"byte_extract:1,0,n; content:"xy"; depth:n;"#, b"\x01xy", false),
        (r#"byte_extract:1,0,n; content:!"xy"; depth:n;"#, b"\x01xy", true),
        // A value beyond 16 bits is not an offset, whether or not the content is present.
        (r#"byte_extract:3,0,n; content:"x"; offset:n;"#, b"\x01\x00\x00x", false),
        (r#"byte_extract:3,0,n; content:!"x"; offset:n;"#, b"\x01\x00\x00x", false),
        (r#"byte_extract:1,0,n,multiplier 2; content:"x"; offset:n; depth:1;"#, b"\x01_x", true),
        (r#"byte_extract:1,0,n,align 4; content:"x"; offset:n; depth:1;"#, b"\x01___x", true),
        (r#"byte_extract:1,0,n,align 4; content:"x"; offset:n; depth:1;"#, b"\x04___x", true),
        ("byte_extract:2,0,n;", b"\x01", false),
        (r#"content:"a"; byte_extract:1,0,n,relative; content:"x"; within:n;"#, b"a\x02x", true),
        (r#"content:"a"; byte_extract:1,0,n,relative; content:"x"; within:n;"#, b"a\x01x", true),
        (r#"content:"a"; byte_extract:1,0,n,relative; content:"x"; within:n;"#, b"a\x01_x", false),
        // Both leave the cursor after the number, relative or not.
        (r#"content:"a"; byte_extract:1,0,n,relative; content:"x"; within:1;"#, b"a\x03x", true),
        (r#"content:"ab"; byte_extract:1,0,n; content:"b"; within:1;"#, b"ab", true),
        (r#"content:"ab"; byte_extract:1,0,n; content:"c"; within:1;"#, b"abc", false),
        (r#"content:"a"; byte_extract:1,0,n,relative; byte_test:1,=,9,0,relative;"#, b"a\x03\x09", true),
        (r#"content:"a"; byte_extract:4,0,n,relative,string,dec; content:"x"; within:1;"#, b"a12x__", true),
        (
            r#"content:"a"; byte_math:bytes 2, offset 0, oper +, rvalue 0, result n, relative; content:"x"; within:1;"#,
            b"a__x",
            true,
        ),
        (r#"content:"a"; byte_extract:1,0,n,relative; pcre:"/^x/R";"#, b"a_x", true),
        (r#"content:"a"; byte_extract:1,0,n,relative; isdataat:!1,relative;"#, b"a_", true),
        ("byte_math:bytes 1, offset 0, oper +, rvalue 2, result n; byte_test:1,=,n,1;", b"\x01\x03", true),
        ("byte_math:bytes 1, offset 0, oper -, rvalue 2, result n; byte_test:1,=,n,1;", b"\x03\x01", true),
        ("byte_math:bytes 1, offset 0, oper -, rvalue 2, result n; byte_test:1,<,n,1;", b"\x01\x01", true),
        ("byte_math:bytes 1, offset 0, oper *, rvalue 2, result n; byte_test:1,=,n,1;", b"\x03\x06", true),
        ("byte_math:bytes 1, offset 0, oper /, rvalue 2, result n; byte_test:1,=,n,1;", b"\x07\x03", true),
        ("byte_math:bytes 1, offset 0, oper <<, rvalue 2, result n; byte_test:1,=,n,1;", b"\x01\x04", true),
        ("byte_math:bytes 1, offset 0, oper >>, rvalue 64, result n; byte_test:1,=,n,1;", b"\x09\x00", true),
        ("byte_extract:1,0,d; byte_math:bytes 1, offset 1, oper /, rvalue d, result n;", b"\x00\x01", false),
        (
            "byte_math:bytes 1, offset 0, oper +, rvalue 0, result n, endian little, bitmask 0xf0; byte_test:1,=,n,1;",
            b"\x21\x02",
            true,
        ),
        // From one buffer to another.
        (r#"http.uri; byte_extract:1,0,n; http.header; content:"x"; offset:n; depth:1;"#, b"\x02_x", true),
        (r#"http.uri; byte_extract:1,0,n; http.header; content:"x"; offset:n; depth:1;"#, b"\x02__x", false),
    ]);
}

#[test]
fn base64() {
    check(&[
        (r#"base64_decode; base64_data; content:"test";"#, b"dGVzdA==", true),
        (r#"base64_decode; base64_data; content:"text";"#, b"dGVzdA==", false),
        (
            r#"base64_decode:offset 2; base64_data; content:"test"; startswith; endswith;"#,
            b"::dGVzdA==",
            true,
        ),
        (r#"base64_decode:bytes 4; base64_data; content:"tes"; bsize:3;"#, b"dGVzdA==", true),
        (
            r#"content:"a="; base64_decode:relative; base64_data; content:"test"; bsize:4;"#,
            b"_a=dGVzdA&b=c",
            true,
        ),
        (
            r#"content:"a="; base64_decode:offset 1,relative; base64_data; content:"test";"#,
            b"a=:dGVzdA",
            true,
        ),
        (r#"base64_decode; base64_data; content:!"x";"#, b"!", false),
        ("base64_decode:offset 9;", b"dGVz", false),
        (r#"base64_decode; base64_data; to_uppercase; content:"TEST";"#, b"dGVzdA==", true),
        // Another place of the content gives other data; the first place that gives any is used.
        (r#"content:"a"; base64_decode:relative; base64_data; bsize:3;"#, b"a!adGVz", true),
    ]);
}

#[test]
fn absent() {
    let says = |options: &str| Inspection::new(&rule(options)).unwrap().buffer(0).absent();
    assert!(says("http.referer; absent;") && !holds("http.referer; absent;", b""));
    let or_else = r#"http.referer; absent:or_else; content:"x";"#;
    assert!(says(or_else) && holds(or_else, b"x") && !holds(or_else, b"y"));
    assert!(!says(r#"http.referer; content:!"x";"#));
}

#[test]
fn transforms() {
    check(&[
        (r#"dns.query; dotprefix; content:".a.b"; startswith; endswith;"#, b"a.b", true),
        (r#"http.uri; strip_whitespace; content:"ab"; bsize:2;"#, b"a \tb", true),
        (r#"http.uri; to_md5; content:"|900150983cd24fb0d6963f7d28e17f72|"; bsize:16;"#, b"abc", true),
        (r#"http.uri; pcrexform:"a(.*)d"; content:"bc"; bsize:2;"#, b"_abcd_", true),
        (r#"http.uri; xor:"01"; content:"`"; bsize:1;"#, b"a", true),
    ]);
}

/// A stream without its first bytes.
#[test]
fn streams() {
    for (options, bytes, start, expected) in [
        (r#"content:"ab"; offset:10; depth:2;"#, &b"ab"[..], 10, true),
        (r#"content:"ab"; offset:10; depth:2;"#, b"_ab", 9, true),
        (r#"content:"ab"; offset:10; depth:2;"#, b"_ab", 10, false),
        (r#"content:"ab"; depth:10;"#, b"ab", 10, false),
        (r#"content:"ab"; depth:10;"#, b"ab", 9, false),
        (r#"content:"ab"; depth:10;"#, b"ab", 8, true),
        (r#"content:!"ab"; depth:10;"#, b"ab", 10, true),
        (r#"content:"ab"; offset:4;"#, b"ab", 100, true),
        (r#"content:"ab"; offset:101;"#, b"ab", 100, false),
        (r#"content:"ab"; content:"c"; within:1;"#, b"abc", 100, true),
        (r#"content:"ab"; endswith;"#, b"ab", 100, true),
        ("isdataat:101;", b"ab", 100, true),
        ("isdataat:102;", b"ab", 100, false),
        ("byte_test:1,=,98,101;", b"ab", 100, true),
        ("byte_test:1,=,98,1;", b"ab", 100, false),
        (r#"byte_jump:1,100,from_beginning,post_offset 100; content:"b"; within:1;"#, b"\x02_b", 100, true),
        (r#"content:"ab";"#, b"ab", u64::MAX, true),
        (r#"content:"ab"; within:9;"#, b"ab", u64::MAX, false),
    ] {
        assert_eq!(
            holds_at(options, bytes, start),
            expected,
            "{options} on {} at {start}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn unsupported_keywords_are_named() {
    for (options, keyword, reason) in [
        (
            r#"content:"a"; pcre:"/a(?=b)(?<=a+)/";"#,
            "pcre",
            UnsupportedReason::Expression(ExpressionFeature::VariableLookbehind),
        ),
        (r#"pcre:"/(?!b)(?R)?/";"#, "pcre", UnsupportedReason::Expression(ExpressionFeature::Recursion)),
        (r#"pcre:"/(?>(?:[ab]{1000}c){200})/";"#, "pcre", UnsupportedReason::TooLarge),
        (r#"pcre:"/(a)/,flow:a";"#, "pcre", UnsupportedReason::Captures),
        (r#"pcre:"/(?:[ab]{1000}c){100}/";"#, "pcre", UnsupportedReason::TooLarge),
        ("byte_test:2,=,1,0,dce;", "byte_test", UnsupportedReason::Dce),
        (
            r#"base64_decode; content:"a"; base64_decode; base64_data; content:"b";"#,
            "base64_decode",
            UnsupportedReason::Decodes,
        ),
        (r#"http.uri; pcrexform:"a.*d"; content:"bc";"#, "pcrexform", UnsupportedReason::NoGroup),
    ] {
        let unsupported = Inspection::new(&rule(options)).unwrap_err();
        assert_eq!((unsupported.keyword, unsupported.reason), (keyword, reason), "{options}");
        assert!(unsupported.to_string().starts_with(&format!("`{keyword}`: ")));
        if let UnsupportedReason::Expression(feature) = unsupported.reason {
            assert!(!unsupported.to_string().contains(&format!("{feature:?}")), "in words");
        }
    }
}

/// Expressions without an automaton, by flag, negation and place.
#[test]
fn pcre_with_look_around_and_references() {
    for (options, bytes, expected) in [
        (r#"pcre:"/a(?!b)/";"#, &b"abac"[..], true),
        (r#"pcre:"/a(?!b)/";"#, b"abab", false),
        (r#"pcre:!"/a(?!b)/";"#, b"abab", true),
        (r#"pcre:!"/a(?!b)/";"#, b"abac", false),
        (r#"pcre:"/(?=.b)A/i";"#, b"ab", true),
        (r#"pcre:"/(?=.b)A/";"#, b"ab", false),
        (r#"pcre:"/(?=a)a.b/";"#, b"a\nb", false),
        (r#"pcre:"/(?=a)a.b/s";"#, b"a\nb", true),
        (r#"pcre:"/(?=b)^b/";"#, b"a\nb", false),
        (r#"pcre:"/(?=b)^b/m";"#, b"a\nb", true),
        (r#"pcre:"/(?= b) b # no space/x";"#, b"ab", true),
        (r#"pcre:"/(?<=a)b/A";"#, b"ab", false),
        (r#"pcre:"/(?=b)b$/";"#, b"b\n", true),
        (r#"pcre:"/(?=b)b$/E";"#, b"b\n", false),
        // Neither sees what is before the cursor.
        (r#"content:"a"; pcre:"/^(?=b)b/R";"#, b"_ab", true),
        (r#"content:"a"; pcre:"/^(?=b)b/R";"#, b"_a_b", false),
        (r#"content:"a"; pcre:"/(?<!a)b/R";"#, b"ab", true),
        (r#"content:"a"; pcre:!"/(?=b)b/R";"#, b"ba", true),
        // What follows begins at the end of the match, and other matches are tried.
        (r#"pcre:"/(.)\1/"; content:"c"; within:1;"#, b"aabbc", true),
        (r#"pcre:"/(.)\1/"; content:"c"; within:1;"#, b"aabc", false),
        (r#"pcre:"/a(?=bc)/"; content:"b"; within:1;"#, b"abc", true),
        (r#"pcre:"/(?P<q>[\x22'])x(?P=q)/";"#, b"\"x'x'", true),
        (r#"pcre:"/(?P<q>[\x22'])x(?P=q)/";"#, b"\"x'", false),
        (r#"pcre:"/(a)\1/i";"#, b"aA", true),
        (r#"pcre:"/(a)(?-i)\1/i";"#, b"aA", false),
        (r#"pcre:"/(\xe9)\1/i";"#, b"\xe9\xc9", false),
        (r#"pcre:"/(.)\1\x00/s";"#, b"\xff\xff\x00", true),
        (r#"pcre:"/a++a/";"#, b"aaa", false),
        (r#"pcre:"/(?>a|ab)c/";"#, b"abc", false),
        (r#"pcre:"/(?>ab|a)c/";"#, b"abc", true),
    ] {
        assert_eq!(holds(options, bytes), expected, "{options} on {}", bytes.escape_ascii());
    }
}

/// An expression that tries each way to divide the text is given up, and takes no more steps than
/// others do.
#[test]
fn expressions_are_given_up() {
    let text = vec![b'a'; 3000];
    let mut scratch = InspectionScratch::new();
    for (options, given_up) in [
        (r#"pcre:"/^(?:a|aa)+(?!a|$)/";"#, 1),
        (r#"pcre:!"/^(?:a|aa)+(?!a|$)/";"#, 1),
        (r#"pcre:"/(?:(?=a)a+)+b/";"#, 1),
        (r#"pcre:"/(a*)*\1b/";"#, 1),
        (r#"pcre:"/^(?:(?!b).)*$/"; content:"b";"#, 0),
    ] {
        let inspection = Inspection::new(&rule(options)).unwrap();
        scratch.begin_packet(0);
        let (before, exhausted) = (scratch.steps(), scratch.exhausted());
        assert!(!inspection.buffer(0).holds(&text, &mut scratch), "{options}");
        assert_eq!(scratch.exhausted() - exhausted, given_up, "{options}");
        assert!(scratch.steps() - before <= STEPS_MAX as u64, "{options}");
    }
}

/// Adversarial texts: places are remembered, and where that does not help, evaluation is bounded.
#[test]
fn evaluation_of_hostile_texts_is_bounded() {
    let text = vec![b'a'; 60_000];
    let chain = r#"content:"a"; content:"a"; distance:1; content:"a"; within:500; content:"b"; within:9;"#;
    let inspection = Inspection::new(&rule(chain)).unwrap();
    let mut scratch = InspectionScratch::new();
    assert!(!inspection.buffer(0).holds(&text[..2500], &mut scratch));
    assert_eq!(scratch.exhausted(), 0);

    let with_variable =
        r#"content:"a"; byte_extract:1,0,n,relative; content:"a"; content:"b"; distance:n; within:9;"#;
    let inspection = Inspection::new(&rule(with_variable)).unwrap();
    assert!(!inspection.buffer(0).holds(&text, &mut scratch));
    assert_eq!(scratch.exhausted(), 1);

    // The evaluations of a packet share its steps, and those of a flow share the flow's; one pass
    // over the buffer per match is always allowed.
    let plain = Inspection::new(&rule(r#"content:"a"; content:"a"; distance:1; pcre:"/a$/";"#)).unwrap();
    let (mut spent, mut packets) = (0, 0);
    while packets < 50 {
        scratch.begin_packet(spent);
        let before = scratch.steps();
        (0..20).for_each(|_| assert!(!inspection.buffer(0).holds(&text, &mut scratch)));
        assert!(scratch.steps() - before <= PACKET_STEPS_MAX as u64 + 20 * 300);
        assert!(plain.buffer(0).holds(&text, &mut scratch));
        (spent, packets) = (scratch.spent(), packets + 1);
    }
    assert_eq!(spent as usize, FLOW_STEPS_MAX);
    assert!(scratch.steps() < (FLOW_STEPS_MAX + packets * (FLOW_STEPS_PER_PACKET + 20 * 300)) as u64);

    // A negated content that is no longer searched for does not match either.
    let negated = r#"content:"a"; content:!"b"; distance:0; content:"b";"#;
    assert!(!all_hold(&Inspection::new(&rule(negated)).unwrap(), &text, 0));
}
