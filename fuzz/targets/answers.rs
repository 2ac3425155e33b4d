//! Any frames of a program that gets streams: what is read of them is what they say (E23).

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime::external::streams::FlowAnswer;

fuzz_target!(|data: &[u8]| {
    for frame in [data, &[&[0; 12][..], &[0x88, 0xb5, 1], data].concat()] {
        let Some(answer) = FlowAnswer::parse(frame) else { continue };
        assert_eq!((frame.len() >= 38, &frame[12..15]), (true, &[0x88, 0xb5, 1][..]));
        assert_eq!(frame[22..30], answer.flow.to_be_bytes());
        match answer.value {
            Some(value) => assert_eq!((frame[15], &frame[30..38]), (1, &u64::from(value).to_be_bytes()[..])),
            None => assert!(frame[15] == 2 && answer.is_refusal),
        }
    }
});
