//! What units did, for people.

use std::fmt;
use std::str::FromStr;

use node::units::UnitsReport;

use crate::output::{duration, rate, thousands};
use crate::picture;

/// A share above 0 and up to 1, or `none`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareOrNone(pub Option<f32>);

impl fmt::Display for ShareOrNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(share) => share.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for ShareOrNone {
    type Err = String;

    fn from_str(text: &str) -> Result<ShareOrNone, String> {
        if text == "none" {
            return Ok(ShareOrNone(None));
        }
        match text.parse() {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(ShareOrNone(Some(share))),
            _ => Err(format!("expected a number above 0 and up to 1, such as 0.9, or none; found {text:?}")),
        }
    }
}

/// Demand and capacity over time, and what became of flowlets and states.
pub fn summary(report: &UnitsReport) -> String {
    let mut text = format!("\nunits of {}, {}:\n", rate(report.capacity_bps as f64), report.mode);
    text += &picture::draw(&report.epochs);
    let UnitsReport { tracking, bill, .. } = report;
    text += &format!(
        "units: {:.1} to {:.1}, {:.2} in the mean; {} started, {} stopped; {} off the demand in the mean\n",
        tracking.units_min,
        tracking.units_max,
        tracking.units_mean,
        thousands(report.units_started),
        thousands(report.units_stopped),
        rate(tracking.error_mean_bps)
    );
    text += &format!(
        "flowlets: {} ({} behind a gap, {} by size) of {} flows; {} went to another unit than before\n",
        thousands(report.flowlets),
        thousands(report.flowlets_by_gap),
        thousands(report.flowlets_by_size),
        thousands(report.flows),
        thousands(report.moved)
    );
    text += &format!(
        "states: {} moved, {} bytes; {} copies ahead, {} bytes; {} were there in time, {} were fetched\n",
        thousands(report.states_moved),
        thousands(report.state_bytes),
        thousands(report.replicas),
        thousands(report.replica_bytes),
        thousands(report.seamless),
        thousands(report.pulls)
    );
    if let Some(start_ns) = report.start_ns {
        let pulled = report.pull_ns.as_ref().and_then(|pull_ns| pull_ns.get("p50"));
        let pulled = pulled.map_or_else(String::new, |&ns| format!(", states came in {}", duration(ns)));
        text += &format!("threads: units started in {}{pulled} (medians)\n", duration(start_ns));
    }
    text += &format!(
        "bill: {:.3e} per packet, {:.3e} with flowlets, {:.3e} by time; the units cost {:.3e}\n",
        bill.total.per_packet, bill.total.per_packet_and_flowlet, bill.total.per_unit_time, bill.total.cost
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_or_none() {
        let share = |text: &str| text.parse::<ShareOrNone>().ok();
        assert_eq!([share("none"), share("1")], [Some(ShareOrNone(None)), Some(ShareOrNone(Some(1.0)))]);
        for wrong in ["0", "-0.5", "1.1", "nan", "inf", "None", "", "0.9 "] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }
}
