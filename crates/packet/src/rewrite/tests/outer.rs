//! Outer headers against a slow oracle and the parser.

use super::*;

proptest! {
    /// Outer headers made for a flow are valid for each packet: the parser finds the same inner
    /// packet, checksums are valid, and copied fields are equal.
    #[test]
    fn outer_headers_fit_every_packet(
        mut network_bytes in prop_oneof![plain(), error()],
        framing in framing(),
        trailer in prop::collection::vec(any::<u8>(), 0..9),
        [six, with_checksum, fixed] in any::<[bool; 3]>(),
        kind in 0usize..5,
        (class, entropy, clock) in any::<(u8, u32, u64)>(),
    ) {
        let version = network_bytes[0] >> 4;
        if version == 4 {
            (network_bytes[1], network_bytes[6]) = (class, if fixed { 0x40 } else { 0 });
            network_bytes[10..12].fill(0);
            let sum = slow_sum(&network_bytes[..20]);
            network_bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            (network_bytes[0], network_bytes[1]) = (6 << 4 | class >> 4, class << 4);
        }
        let mut packet = frame(&framing, &network_bytes, &trailer, true);
        packet.meta_mut().transit.seq = clock;
        let outer = outer_of(kind, six, version, with_checksum, entropy);
        packet.encap(&outer).unwrap();
        let (headers, inside) = network(&packet).split_at(outer.header_len());
        prop_assert_eq!(inside, &network_bytes[..]);
        prop_assert_eq!(packet.meta().wire_len as usize, packet.len());
        let right = verdicts(network(&packet));
        prop_assert!(right.iter().all(|right| *right) || packet.meta().class == PacketClass::IcmpError);
        if six {
            prop_assert_eq!((headers[0] << 4 | headers[1] >> 4, headers[7]), (class, 9));
        } else {
            let is_fixed = version == 4 && fixed;
            let number = if is_fixed { 0 } else { (clock as u16).wrapping_add(entropy as u16) };
            prop_assert_eq!((headers[1], headers[6], headers[8]), (class, if is_fixed { 0x40 } else { 0 }, 9));
            prop_assert_eq!(word(headers, 4), number);
        }
        let udp = outer.version() == 4 && headers[9] == 17 || six && headers[6] == 17;
        prop_assert_eq!(udp, matches!(kind, 2..=4));
        prop_assert_eq!(udp && with_checksum, packet.meta().outer_udp != 0);
        let (l3, l4) = (packet.meta().l3, packet.meta().l4);
        parse_again(&mut packet, true);
        prop_assert_eq!((packet.meta().l3, packet.meta().l4), (l3, l4));
        prop_assert_eq!(packet.encap(&outer), Err(RewriteError::NoHeader), "it is in a tunnel");
        prop_assert_eq!(packet.decap(outer.header_len()), Ok(version));
        prop_assert_eq!(network(&packet), &network_bytes[..]);
    }
}

/// Returns the headers of IP in IP, GRE, GUE, VXLAN and Geneve, by their documents.
pub(super) fn outer_of(
    kind: usize,
    six: bool,
    version: u8,
    with_checksum: bool,
    entropy: u32,
) -> OuterHeaders {
    let address = |last: u128| match six {
        true => Addr::from_u128(0x2001_0db8 << 96 | last),
        false => Addr::from_v4_bytes([192, 0, 2, last as u8]),
    };
    let ether_type: [u8; 2] = if version == 4 { [8, 0] } else { [0x86, 0xdd] };
    let frame = [&[4; 12][..], &ether_type].concat();
    let ip = OuterHeaders::new(address(1), address(2), 9, entropy);
    let with = match kind {
        0 => Ok(ip),
        1 => ip.with_shim(protocol::GRE, &[&[0, 0], &ether_type[..]].concat()),
        2 => ip.over_udp(6080, with_checksum).with_shim(0, &[0, if version == 4 { 4 } else { 41 }, 0, 0]),
        3 => ip.over_udp(4789, with_checksum).with_shim(0, &[&[8, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat()),
        _ => ip
            .over_udp(6081, with_checksum)
            .with_shim(0, &[&[0, 0, 0x65, 0x58, 0, 0, 7, 0], &frame[..]].concat()),
    };
    with.unwrap()
}

#[test]
fn outer_headers_have_their_limits() {
    let outer =
        OuterHeaders::new(Addr::from_v4_bytes([192, 0, 2, 1]), Addr::from_v4_bytes([192, 0, 2, 2]), 9, 0);
    assert_eq!(outer.with_shim(0, &[0; SHIM_LEN_MAX + 1]), Err(RewriteError::TooBig));
    let six = OuterHeaders::new(Addr::NONE, Addr::NONE, 9, 0)
        .over_udp(1, true)
        .with_shim(0, &[0; SHIM_LEN_MAX])
        .unwrap();
    assert_eq!(six.header_len(), OUTER_LEN_MAX);
    let mut long = frame(
        &(LinkType::RawIp, vec![], vec![]),
        &ip(false, 17, &[0, 0, 0, 0, 0, 8, 0, 0], false),
        &[],
        true,
    );
    let (data, meta) = long.parts_mut();
    data[2..4].copy_from_slice(&u16::MAX.to_be_bytes());
    meta.plain_len = u16::MAX;
    assert_eq!(long.encap(&outer), Err(RewriteError::TooBig));
    assert!(!long.fits_after_decap(0, outer.room_within(u16::MAX)), "it is not taken for one that fits");
    assert_eq!((outer.room_within(u16::MAX), outer.room_within(1480)), (u16::MAX - 20, 1480));
    assert!(!long.fits_after_decap(0, u16::MAX - 1) && long.fits_after_decap(0, u16::MAX));
}
