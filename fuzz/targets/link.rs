//! Two links whose datagrams are lost, repeated, reordered and changed, beside any datagrams and
//! any authentic frames: nothing panics, and a receiver never holds more than its window. While
//! nobody invents authentic frames, messages arrive once and in order.

#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use link::{Config, LinkKeys, PeerLink};

const KEYS: LinkKeys = LinkKeys { send: [1; 32], receive: [2; 32] };

struct World {
    now_ns: u64,
    ends: [PeerLink; 2],
    /// Datagrams on their way to each end.
    flying: [Vec<Vec<u8>>; 2],
    /// Messages that each end has not received yet, by stream.
    expected: [[VecDeque<Vec<u8>>; 4]; 2],
    is_honest: bool,
}

impl World {
    fn new(mtu: usize) -> World {
        let config = Config {
            mtu,
            message_max: 20_000,
            receive_window: 65_536,
            send_buffer: 100_000,
            packet_buffer: 4_096,
            key_datagrams: 5,
            ..Config::default()
        };
        let end = |keys: &LinkKeys| PeerLink::new(config.clone(), keys, 0).expect("settings within limits");
        World {
            now_ns: 0,
            ends: [end(&KEYS), end(&KEYS.reversed())],
            flying: Default::default(),
            expected: Default::default(),
            is_honest: true,
        }
    }

    fn drive(&mut self, end: usize) {
        let link = &mut self.ends[end];
        if link.next_timeout_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            link.handle_timeout(self.now_ns);
        }
        assert!(link.held_cost() <= 65_536 || link.dead().is_some());
        while let Some(message) = link.poll_message() {
            if self.is_honest {
                let expected = self.expected[end][usize::from(message.stream)].pop_front();
                assert_eq!(expected.as_deref(), Some(message.bytes));
            }
        }
        while link.poll_packet().is_some() {}
        while link.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(transmit) = link.poll_transmit(self.now_ns, &mut out) {
            self.flying[1 - end].extend(out.chunks(transmit.segment).map(<[u8]>::to_vec));
        }
        let kept = self.flying[1 - end].len().saturating_sub(256);
        self.flying[1 - end].drain(..kept);
        assert!(link.next_timeout_ns().is_none_or(|at_ns| at_ns > self.now_ns), "a timeout is handled");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let mut world = World::new([1_232, 1_452][usize::from(first & 1)]);
    while let [kind, at, len, bytes @ ..] = rest {
        let (these, after) = bytes.split_at(usize::from(*len).min(bytes.len()));
        rest = after;
        let end = usize::from(kind >> 7);
        let flying = &mut world.flying[end];
        let chosen = usize::from(*at) % flying.len().max(1);
        match kind % 8 {
            0 => {
                let message = these.repeat(1 + usize::from(*at));
                let stream = kind >> 4 & 3;
                if world.ends[end].send_message(stream.into(), &message).is_ok() {
                    world.expected[1 - end][usize::from(stream)].push_back(message);
                }
            }
            1 => {
                let _ = world.ends[end].send_packet(&these.repeat(1 + usize::from(*at & 7)));
            }
            // A datagram arrives, once or again, as it is or changed.
            2 | 3 if !flying.is_empty() => {
                let mut datagram =
                    if kind & 8 == 0 { flying.remove(chosen) } else { flying[chosen].clone() };
                if kind % 8 == 3 {
                    let place = usize::from(*len) % datagram.len();
                    datagram[place] ^= at | 1;
                }
                let _ = world.ends[end].handle_datagram(world.now_ns, &mut datagram);
            }
            4 => {
                for mut datagram in std::mem::take(flying) {
                    let _ = world.ends[end].handle_datagram(world.now_ns, &mut datagram);
                }
            }
            5 => world.now_ns += u64::from(*at) << (kind >> 3 & 15),
            6 => {
                let _ = world.ends[end].handle_datagram(world.now_ns, &mut these.to_vec());
            }
            7 => {
                world.is_honest = false;
                let number = if *at == u8::MAX { u64::MAX } else { u64::from(*at) };
                world.ends[end].handle_plaintext(world.now_ns, number, these);
            }
            _ => {}
        }
        world.drive(0);
        world.drive(1);
    }
});
