//! Any text as a policy: parsing does not panic, diagnostics can be rendered, and a valid policy is
//! valid again when printed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::{Colour, Policy, syntax};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut files =
        |name: &str| if name.len() % 2 == 0 { Ok(text.to_owned().into()) } else { Err("none".to_owned()) };
    match Policy::read("fuzz.rvl", text, &mut files) {
        Ok(policy) => drop(policy.report.render(Colour::Off)),
        Err(report) => assert!(!report.render(Colour::Off).is_empty()),
    }
    if let Ok(file) = syntax("fuzz.rvl", text) {
        let printed = file.to_string();
        let again = syntax("fuzz.rvl", &printed).map_err(|report| report.to_string());
        assert_eq!(again.map(|file| file.to_string()), Ok(printed));
    }
});
