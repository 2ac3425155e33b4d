//! The loop: what happens next, and what follows from it.

mod stores;

use packet::FlowHasher;
use proto::{Message, Targets, UnitId};
use router::{Arrival, Order, Routed, Router};
use unit::{Dropped, Outbox, Unit};
use usage::{Epoch, Epochs};

use crate::arrivals::{Arrivals, Coming};
use crate::checks::{Checked, Checks, Violation};
use crate::engine::{Counting, Packet, Processed};
use crate::event::EventQueue;
use crate::latency::{Latencies, Latency};
use crate::link::{Carried, Links};
use crate::scenario::{Cost, Link, Run, Scenario};
use crate::server::{Parcel, Server, Slab};
use crate::service::Service;
use crate::store::{Request, Store};
use crate::tally::Tally;
use crate::workload::{Packets, Statistics, WorkloadStatistics};

/// What is going to happen.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet arrives at a unit, and goes behind what waits there.
    Arrived { unit: UnitId, parcel: u32 },
    /// A message arrives at a unit, and goes behind what waits there.
    Queued { unit: UnitId, parcel: u32 },
    /// A message arrives at a unit, and goes before its queue.
    Delivered { unit: UnitId, parcel: u32 },
    /// A message arrives at the router.
    Returned { parcel: u32 },
    /// A unit is done with what it was at, and something waits.
    Wake(UnitId),
    /// A unit has something to do for its timers.
    Timer(UnitId),
    /// A unit that was ordered is ready.
    Ready(UnitId),
    /// A request comes to the store.
    AtStore { request: u32 },
    /// An answer of the store comes to a unit.
    FromStore { request: u32 },
}

impl Event {
    /// A message arrives at a unit, and goes behind what waits there, or before it.
    fn to_unit(unit: UnitId, parcel: u32, stays_behind: bool) -> Event {
        match stays_behind {
            true => Event::Queued { unit, parcel },
            false => Event::Delivered { unit, parcel },
        }
    }
}

/// Everything, at one moment.
pub struct World {
    run: Run,
    start_ns: u64,
    now_ns: u64,
    events: EventQueue<Event>,
    arrivals: Arrivals,
    router: Router,
    router_cost: [Cost; 2],
    router_busy_until_ns: u64,
    servers: Vec<Server>,
    config: unit::Config,
    state_len: usize,
    service: Service,
    queue_max: usize,
    /// Whether packets reach units without loss, and those of a unit in order.
    is_in_order: bool,
    links: Links,
    parcels: Slab<Parcel>,
    /// Messages among the parcels, and requests.
    messages: u64,
    /// If states are in one.
    store: Option<Store>,
    requests: Slab<Request>,
    checks: Checks,
    workload: WorkloadStatistics,
    at_unit: Latencies,
    end_to_end: Latencies,
    epochs: Epochs,
    tally: Tally,
    // What is used again from event to event, for its memory.
    orders: Vec<Order>,
    outbox: Outbox<Packet>,
    processed: Vec<Processed>,
    ended: Vec<(proto::FlowId, u64)>,
}

/// What a run has come to.
pub struct Outcome {
    /// The packets that came.
    pub workload: Statistics,
    /// What the router counted.
    pub router: router::Counters,
    /// What the units and the links counted.
    pub tally: Tally,
    /// From a packet's arrival at its unit.
    pub at_unit: Latency,
    /// From its arrival at the router.
    pub end_to_end: Latency,
    /// Epoch by epoch.
    pub epochs: Vec<Epoch>,
    /// What was checked.
    pub checked: Checked,
    /// When the last thing happened.
    pub end_ns: u64,
}

impl World {
    /// The world of this scenario before anything has happened.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<World, crate::SimulationError> {
        let units = &scenario.units;
        let config = crate::parts::unit_config(scenario);
        let service = Service::of(units)?;
        let state_len = units.state.0 as usize;
        let server =
            |id| Server::new(Unit::new(unit::Config { id, ..config }, Counting::new(service, state_len)));
        let mut world = World {
            run: scenario.run.clone(),
            start_ns: units.start.0,
            now_ns: 0,
            events: EventQueue::new(),
            arrivals: Arrivals::new(Packets::new(&scenario.workload, seed), FlowHasher::new(seed)),
            router: Router::new(crate::parts::router_config(scenario, seed))?,
            router_cost: [scenario.router.packet_cost, scenario.router.flowlet_cost],
            router_busy_until_ns: 0,
            servers: (0..units.count.max).map(UnitId).map(server).collect(),
            config,
            state_len,
            service,
            queue_max: units.queue,
            is_in_order: in_order(&scenario.links.router_to_unit),
            links: Links::new(&scenario.links, units.count.max, seed),
            parcels: Slab::default(),
            messages: 0,
            store: scenario.state.place.is_store().then(|| Store::new(scenario.state)),
            requests: Slab::default(),
            checks: Checks::default(),
            workload: WorkloadStatistics::new(),
            at_unit: Latencies::new(),
            end_to_end: Latencies::new(),
            epochs: Epochs::new(scenario.run.epoch.0, scenario.run.time.0, units.count.max, units.capacity.0),
            tally: Tally::default(),
            orders: Vec::new(),
            outbox: Outbox::default(),
            processed: Vec::new(),
            ended: Vec::new(),
        };
        for unit in (0..units.count.min).map(UnitId) {
            world.switch_on(unit);
            world.make_ready(unit);
        }
        Ok(world)
    }

    /// What time it is.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Packets that have come so far.
    pub fn packets(&self) -> u64 {
        self.router.counters().packets
    }

    /// Goes on until this time, or until nothing is left to happen; true if that is so.
    pub fn advance_to(&mut self, until_ns: u64) -> Result<bool, Violation> {
        loop {
            let (event_ns, router_ns) = (self.events.next_ns(), self.router.due_ns());
            let next_ns = self.arrival_ns().min(event_ns).min(router_ns);
            if next_ns >= self.run.time.0 {
                self.close_epochs(self.run.time.0);
                if (self.checks.under_way(), self.messages) == (0, 0) {
                    return Ok(true);
                }
            }
            if next_ns >= until_ns {
                return Ok(false);
            }
            self.close_epochs(next_ns);
            self.now_ns = self.now_ns.max(next_ns);
            if router_ns == next_ns {
                self.router.advance(self.now_ns, &mut self.orders);
                self.carry_out_orders(self.now_ns);
            } else if event_ns == next_ns {
                self.happen()?;
            } else {
                self.arrive()?;
            }
        }
    }

    /// The end: everything is checked once more.
    pub fn finish(mut self) -> Result<Outcome, Violation> {
        if (self.checks.under_way(), self.messages) != (0, 0) {
            let (packets, messages) = (self.checks.under_way(), self.messages);
            return Err(Violation::Unfinished { packets, messages });
        }
        for server in &self.servers {
            self.tally.add_unit(server.unit.counters());
        }
        self.tally.store = self.store.as_ref().map(|store| store.counters).unwrap_or_default();
        let states = self.servers.iter().flat_map(|server| server.unit.engine().states());
        Ok(Outcome {
            workload: self.workload.finish(self.run.time.0),
            router: *self.router.counters(),
            tally: self.tally,
            at_unit: self.at_unit.finish(),
            end_to_end: self.end_to_end.finish(),
            epochs: self.epochs.done().to_vec(),
            end_ns: self.now_ns,
            checked: self.checks.finish(states)?,
        })
    }

    /// When the next packet comes; `u64::MAX`: none does any more.
    #[inline]
    fn arrival_ns(&self) -> u64 {
        match self.arrivals.next_ns() {
            time_ns if time_ns < self.run.time.0 => time_ns,
            _ => u64::MAX,
        }
    }

    /// Epochs that end until this time do.
    #[inline]
    fn close_epochs(&mut self, until_ns: u64) {
        while self.epochs.ends_ns() <= until_ns {
            self.epochs.close(self.router.counters().flowlets());
        }
    }

    /// A packet comes to the router.
    fn arrive(&mut self) -> Result<(), Violation> {
        let Some(Coming { arriving, key, hash }) = self.arrivals.next(&self.router) else {
            return Ok(());
        };
        self.workload.add(&arriving);
        self.epochs.came(arriving.len);
        let begins_ns = self.now_ns.max(self.router_busy_until_ns);
        let arrival = Arrival { key: &key, hash, len: arriving.len };
        let assignments = self.router.counters().assignments;
        let routed = self.router.route(begins_ns, arrival, &mut self.orders);
        let sent_ns = begins_ns + self.routing_ns(self.router.counters().assignments - assignments);
        self.router_busy_until_ns = sent_ns;
        self.carry_out_orders(sent_ns);
        let Routed::To { unit, mut stamp } = routed else {
            self.tally.refused += 1;
            return Ok(());
        };
        if self.store.as_ref().is_some_and(Store::is_told_early) {
            // What would go to all goes to the store.
            stamp.targets = stamp.targets.map(|_| Targets::ALL);
        }
        self.checks.stamped(stamp.flow, stamp.clock);
        self.epochs.given(unit, self.service.load_ns(arriving.len));
        let Carried::At(arrives_ns) = self.links.packet(sent_ns, unit) else {
            self.tally.lost += 1;
            return self.checks.lost(stamp.flow, stamp.clock);
        };
        let packet =
            Packet { came_ns: self.now_ns, at_unit_ns: u64::MAX, clock: stamp.clock, len: arriving.len };
        let parcel = self.parcels.add(Parcel::Packet { stamp, packet, has_read: false });
        self.events.push(arrives_ns, Event::Arrived { unit, parcel });
        Ok(())
    }

    /// What the router takes for a packet, and for so many assignments.
    #[inline]
    fn routing_ns(&self, assignments: u64) -> u64 {
        let [packet, flowlet] = self.router_cost;
        (packet.0 + flowlet.0 * assignments + 500) / 1_000
    }

    /// What the router wants done, in order.
    #[inline]
    fn carry_out_orders(&mut self, now_ns: u64) {
        if self.orders.is_empty() {
            return;
        }
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            match order {
                Order::Send { to, message } => self.send_to_unit(now_ns, to, message),
                Order::Start(unit) => {
                    self.switch_on(unit);
                    self.events.push(now_ns + self.start_ns, Event::Ready(unit));
                }
                Order::Stop(unit) => self.switch_off(unit),
            }
        }
        self.orders = orders;
    }

    /// What must stay behind packets that were sent before goes into the queue with them; the rest passes it (S18).
    fn send_to_unit(&mut self, now_ns: u64, unit: UnitId, message: Message) {
        let stays_behind = matches!(message, Message::Release { .. } | Message::End { .. } | Message::Drain);
        let arrives_ns = self.links.message(now_ns, unit);
        let parcel = self.add_message(None, message);
        self.events.push(arrives_ns, Event::to_unit(unit, parcel, stays_behind));
    }

    fn add_message(&mut self, from: Option<UnitId>, message: Message) -> u32 {
        self.messages += 1;
        self.parcels.add(Parcel::Message { from, message })
    }

    /// The next event happens.
    fn happen(&mut self) -> Result<(), Violation> {
        match self.events.pop() {
            Some((_, Event::Arrived { unit, parcel })) => self.arrive_at_unit(unit, parcel),
            Some((_, Event::Queued { unit, parcel })) => self.queue(unit, parcel),
            Some((_, Event::Delivered { unit, parcel })) => {
                self.servers[unit.index()].deliver(parcel);
                self.serve(unit)
            }
            Some((_, Event::Returned { parcel })) => {
                self.come_back(parcel);
                Ok(())
            }
            Some((at_ns, Event::Wake(unit))) if self.servers[unit.index()].wake_ns == at_ns => {
                self.servers[unit.index()].wake_ns = u64::MAX;
                self.serve(unit)
            }
            Some((at_ns, Event::Timer(unit))) if self.servers[unit.index()].timer_ns == at_ns => {
                self.servers[unit.index()].timer_ns = u64::MAX;
                self.serve(unit)
            }
            // A time that was replaced by another.
            Some((_, Event::Wake(_) | Event::Timer(_))) | None => Ok(()),
            Some((_, Event::AtStore { request })) => {
                self.at_store(request);
                Ok(())
            }
            Some((_, Event::FromStore { request })) => self.store_answers(request),
            Some((_, Event::Ready(unit))) => {
                self.make_ready(unit);
                self.router.started(self.now_ns, unit);
                Ok(())
            }
        }
    }

    /// A packet arrives at a unit.
    fn arrive_at_unit(&mut self, unit: UnitId, parcel: u32) -> Result<(), Violation> {
        if self.servers[unit.index()].queued() < self.queue_max {
            return self.queue(unit, parcel);
        }
        let Some(Parcel::Packet { stamp, .. }) = self.parcels.take(parcel) else { return Ok(()) };
        self.tally.queue_full += 1;
        self.checks.dropped(stamp.flow, stamp.clock)
    }

    /// A parcel goes into a unit's queue.
    #[inline]
    fn queue(&mut self, unit: UnitId, parcel: u32) -> Result<(), Violation> {
        let server = &mut self.servers[unit.index()];
        server.queue(parcel, self.now_ns);
        self.epochs.queued(server.queued());
        self.serve(unit)
    }

    /// A message arrives at the router.
    fn come_back(&mut self, parcel: u32) {
        if let Some(Parcel::Message { from: Some(from), message }) = self.parcels.take(parcel) {
            self.messages -= 1;
            self.router.receive(self.now_ns, from, message, &mut self.orders);
            self.carry_out_orders(self.now_ns);
        }
    }

    /// The unit does what it has to, one thing after the other, until one takes time.
    fn serve(&mut self, unit: UnitId) -> Result<(), Violation> {
        let now_ns = self.now_ns;
        loop {
            let server = &mut self.servers[unit.index()];
            if server.free_ns() > now_ns {
                break;
            }
            // Messages first: what they say may be what a timer is for.
            let has_message = server.has_message();
            if !has_message && server.unit.due_ns() <= now_ns {
                server.unit.advance(now_ns, &mut self.outbox);
                self.follow_up(unit)?;
            } else if let Some((parcel, since_ns)) = server.next() {
                if self.store.is_none() || has_message || !self.waits_for_store(unit, parcel, since_ns) {
                    self.handle(unit, parcel, since_ns)?;
                }
            } else {
                break;
            }
        }
        self.set_alarms(unit);
        Ok(())
    }

    /// The unit gets what was sent to it, and was in its queue since then.
    #[inline]
    fn handle(&mut self, unit: UnitId, parcel: u32, since_ns: u64) -> Result<(), Violation> {
        let (now_ns, server) = (self.now_ns, &mut self.servers[unit.index()]);
        match self.parcels.take(parcel) {
            Some(Parcel::Packet { stamp, mut packet, has_read }) => {
                packet.at_unit_ns = packet.at_unit_ns.min(since_ns);
                server.unit.packet(now_ns, stamp, packet, &mut self.outbox);
                self.follow_up(unit)?;
                if has_read {
                    self.accessed(unit, stamp.flow);
                }
                Ok(())
            }
            Some(Parcel::Message { from, message }) => {
                self.messages -= 1;
                let released = match message {
                    Message::Release { flow, epoch, owner, last } => Some((flow, (epoch, owner, last))),
                    _ => None,
                };
                server.unit.receive(now_ns, from, message, &mut self.outbox);
                if let Some((flow, next)) = released {
                    self.flush(unit, flow, next);
                }
                self.follow_up(unit)
            }
            None => Ok(()),
        }
    }

    /// When the unit is to be looked at again.
    #[inline]
    fn set_alarms(&mut self, unit: UnitId) {
        let server = &mut self.servers[unit.index()];
        let free_ns = server.free_ns().max(self.now_ns);
        if server.has_next() && server.wake_ns > free_ns {
            server.wake_ns = free_ns;
            self.events.push(free_ns, Event::Wake(unit));
        }
        let due_ns = server.unit.due_ns();
        if due_ns != u64::MAX && server.timer_ns > due_ns.max(free_ns) {
            server.timer_ns = due_ns.max(free_ns);
            self.events.push(server.timer_ns, Event::Timer(unit));
        }
    }

    /// What the unit did has consequences, when it is done.
    #[inline]
    fn follow_up(&mut self, unit: UnitId) -> Result<(), Violation> {
        let engine = self.servers[unit.index()].unit.engine_mut();
        let done_ns = engine.done_ns().max(self.now_ns);
        let mut processed = engine.take_processed(std::mem::take(&mut self.processed));
        let mut ended = engine.take_ended(std::mem::take(&mut self.ended));
        for done in processed.drain(..) {
            self.checks.processed(unit, &done)?;
            self.epochs.processed();
            if self.store.is_none() || !self.writes(unit, &done) {
                self.released(&done, done.done_ns);
            }
        }
        self.processed = processed;
        for (flow, state) in ended.drain(..) {
            self.checks.ended(flow, state)?;
            if let Some(store) = &mut self.store {
                store.end(flow);
            }
        }
        self.ended = ended;
        if self.outbox.is_empty() {
            return Ok(());
        }
        self.send_outbox(done_ns, unit)
    }

    /// A packet is done with, and leaves its unit.
    #[inline]
    fn released(&mut self, done: &Processed, at_ns: u64) {
        if done.packet.came_ns >= self.run.warm_up.0 {
            self.at_unit.add(at_ns - done.packet.at_unit_ns.min(at_ns));
            self.end_to_end.add(at_ns - done.packet.came_ns);
        }
    }

    fn send_outbox(&mut self, now_ns: u64, unit: UnitId) -> Result<(), Violation> {
        let mut outbox = std::mem::take(&mut self.outbox);
        for message in outbox.to_router.drain(..) {
            let arrives_ns = self.links.message_to_router(now_ns, unit);
            let parcel = self.add_message(Some(unit), message);
            self.events.push(arrives_ns, Event::Returned { parcel });
        }
        for (to, message) in outbox.to_units.drain(..) {
            if let Some(message) = self.send_by_store(now_ns, unit, to, message) {
                self.send_between(now_ns, unit, to, message);
            }
        }
        for message in outbox.to_all.drain(..) {
            if self.store.is_some() {
                if let Message::Replica { flow, record, .. } = message {
                    self.push(now_ns, unit, flow, record);
                }
                continue;
            }
            for to in (0..self.servers.len() as u16).map(UnitId) {
                if to != unit && self.servers[to.index()].is_ready {
                    self.send_between(now_ns, unit, to, message.clone());
                }
            }
        }
        for (to, stamp, packet) in outbox.forwarded.drain(..) {
            match self.links.packet_between(now_ns, unit, to) {
                Carried::At(arrives_ns) => {
                    let parcel = self.parcels.add(Parcel::Packet { stamp, packet, has_read: false });
                    self.events.push(arrives_ns, Event::Arrived { unit: to, parcel });
                }
                Carried::Lost => {
                    self.tally.lost += 1;
                    self.checks.lost(stamp.flow, stamp.clock)?;
                }
            }
        }
        for (reason, stamp, _) in outbox.dropped.drain(..) {
            // DESIGN 3.10: a move loses nothing.
            if reason == Dropped::Old && self.is_in_order {
                return Err(Violation::Late { flow: stamp.flow, clock: stamp.clock });
            }
            self.checks.dropped(stamp.flow, stamp.clock)?;
        }
        self.outbox = outbox;
        Ok(())
    }

    fn send_between(&mut self, now_ns: u64, from: UnitId, to: UnitId, message: Message) {
        let state = match &message {
            Message::State { record, .. } | Message::Replica { record, .. } => Some(record.bytes.len()),
            _ => None,
        };
        if let (Message::Replica { .. }, Some(bytes)) = (&message, state) {
            self.tally.replicas += 1;
            self.tally.replica_bytes += bytes as u64;
        }
        let arrives_ns = self.links.message_between(now_ns, from, to, state);
        let stays_behind = matches!(message, Message::Pull { again: true, .. });
        let parcel = self.add_message(Some(from), message);
        self.events.push(arrives_ns, Event::to_unit(to, parcel, stays_behind));
    }

    /// The unit costs from now on. It is a new one: what was there before has handed over all it had.
    fn switch_on(&mut self, unit: UnitId) {
        let server = &mut self.servers[unit.index()];
        self.tally.add_unit(server.unit.counters());
        let config = unit::Config { id: unit, ..self.config };
        server.unit = Unit::new(config, Counting::new(self.service, self.state_len));
        self.epochs.set_on(self.now_ns, unit, true);
    }

    fn make_ready(&mut self, unit: UnitId) {
        self.servers[unit.index()].is_ready = true;
        self.epochs.set_ready(self.now_ns, unit, true);
    }

    /// The unit costs no more. What is still on its way to it finds it, and is sent on.
    fn switch_off(&mut self, unit: UnitId) {
        self.servers[unit.index()].is_ready = false;
        self.epochs.set_ready(self.now_ns, unit, false);
        self.epochs.set_on(self.now_ns, unit, false);
    }
}

/// Whether nothing is lost and nothing is overtaken on such links.
fn in_order(link: &Link) -> bool {
    link.loss.0 == 0.0 && link.reorder.0 == 0.0
}

#[cfg(test)]
mod tests {
    use unit::Engine;

    use super::*;

    /// A world in the middle of its work.
    fn world() -> World {
        let text = "[workload.steady]\nrate = \"900Mbps\"\nflows = 20\n[units]\ncount = \"2\"\n[run]\ntime = \"40ms\"";
        let scenario = Scenario::parse(text).unwrap();
        let mut world = World::new(&scenario, 1).unwrap();
        assert_eq!(world.advance_to(20_000_000), Ok(false));
        world
    }

    fn goes_on(mut world: World) -> Result<Checked, Violation> {
        world.advance_to(u64::MAX - 1)?;
        world.finish().map(|outcome| outcome.checked)
    }

    #[test]
    fn a_world_that_is_left_alone_is_right() {
        assert_eq!(goes_on(world()).unwrap().processed, 4_500);
    }

    #[test]
    fn a_state_that_is_spoilt_is_found() {
        let mut world = world();
        let engine = world.servers[0].unit.engine_mut();
        let (flow, _) = engine.states().next().unwrap();
        engine.restore(0, flow, &[7; 64]).unwrap();
        assert!(matches!(goes_on(world), Err(Violation::WrongState { .. })));
    }

    #[test]
    fn a_packet_that_is_forgotten_is_found() {
        let mut world = world();
        let parcel = (0..).find(|&parcel| world.parcels.get_mut(parcel).is_some()).unwrap();
        world.parcels.take(parcel);
        // Its clock is given up, and all goes on but for the account.
        assert!(matches!(
            world.advance_to(10_000_000_000).and_then(|_| world.finish().map(|_| ())),
            Err(Violation::Unfinished { packets: 1, .. })
        ));
    }

    #[test]
    fn a_packet_that_comes_twice_is_found_if_units_process_it_twice() {
        let mut world = world();
        let engine = world.servers[0].unit.engine_mut();
        let (flow, _) = engine.states().next().unwrap();
        engine.process(0, flow, Packet { came_ns: 0, at_unit_ns: 0, clock: 1, len: 1_000 });
        assert!(matches!(
            world.follow_up(UnitId(0)),
            Err(Violation::OutOfOrder { .. } | Violation::Fates { .. })
        ));
    }
}
