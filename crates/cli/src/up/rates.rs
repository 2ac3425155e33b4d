//! What goes through now: a line on the terminal, once a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use node::Report;

use crate::output::{rate, thousands};

const SECOND_NS: u64 = 1_000_000_000;

/// What was counted when rates were last asked for.
pub struct Rates {
    at_ns: u64,
    packets_in: u64,
    bytes_in: u64,
    dropped: u64,
}

impl Rates {
    pub fn new(now_ns: u64) -> Rates {
        Rates { at_ns: now_ns, packets_in: 0, bytes_in: 0, dropped: 0 }
    }

    /// Whether a second has passed.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.at_ns + SECOND_NS
    }

    /// The rates since the last time.
    pub fn since_last(&mut self, now_ns: u64, report: &Report) -> String {
        let per_second = |now: u64, before: u64| {
            (now - before) as f64 * SECOND_NS as f64 / (now_ns - self.at_ns).max(1) as f64
        };
        let text = format!(
            "{} packets/s, {}, {} drops/s, {} flows",
            thousands(per_second(report.packets_in, self.packets_in) as u64),
            rate(8.0 * per_second(report.bytes_in, self.bytes_in)),
            thousands(per_second(report.dropped(), self.dropped) as u64),
            thousands(report.flows.live),
        );
        *self = Rates {
            at_ns: now_ns,
            packets_in: report.packets_in,
            bytes_in: report.bytes_in,
            dropped: report.dropped(),
        };
        text
    }
}

/// Where the line is shown; nothing where standard error is not a terminal.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
