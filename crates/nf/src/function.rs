//! The trait that an NF implements, and its requests at setup.

use serde::de::DeserializeOwned;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use packet::memory::SlotField;
use packet::{Addr, Packet, Side};

use crate::affinity::{AffinityGroup, AffinityGroups, AffinityKey};
use crate::buffers::BUFFER_SHARE_PERCENT;
use crate::counters::CounterLabel;
use crate::pool::HoldDown;
use crate::record::{FlowRecords, RecordHeader};
use crate::{
    Connection, Context, Descriptor, EndReason, LinkAddresses, OwnedAddresses, PacketView, PassedSources,
    RuleCounters, RuleLabel, Verdict,
};
use values::ConfigError;

/// Limit on the flows evicted for one new flow, see [`NetworkFunction::make_room`].
pub const VICTIMS_MAX: usize = 64;

/// A network function: scaling, migration and billing come with it.
///
/// A value of the type is one configured instance, immutable while packets flow. Only two states
/// change: the flow's, which the graph owns, and the shared state declared in the [`Descriptor`].
pub trait NetworkFunction: Sized + Send + Sync + 'static {
    /// Static facts about the NF, for the graph and operators.
    const DESCRIPTOR: &'static Descriptor;

    /// The configuration as written in the policy. Use `#[serde(deny_unknown_fields)]` to reject
    /// unknown keys.
    type Config: DeserializeOwned;

    /// Per-flow state: fixed-layout bytes without padding. All zeros is the state of a new flow.
    type State: FromBytes + IntoBytes + KnownLayout + Immutable;

    /// Leading bytes of the state that most packets of a known flow touch. A hint for prefetching.
    const HOT_BYTES: usize = size_of::<Self::State>();

    /// Builds an instance from its configuration.
    ///
    /// # Errors
    /// The configuration is invalid.
    fn new(config: Self::Config, setup: &mut Setup) -> Result<Self, ConfigError>;

    /// Processes one packet of a flow (S21).
    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Self::State,
        context: &mut Context<'_>,
    ) -> Verdict;

    /// Called before this NF processes the first packet of a flow.
    fn flow_start(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// Called when a flow ends: return pool items and report the flow here.
    fn flow_end(&self, _state: &mut Self::State, _reason: EndReason, _context: &mut Context<'_>) {}

    /// Set if flows may be evicted for a new one, see [`NetworkFunction::make_room`].
    const MAKES_ROOM: bool = false;

    /// Selects flows to evict so that the new flow of `packet` finds what it needs, such as a free
    /// pool item. Adds up to [`VICTIMS_MAX`] record numbers to `victims`, or none if nothing is
    /// needed or evictable.
    ///
    /// Called before the packet is processed, only if [`NetworkFunction::MAKES_ROOM`] is set. The
    /// packet is unmodified. The context is the new flow's; its map is empty and writes to it are
    /// discarded.
    fn make_room(
        &self,
        _packet: &Packet,
        _flows: &LiveFlows<'_, Self::State>,
        _context: &mut Context<'_>,
        _victims: &mut Vec<u32>,
    ) {
    }

    /// Set if the NF sees fragments that are dropped because the first one of their datagram did
    /// not arrive, see [`NetworkFunction::lone_fragment`].
    const SEES_LONE_FRAGMENTS: bool = false;

    /// Sees a fragment that is about to be dropped because the first one of its datagram did not
    /// arrive: it has no ports and belongs to no flow. State and map are empty and kept nowhere.
    ///
    /// Called only if [`NetworkFunction::SEES_LONE_FRAGMENTS`] is set, for all such NFs of a graph,
    /// and not where a dispatcher drops the fragment.
    fn lone_fragment(
        &self,
        _packet: &mut PacketView<'_>,
        _state: &mut Self::State,
        _context: &mut Context<'_>,
    ) {
    }

    /// Returns the affinity group of the flow that this packet begins, by the configuration and the
    /// packet as it enters the graph; `None` if the flow may be at any node.
    ///
    /// The packet's metadata show its key and side. The first NF of the packet's path that names a
    /// group decides. A dispatcher calls this for packets that begin flows. With
    /// [`AffinityKey::Connection`], it puts further sub-flows into the group of the first one.
    fn group_of(&self, _packet: &Packet, _groups: AffinityGroups) -> Option<AffinityGroup> {
        None
    }

    /// Called before a flow's record leaves for a node with shared state of its own, once the
    /// record is saved. The flow releases its items of the shared state; it does not end.
    fn flow_leaves(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// Called after a flow's record has arrived from a node with shared state of its own, before
    /// [`NetworkFunction::flow_moved`]. The flow takes the items that it held there. Returns false
    /// if it cannot: the flow then stays where it was, and [`NetworkFunction::flow_leaves`]
    /// follows.
    fn flow_arrives(&self, _state: &mut Self::State, _context: &mut Context<'_>) -> bool {
        true
    }

    /// Called after a flow's record arrived from an instance with another configuration, before
    /// [`NetworkFunction::flow_arrives`]: state that refers to that one, such as the number of a
    /// rule, has no meaning here. Without this method, the state stays as it is.
    fn flow_reconfigured(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// Called after a flow's record arrived from another unit, before its first packet here.
    fn flow_moved(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// Called after [`NetworkFunction::flow_moved`] if the flow's record lacks packets: they were
    /// processed at a unit that was lost, and may have reached their hosts.
    fn flow_lags(&self, _state: &mut Self::State, _context: &mut Context<'_>) {}

    /// Runs one of the state functions that this NF recorded (B22), in place of
    /// [`NetworkFunction::process`]. It can only read the packet, and cannot answer it.
    ///
    /// The cached rule decides the fate of packet and flow: [`Context::keep_flow_ms`],
    /// [`Context::tag_packet`] and [`Context::relearn_alias`] have no effect here.
    ///
    /// State functions of several NFs may run on several cores at once if their
    /// [declarations](crate::StateFunction) allow it (B18). Each NF still sees its packets one at a
    /// time, and the results are those of running in order.
    fn state_function(
        &self,
        _id: u16,
        _packet: &Packet,
        _state: &mut Self::State,
        _context: &mut Context<'_>,
    ) {
    }

    /// Predicts what this NF would do to the packets that it forwards, from the flow's state and
    /// its configuration alone, so that no packet has to be recorded.
    ///
    /// Returns false if it cannot predict or would not forward; a packet is then recorded instead.
    /// The plan must equal what it would record (see [`Descriptor::consolidates`]), and none of the
    /// recorded events may hold. Called again after each command.
    fn predict(&self, _state: &Self::State, _plan: &mut crate::Plan<'_>) -> bool {
        false
    }

    /// Returns true if [`NetworkFunction::predict`] gives the same plan for all flows and packets,
    /// whatever the state and the commands, and records only state functions. It is then not called
    /// per flow.
    fn predicts_uniformly(&self) -> bool {
        false
    }

    /// Checks if a recorded condition holds now (B7, B23). If so, the flow's next packet goes to
    /// [`NetworkFunction::process`] and is recorded again.
    fn event_holds(&self, _event: crate::EventCondition, _state: &Self::State) -> bool {
        false
    }

    /// Returns the packets of accepted flows that this NF may answer ([`Context::answer`]), given
    /// its configuration and commands. Each of them runs through the graph alone, so that its
    /// answer keeps its place. First packets of flows always do. Called again after each command.
    fn answers(&self) -> crate::AnswerScope {
        crate::AnswerScope::NONE
    }

    /// Checks if packets may pass that this NF cannot classify: non-IP packets, and packets with
    /// forbidden addresses. A filter that denies by default returns false. Called again after each
    /// command.
    fn forwards_unclassified(&self) -> bool {
        true
    }

    /// Executes an operator's command, such as `server web1 down`. The syntax is the NF's own.
    ///
    /// # Errors
    /// The command is unknown or cannot be executed; the text is for the operator.
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        Err(ControlError(format!("`{}` takes no commands, got `{command}`", Self::DESCRIPTOR.name)))
    }

    /// Validates a command for [`NetworkFunction::control`] without executing it.
    ///
    /// Command scripts are validated when they are read, hours before a command's time. An NF that
    /// accepts commands implements both methods. A valid command may still fail later if earlier
    /// commands change its meaning.
    ///
    /// # Errors
    /// As [`NetworkFunction::control`].
    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        Err(ControlError(format!("`{}` takes no commands, got `{command}`", Self::DESCRIPTOR.name)))
    }

    /// Converts a flow's state from another version, see [`Descriptor::state_version`]; `old` holds
    /// its bytes. Called for each flow that arrives from a graph with that version. The flow's map
    /// and buffers stay as they are, so both versions must declare the same ones.
    ///
    /// # Errors
    /// No conversion from that version exists.
    fn upgrade(from_version: u16, _old: &[u8]) -> Result<Self::State, UpgradeError> {
        Err(UpgradeError { from_version, to_version: Self::DESCRIPTOR.state_version })
    }
}

/// The packets of known flows that an NF may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerScope {
    /// All packets.
    pub all: bool,
    /// Packets that may open a connection or belong to none: TCP SYNs, and all packets except TCP
    /// and UDP.
    pub openings: bool,
    /// IP packets longer than this, in bytes.
    pub longer_than: u32,
}

impl AnswerScope {
    /// No packets.
    pub const NONE: AnswerScope = AnswerScope { all: false, openings: false, longer_than: u32::MAX };
    /// All packets.
    pub const ALL: AnswerScope = AnswerScope { all: true, ..AnswerScope::NONE };

    /// Returns the union of both scopes.
    pub fn or(self, other: AnswerScope) -> AnswerScope {
        AnswerScope {
            all: self.all || other.all,
            openings: self.openings || other.openings,
            longer_than: self.longer_than.min(other.longer_than),
        }
    }
}

/// The flows of a graph as one of its NFs sees them.
pub struct LiveFlows<'a, S> {
    records: &'a FlowRecords,
    state: SlotField<S>,
}

impl<'a, S: FromBytes + IntoBytes + Immutable> LiveFlows<'a, S> {
    pub(crate) fn new(records: &'a FlowRecords, state: SlotField<S>) -> LiveFlows<'a, S> {
        LiveFlows { records, state }
    }

    /// Returns the live flow with this record number.
    pub fn get(&self, record: u32) -> Option<LiveFlow<'a, S>> {
        let header = self.records.find_header(record).filter(|header| header.has(RecordHeader::FLAG_LIVE))?;
        let state = self.records.state(record, self.state)?;
        let (connection, packets) = (header.connection, header.seq);
        Some(LiveFlow { state, connection, packets, last_seen_ns: header.last_seen_ns })
    }
}

/// An NF's view of another flow.
#[derive(Clone, Copy, Debug)]
pub struct LiveFlow<'a, S> {
    /// This NF's state of that flow.
    pub state: &'a S,
    /// The state of the flow's connection.
    pub connection: Connection,
    /// Packets so far, both directions.
    pub packets: u64,
    /// Time of the last packet that refreshed the flow.
    pub last_seen_ns: u64,
}

/// An operator's command that is not understood or cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ControlError(pub String);

/// No conversion exists between two versions of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("state of version {from_version} cannot be converted to version {to_version}")]
pub struct UpgradeError {
    /// The version of the given bytes.
    pub from_version: u16,
    /// The version of this program.
    pub to_version: u16,
}

/// Requests by an instance while it is built, and facts for it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all randomness in the run.
    pub seed: u64,
    /// Limit on the flows in the graph.
    pub flows_max: u32,
    /// If set, a tunneled packet belongs to the flow of its innermost IP header, otherwise to that
    /// of the outermost.
    pub inner: bool,
    /// If set, filters forward packets that a link needs: neighbour discovery and DHCP
    /// ([`packet::sanity::is_link_control_packet`]).
    pub link_control: bool,
    /// The policy's affinity groups, if flows may be at several nodes: pools are then divided among
    /// them.
    pub affinity_groups: Option<AffinityGroups>,
    /// A digest of the configuration: flows from an instance with another one are
    /// [reconfigured](NetworkFunction::flow_reconfigured).
    pub config_digest: u32,
    /// The links of the policy's ports.
    pub links: LinkAddresses,
    /// Items of each pool, and their holds.
    pub(crate) pools: Vec<(u32, HoldDown)>,
    /// Labels of counters and their values.
    pub(crate) labels: Vec<(CounterLabel, Vec<String>)>,
    pub(crate) meters: Vec<u32>,
    /// Bytes and fingerprints of each payload cache.
    pub(crate) contents: Vec<(usize, usize)>,
    /// Overrides of set capacities: set number in the descriptor, members.
    pub(crate) sets: Vec<(usize, u32)>,
    pub(crate) buffer_memory: Option<usize>,
    pub(crate) buffer_share_percent: u8,
    pub(crate) warnings: Vec<String>,
    pub(crate) owned: Vec<OwnedAddresses>,
    pub(crate) sources: Option<PassedSources>,
    pub(crate) rules: Vec<RuleCounters>,
    pub(crate) prevents: bool,
    pub(crate) forgets_connections: Option<&'static str>,
    pub(crate) affinity_key: Option<AffinityKey>,
    pub(crate) one_machine: Option<&'static str>,
}

impl Setup {
    /// Returns a setup for up to `flows_max` flows, keyed by their outermost IP headers.
    pub fn new(seed: u64, flows_max: u32) -> Setup {
        Setup {
            seed,
            flows_max,
            inner: false,
            link_control: false,
            affinity_groups: None,
            config_digest: 0,
            links: LinkAddresses::default(),
            pools: Vec::new(),
            labels: Vec::new(),
            meters: Vec::new(),
            contents: Vec::new(),
            sets: Vec::new(),
            buffer_memory: None,
            buffer_share_percent: BUFFER_SHARE_PERCENT,
            warnings: Vec::new(),
            owned: Vec::new(),
            sources: None,
            rules: Vec::new(),
            prevents: false,
            forgets_connections: None,
            affinity_key: None,
            one_machine: None,
        }
    }

    /// Sets the size, in items, of the next pool declared in the descriptor. Call it once per pool,
    /// in order.
    pub fn pool_size(&mut self, items: u32) {
        self.pool_with_holds(items, HoldDown::default());
    }

    /// Sets the size of the next pool, as [`Setup::pool_size`] does, and holds its freed items
    /// ([`crate::pool::SharedPool::leave_held`]).
    pub fn pool_with_holds(&mut self, items: u32, hold: HoldDown) {
        self.pools.push((items, hold));
    }

    /// Sets the capacity of the next table of meters declared in the descriptor. Call it once per
    /// table, in order. A table of capacity 0 takes no memory and refuses every meter.
    pub fn meters(&mut self, capacity: u32) {
        self.meters.push(capacity);
    }

    /// Sets the size of the next payload cache declared in the descriptor: bytes of payload, and
    /// number of fingerprints. Call it once per cache, in order.
    pub fn payload_cache(&mut self, bytes: usize, fingerprints: usize) {
        self.contents.push((bytes, fingerprints));
    }

    /// Overrides the capacity that the descriptor gives for set number `set`.
    pub fn set_capacity(&mut self, set: usize, members: u32) {
        self.sets.push((set, members));
    }

    /// Overrides the descriptor's limit on the bytes in all flow buffers.
    pub fn buffer_memory(&mut self, bytes: usize) {
        self.buffer_memory = Some(bytes);
    }

    /// Overrides [`BUFFER_SHARE_PERCENT`], the share of buffer memory that flows of one source may
    /// hold when memory runs short.
    pub fn buffer_share(&mut self, percent: u8) {
        self.buffer_share_percent = percent;
    }

    /// Warns the operator about the configuration.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Declares that this NF withholds bytes of TCP streams from receivers. The graph then drops
    /// segments that a receiver could reassemble differently.
    pub fn prevents(&mut self) {
        self.prevents = true;
    }

    /// Declares that this NF drops segments of TCP connections without a visible beginning:
    /// connections do not survive a restart. `advice` names what the operator may change.
    pub fn forgets_connections(&mut self, advice: &'static str) {
        self.forgets_connections = Some(advice);
    }

    /// Names the key of the affinity groups that [`NetworkFunction::group_of`] returns. Several NFs
    /// of a policy must agree.
    pub fn groups_by(&mut self, key: AffinityKey) {
        self.affinity_key = Some(key);
    }

    /// Declares that this instance runs on one machine only: its configuration makes flows share
    /// state that affinity groups cannot divide.
    pub fn one_machine(&mut self, reason: &'static str) {
        self.one_machine = Some(reason);
    }

    /// Declares that this NF owns all of the addresses `first` to `last`, for neighbours on `side`
    /// or on both sides.
    pub fn owns(&mut self, side: Option<Side>, first: Addr, last: Addr) {
        self.owned.push(OwnedAddresses { side, first, last, in_use: false });
    }

    /// Declares that this NF owns the addresses from `first` to `last` that are sources of packets
    /// leaving by `side`. Neighbours there may have the others.
    pub fn owns_in_use(&mut self, side: Side, first: Addr, last: Addr) {
        self.owned.push(OwnedAddresses { side: Some(side), first, last, in_use: true });
    }

    /// Declares that this NF drops packets from Inside unless their sources are in these ranges,
    /// which the key of its configuration names.
    pub fn passes_sources(&mut self, key: &'static str, ranges: impl IntoIterator<Item = (Addr, Addr)>) {
        self.sources = Some(PassedSources { key, ranges: ranges.into_iter().collect() });
    }

    /// Declares the rules that operators wrote. [`crate::Context::rule`] counts their hits, and
    /// their bytes if `counts_bytes`.
    pub fn rules(&mut self, rules: impl IntoIterator<Item = RuleLabel>, counts_bytes: bool) {
        self.rules.extend(rules.into_iter().map(|label| RuleCounters::new(label, counts_bytes)));
    }

    /// Sets the values of a label of [`counters!`](crate::counters!), such as the names of servers.
    /// Call it once per label.
    pub fn label_counters(&mut self, label: CounterLabel, values: impl IntoIterator<Item = String>) {
        self.labels.push((label, values.into_iter().collect()));
    }
}
