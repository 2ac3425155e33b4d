//! Random segments, against the model.

use graph::streams::{HostPolicy, StreamOptions, Streams};
use packet::Direction;
use proptest::prelude::*;

use super::{POLICIES, header};
use crate::stream_model::{ACK, Bench, FIN, Model, Seen};

/// One thing that happens: a segment of the client's, or an acknowledgement of the server's.
#[derive(Clone, Debug)]
enum Step {
    Segment {
        start: u64,
        len: u64,
        other: bool,
        fin: bool,
        doubtful: bool,
    },
    Acknowledge(u64),
    /// The streams move to another unit.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let often = prop::bool::weighted;
    let segment = (0..300u64, 0..60u64, often(0.3), often(0.02), often(0.2));
    let segment = segment.prop_map(|(start, len, other, fin, doubtful)| Step::Segment {
        start,
        len,
        other,
        fin,
        doubtful,
    });
    prop_oneof![
        20 => segment,
        2 => (0..300u64).prop_map(Step::Acknowledge),
        1 => Just(Step::Move),
    ]
}

fn policy() -> impl Strategy<Value = HostPolicy> {
    prop::sample::select(POLICIES.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn streams_are_those_of_the_model(
        isn: u32, policy in policy(), steps in prop::collection::vec((any::<bool>(), step()), 1..100),
    ) {
        let mut bench = Bench::with_policy(policy);
        let mut models = [Model::default(), Model::default()];
        bench.open(isn);
        let first = [isn.wrapping_add(1), 901];
        for (i, (replies, step)) in steps.into_iter().enumerate() {
            let direction = if replies { Direction::Reply } else { Direction::Original };
            let (from, to) = (direction.index(), direction.other().index());
            match step {
                Step::Segment { start, len, other, fin, doubtful } => {
                    // What the stream has there, or something else.
                    let byte = |offset: u64| if other { i as u8 | 0x80 } else { offset as u8 & 0x7f };
                    let bytes: Vec<u8> = (start..start + len).map(byte).collect();
                    let flags = if fin { ACK | FIN } else { ACK };
                    let acknowledgment = first[to].wrapping_add(if doubtful { 100_000 } else { 0 });
                    let sequence = first[from].wrapping_add(start as u32);
                    bench.segment(direction, flags, sequence, acknowledgment, &bytes);
                    models[from].receive(start, &bytes, fin, doubtful, policy);
                }
                Step::Acknowledge(until) => {
                    let acknowledgment = first[from].wrapping_add(until as u32);
                    bench.segment(direction.other(), ACK, first[to], acknowledgment, b"");
                    models[from].acknowledged(until);
                }
                Step::Move => {
                    let mut saved = Vec::new();
                    bench.reassembler.save(&bench.streams, &mut saved);
                    bench.reassembler.forget(&mut bench.streams);
                    prop_assert_eq!(bench.reassembler.memory_used(), 0);
                    bench.streams = bench.reassembler.restore(&saved).unwrap();
                }
            }
            prop_assert_eq!(&bench.seen, &models.each_ref().map(|model| model.seen.clone()));
        }
        bench.reassembler.forget(&mut bench.streams);
        prop_assert_eq!(bench.reassembler.memory_used(), 0);
    }

    /// With little memory, every byte that was sent is either delivered or in a gap, once, in
    /// order; also where streams of others give way, or theirs to others.
    #[test]
    fn little_memory_loses_bytes_but_never_their_place(
        memory in 0..6usize,
        per_source in prop::sample::select(vec![20, 100]),
        steps in prop::collection::vec((0..4usize, step()), 1..90),
    ) {
        let memory = memory * 1536;
        let options = StreamOptions { memory, memory_per_stream: 90, per_source, ..StreamOptions::default() };
        let mut bench = Bench::new(options);
        let mut flows: Vec<(Streams, [Vec<Seen>; 2])> = Vec::new();
        for flow in 0..4 {
            bench.reassembler.own(&header(flow));
            bench.open(7);
            flows.push((std::mem::take(&mut bench.streams), std::mem::take(&mut bench.seen)));
        }
        for (flow, step) in steps {
            bench.reassembler.own(&header(flow));
            (bench.streams, bench.seen) = std::mem::take(&mut flows[flow]);
            match step {
                Step::Segment { start, len, fin, .. } => {
                    let bytes: Vec<u8> = (start..start + len).map(|offset| offset as u8).collect();
                    bench.segment(Direction::Original, if fin { ACK | FIN } else { ACK }, 8 + start as u32, 901, &bytes);
                }
                Step::Acknowledge(until) => bench.server_acknowledges(8 + until as u32),
                Step::Move => {
                    let mut saved = Vec::new();
                    bench.reassembler.save(&bench.streams, &mut saved);
                    bench.reassembler.forget(&mut bench.streams);
                    bench.streams = bench.reassembler.restore(&saved).unwrap();
                }
            }
            flows[flow] = (std::mem::take(&mut bench.streams), std::mem::take(&mut bench.seen));
        }
        for (mut streams, seen) in flows {
            bench.reassembler.forget(&mut streams);
            let mut next = 0;
            for seen in &seen[0] {
                match seen {
                    Seen::Data(offset, bytes) => {
                        prop_assert_eq!(*offset, next);
                        prop_assert!(bytes.iter().zip(next..).all(|(&byte, offset)| byte == offset as u8));
                        next += bytes.len() as u64;
                    }
                    Seen::Gap(offset, len) => {
                        prop_assert_eq!(*offset, next);
                        next += len;
                    }
                    Seen::Finished(offset) => prop_assert_eq!(*offset, next),
                    Seen::Restart | Seen::Reset(_) => prop_assert!(false),
                }
            }
        }
        prop_assert_eq!(bench.reassembler.memory_used(), 0);
    }
}

proptest! {
    /// In line, with little memory, a host reads nothing that functions were not given before,
    /// whatever gives way and moves.
    #[test]
    fn in_line_little_memory_lets_nothing_by(
        memory in 0..8usize,
        per_source in prop::sample::select(vec![20, 100]),
        steps in prop::collection::vec((0..4usize, step()), 1..120),
    ) {
        let memory = memory * 1536;
        let options =
            StreamOptions { memory, memory_per_stream: 90, per_source, inline: true, ..StreamOptions::default() };
        let mut bench = Bench::new(options);
        let mut flows: Vec<(Streams, [Vec<Seen>; 2])> = Vec::new();
        let mut hosts = vec![[false; 512]; 4];
        for flow in 0..4 {
            bench.reassembler.own(&header(flow));
            bench.open(7);
            flows.push((std::mem::take(&mut bench.streams), std::mem::take(&mut bench.seen)));
        }
        for (flow, step) in steps {
            bench.reassembler.own(&header(flow));
            (bench.streams, bench.seen) = std::mem::take(&mut flows[flow]);
            let host = &mut hosts[flow];
            let read = |host: &[bool; 512]| host.iter().take_while(|has| **has).count() as u32;
            match step {
                Step::Segment { start, len, .. } => {
                    let bytes: Vec<u8> = (start..start + len).map(|offset| offset as u8).collect();
                    bench.segment(Direction::Original, ACK, 8 + start as u32, 901, &bytes);
                    if bench.fate.is_none() {
                        (start..start + len).for_each(|offset| host[offset as usize] = true);
                    }
                }
                Step::Acknowledge(until) => bench.server_acknowledges(8 + read(host).min(until as u32)),
                Step::Move => {
                    let mut saved = Vec::new();
                    bench.reassembler.save(&bench.streams, &mut saved);
                    bench.reassembler.forget(&mut bench.streams);
                    bench.streams = bench.reassembler.restore(&saved).unwrap();
                }
            }
            let given = match &bench.seen[0][..] {
                [] => 0,
                [Seen::Data(0, bytes)] => bytes.len() as u32,
                other => panic!("{other:?}"),
            };
            prop_assert!(read(host) <= given, "the host reads {}, functions {given}", read(host));
            flows[flow] = (std::mem::take(&mut bench.streams), std::mem::take(&mut bench.seen));
        }
    }
}
