//! Limited memory, and streams that move.

use graph::streams::{HostPolicy, Reassembler, StreamOptions, Streams};
use nf::Connection;
use packet::{Direction, DropReason};

use super::{data, header};
use crate::stream_model::{ACK, Bench, Seen, URG};

#[test]
fn what_was_recorded_may_be_sent_again_though_no_more_is() {
    const LEN: u32 = 1448;
    let options =
        StreamOptions { inline: true, memory: 64 << 20, per_source: 100, ..StreamOptions::default() };
    let mut bench = Bench::new(options);
    bench.open(99);
    bench.server_acknowledges(100);
    let bytes = [b'x'; LEN as usize];
    let mut sequence = 100;
    bench.client(sequence, &bytes);
    while bench.fate.is_none() {
        sequence += LEN;
        bench.client(sequence, &bytes);
    }
    assert_eq!(bench.fate, Some(DropReason::StreamMemory));
    // Its receiver lacks the first one.
    bench.client(100, &bytes);
    assert_eq!(bench.fate, None);
    bench.client(100, &[b'y'; LEN as usize]);
    assert_eq!(bench.fate, Some(DropReason::StreamDiffers));
    bench.server_acknowledges(sequence);
    bench.client(sequence, &bytes);
    assert_eq!(bench.fate, None);
}

#[test]
fn a_stream_of_tiny_segments_holds_few_blocks() {
    let mut bench = Bench::new(StreamOptions { inline: true, ..StreamOptions::default() });
    bench.open(99);
    bench.server_acknowledges(100);
    (0..10_000).for_each(|number| bench.client(110 + 2 * number, b"x"));
    assert_eq!(bench.fate, Some(DropReason::StreamMemory));
    assert_eq!(bench.reassembler.memory_used(), 1024 * 1536);
    // In order, and not acknowledged: more may be under way, but not any number.
    let mut bench = Bench::new(StreamOptions { inline: true, ..StreamOptions::default() });
    bench.open(99);
    bench.server_acknowledges(100);
    let passed = (0..100_000).take_while(|number| {
        bench.client(100 + number, b"x");
        bench.fate.is_none()
    });
    assert_eq!(passed.count(), (4 << 20) / 1536);
}

#[test]
fn a_forged_reset_frees_no_share() {
    let options =
        StreamOptions { memory: 40 * 1536, per_source: 20, inline: true, ..StreamOptions::default() };
    let mut bench = Bench::new(options);
    let mut of = header(0);
    bench.reassembler.own(&of);
    bench.open(99);
    let mut sequences = (200..).step_by(10);
    while bench.fate.is_none() {
        bench.client(sequences.next().unwrap(), b"early");
    }
    let held = bench.reassembler.memory_used();
    assert!(held < 40 * 1536);
    of.connection = Connection::RESET;
    bench.reassembler.own(&of);
    sequences.take(20).for_each(|sequence| bench.client(sequence, b"early"));
    assert_eq!(bench.reassembler.memory_used(), held);
}

#[test]
fn in_line_little_memory_lets_nothing_by_an_urgent_byte() {
    for blocks in 0..4 {
        let memory = blocks * 1536;
        let mut bench =
            Bench::new(StreamOptions { memory, inline: true, per_source: 100, ..StreamOptions::default() });
        bench.open(99);
        bench.urgent = 3;
        bench.segment(Direction::Original, ACK | URG, 100, 901, b"okUattack");
        bench.urgent = 0;
        let (passes, seen) = (bench.fate.is_none(), std::mem::take(&mut bench.seen[0]));
        assert_eq!(seen, if passes { vec![data(0, b"okattack")] } else { vec![] }, "{blocks} blocks");
        assert_eq!(passes, blocks >= 2);
    }
}

#[test]
fn memory_is_bounded_and_who_needs_more_stops_waiting() {
    let options = StreamOptions { memory_per_stream: 4000, ..StreamOptions::default() };
    let mut bench = Bench::new(options);
    bench.open(99);
    bench.client(110, &[1; 1500]);
    bench.client(1610, &[2; 1500]);
    bench.client(3120, &[3; 1500]);
    assert_eq!(bench.reassembler.counters().gave_up, 1);
    let waited = [[1; 1500].to_vec(), [2; 1500].to_vec()].concat();
    assert_eq!(bench.seen[0], [Seen::Gap(0, 10), Seen::Data(10, waited)]);
    bench.client(3110, &[9; 10]);
    assert_eq!(bench.seen[0].len(), 2);
    assert_eq!(bench.reassembler.memory_used(), 0);

    // All flows' memory: the same.
    let options = StreamOptions { memory: 2 * 1536, per_source: 100, ..StreamOptions::default() };
    let mut bench = Bench::new(options);
    bench.open(99);
    for i in 0..3 {
        bench.client(110 + 20 * i, &[i as u8; 10]);
    }
    assert_eq!(bench.seen[0], [Seen::Gap(0, 10), Seen::Data(10, [0; 10].to_vec())]);
    // A segment longer than what may wait, with a hole in front of it.
    bench.client(1000, &[7; 6000]);
    assert_eq!(bench.seen[0].last(), Some(&Seen::Data(900, [7; 6000].to_vec())));
}

#[test]
fn saved_streams_that_are_damaged_are_refused() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(110, b"waits");
    let mut saved = Vec::new();
    bench.reassembler.save(&bench.streams, &mut saved);
    let mut other = Reassembler::new(StreamOptions::default()).unwrap();
    for len in 0..saved.len() {
        assert!(other.restore(&saved[..len]).is_err(), "{len}");
    }
    for byte in 64..saved.len() {
        let mut damaged = saved.clone();
        damaged[byte] ^= 0xff;
        if let Ok(mut streams) = other.restore(&damaged) {
            other.forget(&mut streams);
        }
    }
    // Positions that no stream gets to: where it stands, what gave way, and what waits.
    for at in [0, 64, 128, 140] {
        for offset in [1 << 63, u64::MAX - 5, u64::MAX - 1_000] {
            let mut damaged = saved.clone();
            damaged[at..at + 8].copy_from_slice(&u64::to_le_bytes(offset));
            assert!(other.restore(&damaged).is_err(), "{offset} at {at}");
        }
    }
    assert_eq!(other.memory_used(), 0);
    assert!(other.restore(&saved).is_ok());
    assert_eq!(other.memory_used(), 1536);
    let mut tight = Reassembler::new(StreamOptions { memory: 0, ..StreamOptions::default() }).unwrap();
    // Without memory it gives way, and stays so when it moves on.
    let streams = tight.restore(&saved).unwrap();
    assert_eq!(tight.memory_used(), 0);
    let mut saved_again = Vec::new();
    tight.save(&streams, &mut saved_again);
    assert!(saved_again.len() < saved.len());
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.streams = bench.reassembler.restore(&saved_again).unwrap();
    bench.client(100, b"after that");
    bench.server_acknowledges(115);
    bench.client(115, b"!");
    assert_eq!(bench.seen[0], [data(0, b"after that"), Seen::Gap(10, 5), data(15, b"!")]);
}

#[test]
fn a_flow_without_streams_takes_no_bytes() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    let mut saved = Vec::new();
    bench.reassembler.save_flow(0, &bench.streams, &mut saved);
    assert!(saved.is_empty());
    assert_eq!(bench.reassembler.restore_flow(0, &saved), Ok(Streams::default()));

    bench.open(99);
    bench.reassembler.save_flow(0, &bench.streams, &mut saved);
    assert_eq!(bench.reassembler.restore_flow(0, &saved), Ok(bench.streams));
}
