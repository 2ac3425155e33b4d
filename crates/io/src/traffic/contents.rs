//! Payloads of packets, and their lengths.

use super::profile::{FrameBytes, Payload, TrafficProfile};
use super::random::Random;

/// Positions in the pool at which payloads may begin.
const STARTS: usize = 1 << 16;
/// Bytes of the pool: after each start there is room for the longest datagram.
const POOL_BYTES: usize = 2 * STARTS;

/// A piece of the pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PayloadSlice {
    start: u32,
    length: u16,
}

/// Chooses payloads.
#[derive(Debug)]
pub(super) struct Contents {
    pool: Box<[u8]>,
    /// Positions of requests in the pool, if it is text.
    requests: Vec<u32>,
    is_random: bool,
    frame_bytes: FrameBytes,
    datagram_bytes: u16,
    random: Random,
}

impl Contents {
    pub fn new(profile: &TrafficProfile, mut random: Random) -> Contents {
        let mut requests = Vec::new();
        let pool = match profile.payload {
            Payload::Zero => vec![0; POOL_BYTES],
            Payload::Random => (0..POOL_BYTES / 8).flat_map(|_| random.bits().to_be_bytes()).collect(),
            Payload::Http => http_requests(&mut random, &mut requests),
        };
        Contents {
            pool: pool.into_boxed_slice(),
            requests,
            is_random: profile.payload == Payload::Random,
            frame_bytes: profile.frame_bytes,
            datagram_bytes: profile.datagram_bytes,
            random,
        }
    }

    /// Returns a payload that fills a frame of the profile's lengths after `header_bytes`, with at
    /// least `least` bytes.
    pub fn payload(&mut self, header_bytes: usize, least: u16) -> PayloadSlice {
        let frame = self.next_frame_bytes();
        let length = usize::from(frame).saturating_sub(header_bytes) as u16;
        PayloadSlice { start: self.start(), length: length.max(least) }
    }

    /// Returns the payload of a datagram that will be fragmented.
    pub fn datagram(&mut self) -> PayloadSlice {
        PayloadSlice { start: self.start(), length: self.datagram_bytes }
    }

    /// Returns the bytes of a payload.
    pub fn bytes(&self, slice: PayloadSlice) -> &[u8] {
        let start = slice.start as usize;
        &self.pool[start..start + usize::from(slice.length)]
    }

    fn next_frame_bytes(&mut self) -> u16 {
        match self.frame_bytes {
            FrameBytes::Fixed(length) => length,
            FrameBytes::Imix => match self.random.below(12) {
                0..7 => 60,
                7..11 => 590,
                _ => 1_514,
            },
            FrameBytes::Range(least, most) => least + self.random.below(u64::from(most - least) + 1) as u16,
            FrameBytes::Bimodal { small, large, small_share } => {
                if self.random.chance(small_share) {
                    small
                } else {
                    large
                }
            }
        }
    }

    fn start(&mut self) -> u32 {
        if self.is_random {
            return self.random.below(STARTS as u64) as u32;
        }
        match self.requests.len() {
            0 => 0,
            count => self.requests[self.random.below(count as u64) as usize],
        }
    }
}

impl PayloadSlice {
    /// Returns the length in bytes.
    pub fn len(self) -> u16 {
        self.length
    }
}

/// Returns a pool of requests. Appends the positions of those with enough bytes after them to
/// `starts`.
fn http_requests(random: &mut Random, starts: &mut Vec<u32>) -> Vec<u8> {
    const METHODS: [&str; 4] = ["GET", "GET", "HEAD", "POST"];
    const PATHS: [&str; 6] = ["/", "/index.html", "/search?q=", "/api/v1/items/", "/images/", "/login?user="];
    const HOSTS: [&str; 4] = ["www.example.com", "shop.example.net", "api.example.org", "cdn.example.com"];
    const AGENTS: [&str; 3] = ["Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "ExampleBot/1.0"];
    let mut pool = Vec::with_capacity(POOL_BYTES + 1_024);
    while pool.len() < POOL_BYTES {
        if pool.len() < STARTS {
            starts.push(pool.len() as u32);
        }
        let mut pick = |from: &[&'static str]| from[random.below(from.len() as u64) as usize];
        let (method, path, host, agent) = (pick(&METHODS), pick(&PATHS), pick(&HOSTS), pick(&AGENTS));
        let number = random.below(100_000);
        let request = format!(
            "{method} {path}{number} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nAccept: */*\r\nCookie: id={:016x}\r\n\r\n",
            random.bits()
        );
        pool.extend_from_slice(request.as_bytes());
    }
    pool.truncate(POOL_BYTES);
    pool
}
