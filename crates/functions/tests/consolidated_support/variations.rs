//! Variations of random traffic: low TTLs, congestion marks, tunnels, tags and labels.

use packet::split_mix;

use super::tunnels::in_tunnel;
use crate::meter_support::support::bench::Arrival;
use crate::meter_support::support::packets::tagged;

/// Lowers the TTL of some packets.
pub fn age(traffic: &mut [Arrival], mut seed: u64) {
    for Arrival { network, .. } in traffic {
        let left = 1 + (split_mix(&mut seed) % 3) as u8;
        if split_mix(&mut seed).is_multiple_of(8) {
            live(network, left);
        }
    }
}

/// Sets an IP packet's TTL.
pub fn live(network: &mut [u8], left: u8) {
    if network[0] >> 4 == 6 {
        network[7] = left;
        return;
    }
    network[8] = left;
    sum(network);
}

/// Sets an IP packet's ECN field.
pub fn notify(network: &mut [u8], ecn: u8) {
    if network[0] >> 4 == 6 {
        network[1] = network[1] & 0xcf | ecn << 4;
        return;
    }
    network[1] = network[1] & 0xfc | ecn;
    sum(network);
}

/// Fixes the checksum of an IPv4 header.
fn sum(network: &mut [u8]) {
    network[10..12].fill(0);
    let sum = packet::checksum::checksum(&network[..usize::from(network[0] & 0xf) * 4]);
    network[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns a number common to all packets between two hosts, in both directions.
pub fn between(network: &[u8], mut seed: u64) -> u64 {
    let addresses = if network[0] >> 4 == 4 { &network[12..20] } else { &network[8..40] };
    seed ^= addresses.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    split_mix(&mut seed)
}

/// Puts many packets into tunnels: most packets between two hosts into the same one, some with
/// slightly different outer headers.
pub fn enclose(traffic: &mut [Arrival], mut seed: u64) {
    let all = seed;
    for Arrival { network, .. } in traffic {
        let own = split_mix(&mut seed);
        let kind = if own.is_multiple_of(16) { own >> 8 } else { between(network, all) };
        // One in four is in no tunnel.
        if !kind.is_multiple_of(4) {
            notify(network, [2, 2, 1, 0][own as usize >> 4 & 3]);
            *network = in_tunnel(kind >> 2, own, network);
        }
    }
}

/// Adds tags or labels to many packets, few or as many as are parsed, and puts some into PPPoE:
/// most packets between two hosts get the same.
pub fn tag(traffic: &mut [Arrival], mut seed: u64) {
    let all = seed;
    for Arrival { network, .. } in traffic {
        let own = split_mix(&mut seed);
        let kind = if own.is_multiple_of(8) { own >> 8 } else { between(network, all) };
        let count = if kind & 64 == 0 { 1 } else { 7 + kind as usize % 2 };
        // Some packets differ only in their class.
        let class = (if own.is_multiple_of(5) { own } else { kind } >> 8) as u8 & 7;
        *network = match kind % 32 {
            0 | 1 => tagged(&vec![[0x81, 0, class << 5, 1]; count], &[], network),
            2 => tagged(&[[0x88, 0xa8, 0, 100], [0x81, 0, 0, 2]], &[], network),
            3 | 4 => {
                let mut labels = vec![[0, 1, class << 1, 64]; count];
                labels[count - 1][2] |= 1;
                tagged(&[], &labels, network)
            }
            5 => {
                let (len, kind) = (network.len() as u16 + 2, if network[0] >> 4 == 4 { 0x21 } else { 0x57 });
                let session = [0x88, 0x64, 0x11, 0, 0, 1, (len >> 8) as u8, len as u8, 0, kind];
                [&session[..], network].concat()
            }
            _ => continue,
        };
    }
}
