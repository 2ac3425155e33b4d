//! Units and a store of states (S93, S94).
//!
//! The ownership protocol is unchanged, but states travel through the store: an owner writes the
//! state when it is released and done, instead of sending it; a new owner reads it, instead of
//! pulling it, and waits for it. A packet that waits for the store blocks only packets of its flow,
//! not its unit.

use protocol::message::{
    FlowId, FlowRecord, FromDispatcher, FromPeer, Stamp, UnitId, UnitMessage, Watermark,
};

use super::{Event, World};
use crate::checks::Violation;
use crate::engine::Processed;
use crate::scenario::StatePlace;
use crate::server::Parcel;
use crate::store::{Fetch, Request};

impl World {
    /// Returns true if a parcel must wait for the store, or for an earlier parcel that does.
    pub(super) fn waits_for_store(&mut self, unit: UnitId, parcel: u32, since_ns: u64) -> bool {
        let Some(store) = &mut self.store else { return false };
        let flow = match self.parcels.get_mut(parcel) {
            Some(Parcel::Packet { stamp, packet, .. }) => {
                packet.at_unit_ns = packet.at_unit_ns.min(since_ns);
                stamp.flow
            }
            Some(Parcel::ToUnit(
                UnitMessage::FromDispatcher(
                    FromDispatcher::Release { flow, .. } | FromDispatcher::End { flow },
                )
                | UnitMessage::FromPeer(_, FromPeer::Pull { flow, .. } | FromPeer::End { flow, .. }),
            )) => *flow,
            _ => return false,
        };
        if let Some(line) = store.line(unit, flow) {
            line.parcels.push_back(parcel);
            return true;
        }
        self.reads(unit, parcel)
    }

    /// Begins to read the state for a packet, if necessary.
    fn reads(&mut self, unit: UnitId, parcel: u32) -> bool {
        let Some(Parcel::Packet { stamp, .. }) = self.parcels.get(parcel) else { return false };
        let stamp = *stamp;
        if !self.is_to_read(unit, &stamp) {
            return false;
        }
        if let Some(store) = &mut self.store {
            store.begin(unit, stamp.flow);
        }
        self.ask_store(self.now_ns, unit, Request::Read { unit, parcel });
        true
    }

    /// Returns true if a packet must read a state that its unit already had. Otherwise the unit
    /// fetches the state anyway.
    fn is_to_read(&self, unit: UnitId, stamp: &Stamp) -> bool {
        let is_used = self.store.as_ref().is_some_and(|store| match store.use_.place {
            StatePlace::StoreNaive => true,
            StatePlace::Store => {
                store.use_.reread && stamp.targets.is_some_and(|targets| !targets.are_at_once())
            }
            StatePlace::Unit | StatePlace::Reactive => false,
        });
        let owned = || self.servers[unit.index()].unit.owned(stamp.flow);
        is_used && owned().is_some_and(|(epoch, _)| epoch == stamp.epoch)
    }

    fn ask_store(&mut self, now_ns: u64, unit: UnitId, request: Request) {
        let arrives_ns = self.links.request(now_ns, unit);
        self.messages += u64::from(request.is_awaited());
        let request = self.requests.add(request);
        self.events.push(arrives_ns, Event::AtStore { request });
    }

    /// Sends a message between units by way of the store, if it is about a state; else returns it.
    pub(super) fn send_by_store(
        &mut self,
        now_ns: u64,
        from: UnitId,
        to: UnitId,
        message: FromPeer,
    ) -> Option<FromPeer> {
        let Some(store) = &mut self.store else { return Some(message) };
        match message {
            FromPeer::Pull { flow, epoch, owner, last, .. } => {
                let fetch = Fetch { unit: owner, epoch, flow, previous: to, last };
                self.ask_store(now_ns, from, Request::Fetch(fetch));
                None
            }
            FromPeer::State { flow, epoch, record } if store.is_first(flow, epoch) => {
                self.push(now_ns, from, flow, record);
                None
            }
            // Also a state that no unit has taken: its owner may not know that it owns the flow.
            other => Some(other),
        }
    }

    /// Writes a unit's state, unless it is there already.
    pub(super) fn push(&mut self, now_ns: u64, unit: UnitId, flow: FlowId, record: FlowRecord) {
        let seq = record.watermark.contiguous;
        if self.store.as_mut().is_some_and(|store| store.is_news(flow, seq)) {
            self.ask_store(now_ns, unit, Request::Push { flow, record });
        }
    }

    /// Begins to write the state after a packet. Returns true if the packet waits for that.
    #[inline]
    pub(super) fn writes(&mut self, unit: UnitId, done: &Processed) -> bool {
        let Some(store) = self.store.as_mut().filter(|store| store.is_naive()) else { return false };
        store.begin(unit, done.flow);
        store.is_news(done.flow, done.packet.seq);
        let bytes = self.servers[unit.index()].unit.engine().bytes_after(done);
        let record = FlowRecord { watermark: Watermark::up_to(done.packet.seq), bytes };
        self.ask_store(done.done_ns, unit, Request::Write { unit, done: *done, record });
        true
    }

    /// Writes a state as soon as its former owner is done.
    pub(super) fn flush(&mut self, unit: UnitId, flow: FlowId, (epoch, owner, last): (u32, UnitId, u64)) {
        if self.store.is_some() {
            let message = FromPeer::Pull { flow, epoch, owner, last, again: false, has: None };
            let message = UnitMessage::FromPeer(owner, message);
            self.servers[unit.index()].unit.handle_message(self.now_ns, message, &mut self.outbox);
        }
    }

    /// Serves a request at the store.
    pub(super) fn at_store(&mut self, request: u32) {
        let (Some(store), Some(asked)) = (&mut self.store, self.requests.take(request)) else { return };
        let done_ns = store.serve(self.now_ns);
        self.messages -= u64::from(asked.is_awaited());
        let (back, ready) = match asked {
            Request::Read { .. } => {
                store.read(self.state_len.all);
                (Some(asked), Vec::new())
            }
            Request::Write { unit, done, record } => {
                let ready = store.write(done.flow, record);
                (Some(Request::Write { unit, done, record: FlowRecord::default() }), ready)
            }
            Request::Push { flow, record } => (None, store.write(flow, record)),
            Request::Fetch(fetch) => {
                (None, store.fetch(fetch).map(|record| (fetch, record)).into_iter().collect())
            }
        };
        if let Some(Request::Read { unit, .. } | Request::Write { unit, .. }) = back {
            let arrives_ns = self.links.answer(done_ns, unit);
            self.messages += 1;
            let request = back.map(|back| self.requests.add(back)).unwrap_or_default();
            self.events.push(arrives_ns, Event::FromStore { request });
        }
        for (Fetch { unit, epoch, flow, previous, .. }, record) in ready {
            let arrives_ns = self.links.answer(done_ns, unit);
            let parcel = self.add_message(previous, FromPeer::State { flow, epoch, record });
            self.events.push(arrives_ns, Event::Delivered { unit, parcel });
        }
    }

    /// Handles the store's answer at a unit.
    pub(super) fn store_answers(&mut self, request: u32) -> Result<(), Violation> {
        let Some(answered) = self.requests.take(request) else { return Ok(()) };
        self.messages -= 1;
        match answered {
            Request::Read { unit, parcel } => {
                if let Some(Parcel::Packet { has_read, .. }) = self.parcels.get_mut(parcel) {
                    *has_read = true;
                }
                self.deliver(unit, parcel);
                self.serve(unit)
            }
            Request::Write { unit, done, .. } => {
                self.released(&done, self.now_ns);
                self.accessed(unit, done.flow);
                self.serve(unit)
            }
            Request::Push { .. } | Request::Fetch(_) => Ok(()),
        }
    }

    /// Finishes an access, and resumes parcels that waited for it.
    pub(super) fn accessed(&mut self, unit: UnitId, flow: FlowId) {
        if let Some(store) = &mut self.store {
            store.finish(unit, flow);
        }
        while let Some(parcel) = self.store.as_mut().and_then(|store| store.next_in_line(unit, flow)) {
            if !self.reads(unit, parcel) {
                self.deliver(unit, parcel);
            }
        }
    }
}
