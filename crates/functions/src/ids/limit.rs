//! `threshold` and `detection_filter`: how often a rule acts and alerts.

use std::net::IpAddr;

use nf::{Context, MeterKey, MeterValue};
use packet::Endpoint;
use signatures::{DetectionFilter, RateFilter, Threshold, ThresholdKind, TrackBy};

/// The meter table in the descriptor.
pub const TRACKERS: usize = 0;

/// The scope of a count of matches: a rule, its packet's endpoints, or a flow.
pub struct TrackerKey {
    /// Index of the rule.
    pub rule: u32,
    /// Source and destination of the packet.
    pub ends: (Endpoint, Endpoint),
    /// Identity of the flow.
    pub flow: u64,
}

/// Kinds of counts in the same table.
const FILTER: u64 = 1;
const THRESHOLD: u64 = 2;
const RATE: u64 = 3;

const SECOND_NS: u64 = 1_000_000_000;

impl TrackerKey {
    /// Counts a match; returns whether it counts for the rule, because there were more than `count`
    /// within the time, including this one.
    pub fn passes(&self, filter: &DetectionFilter, context: &mut Context<'_>) -> bool {
        let now_ns = context.now_ns();
        let span_ns = u64::from(filter.seconds) * SECOND_NS;
        let key = self.key(FILTER, filter.track);
        let Some(value) = context.meters(TRACKERS).of(&key, now_ns, span_ns + 1) else { return true };
        restart_expired(value, now_ns, span_ns);
        let [_, count, _] = value;
        *count += 1;
        *count > u64::from(filter.count)
    }

    /// Applies a threshold to this match.
    pub fn limited(&self, threshold: &Threshold, context: &mut Context<'_>) -> ThresholdOutcome {
        let now_ns = context.now_ns();
        let span_ns = match threshold.kind {
            ThresholdKind::Limit { seconds }
            | ThresholdKind::Each { seconds }
            | ThresholdKind::Once { seconds } => u64::from(seconds) * SECOND_NS,
            // The count never expires while its meter is kept.
            ThresholdKind::Backoff { .. } => u64::MAX / 2,
        };
        let key = self.key(THRESHOLD, threshold.track);
        match context.meters(TRACKERS).of(&key, now_ns, span_ns + 1) {
            Some(value) => reports(value, threshold, now_ns, span_ns),
            None => ThresholdOutcome::Reported,
        }
    }

    /// Returns whether matches are frequent enough for the rule's alternative action.
    pub fn is_too_often(&self, rate: &RateFilter, context: &mut Context<'_>) -> bool {
        let now_ns = context.now_ns();
        let (span_ns, timeout_ns) =
            (u64::from(rate.seconds) * SECOND_NS, u64::from(rate.timeout_seconds) * SECOND_NS);
        let key = self.key(RATE, rate.track);
        match context.meters(TRACKERS).of(&key, now_ns, span_ns.max(timeout_ns) + 1) {
            Some(value) => is_too_often(value, rate.count, now_ns, (span_ns, timeout_ns)),
            None => false,
        }
    }

    fn key(&self, what: u64, track: TrackBy) -> MeterKey {
        let halves = |end: Endpoint| match end.addr.ip() {
            IpAddr::V4(v4) => [0, u64::from(v4.to_bits())],
            IpAddr::V6(v6) => [(v6.to_bits() >> 64) as u64, v6.to_bits() as u64],
        };
        let ([a, b], [c, d]) = (halves(self.ends.0), halves(self.ends.1));
        let own = |track: u64| what << 32 | track << 40 | u64::from(self.rule);
        match track {
            TrackBy::Rule => [own(1), 0, 0, 0],
            TrackBy::Flow => [own(2), self.flow, 0, 0],
            TrackBy::Source => [own(3), a, b, 0],
            TrackBy::Destination => [own(4), c, d, 0],
            // A pair counts whichever end sent. The key has no room for four words besides the
            // rule: two of them are mixed.
            TrackBy::Both if [a, b] > [c, d] => [own(5), c ^ a.rotate_left(24), d, b],
            TrackBy::Both => [own(5), a ^ c.rotate_left(24), b, d],
        }
    }
}

/// Restarts an expired count: counting starts with the first match, and again with the first match
/// after the time has expired. A value has three words: the start of counting; the count, which is
/// 0 initially; and the next count at which a backoff alerts.
fn restart_expired(value: &mut MeterValue, now_ns: u64, span_ns: u64) {
    let [start_ns, _, next] = *value;
    if next == 0 || now_ns.saturating_sub(start_ns) > span_ns {
        *value = [now_ns, 0, next.max(1)];
    }
}

/// Counts a match. A value has three words: the start of counting; the count, which is 0 initially;
/// and the end of the alternative action.
fn is_too_often(value: &mut MeterValue, most: u32, now_ns: u64, (span_ns, timeout_ns): (u64, u64)) -> bool {
    let [start_ns, count, until_ns] = value;
    if *until_ns != 0 {
        if now_ns <= *until_ns {
            return true;
        }
        *value = [now_ns, 1, 0];
    } else if *count == 0 || now_ns.saturating_sub(*start_ns) >= span_ns {
        *value = [now_ns, 1, 0];
    } else {
        *count += 1;
        if *count > u64::from(most) {
            *until_ns = now_ns.saturating_add(timeout_ns);
            return true;
        }
    }
    false
}

/// The effect of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdOutcome {
    /// It does not count.
    Nothing,
    /// The rule acts, without an alert.
    Silent,
    /// The rule acts and alerts.
    Reported,
}

impl ThresholdOutcome {
    fn alert(reported: bool) -> ThresholdOutcome {
        if reported { ThresholdOutcome::Reported } else { ThresholdOutcome::Silent }
    }

    fn whole(reported: bool) -> ThresholdOutcome {
        if reported { ThresholdOutcome::Reported } else { ThresholdOutcome::Nothing }
    }
}

fn reports(value: &mut MeterValue, threshold: &Threshold, now_ns: u64, span_ns: u64) -> ThresholdOutcome {
    restart_expired(value, now_ns, span_ns);
    let [_, count, next] = value;
    let wanted = u64::from(threshold.count);
    *count += 1;
    match threshold.kind {
        ThresholdKind::Limit { .. } => ThresholdOutcome::alert(*count <= wanted),
        ThresholdKind::Each { .. } => {
            let reported = *count >= wanted;
            if reported {
                *count = 0;
            }
            ThresholdOutcome::whole(reported)
        }
        ThresholdKind::Once { .. } if *count > wanted => ThresholdOutcome::Silent,
        ThresholdKind::Once { .. } => ThresholdOutcome::whole(*count == wanted),
        ThresholdKind::Backoff { multiplier } => {
            *next = (*next).max(wanted);
            let reported = *count >= *next;
            if reported {
                *next = next.saturating_mul(u64::from(multiplier).max(2));
            }
            ThresholdOutcome::alert(reported)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(address: [u8; 16], port: u16) -> Endpoint {
        Endpoint::new(packet::Addr::from_bytes(address), port)
    }

    /// Returns which of the matches at these times are reported, from 1.
    fn reported(kind: ThresholdKind, count: u32, seconds: &[u64], span: u64) -> Vec<usize> {
        let threshold = Threshold { kind, track: TrackBy::Rule, count };
        let mut value = MeterValue::default();
        let reported = seconds
            .iter()
            .map(|second| reports(&mut value, &threshold, second * SECOND_NS, span * SECOND_NS));
        (1..)
            .zip(reported)
            .filter(|(_, reported)| *reported == ThresholdOutcome::Reported)
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn each_kind_of_threshold_reports_the_right_matches() {
        let at = [0, 0, 4, 9, 10, 11, 11, 25];
        assert_eq!(reported(ThresholdKind::Limit { seconds: 10 }, 2, &at, 10), [1, 2, 6, 7, 8]);
        assert_eq!(reported(ThresholdKind::Each { seconds: 10 }, 2, &at, 10), [2, 4, 7]);
        assert_eq!(reported(ThresholdKind::Once { seconds: 10 }, 2, &at, 10), [2, 7]);
    }

    #[test]
    fn a_backoff_reports_at_growing_counts() {
        let at = [0; 20];
        let for_ever = 1 << 32;
        assert_eq!(reported(ThresholdKind::Backoff { multiplier: 2 }, 1, &at, for_ever), [1, 2, 4, 8, 16]);
        assert_eq!(reported(ThresholdKind::Backoff { multiplier: 3 }, 2, &at, for_ever), [2, 6, 18]);
    }

    #[test]
    fn a_rate_changes_what_a_rule_does_for_a_while() {
        let mut value = MeterValue::default();
        let mut often =
            |second: u64| is_too_often(&mut value, 2, second * SECOND_NS, (10 * SECOND_NS, 5 * SECOND_NS));
        let at = [0, 1, 2, 7, 8, 9, 10, 30, 41, 42, 43];
        let found = at.map(&mut often);
        let expected = [false, false, true, true, false, false, true, false, false, false, true];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_clock_that_goes_back_restarts_no_count() {
        assert_eq!(reported(ThresholdKind::Limit { seconds: 10 }, 1, &[30, 5, 40, 41], 10), [1, 4]);
    }

    #[test]
    fn tracker_keys_cover_the_tracked_endpoints() {
        let v6 = |last: u8| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0x20, last);
            address
        };
        let tracked = |rule, source: u8, destination: u8, port: u16, flow| TrackerKey {
            rule,
            ends: (end(v6(source), port), end(v6(destination), port)),
            flow,
        };
        let first = tracked(1, 1, 2, 7, 3);
        // Another match with the same rule, source, destination or flow.
        for (other, same) in [
            (tracked(1, 1, 2, 8, 3), [true, true, true, true, true]),
            (tracked(1, 1, 9, 7, 4), [true, true, false, false, false]),
            (tracked(1, 9, 2, 7, 3), [true, false, true, false, true]),
            (tracked(1, 2, 1, 7, 3), [true, false, false, true, true]),
            (tracked(2, 1, 2, 7, 3), [false; 5]),
        ] {
            let tracks = [TrackBy::Rule, TrackBy::Source, TrackBy::Destination, TrackBy::Both, TrackBy::Flow];
            let equal = tracks.map(|track| first.key(FILTER, track) == other.key(FILTER, track));
            assert_eq!(equal, same);
            assert!(tracks.iter().all(|track| first.key(FILTER, *track) != first.key(THRESHOLD, *track)));
        }
    }
}
