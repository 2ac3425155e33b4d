//! Both real ends over a faulty network, in virtual time.

use std::collections::{BTreeMap, VecDeque};

use link::{Config, LinkEvent, LinkKeys, PeerLink};

pub const KEYS: LinkKeys = LinkKeys { send: [0x11; 32], receive: [0x22; 32] };

/// Bytes of Ethernet's, IPv6's and UDP's headers.
const HEADERS_LEN: usize = 14 + 40 + 8;

/// Linux's `gso_max_size` of a device: a frame of that length is cut up before it.
const GSO_LEN_MAX: usize = 65_536;

/// A small generator: the same seed, the same faults.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number (splitmix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn happens(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }
}

/// Faults of one direction of the network, in force before `until_ns`.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub until_ns: u64,
    pub lost_permille: u64,
    pub repeated_permille: u64,
    pub corrupted_permille: u64,
    pub reordered_permille: u64,
    pub reordered_by_ns: u64,
    /// Nothing passes from the first to the second time.
    pub partition_ns: (u64, u64),
}

/// Two ends, called 0 and 1.
pub struct Pair {
    pub now_ns: u64,
    pub links: [PeerLink; 2],
    pub received: [Received; 2],
    /// Faults of the direction from each end.
    pub faults: [Faults; 2],
    pub delay_ns: u64,
    /// Length of the longest datagram that the path from each end carries.
    pub path: [usize; 2],
    /// Length of the longest datagram that the system of each end sends.
    pub system: [usize; 2],
    /// Set if the caller of this end takes messages.
    pub takes: [bool; 2],
    /// All datagrams sent, while recording.
    pub sent: Vec<u8>,
    pub is_recording: bool,
    /// Datagrams and bytes sent by each end.
    pub traffic: [u64; 2],
    /// Bytes of the longest batch of datagrams.
    pub batch_most: usize,
    random: Random,
    flying: [BTreeMap<(u64, u64), Vec<u8>>; 2],
    count: u64,
}

/// Messages, packets and events that an end's caller got.
#[derive(Default)]
pub struct Received {
    pub messages: BTreeMap<u16, VecDeque<Vec<u8>>>,
    pub messages_count: usize,
    /// The stream of each, in the order of their arrival.
    pub streams: Vec<u16>,
    pub packets: Vec<Vec<u8>>,
    pub events: Vec<(u64, LinkEvent)>,
    pub held_most: u64,
}

impl Pair {
    pub fn new(config: &Config, seed: u64) -> Pair {
        let end = |keys: &LinkKeys| PeerLink::new(config.clone(), keys, 0).unwrap();
        Pair {
            now_ns: 0,
            links: [end(&KEYS), end(&KEYS.reversed())],
            received: Default::default(),
            faults: Default::default(),
            delay_ns: 20_000,
            path: [usize::MAX; 2],
            system: [usize::MAX; 2],
            takes: [true; 2],
            sent: Vec::new(),
            is_recording: false,
            traffic: [0; 2],
            batch_most: 0,
            random: Random::new(seed),
            flying: Default::default(),
            count: 0,
        }
    }

    /// Returns the time of the next event.
    pub fn next_ns(&self) -> Option<u64> {
        let arrivals = self.flying.iter().filter_map(|flying| flying.keys().next().map(|(at, _)| *at));
        let timeouts = self.links.iter().filter_map(PeerLink::next_timeout_ns);
        arrivals.chain(timeouts).min().map(|at_ns| at_ns.max(self.now_ns))
    }

    /// Goes to the next event, and through it; false if there is none.
    pub fn step(&mut self) -> bool {
        let Some(next_ns) = self.next_ns() else { return false };
        self.now_ns = next_ns;
        for end in 0..2 {
            self.drive(end);
        }
        true
    }

    /// Steps until a time.
    pub fn run_until(&mut self, until_ns: u64) {
        while self.next_ns().is_some_and(|at_ns| at_ns <= until_ns) {
            self.step();
        }
        self.now_ns = until_ns;
    }

    /// Steps until the condition holds; false if it does not within the time.
    pub fn run_while(&mut self, for_ns: u64, mut goes_on: impl FnMut(&mut Pair) -> bool) -> bool {
        let until_ns = self.now_ns + for_ns;
        while goes_on(self) {
            if self.next_ns().is_none_or(|at_ns| at_ns > until_ns) || !self.step() {
                return false;
            }
        }
        true
    }

    /// Does for an end what its caller does.
    pub fn drive(&mut self, end: usize) {
        let link = &mut self.links[end];
        while let Some(entry) = self.flying[1 - end].first_entry()
            && entry.key().0 <= self.now_ns
        {
            // Refusals are counted; tests look at them there.
            let _ = link.handle_datagram(self.now_ns, &mut entry.remove());
        }
        if link.next_timeout_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            link.handle_timeout(self.now_ns);
        }
        let received = &mut self.received[end];
        received.held_most = received.held_most.max(link.held_cost());
        while self.takes[end]
            && let Some(message) = link.poll_message()
        {
            received.streams.push(message.stream);
            received.messages.entry(message.stream).or_default().push_back(message.bytes.to_vec());
            received.messages_count += 1;
        }
        while let Some(packet) = link.poll_packet() {
            received.packets.push(packet.to_vec());
        }
        while let Some(event) = link.poll_event() {
            received.events.push((self.now_ns, event));
        }
        self.transmit(end);
    }

    /// Sends what an end has to send.
    pub fn transmit(&mut self, end: usize) {
        let mut out = Vec::new();
        while let Some(transmit) = self.links[end].poll_transmit(self.now_ns, &mut out) {
            assert_eq!(transmit.len, out.len());
            assert!(transmit.segment <= self.links[end].config().mtu);
            if out.len() > transmit.segment {
                assert!(out.len() + HEADERS_LEN < GSO_LEN_MAX, "{}", out.len());
                self.batch_most = self.batch_most.max(out.len());
            }
            assert!(out.len().div_ceil(transmit.segment) <= link::TRANSMIT_DATAGRAMS_MAX);
            for (sent, datagram) in out.chunks(transmit.segment).enumerate() {
                if datagram.len() > self.system[end] {
                    if self.links[end].handle_too_large(&transmit, sent) {
                        break;
                    }
                    return;
                }
                self.traffic[end] += 1;
                if self.is_recording {
                    self.sent.extend_from_slice(datagram);
                }
                self.launch(end, datagram);
            }
        }
    }

    fn launch(&mut self, end: usize, datagram: &[u8]) {
        let (faults, random) = (&self.faults[end], &mut self.random);
        let is_faulty = self.now_ns < faults.until_ns;
        let (from_ns, to_ns) = faults.partition_ns;
        if datagram.len() > self.path[end] {
            return;
        }
        if (from_ns..to_ns).contains(&self.now_ns) || is_faulty && random.happens(faults.lost_permille) {
            return;
        }
        let copies = if is_faulty && random.happens(faults.repeated_permille) { 2 } else { 1 };
        for _ in 0..copies {
            let mut at_ns = self.now_ns + self.delay_ns;
            if is_faulty && random.happens(faults.reordered_permille) {
                at_ns += random.below(faults.reordered_by_ns);
            }
            let mut copy = datagram.to_vec();
            if is_faulty && random.happens(faults.corrupted_permille) {
                let at = random.below(copy.len() as u64) as usize;
                copy[at] ^= 1 << random.below(8);
            }
            self.count += 1;
            self.flying[end].insert((at_ns, self.count), copy);
        }
    }

    /// Returns the datagrams on their way from this end.
    pub fn flying_from(&mut self, end: usize) -> &mut BTreeMap<(u64, u64), Vec<u8>> {
        &mut self.flying[end]
    }
}

/// Settings with which a peer is never dead.
pub fn patient() -> Config {
    const HOUR_NS: u64 = 3_600_000_000_000;
    Config {
        heartbeats_missed: 1_000_000,
        silence_max_ns: HOUR_NS,
        up_within_ns: HOUR_NS,
        ..Config::default()
    }
}

/// Settings with small buffers, so that tests reach the limits.
pub fn small(mtu: usize) -> Config {
    Config {
        message_max: 60_000,
        receive_window: 262_144,
        send_buffer: 524_288,
        packet_buffer: 65_536.max(mtu),
        ..patient()
    }
    .with_fixed_mtu(mtu)
}
