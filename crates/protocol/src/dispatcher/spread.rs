//! Flows that ask for more than a unit has: their packets go to several units in turn, each with
//! the headers of those before it that its unit has not got (state-compute replication, NSDI '25).

mod session;

use crate::message::{Epoch, FlowId, Handover, Header, History, Message, Stamp, UnitId};

use self::session::{Session, Window};
use crate::dispatcher::config::{Config, Mode, Spread};
use crate::dispatcher::flow::TargetList;
use crate::dispatcher::flows::Found;
use crate::dispatcher::load::rate_bps;
use crate::dispatcher::machine::{Order, Routed, Router};
use crate::dispatcher::units::UnitState;

/// Flows that are spread at once, at most, with those whose helpers have not done yet.
pub const SPREADS_MAX: usize = 64;

/// A helper that is to part, and does not say that it has, is told again after this time, in ns.
const AGAIN_NS: u64 = 100_000_000;

/// What a flow's bytes are while it is spread: more than any flowlet has, so that each packet is
/// looked at.
const SPREAD_BYTES: u64 = u64::MAX;

/// The flows that are spread.
pub(crate) struct Spreads {
    config: Spread,
    capacity_bps: f32,
    sessions: Vec<Session>,
    /// What replaying headers takes, all in all, as bytes of packets.
    replayed_bytes: u64,
}

impl Spreads {
    /// None if no flow is.
    pub fn new(config: &Config) -> Option<Spreads> {
        let spread = config.spread.filter(|_| config.mode == Mode::Flowlet)?;
        let capacity_bps = config.capacity_bps as f32;
        Some(Spreads { config: spread, capacity_bps, sessions: Vec::new(), replayed_bytes: 0 })
    }

    fn active(&mut self, flow: FlowId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.flow == flow && !session.is_over())
    }

    /// Whether packets of the flow may still be at this unit, as at a helper.
    fn is_leaving(&self, flow: FlowId, unit: UnitId) -> bool {
        self.sessions.iter().any(|session| session.flow == flow && session.is_leaving(unit))
    }

    /// Whether the flow is spread, or was, and helpers have not done yet.
    pub fn is_known(&self, flow: FlowId) -> bool {
        self.sessions.iter().any(|session| session.flow == flow)
    }

    /// Whether packets of any flow that is spread, or was, may be at this unit.
    pub fn has(&self, unit: UnitId) -> bool {
        self.sessions.iter().any(|session| session.has(unit))
    }

    /// Whether there is anything to see to.
    pub fn has_some(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// What replaying headers takes, all in all, as bytes of packets: what is given to units on top
    /// of packets.
    pub fn replayed_bytes(&self) -> u64 {
        self.replayed_bytes
    }

    /// What each unit is asked for by a flow of this rate that so many have: its packets, and the
    /// headers of the others'.
    fn share_bps(&self, rate_bps: f32, units: usize) -> f32 {
        let own = 1.0 / units as f32;
        rate_bps * (own + (1.0 - own) * self.config.replay_share)
    }

    /// The least number of units of which none is asked for more than this share of it by a flow of
    /// this rate; none if there is none.
    fn enough(&self, rate_bps: f32, share: f32) -> Option<usize> {
        let most_bps = share * self.capacity_bps;
        (1..=usize::from(self.config.units_max)).find(|&units| self.share_bps(rate_bps, units) <= most_bps)
    }

    /// So many units a flow of this rate takes, and what each is asked for: no more than it is to
    /// have, even if there are too few.
    fn wanted(&self, rate_bps: f32) -> (usize, f32) {
        let units = self.enough(rate_bps, self.config.begin_at).unwrap_or(self.config.units_max.into());
        let most_bps = self.config.begin_at * self.capacity_bps;
        (units, self.share_bps(rate_bps, units).min(most_bps))
    }
}

impl Router {
    /// What goes with a packet that is [spread](Routed::Spread), of which this is the header: to be
    /// asked once for each, before the next packet is routed.
    pub fn history(&mut self, unit: UnitId, stamp: &Stamp, header: Header) -> History {
        let Some(spreads) = &mut self.spreads else { return History::default() };
        let config = spreads.config;
        let Some(session) = spreads.active(stamp.flow) else { return History::default() };
        let history = session.history(unit, header, &config);
        self.counters.spread_headers += history.headers.len() as u64;
        history
    }

    /// How many flows are spread, or were, and helpers have not done yet.
    pub fn spreads(&self) -> usize {
        self.spreads.as_ref().map_or(0, |spreads| spreads.sessions.len())
    }

    /// Whether packets of a flow that is spread, or was, may be at this unit.
    pub(crate) fn is_helping(&self, unit: UnitId) -> bool {
        self.spreads.as_ref().is_some_and(|spreads| spreads.has(unit))
    }

    /// Lets the flow be its anchor's alone, if it is spread, so that another unit can have it.
    /// False if this one may have packets of it still, from an epoch in which it was a helper: then
    /// it gets none of a later one.
    pub(crate) fn may_go_to(&mut self, unit: UnitId, flow: FlowId, orders: &mut Vec<Order>) -> bool {
        self.end_spread(self.now_ns(), flow, orders);
        !self.spreads.as_ref().is_some_and(|spreads| spreads.is_leaving(flow, unit))
    }

    /// A packet that seems to begin a flowlet, if its flow is spread, or is from now on; `orders`
    /// are to be carried out before.
    pub(crate) fn route_spread(
        &mut self,
        now_ns: u64,
        found: Found,
        len: u32,
        orders: &mut Vec<Order>,
    ) -> Option<Routed> {
        let flow = self.flows.id(found.slot);
        if self.flows.get(found.slot).bytes == SPREAD_BYTES {
            if self.goes_on(now_ns, flow, orders) {
                return self.stamp_spread(now_ns, found, len, orders);
            }
            self.end_spread(now_ns, flow, orders);
        }
        if !self.begin_spread(now_ns, found, orders) {
            return None;
        }
        self.stamp_spread(now_ns, found, len, orders)
    }

    /// Whether the flow is to stay spread: its anchor is active, and it asks for more than one
    /// unit. If it asks for more than it has, it gets more, as far as others have room; if that is
    /// only so of units that were let go, it is to be spread anew. If fewer are enough, those that
    /// are loaded most are let go, and so are those that drain.
    fn goes_on(&mut self, now_ns: u64, flow: FlowId, orders: &mut Vec<Order>) -> bool {
        let silent_ns = now_ns.saturating_sub(self.flows.get(flow.slot).last_seen_ns);
        let Some(spreads) = &mut self.spreads else { return false };
        let (end_at, window_ns) = (spreads.config.end_at, spreads.config.window_ns);
        let Some(session) = spreads.active(flow) else { return false };
        let anchor = session.members[0].unit; // There is one: it is not over.
        if silent_ns > window_ns || !self.units.is_active(anchor) {
            return false;
        }
        if session.members.iter().any(|member| !self.units.is_active(member.unit)) {
            orders.extend(session.dismiss(now_ns, |unit| !self.units.is_active(unit)));
        }
        let units = session.members.len();
        if units < 2 {
            return false;
        }
        if !session.is_measured(now_ns, window_ns) {
            return true;
        }
        let came_bps = session.measure(now_ns);
        let (wanted, share_bps) = spreads.wanted(came_bps);
        let enough = spreads.enough(came_bps, end_at).unwrap_or(usize::MAX);
        if wanted > units {
            if !self.add_helpers(flow, wanted - units, share_bps, orders) {
                return false;
            }
        } else if 1 < enough && enough < units {
            self.dismiss_helpers(now_ns, flow, units - enough, orders);
        }
        enough > 1
    }

    /// So many more units have packets of the flow from now on, as far as they have room for a
    /// share of this rate; if there are fewer, another one is started. False, and nothing is done,
    /// if the only ones with room have helped before, and can do so in a new epoch only.
    fn add_helpers(&mut self, flow: FlowId, count: usize, share_bps: f32, orders: &mut Vec<Order>) -> bool {
        self.meter.reckon();
        let Some(session) = self.spreads.as_mut().and_then(|spreads| spreads.active(flow)) else {
            return false;
        };
        let (mut list, capacity_bps) = (TargetList::NONE, self.config.capacity_bps as f32);
        self.meter.loads().least(count, |unit| !session.knows(unit), &mut list);
        let has_room = |unit: &UnitId| self.meter.loads().of(*unit) + share_bps <= capacity_bps;
        let helpers: Vec<UnitId> = list.units().filter(has_room).collect();
        if helpers.is_empty()
            && session.parted_units().filter(has_room).any(|unit| self.units.is_active(unit))
        {
            return false;
        }
        if !helpers.is_empty() {
            orders.push(session.join(&helpers));
        }
        if helpers.len() < count {
            self.start_for_room(orders);
        }
        true
    }

    /// So many helpers, those that are loaded most, get no packets of the flow any more.
    fn dismiss_helpers(&mut self, now_ns: u64, flow: FlowId, count: usize, orders: &mut Vec<Order>) {
        self.meter.reckon();
        let Some(session) = self.spreads.as_mut().and_then(|spreads| spreads.active(flow)) else { return };
        let load_bps = |unit: UnitId| self.meter.loads().of(unit);
        let mut helpers: Vec<UnitId> = session.members[1..].iter().map(|member| member.unit).collect();
        helpers.sort_by(|&a, &b| load_bps(b).total_cmp(&load_bps(a)));
        helpers.truncate(count);
        orders.extend(session.dismiss(now_ns, |unit| helpers.contains(&unit)));
    }

    /// A flowlet of the flow is over: whether the flow asks for more than a unit, and is spread
    /// from now on.
    fn begin_spread(&mut self, now_ns: u64, found: Found, orders: &mut Vec<Order>) -> bool {
        let Some(spreads) = &self.spreads else { return false };
        let id = self.flows.id(found.slot);
        let (flow, flowlet) = self.flows.both_mut(found.slot);
        flowlet.window_bytes += flow.bytes;
        let before = Window { since_ns: flowlet.window_ns, bytes: flowlet.window_bytes };
        let time_ns = now_ns.saturating_sub(before.since_ns);
        if time_ns < spreads.config.window_ns {
            return false;
        }
        (flowlet.window_ns, flowlet.window_bytes) = (now_ns, 0);
        let (wanted, share_bps) = spreads.wanted(rate_bps(before.bytes, time_ns));
        let (owner, is_full) = (flow.owner(), spreads.sessions.len() >= SPREADS_MAX);
        if wanted < 2 || is_full || spreads.is_known(id) || !self.units.is_active(owner) {
            return false;
        }
        let helpers = self.helpers(owner, wanted - 1, share_bps);
        if helpers.len() + 1 < wanted {
            self.start_for_room(orders);
        }
        !helpers.is_empty() && self.hand_to_several(now_ns, found, helpers, before, orders)
    }

    /// Up to so many active units beside the owner that have room for a share of a flow: the least
    /// loaded ones. If none has, these all the same, as a flowlet without room goes to the least
    /// loaded one (S44): what the flow has brought so far may be what fills them.
    fn helpers(&mut self, owner: UnitId, count: usize, share_bps: f32) -> Vec<UnitId> {
        self.meter.reckon();
        let mut list = TargetList::NONE;
        self.meter.loads().least(count, |unit| unit != owner, &mut list);
        let capacity_bps = self.config.capacity_bps as f32;
        let has_room = |unit: &UnitId| self.meter.loads().of(*unit) + share_bps <= capacity_bps;
        let with_room: Vec<UnitId> = list.units().filter(has_room).collect();
        if with_room.is_empty() { list.units().collect() } else { with_room }
    }

    /// The next epoch of the flow is its owner's and these helpers'.
    fn hand_to_several(
        &mut self,
        now_ns: u64,
        found: Found,
        helpers: Vec<UnitId>,
        before: Window,
        orders: &mut Vec<Order>,
    ) -> bool {
        let (flow, owner) = (self.flows.id(found.slot), self.flows.get(found.slot).owner());
        // One is kept for the epoch behind.
        if self.flows.get(found.slot).epoch >= Epoch::MAX - 1 || !self.flows.hand_to(found.slot, owner) {
            self.counters.epochs_exhausted += 1;
            return false;
        }
        let slot = self.flows.get_mut(found.slot);
        slot.bytes = SPREAD_BYTES;
        let mut session = Session::new((flow, slot.epoch, slot.last), owner, now_ns, before);
        orders.push(session.join(&helpers));
        if let Some(spreads) = &mut self.spreads {
            spreads.sessions.push(session);
        }
        self.counters.spreads += 1;
        let due_ns = now_ns.saturating_add(self.config.bucket_ns);
        self.due_ns = self.due_ns.min(due_ns);
        true
    }

    /// Counts a packet of a flow that is spread, and says whose it is. The anchor is told what
    /// came, if that is enough.
    fn stamp_spread(
        &mut self,
        now_ns: u64,
        found: Found,
        len: u32,
        orders: &mut Vec<Order>,
    ) -> Option<Routed> {
        let id = self.flows.id(found.slot);
        let spreads = self.spreads.as_mut()?;
        let told_at = u64::from(spreads.config.history_max / 2).max(1);
        let replayed = (len as f32 * spreads.config.replay_share) as u64;
        let session = spreads.active(id)?;
        if session.untold() >= told_at {
            let message = session.tell(None);
            count_told(&message, &mut self.counters.spread_headers_told);
            orders.push(Order::Send { to: session.members[0].unit, message });
        }
        let unit = session.take_turn(len);
        let others = session.members.iter().filter(|other| other.unit != unit);
        let others = others.map(|other| self.meter.add(other.unit, replayed, now_ns)).count();
        spreads.replayed_bytes += replayed * others as u64;
        let flow = self.flows.get_mut(found.slot);
        flow.clock += 1;
        flow.last_seen_ns = now_ns;
        let handover = Handover::From { previous: flow.previous(), last: flow.last };
        let stamp = Stamp { flow: id, clock: flow.clock, epoch: flow.epoch, handover, targets: None };
        self.counters.packets += 1;
        self.counters.spread_packets += 1;
        self.counters.bytes += u64::from(len);
        self.meter.add(unit, len.into(), now_ns);
        Some(Routed::Spread { unit, stamp })
    }

    /// The flow, if it is spread, is its anchor's alone again. The last of what came counts as its
    /// flowlet so far, so that what is expected of the next one follows from that, as ever; and
    /// what came lately says whether it is to be spread again.
    pub(crate) fn end_spread(&mut self, now_ns: u64, flow: FlowId, orders: &mut Vec<Order>) {
        let Some(spreads) = &mut self.spreads else { return };
        let Some(session) = spreads.active(flow) else { return };
        let (lately, Some((anchor, message))) = (session.lately(), session.close(now_ns)) else { return };
        count_told(&message, &mut self.counters.spread_headers_told);
        orders.push(Order::Send { to: anchor, message });
        orders.extend(session.partings());
        self.flows.hand_to(flow.slot, anchor); // There is an epoch left: see `hand_to_several`.
        let (slot, flowlet) = self.flows.both_mut(flow.slot);
        let last = lately.last_flowlet(slot.last_seen_ns, self.config.size_max);
        (slot.bytes, flowlet.started_ns) = (last.bytes, last.since_ns);
        // With those of the flowlet, all that came.
        (flowlet.window_ns, flowlet.window_bytes) = (lately.since_ns, lately.bytes - last.bytes);
    }

    /// A helper has done with a flow that was spread.
    pub(crate) fn parted(&mut self, from: UnitId, flow: FlowId, epoch: Epoch) {
        let Some(spreads) = &mut self.spreads else { return };
        let is_it = |session: &&mut Session| session.flow == flow && session.epoch == epoch;
        if let Some(session) = spreads.sessions.iter_mut().find(is_it) {
            session.parted(|unit| unit == from);
        }
        spreads.sessions.retain(|session| !session.is_done());
    }

    /// Ends what is over without another packet, and tells helpers again that have not said that
    /// they have parted; who does not run has.
    pub(crate) fn see_to_spreads(&mut self, now_ns: u64, orders: &mut Vec<Order>) {
        let Some(spreads) = &self.spreads else { return };
        let active = spreads.sessions.iter().filter(|session| !session.is_over());
        let flows: Vec<FlowId> = active.map(|session| session.flow).collect();
        for flow in flows {
            if !self.goes_on(now_ns, flow, orders) {
                self.end_spread(now_ns, flow, orders);
            }
        }
        let Some(spreads) = &mut self.spreads else { return };
        for session in &mut spreads.sessions {
            session.parted(|unit| self.units.state(unit) == UnitState::Off);
            if now_ns.saturating_sub(session.told_ns) >= AGAIN_NS {
                session.told_ns = now_ns;
                orders.extend(session.partings());
            }
        }
        spreads.sessions.retain(|session| !session.is_done());
    }
}

fn count_told(message: &Message, counter: &mut u64) {
    if let Message::Told { headers, .. } = message {
        *counter += headers.len() as u64;
    }
}
