//! `threshold` and `detection_filter`: how often a rule acts, and how often that is told.

use std::net::IpAddr;

use nf::{Context, MeterKey, MeterValue};
use packet::Endpoint;
use signatures::{DetectionFilter, RateFilter, Threshold, ThresholdKind, Track};

/// The table of trackers in the descriptor.
pub const TRACKERS: usize = 0;

/// Whose matches are counted: those of a rule, of its packets' ends, or of a flow.
pub struct Tracked {
    /// The rule's number.
    pub rule: u32,
    /// The packet's source and destination.
    pub ends: (Endpoint, Endpoint),
    /// What tells the flow from others.
    pub flow: u64,
}

/// What is counted in a meter, apart from each other.
const FILTER: u64 = 1;
const THRESHOLD: u64 = 2;
const RATE: u64 = 3;

const SECOND_NS: u64 = 1_000_000_000;

impl Tracked {
    /// Whether a match counts as one: whether there were more than `count` within the time, this
    /// one included.
    pub fn passes(&self, filter: &DetectionFilter, context: &mut Context<'_>) -> bool {
        let now_ns = context.now_ns();
        let span_ns = u64::from(filter.seconds) * SECOND_NS;
        let key = self.key(FILTER, filter.track);
        let Some(value) = context.meters(TRACKERS).of(&key, now_ns, span_ns + 1) else { return true };
        begin_anew(value, now_ns, span_ns);
        let [_, count, _] = value;
        *count += 1;
        *count > u64::from(filter.count)
    }

    /// What becomes of this match.
    pub fn limited(&self, threshold: &Threshold, context: &mut Context<'_>) -> Limited {
        let now_ns = context.now_ns();
        let span_ns = match threshold.kind {
            ThresholdKind::Limit { seconds }
            | ThresholdKind::Each { seconds }
            | ThresholdKind::Once { seconds } => u64::from(seconds) * SECOND_NS,
            // It counts for ever, as far as there is a tracker.
            ThresholdKind::Backoff { .. } => u64::MAX / 2,
        };
        let key = self.key(THRESHOLD, threshold.track);
        match context.meters(TRACKERS).of(&key, now_ns, span_ns + 1) {
            Some(value) => tells(value, threshold, now_ns, span_ns),
            None => Limited::Told,
        }
    }

    /// Whether the rule does something else for this match, as there were so many.
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

    fn key(&self, what: u64, track: Track) -> MeterKey {
        let halves = |end: Endpoint| match end.addr.ip() {
            IpAddr::V4(v4) => [0, u64::from(v4.to_bits())],
            IpAddr::V6(v6) => [(v6.to_bits() >> 64) as u64, v6.to_bits() as u64],
        };
        let ([a, b], [c, d]) = (halves(self.ends.0), halves(self.ends.1));
        let own = |track: u64| what << 32 | track << 40 | u64::from(self.rule);
        match track {
            Track::Rule => [own(1), 0, 0, 0],
            Track::Flow => [own(2), self.flow, 0, 0],
            Track::Source => [own(3), a, b, 0],
            Track::Destination => [own(4), c, d, 0],
            // The key has no room for four words beside the rule: two of them are mixed.
            Track::Both => [own(5), a ^ c.rotate_left(24), b, d],
        }
    }
}

/// Counting starts with the first match, and anew with the first one for which the time is over.
/// What is counted has three words: when counting started, what was counted, and, which is 0 before
/// all, what a backoff waits for.
fn begin_anew(value: &mut MeterValue, now_ns: u64, span_ns: u64) {
    let [start_ns, _, next] = *value;
    if next == 0 || now_ns.saturating_sub(start_ns) > span_ns {
        *value = [now_ns, 0, next.max(1)];
    }
}

/// Counts a match. What is counted has three words: when counting started, what was counted, which
/// is 0 before all, and until when the rule does something else.
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

/// What becomes of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// It counts as none.
    Nothing,
    /// The rule does what it says, without an alert.
    Silent,
    /// The rule does what it says.
    Told,
}

impl Limited {
    fn alert(told: bool) -> Limited {
        if told { Limited::Told } else { Limited::Silent }
    }

    fn whole(told: bool) -> Limited {
        if told { Limited::Told } else { Limited::Nothing }
    }
}

fn tells(value: &mut MeterValue, threshold: &Threshold, now_ns: u64, span_ns: u64) -> Limited {
    begin_anew(value, now_ns, span_ns);
    let [_, count, next] = value;
    let wanted = u64::from(threshold.count);
    *count += 1;
    match threshold.kind {
        ThresholdKind::Limit { .. } => Limited::alert(*count <= wanted),
        ThresholdKind::Each { .. } => {
            let told = *count >= wanted;
            if told {
                *count = 0;
            }
            Limited::whole(told)
        }
        ThresholdKind::Once { .. } if *count > wanted => Limited::Silent,
        ThresholdKind::Once { .. } => Limited::whole(*count == wanted),
        ThresholdKind::Backoff { multiplier } => {
            *next = (*next).max(wanted);
            let told = *count >= *next;
            if told {
                *next = next.saturating_mul(u64::from(multiplier).max(2));
            }
            Limited::alert(told)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(address: [u8; 16], port: u16) -> Endpoint {
        Endpoint::new(packet::Addr::from_bytes(address), port)
    }

    /// Which of the matches at these seconds are told, from 1.
    fn told(kind: ThresholdKind, count: u32, seconds: &[u64], span: u64) -> Vec<usize> {
        let threshold = Threshold { kind, track: Track::Rule, count };
        let mut value = MeterValue::default();
        let told =
            seconds.iter().map(|second| tells(&mut value, &threshold, second * SECOND_NS, span * SECOND_NS));
        (1..).zip(told).filter(|(_, told)| *told == Limited::Told).map(|(number, _)| number).collect()
    }

    #[test]
    fn each_kind_tells_what_it_is_to_tell() {
        let at = [0, 0, 4, 9, 10, 11, 11, 25];
        assert_eq!(told(ThresholdKind::Limit { seconds: 10 }, 2, &at, 10), [1, 2, 6, 7, 8]);
        assert_eq!(told(ThresholdKind::Each { seconds: 10 }, 2, &at, 10), [2, 4, 7]);
        assert_eq!(told(ThresholdKind::Once { seconds: 10 }, 2, &at, 10), [2, 7]);
    }

    #[test]
    fn a_backoff_tells_ever_more_seldom() {
        let at = [0; 20];
        let for_ever = 1 << 32;
        assert_eq!(told(ThresholdKind::Backoff { multiplier: 2 }, 1, &at, for_ever), [1, 2, 4, 8, 16]);
        assert_eq!(told(ThresholdKind::Backoff { multiplier: 3 }, 2, &at, for_ever), [2, 6, 18]);
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
    fn a_clock_that_goes_back_begins_nothing_anew() {
        assert_eq!(told(ThresholdKind::Limit { seconds: 10 }, 1, &[30, 5, 40, 41], 10), [1, 4]);
    }

    #[test]
    fn keys_are_of_what_is_tracked() {
        let v6 = |last: u8| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0x20, last);
            address
        };
        let tracked = |rule, source: u8, destination: u8, port: u16, flow| Tracked {
            rule,
            ends: (end(v6(source), port), end(v6(destination), port)),
            flow,
        };
        let first = tracked(1, 1, 2, 7, 3);
        // What is the same in another match: rule, source, destination, flow.
        for (other, same) in [
            (tracked(1, 1, 2, 8, 3), [true, true, true, true, true]),
            (tracked(1, 1, 9, 7, 4), [true, true, false, false, false]),
            (tracked(1, 9, 2, 7, 3), [true, false, true, false, true]),
            (tracked(1, 2, 1, 7, 3), [true, false, false, false, true]),
            (tracked(2, 1, 2, 7, 3), [false; 5]),
        ] {
            let tracks = [Track::Rule, Track::Source, Track::Destination, Track::Both, Track::Flow];
            let equal = tracks.map(|track| first.key(FILTER, track) == other.key(FILTER, track));
            assert_eq!(equal, same);
            assert!(tracks.iter().all(|track| first.key(FILTER, *track) != first.key(THRESHOLD, *track)));
        }
    }
}
