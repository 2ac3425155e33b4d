//! The frames of a benchmark, built once in the order of playing.

use packet::checksum;

/// Frames of known flows, consecutive in memory.
pub struct Tape {
    frames: Vec<u8>,
    frame_len: usize,
    /// First frame of each flow, in order of flows.
    openings: Vec<u8>,
    count: usize,
    /// Packets of a flow, if flows end.
    flow_length: Option<u32>,
}

/// Consecutive frames.
pub type Frames<'t> = std::slice::ChunksExact<'t, u8>;

/// The kind of frames that a workload needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDP from clients to one server address.
    Udp,
    /// TCP SYN segments, each of its own flow, which has been evicted before it repeats.
    Syn,
    /// TCP segments from clients to one server address, with the number of the flow as sequence
    /// number.
    Segment,
}

/// Minimum number of frames on a tape: more than a core's caches hold, but less than the shared
/// last-level cache, which network adapters write to.
const FRAMES_MIN: usize = 1 << 16;

/// Multiple of the flow table's capacity that is opened before a flow repeats.
const NEW_FLOWS_FACTOR: usize = 4;

/// Maximum product of concurrent flows and packets per flow: a tape of 1 GB with the smallest
/// packets.
pub const FLOWS_TIMES_LENGTH_MAX: u64 = 1 << 22;

/// Address of the service, the load balancer's in workloads that have one.
pub const SERVICE: [u8; 4] = [192, 0, 2, 80];

impl Tape {
    /// Creates a tape of packets of `packet_size` bytes on the wire over this many concurrent
    /// flows, with uniform or Zipf popularity.
    pub fn new(flows: u32, packet_size: u16, zipf: Option<f64>, kind: Kind) -> Tape {
        Tape::of(flows, packet_size, FlowPicker::new(flows, zipf), kind)
    }

    /// Creates a tape of flows with uniform popularity that end after `length` packets each. Others
    /// replace them, some in each round.
    pub fn of_length(flows: u32, packet_size: u16, length: u32) -> Tape {
        Tape::of(flows, packet_size, FlowPicker::of_length(flows, length), Kind::Udp)
    }

    fn of(flows: u32, packet_size: u16, mut pick: FlowPicker, kind: Kind) -> Tape {
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

    /// Returns `count` frames from number `from` in runs of up to `run_len`. The tape wraps around.
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

    /// Returns the packets of a flow, if flows end.
    pub fn flow_length(&self) -> Option<u32> {
        self.flow_length
    }

    /// Returns the first frame of each flow.
    pub fn openings(&self) -> Frames<'_> {
        self.openings.chunks_exact(self.frame_len)
    }
}

/// Picks flows at random.
struct FlowPicker {
    state: u64,
    /// All flows; the first `left` ones have not been drawn in this round.
    deck: Vec<u32>,
    left: usize,
    /// Completed rounds, and the rounds that a flow lasts unless it is endless.
    round: u32,
    length: Option<u32>,
    /// For Zipf's law: cumulative weights of the flows.
    cumulative: Vec<f64>,
}

impl FlowPicker {
    fn new(flows: u32, zipf: Option<f64>) -> FlowPicker {
        let mut cumulative = Vec::new();
        if let Some(exponent) = zipf {
            let mut sum = 0.0;
            cumulative.extend((1..=flows).map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            }));
        }
        FlowPicker {
            state: 42,
            deck: (0..flows).collect(),
            left: flows as usize,
            round: 0,
            length: None,
            cumulative,
        }
    }

    fn of_length(flows: u32, length: u32) -> FlowPicker {
        FlowPicker { length: Some(length.max(1)), ..FlowPicker::new(flows, None) }
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

/// Returns the client of a flow: an address in 10/8 and a port; ports repeat across addresses.
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
    fn each_flow_comes_once_a_round_with_uniform_popularity() {
        let mut pick = FlowPicker::new(100, None);
        let rounds = [0, 1].map(|_| (0..100).map(|_| pick.next()).collect::<Vec<_>>());
        assert_ne!(rounds[0], rounds[1], "each round has another order");
        for mut round in rounds {
            round.sort_unstable();
            assert!(round.into_iter().eq(0..100));
        }
    }

    #[test]
    fn flows_end_after_their_packets() {
        let mut pick = FlowPicker::of_length(10, 3);
        let mut packets = [0; 100];
        (0..10 * 12).for_each(|_| packets[pick.next() as usize] += 1);
        assert!(packets[10..30].iter().all(|&count| count == 3), "{packets:?}");
        assert!(packets.iter().all(|&count| count <= 3), "{packets:?}");
        assert_eq!(
            packets[..10].iter().filter(|&&count| count == 3).count(),
            4,
            "the others started earlier"
        );
    }

    #[test]
    fn the_first_flow_is_the_most_popular_by_zipfs_law() {
        let mut pick = FlowPicker::new(1000, Some(1.0));
        let first = (0..10_000).filter(|_| pick.next() == 0).count();
        assert!((1200..1500).contains(&first), "1 in 7.5: {first}");
    }
}
