//! The fast pattern.

use super::reader::{Part, Reader, Said};

/// Returns the marked content; otherwise, of those in the highest-ranked buffers, the longest, then
/// the most varied, then the first (Suricata's guide, "Suricata Fast Pattern Determination
/// Explained"), with the name of its buffer.
pub fn fast_pattern(read: &Reader) -> Option<(&'static str, &Said)> {
    let kind = |buffer: &str| match buffer {
        "pkt_data" | "http.stat_msg" => 1,
        "http.method" | "http.stat_code" => 0,
        _ => 2,
    };
    let all = read.parts.iter().flat_map(|(buffer, _, parts)| parts.iter().map(|part| (*buffer, part)));
    let contents = all.filter_map(|(buffer, part)| match part {
        Part::Content(said) if !said.negated && buffer != "base64_data" => Some((buffer, said)),
        _ => None,
    });
    let rank = |(buffer, said): &(&str, &Said)| {
        (said.fast.is_some(), kind(buffer), said.bytes.len(), variety(&said.bytes))
    };
    // Of equal ones the last is the maximum.
    contents.collect::<Vec<_>>().into_iter().rev().max_by_key(rank)
}

/// Returns the variety of the bytes: 3 for a new letter, 4 for a new common character, 6 for any
/// other new one, 1 for a repetition.
fn variety(pattern: &[u8]) -> usize {
    let of = |at: usize| match pattern[at] {
        byte if pattern[..at].contains(&byte) => 1,
        byte if byte.is_ascii_alphabetic() => 3,
        byte if byte.is_ascii_graphic() || matches!(byte, b' ' | 0 | 1 | 0xff) => 4,
        _ => 6,
    };
    (0..pattern.len()).map(of).sum()
}
