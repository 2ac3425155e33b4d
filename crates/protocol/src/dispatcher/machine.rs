//! The dispatcher: its state, inputs and outputs.

use telemetry::event;

use crate::message::{FlowId, FromDispatcher, Stamp, UnitId};
use nf::AffinityGroup;
use packet::FlowKey;

use crate::dispatcher::assign::Assigner;
use crate::dispatcher::config::{Config, DispatcherError, Granularity, ScalingRule};
use crate::dispatcher::counters::Counters;
use crate::dispatcher::evacuation::Evacuation;
use crate::dispatcher::flowlet::Demand;
use crate::dispatcher::flows::{AliasChange, AliasConflict, AliasRefused, FlowGuess, Flows};
use crate::dispatcher::groups::Groups;
use crate::dispatcher::load::Meter;
use crate::dispatcher::lost_flows::LostFlow;
use crate::dispatcher::provisioning::Provisioning;
use crate::dispatcher::relief::Relief;
use crate::dispatcher::rss::Rss;
use crate::dispatcher::units::{UnitState, UnitStatus, Units};

/// Numbers the packets of flows, assigns flowlets to units, and names the owner of each flow.
pub struct Dispatcher {
    pub(crate) config: Config,
    pub(crate) flows: Flows,
    pub(crate) units: Units,
    pub(crate) meter: Meter,
    pub(crate) assigner: Assigner,
    pub(crate) counters: Counters,
    pub(crate) rss: Option<Rss>,
    /// `None` if all flows may be anywhere.
    pub(crate) groups: Option<Groups>,
    /// `None` unless units follow demand.
    pub(crate) follow: Option<Provisioning>,
    /// `None` unless units are relieved when they drop packets.
    pub(crate) relief: Option<Relief>,
    pub(crate) demand: Demand,
    /// Bytes of packets that were dropped instead of being dispatched.
    pub(crate) bytes_refused: u64,
    /// The latest time given: time does not go back.
    now_ns: u64,
    pub(crate) next_timeout_ns: u64,
    pub(crate) evacuation: Evacuation,
    /// Lost flows that nobody has taken yet; `None` if nobody will.
    pub(crate) lost_flows: Option<Vec<LostFlow>>,
    pub(crate) sweep: SweepPosition,
    /// Size above which a flowlet is likely to be cut (S62); `u64::MAX` if none is.
    pub(crate) push_above: u64,
    /// Size below which a flowlet is neither cut nor likely to be; 0 in modes in which anything may
    /// be cut.
    pub(crate) midst_end: u64,
    /// Silence up to which a flowlet goes on, in ns.
    pub(crate) midst_gap_ns: u64,
    /// Load below which a unit keeps its flowlets, in bits per second; `None` assigns every flowlet
    /// again.
    pub(crate) stay_below_bps: Option<f32>,
    /// Load below which a unit's states are not replicated, in bits per second.
    pub(crate) copy_from_bps: f32,
    /// Next turn among the active units when packets are sprayed.
    pub(crate) turn: usize,
    /// No flow may begin.
    pub(crate) refuses_flows: bool,
}

/// Position of the search for silent flows.
#[derive(Default)]
pub(crate) struct SweepPosition {
    /// The next index.
    pub hand: u32,
    /// Begin of the next search, or of this one.
    pub deadline_ns: u64,
}

/// An arriving packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketArrival<'a> {
    /// The flow key. Both directions have the same one (S7).
    pub key: &'a FlowKey,
    /// The key's hash; all by the same [`FlowHasher`](packet::FlowHasher).
    pub hash: u64,
    /// Bytes on the wire.
    pub len: u32,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[allow(clippy::large_enum_variant)] // Made for every packet, and used at once: it is not to be allocated.
pub enum Dispatched {
    /// Send it to a unit.
    To {
        /// The unit.
        unit: UnitId,
        /// The stamp to write on it.
        stamp: Stamp,
    },
    /// Drop it: the flow table is full, or [no flows may begin](Dispatcher::refuse_flows). That is
    /// counted.
    Refused,
    /// Drop it: it begins a flow, and no unit is active. That is counted likewise.
    NoUnit,
    /// It begins a flow of an affinity group that is moving: dispatch it again after
    /// [`DispatcherOutput::GroupSettled`].
    Waits(AffinityGroup),
}

/// A packet that continues a flowlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct NumberedPacket {
    /// Its unit.
    pub unit: UnitId,
    /// Its flow.
    pub flow: FlowId,
    /// Its number in the flow.
    pub seq: u64,
}

/// An action that the caller must execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatcherOutput {
    /// Send a message to a unit, after the packets that were dispatched to it before: those of the
    /// flow that it is about, and of the flow's affinity group; all if it is about no flow.
    Send {
        /// The unit.
        to: UnitId,
        /// The message.
        message: FromDispatcher,
    },
    /// Start a unit, and call [`Dispatcher::started`] when it is ready. The caller decides how long
    /// that takes (S106); until then no other unit starts.
    Start(UnitId),
    /// Stop a unit that has nothing left.
    Stop(UnitId),
    /// Dispatch packets that wait for this affinity group again: its flows are at one unit.
    GroupSettled(AffinityGroup),
    /// The replica of this flow has come that was [asked for](Dispatcher::replicate).
    Replicated(FlowId),
}

impl Dispatcher {
    /// Creates a dispatcher. Units 0 to `units_min` - 1 are active, and must be ready for the first
    /// packet.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, or there is no memory for the tables.
    pub fn new(config: Config) -> Result<Dispatcher, DispatcherError> {
        config.check()?;
        let rss = match config.mode {
            Granularity::Rss { buckets, every_ns } => {
                Some(Rss::new(buckets, every_ns, config.units_min, config.units_max))
            }
            Granularity::Flowlet
            | Granularity::Flow
            | Granularity::SmartFlow { .. }
            | Granularity::Packet => None,
        };
        let mut dispatcher = Dispatcher {
            flows: Flows::new(config.flows_max)?,
            units: Units::new(config.units_max),
            meter: Meter::new(&config)?,
            assigner: Assigner::new(&config),
            counters: Counters::default(),
            rss,
            groups: config.affinity_groups.map(Groups::new),
            follow: Provisioning::new(&config),
            relief: Relief::new(&config),
            demand: Demand::new(&config),
            bytes_refused: 0,
            now_ns: 0,
            next_timeout_ns: 0,
            evacuation: Evacuation::default(),
            lost_flows: None,
            sweep: SweepPosition::default(),
            push_above: config.push_above(),
            midst_end: match config.mode {
                Granularity::Flowlet => config.push_above().min(config.size_max).saturating_add(1),
                Granularity::Flow => u64::MAX,
                _ => 0,
            },
            midst_gap_ns: if config.mode == Granularity::Flow { u64::MAX } else { config.gap_ns },
            stay_below_bps: config.stay_below.map(|share| share * config.capacity_bps as f32),
            copy_from_bps: config.copy_from.filter(|_| config.mode == Granularity::Flowlet).unwrap_or(0.0)
                * config.capacity_bps as f32,
            turn: 0,
            refuses_flows: false,
            config,
        };
        (0..dispatcher.config.units_min).for_each(|unit| dispatcher.meter.activate(UnitId(unit), 0));
        dispatcher.units.activate_first(dispatcher.config.units_min);
        dispatcher.assigner.set_active(dispatcher.units.active());
        Ok(dispatcher)
    }

    /// From now on, no flow may begin; or it may again. Known flows go on.
    pub fn refuse_flows(&mut self, refuses: bool) {
        self.refuses_flows = refuses;
    }

    /// First pass over a batch: prefetches the index line of this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.flows.prefetch_index(hash);
    }

    /// Second pass over a batch: prefetches the likely flow of this hash.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) {
        self.guess(hash);
    }

    /// The same; returns the likely flow for [`stamp_next`](Dispatcher::stamp_next).
    #[inline]
    pub fn guess(&self, hash: u64) -> FlowGuess {
        self.flows.prefetch_flow(hash)
    }

    /// Returns true if many recent packets began flowlets, so that prefetching more is worth it.
    #[inline]
    pub fn expects_flowlets(&self) -> bool {
        self.flows.expects_flowlets()
    }

    /// Prefetches what the next flowlet of the flow with this index needs, if that was not
    /// [expected](Dispatcher::expects_flowlets).
    #[inline]
    pub fn prefetch_flowlet(&self, index: u32) {
        self.flows.prefetch_flowlet(index);
    }

    /// Returns the present owner and the index of a guessed flow.
    #[inline]
    pub fn owner_of_guess(&self, guess: FlowGuess) -> Option<(UnitId, u32)> {
        self.flows.guessed(guess).map(|index| (self.flows.get(index).owner(), index))
    }

    /// Returns the earliest deadline, for [`handle_timeout`](Dispatcher::handle_timeout);
    /// `u64::MAX` if there is none before another packet arrives.
    #[inline]
    pub fn next_timeout_ns(&self) -> u64 {
        self.next_timeout_ns
    }

    /// Adds an alias: packets with this key and hash belong to the flow, too. It replaces the
    /// flow's earlier alias. Nothing happens if the flow has ended.
    ///
    /// # Errors
    ///
    /// If another flow has this key, as its own or as its alias. The flow's alias stays as it was.
    pub fn set_alias(&mut self, flow: FlowId, alias: &FlowKey, hash: u64) -> Result<(), AliasConflict> {
        match self.flows.set_alias(flow, alias, hash) {
            Ok(()) => self.counters.aliases += 1,
            Err(AliasRefused::Late) => self.counters.aliases_late += 1,
            Err(AliasRefused::Taken(taken)) => {
                self.counters.aliases_taken += 1;
                event::alias_conflict(&flow);
                return Err(taken);
            }
        }
        Ok(())
    }

    /// Sets an alias on behalf of a unit that knows better: another flow that has the key loses it.
    pub fn take_alias(
        &mut self,
        flow: FlowId,
        alias: &FlowKey,
        hash: u64,
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        if let Err(taken) = self.set_alias(flow, alias, hash) {
            self.give_up_key(taken.by, alias, outputs);
            let taken_again = self.set_alias(flow, alias, hash).is_err();
            debug_assert!(!taken_again, "nobody else has it now");
        }
    }

    /// Notes the order of the ends of a flow's alias: see [`LostFlow::is_turned`].
    pub fn set_alias_order(&mut self, flow: FlowId, is_turned: Option<bool>) {
        if self.flows.live(flow).is_some() {
            self.flows.set_alias_order(flow.index, is_turned);
        }
    }

    /// Notes changes of aliases from now on, for other dispatchers.
    pub fn note_aliases(&mut self) {
        self.flows.note_aliases();
    }

    /// Takes the noted changes of aliases, in order: those of flows that may be anywhere. Packets
    /// of an affinity group find their way without.
    pub fn take_alias_changes(&mut self) -> Vec<AliasChange> {
        let mut changes = self.flows.take_alias_changes();
        if let Some(groups) = &self.groups {
            changes.retain(|change| match change {
                AliasChange::Set(index, _) => groups.of_flow(*index).is_none(),
                AliasChange::Freed(_) => true,
            });
        }
        changes
    }

    /// Returns the flow with this key or alias.
    pub fn flow(&self, hash: u64, key: &FlowKey) -> Option<FlowId> {
        self.flows.find(hash, key).map(|found| self.flows.id(found.index))
    }

    /// Returns the live flow with this index.
    pub fn flow_in(&self, index: u32) -> Option<FlowId> {
        let id = (index < self.flows.used()).then(|| self.flows.id(index))?;
        self.flows.live(id).map(|_| id)
    }

    /// Takes a key from the flow that has it, if there is one: a flow of another dispatcher has it.
    pub fn give_up(&mut self, hash: u64, key: &FlowKey, outputs: &mut Vec<DispatcherOutput>) {
        if let Some(flow) = self.flow(hash, key) {
            self.give_up_key(flow, key, outputs);
        }
    }

    /// Takes a key from a flow: it loses its alias, or ends if it began with this key.
    fn give_up_key(&mut self, flow: FlowId, key: &FlowKey, outputs: &mut Vec<DispatcherOutput>) {
        match self.flows.live(flow) {
            Some(_) if self.flows.began_with(flow.index, key) => self.end(flow.index, outputs),
            Some(_) => self.flows.drop_alias(flow.index),
            None => {}
        }
    }

    /// Returns the rule by which units start and are drained.
    pub fn scaling(&self) -> ScalingRule {
        self.config.scaling
    }

    /// Returns the owner of the flow with this key or alias.
    pub fn owner(&self, hash: u64, key: &FlowKey) -> Option<UnitId> {
        self.flows.find(hash, key).map(|found| self.flows.get(found.index).owner())
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns all units by number, whatever their state.
    pub fn units(&self) -> impl Iterator<Item = UnitStatus> + '_ {
        self.units.all().map(|unit| UnitStatus {
            unit,
            state: self.units.state(unit),
            load_bps: self.meter.load_bps(unit, self.now_ns),
            flows: self.units.flows(unit),
        })
    }

    /// Returns the bytes on the wire of all packets that were sent to a unit.
    #[inline]
    pub fn bytes_of(&self, unit: UnitId) -> u64 {
        self.meter.bytes(unit)
    }

    /// Returns the number of live flows.
    pub fn flows(&self) -> u32 {
        self.flows.count()
    }

    /// Returns the latest time given.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the given time, or an earlier one that is later.
    #[inline]
    pub(crate) fn at(&mut self, now_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(now_ns);
        self.now_ns
    }

    /// Makes a unit active.
    pub(crate) fn activate(&mut self, unit: UnitId, now_ns: u64) {
        self.meter.activate(unit, now_ns);
        self.units.set_state(unit, UnitState::Active);
        self.pass_suspects_over();
        self.assigner.set_active(self.units.active());
        // Buckets of lost units that nobody could take.
        if let (Some(rss), [_]) = (&mut self.rss, self.units.active()) {
            self.counters.buckets_moved += rss.hand_all(unit);
        }
        if let Some(groups) = &mut self.groups {
            groups.levels = true;
        }
    }
}
