//! The links to other dispatchers.

use packet::{DropReason, Packet};
use protocol::dispatcher::AliasChange;
use runtime::transport::{Elsewhere, LocalGraph};
use telemetry::event;

use super::homes::{Homes, PASSED_MAX};
use super::{BUFFERS_MORE, RemoteUnits};
use crate::identity::Session;
use crate::network::Network;
use crate::peers::PeerId;
use crate::wire::{ArrivedFrame, FrameError, write_claim, write_passed, write_released};

/// Takes a frame of another dispatcher. Returns the claims to grant.
pub(super) fn take(
    homes: &mut Homes,
    local: &mut LocalGraph,
    now_ns: u64,
    (peer, frame): (PeerId, ArrivedFrame<'_>),
) -> Result<Option<u64>, FrameError> {
    let number = homes.at(peer).ok_or(FrameError::Invalid("sender"))?;
    match frame {
        ArrivedFrame::Passed(passage, packet) => {
            homes.taken_over += 1;
            if local.pool.free() == 0 {
                local.pool.fill(BUFFERS_MORE);
            }
            // A time of this dispatcher: those of the other one mean nothing here.
            let packet = crate::wire::packets::ArrivedPacket { timestamp_ns: now_ns, ..packet };
            let packet = packet.into_packet(homes.taken_over, &local.graph, &mut local.pool);
            match packet {
                Some(packet) if homes.arrived.len() < PASSED_MAX => {
                    homes.arrived.push_back((packet, passage))
                }
                Some(packet) => local.drop_packet(packet, DropReason::DispatcherBehind),
                None => {
                    homes.taken_over -= 1; // It is not known what it was.
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
    /// Connects to dispatchers.
    pub(super) fn connect_to_others(&mut self) {
        let (scope, network) = (self.homes.scope(), self.peers.network());
        self.homes.to_connect().for_each(|home| network.connect(&scope, &home.name, &home.address));
    }

    /// Another dispatcher is there.
    pub(super) fn meet(&mut self, session: Session) {
        let name = session.peer.name.clone();
        let Some(number) = self.homes.number_of(&name) else {
            return event::peer_refused(&format!("{name}: this dispatcher knows no other of this name"));
        };
        if session.scope != self.homes.scope() {
            return event::peer_refused(&format!(
                "{name} knows the dispatchers `{}`, this one `{}`",
                session.scope,
                self.homes.scope()
            ));
        }
        event::peer_connected(&name, &session.address);
        if let Some(former) = self.homes.get_mut(number).link {
            self.peers.remove(former);
            self.homes.lost(former);
        }
        let peer = self.peers.add(session);
        for claim in self.homes.connected(number, peer) {
            self.peers.send(peer, 0, |out| write_claim(out, &claim));
        }
    }

    /// Another dispatcher is not there any more.
    pub(super) fn lose_other(&mut self, peer: PeerId) {
        if let Some((name, address)) = self.homes.lost(peer).filter(|_| !self.is_finishing) {
            let scope = self.homes.scope();
            self.peers.network().connect(&scope, &name, &address);
        }
    }

    /// Passes a packet on to another dispatcher.
    pub(super) fn pass(&mut self, (to, passage): Elsewhere, packet: Packet) {
        let Some(peer) = self.homes.link(to) else {
            return self.local.drop_packet(packet, DropReason::DispatcherLost);
        };
        if self.peers.backlog(peer) >= PASSED_MAX {
            return self.local.drop_packet(packet, DropReason::DispatcherBehind);
        }
        if packet.meta().class == packet::PacketClass::FirstFragment {
            self.homes.remember(packet.meta().key, to);
        }
        self.peers.send(peer, 0, |out| write_passed(out, passage, &packet));
        self.homes.passed_on += 1;
        self.is_busy = true;
        self.local.pool.give(packet);
    }

    /// Makes a change of an alias known to all dispatchers.
    pub(super) fn announce_alias(&mut self, change: AliasChange) {
        let links: Vec<PeerId> = self.homes.links().collect();
        match change {
            AliasChange::Set(_, alias) => {
                let claim = self.homes.claim(alias);
                links.iter().for_each(|&peer| self.peers.send(peer, 0, |out| write_claim(out, &claim)));
            }
            AliasChange::Freed(alias) if self.homes.release(&alias) => {
                links.iter().for_each(|&peer| self.peers.send(peer, 0, |out| write_released(out, &alias)));
            }
            AliasChange::Freed(_) => {}
        }
    }
}
