//! The units' part of the loop: one thing at a time, each with its duration.

use protocol::message::{FromDispatcher, UnitId, UnitMessage};

use super::{Event, World};
use crate::checks::Violation;
use crate::engine::Processed;
use crate::server::Parcel;

impl World {
    /// Handles the arrival of a packet at a unit.
    pub(super) fn arrive_at_unit(&mut self, unit: UnitId, parcel: u32) -> Result<(), Violation> {
        if self.servers[unit.index()].queued() < self.queue_max {
            return self.queue(unit, parcel);
        }
        let Some(Parcel::Packet { stamp, .. }) = self.parcels.take(parcel) else { return Ok(()) };
        self.tally.queue_full += 1;
        self.dispatcher.count_drops(self.now_ns, unit, 1);
        self.checks.dropped(stamp.flow, stamp.seq)
    }

    /// Adds a parcel to a unit's queue.
    #[inline]
    pub(super) fn queue(&mut self, unit: UnitId, parcel: u32) -> Result<(), Violation> {
        let index = self.flow_index_of(parcel);
        let server = &mut self.servers[unit.index()];
        server.queue(parcel, index, self.now_ns);
        self.intervals.queued(server.queued());
        self.serve(unit)
    }

    /// Adds a parcel before a unit's queue.
    #[inline]
    pub(super) fn deliver(&mut self, unit: UnitId, parcel: u32) {
        let index = self.flow_index_of(parcel);
        self.servers[unit.index()].deliver(parcel, index);
    }

    /// Returns the index of a parcel's flow; any if it has none.
    #[inline]
    fn flow_index_of(&self, parcel: u32) -> u32 {
        self.parcels.get(parcel).and_then(Parcel::flow_index).unwrap_or_default()
    }

    /// Serves a unit's parcels and timers, one after the other, until one takes time.
    pub(super) fn serve(&mut self, unit: UnitId) -> Result<(), Violation> {
        let now_ns = self.now_ns;
        loop {
            let server = &mut self.servers[unit.index()];
            if server.free_ns() > now_ns {
                break;
            }
            // Messages first: one may make a timer unnecessary.
            let has_message = server.has_message();
            if !has_message && server.unit.next_timeout_ns() <= now_ns {
                server.unit.handle_timeout(now_ns, &mut self.outbox);
                self.follow_up(unit)?;
            } else if let Some((parcel, since_ns)) = server.next() {
                server.prefetch(&self.parcels);
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

    /// Handles a parcel that was in the unit's queue since then.
    #[inline]
    fn handle(&mut self, unit: UnitId, parcel: u32, since_ns: u64) -> Result<(), Violation> {
        let (now_ns, server) = (self.now_ns, &mut self.servers[unit.index()]);
        match self.parcels.take(parcel) {
            Some(Parcel::Packet { stamp, mut packet, has_read }) => {
                packet.at_unit_ns = packet.at_unit_ns.min(since_ns);
                server.unit.handle_packet(now_ns, stamp, packet, &mut self.outbox);
                self.follow_up(unit)?;
                if has_read {
                    self.accessed(unit, stamp.flow);
                }
                Ok(())
            }
            Some(Parcel::ToUnit(message)) => {
                self.messages -= 1;
                let released = match message {
                    UnitMessage::FromDispatcher(FromDispatcher::Release {
                        flow, epoch, owner, last, ..
                    }) => Some((flow, (epoch, owner, last))),
                    _ => None,
                };
                server.unit.engine_mut().take_messages(now_ns, 1);
                server.unit.handle_message(now_ns, message, &mut self.outbox);
                if let Some((flow, next)) = released {
                    self.flush(unit, flow, next);
                }
                self.follow_up(unit)
            }
            Some(Parcel::ToDispatcher(..)) | None => Ok(()),
        }
    }

    /// Schedules the unit's next activity.
    #[inline]
    fn set_alarms(&mut self, unit: UnitId) {
        let server = &mut self.servers[unit.index()];
        let free_ns = server.free_ns().max(self.now_ns);
        if server.has_next() && server.wake_ns > free_ns {
            server.wake_ns = free_ns;
            self.events.push(free_ns, Event::Wake(unit));
        }
        let due_ns = server.unit.next_timeout_ns();
        if due_ns != u64::MAX && server.timer_ns > due_ns.max(free_ns) {
            server.timer_ns = due_ns.max(free_ns);
            self.events.push(server.timer_ns, Event::Timer(unit));
        }
    }

    /// Applies the consequences of a unit's activity once it is done.
    #[inline]
    pub(super) fn follow_up(&mut self, unit: UnitId) -> Result<(), Violation> {
        let others = || self.servers.iter().filter(|server| server.is_ready).count().saturating_sub(1);
        let to_all = if self.outbox.to_all.is_empty() { 0 } else { self.outbox.to_all.len() * others() };
        let engine = self.servers[unit.index()].unit.engine_mut();
        engine.take_messages(self.now_ns, self.outbox.to_units.len() + to_all);
        let done_ns = engine.done_ns().max(self.now_ns);
        if engine.has_news() {
            self.note_news(unit)?;
        }
        if self.outbox.is_empty() {
            return Ok(());
        }
        self.send_outbox(done_ns, unit)
    }

    /// Records the packets that a unit has processed, and the flows that it has ended.
    #[inline]
    fn note_news(&mut self, unit: UnitId) -> Result<(), Violation> {
        let unit_of = &mut self.servers[unit.index()].unit;
        let mut processed = std::mem::take(&mut self.processed);
        unit_of.flush(|done| processed.extend(done.effects));
        let mut ended = unit_of.engine_mut().take_ended(std::mem::take(&mut self.ended));
        for done in processed.drain(..) {
            self.checks.processed(unit, &done)?;
            self.intervals.processed(1);
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
        Ok(())
    }

    /// Records a packet that leaves its unit.
    #[inline]
    pub(super) fn released(&mut self, done: &Processed, at_ns: u64) {
        if done.packet.came_ns >= self.run.warm_up.0 {
            self.at_unit.add(at_ns - done.packet.at_unit_ns.min(at_ns));
            self.end_to_end.add(at_ns - done.packet.came_ns);
        }
    }
}
