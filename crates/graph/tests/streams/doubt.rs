//! Segments that hosts may ignore, and which bytes count then.

use graph::streams::{HostPolicy, StreamOptions};
use packet::{Direction, DropReason};

use super::{POLICIES, data};
use crate::stream_model::{ACK, Bench, FIN, RST, SYN, Seen};

#[test]
fn bytes_and_ends_that_acknowledge_nothing_are_not_the_streams() {
    let mut bench = Bench::with_policy(HostPolicy::First);
    bench.open(99);
    for flags in [0, 8, FIN, FIN | 8] {
        bench.segment(Direction::Original, flags, 100, 0, b"nothing");
    }
    bench.client(100, b"request");
    assert_eq!(bench.seen[0], [data(0, b"request")]);
    assert_eq!(bench.reassembler.counters().refused, 4);
}

#[test]
fn who_began_with_a_right_checksum_has_no_wrong_one() {
    let mut bench = Bench::with_policy(HostPolicy::First);
    bench.intact = Some(true);
    bench.open(99);
    bench.intact = Some(false);
    bench.client(100, b"decoys!");
    bench.segment(Direction::Original, FIN | ACK, 100, 901, b"");
    bench.segment(Direction::Original, RST, 100, 901, b"");
    bench.segment(Direction::Original, SYN, 7000, 0, b"");
    bench.intact = None; // A capture cut it.
    bench.client(100, b"req");
    bench.intact = Some(true);
    bench.client(103, b"uest");
    assert_eq!(bench.seen, [vec![data(0, b"request")], vec![]]);
    assert_eq!(bench.reassembler.counters().damaged, 4);
    // Hardware has put segments together, or a capture was edited: the receiver has them.
    bench.intact = Some(false);
    bench.client(107, b" and more");
    bench.segment(Direction::Original, FIN | ACK, 116, 901, b"");
    assert_eq!(bench.seen[0], [data(0, b"request")]);
    bench.intact = Some(true);
    bench.server_acknowledges(117);
    assert_eq!(bench.seen[0], [data(0, b"request and more"), Seen::Finished(16)]);
    assert_eq!(bench.reassembler.memory_used(), 0);
}

#[test]
fn who_began_with_a_wrong_checksum_leaves_them_to_hardware() {
    let mut bench = Bench::with_policy(HostPolicy::First);
    bench.intact = Some(false);
    bench.segment(Direction::Original, SYN, 99, 0, b"");
    bench.intact = Some(true);
    bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"");
    bench.intact = Some(false);
    bench.client(100, b"request");
    bench.segment(Direction::Reply, ACK, 901, 107, b"decoys!!");
    bench.intact = Some(true);
    bench.client(107, b" and more");
    bench.segment(Direction::Reply, ACK, 901, 107, b"response");
    assert_eq!(bench.seen, [[data(0, b"request and more")], [data(0, b"response")]]);
    assert_eq!(bench.reassembler.counters().damaged, 1);

    // Its opening was not seen: the same.
    for intact in [true, false] {
        let mut bench = Bench::with_policy(HostPolicy::First);
        for (number, intact) in [(0, intact), (2, true), (2, false), (4, intact)] {
            bench.intact = Some(intact);
            bench.client(5000 + number, &[b'0' + u8::from(intact); 2]);
        }
        assert_eq!(bench.seen[0], [data(0, if intact { b"111111" } else { b"001100" })]);
    }
}

#[test]
fn what_a_syn_brings_counts_once_it_is_acknowledged() {
    for policy in POLICIES {
        // A server that takes it, as of TCP Fast Open.
        let mut bench = Bench::with_policy(policy);
        bench.segment(Direction::Original, SYN, 99, 0, b"request");
        assert_eq!(bench.seen[0], []);
        bench.segment(Direction::Reply, SYN | ACK, 900, 107, b"");
        assert_eq!(bench.seen[0], [data(0, b"request")]);
        bench.client(107, b", and more");
        assert_eq!(bench.seen[0], [data(0, b"request, and more")]);

        // One that does not, however the segments behind it are cut.
        for cut in 0..7 {
            let mut bench = Bench::with_policy(policy);
            bench.segment(Direction::Original, SYN | FIN, 99, 0, b"a decoy");
            bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"a decoy");
            bench.client(100 + cut, &b"request"[cut as usize..]);
            bench.client(100, &b"request"[..cut as usize]);
            bench.segment(Direction::Reply, ACK, 901, 107, b"response");
            bench.client(107, b"");
            assert_eq!(bench.seen, [[data(0, b"request")], [data(0, b"response")]], "{cut}");
            assert_eq!(bench.reassembler.memory_used(), 0);
        }

        // One that is not seen: as if it took it.
        let mut bench = Bench::with_policy(policy);
        bench.segment(Direction::Original, SYN, 99, 0, b"request");
        bench.client(107, b", and more");
        assert_eq!(bench.seen[0], [data(0, b"request, and more")]);

        // The same, but what comes next says that it did not.
        let mut bench = Bench::with_policy(policy);
        bench.segment(Direction::Original, SYN, 99, 0, b"decoys!");
        bench.client(100, b"request");
        bench.client(107, b", and more");
        assert_eq!(bench.seen[0], [data(0, b"request, and more")]);
        assert_eq!(bench.reassembler.memory_used(), 0);
    }
}

#[test]
fn what_comes_before_the_answer_to_a_syn_is_not_taken() {
    for inline in [false, true] {
        let mut bench = Bench::new(StreamOptions { inline, ..StreamOptions::default() });
        bench.segment(Direction::Original, SYN, 99, 0, b"");
        for (flags, sequence, bytes) in
            [(ACK, 901, &b"decoys"[..]), (FIN | ACK, 907, b""), (ACK, 5000, b"far")]
        {
            bench.segment(Direction::Reply, flags, sequence, 100, bytes);
            assert_eq!(bench.fate, inline.then_some(DropReason::StreamIgnored));
        }
        bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"");
        bench.client(100, b"request");
        bench.segment(Direction::Reply, ACK, 901, 107, b"answer");
        assert_eq!(bench.seen, [[data(0, b"request")], [data(0, b"answer")]]);
        assert_eq!(bench.fate, None);
        // The answer was not seen, but that there was one.
        let mut bench = Bench::new(StreamOptions { inline, ..StreamOptions::default() });
        bench.segment(Direction::Original, SYN, 99, 0, b"");
        bench.client(100, b"");
        bench.segment(Direction::Reply, ACK, 901, 100, b"banner");
        assert_eq!((bench.fate, &bench.seen[1][..]), (None, &[data(0, b"banner")][..]));
    }
}

#[test]
fn in_line_what_a_syn_brings_counts_at_once_and_stays_the_same() {
    let opened = || {
        let mut bench = Bench::new(StreamOptions { inline: true, ..StreamOptions::default() });
        bench.segment(Direction::Original, SYN, 99, 0, b"request");
        assert_eq!((bench.fate, &bench.seen[0][..]), (None, &[data(0, b"request")][..]));
        bench
    };
    // A server that takes all of it, or a part.
    for taken in [107, 103] {
        let mut bench = opened();
        bench.segment(Direction::Reply, SYN | ACK, 900, taken, b"answer");
        bench.client(taken, &b"request, and more"[taken as usize - 100..]);
        assert_eq!(bench.fate, None);
        assert_eq!(bench.seen, [[data(0, b"request, and more")], [data(0, b"answer")]], "{taken}");
    }
    // One that takes nothing, or is not seen, however the segments behind it are cut.
    for is_seen in [true, false] {
        for cut in 0..7 {
            let mut bench = opened();
            if is_seen {
                bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"");
            }
            for (from, bytes) in [(cut, &b"request"[cut as usize..]), (0, &b"request"[..cut as usize])] {
                bench.client(100 + from, bytes);
                assert_eq!(bench.fate, None, "{cut}");
            }
            bench.client(107, b", and more");
            assert_eq!((bench.fate, &bench.seen[0][..]), (None, &[data(0, b"request, and more")][..]));
        }
        // Other bytes would have been seen by nobody.
        let mut bench = opened();
        if is_seen {
            bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"");
        }
        bench.client(100, b"decoys!");
        assert_eq!(bench.fate, Some(DropReason::StreamDiffers), "{is_seen}");
        bench.client(103, b"ecoy");
        assert_eq!(bench.fate, Some(DropReason::StreamDiffers), "{is_seen}");
        bench.client(100, b"request, and more");
        assert_eq!((bench.fate, &bench.seen[0][..]), (None, &[data(0, b"request, and more")][..]));
    }
    // The SYN again, as it was, without the bytes, and with others.
    let mut bench = opened();
    for (bytes, fate) in [(&b"request"[..], None), (b"", None), (b"decoys!", Some(DropReason::StreamDiffers))]
    {
        bench.segment(Direction::Original, SYN, 99, 0, bytes);
        assert_eq!(bench.fate, fate);
    }
    // Another attempt, which is the one that is answered.
    let mut bench = opened();
    bench.segment(Direction::Original, SYN, 7000, 0, b"");
    assert_eq!(bench.fate, None);
    bench.segment(Direction::Reply, SYN | ACK, 900, 7001, b"");
    bench.client(7001, b"another");
    assert_eq!((bench.fate, bench.seen[0].last()), (None, Some(&data(0, b"another"))));
}

#[test]
fn what_was_sent_before_the_answer_counts_only_if_it_fits_that() {
    // The opening that the server answers, and what it acknowledges.
    for (sequence, acknowledged) in [(99, 100), (99, 106), (7000, 7001)] {
        for early in [100, 103] {
            let mut bench = Bench::with_policy(HostPolicy::First);
            bench.segment(Direction::Original, SYN, 99, 0, b"");
            bench.segment(Direction::Original, ACK, early, 77, b"decoys!");
            bench.segment(Direction::Original, FIN | ACK, early + 7, 77, b"");
            bench.segment(Direction::Original, SYN, sequence, 0, b"");
            bench.segment(Direction::Reply, SYN | ACK, 900, acknowledged, b"");
            bench.client(acknowledged, b"request");
            bench.segment(Direction::Reply, ACK, 901, acknowledged + 7, b"response");
            assert_eq!(bench.seen[0][bench.seen[0].len() - 2..], [Seen::Restart, data(0, b"request")]);
            assert_eq!(bench.seen[1], [data(0, b"response")]);
            assert_eq!(bench.reassembler.memory_used(), 0);
        }
    }
    // A capture may have them before it.
    let mut bench = Bench::with_policy(HostPolicy::First);
    bench.segment(Direction::Original, SYN, 99, 0, b"");
    bench.client(100, b"request");
    bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"");
    bench.client(107, b", and more");
    assert_eq!(bench.seen[0], [data(0, b"request, and more")]);
}

#[test]
fn what_acknowledges_what_was_not_sent_counts_once_it_is_acknowledged_itself() {
    for policy in POLICIES {
        for unsent in [902, 950, 901 + (1 << 30), 900, 800, 901 + (3 << 29)] {
            let mut bench = Bench::with_policy(policy);
            bench.open(99);
            bench.segment(Direction::Original, ACK, 100, unsent, b"decoys!");
            bench.segment(Direction::Original, FIN | ACK, 103, unsent, b"");
            assert_eq!(bench.seen[0], [], "{unsent}");
            bench.client(103, b"uest");
            bench.client(100, b"req");
            bench.server_acknowledges(107);
            assert_eq!(bench.seen[0], [data(0, b"request")], "{unsent}");
            assert_eq!(bench.reassembler.memory_used(), 0);
            assert_eq!(bench.reassembler.counters().doubtful, 2);
        }
    }
    // A capture has the acknowledgements before what they acknowledge, or lost that.
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.segment(Direction::Original, ACK, 100, 909, b"request");
    bench.segment(Direction::Original, FIN | ACK, 107, 909, b"");
    bench.segment(Direction::Reply, FIN | ACK, 901, 103, b"response");
    assert_eq!(bench.seen, [vec![data(0, b"req")], vec![data(0, b"response"), Seen::Finished(8)]]);
    bench.segment(Direction::Reply, ACK, 910, 108, b"");
    assert_eq!(bench.seen[0], [data(0, b"request"), Seen::Finished(7)]);
    assert_eq!(bench.reassembler.memory_used(), 0);
}

#[test]
fn what_is_doubtful_gives_way_to_what_is_not() {
    for options in [
        StreamOptions { memory: 2 * 1536, per_source: 100, ..StreamOptions::default() },
        StreamOptions { memory_per_stream: 3000, ..StreamOptions::default() },
    ] {
        let mut bench = Bench::new(options);
        bench.open(99);
        bench.segment(Direction::Original, ACK, 200, 950, &[0; 1400]);
        bench.segment(Direction::Original, ACK, 1600, 950, &[0; 1400]);
        bench.segment(Direction::Original, ACK, 3000, 950, &[0; 1400]);
        bench.client(1000, &[1; 1400]);
        bench.client(2400, &[2; 1400]);
        assert_eq!((bench.reassembler.counters().gave_up, bench.seen[0].len()), (0, 0));
        bench.client(100, &[3; 900]);
        let all = [&[3; 900][..], &[1; 1400], &[2; 1400]].concat();
        assert_eq!(bench.seen[0], [data(0, &all)]);
        assert_eq!(bench.reassembler.counters().doubtful_lost, 2);
    }
}

/// A segment with a timestamp, of a connection that has agreed on them.
fn stamped(bench: &mut Bench, timestamp: u32, sequence: u32, payload: &[u8]) {
    bench.options.timestamp = Some(timestamp);
    bench.client(sequence, payload);
    bench.options.timestamp = None;
}

#[test]
fn old_timestamps_signatures_and_bytes_beyond_the_window_are_ignored() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.options.timestamp = Some(5_000);
    bench.open(99);
    stamped(&mut bench, 4_999, 100, b"decoys!");
    stamped(&mut bench, 5_000, 100, b"req");
    stamped(&mut bench, 6_000, 103, b"u");
    stamped(&mut bench, 5_999, 104, b"dec");
    bench.options.signed = true;
    bench.client(104, b"dec");
    bench.options.signed = false;
    bench.client(104 + (1 << 30), b"far away");
    bench.client(104, b"est");
    assert_eq!(bench.seen[0], [data(0, b"request")]);
    let counters = bench.reassembler.counters();
    assert_eq!((counters.old, counters.ignored, counters.beyond_window), (2, 1, 1));
    // If its receiver still takes it, it counts.
    stamped(&mut bench, 1, 107, b", and more");
    bench.server_acknowledges(117);
    assert_eq!(bench.seen[0], [data(0, b"request, and more")]);
}
