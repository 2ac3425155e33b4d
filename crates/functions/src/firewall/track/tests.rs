use packet::Direction::{Original as O, Reply as R};
use proptest::prelude::*;

use super::segment::{ACK, window_scale};
use super::*;

fn segment(seq: u32, len: u32, ack: Option<u32>, window: u16, flags: u8) -> TcpSegment {
    let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let flags = if ack.is_some() { flags | ACK } else { flags };
    TcpSegment { seq, len: len + counted, ack, window, flags, scale: None }
}

/// Returns a connection opened by both ends, with 1,001 and 5,001 next.
fn opened() -> TcpTracker {
    let mut ends = TcpTracker::default();
    assert!(ends.follow(&segment(1000, 0, None, 8000, SYN), O));
    assert!(ends.follow(&segment(5000, 0, Some(1001), 4000, SYN), R));
    assert!(ends.follow(&segment(1001, 0, Some(5001), 8000, 0), O));
    ends
}

#[test]
fn segments_must_lie_in_their_windows() {
    let rows = [
        ("data", segment(1001, 1000, Some(5001), 8000, 0), O, true),
        ("at the window's end", segment(5001, 0, Some(5001), 8000, 0), O, true),
        ("after the window", segment(5002, 1, Some(5001), 8000, 0), O, false),
        ("far after it", segment(900_000, 1, Some(5001), 8000, 0), O, false),
        ("a retransmission", segment(1000, 1, Some(5001), 8000, 0), O, true),
        ("a keep-alive", segment(1000, 0, Some(5001), 8000, 0), O, true),
        ("far too old", segment(4_294_900_000, 10, Some(5001), 8000, 0), O, false),
        ("acknowledges what was not sent", segment(1001, 0, Some(5002), 8000, 0), O, false),
        ("acknowledges long ago", segment(1001, 0, Some(4_294_800_000), 8000, 0), O, false),
        ("the other end's data", segment(5001, 8000, Some(1001), 4000, 0), R, true),
        ("the other end's beyond", segment(13_002, 1, Some(1001), 4000, 0), R, false),
    ];
    for (what, segment, direction, want) in rows {
        assert_eq!(opened().follow(&segment, direction), want, "{what}");
    }
}

#[test]
fn a_segment_that_does_not_fit_changes_nothing() {
    let mut ends = opened();
    let before = ends;
    assert!(!ends.follow(&segment(900_000, 1, Some(5001), 60_000, FIN), O));
    assert!(!ends.follow(&segment(900_000, 0, None, 0, RST), O));
    assert_eq!(ends, before);
}

/// The other end sent 300 segments, which all arrived, while nobody followed.
#[test]
fn a_connection_that_went_on_unseen_is_found_again() {
    let ahead = 5001 + 300_000;
    let next = segment(ahead, 1000, Some(1001), 4000, 0);
    assert!(!opened().follow(&next, R), "it would be refused for ever");
    let of_both = [(segment(1001, 0, Some(ahead), 8000, 0), O), (next, R)];
    for order in [[0, 1], [1, 0]] {
        let mut ends = opened();
        ends.lag();
        for (segment, direction) in order.map(|at| &of_both[at]) {
            assert!(ends.follow(segment, *direction), "{order:?}");
        }
        // What was in flight is acknowledged, or repeated.
        assert!(ends.follow(&segment(1001, 0, Some(ahead + 7000), 8000, 0), O), "{order:?}");
        assert!(ends.follow(&segment(ahead - 6000, 1000, Some(1001), 4000, 0), R), "{order:?}");
        let beyond =
            [(segment(ahead + 40_000, 1, Some(1001), 4000, 0), R), (segment(7001, 1, None, 0, RST), O)];
        for (segment, direction) in beyond {
            assert!(!ends.follow(&segment, direction), "{order:?}");
        }
    }
    // Half of the beginning was not seen.
    let mut ends = TcpTracker::default();
    assert!(ends.follow(&segment(1000, 0, None, 8000, SYN), O));
    ends.lag();
    assert!(ends.follow(&segment(1001, 0, Some(5001), 8000, 0), O));
    assert!(ends.follow(&segment(5001, 100, Some(1001), 8000, 0), R));
}

// RFC 5961 3.2.
#[test]
fn a_reset_must_hit_the_window() {
    let rows = [
        ("the next number", segment(1001, 0, None, 0, RST), O, true),
        ("in the window", segment(3000, 0, None, 0, RST), O, true),
        ("before the window", segment(1000, 0, None, 0, RST), O, false),
        ("after the window", segment(5002, 0, None, 0, RST), O, false),
        ("blind", segment(0, 0, None, 0, RST), R, false),
        ("from the other end", segment(5001, 0, Some(1001), 0, RST), R, true),
    ];
    for (what, segment, direction, want) in rows {
        assert_eq!(opened().follow(&segment, direction), want, "{what}");
    }
    let syn = segment(1000, 0, None, 8000, SYN);
    for (ack, want) in [(1001, true), (1000, false), (77, false)] {
        let mut ends = TcpTracker::default();
        assert!(ends.follow(&syn, O));
        assert_eq!(ends.follow(&segment(0, 0, Some(ack), 0, RST), R), want, "refusal with {ack}");
    }
}

#[test]
fn windows_scale_only_if_both_ends_offer_it() {
    for (scale, far) in [(Some(4), true), (None, false)] {
        let mut ends = TcpTracker::default();
        assert!(ends.follow(&TcpSegment { scale: Some(7), ..segment(0, 0, None, 1000, SYN) }, O));
        assert!(ends.follow(&TcpSegment { scale, ..segment(0, 0, Some(1), 1000, SYN) }, R));
        assert!(ends.follow(&segment(1, 0, Some(1), 1000, 0), O));
        assert_eq!(ends.follow(&segment(100_000, 1, Some(1), 1000, 0), R), far);
    }
}

#[test]
fn answers_and_data_need_an_opening() {
    let syn = segment(1000, 0, None, 8000, SYN);
    let mut ends = TcpTracker::default();
    assert!(ends.follow(&syn, O));
    assert!(!ends.follow(&segment(5000, 0, Some(9999), 4000, SYN), R), "a SYN that answers something else");
    assert!(!ends.follow(&segment(1001, 10, Some(5001), 8000, 0), O), "data before the answer");
    assert!(ends.follow(&segment(2000, 0, None, 8000, SYN), O), "another try");
    assert!(ends.follow(&segment(5000, 0, Some(2001), 4000, SYN), R));
}

// RFC 9293 3.5, figure 7; RFC 5382 REQ-2.
#[test]
fn both_ends_may_open_at_once() {
    let mut ends = TcpTracker::default();
    assert!(ends.follow(&segment(100, 0, None, 8000, SYN), O));
    assert!(ends.follow(&segment(300, 0, None, 8000, SYN), R));
    assert!(ends.follow(&segment(100, 0, Some(301), 8000, SYN), O));
    assert!(ends.follow(&segment(300, 0, Some(101), 8000, SYN), R));
    assert!(ends.follow(&segment(101, 500, Some(301), 8000, 0), O));
}

/// Follows segments in order, each with the expected result.
fn follow_all(ends: &mut TcpTracker, what: &str, rows: &[(TcpSegment, packet::Direction, bool)]) {
    for (number, (segment, direction, want)) in rows.iter().enumerate() {
        assert_eq!(ends.follow(segment, *direction), *want, "{what}: segment {number}: {segment:?} {ends:?}");
    }
}

fn finish(ends: &mut TcpTracker) {
    let rows = [
        (segment(1001, 0, Some(5001), 8000, FIN), O, true),
        (segment(5001, 0, Some(1002), 8000, FIN), R, true),
        (segment(1002, 0, Some(5002), 8000, 0), O, true),
    ];
    follow_all(ends, "close", &rows);
}

// RFC 9293 3.10.7.3: ISS < SEG.ACK =< SND.NXT; RFC 7413 3 and 4.2.
#[test]
fn a_syn_with_data_is_acknowledged_in_part_or_as_a_whole() {
    let syn = segment(1000, 100, None, 8000, SYN);
    for (ack, want) in [(1000, false), (1001, true), (1050, true), (1101, true), (1102, false), (77, false)] {
        let mut ends = TcpTracker::default();
        assert!(ends.follow(&syn, O));
        assert_eq!(ends.follow(&segment(5000, 0, Some(ack), 4000, SYN), R), want, "{ack}");
        let mut ends = TcpTracker::default();
        assert!(ends.follow(&syn, O));
        assert_eq!(ends.follow(&segment(0, 0, Some(ack), 0, RST), R), want, "refused with {ack}");
    }
    let rows = [
        (syn, O, true),
        // Retransmitted without data, as after a loss (RFC 7413 4.1.3.1); the answer acknowledges
        // the first.
        (segment(1000, 0, None, 8000, SYN), O, true),
        (segment(5000, 20, Some(1101), 4000, SYN), R, true),
        (segment(5021, 500, Some(1101), 4000, 0), R, true),
        (segment(1000, 0, None, 8000, SYN), O, true),
        (segment(1101, 10, Some(5521), 8000, 0), O, true),
    ];
    follow_all(&mut TcpTracker::default(), "the cookie is taken", &rows);
    let rows = [
        (syn, O, true),
        (segment(5000, 0, Some(1001), 40, SYN), R, true),
        (segment(1001, 100, Some(5001), 8000, 0), O, true),
        (segment(5001, 0, Some(1101), 4000, 0), R, true),
    ];
    follow_all(&mut TcpTracker::default(), "the cookie is not taken", &rows);
}

#[test]
fn the_server_may_forget_its_first_answer() {
    let rows = [
        (segment(1000, 0, None, 8000, SYN), O, true),
        (segment(5000, 0, Some(1001), 4000, SYN), R, true),
        (segment(1000, 0, None, 8000, SYN), O, true),
        (segment(7000, 0, Some(1001), 4000, SYN), R, true),
        (segment(1001, 0, Some(7001), 8000, 0), O, true),
        (segment(7000, 0, Some(1001), 4000, SYN), R, true),
        (segment(9000, 0, Some(1001), 4000, SYN), R, false),
    ];
    follow_all(&mut TcpTracker::default(), "SYN cookies", &rows);
}

// RFC 9293 figures 9 to 12.
#[test]
fn half_open_connections_recover() {
    let rows = [
        (segment(100, 0, None, 8000, SYN), O, true),
        (segment(90, 0, None, 8000, SYN), O, true),
        (segment(300, 0, Some(91), 4000, SYN), R, true),
        (segment(91, 0, None, 0, RST), O, true),
        (segment(400, 0, Some(101), 4000, SYN), R, true),
        (segment(101, 10, Some(401), 8000, 0), O, true),
    ];
    follow_all(&mut TcpTracker::default(), "an old SYN again", &rows);
    let rows = [
        (segment(400, 0, None, 8000, SYN), O, true),
        (segment(300, 0, Some(100), 4000, 0), R, true),
        (segment(101, 0, None, 0, RST), O, false),
        (segment(100, 0, None, 0, RST), O, true),
        (segment(400, 0, None, 8000, SYN), O, true),
        (segment(7000, 0, Some(401), 4000, SYN), R, true),
        (segment(401, 10, Some(7001), 8000, 0), O, true),
    ];
    follow_all(&mut TcpTracker::default(), "the server has an old connection", &rows);
    let rows = [
        (segment(70_000_000, 0, None, 8000, SYN), O, true),
        (segment(5001, 0, Some(1001), 4000, 0), R, true),
        (segment(1001, 0, None, 0, RST), O, true),
        (segment(70_000_000, 0, None, 8000, SYN), O, true),
        (segment(9000, 0, Some(70_000_001), 4000, SYN), R, true),
        (segment(70_000_001, 10, Some(9001), 8000, 0), O, true),
        (segment(5001, 10, Some(1001), 4000, 0), R, false),
    ];
    follow_all(&mut opened(), "the client crashed", &rows);
    let rows = [
        (segment(70_000_000, 0, None, 8000, SYN), O, true),
        (segment(0, 0, Some(70_000_001), 0, RST), R, true),
    ];
    follow_all(&mut opened(), "both crashed, and nobody listens", &rows);
    let rows = [
        (segment(70_000_000, 0, None, 8000, SYN), O, true),
        (segment(1001, 10, Some(5001), 8000, 0), O, true),
        (segment(9000, 0, Some(70_000_001), 4000, SYN), R, false),
    ];
    follow_all(&mut opened(), "an old SYN, and the connection goes on", &rows);
}

// RFC 9293 3.6.1, RFC 6191.
#[test]
fn ports_are_reused_in_time_wait() {
    let again = segment(70_000_000, 0, None, 8000, SYN);
    let rows = [
        (again, O, true),
        (segment(9000, 0, Some(70_000_001), 4000, SYN), R, true),
        (segment(70_000_001, 10, Some(9001), 8000, 0), O, true),
    ];
    let mut ends = opened();
    finish(&mut ends);
    follow_all(&mut ends, "accepted", &rows);
    let challenged = [
        (again, O, true),
        (segment(5002, 0, Some(1002), 4000, 0), R, true),
        (segment(1002, 0, None, 0, RST), O, true),
    ];
    let mut ends = opened();
    finish(&mut ends);
    follow_all(&mut ends, "challenged", &challenged);
    follow_all(&mut ends, "and then accepted", &rows);
    let mut ends = opened();
    finish(&mut ends);
    let refused = [(again, O, true), (segment(0, 0, Some(70_000_001), 0, RST), R, true)];
    follow_all(&mut ends, "refused", &refused);
    let mut ends = opened();
    assert!(ends.follow(&segment(1001, 0, None, 0, RST), O));
    follow_all(&mut ends, "after a reset", &rows);
    // From the other end, and from both at once.
    let mut ends = opened();
    finish(&mut ends);
    let rows = [
        (segment(90_000_000, 0, None, 4000, SYN), R, true),
        (segment(7, 0, Some(90_000_001), 8000, SYN), O, true),
        (segment(90_000_001, 10, Some(8), 4000, 0), R, true),
    ];
    follow_all(&mut ends, "by the other end", &rows);
    let mut ends = opened();
    finish(&mut ends);
    let rows = [
        (again, O, true),
        (segment(90_000_000, 0, None, 4000, SYN), R, true),
        (segment(70_000_000, 0, Some(90_000_001), 8000, SYN), O, true),
        (segment(90_000_000, 0, Some(70_000_001), 4000, SYN), R, true),
        (segment(70_000_001, 10, Some(90_000_001), 8000, 0), O, true),
    ];
    follow_all(&mut ends, "by both", &rows);
}

#[test]
fn a_closed_window_is_probed() {
    let rows = [
        (segment(1000, 0, None, 8000, SYN), O, true),
        (segment(5000, 0, Some(1001), 0, SYN), R, true),
        (segment(1001, 0, Some(5001), 8000, 0), O, true),
        (segment(1000, 0, Some(5001), 8000, 0), O, true),
        (segment(1001, 1, Some(5001), 8000, 0), O, true),
        (segment(1001, 1, Some(5001), 8000, 0), O, true),
        (segment(1003, 1, Some(5001), 8000, 0), O, false),
    ];
    follow_all(&mut TcpTracker::default(), "a window of nothing", &rows);
}

#[test]
fn data_in_fragments_may_be_acknowledged() {
    let mut ends = opened();
    let acknowledged = segment(5001, 0, Some(3001), 4000, 0);
    assert!(!ends.follow(&acknowledged, R));
    ends.follow_fragment(&segment(900_000, 0, Some(5001), 8000, 0), O);
    assert!(!ends.follow(&acknowledged, R), "the fragment is far away");
    ends.follow_fragment(&segment(1001, 1000, Some(5001), 8000, 0), O);
    assert!(ends.follow(&acknowledged, R));
    assert!(!ends.follow(&segment(5001, 0, Some(3001 + 66_000), 4000, 0), R));
    assert!(ends.follow(&segment(3001, 100, Some(5001), 8000, 0), O));
}

#[test]
fn data_may_overtake_the_answer() {
    let rows = [
        (segment(1000, 50, None, 8000, SYN), O, true),
        (segment(5001, 300, Some(1051), 4000, 0), R, true),
        (segment(5000, 0, Some(1051), 4000, SYN), R, true),
        (segment(1051, 0, Some(5301), 8000, 0), O, true),
    ];
    follow_all(&mut TcpTracker::default(), "overtaken", &rows);
}

#[test]
fn connections_of_an_older_state_version_continue() {
    let end = |end: u32, limit: u32, acked: u32, flags: u8| {
        let words = [end, limit, acked, 8000].into_iter().flat_map(u32::to_ne_bytes);
        words.chain([0, flags, 0, 0]).collect::<Vec<u8>>()
    };
    let mut half = TcpTracker::of_version_1(&[end(1001, 1001, 0, SEEN), vec![0; 20]].concat());
    assert!(!half.follow(&segment(5000, 0, Some(1000), 4000, SYN), R));
    assert!(half.follow(&segment(5000, 0, Some(1001), 4000, SYN), R));
    let both = [end(1001, 5001, 5001, SEEN | ACKED), end(5001, 9001, 1001, SEEN | ACKED)].concat();
    let mut open = TcpTracker::of_version_1(&both);
    assert!(!open.follow(&segment(900_000, 1, Some(5001), 8000, 0), O));
    assert!(open.follow(&segment(1001, 100, Some(5001), 8000, 0), O));
    assert!(open.follow(&segment(5001, 0, Some(1101), 4000, 0), R));
}

#[test]
fn a_connection_is_picked_up_in_the_middle() {
    let mut ends = TcpTracker::default();
    assert!(ends.follow(&segment(4_000_000_000, 1000, Some(7), 100, 0), O));
    assert!(ends.follow(&segment(4_000_001_000, 1000, Some(7), 100, 0), O));
    assert!(ends.follow(&segment(7, 1000, Some(4_000_002_000), 100, 0), R));
    assert!(!ends.follow(&segment(7, 1000, Some(4_100_002_000), 100, 0), R));
}

#[test]
fn truncated_options_are_read_up_to_their_end() {
    let rows: [(&[u8], Option<u8>); 7] = [
        (&[2, 4, 5, 180, 1, 3, 3, 7], Some(7)),
        (&[1, 1, 3, 3, 2, 0], Some(2)),
        (&[0, 3, 3, 7], None),
        (&[3, 3], None),
        (&[9, 0, 3, 3, 7], None),
        (&[9, 40, 3, 3, 7], None),
        (&[], None),
    ];
    for (options, want) in rows {
        assert_eq!(window_scale(options), want, "{options:?}");
    }
}

/// One end of a model of TCP that respects the offered window.
#[derive(Clone, Copy)]
struct Host {
    next: u32,
    acked: u32,
    offered: u32,
}

proptest! {
    /// Every interleaving of two conforming hosts passes, including sequence number wraparound.
    #[test]
    fn conforming_conversations_pass(
        starts in any::<(u32, u32)>(),
        windows in (1u16..=65535, 1u16..=65535),
        scales in prop::option::of((0u8..=14, 0u8..=14)),
        steps in prop::collection::vec((any::<bool>(), 0u32..100_000, any::<bool>()), 1..80),
    ) {
        let mut ends = TcpTracker::default();
        let (a, b) = (scales.map(|s| s.0), scales.map(|s| s.1));
        let shifts = [a.unwrap_or(0), b.unwrap_or(0)];
        let syn = TcpSegment { scale: a, ..segment(starts.0, 0, None, windows.0, SYN) };
        prop_assert!(ends.follow(&syn, O));
        let answer = TcpSegment { scale: b, ..segment(starts.1, 0, Some(starts.0.wrapping_add(1)), windows.1, SYN) };
        prop_assert!(ends.follow(&answer, R));
        let (x, y) = (starts.0.wrapping_add(1), starts.1.wrapping_add(1));
        let offers = [u32::from(windows.0) << shifts[0], u32::from(windows.1) << shifts[1]];
        let mut hosts = [
            Host { next: x, acked: x, offered: u32::from(windows.1) },
            Host { next: y, acked: y, offered: u32::from(windows.0) },
        ];
        let fields = [windows.0, windows.1];
        for (reply, len, repeat) in steps {
            let (me, peer) = (usize::from(reply), usize::from(!reply));
            let sender = hosts[me];
            let direction = if reply { R } else { O };
            let room = sender.offered - sender.next.wrapping_sub(sender.acked).min(sender.offered);
            let seq = if repeat { sender.acked } else { sender.next };
            let len = if repeat { sender.next.wrapping_sub(sender.acked) } else { len.min(room) };
            let data = segment(seq, len, Some(hosts[peer].next), fields[me], 0);
            prop_assert!(ends.follow(&data, direction), "{:?} {:?}", data, ends);
            hosts[me].next = hosts[me].next.max_seq(seq.wrapping_add(len));
            // The segment arrives at once: the host acknowledges all data and offers a new window.
            hosts[peer].acked = hosts[peer].next;
            hosts[peer].offered = offers[me];
            let far = segment(sender.acked.wrapping_add(sender.offered).wrapping_add(1 << 30), 1, Some(hosts[peer].next), 1, 0);
            prop_assert!(!ends.follow(&far, direction));
        }
    }
}

trait MaxSeq {
    fn max_seq(self, other: u32) -> u32;
}

impl MaxSeq for u32 {
    fn max_seq(self, other: u32) -> u32 {
        if is_after(other, self) { other } else { self }
    }
}
