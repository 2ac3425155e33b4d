//! Any text as detection rules: parsing does not panic, a rule that loads is the same when printed
//! and loaded again. It also equals the result of a second reader: header, options, values, and
//! tests per buffer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signatures::{Classifications, RuleVariables, Ruleset};

#[path = "../../crates/signatures/tests/rules/support/plain/mod.rs"]
mod plain;

use plain::options;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (variables, _) = RuleVariables::read("fuzz.vars", text);
    let (classes, _) = Classifications::read("fuzz.config", text);
    for fault in Ruleset::read("fuzz.rules", text, &variables, &classes).faults {
        assert!(!fault.to_string().is_empty() && fault.column > 0);
    }
    let (variables, classes) = (RuleVariables::default(), Classifications::default());
    for line in text.lines().filter(|line| !line.ends_with('\\')) {
        let report = Ruleset::read("fuzz.rules", line, &variables, &classes);
        for loaded in report.ruleset.rules() {
            let printed = loaded.rule.to_string();
            let again = Ruleset::read("printed.rules", &printed, &variables, &classes);
            assert_eq!(again.faults, [], "{printed}");
            assert_eq!(again.ruleset.rules()[0].rule, loaded.rule, "{printed}");
            let needs = loaded.rule.needs();
            assert!(!needs.is_empty());
            plain::check(line, &loaded.rule);
            for (_, name) in options::names(line).expect("a rule that loads has options") {
                assert!(signatures::keyword(name).is_some(), "{name} of {line}");
            }
        }
    }
});
