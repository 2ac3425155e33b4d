//! Units that come and go with the traffic: what is asked of them, and what they did, for people.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use runtime::elastic::{UNITS_MAX, UnitsConfig, UnitsReport};
use runtime::transport::Maker;
use runtime::{Assembly, Runner};
use sim::scenario::{Mode, Rate, Time};

use crate::output::{duration, rate, thousands};
use crate::{picture, policies};

/// Options of the commands that run a policy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Units")]
pub struct Options {
    /// Run on units that come and go with the traffic; this is what is given to one at a time
    ///
    /// flowlet, flow, smart-flow:TIME, packet, rss:BUCKETS, rss:BUCKETS:TIME; flowlet, if only
    /// another option of units is given
    #[arg(long)]
    pub mode: Option<Mode>,
    /// Units at most: 10
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(UNITS_MAX)))]
    pub units_max: Option<u16>,
    /// What a unit is taken to process: 1Gbps
    #[arg(long, value_name = "RATE")]
    pub unit_capacity: Option<Rate>,
    /// Silence of a flow behind which a flowlet begins: 500us; slower units want a longer one
    #[arg(long, value_name = "TIME")]
    pub gap: Option<Time>,
    /// Load that there are units for, as a share of theirs; none: as published, one more for
    /// flowlets without room: 0.9
    #[arg(long, value_name = "SHARE")]
    pub follow_at: Option<ShareOrNone>,
    /// Load of a unit, as a share of its capacity, up to which flows stay with it; none: as
    /// published, flowlets are assigned anew: 0.95
    #[arg(long, value_name = "SHARE")]
    pub stay_below: Option<ShareOrNone>,
    /// To how many units a flow's state is copied when it falls silent: none; on one thread, copies
    /// only take time
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(0..=11))]
    pub copies: Option<u8>,
    /// Let copies tell only what has changed since one that the other unit has
    #[arg(long, requires = "copies")]
    pub deltas: bool,
    /// Run each unit on a thread of its own
    ///
    /// Packets of different flows may come out in another order than without.
    #[arg(long)]
    pub threads: bool,
}

impl Options {
    /// Reads the policy, and makes its chain; and what makes more of them, if units are to have
    /// threads.
    pub fn load(&self, policy: &Path, seed: Option<u64>) -> anyhow::Result<(Assembly, Option<Maker>)> {
        if self.threads {
            return policies::load_for_threads(policy, seed).map(|(assembly, maker)| (assembly, Some(maker)));
        }
        Ok((policies::load(policy, seed)?, None))
    }

    /// What takes frames through the policy, on units if an option asks for them; on threads, if
    /// there is what makes chains for them.
    pub fn runner(&self, policy: &Path, assembly: Assembly, maker: Option<Maker>) -> anyhow::Result<Runner> {
        let name = policy.display().to_string();
        let is_one = maker.is_none()
            && self.mode.is_none()
            && self.units_max.is_none()
            && self.unit_capacity.is_none()
            && self.gap.is_none()
            && self.follow_at.is_none()
            && self.stay_below.is_none()
            && self.copies.is_none();
        if is_one {
            return Ok(Runner::new(assembly, &name));
        }
        let defaults = UnitsConfig::default();
        let config = UnitsConfig {
            mode: self.mode.map_or(defaults.mode, Into::into),
            units_max: self.units_max.unwrap_or(defaults.units_max),
            capacity_bps: self.unit_capacity.map_or(defaults.capacity_bps, |rate| rate.0),
            gap_ns: self.gap.map_or(defaults.gap_ns, |time| time.0),
            follow_at: self.follow_at.map_or(defaults.follow_at, |share| share.0),
            stay_below: self.stay_below.map_or(defaults.stay_below, |share| share.0),
            copies: self.copies.unwrap_or(defaults.copies),
            deltas: self.deltas,
            ..defaults
        };
        match maker {
            Some(make) => Runner::on_threads(assembly, &name, config, make).context("cannot set up units"),
            None => Runner::on_units(assembly, &name, config).context("cannot set up units"),
        }
    }
}

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
