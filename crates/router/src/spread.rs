//! Flows that ask for more than a unit has: their packets go to several units in turn, each with the headers of those before it that its
//! unit has not got (state-compute replication, NSDI '25).

use std::collections::VecDeque;

use proto::{Epoch, FlowId, Handover, Header, History, Message, Stamp, Targets, UnitId};

use crate::config::{Config, Mode, Spread};
use crate::flow::TargetList;
use crate::flows::Found;
use crate::load::rate_bps;
use crate::router::{Order, Routed, Router};
use crate::units::UnitState;

/// Flows that are spread at once, at most, with those whose helpers have not done yet.
pub const SPREADS_MAX: usize = 64;

/// A helper that is to part, and does not say that it has, is told again after this time, in ns.
const AGAIN_NS: u64 = 100_000_000;

/// What a flow's bytes are while it is spread: more than any flowlet has, so that each packet is looked at.
const SPREAD_BYTES: u64 = u64::MAX;

/// The flows that are spread.
pub(crate) struct Spreads {
    config: Spread,
    capacity_bps: f32,
    sessions: Vec<Session>,
}

/// An epoch in which a flow is spread; or the time behind it in which helpers may still have packets of it.
struct Session {
    flow: FlowId,
    epoch: Epoch,
    /// Those that have packets, the anchor first; once it is over, helpers that have not parted.
    members: Vec<Member>,
    /// Whose turn it is.
    turn: usize,
    /// Headers of its last packets.
    headers: VecDeque<Header>,
    /// The clock of the first of them.
    first: u64,
    /// The anchor was told those up to this clock.
    told: u64,
    /// What came since then.
    bytes: u64,
    since_ns: u64,
    /// When helpers were told last that it is over; none: it is not.
    over_ns: Option<u64>,
}

struct Member {
    unit: UnitId,
    /// The last clock before it was one.
    base: u64,
    /// The clocks of its last packets, one more than headers are repeated.
    sent: VecDeque<u64>,
}

impl Member {
    fn new(unit: UnitId, base: u64) -> Member {
        Member { unit, base, sent: VecDeque::new() }
    }
}

impl Spreads {
    /// None if no flow is.
    pub fn new(config: &Config) -> Option<Spreads> {
        let spread = config.spread.filter(|_| config.mode == Mode::Flowlet)?;
        Some(Spreads { config: spread, capacity_bps: config.capacity_bps as f32, sessions: Vec::new() })
    }

    fn active(&mut self, flow: FlowId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.flow == flow && session.over_ns.is_none())
    }

    /// Whether packets of the flow may still be at this unit, as at a helper.
    fn is_helping(&self, flow: FlowId, unit: UnitId) -> bool {
        let over = |session: &&Session| session.flow == flow && session.over_ns.is_some();
        self.sessions.iter().find(over).is_some_and(|session| session.has(unit))
    }

    /// Whether the flow is spread, or was, and helpers have not done yet.
    pub fn is_known(&self, flow: FlowId) -> bool {
        self.sessions.iter().any(|session| session.flow == flow)
    }

    /// Whether there is anything to see to.
    pub fn has_some(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// What each unit is asked for by a flow of this rate that so many have: its packets, and the headers of the others'.
    fn share_bps(&self, rate_bps: f32, units: usize) -> f32 {
        let own = 1.0 / units as f32;
        rate_bps * (own + (1.0 - own) * self.config.replay_share)
    }

    /// So many units a flow of this rate takes, and what each is asked for: no more than it is to have, even if there are too few.
    fn wanted(&self, rate_bps: f32) -> (usize, f32) {
        let most_bps = self.config.begin_at * self.capacity_bps;
        let units_max = usize::from(self.config.units_max);
        let fits = |&units: &usize| self.share_bps(rate_bps, units) <= most_bps;
        let units = (1..units_max).find(fits).unwrap_or(units_max);
        (units, self.share_bps(rate_bps, units).min(most_bps))
    }
}

impl Session {
    fn has(&self, unit: UnitId) -> bool {
        self.members.iter().any(|member| member.unit == unit)
    }

    /// The clock behind the last header.
    fn next(&self) -> u64 {
        self.first + self.headers.len() as u64
    }

    /// The headers that the anchor was not told.
    fn untold(&mut self, epoch: Epoch, is_last: bool) -> Message {
        let first = self.told + 1;
        let skipped = (first - self.first) as usize;
        let headers: Vec<Header> = self.headers.iter().skip(skipped).cloned().collect();
        self.told = self.next() - 1;
        Message::Told { flow: self.flow, epoch, first, headers, is_last }
    }

    /// What goes with the next packet, which is this header's and `unit`'s.
    fn history(&mut self, unit: UnitId, header: Header, config: &Spread) -> History {
        let next = self.next();
        let Some(member) = self.members.iter_mut().find(|member| member.unit == unit) else {
            return History::default(); // Cannot be: it was its turn.
        };
        let base = member.base;
        let previous = member.sent.back().copied().unwrap_or(base);
        let is_repeated = member.sent.len() > usize::from(config.repeats);
        let behind = if is_repeated { member.sent.pop_front().unwrap_or(base) } else { base };
        member.sent.push_back(next);
        let first = (behind + 1).max(self.first);
        let headers = self.headers.iter().skip((first - self.first) as usize).cloned().collect();
        self.headers.push_back(header);
        // The anchor is told half of them at a time, so that none goes that it was not told.
        while self.headers.len() > usize::from(config.history_max) && self.first <= self.told {
            self.headers.pop_front();
            self.first += 1;
        }
        History { previous, first, headers }
    }
}

impl Router {
    /// What goes with a packet that is [spread](Routed::Spread), of which this is the header: to be asked once for each, before the next
    /// packet is routed.
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

    /// Lets the flow be its anchor's alone, if it is spread, so that another unit can have it. False if this one may have packets of it
    /// still, from an epoch in which it was a helper: then it gets none of a later one.
    pub(crate) fn may_go_to(&mut self, unit: UnitId, flow: FlowId, orders: &mut Vec<Order>) -> bool {
        self.end_spread(self.now_ns(), flow, orders);
        !self.spreads.as_ref().is_some_and(|spreads| spreads.is_helping(flow, unit))
    }

    /// A packet that seems to begin a flowlet, if its flow is spread, or is from now on; `orders` are to be carried out before.
    pub(crate) fn route_spread(
        &mut self,
        now_ns: u64,
        found: Found,
        len: u32,
        orders: &mut Vec<Order>,
    ) -> Option<Routed> {
        let flow = self.flows.id(found.slot);
        let is_spread = self.flows.get(found.slot).bytes == SPREAD_BYTES;
        if is_spread && !self.goes_on(now_ns, flow, orders) {
            self.end_spread(now_ns, flow, orders);
            return None;
        }
        if !is_spread && !self.begin_spread(now_ns, found, orders) {
            return None;
        }
        self.stamp_spread(now_ns, found, len, orders)
    }

    /// Whether the flow is to stay spread: all its units are active, and it asks for more than one. If it asks for more than it has, it
    /// gets more, as far as others have room.
    fn goes_on(&mut self, now_ns: u64, flow: FlowId, orders: &mut Vec<Order>) -> bool {
        let is_silent = now_ns.saturating_sub(self.flows.get(flow.slot).last_seen_ns) > self.window_ns();
        let Some(spreads) = &mut self.spreads else { return false };
        let (end_bps, window_ns) = (spreads.config.end_at * spreads.capacity_bps, spreads.config.window_ns);
        let Some(session) = spreads.active(flow) else { return false };
        if is_silent || !session.members.iter().all(|member| self.units.is_active(member.unit)) {
            return false;
        }
        let time_ns = now_ns.saturating_sub(session.since_ns);
        if time_ns < window_ns {
            return true;
        }
        let (came_bps, units) = (rate_bps(session.bytes, time_ns), session.members.len());
        (session.bytes, session.since_ns) = (0, now_ns);
        let (wanted, share_bps) = spreads.wanted(came_bps);
        if wanted > units {
            self.add_helpers(flow, wanted, share_bps, orders);
        }
        came_bps >= end_bps
    }

    /// Units that have room for a share of this rate have packets of the flow, too, from now on, until so many have.
    fn add_helpers(&mut self, flow: FlowId, wanted: usize, share_bps: f32, orders: &mut Vec<Order>) {
        self.meter.reckon();
        let Some(session) = self.spreads.as_mut().and_then(|spreads| spreads.active(flow)) else { return };
        let capacity_bps = self.config.capacity_bps as f32;
        let has_room = |unit: UnitId| self.meter.loads().of(unit) + share_bps <= capacity_bps;
        let more = self.units.active().iter().copied().filter(|&unit| !session.has(unit) && has_room(unit));
        let helpers = Targets::of_distinct(more.take(wanted - session.members.len()));
        if helpers == Targets::NONE {
            return;
        }
        let last = session.next() - 1;
        let message = Message::Spread { flow, epoch: session.epoch, last, helpers };
        orders.push(Order::Send { to: session.members[0].unit, message });
        session.members.extend(helpers.units().iter().map(|&unit| Member::new(unit, last)));
    }

    fn window_ns(&self) -> u64 {
        self.spreads.as_ref().map_or(0, |spreads| spreads.config.window_ns)
    }

    /// A flowlet of the flow is over: whether the flow asks for more than a unit, and is spread from now on.
    fn begin_spread(&mut self, now_ns: u64, found: Found, orders: &mut Vec<Order>) -> bool {
        let Some(spreads) = &self.spreads else { return false };
        let id = self.flows.id(found.slot);
        let (flow, flowlet) = self.flows.both_mut(found.slot);
        flowlet.window_bytes += flow.bytes;
        let time_ns = now_ns.saturating_sub(flowlet.window_ns);
        if time_ns < spreads.config.window_ns {
            return false;
        }
        let came_bps = rate_bps(flowlet.window_bytes, time_ns);
        (flowlet.window_ns, flowlet.window_bytes) = (now_ns, 0);
        let ((wanted, share_bps), is_full) =
            (spreads.wanted(came_bps), spreads.sessions.len() >= SPREADS_MAX);
        let owner = flow.owner();
        if wanted < 2 || is_full || spreads.is_known(id) || !self.units.is_active(owner) {
            return false;
        }
        let helpers = self.helpers(owner, wanted - 1, share_bps);
        if helpers.len() + 1 < wanted {
            self.start_for_room(orders);
        }
        !helpers.is_empty() && self.hand_to_several(now_ns, found, helpers, orders)
    }

    /// Up to so many active units beside the owner that have room for a share of a flow: the least loaded ones. If none has, these all
    /// the same, as a flowlet without room goes to the least loaded one (S44): what the flow has brought so far may be what fills them.
    fn helpers(&mut self, owner: UnitId, count: usize, share_bps: f32) -> Vec<UnitId> {
        self.meter.reckon();
        let mut list = TargetList::NONE;
        self.meter.loads().least(count, owner, &mut list);
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
        let (epoch, base) = (slot.epoch, slot.last);
        let message = Message::Spread {
            flow,
            epoch,
            last: base,
            helpers: Targets::of_distinct(helpers.iter().copied()),
        };
        orders.push(Order::Send { to: owner, message });
        let member = |unit| Member::new(unit, base);
        let members = std::iter::once(owner).chain(helpers).map(member).collect();
        let (headers, first) = (VecDeque::new(), base + 1);
        let session = Session {
            flow,
            epoch,
            members,
            turn: 0,
            headers,
            first,
            told: base,
            bytes: 0,
            since_ns: now_ns,
            over_ns: None,
        };
        if let Some(spreads) = &mut self.spreads {
            spreads.sessions.push(session);
        }
        self.counters.spreads += 1;
        let due_ns = now_ns.saturating_add(self.config.bucket_ns);
        self.due_ns = self.due_ns.min(due_ns);
        true
    }

    /// Counts a packet of a flow that is spread, and says whose it is. The anchor is told what came, if that is enough.
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
        if session.next() - 1 - session.told >= told_at {
            let message = session.untold(session.epoch, false);
            count_told(&message, &mut self.counters.spread_headers_told);
            orders.push(Order::Send { to: session.members[0].unit, message });
        }
        let member = session.turn % session.members.len();
        session.turn = member + 1;
        session.bytes += u64::from(len);
        let unit = session.members[member].unit;
        for other in session.members.iter().filter(|other| other.unit != unit) {
            self.meter.add(other.unit, replayed, now_ns);
        }
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

    /// The flow, if it is spread, is its anchor's alone again.
    pub(crate) fn end_spread(&mut self, now_ns: u64, flow: FlowId, orders: &mut Vec<Order>) {
        let Some(spreads) = &mut self.spreads else { return };
        let Some(session) = spreads.active(flow) else { return };
        let message = session.untold(session.epoch, true);
        count_told(&message, &mut self.counters.spread_headers_told);
        let anchor = session.members.remove(0).unit;
        orders.push(Order::Send { to: anchor, message });
        session.headers = VecDeque::new();
        session.over_ns = Some(now_ns);
        part(session, orders);
        let slot = self.flows.get_mut(flow.slot);
        slot.bytes = 0;
        self.flows.hand_to(flow.slot, anchor); // There is an epoch left: see `hand_to_several`.
        let (_, flowlet) = self.flows.both_mut(flow.slot);
        (flowlet.started_ns, flowlet.window_ns, flowlet.window_bytes) = (now_ns, now_ns, 0);
    }

    /// A helper has done with a flow that was spread.
    pub(crate) fn parted(&mut self, from: UnitId, flow: FlowId, epoch: Epoch) {
        let Some(spreads) = &mut self.spreads else { return };
        let over = |session: &&mut Session| {
            session.flow == flow && session.epoch == epoch && session.over_ns.is_some()
        };
        if let Some(session) = spreads.sessions.iter_mut().find(over) {
            session.members.retain(|member| member.unit != from);
        }
        spreads.sessions.retain(|session| session.over_ns.is_none() || !session.members.is_empty());
    }

    /// Ends what is over without another packet, and tells helpers again that have not said that they have parted; who does not run has.
    pub(crate) fn see_to_spreads(&mut self, now_ns: u64, orders: &mut Vec<Order>) {
        let Some(spreads) = &self.spreads else { return };
        let active = spreads.sessions.iter().filter(|session| session.over_ns.is_none());
        let flows: Vec<FlowId> = active.map(|session| session.flow).collect();
        for flow in flows {
            if !self.goes_on(now_ns, flow, orders) {
                self.end_spread(now_ns, flow, orders);
            }
        }
        let Some(spreads) = &mut self.spreads else { return };
        for session in &mut spreads.sessions {
            let Some(over_ns) = session.over_ns else { continue };
            session.members.retain(|member| self.units.state(member.unit) != UnitState::Off);
            if now_ns.saturating_sub(over_ns) >= AGAIN_NS {
                session.over_ns = Some(now_ns);
                part(session, orders);
            }
        }
        spreads.sessions.retain(|session| session.over_ns.is_none() || !session.members.is_empty());
    }
}

/// Tells helpers that nothing more comes.
fn part(session: &Session, orders: &mut Vec<Order>) {
    for member in &session.members {
        let message = Message::Part { flow: session.flow, epoch: session.epoch };
        orders.push(Order::Send { to: member.unit, message });
    }
}

fn count_told(message: &Message, counter: &mut u64) {
    if let Message::Told { headers, .. } = message {
        *counter += headers.len() as u64;
    }
}
