//! Opaque tunnels: a packet becomes the payload of another, and comes out again.
//!
//! Unlike [`Packet::encap_bytes`], which keeps the flow's header, only further in, this makes
//! another packet: its headers are parsed again, and the outermost ones are the flow's.

use super::{RewriteError, grow_link};
use crate::{DropReason, Packet, PacketClass, parse};

/// Limit on the bytes appended to an encapsulated packet.
pub const TRAILER_MAX: usize = 64;

impl Packet {
    /// Inserts `header`, which begins with an IP header of `version`, between the link layer and
    /// the outermost IP header, and appends `trailer_len` zeros, at most [`TRAILER_MAX`], to the IP
    /// packet. Link-layer padding is removed. The new header's length must cover everything.
    ///
    /// # Errors
    /// [`RewriteError`]; `NoHeader` for a packet that was not captured whole. Nothing is changed
    /// then.
    pub fn encap_opaque(
        &mut self,
        header: &[u8],
        trailer_len: usize,
        version: u8,
    ) -> Result<(), RewriteError> {
        let end = self.meta().outer_l3 as usize + self.ip_len();
        if self.meta().class == PacketClass::NotIp || end > self.len() {
            return Err(RewriteError::NoHeader);
        }
        let room = self.tailroom() + (self.len() - end);
        let Some(trailer) = [0; TRAILER_MAX].get(..trailer_len).filter(|_| trailer_len <= room) else {
            return Err(RewriteError::TooBig);
        };
        self.encap_bytes(header, version)?; // This removes padding.
        self.extend(trailer).map_err(|_| RewriteError::TooBig)?;
        let (data, meta) = self.parts_mut();
        meta.wire_len += trailer_len as u32;
        grow_link(data, meta.link, trailer_len as i32);
        parse::reparse(self).map_err(|_| RewriteError::NoHeader)
    }

    /// Reduces the outermost IP packet to the one of `version` at offset `at` within it, of `len`
    /// bytes: the reverse of [`Packet::encap_opaque`].
    ///
    /// # Errors
    /// The fault in the inner headers, or [`DropReason::Internal`] if the range is outside the
    /// packet.
    pub fn decap_opaque(&mut self, at: usize, len: usize, version: u8) -> Result<(), DropReason> {
        let l2 = self.meta().outer_l3 as usize;
        if l2 + at + len > self.len() {
            return Err(DropReason::Internal);
        }
        let behind = self.len() - (l2 + at + len);
        self.truncate(l2 + at + len);
        let (data, meta) = self.parts_mut();
        meta.wire_len = meta.wire_len.saturating_sub(behind as u32);
        // The link layer's length excludes its own padding.
        let longer = len as i32 - super::ip_len(data, l2) as i32 + at as i32;
        grow_link(data, meta.link, longer);
        meta.l3 = (l2 + at) as u16;
        self.strip_outer(at, version).map_err(|_| DropReason::Internal)?;
        parse::reparse(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowHasher, LinkType, Parser};

    const INNER: [u8; 28] =
        [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 7, 0, 8, 0, 0];

    fn outer(len: u16) -> [u8; 24] {
        let mut header = [0; 24];
        header[..2].copy_from_slice(&[0x45, 0]);
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[8..10].copy_from_slice(&[64, 50]);
        header[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        header[20..].copy_from_slice(b"head");
        header
    }

    fn parsed(link: LinkType, before: &[u8], behind: &[u8]) -> Packet {
        let mut packet = Packet::from_bytes(&[before, &INNER, behind].concat());
        packet.meta_mut().link = link;
        Parser::new(FlowHasher::new(1)).parse(&mut packet).unwrap();
        packet
    }

    #[test]
    fn opaque_encap_is_reversible() {
        let ethernet = [&[2; 12][..], &[8, 0]].concat();
        let pppoe = [&[2; 12][..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21]].concat();
        for (link, before) in
            [(LinkType::Ethernet, &ethernet), (LinkType::Ethernet, &pppoe), (LinkType::RawIp, &vec![])]
        {
            let mut packet = parsed(link, before, if link == LinkType::RawIp { b"" } else { b"padding" });
            let (key, hash) = (packet.meta().key, packet.meta().hash);
            packet.encap_opaque(&outer(24 + 28 + 5), 5, 4).unwrap();
            let meta = packet.meta();
            assert_eq!((meta.key, meta.hash), (key, hash), "as it came");
            assert_eq!(
                (meta.protocol, meta.l3, meta.wire_len),
                (50, before.len() as u16, packet.len() as u32)
            );
            assert_eq!(packet.len(), before.len() + 24 + 28 + 5);
            assert_eq!(packet.ip_len(), 24 + 28 + 5);
            if before.len() > 14 {
                assert_eq!(packet.data()[18..20], 59u16.to_be_bytes(), "PPPoE says it");
            }
            assert_eq!(packet.data()[before.len() + 24..], [&INNER[..], &[0; 5]].concat());
            packet.decap_opaque(24, 28, 4).unwrap();
            assert_eq!(packet.data(), [before, &INNER[..]].concat());
            assert_eq!((packet.meta().protocol, packet.meta().wire_len), (17, packet.len() as u32));
            assert_eq!(packet.ip_len(), 28);
        }
    }

    #[test]
    fn packets_that_do_not_fit_are_unchanged() {
        let mut packet = parsed(LinkType::RawIp, &[], &[]);
        assert_eq!(packet.encap_opaque(&outer(0), TRAILER_MAX + 1, 4), Err(RewriteError::TooBig));
        assert_eq!(packet.encap_opaque(&[0x45; crate::HEADROOM + 1], 0, 4), Err(RewriteError::NoHeadroom));
        assert_eq!(packet.data(), INNER);
        assert_eq!(packet.decap_opaque(20, 9, 4), Err(DropReason::Internal));
        packet.truncate(27);
        assert_eq!(packet.encap_opaque(&outer(0), 0, 4), Err(RewriteError::NoHeader));
    }
}
