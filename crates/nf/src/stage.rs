//! A function made ready to stand in a chain: the seam between the chain, which knows no types, and
//! the function's own.
//!
//! One call through the trait object processes a batch; within it everything is monomorphic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem::swap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use packet::memory::{OutOfMemory, SlotField};
use packet::{DropReason, Packet, Side, Transit};
use zerocopy::IntoBytes;

use crate::buffers::Buffers;
use crate::common::{Access, SharedHandle};
use crate::contents::PayloadCache;
use crate::context::{Context, CounterGroup, Instance, SharedState, TagLayout};
use crate::map::StateMap;
use crate::meters::Meters;
use crate::pool::SharedPool;
use crate::record::{CacheLines, FlowRecords, RecordHeader, RecordLayout, States};
use crate::recording::{HeaderAction, Recording};
use crate::set::SharedSet;
use crate::stream::Deliveries;
use crate::{
    AnswerScope, BufferSpec, ControlError, Descriptor, Effects, EndReason, EventCondition, LiveFlows,
    MapSpec, NetworkFunction, PacketView, Plan, Setup, Shared, UpgradeError, VICTIMS_MAX, Verdict,
};
use values::ConfigError;

/// Packets under way through a chain, in order of arrival, and what they are processed with.
pub struct PacketGroup<'a> {
    /// The packets.
    pub packets: &'a mut [Packet],
    /// What was decided about each so far.
    pub verdicts: &'a mut [Verdict],
    /// Which packets take part: those that entered by this side.
    pub side: Side,
    /// How much they are.
    pub load: PacketTotals,
    /// Set by the stage if it decided otherwise about any of them than to forward it, or changed
    /// the length of one.
    pub changed: bool,
    /// What the stage's function works with.
    pub env: StageEnv<'a>,
    /// What the packets brought to their flows' streams, for functions that want to know.
    pub deliveries: Deliveries<'a>,
    /// Filled in if what the function does is to be recorded: then the group has one packet.
    pub recording: Option<&'a mut Recording>,
}

/// Packets under way for which state functions run, and what these work with. The packets are only
/// read, so that others may read them at the same time (B18).
pub struct ReadGroup<'a> {
    /// The packets.
    pub packets: &'a [Packet],
    /// What was decided about each.
    pub verdicts: &'a [Verdict],
    /// Which packets take part: those that entered by this side.
    pub side: Side,
    /// How much they are.
    pub load: PacketTotals,
    /// The flows.
    pub records: &'a mut FlowRecords,
    /// By packet, which of these records is its flow's; none: they are those that the packets name.
    pub places: Option<&'a [u32]>,
    /// What comes out beside packets.
    pub effects: &'a mut Effects,
    /// Set by the stage: by packet, as a bit, whether the function panicked at it.
    pub panicked: u64,
}

/// An amount of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// How many.
    pub packets: u64,
    /// Their bytes, from the link layer on.
    pub bytes: u64,
}

impl PacketTotals {
    /// Adds a packet of this many bytes.
    #[inline(always)]
    pub fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    /// By side, where these packets, whose load it is, all entered by one.
    #[inline]
    pub fn of(self, packets: &[Packet]) -> [PacketTotals; 2] {
        let mut loads = [PacketTotals::default(); 2];
        if let Some(first) = packets.first() {
            loads[first.meta().transit.side as usize] = self;
        }
        loads
    }

    /// That of the packets that are to be forwarded, by the side that they entered by.
    #[inline]
    pub fn by_side(packets: &[Packet], verdicts: &[Verdict]) -> [PacketTotals; 2] {
        let mut loads = [PacketTotals::default(); 2];
        for (packet, &verdict) in packets.iter().zip(verdicts) {
            if verdict == Verdict::Forward {
                loads[packet.meta().transit.side as usize].add(packet.len());
            }
        }
        loads
    }
}

/// What functions work with, whatever the occasion.
pub struct StageEnv<'a> {
    /// The flows.
    pub records: &'a mut FlowRecords,
    /// What comes out beside packets.
    pub effects: &'a mut Effects,
    /// Where made packets come from.
    pub buffers: &'a mut packet::PacketPool,
}

/// What a stage has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounters {
    /// Packets that entered.
    pub packets: u64,
    /// Their bytes, from the link layer on.
    pub bytes: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// How often the function panicked: on a packet, or when it heard of a flow or was asked about
    /// one.
    pub panics: u64,
}

/// What becomes of a packet at which a function panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It is dropped, [`DropReason::FunctionPanic`], and its flow ends.
    #[default]
    Drop,
    /// It passes the function as that left it, and the function's state of the flow begins anew.
    Bypass,
}

/// Bytes of a panic's message that are kept.
pub const PANIC_TEXT_MAX: usize = 200;

/// A function's part of records: what another version of it has to know to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPart {
    /// The function's name.
    pub name: &'static str,
    /// The version of its state.
    pub version: u16,
    /// How many bits its attributes take.
    pub tag_bits: u32,
    /// Its bytes in a record: the state, then, from a multiple of 8 bytes on, its map and the
    /// numbers of its buffers.
    pub bytes: Range<usize>,
    /// Of these, the state's.
    pub state_len: usize,
}

/// A function in a chain.
pub trait Stage: Send {
    /// What the function says of itself.
    fn descriptor(&self) -> &'static Descriptor;

    /// Tells the stage its place: its number in the chain, and the first bit of its attributes in
    /// the tag word. Its bytes are added to the flow records' layout. Returns the next free bit, or
    /// none if the word is full.
    fn place(&mut self, stage: u16, layout: &mut RecordLayout, first_tag_bit: u32) -> Option<u32>;

    /// The lines of records that most packets touch here, once it has its place.
    fn lines(&self) -> CacheLines;

    /// Says what becomes of packets at which the function panics. No panic leaves a stage.
    fn set_on_panic(&mut self, on_panic: OnPanic);

    /// The message of the function's latest panic, if there was one: at most [`PANIC_TEXT_MAX`]
    /// bytes.
    fn last_panic(&self) -> Option<String>;

    /// Processes the group's packets whose verdict is still to forward.
    fn process(&mut self, group: &mut PacketGroup<'_>);

    /// The same for packets that other units have, of which the headers are here: only the flows'
    /// states change. Nothing is counted; what comes out is the caller's to throw away.
    fn replay(&mut self, group: &mut PacketGroup<'_>);

    /// Whether [`replay`](Stage::replay) makes the same of a flow's state as
    /// [`process`](Stage::process).
    fn recomputes(&self) -> bool;

    /// Runs state functions of those numbers, in this order, for each of the group's packets whose
    /// verdict is still to forward, in place of [`Stage::process`] (B17-B19).
    fn run_functions(&mut self, group: &mut ReadGroup<'_>, functions: &[u16]);

    /// Whether it tells, of the flow's state alone, what it would do to such packets of it, see
    /// [`NetworkFunction::predict`].
    fn predict(&self, record: u32, records: &FlowRecords, plan: &mut Plan<'_>) -> bool;

    /// Whether it tells the same of all flows, see [`NetworkFunction::predicts_uniformly`].
    fn predicts_uniformly(&self) -> bool;

    /// Counts packets that it would have had to forward untouched, and that many that it would have
    /// dropped.
    fn pass(&mut self, load: PacketTotals, drops: u64);

    /// A flow begins with the packet that is here.
    fn flow_start(&mut self, packet: Transit, env: &mut StageEnv<'_>) -> bool;

    /// Whether flows may give way here to new ones.
    fn makes_room(&self) -> bool {
        false
    }

    /// Adds the flows to `victims` that end for the one that begins with this packet, see
    /// [`NetworkFunction::make_room`].
    fn make_room(&mut self, _packet: &Packet, _env: &mut StageEnv<'_>, _victims: &mut Vec<u32>) {}

    /// A flow is over.
    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>);

    /// A flow has come from another unit.
    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Appends what the flow's growing buffers hold: what has to travel with its record, beside it.
    fn save_buffers(&mut self, record: u32, records: &mut FlowRecords, out: &mut Vec<u8>);

    /// Fills the growing buffers of a flow whose record came from another unit with what
    /// [`Stage::save_buffers`] wrote there, and gives what stands behind it; none if these bytes
    /// are no such thing.
    fn restore_buffers<'b>(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        saved: &'b [u8],
    ) -> Option<&'b [u8]>;

    /// The flow has gone to another unit: the memory of its growing buffers is free.
    fn release_buffers(&mut self, record: u32, records: &mut FlowRecords);

    /// Its part of records; none before it has its place.
    fn saved_part(&self) -> Option<SavedPart>;

    /// Makes its part of a record, which is all zero, of what another version of it left in its
    /// own.
    fn upgrade(&self, from: &SavedPart, old: &[u8], part: &mut [u8]) -> Result<(), UpgradeError>;

    /// Whether a recorded event holds for a flow.
    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool;

    /// Which packets of known flows the function may answer.
    fn answers(&self) -> AnswerScope;

    /// Whether packets may pass that it cannot judge, see [`NetworkFunction::forwards_unclassified`].
    fn forwards_unclassified(&self) -> bool;

    /// Carries out an operator's command.
    fn control(&mut self, command: &str) -> Result<(), ControlError>;

    /// Checks an operator's command without carrying it out, see
    /// [`NetworkFunction::check_command`].
    fn check_command(&self, command: &str) -> Result<(), ControlError>;

    /// What was counted.
    fn counters(&self) -> StageCounters;

    /// Shared state, to be reported.
    fn shared(&self) -> &SharedState;

    /// Sets, pools, meters and contents are from now on also those of whoever [joins](Stage::join)
    /// this: instances of the same function, with the same configuration, on other threads.
    /// Counters and growing buffers stay each instance's own.
    fn share(&mut self) -> SharedHandle;

    /// Has these in place of its own, which no flow has used yet.
    fn join(&mut self, common: SharedHandle);

    /// Has what it shares with others here, to be looked at, and lets nobody else use it until
    /// [`Stage::close`].
    fn open(&mut self);

    /// Lets others use it again.
    fn close(&mut self);

    /// Those that it shared are its own again. Nobody else may use them any more.
    fn part(&mut self);

    /// Where the function's attributes stand in tag words.
    fn tags(&self) -> &TagLayout;
}

/// Making a stage failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Shared state that the descriptor declares was not set up, or the other way round: a mistake
    /// in the function's code.
    #[error("`{function}` declares {declared} pools and sizes {sized}")]
    Pools {
        /// The function.
        function: &'static str,
        /// Pools in its descriptor.
        declared: usize,
        /// Pools that it sized.
        sized: usize,
    },
    /// Groups of counters that the descriptor declares were not named, or the other way round.
    #[error("`{function}` declares {declared} groups of counters and names {named}")]
    Counters {
        /// The function.
        function: &'static str,
        /// Groups in its descriptor.
        declared: usize,
        /// Groups that it named.
        named: usize,
    },
    /// Tables of meters that the descriptor declares were not sized, or the other way round.
    #[error("`{function}` declares {declared} tables of meters and sizes {sized}")]
    Meters {
        /// The function.
        function: &'static str,
        /// Tables in its descriptor.
        declared: usize,
        /// Tables that it sized.
        sized: usize,
    },
    /// Contents that the descriptor declares were not sized, or the other way round.
    #[error("`{function}` declares {declared} contents and sizes {sized}")]
    PayloadCaches {
        /// The function.
        function: &'static str,
        /// Contents in its descriptor.
        declared: usize,
        /// Contents that it sized.
        sized: usize,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// Makes a stage of a function and its configuration.
pub fn load<N: NetworkFunction>(config: N::Config, mut setup: Setup) -> Result<Box<dyn Stage>, LoadError> {
    let function = N::new(config, &mut setup)?;
    let descriptor = N::DESCRIPTOR;
    let mut shared = SharedState::default();
    let mut sizes = setup.pools.iter();
    let mut capacities = setup.meters.iter();
    let mut contents = setup.contents.iter();
    let declared = descriptor.shared.iter().filter(|kind| matches!(kind, Shared::Counters(_))).count();
    if declared != setup.counters.len() {
        let named = setup.counters.len();
        return Err(LoadError::Counters { function: descriptor.name, declared, named });
    }
    let mut groups = setup.counters.into_iter();
    for kind in descriptor.shared {
        match *kind {
            Shared::Counter(_) => shared.counters.push(0),
            Shared::Counters(name) => {
                shared.groups.push(CounterGroup::new(name, groups.next().unwrap_or_default()));
            }
            Shared::Set { name, capacity } => {
                let said = setup.sets.iter().find(|&&(set, _)| set == shared.sets.len());
                let capacity = said.map_or(capacity, |&(_, members)| members as usize);
                shared.sets.push(SharedSet::new(name, capacity, setup.seed)?);
            }
            Shared::Pool(name) => {
                let items = sizes.next().copied().unwrap_or(0);
                shared.pools.push(SharedPool::new(name, items, setup.flows_max as usize, setup.seed)?);
            }
            Shared::Meters(name) => {
                let capacity = capacities.next().copied().unwrap_or(0);
                shared.meters.push(Meters::new(name, capacity as usize, setup.seed)?);
            }
            Shared::PayloadCache(name) => {
                let (bytes, fingerprints) = contents.next().copied().unwrap_or_default();
                shared.contents.push(PayloadCache::new(name, bytes, fingerprints)?);
            }
        }
    }
    if let Some(spec) = &descriptor.buffers {
        let memory = setup.buffer_memory.unwrap_or(spec.memory);
        shared.buffers = Some(Buffers::new(spec, memory, setup.buffer_share_percent, setup.seed)?);
    }
    shared.warnings = setup.warnings;
    shared.owned = setup.owned;
    shared.rules = setup.rules;
    shared.prevents = setup.prevents;
    if shared.pools.len() != setup.pools.len() {
        let (declared, sized) = (shared.pools.len(), setup.pools.len());
        return Err(LoadError::Pools { function: descriptor.name, declared, sized });
    }
    if shared.meters.len() != setup.meters.len() {
        let (declared, sized) = (shared.meters.len(), setup.meters.len());
        return Err(LoadError::Meters { function: descriptor.name, declared, sized });
    }
    if shared.contents.len() != setup.contents.len() {
        let (declared, sized) = (shared.contents.len(), setup.contents.len());
        return Err(LoadError::PayloadCaches { function: descriptor.name, declared, sized });
    }
    Ok(Box::new(Loaded {
        function,
        instance: Instance {
            shared,
            access: Access::default(),
            tags: TagLayout::default(),
            stage: 0,
            seed: setup.seed,
            scratch: None,
        },
        state: None,
        lines: CacheLines::default(),
        counters: StageCounters::default(),
        uncounted: Uncounted::default(),
        on_panic: OnPanic::default(),
        panics: Panics::default(),
    }))
}

struct Loaded<N: NetworkFunction> {
    function: N,
    instance: Instance,
    /// Where its state stands in records, once it has its place.
    state: Option<SlotField<N::State>>,
    /// Which of their lines most packets touch that come to it.
    lines: CacheLines,
    counters: StageCounters,
    uncounted: Uncounted,
    on_panic: OnPanic,
    panics: Panics,
}

fn failed_command(function: &str, command: &str) -> ControlError {
    ControlError(format!("`{function}` failed on `{command}`: it panicked"))
}

/// How often a function panicked, and what it said last.
#[derive(Default)]
struct Panics {
    count: Cell<u64>,
    last: RefCell<Option<String>>,
}

impl Panics {
    #[cold]
    fn note(&self, payload: Box<dyn Any + Send>) {
        self.count.set(self.count.get() + 1);
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (None, Some(text)) => text.as_str(),
            (None, None) => "a value that is no text",
        };
        let end =
            text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= PANIC_TEXT_MAX);
        let text = text[..end.last().unwrap_or(0)].to_owned();
        if let Ok(mut last) = self.last.try_borrow_mut() {
            *last = Some(text);
        }
        // What was thrown may panic itself when it is dropped.
        if catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err() {
            self.count.set(self.count.get() + 1);
        }
    }

    /// What came of a call of the function; none if it panicked, which is noted.
    #[inline(always)]
    fn contain<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(done) => Some(done),
            Err(payload) => {
                self.note(payload);
                None
            }
        }
    }
}

/// Says where a loop over packets was when it was left, be it by a panic. It costs those that go on
/// nothing.
struct Progress<'a> {
    /// One more than the current packet's number.
    next: usize,
    left_at: &'a mut usize,
}

impl<'a> Progress<'a> {
    #[inline(always)]
    fn new(left_at: &'a mut usize) -> Progress<'a> {
        Progress { next: *left_at, left_at }
    }

    /// Moves on to the next packet and returns its number.
    #[inline(always)]
    fn step(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

impl Drop for Progress<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.left_at = self.next.saturating_sub(1);
    }
}

const NO_MAP: MapSpec = MapSpec { entries: 0, value_len: 0 };

/// Where what is not to be counted goes.
#[derive(Default)]
struct Uncounted {
    counters: Vec<u64>,
    groups: Vec<CounterGroup>,
}

impl Uncounted {
    /// Takes the place of what is counted there, or gives it back.
    fn swap(&mut self, shared: &mut SharedState) {
        if self.counters.len() != shared.counters.len() || self.groups.len() != shared.groups.len() {
            (self.counters, self.groups) = (shared.counters.clone(), shared.groups.clone());
        }
        swap(&mut self.counters, &mut shared.counters);
        swap(&mut self.groups, &mut shared.groups);
    }
}

impl<N: NetworkFunction> Loaded<N> {
    const STATE_LEN: usize = size_of::<N::State>().next_multiple_of(8);
    const MAP: MapSpec = match N::DESCRIPTOR.map {
        Some(spec) => spec,
        None => NO_MAP,
    };
    const BUFFERS: BufferSpec = match N::DESCRIPTOR.buffers {
        Some(spec) => spec,
        None => BufferSpec::NONE,
    };
    /// Bytes of the map and the buffers' numbers, behind the state.
    const REST_LEN: usize = Self::MAP.len_bytes() + Self::BUFFERS.numbers_len();
    /// Bytes that it takes in a flow's record.
    const LEN: usize = Self::STATE_LEN + Self::REST_LEN.next_multiple_of(8);
    /// Whether packets may be longer or shorter behind it.
    const RESIZES: bool = N::DESCRIPTOR.resizes();

    /// Calls `then` with the function, the flow's state and a context; none if the function panics,
    /// or if the record is not what the layout says, which `place` and the record's length rule
    /// out.
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

    /// The map of a flow, and the buffers' numbers, of what stands behind the state in its record.
    #[inline(always)]
    fn map_of(behind: &mut [u8]) -> Option<StateMap<'_>> {
        let rest: &mut [u8] = match Self::REST_LEN {
            0 => &mut [],
            len => behind.get_mut(Self::STATE_LEN - size_of::<N::State>()..)?.get_mut(..len)?,
        };
        Some(StateMap::new(rest, &Self::MAP))
    }

    /// What is kept of a flow here; none as for `with_flow`.
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

    /// Runs state functions for each of the group's packets that is still to be forwarded.
    /// `record_of`: which record is its flow's, by its number in the group and the record that it
    /// names.
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
            if *verdict != Verdict::Forward || transit.side != *side {
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

    /// Runs state functions for each of the group's packets, from this number on; leaves there at
    /// which it was last.
    #[inline(always)]
    fn run_from(&mut self, group: &mut ReadGroup<'_>, functions: &[u16], at: &mut usize) {
        // Twice the same code, once without looking for records that packets name.
        match group.places {
            None => self.run_all(group, functions, |_, flow| flow, at),
            Some(places) => {
                let record_of = |number: usize, flow| places.get(number).map_or(flow, |&place| place);
                self.run_all(group, functions, record_of, at);
            }
        }
    }

    /// A state function panicked at the packet with this number: sees to that, and to the packets
    /// after it.
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

    /// Processes the group's packets with `process_all`, and continues after any packet at which
    /// the function panics.
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

    /// The function panicked at the packet with this number: sees to that, and to the packets after
    /// it.
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

    /// The function's state of the flow, which it may have left in any condition, begins anew.
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

    /// Processes each of the group's packets, from this number on, that is still to be forwarded;
    /// leaves there at which it was last.
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
        // If the records are not what the layout says, as `with_flow` has it, no packet finds its
        // state.
        let mut states = self.state.and_then(|part| env.records.states_mut(part));
        for (packet, verdict) in packets.unwrap_or_default().iter_mut().zip(verdicts.unwrap_or_default()) {
            let number = progress.step();
            if *verdict != Verdict::Forward || packet.meta().transit.side != *side {
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
            if decided != Verdict::Forward {
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
        // Twice the same code, once without all that recording needs.
        match group.recording.take() {
            None => self.process_contained(group, |stage, group, at| stage.process_all(group, None, at)),
            Some(recording) => {
                let before = self.panics.count.get();
                self.process_contained(group, |stage, group, at| {
                    stage.process_all(group, Some(recording), at);
                });
                if self.panics.count.get() != before {
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
        self.panics.last.borrow().clone()
    }

    fn replay(&mut self, group: &mut PacketGroup<'_>) {
        self.uncounted.swap(&mut self.instance.shared);
        let drops = self.counters.drops;
        self.process_contained(group, |stage, group, at| stage.process_all(group, None, at));
        self.counters.drops = drops;
        self.instance.close();
        self.uncounted.swap(&mut self.instance.shared);
    }

    fn recomputes(&self) -> bool {
        let Descriptor { recomputes, payload, stream, buffers, .. } = N::DESCRIPTOR;
        let by_headers = *payload == crate::Access::Ignore && !stream && buffers.is_none();
        *recomputes && by_headers && self.function.recomputes()
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
        // Other flows are looked at meanwhile, so the new one's header is a copy.
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

    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>) {
        let transit = env.records.header(record).transit(record, now_ns);
        self.with_flow(transit, env, |function, state, context| {
            function.flow_end(state, reason, context);
        });
        self.release_buffers(record, env.records);
    }

    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        let transit = env.records.header(record).transit(record, now_ns);
        self.with_flow(transit, env, |function, state, context| {
            function.flow_moved(state, context);
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
            return Err(no_way); // Its map or its buffers are other ones.
        }
        let upgraded = N::upgrade(from.version, old.get(..from.state_len).ok_or(no_way)?)?;
        state.get_mut(..size_of::<N::State>()).ok_or(no_way)?.copy_from_slice(upgraded.as_bytes());
        new_rest.copy_from_slice(rest);
        Ok(())
    }

    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool {
        let state = self.state.and_then(|part| records.state(record, part));
        // If the function cannot say, its flow's packets are to come to it.
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
        StageCounters { panics: self.panics.count.get(), ..self.counters }
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
