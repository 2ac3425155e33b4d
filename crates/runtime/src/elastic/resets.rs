//! Resets of the hosts of lost flows.

use nf::PacketView;
use nf::answer::{self, tcp_reset};
use packet::checksum;
use packet::parse;
use packet::{DropReason, Endpoint, LinkType, NO_PORT, Packet, PacketClass, PacketPool};
use protocol::dispatcher::{AliasChange, LostFlow};

use super::Elastic;
use super::lost::FoundLost;
use crate::transport::{Federation, LocalGraph, Transport};

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// Length of the header of a reset, which is all of it.
const TCP_LEN: usize = 20;

impl<T: Transport> Elastic<T> {
    /// Remembers flows that have just been lost.
    #[cold]
    pub(super) fn remember_lost(&mut self) {
        for flow in self.dispatcher.take_lost_flows() {
            if let Some(displaced) = self.lost.add(self.now_ns, flow) {
                self.forget_alias(&displaced);
            }
        }
    }

    /// Forgets lost flows that are old.
    pub(super) fn forget_old_lost(&mut self) {
        while let Some(flow) = self.lost.forget_old(self.now_ns) {
            self.forget_alias(&flow);
        }
    }

    /// Forgets the lost flow with this key: another flow has it.
    pub(super) fn forget_lost(&mut self, key: &packet::FlowKey) {
        if let Some(found) = self.lost.find(key)
            && let Some(flow) = self.lost.forget(found.number)
        {
            self.forget_alias(&flow);
        }
    }

    /// Announces that the alias of a forgotten flow is free, unless another flow has it: other
    /// dispatchers stop passing its packets on.
    fn forget_alias(&mut self, flow: &LostFlow) {
        let Some(alias) = flow.alias.filter(|_| self.has_others()) else { return };
        let hash = self.transport.core().graph.classifier().hash_of(&alias);
        if self.dispatcher.flows().find(hash, &alias).is_none()
            && let Some(others) = self.transport.federation()
        {
            others.announce(AliasChange::Freed(alias));
        }
    }

    /// Drops a segment of a lost flow, and resets its hosts. Returns any other packet, also a SYN
    /// that begins the flow again.
    #[cold]
    pub(super) fn reset_ends(&mut self, packet: Packet) -> Option<Packet> {
        let meta = packet.meta();
        if meta.protocol != parse::protocol::TCP || meta.class != PacketClass::Whole {
            return Some(packet);
        }
        let Some(found) = self.lost.find(&meta.key) else { return Some(packet) };
        let (key, hash) = (meta.key, meta.hash);
        if meta.tcp_flags & (SYN | RST | ACK) == SYN || self.dispatcher.flows().find(hash, &key).is_some() {
            self.forget_lost(&key);
            return Some(packet);
        }
        let tells_other = self.lost.note_reset(&found);
        let mut packet = packet;
        let mut core = self.transport.core();
        let LocalGraph { graph, pool, out } = &mut *core;
        let back = reset_back(&mut packet, pool);
        // With branches, the port of the other host is known where the flow was: that host gets
        // its reset when it sends something itself.
        let has_way = tells_other && graph.branches().is_none();
        let (onward, probe) = match has_way {
            true => reset_onward(&mut packet, &found, pool),
            false => (None, None),
        };
        for mut reset in [back, onward, probe].into_iter().flatten() {
            if graph.parse_dispatched(&mut reset, None).is_err() {
                pool.give(reset); // It was made of a packet that could be parsed.
                continue;
            }
            self.lost.counts.resets += 1;
            self.lost.counts.bytes += reset.len() as u64;
            out.push(reset);
        }
        core.drop_packet(packet, DropReason::UnitLost);
        None
    }
}

/// Makes the reset that answers a segment. `None` if it must not be answered.
fn reset_back(packet: &mut Packet, pool: &mut PacketPool) -> Option<Packet> {
    let mut buffer = answer::buffer();
    let view = PacketView::new(packet, None);
    let len = view.ip_len();
    let reset = tcp_reset(&view, &mut buffer).ok()?;
    frame((packet, len), reset, true, pool)
}

/// Makes a reset for the receiver of a segment of a lost flow, and a probe. The receiver ignores
/// the reset if the segment was retransmitted and has an earlier number than expected. But it
/// answers the probe, like a keep-alive (RFC 9293 3.8.4), with its own numbers, and the reset that
/// answers this is right. `None` if nothing must be sent there.
fn reset_onward(
    packet: &mut Packet,
    found: &FoundLost,
    pool: &mut PacketPool,
) -> (Option<Packet>, Option<Packet>) {
    let ack = acknowledged(packet);
    let Some(reset) = reset_of_other(packet, found, pool) else { return (None, None) };
    let probe = ack.and_then(|ack| probe_like(&reset, ack, pool));
    (Some(reset), probe)
}

/// Returns the number that a segment acknowledges.
fn acknowledged(packet: &Packet) -> Option<u32> {
    let header = packet.data().get(usize::from(packet.meta().l4)..)?.first_chunk::<20>()?;
    let ack = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    (header[13] & (ACK | RST) == ACK).then_some(ack)
}

/// Makes a probe that goes where a reset does: an empty segment before the number of that.
fn probe_like(reset: &Packet, ack: u32, pool: &mut PacketPool) -> Option<Packet> {
    let mut probe = pool.take_long(reset.data(), 0)?;
    let (link, transit, len) = (reset.meta().link, reset.meta().transit, reset.meta().wire_len);
    let meta = probe.meta_mut();
    (meta.link, meta.transit, meta.wire_len) = (link, transit, len);
    let start = probe.len().checked_sub(TCP_LEN)?;
    let header = probe.data_mut().get_mut(start..)?.first_chunk_mut::<TCP_LEN>()?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (seq, flags) = (word(4), word(12));
    let changed = flags & !(u32::from(RST) << 16) | u32::from(ACK) << 16;
    let sum = u16::from_be_bytes([header[16], header[17]]);
    let sum = checksum::update32(sum, seq, seq.wrapping_sub(1));
    let sum = checksum::update32(checksum::update32(sum, word(8), ack), flags, changed);
    header[4..8].copy_from_slice(&seq.wrapping_sub(1).to_be_bytes());
    header[8..12].copy_from_slice(&ack.to_be_bytes());
    header[12..16].copy_from_slice(&changed.to_be_bytes());
    header[16..18].copy_from_slice(&sum.to_be_bytes());
    Some(probe)
}

/// Makes a reset for the receiver of a segment of a lost flow, with the addresses that it knows.
/// Changes the segment. `None` if these are not known, or nothing must be sent there.
fn reset_of_other(packet: &mut Packet, found: &FoundLost, pool: &mut PacketPool) -> Option<Packet> {
    let (from, to) = other_ends(packet, found)?;
    // The host expects the segment's number next: it is that of the reset, as if the host had sent
    // a segment back that acknowledges it.
    let at = usize::from(packet.meta().l4);
    let header = packet.data_mut().get_mut(at..)?.first_chunk_mut::<20>()?;
    let seq = [header[4], header[5], header[6], header[7]];
    header[8..12].copy_from_slice(&seq);
    header[13] = ACK;
    let mut view = PacketView::new(packet, None);
    view.set_source(to).ok()?;
    view.set_destination(from).ok()?;
    let mut buffer = answer::buffer();
    let len = view.ip_len();
    let reset = tcp_reset(&view, &mut buffer).ok()?;
    frame((packet, len), reset, false, pool)
}

/// Returns source and destination of a segment of a lost flow as the functions would translate
/// them.
fn other_ends(packet: &Packet, found: &FoundLost) -> Option<(Endpoint, Endpoint)> {
    let LostFlow { key, alias, is_turned } = found.flow;
    let Some(alias) = alias else { return Some(parse::ends(packet)) };
    let other = if found.is_alias { key } else { alias };
    // Functions that translate between versions, or change tags, leave more to be changed.
    let is_like = (key.version, key.scope, key.place) == (alias.version, alias.scope, alias.place);
    is_turned.filter(|_| is_like).map(|is_turned| other.ends(packet.meta().reversed ^ is_turned))
}

/// Makes a frame of an IP packet, with the link layer of `like`, back to its sender or on to its
/// receiver. `len_before` is the length of the IP packet in `like`. `None` if there is no buffer.
fn frame(
    (like, len_before): (&Packet, usize),
    network: &[u8],
    goes_back: bool,
    pool: &mut PacketPool,
) -> Option<Packet> {
    let meta = like.meta();
    let link = like.data().get(..usize::from(meta.outer_l3))?;
    let mut made = pool.take_long(link, network.len())?;
    if made.extend(network).is_err() {
        pool.give(made);
        return None;
    }
    if goes_back
        && meta.link == LinkType::Ethernet
        && let Some((addresses, _)) = made.data_mut().split_at_mut_checked(12)
    {
        let (destination, source) = addresses.split_at_mut(6);
        destination.swap_with_slice(source);
    }
    packet::grow_link(made.data_mut(), meta.link, network.len() as i32 - len_before as i32);
    let len = made.len() as u32;
    let (to, transit) = (made.meta_mut(), meta.transit);
    (to.link, to.wire_len) = (meta.link, len);
    (to.transit.timestamp_ns, to.transit.sequence) = (transit.timestamp_ns, transit.sequence);
    to.transit.ingress = transit.ingress;
    (to.transit.side, to.transit.egress) = match goes_back {
        true => (transit.side, transit.ingress),
        false => (transit.side.other(), NO_PORT),
    };
    Some(made)
}
