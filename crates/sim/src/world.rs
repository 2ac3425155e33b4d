//! The event loop.

mod ahead;
mod dispatching;
mod sending;
mod serving;
mod stores;

use packet::FlowHasher;
use protocol::dispatcher::{Dispatcher, DispatcherOutput};
use protocol::message::{Lane, UnitId};
use protocol::metering::{Interval, IntervalMeter};
use protocol::unit::{Outbox, Unit};

use self::ahead::Ahead;
use crate::arrivals::Arrivals;
use crate::checks::{CheckCounts, Checks, Violation};
use crate::engine::{Counting, Packet, Processed, StateLen};
use crate::event::EventQueue;
use crate::latency::{Latencies, LatencyReport};
use crate::link::Links;
use crate::pool::{PoolCounters, WarmPool};
use crate::scenario::{DropPlace, LinkSettings, RunSettings, Scenario};
use crate::server::{Parcel, Server, Slab};
use crate::service::Service;
use crate::store::{Request, Store};
use crate::tally::{Changes, Tally};
use crate::workload::{Packets, Statistics, WorkloadStatistics};
use values::Picos;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet arrives at a unit and joins its queue.
    Arrived { unit: UnitId, parcel: u32 },
    /// A message arrives at a unit and joins its queue.
    Queued { unit: UnitId, parcel: u32 },
    /// A message arrives at a unit and overtakes its queue.
    Delivered { unit: UnitId, parcel: u32 },
    /// A message arrives at the dispatcher.
    Returned { parcel: u32 },
    /// A unit has finished its work, and parcels wait.
    Wake(UnitId),
    /// A unit has a timer to handle.
    Timer(UnitId),
    /// An ordered unit is ready.
    Ready(UnitId),
    /// A unit that was started for the pool is warm.
    Filled,
    /// A request arrives at the store.
    AtStore { request: u32 },
    /// The store's answer arrives at a unit.
    FromStore { request: u32 },
}

impl Event {
    /// Returns the arrival of a message at a unit: in its queue, or before it.
    fn to_unit(unit: UnitId, parcel: u32, lane: Lane) -> Event {
        match lane {
            Lane::Ordered => Event::Queued { unit, parcel },
            Lane::Free => Event::Delivered { unit, parcel },
        }
    }

    /// Returns the unit and the parcel of an arrival.
    #[inline]
    fn arrival(self) -> Option<(UnitId, u32)> {
        match self {
            Event::Arrived { unit, parcel }
            | Event::Queued { unit, parcel }
            | Event::Delivered { unit, parcel } => Some((unit, parcel)),
            _ => None,
        }
    }
}

/// The whole simulation at one moment.
pub struct World {
    run: RunSettings,
    pool: WarmPool,
    now_ns: u64,
    events: EventQueue<Event>,
    arrivals: Arrivals,
    dispatcher: Dispatcher,
    dispatch_cost: [Picos; 2],
    dispatcher_busy_until_ns: u64,
    servers: Vec<Server>,
    state_len: StateLen,
    service: Service,
    queue_max: usize,
    drops_at: DropPlace,
    /// Packets reach units without loss and in order.
    is_in_order: bool,
    links: Links,
    /// Units may have work left when nothing is in flight.
    may_be_unsettled: bool,
    parcels: Slab<Parcel>,
    /// Messages among the parcels, and requests that a unit waits for.
    messages: u64,
    /// The store, if states are in one.
    store: Option<Store>,
    requests: Slab<Request>,
    checks: Checks,
    workload: WorkloadStatistics,
    at_unit: Latencies,
    end_to_end: Latencies,
    intervals: IntervalMeter,
    /// End of the present interval.
    interval_ends_ns: u64,
    tally: Tally,
    /// Changes of units within the warm-up.
    warm: Changes,
    // Reused from event to event, for their memory.
    orders: Vec<DispatcherOutput>,
    outbox: Outbox<Packet>,
    processed: Vec<Processed>,
    ended: Vec<(protocol::message::FlowId, u64)>,
    coming: Vec<(UnitId, u32)>,
}

/// The result of a run.
pub struct WorldOutcome {
    /// Statistics of the packets.
    pub workload: Statistics,
    /// The dispatcher's counters.
    pub dispatcher: protocol::dispatcher::Counters,
    /// Counters of units and links.
    pub tally: Tally,
    /// Changes of units within the warm-up, which `tally` includes.
    pub warm: Changes,
    /// Counters of the pool of warm units.
    pub pool: PoolCounters,
    /// From a packet's arrival at its unit until it was processed.
    pub at_unit: LatencyReport,
    /// From a packet's arrival at the dispatcher until it was processed.
    pub end_to_end: LatencyReport,
    /// Demand and capacity by interval.
    pub intervals: Vec<Interval>,
    /// Checks that held.
    pub checked: CheckCounts,
    /// Time of the last event.
    pub end_ns: u64,
}

impl World {
    /// Creates the world of this scenario at its beginning.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<World, crate::error::SimulationError> {
        let units = &scenario.units;
        let config = crate::parts::unit_config(scenario);
        let service = Service::of(units)?;
        let state_len = StateLen::of(units);
        let server = |id| {
            Server::new(Unit::new(protocol::unit::Config { id, ..config }, Counting::new(service, state_len)))
        };
        let mut world = World {
            run: scenario.run.clone(),
            pool: WarmPool::new(units),
            now_ns: 0,
            events: EventQueue::new(),
            arrivals: Arrivals::new(Packets::new(&scenario.workload, seed), FlowHasher::new(seed)),
            dispatcher: Dispatcher::new(crate::parts::dispatcher_config(scenario, seed))?,
            dispatch_cost: [scenario.dispatcher.packet_cost, scenario.dispatcher.flowlet_cost],
            dispatcher_busy_until_ns: 0,
            servers: (0..units.count.max).map(UnitId).map(server).collect(),
            state_len,
            service,
            queue_max: units.queue,
            drops_at: units.drops_at,
            is_in_order: in_order(&scenario.links.dispatcher_to_unit),
            may_be_unsettled: scenario.links.messages.loss.0 > 0.0,
            links: Links::new(&scenario.links, units.count.max, seed),
            parcels: Slab::default(),
            messages: 0,
            store: scenario.state.place.is_store().then(|| Store::new(scenario.state)),
            requests: Slab::default(),
            checks: Checks::default(),
            workload: WorkloadStatistics::new(),
            at_unit: Latencies::new(),
            end_to_end: Latencies::new(),
            intervals: IntervalMeter::new(
                scenario.run.interval.0,
                scenario.run.time.0,
                units.count.max,
                units.capacity.0,
            ),
            interval_ends_ns: 0,
            tally: Tally::default(),
            warm: Changes::default(),
            orders: Vec::new(),
            outbox: Outbox::default(),
            processed: Vec::new(),
            ended: Vec::new(),
            coming: Vec::new(),
        };
        world.interval_ends_ns = world.intervals.ends_ns();
        for unit in (0..units.count.min).map(UnitId) {
            world.switch_on(unit);
            world.make_ready(unit);
        }
        Ok(world)
    }

    /// Returns the virtual time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the number of packets that have arrived.
    pub fn packets(&self) -> u64 {
        self.dispatcher.counters().packets
    }

    /// Runs until this time, or until nothing is left to happen. Returns true in the latter case.
    pub fn advance_to(&mut self, until_ns: u64) -> Result<bool, Violation> {
        loop {
            let (event_ns, dispatcher_ns) = (self.events.next_ns(), self.dispatcher.next_timeout_ns());
            let next_ns = self.arrival_ns().min(event_ns).min(dispatcher_ns);
            if next_ns >= self.run.time.0 {
                self.close_intervals(self.run.time.0);
                let under_way = (self.checks.under_way(), self.messages);
                if under_way == (0, 0) && !self.has_unsettled() {
                    return Ok(true);
                }
            }
            if next_ns >= until_ns {
                return Ok(false);
            }
            self.close_intervals(next_ns);
            self.now_ns = self.now_ns.max(next_ns);
            if dispatcher_ns == next_ns {
                self.dispatcher.handle_timeout(self.now_ns, &mut self.orders);
                self.carry_out_orders(self.now_ns);
            } else if event_ns == next_ns {
                self.happen()?;
            } else {
                self.arrive()?;
            }
        }
    }

    /// Ends the warm-up: earlier changes of units do not count as seamless or not.
    pub fn end_warm_up(&mut self) {
        let mut tally = self.tally;
        self.servers.iter().for_each(|server| tally.add_unit(server.unit.counters()));
        self.warm = Changes { seamless: tally.seamless, pulls: tally.pulls };
    }

    /// Returns true if units have work left although nothing is in flight: to retransmit what was
    /// lost.
    fn has_unsettled(&self) -> bool {
        self.may_be_unsettled && !self.servers.iter().all(|server| server.unit.is_settled())
    }

    /// Ends the run, and checks the final states.
    pub fn finish(mut self) -> Result<WorldOutcome, Violation> {
        let (packets, messages) = (self.checks.under_way(), self.messages);
        if (packets, messages) != (0, 0) {
            return Err(Violation::Unfinished { packets, messages });
        }
        for server in &self.servers {
            self.tally.add_unit(server.unit.counters());
            self.tally.replicas_kept_bytes += server.unit.replica_bytes() as u64;
        }
        if let Some(store) = &self.store {
            self.tally.store = store.counters;
            self.tally.store_behind_ns = store.behind_ns(self.now_ns);
        }
        self.pool.count(self.run.time.0);
        let states = self.servers.iter().flat_map(|server| server.unit.engine().states());
        Ok(WorldOutcome {
            workload: self.workload.finish(self.run.time.0),
            dispatcher: *self.dispatcher.counters(),
            tally: self.tally,
            warm: self.warm,
            pool: self.pool.counters,
            at_unit: self.at_unit.finish(),
            end_to_end: self.end_to_end.finish(),
            intervals: self.intervals.done().to_vec(),
            end_ns: self.now_ns,
            checked: self.checks.finish(states)?,
        })
    }

    /// Returns the time of the next packet; `u64::MAX` after the last one.
    #[inline]
    fn arrival_ns(&self) -> u64 {
        match self.arrivals.next_ns() {
            time_ns if time_ns < self.run.time.0 => time_ns,
            _ => u64::MAX,
        }
    }

    /// Ends intervals up to this time.
    #[inline]
    fn close_intervals(&mut self, until_ns: u64) {
        while self.interval_ends_ns <= until_ns {
            self.intervals.close(self.dispatcher.counters().flowlets());
            self.interval_ends_ns = self.intervals.ends_ns();
        }
    }

    /// Handles the next event.
    fn happen(&mut self) -> Result<(), Violation> {
        let mut ahead = Ahead {
            parcels: &self.parcels,
            servers: &self.servers,
            checks: &self.checks,
            coming: &mut self.coming,
        };
        match self.events.pop(|events| ahead.show(events)) {
            Some((_, Event::Arrived { unit, parcel })) => self.arrive_at_unit(unit, parcel),
            Some((_, Event::Queued { unit, parcel })) => self.queue(unit, parcel),
            Some((_, Event::Delivered { unit, parcel })) => {
                self.deliver(unit, parcel);
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
            // An outdated time, replaced by another.
            Some((_, Event::Wake(_) | Event::Timer(_))) | None => Ok(()),
            Some((_, Event::AtStore { request })) => {
                self.at_store(request);
                Ok(())
            }
            Some((_, Event::FromStore { request })) => self.store_answers(request),
            Some((_, Event::Filled)) => {
                self.pool.filled(self.now_ns);
                Ok(())
            }
            Some((_, Event::Ready(unit))) => {
                self.make_ready(unit);
                self.dispatcher.membership().started(self.now_ns, unit);
                Ok(())
            }
        }
    }
}

/// Returns true if a link neither loses nor reorders.
fn in_order(link: &LinkSettings) -> bool {
    link.loss.0 == 0.0 && link.reorder.0 == 0.0
}

#[cfg(test)]
mod tests {
    use protocol::message::{FlowRecord, FromPeer};
    use protocol::unit::Engine;

    use super::*;

    /// Returns a world in the middle of its work.
    fn world() -> World {
        world_in_mode("flowlet")
    }

    fn world_in_mode(mode: &str) -> World {
        let text = "[workload.steady]\nrate = \"900Mbps\"\nflows = 20\n[units]\ncount = \"2\"\n[run]\ntime = \"40ms\"";
        let scenario = Scenario::parse(&format!("{text}\n[dispatcher]\nmode = \"{mode}\"")).unwrap();
        let mut world = World::new(&scenario, 1).unwrap();
        assert_eq!(world.advance_to(20_000_000), Ok(false));
        world
    }

    fn goes_on(mut world: World) -> Result<CheckCounts, Violation> {
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

    /// A state that arrived twice waited in the unit's queue while the unit gave it away, was
    /// switched off, and on again.
    #[test]
    fn a_unit_that_is_switched_on_again_takes_no_state_that_it_gave_away() {
        let mut world = world_in_mode("packet");
        world.advance_to(u64::MAX - 1).unwrap();
        let (owner, former) = (UnitId(0), UnitId(1));
        let unit = &mut world.servers[owner.index()].unit;
        let (flow, _) = unit.engine().states().next().unwrap();
        let (epoch, watermark) = unit.owned(flow).unwrap();
        let mut bytes = Vec::new();
        unit.engine_mut().save(flow, &mut bytes);
        world.switch_on(former);
        let record = FlowRecord { watermark, bytes };
        world.send_between(world.now_ns, owner, former, FromPeer::State { flow, epoch: epoch - 1, record });
        assert_eq!(goes_on(world).map(|checked| checked.processed), Ok(4_500));
    }

    #[test]
    fn a_packet_that_is_forgotten_is_found() {
        let mut world = world();
        let parcel = (0..).find(|&parcel| world.parcels.get_mut(parcel).is_some()).unwrap();
        world.parcels.take(parcel);
        // Its seq is given up; everything works except the account.
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
        engine.process(0, flow, 1, Packet { came_ns: 0, at_unit_ns: 0, seq: 1, len: 1_000 });
        assert!(matches!(
            world.follow_up(UnitId(0)),
            Err(Violation::OutOfOrder { .. } | Violation::Fates { .. })
        ));
    }
}
