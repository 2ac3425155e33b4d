//! Flows on their way between units: everything that a flow owns, as one run of bytes (A11, DESIGN
//! 3), also from functions in other versions, which an update replaces.
//!
//! What flows share does not move with one of them: items of pools that it holds stay taken where
//! they were taken, and the members of sets, meters and counters stay where they were noted.

use std::borrow::Cow;

use nf::UpgradeError;
use nf::record::RecordLayout;
use nf::stage::{SavedPart, Stage, StageEnv};
use packet::{Direction, PacketPool, Side, split_mix};

use super::Flows;
use crate::flow_table::{FlowTable, RestoreError, SecondPass};
use crate::places::Places;
use crate::routing::Routing;
use crate::stages::Stages;
use crate::topology::{NfSet, TopologyEdge};

/// The prefix of a saved flow: the graph that it is of, and the length of what the functions keep
/// beside the record. Then follow the digests of the functions' configurations.
const PREFIX_LEN: usize = 8 + 4;

/// Version of everything that is saved beside records: flows in another one are refused.
const SAVED_FORMAT: u64 = 2 << 32;

/// The length of a digest of a function's configuration.
const DIGEST_LEN: usize = 4;

/// In the number of bytes beside the record: the flow turns back, and what its second pass owns
/// follows, after its length.
const HAS_SECOND: u32 = 1 << 31;

/// The prefix of a saved second pass: the function that turns the flow back, the side, the
/// direction, and how long what follows is that the functions keep beside its record.
const SECOND_PREFIX_LEN: usize = 2 + 1 + 1 + 4;

/// The layout of a graph's saved flows ([`crate::Graph::save_flow`]): what a graph with other
/// versions of its functions has to know to take them over.
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

    /// Returns true if it is that of the same functions in the same order, whatever their versions.
    fn is_of_same(&self, other: &SavedLayout) -> bool {
        let functions = |layout: &SavedLayout| -> Vec<_> {
            layout.parts.iter().map(|part| (part.name, part.tag_bits)).collect()
        };
        self.lead_len == other.lead_len && self.edges == other.edges && functions(self) == functions(other)
    }
}

/// The layout of flows that are saved here, and those of other versions of the functions.
pub(super) struct SavedLayouts {
    own: SavedLayout,
    /// Those whose flows are taken over.
    others: Vec<SavedLayout>,
}

impl SavedLayouts {
    /// For records of this table, with the parts of the functions from `lead_len` on.
    pub fn new(
        (stages, routing): (&Stages, Option<&Routing>),
        table: &FlowTable,
        lead_len: usize,
    ) -> SavedLayouts {
        let own = SavedLayout {
            fingerprint: fingerprint(&stages.all, &table.layout),
            edges: routing.map(|routing| routing.topology.edges().to_vec()).unwrap_or_default(),
            record_len: table.records.record_len(),
            lead_len,
            parts: stages.all.iter().filter_map(|stage| stage.saved_part()).collect(),
        };
        SavedLayouts { own, others: Vec::new() }
    }

    /// The layout with this fingerprint, if such flows are taken over.
    fn other(&self, fingerprint: &[u8]) -> Option<&SavedLayout> {
        self.others.iter().find(|other| other.fingerprint.to_le_bytes() == fingerprint)
    }

    /// A record of one that was saved otherwise: each function brings its state over.
    fn upgrade(
        &self,
        other: &SavedLayout,
        (stages, routing): (&Stages, Option<&Routing>),
        saved: &[u8],
    ) -> Result<Vec<u8>, UpgradeError> {
        let (mut record, lead_len) = (vec![0; self.own.record_len], self.own.lead_len);
        record[..lead_len].copy_from_slice(&saved[..lead_len]);
        let started = routing.map_or(NfSet::ALL, |routing| routing.saved_started(saved));
        for (number, (stage, from)) in stages.all.iter().zip(&other.parts).enumerate() {
            if started.has(number)
                && let Some(to) = stage.saved_part()
            {
                stage.upgrade(from, &saved[from.bytes.clone()], &mut record[to.bytes])?;
            }
        }
        Ok(record)
    }
}

impl Flows {
    /// Adds everything that a flow owns to `out`: the record, what its functions keep beside it,
    /// its TCP streams and datagrams in fragments with all that waits in them. It stays as it is.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn save(&mut self, record: u32, stages: &mut Stages, out: &mut Vec<u8>) {
        assert!(self.table.is_live(record), "a record without a flow is saved");
        let begin = out.len();
        let pass = self.table.passes.get(record);
        out.extend_from_slice(&self.layouts.own.fingerprint.to_le_bytes());
        out.extend_from_slice(&[0; PREFIX_LEN - 8]);
        self.layouts.own.digests().for_each(|digest| out.extend_from_slice(&digest));
        let mut beside_len = self.save_record(record, stages, out);
        if let Some(pass) = pass {
            beside_len |= HAS_SECOND;
            self.save_second(pass, stages, out);
        }
        out[begin + 8..begin + PREFIX_LEN].copy_from_slice(&beside_len.to_le_bytes());
        self.save_streams(record, out);
    }

    /// Adds what a flow's TCP streams have come to, with all bytes that wait, to `out`.
    pub fn save_streams(&self, record: u32, out: &mut Vec<u8>) {
        if let Some(reassembly) = &self.reassembly {
            reassembly.save(record, &self.table.records, out);
        }
    }

    /// Returns the layout of flows that are saved here.
    pub fn saved_layout(&self) -> &SavedLayout {
        &self.layouts.own
    }

    /// Flows that were saved so are taken over, too, from now on.
    ///
    /// # Errors
    /// If they are those of other functions, or in another order.
    pub fn accept_states_of(&mut self, other: SavedLayout) -> Result<(), RestoreError> {
        if !other.is_of_same(&self.layouts.own) {
            return Err(RestoreError::OtherChain);
        }
        self.layouts.others.push(other);
        Ok(())
    }

    /// Adds a record and what functions keep beside it; says how long the latter is.
    fn save_record(&mut self, record: u32, stages: &mut Stages, out: &mut Vec<u8>) -> u32 {
        let begin = out.len();
        out.extend_from_slice(self.table.records.bytes(record).unwrap_or_default());
        if !self.places.is_empty() {
            Places::strip(&mut out[begin..]);
        }
        let (beside, started) = (out.len(), self.started(record));
        for (number, stage) in stages.all.iter_mut().enumerate() {
            if started.has(number) {
                stage.save_buffers(record, &mut self.table.records, out);
            }
        }
        (out.len() - beside) as u32
    }

    /// Adds everything that the second pass of a flow owns, after its length.
    fn save_second(&mut self, pass: SecondPass, stages: &mut Stages, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&pass.stage.to_le_bytes());
        out.extend_from_slice(&[pass.near as u8, pass.direction as u8, 0, 0, 0, 0]);
        let beside_len = self.save_record(pass.second, stages, out);
        out[begin + 8..begin + 12].copy_from_slice(&beside_len.to_le_bytes());
        self.save_streams(pass.second, out);
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Takes a saved flow over, and says which record it has here. If that fails, nothing of it is
    /// kept.
    ///
    /// A flow of the same key or alias that is here already is not touched. If the table is full,
    /// another flow goes only where the graph's options say so.
    pub fn restore(
        &mut self,
        saved: &[u8],
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<u32, RestoreError> {
        let (prefix, rest) = saved.split_at_checked(PREFIX_LEN).ok_or(RestoreError::Damaged)?;
        let (fingerprint, beside_len) = prefix.split_at(8);
        let beside_len = number(beside_len);
        let has_second = beside_len & HAS_SECOND != 0;
        let beside_len = (beside_len & !HAS_SECOND) as usize;
        let other = match fingerprint == self.layouts.own.fingerprint.to_le_bytes() {
            true => None,
            false => Some(self.layouts.other(fingerprint).ok_or(RestoreError::OtherChain)?),
        };
        // Another layout has as many parts.
        let digests_len = self.layouts.own.parts.len() * DIGEST_LEN;
        let (digests, rest) = rest.split_at_checked(digests_len).ok_or(RestoreError::Damaged)?;
        let record_len = other.map_or(self.table.records.record_len(), SavedLayout::record_len);
        let (bytes, rest) = rest.split_at_checked(record_len).ok_or(RestoreError::Damaged)?;
        let (beside, rest) = rest.split_at_checked(beside_len).ok_or(RestoreError::Damaged)?;
        let (second, saved_streams) = match has_second {
            true => {
                let (len, rest) = rest.split_at_checked(4).ok_or(RestoreError::Damaged)?;
                rest.split_at_checked(number(len) as usize).ok_or(RestoreError::Damaged)?
            }
            false => (&[][..], rest),
        };
        let second = has_second.then(|| read_second(second, record_len, stages)).transpose()?;
        let by = (&*stages, self.routing.as_deref());
        let upgraded = other.map(|other| self.layouts.upgrade(other, by, bytes)).transpose()?;
        let upgraded_second = match (other, &second) {
            (Some(other), Some(second)) => Some(self.layouts.upgrade(other, by, second.bytes)?),
            _ => None,
        };
        let bytes = self.in_segments(upgraded.map_or(Cow::Borrowed(bytes), Cow::Owned));
        let bytes = &*bytes;
        self.table.check(bytes)?;
        let second_bytes = second.as_ref().map(|second| {
            let mut saved = upgraded_second.map_or(Cow::Borrowed(second.bytes), Cow::Owned);
            if !self.places.is_empty() {
                Places::set_as(saved.to_mut(), bytes);
            }
            saved
        });
        let second_bytes = second_bytes.as_deref();
        if let Some(routing) = &self.routing
            && ![Some(bytes), second_bytes].into_iter().flatten().all(|record| routing.takes(record))
        {
            return Err(RestoreError::Damaged);
        }
        let records = 1 + u32::from(has_second);
        while self.table.records.live() + records > self.table.records.capacity() {
            if !self.make_room(stages, pool) {
                return Err(RestoreError::TableFull);
            }
        }
        let record = self.table.take_over(bytes)?;
        self.forget_rules(record);
        if let Some(ingresses) = &mut self.table.ingresses {
            ingresses.forget(record);
        }
        let mut restored = self.restore_beside(record, stages, beside, saved_streams);
        let mut second_record = None;
        if let (Ok(()), Some(second), Some(bytes)) = (&restored, &second, second_bytes) {
            let number = self.table.take_second_over(bytes, SecondPass { main: record, ..second.pass });
            second_record = number.as_ref().ok().copied();
            second_record.into_iter().for_each(|second| self.forget_rules(second));
            restored =
                number.and_then(|number| self.restore_beside(number, stages, second.beside, second.streams));
        }
        if restored.is_err() {
            self.forget_flow(record, stages);
        }
        restored?;
        self.reconfigure(record, digests, stages, pool);
        self.counters.moved_in += 1;
        self.counters.peak = self.counters.peak.max(self.live());
        if self.affinity_groups.is_some() && !self.take_shared(record, stages, pool) {
            self.give_shared_up(record, stages, pool);
            self.counters.moved_in -= 1;
            self.forget_flow(record, stages);
            return Err(RestoreError::SharedState);
        }
        for record in [Some(record), second_record].into_iter().flatten() {
            let started = self.started(record);
            let Stages { all, effects, .. } = &mut *stages;
            let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
            for (number, stage) in all.iter_mut().enumerate() {
                if started.has(number) {
                    stage.flow_moved(record, self.now_ns, &mut env);
                }
            }
        }
        Ok(record)
    }

    /// Returns a saved record with the segments of its keys, which are not saved.
    fn in_segments<'s>(&self, mut saved: Cow<'s, [u8]>) -> Cow<'s, [u8]> {
        if let Some(routing) = self.routing.as_ref().filter(|_| !self.places.is_empty())
            && let Some(ports) = routing.saved_ports(&saved)
        {
            self.places.set(saved.to_mut(), ports);
        }
        saved
    }

    /// The same for a flow that somebody else had since it was saved, who has seen as much time
    /// pass as this graph: fragments that were held back then, and have expired, were dropped
    /// there.
    pub fn restore_copy(
        &mut self,
        saved: &[u8],
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<u32, RestoreError> {
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.datagrams_mut().0.set_gone_until(self.now_ns);
        }
        let restored = self.restore(saved, stages, pool);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.datagrams_mut().0.set_gone_until(0);
        }
        restored
    }

    /// A flow has gone elsewhere: it is forgotten here, which is not its end. What it holds of
    /// pools stays held, unless the place where it goes has pools of its own.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn release(&mut self, record: u32, stages: &mut Stages) {
        assert!(self.table.is_live(record), "a record without a flow is released");
        if self.affinity_groups.is_some() {
            self.give_shared_up(record, stages, &mut PacketPool::new(0));
        }
        self.counters.moved_out += 1;
        self.forget_flow(record, stages);
    }

    /// Adapts a flow to the functions whose configurations differ from those that it had.
    fn reconfigure(&mut self, record: u32, digests: &[u8], stages: &mut Stages, pool: &mut PacketPool) {
        if self.layouts.own.digests().eq(digests.chunks_exact(DIGEST_LEN)) {
            return;
        }
        let (now_ns, mut saved) = (self.now_ns, digests.chunks_exact(DIGEST_LEN));
        let parts = stages.all.iter().map(|stage| stage.saved_part());
        let own = parts.map(|part| part.map(|part| part.config_digest.to_le_bytes()));
        let differ: Vec<bool> =
            own.map(|own| own.is_some_and(|own| saved.next() != Some(&own[..]))).collect();
        self.for_each_part(record, stages, pool, |number, stage, record, env| {
            if differ[number] {
                stage.flow_reconfigured(record, now_ns, env);
            }
        });
    }

    /// Takes what a flow that has arrived holds of shared state. Returns false if a function
    /// cannot.
    fn take_shared(&mut self, record: u32, stages: &mut Stages, pool: &mut PacketPool) -> bool {
        let now_ns = self.now_ns;
        let mut has_all = true;
        self.for_each_part(record, stages, pool, |_, stage, record, env| {
            has_all &= stage.flow_arrives(record, now_ns, env);
        });
        has_all
    }

    /// Gives up what a flow that leaves holds of shared state.
    fn give_shared_up(&mut self, record: u32, stages: &mut Stages, pool: &mut PacketPool) {
        let now_ns = self.now_ns;
        self.for_each_part(record, stages, pool, |_, stage, record, env| {
            stage.flow_leaves(record, now_ns, env);
        });
    }

    /// Calls `then` with each function that has state of a flow and its number, and for its second
    /// pass again.
    fn for_each_part(
        &mut self,
        record: u32,
        stages: &mut Stages,
        pool: &mut PacketPool,
        mut then: impl FnMut(usize, &mut dyn Stage, u32, &mut StageEnv<'_>),
    ) {
        let second = self.table.passes.get(record).map(|pass| pass.second);
        for record in [Some(record), second].into_iter().flatten() {
            let started = self.started(record);
            let Stages { all, effects, .. } = &mut *stages;
            let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
            for (number, stage) in all.iter_mut().enumerate() {
                if started.has(number) {
                    then(number, &mut **stage, record, &mut env);
                }
            }
        }
    }

    fn forget_flow(&mut self, record: u32, stages: &mut Stages) {
        let second = self.table.passes.get(record).map(|pass| pass.second);
        for record in [Some(record), second].into_iter().flatten() {
            let started = self.started(record);
            for (number, stage) in stages.all.iter_mut().enumerate() {
                if started.has(number) {
                    stage.release_buffers(record, &mut self.table.records);
                }
            }
            if let Some(reassembly) = &mut self.reassembly {
                reassembly.release(record, &mut self.table.records);
            }
        }
        self.table.forget_second(record);
        self.table.remove(record);
    }

    fn restore_beside(
        &mut self,
        record: u32,
        stages: &mut Stages,
        beside: &[u8],
        streams: &[u8],
    ) -> Result<(), RestoreError> {
        // The record still names what held its bytes where it comes from. So each part is gone
        // through, whatever became of the one before it: then it names what is here, or nothing.
        let started = self.started(record);
        let records = &mut self.table.records;
        let mut rest = Some(beside);
        for (number, stage) in stages.all.iter_mut().enumerate() {
            if !started.has(number) {
                continue;
            }
            let left = stage.restore_buffers(record, records, rest.unwrap_or_default());
            rest = rest.and(left);
        }
        let restored = match &mut self.reassembly {
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

/// Takes the bytes of a saved second pass apart.
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

/// A number of up to four bytes, the lowest first.
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
