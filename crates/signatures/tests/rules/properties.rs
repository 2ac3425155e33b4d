//! Properties of any rule, and of any text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree;
use signatures::*;

use crate::plain;
use crate::plain::options;

/// Options in unusual orders and combinations; most of the rules load.
const OPTIONS: &[&str] = &[
    r#"msg:"a \"quoted\" \; text\\";"#,
    "flow:to_server,established;",
    "flowbits:set,a|b;",
    "flowbits:isnotset,c;",
    "flowint:n,+,1;",
    "xbits:isset,x,track ip_dst,expire 9;",
    "threshold:type both,track by_rule,count 3,seconds 60;",
    "tag:host,5,seconds,src;",
    "reference:url,example.org/a?b=c\\;d;",
    "metadata:created_at 2020_01_01, policy x;",
    "priority:9;",
    "gid:4;",
    "noalert;",
    "target:src_ip;",
    "flags:+SA;",
    "fragbits:*MD;",
    "ttl:<=5;",
    "tos:!x10;",
    "itype:3<>9;",
    "ip_proto:gre;",
    "ip_proto:!47;",
    "ipopts:rr;",
    "stream_size:either,!=,9;",
    "app-layer-protocol:!tls,either;",
    "ssl_version:sslv2,tls1.0;",
    "dns.rrtype:!16;",
    r#"content:"abc|00 3b|D";"#,
    r#"content:!"x\:\\y"; nocase;"#,
    r#"content:"abc"; offset:4; depth:10; endswith;"#,
    r#"content:"abc"; distance:-4; within:10;"#,
    r#"content:"abcdef"; startswith; http_uri;"#,
    r#"content:"abcdef"; http_header; fast_pattern:1,3;"#,
    r#"uricontent:"/x";"#,
    r#"tls.subject:"CN=x";"#,
    r#"tls.fingerprint:!"0A:f1";"#,
    "urilen:>7,raw;",
    "isdataat:!5,relative;",
    "isdataat:!1,relative;",
    "byte_test:4,!&,0x10,-2,relative,little,bitmask 0xff0;",
    "byte_jump:4,0,relative,string,hex,multiplier 3,align,post_offset -1;",
    "byte_extract:2,0,one,relative,multiplier 2,align 4;",
    "byte_math:bytes 1,offset 2,oper <<,rvalue 3,result two,endian little;",
    r#"content:"abc"; offset:one;"#,
    "byte_test:2,>,two,1;",
    r#"pcre:"/a[^b\/]{2,}c\x22/smiR";"#,
    r#"pcre:!"/(x)y/UG,flow:z";"#,
    r#"file.data; strip_whitespace; xor:"0a0b"; content:"q"; bsize:<9;"#,
    r#"dns.query; dotprefix; content:".example"; endswith;"#,
    r#"http.method; content:"POST"; pkt_data;"#,
    r#"content:"a-bc"; content:"z-bc"; http_cookie; content:"9-bc"; http_header;"#,
    "http.referer; absent;",
    r#"http.user_agent; to_lowercase; content:"u"; http.user_agent; content:"v"; pkt_data;"#,
    r#"http.cookie; xor:"0a"; content:"u"; http.cookie; xor:"0b",offset 2; content:"v"; pkt_data;"#,
    "base64_decode:bytes 20,relative; base64_data; content:\"k\"; pkt_data;",
];

fn rule() -> impl Strategy<Value = String> {
    let address = select(&[
        "any",
        "$HOME_NET",
        "!$HTTP_SERVERS",
        "[10.0.0.0/8,![10.1.0.0/16,10.2.3.4]]",
        "2001:db8::/32",
    ]);
    let port = select(&["any", "$HTTP_PORTS", "1024:", "![80,443]", "[1:100,!7,9000]"]);
    let action = select(&["alert", "drop", "pass", "rejectboth"]);
    let protocol = select(&["ip", "tcp", "http", "dns", "tcp-pkt"]);
    let arrow = select(&["->", "<>"]);
    let options = subsequence(OPTIONS, 0..12).prop_shuffle().prop_map(|options| options.join(" "));
    (action, protocol, address.clone(), port.clone(), arrow, address, port, options).prop_map(
        |(action, protocol, source, source_port, arrow, destination, destination_port, options)| {
            format!("{action} {protocol} {source} {source_port} {arrow} {destination} {destination_port} ({options} sid:7;)")
        },
    )
}

fn read(text: &str) -> RulesetReport {
    Ruleset::read("p", text, &RuleVariables::default(), &Classifications::default())
}

/// Checks the properties of any text.
fn check(text: &str) -> Result<(), TestCaseError> {
    let report = read(text);
    for fault in &report.faults {
        prop_assert!(!fault.to_string().is_empty() && fault.column > 0 && fault.place.line > 0);
    }
    for loaded in report.ruleset.rules() {
        let printed = loaded.rule.to_string();
        let again = read(&printed);
        prop_assert_eq!(&again.faults, &[], "{}", printed);
        prop_assert_eq!(&again.ruleset.rules()[0].rule, &loaded.rule, "{}", printed);
        prop_assert_eq!(again.ruleset.rules()[0].rule.to_string(), printed);
        prop_assert!(!loaded.rule.needs().is_empty());
        for buffer in &loaded.rule.buffers {
            prop_assert!(!buffer.matches.is_empty());
        }
    }
    Ok(())
}

/// The properties would be void if no rule loaded.
#[test]
fn many_of_the_rules_load() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let loads = (0..300).filter(|_| {
        let text = rule().new_tree(&mut runner).unwrap().current();
        read(&text).faults.is_empty()
    });
    let loads = loads.count();
    println!("{loads} of 300 load");
    assert!(loads > 90);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn printed_rules_are_the_same(rule in rule()) {
        check(&rule)?;
    }

    #[test]
    fn rules_are_those_of_a_second_reader(rule in rule()) {
        for loaded in read(&rule).ruleset.rules() {
            plain::check(&rule, &loaded.rule);
        }
    }

    #[test]
    fn options_equal_those_of_a_three_state_machine(rule in rule()) {
        let names = options::names(&rule).unwrap();
        prop_assert_eq!(names.last().map(|(_, name)| *name), Some("sid"));
        let loads = read(&rule).faults.is_empty();
        for (at, name) in names {
            prop_assert!(keyword(name).is_some(), "{}", name);
            // With an unknown name in its place, the parser gets to it and no further.
            let unknown = format!("{}qqqq{}", &rule[..at], &rule[at + name.len()..]);
            let faults = read(&unknown).faults;
            let fault = &faults[0];
            prop_assert!(fault.column as usize <= at + 1);
            if loads {
                prop_assert_eq!(fault.column as usize, at + 1);
                let is_unknown = matches!(&fault.error, RuleError::UnknownKeyword { keyword, .. } if keyword == "qqqq");
                prop_assert!(is_unknown, "{}", fault);
            }
        }
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in "\\PC*") {
        check(&text)?;
        check(&format!("alert tcp any any -> any any ({text} sid:1;)"))?;
    }

    #[test]
    fn malformed_rules_are_refused_whole(rule in rule(), at in any::<prop::sample::Index>(), with in "[ -~]{0,3}") {
        let at = at.index(rule.len());
        check(&format!("{}{with}{}", &rule[..at], &rule[at + 1..]))?;
        check(&format!("{}{with}{}", &rule[..at], &rule[at..]))?;
    }
}
