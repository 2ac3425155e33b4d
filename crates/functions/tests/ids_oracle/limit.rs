//! Thresholds and detection filters: which matches of a rule count and are reported.

use std::collections::HashMap;
use std::net::IpAddr;

use signatures::{DetectionFilter, Threshold, ThresholdKind, TrackBy};

use super::header::Place;

/// The scope of a count: the rule, and the addresses or the flow.
type Key = (usize, bool, Option<IpAddr>, Option<IpAddr>, Option<u64>);

/// A count with its start.
#[derive(Clone, Copy, Debug)]
struct Count {
    began_ns: u64,
    count: u32,
}

/// All counts.
#[derive(Debug, Default)]
pub struct Counts {
    counts: HashMap<Key, Count>,
}

impl Counts {
    /// Returns whether a match of a rule counts.
    pub fn passes_filter(&mut self, rule: usize, filter: &DetectionFilter, place: &Place<'_>) -> bool {
        self.next(key(rule, true, filter.track, place), filter.seconds, place).count > filter.count
    }

    /// Returns whether a match of a rule is reported.
    pub fn is_reported(&mut self, rule: usize, threshold: &Threshold, place: &Place<'_>) -> bool {
        let key = key(rule, false, threshold.track, place);
        match threshold.kind {
            ThresholdKind::Limit { seconds } => self.next(key, seconds, place).count <= threshold.count,
            ThresholdKind::Once { seconds } => self.next(key, seconds, place).count == threshold.count,
            ThresholdKind::Each { seconds } => {
                let reached = self.next(key, seconds, place).count >= threshold.count;
                if reached && let Some(count) = self.counts.get_mut(&key) {
                    count.count = 0;
                }
                reached
            }
            ThresholdKind::Backoff { .. } => false, // Such rules are refused.
        }
    }

    /// Counts a match; restarts if the time has expired.
    fn next(&mut self, key: Key, seconds: u32, place: &Place<'_>) -> Count {
        let now_ns = place.packet.time_ns;
        let count = self.counts.entry(key).or_insert(Count { began_ns: now_ns, count: 0 });
        if now_ns.saturating_sub(count.began_ns) > u64::from(seconds) * 1_000_000_000 {
            *count = Count { began_ns: now_ns, count: 0 };
        }
        count.count += 1;
        *count
    }
}

fn key(rule: usize, filter: bool, track: TrackBy, place: &Place<'_>) -> Key {
    let (source, destination) = (Some(place.ends.0.0), Some(place.ends.1.0));
    match track {
        TrackBy::Source => (rule, filter, source, None, None),
        TrackBy::Destination => (rule, filter, None, destination, None),
        TrackBy::Both => (rule, filter, source.min(destination), source.max(destination), None),
        TrackBy::Rule => (rule, filter, None, None, None),
        TrackBy::Flow => (rule, filter, None, None, Some(place.packet.flow)),
    }
}
