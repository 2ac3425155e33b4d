//! States in transfer: the awaited state, and the sent state.

use crate::message::{Epoch, FlowRecord};
use crate::unit::Config;

/// The last pull of the state that the next epoch begins with.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Fetch {
    asked: Option<PendingPull>,
}

/// A pull that was sent.
#[derive(Clone, Copy, Debug, Hash)]
struct PendingPull {
    /// The epoch that the state begins.
    epoch: Epoch,
    /// Time of the last transmission.
    at_ns: u64,
    /// Number of earlier transmissions.
    times: u32,
}

impl Fetch {
    /// Notes the first pull of the state of an epoch, unless it is known.
    pub fn begin(&mut self, epoch: Epoch, now_ns: u64) {
        if self.asked.is_none_or(|asked| asked.epoch != epoch) {
            self.asked = Some(PendingPull { epoch, at_ns: now_ns, times: 0 });
        }
    }

    /// Notes another pull.
    pub fn repeat(&mut self, epoch: Epoch, now_ns: u64) {
        let times = self.asked.map_or(0, |asked| asked.times.saturating_add(1));
        self.asked = Some(PendingPull { epoch, at_ns: now_ns, times });
    }

    /// Returns the time of the last pull of an epoch's state, and the wait until the next one.
    pub fn timer(&self, epoch: Epoch, config: &Config) -> Option<(u64, u64)> {
        let asked = self.asked.filter(|asked| asked.epoch == epoch)?;
        Some((asked.at_ns, config.again_ns(asked.times)))
    }
}

/// The state that was sent to the next owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    /// The state, and the epoch that it begins, if it may have to be sent again: the engine does
    /// not have it any more.
    state: Option<Box<(Epoch, FlowRecord)>>,
    /// The epoch of the owner that has the state already, before the dispatcher's release.
    acknowledged: Option<Epoch>,
}

impl Sent {
    /// Returns the state that was sent for an epoch.
    pub fn state_of(&self, epoch: Epoch) -> Option<&FlowRecord> {
        self.state.as_deref().filter(|(begins, _)| *begins == epoch).map(|(_, record)| record)
    }

    /// Keeps a state that is sent.
    pub fn keep(&mut self, epoch: Epoch, record: FlowRecord) {
        self.state = Some(Box::new((epoch, record)));
    }

    /// Forgets the state.
    pub fn forget(&mut self) {
        self.state = None;
    }

    /// Notes that the owner of an epoch has the state.
    pub fn acknowledge(&mut self, epoch: Epoch) {
        self.acknowledged = Some(epoch);
    }

    /// Returns the epoch of the owner that has the state already.
    pub fn acknowledged(&self) -> Option<Epoch> {
        self.acknowledged
    }
}
