//! Any options of a rule on any bytes: nothing panics, no buffer takes more than its steps, and on
//! short texts the result equals that of a slow reference.
//!
//! Input: a byte for the offset of the bytes in their stream; a line with the options; the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signatures::inspect::{Inspection, InspectionScratch, STEPS_MAX};
use signatures::{Buffer, Classifications, RuleVariables, Ruleset};

#[path = "../../crates/signatures/tests/inspect/support/oracle.rs"]
#[allow(clippy::unwrap_used)]
mod oracle;

/// Limits on the text of the slow reference, in bytes, and on its work.
const SLOW_BYTES: usize = 64;
const SLOW_WORK: u64 = 30_000;

fuzz_target!(|data: &[u8]| {
    let [start, data @ ..] = data else { return };
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(options), bytes) = (std::str::from_utf8(&data[..end]), &data[end + 1..]) else { return };
    let text = format!("alert tcp any any -> any any ({options} sid:1;)");
    let report = Ruleset::read("fuzz.rules", &text, &RuleVariables::default(), &Classifications::default());
    let [loaded] = report.ruleset.rules() else { return };
    let inspection = match Inspection::new(&loaded.rule) {
        Ok(inspection) => inspection,
        Err(unsupported) => return assert!(!unsupported.to_string().is_empty()),
    };

    let mut scratch = InspectionScratch::new();
    scratch.begin();
    let mut state = Some(oracle::State::default());
    for (one, matches) in inspection.buffers().iter().zip(&loaded.rule.buffers) {
        let steps = scratch.steps();
        let (start, text, holds) = match one.buffer() {
            Buffer::Base64Data => {
                let text = state.as_ref().map(|state| state.decoded.clone()).unwrap_or_default();
                (0, text, one.holds_decoded(&mut scratch))
            }
            _ => {
                let start = u64::from(*start);
                (start, bytes.to_vec(), one.holds_at(bytes, start, &mut scratch))
            }
        };
        assert!(scratch.steps() - steps <= STEPS_MAX as u64, "{options}");
        let mut transformed = Vec::new();
        one.transforms().apply(&text, &mut transformed);
        // After a buffer without a result, the reference does not know the variables.
        let Some(before) = state.take() else { continue };
        if transformed.len() > SLOW_BYTES || scratch.exhausted() > 0 {
            continue;
        }
        let slow = oracle::Oracle::new(&matches.matches, &transformed, start, SLOW_WORK);
        let Ok(after) = slow.holds(&before) else { continue };
        assert_eq!(holds, after.is_some(), "{options}");
        state = after;
    }
});
