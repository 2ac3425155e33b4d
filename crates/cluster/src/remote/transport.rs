//! The transport of a dispatcher to units at other nodes.

use std::os::fd::BorrowedFd;

use nf::AffinityGroup;
use packet::{DropReason, FlowKey, Packet};
use protocol::dispatcher::AliasChange;
use protocol::message::{FlowId, FromDispatcher, Stamp, UnitId};
use protocol::unit::Counters;
use runtime::elastic::UnitsReport;
use runtime::report::Report;
use runtime::transport::{
    Absent, Barrier, Federation, Fleet, LocalGraph, Redirect, Return, RouteStage, Started, ToUnit, Transport,
    UnitChange, UnitLink, UnitNodes, UnitReports,
};

use super::nodes::NodeStatus;
use super::units::RemoteUnit;
use super::{IN_FLIGHT_MAX, RemoteUnits, TIME_NS, WAIT};
use crate::network::Network;
use crate::peers::ORDERED;
use crate::wire::{write_input, write_packet_input, write_part, write_released, write_stopped};

impl<N: Network> UnitLink for RemoteUnits<N> {
    type Access<'a> = &'a mut LocalGraph;

    fn core(&mut self) -> &mut LocalGraph {
        &mut self.local
    }

    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet) {
        self.now_ns = now_ns;
        let Some(unit) = self.units.alive_mut(unit) else {
            // The dispatcher does not know of the loss yet.
            return self.local.drop_packet(packet, DropReason::UnitLost);
        };
        let stream = self.streams.of(stamp.flow);
        self.peers.send(unit.peer, stream, |out| write_packet_input(out, &stamp, &packet));
        self.local.pool.give(packet);
        self.is_busy = true;
        unit.sent += 1;
        self.has_full_units |= self.config.is_live && unit.is_full();
    }

    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher) {
        self.now_ns = now_ns;
        let Some(unit) = self.units.alive_mut(unit) else { return };
        let stream = message.flow().map_or(ORDERED, |flow| self.streams.of(flow));
        let input = ToUnit::Message(now_ns, message);
        self.peers.send(unit.peer, stream, |out| write_input(out, &input));
    }

    fn receive(&mut self) -> Option<Box<Return>> {
        self.has_full_units = self.has_full_units && self.units.iter().any(RemoteUnit::is_full);
        let has_others = self.homes.has_others();
        if has_others {
            self.drop_stale();
            self.homes.release_held(&mut self.local.out);
        }
        let mut report = self.units.next_report()?;
        match has_others {
            true => self.homes.hold(&mut report.out),
            false => self.local.out.append(&mut report.out),
        }
        Some(report)
    }

    fn end_batch(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.replace_graph();
        self.local.graph.handle_timeout(now_ns, &mut self.local.pool);
        if now_ns >= self.clock_sent_ns.saturating_add(TIME_NS) {
            self.clock_sent_ns = now_ns;
            self.broadcast_time(now_ns);
        }
        if std::mem::take(&mut self.is_busy) { self.work_on() } else { self.work() }
    }

    fn has_pending(&self) -> bool {
        self.units.in_flight() > 0 || self.homes.held.count > 0
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.broadcast_time(now_ns);
        self.work();
    }

    /// Units have clocks of their own.
    fn next_timeout_ns(&self) -> u64 {
        u64::MAX
    }
}

impl<N: Network> Fleet for RemoteUnits<N> {
    fn is_ready(&self, unit: UnitId, _units_min: u16) -> bool {
        self.units.get(unit).is_some_and(|unit| unit.is_ready && unit.is_alive)
    }

    fn start(&mut self, unit: UnitId) -> Started {
        match self.units.get(unit) {
            Some(known) if known.is_alive && known.is_ready => {
                self.nodes.set_spare(unit, false);
                return Started::Ready;
            }
            Some(_) => return Started::Unchanged,
            None => {}
        }
        if self.assign(unit) {
            return Started::Pending;
        }
        if !self.wanted.contains(&unit) {
            self.wanted.push_back(unit);
        }
        Started::Unchanged
    }

    fn control(&mut self, stage: usize, command: &str) {
        self.controls.push((stage, command.to_owned()));
        self.broadcast(&ToUnit::Control(stage, command.into()));
    }

    fn poll_change(&mut self) -> Option<UnitChange> {
        self.changes.pop_front()
    }

    fn finish(&mut self) {
        (self.is_finishing, self.homes.is_closed) = (true, true);
        self.ask(&ToUnit::Finish);
    }

    fn has_finished(&mut self) -> bool {
        self.work();
        let is_over = self.units.is_idle() && !self.has_unanswered() && self.homes.held.count == 0;
        let has_finished = is_over && self.has_parted();
        if has_finished {
            // Until now they have relayed messages that others waited for.
            self.units.alive().for_each(|unit| self.peers.send(unit.peer, ORDERED, write_stopped));
            self.peers.transmit();
            self.part_from_others();
            self.show_status();
            self.local.graph.sharing().part();
        }
        has_finished
    }
}

impl<N: Network> Transport for RemoteUnits<N> {
    type FastLane = Absent;
    type Barrier = Self;
    type Nodes = Self;
    type Federation = Self;

    #[inline(always)]
    fn fast_lane(&mut self) -> Option<&mut Absent> {
        None
    }

    #[inline(always)]
    fn barrier(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    #[inline(always)]
    fn nodes(&self) -> Option<&Self> {
        Some(self)
    }

    #[inline(always)]
    fn nodes_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn federation(&mut self) -> Option<&mut Self> {
        self.homes.has_others().then_some(self)
    }
}

impl<N: Network> UnitReports for RemoteUnits<N> {
    fn is_deferred(&self) -> bool {
        true
    }

    fn ask_for_figures(&mut self) {
        self.broadcast(&ToUnit::Figures);
        self.work();
    }

    fn unit_counters(&self) -> Vec<Counters> {
        self.units.iter().map(|unit| unit.figures.counters).collect()
    }

    fn add_to_units_report(&self, report: &mut UnitsReport) {
        let (passed, unaccounted) = self.homes.passed();
        (report.packets_passed_on, report.packets_taken_over) = (passed.passed_on, self.homes.taken_over);
        report.packets_unaccounted = unaccounted;
        report.nodes = NodeStatus::ALL.map(|status| (status.name(), 0)).into();
        for node in self.nodes.infos(|_| None, |peer| self.peers.suspect_ns(peer)) {
            *report.nodes.entry(node.status.name()).or_default() += 1;
        }
        let store = self.control.store();
        report.store_reachable = store.as_ref().map(|store| u64::from(store.is_reachable));
        report.store_entries = store.map(|store| store.entries);
    }

    fn add_to_report(&self, report: &mut Report, names: &[String]) {
        for graph in &self.former_graphs {
            report.add(&Report::of("", None, graph, names));
        }
        self.units.add_to(report);
        report.links = Some(self.links_report());
        report.packets_pending += self.homes.arrived.len() as u64;
        let drops = [
            (DropReason::DispatcherLost, self.homes.passed().0.lost),
            (DropReason::Internal, self.homes.unreadable),
        ];
        for (reason, count) in drops.into_iter().filter(|(_, count)| *count > 0) {
            *report.drops.entry(reason.name()).or_default() += count;
        }
    }
}

impl<N: Network> Barrier for RemoteUnits<N> {
    fn wait(&mut self) {
        self.peers.transmit();
        if self.units.is_idle() {
            self.note_awaited();
            self.peers.wait(WAIT);
        }
        self.work();
    }

    fn is_full(&self) -> bool {
        // Packets for a suspect unit of a live run are limited per unit, and do not block others.
        let is_held_up = self.config.is_live && self.units.has_suspect();
        let in_flight = if is_held_up { 0 } else { self.units.in_flight() };
        in_flight + self.homes.held.count as u64 >= IN_FLIGHT_MAX
    }

    fn drain_messages(&mut self) {
        self.ask(&ToUnit::Answer);
    }

    fn has_unanswered(&self) -> bool {
        self.units.iter().any(|unit| unit.is_behind)
    }

    fn is_moving(&self) -> bool {
        false
    }

    fn has_failed(&self) -> bool {
        self.units.has_failed
    }

    fn reset_units(&mut self) {
        self.units.has_failed = false;
        self.ask(&ToUnit::Reset);
    }

    fn resume_units(&mut self) {
        self.ask(&ToUnit::Resume);
    }
}

impl<N: Network> UnitNodes for RemoteUnits<N> {
    fn begin(&mut self, flow: FlowId, group: Option<AffinityGroup>) {
        self.streams.begin(flow, group);
    }

    fn stopped(&mut self, unit: UnitId) -> bool {
        let Some(stopped) = self.units.get(unit) else { return true };
        let (node, peer) = (stopped.node, stopped.peer);
        // A unit without a node waits for one: it gets this one.
        let is_needed = !self.wanted.is_empty() && self.nodes.renew(node, self.peers.now_ns());
        if !is_needed && !self.nodes.has_drained(node) {
            self.nodes.set_spare(unit, true);
            return true;
        }
        self.peers.send(peer, ORDERED, write_stopped);
        if is_needed {
            self.peers.send(peer, ORDERED, write_part);
        }
        false
    }

    fn set_draining(&mut self, unit: UnitId, is_draining: bool) {
        self.nodes.set_draining(unit, is_draining);
    }

    fn has_spare(&self) -> bool {
        self.nodes.count(NodeStatus::Spare) > 0
    }

    fn has_full_units(&self) -> bool {
        self.has_full_units
    }

    fn is_unit_full(&self, unit: UnitId) -> bool {
        self.units.get(unit).is_some_and(RemoteUnit::is_full)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.peers.event().filter(|_| self.homes.has_others() || self.has_pending())
    }
}

impl<N: Network> Federation for RemoteUnits<N> {
    fn redirect_datagram(&self, hash: u64) -> Option<u16> {
        self.homes.redirect_datagram(hash)
    }

    fn redirect(
        &mut self,
        key: &FlowKey,
        hash: u64,
        group: Option<AffinityGroup>,
        stage: RouteStage,
    ) -> Option<Redirect> {
        if stage == RouteStage::Owner && !self.homes.has_claimed(key) {
            // The sender does not know yet that the flow has ended.
            let links: Vec<_> = self.homes.links().collect();
            links.iter().for_each(|&peer| self.peers.send(peer, ORDERED, |out| write_released(out, key)));
        }
        self.homes.redirect(key, hash, group, stage)
    }

    fn pass_on(&mut self, to: Redirect, packet: Packet) {
        self.pass(to, packet);
    }

    fn take_passed(&mut self) -> Option<(Packet, RouteStage)> {
        self.homes.arrived.pop_front()
    }

    fn announce(&mut self, change: AliasChange) {
        self.announce_alias(change);
    }

    fn poll_claimed(&mut self) -> Option<FlowKey> {
        self.homes.taken.pop_front()
    }
}
