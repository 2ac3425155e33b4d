//! The recovery of a state that was lost with its owner: from replicas at other units.
//!
//! ```text
//! dispatcher                         Y (new owner)                    A, B (may have replicas)
//!   | --- Recover e+1, last, A, B ---> |                                  |
//!   | --- packets of e+1 ------------> | they are pending                 |
//!   |                                  | ---- Seek e+1, own version ----> |
//!   |                                  | <--- Found e+1, newer replica -- |
//!   | <-- Recovered e+1, lacks n ----- | ---- StateAck e+1 -------------> | forget earlier epochs
//! ```

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, FlowRecord, FromPeer, FromUnit, ReplicaTargets, UnitId, Version, Watermark};
use crate::trace::{FlowPlace, TimelineEvent};

use super::{Context, Flow, Unacceptable};
use crate::unit::{Config, Engine, ownership::StateSource};

/// The search for replicas of a lost state, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery(Option<Box<Search>>);

/// A search for replicas.
#[derive(Clone, Debug, Hash)]
struct Search {
    /// The epoch that the state begins.
    epoch: Epoch,
    /// Units that may have a replica, or the state of an earlier epoch.
    holders: Vec<UnitId>,
    /// Of these, units that have not answered.
    unanswered: Vec<UnitId>,
    /// The newest replica so far.
    newest: Option<(Version, FlowRecord)>,
    /// The units that get replicas of the state.
    targets: ReplicaTargets,
    /// Time of the last transmission.
    at_ns: u64,
    /// Number of earlier transmissions.
    times: u32,
}

impl Recovery {
    /// Begins a search.
    fn new<E: Engine>(epoch: Epoch, holders: &[UnitId], targets: &[UnitId], cx: &Context<'_, E>) -> Recovery {
        let others = |units: &[UnitId]| -> Vec<UnitId> {
            let mut others: Vec<UnitId> = units.iter().copied().filter(|&unit| unit != cx.id()).collect();
            others.sort_unstable();
            others.dedup();
            others
        };
        let targets = ReplicaTargets::of_distinct(others(targets).into_iter());
        let (holders, at_ns) = (others(holders), cx.now_ns);
        let unanswered = holders.clone();
        let search = Search { epoch, holders, unanswered, newest: None, targets, at_ns, times: 0 };
        Recovery(Some(Box::new(search)))
    }

    /// Returns true if the state of this epoch is sought.
    pub fn is_for(&self, epoch: Epoch) -> bool {
        self.0.as_ref().is_some_and(|search| search.epoch == epoch)
    }

    /// Returns the time of the last transmission, and the wait until the next one.
    pub fn timer(&self, config: &Config) -> Option<(u64, u64)> {
        let search = self.0.as_ref()?;
        Some((search.at_ns, config.again_ns(search.times)))
    }

    /// Ends the search: the flow has ended.
    pub fn stop(&mut self) {
        self.0 = None;
    }

    /// Ends a search for the state of this epoch or an earlier one: it is here.
    pub fn stop_up_to(&mut self, epoch: Epoch) {
        _ = self.0.take_if(|search| search.epoch <= epoch);
    }

    /// Requests newer replicas than the one here, or the state here, from the units that have not
    /// answered.
    fn seek<E: Engine>(&self, state: Option<Version>, cx: &mut Context<'_, E>) {
        let Some(search) = &self.0 else { return };
        let has = state.max(cx.replica().map(|(version, _)| version));
        for &unit in &search.unanswered {
            cx.counters.replicas_sought += 1;
            cx.out.to_units.push((unit, FromPeer::Seek { flow: cx.flow, epoch: search.epoch, has }));
        }
    }

    /// Repeats the requests.
    pub fn seek_again<E: Engine>(&mut self, state: Option<Version>, cx: &mut Context<'_, E>) {
        if let Some(search) = &mut self.0 {
            (search.at_ns, search.times) = (cx.now_ns, search.times.saturating_add(1));
        }
        self.seek(state, cx);
    }

    /// Handles the answer of a unit. Returns false if it is not awaited.
    pub fn found(&mut self, epoch: Epoch, from: UnitId, replica: Option<(Version, FlowRecord)>) -> bool {
        let Some(search) = self.0.as_mut().filter(|search| search.epoch == epoch) else { return false };
        let Some(place) = search.unanswered.iter().position(|&unit| unit == from) else { return false };
        search.unanswered.remove(place);
        if let Some((version, record)) = replica {
            search.keep(version, record);
        }
        true
    }

    /// Takes the search once all units have answered.
    fn take_complete(&mut self) -> Option<Box<Search>> {
        self.0.take_if(|search| search.unanswered.is_empty())
    }
}

impl Search {
    /// Keeps a replica if it is the newest.
    fn keep(&mut self, version: Version, record: FlowRecord) {
        if self.newest.as_ref().is_none_or(|(newest, _)| version > *newest) {
            self.newest = Some((version, record));
        }
    }
}

impl Flow {
    /// Makes the unit the owner of an epoch with a state that was lost with its owner: seeks
    /// replicas of it.
    pub fn recover<E: Engine>(
        &mut self,
        (epoch, last): (Epoch, u64),
        holders: &[UnitId],
        targets: &[UnitId],
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        self.packets.disturb();
        self.ownerships.admit(epoch)?.set_start(StateSource::Replicas { last });
        self.recovery = Recovery::new(epoch, holders, targets, cx);
        self.recovery.seek(self.packets.version(), cx);
        Ok(())
    }

    /// Continues with the newest state once all units have answered. Returns the epoch if there is
    /// none: the flow is lost.
    pub fn finish_recovery<E: Engine>(&mut self, cx: &mut Context<'_, E>) -> Option<Epoch> {
        let search = self.recovery.take_complete()?;
        let (epoch, is_here) = (search.epoch, self.packets.state().is_some());
        let mut states: Vec<_> =
            [self.own_state(cx), cx.replica(), search.newest].into_iter().flatten().collect();
        states.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
        let restored = states.into_iter().find(|(_, record)| cx.restore(&record.bytes, is_here).is_ok());
        let Some((_, record)) = restored else { return Some(epoch) };
        // What they have of earlier epochs is of no use any more.
        search.holders.iter().for_each(|&unit| cx.acknowledge(unit, epoch));
        self.continue_with(epoch, record.watermark, search.targets, cx);
        None
    }

    /// Returns the state that is here, of an epoch before the lost one. A state that was sent to
    /// the lost owner is that of the message: its flow may have let go of it since.
    pub fn own_state<E: Engine>(&self, cx: &mut Context<'_, E>) -> Option<(Version, FlowRecord)> {
        let state = self.packets.state()?;
        let sent = self.sent.state_of(state.epoch.saturating_add(1)).cloned();
        let record = sent.unwrap_or_else(|| cx.record(state.mark));
        Some((Version { epoch: state.epoch, seq: state.mark.contiguous }, record))
    }

    /// Begins an epoch with a recovered state.
    fn continue_with<E: Engine>(
        &mut self,
        epoch: Epoch,
        mut mark: Watermark,
        targets: ReplicaTargets,
        cx: &mut Context<'_, E>,
    ) {
        let start = self.ownerships.find(epoch).map(|ownership| ownership.start());
        let last = start.and_then(StateSource::last).unwrap_or(0).max(mark.highest());
        let lacks = mark.give_up_to(last);
        cx.counters.states_recovered += 1;
        cx.counters.packets_unrecovered += lacks;
        if lacks > 0 {
            cx.engine.miss(cx.now_ns, cx.flow, lacks);
            cx.note(FlowPlace::new(cx.flow, epoch, last), TimelineEvent::GivenUp { packets: lacks });
        }
        self.sent.forget();
        self.take(epoch, mark, "recovered", cx);
        cx.out.to_dispatcher.push(FromUnit::Recovered { flow: cx.flow, epoch, lacks: Some(lacks) });
        self.packets.protect(targets, self.ending.may_be_copied(), cx);
        self.pump(cx);
    }
}

impl<E: Engine> Context<'_, E> {
    /// Returns the replica that is here.
    pub fn replica(&self) -> Option<(Version, FlowRecord)> {
        let (version, record, _) = self.replicas.copy(self.flow.index, self.copy)?;
        Some((version, record.clone()))
    }
}

impl Hash for Recovery {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
