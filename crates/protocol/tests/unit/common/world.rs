//! A dispatcher, units and the wire between them, with their invariants.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use packet::FlowKey;
use protocol::message::{
    Epoch, FlowId, FromDispatcher, FromUnit, Handover, ReplicaTargets, Stamp, UnitId, UnitMessage, Watermark,
};
use protocol::trace::failure::simulated_timeline;
use protocol::trace::{
    EventSink, EventTimeline, FlowPlace, Machine, MessagePeer, MessageSummary, TimelineEvent, TraceDetail,
};
use protocol::unit::{Config, DropCause, Outbox, Unit};

use super::Ledger;

/// The host of all, in timelines.
const HOST: &str = "test";

/// An item on the wire. A flow's packets are their seqs.
#[derive(Clone, Debug)]
pub enum Item {
    Packet(Stamp, u64),
    Message(UnitMessage),
}

/// An item from the dispatcher (`None`) or a unit.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub from: Option<UnitId>,
    pub to: UnitId,
    pub item: Item,
}

/// All units, and the wire.
#[derive(Clone, Debug)]
pub struct World {
    pub now_ns: u64,
    pub units: Vec<Unit<Ledger>>,
    /// Units that have crashed.
    pub lost: BTreeSet<UnitId>,
    /// The last packets before the flows' states were lost and recovered: their effects, and those
    /// of earlier ones, may be lost.
    at_risk: BTreeMap<FlowId, u64>,
    /// In the order of sending.
    pub wire: Vec<Parcel>,
    pub to_dispatcher: Vec<(UnitId, FromUnit)>,
    pub dropped: Vec<(DropCause, FlowId, u64)>,
    pub timeline: Arc<EventTimeline>,
    is_noted: bool,
    /// Notes what is posted for the dispatcher, unless a real one does.
    pub dispatcher: EventSink,
}

/// The dispatcher's knowledge of a flow.
#[derive(Clone, Debug)]
pub struct Flow {
    pub id: FlowId,
    pub seq: u64,
    pub epoch: Epoch,
    pub owner: UnitId,
    pub handover: Handover,
}

impl Flow {
    pub fn new(id: FlowId, owner: UnitId) -> Flow {
        Flow { id, seq: 0, epoch: 1, owner, handover: Handover::None }
    }

    /// Notes the beginning of a flow that has had no packet and no other owner.
    fn begin(&self, world: &World) {
        if self.seq == 0 && self.epoch == 1 {
            let began = TimelineEvent::FlowBegan { unit: self.owner, key: FlowKey::default() };
            world.dispatcher.note(world.now_ns, FlowPlace::of(self.id), None, began);
        }
    }

    /// Names another owner.
    pub fn release_to(&mut self, owner: UnitId, world: &mut World) {
        if owner == self.owner {
            return;
        }
        self.begin(world);
        self.epoch += 1;
        let place = FlowPlace::new(self.id, self.epoch, self.seq);
        let changed = TimelineEvent::OwnerChanged { from: self.owner, to: owner };
        world.dispatcher.note(world.now_ns, place, None, changed);
        let (flow, epoch, last, start) = (self.id, self.epoch, self.seq, self.handover);
        let release = FromDispatcher::Release { flow, epoch, owner, last, start };
        world.post(None, self.owner, dispatched(release));
        self.handover = Handover::From { previous: self.owner, last: self.seq };
        self.owner = owner;
    }

    /// Ends the flow: notifies its owner, the previous one, and these units, which may have
    /// replicas.
    pub fn end(&self, copies: ReplicaTargets, world: &mut World) {
        let ended = TimelineEvent::FlowEnded { owner: self.owner };
        world.dispatcher.note(world.now_ns, FlowPlace::of(self.id), None, ended);
        let previous = match self.handover {
            Handover::From { previous, .. } => Some(previous),
            Handover::None => None,
        };
        for to in (0..world.units.len() as u16).map(UnitId) {
            if to == self.owner || previous == Some(to) || copies.contains(to) {
                world.post(None, to, dispatched(FromDispatcher::End { flow: self.id }));
            }
        }
    }

    /// Requests a replica at another unit from the owner.
    pub fn copy_to(&self, to: UnitId, world: &mut World) {
        let copy = FromDispatcher::Replicate { flow: self.id, epoch: self.epoch, to };
        world.post(None, self.owner, dispatched(copy));
    }

    /// Makes the unit the owner without a packet.
    pub fn adopt(&mut self, world: &mut World) {
        if let Handover::From { previous, last } = self.handover {
            let adopt = FromDispatcher::Adopt { flow: self.id, epoch: self.epoch, previous, last };
            world.post(None, self.owner, dispatched(adopt));
        }
    }

    /// Sends a packet.
    pub fn packet(&mut self, targets: ReplicaTargets, world: &mut World) {
        self.begin(world);
        self.seq += 1;
        let (flow, seq, epoch, handover) = (self.id, self.seq, self.epoch, self.handover);
        let stamp = Stamp { flow, seq, epoch, handover, targets: Some(targets) };
        world.post(None, self.owner, Item::Packet(stamp, seq));
    }
}

impl World {
    pub fn new(units: u16, config: impl Fn(UnitId) -> Config) -> World {
        let timeline = simulated_timeline();
        let unit = |id| {
            let mut unit = Unit::new(config(id), Ledger::default());
            unit.set_trace(timeline.trace(HOST, Machine::Unit(id), TraceDetail::Packets));
            unit
        };
        World {
            now_ns: 1,
            units: (0..units).map(UnitId).map(unit).collect(),
            dispatcher: timeline.trace(HOST, Machine::Dispatcher, TraceDetail::Packets),
            timeline,
            is_noted: true,
            lost: BTreeSet::new(),
            at_risk: BTreeMap::new(),
            wire: Vec::new(),
            to_dispatcher: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Notes nothing more: many worlds share the timeline.
    pub fn without_timeline(mut self) -> World {
        (self.dispatcher, self.is_noted) = (EventSink::default(), false);
        self.units.iter_mut().for_each(|unit| unit.set_trace(EventSink::default()));
        self
    }

    /// A unit crashes: of its flows, only the record of what it processed remains.
    pub fn lose(&mut self, unit: UnitId) {
        self.lost.insert(unit);
        self.note(Machine::Unit(unit), FlowPlace::NONE, TimelineEvent::Fault { kind: "crash" });
        let unit = &mut self.units[unit.index()];
        unit.engine_mut().states.clear();
        unit.engine_mut().items.clear();
        unit.reset();
    }

    fn note(&self, role: Machine, place: FlowPlace, event: TimelineEvent) {
        if self.is_noted {
            self.timeline.trace(HOST, role, TraceDetail::Packets).note(self.now_ns, place, None, event);
        }
    }

    /// Notes that a parcel is lost.
    pub fn note_lost(&self, parcel: &Parcel) {
        let to = MessagePeer::Unit(parcel.to);
        let (place, event) = match &parcel.item {
            Item::Packet(stamp, _) => {
                (FlowPlace::new(stamp.flow, stamp.epoch, stamp.seq), TimelineEvent::PacketLost { to })
            }
            Item::Message(message) => {
                let message = MessageSummary::from(message);
                (message.place(), TimelineEvent::Lost { message, to })
            }
        };
        self.note(parcel.from.map_or(Machine::Dispatcher, Machine::Unit), place, event);
    }

    pub fn post(&mut self, from: Option<UnitId>, to: UnitId, item: Item) {
        if let Item::Message(UnitMessage::FromDispatcher(FromDispatcher::Recover { flow, last, .. })) = &item
        {
            self.at_risk.insert(*flow, *last);
        }
        if from.is_none() {
            let (place, event) = match &item {
                Item::Packet(stamp, _) => (
                    FlowPlace::new(stamp.flow, stamp.epoch, stamp.seq),
                    TimelineEvent::Dispatched { unit: to },
                ),
                Item::Message(message) => {
                    let message = MessageSummary::from(message);
                    (message.place(), TimelineEvent::Sent { message, to: MessagePeer::Unit(to) })
                }
            };
            self.dispatcher.note(self.now_ns, place, None, event);
        }
        self.wire.push(Parcel { from, to, item });
    }

    /// Returns true if nothing was sent before on the same path.
    pub fn is_first(&self, index: usize) -> bool {
        self.first_of_path(index) == index
    }

    /// Returns what was sent first on the path of this item.
    pub fn first_of_path(&self, index: usize) -> usize {
        let path = |parcel: &Parcel| (parcel.from, parcel.to);
        let of = path(&self.wire[index]);
        self.wire.iter().position(|other| path(other) == of).unwrap_or(index)
    }

    /// Delivers an item, which stays on the wire if it comes twice.
    pub fn deliver(&mut self, index: usize, comes_twice: bool) {
        let parcel = if comes_twice { self.wire[index].clone() } else { self.wire.remove(index) };
        if self.is_noted {
            self.timeline.set_in_flight(self.wire.len());
        }
        if self.lost.contains(&parcel.to) {
            return self.answer_for(parcel.to, parcel.item);
        }
        let mut out = Outbox::default();
        let unit = &mut self.units[parcel.to.index()];
        match parcel.item {
            Item::Packet(stamp, packet) => unit.handle_packet(self.now_ns, stamp, packet, &mut out),
            Item::Message(message) => unit.handle_message(self.now_ns, message, &mut out),
        }
        self.collect(parcel.to, out);
    }

    /// The transport handles what arrives for a unit that has crashed.
    fn answer_for(&mut self, unit: UnitId, item: Item) {
        if let Item::Message(UnitMessage::FromPeer(from, message)) = item
            && let Some((to, answer)) = message.answer_for_lost_unit(from)
        {
            self.post(Some(unit), to, Item::Message(UnitMessage::FromPeer(unit, answer)));
        }
    }

    /// Returns the earliest deadline of all units.
    pub fn next_timeout_ns(&self) -> u64 {
        self.units.iter().map(Unit::next_timeout_ns).min().unwrap_or(u64::MAX)
    }

    /// Advances the time.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for at in 0..self.units.len() {
            let mut out = Outbox::default();
            self.units[at].handle_timeout(now_ns, &mut out);
            self.collect(UnitId(at as u16), out);
        }
    }

    /// Delivers everything and advances the time until nothing is left.
    pub fn settle(&mut self) {
        for steps in 0.. {
            assert!(steps < 10_000, "it does not come to rest");
            if !self.wire.is_empty() {
                self.deliver(0, false);
            } else if self.next_timeout_ns() != u64::MAX {
                self.handle_timeout(self.next_timeout_ns());
            } else {
                return;
            }
            self.check();
        }
    }

    fn collect(&mut self, from: UnitId, out: Outbox<u64>) {
        self.to_dispatcher.extend(out.to_dispatcher.into_iter().map(|message| (from, message)));
        for (to, message) in out.to_units {
            self.post(Some(from), to, Item::Message(UnitMessage::FromPeer(from, message)));
        }
        for message in out.to_all {
            for to in (0..self.units.len() as u16).map(UnitId).filter(|&to| to != from) {
                self.post(Some(from), to, Item::Message(UnitMessage::FromPeer(from, message.clone())));
            }
        }
        for (to, stamp, packet) in out.forwarded {
            self.post(Some(from), to, Item::Packet(stamp, packet));
        }
        self.dropped
            .extend(out.dropped.into_iter().map(|(reason, stamp, packet)| (reason, stamp.flow, packet)));
    }

    /// Returns the packets of a flow that were processed anywhere; none twice (design.md 3.10).
    pub fn processed(&self, flow: FlowId) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for unit in &self.units {
            for &(_, seq) in unit.engine().processed.iter().filter(|(of, _)| *of == flow) {
                assert!(all.insert(seq), "{seq} of {flow} was processed twice");
            }
        }
        all
    }

    /// Returns those of the processed packets that a flow's state must have: not those that it
    /// lacks because an earlier state was lost.
    pub fn lasting<'a>(
        &self,
        flow: FlowId,
        state: &[u64],
        processed: impl Iterator<Item = &'a u64>,
    ) -> impl Iterator<Item = &'a u64> {
        let at_risk = self.at_risk.get(&flow).copied().unwrap_or(0);
        let here: BTreeSet<u64> = state.iter().copied().collect();
        processed.filter(move |seq| **seq > at_risk || here.contains(seq))
    }

    /// Checks what must hold at any time.
    pub fn check(&self) {
        let known: BTreeSet<FlowId> =
            self.units.iter().flat_map(|unit| unit.engine().states.keys().copied()).collect();
        for flow in known {
            let processed = self.processed(flow);
            let owners: Vec<(Epoch, Watermark, &[u64])> = self
                .units
                .iter()
                .filter_map(|unit| {
                    unit.owned(flow).map(|(epoch, mark)| (epoch, mark, unit.engine().state(flow)))
                })
                .collect();
            let epochs: BTreeSet<Epoch> = owners.iter().map(|owner| owner.0).collect();
            assert_eq!(epochs.len(), owners.len(), "two writers of {flow}");
            for (_, mark, state) in owners {
                // The oracle: everything processed anywhere up to here, in order, and nothing else;
                // except what was lost with a unit.
                let lasting = self.lasting(flow, state, processed.range(..=mark.contiguous));
                assert!(state.iter().eq(lasting), "{flow}: {state:?} of {processed:?}");
            }
        }
    }

    /// Checks a flow once the wire is empty and all deadlines have passed: its last owner has the
    /// state, no other unit has any of it, and every packet was processed or given up. Returns the
    /// number given up.
    pub fn check_end(&self, flow: &Flow) -> u64 {
        let (epoch, mark) = self.units[flow.owner.index()].owned(flow.id).unwrap_or_default();
        assert_eq!(epoch, flow.epoch, "the last owner has the state");
        for unit in &self.units {
            assert_eq!(unit.pending(), 0);
        }
        let others = self.units.iter().filter(|unit| !unit.engine().state(flow.id).is_empty()).count();
        assert!(others <= 1, "a state was left behind");
        for &(reason, _, seq) in self.dropped.iter().filter(|(_, of, _)| *of == flow.id) {
            assert!(reason == DropCause::PendingFull || mark.covers(seq));
        }
        mark.contiguous - self.processed(flow.id).len() as u64
    }

    /// Checks an ended flow: it ended once, with the state of all processed packets.
    pub fn check_ended(&self, flow: FlowId) {
        let ends: Vec<&Vec<u64>> = self
            .units
            .iter()
            .flat_map(|unit| unit.engine().ended.iter().filter(|(of, _)| *of == flow).map(|(_, state)| state))
            .collect();
        let processed = self.processed(flow);
        assert!(ends.len() <= 1, "{flow} ended more than once");
        let state = ends.first().map_or(&[][..], |state| state);
        assert!(state.iter().eq(&processed), "{flow} ended with {state:?} of {processed:?}");
        for unit in &self.units {
            assert!(unit.engine().state(flow).is_empty(), "a state was left behind");
        }
    }

    /// Returns a hash that is equal for worlds with the same future.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now_ns, &self.units).hash(&mut hasher);
        // Only parcels on the same path have an order; those between two units have none.
        let mut on_the_way: Vec<(Option<UnitId>, UnitId, u64)> =
            self.wire.iter().map(|parcel| (parcel.from, parcel.to, print(&parcel.item))).collect();
        on_the_way.sort_by_key(|&(from, to, print)| (from, to, from.map(|_| print)));
        on_the_way.hash(&mut hasher);
        hasher.finish()
    }
}

fn dispatched(message: FromDispatcher) -> Item {
    Item::Message(UnitMessage::FromDispatcher(message))
}

fn print(item: &Item) -> u64 {
    let mut hasher = DefaultHasher::new();
    match item {
        Item::Packet(stamp, _) => (stamp.flow, stamp.seq, stamp.epoch).hash(&mut hasher),
        Item::Message(message) => {
            let mut bytes = Vec::new();
            match message {
                UnitMessage::FromDispatcher(message) => message.write(&mut bytes),
                UnitMessage::FromPeer(_, message) => message.write(&mut bytes),
            }
            (matches!(message, UnitMessage::FromPeer(..)), bytes).hash(&mut hasher);
        }
    }
    hasher.finish()
}
