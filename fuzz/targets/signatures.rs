//! Any text as a firewall's rules: loading does not panic, and an error has a position.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf::Setup;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let registry = functions::registry::<serde_json::Value>();
    let Some(firewall) = registry.find("firewall") else { return };
    if let Err(error) = firewall.make(&json!({ "rules": text }), Setup::new(1, 16)) {
        assert!(!error.to_string().is_empty());
    }
});
