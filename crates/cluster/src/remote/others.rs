//! The links to other dispatchers.

use packet::{DropReason, Packet, PacketClass};
use protocol::dispatcher::AliasChange;
use runtime::transport::{LocalGraph, Redirect};
use telemetry::{event, refuse_peer};

use super::homes::{HomeTable, PASSED_MAX};
use super::{BUFFERS_MORE, RemoteUnits};
use crate::identity::Session;
use crate::network::Network;
use crate::peers::{ORDERED, PeerId, stream_of};
use crate::wire::{
    ArrivedFrame, FrameError, PolicyFrame, write_claim, write_passed, write_policy_frame, write_released,
    write_taken,
};

/// Limit on the time for other dispatchers to settle their accounts at the end, and again to
/// acknowledge the last message. A dead link is detected earlier.
const PART_NS: u64 = 2_000_000_000;

/// Takes a frame of another dispatcher. Returns the number of the claim to grant, if any.
pub(super) fn take(
    homes: &mut HomeTable,
    local: &mut LocalGraph,
    now_ns: u64,
    (peer, frame): (PeerId, ArrivedFrame<'_>),
) -> Result<Option<u64>, FrameError> {
    let number = homes.at(peer).ok_or(FrameError::Invalid("sender"))?;
    homes.get_mut(number).account.receive_other();
    match frame {
        // The missing acknowledgement shows the sender that it was not taken over.
        ArrivedFrame::Passed(..) if homes.is_closed => {}
        ArrivedFrame::Passed(stage, packet) => {
            homes.get_mut(number).account.take();
            homes.taken_over += 1;
            if local.pool.free() == 0 {
                local.pool.fill(BUFFERS_MORE);
            }
            // The other dispatcher's clock has no meaning here.
            let packet = crate::wire::packets::ArrivedPacket { timestamp_ns: now_ns, ..packet };
            let packet = packet.into_packet(homes.taken_over, &local.graph, &mut local.pool);
            match packet {
                Some(packet) if homes.arrived.len() < PASSED_MAX => homes.arrived.push_back((packet, stage)),
                Some(packet) => local.drop_packet(packet, DropReason::DispatcherBehind),
                None => {
                    homes.unreadable += 1; // Its dispatcher could parse it.
                    return Err(FrameError::Invalid("packet"));
                }
            }
        }
        ArrivedFrame::Claim(claim) => {
            homes.claimed_by(number, claim.time, claim.key);
            return Ok(Some(claim.number));
        }
        ArrivedFrame::Granted(claim) => {
            let home = homes.get_mut(number);
            home.granted = home.granted.max(claim);
        }
        ArrivedFrame::Released(key) => homes.released_by(number, &key),
        _ => return Err(FrameError::Invalid("sender")),
    }
    Ok(None)
}

impl<N: Network> RemoteUnits<N> {
    /// Connects to the dispatchers that this one must connect to.
    pub(super) fn connect_to_others(&mut self) {
        let (scope, network) = (self.homes.scope(), self.peers.network());
        self.homes.to_connect().for_each(|home| network.connect(&scope, &home.name, &home.address));
    }

    /// Looks for another process of a suspect node, or stops when the node is no longer suspect.
    pub(super) fn look_for_another(&mut self, peer: PeerId, is_suspect: bool) {
        let (scope, place) = match self.homes.to_connect().find(|home| home.link == Some(peer)) {
            Some(home) => (self.homes.scope(), Some((home.name.clone(), home.address.clone()))),
            None => (String::new(), self.nodes.place_of(peer)),
        };
        let Some((name, address)) = place.filter(|_| !self.is_finishing) else { return };
        match is_suspect {
            true => self.peers.network().connect(&scope, &name, &address),
            false => self.peers.network().forget(&scope, &name),
        }
    }

    /// Handles a session with another dispatcher.
    pub(super) fn meet(&mut self, session: Session) {
        let name = session.peer.name.clone();
        let Some(number) = self.homes.number_of(&name) else {
            let peer = format_args!("{name} at {}", session.ends.remote);
            return refuse_peer("name", &peer, &"this dispatcher knows no other of this name");
        };
        if session.scope != self.homes.scope() {
            let (others, own) = (&session.scope, self.homes.scope());
            let reason = format_args!("it knows the dispatchers `{others}`, this one `{own}`");
            return refuse_peer("dispatchers", &format_args!("{name} at {}", session.ends.remote), &reason);
        }
        let is_client = session.is_client;
        let link = self.homes.get_mut(number).link.filter(|_| is_client);
        if link.is_some_and(|link| self.peers.is_of(link, &session)) {
            return; // It was suspect. It is the same process; its link continues.
        }
        event::peer_connected(&name, &session.ends.remote);
        if self.homes.parted_ns.is_some() {
            return; // This dispatcher is about to end.
        }
        let policy = session.peer.running();
        let peer = self.peers.add(session);
        self.homes.add_early(number, peer, policy);
        // The connecting end uses the link at once. The other end may have abandoned the handshake
        // in the meantime; only a datagram proves that it has not.
        match is_client {
            true => self.activate_other(peer),
            false => self.peers.hold(peer, true),
        }
    }

    /// Puts the new link of another dispatcher into use, in place of its former one: the other end
    /// has lost that one, although this end may not know it yet.
    pub(super) fn activate_other(&mut self, peer: PeerId) {
        let Some((number, policy)) = self.homes.take_early(peer) else { return };
        if let Some(former) = self.homes.get_mut(number).link {
            self.peers.remove(former);
            self.homes.lost(former);
        }
        let (incarnation, now_ns) = (self.peers.incarnation(peer), self.peers.now_ns());
        let home = self.homes.get_mut(number);
        (home.policy, home.fault) = (Some(policy), String::new());
        home.account.begin(incarnation);
        let taken = home.account.acknowledge(now_ns);
        self.peers.send(peer, ORDERED, |out| write_taken(out, taken, false));
        let runs = PolicyFrame::Runs(self.desk.present.id);
        self.peers.send(peer, ORDERED, |out| write_policy_frame(out, &runs));
        self.peers.hold(peer, false);
        for claim in self.homes.connected(number, peer) {
            self.peers.send(peer, ORDERED, |out| write_claim(out, &claim));
        }
        self.meet_policy(peer, policy);
    }

    /// Takes another dispatcher's acknowledgement of packets. With `is_last` it ends, and takes
    /// over no more; its link stays until it has received the acknowledgement of this message.
    pub(super) fn receive_taken_ack(&mut self, peer: PeerId, taken: u64, is_last: bool) {
        let Some(number) = self.homes.at(peer) else {
            self.refused += 1;
            return;
        };
        self.homes.get_mut(number).account.receive_ack(taken, is_last);
        if is_last {
            event::peer_left(&self.peers.name(peer));
            self.homes.parting.push(peer);
            self.disconnect_other(peer);
        }
    }

    /// Acknowledges packets that were taken over from others.
    pub(super) fn acknowledge_taken(&mut self) {
        let now_ns = self.peers.now_ns();
        for (peer, taken) in self.homes.due(now_ns, false) {
            self.peers.send(peer, ORDERED, |out| write_taken(out, taken, false));
        }
    }

    /// Settles the accounts with the others at the end of the run. Returns true once they have all
    /// totals, or after a timeout.
    pub(super) fn has_parted(&mut self) -> bool {
        let now_ns = self.peers.now_ns();
        let Some(parted_ns) = self.homes.parted_ns else {
            let since_ns = *self.homes.closed_ns.get_or_insert(now_ns);
            if self.homes.has_open() && now_ns.saturating_sub(since_ns) < PART_NS {
                return false;
            }
            for (peer, taken) in self.homes.due(now_ns, true) {
                self.peers.send(peer, ORDERED, |out| write_taken(out, taken, true));
            }
            self.homes.parted_ns = Some(now_ns);
            return !self.homes.has_others();
        };
        let are_flushed = self.homes.links().all(|peer| self.peers.is_flushed(peer));
        are_flushed || now_ns.saturating_sub(parted_ns) >= PART_NS
    }

    /// Closes the links to other dispatchers, so that they need not wait for a timeout.
    pub(super) fn part_from_others(&mut self) {
        for link in self.homes.links().collect::<Vec<_>>() {
            self.peers.remove(link);
            self.homes.lost(link);
        }
    }

    /// Handles the loss of another dispatcher.
    pub(super) fn disconnect_other(&mut self, peer: PeerId) {
        if let Some((name, address)) = self.homes.lost(peer).filter(|_| !self.is_finishing) {
            let scope = self.homes.scope();
            self.peers.network().connect(&scope, &name, &address);
        }
    }

    /// After a stall that others may have mistaken for a crash, drops packets that wait for other
    /// dispatchers or have arrived from them.
    pub(super) fn drop_stale(&mut self) {
        if std::mem::replace(&mut self.fences, self.peers.fences()) == self.peers.fences() {
            return;
        }
        for (packet, _) in std::mem::take(&mut self.homes.arrived) {
            self.local.drop_packet(packet, DropReason::ProcessStalled);
        }
        for packet in self.homes.held.take_all() {
            self.units.outputs_stalled += 1;
            self.local.pool.give(packet);
        }
    }

    /// Passes a packet on to another dispatcher.
    pub(super) fn pass(&mut self, Redirect { dispatcher, stage }: Redirect, packet: Packet) {
        let Some(peer) = self.homes.link(dispatcher) else {
            return self.local.drop_packet(packet, DropReason::DispatcherLost);
        };
        if self.peers.backlog(peer) >= PASSED_MAX {
            return self.local.drop_packet(packet, DropReason::DispatcherBehind);
        }
        if packet.meta().class == PacketClass::FirstFragment {
            self.homes.remember(packet.meta().key, dispatcher);
        }
        let stream = match packet.meta().class {
            // A later fragment has no key to find the first one's stream by.
            PacketClass::FirstFragment | PacketClass::LaterFragment => ORDERED,
            _ => stream_of(packet.meta().hash),
        };
        self.peers.send(peer, stream, |out| write_passed(out, stage, &packet));
        self.homes.get_mut(dispatcher.into()).account.pass();
        self.is_busy = true;
        self.local.pool.give(packet);
    }

    /// Announces a change of an alias to all dispatchers.
    pub(super) fn announce_alias(&mut self, change: AliasChange) {
        let links: Vec<PeerId> = self.homes.links().collect();
        match change {
            AliasChange::Set(_, alias) => {
                let claim = self.homes.claim(alias);
                links.iter().for_each(|&peer| self.peers.send(peer, ORDERED, |out| write_claim(out, &claim)));
            }
            AliasChange::Freed(alias) if self.homes.release(&alias) => {
                links
                    .iter()
                    .for_each(|&peer| self.peers.send(peer, ORDERED, |out| write_released(out, &alias)));
            }
            AliasChange::Freed(_) => {}
        }
    }
}
