//! The frames that a benchmark plays: built once, in the order in which they are played.

use packet::checksum;

/// Frames of known flows, one after the other in memory.
pub struct Tape {
    frames: Vec<u8>,
    frame_len: usize,
    /// The first frame of each flow, in order of flows.
    openings: Vec<u8>,
    count: usize,
    /// Packets of a flow, if flows end.
    flow_length: Option<u32>,
}

/// Frames one after the other.
pub type Frames<'t> = std::slice::ChunksExact<'t, u8>;

/// What kind of frames a workload wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDP from clients to one server address.
    Udp,
    /// TCP segments with SYN, each of a flow of its own: when one comes again, its flow has long
    /// gone for others.
    Syn,
    /// TCP segments from clients to one server address, with their flow's number for a sequence
    /// number.
    Segment,
}

/// Frames on a tape, at least: beyond what the caches of a core hold, but not what all cores'
/// last-level cache does, which is where network adapters write to.
const FRAMES_MIN: usize = 1 << 16;

/// So many times what a table of flows holds is opened before a flow is opened again.
const NEW_FLOWS_FACTOR: usize = 4;

/// Flows at once times packets of each, at most, of flows that end: a tape of 1 GB with the
/// smallest packets.
pub const FLOWS_TIMES_LENGTH_MAX: u64 = 1 << 22;

/// The address that all clients speak to: the load balancer's, in the workloads that have one.
pub const SERVICE: [u8; 4] = [192, 0, 2, 80];

impl Tape {
    /// A tape of packets of `packet_size` bytes on the wire, over this many flows at once, which
    /// are used alike or by Zipf's law.
    pub fn new(flows: u32, packet_size: u16, zipf: Option<f64>, kind: Kind) -> Tape {
        Tape::of(flows, packet_size, Pick::new(flows, zipf), kind)
    }

    /// The same of flows that are used alike, and over after so many packets each: then others take
    /// their places, some in each round.
    pub fn of_length(flows: u32, packet_size: u16, length: u32) -> Tape {
        Tape::of(flows, packet_size, Pick::of_length(flows, length), Kind::Udp)
    }

    fn of(flows: u32, packet_size: u16, mut pick: Pick, kind: Kind) -> Tape {
        let frame_len = packet_size as usize - 4; // Without the frame check sequence.
        let count = match (kind, pick.length) {
            (Kind::Syn, _) => FRAMES_MIN.max(NEW_FLOWS_FACTOR * flows as usize),
            (_, Some(length)) => FRAMES_MIN.max(NEW_FLOWS_FACTOR * flows as usize * length as usize),
            _ => FRAMES_MIN.max(flows as usize),
        };
        let mut frames = Vec::with_capacity(count * frame_len);
        for i in 0..count {
            match kind {
                Kind::Udp => udp(&mut frames, pick.next(), frame_len),
                Kind::Syn => syn(&mut frames, i as u32, frame_len),
                Kind::Segment => segment(&mut frames, pick.next(), frame_len),
            }
        }
        let openings_len = if kind == Kind::Syn { 0 } else { flows as usize * frame_len };
        let mut openings = Vec::with_capacity(openings_len);
        (0..flows).for_each(|flow| match kind {
            Kind::Udp => udp(&mut openings, flow, frame_len),
            Kind::Segment => segment(&mut openings, flow, frame_len),
            Kind::Syn => {}
        });
        Tape { frames, frame_len, openings, count, flow_length: pick.length }
    }

    /// `count` frames from number `from` on, in runs of up to `run_len`; the tape is endless.
    pub fn play(&self, from: usize, count: usize, run_len: usize) -> impl Iterator<Item = Frames<'_>> {
        let (mut at, mut left) = (from % self.count, count);
        std::iter::from_fn(move || {
            let len = left.min(run_len).min(self.count - at);
            let run = &self.frames[at * self.frame_len..][..len * self.frame_len];
            at = (at + len) % self.count;
            left -= len;
            (len > 0).then(|| run.chunks_exact(self.frame_len))
        })
    }

    /// Packets of a flow, if flows end.
    pub fn flow_length(&self) -> Option<u32> {
        self.flow_length
    }

    /// The first frame of each flow.
    pub fn openings(&self) -> Frames<'_> {
        self.openings.chunks_exact(self.frame_len)
    }
}

/// Picks flows at random.
struct Pick {
    state: u64,
    /// All flows, from which those that are left in this round are dealt: each once before any
    /// comes again.
    deck: Vec<u32>,
    left: usize,
    /// How many rounds are over, and for how many a flow lasts, if it does not for ever.
    round: u32,
    length: Option<u32>,
    /// For Zipf's law instead: the share of the flows up to each.
    cumulative: Vec<f64>,
}

impl Pick {
    fn new(flows: u32, zipf: Option<f64>) -> Pick {
        let mut cumulative = Vec::new();
        if let Some(exponent) = zipf {
            let mut sum = 0.0;
            cumulative.extend((1..=flows).map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            }));
        }
        Pick {
            state: 42,
            deck: (0..flows).collect(),
            left: flows as usize,
            round: 0,
            length: None,
            cumulative,
        }
    }

    fn of_length(flows: u32, length: u32) -> Pick {
        Pick { length: Some(length.max(1)), ..Pick::new(flows, None) }
    }

    fn next(&mut self) -> u32 {
        let bits = packet::split_mix(&mut self.state);
        if let Some(total) = self.cumulative.last() {
            let at = (bits >> 11) as f64 / (1u64 << 53) as f64 * total;
            return self.cumulative.partition_point(|&sum| sum < at).min(self.cumulative.len() - 1) as u32;
        }
        if self.left == 0 {
            (self.left, self.round) = (self.deck.len(), self.round + 1);
        }
        let drawn = ((u128::from(bits) * self.left as u128) >> 64) as usize;
        self.left -= 1;
        self.deck.swap(drawn, self.left);
        let place = self.deck[self.left];
        match self.length {
            None => place,
            Some(length) => (self.round + place % length) / length * self.deck.len() as u32 + place,
        }
    }
}

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];

/// The client of a flow: an address in 10/8 and a port; ports repeat over addresses.
fn client(flow: u32) -> ([u8; 4], u16) {
    let (host, port) = (flow / 64, flow % 64);
    let [_, b, c, d] = (host + 1).to_be_bytes();
    ([10, b, c, d], 1024 + (port * 997 % 60_000) as u16)
}

fn udp(frames: &mut Vec<u8>, flow: u32, frame_len: usize) {
    let (address, port) = client(flow);
    let start = frames.len();
    ipv4(frames, address, frame_len, 17);
    let l4_len = (frame_len - 34) as u16;
    frames.extend(port.to_be_bytes());
    frames.extend(80u16.to_be_bytes());
    frames.extend(l4_len.to_be_bytes());
    frames.extend([0, 0]);
    frames.resize(start + frame_len, 0);
    transport_checksum(&mut frames[start..], 17, 6);
}

fn segment(frames: &mut Vec<u8>, flow: u32, frame_len: usize) {
    let (address, port) = client(flow);
    let start = frames.len();
    ipv4(frames, address, frame_len, 6);
    frames.extend(port.to_be_bytes());
    frames.extend(80u16.to_be_bytes());
    frames.extend(flow.to_be_bytes());
    frames.extend([0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frames.resize(start + frame_len, 0);
}

fn syn(frames: &mut Vec<u8>, number: u32, frame_len: usize) {
    let [_, b, c, d] = number.to_be_bytes();
    let start = frames.len();
    ipv4(frames, [11, b, c, d], frame_len, 6);
    frames.extend(40_000u16.to_be_bytes());
    frames.extend(80u16.to_be_bytes());
    frames.extend(number.to_be_bytes());
    frames.extend([0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    frames.resize(start + frame_len, 0);
    transport_checksum(&mut frames[start..], 6, 16);
}

fn ipv4(frames: &mut Vec<u8>, source: [u8; 4], frame_len: usize, protocol: u8) {
    frames.extend(ETHERNET);
    let l3 = frames.len();
    let total_len = (frame_len - 14) as u16;
    frames.extend([0x45, 0]);
    frames.extend(total_len.to_be_bytes());
    frames.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frames.extend(source);
    frames.extend(SERVICE);
    let sum = checksum::checksum(&frames[l3..]);
    frames[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
}

fn transport_checksum(frame: &mut [u8], protocol: u8, at: usize) {
    let len = (frame.len() - 34) as u32;
    let pseudo = checksum::sum(&frame[26..34]) + u32::from(protocol) + len;
    let sum = checksum::finish_udp(pseudo + checksum::sum(&frame[34..]));
    frame[34 + at..36 + at].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_are_used_alike_come_once_a_round() {
        let mut pick = Pick::new(100, None);
        let rounds = [0, 1].map(|_| (0..100).map(|_| pick.next()).collect::<Vec<_>>());
        assert_ne!(rounds[0], rounds[1], "in another order each time");
        for mut round in rounds {
            round.sort_unstable();
            assert!(round.into_iter().eq(0..100));
        }
    }

    #[test]
    fn flows_are_over_after_their_packets() {
        let mut pick = Pick::of_length(10, 3);
        let mut packets = [0; 100];
        (0..10 * 12).for_each(|_| packets[pick.next() as usize] += 1);
        assert!(packets[10..30].iter().all(|&count| count == 3), "{packets:?}");
        assert!(packets.iter().all(|&count| count <= 3), "{packets:?}");
        assert_eq!(packets[..10].iter().filter(|&&count| count == 3).count(), 4, "the others began within");
    }

    #[test]
    fn by_zipfs_law_the_first_flow_comes_most() {
        let mut pick = Pick::new(1000, Some(1.0));
        let first = (0..10_000).filter(|_| pick.next() == 0).count();
        assert!((1200..1500).contains(&first), "1 in 7.5: {first}");
    }
}
