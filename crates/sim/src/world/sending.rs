//! Messages of units, and packets that they do not process.

use protocol::message::{FromPeer, UnitId, UnitMessage};
use protocol::unit::DropCause;

use super::{Event, World};
use crate::checks::Violation;
use crate::link::{Cargo, Carried};
use crate::server::Delivery;

impl World {
    pub(super) fn send_outbox(&mut self, now_ns: u64, unit: UnitId) -> Result<(), Violation> {
        let mut outbox = std::mem::take(&mut self.outbox);
        for message in outbox.to_dispatcher.drain(..) {
            let arrivals = self.links.message_to_dispatcher(now_ns, unit);
            for arrives_ns in arrivals.into_iter().flatten() {
                self.messages += 1;
                let delivery = self.deliveries.add(Delivery::ToDispatcher(unit, message.clone()));
                self.events.push(arrives_ns, Event::Returned { delivery });
            }
        }
        for (to, message) in outbox.to_units.drain(..) {
            if let Some(message) = self.send_by_store(now_ns, unit, to, message) {
                self.send_between(now_ns, unit, to, message);
            }
        }
        for message in outbox.to_all.drain(..) {
            if self.store.is_some() {
                if let FromPeer::Replicate { flow, record, .. } = message {
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
                    let delivery = self.deliveries.add(Delivery::Packet { stamp, packet, has_read: false });
                    self.events.push(arrives_ns, Event::Arrived { unit: to, delivery });
                }
                Carried::Lost => {
                    self.tally.lost += 1;
                    self.checks.lost(stamp.flow, stamp.seq)?;
                }
            }
        }
        for (reason, stamp, _) in outbox.dropped.drain(..) {
            // design.md 3.10: a move loses nothing.
            if reason == DropCause::Stale && self.is_in_order {
                return Err(Violation::Late { flow: stamp.flow, seq: stamp.seq });
            }
            self.checks.dropped(stamp.flow, stamp.seq)?;
        }
        self.outbox = outbox;
        Ok(())
    }

    pub(super) fn send_between(&mut self, now_ns: u64, from: UnitId, to: UnitId, message: FromPeer) {
        let bytes = message.state_bytes();
        let cargo = match (&message, bytes) {
            (_, None) => Cargo::None,
            (FromPeer::Replicate { .. } | FromPeer::Delta { .. }, Some(bytes)) => {
                self.tally.replicas += 1;
                self.tally.replica_bytes += bytes as u64;
                self.tally.deltas += u64::from(matches!(message, FromPeer::Delta { .. }));
                Cargo::Copy(bytes)
            }
            (_, Some(bytes)) => Cargo::State(bytes),
        };
        let [first_ns, again_ns] = self.links.message_between(now_ns, from, to, cargo);
        let lane = message.lane();
        let mut send = |arrives_ns, message| {
            let delivery = self.add_message(from, message);
            self.events.push(arrives_ns, Event::to_unit(to, delivery, lane));
        };
        if let Some(again_ns) = again_ns {
            send(again_ns, message.clone());
        }
        if let Some(first_ns) = first_ns {
            send(first_ns, message);
        }
    }

    pub(super) fn add_message(&mut self, from: UnitId, message: FromPeer) -> u32 {
        self.messages += 1;
        self.deliveries.add(Delivery::ToUnit(UnitMessage::FromPeer(from, message)))
    }
}
