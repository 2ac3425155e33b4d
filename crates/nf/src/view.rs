//! The packet as a function sees it: reading is free, writing is recorded.

use std::ops::Deref;

use packet::{DropReason, End, Endpoint, OuterHeaders, Packet, RewriteError, Tag, TagKind};

use crate::Field;
use crate::recording::{EventCondition, HeaderAction, Recording, StateFunction};
use crate::stream::{Deliveries, Stream};

/// A packet in a function's hands. It reads as a [`Packet`]; all changes go through the view, so
/// that they can be recorded (see [`Recording`]).
pub struct PacketView<'a> {
    packet: &'a mut Packet,
    recording: Option<&'a mut Recording>,
    /// What its group brought to streams, and its number in the group.
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
    /// A view of this packet, which records if `recording` is given.
    #[inline]
    pub fn new(packet: &'a mut Packet, recording: Option<&'a mut Recording>) -> PacketView<'a> {
        PacketView { packet, recording, delivered: None }
    }

    /// The same of packet `number` of a group that brought this to streams.
    #[inline]
    pub fn with_streams(self, delivered: &'a Deliveries<'a>, number: usize) -> PacketView<'a> {
        PacketView { delivered: Some((delivered, number)), ..self }
    }

    /// What the packet brought to its flow's TCP streams: nothing unless the function's descriptor
    /// asks for streams.
    #[inline]
    pub fn stream(&self) -> Stream<'_> {
        self.delivered.map_or(Stream::default(), |(delivered, number)| delivered.of(number, self.payload()))
    }

    /// Sets source address and port with all checksums; see [`Packet::set_end`].
    #[inline(always)]
    pub fn set_source(&mut self, to: Endpoint) -> Result<(), RewriteError> {
        self.set_end(End::Source, to)
    }

    /// Sets destination address and port with all checksums.
    #[inline(always)]
    pub fn set_destination(&mut self, to: Endpoint) -> Result<(), RewriteError> {
        self.set_end(End::Destination, to)
    }

    /// Sets address and port of one end with all checksums.
    #[inline(always)]
    pub fn set_end(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        self.note(|| HeaderAction::SetEnd(end, to));
        self.packet.set_end(end, to)
    }

    /// Sets one end of the packet that this ICMP error quotes.
    pub fn set_embedded_end(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        self.note(|| HeaderAction::SetEmbeddedEnd(end, to));
        self.packet.set_embedded_end(end, to)
    }

    /// Takes one from the time to live; false if it is used up. Whether it is, is each packet's
    /// own: see [`PacketView::mark_per_packet`].
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

    /// Puts outer headers, which are the same for all packets of the flow and direction, before one
    /// that is in no tunnel; see [`Packet::encap`]. Packets of which the IP packet has more than
    /// `len_max` bytes, or which are in a tunnel, are treated otherwise. In a rule that stands for
    /// the walk this needs no function, and is not done at all if a function behind takes the
    /// headers away again before another one looks; where there is no room for them, the packet is
    /// dropped.
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

    /// Puts headers before the IP header; see [`Packet::encap_bytes`]. They say the packet's
    /// length: see [`PacketView::mark_per_packet`].
    pub fn encap_bytes(&mut self, header: &[u8], version: u8) -> Result<(), RewriteError> {
        self.note(|| HeaderAction::EncapBytes { header: header.to_vec(), version });
        self.mark_per_packet();
        self.packet.encap_bytes(header, version)
    }

    /// Takes the packet out of a tunnel, of which the headers have `len` bytes; see
    /// [`Packet::decap`]. In a rule, headers that a function of the same chain put on are not
    /// put on in the first place. Those that packets came in are taken off by the rule, if they are
    /// all that there are: off packets that come in the same, but for what is each packet's own
    /// (see [`packet::OuterMatch::outer_of`]); others walk. Who goes by that too says so: see
    /// [`PacketView::mark_per_packet`].
    pub fn decap(&mut self, len: usize) -> Result<(), RewriteError> {
        let done = self.packet.decap(len);
        match done {
            Ok(version) => self.note(|| HeaderAction::Decap { len, version }),
            Err(_) => self.mark_one_off(),
        }
        done.map(|_| ())
    }

    /// Looks for the outermost VLAN tag, or MPLS label, that the packet has. All packets of a rule
    /// have what functions of the same chain put on, and come with the same tags and labels as the
    /// one that was recorded, if one looks for them: others walk.
    pub fn tag(&mut self, kind: TagKind) -> Option<Tag> {
        let found = self.packet.tag(kind);
        self.note(|| HeaderAction::FindTag(kind, found));
        found
    }

    /// Puts a VLAN tag or an MPLS label, the same for all packets of the flow and direction, before
    /// those that the packet has; see [`Packet::push_tag`]. In a rule that stands for the walk this
    /// needs no function, and is not done at all if a function behind takes it away again before
    /// another one looks. Packets whose link layer has no room for it walk.
    pub fn push_tag(&mut self, tag: Tag) -> Result<(), RewriteError> {
        let done = self.packet.push_tag(tag);
        match done {
            Ok(()) => self.note(|| HeaderAction::PushTag(tag)),
            Err(_) => self.mark_one_off(),
        }
        done
    }

    /// Takes the outermost VLAN tag, or MPLS label, away; see [`Packet::pop_tag`]. In a rule, one
    /// that a function of the same chain put on is not put on in the first place; one that packets
    /// came with is taken off those that come with the same. Of packets that have none, the
    /// function sees every one.
    pub fn pop_tag(&mut self, kind: TagKind) -> Result<Tag, RewriteError> {
        let done = self.packet.pop_tag(kind);
        match done {
            Ok(tag) => self.note(|| HeaderAction::PopTag(tag)),
            Err(_) => self.mark_per_packet(),
        }
        done
    }

    /// Makes the packet the payload of another; see [`Packet::encap_opaque`].
    pub fn encap_opaque(
        &mut self,
        header: &[u8],
        trailer_len: usize,
        version: u8,
    ) -> Result<(), RewriteError> {
        self.mark_one_off();
        self.packet.encap_opaque(header, trailer_len, version)
    }

    /// Leaves only a packet that stands in this one; see [`Packet::decap_opaque`].
    pub fn decap_opaque(&mut self, at: usize, len: usize, version: u8) -> Result<(), DropReason> {
        self.mark_one_off();
        self.packet.decap_opaque(at, len, version)
    }

    /// Leaves of the outermost IP packet only its header, with this behind it; see
    /// [`Packet::replace_payload`].
    pub fn replace_payload(&mut self, protocol: u8, payload: &[u8]) -> Result<(), DropReason> {
        self.mark_one_off();
        self.packet.replace_payload(protocol, payload)
    }

    /// Cuts link-layer padding away, as is needed before the packet is wrapped.
    pub fn trim_trailer(&mut self) {
        self.mark_one_off();
        self.packet.trim_trailer();
    }

    /// The flow's IP packet, to be changed in ways that are not recorded: such a function cannot be
    /// consolidated, and keeps lengths and checksums right itself.
    pub fn network_mut(&mut self) -> &mut [u8] {
        let l3 = self.meta().l3 as usize;
        self.packet.meta_mut().plain_len = 0; // Nobody knows what will stand there.
        self.mark_one_off();
        self.packet.data_mut().get_mut(l3..).unwrap_or_default()
    }

    /// The outermost IP packet, with what the link layer has behind it, to be changed as with
    /// [`PacketView::network_mut`].
    pub fn outermost_mut(&mut self) -> &mut [u8] {
        let l3 = self.meta().outer_l3 as usize;
        self.packet.meta_mut().plain_len = 0; // Nobody knows what will stand there.
        self.mark_one_off();
        self.packet.data_mut().get_mut(l3..).unwrap_or_default()
    }

    /// Whether what happens to this packet is recorded: the time to add entries of one's own.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Adds a header action to the record (B21); the packet is not changed. What is written through
    /// this view, and a verdict to drop, are recorded anyhow.
    #[inline]
    pub fn record_action(&mut self, action: HeaderAction) {
        self.note(|| action);
    }

    /// Adds a state function to the record (B22).
    #[inline(always)]
    pub fn record_state_function(&mut self, function: StateFunction) {
        if let Some(recording) = &mut self.recording {
            recording.function(function);
        }
    }

    /// Adds an event to the record (B23).
    #[inline(always)]
    pub fn record_event(&mut self, event: EventCondition) {
        if let Some(recording) = &mut self.recording {
            recording.event(event);
        }
    }

    /// Says which of the function's [rules](crate::Setup::rules) decided about the packet.
    #[inline(always)]
    pub fn record_rule(&mut self, rule: u32) {
        if let Some(recording) = &mut self.recording {
            recording.rule = Some(rule);
        }
    }

    /// The rule that was [noted](PacketView::record_rule).
    pub fn recorded_rule(&self) -> Option<u32> {
        self.recording.as_ref().and_then(|recording| recording.rule)
    }

    /// Says that what is done to this packet tells nothing about the flow's next ones: no rule is
    /// made of it.
    #[inline]
    pub fn mark_one_off(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.one_off = true;
        }
    }

    /// Says that what is done to the flow's packets is each packet's own: in a rule that stands for
    /// the walk, the function sees every packet, in its place. It must not set their ends. Who puts
    /// headers of its own before a packet, or takes from its time to live, says so thereby.
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
