//! Options of elastic units, and their summary.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;

use ::cluster::remote::{IsStopped, StartStatus};
use anyhow::{Context, bail};
use control::ClusterControl;
use protocol::dispatcher::UnitChoice;
use runtime::elastic::{UNITS_MAX, UnitsConfig};
use runtime::transport::Maker;
use runtime::two_cores::SecondCore;
use runtime::{Assembly, Runner};
use sim::scenario::AssignmentMode;
use values::BitRate;
use values::{Nanos, PositiveBitRate};

use crate::api::{ApiFiles, OpenedApi, ServeOptions};
use crate::cluster::DispatcherNode;
use crate::{cluster, policies, signals};

/// Options of the commands that run a policy on units.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Units")]
pub struct Options {
    /// Run on units that come and go with the traffic, and assign it by this policy
    ///
    /// flowlets: flowlets stay while their unit has room, and units follow demand.
    /// flowlets-as-published: SNF's; every flowlet goes to the fullest unit with room, or with a
    /// replica: --copies 3.
    /// least-loaded: NFActor's later one; flows, each to the unit with the least load.
    /// round-robin: NFActor's first one; flows, to units in turn.
    /// The last two relieve units that drop packets: with --cluster and interfaces.
    #[arg(long, value_name = "POLICY", help = with_default("Run on units that come and go with the traffic, and assign it by this policy", "flowlets"))]
    pub assign: Option<AssignmentPolicy>,
    /// Run on units that come and go with the traffic, and assign this to one at a time
    ///
    /// flowlet, flow, smart-flow:TIME, packet, rss:BUCKETS, rss:BUCKETS:TIME
    #[arg(long, help = with_default("Run on units that come and go with the traffic, and assign this to one at a time", DEFAULTS.mode))]
    pub mode: Option<AssignmentMode>,
    #[arg(long, value_name = "N", help = with_default("Maximum number of units", DEFAULTS.units_max))]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(UNITS_MAX)))]
    pub units_max: Option<u16>,
    #[arg(long, value_name = "RATE", help = with_default("Capacity of a unit", BitRate(DEFAULTS.capacity_bps)))]
    pub unit_capacity: Option<PositiveBitRate>,
    #[arg(long, value_name = "TIME", help = with_default("Gap between two packets of a flow that starts a new flowlet; slower units need a longer one", Nanos(DEFAULTS.gap_ns)))]
    pub gap: Option<Nanos>,
    #[arg(long, value_name = "SHARE", help = with_default("Target load of the units as a share of their capacity; none: as published, start a unit when a flowlet finds no room", ShareOrNone(DEFAULTS.follow_at)))]
    pub follow_at: Option<ShareOrNone>,
    #[arg(long, value_name = "SHARE", help = with_default("Load of a unit, as a share of its capacity, up to which flows stay on it; none: as published, assign every flowlet again", ShareOrNone(DEFAULTS.stay_below)))]
    pub stay_below: Option<ShareOrNone>,
    #[arg(long, value_name = "K", help = with_default("Units that receive a replica of a flow's state when the flow pauses; on one thread, replicas only cost time", format!("{}, with flowlets-as-published {COPIES_PUBLISHED}", DEFAULTS.copies)))]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=11))]
    pub copies: Option<u8>,
    /// Send only the changes of a replica, where the other unit has the previous one
    #[arg(long, requires = "copies")]
    pub deltas: bool,
    /// Run each unit on its own thread; packets of different flows may be reordered
    #[arg(long)]
    pub threads: bool,
    /// Run long state functions of different functions in parallel, on a second core; without units
    #[arg(long, conflicts_with_all = ["threads", "cluster"])]
    pub second_core: bool,
    /// Run the units on other nodes, as this file says; see `rivulet node`
    #[arg(long, value_name = "FILE", conflicts_with = "threads")]
    pub cluster: Option<PathBuf>,
    #[command(flatten)]
    pub api: ServeOptions,
}

impl Options {
    /// Reads and assembles the policy. With `--threads` or `--cluster`, also returns the source of
    /// the units' graphs.
    pub fn load(&self, policy: &Path, seed: Option<u64>) -> anyhow::Result<(Assembly, Option<UnitMaker>)> {
        if let Some(file) = &self.cluster {
            let (assembly, node) = DispatcherNode::open(file, policies::load_for_node(policy)?, seed)?;
            return Ok((assembly, Some(UnitMaker::Nodes(Box::new(node)))));
        }
        if self.threads {
            let (assembly, maker) = policies::load_for_threads(policy, seed)?;
            return Ok((assembly, Some(UnitMaker::Threads(maker))));
        }
        Ok((policies::load(policy, seed)?, None))
    }

    /// Opens the sockets of the control API, if it will be served.
    pub fn open_api(&self, policy: &Path) -> anyhow::Result<OpenedApi> {
        let stem = || policy.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let (name, files) = match &self.cluster {
            Some(file) => cluster::api_of(file)?,
            None => (stem(), ApiFiles::default()),
        };
        self.api.open(&name, self.cluster.is_some(), &files)
    }

    /// Starts a second core for a runner of this thread, if the options say so.
    pub fn second_core(&self, runner: &mut Runner) -> anyhow::Result<Option<SecondCore>> {
        Ok(self.second_core.then(|| runner.use_second_core()).transpose()?)
    }

    /// Returns the runner of the policy: on units if any of their options is given, on threads if
    /// there is a `maker`. `is_live`: packets arrive at interfaces. Also returns the control of the
    /// cluster that units run on.
    pub fn runner(
        &self,
        policy: &Path,
        assembly: Assembly,
        maker: Option<UnitMaker>,
        is_live: bool,
    ) -> anyhow::Result<(Runner, Option<ClusterControl>)> {
        let name = policy.display().to_string();
        let is_one = maker.is_none()
            && self.assign.is_none()
            && self.mode.is_none()
            && self.units_max.is_none()
            && self.unit_capacity.is_none()
            && self.gap.is_none()
            && self.follow_at.is_none()
            && self.stay_below.is_none()
            && self.copies.is_none();
        if is_one {
            return Ok((Runner::new(assembly, &name), None));
        }
        if self.second_core {
            bail!("--second-core is for a policy without units; see --threads for units on threads");
        }
        let assign = self.assign.unwrap_or(AssignmentPolicy::Flowlets);
        if assign.is_of_flows() && (self.follow_at.is_some() || self.stay_below.is_some()) {
            bail!("--follow-at and --stay-below are for flowlets; --assign says otherwise");
        }
        let defaults = assign.config();
        let config = UnitsConfig {
            mode: self.mode.map_or(defaults.mode, Into::into),
            units_max: self.units_max.unwrap_or(defaults.units_max),
            capacity_bps: self.unit_capacity.map_or(defaults.capacity_bps, |rate| rate.0),
            gap_ns: self.gap.map_or(defaults.gap_ns, |time| time.0),
            follow_at: self.follow_at.map_or(defaults.follow_at, |share| share.0),
            stay_below: self.stay_below.map_or(defaults.stay_below, |share| share.0),
            copies: self.copies.unwrap_or(defaults.copies),
            deltas: self.deltas,
            is_live,
            ..defaults
        };
        let runner = match maker {
            Some(UnitMaker::Nodes(node)) => {
                // A live run shows for whom it waits, and answers operators in the meantime.
                let is_stopped = |_: &StartStatus| signals::is_stopped();
                let is_stopped: Option<IsStopped<'_>> = if is_live { None } else { Some(&is_stopped) };
                let (runner, cluster) = node.run(&name, assembly, config, is_stopped)?;
                return Ok((runner, Some(cluster)));
            }
            Some(UnitMaker::Threads(make)) => Runner::on_threads(assembly, &name, config, make),
            None => Runner::on_units(assembly, &name, config),
        };
        Ok((runner.context("cannot set up units")?, None))
    }
}

/// The source of the units' graphs, where they are not those of one thread.
pub enum UnitMaker {
    /// Makes graphs for threads.
    Threads(Maker),
    /// The dispatcher's node: others make their own.
    Nodes(Box<DispatcherNode>),
}

/// The defaults of the options.
static DEFAULTS: LazyLock<UnitsConfig> = LazyLock::new(UnitsConfig::default);

/// K of SNF (S55).
const COPIES_PUBLISHED: u8 = 3;

/// A policy of assignment: of units to flows or flowlets, and of the number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AssignmentPolicy {
    /// Flowlets stay while their unit has room, and units follow demand.
    Flowlets,
    /// SNF's: every flowlet goes to the fullest unit with room, or to one with a replica of its
    /// flow's state (S29 to S57).
    FlowletsAsPublished,
    /// NFActor's later one: flows, each to the unit with the least load.
    LeastLoaded,
    /// NFActor's first one: flows, to units in turn (A13).
    RoundRobin,
}

impl AssignmentPolicy {
    /// Returns true if whole flows are assigned.
    fn is_of_flows(self) -> bool {
        matches!(self, AssignmentPolicy::LeastLoaded | AssignmentPolicy::RoundRobin)
    }

    /// Returns its configuration of units.
    fn config(self) -> UnitsConfig {
        match self {
            AssignmentPolicy::Flowlets => UnitsConfig::default(),
            AssignmentPolicy::FlowletsAsPublished => {
                UnitsConfig { copies: COPIES_PUBLISHED, ..UnitsConfig::as_published() }
            }
            AssignmentPolicy::LeastLoaded => UnitsConfig::nfactor(UnitChoice::LeastLoaded),
            AssignmentPolicy::RoundRobin => UnitsConfig::nfactor(UnitChoice::RoundRobin),
        }
    }
}

/// Returns a help text with the default that an option's absence means: any option turns units on.
fn with_default(text: &str, default: impl fmt::Display) -> String {
    format!("{text} [default: {default}]")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_flowlets_have_three_replicas() {
        // S55
        let copies = |policy: AssignmentPolicy| policy.config().copies;
        assert_eq!(copies(AssignmentPolicy::FlowletsAsPublished), 3);
        assert_eq!(copies(AssignmentPolicy::Flowlets), 0);
    }

    #[test]
    fn a_share_is_one_or_none() {
        let share = |text: &str| text.parse::<ShareOrNone>().ok();
        assert_eq!([share("none"), share("1")], [Some(ShareOrNone(None)), Some(ShareOrNone(Some(1.0)))]);
        for wrong in ["0", "-0.5", "1.1", "nan", "inf", "None", "", "0.9 "] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }
}
