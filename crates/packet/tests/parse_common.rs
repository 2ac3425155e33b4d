//! The parser's fast path compared with the general one.

use packet::{FlowHasher, Packet, Parser, parse};
use proptest::prelude::*;

/// Returns a common frame, except for a few bytes.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tail = prop::collection::vec(any::<u8>(), 0..80);
    let changes = prop::collection::vec((0usize..60, any::<u8>()), 0..3);
    (any::<bool>(), any::<[u8; 12]>(), tail, changes).prop_map(|(tcp, ends, tail, changes)| {
        let mut data = vec![0; 12];
        data.extend([0x08, 0x00, 0x45, 0]);
        let l4_len = if tcp { 20 } else { 8 } + tail.len();
        data.extend(((20 + l4_len) as u16).to_be_bytes());
        data.extend([0, 0, 0x40, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
        data.extend(&ends);
        if tcp {
            data.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        } else {
            data.extend((l4_len as u16).to_be_bytes());
            data.extend([0, 0]);
        }
        data.extend(tail);
        for (at, value) in changes {
            if let Some(byte) = data.get_mut(at) {
                *byte = value;
            }
        }
        data
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn fast_path_equals_the_general_path(data in frame(), cut in 0u32..4, tenant: u16) {
        let short = Parser::new(FlowHasher::new(7));
        // Entering tunnels takes the general path, with the same result if there is none.
        let long = Parser { inner: true, ..short };
        let mut packets = [Packet::from_bytes(&data), Packet::from_bytes(&data)];
        for packet in &mut packets {
            packet.meta_mut().wire_len += cut;
            packet.meta_mut().key.place = tenant;
        }
        let [a, b] = &mut packets;
        let tunnel = [4789u16, 6081, 2152, 6080, 4754, 3544];
        let port = |at: usize| data.get(at..at + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
        prop_assume!(![port(34), port(36)].iter().flatten().any(|p| tunnel.contains(p)));
        let (ours, theirs) = (short.parse(a), long.parse(b));
        prop_assume!(!matches!(b.meta().protocol, 4 | 41 | 47));
        prop_assert_eq!(ours, theirs);
        if ours.is_ok() {
            prop_assert_eq!(format!("{:?}", a.meta()), format!("{:?}", b.meta()));
            b.meta_mut().plain_len = 0;
            prop_assert_eq!(parse::ends(a), parse::ends(b));
        }
    }
}
