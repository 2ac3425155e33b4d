//! The start of a dispatcher, which waits for units, but not necessarily for all.

use std::fmt;
use std::time::Duration;

use protocol::message::UnitId;
use telemetry::event;

use super::RemoteUnits;
use super::nodes::NodeStatus;
use crate::network::Network;

/// Time that a dispatcher with a ready unit waits for the other wanted units.
pub const START_GRACE: Duration = Duration::from_secs(2);

/// Limit on names of nodes in a status.
const NAMES_MAX: usize = 16;

/// Progress of the start.
pub(super) struct Start {
    /// Number of wanted units.
    wanted: u16,
    /// Time since which a unit is ready.
    ready_since_ns: Option<u64>,
    pub has_begun: bool,
    /// Only the transport handles changes of units so far.
    pub is_awaited: bool,
}

/// Progress of a dispatcher's start, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartStatus {
    /// Enough units were ready; packets are processed.
    pub has_begun: bool,
    /// Units that are ready.
    pub ready: usize,
    /// Units that it wants at any load.
    pub wanted: usize,
    /// Missing nodes, up to 16.
    pub awaited: Vec<String>,
}

impl fmt::Display for StartStatus {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} of {} are ready", self.ready, self.wanted)?;
        match self.awaited.is_empty() {
            true => Ok(()),
            false => write!(to, ", {} not there", self.awaited.join(", ")),
        }
    }
}

impl Start {
    pub fn new(wanted: u16) -> Start {
        Start { wanted, ready_since_ns: None, has_begun: false, is_awaited: false }
    }
}

impl<N: Network> RemoteUnits<N> {
    fn ready_units(&self) -> usize {
        self.units.iter().filter(|unit| unit.is_ready && unit.is_alive).count()
    }

    /// Starts once all wanted units are ready, or one has been ready for [`START_GRACE`]. Returns
    /// true if that is now.
    pub(super) fn look_at_start(&mut self) -> bool {
        if self.start.has_begun {
            return false;
        }
        let (ready, wanted) = (self.ready_units(), usize::from(self.start.wanted));
        if ready == 0 && wanted > 0 {
            self.start.ready_since_ns = None;
            return false;
        }
        let now_ns = self.peers.now_ns();
        let since_ns = *self.start.ready_since_ns.get_or_insert(now_ns);
        let has_waited = u128::from(now_ns.saturating_sub(since_ns)) >= START_GRACE.as_nanos();
        self.start.has_begun = ready >= wanted || has_waited;
        if self.start.has_begun {
            match ready >= wanted {
                true => event::dispatcher_began(ready as u64, wanted as u64),
                false => {
                    let awaited = self.start_status().awaited.join(", ");
                    event::units_missing(ready as u64, wanted as u64, &awaited);
                }
            }
        }
        self.start.has_begun
    }

    /// Wants a unit in place of a lost one. Only the transport can do that until the dispatcher
    /// handles changes of units.
    pub(super) fn want_another(&mut self, lost: UnitId) {
        if !self.start.is_awaited {
            return;
        }
        let known = self.units.len().max(usize::from(self.config.units_min)).max(lost.index() + 1);
        let wanted = self.wanted.iter().map(|unit| unit.index() + 1).max().unwrap_or(0);
        let next = known.max(wanted);
        if next < usize::from(self.config.units_max) {
            self.wanted.push_back(UnitId(next as u16)); // It is below `units_max`.
        }
    }

    /// Returns the progress of the start.
    pub(super) fn start_status(&self) -> StartStatus {
        let (ready, wanted) = (self.ready_units(), usize::from(self.start.wanted));
        let awaited = match ready < wanted {
            true => self.nodes.names(NodeStatus::Connecting).take(NAMES_MAX).map(str::to_owned).collect(),
            false => Vec::new(),
        };
        StartStatus { has_begun: self.start.has_begun, ready, wanted, awaited }
    }
}
