//! The dispatcher's part of the loop: packets, messages, and its outputs.

use protocol::dispatcher::{Dispatched, DispatcherOutput, PacketArrival};
use protocol::message::{FromDispatcher, ReplicaTargets, UnitId, UnitMessage};

use super::{Event, World};
use crate::arrivals::Coming;
use crate::checks::Violation;
use crate::engine::Packet;
use crate::link::Carried;
use crate::scenario::DropPlace;
use crate::server::Parcel;
use crate::store::Store;

impl World {
    /// Dispatches the next packet.
    pub(super) fn arrive(&mut self) -> Result<(), Violation> {
        let Some(&Coming { arriving, ref key, hash }) = self.arrivals.next(&self.dispatcher) else {
            return Ok(());
        };
        self.workload.add(&arriving);
        self.intervals.came(1, arriving.len.into());
        if self.drops_at == DropPlace::Dispatcher
            && let Some(unit) = self.dispatcher.flows().owner(hash, key)
            && self.servers[unit.index()].queued() >= self.queue_max
        {
            self.tally.queue_full += 1;
            self.dispatcher.refuse_packet(self.now_ns, unit, arriving.len);
            return Ok(());
        }
        let begins_ns = self.now_ns.max(self.dispatcher_busy_until_ns);
        let arrival = PacketArrival { key, hash, len: arriving.len };
        let assignments = self.dispatcher.counters().assignments;
        let routed = self.dispatcher.handle_packet(begins_ns, arrival, &mut self.orders);
        let sent_ns = begins_ns + self.routing_ns(self.dispatcher.counters().assignments - assignments);
        self.dispatcher_busy_until_ns = sent_ns;
        self.carry_out_orders(sent_ns);
        let (unit, mut stamp) = match routed {
            Dispatched::To { unit, stamp } => (unit, stamp),
            Dispatched::Refused | Dispatched::NoUnit | Dispatched::Waits(_) => {
                self.tally.refused += 1;
                return Ok(());
            }
        };
        if self.store.as_ref().is_some_and(Store::is_told_early) {
            // The store replaces all replicas.
            stamp.targets = stamp.targets.map(|_| ReplicaTargets::ALL);
        }
        self.checks.stamped(stamp.flow, stamp.seq);
        self.intervals.given(unit, self.service.load_ns(arriving.len));
        let Carried::At(arrives_ns) = self.links.packet(sent_ns, unit) else {
            self.tally.lost += 1;
            return self.checks.lost(stamp.flow, stamp.seq);
        };
        let packet = Packet { came_ns: self.now_ns, at_unit_ns: u64::MAX, seq: stamp.seq, len: arriving.len };
        let parcel = self.parcels.add(Parcel::Packet { stamp, packet, has_read: false });
        self.events.push(arrives_ns, Event::Arrived { unit, parcel });
        Ok(())
    }

    /// Returns the dispatcher's time for a packet and a number of assignments.
    #[inline]
    fn routing_ns(&self, assignments: u64) -> u64 {
        let [packet, flowlet] = self.dispatch_cost;
        (packet.0 + flowlet.0 * assignments + 500) / 1_000
    }

    /// Executes the dispatcher's outputs, in order.
    #[inline]
    pub(super) fn carry_out_orders(&mut self, now_ns: u64) {
        if self.orders.is_empty() {
            return;
        }
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            match order {
                DispatcherOutput::Send { to, message } => self.send_to_unit(now_ns, to, message),
                DispatcherOutput::Start(unit) => {
                    self.switch_on(unit);
                    let start = self.pool.order(now_ns);
                    self.events.push(now_ns + start.ready_after_ns, Event::Ready(unit));
                    if let Some(filled_after_ns) = start.filled_after_ns {
                        self.events.push(now_ns + filled_after_ns, Event::Filled);
                    }
                }
                DispatcherOutput::Stop(unit) => self.switch_off(unit),
                // There are no groups here, and no operator.
                DispatcherOutput::GroupSettled(_) | DispatcherOutput::Replicated(_) => {}
            }
        }
        self.orders = orders;
    }

    /// Sends a message to a unit: in order with packets, or past them (S18).
    fn send_to_unit(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher) {
        let arrives_ns = self.links.message(now_ns, unit);
        let lane = message.lane();
        self.messages += 1;
        let parcel = self.parcels.add(Parcel::ToUnit(UnitMessage::FromDispatcher(message)));
        self.events.push(arrives_ns, Event::to_unit(unit, parcel, lane));
    }

    /// Handles a message at the dispatcher.
    pub(super) fn come_back(&mut self, parcel: u32) {
        if let Some(Parcel::ToDispatcher(from, message)) = self.parcels.take(parcel) {
            self.messages -= 1;
            self.dispatcher.handle_message(self.now_ns, from, message, &mut self.orders);
            self.carry_out_orders(self.now_ns);
        }
    }

    /// Starts to charge for a unit. It keeps its tombstones while it is off, so that no late
    /// message begins a flow again (design.md 3.3).
    pub(super) fn switch_on(&mut self, unit: UnitId) {
        self.intervals.set_on(self.now_ns, unit, true);
    }

    pub(super) fn make_ready(&mut self, unit: UnitId) {
        self.servers[unit.index()].is_ready = true;
        self.intervals.set_ready(self.now_ns, unit, true);
    }

    /// Stops to charge for a unit. It forwards what is still on its way to it.
    fn switch_off(&mut self, unit: UnitId) {
        self.pool.give_back(self.now_ns);
        self.servers[unit.index()].is_ready = false;
        self.intervals.set_ready(self.now_ns, unit, false);
        self.intervals.set_on(self.now_ns, unit, false);
    }
}
