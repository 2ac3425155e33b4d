//! Frames that only an authentic peer can send.

use super::*;
use crate::flow_control::INITIAL_GRANT;
use crate::frames::{push_ack, push_block, push_fragment, push_message, push_packet, push_piece, push_ping};
use crate::sending::BLOCKS_MAX;

fn link() -> PeerLink {
    let keys = LinkKeys { send: [1; 32], receive: [2; 32] };
    let config =
        Config { message_max: 10_000, receive_window: 65_536, send_buffer: 65_536, ..Config::default() }
            .with_fixed_mtu(1_452);
    PeerLink::new(config, &keys, 0).unwrap()
}

/// Writes a block with these parts.
fn block(number: u64, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (mut parts, mut out) = (Vec::new(), Vec::new());
    write(&mut parts);
    push_block(&mut out, number, &parts);
    out
}

fn receive(link: &mut PeerLink, frames: &[&[u8]]) -> Option<DeadReason> {
    for frame in frames {
        let number = link.acks.window.top() + 1;
        link.handle_authentic(0, number, frame);
    }
    link.dead()
}

fn messages(link: &mut PeerLink) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| link.poll_message().map(|message| message.bytes.to_vec())).collect()
}

#[test]
fn messages_wait_for_earlier_ones_of_their_stream_only() {
    let mut link = link();
    let blocks = [
        block(2, |out| push_message(out, 1, 1, b"b")),
        block(4, |out| push_fragment(out, (1, 2), b"cdef", 2, 2)),
        block(3, |out| push_message(out, 2, 0, b"of its own")),
        block(5, |out| push_message(out, 1, 3, b"g")),
        block(6, |out| push_fragment(out, (1, 2), b"cdef", 0, 2)),
    ];
    assert_eq!(receive(&mut link, &blocks.each_ref().map(|block| &block[..])), None);
    assert_eq!(messages(&mut link), [b"of its own"]);
    let first = block(1, |out| push_message(out, 1, 0, b"a"));
    assert_eq!(receive(&mut link, &[&first, &first, &blocks[0]]), None);
    assert_eq!(messages(&mut link), [&b"a"[..], b"b", b"cdef", b"g"]);
    assert_eq!((link.counters().blocks_repeated, link.held_cost()), (2, 0));
}

#[test]
fn unknown_frames_are_skipped() {
    let mut link = link();
    let mut frames = vec![99, 0, 3, 1, 2, 3];
    push_packet(&mut frames, b"packet");
    frames.extend_from_slice(&block(1, |out| {
        out.extend_from_slice(&[77, 0, 1, 5]);
        push_message(out, 1, 0, b"message");
    }));
    assert_eq!(receive(&mut link, &[&frames]), None);
    assert_eq!(link.poll_packet(), Some(&b"packet"[..]));
    assert_eq!(messages(&mut link), [b"message"]);
    assert_eq!(link.counters().frames_unknown, 1);
}

#[test]
fn acknowledgements_are_not_acknowledged() {
    let mut link = link();
    let mut out = Vec::new();
    assert!(link.poll_transmit(0, &mut out).is_some(), "the first sign of life");
    let mut frame = Vec::new();
    push_ack(&mut frame, 0, 65_536, [(1, 1)].into_iter());
    receive(&mut link, &[&frame]);
    assert!(!link.acks.is_pending());
    assert!(link.poll_transmit(0, &mut out).is_none());
    frame.clear();
    push_ping(&mut frame);
    receive(&mut link, &[&frame]);
    assert_eq!(link.next_timeout_ns(), Some(link.config.ack_delay_ns));
    assert!(link.poll_transmit(link.config.ack_delay_ns, &mut out).is_some());
}

#[test]
fn acknowledgements_do_not_wait_for_blocks_without_room() {
    let mut link = link();
    let mut out = Vec::new();
    link.poll_transmit(0, &mut out).unwrap();
    // A block of 19 messages leaves 20 bytes.
    (0..200).for_each(|_| link.send_message(1, &[1; 64]).unwrap());
    let mut ping = Vec::new();
    push_ping(&mut ping);
    receive(&mut link, &[&ping[..]; 4]);
    let acks = link.counters().acks_sent;
    link.poll_transmit(0, &mut out).unwrap();
    assert_eq!(link.counters().acks_sent, acks + 1);
    assert!(link.poll_transmit(0, &mut out).is_some_and(|transmit| transmit.segment == 1_452));
}

#[test]
fn violations_end_the_link() {
    let large = vec![1; 10_001];
    let ack = |largest: u64| {
        let mut out = Vec::new();
        push_ack(&mut out, 0, 0, [(largest, largest)].into_iter());
        out
    };
    let piece = |number: u64, (offset, len): (usize, usize), block: &[u8]| {
        let mut out = Vec::new();
        push_piece(&mut out, number, block, offset, len);
        out
    };
    let cases: [(&str, Vec<Vec<u8>>); 16] = [
        ("half a frame", vec![vec![4, 0, 9, 1]]),
        ("a message outside of a block", vec![vec![2, 0, 6, 0, 0, 0, 0, 0, 0]]),
        ("an acknowledgement of what was not sent", vec![ack(1)]),
        ("a block beyond the window", vec![block(BLOCKS_MAX + 1, |_| {})]),
        ("a message beyond the limit", vec![block(1, |out| push_message(out, 1, 0, &large))]),
        ("a fragment of one", vec![block(1, |out| push_fragment(out, (1, 0), &large, 0, 500))]),
        ("a number again", (1..3).map(|at| block(at, |out| push_message(out, 1, 0, b"x"))).collect()),
        ("a later number again", (1..3).map(|at| block(at, |out| push_message(out, 1, 9, b"x"))).collect()),
        (
            "a fragment again",
            vec![block(1, |out| {
                push_fragment(out, (1, 0), b"0123456789", 0, 6);
                push_fragment(out, (1, 0), b"0123456789", 0, 6);
            })],
        ),
        (
            "two lengths",
            vec![block(1, |out| {
                push_fragment(out, (1, 0), b"0123456789", 0, 2);
                push_fragment(out, (1, 0), b"01234567890", 4, 2);
            })],
        ),
        ("an empty part", vec![piece(1, (0, 0), b"block")]),
        ("a part of a block beyond the window", vec![piece(BLOCKS_MAX + 1, (0, 2), b"block")]),
        ("parts of two lengths", vec![piece(1, (0, 2), b"block"), piece(1, (2, 2), b"blocks")]),
        ("parts that overlap", vec![piece(1, (0, 4), b"block"), piece(1, (1, 4), b"block")]),
        (
            "parts of a malformed block",
            vec![piece(1, (0, 3), &[2, 0, 9, 1]), piece(1, (3, 1), &[2, 0, 9, 1])],
        ),
        ("an empty fragment", vec![block(1, |out| push_fragment(out, (1, 0), b"0123", 0, 0))]),
    ];
    for (name, frames) in cases {
        let mut link = link();
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        assert_eq!(receive(&mut link, &frames), Some(DeadReason::Violation), "{name}");
        let events = std::iter::from_fn(|| link.poll_event());
        assert_eq!(Vec::from_iter(events), [LinkEvent::Up, LinkEvent::Dead(DeadReason::Violation)]);
    }
}

#[test]
fn a_peer_cannot_exceed_its_grant() {
    let mut link = link();
    for number in 0..INITIAL_GRANT / 1_064 {
        let block = block(1 + number, |out| push_message(out, 1, number as u32, &[1; 1_000]));
        assert_eq!(receive(&mut link, &[&block]), None);
    }
    assert_eq!(link.held_cost(), 61 * 1_064);
    let more = block(62, |out| push_message(out, 1, 61, &[1; 1_000]));
    assert_eq!(receive(&mut link, &[&more]), Some(DeadReason::Violation));
}

#[test]
fn incomplete_messages_are_bounded() {
    let mut link = link();
    let message = [1; 10_000];
    // (window + the longest message) / 10,000
    for stream in 0..7 {
        let block = block(1 + u64::from(stream), |out| push_fragment(out, (stream, 0), &message, 0, 1));
        assert_eq!(receive(&mut link, &[&block]), None, "{stream}");
    }
    let more = block(8, |out| push_fragment(out, (7, 0), &message, 0, 1));
    assert_eq!(receive(&mut link, &[&more]), Some(DeadReason::Violation));
}

#[test]
fn blocks_arrive_in_parts_or_whole() {
    let mut link = link();
    let mut parts = Vec::new();
    push_message(&mut parts, 1, 0, b"a message");
    let piece = |offset: usize| {
        let mut out = Vec::new();
        push_piece(&mut out, 1, &parts, offset, 6);
        out
    };
    let whole = block(1, |out| out.extend_from_slice(&parts));
    assert_eq!(receive(&mut link, &[&piece(12), &piece(0), &piece(12)]), None);
    assert_eq!(messages(&mut link), [] as [Vec<u8>; 0]);
    assert_eq!(receive(&mut link, &[&piece(6), &piece(6), &whole]), None);
    assert_eq!(messages(&mut link), [b"a message"]);
    assert_eq!(link.counters().blocks_repeated, 3);

    let whole = block(2, |out| push_message(out, 1, 1, b"the next"));
    let mut first = Vec::new();
    push_piece(&mut first, 2, &whole[11..], 0, 5);
    assert_eq!(receive(&mut link, &[&first, &whole, &first]), None);
    assert_eq!(messages(&mut link), [b"the next"]);
}

#[test]
fn blocks_in_parts_are_bounded() {
    let mut link = link();
    let block = [0; 60_000];
    let mut frames = [1, 2].map(|number| {
        let mut out = Vec::new();
        push_piece(&mut out, number, &block, 0, 1);
        out
    });
    assert_eq!(receive(&mut link, &[&frames[0]]), None);
    frames[0].clear();
    assert_eq!(receive(&mut link, &[&frames[1]]), Some(DeadReason::Violation));
}
