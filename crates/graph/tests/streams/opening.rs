//! Opening, resetting and reopening connections.

use graph::streams::HostPolicy;
use packet::Direction;

use super::data;
use crate::stream_model::{ACK, Bench, FIN, RST, SYN, Seen};

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
