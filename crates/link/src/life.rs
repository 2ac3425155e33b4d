//! The life of a link's peer: its last datagram, and how long its silence may last.

/// Share of the longest silence that the limit covers: a peer that was silent once for some time,
/// and came back, may be silent for twice that time.
const LONGEST_FACTOR: u64 = 2;

/// Half-life of the weight of the longest silence.
const HALF_LIFE_NS: u64 = 60_000_000_000;

/// The limits on a peer's silence, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceLimits {
    /// Before the first datagram.
    pub up_within_ns: u64,
    /// Of a round trip, or a heartbeat if that takes longer.
    pub missed: u64,
    pub heartbeat_ns: u64,
    pub least_ns: u64,
    pub most_ns: u64,
}

/// A link's knowledge of its peer's life.
#[derive(Debug)]
pub(crate) struct Life {
    limits: SilenceLimits,
    /// The time of the peer's last datagram; before the first, that of the beginning.
    heard_ns: u64,
    /// Silence since then that does not count, because this end did not run.
    excused_ns: u64,
    is_up: bool,
    /// The longest silence of late, and when it ended.
    longest: (u64, u64),
    /// The first datagram that proves, once acknowledged, that the peer still has the link.
    unconfirmed_from: Option<u64>,
}

impl Life {
    pub fn new(limits: SilenceLimits, now_ns: u64) -> Life {
        Life {
            limits,
            heard_ns: now_ns,
            excused_ns: 0,
            is_up: false,
            longest: (0, now_ns),
            unconfirmed_from: None,
        }
    }

    pub fn is_up(&self) -> bool {
        self.is_up
    }

    pub fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Notes an authentic datagram; returns whether it is the first one.
    #[inline]
    pub fn hear(&mut self, now_ns: u64) -> bool {
        // Most datagrams arrive within a heartbeat.
        if self.is_up && now_ns.saturating_sub(self.heard_ns) > self.limits.heartbeat_ns {
            self.note_silence(self.silent_ns(now_ns), now_ns);
        }
        (self.heard_ns, self.excused_ns) = (now_ns, 0);
        !std::mem::replace(&mut self.is_up, true)
    }

    /// Returns the peer's silence so far, without excused time.
    pub fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.heard_ns).saturating_sub(self.excused_ns)
    }

    /// Notes that this end did not run for a time that has just ended: it could not receive, and
    /// the peer, which may be as busy, may be silent for as long.
    pub fn excuse(&mut self, stall_ns: u64, now_ns: u64) {
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        self.excused_ns = self.excused_ns.saturating_add(stall_ns).min(silent_ns);
        if self.is_up {
            self.note_silence(stall_ns, now_ns);
        }
    }

    #[cold]
    fn note_silence(&mut self, ns: u64, now_ns: u64) {
        if ns >= self.longest_ns(now_ns) {
            self.longest = (ns, now_ns);
        }
    }

    fn longest_ns(&self, now_ns: u64) -> u64 {
        let (ns, at_ns) = self.longest;
        let half_lives = now_ns.saturating_sub(at_ns) / HALF_LIFE_NS;
        ns.checked_shr(u32::try_from(half_lives).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    /// Returns the silence after which the peer is given up, given the smoothed round-trip time.
    pub fn limit_ns(&self, now_ns: u64, rtt_ns: u64) -> u64 {
        let limits = &self.limits;
        if !self.is_up {
            return limits.up_within_ns;
        }
        let of_round_trips = limits.heartbeat_ns.max(rtt_ns).saturating_mul(limits.missed);
        let seen_ns = of_round_trips.max(self.longest_ns(now_ns).saturating_mul(LONGEST_FACTOR));
        seen_ns.clamp(limits.least_ns.min(limits.most_ns), limits.most_ns)
    }

    /// Returns the silence after which the peer is late: `missed` heartbeats or round trips, or
    /// twice the longest silence of late.
    pub fn late_after_ns(&self, now_ns: u64, rtt_ns: u64, missed: u64) -> u64 {
        let of_round_trips = self.limits.heartbeat_ns.max(rtt_ns).saturating_mul(missed);
        of_round_trips.max(self.longest_ns(now_ns).saturating_mul(LONGEST_FACTOR))
    }

    /// Returns the time at which the peer is given up, given the smoothed round-trip time.
    pub fn dead_at_ns(&self, now_ns: u64, rtt_ns: u64) -> u64 {
        self.heard_ns.saturating_add(self.excused_ns).saturating_add(self.limit_ns(now_ns, rtt_ns))
    }

    /// Waits for an acknowledgement of this datagram or a later one.
    pub fn doubt(&mut self, next_number: u64) {
        if self.is_up {
            self.unconfirmed_from = Some(next_number);
        }
    }

    #[inline]
    pub fn is_confirmed(&self) -> bool {
        self.unconfirmed_from.is_none()
    }

    /// Notes that the peer has received this datagram.
    #[inline]
    pub fn confirm(&mut self, number: u64) {
        self.unconfirmed_from = self.unconfirmed_from.filter(|&from| number < from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    const LIMITS: SilenceLimits = SilenceLimits {
        up_within_ns: 5 * SECOND,
        missed: 40,
        heartbeat_ns: 25 * MS,
        least_ns: 2 * SECOND,
        most_ns: 10 * SECOND,
    };

    fn alive() -> Life {
        let mut life = Life::new(LIMITS, 0);
        assert!(life.hear(0) && !life.hear(MS));
        life
    }

    #[test]
    fn limit_follows_round_trips_between_its_bounds() {
        let life = alive();
        assert_eq!(life.limit_ns(MS, MS), 2 * SECOND, "never earlier");
        assert_eq!(life.limit_ns(MS, 100 * MS), 4 * SECOND);
        assert_eq!(life.limit_ns(MS, SECOND), 10 * SECOND, "never later");
    }

    #[test]
    fn limit_follows_the_longest_silence_and_forgets_it() {
        let mut life = alive();
        let mut now_ns = 1_500 * MS + MS;
        assert_eq!(life.silent_ns(now_ns), 1_500 * MS);
        life.hear(now_ns);
        assert_eq!(life.limit_ns(now_ns, MS), 3 * SECOND);
        now_ns += 20 * MS;
        life.hear(now_ns);
        assert_eq!(life.limit_ns(now_ns, MS), 3 * SECOND);
        assert_eq!(life.limit_ns(now_ns + HALF_LIFE_NS, MS), 2 * SECOND, "half of it");
        assert_eq!(life.limit_ns(u64::MAX, MS), 2 * SECOND);
    }

    #[test]
    fn own_stalls_are_no_silence_of_the_peer() {
        let mut life = alive();
        let woken_ns = MS + 30 * SECOND;
        life.excuse(30 * SECOND - 10 * MS, woken_ns);
        assert_eq!(life.silent_ns(woken_ns), 10 * MS);
        assert!(life.dead_at_ns(woken_ns, MS) > woken_ns + 9 * SECOND, "the peer may be as busy");
        life.excuse(u64::MAX, woken_ns);
        assert_eq!(life.silent_ns(woken_ns), 0);
        assert_eq!(life.silent_ns(woken_ns + MS), MS, "the next silence counts");
    }

    #[test]
    fn doubt_ends_with_a_fresh_datagram() {
        let mut life = alive();
        life.doubt(7);
        life.confirm(6);
        assert!(!life.is_confirmed());
        life.confirm(8);
        assert!(life.is_confirmed());
    }
}
