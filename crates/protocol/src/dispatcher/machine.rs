//! What a dispatcher is, is asked, and answers.

use crate::message::{FlowId, FromDispatcher, Stamp, UnitId};
use packet::FlowKey;

use crate::dispatcher::assign::Assigner;
use crate::dispatcher::config::{Config, DispatcherError, Granularity};
use crate::dispatcher::counters::Counters;
use crate::dispatcher::flowlet::Demand;
use crate::dispatcher::flows::{AliasConflict, AliasRefused, FlowGuess, Flows};
use crate::dispatcher::load::Meter;
use crate::dispatcher::provisioning::Provisioning;
use crate::dispatcher::rss::Rss;
use crate::dispatcher::sweep::Sweep;
use crate::dispatcher::units::{UnitState, UnitStatus, Units};

/// Numbers the packets of flows, gives flowlets to units, and says who owns what.
pub struct Dispatcher {
    pub(crate) config: Config,
    pub(crate) flows: Flows,
    pub(crate) units: Units,
    pub(crate) meter: Meter,
    pub(crate) assigner: Assigner,
    pub(crate) counters: Counters,
    pub(crate) rss: Option<Rss>,
    /// None: units are started when flowlets find no room.
    pub(crate) follow: Option<Provisioning>,
    pub(crate) demand: Demand,
    /// The latest time that was given: time does not go back.
    now_ns: u64,
    pub(crate) next_timeout_ns: u64,
    /// Where the search for flows of units that drain goes on.
    pub(crate) hand: u32,
    pub(crate) sweep: Sweep,
    /// A flowlet with more bytes than this is likely to be cut by its size (S62); the highest
    /// number: none is.
    pub(crate) push_above: u64,
    /// A flowlet with fewer bytes than this is neither cut by its size nor likely to be; 0 in modes
    /// without flowlets.
    pub(crate) midst_end: u64,
    /// Flowlets of a unit that is loaded to less than this stay with it, in bits per second; none:
    /// they are assigned anew.
    pub(crate) stay_below_bps: Option<f32>,
    /// States of flowlets of a unit that is loaded to less than this are not copied ahead, in bits
    /// per second.
    pub(crate) copy_from_bps: f32,
    /// Whose turn it is, of the active units, when packets are sprayed.
    pub(crate) turn: usize,
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its key. Both directions have the same, and to the dispatcher they are alike (S7).
    pub key: &'a FlowKey,
    /// The key's hash; of all keys by the same [`FlowHasher`](packet::FlowHasher).
    pub hash: u64,
    /// Its bytes on the wire.
    pub len: u32,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[allow(clippy::large_enum_variant)] // Made for every packet, and used at once: it is not to be allocated.
pub enum Dispatched {
    /// It goes to a unit.
    To {
        /// Which one.
        unit: UnitId,
        /// What is written on it.
        stamp: Stamp,
    },
    /// It is dropped: there is no room for another flow. That is counted.
    Refused,
}

/// A packet in the midst of a flowlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct NumberedPacket {
    /// The unit that it goes to.
    pub unit: UnitId,
    /// Its flow.
    pub flow: FlowId,
    /// Its number in it.
    pub seq: u64,
}

/// What the dispatcher wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatcherOutput {
    /// A message is to go to a unit, behind all packets that were routed to it before.
    Send {
        /// The unit.
        to: UnitId,
        /// The message.
        message: FromDispatcher,
    },
    /// A unit is to be started; [`Dispatcher::started`] is called when it is ready. How long that takes
    /// is the caller's (S106); until then no other one is started.
    Start(UnitId),
    /// A unit that has nothing left is to be stopped.
    Stop(UnitId),
}

impl Dispatcher {
    /// A dispatcher whose units 0 to `units_min` - 1 are active: that they run when the first packet is
    /// routed is the caller's part.
    ///
    /// # Errors
    /// If the configuration makes no sense, or there is no memory for its tables.
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
            follow: Provisioning::new(&config),
            demand: Demand::new(&config),
            now_ns: 0,
            next_timeout_ns: 0,
            hand: 0,
            sweep: Sweep::default(),
            push_above: config.push_above(),
            midst_end: match config.mode {
                Granularity::Flowlet => config.push_above().min(config.size_max).saturating_add(1),
                _ => 0,
            },
            stay_below_bps: config.stay_below.map(|share| share * config.capacity_bps as f32),
            copy_from_bps: config.copy_from.filter(|_| config.mode == Granularity::Flowlet).unwrap_or(0.0)
                * config.capacity_bps as f32,
            turn: 0,
            config,
        };
        (0..dispatcher.config.units_min).for_each(|unit| dispatcher.meter.activate(UnitId(unit), 0));
        dispatcher.units.activate_first(dispatcher.config.units_min);
        dispatcher.assigner.set_active(dispatcher.units.active());
        Ok(dispatcher)
    }

    /// First pass over a batch: what the look-up of this hash begins with is on its way to the
    /// cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.flows.prefetch_index(hash);
    }

    /// Second pass over a batch: the flow that this hash probably stands for is on its way to the
    /// cache.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) {
        self.guess(hash);
    }

    /// The same; and which flow it probably is, for [`stamp_next`](Dispatcher::stamp_next).
    #[inline]
    pub fn guess(&self, hash: u64) -> FlowGuess {
        self.flows.prefetch_flow(hash)
    }

    /// Whether many packets of late began flowlets, so that more is worth being brought to the
    /// cache ahead.
    #[inline]
    pub fn expects_flowlets(&self) -> bool {
        self.flows.expects_flowlets()
    }

    /// What the next flowlet of the flow in this index begins with is on its way to the cache, if it
    /// was not [expected](Dispatcher::expects_flowlets).
    #[inline]
    pub fn prefetch_flowlet(&self, index: u32) {
        self.flows.prefetch_flowlet(index);
    }

    /// The index of the flow that was guessed, and which unit it is at now.
    #[inline]
    pub fn owner_of_guess(&self, guess: FlowGuess) -> Option<(UnitId, u32)> {
        self.flows.guessed(guess).map(|index| (self.flows.get(index).owner(), index))
    }

    /// When [`handle_timeout`](Dispatcher::handle_timeout) has something to do next; `u64::MAX`: not before another
    /// packet comes.
    #[inline]
    pub fn next_timeout_ns(&self) -> u64 {
        self.next_timeout_ns
    }

    /// What was rewritten reaches the flow, too, from now on: packets with this key, which has this
    /// hash. It takes the place of an alias that was set before. If the flow has ended, nothing is
    /// done.
    ///
    /// # Errors
    /// If another flow has this key, as its own or as its alias. The flow's alias stays what it
    /// was.
    pub fn set_alias(&mut self, flow: FlowId, alias: &FlowKey, hash: u64) -> Result<(), AliasConflict> {
        match self.flows.set_alias(flow, alias, hash) {
            Ok(()) => self.counters.aliases += 1,
            Err(AliasRefused::Late) => self.counters.aliases_late += 1,
            Err(AliasRefused::Taken(taken)) => {
                self.counters.aliases_taken += 1;
                return Err(taken);
            }
        }
        Ok(())
    }

    /// The same for who knows better whose the key is: another flow that has it gives it up.
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

    /// The flow with this key, or with this alias.
    pub fn flow(&self, hash: u64, key: &FlowKey) -> Option<FlowId> {
        self.flows.find(hash, key).map(|found| self.flows.id(found.index))
    }

    /// The flow that has this index.
    pub fn flow_in(&self, index: u32) -> Option<FlowId> {
        let id = (index < self.flows.used()).then(|| self.flows.id(index))?;
        self.flows.live(id).map(|_| id)
    }

    /// The flow has this key no more: it loses its alias, or, if the key is the one that it began
    /// with, it ends.
    fn give_up_key(&mut self, flow: FlowId, key: &FlowKey, outputs: &mut Vec<DispatcherOutput>) {
        match self.flows.live(flow) {
            Some(_) if self.flows.began_with(flow.index, key) => self.end(flow.index, outputs),
            Some(_) => self.flows.drop_alias(flow.index),
            None => {}
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All units, by number, whatever they are doing.
    pub fn units(&self) -> impl Iterator<Item = UnitStatus> + '_ {
        self.units.all().map(|unit| UnitStatus {
            unit,
            state: self.units.state(unit),
            load_bps: self.meter.load_bps(unit, self.now_ns),
            flows: self.units.flows(unit),
        })
    }

    /// The bytes on the wire of all packets that were given to a unit so far.
    #[inline]
    pub fn bytes_of(&self, unit: UnitId) -> u64 {
        self.meter.bytes(unit)
    }

    /// How many flows there are.
    pub fn flows(&self) -> u32 {
        self.flows.count()
    }

    /// The latest time that was given.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Now, but never before an earlier now.
    #[inline]
    pub(crate) fn at(&mut self, now_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(now_ns);
        self.now_ns
    }

    /// The unit gets packets from now on.
    pub(crate) fn activate(&mut self, unit: UnitId, now_ns: u64) {
        self.meter.activate(unit, now_ns);
        self.units.set_state(unit, UnitState::Active);
        self.assigner.set_active(self.units.active());
    }
}
