//! Operators' rules and their hit counters, for reports, metrics and explanations.

use std::fmt;
use std::sync::Arc;

/// An operator's identification of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLabel {
    /// Number from 1; 0 is the default that applies where no rule matches.
    pub number: u32,
    /// The rule's name.
    pub name: Arc<str>,
    /// Source position, such as `x.rules:12`; empty if unknown.
    pub place: Arc<str>,
}

impl fmt::Display for RuleLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = format!("rule {}", self.number);
        match self.number {
            0 => write!(f, "{}", self.name)?,
            _ if *self.name == *own => write!(f, "{own}")?,
            _ => write!(f, "{own} `{}`", self.name)?,
        }
        if self.place.is_empty() { Ok(()) } else { write!(f, " ({})", self.place) }
    }
}

/// Hit counters of a rule. The NF's manual defines what counts as a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCounters {
    /// The rule.
    pub label: RuleLabel,
    /// Flows.
    pub flows: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets; `None` if the NF does not count them.
    pub bytes: Option<u64>,
    /// Time of the last packet; 0 if none.
    pub last_hit_ns: u64,
}

impl RuleCounters {
    /// Returns zeroed counters.
    pub fn new(label: RuleLabel, counts_bytes: bool) -> RuleCounters {
        RuleCounters { label, flows: 0, packets: 0, bytes: counts_bytes.then_some(0), last_hit_ns: 0 }
    }

    /// Adds packets of `bytes` in total, the last of them at `at_ns`.
    #[inline]
    pub fn hit(&mut self, packets: u64, bytes: usize, at_ns: u64) {
        self.packets = self.packets.wrapping_add(packets);
        if let Some(all) = &mut self.bytes {
            *all = all.wrapping_add(bytes as u64);
        }
        self.last_hit_ns = self.last_hit_ns.max(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_has_each_part_once() {
        let label = |number, name: &str, place: &str| {
            RuleLabel { number, name: name.into(), place: place.into() }.to_string()
        };
        assert_eq!(label(3, "web", "x.rules:12"), "rule 3 `web` (x.rules:12)");
        assert_eq!(label(3, "rule 3", ""), "rule 3");
        assert_eq!(label(0, "default", ""), "default");
    }
}
