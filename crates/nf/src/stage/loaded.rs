//! A loaded NF: all calls into it are monomorphic, and its panics are contained.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use packet::memory::SlotField;
use packet::{DropReason, Packet, Transit};
use zerocopy::{FromZeros, IntoBytes};

use super::panics::{Panics, Progress};
use super::{OnPanic, PacketGroup, PacketTotals, ReadGroup, SavedPart, Stage, StageCounters, StageEnv};
use crate::affinity::{AffinityGroup, AffinityGroups};
use crate::context::{Context, Instance, TagLayout};
use crate::map::StateMap;
use crate::record::{CacheLines, FlowRecords, RecordHeader, RecordLayout, States};
use crate::recording::{HeaderAction, Recording};
use crate::shared_state::SharedState;
use crate::sharing::{Access, SharedHandle};
use crate::{
    AnswerScope, BufferSpec, ControlError, Descriptor, EndReason, EventCondition, LiveFlows, MapSpec,
    NetworkFunction, PacketView, Plan, UpgradeError, VICTIMS_MAX, Verdict,
};

/// An NF with what it shares and counts.
pub(super) struct Loaded<N: NetworkFunction> {
    function: N,
    instance: Instance,
    config_digest: u32,
    /// Position of the state in records; set by `place`.
    state: Option<SlotField<N::State>>,
    /// Cache lines of records that most packets touch here.
    lines: CacheLines,
    counters: StageCounters,
    on_panic: OnPanic,
    panics: Panics,
}

fn failed_command(function: &str, command: &str) -> ControlError {
    ControlError(format!("`{function}` failed on `{command}`: it panicked"))
}

const NO_MAP: MapSpec = MapSpec { entries: 0, value_len: 0 };

impl<N: NetworkFunction> Loaded<N> {
    /// Creates a stage of an NF that has no part of records yet.
    pub fn new(function: N, shared: SharedState, seed: u64, config_digest: u32) -> Loaded<N> {
        let (access, tags) = (Access::default(), TagLayout::default());
        Loaded {
            function,
            instance: Instance { shared, access, tags, stage: 0, seed, scratch: None },
            config_digest,
            state: None,
            lines: CacheLines::default(),
            counters: StageCounters::default(),
            on_panic: OnPanic::default(),
            panics: Panics::default(),
        }
    }

    const STATE_LEN: usize = size_of::<N::State>().next_multiple_of(8);
    const MAP: MapSpec = match N::DESCRIPTOR.map {
        Some(spec) => spec,
        None => NO_MAP,
    };
    const BUFFERS: BufferSpec = match N::DESCRIPTOR.buffers {
        Some(spec) => spec,
        None => BufferSpec::NONE,
    };
    /// Bytes of the map and the buffers' numbers, after the state.
    const REST_LEN: usize = Self::MAP.len_bytes() + Self::BUFFERS.numbers_len();
    /// Bytes in a flow's record.
    const LEN: usize = Self::STATE_LEN + Self::REST_LEN.next_multiple_of(8);
    /// Set if the NF may change the length of packets.
    const RESIZES: bool = N::DESCRIPTOR.resizes();

    /// Calls `then` with the NF, the flow's state and a context. `None` if the NF panics. Also if
    /// the record does not match the layout, which `place` and the record's length rule out.
    #[inline]
    fn with_flow<R>(
        &mut self,
        transit: Transit,
        env: &mut StageEnv<'_>,
        then: impl FnOnce(&N, &mut N::State, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let StageEnv { records, effects, buffers } = env;
        let mut states = records.states_mut(self.state?)?;
        let (header, state, behind) = states.at(transit.flow)?;
        let map = Self::map_of(behind)?;
        let instance = &mut self.instance;
        let buffers = Some(&mut **buffers);
        let mut context = Context { transit, header, map, instance, effects, buffers, draws: 0 };
        let done = self.panics.contain(|| then(&self.function, state, &mut context));
        self.instance.close();
        done
    }

    /// Returns the flow's map and buffer numbers, from the bytes after its state.
    #[inline(always)]
    fn map_of(behind: &mut [u8]) -> Option<StateMap<'_>> {
        let rest: &mut [u8] = match Self::REST_LEN {
            0 => &mut [],
            len => behind.get_mut(Self::STATE_LEN - size_of::<N::State>()..)?.get_mut(..len)?,
        };
        Some(StateMap::new(rest, &Self::MAP))
    }

    /// Returns the flow's header, state and map; `None` as for `with_flow`.
    #[inline(always)]
    fn of_flow<'s>(
        states: &'s mut Option<States<'_, N::State>>,
        record: u32,
    ) -> Option<(&'s mut RecordHeader, &'s mut N::State, StateMap<'s>)> {
        let (header, state, behind) = states.as_mut()?.at(record)?;
        Some((header, state, Self::map_of(behind)?))
    }

    /// Calls `then` with the instance and a flow's map.
    fn with_map<R>(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        then: impl FnOnce(&mut Instance, &RecordHeader, StateMap<'_>) -> R,
    ) -> Option<R> {
        let mut states = records.states_mut(self.state?)?;
        let (header, _, rest) = states.at(record)?;
        Some(then(&mut self.instance, header, Self::map_of(rest)?))
    }

    /// Runs state functions for each packet that is still to be forwarded. `record_of` returns the
    /// flow's record from the packet's number in the group and the record that it names.
    #[inline(always)]
    fn run_all(
        &mut self,
        group: &mut ReadGroup<'_>,
        functions: &[u16],
        record_of: impl Fn(usize, u32) -> u32,
        left_at: &mut usize,
    ) {
        let ReadGroup { packets, verdicts, side, records, effects, .. } = group;
        let (packets, verdicts) = (packets.get(*left_at..), verdicts.get(*left_at..));
        let mut progress = Progress::new(left_at);
        let mut states = self.state.and_then(|part| records.states_mut(part));
        for (packet, verdict) in packets.unwrap_or_default().iter().zip(verdicts.unwrap_or_default()) {
            let number = progress.step();
            let transit = &packet.meta().transit;
            if !verdict.is_forward() || transit.side != *side {
                continue;
            }
            let of_flow = Self::of_flow(&mut states, record_of(number, transit.flow));
            let Some((header, state, map)) = of_flow else { continue };
            let (transit, instance) = (*transit, &mut self.instance);
            let mut context = Context { transit, header, map, instance, effects, buffers: None, draws: 0 };
            for &id in functions {
                self.function.state_function(id, packet, state, &mut context);
            }
        }
    }

    /// Runs state functions for each packet from number `at` on; leaves the last number there.
    #[inline(always)]
    fn run_from(&mut self, group: &mut ReadGroup<'_>, functions: &[u16], at: &mut usize) {
        // Two copies of the loop: one does not look up records by packet.
        match group.places {
            None => self.run_all(group, functions, |_, flow| flow, at),
            Some(places) => {
                let record_of = |number: usize, flow| places.get(number).map_or(flow, |&place| place);
                self.run_all(group, functions, record_of, at);
            }
        }
    }

    /// Handles a panic of a state function at packet `at`, and continues with the next packet.
    #[cold]
    #[inline(never)]
    fn run_on_after(
        &mut self,
        group: &mut ReadGroup<'_>,
        functions: &[u16],
        (at, payload): (usize, Box<dyn Any + Send>),
    ) {
        let (mut at, mut thrown) = (at, Some(payload));
        while let Some(payload) = thrown.take() {
            self.panics.note(payload);
            self.instance.close();
            if self.on_panic == OnPanic::Drop {
                self.counters.drops += 1;
                group.panicked |= 1_u64.checked_shl(at as u32).unwrap_or(0);
            }
            at += 1;
            let call = || self.run_from(group, functions, &mut at);
            thrown = catch_unwind(AssertUnwindSafe(call)).err();
        }
    }

    /// Processes the packets with `process_all`, and continues after a panic.
    #[inline(always)]
    fn process_contained(
        &mut self,
        group: &mut PacketGroup<'_>,
        process_all: impl FnOnce(&mut Self, &mut PacketGroup<'_>, &mut usize),
    ) {
        let mut at = 0;
        let call = || process_all(self, group, &mut at);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
            self.go_on_after(group, at, payload);
        }
    }

    /// Handles a panic at packet `at`, and continues with the next packet.
    #[cold]
    #[inline(never)]
    fn go_on_after(&mut self, group: &mut PacketGroup<'_>, at: usize, payload: Box<dyn Any + Send>) {
        let (mut at, mut thrown) = (at, Some(payload));
        while let Some(payload) = thrown.take() {
            self.panics.note(payload);
            self.instance.close();
            group.changed = true;
            if let (Some(packet), Some(verdict)) = (group.packets.get(at), group.verdicts.get_mut(at)) {
                match self.on_panic {
                    OnPanic::Drop => {
                        self.counters.drops += 1;
                        *verdict = Verdict::Drop(DropReason::FunctionPanic);
                    }
                    OnPanic::Bypass => self.begin_state_again(packet.meta().transit, &mut group.env),
                }
            }
            at += 1;
            let call = || self.process_all(group, None, &mut at);
            thrown = catch_unwind(AssertUnwindSafe(call)).err();
        }
    }

    /// Resets the NF's state of the flow, which a panic may have left in any condition.
    #[cold]
    fn begin_state_again(&mut self, transit: Transit, env: &mut StageEnv<'_>) {
        self.flow_end(transit.flow, EndReason::Rejected, transit.timestamp_ns, env);
        if let Some(mut states) = self.state.and_then(|part| env.records.states_mut(part))
            && let Some((_, state, behind)) = states.at(transit.flow)
        {
            state.as_mut_bytes().fill(0);
            let len = Self::LEN - size_of::<N::State>();
            behind.get_mut(..len).unwrap_or_default().fill(0);
        }
        self.flow_start(transit, env);
    }

    /// Processes each packet from number `left_at` on that is still to be forwarded; leaves the
    /// last number there.
    #[inline(always)]
    fn process_all(
        &mut self,
        group: &mut PacketGroup<'_>,
        mut recording: Option<&mut Recording>,
        left_at: &mut usize,
    ) {
        let PacketGroup { packets, verdicts, side, changed, env, deliveries, .. } = group;
        let (packets, verdicts) = (packets.get_mut(*left_at..), verdicts.get_mut(*left_at..));
        let mut progress = Progress::new(left_at);
        // If the records do not match the layout (see `with_flow`), no packet finds its state.
        let mut states = self.state.and_then(|part| env.records.states_mut(part));
        for (packet, verdict) in packets.unwrap_or_default().iter_mut().zip(verdicts.unwrap_or_default()) {
            let number = progress.step();
            if !verdict.is_forward() || packet.meta().transit.side != *side {
                continue;
            }
            let len = packet.len();
            let decided = match Self::of_flow(&mut states, packet.meta().transit.flow) {
                Some((header, state, map)) => {
                    let mut context = Context {
                        transit: packet.meta().transit,
                        header,
                        map,
                        instance: &mut self.instance,
                        effects: env.effects,
                        buffers: Some(env.buffers),
                        draws: 0,
                    };
                    let mut view = PacketView::new(packet, recording.as_deref_mut());
                    if N::DESCRIPTOR.stream {
                        view = view.with_streams(deliveries, number);
                    }
                    let decided = self.function.process(&mut view, state, &mut context);
                    let Transit { tags, keep_ms, relearn_alias, .. } = context.transit;
                    let transit = &mut packet.meta_mut().transit;
                    (transit.tags, transit.keep_ms, transit.relearn_alias) = (tags, keep_ms, relearn_alias);
                    decided
                }
                None => Verdict::Drop(DropReason::Internal),
            };
            if Self::RESIZES && packet.len() != len {
                *changed = true;
            }
            if !decided.is_forward() {
                *verdict = decided;
                *changed = true;
                if let Verdict::Drop(reason) = decided {
                    self.counters.drops += 1;
                    if let Some(recording) = &mut recording {
                        recording.action(HeaderAction::Drop(reason));
                    }
                }
            }
        }
    }
}

impl<N: NetworkFunction> Stage for Loaded<N> {
    fn descriptor(&self) -> &'static Descriptor {
        N::DESCRIPTOR
    }

    fn place(&mut self, stage: u16, layout: &mut RecordLayout, first_tag_bit: u32) -> Option<u32> {
        let (tags, next) = TagLayout::new(N::DESCRIPTOR.attributes, first_tag_bit)?;
        if !N::DESCRIPTOR.attributes.is_empty() {
            layout.add_tags();
        }
        self.instance.stage = stage;
        self.instance.tags = tags;
        let (start, lines) = layout.add(Self::LEN, N::HOT_BYTES);
        (self.state, self.lines) = (SlotField::at(start), lines);
        Some(next)
    }

    fn lines(&self) -> CacheLines {
        self.lines
    }

    fn process(&mut self, group: &mut PacketGroup<'_>) {
        self.pass(group.load, 0);
        // Two copies of the loop: one without the cost of recording.
        match group.recording.take() {
            None => self.process_contained(group, |stage, group, at| stage.process_all(group, None, at)),
            Some(recording) => {
                let before = self.panics.count();
                self.process_contained(group, |stage, group, at| {
                    stage.process_all(group, Some(recording), at);
                });
                if self.panics.count() != before {
                    recording.one_off = true;
                }
            }
        }
        self.instance.close();
    }

    fn set_on_panic(&mut self, on_panic: OnPanic) {
        self.on_panic = on_panic;
    }

    fn last_panic(&self) -> Option<String> {
        self.panics.last()
    }

    fn run_functions(&mut self, group: &mut ReadGroup<'_>, functions: &[u16]) {
        self.pass(group.load, 0);
        let mut at = 0;
        let call = || self.run_from(group, functions, &mut at);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
            self.run_on_after(group, functions, (at, payload));
        }
        self.instance.close();
    }

    fn predict(&self, record: u32, records: &FlowRecords, plan: &mut Plan<'_>) -> bool {
        let state = self.state.and_then(|part| records.state(record, part));
        let asked = state.map(|state| self.panics.contain(|| self.function.predict(state, plan)));
        asked.flatten().unwrap_or(false)
    }

    fn predicts_uniformly(&self) -> bool {
        self.function.predicts_uniformly()
    }

    fn pass(&mut self, load: PacketTotals, drops: u64) {
        self.counters.packets += load.packets;
        self.counters.bytes += load.bytes;
        self.counters.drops += drops;
    }

    fn flow_start(&mut self, transit: Transit, env: &mut StageEnv<'_>) -> bool {
        let started = self.with_flow(transit, env, |function, state, context| {
            function.flow_start(state, context);
        });
        started.is_some() || self.on_panic == OnPanic::Bypass
    }

    fn makes_room(&self) -> bool {
        N::MAKES_ROOM
    }

    fn make_room(&mut self, packet: &Packet, env: &mut StageEnv<'_>, victims: &mut Vec<u32>) {
        let StageEnv { records, effects, buffers } = env;
        let transit = packet.meta().transit;
        // Other flows are read at the same time, so the new one's header is a copy.
        let (Some(header), Some(state)) = (records.find_header(transit.flow), self.state) else { return };
        let header = &mut header.clone();
        let map = StateMap::new(&mut [], &NO_MAP);
        let (instance, buffers) = (&mut self.instance, Some(&mut **buffers));
        let mut context = Context { transit, header, map, instance, effects, buffers, draws: 0 };
        let (function, flows) = (&self.function, LiveFlows::new(records, state));
        let made = self.panics.contain(|| function.make_room(packet, &flows, &mut context, victims));
        self.instance.close();
        victims.truncate(if made.is_some() { VICTIMS_MAX } else { 0 });
        victims.retain(|&victim| victim != transit.flow);
    }

    fn lone_fragment(&mut self, packet: &mut Packet, env: &mut StageEnv<'_>) {
        if !N::SEES_LONE_FRAGMENTS {
            return;
        }
        let StageEnv { effects, buffers, .. } = env;
        let mut header = RecordHeader::new_zeroed();
        let (key, reversed) = packet::parse::portless_key(packet);
        header.set_key(key, reversed);
        let (mut state, mut rest) = (N::State::new_zeroed(), vec![0; Self::REST_LEN]);
        let map = StateMap::new(&mut rest, &Self::MAP);
        let transit = packet.meta().transit;
        let (instance, buffers, header) = (&mut self.instance, Some(&mut **buffers), &mut header);
        let mut context = Context { transit, header, map, instance, effects, buffers, draws: 0 };
        let mut view = PacketView::new(packet, None);
        self.panics.contain(|| self.function.lone_fragment(&mut view, &mut state, &mut context));
        self.instance.close();
    }

    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>) {
        let transit = env.records.header(record).transit(record, now_ns);
        self.with_flow(transit, env, |function, state, context| {
            function.flow_end(state, reason, context);
        });
        self.release_buffers(record, env.records);
    }

    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        self.panics.contain(|| self.function.group_of(packet, groups)).flatten()
    }

    fn flow_leaves(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        if !self.instance.access.is_shared() {
            let transit = env.records.header(record).transit(record, now_ns);
            self.with_flow(transit, env, |function, state, context| function.flow_leaves(state, context));
        }
    }

    fn flow_arrives(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) -> bool {
        if self.instance.access.is_shared() {
            return true;
        }
        let transit = env.records.header(record).transit(record, now_ns);
        let arrived =
            self.with_flow(transit, env, |function, state, context| function.flow_arrives(state, context));
        arrived.unwrap_or(false)
    }

    fn flow_reconfigured(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        let transit = env.records.header(record).transit(record, now_ns);
        self.with_flow(transit, env, |function, state, context| {
            function.flow_reconfigured(state, context);
        });
    }

    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        let transit = env.records.header(record).transit(record, now_ns);
        self.with_flow(transit, env, |function, state, context| {
            function.flow_moved(state, context);
        });
    }

    fn flow_lags(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        let transit = env.records.header(record).transit(record, now_ns);
        self.with_flow(transit, env, |function, state, context| {
            function.flow_lags(state, context);
        });
    }

    fn save_buffers(&mut self, record: u32, records: &mut FlowRecords, out: &mut Vec<u8>) {
        self.with_map(record, records, |instance, _, mut map| {
            if let Some(buffers) = &instance.shared.buffers {
                buffers.save(map.behind(), out);
            }
        });
    }

    fn restore_buffers<'b>(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        saved: &'b [u8],
    ) -> Option<&'b [u8]> {
        self.with_map(record, records, |instance, header, mut map| match &mut instance.shared.buffers {
            Some(buffers) => buffers.restore(map.behind(), header, saved),
            None => Some(saved),
        })?
    }

    fn release_buffers(&mut self, record: u32, records: &mut FlowRecords) {
        self.with_map(record, records, |instance, _, mut map| {
            if let Some(buffers) = &mut instance.shared.buffers {
                buffers.release(map.behind());
            }
        });
    }

    fn saved_part(&self) -> Option<SavedPart> {
        let start = self.state?.start();
        Some(SavedPart {
            name: N::DESCRIPTOR.name,
            version: N::DESCRIPTOR.state_version,
            tag_bits: N::DESCRIPTOR.attributes.iter().map(|attribute| u32::from(attribute.bits)).sum(),
            bytes: start..start + Self::LEN,
            state_len: size_of::<N::State>(),
            config_digest: self.config_digest,
        })
    }

    fn upgrade(&self, from: &SavedPart, old: &[u8], part: &mut [u8]) -> Result<(), UpgradeError> {
        if from.version == N::DESCRIPTOR.state_version && old.len() == part.len() {
            part.copy_from_slice(old);
            return Ok(());
        }
        let no_way = UpgradeError { from_version: from.version, to_version: N::DESCRIPTOR.state_version };
        let rest = old.get(from.state_len.next_multiple_of(8)..).ok_or(no_way)?;
        let (state, new_rest) = part.split_at_mut_checked(Self::STATE_LEN).ok_or(no_way)?;
        if rest.len() != new_rest.len() {
            return Err(no_way); // Its map or its buffers differ.
        }
        let upgraded = N::upgrade(from.version, old.get(..from.state_len).ok_or(no_way)?)?;
        state.get_mut(..size_of::<N::State>()).ok_or(no_way)?.copy_from_slice(upgraded.as_bytes());
        new_rest.copy_from_slice(rest);
        Ok(())
    }

    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool {
        let state = self.state.and_then(|part| records.state(record, part));
        // If the NF cannot tell, the flow's packets must go to it.
        state.is_some_and(|state| {
            self.panics.contain(|| self.function.event_holds(event, state)).unwrap_or(true)
        })
    }

    fn answers(&self) -> AnswerScope {
        self.panics.contain(|| self.function.answers()).unwrap_or(AnswerScope::ALL)
    }

    fn forwards_unclassified(&self) -> bool {
        self.panics.contain(|| self.function.forwards_unclassified()).unwrap_or(false)
    }

    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        match catch_unwind(AssertUnwindSafe(|| self.function.control(command))) {
            Ok(done) => done,
            Err(payload) => {
                self.panics.note(payload);
                Err(failed_command(N::DESCRIPTOR.name, command))
            }
        }
    }

    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        let checked = self.panics.contain(|| self.function.check_command(command));
        checked.unwrap_or_else(|| Err(failed_command(N::DESCRIPTOR.name, command)))
    }

    fn counters(&self) -> StageCounters {
        StageCounters { panics: self.panics.count(), ..self.counters }
    }

    fn shared(&self) -> &SharedState {
        &self.instance.shared
    }

    fn share(&mut self) -> SharedHandle {
        self.instance.access.share(&mut self.instance.shared)
    }

    fn join(&mut self, common: SharedHandle) {
        self.instance.access.join(common, &mut self.instance.shared);
    }

    fn open(&mut self) {
        self.instance.access.open(&mut self.instance.shared);
    }

    fn close(&mut self) {
        self.instance.access.close(&mut self.instance.shared);
    }

    fn part(&mut self) {
        self.instance.access.keep(&mut self.instance.shared);
    }

    fn tags(&self) -> &TagLayout {
        &self.instance.tags
    }
}
