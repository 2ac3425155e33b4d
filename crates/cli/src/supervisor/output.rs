//! The output of a program: lines for the log, limited in length and rate.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Happening, SupervisorNews};

/// Limit on the bytes of a line; the rest of it is dropped.
pub(super) const LINE_MAX: usize = 1_024;
/// Limit on lines at once, such as those of a start.
const LINES_AT_ONCE: u32 = 500;
/// Limit on lines per second after that; further ones are dropped. A program that has more to say
/// has a log of its own.
const LINES_PER_SECOND: u32 = 20;
/// Interval of reports about dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The output of a node's program, across its restarts.
#[derive(Clone)]
pub(super) struct ProgramOutput(Arc<Mutex<OutputLimit>>);

/// Allowance of output, and counts of its excess.
struct OutputLimit {
    /// Time that lines may still take, each its share of a second.
    allowance: Duration,
    allowed: Instant,
    dropped: u64,
    cut: u64,
    /// The counts of the last report, and its time.
    reported: (u64, u64),
    reported_at: Option<Instant>,
}

impl ProgramOutput {
    pub fn new(now: Instant) -> ProgramOutput {
        ProgramOutput(Arc::new(Mutex::new(OutputLimit {
            allowance: LINE_TIME * LINES_AT_ONCE,
            allowed: now,
            dropped: 0,
            cut: 0,
            reported: (0, 0),
            reported_at: None,
        })))
    }

    /// Sends the lines that the program writes here, within the limits. Always continues to read: a
    /// program must not wait for its log.
    pub fn copy_lines(
        &self,
        from: impl Read + Send + 'static,
        sender: SyncSender<Happening>,
    ) -> std::io::Result<()> {
        let limit = Arc::clone(&self.0);
        let copy = move || {
            let mut from = BufReader::with_capacity(1 << 16, from);
            while let Some(line) = next_line(&mut from) {
                let text = String::from_utf8_lossy(&line.start).trim_end().to_owned();
                let is_allowed = text.is_empty() || {
                    let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
                    limit.allow(line.is_cut, Instant::now())
                };
                if is_allowed
                    && !text.is_empty()
                    && sender.send(Happening::News(SupervisorNews::Line(text))).is_err()
                {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("output".to_owned()).spawn(copy)?;
        Ok(())
    }

    /// Returns a report about lines that were dropped or cut, if there are new ones and the last
    /// report was a while ago.
    pub fn news(&self, now: Instant) -> Option<SupervisorNews> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).news(now)
    }
}

/// The share of a line in a second.
const LINE_TIME: Duration = Duration::from_nanos(1_000_000_000 / LINES_PER_SECOND as u64);

impl OutputLimit {
    /// Returns true if a line may be written now.
    fn allow(&mut self, is_cut: bool, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.allowed);
        self.allowance = (self.allowance + since).min(LINE_TIME * LINES_AT_ONCE);
        self.allowed = now;
        match self.allowance.checked_sub(LINE_TIME) {
            Some(left) => {
                self.allowance = left;
                self.cut += u64::from(is_cut);
                true
            }
            None => {
                self.dropped += 1;
                false
            }
        }
    }

    fn news(&mut self, now: Instant) -> Option<SupervisorNews> {
        let is_early = self.reported_at.is_some_and(|at| now.saturating_duration_since(at) < REPORT_INTERVAL);
        if is_early || self.reported == (self.dropped, self.cut) {
            return None;
        }
        (self.reported, self.reported_at) = ((self.dropped, self.cut), Some(now));
        Some(SupervisorNews::Limited { dropped: self.dropped, cut: self.cut })
    }
}

/// A line up to [`LINE_MAX`].
struct LineStart {
    start: Vec<u8>,
    is_cut: bool,
}

/// Reads a line; `None` at the end.
fn next_line(from: &mut impl BufRead) -> Option<LineStart> {
    let mut start = Vec::new();
    from.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut start).ok()?;
    if start.is_empty() {
        return None;
    }
    let is_whole = start.last() == Some(&b'\n') || start.len() < LINE_MAX;
    let rest = if is_whole { 0 } else { from.skip_until(b'\n').ok()? };
    // The end of the line alone is no rest.
    Some(LineStart { start, is_cut: rest > 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(now: Instant) -> OutputLimit {
        let output = ProgramOutput::new(now);
        Arc::into_inner(output.0).unwrap().into_inner().unwrap()
    }

    #[test]
    fn lines_are_limited_in_rate_and_counted() {
        let start = Instant::now();
        let mut limit = limit(start);
        let allowed =
            |limit: &mut OutputLimit, at: Instant| (0..5_000).filter(|_| limit.allow(false, at)).count();
        assert_eq!(allowed(&mut limit, start), LINES_AT_ONCE as usize);
        assert_eq!(limit.news(start), Some(SupervisorNews::Limited { dropped: 4_500, cut: 0 }));
        assert_eq!(limit.news(start + REPORT_INTERVAL), None, "nothing is new");
        let later = start + Duration::from_secs(3);
        assert_eq!(allowed(&mut limit, later), 3 * LINES_PER_SECOND as usize);
        assert_eq!(limit.dropped, 4_500 + 5_000 - 60);
        assert!(limit.news(later).is_some());
        assert!(!limit.allow(true, later), "a line that is not written is not cut either");
        assert_eq!((limit.cut, limit.news(later)), (0, None), "too early");
        let hour = start + Duration::from_secs(3_600);
        assert_eq!(allowed(&mut limit, hour), LINES_AT_ONCE as usize, "not more than at the start");
    }

    #[test]
    fn lines_are_limited_in_length() {
        let long = "x".repeat(3 * LINE_MAX);
        let exact = "y".repeat(LINE_MAX);
        let text = format!("one\n{long}\n{exact}\n\nlast");
        let mut from = BufReader::with_capacity(100, text.as_bytes());
        let mut next = || next_line(&mut from).map(|line| (line.start.len(), line.is_cut));
        let all: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(all, [(4, false), (LINE_MAX, true), (LINE_MAX, false), (1, false), (4, false)]);
    }
}
