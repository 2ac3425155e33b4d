//! Which content is to be searched for first.

use super::reader::{Part, Reader, Said};

/// The content that is marked, else of those in the buffers of the best kind the longest, of them
/// the most varied, of them the first (Suricata's guide, "Suricata Fast Pattern Determination
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
    // Of equal ones the last is the greatest.
    contents.collect::<Vec<_>>().into_iter().rev().max_by_key(rank)
}

/// How varied bytes are: letters count 3 for the first time, other characters that are common 4,
/// others 6, and 1 again.
fn variety(pattern: &[u8]) -> usize {
    let of = |at: usize| match pattern[at] {
        byte if pattern[..at].contains(&byte) => 1,
        byte if byte.is_ascii_alphabetic() => 3,
        byte if byte.is_ascii_graphic() || matches!(byte, b' ' | 0 | 1 | 0xff) => 4,
        _ => 6,
    };
    (0..pattern.len()).map(of).sum()
}
