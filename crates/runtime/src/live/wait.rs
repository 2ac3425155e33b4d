//! Waits for frames while there is nothing to do.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time without work after which the thread sleeps: the next frame of a burst finds it awake. Where
/// rounds take long, as with links to other machines, few of them fit in.
const AWAKE: Duration = Duration::from_micros(30);

/// Longest sleep, so that time passes for flows and for the caller of the rounds.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 16_000_000 };

/// Longest sleep while packets are at units of other machines, so that deadlines of links pass.
const PENDING_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Longest further sleep after an error of a socket that has ended the sleep before, too: the
/// kernel takes its time to delete a device.
const FAILED_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Shortest sleep where frames arrive without a notification (DPDK).
///
/// Such a sleep lasts an eighth of the time since the last frame, within these bounds: an answer
/// waits little longer than it took, and an idle port costs little.
pub const POLL_SLEEP_NS_MIN: u64 = 50_000;
/// Longest such sleep; see [`POLL_SLEEP_NS_MIN`].
pub const POLL_SLEEP_NS_MAX: u64 = 1_000_000;

/// Events that `poll` reports of a socket with an error, or without a device.
const FAILED: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// Time that a thread has slept.
#[derive(Default)]
pub(super) struct Sleeper {
    slept: Duration,
    /// `slept` when there was work last.
    slept_before: Duration,
    /// Time of the first round without work, of those in a row.
    idle_since: Option<Instant>,
    /// An error of a socket has ended the last sleep.
    has_failed: bool,
}

/// Limit on a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SleepLimit {
    /// Descriptors report all that may arrive.
    Idle,
    /// The same, while packets are at units of other machines.
    Pending,
    /// Frames may arrive that no descriptor reports.
    Polled,
}

/// Outcome of a sleep.
pub(super) struct Woken {
    /// An event ended it, rather than time.
    pub by_event: bool,
    /// Links may have changed.
    pub by_link: bool,
}

impl Sleeper {
    /// Notes a round. Returns whether the thread may sleep now.
    pub fn note_round(&mut self, is_idle: bool) -> bool {
        if !is_idle {
            self.idle_since = None;
            self.slept_before = self.slept;
            return false;
        }
        let now = Instant::now();
        now.duration_since(*self.idle_since.get_or_insert(now)) > AWAKE
    }

    /// Returns the time that the thread has slept.
    pub fn slept(&self) -> Duration {
        self.slept
    }

    /// Sleeps until one of these descriptors is readable, or the time has passed.
    pub fn sleep<'a>(
        &mut self,
        sockets: impl Iterator<Item = BorrowedFd<'a>>,
        links: Option<BorrowedFd<'a>>,
        limit: SleepLimit,
    ) -> Woken {
        let descriptors = sockets.chain(links);
        let mut events: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let time = match limit {
            SleepLimit::Idle => SLEEP,
            SleepLimit::Pending => PENDING_SLEEP,
            SleepLimit::Polled => poll_sleep(self.slept.saturating_sub(self.slept_before)),
        };
        let began = Instant::now();
        // The next round finds out whether it was a frame, time, a doorbell or a signal.
        let mut woken_by = poll(&mut events, Some(&time));
        // Until they are handled, link events and socket errors end every sleep. A TAP device that
        // is being deleted reports an error long before a read fails.
        let has_news = links.is_some() && events.last().is_some_and(|news| !news.revents().is_empty());
        let has_failed = events.iter().any(has_failed);
        if has_failed && self.has_failed {
            events.retain(|event| !self::has_failed(event));
            woken_by = poll(&mut events, Some(&FAILED_SLEEP));
        }
        self.has_failed = has_failed;
        self.slept += began.elapsed();
        Woken { by_event: woken_by != Ok(0), by_link: has_news || has_failed }
    }
}

fn has_failed(event: &PollFd<'_>) -> bool {
    event.revents().intersects(FAILED)
}

/// Returns the length of a sleep after this time without a frame.
fn poll_sleep(silence: Duration) -> Timespec {
    let ns = (silence.as_nanos() / 8).clamp(POLL_SLEEP_NS_MIN.into(), POLL_SLEEP_NS_MAX.into());
    Timespec { tv_sec: 0, tv_nsec: ns as i64 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn errors_that_last_do_not_keep_a_thread_awake() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let (quiet, _bell) = std::io::pipe().unwrap();
        let mut sleeper = Sleeper::default();
        let mut sleep = || sleeper.sleep([reader.as_fd(), quiet.as_fd()].into_iter(), None, SleepLimit::Idle);
        let woken = [sleep(), sleep(), sleep()];
        assert!(woken.iter().all(|woken| woken.by_link));
        assert_eq!(woken.map(|woken| woken.by_event), [true, false, false]);
    }

    #[test]
    fn polling_sleeps_get_longer_with_the_silence() {
        let ns = |silence_us| poll_sleep(Duration::from_micros(silence_us)).tv_nsec as u64;
        assert_eq!([0, 400, 800, 8_000, 8_001].map(ns), [50_000, 50_000, 100_000, 1_000_000, 1_000_000]);
        assert_eq!(poll_sleep(Duration::MAX).tv_nsec as u64, POLL_SLEEP_NS_MAX);
    }
}
