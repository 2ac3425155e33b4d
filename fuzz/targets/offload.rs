//! Any frame with any offload instructions (checksum to complete, segments to cut, tag to restore):
//! nothing panics. It is delivered as frames of bounded length, or counted as unreadable.

#![no_main]

use io::port::Counters;
use io::port::offload::{FRAME_LEN_MAX, FRONT_ROOM, OffloadHeader, RawFrame, TakenTag, deliver};
use libfuzzer_sys::fuzz_target;

// Input: ten bytes of instructions and three of a tag, then the frame.
fuzz_target!(|data: &[u8]| {
    let Some((&header, frame)) = data.split_first_chunk::<13>() else { return };
    let pair = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let offload = OffloadHeader {
        flags: header[0],
        segmentation: header[1],
        header_len: pair(2),
        segment_len: pair(4),
        checksum_start: pair(6),
        checksum_offset: pair(8),
    };
    let tag = (header[10] & 1 != 0).then(|| TakenTag { protocol: 0x8100, control: pair(11) });
    let mut room = vec![0; FRONT_ROOM];
    room.extend_from_slice(frame);
    let raw = RawFrame { room: &mut room, offload, tag, is_cut_off: header[10] & 2 != 0 };
    let (mut counters, mut segment, mut frames) = (Counters::default(), Vec::new(), 0);
    deliver(raw, &mut segment, &mut counters, &mut |frame| {
        assert!(frame.len() <= FRAME_LEN_MAX);
        frames += 1;
    });
    assert_eq!(counters.received, frames);
    assert!(frames > 0 || counters.unreadable == 1, "{counters:?}");
    assert!(frames <= 1 + frame.len() as u64);
});
