//! Rules of an operator, and what each has decided about: for reports, metrics and explanations.

use std::fmt;
use std::sync::Arc;

/// How operators know a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLabel {
    /// Its number, from 1; 0: what holds where no rule matches.
    pub number: u32,
    /// Its name.
    pub name: Arc<str>,
    /// Where it is written, such as `x.rules:12`; empty if that is not known.
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

/// What a rule has decided about; what exactly is counted, the function's manual says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCounters {
    /// The rule.
    pub label: RuleLabel,
    /// Flows.
    pub flows: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes; none if the function does not count them.
    pub bytes: Option<u64>,
    /// The time of the last packet; 0: there was none.
    pub last_hit_ns: u64,
}

impl RuleCounters {
    /// Nothing so far.
    pub fn new(label: RuleLabel, counts_bytes: bool) -> RuleCounters {
        RuleCounters { label, flows: 0, packets: 0, bytes: counts_bytes.then_some(0), last_hit_ns: 0 }
    }

    /// Adds packets, the last of them at `at_ns`; `bytes` are theirs.
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
    fn a_label_has_each_part_once() {
        let label = |number, name: &str, place: &str| {
            RuleLabel { number, name: name.into(), place: place.into() }.to_string()
        };
        assert_eq!(label(3, "web", "x.rules:12"), "rule 3 `web` (x.rules:12)");
        assert_eq!(label(3, "rule 3", ""), "rule 3");
        assert_eq!(label(0, "default", ""), "default");
    }
}
