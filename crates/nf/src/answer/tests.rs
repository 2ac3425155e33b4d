use super::*;
use packet::{FlowHasher, Packet, Parser};
use proptest::prelude::*;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [192, 0, 2, 7];

/// Returns an IPv4 packet on Ethernet, without the transport's checksum.
fn v4(source: [u8; 4], destination: [u8; 4], fragment: u16, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0]);
    bytes.extend((20 + body.len() as u16).to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(source);
    bytes.extend(destination);
    bytes.extend(body);
    bytes
}

fn v6(source: u128, destination: u128, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend([protocol, 64]);
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn tcp(seq: u32, ack: u32, flags: u8, payload: usize) -> Vec<u8> {
    let mut segment = vec![0x12, 0x34, 0, 80];
    segment.extend(seq.to_be_bytes());
    segment.extend(ack.to_be_bytes());
    segment.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
    segment.extend(vec![b'x'; payload]);
    segment
}

fn udp(payload: usize) -> Vec<u8> {
    let mut datagram = vec![0x12, 0x34, 0, 53];
    datagram.extend((8 + payload as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(vec![b'x'; payload]);
    datagram
}

fn answered(
    bytes: &[u8],
    make: impl FnOnce(&PacketView<'_>, &mut AnswerBuffer) -> Result<usize, NotAnswerable>,
) -> Result<Packet, NotAnswerable> {
    let parser = Parser::new(FlowHasher::new(1));
    let mut packet = Packet::from_bytes(bytes);
    parser.parse(&mut packet).unwrap();
    let mut buffer = buffer();
    let len = make(&PacketView::new(&mut packet, None), &mut buffer)?;
    let mut answer = Packet::from_bytes(&buffer[..len]);
    answer.meta_mut().link = LinkType::RawIp;
    Parser { verify_ipv4_checksum: true, ..parser }.parse(&mut answer).unwrap();
    assert_eq!(answer.ip_len(), len);
    check_transport_sum(&answer);
    Ok(answer)
}

fn reset(bytes: &[u8]) -> Result<Packet, NotAnswerable> {
    answered(bytes, |packet, buffer| tcp_reset(packet, buffer).map(<[u8]>::len))
}

fn error(bytes: &[u8], error: IcmpError) -> Result<Packet, NotAnswerable> {
    answered(bytes, |packet, buffer| icmp_error(packet, error, packet.ends().1.addr, buffer).map(<[u8]>::len))
}

/// Checks the checksum by the definition of RFC 1071, independent of the code under test.
fn check_transport_sum(packet: &Packet) {
    let (meta, data) = (packet.meta(), packet.data());
    let segment = &data[meta.l4 as usize..];
    let mut covered = segment.to_vec();
    if meta.protocol != protocol::ICMP {
        let addresses = if meta.version == 4 { &data[12..20] } else { &data[8..40] };
        covered.splice(0..0, addresses.iter().copied());
        covered.extend(vec![0; covered.len() % 2]);
        covered.extend([0, meta.protocol]);
        covered.extend((segment.len() as u16).to_be_bytes());
    }
    covered.extend(vec![0; covered.len() % 2]);
    let total: u64 = covered.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
    assert_eq!(total % 0xffff, 0, "checksum of {data:02x?}");
}

#[test]
fn reset_takes_its_numbers_from_the_segment() {
    // what, seq, ack, flags, payload -> seq, ack, flags
    let rows = [
        ("SYN", 100, 0, SYN, 0, 0, 101, RST | ACK),
        ("SYN with data", 100, 0, SYN, 5, 0, 106, RST | ACK),
        ("SYN at the end of the space", u32::MAX, 0, SYN, 0, 0, 0, RST | ACK),
        ("FIN without ACK", 7, 0, FIN, 2, 0, 10, RST | ACK),
        ("ACK", 100, 900, ACK, 0, 900, 0, RST),
        ("data", 100, 900, ACK | 8, 50, 900, 0, RST),
        ("SYN with ACK", 100, 900, SYN | ACK, 0, 900, 0, RST),
    ];
    for (what, seq, ack, flags, payload, want_seq, want_ack, want_flags) in rows {
        let segment = tcp(seq, ack, flags, payload);
        for bytes in [v4(A, B, 0, 6, &segment), v6(1 << 120, 2 << 120, 6, &segment)] {
            let answer = reset(&bytes).unwrap();
            let l4 = &answer.data()[answer.meta().l4 as usize..];
            assert_eq!(l4.len(), 20, "{what}");
            assert_eq!(l4[..4], [0, 80, 0x12, 0x34], "{what}");
            assert_eq!(l4[4..8], u32::to_be_bytes(want_seq), "{what}");
            assert_eq!(l4[8..12], u32::to_be_bytes(want_ack), "{what}");
            assert_eq!(l4[13], want_flags, "{what}");
        }
    }
}

#[test]
fn link_padding_is_not_payload() {
    let mut bytes = v4(A, B, 0, 6, &tcp(100, 0, SYN, 0));
    bytes.extend([0; 6]);
    assert_eq!(reset(&bytes).unwrap().data()[28..32], 101u32.to_be_bytes());
    let quoted = error(&bytes, IcmpError::AdminProhibited).unwrap();
    assert_eq!(quoted.len(), 28 + 40);
}

#[test]
fn icmp_error_has_type_code_and_quotation() {
    let rows = [
        (IcmpError::NoRoute, [3, 0], [1, 0], 0u32),
        (IcmpError::HostUnreachable, [3, 1], [1, 3], 0),
        (IcmpError::PortUnreachable, [3, 3], [1, 4], 0),
        (IcmpError::AdminProhibited, [3, 13], [1, 1], 0),
        (IcmpError::TooBig { mtu: 1400 }, [3, 4], [2, 0], 1400),
        (IcmpError::TimeExceeded, [11, 0], [3, 0], 0),
    ];
    for (what, in_v4, in_v6, rest) in rows {
        let bytes = v4(A, B, 0, 17, &udp(11));
        let answer = error(&bytes, what).unwrap();
        let icmp = &answer.data()[20..];
        assert_eq!((answer.data()[1], answer.data()[9], &icmp[..2]), (0xc0, 1, &in_v4[..]), "{what:?}");
        assert_eq!(icmp[4..8], rest.to_be_bytes());
        assert_eq!(icmp[8..], bytes[14..]);
        assert_eq!(answer.meta().class, PacketClass::IcmpError);
        let bytes = v6(1 << 120, 2 << 120, 17, &udp(11));
        let answer = error(&bytes, what).unwrap();
        let icmp = &answer.data()[40..];
        assert_eq!((answer.data()[6], &icmp[..2]), (58, &in_v6[..]), "{what:?}");
        assert_eq!(icmp[4..8], rest.to_be_bytes());
        assert_eq!(icmp[8..], bytes[14..]);
    }
}

#[test]
fn quotation_is_bounded() {
    let answer = error(&v4(A, B, 0, 17, &udp(1400)), IcmpError::AdminProhibited).unwrap();
    assert_eq!(answer.len(), ICMP_V4_MAX);
    let answer = error(&v6(1 << 120, 2 << 120, 17, &udp(1400)), IcmpError::AdminProhibited).unwrap();
    assert_eq!(answer.len(), ANSWER_MAX);
}

#[test]
fn forbidden_packets_are_not_answered() {
    let syn = tcp(1, 0, SYN, 0);
    let mut to_all_on_link = v4(A, B, 0, 6, &syn);
    to_all_on_link[..6].fill(0xff);
    let rows: Vec<(&str, Vec<u8>, NotAnswerable)> = vec![
        ("a reset", v4(A, B, 0, 6, &tcp(1, 0, RST, 0)), NotAnswerable::Reset),
        ("a first fragment", v4(A, B, 0x2000, 6, &syn), NotAnswerable::Fragment),
        ("a later fragment", v4(A, B, 9, 6, &syn), NotAnswerable::Fragment),
        ("UDP", v4(A, B, 0, 17, &udp(0)), NotAnswerable::NotTcp),
        ("to a group", v4(A, [224, 0, 0, 1], 0, 6, &syn), NotAnswerable::ToMany),
        ("to all", v4(A, [255; 4], 0, 6, &syn), NotAnswerable::ToMany),
        ("to all on the link", to_all_on_link, NotAnswerable::ToMany),
        ("to a group, IPv6", v6(1 << 120, 0xff02 << 112 | 1, 6, &syn), NotAnswerable::ToMany),
        ("from nobody", v4([0; 4], B, 0, 6, &syn), NotAnswerable::FromNoHost),
        ("from itself", v4([127, 0, 0, 1], B, 0, 6, &syn), NotAnswerable::FromNoHost),
        ("from a group", v4([239, 1, 1, 1], B, 0, 6, &syn), NotAnswerable::FromNoHost),
        ("from nobody, IPv6", v6(0, 2 << 120, 6, &syn), NotAnswerable::FromNoHost),
    ];
    for (what, bytes, want) in rows {
        assert_eq!(reset(&bytes).err(), Some(want), "{what}");
        if !matches!(want, NotAnswerable::Reset | NotAnswerable::NotTcp) && what != "a first fragment" {
            assert_eq!(error(&bytes, IcmpError::AdminProhibited).err(), Some(want), "{what}");
        }
    }
}

#[test]
fn icmp_errors_are_not_answered_but_queries_are() {
    let ask = |bytes: &[u8]| error(bytes, IcmpError::AdminProhibited).err();
    let quoted = &v4(B, A, 0, 17, &udp(0))[14..];
    let unreachable = [&[3, 1, 0, 0, 0, 0, 0, 0], quoted].concat();
    assert_eq!(ask(&v4(A, B, 0, 1, &unreachable)), Some(NotAnswerable::IcmpError));
    assert_eq!(ask(&v4(A, B, 0, 1, &[3, 1, 0, 0, 0, 0, 0, 0])), Some(NotAnswerable::IcmpError));
    assert_eq!(ask(&v6(1 << 120, 2 << 120, 58, &[137, 0, 0, 0, 0, 0, 0, 0])), Some(NotAnswerable::IcmpError));
    assert_eq!(ask(&v4(A, B, 0, 1, &[8, 0, 0, 0, 0, 1, 0, 1])), None);
    assert_eq!(ask(&v6(1 << 120, 2 << 120, 58, &[128, 0, 0, 0, 0, 1, 0, 1])), None);
}

#[test]
fn too_big_answers_a_group_in_ipv6_only() {
    let big = IcmpError::TooBig { mtu: 1280 };
    let ask = |bytes: &[u8], from: Addr| {
        answered(bytes, |packet, buffer| icmp_error(packet, big, from, buffer).map(<[u8]>::len)).err()
    };
    let (group, host) = (Addr::from_u128(0xff0e << 112 | 1), Addr::from_u128(9 << 120));
    let bytes = v6(1 << 120, group.to_u128(), 17, &udp(9));
    assert_eq!(ask(&bytes, host), None);
    assert_eq!(ask(&bytes, group), Some(NotAnswerable::NoSource));
    assert_eq!(
        ask(&v4(A, [224, 0, 0, 1], 0, 17, &udp(9)), Addr::from_v4_bytes(B)),
        Some(NotAnswerable::ToMany)
    );
}

proptest! {
    #[test]
    fn any_packet_is_answered_correctly_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 14..120), v6: bool) {
        let mut bytes = bytes;
        let header: [u8; 4] = if v6 { [0x86, 0xdd, 0x60, 0] } else { [8, 0, 0x45, 0] };
        bytes.splice(12..(16.min(bytes.len())), header);
        let mut packet = Packet::from_bytes(&bytes);
        packet.meta_mut().wire_len = 2000;
        prop_assume!(Parser::new(FlowHasher::new(1)).parse(&mut packet).is_ok());
        let view = PacketView::new(&mut packet, None);
        let mut buffer = buffer();
        let from = view.ends().1.addr;
        for what in [IcmpError::AdminProhibited, IcmpError::TooBig { mtu: 70_000 }] {
            if let Ok(answer) = icmp_error(&view, what, from, &mut buffer) {
                prop_assert!(answer.len() <= ANSWER_MAX);
            }
        }
        if let Ok(answer) = tcp_reset(&view, &mut buffer) {
            prop_assert!(answer.len() <= 60);
        }
    }
}
