//! Packets and aliases between several dispatchers.

use graph::FlowLookup;
use nf::AffinityGroup;
use packet::{FlowKey, Packet, PacketClass};
use protocol::dispatcher::{AliasChange, PacketArrival};

use super::{Elastic, is_fragment};
use crate::transport::{Federation, Passage, Transport};

/// A packet that belongs to this dispatcher, with the key and hash of its flow, and the group.
pub(super) type KeptPacket = (Packet, (FlowKey, u64), Option<AffinityGroup>);

impl<T: Transport> Elastic<T> {
    /// Returns true if there are other dispatchers.
    pub(super) fn has_others(&mut self) -> bool {
        self.transport.federation().is_some()
    }

    /// Finds the flow of a packet. `None` if the packet is of no flow, or belongs to another
    /// dispatcher: then it is on its way.
    pub(super) fn keep(&mut self, mut packet: Packet, passage: Passage) -> Option<KeptPacket> {
        if is_fragment(&packet) && passage < Passage::Datagram && self.has_others() {
            let hash = self.transport.core().graph.classifier().datagram_hash(&packet);
            if let Some(others) = self.transport.federation()
                && let Some(to) = others.datagram_elsewhere(hash)
            {
                others.pass_on((to, Passage::Datagram), packet);
                return None;
            }
        }
        // The dispatcher that knows the fragments of its datagram has found its flow.
        let is_found = packet.meta().class == PacketClass::LaterFragment && passage > Passage::Datagram;
        let lookup = match is_found {
            true => FlowLookup::Flow { key: packet.meta().key, hash: packet.meta().hash },
            false => self.transport.core().flow_of(&mut packet),
        };
        let meta = packet.meta();
        let of_packet = (meta.key, meta.hash);
        let group = self.group_of(&packet);
        let (key, hash) = match lookup {
            FlowLookup::Flow { key, hash } => (key, hash),
            FlowLookup::Either { key, hash } => match self.is_live(of_packet.1, &of_packet.0) {
                true => of_packet,
                false => {
                    // It is about a flow of another dispatcher, or a flow of its own addresses.
                    packet = self.keep_of(packet, of_packet, group, passage)?;
                    (key, hash)
                }
            },
            FlowLookup::Aside => {
                self.transport.core().process_aside(packet);
                return None;
            }
        };
        let packet = self.keep_of(packet, (key, hash), group, passage)?;
        Some((packet, (key, hash), group))
    }

    /// Passes a packet on if its flow, which has this key and hash, belongs to another dispatcher.
    fn keep_of(
        &mut self,
        packet: Packet,
        (key, hash): (FlowKey, u64),
        group: Option<AffinityGroup>,
        passage: Passage,
    ) -> Option<Packet> {
        if !self.has_others() || self.dispatcher.flows().find(hash, &key).is_some() {
            return Some(packet);
        }
        let others = self.transport.federation();
        let Some(to) = others.and_then(|others| others.elsewhere(&key, hash, group, passage)) else {
            return Some(packet);
        };
        if packet.meta().class == PacketClass::FirstFragment {
            self.transport.core().learn_elsewhere(&packet, &mut self.again);
        }
        self.transport.federation()?.pass_on(to, packet);
        None
    }

    /// Dispatches packets that other dispatchers have passed on. Returns true if there were any.
    pub(super) fn take_passed(&mut self) -> bool {
        let mut has_any = false;
        while let Some((packet, passage)) = self.transport.federation().and_then(Federation::take_passed) {
            has_any = true;
            self.arrive(&packet);
            let meta = packet.meta();
            let arrival = PacketArrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
            let guess = self.dispatcher.guess(meta.hash);
            let is_whole = meta.class == PacketClass::Whole;
            match is_whole.then(|| self.dispatcher.number_next(self.now_ns, arrival, guess)).flatten() {
                Some(numbered) => self.continue_flowlet(numbered, packet),
                None if is_whole && self.dispatcher.flows().find(meta.hash, &meta.key).is_some() => {
                    self.dispatch_known(packet);
                }
                None => self.dispatch_from(packet, passage),
            }
        }
        has_any
    }

    /// Makes changes of aliases known to other dispatchers.
    pub(super) fn announce_aliases(&mut self) {
        if let Some(others) = self.transport.federation() {
            for change in self.dispatcher.aliases().take_changes() {
                // Packets of lost flows must find the dispatcher that resets their hosts.
                if !matches!(&change, AliasChange::Freed(key) if self.lost.has(key)) {
                    others.announce(change);
                }
            }
        }
    }

    /// Gives up keys that flows of other dispatchers have taken.
    pub(super) fn give_claimed_up(&mut self) {
        while let Some(key) = self.transport.federation().and_then(Federation::poll_claimed) {
            let hash = self.transport.core().graph.classifier().hash_of(&key);
            self.dispatcher.aliases().give_up(hash, &key, &mut self.outputs);
            if let Some(found) = self.lost.find(&key) {
                self.lost.forget(found.number);
            }
            self.execute_outputs();
        }
    }
}
