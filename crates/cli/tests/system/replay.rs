//! Replays captures through a NAT. Replies in the capture are sent to the NAT's external endpoints,
//! as the servers would have sent them, and must arrive inside unchanged. An oracle that knows only
//! the RFCs' rules watches.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::nat_oracle::{Dependence, Oracle, Rules};
use crate::nat_support::{Bench, End, Fate, ICMP, SECOND, Seen, TCP, UDP, internet_sum, see};
use crate::sums::{self, Sum};
use crate::traces::{self, Capture, Recorded};
use packet::{LinkType, Side};

const NAT: &str = r#"{"external": ["198.18.0.1-198.18.0.4"], "tcp_opens_with": "any"}"#;

#[test]
fn replies_through_a_nat_arrive_as_in_the_capture() {
    let (mut out, mut back) = (0, 0);
    let captures = traces::all();
    for capture in &captures {
        let counts = replay(capture);
        (out, back) = (out + counts.0, back + counts.1);
    }
    println!("{out} packets out, {back} back");
    assert!(captures.is_empty() || out > 20_000 && back > 10_000);
}

/// Returns the numbers of packets sent out and received back.
fn replay(capture: &Capture) -> (u64, u64) {
    let packets: Vec<(u64, Vec<u8>)> = capture.records.iter().filter_map(plain).collect();
    let Some(site) = packets.first().map(|(_, packet)| see(packet).source.0) else { return (0, 0) };
    let is_inside = |address: Ipv4Addr| address.is_private() || address.octets()[..3] == site.octets()[..3];
    let mut bench = Bench::with_flows(NAT, 65_536);
    let mut oracle = Oracle::new(Rules {
        external: (1..=4).map(|i| Ipv4Addr::new(198, 18, 0, i)).collect(),
        mapping: Dependence::Nothing,
        filtering: Dependence::Nothing,
        parity: true,
        scarce: false,
        slack_ns: SECOND,
    });
    let mut external: BTreeMap<(u8, End), End> = BTreeMap::new();
    let (mut out, mut back) = (0, 0);
    for (at_ns, packet) in &packets {
        bench.now_ns = bench.now_ns.max(*at_ns);
        let seen = see(packet);
        match (is_inside(seen.source.0), is_inside(seen.destination.0)) {
            (true, false) if can_be_reached(seen.destination.0) => {
                let fate = bench.inside(packet);
                oracle.saw(bench.now_ns, Side::Inside, packet, left(&fate));
                if let Some((_, bytes)) = left(&fate) {
                    external.insert((seen.protocol, seen.source), see(bytes).source);
                    out += 1;
                }
            }
            (false, true) => {
                let Some(&to) = external.get(&(seen.protocol, seen.destination)) else { continue };
                let packet_there = sent_to(packet, &seen, to);
                let fate = bench.outside(&packet_there);
                oracle.saw(bench.now_ns, Side::Outside, &packet_there, left(&fate));
                if let Some((_, bytes)) = left(&fate) {
                    assert_eq!(see(bytes), seen, "{}: as in the capture", capture.name);
                    back += 1;
                }
            }
            _ => {} // Between hosts on the same side: a NAT would not see it.
        }
    }
    (out, back)
}

fn can_be_reached(address: Ipv4Addr) -> bool {
    !address.is_multicast() && !address.is_broadcast() && !address.is_unspecified() && !address.is_loopback()
}

fn left(fate: &Fate) -> Option<(Side, &[u8])> {
    match fate {
        Fate::Out(side, bytes) => Some((*side, bytes)),
        _ => None,
    }
}

/// Returns the IPv4 packet of a record if the oracle can read it: complete, without options, not a
/// fragment, TCP, UDP or an ICMP query, with right checksums.
fn plain(record: &Recorded) -> Option<(u64, Vec<u8>)> {
    let packet = &record.data[sums::network(record.link, &record.data)?..];
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let packet = packet.get(..total)?;
    let sound = sums::all(LinkType::RawIp, packet).iter().all(|(_, sum)| *sum != Sum::Wrong);
    let whole = packet.len() >= 28 && packet[0] == 0x45 && packet[6] & 0x3f == 0 && packet[7] == 0;
    let known = match packet.get(9).copied()? {
        TCP => packet.len() >= 40,
        UDP => usize::from(u16::from_be_bytes([packet[24], packet[25]])) == total - 20,
        ICMP => matches!(packet[20], 0 | 8),
        _ => false,
    };
    let zero_port = packet.get(20..24)? == [0, 0, 0, 0];
    (sound && whole && known && !zero_port).then(|| (record.timestamp_ns, packet.to_vec()))
}

/// Returns the packet with another destination and new checksums.
fn sent_to(packet: &[u8], seen: &Seen, to: End) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[16..20].copy_from_slice(&to.0.octets());
    let (port_at, sum_at) = match seen.protocol {
        TCP => (22, 36),
        UDP => (22, 26),
        _ => (24, 22),
    };
    packet[port_at..port_at + 2].copy_from_slice(&to.1.to_be_bytes());
    let without_sum = seen.protocol == UDP && packet[26..28] == [0, 0];
    packet[10..12].fill(0);
    let sum = !internet_sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    if without_sum {
        return packet;
    }
    packet[sum_at..sum_at + 2].fill(0);
    let mut covered = Vec::new();
    if seen.protocol != ICMP {
        covered.extend(&packet[12..20]);
        covered.extend([0, seen.protocol]);
        covered.extend((packet.len() as u16 - 20).to_be_bytes());
    }
    covered.extend(&packet[20..]);
    let sum = match !internet_sum(&covered) {
        0 if seen.protocol == UDP => 0xffff,
        sum => sum,
    };
    packet[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}
