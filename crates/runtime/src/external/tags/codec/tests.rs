use proptest::prelude::*;

use super::*;

fn codec(carrier: TagCarrier, bits: u32) -> TagCodec {
    TagCodec::new(carrier, bits, TunnelEnds::of(0, 0)).unwrap()
}

/// An Ethernet frame, with VLAN tags of its own.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::collection::vec((prop::bool::ANY, any::<u16>()), 0..3);
    (any::<[u8; 12]>(), tags, prop::collection::vec(any::<u8>(), 0..1500)).prop_map(|(head, tags, rest)| {
        let tags = tags.into_iter().flat_map(|(is_service, control)| {
            let kind: [u8; 2] = if is_service { [0x88, 0xa8] } else { [0x81, 0x00] };
            [kind, control.to_be_bytes()].concat()
        });
        let tags: Vec<u8> = tags.collect();
        [&head[..], &tags, &[0x08, 0x00], &rest].concat()
    })
}

/// The frame that the program returns: it answers to Rivulet's end of a tunnel.
fn returned(mut frame: Vec<u8>, carrier: TagCarrier) -> Vec<u8> {
    if carrier == TagCarrier::Geneve {
        for (a, b) in (0..6).map(|at| (at, at + 6)).chain((26..30).map(|at| (at, at + 4))) {
            frame.swap(a, b);
        }
    }
    frame
}

proptest! {
    #[test]
    fn tags_and_packets_come_back(frame in frames(), tag: u64, bits in 1_u32..=64, entropy: u64) {
        for carrier in [TagCarrier::Vlan, TagCarrier::Geneve] {
            let bits = if carrier == TagCarrier::Vlan { bits.min(12) } else { bits };
            let tag = tag >> (64 - bits);
            let codec = codec(carrier, bits);
            let (mut out, mut untagged) = (Vec::new(), Vec::new());
            prop_assert!(codec.write(&frame, tag, entropy, &mut out));
            let added = match (carrier, bits) {
                (TagCarrier::Vlan, _) => 4,
                (_, 33..) => 62,
                _ => 58,
            };
            prop_assert_eq!(out.len(), frame.len() + added);
            let back = returned(out, carrier);
            prop_assert_eq!(codec.read(&back, &mut untagged), (&frame[..], Ok(tag)));
        }
    }

    #[test]
    fn values_beyond_the_layout_are_bad(frame in frames(), bits in 1_u32..12, id in 0_u16..4096) {
        let codec = codec(TagCarrier::Vlan, bits);
        let tagged = [&frame[..12], &[0x81, 0], &id.to_be_bytes(), &frame[12..]].concat();
        let expected = if id >> bits == 0 { Ok(id.into()) } else { Err(TagFault::Bad) };
        let mut untagged = Vec::new();
        prop_assert_eq!(codec.read(&tagged, &mut untagged), (&frame[..], expected));
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..70, to: u8) {
        let mut tunnelled = Vec::new();
        prop_assert!(codec(TagCarrier::Geneve, 20).write(&[7; 60], 5, 0, &mut tunnelled));
        let mut tunnelled = returned(tunnelled, TagCarrier::Geneve);
        tunnelled[at] = to;
        for carrier in [TagCarrier::Vlan, TagCarrier::Geneve] {
            let codec = codec(carrier, 20);
            let mut untagged = Vec::new();
            for frame in [&bytes, &tunnelled] {
                let (packet, tag) = codec.read(frame, &mut untagged);
                prop_assert!(packet.len() <= frame.len());
                prop_assert!(tag.is_err() || tag.unwrap() < 1 << 20);
            }
        }
    }
}

/// Around a tag of the packet, an outer one is that of a provider (IEEE 802.1ad).
#[test]
fn own_tags_stay_inside() {
    let tagged = |frame: &[u8]| {
        let mut out = Vec::new();
        assert!(codec(TagCarrier::Vlan, 12).write(frame, 0xabc, 0, &mut out));
        out[12..].to_vec()
    };
    let addresses = [1; 12];
    let plain = [&addresses[..], &[0x08, 0x00, 0x45]].concat();
    assert_eq!(tagged(&plain), [0x81, 0x00, 0x0a, 0xbc, 0x08, 0x00, 0x45]);
    let own = [&addresses[..], &[0x81, 0x00, 0x20, 0x07, 0x08, 0x00, 0x45]].concat();
    assert_eq!(tagged(&own), [0x88, 0xa8, 0x0a, 0xbc, 0x81, 0x00, 0x20, 0x07, 0x08, 0x00, 0x45]);
}

#[test]
fn frames_of_a_program_without_tag_are_as_they_are() {
    let mut plain = [0; 60];
    plain[12] = 8;
    for carrier in [TagCarrier::Vlan, TagCarrier::Geneve] {
        let codec = codec(carrier, 12);
        for frame in [&plain[..], &plain[..13], &[]] {
            let mut untagged = Vec::new();
            assert_eq!(codec.read(frame, &mut untagged), (frame, Err(TagFault::Missing)), "{carrier:?}");
        }
        assert!(!codec.write(&plain[..13], 0, 0, &mut Vec::new()), "no Ethernet header");
    }
    assert!(!codec(TagCarrier::Geneve, 12).write(&[0; 65_500], 0, 0, &mut Vec::new()), "too long for IP");
}

#[test]
fn wrong_tunnels_are_told_apart() {
    let mut sent = Vec::new();
    assert!(codec(TagCarrier::Geneve, 12).write(&[7; 60], 0xabc, 0, &mut sent));
    let good = returned(sent, TagCarrier::Geneve);
    assert_eq!(good[26..32], [100, 127, 0, 2, 100, 127]);
    let read = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        let mut untagged = Vec::new();
        let (packet, tag) = codec(TagCarrier::Geneve, 12).read(&frame, &mut untagged);
        (packet.len(), tag)
    };
    let (ip, geneve) = (14, 42);
    assert_eq!(read(&|_| {}), (60, Ok(0xabc)));
    // Other packets are no tunnel's: to another address, to another port, fragments.
    assert_eq!(read(&|frame| frame[ip + 19] = 9), (118, Err(TagFault::Missing)));
    assert_eq!(read(&|frame| frame[ip + 23] = 9), (118, Err(TagFault::Missing)));
    assert_eq!(read(&|frame| frame[ip + 6] = 0x20), (118, Err(TagFault::Missing)));
    // Another version, a control packet, another payload, options beyond the packet.
    for (at, to) in [(0, 0x42), (1, 0x80), (2, 0x08), (0, 0x3f)] {
        assert_eq!(read(&|frame| frame[geneve + at] = to), (0, Err(TagFault::NoPacket)), "{at}");
    }
    // Another option, one of another length, one beyond the header, bits of no attribute.
    assert_eq!(read(&|frame| frame[geneve + 9] = 0), (60, Err(TagFault::Missing)));
    assert_eq!(read(&|frame| frame[geneve + 11] = 0), (60, Err(TagFault::Bad)));
    assert_eq!(read(&|frame| frame[geneve + 11] = 9), (60, Err(TagFault::Bad)));
    assert_eq!(read(&|frame| frame[geneve + 12] = 1), (60, Err(TagFault::Bad)));
}
