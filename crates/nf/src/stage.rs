//! An NF loaded into a graph: the seam between the graph, which knows no types, and the NF's own.
//!
//! One call through the trait object processes a batch; everything inside is monomorphic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use packet::memory::{OutOfMemory, SlotField};
use packet::{DropReason, Packet, Side, Transit};
use zerocopy::{FromZeros, IntoBytes};

use crate::affinity::{AffinityGroup, AffinityGroups};
use crate::buffers::Buffers;
use crate::context::{Context, Instance, TagLayout};
use crate::counters::{CounterLabel, CounterValues, LabelledDeclaration};
use crate::map::StateMap;
use crate::meters::Meters;
use crate::payload_cache::PayloadCache;
use crate::pool::SharedPool;
use crate::record::{CacheLines, FlowRecords, RecordHeader, RecordLayout, States};
use crate::recording::{HeaderAction, Recording};
use crate::set::SharedSet;
use crate::shared_state::SharedState;
use crate::sharing::{Access, SharedHandle};
use crate::stream::Deliveries;
use crate::{
    AnswerScope, BufferSpec, ControlError, Descriptor, Effects, EndReason, EventCondition, LiveFlows,
    MapSpec, NetworkFunction, PacketView, Plan, Setup, Shared, UpgradeError, VICTIMS_MAX, Verdict,
};
use values::ConfigError;

/// Packets on their way through a graph, in order of arrival, with all that NFs need.
pub struct PacketGroup<'a> {
    /// The packets.
    pub packets: &'a mut [Packet],
    /// Each packet's verdict so far.
    pub verdicts: &'a mut [Verdict],
    /// Only packets that entered by this side take part.
    pub side: Side,
    /// Totals of the packets that take part.
    pub load: PacketTotals,
    /// Set by the stage if it dropped or turned back a packet, or changed the length of one.
    pub changed: bool,
    /// Records, effects and packet buffers.
    pub env: StageEnv<'a>,
    /// Additions to TCP streams, for NFs that ask for streams.
    pub deliveries: Deliveries<'a>,
    /// If given, filled with what the NF does; the group then has one packet.
    pub recording: Option<&'a mut Recording>,
}

/// Packets for which state functions run. Read-only, so that others may read them at the same time
/// (B18).
pub struct ReadGroup<'a> {
    /// The packets.
    pub packets: &'a [Packet],
    /// Each packet's verdict.
    pub verdicts: &'a [Verdict],
    /// Only packets that entered by this side take part.
    pub side: Side,
    /// Totals of the packets that take part.
    pub load: PacketTotals,
    /// The flow records.
    pub records: &'a mut FlowRecords,
    /// Each packet's record; `None` for the records that the packets name.
    pub places: Option<&'a [u32]>,
    /// Output beside packets.
    pub effects: &'a mut Effects,
    /// Set by the stage: one bit per packet at which the NF panicked.
    pub panicked: u64,
}

/// Totals of some packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// Number of packets.
    pub packets: u64,
    /// Bytes, from the link layer on.
    pub bytes: u64,
}

impl PacketTotals {
    /// Adds a packet of this many bytes.
    #[inline(always)]
    pub fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    /// Splits the totals by side, for packets that all entered by the same one.
    #[inline]
    pub fn of(self, packets: &[Packet]) -> [PacketTotals; 2] {
        let mut loads = [PacketTotals::default(); 2];
        if let Some(first) = packets.first() {
            loads[first.meta().transit.side as usize] = self;
        }
        loads
    }

    /// Returns the totals of the packets to be forwarded, by the side that they entered by.
    #[inline]
    pub fn by_side(packets: &[Packet], verdicts: &[Verdict]) -> [PacketTotals; 2] {
        let mut loads = [PacketTotals::default(); 2];
        for (packet, &verdict) in packets.iter().zip(verdicts) {
            if verdict.is_forward() {
                loads[packet.meta().transit.side as usize].add(packet.len());
            }
        }
        loads
    }
}

/// The environment of every call to an NF.
pub struct StageEnv<'a> {
    /// The flow records.
    pub records: &'a mut FlowRecords,
    /// Output beside packets.
    pub effects: &'a mut Effects,
    /// Source of generated packets.
    pub buffers: &'a mut packet::PacketPool,
}

/// Counters of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounters {
    /// Packets that entered.
    pub packets: u64,
    /// Their bytes, from the link layer on.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Panics of the NF, in any call.
    pub panics: u64,
}

/// Treatment of a packet at which the NF panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// Drop it with [`DropReason::FunctionPanic`] and end its flow.
    #[default]
    Drop,
    /// Forward it as the NF left it, and reset the NF's state of the flow.
    Bypass,
}

/// Limit on the bytes kept of a panic's message.
pub const PANIC_TEXT_MAX: usize = 200;

/// An NF's part of a record: what another version must know to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPart {
    /// The NF's name.
    pub name: &'static str,
    /// Version of its state.
    pub version: u16,
    /// Bits used by its attributes.
    pub tag_bits: u32,
    /// Its bytes in a record: the state, then, at a multiple of 8 bytes, its map and the numbers of
    /// its buffers.
    pub bytes: Range<usize>,
    /// Length of the state in `bytes`.
    pub state_len: usize,
    /// Digest of the NF's configuration: see [`Setup::config_digest`].
    pub config_digest: u32,
}

/// An NF in a graph.
pub trait Stage: Send {
    /// Returns the NF's descriptor.
    fn descriptor(&self) -> &'static Descriptor;

    /// Assigns the stage its index and the first bit of its attributes, and adds its bytes to the
    /// record layout. Returns the next free bit, or `None` if the tag word is full.
    fn place(&mut self, stage: u16, layout: &mut RecordLayout, first_tag_bit: u32) -> Option<u32>;

    /// Returns the cache lines of records that most packets touch here. Valid after `place`.
    fn lines(&self) -> CacheLines;

    /// Sets the treatment of packets at which the NF panics. No panic leaves a stage.
    fn set_on_panic(&mut self, on_panic: OnPanic);

    /// Returns the message of the NF's latest panic, cut to [`PANIC_TEXT_MAX`] bytes.
    fn last_panic(&self) -> Option<String>;

    /// Processes the packets whose verdict is still to forward.
    fn process(&mut self, group: &mut PacketGroup<'_>);

    /// Runs these state functions, in order, for the packets whose verdict is still to forward, in
    /// place of [`Stage::process`] (B17-B19).
    fn run_functions(&mut self, group: &mut ReadGroup<'_>, functions: &[u16]);

    /// Predicts the treatment of a flow's packets from its state, see [`NetworkFunction::predict`].
    fn predict(&self, record: u32, records: &FlowRecords, plan: &mut Plan<'_>) -> bool;

    /// See [`NetworkFunction::predicts_uniformly`].
    fn predicts_uniformly(&self) -> bool;

    /// Counts packets that bypassed the NF, `drops` of them dropped on its behalf.
    fn pass(&mut self, load: PacketTotals, drops: u64);

    /// Starts a flow with the current packet. Returns false if the NF panicked and the flow must
    /// not be.
    fn flow_start(&mut self, packet: Transit, env: &mut StageEnv<'_>) -> bool;

    /// Checks if flows may be evicted here for new ones.
    fn makes_room(&self) -> bool {
        false
    }

    /// Selects flows to evict for the new one of this packet, see [`NetworkFunction::make_room`].
    fn make_room(&mut self, _packet: &Packet, _env: &mut StageEnv<'_>, _victims: &mut Vec<u32>) {}

    /// Sees a fragment that is dropped without its first one, see
    /// [`NetworkFunction::lone_fragment`].
    fn lone_fragment(&mut self, _packet: &mut Packet, _env: &mut StageEnv<'_>) {}

    /// Ends a flow.
    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>);

    /// See [`NetworkFunction::group_of`].
    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup>;

    /// Gives up what a flow holds of the shared state, unless other instances have that in common:
    /// see [`NetworkFunction::flow_leaves`].
    fn flow_leaves(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Takes what a flow holds of the shared state, unless other instances have that in common: see
    /// [`NetworkFunction::flow_arrives`]. Returns false if it cannot.
    fn flow_arrives(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) -> bool;

    /// Adapts a flow from an instance with another configuration.
    fn flow_reconfigured(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Takes over a flow from another unit.
    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Appends the content of the flow's growing buffers, which travels beside its record.
    fn save_buffers(&mut self, record: u32, records: &mut FlowRecords, out: &mut Vec<u8>);

    /// Fills a flow's growing buffers from what [`Stage::save_buffers`] wrote at another unit, and
    /// returns the remaining bytes. `None` if the bytes are malformed.
    fn restore_buffers<'b>(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        saved: &'b [u8],
    ) -> Option<&'b [u8]>;

    /// Frees the growing buffers of a flow that moved to another unit.
    fn release_buffers(&mut self, record: u32, records: &mut FlowRecords);

    /// Returns its part of records; `None` before `place`.
    fn saved_part(&self) -> Option<SavedPart>;

    /// Converts `old`, another version's part of a record, to this version. `part` must be zeroed.
    fn upgrade(&self, from: &SavedPart, old: &[u8], part: &mut [u8]) -> Result<(), UpgradeError>;

    /// Checks if a recorded event holds for a flow.
    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool;

    /// See [`NetworkFunction::answers`].
    fn answers(&self) -> AnswerScope;

    /// See [`NetworkFunction::forwards_unclassified`].
    fn forwards_unclassified(&self) -> bool;

    /// See [`NetworkFunction::control`].
    fn control(&mut self, command: &str) -> Result<(), ControlError>;

    /// See [`NetworkFunction::check_command`].
    fn check_command(&self, command: &str) -> Result<(), ControlError>;

    /// Returns the counters.
    fn counters(&self) -> StageCounters;

    /// Returns the shared state, for reports.
    fn shared(&self) -> &SharedState;

    /// Shares sets, pools, meters and payload caches with the instances that [join](Stage::join):
    /// the same NF with the same configuration on other threads. Counters and growing buffers stay
    /// separate.
    fn share(&mut self) -> SharedHandle;

    /// Replaces its own shared state, which must be unused, by that of another instance.
    fn join(&mut self, common: SharedHandle);

    /// Acquires the shared state for reading, blocking other instances until [`Stage::close`].
    fn open(&mut self);

    /// Releases the shared state.
    fn close(&mut self);

    /// Ends sharing and keeps the state. No other instance may use it afterwards.
    fn part(&mut self);

    /// Returns the bit positions of the NF's attributes.
    fn tags(&self) -> &TagLayout;
}

/// An error of [`load`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A pool was declared in the descriptor and not sized in `new`, or the reverse: a bug in the
    /// NF.
    #[error("`{function}` declares {declared} pools but sizes {sized}")]
    Pools {
        /// Name of the NF.
        function: &'static str,
        /// Pools in its descriptor.
        declared: usize,
        /// Pools that it sized.
        sized: usize,
    },
    /// A label of counters was declared and got no values, or got them twice: a bug in the NF.
    #[error("`{function}` declares counters by `{label}` but sets its values {times} times")]
    CounterLabel {
        /// Name of the NF.
        function: &'static str,
        /// Name of the label.
        label: &'static str,
        /// Calls of [`Setup::label_counters`].
        times: usize,
    },
    /// A table of meters was declared and not sized, or the reverse: a bug in the NF.
    #[error("`{function}` declares {declared} tables of meters but sizes {sized}")]
    Meters {
        /// Name of the NF.
        function: &'static str,
        /// Tables in its descriptor.
        declared: usize,
        /// Tables that it sized.
        sized: usize,
    },
    /// A payload cache was declared and not sized, or the reverse: a bug in the NF.
    #[error("`{function}` declares {declared} payload caches but sizes {sized}")]
    PayloadCaches {
        /// Name of the NF.
        function: &'static str,
        /// Caches in its descriptor.
        declared: usize,
        /// Caches that it sized.
        sized: usize,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// Builds a stage from an NF's configuration.
pub fn load<N: NetworkFunction>(config: N::Config, mut setup: Setup) -> Result<Box<dyn Stage>, LoadError> {
    let function = N::new(config, &mut setup)?;
    let descriptor = N::DESCRIPTOR;
    let mut shared = SharedState { counters: counters(descriptor, setup.labels)?, ..SharedState::default() };
    let mut sizes = setup.pools.iter();
    let mut capacities = setup.meters.iter();
    let mut contents = setup.contents.iter();
    for kind in descriptor.shared {
        match *kind {
            Shared::Set { name, capacity } => {
                let said = setup.sets.iter().find(|&&(set, _)| set == shared.sets.len());
                let capacity = said.map_or(capacity, |&(_, members)| members as usize);
                shared.sets.push(SharedSet::new(name, capacity, setup.seed)?);
            }
            Shared::Pool(name) => {
                let (items, hold) = sizes.next().copied().unwrap_or_default();
                let users = setup.flows_max as usize;
                shared.pools.push(SharedPool::new(name, items, users, hold, setup.seed)?);
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
    shared.sources = setup.sources;
    shared.rules = setup.rules;
    shared.prevents = setup.prevents;
    shared.forgets_connections = setup.forgets_connections;
    shared.affinity_key = setup.affinity_key;
    shared.one_machine = setup.one_machine;
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
        config_digest: setup.config_digest,
        state: None,
        lines: CacheLines::default(),
        counters: StageCounters::default(),
        on_panic: OnPanic::default(),
        panics: Panics::default(),
    }))
}

/// Returns the declared counters with the values of their labels.
fn counters(
    descriptor: &Descriptor,
    mut labels: Vec<(CounterLabel, Vec<String>)>,
) -> Result<CounterValues, LoadError> {
    let declared = descriptor.counters;
    for (number, LabelledDeclaration { label, .. }) in declared.labelled.iter().enumerate() {
        let times = labels.iter().filter(|(label, _)| label.0 == number).count();
        if times != 1 {
            return Err(LoadError::CounterLabel { function: descriptor.name, label, times });
        }
    }
    labels.sort_by_key(|(label, _)| label.0);
    Ok(CounterValues::new(declared, labels.into_iter().map(|(_, values)| values).collect()))
}

struct Loaded<N: NetworkFunction> {
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

/// Number of panics, and the message of the last one.
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
            (None, None) => "a value that is not text",
        };
        let end =
            text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= PANIC_TEXT_MAX);
        let text = text[..end.last().unwrap_or(0)].to_owned();
        if let Ok(mut last) = self.last.try_borrow_mut() {
            *last = Some(text);
        }
        // The panic's payload may panic itself when dropped.
        if catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err() {
            self.count.set(self.count.get() + 1);
        }
    }

    /// Runs a call into the NF. Returns `None` and counts it if the NF panicked.
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

/// Records how far a loop over packets got when it ended, even by a panic. Costs nothing per
/// packet.
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

    /// Advances to the next packet and returns its number.
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
