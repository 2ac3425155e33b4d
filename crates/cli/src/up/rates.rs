//! Current rates: a line on the terminal, once a second.

use std::collections::BTreeSet;

use runtime::Report;

use crate::output::{rate, thousands};
use observe::summary;

const SECOND_NS: u64 = 1_000_000_000;

/// Counters at the time of the last rates.
pub struct Rates {
    at_ns: u64,
    packets_in: u64,
    bytes_in: u64,
    dropped: u64,
    frames_lost: u64,
    evicted: u64,
    not_written: u64,
}

impl Rates {
    pub fn new(now_ns: u64) -> Rates {
        Rates {
            at_ns: now_ns,
            packets_in: 0,
            bytes_in: 0,
            dropped: 0,
            frames_lost: 0,
            evicted: 0,
            not_written: 0,
        }
    }

    /// Returns whether a second has passed.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.at_ns + SECOND_NS
    }

    /// Returns the rates since the last call.
    pub fn since_last(&mut self, now_ns: u64, report: &Report) -> String {
        let per_second = |now: u64, before: u64| {
            now.saturating_sub(before) as f64 * SECOND_NS as f64
                / now_ns.saturating_sub(self.at_ns).max(1) as f64
        };
        let next = Rates {
            at_ns: now_ns,
            packets_in: report.packets_in,
            bytes_in: report.bytes_in,
            dropped: report.dropped(),
            frames_lost: report.frames_lost(),
            evicted: report.flows_evicted(),
            not_written: report.records_not_written(),
        };
        let mut text = format!(
            "{} packets/s, {}, {} drops/s, {} frames lost/s, {} flows",
            thousands(per_second(next.packets_in, self.packets_in) as u64),
            rate(8.0 * per_second(next.bytes_in, self.bytes_in)),
            thousands(per_second(next.dropped, self.dropped) as u64),
            thousands(per_second(next.frames_lost, self.frames_lost).ceil() as u64),
            thousands(report.flows.live),
        );
        for (what, now, before) in [
            ("flows evicted/s", next.evicted, self.evicted),
            ("records not written/s", next.not_written, self.not_written),
        ] {
            if now > before {
                text += &format!(", {} {what}", thousands(per_second(now, before).ceil() as u64));
            }
        }
        *self = next;
        text
    }
}

/// Warns once for each kind of tunnel that passes without inspection.
#[derive(Default)]
pub struct TunnelWarning {
    said: BTreeSet<&'static str>,
}

impl TunnelWarning {
    /// Returns the warning about kinds that are new since the last call.
    pub fn of(&mut self, report: &Report) -> Option<String> {
        let kinds = report.tunnels_not_looked_into.iter().map(|(&kind, &flows)| (kind, flows));
        let mut new = kinds.filter(|(kind, _)| self.said.insert(kind)).peekable();
        new.peek().is_some().then_some(())?;
        Some(summary::tunnels(new))
    }
}

#[cfg(test)]
mod tests {
    use ::io::port::Counters;
    use runtime::report::{InterfaceReport, OutputReport};

    use super::*;

    #[test]
    fn each_kind_of_tunnel_is_reported_once() {
        let mut warning = TunnelWarning::default();
        let mut report = Report::default();
        assert_eq!(warning.of(&report), None);
        report.tunnels_not_looked_into.insert("vxlan", 2);
        let said = warning.of(&report).unwrap();
        assert!(said.contains("not inspected: vxlan 2 flows; `settings { key: inner }`"), "{said}");
        report.tunnels_not_looked_into.extend([("vxlan", 900), ("gre", 1)]);
        let said = warning.of(&report).unwrap();
        assert!(said.contains("gre 1 flows") && !said.contains("vxlan"), "{said}");
        assert_eq!(warning.of(&report), None);
    }

    #[test]
    fn losses_are_shown_beside_drops() {
        let mut rates = Rates::new(0);
        let mut report = Report::default();
        let quiet = "0 packets/s, 0.00 kbit/s, 0 drops/s, 0 frames lost/s, 0 flows";
        assert_eq!(rates.since_last(SECOND_NS, &report), quiet);
        let interface = InterfaceReport {
            counters: Counters { missed: 16_780, down: 20, ..Counters::default() },
            ..InterfaceReport::default()
        };
        report.interfaces.insert("outside".to_owned(), interface);
        report.flows.ended.insert("evicted", 2_948);
        let alerts = OutputReport { written: 5, not_written: 3, suppressed: 9 };
        report.outputs.insert("alerts".to_owned(), alerts);
        let said = rates.since_last(3 * SECOND_NS, &report);
        assert!(
            said.contains("0 drops/s, 8,400 frames lost/s, 0 flows, 1,474 flows evicted/s, 2 records"),
            "{said}"
        );
        assert_eq!(rates.since_last(4 * SECOND_NS, &report), quiet);
    }
}
