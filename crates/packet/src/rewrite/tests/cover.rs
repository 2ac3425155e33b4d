//! Patterns of outer headers, compared with flipped bits and tables of per-packet fields.

use super::outer::outer_of;
use super::*;

/// Returns the per-packet bits of outer headers, by byte, from the documents; without lengths,
/// which must match.
fn own_bits(headers: &[u8]) -> Vec<u8> {
    let mut own = vec![0; headers.len()];
    let is_v4 = headers[0] >> 4 == 4;
    let (ip_len, next) = if is_v4 { (20, headers[9]) } else { (40, headers[6]) };
    let of_ip: &[(usize, u8)] = match is_v4 {
        // Class, identification, DF, time to live, checksum.
        true => &[(1, 0xff), (4, 0xff), (5, 0xff), (6, 0x40), (8, 0xff), (10, 0xff), (11, 0xff)],
        // Class and flow label, hop limit.
        false => &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)],
    };
    of_ip.iter().for_each(|&(at, bits)| own[at] = bits);
    if next == 17 {
        [0, 1, 4, 5, 6, 7].into_iter().for_each(|at| own[ip_len + at] = 0xff);
    }
    if next == 47 && headers[ip_len] & 0x10 != 0 {
        let number_at = ip_len + 4 + if headers[ip_len] & 0x20 != 0 { 4 } else { 0 };
        own[number_at..number_at + 4].fill(0xff);
    }
    own
}

/// Returns an Ethernet packet in outer headers, both with ECT(0), parsed as on arrival.
fn wrapped(outer: &OuterHeaders, network_bytes: &[u8], framing: &(LinkType, Vec<u8>, Vec<u8>)) -> Packet {
    let mut network_bytes = network_bytes.to_vec();
    super::super::congestion::set_traffic_class(&mut network_bytes, 2);
    let mut packet = frame(framing, &network_bytes, &[], true);
    packet.encap(outer).unwrap();
    parse_again(&mut packet, true);
    packet
}

fn bare() -> (LinkType, Vec<u8>, Vec<u8>) {
    (LinkType::Ethernet, [&[6; 12][..], &[8, 0]].concat(), [&[6; 12][..], &[0x86, 0xdd]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn outer_headers_match_except_for_per_packet_fields(
        network_bytes in plain(),
        other in plain(),
        [six, with_checksum, with_other_checksum] in any::<[bool; 3]>(),
        kind in 0usize..7,
        (entropy, other_entropy) in any::<(u32, u32)>(),
    ) {
        let version = network_bytes[0] >> 4;
        let make = |with_checksum, entropy| match kind {
            // GRE with a sequence number, with and without a key.
            5 | 6 => {
                let (ip, ether_type) = (outer_of(0, six, version, false, entropy), if version == 4 { 0x0800u16 } else { 0x86dd });
                let flags: [u8; 2] = [if kind == 5 { 0x10 } else { 0x30 }, 0];
                let key: &[u8] = if kind == 5 { &[] } else { &[1, 2, 3, 4] };
                let number = entropy.to_be_bytes();
                ip.with_shim(protocol::GRE, &[&flags, &ether_type.to_be_bytes()[..], key, &number].concat()).unwrap()
            }
            _ => outer_of(kind, six, version, with_checksum, entropy),
        };
        let packet = wrapped(&make(with_checksum, entropy), &network_bytes, &bare());
        let covers = OuterMatches { tags: None, ..OuterMatches::of(&packet) };
        let len = make(with_checksum, entropy).header_len();
        prop_assert_eq!(covers.outer_len(), len);
        prop_assert!(covers.are_of(&packet));
        if other[0] >> 4 == version {
            let other = wrapped(&make(with_other_checksum, other_entropy), &other, &bare());
            prop_assert!(covers.are_of(&other));
            prop_assert_eq!(&OuterMatches { tags: None, ..OuterMatches::of(&other) }, &covers);
        }
        let own = own_bits(&network(&packet)[..len]);
        let mut bytes = network(&packet)[..len].to_vec();
        bytes.iter_mut().zip(&own).for_each(|(byte, own)| *byte &= !own);
        let (at, l) = if six { (4, 2) } else { (2, 2) };
        bytes[at..at + l].fill(0);
        prop_assert_eq!(covers.outer.as_ref().unwrap().bytes().collect::<Vec<_>>(), bytes);
        for (at, own) in own.iter().enumerate() {
            for bit in (0..8).map(|bit| 1 << bit) {
                let mut turned = Packet::from_bytes(packet.data());
                *turned.meta_mut() = packet.meta().clone();
                turned.data_mut()[14 + at] ^= bit;
                prop_assert_eq!(covers.are_of(&turned), own & bit != 0, "{}: {:#x}", at, bit);
            }
        }
    }

    #[test]
    fn tags_match_exactly(network_bytes in plain(), framing in framing()) {
        let packet = frame(&framing, &network_bytes, &[], true);
        let in_pppoe = framing.1.get(12..14) == Some(&[0x88, 0x64]);
        let Some(tags) = OuterMatch::tags_of(&packet) else {
            prop_assert!(framing.0 != LinkType::Ethernet || in_pppoe);
            return Ok(());
        };
        prop_assert!(framing.0 == LinkType::Ethernet && !in_pppoe);
        let covers = OuterMatches { tags: Some(tags), outer: None };
        prop_assert!(covers.are_of(&packet));
        for (at, bit) in (0..usize::from(packet.meta().l3)).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            let mut turned = Packet::from_bytes(packet.data());
            *turned.meta_mut() = packet.meta().clone();
            turned.data_mut()[at] ^= bit;
            prop_assert_eq!(covers.are_of(&turned), at < 12, "{}: {:#x}", at, bit);
        }
    }
}

/// Headers that cannot be matched: options, nested tunnels, headers with the packet's length.
#[test]
fn some_outer_headers_have_no_pattern() {
    let inside = ip(false, 17, &[0x40, 0, 0x40, 1, 0, 8, 0, 0], true);
    let told = |network_bytes: &[u8]| {
        let mut packet = frame(&bare(), network_bytes, &[], true);
        parse_again(&mut packet, true);
        (
            usize::from(packet.meta().l3 - packet.meta().outer_l3),
            OuterMatch::outer_of(&packet).map(|cover| cover.len()),
        )
    };
    assert_eq!(told(&inside), (0, None));
    let once = ip(false, 4, &inside, true);
    assert_eq!(told(&once), (20, Some(20)));
    assert_eq!(told(&ip(true, 4, &once, true)), (60, None), "a tunnel in a tunnel");
    let gtp = [&[0xc0, 0, 8, 0x68, 0, 44, 0, 0, 0x30, 255, 0, 28, 0, 0, 0, 1][..], &inside].concat();
    assert_eq!(told(&ip(false, 17, &gtp, true)), (36, None), "GTP-U");
    let mut options = ip(false, 4, &[&[1, 1, 1, 1][..], &inside].concat(), true);
    options[0] = 0x46;
    assert_eq!(told(&options), (24, None), "options");
    let geneve = |words: u8| {
        let head = [0xc0, 0, 0x17, 0xc1, 0, 0, 0, 0, words, 0, 8, 0, 0, 0, 7, 0];
        ip(true, 17, &[&head[..], &vec![1; usize::from(words) * 4], &inside].concat(), false)
    };
    assert_eq!(told(&geneve(8)), (88, Some(88)));
    assert_eq!(told(&geneve(10)), (96, Some(OUTER_MATCH_LEN_MAX)));
    assert_eq!(told(&geneve(11)), (100, None), "too long");
}

// RFC 6040 4.2
#[test]
fn congestion_mark_is_kept_or_decap_refused() {
    for (six, version) in [(false, 4), (true, 4), (false, 6), (true, 6)] {
        for (own, outer_class) in (0..4).flat_map(|own| (0..4).map(move |outer| (own, outer))) {
            let inside = ip(version == 6, 17, &[0x40, 0, 0x40, 1, 0, 8, 0, 0], true);
            let outer = outer_of(1, six, version, false, 7);
            let mut packet = wrapped(&outer, &inside, &bare());
            let covers = OuterMatches::of(&packet);
            let len = outer.header_len();
            super::super::congestion::set_traffic_class(&mut packet.data_mut()[14..], 0x28 | outer_class);
            super::super::congestion::set_traffic_class(&mut packet.data_mut()[14 + len..], 0xb8 | own);
            let before = packet.data().to_vec();
            let expected = [[0, 0, 0, 9], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]][usize::from(own)]
                [usize::from(outer_class)];
            assert_eq!(covers.are_of(&packet), expected != 9);
            let taken = packet.decap(len);
            if expected == 9 {
                assert_eq!((taken, packet.data()), (Err(RewriteError::Congestion), &before[..]));
                continue;
            }
            let mut out = inside.clone();
            super::super::congestion::set_traffic_class(&mut out, 0xb8 | expected);
            assert_eq!((taken, network(&packet)), (Ok(version), &out[..]));
            assert_eq!(packet.meta().l3, 14);
            assert!(verdicts(network(&packet)).iter().all(|right| *right));
            assert!(packet.decap(20).is_err(), "it is out");
        }
    }
}
