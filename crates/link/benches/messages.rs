//! Messages and packets through two links in memory, on one thread: `cargo bench -p link`.
//!
//! Each item passes the sender's encryption, and the receiver's decryption, acknowledgement and
//! flow control. Medians of rounds. With arguments (`message 64 1000000`: what, bytes, count) it
//! runs once, for a profiler.
#![allow(clippy::unwrap_used)] // A bench fails by panicking.

use std::hint::black_box;
use std::time::Instant;

use link::{Config, LinkKeys, PeerLink};

const ROUNDS: usize = 21;
const KEYS: LinkKeys = LinkKeys { send: [1; 32], receive: [2; 32] };

/// Items offered before the sender is polled.
const BURST: usize = 256;

#[derive(Clone, Copy, PartialEq)]
enum Item {
    Message,
    Packet,
}

struct Both {
    ends: [PeerLink; 2],
    out: Vec<u8>,
    now_ns: u64,
    taken: usize,
}

impl Both {
    fn new(mtu: usize) -> Both {
        let config = Config::default().with_fixed_mtu(mtu);
        let end = |keys: &LinkKeys| PeerLink::new(config.clone(), keys, 0).unwrap();
        Both { ends: [end(&KEYS), end(&KEYS.reversed())], out: Vec::new(), now_ns: 0, taken: 0 }
    }

    /// Carries what one end has to send to the other.
    fn carry(&mut self, from: usize) {
        self.now_ns += 1_000;
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        if from.next_timeout_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            from.handle_timeout(self.now_ns);
        }
        while let Some(transmit) = from.poll_transmit(self.now_ns, &mut self.out) {
            for datagram in self.out.chunks_mut(transmit.segment) {
                to.handle_datagram(self.now_ns, datagram).unwrap();
            }
        }
        while let Some(message) = to.poll_message() {
            black_box(message.bytes);
            self.taken += 1;
        }
        while let Some(packet) = to.poll_packet() {
            black_box(packet);
            self.taken += 1;
        }
    }

    /// Sends items from end 0 to end 1; all arrive.
    fn run(&mut self, item: Item, bytes: &[u8], count: usize) {
        let (mut sent, until) = (0, self.taken + count);
        while self.taken < until {
            for _ in 0..BURST.min(count - sent) {
                let is_sent = match item {
                    Item::Message => self.ends[0].send_message(sent as u16 & 1_023, bytes).is_ok(),
                    Item::Packet => self.ends[0].send_packet(bytes).is_ok(),
                };
                if !is_sent {
                    break;
                }
                sent += 1;
            }
            self.carry(0);
            self.carry(1);
        }
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [item, len, count] = &given[..] {
        let item = if item == "packet" { Item::Packet } else { Item::Message };
        let bytes = vec![7; len.parse().unwrap()];
        return Both::new(1_452).run(item, &bytes, count.parse().unwrap());
    }
    println!("{:>8} {:>7} {:>6} {:>9} {:>8} {:>7}", "item", "bytes", "mtu", "M/s", "ns", "Gbit/s");
    for (item, len, mtu) in [
        (Item::Message, 64, 1_452),
        (Item::Message, 64, 8_952),
        (Item::Message, 1_000, 1_452),
        (Item::Message, 65_536, 1_452),
        (Item::Message, 65_536, 65_507),
        (Item::Packet, 64, 1_452),
        (Item::Packet, 1_400, 1_452),
    ] {
        let (bytes, count) = (vec![7; len], (40_000_000 / (len + 64)).max(100));
        let mut both = Both::new(mtu);
        both.run(item, &bytes, count);
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                both.run(item, &bytes, count);
                began.elapsed().as_nanos() as f64 / count as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let ns = times[ROUNDS / 2];
        let name = if item == Item::Message { "message" } else { "packet" };
        println!("{name:>8} {len:>7} {mtu:>6} {:>9.2} {ns:>8.0} {:>7.2}", 1e3 / ns, len as f64 * 8.0 / ns);
    }
}
