//! VLAN tags and MPLS labels between the Ethernet addresses and the IP header (B14).
//!
//! A packet has two stacks: tags right after the addresses, and labels after all tags. Each is
//! pushed and popped at its outer end, independently. Four bytes are added or removed in front;
//! only the link layer's header moves.
//!
//! Labels follow the pipe model of RFC 3443 3.2: a label's time to live is independent of the inner
//! packet's, so a push and a pop leave a packet unchanged.

use std::fmt;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{RewriteError, put, word};
use crate::wire::EtherType;
use crate::{LinkType, Packet, PacketClass, parse};

/// Length of a VLAN tag or an MPLS label.
pub const TAG_LEN: usize = 4;

/// Offset of the EtherType in an Ethernet frame.
const ETHER_TYPE_AT: usize = 12;

/// The bit of the last label of a stack (RFC 3032 2.1).
const BOTTOM_OF_STACK: u8 = 1;

/// A VLAN tag (IEEE 802.1Q 9.6) or an MPLS label (RFC 3032 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    ether_type: EtherType,
    /// The tag's control information in the lower half, or the label's entry without its
    /// bottom-of-stack bit, which depends on the position.
    bits: u32,
}

/// Stacks of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagKind {
    /// VLAN tags.
    Vlan,
    /// MPLS labels.
    Label,
}

impl Tag {
    /// Returns the tag of a customer's VLAN (802.1Q), or `None` if an argument is out of range:
    /// `vid` from 0 (priority only) to 4,094; the priority `pcp` from 0 to 7; `dei` marks frames to
    /// be dropped first.
    pub fn vlan(vid: u16, pcp: u8, dei: bool) -> Option<Tag> {
        let is_valid = vid < 0xfff && pcp < 8;
        let bits = u32::from(pcp) << 13 | u32::from(dei) << 12 | u32::from(vid);
        is_valid.then_some(Tag { ether_type: EtherType::VLAN, bits })
    }

    /// Returns the tag of a provider's VLAN (802.1ad), with the same limits.
    pub fn service_vlan(vid: u16, pcp: u8, dei: bool) -> Option<Tag> {
        Some(Tag { ether_type: EtherType::QINQ, ..Tag::vlan(vid, pcp, dei)? })
    }

    /// Returns a label, or `None` if an argument is out of range: `label` from 16 (lower ones are
    /// reserved, RFC 3032 2.1, RFC 7274) to 2^20 - 1; the traffic class `tc` (RFC 5462) from 0 to
    /// 7; `ttl` at least 1.
    pub fn label(label: u32, tc: u8, ttl: u8) -> Option<Tag> {
        let is_valid = (16..1 << 20).contains(&label) && tc < 8 && ttl > 0;
        let bits = label << 12 | u32::from(tc) << 9 | u32::from(ttl);
        is_valid.then_some(Tag { ether_type: EtherType::MPLS, bits })
    }

    /// Returns the stack that it belongs to.
    pub fn kind(self) -> TagKind {
        match self.ether_type {
            EtherType::MPLS | EtherType::MPLS_UPSTREAM => TagKind::Label,
            _ => TagKind::Vlan,
        }
    }

    /// Returns the VLAN's identifier, or the label.
    pub fn id(self) -> u32 {
        match self.kind() {
            TagKind::Vlan => self.bits & 0xfff,
            TagKind::Label => self.bits >> 12,
        }
    }

    /// Returns the tag's priority, or the label's traffic class: 0 to 7.
    pub fn class(self) -> u8 {
        match self.kind() {
            TagKind::Vlan => (self.bits >> 13 & 7) as u8,
            TagKind::Label => (self.bits >> 9 & 7) as u8,
        }
    }

    /// Returns the VLAN tag of the same kind with another identifier and priority, or `None` if it
    /// is a label or an argument is out of range, see [`Tag::vlan`].
    pub fn with_vlan(self, vid: u16, pcp: u8) -> Option<Tag> {
        let is_dei = self.bits >> 12 & 1 == 1;
        let Tag { bits, .. } = Tag::vlan(vid, pcp, is_dei)?;
        (self.kind() == TagKind::Vlan).then_some(Tag { bits, ..self })
    }

    /// Returns a unique representation in two words.
    pub fn words(self) -> [u32; 2] {
        [u32::from(self.ether_type.0), self.bits]
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, class) = (self.id(), self.class());
        match self.ether_type {
            EtherType::MPLS | EtherType::MPLS_UPSTREAM => {
                write!(f, "label {id} tc {class} ttl {}", self.bits as u8)
            }
            EtherType::QINQ | EtherType::QINQ_OLD => write!(f, "service VLAN {id} pcp {class}"),
            _ => write!(f, "VLAN {id} pcp {class}"),
        }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}

/// Room for tags and labels that a packet must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TagRoom {
    /// VLAN tags.
    pub vlans: u8,
    /// MPLS labels.
    pub labels: u8,
}

impl TagRoom {
    /// Adds room for one of this kind.
    pub fn and_for(self, kind: TagKind) -> TagRoom {
        match kind {
            TagKind::Vlan => TagRoom { vlans: self.vlans.saturating_add(1), ..self },
            TagKind::Label => TagRoom { labels: self.labels.saturating_add(1), ..self },
        }
    }

    /// Removes room for one of this kind.
    pub fn without(self, kind: TagKind) -> TagRoom {
        match kind {
            TagKind::Vlan => TagRoom { vlans: self.vlans.saturating_sub(1), ..self },
            TagKind::Label => TagRoom { labels: self.labels.saturating_sub(1), ..self },
        }
    }

    /// Returns the room that suffices for either.
    pub fn or(self, other: TagRoom) -> TagRoom {
        TagRoom { vlans: self.vlans.max(other.vlans), labels: self.labels.max(other.labels) }
    }
}

/// The contents between the addresses of an Ethernet frame and its IP header.
struct Stacks {
    /// Tags, and the PPPoE header: counted by the parser's limit.
    shims: usize,
    /// Labels; `None` if there is no place for any because the packet is in PPPoE.
    labels: Option<usize>,
    /// Offset of the EtherType after all tags.
    type_at: usize,
}

impl Stacks {
    /// Returns the stacks of an IP packet.
    fn of(packet: &Packet) -> Result<Stacks, RewriteError> {
        let (data, meta) = (packet.data(), packet.meta());
        if meta.link != LinkType::Ethernet {
            return Err(RewriteError::Link);
        }
        if meta.class == PacketClass::NotIp || usize::from(meta.outer_l3) >= data.len() {
            return Err(RewriteError::NoHeader);
        }
        let (mut shims, mut type_at) = (0, ETHER_TYPE_AT);
        while ether_type(data, type_at).is_vlan() && shims < parse::SHIM_MAX {
            (shims, type_at) = (shims + 1, type_at + TAG_LEN);
        }
        let between = usize::from(meta.outer_l3).saturating_sub(type_at + 2);
        let labels = match ether_type(data, type_at) {
            EtherType::IPV4 | EtherType::IPV6 => Some(0),
            EtherType::MPLS | EtherType::MPLS_UPSTREAM => Some(between / TAG_LEN),
            _ => None,
        };
        Ok(Stacks {
            shims: shims + usize::from(ether_type(data, type_at) == EtherType::PPPOE_SESSION),
            labels,
            type_at,
        })
    }

    /// Checks if the parser would follow this many more.
    fn have(&self, room: TagRoom) -> Result<(), RewriteError> {
        let shims = self.shims + usize::from(room.vlans);
        let labels = match (self.labels, room.labels) {
            (_, 0) => 0,
            (Some(labels), more) => labels + usize::from(more),
            (None, _) => return Err(RewriteError::Link),
        };
        if shims.max(labels) > parse::SHIM_MAX { Err(RewriteError::TooDeep) } else { Ok(()) }
    }
}

/// Returns the range of types, tags and labels in an Ethernet frame.
pub(super) fn range(packet: &Packet) -> Range<usize> {
    ETHER_TYPE_AT..usize::from(packet.meta().outer_l3)
}

/// Checks that this range contains nothing else.
pub(super) fn are_all(packet: &Packet) -> bool {
    Stacks::of(packet).is_ok_and(|stacks| stacks.labels.is_some())
}

impl Packet {
    /// Pushes a tag or label in front of all others of its kind.
    ///
    /// # Errors
    /// [`RewriteError`]: `Link` if it is not an Ethernet frame, or for a label in PPPoE; `TooDeep` beyond
    /// [`parse::SHIM_MAX`] of a kind. Nothing is changed then.
    pub fn push_tag(&mut self, tag: Tag) -> Result<(), RewriteError> {
        let stacks = Stacks::of(self)?;
        stacks.have(TagRoom::default().and_for(tag.kind()))?;
        self.push_front(TAG_LEN).map_err(|_| RewriteError::NoHeadroom)?;
        self.shift_network(TAG_LEN as i32);
        let data = self.data_mut();
        match tag.kind() {
            TagKind::Vlan => {
                data.copy_within(TAG_LEN..TAG_LEN + ETHER_TYPE_AT, 0);
                put(data, ETHER_TYPE_AT, tag.ether_type.0);
                put(data, ETHER_TYPE_AT + 2, tag.bits as u16);
            }
            TagKind::Label => {
                let at = stacks.type_at + 2;
                data.copy_within(TAG_LEN..TAG_LEN + at, 0);
                let is_bottom = stacks.labels == Some(0);
                if is_bottom {
                    put(data, stacks.type_at, tag.ether_type.0);
                }
                let [a, b, c, d] = tag.bits.to_be_bytes();
                let entry = [a, b, if is_bottom { c | BOTTOM_OF_STACK } else { c }, d];
                data[at..at + TAG_LEN].copy_from_slice(&entry);
            }
        }
        Ok(())
    }

    /// Returns the outermost tag or label.
    pub fn tag(&self, kind: TagKind) -> Option<Tag> {
        let stacks = Stacks::of(self).ok()?;
        let data = self.data();
        match kind {
            TagKind::Vlan => {
                let ether_type = ether_type(data, ETHER_TYPE_AT);
                let bits = u32::from(word(data, ETHER_TYPE_AT + 2));
                ether_type.is_vlan().then_some(Tag { ether_type, bits })
            }
            TagKind::Label => {
                stacks.labels.filter(|&labels| labels > 0)?;
                let &[a, b, c, d] = data.get(stacks.type_at + 2..)?.first_chunk()?;
                let bits = u32::from_be_bytes([a, b, c & !BOTTOM_OF_STACK, d]);
                Some(Tag { ether_type: ether_type(data, stacks.type_at), bits })
            }
        }
    }

    /// Removes and returns the outermost tag or label: the reverse of [`Packet::push_tag`].
    ///
    /// # Errors
    /// [`RewriteError`]: `NoHeader` if there is none, `Link` if it is not an Ethernet frame. Nothing is
    /// changed then.
    pub fn pop_tag(&mut self, kind: TagKind) -> Result<Tag, RewriteError> {
        let stacks = Stacks::of(self)?;
        let tag = self.tag(kind).ok_or(RewriteError::NoHeader)?;
        let l3 = usize::from(self.meta().outer_l3);
        let data = self.data_mut();
        match kind {
            TagKind::Vlan => data.copy_within(..ETHER_TYPE_AT, TAG_LEN),
            TagKind::Label => {
                if stacks.labels == Some(1) {
                    let is_v4 = data.get(l3).is_some_and(|first| first >> 4 == 4);
                    put(data, stacks.type_at, if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 }.0);
                }
                data.copy_within(..stacks.type_at + 2, TAG_LEN);
            }
        }
        self.pull_front(TAG_LEN);
        self.shift_network(-(TAG_LEN as i32));
        Ok(tag)
    }

    /// Checks if this many tags and labels can be pushed.
    #[inline]
    pub fn takes_tags(&self, room: TagRoom) -> bool {
        let len = TAG_LEN * (usize::from(room.vlans) + usize::from(room.labels));
        len == 0 || self.headroom() >= len && Stacks::of(self).and_then(|stacks| stacks.have(room)).is_ok()
    }

    /// Shifts offsets after the link layer's header grew.
    fn shift_network(&mut self, by: i32) {
        let meta = self.meta_mut();
        meta.shift(by);
        meta.outer_l3 = (i32::from(meta.outer_l3) + by) as u16;
        meta.wire_len = meta.wire_len.saturating_add_signed(by);
    }
}

fn ether_type(data: &[u8], at: usize) -> EtherType {
    EtherType(word(data, at))
}
