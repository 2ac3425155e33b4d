//! VLAN tags and flows.

use graph::Options;
use packet::Side;

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

fn bench(ignore_vlans: bool) -> Bench {
    let stages = vec![stage::<Tally>(8), stage::<Masquerade>(8)];
    Bench::new(stages, Options { ignore_vlans, ..Options::default() })
}

fn with(tags: &[[u8; 4]], network: &[u8]) -> Vec<u8> {
    if tags.is_empty() { network.to_vec() } else { tagged(tags, &[], network) }
}

/// A tag with VLAN ID 0 has a priority only (IEEE 802.1Q 9.6): if a switch pushes or pops it,
/// the flow is the same.
#[test]
fn a_priority_tag_is_no_vlan() {
    let priority = [0x81, 0, 0xe0, 0];
    let vlan = [0x81, 0, 0, 7];
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    for (forth, back) in [
        (&[priority][..], &[][..]),
        (&[], &[priority]),
        (&[priority, vlan], &[vlan]),
        (&[vlan], &[[0x88, 0xa8, 0x20, 0], vlan]),
    ] {
        let mut bench = bench(false);
        bench.through(T, Side::Inside, &with(forth, &udp(inside, peer, &[0])));
        let answer = bench.through(T, Side::Outside, &with(back, &udp(peer, masquerade_end(0), &[0])));
        let network = &answer[answer.len() - udp(peer, inside, &[0]).len()..];
        assert_eq!(network[16..20], inside.addr.v4_bytes(), "{forth:?} {back:?}");
        assert_eq!(bench.graph.counters().flows_started, 1, "{forth:?} {back:?}");
    }
}

#[test]
fn vlans_are_networks_of_their_own_unless_they_are_ignored() {
    let [one, other] = [[0x81, 0, 0, 10], [0x81, 0, 0, 20]];
    let (a, b) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    for (forth, back) in [(&[one][..], &[other][..]), (&[one], &[]), (&[one, other], &[other, one])] {
        for ignored in [false, true] {
            let stages = vec![stage::<Tally>(8), stage::<Gate>(8)];
            let mut bench = Bench::new(stages, Options { ignore_vlans: ignored, ..Options::default() });
            bench.through(T, Side::Inside, &with(forth, &udp(a, b, &[0])));
            bench.through(T, Side::Outside, &with(back, &udp(b, a, &[0])));
            assert_eq!(
                bench.graph.counters().flows_started,
                if ignored { 1 } else { 2 },
                "{forth:?} {back:?}"
            );
        }
    }
    // What a NAT makes of a flow has no VLAN in its key, either.
    let mut bench = bench(true);
    bench.through(T, Side::Inside, &with(&[one], &udp(a, b, &[0])));
    bench.through(T, Side::Outside, &with(&[other], &udp(b, masquerade_end(0), &[0])));
    assert_eq!(bench.graph.counters().flows_started, 1);
}
