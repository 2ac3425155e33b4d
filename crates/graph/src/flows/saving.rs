//! Flows in transfer between units: everything that a flow owns, serialized (A11, DESIGN 3), also
//! from functions of other versions, as in an update.
//!
//! Shared state does not move with a flow: items of pools that it holds stay taken where they were
//! taken, and the members of sets, meters and counters stay where they were added.

use std::borrow::Cow;

use nf::UpgradeError;
use nf::record::RecordLayout;
use nf::stage::{SavedPart, Stage, StageEnv};
use packet::{Direction, PacketPool, Side, split_mix};

use super::Flows;
use crate::Counters;
use crate::flow_table::{SecondPass, TakeOverError};
use crate::places::Places;
use crate::routing::Routing;
use crate::stages::Stages;
use crate::streams::StreamRestoreError;
use crate::topology::{NfSet, TopologyEdge};

/// The prefix of a saved flow: its graph's fingerprint, and the length of the functions' buffers.
/// The digests of the functions' configurations follow.
const PREFIX_LEN: usize = 8 + 4;

/// Version of the saved format apart from records: flows of another version are refused.
const SAVED_FORMAT: u64 = 2 << 32;

/// The length of a digest of a function's configuration.
const DIGEST_LEN: usize = 4;

/// A bit in the length of the buffers: the flow turns back, and its second pass follows, after its
/// length.
const HAS_SECOND: u32 = 1 << 31;

/// The prefix of a saved second pass: the function that turns the flow back, the side, the
/// direction, and the length of the functions' buffers.
const SECOND_PREFIX_LEN: usize = 2 + 1 + 1 + 4;

/// The layout of a graph's saved flows ([`crate::FlowsMut::save`]): a graph with other versions of
/// the functions needs it to restore them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLayout {
    fingerprint: u64,
    /// The edges, if the graph has branches.
    edges: Vec<TopologyEdge>,
    record_len: usize,
    /// Bytes before the functions' parts: the header, and what TCP streams need.
    lead_len: usize,
    parts: Vec<SavedPart>,
}

impl SavedLayout {
    /// Bytes of a record.
    fn record_len(&self) -> usize {
        self.record_len
    }

    /// Returns the digests of the functions' configurations, as they are saved.
    fn digests(&self) -> impl Iterator<Item = [u8; DIGEST_LEN]> + '_ {
        self.parts.iter().map(|part| part.config_digest.to_le_bytes())
    }

    /// Returns true if it has the same functions in the same order, in any versions.
    fn is_of_same(&self, other: &SavedLayout) -> bool {
        let functions = |layout: &SavedLayout| -> Vec<_> {
            layout.parts.iter().map(|part| (part.name, part.tag_bits)).collect()
        };
        self.lead_len == other.lead_len && self.edges == other.edges && functions(self) == functions(other)
    }
}

/// The error of restoring a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The bytes are not what [`crate::FlowsMut::save`] wrote.
    #[error("the saved flow is damaged")]
    Damaged,
    /// They are from a graph of other functions, or of other versions of them.
    #[error("the saved flow is that of another chain")]
    OtherChain,
    /// A flow with its key or alias is already here.
    #[error("a flow with the saved flow's key or alias is already here")]
    Known,
    /// A function cannot take the flow's shared state.
    #[error("a function cannot take what the saved flow holds of shared state")]
    SharedState,
    /// The flow table is full.
    #[error("the flow table is full")]
    TableFull,
    /// A function cannot read its state, which is of another version.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// Its TCP streams could not be restored.
    #[error(transparent)]
    Streams(#[from] StreamRestoreError),
}

impl From<TakeOverError> for RestoreError {
    fn from(error: TakeOverError) -> RestoreError {
        match error {
            TakeOverError::Damaged => RestoreError::Damaged,
            TakeOverError::Known => RestoreError::Known,
            TakeOverError::Full => RestoreError::TableFull,
        }
    }
}

/// Saves, restores and releases flows that move between graphs.
pub(crate) struct FlowTransfer {
    /// The layout of flows that are saved here.
    own: SavedLayout,
    /// Layouts of other versions of the functions that are accepted.
    others: Vec<SavedLayout>,
    moved_in: u64,
    moved_out: u64,
}

impl FlowTransfer {
    /// Creates the transfer of these flows. The functions' parts of records begin at `lead_len`.
    pub fn new(stages: &Stages, flows: &Flows, lead_len: usize) -> FlowTransfer {
        let (table, routing) = (&flows.table, &flows.routing);
        let own = SavedLayout {
            fingerprint: fingerprint(&stages.all, table.layout()),
            edges: routing.as_ref().map(|routing| routing.topology().edges().to_vec()).unwrap_or_default(),
            record_len: table.records.record_len(),
            lead_len,
            parts: stages.all.iter().filter_map(|stage| stage.saved_part()).collect(),
        };
        FlowTransfer { own, others: Vec::new(), moved_in: 0, moved_out: 0 }
    }

    /// Returns the layout with this fingerprint, if its flows are accepted.
    fn other(&self, fingerprint: &[u8]) -> Option<&SavedLayout> {
        self.others.iter().find(|other| other.fingerprint.to_le_bytes() == fingerprint)
    }

    /// Converts a record that was saved in another layout: each function upgrades its state.
    fn upgrade(
        &self,
        other: &SavedLayout,
        (stages, routing): (&Stages, Option<&Routing>),
        saved: &[u8],
    ) -> Result<Vec<u8>, UpgradeError> {
        let (mut record, lead_len) = (vec![0; self.own.record_len], self.own.lead_len);
        record[..lead_len].copy_from_slice(&saved[..lead_len]);
        let started = routing.map_or(NfSet::ALL, |routing| routing.routes().saved_started(saved));
        for (number, (stage, from)) in stages.all.iter().zip(&other.parts).enumerate() {
            if started.has(number)
                && let Some(to) = stage.saved_part()
            {
                stage.upgrade(from, &saved[from.bytes.clone()], &mut record[to.bytes])?;
            }
        }
        Ok(record)
    }

    /// Adds the numbers of flows that moved.
    pub fn count(&self, counters: &mut Counters) {
        (counters.flows_moved_in, counters.flows_moved_out) = (self.moved_in, self.moved_out);
    }

    /// Appends everything that a flow owns to `out`: the record, the functions' buffers, its TCP
    /// streams and datagrams in fragments with their queued bytes. The flow does not change.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn save(&self, record: u32, flows: &mut Flows, stages: &mut Stages, out: &mut Vec<u8>) {
        assert!(flows.table.is_live(record), "a record without a flow is saved");
        let begin = out.len();
        let pass = flows.table.passes.get(record);
        out.extend_from_slice(&self.own.fingerprint.to_le_bytes());
        out.extend_from_slice(&[0; PREFIX_LEN - 8]);
        self.own.digests().for_each(|digest| out.extend_from_slice(&digest));
        let mut parts = FlowParts { flows, stages };
        let mut beside_len = parts.save_record(record, out);
        if let Some(pass) = pass {
            beside_len |= HAS_SECOND;
            parts.save_second(pass, out);
        }
        out[begin + 8..begin + PREFIX_LEN].copy_from_slice(&beside_len.to_le_bytes());
        parts.flows.save_streams(record, out);
    }

    /// Returns the layout of flows that are saved here.
    pub fn saved_layout(&self) -> &SavedLayout {
        &self.own
    }

    /// Accepts saved flows of this layout, too, from now on.
    ///
    /// # Errors
    /// If it is the layout of other functions, or in another order.
    pub fn accept_states_of(&mut self, other: SavedLayout) -> Result<(), RestoreError> {
        if !other.is_of_same(&self.own) {
            return Err(RestoreError::OtherChain);
        }
        self.others.push(other);
        Ok(())
    }

    /// Restores a saved flow, and returns its record. On an error, nothing of it is kept.
    ///
    /// A flow of the same key or alias that is here already is not changed. If the table is full,
    /// another flow is evicted only if the graph's options say so.
    pub fn restore(
        &mut self,
        saved: &[u8],
        flows: &mut Flows,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<u32, RestoreError> {
        let mut parts = FlowParts { flows, stages };
        let (prefix, rest) = saved.split_at_checked(PREFIX_LEN).ok_or(RestoreError::Damaged)?;
        let (fingerprint, beside_len) = prefix.split_at(8);
        let beside_len = number(beside_len);
        let has_second = beside_len & HAS_SECOND != 0;
        let beside_len = (beside_len & !HAS_SECOND) as usize;
        let other = match fingerprint == self.own.fingerprint.to_le_bytes() {
            true => None,
            false => Some(self.other(fingerprint).ok_or(RestoreError::OtherChain)?),
        };
        // Another layout has as many parts.
        let digests_len = self.own.parts.len() * DIGEST_LEN;
        let (digests, rest) = rest.split_at_checked(digests_len).ok_or(RestoreError::Damaged)?;
        let record_len = other.map_or(parts.flows.table.records.record_len(), SavedLayout::record_len);
        let (bytes, rest) = rest.split_at_checked(record_len).ok_or(RestoreError::Damaged)?;
        let (beside, rest) = rest.split_at_checked(beside_len).ok_or(RestoreError::Damaged)?;
        let (second, saved_streams) = match has_second {
            true => {
                let (len, rest) = rest.split_at_checked(4).ok_or(RestoreError::Damaged)?;
                rest.split_at_checked(number(len) as usize).ok_or(RestoreError::Damaged)?
            }
            false => (&[][..], rest),
        };
        let second = has_second.then(|| read_second(second, record_len, parts.stages)).transpose()?;
        let by = (&*parts.stages, parts.flows.routing.as_deref());
        let upgraded = other.map(|other| self.upgrade(other, by, bytes)).transpose()?;
        let upgraded_second = match (other, &second) {
            (Some(other), Some(second)) => Some(self.upgrade(other, by, second.bytes)?),
            _ => None,
        };
        let bytes = parts.flows.in_segments(upgraded.map_or(Cow::Borrowed(bytes), Cow::Owned));
        let bytes = &*bytes;
        parts.flows.table.check(bytes)?;
        let second_bytes = second.as_ref().map(|second| {
            let mut saved = upgraded_second.map_or(Cow::Borrowed(second.bytes), Cow::Owned);
            if !parts.flows.places.is_empty() {
                Places::set_as(saved.to_mut(), bytes);
            }
            saved
        });
        let second_bytes = second_bytes.as_deref();
        if let Some(routing) = &parts.flows.routing
            && ![Some(bytes), second_bytes].into_iter().flatten().all(|record| routing.routes().takes(record))
        {
            return Err(RestoreError::Damaged);
        }
        let records = 1 + u32::from(has_second);
        while parts.flows.table.records.live() + records > parts.flows.table.records.capacity() {
            if !parts.flows.make_room(parts.stages, pool) {
                return Err(RestoreError::TableFull);
            }
        }
        let record = parts.flows.table.take_over(bytes)?;
        parts.flows.forget_rules(record);
        if let Some(ingresses) = &mut parts.flows.table.ingresses {
            ingresses.forget(record);
        }
        let mut restored = parts.restore_beside(record, beside, saved_streams);
        if let (Ok(()), Some(second), Some(bytes)) = (&restored, &second, second_bytes) {
            let pass = SecondPass { main: record, ..second.pass };
            let number = parts.flows.table.take_second_over(bytes, pass).map_err(RestoreError::from);
            number.iter().for_each(|second| parts.flows.forget_rules(*second));
            restored = number.and_then(|number| parts.restore_beside(number, second.beside, second.streams));
        }
        if restored.is_err() {
            parts.forget(record);
        }
        restored?;
        self.reconfigure(record, digests, &mut parts, pool);
        self.moved_in += 1;
        parts.flows.note_peak();
        if parts.flows.affinity_groups.is_some() && !parts.take_shared(record, pool) {
            parts.give_shared_up(record, pool);
            self.moved_in -= 1;
            parts.forget(record);
            return Err(RestoreError::SharedState);
        }
        let now_ns = parts.flows.clock.now_ns();
        parts.for_each(record, pool, |_, stage, record, env| stage.flow_moved(record, now_ns, env));
        Ok(record)
    }

    /// Restores a flow that another graph had since it was saved, with the same time as this graph:
    /// that graph dropped fragments that have expired since.
    pub fn restore_copy(
        &mut self,
        saved: &[u8],
        flows: &mut Flows,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<u32, RestoreError> {
        if let Some(reassembly) = &mut flows.reassembly {
            reassembly.datagrams_mut().0.set_gone_until(flows.clock.now_ns());
        }
        let restored = self.restore(saved, flows, stages, pool);
        if let Some(reassembly) = &mut flows.reassembly {
            reassembly.datagrams_mut().0.set_gone_until(0);
        }
        restored
    }

    /// Notes that a restored flow lacks packets that were processed elsewhere.
    pub fn note_lag(&mut self, record: u32, flows: &mut Flows, stages: &mut Stages, pool: &mut PacketPool) {
        assert!(flows.table.is_live(record), "a record without a flow lags");
        let mut parts = FlowParts { flows, stages };
        let now_ns = parts.flows.clock.now_ns();
        parts.for_each(record, pool, |_, stage, record, env| stage.flow_lags(record, now_ns, env));
    }

    /// Removes a flow that has moved elsewhere, which is not its end. What it holds of pools stays
    /// held, unless the other graph has pools of its own.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn release(&mut self, record: u32, flows: &mut Flows, stages: &mut Stages) {
        assert!(flows.table.is_live(record), "a record without a flow is released");
        let mut parts = FlowParts { flows, stages };
        if parts.flows.affinity_groups.is_some() {
            parts.give_shared_up(record, &mut PacketPool::new(0));
        }
        self.moved_out += 1;
        parts.forget(record);
    }

    /// Adapts a flow to functions with other configurations than it had.
    fn reconfigure(&self, record: u32, digests: &[u8], parts: &mut FlowParts<'_>, pool: &mut PacketPool) {
        if self.own.digests().eq(digests.chunks_exact(DIGEST_LEN)) {
            return;
        }
        let (now_ns, mut saved) = (parts.flows.clock.now_ns(), digests.chunks_exact(DIGEST_LEN));
        let own = parts.stages.all.iter().map(|stage| stage.saved_part());
        let own = own.map(|part| part.map(|part| part.config_digest.to_le_bytes()));
        let differ: Vec<bool> =
            own.map(|own| own.is_some_and(|own| saved.next() != Some(&own[..]))).collect();
        parts.for_each(record, pool, |number, stage, record, env| {
            if differ[number] {
                stage.flow_reconfigured(record, now_ns, env);
            }
        });
    }
}

impl Flows {
    /// Appends a flow's TCP streams with their queued bytes to `out`.
    pub fn save_streams(&self, record: u32, out: &mut Vec<u8>) {
        if let Some(reassembly) = &self.reassembly {
            reassembly.save(record, &self.table.records, out);
        }
    }

    /// Returns a saved record with the segments of its keys, which are not saved.
    fn in_segments<'s>(&self, mut saved: Cow<'s, [u8]>) -> Cow<'s, [u8]> {
        if let Some(routing) = self.routing.as_ref().filter(|_| !self.places.is_empty())
            && let Some(ports) = routing.routes().saved_ports(&saved)
        {
            self.places.set(saved.to_mut(), ports);
        }
        saved
    }
}

/// The parts of a flow: its record, the functions' buffers, and its streams.
struct FlowParts<'f> {
    flows: &'f mut Flows,
    stages: &'f mut Stages,
}

impl FlowParts<'_> {
    /// Appends a record and the functions' buffers. Returns the length of the latter.
    fn save_record(&mut self, record: u32, out: &mut Vec<u8>) -> u32 {
        let begin = out.len();
        out.extend_from_slice(self.flows.table.records.bytes(record).unwrap_or_default());
        if !self.flows.places.is_empty() {
            Places::strip(&mut out[begin..]);
        }
        let (beside, started) = (out.len(), self.flows.started(record));
        for (number, stage) in self.stages.all.iter_mut().enumerate() {
            if started.has(number) {
                stage.save_buffers(record, &mut self.flows.table.records, out);
            }
        }
        (out.len() - beside) as u32
    }

    /// Appends everything that the second pass of a flow owns, after its length.
    fn save_second(&mut self, pass: SecondPass, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&pass.stage.to_le_bytes());
        out.extend_from_slice(&[pass.near as u8, pass.direction as u8, 0, 0, 0, 0]);
        let beside_len = self.save_record(pass.second, out);
        out[begin + 8..begin + 12].copy_from_slice(&beside_len.to_le_bytes());
        self.flows.save_streams(pass.second, out);
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Takes the shared state of a flow that arrived. Returns false if a function cannot.
    fn take_shared(&mut self, record: u32, pool: &mut PacketPool) -> bool {
        let now_ns = self.flows.clock.now_ns();
        let mut has_all = true;
        self.for_each(record, pool, |_, stage, record, env| {
            has_all &= stage.flow_arrives(record, now_ns, env);
        });
        has_all
    }

    /// Gives up the shared state of a flow that leaves.
    fn give_shared_up(&mut self, record: u32, pool: &mut PacketPool) {
        let now_ns = self.flows.clock.now_ns();
        self.for_each(record, pool, |_, stage, record, env| {
            stage.flow_leaves(record, now_ns, env);
        });
    }

    /// Calls `then` with each function that has state of a flow and its number, and for its second
    /// pass again.
    fn for_each(
        &mut self,
        record: u32,
        pool: &mut PacketPool,
        mut then: impl FnMut(usize, &mut dyn Stage, u32, &mut StageEnv<'_>),
    ) {
        let second = self.flows.table.passes.get(record).map(|pass| pass.second);
        for record in [Some(record), second].into_iter().flatten() {
            let started = self.flows.started(record);
            let Stages { all, effects, .. } = &mut *self.stages;
            let mut env = StageEnv { records: &mut self.flows.table.records, effects, buffers: pool };
            for (number, stage) in all.iter_mut().enumerate() {
                if started.has(number) {
                    then(number, &mut **stage, record, &mut env);
                }
            }
        }
    }

    /// Removes a flow, which is not its end.
    fn forget(&mut self, record: u32) {
        let second = self.flows.table.passes.get(record).map(|pass| pass.second);
        for record in [Some(record), second].into_iter().flatten() {
            let started = self.flows.started(record);
            for (number, stage) in self.stages.all.iter_mut().enumerate() {
                if started.has(number) {
                    stage.release_buffers(record, &mut self.flows.table.records);
                }
            }
            if let Some(reassembly) = &mut self.flows.reassembly {
                reassembly.release(record, &mut self.flows.table.records);
            }
        }
        self.flows.table.forget_second(record);
        self.flows.table.remove(record);
    }

    /// Restores the functions' buffers and the streams of a flow.
    fn restore_beside(&mut self, record: u32, beside: &[u8], streams: &[u8]) -> Result<(), RestoreError> {
        // The record still refers to buffers of the other graph. So each function restores its part
        // or clears it, even if an earlier one failed.
        let started = self.flows.started(record);
        let records = &mut self.flows.table.records;
        let mut rest = Some(beside);
        for (number, stage) in self.stages.all.iter_mut().enumerate() {
            if !started.has(number) {
                continue;
            }
            let left = stage.restore_buffers(record, records, rest.unwrap_or_default());
            rest = rest.and(left);
        }
        let restored = match &mut self.flows.reassembly {
            Some(reassembly) => reassembly.restore(record, records, streams).map_err(RestoreError::from),
            None if streams.is_empty() => Ok(()),
            None => Err(RestoreError::Damaged),
        };
        if rest == Some(&[][..]) { restored } else { Err(RestoreError::Damaged) }
    }
}

/// The saved second pass of a flow that turns back.
struct SavedSecond<'s> {
    /// Its records have other numbers here.
    pass: SecondPass,
    bytes: &'s [u8],
    beside: &'s [u8],
    streams: &'s [u8],
}

/// Parses the bytes of a saved second pass.
fn read_second<'s>(
    saved: &'s [u8],
    record_len: usize,
    stages: &Stages,
) -> Result<SavedSecond<'s>, RestoreError> {
    let (prefix, rest) = saved.split_at_checked(SECOND_PREFIX_LEN).ok_or(RestoreError::Damaged)?;
    let (bytes, rest) = rest.split_at_checked(record_len).ok_or(RestoreError::Damaged)?;
    let (beside, streams) =
        rest.split_at_checked(number(&prefix[4..]) as usize).ok_or(RestoreError::Damaged)?;
    let pass = SecondPass {
        main: 0,
        second: 0,
        stage: number(&prefix[..2]) as u16,
        near: if prefix[2] == Side::Inside as u8 { Side::Inside } else { Side::Outside },
        direction: if prefix[3] == Direction::Original as u8 {
            Direction::Original
        } else {
            Direction::Reply
        },
    };
    if usize::from(pass.stage) >= stages.all.len() {
        return Err(RestoreError::Damaged);
    }
    Ok(SavedSecond { pass, bytes, beside, streams })
}

/// Reads a number of up to four bytes, the lowest first.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Returns the identity of a graph: its functions, their versions, and its records' size.
fn fingerprint(stages: &[Box<dyn Stage>], layout: &RecordLayout) -> u64 {
    let mut state = layout.len() as u64 ^ SAVED_FORMAT;
    for stage in stages {
        let descriptor = stage.descriptor();
        for byte in descriptor.name.bytes().chain(descriptor.state_version.to_le_bytes()) {
            state = split_mix(&mut (state ^ u64::from(byte)));
        }
    }
    state
}
