//! Bytes in order and out of order, gaps, ends and urgent bytes.

use graph::streams::{HostPolicy, StreamOptions, Urgent};
use packet::Direction;

use super::data;
use crate::stream_model::{ACK, Bench, FIN, Seen, URG};

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
