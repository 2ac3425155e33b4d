//! The obvious search: every literal at every position.

use mpm::Literal;

/// Returns each literal's number and end in the text, sorted.
pub fn naive(literals: &[Literal], text: &[u8]) -> Vec<(u32, usize)> {
    let mut found = Vec::new();
    for (number, literal) in literals.iter().enumerate() {
        for (start, window) in text.windows(literal.bytes.len()).enumerate() {
            let same = match literal.nocase {
                true => window.eq_ignore_ascii_case(&literal.bytes),
                false => window == literal.bytes,
            };
            if same {
                found.push((number as u32, start + literal.bytes.len()));
            }
        }
    }
    found.sort_unstable();
    found
}
