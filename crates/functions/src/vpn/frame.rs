//! Packet formats of tunnels: the outer IP header, and AH (RFC 4302) or ESP (RFC 4303) in tunnel
//! mode.

use std::ops::Range;

use packet::parse::protocol;
use packet::{Addr, DropReason, TRAILER_MAX, checksum};

use super::config::DontFragment;
use super::numbers::PacketNonce;
use super::suite::{Gcm, Hmac128, ICV_LEN, IV_LEN, IntegrityFailure};
use crate::headers::InnerHeader;

/// IP protocol number of ESP (IANA).
pub const ESP: u8 = 50;

/// IP protocol number of AH (IANA).
pub const AH: u8 = 51;

/// Length of the longest headers before a packet: IPv6 with AH, or with ESP and its initialization
/// vector.
pub const HEADERS_MAX: usize = V6_LEN + AH_LEN_V6;

/// Maximum overhead of a tunnel: IPv6, ESP with AES-GCM, its padding and the check value.
pub const OVERHEAD_MAX: usize = V6_LEN + ESP_LEN + IV_LEN + ALIGNMENT - 1 + ESP_END + ICV_LEN;

const _: () =
    assert!(ALIGNMENT - 1 + ESP_END + ICV_LEN <= TRAILER_MAX && HEADERS_MAX <= OVERHEAD_MAX + ALIGNMENT);

/// The algorithm of a security association, with its key.
pub enum SaTransform {
    /// ESP with AES-GCM (RFC 4106).
    Gcm(Gcm),
    /// ESP without encryption (RFC 2410), with HMAC-SHA-256-128.
    Null(Hmac128),
    /// AH with HMAC-SHA-256-128.
    Ah(Hmac128),
}

/// Outer IP headers of a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct TunnelOuter {
    pub source: Addr,
    pub destination: Addr,
    pub ttl: u8,
    /// Source of the DF bit.
    pub dont_fragment: DontFragment,
}

/// Headers to put before a packet.
pub struct EncapHeaders {
    bytes: [u8; HEADERS_MAX],
    len: usize,
    /// Length of the trailer to put after the packet.
    pub trailer_len: usize,
    pub version: u8,
}

impl EncapHeaders {
    /// Returns the headers' bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl SaTransform {
    /// Returns the protocol number: AH or ESP.
    pub fn protocol(&self) -> u8 {
        if let SaTransform::Ah(_) = self { AH } else { ESP }
    }

    /// Returns the length of a packet of `len` bytes after encapsulation with this outer IP
    /// version.
    pub fn enclosed_len(&self, len: usize, version: u8) -> usize {
        ip_len(version) + self.header_len(version) + len + self.trailer_len(len)
    }

    /// Returns the length of the longest packet such that it, and every shorter one, fits `mtu`
    /// after encapsulation.
    pub fn inner_mtu(&self, mtu: usize, version: u8) -> usize {
        let room = mtu.saturating_sub(ip_len(version) + self.header_len(version));
        match self {
            SaTransform::Ah(_) => room,
            _ => (room.saturating_sub(ICV_LEN) / ALIGNMENT * ALIGNMENT).saturating_sub(ESP_END),
        }
    }

    /// Builds the headers of a packet, except the fields that [`SaTransform::protect`] computes.
    pub fn headers(
        &self,
        outer: &TunnelOuter,
        spi: u32,
        stamp: PacketNonce,
        inner: &InnerHeader,
    ) -> EncapHeaders {
        let version = outer.source.version();
        let at = ip_len(version);
        let (len, trailer_len) = (at + self.header_len(version), self.trailer_len(inner.len));
        let mut bytes = [0; HEADERS_MAX];
        outer.put(&mut bytes[..at], self.protocol(), len + inner.len + trailer_len, stamp, inner);
        let own = &mut bytes[at..len];
        let fixed = match self {
            SaTransform::Ah(_) => {
                // In 32-bit words, minus two (RFC 4302 2.2).
                own[..2].copy_from_slice(&[next_header(inner.version), ((len - at) / 4 - 2) as u8]);
                &mut own[4..]
            }
            SaTransform::Gcm(_) => {
                own[ESP_LEN..].copy_from_slice(&stamp.iv);
                own
            }
            SaTransform::Null(_) => own,
        };
        fixed[..4].copy_from_slice(&spi.to_be_bytes());
        fixed[4..8].copy_from_slice(&stamp.number.to_be_bytes());
        EncapHeaders { bytes, len, trailer_len, version }
    }

    /// Pads, encrypts and authenticates a packet, which begins with the outer IP header and has
    /// room for headers and trailer. `inner` describes the inner packet, which is in place.
    pub fn protect(&self, packet: &mut [u8], inner: &InnerHeader) {
        let at = ip_len(packet.first().map_or(0, |first| first >> 4));
        let (outer, own) = packet.split_at_mut(at.min(packet.len()));
        match self {
            SaTransform::Ah(mac) => {
                let icv = ah_icv(mac, outer, own);
                if let Some(place) = own.get_mut(AH_FIXED..AH_FIXED + ICV_LEN) {
                    place.copy_from_slice(&icv);
                }
            }
            SaTransform::Gcm(gcm) => {
                let Some((sealed, icv)) = own.split_last_chunk_mut::<ICV_LEN>() else { return };
                put_padding(sealed, ESP_LEN + IV_LEN + inner.len, inner.version);
                let Some((header, rest)) = sealed.split_at_mut_checked(ESP_LEN) else { return };
                let Some((iv, text)) = rest.split_first_chunk_mut::<IV_LEN>() else { return };
                *icv = gcm.seal(*iv, header, text);
            }
            SaTransform::Null(mac) => {
                let Some((signed, icv)) = own.split_last_chunk_mut::<ICV_LEN>() else { return };
                put_padding(signed, ESP_LEN + inner.len, inner.version);
                *icv = mac.icv(&[signed]);
            }
        }
    }

    /// Verifies and decrypts a packet, which begins with the outer IP header and has its AH or ESP
    /// header at `at`. Returns the range of the payload and its protocol.
    ///
    /// # Errors
    /// [`DropReason::VpnIntegrity`] or [`DropReason::VpnMalformed`].
    pub fn open(&self, packet: &mut [u8], at: usize) -> Result<(Range<usize>, u8), DropReason> {
        let Some((outer, own)) = packet.split_at_mut_checked(at) else {
            return Err(DropReason::VpnMalformed);
        };
        let (start, own_len) = (self.header_len(outer.first().map_or(0, |first| first >> 4)), own.len());
        match self {
            SaTransform::Ah(mac) => {
                let &[next, words, ..] = &*own else { return Err(DropReason::VpnMalformed) };
                let len = (usize::from(words) + 2) * 4;
                // Senders may pad to eight bytes over IPv4 too.
                if ![AH_LEN, AH_LEN_V6].contains(&len) || len > own_len || outer.len() != ip_len_of(outer) {
                    return Err(DropReason::VpnMalformed);
                }
                let (header, payload) = own.split_at(len);
                verify_ah(mac, outer, header, payload)?;
                Ok((at + len..at + own_len, next))
            }
            SaTransform::Gcm(gcm) => {
                let (sealed, icv) = own.split_last_chunk_mut::<ICV_LEN>().ok_or(DropReason::VpnMalformed)?;
                let (header, rest) = sealed.split_at_mut_checked(ESP_LEN).ok_or(DropReason::VpnMalformed)?;
                let (iv, text) = rest.split_first_chunk_mut::<IV_LEN>().ok_or(DropReason::VpnMalformed)?;
                gcm.open(*iv, header, text, icv).map_err(forged)?;
                let (len, next) = without_padding(text)?;
                Ok((at + start..at + start + len, next))
            }
            SaTransform::Null(mac) => {
                let (signed, icv) = own.split_last_chunk::<ICV_LEN>().ok_or(DropReason::VpnMalformed)?;
                let text = signed.get(ESP_LEN..).ok_or(DropReason::VpnMalformed)?;
                mac.verify(&[signed], icv).map_err(forged)?;
                let (len, next) = without_padding(text)?;
                Ok((at + start..at + start + len, next))
            }
        }
    }

    /// Returns the length of the protocol's headers before a packet.
    fn header_len(&self, version: u8) -> usize {
        match self {
            SaTransform::Ah(_) if version == 4 => AH_LEN,
            SaTransform::Ah(_) => AH_LEN_V6,
            SaTransform::Gcm(_) => ESP_LEN + IV_LEN,
            SaTransform::Null(_) => ESP_LEN,
        }
    }

    /// Returns the length of the trailer after a packet of `len` bytes.
    fn trailer_len(&self, len: usize) -> usize {
        match self {
            SaTransform::Ah(_) => 0,
            _ => (len + ESP_END).next_multiple_of(ALIGNMENT) - len + ICV_LEN,
        }
    }
}

impl TunnelOuter {
    /// Writes the outer header (RFC 4301 5.1.2). Copies DSCP and ECN from the inner header (RFC
    /// 6040 4.1, normal mode). A packet that may be fragmented gets an identification (RFC 6864 4).
    fn put(&self, header: &mut [u8], protocol: u8, len: usize, stamp: PacketNonce, inner: &InnerHeader) {
        let class = inner.traffic_class;
        if self.source.is_v4() {
            let fixed = match self.dont_fragment {
                DontFragment::Copy => inner.dont_fragment,
                DontFragment::Set => true,
                DontFragment::Clear => false,
            };
            let identification = if fixed { 0 } else { stamp.number as u16 };
            header[..2].copy_from_slice(&[0x45, class]);
            header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[6] = if fixed { 0x40 } else { 0 };
            header[8..10].copy_from_slice(&[self.ttl, protocol]);
            header[12..16].copy_from_slice(&self.source.v4_bytes());
            header[16..20].copy_from_slice(&self.destination.v4_bytes());
            let sum = checksum::checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            header[..2].copy_from_slice(&[0x60 | class >> 4, class << 4]);
            header[4..6].copy_from_slice(&((len - V6_LEN) as u16).to_be_bytes());
            header[6..8].copy_from_slice(&[protocol, self.ttl]);
            header[8..24].copy_from_slice(self.source.as_bytes());
            header[24..40].copy_from_slice(self.destination.as_bytes());
        }
    }
}

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;

/// SPI and sequence number (RFC 4303 2).
const ESP_LEN: usize = 8;

/// Pad length and next header, after the padding.
const ESP_END: usize = 2;

/// Alignment of the end of pad length and next header (RFC 4303 2.4).
const ALIGNMENT: usize = 4;

/// Length of AH's fields before the check value (RFC 4302 2).
const AH_FIXED: usize = 12;

const AH_LEN: usize = AH_FIXED + ICV_LEN;

/// A multiple of eight over IPv6 (RFC 4302 3.3.3.2.1).
const AH_LEN_V6: usize = AH_LEN + 4;

fn ip_len(version: u8) -> usize {
    if version == 4 { V4_LEN } else { V6_LEN }
}

fn ip_len_of(header: &[u8]) -> usize {
    ip_len(header.first().map_or(0, |first| first >> 4))
}

/// Returns the next header value for IPv4 or IPv6.
fn next_header(version: u8) -> u8 {
    if version == 4 { protocol::IPV4 } else { protocol::IPV6 }
}

#[cold]
fn forged(_: IntegrityFailure) -> DropReason {
    DropReason::VpnIntegrity
}

/// Writes padding (1, 2, 3 ...), pad length and next header from `at` to the end (RFC 4303 2.4).
fn put_padding(text: &mut [u8], at: usize, version: u8) {
    let Some([padding @ .., len, next]) = text.get_mut(at..) else { return };
    *len = padding.len() as u8;
    *next = next_header(version);
    padding.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
}

/// Returns the length of a payload without its padding, which must conform to RFC 4303 2.4, and its
/// protocol.
fn without_padding(text: &[u8]) -> Result<(usize, u8), DropReason> {
    let &[ref rest @ .., pad_len, next] = text else { return Err(DropReason::VpnMalformed) };
    let len = rest.len().checked_sub(pad_len.into()).ok_or(DropReason::VpnMalformed)?;
    let is_valid = rest[len..].iter().zip(1u8..=u8::MAX).all(|(&byte, number)| byte == number);
    if is_valid { Ok((len, next)) } else { Err(DropReason::VpnMalformed) }
}

/// Computes the check value of a packet with AH, with zeros in place of the value itself.
fn ah_icv(mac: &Hmac128, outer: &[u8], own: &[u8]) -> [u8; ICV_LEN] {
    let (header, payload) = own.split_at((ah_len(outer)).min(own.len()));
    let (fixed, padding) = ah_parts(header);
    mac.icv(&[immutable(outer).as_slice(), fixed, &[0; ICV_LEN], padding, payload])
}

fn verify_ah(mac: &Hmac128, outer: &[u8], header: &[u8], payload: &[u8]) -> Result<(), DropReason> {
    let icv = header.get(AH_FIXED..).and_then(<[u8]>::first_chunk).ok_or(DropReason::VpnMalformed)?;
    let (fixed, padding) = ah_parts(header);
    mac.verify(&[immutable(outer).as_slice(), fixed, &[0; ICV_LEN], padding, payload], icv).map_err(forged)
}

fn ah_len(outer: &[u8]) -> usize {
    if ip_len_of(outer) == V4_LEN { AH_LEN } else { AH_LEN_V6 }
}

/// Returns the header before and after the check value.
fn ah_parts(header: &[u8]) -> (&[u8], &[u8]) {
    (header.get(..AH_FIXED).unwrap_or_default(), header.get(AH_LEN..).unwrap_or_default())
}

/// Returns an IP header without options or extension headers, with zeros in its mutable fields (RFC
/// 4302 3.3.3.1).
fn immutable(header: &[u8]) -> ImmutableHeader {
    let mut bytes = [0; V6_LEN];
    let len = header.len().min(V6_LEN);
    bytes[..len].copy_from_slice(&header[..len]);
    if len == V4_LEN {
        bytes[1] = 0; // DSCP and ECN
        bytes[6..9].fill(0); // flags, fragment offset, time to live
        bytes[10..12].fill(0); // checksum
    } else {
        bytes[0] = 0x60; // traffic class and flow label
        bytes[1..4].fill(0);
        bytes[7] = 0; // hop limit
    }
    ImmutableHeader { bytes, len }
}

struct ImmutableHeader {
    bytes: [u8; V6_LEN],
    len: usize,
}

impl ImmutableHeader {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
