use packet::Direction::{Original as O, Reply as R};
use proptest::prelude::*;

use super::*;

fn segment(seq: u32, len: u32, ack: Option<u32>, window: u16, flags: u8) -> Segment {
    let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let flags = if ack.is_some() { flags | ACK } else { flags };
    Segment { seq, len: len + counted, ack, window, flags, scale: None }
}

/// A connection that both ends opened: 1,001 and 5,001 are next.
fn opened() -> Ends {
    let mut ends = Ends::default();
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
        ("behind the window", segment(5002, 1, Some(5001), 8000, 0), O, false),
        ("far behind it", segment(900_000, 1, Some(5001), 8000, 0), O, false),
        ("an old one again", segment(1000, 1, Some(5001), 8000, 0), O, true),
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

// RFC 5961 3.2.
#[test]
fn a_reset_must_hit_the_window() {
    let rows = [
        ("the next number", segment(1001, 0, None, 0, RST), O, true),
        ("in the window", segment(3000, 0, None, 0, RST), O, true),
        ("before the window", segment(1000, 0, None, 0, RST), O, false),
        ("behind the window", segment(5002, 0, None, 0, RST), O, false),
        ("blind", segment(0, 0, None, 0, RST), R, false),
        ("from the other end", segment(5001, 0, Some(1001), 0, RST), R, true),
    ];
    for (what, segment, direction, want) in rows {
        assert_eq!(opened().follow(&segment, direction), want, "{what}");
    }
    let syn = segment(1000, 0, None, 8000, SYN);
    for (ack, want) in [(1001, true), (1000, false), (77, false)] {
        let mut ends = Ends::default();
        assert!(ends.follow(&syn, O));
        assert_eq!(ends.follow(&segment(0, 0, Some(ack), 0, RST), R), want, "refusal with {ack}");
    }
}

#[test]
fn windows_scale_only_if_both_ends_want_it() {
    for (scale, far) in [(Some(4), true), (None, false)] {
        let mut ends = Ends::default();
        assert!(ends.follow(&Segment { scale: Some(7), ..segment(0, 0, None, 1000, SYN) }, O));
        assert!(ends.follow(&Segment { scale, ..segment(0, 0, Some(1), 1000, SYN) }, R));
        assert!(ends.follow(&segment(1, 0, Some(1), 1000, 0), O));
        assert_eq!(ends.follow(&segment(100_000, 1, Some(1), 1000, 0), R), far);
    }
}

#[test]
fn answers_and_data_need_an_opening() {
    let syn = segment(1000, 0, None, 8000, SYN);
    let mut ends = Ends::default();
    assert!(ends.follow(&syn, O));
    assert!(!ends.follow(&segment(5000, 0, Some(9999), 4000, SYN), R), "a SYN that answers something else");
    assert!(!ends.follow(&segment(1001, 10, Some(5001), 8000, 0), O), "data before the answer");
    assert!(ends.follow(&segment(2000, 0, None, 8000, SYN), O), "another try");
    assert!(ends.follow(&segment(5000, 0, Some(2001), 4000, SYN), R));
}

// RFC 9293 3.5, figure 7; RFC 5382 REQ-2.
#[test]
fn both_ends_may_open_at_once() {
    let mut ends = Ends::default();
    assert!(ends.follow(&segment(100, 0, None, 8000, SYN), O));
    assert!(ends.follow(&segment(300, 0, None, 8000, SYN), R));
    assert!(ends.follow(&segment(100, 0, Some(301), 8000, SYN), O));
    assert!(ends.follow(&segment(300, 0, Some(101), 8000, SYN), R));
    assert!(ends.follow(&segment(101, 500, Some(301), 8000, 0), O));
}

#[test]
fn ports_are_used_again_once_the_connection_is_over() {
    let again = segment(70_000_000, 0, None, 8000, SYN);
    assert!(!opened().follow(&again, O));
    let mut ends = opened();
    assert!(ends.follow(&segment(1001, 0, Some(5001), 8000, FIN), O));
    assert!(!ends.follow(&again, O));
    assert!(ends.follow(&segment(5001, 0, Some(1002), 8000, FIN), R));
    assert!(ends.follow(&segment(1002, 0, Some(5002), 8000, 0), O));
    assert!(ends.follow(&again, O));
    let mut ends = opened();
    assert!(ends.follow(&segment(1001, 0, None, 0, RST), O) && ends.follow(&again, O));
}

#[test]
fn the_middle_of_a_connection_is_believed() {
    let mut ends = Ends::default();
    assert!(ends.follow(&segment(4_000_000_000, 1000, Some(7), 100, 0), O));
    assert!(ends.follow(&segment(4_000_001_000, 1000, Some(7), 100, 0), O));
    assert!(ends.follow(&segment(7, 1000, Some(4_000_002_000), 100, 0), R));
    assert!(!ends.follow(&segment(7, 1000, Some(4_100_002_000), 100, 0), R));
}

#[test]
fn options_are_read_as_far_as_they_go() {
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

/// One end of a model of TCP that keeps to the window it was offered.
#[derive(Clone, Copy)]
struct Host {
    next: u32,
    acked: u32,
    offered: u32,
}

proptest! {
    /// Whatever two hosts send that keep to the rules passes, in any mixture, across the end of the number space.
    #[test]
    fn conversations_pass(
        starts in any::<(u32, u32)>(),
        windows in (1u16..=65535, 1u16..=65535),
        scales in prop::option::of((0u8..=14, 0u8..=14)),
        steps in prop::collection::vec((any::<bool>(), 0u32..100_000, any::<bool>()), 1..80),
    ) {
        let mut ends = Ends::default();
        let (a, b) = (scales.map(|s| s.0), scales.map(|s| s.1));
        let shifts = [a.unwrap_or(0), b.unwrap_or(0)];
        let syn = Segment { scale: a, ..segment(starts.0, 0, None, windows.0, SYN) };
        prop_assert!(ends.follow(&syn, O));
        let answer = Segment { scale: b, ..segment(starts.1, 0, Some(starts.0.wrapping_add(1)), windows.1, SYN) };
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
            // The segment arrives at once: all of the peer's data is acknowledged, and a new window offered.
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
