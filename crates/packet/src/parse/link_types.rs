//! Rarer link types of captures: the position of IP in their frames.
//!
//! They are read as tshark reads them. Frames that are not IP, or encrypted or compressed, pass
//! through.

use super::shims::{LLC_SNAP_LEN, llc, ppp_ether_type, shims, version_nibble};
use super::{be16, be32};
use crate::{DropReason, LinkType, Scope};

/// Offset of IP and its version; `None` if the frame is not IP.
type At = Option<(usize, u8)>;

/// Finds IP in a frame of a link type. `None` if the headers are truncated.
type Find = fn(&[u8], &mut Scope) -> Option<At>;

/// A supported link type.
pub struct LinkTypeInfo {
    /// Its number in the `LINKTYPE_` registry.
    pub number: u16,
    /// Its name in the registry.
    pub name: &'static str,
    /// Finds IP.
    find: Find,
}

/// The supported link types that are not in [`LinkType`], by number.
pub const LINK_TYPES: &[LinkTypeInfo] = &[
    known(6, "IEEE802_5", token_ring),
    known(7, "ARCNET_BSD", |data, _| arcnet(data, 2)),
    known(8, "SLIP", |data, _| Some(by_nibble(data, 16))),
    known(10, "FDDI", |data, scope| by_llc(data, 13, scope)),
    known(51, "PPP_ETHER", |data, scope| by_ppp_number(data, 6, scope)),
    known(99, "SYMANTEC_FIREWALL", |data, scope| by_type(data, 6, 44, scope)),
    known(100, "ATM_RFC1483", |data, scope| by_llc(data, 0, scope)),
    known(102, "SLIP_BSDOS", |data, _| Some(by_nibble(data, 24))),
    known(104, "C_HDLC", cisco_hdlc),
    known(105, "IEEE802_11", |data, scope| wireless(data, 0, scope)),
    known(106, "ATM_CLIP", |data, scope| match by_llc(data, 0, scope) {
        Some(None) => Some(by_nibble(data, 0)),
        found => found,
    }),
    known(107, "FRELAY", frame_relay),
    known(109, "ENC", |data, _| Some(by_nibble(data, 12))),
    known(117, "PFLOG", |data, _| Some(by_nibble(data, usize::from(*data.first()?).next_multiple_of(4)))),
    known(119, "IEEE802_11_PRISM", prism),
    known(122, "IP_OVER_FC", |data, scope| by_llc(data, 16, scope)),
    known(123, "SUNATM", sun_atm),
    known(127, "IEEE802_11_RADIOTAP", |data, scope| wireless(data, le16(data, 2)?.into(), scope)),
    known(129, "ARCNET_LINUX", |data, _| arcnet(data, 4)),
    known(138, "APPLE_IP_OVER_IEEE1394", |data, scope| by_type(data, 16, 18, scope)),
    known(143, "DOCSIS", docsis),
    known(163, "IEEE802_11_AVS", |data, scope| wireless(data, be32(data, 4)? as usize, scope)),
    known(166, "PPP_PPPD", |data, scope| ppp(data, 1, scope)),
    known(197, "ERF", endace),
    known(204, "PPP_WITH_DIR", |data, scope| ppp(data, 1, scope)),
    known(226, "IPNET", |data, _| Some(by_nibble(data, 24))),
    known(239, "NFLOG", nflog),
    known(240, "NETANALYZER", |data, scope| ethernet(data, 4, scope)),
    known(241, "NETANALYZER_TRANSPARENT", |data, scope| ethernet(data, 12, scope)),
    known(242, "IPOIB", |data, scope| by_type(data, 40, 44, scope)),
    known(258, "PKTAP", packet_tap),
    known(259, "EPON", |data, scope| ethernet(data, 8, scope)),
    known(274, "ETHERNET_MPACKET", |data, scope| ethernet(data, 8, scope)),
    known(281, "DSA_TAG_BRCM", |data, scope| by_type(data, 16, 18, scope)),
    known(282, "DSA_TAG_BRCM_PREPEND", |data, scope| ethernet(data, 4, scope)),
    known(284, "DSA_TAG_DSA", |data, scope| by_type(data, 16, 18, scope)),
    known(285, "DSA_TAG_EDSA", |data, scope| by_type(data, 20, 22, scope)),
];

const fn known(number: u16, name: &'static str, find: Find) -> LinkTypeInfo {
    LinkTypeInfo { number, name, find }
}

/// Finds the network header of a frame of the link type with this number.
#[cold]
pub(super) fn parse(data: &[u8], number: u16, scope: &mut Scope) -> Result<At, DropReason> {
    let place = LINK_TYPES.binary_search_by_key(&number, |known| known.number);
    let known = place.ok().and_then(|at| LINK_TYPES.get(at)).ok_or(DropReason::LinkUnknown)?;
    (known.find)(data, scope).ok_or(DropReason::LinkTruncated)
}

/// Finds IP if the first nibble is 4 or 6.
fn by_nibble(data: &[u8], at: usize) -> At {
    version_nibble(data, at).ok()
}

/// Finds IP by the EtherType at `type_at`, with a payload at `at`.
fn by_type(data: &[u8], type_at: usize, at: usize, scope: &mut Scope) -> Option<At> {
    shims(data, be16(data, type_at)?, at, scope).ok()
}

/// Finds IP in an Ethernet frame.
fn ethernet(data: &[u8], at: usize, scope: &mut Scope) -> Option<At> {
    by_type(data, at + 12, at + 14, scope)
}

/// Finds IP in LLC with SNAP, with the number of IPv4 in OSI's list (RFC 2684 5), or alone.
fn by_llc(data: &[u8], at: usize, scope: &mut Scope) -> Option<At> {
    if let Some(&[0xfe, 0xfe, 0x03, nlpid]) = data.get(at..at + 4) {
        return Some(by_nlpid(data, nlpid, at + 4));
    }
    match llc(data, at) {
        Some(ether_type) => shims(data, ether_type, at + LLC_SNAP_LEN, scope).ok(),
        None => Some(None),
    }
}

/// Finds IP by the network layer protocol identifier (ISO/IEC TR 9577).
fn by_nlpid(data: &[u8], nlpid: u8, at: usize) -> At {
    match nlpid {
        0xcc | 0x8e => by_nibble(data, at),
        _ => None,
    }
}

/// Finds IP by the PPP protocol number at `number_at`.
fn by_ppp_number(data: &[u8], number_at: usize, scope: &mut Scope) -> Option<At> {
    match data.get(number_at)? {
        // One byte, compressed (RFC 1661 6.5).
        0x21 | 0x57 => Some(by_nibble(data, number_at + 1)),
        _ => shims(data, ppp_ether_type(be16(data, number_at)?), number_at + 2, scope).ok(),
    }
}

fn ppp(data: &[u8], at: usize, scope: &mut Scope) -> Option<At> {
    let has_address = data.get(at..at + 2)? == [0xff, 0x03];
    by_ppp_number(data, if has_address { at + 2 } else { at }, scope)
}

/// Finds IP in IEEE 802.5: a source address with its first bit set announces a source route.
fn token_ring(data: &[u8], scope: &mut Scope) -> Option<At> {
    const HEADER_LEN: usize = 14;
    let has_route = data.get(8)? & 0x80 != 0;
    let route_len = if has_route { usize::from(data.get(HEADER_LEN)? & 0x1f) } else { 0 };
    by_llc(data, HEADER_LEN + route_len, scope)
}

/// Finds IP in ARCNET (RFC 1051, RFC 1201), after the addresses. Split packets are not reassembled.
fn arcnet(data: &[u8], mut at: usize) -> Option<At> {
    const EXCEPTION: u8 = 0xff;
    const IP_OF_RFC_1051: u8 = 240;
    const IP: u8 = 212;
    const IPV6: u8 = 196;
    let mut system = *data.get(at)?;
    at += 1;
    if system == IP_OF_RFC_1051 {
        return Some(by_nibble(data, at));
    }
    if *data.get(at)? == EXCEPTION {
        system = *data.get(at + 3)?;
        at += 4;
    }
    let is_whole = *data.get(at)? == 0;
    Some(if matches!(system, IP | IPV6) && is_whole { by_nibble(data, at + 3) } else { None })
}

/// Finds IP in Cisco's HDLC: address, control, EtherType.
fn cisco_hdlc(data: &[u8], scope: &mut Scope) -> Option<At> {
    by_type(data, 2, 4, scope)
}

/// Finds IP in frame relay (RFC 2427), and in Cisco's variant with an EtherType after the address.
fn frame_relay(data: &[u8], scope: &mut Scope) -> Option<At> {
    const UNNUMBERED: u8 = 0x03;
    const SNAP: u8 = 0x80;
    const ADDRESS_LEN_MAX: usize = 4;
    let address = data.iter().take(ADDRESS_LEN_MAX).position(|byte| byte & 1 != 0);
    let Some(last) = address else { return if data.len() < ADDRESS_LEN_MAX { None } else { Some(None) } };
    let mut at = last + 1;
    if *data.get(at)? != UNNUMBERED {
        return by_type(data, at, at + 2, scope);
    }
    at += 1;
    if *data.get(at)? == 0 {
        at += 1; // Padding.
    }
    match (*data.get(at)?, data.get(at + 1..at + 4)) {
        (SNAP, Some([0, 0, 0])) => by_type(data, at + 4, at + 6, scope),
        (nlpid, _) => Some(by_nlpid(data, nlpid, at + 1)),
    }
}

/// Finds IP in Sun's raw ATM: payload type, path, circuit.
fn sun_atm(data: &[u8], scope: &mut Scope) -> Option<At> {
    const LAN_EMULATION: u8 = 1;
    const LLC: u8 = 2;
    match data.first()? & 0x0f {
        LAN_EMULATION => ethernet(data, 6, scope),
        LLC => by_llc(data, 4, scope),
        _ => Some(None),
    }
}

/// Finds IP in IEEE 802.11: unencrypted data frames, after a header of the capturing host.
fn wireless(data: &[u8], at: usize, scope: &mut Scope) -> Option<At> {
    const DATA: u8 = 0x08;
    const NO_DATA: u8 = 0x40;
    const HAS_QOS: u8 = 0x80;
    const TO_AND_FROM_DISTRIBUTION: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const HAS_HT_CONTROL: u8 = 0x80;
    const AGGREGATE: u8 = 0x80;
    let &[kind, flags] = data.get(at..at + 2)? else { return None };
    if kind & 0x0c != DATA || kind & NO_DATA != 0 || flags & PROTECTED != 0 {
        return Some(None);
    }
    let mut len = if flags & TO_AND_FROM_DISTRIBUTION == TO_AND_FROM_DISTRIBUTION { 30 } else { 24 };
    if kind & HAS_QOS != 0 {
        if data.get(at + len)? & AGGREGATE != 0 {
            return Some(None);
        }
        len += if flags & HAS_HT_CONTROL != 0 { 6 } else { 2 };
    }
    by_llc(data, at + len, scope)
}

/// Finds IP after the Prism driver's header, or AVS's in its place.
fn prism(data: &[u8], scope: &mut Scope) -> Option<At> {
    const PRISM_LEN: usize = 144;
    const AVS: u32 = 0x8021_1001;
    match be32(data, 0)? & 0xffff_ff00 == AVS & 0xffff_ff00 {
        true => wireless(data, be32(data, 4)? as usize, scope),
        false => wireless(data, PRISM_LEN, scope),
    }
}

/// Finds IP in DOCSIS: only Ethernet packets, after the header, its extension and check sequence.
fn docsis(data: &[u8], scope: &mut Scope) -> Option<At> {
    const PACKET: u8 = 0;
    let &[control, extension_len, ..] = data.first_chunk::<4>()?;
    if control >> 6 != PACKET {
        return Some(None);
    }
    let extension = if control & 1 != 0 { usize::from(extension_len) } else { 0 };
    ethernet(data, 6 + extension, scope)
}

/// Finds IP in Endace records of Ethernet and HDLC.
fn endace(data: &[u8], scope: &mut Scope) -> Option<At> {
    const HEADER_LEN: usize = 16;
    const EXTENSION_LEN: usize = 8;
    const EXTENSIONS_MAX: usize = 8;
    const MORE: u8 = 0x80;
    const HDLC: u8 = 1;
    const ETHERNET: u8 = 2;
    let kind = *data.get(8)?;
    let (mut at, mut more) = (HEADER_LEN, kind & MORE != 0);
    for _ in 0..EXTENSIONS_MAX {
        if !more {
            break;
        }
        more = data.get(at)? & MORE != 0;
        at += EXTENSION_LEN;
    }
    match kind & !MORE {
        ETHERNET => ethernet(data, at + 2, scope),
        HDLC => match be16(data, at)? {
            0xff03 => by_ppp_number(data, at + 2, scope),
            _ => by_type(data, at + 2, at + 4, scope),
        },
        _ => Some(None),
    }
}

/// Finds IP in Linux's netfilter log: attributes in the byte order of the capturing host; one is
/// the packet.
fn nflog(data: &[u8], _scope: &mut Scope) -> Option<At> {
    const HEADER_LEN: usize = 4;
    const PAYLOAD: u16 = 9;
    const ATTRIBUTES_MAX: usize = 64;
    let mut at = HEADER_LEN;
    for _ in 0..ATTRIBUTES_MAX {
        let (len, kind) = (le16(data, at)?, le16(data, at + 2)?);
        // Types are below 256: a high byte reveals the other byte order.
        let (len, kind) = if kind > 0xff { (len.swap_bytes(), kind.swap_bytes()) } else { (len, kind) };
        if kind == PAYLOAD {
            return Some(by_nibble(data, at + 4));
        }
        if len < 4 {
            return Some(None);
        }
        at += usize::from(len).next_multiple_of(4);
    }
    Some(None)
}

/// Finds IP in Apple's packet tap: its header has its length, and the type of the next header.
fn packet_tap(data: &[u8], scope: &mut Scope) -> Option<At> {
    let word = |at: usize| be32(data, at).map(u32::swap_bytes);
    let at = word(0)? as usize;
    match word(8).map(|number| LinkType::from_number(number as u16))? {
        LinkType::Ethernet => ethernet(data, at, scope),
        LinkType::RawIp => Some(by_nibble(data, at)),
        LinkType::Null | LinkType::Loop => Some(by_nibble(data, at + 4)),
        LinkType::Ppp => ppp(data, at, scope),
        _ => Some(None),
    }
}

fn le16(data: &[u8], at: usize) -> Option<u16> {
    be16(data, at).map(u16::swap_bytes)
}
