//! Which unit a packet goes to.

use graph::{Chain, FlowLookup};
use packet::{DropReason, Packet, PacketClass, PacketPool};
use protocol::dispatcher::{Arrival, Guess, Routed};
use protocol::message::{Stamp, UnitId};

use super::lane::ToUnit;
use super::{STEP_NS, Threads};

impl Threads {
    /// A packet that was admitted.
    pub(super) fn packet(
        &mut self,
        front: &mut Chain,
        packet: Packet,
        guess: Guess,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        if packet.meta().class == PacketClass::NotIp && front.is_refused(&packet) {
            return front.process_aside(packet, out, pool);
        }
        self.now_ns = self.now_ns.max(packet.meta().transit.timestamp_ns);
        if self.now_ns >= self.stepped_ns.saturating_add(STEP_NS) {
            self.step(front, out, pool);
        }
        if self.now_ns >= self.router.due_ns() || self.began_ns.is_none() {
            self.pass_time();
        }
        let meta = packet.meta();
        self.epochs.came(1, meta.wire_len.into());
        let arrival = Arrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
        if meta.class == PacketClass::Whole
            && let Some((unit, stamp)) = self.router.route_on(self.now_ns, arrival, guess)
        {
            return self.give(unit, stamp, packet, front, pool);
        }
        self.route(front, packet, out, pool);
    }

    /// Gives a packet to the unit that it is for.
    pub(super) fn route(
        &mut self,
        front: &mut Chain,
        mut packet: Packet,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        let (class, meta) = (packet.meta().class, packet.meta());
        let is_known = class == PacketClass::Whole && self.router.flow(meta.hash, &meta.key).is_some();
        if !is_known {
            self.settle(front, out, pool);
        }
        let way = match class {
            PacketClass::Whole => FlowLookup::Flow { key: packet.meta().key, hash: packet.meta().hash },
            _ => front.way(&mut packet, pool),
        };
        let meta = packet.meta();
        let (key, hash) = match way {
            FlowLookup::Flow { key, hash } => (key, hash),
            FlowLookup::Either { .. } if self.router.flow(meta.hash, &meta.key).is_some() => {
                (meta.key, meta.hash)
            }
            FlowLookup::Either { key, hash } => (key, hash),
            FlowLookup::Aside => return front.process_aside(packet, out, pool),
        };
        let arrival = Arrival { key: &key, hash, len: packet.meta().wire_len };
        let routed = self.router.route(self.now_ns, arrival, &mut self.orders);
        if !is_known {
            self.flows_peak = self.flows_peak.max(self.router.flows());
        }
        self.carry_out();
        let Routed::To { unit, stamp } = routed else {
            return front.drop_admitted(packet, DropReason::FlowTableFull, pool);
        };
        self.give(unit, stamp, packet, front, pool);
    }

    /// Gives a packet to its unit.
    #[inline]
    fn give(&mut self, unit: UnitId, stamp: Stamp, packet: Packet, front: &mut Chain, pool: &mut PacketPool) {
        let work_ns = self.work.ns(packet.meta().wire_len.into());
        let Some(lane) = &mut self.lanes[unit.index()] else {
            return front.drop_admitted(packet, DropReason::Internal, pool); // Those that get packets have threads.
        };
        lane.is_used = true;
        lane.push(ToUnit::Packet(self.now_ns, stamp, packet));
        self.sent += 1;
        self.epochs.given(unit, work_ns);
        self.epochs.processed(1);
    }
}
