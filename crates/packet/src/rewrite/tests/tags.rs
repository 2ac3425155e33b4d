//! Tags and labels, compared with frames built from their parts, and the parser.

use super::*;

/// A frame's parts, outermost first: the oracle, independent of in-place moves.
#[derive(Clone, Default)]
struct Parts {
    vlans: Vec<[u8; 4]>,
    /// Without bottom-of-stack bits.
    labels: Vec<[u8; 4]>,
    network: Vec<u8>,
}

impl Parts {
    fn bytes(&self, trailer: &[u8]) -> Vec<u8> {
        let ether_type: [u8; 2] = match self.network[0] >> 4 {
            _ if !self.labels.is_empty() => [0x88, 0x47],
            4 => [8, 0],
            _ => [0x86, 0xdd],
        };
        let mut labels = self.labels.clone();
        if let Some(bottom) = labels.last_mut() {
            bottom[2] |= 1;
        }
        [&[6; 6][..], &[7; 6], &self.vlans.concat(), &ether_type, &labels.concat(), &self.network, trailer]
            .concat()
    }

    fn stack(&mut self, kind: TagKind) -> &mut Vec<[u8; 4]> {
        match kind {
            TagKind::Vlan => &mut self.vlans,
            TagKind::Label => &mut self.labels,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(Tag, [u8; 4]),
    Pop(TagKind),
    Ends(u128, u16),
}

/// Returns a tag, and its bytes by the standards.
fn tag() -> impl Strategy<Value = (Tag, [u8; 4])> {
    let vlan = (0u16..0xfff, 0u8..8, any::<bool>(), any::<bool>()).prop_map(|(vid, pcp, dei, service)| {
        let make = if service { Tag::service_vlan } else { Tag::vlan };
        let [high, low] = vid.to_be_bytes();
        let kind: [u8; 2] = if service { [0x88, 0xa8] } else { [0x81, 0] };
        (make(vid, pcp, dei).unwrap(), [kind[0], kind[1], pcp << 5 | u8::from(dei) << 4 | high, low])
    });
    let label = (16u32..1 << 20, 0u8..8, 1u8..).prop_map(|(label, tc, ttl)| {
        let bytes = [(label >> 12) as u8, (label >> 4) as u8, (label << 4) as u8 | tc << 1, ttl];
        (Tag::label(label, tc, ttl).unwrap(), bytes)
    });
    prop_oneof![vlan, label]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => tag().prop_map(|(tag, bytes)| Step::Push(tag, bytes)),
        2 => prop_oneof![Just(TagKind::Vlan), Just(TagKind::Label)].prop_map(Step::Pop),
        1 => any::<(u128, u16)>().prop_map(|(address, port)| Step::Ends(address, port)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any pushes and pops, the frame equals its parts, its metadata is what the parser
    /// finds, and so is its key.
    #[test]
    fn frames_equal_their_parts(
        network_bytes in prop_oneof![plain(), tunnelled()],
        trailer in prop::collection::vec(any::<u8>(), 0..20),
        steps in prop::collection::vec(step(), 1..40),
        inner: bool,
        outer in prop::option::of(0usize..5),
    ) {
        let mut parts = Parts { network: network_bytes.clone(), ..Parts::default() };
        let mut packet = Packet::from_bytes(&parts.bytes(&trailer));
        parse_again(&mut packet, inner);
        let version = network_bytes[0] >> 4;
        // Outer headers follow all tags.
        let wrapped = outer.is_some_and(|kind| {
            inner && packet.encap(&super::outer::outer_of(kind, true, version, false, 7)).is_ok()
        });
        let trailer = if wrapped { vec![] } else { trailer };
        parts.network = network(&packet).to_vec();
        let payload = packet.data().len() - network(&packet).len() - trailer.len();
        let payload_at = packet.data()[payload..].as_ptr();
        for step in steps {
            match step {
                Step::Push(tag, bytes) => {
                    let stack = parts.stack(tag.kind());
                    if stack.len() == parse::SHIM_MAX {
                        prop_assert_eq!(packet.push_tag(tag), Err(RewriteError::TooDeep));
                    } else {
                        prop_assert_eq!(packet.push_tag(tag), Ok(()));
                        stack.insert(0, bytes);
                        prop_assert_eq!(packet.tag(tag.kind()), Some(tag));
                    }
                }
                Step::Pop(kind) => {
                    let outermost = packet.tag(kind);
                    let stack = parts.stack(kind);
                    prop_assert_eq!(outermost.is_some(), !stack.is_empty());
                    prop_assert_eq!(packet.pop_tag(kind), outermost.ok_or(RewriteError::NoHeader));
                    if outermost.is_some() {
                        stack.remove(0);
                    }
                }
                Step::Ends(address, port) => {
                    let end = endpoint(&packet, address, port);
                    let _ = packet.set_end(End::Source, end);
                    parts.network = network(&packet).to_vec();
                }
            }
            prop_assert_eq!(packet.data(), parts.bytes(&trailer));
            prop_assert_eq!(packet.meta().wire_len as usize, packet.len());
            let left = TagRoom {
                vlans: (parse::SHIM_MAX - parts.vlans.len()) as u8,
                labels: (parse::SHIM_MAX - parts.labels.len()) as u8,
            };
            prop_assert!(packet.takes_tags(left));
            prop_assert!(!packet.takes_tags(left.and_for(TagKind::Vlan)));
            prop_assert!(!packet.takes_tags(left.and_for(TagKind::Label)));
            let mut fresh = Packet::from_bytes(packet.data());
            parse_again(&mut fresh, inner);
            let [now, then] = [packet.meta(), fresh.meta()].map(|m| {
                (m.outer_l3, m.l3, m.l4, m.payload, m.outer_udp, m.version, m.protocol, m.class, m.plain_len)
            });
            prop_assert_eq!(now, then);
            // An error's key is that of the packet that it quotes.
            if fresh.meta().class == PacketClass::Whole {
                prop_assert_eq!(parse::current_key(&packet), (fresh.meta().key, fresh.meta().reversed));
            }
        }
        let l3 = packet.meta().outer_l3 as usize;
        prop_assert_eq!(packet.data()[l3..].as_ptr(), payload_at, "what is behind the link layer stays where it is");
    }

    /// Only Ethernet takes tags, and PPPoE has no place for labels: nothing is changed then.
    #[test]
    fn link_layers_without_tags_are_unchanged(
        network_bytes in plain(),
        framing in framing(),
        (tag, _) in tag(),
    ) {
        let mut packet = frame(&framing, &network_bytes, &[], false);
        let (before, meta) = (packet.data().to_vec(), format!("{:?}", packet.meta()));
        let is_pppoe = before.get(12..14) == Some(&[0x88, 0x64]);
        let takes = framing.0 == LinkType::Ethernet && (tag.kind() == TagKind::Vlan || !is_pppoe);
        prop_assert_eq!(packet.takes_tags(TagRoom::default().and_for(tag.kind())), takes);
        if takes {
            packet.push_tag(tag).unwrap();
            prop_assert_eq!(packet.pop_tag(tag.kind()), Ok(tag));
        } else {
            prop_assert_eq!(packet.push_tag(tag), Err(RewriteError::Link));
            prop_assert_eq!(packet.tag(tag.kind()), None);
            prop_assert!(packet.pop_tag(tag.kind()).is_err());
        }
        prop_assert_eq!(packet.data(), before);
        prop_assert_eq!(format!("{:?}", packet.meta()), meta);
    }
}

#[test]
fn tags_have_their_limits() {
    assert!(Tag::vlan(0xffe, 7, true).is_some() && Tag::vlan(0, 0, false).is_some());
    assert_eq!((Tag::vlan(0xfff, 0, false), Tag::service_vlan(1, 8, false)), (None, None));
    assert_eq!((Tag::label(15, 0, 1), Tag::label(1 << 20, 0, 1)), (None, None));
    assert_eq!((Tag::label(16, 8, 1), Tag::label(16, 0, 0)), (None, None));
    assert_eq!(Tag::vlan(100, 3, true).unwrap().to_string(), "VLAN 100 pcp 3");
    assert_eq!(Tag::service_vlan(100, 3, false).unwrap().to_string(), "service VLAN 100 pcp 3");
    assert_eq!(Tag::label(1000, 5, 64).unwrap().to_string(), "label 1000 tc 5 ttl 64");
}

#[test]
fn packet_without_headroom_or_ip_takes_no_tag() {
    let parts = Parts { network: ip(false, 17, &[0, 9, 0, 9, 0, 8, 0, 0], false), ..Parts::default() };
    let mut packet = Packet::from_bytes(&parts.bytes(&[]));
    parse_again(&mut packet, false);
    let room = packet.headroom();
    packet.push_front(room - 3).unwrap();
    packet.meta_mut().shift((room - 3) as i32);
    packet.meta_mut().outer_l3 += (room - 3) as u16;
    let tag = Tag::vlan(1, 0, false).unwrap();
    packet.data_mut()[..14].copy_from_slice(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 0]);
    assert_eq!(packet.push_tag(tag), Err(RewriteError::NoHeadroom));
    let mut arp = Packet::from_bytes(&[&[1; 12][..], &[8, 6], &[0; 28]].concat());
    parse_again(&mut arp, false);
    assert_eq!(arp.push_tag(tag), Err(RewriteError::NoHeader));
    assert_eq!(arp.pop_tag(TagKind::Vlan), Err(RewriteError::NoHeader));
}
