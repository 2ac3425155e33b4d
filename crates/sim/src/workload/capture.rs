//! Packets of a capture, with their times, flows and lengths: faster or slower, several copies at
//! once, repeatedly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::arriving::Arriving;
use crate::random::Random;
use crate::scenario::CapturedTraffic;
use crate::scenario::RecordedPackets;

/// Packets of a capture, in order of time, without end.
#[derive(Clone, Debug)]
pub struct CapturePackets {
    recording: Arc<RecordedPackets>,
    /// Factor by which gaps are shorter.
    speedup: f64,
    copies: Vec<Round>,
    /// The next packet of each copy; at the same time, that of the first copy is first.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// Flows numbered so far.
    flows: u32,
}

/// A copy that plays the recording.
#[derive(Clone, Debug)]
struct Round {
    /// Time of this round's first packet, in ns; it may be before the run.
    starts_ns: f64,
    /// The next packet of the round.
    at: usize,
    /// The first flow's number.
    first_flow: u32,
}

impl CapturePackets {
    /// Creates the packets of this recording and seed. The first copy plays from the beginning,
    /// others from a random packet; at the end, each plays another round with other flows.
    pub fn new(capture: &CapturedTraffic, recording: &Arc<RecordedPackets>, seed: u64) -> CapturePackets {
        let mut random = Random::new(seed, "capture");
        let mut packets = CapturePackets {
            recording: Arc::clone(recording),
            speedup: capture.speedup.0,
            copies: Vec::new(),
            next: BinaryHeap::new(),
            flows: 0,
        };
        for number in 0..capture.copies.get() as usize {
            let at = match number {
                0 => 0,
                _ => random.below(recording.packets().len() as u64) as usize,
            };
            let starts_ns = -(recording.packets()[at].time_ns as f64) / packets.speedup;
            let first_flow = packets.number();
            packets.copies.push(Round { starts_ns, at, first_flow });
            packets.push(number);
        }
        packets
    }

    /// Returns the base of flow numbers for a round; it wraps after 2^32.
    fn number(&mut self) -> u32 {
        let first = self.flows;
        self.flows = self.flows.wrapping_add(self.recording.flows());
        first
    }

    /// Queues this copy's next packet.
    fn push(&mut self, number: usize) {
        let copy = &self.copies[number];
        let since_ns = self.recording.packets()[copy.at].time_ns as f64 / self.speedup;
        self.next.push(Reverse(((copy.starts_ns + since_ns).max(0.0) as u64, number)));
    }
}

impl Iterator for CapturePackets {
    type Item = Arriving;

    fn next(&mut self) -> Option<Arriving> {
        let Reverse((time_ns, number)) = self.next.pop()?;
        let copy = &mut self.copies[number];
        let recorded = self.recording.packets()[copy.at];
        let flow = copy.first_flow.wrapping_add(recorded.flow);
        copy.at += 1;
        if copy.at == self.recording.packets().len() {
            copy.at = 0;
            // At least a nanosecond for each packet: else time would stand still.
            copy.starts_ns +=
                (self.recording.round_ns() / self.speedup).max(self.recording.packets().len() as f64);
            let first_flow = self.number();
            self.copies[number].first_flow = first_flow;
        }
        self.push(number);
        Some(Arriving { time_ns, flow, len: recorded.len })
    }
}

#[cfg(test)]
mod tests {
    use packet::{Addr, Endpoint, FlowKey, Scope};
    use proptest::prelude::*;

    use super::*;
    use crate::scenario::CaptureSource;
    use crate::scenario::RecordingError;
    use values::Factor;

    fn key(flow: u8) -> FlowKey {
        let end = |last: u8, port| Endpoint::new(Addr::from_v4_bytes([10, 0, 0, last]), port);
        FlowKey::new(end(flow, 1000), end(255, 80), 6, 4, Scope::default(), 0).0
    }

    fn capture(speedup: f64, copies: u32) -> CapturedTraffic {
        let file = CaptureSource::File("a.pcap".into());
        CapturedTraffic { file, speedup: Factor(speedup), copies: copies.try_into().unwrap() }
    }

    fn recording(packets: &[(u64, u8, u32)]) -> Arc<RecordedPackets> {
        Arc::new(
            RecordedPackets::new(packets.iter().map(|&(time, flow, len)| (time, key(flow), len))).unwrap(),
        )
    }

    #[test]
    fn rounds_follow_each_other_with_other_flows_and_shorter_gaps() {
        let recording = recording(&[(7_000, 3, 100), (5_000, 9, 60), (9_000, 9, 70)]);
        assert_eq!((recording.flows(), recording.length_ns()), (2, 4_000));
        let packets = CapturePackets::new(&capture(2.0, 1), &recording, 1);
        let came: Vec<_> = packets.take(7).map(|p| (p.time_ns, p.flow, p.len)).collect();
        // The mean gap of three packets in 4 us is between rounds.
        let second = (2_000.0 + 4_000.0 / 3.0 / 2.0) as u64;
        assert_eq!(came[..3], [(0, 0, 60), (1_000, 1, 100), (2_000, 0, 70)]);
        assert_eq!(came[3..6], [(second, 2, 60), (second + 1_000, 3, 100), (second + 2_000, 2, 70)]);
        assert_eq!(came[6].1, 4);
    }

    #[test]
    fn what_has_no_length_takes_time_all_the_same() {
        let packets = CapturePackets::new(&capture(1e6, 3), &recording(&[(5, 1, 60), (5, 2, 60)]), 1);
        assert!(packets.take(600).last().unwrap().time_ns >= 100);
        assert_eq!(RecordedPackets::new([]).unwrap_err(), RecordingError::Empty);
    }

    proptest! {
        /// Packets are in order of time; each copy's flows send their recorded packets in order,
        /// without others in between.
        #[test]
        fn copies_are_the_recording(
            recorded in prop::collection::vec((0u64..1_000_000, 0u8..5, 40u32..1500), 1..40),
            speedup in prop_oneof![Just(0.5), Just(1.0), Just(3.0)],
            copies in 1u32..5,
            seed in 0u64..100,
        ) {
            let recording = recording(&recorded);
            let rounds = 3 * copies as usize * recorded.len();
            let came: Vec<Arriving> = CapturePackets::new(&capture(speedup, copies), &recording, seed).take(rounds).collect();
            prop_assert!(came.is_sorted_by_key(|packet| packet.time_ns));
            let of = |packets: &[Arriving], flow| packets.iter().filter(|p| p.flow == flow).map(|p| p.len).collect::<Vec<u32>>();
            for packet in &came {
                let sent = of(&came, packet.flow);
                let whole = of(recording.packets(), packet.flow % recording.flows());
                // A copy's first round may have begun before the run, and its last one may be cut
                // off.
                prop_assert!(whole.windows(sent.len()).any(|part| part == sent));
            }
        }
    }
}
