//! The interface that a network function implements.

use serde::de::DeserializeOwned;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use packet::memory::SlotField;
use packet::{Addr, Packet, Side};

use crate::buffers::BUFFER_SHARE_PERCENT;
use crate::record::{FlowRecords, RecordHeader};
use crate::{
    Connection, Context, Descriptor, EndReason, OwnedAddresses, PacketView, RuleCounters, RuleLabel, Verdict,
};
use values::ConfigError;

/// Flows that give way to one new flow at most, see [`NetworkFunction::make_room`].
pub const VICTIMS_MAX: usize = 64;

/// A network function: what one writes to get scaling, migration, fault tolerance and billing
/// (DESIGN 4).
///
/// A value of the type is an instance with its configuration. While packets flow it is immutable;
/// what changes is the flow's state, which the chain owns, and the shared state that the
/// [`Descriptor`] declares.
pub trait NetworkFunction: Sized + Send + Sync + 'static {
    /// What the function says of itself.
    const DESCRIPTOR: &'static Descriptor;

    /// Its configuration, as written in the policy. `#[serde(deny_unknown_fields)]` makes an
    /// unknown key an error.
    type Config: DeserializeOwned;

    /// What it keeps of each flow: fixed-layout bytes without padding. All zeros is the state of a
    /// flow that has not begun.
    type State: FromBytes + IntoBytes + KnownLayout + Immutable;

    /// Bytes at the state's beginning that most packets of a known flow read or write, and that are
    /// worth being fetched before: a hint.
    const HOT_BYTES: usize = size_of::<Self::State>();

    /// Makes an instance, or says what is wrong with the configuration.
    fn new(config: Self::Config, setup: &mut Setup) -> Result<Self, ConfigError>;

    /// Processes one packet of a flow (S21).
    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Self::State,
        context: &mut Context<'_>,
    ) -> Verdict;

    /// A flow begins: called before its first packet is processed by this function.
    fn flow_start(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// A flow is over: the place to give back what it took from pools, and to report it.
    fn flow_end(&self, _state: &mut Self::State, _reason: EndReason, _context: &mut Context<'_>) {}

    /// Whether flows may give way here to a new one, see [`NetworkFunction::make_room`].
    const MAKES_ROOM: bool = false;

    /// Adds flows to `victims` that end so that the one that begins with this packet finds what it
    /// needs, such as a free item of a pool: none if it will find that, or if no flow gives way; up
    /// to [`VICTIMS_MAX`]. Called before the packet is processed, if
    /// [`NetworkFunction::MAKES_ROOM`]; the packet is as it came to the chain. The context is the
    /// new flow's; its map is empty, and what is set there is lost.
    fn make_room(
        &self,
        _packet: &Packet,
        _flows: &LiveFlows<'_, Self::State>,
        _context: &mut Context<'_>,
        _victims: &mut Vec<u32>,
    ) {
    }

    /// The flow's record has come from another unit and is processed here from now on.
    fn flow_moved(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// Runs one of the state functions that it recorded (B22), for a packet that otherwise would
    /// come to [`NetworkFunction::process`]. It only reads the packet, and answers none. What
    /// becomes of packet and flow says the rule: what is asked for here with
    /// [`Context::keep_flow_ms`], [`Context::tag_packet`] or [`Context::relearn_alias`] does not
    /// count.
    ///
    /// State functions of several functions may run on several cores at once, where what they
    /// [noted](crate::StateFunction) allows it (B18): each function still has its packets one after
    /// the other, and what they leave behind is what it is in order.
    fn state_function(
        &self,
        _id: u16,
        _packet: &Packet,
        _state: &mut Self::State,
        _context: &mut Context<'_>,
    ) {
    }

    /// Says what it would do to packets of the flow that it forwards, as far as the flow's state
    /// and its own configuration tell, in place of recording a packet; false: it cannot tell, or
    /// would do otherwise, and one has to be recorded. What it says must be what it would record
    /// (see [`Descriptor::consolidates`]), and none of the events that it notes may hold. It is
    /// asked anew after each command.
    fn predict(&self, _state: &Self::State, _plan: &mut crate::Plan<'_>) -> bool {
        false
    }

    /// Whether [`NetworkFunction::predict`] says the same of all flows and packets, whatever their
    /// states and however it is commanded, and only notes state functions: then it is not asked for
    /// each flow.
    fn predicts_uniformly(&self) -> bool {
        false
    }

    /// Whether a condition that it recorded holds now (B7, B23): then the flow's next packet comes
    /// to [`NetworkFunction::process`], and is recorded anew.
    fn event_holds(&self, _event: crate::EventCondition, _state: &Self::State) -> bool {
        false
    }

    /// Whether a flow's state [follows from its packets' headers](Descriptor::recomputes) with this
    /// configuration, too, once it has begun. Asked only of functions whose descriptor says so.
    fn recomputes(&self) -> bool {
        true
    }

    /// Which packets of flows that it let pass before it may answer ([`Context::answer`]), as it is
    /// configured and was commanded: each of them goes through the chain alone, so that what
    /// answers it keeps its place. Those that begin flows do so anyway. Asked again after each
    /// command.
    fn answers(&self) -> crate::AnswerScope {
        crate::AnswerScope::NONE
    }

    /// Whether packets may pass that it cannot judge: those that are not IP, and those that nobody
    /// may send. A filter that denies what its rules do not allow says no. It is asked again after
    /// each command.
    fn forwards_unclassified(&self) -> bool {
        true
    }

    /// Carries out an operator's command, such as `server web1 down`; the words are the function's
    /// own.
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        Err(ControlError(format!("`{}` takes no commands, got `{command}`", Self::DESCRIPTOR.name)))
    }

    /// Checks that [`NetworkFunction::control`] understands this command and can name what it is
    /// about, and changes nothing. Scripts of commands are checked so when they are read, hours
    /// before a command's time. A function that takes commands implements both. A command may pass
    /// and be refused later, where earlier commands decide what it means.
    ///
    /// # Errors
    /// As [`NetworkFunction::control`].
    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        Err(ControlError(format!("`{}` takes no commands, got `{command}`", Self::DESCRIPTOR.name)))
    }

    /// Makes a state of this version of one of another version, of which `old` has the bytes; see
    /// [`Descriptor::state_version`]. Called for each flow that comes from a chain with that
    /// version. What the function keeps beside the state, its map and its buffers, stays: they must
    /// be of the same kinds in both versions.
    fn upgrade(from_version: u16, _old: &[u8]) -> Result<Self::State, UpgradeError> {
        Err(UpgradeError { from_version, to_version: Self::DESCRIPTOR.state_version })
    }
}

/// Packets of known flows that a function may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerScope {
    /// All of them.
    pub all: bool,
    /// Those that may open a connection, or are of no connection: SYNs, and what is neither TCP nor
    /// UDP.
    pub openings: bool,
    /// Those whose IP packet is longer than this, in bytes.
    pub longer_than: u32,
}

impl AnswerScope {
    /// None.
    pub const NONE: AnswerScope = AnswerScope { all: false, openings: false, longer_than: u32::MAX };
    /// All.
    pub const ALL: AnswerScope = AnswerScope { all: true, ..AnswerScope::NONE };

    /// Those that one of both functions may answer.
    pub fn or(self, other: AnswerScope) -> AnswerScope {
        AnswerScope {
            all: self.all || other.all,
            openings: self.openings || other.openings,
            longer_than: self.longer_than.min(other.longer_than),
        }
    }
}

/// The flows of a chain, as one of its functions sees them.
pub struct LiveFlows<'a, S> {
    records: &'a FlowRecords,
    state: SlotField<S>,
}

impl<'a, S: FromBytes + IntoBytes + Immutable> LiveFlows<'a, S> {
    pub(crate) fn new(records: &'a FlowRecords, state: SlotField<S>) -> LiveFlows<'a, S> {
        LiveFlows { records, state }
    }

    /// The flow with this record number, if there is one.
    pub fn get(&self, record: u32) -> Option<LiveFlow<'a, S>> {
        let header = self.records.find_header(record).filter(|header| header.has(RecordHeader::FLAG_LIVE))?;
        let state = self.records.state(record, self.state)?;
        let (connection, packets) = (header.connection, header.seq);
        Some(LiveFlow { state, connection, packets, last_seen_ns: header.last_seen_ns })
    }
}

/// What a function sees of another flow.
#[derive(Clone, Copy, Debug)]
pub struct LiveFlow<'a, S> {
    /// What it keeps of that flow.
    pub state: &'a S,
    /// What the flow's connection has come to.
    pub connection: Connection,
    /// Its packets so far, of both directions.
    pub packets: u64,
    /// When its last refreshing packet came.
    pub last_seen_ns: u64,
}

/// An operator's command was not understood, or cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ControlError(pub String);

/// There is no way from an older state to today's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no way from state version {from_version} to {to_version}")]
pub struct UpgradeError {
    /// The version that the bytes have.
    pub from_version: u16,
    /// The version that is wanted.
    pub to_version: u16,
}

/// What an instance asks for, and is told, while it is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Flows that the chain holds at most.
    pub flows_max: u32,
    /// Whether a packet in a tunnel belongs to the flow of the innermost IP header; else to that of
    /// the outermost.
    pub inner: bool,
    /// Whether packets pass filters that the link between two wire's ports needs: neighbour
    /// discovery, DHCP ([`packet::sanity::is_link_control_packet`]).
    pub link_control: bool,
    pub(crate) pools: Vec<u32>,
    pub(crate) counters: Vec<Vec<String>>,
    pub(crate) meters: Vec<u32>,
    /// Bytes and fingerprints.
    pub(crate) contents: Vec<(usize, usize)>,
    /// Sets, by their numbers, with other capacities than their descriptor's.
    pub(crate) sets: Vec<(usize, u32)>,
    pub(crate) buffer_memory: Option<usize>,
    pub(crate) buffer_share_percent: u8,
    pub(crate) warnings: Vec<String>,
    pub(crate) owned: Vec<OwnedAddresses>,
    pub(crate) rules: Vec<RuleCounters>,
    pub(crate) prevents: bool,
}

impl Setup {
    /// For a chain of up to `flows_max` flows, of the outermost IP headers.
    pub fn new(seed: u64, flows_max: u32) -> Setup {
        Setup {
            seed,
            flows_max,
            inner: false,
            link_control: false,
            pools: Vec::new(),
            counters: Vec::new(),
            meters: Vec::new(),
            contents: Vec::new(),
            sets: Vec::new(),
            buffer_memory: None,
            buffer_share_percent: BUFFER_SHARE_PERCENT,
            warnings: Vec::new(),
            owned: Vec::new(),
            rules: Vec::new(),
            prevents: false,
        }
    }

    /// Sets the size, in items, of the next pool that the descriptor declares; to be called once
    /// for each, in order.
    pub fn pool_size(&mut self, items: u32) {
        self.pools.push(items);
    }

    /// Sets how many meters the next table that the descriptor declares can hold; to be called once
    /// for each, in order. A table for none takes no memory and gives out no meter.
    pub fn meters(&mut self, capacity: u32) {
        self.meters.push(capacity);
    }

    /// Sets how many bytes of payloads the next contents that the descriptor declares hold, and how
    /// many fingerprints find them; to be called once for each, in order.
    pub fn payload_cache(&mut self, bytes: usize, fingerprints: usize) {
        self.contents.push((bytes, fingerprints));
    }

    /// Sets how many members the set with this number in the descriptor can hold, in place of what
    /// is said there.
    pub fn set_capacity(&mut self, set: usize, members: u32) {
        self.sets.push((set, members));
    }

    /// Sets how many bytes the growing buffers of all flows may hold, in place of what the
    /// descriptor says.
    pub fn buffer_memory(&mut self, bytes: usize) {
        self.buffer_memory = Some(bytes);
    }

    /// Sets what the flows of one source may hold of that memory once it runs short, in place of
    /// [`BUFFER_SHARE_PERCENT`].
    pub fn buffer_share(&mut self, percent: u8) {
        self.buffer_share_percent = percent;
    }

    /// Tells the operator something about the configuration that is no error.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Says that the function keeps bytes of TCP streams from their receivers: what these may take
    /// otherwise than the streams have it must not pass.
    pub fn prevents(&mut self) {
        self.prevents = true;
    }

    /// Says that the function owns the addresses from `first` to `last`, for neighbours on this
    /// side, or on both.
    pub fn owns(&mut self, side: Option<Side>, first: Addr, last: Addr) {
        self.owned.push(OwnedAddresses { side, first, last });
    }

    /// Says which rules operators wrote; what each decides about is counted by
    /// [`crate::Context::rule`], its bytes too where `counts_bytes`.
    pub fn rules(&mut self, rules: impl IntoIterator<Item = RuleLabel>, counts_bytes: bool) {
        self.rules.extend(rules.into_iter().map(|label| RuleCounters::new(label, counts_bytes)));
    }

    /// Names the counters of the next group that the descriptor declares; to be called once for
    /// each, in order. As many as there are names, counted by [`crate::Context::count_in`].
    pub fn counters(&mut self, names: impl IntoIterator<Item = String>) {
        self.counters.push(names.into_iter().collect());
    }
}
