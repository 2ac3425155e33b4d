//! Limits for events that others cause: the first of a kind and a peer is logged at once, further
//! ones are counted, and their number is logged each [`PERIOD`].

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::event;
use crate::shown::shown_in_cell;

/// Period of summaries. An event after a period without any is logged at once again.
pub const PERIOD: Duration = Duration::from_secs(30);
/// Limit on pairs of kind and peer that are counted separately. Further peers are counted together,
/// as `others`.
pub const PEERS_MAX: usize = 256;

/// The peer of events beyond [`PEERS_MAX`].
const OTHERS: &str = "others";

/// Counts of events by kind and peer.
#[derive(Default)]
pub struct Repeats {
    counts: BTreeMap<(&'static str, String), Count>,
}

#[derive(Default)]
struct Count {
    since_ns: u64,
    unsaid: u64,
    last: String,
}

/// Events that were not logged one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Their kind.
    pub kind: &'static str,
    /// The peer that caused them.
    pub peer: String,
    /// Their number.
    pub count: u64,
    /// The reason of the last one.
    pub last: String,
}

impl Repeats {
    /// Notes an event at a time. Returns true if it should be logged.
    pub fn note(
        &mut self,
        now_ns: u64,
        (kind, peer): (&'static str, &dyn Display),
        reason: &dyn Display,
    ) -> bool {
        let mut key = (kind, shown_in_cell(peer).to_string());
        if self.counts.len() >= PEERS_MAX && !self.counts.contains_key(&key) {
            key.1 = OTHERS.to_owned();
        }
        let is_first = !self.counts.contains_key(&key);
        let count = self.counts.entry(key).or_default();
        if is_first {
            count.since_ns = now_ns;
            return true;
        }
        count.unsaid += 1;
        count.last = shown_in_cell(reason).to_string();
        false
    }

    /// Takes the events after the end of their period.
    pub fn due(&mut self, now_ns: u64) -> Vec<Repeated> {
        let mut due = Vec::new();
        self.counts.retain(|(kind, peer), count| {
            if now_ns.saturating_sub(count.since_ns) < period_ns() {
                return true;
            }
            if count.unsaid == 0 {
                return false;
            }
            let repeated = Repeated {
                kind,
                peer: peer.clone(),
                count: std::mem::take(&mut count.unsaid),
                last: std::mem::take(&mut count.last),
            };
            count.since_ns = now_ns;
            due.push(repeated);
            true
        });
        due
    }
}

fn period_ns() -> u64 {
    PERIOD.as_nanos() as u64
}

fn now_ns() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The events of this process.
static REPEATS: Mutex<Repeats> = Mutex::new(Repeats { counts: BTreeMap::new() });

/// Logs that a peer was refused, or counts it if that was logged lately. The kind is a word that
/// stays the same whatever the peer does.
pub fn refuse_peer(kind: &'static str, peer: &dyn Display, reason: &dyn Display) {
    let is_new = REPEATS.lock().unwrap_or_else(PoisonError::into_inner).note(now_ns(), (kind, peer), reason);
    if is_new {
        event::peer_refused(peer, reason);
    }
    flush_repeats();
}

/// Logs the number of repeated events after the end of their period. A thread that has time calls
/// it now and then.
pub fn flush_repeats() {
    let due = REPEATS.lock().unwrap_or_else(PoisonError::into_inner).due(now_ns());
    for Repeated { peer, count, last, .. } in due {
        event::peer_refused_again(&peer, count, PERIOD.as_secs(), &last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_first_is_logged_and_others_are_counted() {
        let mut repeats = Repeats::default();
        let peer = "10.0.0.9";
        let mut note = |at_ns, peer: &str| repeats.note(at_ns, ("handshake", &peer), &"bad certificate");
        assert!(note(0, peer) && note(0, "10.0.0.8"));
        assert!((1..100).all(|turn| !note(turn * S / 5, peer)));
        assert!(note(20 * S, "10.0.0.7"), "another peer");
        assert_eq!(repeats.due(29 * S), []);
        let expected = Repeated {
            kind: "handshake",
            peer: peer.to_owned(),
            count: 99,
            last: "bad certificate".to_owned(),
        };
        assert_eq!(repeats.due(30 * S), [expected]);
        assert!(repeats.note(31 * S, ("handshake", &"10.0.0.8"), &"again"), "after a period without any");
        assert!(!repeats.note(31 * S, ("handshake", &peer), &"again"), "still repeated");
        assert!(repeats.note(31 * S, ("policy", &peer), &"another kind"));
    }

    #[test]
    fn many_peers_are_counted_together() {
        let mut repeats = Repeats::default();
        let logged = (0..100_000)
            .filter(|number| repeats.note(1, ("handshake", &format!("host {number}")), &"no TLS"))
            .count();
        assert_eq!(logged, PEERS_MAX + 1, "those, and the first of the others");
        let due = repeats.due(31 * S);
        let counts: Vec<_> = due.iter().map(|repeated| (&*repeated.peer, repeated.count)).collect();
        assert_eq!(counts, [("others", 100_000 - PEERS_MAX as u64 - 1)]);
    }

    #[test]
    fn texts_of_peers_are_safe_and_short() {
        let mut repeats = Repeats::default();
        let (peer, reason) = ("\x1b]0;pwn\x07", "x".repeat(10_000));
        (0..2).for_each(|_| _ = repeats.note(0, ("handshake", &peer), &reason));
        let due = repeats.due(30 * S);
        assert_eq!(due[0].peer, "\\u{1b}]0;pwn\\u{7}");
        assert!(due[0].last.len() < 100);
    }
}
