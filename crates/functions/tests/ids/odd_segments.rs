//! Random segments that hosts may or may not accept: the reassembled streams, against the oracle's
//! own reassembly.

use crate::hidden::compared;
use crate::ids_oracle::plant::random::Random;
use crate::ids_support::*;

const CASES: u64 = 3_000;
const RULE: &str = r#"alert tcp any any -> any any (msg:"some"; flow:established; content:"ab"; sid:1;)"#;

/// Returns a conversation with this seed.
fn conversation(seed: u64) -> Talk {
    let mut random = Random(seed);
    let mut talk = Talk::midstream(80);
    let opens = random.below(4);
    if opens == 1 {
        // With bytes, which the server may accept.
        talk.decoys(Client, SYN, 0, letters(&mut random));
    }
    if opens > 0 {
        talk.handshake();
    }
    for _ in 0..5 + random.below(20) {
        let who = if random.one_in(2) { Client } else { Server };
        let bytes = letters(&mut random);
        let away = [0, 0, 1, 3, 70_000, u32::MAX, u32::MAX - 4][random.below(7)];
        match random.below(16) {
            0..6 => drop(talk.says(who, &bytes)),
            6 => drop(talk.says(who, "")),
            7 => drop(talk.loses(who, bytes.len())),
            8 => drop(talk.again(who, &bytes)),
            9 => {
                talk.decoys(who, ACK, 0, &bytes)
                    .damages([13, 16, 17, 20][random.below(3 + usize::from(!bytes.is_empty()))]);
            }
            10 => drop(talk.decoys(who, ACK | FIN, away, &bytes)),
            11 => drop(talk.decoys(
                who,
                [SYN, SYN | FIN, SYN | ACK, ACK, RST | ACK, 0][random.below(6)],
                away,
                &bytes,
            )),
            12 => drop(talk.forges(
                who,
                [SYN, SYN | ACK, RST, RST | ACK, FIN | ACK, ACK][random.below(6)],
                away,
            )),
            13 => drop(talk.resets(who)),
            14 if random.one_in(3) => drop(talk.closes(who)),
            15 if random.one_in(3) => talk.reopen(),
            _ => drop(talk.decoys(who, ACK, away, &bytes)),
        }
    }
    for _ in 0..random.below(4) {
        let at = random.below(talk.segments.len() - 1);
        talk.segments.swap(at, at + 1);
    }
    if random.one_in(6) {
        let side = talk.segments[random.below(talk.segments.len())].side;
        talk.segments.retain(|segment| segment.side == side);
    }
    talk
}

fn letters(random: &mut Random) -> Vec<u8> {
    (0..random.below(7)).map(|_| b'a' + random.below(26) as u8).collect()
}

#[test]
fn streams_equal_those_of_a_second_reassembly() {
    let (mut pieces, mut differing) = (0, Vec::new());
    for seed in 0..CASES {
        let streams = compared(RULE, &conversation(seed)).streams;
        assert_eq!(streams.vague, 0);
        pieces += streams.pieces;
        differing.extend(streams.differing.first().map(|one| format!("{seed}: {one}")));
    }
    println!("{pieces} pieces the same");
    assert!(differing.is_empty(), "{}: {:#?}", differing.len(), &differing[..differing.len().min(30)]);
    assert!(pieces as u64 > 5 * CASES);
}
