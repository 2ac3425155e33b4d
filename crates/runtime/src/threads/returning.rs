//! What units send back: what has become of packets, and what they left when they ended.

use std::thread::JoinHandle;

use graph::Chain;
use packet::{Packet, PacketPool};
use protocol::message::UnitId;

use super::Threads;
use super::lane::{Lane, Return};

impl Threads {
    /// Takes what units have sent.
    pub(super) fn take_returns(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        self.lanes.iter_mut().flatten().for_each(Lane::pump);
        while let Ok(back) = self.returned.try_recv() {
            self.take(*back, front, out, pool);
        }
        let mut failed = None;
        for (unit, lane) in (0..).map(UnitId).zip(&mut self.lanes) {
            let Some(lane) = lane else { continue };
            if lane.thread.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(thread) = lane.thread.take()
            {
                match thread.join() {
                    Ok(Some(left)) => self.left.push(left),
                    Ok(None) => failed = Some(unit),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
        // It could not be started: the others go on without it.
        if let Some(unit) = failed {
            self.lanes[unit.index()] = None;
            let since_ns = self.since_ns(self.now_ns);
            self.epochs.set_on(since_ns, unit, false);
        }
        // What a thread sent right before it ended.
        while let Ok(back) = self.returned.try_recv() {
            self.take(*back, front, out, pool);
        }
        if self.is_starting_over {
            return; // They wait until the others have started over.
        }
        for packet in std::mem::take(&mut self.again) {
            self.route(front, packet, out, pool);
        }
    }

    /// What has become of packets at a unit.
    fn take(&mut self, back: Return, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let Return {
            unit,
            is_ready,
            has_failed,
            lost,
            aliases,
            fragments,
            messages,
            out: leaving,
            buffers,
            effects,
            through,
            due_ns,
            has_answered,
        } = back;
        self.has_failed |= has_failed;
        pool.replace_lost(lost as usize);
        if is_ready && let Some(lane) = &mut self.lanes[unit.index()] {
            lane.is_ready = true;
            self.starts_ns.push(lane.ordered.elapsed().as_nanos() as u64);
            self.set_ready(unit);
        }
        // Known to the router before the packet that created it leaves (DESIGN 3.8). The unit's
        // chain has looked among its own flows only: if one at another unit has the key, the one
        // that came last gets it.
        for (flow, key, hash) in aliases {
            self.router.take_alias(flow, &key, hash, &mut self.orders);
        }
        for (datagram, passed, at_ns) in fragments {
            front.learn_first(datagram, passed, at_ns, &mut self.again);
        }
        for message in messages {
            self.router.receive(self.now_ns, unit, message, &mut self.orders);
        }
        self.carry_out();
        // The unit's core has them still.
        leaving.iter().for_each(Packet::prefetch);
        out.extend(leaving);
        buffers.into_iter().for_each(|packet| pool.give(packet));
        self.effects.extend(effects.map(|effects| *effects));
        if let Some(lane) = &mut self.lanes[unit.index()] {
            self.through += through - lane.through;
            lane.through = through;
            lane.due_ns = due_ns;
        }
        if has_answered && let Some(lane) = &mut self.lanes[unit.index()] {
            lane.is_behind = false;
        }
    }
}
