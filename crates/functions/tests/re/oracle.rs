//! A decoder written from the description of the format alone: slow, with whole lists and bitwise
//! division.

use serde_json::json;

use crate::meter_support::*;
use crate::pair::*;

const WINDOW: usize = 32;
const POLYNOMIAL: u128 = 0xbfe6_b8a5_bf37_8d83;

/// Returns the remainder of a window's bits, divided by the polynomial bit by bit.
fn fingerprint(window: &[u8]) -> u64 {
    let mut remainder: u128 = 0;
    for byte in window {
        remainder = remainder << 8 | u128::from(*byte);
        for bit in (63..72).rev() {
            if remainder >> bit & 1 == 1 {
                remainder ^= POLYNOMIAL << (bit - 63);
            }
        }
    }
    remainder as u64
}

/// All payloads received, and the offsets of windows with five low zero bits in their fingerprint.
#[derive(Default)]
struct Decoder {
    payloads: Vec<Vec<u8>>,
    windows: Vec<(u64, usize, usize)>,
}

impl Decoder {
    /// Decodes a packet from the link.
    fn decode(&mut self, wire: &[u8]) -> Vec<u8> {
        let is_v4 = wire[0] >> 4 == 4;
        let header = if is_v4 { usize::from(wire[0] & 15) * 4 } else { 40 };
        let mut packet = wire.to_vec();
        if protocol_of(wire) == ENCODED {
            let payload = self.payload(&wire[header..]);
            packet.truncate(header);
            packet[if is_v4 { 9 } else { 6 }] = wire[header + 1];
            packet.extend(payload);
            if is_v4 {
                let len = packet.len() as u16;
                packet[2..4].copy_from_slice(&len.to_be_bytes());
                packet[10..12].fill(0);
                let sum =
                    packet[..header].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
                let sum = (sum & 0xffff) + (sum >> 16);
                packet[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
            } else {
                let len = (packet.len() - 40) as u16;
                packet[4..6].copy_from_slice(&len.to_be_bytes());
            }
        }
        self.learn(&packet[header..]);
        packet
    }

    fn payload(&self, shim: &[u8]) -> Vec<u8> {
        assert_eq!((shim[0], shim[3]), (0x11, 0), "version and kind, and nothing");
        let tokens = usize::from(shim[2]);
        let mut literals = shim[12 + 14 * tokens..].iter().copied();
        let mut payload = vec![];
        for token in shim[12..12 + 14 * tokens].chunks(14) {
            let word = |at: usize| usize::from(u16::from_be_bytes([token[at], token[at + 1]]));
            let (place, len, before) = (word(8), word(10), word(12));
            let wanted = u64::from_be_bytes(token[..8].try_into().unwrap());
            while payload.len() < place {
                payload.push(literals.next().unwrap());
            }
            let &(_, of, at) = self.windows.iter().rev().find(|(known, ..)| *known == wanted).unwrap();
            payload.extend(&self.payloads[of][at - before..][..len]);
        }
        payload.extend(literals);
        payload
    }

    fn learn(&mut self, payload: &[u8]) {
        if !(64..=1_728).contains(&payload.len()) {
            return;
        }
        let mut last = None;
        for (at, window) in payload.windows(WINDOW).enumerate() {
            let fingerprint = fingerprint(window);
            if fingerprint & 31 == 0 && last != Some(fingerprint) {
                self.windows.push((fingerprint, self.payloads.len(), at));
                last = Some(fingerprint);
            }
        }
        self.payloads.push(payload.to_vec());
    }
}

#[test]
fn an_independent_decoder_agrees() {
    let mut pair = Pair::new(&json!({ "patience": 0 }));
    let mut decoder = Decoder::default();
    let pool: Vec<Vec<u8>> = (0..6).map(|seed| random_bytes(seed, 500)).collect();
    let (mut random, mut encoded) = (9, 0);
    for number in 0..300u16 {
        let mut draw = |below: u64| (packet::split_mix(&mut random) % below) as usize;
        let parts: Vec<Vec<u8>> = (0..1 + draw(4))
            .map(|_| {
                let bytes =
                    if draw(4) == 0 { random_bytes(number.into(), 400) } else { pool[draw(6)].clone() };
                let from = draw(200);
                let len = 1 + draw(200);
                if draw(8) == 0 { vec![0; len] } else { bytes[from..from + len].to_vec() }
            })
            .collect();
        let version = if draw(2) == 0 { 4 } else { 6 };
        let packet = udp(host(version, 1, 1_000 + number), host(version, 2, 53), &parts.concat());
        let wire = pair.enter(1, &packet).remove(0);
        encoded += usize::from(protocol_of(&wire) == ENCODED);
        assert_eq!(decoder.decode(&wire), packet, "packet {number}");
        assert_eq!(pair.arrive(2, &wire).0, [packet]);
    }
    assert!(encoded > 100, "{encoded} encoded");
}
