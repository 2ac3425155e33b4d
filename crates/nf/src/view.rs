//! The packet as an NF sees it: reads are direct, writes are recorded.

use std::ops::Deref;

use packet::{DropReason, End, Endpoint, MssOptions, OuterHeaders, Packet, RewriteError, Tag, TagKind};

use crate::Field;
use crate::recording::{EventCondition, HeaderAction, Recording, StateFunction};
use crate::stream::{Deliveries, Stream};

/// A packet borrowed by an NF. It dereferences to [`Packet`] for reading. All writes go through the
/// view, so that they can be recorded (see [`Recording`]).
pub struct PacketView<'a> {
    packet: &'a mut Packet,
    recording: Option<&'a mut Recording>,
    /// The additions of the group's packets to streams, and this packet's number in the group.
    delivered: Option<(&'a Deliveries<'a>, usize)>,
}

impl Deref for PacketView<'_> {
    type Target = Packet;

    #[inline(always)]
    fn deref(&self) -> &Packet {
        self.packet
    }
}

impl<'a> PacketView<'a> {
    /// Returns a view that records into `recording`, if given.
    #[inline]
    pub fn new(packet: &'a mut Packet, recording: Option<&'a mut Recording>) -> PacketView<'a> {
        PacketView { packet, recording, delivered: None }
    }

    /// Adds the stream data of a group's packets; this is packet `number` of the group.
    #[inline]
    pub fn with_streams(self, delivered: &'a Deliveries<'a>, number: usize) -> PacketView<'a> {
        PacketView { delivered: Some((delivered, number)), ..self }
    }

    /// Returns the packet's additions to its flow's TCP streams; empty unless the NF's descriptor
    /// requires streams.
    #[inline]
    pub fn stream(&self) -> Stream<'_> {
        self.delivered.map_or(Stream::default(), |(delivered, number)| delivered.of(number, self.payload()))
    }

    /// Rewrites source address and port, and all checksums; see [`Packet::set_end`].
    ///
    /// # Errors
    /// The address is of the other IP version.
    #[inline(always)]
    pub fn set_source(&mut self, to: Endpoint) -> Result<(), RewriteError> {
        self.set_end(End::Source, to)
    }

    /// Rewrites destination address and port, and all checksums.
    ///
    /// # Errors
    /// The address is of the other IP version.
    #[inline(always)]
    pub fn set_destination(&mut self, to: Endpoint) -> Result<(), RewriteError> {
        self.set_end(End::Destination, to)
    }

    /// Rewrites address and port of one end, and all checksums.
    ///
    /// # Errors
    /// The address is of the other IP version.
    #[inline(always)]
    pub fn set_end(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        self.note(|| HeaderAction::SetEnd(end, to));
        self.packet.set_end(end, to)
    }

    /// Rewrites one end of the packet quoted in this ICMP error.
    ///
    /// # Errors
    /// The address is of the other IP version, or the packet quotes none.
    pub fn set_embedded_end(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        self.note(|| HeaderAction::SetEmbeddedEnd(end, to));
        self.packet.set_embedded_end(end, to)
    }

    /// Decrements the time to live; returns false if it is used up. As that differs from packet to
    /// packet, this implies [`PacketView::mark_per_packet`].
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        self.note(|| HeaderAction::DecrementTtl);
        self.mark_per_packet();
        self.packet.decrement_ttl()
    }

    /// Sets the DSCP, 0 to 63.
    pub fn set_dscp(&mut self, dscp: u8) {
        self.note(|| HeaderAction::SetField(Field::Dscp, u64::from(dscp)));
        self.packet.set_dscp(dscp);
    }

    /// Lowers the maximum segment size of a TCP segment to `limit`; see [`Packet::clamp_mss`].
    /// Only SYNs have one, and no rule applies to them.
    pub fn clamp_mss(&mut self, limit: u16) -> MssOptions {
        self.mark_one_off();
        self.packet.clamp_mss(limit)
    }

    /// Adds outer headers that are the same for all packets of the flow and direction, to a packet
    /// in no tunnel; see [`Packet::encap`].
    ///
    /// Packets in a tunnel, or with an IP packet longer than `len_max` bytes, leave the rule for
    /// the slow path. The rule adds the headers without calling the NF, and not at all if a later
    /// NF removes them before another one reads them. Packets without headroom for them are
    /// dropped.
    ///
    /// # Errors
    /// The packet cannot carry the headers.
    pub fn encap(&mut self, outer: &OuterHeaders, len_max: u16) -> Result<(), RewriteError> {
        let done = self.packet.encap(outer);
        match done {
            Ok(()) => {
                self.note(|| HeaderAction::Encap { outer: *outer, len_max: outer.room_within(len_max) });
            }
            Err(_) => self.mark_one_off(),
        }
        done
    }

    /// Adds headers in front of the IP header; see [`Packet::encap_bytes`]. They contain the
    /// packet's length, so this implies [`PacketView::mark_per_packet`].
    ///
    /// # Errors
    /// The packet cannot carry the headers.
    pub fn encap_bytes(&mut self, header: &[u8], version: u8) -> Result<(), RewriteError> {
        self.note(|| HeaderAction::EncapBytes { header: header.to_vec(), version });
        self.mark_per_packet();
        self.packet.encap_bytes(header, version)
    }

    /// Removes the outer headers, `len` bytes; see [`Packet::decap`].
    ///
    /// In a rule, headers that an NF of the same graph added are never added in the first place.
    /// Headers that packets arrive with are removed by the rule, if there are no others, from
    /// packets with the same headers (see [`packet::OuterMatch::outer_of`] for the fields that may
    /// differ). Others take the slow path. An NF that depends on the differing fields calls
    /// [`PacketView::mark_per_packet`].
    ///
    /// # Errors
    /// The packet has no such headers, or a congestion mark would be lost.
    pub fn decap(&mut self, len: usize) -> Result<(), RewriteError> {
        let done = self.packet.decap(len);
        match done {
            Ok(version) => self.note(|| HeaderAction::Decap { len, version }),
            Err(_) => self.mark_one_off(),
        }
        done.map(|_| ())
    }

    /// Returns the outermost VLAN tag or MPLS label. All packets of a rule carry the tags pushed by
    /// NFs of the same graph. They must arrive with the same tags as the recorded packet if an NF
    /// looks; others take the slow path.
    pub fn tag(&mut self, kind: TagKind) -> Option<Tag> {
        let found = self.packet.tag(kind);
        self.note(|| HeaderAction::FindTag(kind, found));
        found
    }

    /// Pushes a VLAN tag or MPLS label that is the same for all packets of the flow and direction;
    /// see [`Packet::push_tag`]. The rule pushes it without calling the NF, or not at all if a
    /// later NF pops it before any NF in between reads it. Packets without room in their link layer
    /// take the slow path.
    ///
    /// # Errors
    /// The link layer cannot carry the tag, or there are too many.
    pub fn push_tag(&mut self, tag: Tag) -> Result<(), RewriteError> {
        let done = self.packet.push_tag(tag);
        match done {
            Ok(()) => self.note(|| HeaderAction::PushTag(tag)),
            Err(_) => self.mark_one_off(),
        }
        done
    }

    /// Pops the outermost VLAN tag or MPLS label; see [`Packet::pop_tag`]. In a rule, a tag pushed
    /// by an NF of the same graph is never pushed in the first place. A tag that packets arrive
    /// with is popped from packets with the same one. If a packet has none, the NF sees every
    /// packet.
    ///
    /// # Errors
    /// The packet has no such tag.
    pub fn pop_tag(&mut self, kind: TagKind) -> Result<Tag, RewriteError> {
        let done = self.packet.pop_tag(kind);
        match done {
            Ok(tag) => self.note(|| HeaderAction::PopTag(tag)),
            Err(_) => self.mark_per_packet(),
        }
        done
    }

    /// Makes the packet the payload of another; see [`Packet::encap_opaque`].
    ///
    /// # Errors
    /// The packet cannot carry the headers.
    pub fn encap_opaque(
        &mut self,
        header: &[u8],
        trailer_len: usize,
        version: u8,
    ) -> Result<(), RewriteError> {
        self.mark_one_off();
        self.packet.encap_opaque(header, trailer_len, version)
    }

    /// Replaces the packet by a contained packet; see [`Packet::decap_opaque`].
    ///
    /// # Errors
    /// The drop reason, if the contained packet cannot be parsed.
    pub fn decap_opaque(&mut self, at: usize, len: usize, version: u8) -> Result<(), DropReason> {
        self.mark_one_off();
        self.packet.decap_opaque(at, len, version)
    }

    /// Replaces everything after the outermost IP header by `payload`; see
    /// [`Packet::replace_payload`].
    ///
    /// # Errors
    /// The drop reason, if the new packet is too long or cannot be parsed.
    pub fn replace_payload(&mut self, protocol: u8, payload: &[u8]) -> Result<(), DropReason> {
        self.mark_one_off();
        self.packet.replace_payload(protocol, payload)
    }

    /// Removes link-layer padding, as required before an encapsulation.
    pub fn trim_trailer(&mut self) {
        self.mark_one_off();
        self.packet.trim_trailer();
    }

    /// Returns the flow's IP packet for changes that are not recorded. Such an NF cannot be
    /// consolidated, and must keep lengths and checksums valid itself.
    pub fn network_mut(&mut self) -> &mut [u8] {
        let l3 = self.meta().l3 as usize;
        self.packet.meta_mut().plain_len = 0; // The caller may write anything there.
        self.mark_one_off();
        self.packet.data_mut().get_mut(l3..).unwrap_or_default()
    }

    /// Returns the outermost IP packet and any link-layer trailer for changes as with
    /// [`PacketView::network_mut`].
    pub fn outermost_mut(&mut self) -> &mut [u8] {
        let l3 = self.meta().outer_l3 as usize;
        self.packet.meta_mut().plain_len = 0; // The caller may write anything there.
        self.mark_one_off();
        self.packet.data_mut().get_mut(l3..).unwrap_or_default()
    }

    /// Returns true if this packet is being recorded and the NF may add entries of its own.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Records a header action (B21) without changing the packet. Writes through this view and drop
    /// verdicts are recorded automatically.
    #[inline]
    pub fn record_action(&mut self, action: HeaderAction) {
        self.note(|| action);
    }

    /// Records a state function (B22).
    #[inline(always)]
    pub fn record_state_function(&mut self, function: StateFunction) {
        if let Some(recording) = &mut self.recording {
            recording.function(function);
        }
    }

    /// Records an event (B23).
    #[inline(always)]
    pub fn record_event(&mut self, event: EventCondition) {
        if let Some(recording) = &mut self.recording {
            recording.event(event);
        }
    }

    /// Records which of the NF's [rules](crate::Setup::rules) decided about the packet.
    #[inline(always)]
    pub fn record_rule(&mut self, rule: u32) {
        if let Some(recording) = &mut self.recording {
            recording.rule = Some(rule);
        }
    }

    /// Returns the rule from [`PacketView::record_rule`].
    pub fn recorded_rule(&self) -> Option<u32> {
        self.recording.as_ref().and_then(|recording| recording.rule)
    }

    /// Declares that later packets of the flow will be treated differently: no rule is made of this
    /// one.
    #[inline]
    pub fn mark_one_off(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.one_off = true;
        }
    }

    /// Declares that the treatment differs from packet to packet: the NF sees every packet, even
    /// where the others follow a rule. It must not rewrite endpoints. Adding per-packet headers and
    /// decrementing the time to live imply this.
    #[inline]
    pub fn mark_per_packet(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.per_packet = true;
        }
    }

    #[inline(always)]
    fn note(&mut self, action: impl FnOnce() -> HeaderAction) {
        if let Some(recording) = self.recording.as_mut().filter(|recording| recording.wants_actions()) {
            recording.action(action());
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::{FlowHasher, Parser};

    use super::*;

    #[test]
    fn lengths_that_a_function_writes_are_believed() {
        const UDP: [u8; 28] =
            [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 7, 0, 8, 0, 0];
        let mut packet = Packet::from_bytes(&[&[0; 12][..], &[8, 0], &UDP, b"padding"].concat());
        Parser::new(FlowHasher::new(1)).parse(&mut packet).unwrap();
        let mut view = PacketView::new(&mut packet, None);
        assert_eq!((view.ip_len(), view.payload()), (28, &b""[..]));
        let network = view.network_mut();
        (network[3], network[25]) = (31, 11);
        assert_eq!((view.ip_len(), view.payload()), (31, &b"pad"[..]));
    }
}
