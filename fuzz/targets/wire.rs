//! Any bytes as a header of any kind: no checked view panics, whatever is read.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/packet/tests/support/views.rs"]
mod views;

fuzz_target!(|data: &[u8]| views::read_everything(data));
