//! The reassembler, against a model that keeps every byte by itself.

#[path = "stream_model/mod.rs"]
mod stream_model;

use graph::streams::{HostPolicy, Reassembler, StreamOptions, Streams, Urgent};
use nf::Connection;
use nf::record::RecordHeader;
use packet::{Addr, Direction, DropReason, Endpoint, FlowKey, Scope};
use proptest::prelude::*;
use zerocopy::FromZeros;

use stream_model::{ACK, Bench, FIN, Model, RST, SYN, Seen, URG};

const POLICIES: [HostPolicy; 4] = [HostPolicy::First, HostPolicy::Last, HostPolicy::Bsd, HostPolicy::Linux];

fn data(offset: u64, bytes: &[u8]) -> Seen {
    Seen::Data(offset, bytes.to_vec())
}

#[test]
fn bytes_in_order_out_of_order_and_again() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(u32::MAX - 3); // Wraps around within the data.
    let first = u32::MAX - 2;
    bench.client(first, b"abc");
    bench.client(first.wrapping_add(6), b"ghi");
    bench.client(first, b"abc");
    bench.client(first.wrapping_add(9), b"jkl");
    assert_eq!(bench.seen[0], [data(0, b"abc")]);
    assert_eq!(bench.reassembler.memory_used(), 2 * 1536);
    bench.client(first.wrapping_add(2), b"cdef");
    assert_eq!(bench.seen[0], [data(0, b"abcdefghijkl")]);
    assert_eq!(bench.reassembler.memory_used(), 0);
    let counters = bench.reassembler.counters();
    assert_eq!((counters.bytes, counters.bytes_out_of_order, counters.bytes_retransmitted), (12, 6, 4));
}

#[test]
fn a_keep_alive_brings_nothing_and_a_close_ends_the_stream() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(100, b"hello");
    bench.client(104, b"o"); // The last byte again, or none, before the next one.
    bench.client(104, b"");
    bench.segment(Direction::Original, FIN | ACK, 107, 901, b"");
    bench.client(105, b"!!");
    bench.client(108, b"behind the end");
    assert_eq!(bench.seen[0], [data(0, b"hello!!"), Seen::Finished(7)]);
    assert_eq!(bench.seen[1], []);
}

#[test]
fn what_the_receiver_has_and_we_have_not_is_a_gap() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(103, b"def");
    bench.client(110, b"k");
    assert_eq!(bench.seen[0], []);
    bench.server_acknowledges(111);
    bench.server_acknowledges(111);
    let gaps = [Seen::Gap(0, 3), data(3, b"def"), Seen::Gap(6, 4), data(10, b"k")];
    assert_eq!(bench.seen[0], gaps);
    // Not to be believed: further than any window.
    bench.server_acknowledges(111u32.wrapping_add(2 << 30));
    assert_eq!(bench.reassembler.counters().out_of_window, 1);
    bench.client(111, b"l");
    assert_eq!(bench.seen[0][3], data(10, b"kl"));
    assert_eq!((bench.reassembler.counters().gaps, bench.reassembler.counters().bytes_missing), (2, 7));
}

#[test]
fn a_gap_ends_where_the_stream_does() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(109, b"behind the end, which is not known yet");
    bench.segment(Direction::Original, FIN | ACK, 103, 901, b"");
    bench.server_acknowledges(120);
    assert_eq!(bench.seen[0], [Seen::Gap(0, 3), Seen::Finished(3)]);
    // What is behind it waits for a host that has not taken the end.
    assert_eq!(bench.reassembler.memory_used(), 1536);
    bench.reassembler.forget(&mut bench.streams);
    assert_eq!(bench.reassembler.memory_used(), 0);
}

#[test]
fn a_cut_capture_leaves_a_gap() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.cut_segment(Direction::Original, ACK, 100, 901, b"abcdef", 2);
    bench.client(106, b"ghi");
    bench.server_acknowledges(109);
    assert_eq!(bench.seen[0], [data(0, b"ab"), Seen::Gap(2, 4), data(6, b"ghi")]);
}

#[test]
fn all_of_a_segment_that_a_capture_cut_was_sent() {
    for captured in 0..6 {
        let mut bench = Bench::with_policy(HostPolicy::Linux);
        bench.open(99);
        bench.cut_segment(Direction::Original, ACK, 103, 901, b"def", captured.min(3));
        bench.cut_segment(Direction::Original, ACK, 100, 901, b"abcdef", captured);
        bench.segment(Direction::Reply, ACK, 901, 106, b"response");
        assert_eq!(bench.seen[1], [data(0, b"response")], "{captured}");
        assert_eq!(bench.reassembler.counters().doubtful, 0);
        bench.segment(Direction::Reply, ACK, 909, 107, b"decoys");
        assert_eq!(bench.reassembler.counters().doubtful, 1);
        // What it is cut to is long past, when numbers come around.
        for number in 1..=5 {
            bench.client(106 + (number << 29), b"far");
            bench.server_acknowledges(109 + (number << 29));
        }
        let behind = 109 + (5 << 29);
        bench.client(behind, b"next");
        assert_eq!(bench.seen[0].last(), Some(&data(u64::from(behind) - 103, b"farnext")));
    }
}

#[test]
fn a_connection_whose_opening_was_not_seen_begins_with_its_first_bytes() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.client(5000, b"");
    bench.client(5000, b"ab");
    bench.client(5002, b"cd");
    assert_eq!(bench.seen[0], [data(0, b"abcd")]);
}

#[test]
fn a_reset_counts_only_where_a_host_would_heed_it() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(100, b"ab");
    bench.segment(Direction::Original, RST, 150, 0, b"");
    bench.client(102, b"cd");
    assert_eq!(bench.reassembler.counters().refused, 1);
    bench.segment(Direction::Reply, RST | ACK, 901, 104, b"");
    assert_eq!(bench.seen[0], [data(0, b"abcd"), Seen::Reset(4)]);
    assert_eq!(bench.seen[1], [Seen::Reset(0)]);
    // Who forges a reset does not get us to look away.
    bench.client(104, b"goes on");
    assert_eq!(bench.seen[0].len(), 2, "it may have been heeded");
    bench.server_acknowledges(111);
    bench.segment(Direction::Reply, RST | ACK, 901, 111, b"");
    assert_eq!(bench.seen[0][2..], [data(4, b"goes on"), Seen::Reset(11)]);
    bench.segment(Direction::Reply, RST | ACK, 901, 111, b"");
    assert_eq!(bench.seen[0].len(), 4);
    assert_eq!(bench.seen[1], [Seen::Reset(0)]);

    // In answer to a SYN, only what acknowledges it.
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.segment(Direction::Original, SYN, 99, 0, b"");
    bench.segment(Direction::Reply, RST | ACK, 0, 77, b"");
    assert_eq!(bench.seen[0], []);
    bench.segment(Direction::Reply, RST | ACK, 0, 100, b"");
    assert_eq!(bench.seen[0], [Seen::Reset(0)]);
}

#[test]
fn the_bytes_of_a_reset_are_nobodys() {
    // They begin no stream.
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.segment(Direction::Original, RST | ACK, 5000, 901, b"a decoy");
    bench.client(100, b"request");
    assert_eq!(bench.seen[0], [Seen::Reset(0), data(0, b"request")]);
    // They do not make those of a SYN count, either.
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.segment(Direction::Original, SYN, 99, 0, b"decoys!");
    for flags in [RST, RST | FIN, RST | ACK] {
        bench.segment(Direction::Original, flags, 150, 901, b"a decoy");
    }
    bench.open(99);
    bench.client(100, b"request");
    bench.server_acknowledges(107);
    assert_eq!(bench.seen, [vec![data(0, b"request")], vec![]]);
}

#[test]
fn ports_are_used_again_after_the_end_but_not_before() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(100, b"ab");
    bench.segment(Direction::Original, SYN, 7000, 0, b""); // Within the stream: no host would heed it.
    bench.client(102, b"cd");
    bench.segment(Direction::Original, RST, 104, 0, b"");
    bench.client(110, b"never in order");
    bench.open(7000);
    bench.client(7001, b"new");
    assert_eq!(bench.seen[0], [data(0, b"abcd"), Seen::Reset(4), Seen::Restart, data(0, b"new")]);
    assert_eq!(bench.reassembler.memory_used(), 0);
    assert_eq!(bench.reassembler.counters().refused, 1);
}

#[test]
fn behind_a_reset_that_hosts_do_not_heed_no_syn_counts_that_they_do_not_answer() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.client(100, b"ab");
    bench.segment(Direction::Original, RST, 102, 0, b"");
    bench.segment(Direction::Original, SYN | ACK, 7000, 901, b"");
    bench.segment(Direction::Original, SYN, 7000, 0, b"decoys");
    bench.client(7001, b"decoys");
    bench.segment(Direction::Original, SYN | ACK, 7000, 901, b"");
    bench.client(102, b"cd");
    bench.segment(Direction::Reply, ACK, 901, 104, b"response");
    bench.segment(Direction::Original, ACK, 104, 909, b"");
    assert_eq!(bench.seen[0], [data(0, b"ab"), Seen::Reset(2), data(2, b"cd")]);
    assert_eq!(bench.seen[1], [Seen::Reset(0), data(0, b"response")]);
    // Then it is answered.
    bench.segment(Direction::Original, RST, 104, 0, b"");
    bench.open(7000);
    bench.client(7001, b"new");
    assert_eq!(bench.seen[0][3..], [Seen::Reset(4), Seen::Restart, data(0, b"new")]);
    assert_eq!(bench.reassembler.memory_used(), 0);
}

#[test]
fn behind_an_end_of_one_half_no_syn_counts_that_hosts_do_not_answer() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.segment(Direction::Original, FIN | ACK, 100, 901, b"request");
    bench.segment(Direction::Reply, ACK, 904, 108, b"ponse");
    bench.segment(Direction::Reply, SYN | ACK, 50_000, 100, b"");
    bench.segment(Direction::Reply, SYN | ACK, 50_000, 108, b"");
    bench.segment(Direction::Original, SYN | ACK, 7000, 901, b"");
    bench.segment(Direction::Original, SYN, 7000, 0, b"decoys");
    bench.segment(Direction::Reply, ACK, 901, 108, b"res");
    assert_eq!(bench.seen, [vec![data(0, b"request"), Seen::Finished(7)], vec![data(0, b"response")]]);
    assert_eq!(bench.reassembler.counters().refused, 3);
    // Then it is answered.
    bench.segment(Direction::Reply, ACK, 919, 108, b"never in order");
    bench.open(7000);
    bench.client(7001, b"new");
    assert_eq!(bench.seen[0][2..], [Seen::Restart, data(0, b"new")]);
    assert_eq!(bench.reassembler.memory_used(), 0);
}

#[test]
fn behind_a_reset_any_of_several_syns_may_be_answered() {
    for answered in [7000, 8000, 9000] {
        let mut bench = Bench::with_policy(HostPolicy::Linux);
        bench.open(99);
        bench.segment(Direction::Original, RST, 100, 0, b"");
        for sequence in [7000, 8000, 9000] {
            bench.segment(Direction::Original, SYN, sequence, 0, b"");
        }
        bench.segment(Direction::Reply, SYN | ACK, 50_000, answered + 1, b"");
        bench.segment(Direction::Original, ACK, answered + 1, 50_001, b"new");
        assert_eq!(bench.seen[0], [Seen::Reset(0), Seen::Restart, data(0, b"new")]);
    }
}

#[test]
fn an_answer_to_a_syn_that_was_not_seen_begins_another_connection_once_all_is_over() {
    for is_closed in [true, false] {
        let mut bench = Bench::with_policy(HostPolicy::Linux);
        if is_closed {
            bench.open(99);
            bench.segment(Direction::Original, FIN | ACK, 100, 901, b"");
        } else {
            // The client is not seen at all.
            bench.segment(Direction::Reply, SYN | ACK, 900, 100, b"");
        }
        bench.segment(Direction::Reply, FIN | ACK, 901, 101, b"old");
        bench.segment(Direction::Reply, SYN | ACK, 50_000, 7001, b"");
        bench.segment(Direction::Reply, ACK, 50_001, if is_closed { 7001 } else { 7010 }, b"new");
        let both = [bench.seen[0].last(), bench.seen[1].last()];
        assert_eq!(both, [Some(&Seen::Restart), Some(&data(0, b"new"))]);
        assert_eq!(bench.seen[1][..2], [data(0, b"old"), Seen::Finished(3)]);
    }
}

#[test]
fn a_syn_in_an_open_connection_changes_nothing() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.segment(Direction::Original, SYN, 7000, 0, b"");
    bench.segment(Direction::Original, SYN | ACK, 7000, 901, b"");
    bench.segment(Direction::Reply, SYN | ACK, 5000, 100, b"");
    bench.segment(Direction::Reply, SYN, 5000, 0, b"");
    bench.client(100, b"request");
    bench.segment(Direction::Reply, ACK, 901, 107, b"response");
    // Had it not been established, it would have ended: so bytes count once they are acknowledged.
    bench.segment(Direction::Original, ACK, 107, 909, b"");
    assert_eq!(bench.seen, [[data(0, b"request")], [data(0, b"response")]]);
    assert_eq!(bench.reassembler.counters().refused, 4);
}

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
fn a_connection_begins_with_the_first_right_checksum_of_a_syn() {
    for sequence in [99, 7000] {
        let mut bench = Bench::with_policy(HostPolicy::First);
        bench.intact = Some(false);
        bench.segment(Direction::Original, SYN, 99, 0, b"");
        bench.client(100, b"decoys!");
        bench.client(120, b"early");
        bench.intact = Some(true);
        bench.client(107, b"and one that no host heeds, either");
        bench.open(sequence);
        bench.client(sequence + 1, b"request");
        assert_eq!(bench.seen[0].last(), Some(&data(0, b"request")));
        assert_eq!(bench.reassembler.memory_used(), 0);
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

#[test]
fn of_several_attempts_to_open_the_one_that_is_answered_counts() {
    for (answered, other) in [(99, 7000), (7000, 99), (99, 110), (110, 99)] {
        let mut bench = Bench::with_policy(HostPolicy::Linux);
        for sequence in [99, other, answered.max(other)] {
            bench.segment(Direction::Original, SYN, sequence, 0, b"");
        }
        bench.segment(Direction::Reply, SYN | ACK, 900, answered + 1, b"");
        // Of two answers to one attempt, the first.
        bench.segment(Direction::Reply, SYN | ACK, 5000, answered + 1, b"");
        bench.client(answered + 1, b"request");
        bench.segment(Direction::Reply, ACK, 901, answered + 8, b"response");
        bench.segment(Direction::Original, ACK, answered + 8, 909, b"");
        assert_eq!(bench.seen, [[data(0, b"request")], [data(0, b"response")]], "{answered}");
    }
    // A host that keeps nothing of attempts (RFC 4987 3.6) answers a second one as it did the
    // first.
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    for (client, server) in [(99, 5000), (7000, 900)] {
        bench.segment(Direction::Original, SYN, client, 0, b"");
        bench.segment(Direction::Reply, SYN | ACK, server, client + 1, b"");
    }
    bench.client(7001, b"request");
    bench.segment(Direction::Reply, ACK, 901, 7008, b"response");
    bench.segment(Direction::Original, ACK, 7008, 909, b"");
    assert_eq!(bench.seen, [[data(0, b"request")], [data(0, b"response")]]);
}

#[test]
fn policies_differ_in_what_overlaps() {
    // Novak and Sturges: an earlier segment that begins before, at the same place, and behind the
    // later one.
    let outcome = |policy| {
        let mut bench = Bench::with_policy(policy);
        bench.open(99);
        bench.client(101, b"1111"); // 1..5
        bench.client(107, b"3333"); // 7..11
        bench.client(113, b"5555"); // 13..17
        bench.client(103, b"2222"); // 3..7, behind the first one's beginning
        bench.client(107, b"44"); // 7..9, at the same place
        bench.client(112, b"666"); // 12..15, before
        bench.client(111, b"7"); // 11..12
        bench.client(100, b"0");
        bench.seen[0].clone()
    };
    assert_eq!(outcome(HostPolicy::First), [data(0, b"01111223333765555")]);
    assert_eq!(outcome(HostPolicy::Last), [data(0, b"01122224433766655")]);
    assert_eq!(outcome(HostPolicy::Bsd), [data(0, b"01111223333766655")]);
    assert_eq!(outcome(HostPolicy::Linux), [data(0, b"01111223333766655")]);
}

#[test]
fn linux_takes_of_two_at_the_same_place_the_longer_one() {
    let outcome = |segments: &[(u32, &[u8], u8)]| {
        let mut bench = Bench::with_policy(HostPolicy::Linux);
        bench.open(99);
        for &(sequence, bytes, flags) in segments {
            bench.segment(Direction::Original, flags | ACK, sequence, 901, bytes);
        }
        bench.client(100, b"0");
        bench.seen[0].clone()
    };
    assert_eq!(outcome(&[(101, b"11", 0), (101, b"22", 0)]), [data(0, b"011")]);
    assert_eq!(outcome(&[(101, b"11", 0), (101, b"222", 0)]), [data(0, b"0222")]);
    // A FIN counts as a byte, and gives way as one.
    assert_eq!(outcome(&[(101, b"11", 0), (101, b"22", FIN)]), [data(0, b"022"), Seen::Finished(3)]);
    assert_eq!(outcome(&[(102, b"1", FIN), (101, b"222", 0)]), [data(0, b"0222")]);
    // Two that follow each other are one.
    assert_eq!(outcome(&[(101, b"11", 0), (103, b"22", 0), (102, b"33", 0)]), [data(0, b"01122")]);
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

#[test]
fn urgent_bytes_are_beside_the_stream() {
    for (urgent, seen) in [(Urgent::OutOfBand, &b"abdef"[..]), (Urgent::Inline, b"abcdef")] {
        let mut bench = Bench::new(StreamOptions { urgent, ..StreamOptions::default() });
        bench.open(99);
        bench.urgent = 3;
        bench.segment(Direction::Original, ACK | URG, 100, 901, b"abcd");
        bench.client(104, b"ef");
        assert_eq!(bench.seen[0], [data(0, seen)]);
        assert_eq!(bench.reassembler.memory_used(), 0);
    }
}

#[test]
fn an_urgent_byte_may_be_in_a_gap() {
    for acknowledges in [true, false] {
        let memory = if acknowledges { 100 } else { 2 } * 1536;
        let mut bench = Bench::new(StreamOptions { memory, per_source: 100, ..StreamOptions::default() });
        bench.open(99);
        bench.urgent = 101;
        bench.segment(Direction::Original, ACK | URG, 100, 901, b"0123456789");
        bench.urgent = 0;
        bench.client(300, &[b'x'; 100]);
        if acknowledges {
            bench.server_acknowledges(400);
        } else {
            // There is no room to wait longer.
            bench.client(500, &[b'y'; 4000]);
        }
        let expected = [data(0, b"0123456789"), Seen::Gap(10, 190), data(200, &[b'x'; 100])];
        assert_eq!(bench.seen[0][..3], expected);
        bench.reassembler.forget(&mut bench.streams);
        assert_eq!(bench.reassembler.memory_used(), 0);
    }
}

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
fn an_end_that_its_receiver_has_not_taken_is_none() {
    let mut bench = Bench::with_policy(HostPolicy::Linux);
    bench.open(99);
    bench.segment(Direction::Original, FIN | ACK, 100, 901, b"req");
    bench.client(103, b"uest");
    bench.server_acknowledges(104);
    assert_eq!(bench.seen[0], [data(0, b"req"), Seen::Finished(3)]);
    bench.server_acknowledges(107);
    assert_eq!(bench.seen[0][2..], [data(3, b"uest")]);
    bench.client(107, b"!");
    assert_eq!(bench.seen[0][2..], [data(3, b"uest!")]);
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

/// The header of one of four flows, of three sources; two of them are not open.
fn header(flow: usize) -> RecordHeader {
    let end = |addr: u8| Endpoint::new(Addr::from_v4_bytes([192, 0, 2, addr]), 1);
    let (key, reversed) = FlowKey::new(end((flow % 3) as u8), end(9), 6, 4, Scope::default(), 0);
    let mut header = RecordHeader::new_zeroed();
    header.set_key(key, reversed);
    header.connection = if flow < 2 { Connection::ESTABLISHED } else { Connection::SYN_SENT };
    header
}
