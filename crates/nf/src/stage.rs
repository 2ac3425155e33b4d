//! An NF loaded into a graph: the seam between the graph, which knows no types, and the NF's own.
//!
//! One call through the trait object processes a batch; everything inside is monomorphic.

mod loaded;
mod loading;
mod panics;

use std::ops::Range;

use packet::{Packet, Side, Transit};

use crate::affinity::{AffinityGroup, AffinityGroups};
use crate::context::TagLayout;
use crate::record::{CacheLines, FlowRecords, RecordLayout};
use crate::recording::Recording;
use crate::shared_state::SharedState;
use crate::sharing::SharedHandle;
use crate::stream::Deliveries;
use crate::{
    AnswerScope, ControlError, Descriptor, Effects, EndReason, EventCondition, Plan, UpgradeError, Verdict,
};
pub use loading::{LoadError, load};

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
    /// Drop it with [`FunctionPanic`](packet::DropReason::FunctionPanic) and end its flow.
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
    /// Digest of the NF's configuration: see [`config_digest`](crate::Setup::config_digest).
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

    /// Predicts the treatment of a flow's packets from its state, see
    /// [`predict`](crate::NetworkFunction::predict).
    fn predict(&self, record: u32, records: &FlowRecords, plan: &mut Plan<'_>) -> bool;

    /// See [`predicts_uniformly`](crate::NetworkFunction::predicts_uniformly).
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

    /// Selects flows to evict for the new one of this packet, see
    /// [`make_room`](crate::NetworkFunction::make_room).
    fn make_room(&mut self, _packet: &Packet, _env: &mut StageEnv<'_>, _victims: &mut Vec<u32>) {}

    /// Sees a fragment that is dropped without its first one, see
    /// [`lone_fragment`](crate::NetworkFunction::lone_fragment).
    fn lone_fragment(&mut self, _packet: &mut Packet, _env: &mut StageEnv<'_>) {}

    /// Ends a flow.
    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>);

    /// See [`group_of`](crate::NetworkFunction::group_of).
    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup>;

    /// Gives up what a flow holds of the shared state, unless other instances have that in common:
    /// see [`flow_leaves`](crate::NetworkFunction::flow_leaves).
    fn flow_leaves(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Takes what a flow holds of the shared state, unless other instances have that in common: see
    /// [`flow_arrives`](crate::NetworkFunction::flow_arrives). Returns false if it cannot.
    fn flow_arrives(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) -> bool;

    /// Adapts a flow from an instance with another configuration.
    fn flow_reconfigured(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Takes over a flow from another unit.
    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

    /// Notes that a flow's record lacks packets.
    fn flow_lags(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>);

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
    ///
    /// # Errors
    /// No conversion from that version exists.
    fn upgrade(&self, from: &SavedPart, old: &[u8], part: &mut [u8]) -> Result<(), UpgradeError>;

    /// Checks if a recorded event holds for a flow.
    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool;

    /// See [`answers`](crate::NetworkFunction::answers).
    fn answers(&self) -> AnswerScope;

    /// See [`forwards_unclassified`](crate::NetworkFunction::forwards_unclassified).
    fn forwards_unclassified(&self) -> bool;

    /// See [`control`](crate::NetworkFunction::control).
    ///
    /// # Errors
    /// The command is unknown or cannot be executed; the text is for the operator.
    fn control(&mut self, command: &str) -> Result<(), ControlError>;

    /// See [`check_command`](crate::NetworkFunction::check_command).
    ///
    /// # Errors
    /// The command is unknown; the text is for the operator.
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
