//! Both real ends: a dispatcher and its units over a lossy link.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use nf::AffinityGroup;
use packet::{Addr, Endpoint, FlowHasher, FlowKey, Scope};
use protocol::dispatcher::{
    self, DISPLACED_AFTER_NS, Dispatched, Dispatcher, DispatcherOutput, PacketArrival, UnitState,
};
use protocol::message::{FlowId, FromDispatcher, Handover, UnitId, UnitMessage};
use protocol::unit;

use super::link::{LinkFaults, LossyLink};
use super::world::{Flow, Item, World};

/// A dispatcher, its units, and the link.
pub struct Pair {
    pub dispatcher: Dispatcher,
    pub world: World,
    pub link: LossyLink,
    /// All flows that had a packet, as last dispatched.
    pub flows: BTreeMap<FlowId, Flow>,
    hasher: FlowHasher,
    outputs: Vec<DispatcherOutput>,
    /// The dispatcher ends silent flows.
    forgets: bool,
    /// Flows that an operator has migrated.
    pub migrated: u64,
    /// Number and packets of each flow in an affinity group.
    pub numbers: BTreeMap<FlowId, (u32, u64)>,
    /// Packets that wait for their affinity groups, and all that have waited.
    pub waiting: Vec<(AffinityGroup, u32, u32)>,
    pub waited: u64,
    again: Vec<(AffinityGroup, u32, u32)>,
}

/// Number of looks without an effect after which the dispatcher is at rest.
const TICKS_AT_REST: u32 = 200;

impl Pair {
    /// Creates a dispatcher and all units that it may start.
    pub fn new(
        config: dispatcher::Config,
        unit: impl Fn(UnitId) -> unit::Config,
        faults: LinkFaults,
        seed: &[u8; 32],
    ) -> Pair {
        let mut world = World::new(config.units_max, unit);
        let forgets = config.forget_after_ns.is_some();
        let mut dispatcher = Dispatcher::new(config).unwrap();
        dispatcher.set_trace(std::mem::take(&mut world.dispatcher));
        Pair {
            world,
            forgets,
            dispatcher,
            link: LossyLink::new(faults, seed),
            flows: BTreeMap::new(),
            hasher: FlowHasher::new(1),
            outputs: Vec::new(),
            migrated: 0,
            numbers: BTreeMap::new(),
            waiting: Vec::new(),
            waited: 0,
            again: Vec::new(),
        }
    }

    /// A packet arrives at the dispatcher.
    pub fn packet(&mut self, number: u32, len: u32) {
        self.packet_of(number, len, None);
    }

    /// The same for a packet of an affinity group.
    pub fn packet_of(&mut self, number: u32, len: u32, group: Option<u16>) {
        self.dispatch_again();
        let key = key(number);
        let arrival = PacketArrival { key: &key, hash: self.hasher.hash(&key), len };
        let (now_ns, of) = (self.world.now_ns, group.map(AffinityGroup));
        let dispatched = self.dispatcher.handle_packet_of(now_ns, arrival, of, &mut self.outputs);
        if let Dispatched::Waits(group) = dispatched {
            self.waiting.push((group, number, len));
            self.waited += 1;
        }
        let Dispatched::To { unit, stamp } = dispatched else { return self.execute() };
        if let Some(group) = group {
            self.numbers.entry(stamp.flow).or_insert((number, 0)).1 += 1;
            self.world
                .units
                .iter_mut()
                .for_each(|unit| _ = unit.engine_mut().groups.insert(stamp.flow, group));
        }
        self.execute();
        let flow = self.flows.entry(stamp.flow).or_insert_with(|| Flow::new(stamp.flow, unit));
        (flow.seq, flow.epoch, flow.owner, flow.handover) = (stamp.seq, stamp.epoch, unit, stamp.handover);
        self.world.post(None, unit, Item::Packet(stamp, stamp.seq));
    }

    /// One of the running units crashes.
    pub fn crash(&mut self) {
        let runs = |state| matches!(state, UnitState::Active | UnitState::Draining);
        let running: Vec<UnitId> =
            self.dispatcher.units().filter(|unit| runs(unit.state)).map(|unit| unit.unit).collect();
        let unit = running[self.link.below(running.len() as u64) as usize];
        self.crash_unit(unit);
    }

    /// This unit crashes.
    pub fn crash_unit(&mut self, unit: UnitId) {
        self.world.lose(unit);
        self.dispatcher.membership().lose(self.world.now_ns, unit, &mut self.outputs);
        self.execute();
    }

    /// An operator migrates a flow, drains a unit, or resumes one. Refusals change nothing.
    pub fn operate(&mut self) {
        let units = self.world.units.len() as u64;
        let unit = UnitId(self.link.below(units) as u16);
        let now_ns = self.world.now_ns;
        match self.link.below(8) {
            0 => drop(self.dispatcher.membership().drain(now_ns, unit, &mut self.outputs)),
            1 => drop(self.dispatcher.membership().resume(now_ns, unit)),
            way => {
                let nth = self.link.below(self.flows.len().max(1) as u64) as usize;
                let Some(&flow) = self.flows.keys().nth(nth) else { return };
                let to = (way > 2).then_some(unit);
                if way > 5 {
                    _ = self.dispatcher.migrations().replicate(
                        now_ns,
                        flow,
                        to,
                        &mut self.outputs,
                        &mut Vec::new(),
                    );
                } else if let Ok(moved) =
                    self.dispatcher.migrations().migrate(now_ns, flow, to, &mut self.outputs)
                {
                    self.migrated += 1;
                    assert_ne!(moved.from, moved.to);
                }
            }
        }
        self.execute();
    }

    /// An operator migrates a flow.
    pub fn migrate(&mut self, now_ns: u64, flow: FlowId, to: UnitId) {
        self.dispatcher.migrations().migrate(now_ns, flow, Some(to), &mut self.outputs).unwrap();
        self.execute();
    }

    /// An operator asks for a replica of a flow.
    pub fn replicate(&mut self, now_ns: u64, flow: FlowId, to: UnitId) {
        let asked = &mut Vec::new();
        self.dispatcher.migrations().replicate(now_ns, flow, Some(to), &mut self.outputs, asked).unwrap();
        self.execute();
    }

    /// A parcel arrives, or is lost.
    pub fn arrive(&mut self) {
        self.link.arrive(&mut self.world);
        self.deliver_reports(true);
    }

    /// The time advances at both ends.
    pub fn advance(&mut self, ns: u64) {
        self.advance_to(self.world.now_ns + ns);
        self.deliver_reports(true);
    }

    /// Delivers everything, without further losses, and advances the time until nothing is left to
    /// do. The dispatcher looks at its units as long as one drains: it is at rest if that has no
    /// effect [`TICKS_AT_REST`] times.
    pub fn settle(&mut self) {
        let mut ticks = 0;
        for steps in 0.. {
            let (units_ns, dispatcher_ns) = (self.world.next_timeout_ns(), self.dispatcher.next_timeout_ns());
            assert!(steps < 50_000, "it does not come to rest");
            let next_ns = if ticks < TICKS_AT_REST { units_ns.min(dispatcher_ns) } else { units_ns };
            ticks += 1;
            if !self.world.wire.is_empty() {
                self.world.deliver(0, false);
                ticks = 0;
            } else if next_ns != u64::MAX {
                self.advance_to(next_ns.max(self.world.now_ns));
            } else if self.forgets && self.dispatcher.flows().count() > 0 {
                self.advance_to(self.world.now_ns + DISPLACED_AFTER_NS);
            } else {
                return;
            }
            self.deliver_reports(false);
            self.world.check();
        }
    }

    fn advance_to(&mut self, now_ns: u64) {
        self.world.handle_timeout(now_ns);
        self.dispatcher.handle_timeout(now_ns, &mut self.outputs);
        self.execute();
        self.dispatch_again();
    }

    /// Packets that units gave up as lost.
    pub fn given_up(&self) -> u64 {
        self.world.units.iter().map(|unit| unit.counters().given_up).sum()
    }

    /// Dispatches packets of affinity groups that have settled.
    fn dispatch_again(&mut self) {
        for (group, number, len) in std::mem::take(&mut self.again) {
            self.packet_of(number, len, Some(group.0));
        }
    }

    /// Delivers what units reported to the dispatcher.
    pub fn deliver_reports(&mut self, may_be_lost: bool) {
        for (from, message) in std::mem::take(&mut self.world.to_dispatcher) {
            let mute = self.link.faults.mute;
            if !may_be_lost || !self.link.happens(mute) {
                self.dispatcher.handle_message(self.world.now_ns, from, message, &mut self.outputs);
                self.execute();
            }
        }
        self.dispatch_again();
    }

    fn execute(&mut self) {
        for output in std::mem::take(&mut self.outputs) {
            match output {
                DispatcherOutput::Start(unit) => {
                    self.dispatcher.membership().started(self.world.now_ns, unit)
                }
                DispatcherOutput::Stop(_) | DispatcherOutput::Replicated(_) => {}
                DispatcherOutput::GroupSettled(group) => {
                    let freed: Vec<_> = self.waiting.extract_if(.., |(of, ..)| *of == group).collect();
                    self.again.extend(freed);
                }
                DispatcherOutput::Send { to, message } => {
                    self.dispatcher.note_sent(to, &message);
                    if let FromDispatcher::Release { flow, epoch, owner, last, .. } = message
                        && let Some(flow) = self.flows.get_mut(&flow)
                    {
                        (flow.epoch, flow.owner) = (epoch, owner);
                        flow.handover = Handover::From { previous: to, last };
                    }
                    if let FromDispatcher::Recover { flow, epoch, last, .. } = message
                        && let Some(flow) = self.flows.get_mut(&flow)
                        && epoch > flow.epoch
                    {
                        flow.handover = Handover::From { previous: flow.owner, last };
                        (flow.epoch, flow.owner) = (epoch, to);
                    }
                    self.world.post(None, to, Item::Message(UnitMessage::FromDispatcher(message)));
                }
            }
        }
    }
}

/// Returns the key of a flow by number.
fn key(flow: u32) -> FlowKey {
    let client = Endpoint::new(Addr::from_v4_bytes(flow.to_be_bytes()), 1024);
    let server = Endpoint::new(Addr::from_v4_bytes([192, 0, 2, 1]), 443);
    FlowKey::new(client, server, 6, 4, Scope::default(), 0).0
}
