//! The servers' answers: equal to the generator's own, correct through an address translator, and
//! none to damaged frames.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "support/slow.rs"]
mod slow;

use io::traffic::{
    Attacks, FrameKind, Generator, NoAnswer, Protocols, Responder, ServerAnswer, TrafficProfile,
};
use proptest::prelude::*;
use slow::{Parsed, parse};

/// Returns the frame without fields that a stateless server cannot know: the identification, and
/// with it the header's checksum.
fn comparable(frame: &[u8]) -> Parsed {
    Parsed { ident: 0, ..parse(frame).unwrap() }
}

#[test]
fn answers_equal_those_of_the_generators_servers() {
    for (answer, vlan) in [(ServerAnswer::Echo, None), (ServerAnswer::Acknowledge, Some(33))] {
        // With one flow, a server's packet directly follows the request.
        let profile = TrafficProfile {
            flows: 1,
            packets: Some(20_000),
            protocols: Protocols { tcp: 1.0, udp: 1.0, icmp: 1.0, fragments: 0.1 },
            ipv6_share: 0.5,
            answer,
            vlan,
            ..TrafficProfile::default()
        };
        let mut generator = Generator::new(&profile).unwrap();
        let mut responder = Responder::new(answer);
        let mut answered = 0;
        let mut due: Option<Parsed> = None;
        while let Some(frame) = generator.next() {
            if frame.port == 1 {
                assert_eq!(due.take().unwrap(), comparable(frame.data));
                answered += 1;
                continue;
            }
            assert_eq!(due, None, "the generator's server left this unanswered");
            match responder.respond(frame.data) {
                Ok(reply) => due = Some(comparable(reply)),
                Err(silence) => assert!(
                    silence == NoAnswer::NothingToSay || frame.kind == FrameKind::Fragment,
                    "{silence}: {frame:?}"
                ),
            }
        }
        assert!(answered > 8_000);
    }
}

/// Translates as a source NAT an IPv4 frame without a tag: another source address, checksums
/// updated by RFC 1624.
fn translate(frame: &mut [u8], at: usize, to: [u8; 4]) {
    let from: [u8; 4] = frame[at..at + 4].try_into().unwrap();
    let transport_checksum = match frame[23] {
        6 => Some(34 + 16),
        17 => Some(34 + 6),
        _ => None,
    };
    for checksum in [Some(24), transport_checksum].into_iter().flatten() {
        for half in [0, 2] {
            let word = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[half], bytes[half + 1]]));
            let old = u32::from(u16::from_be_bytes([frame[checksum], frame[checksum + 1]]));
            let mut sum = (!old & 0xffff) + (!word(&from) & 0xffff) + word(&to);
            while sum > 0xffff {
                sum = (sum >> 16) + (sum & 0xffff);
            }
            frame[checksum..checksum + 2].copy_from_slice(&(!sum as u16).to_be_bytes());
        }
    }
    frame[at..at + 4].copy_from_slice(&to);
}

#[test]
fn a_loop_through_a_translator_closes() {
    let profile = TrafficProfile {
        packets: Some(5_000),
        ipv6_share: 0.0,
        replies: false,
        protocols: Protocols { tcp: 1.0, udp: 1.0, icmp: 1.0, fragments: 0.0 },
        ..TrafficProfile::default()
    };
    let mut generator = Generator::new(&profile).unwrap();
    let mut responder = Responder::new(profile.answer);
    let mut answered = 0;
    while let Some(frame) = generator.next() {
        let sent = parse(frame.data).unwrap();
        let client: [u8; 4] = sent.source.clone().try_into().unwrap();
        let mut inside = frame.data.to_vec();
        translate(&mut inside, 26, [203, 0, 113, 9]);
        parse(&inside).unwrap();
        let Ok(reply) = responder.respond(&inside) else { continue };
        let mut reply = reply.to_vec();
        assert_eq!(parse(&reply).unwrap().destination, [203, 0, 113, 9]);
        translate(&mut reply, 30, client);
        let reply = parse(&reply).unwrap();
        assert_eq!((&reply.source, &reply.destination), (&sent.destination, &sent.source));
        answered += 1;
    }
    assert!(answered > 3_000, "{answered}");
}

#[test]
fn damage_gets_no_answer() {
    let profile = TrafficProfile {
        packets: Some(4_000),
        attacks: Attacks { malformed: 1.0, ..Attacks::default() },
        ..TrafficProfile::default()
    };
    let mut generator = Generator::new(&profile).unwrap();
    let mut responder = Responder::new(ServerAnswer::Echo);
    let mut reasons = std::collections::BTreeSet::new();
    while let Some(frame) = generator.next() {
        reasons.insert(responder.respond(frame.data).unwrap_err());
    }
    assert!(reasons.contains(&NoAnswer::Checksum) && reasons.contains(&NoAnswer::Malformed), "{reasons:?}");
    assert!(
        reasons.contains(&NoAnswer::Fragment) && reasons.contains(&NoAnswer::NothingToSay),
        "{reasons:?}"
    );
    assert_eq!(responder.respond(&[0; 60_000]), Err(NoAnswer::Malformed));
    assert_eq!(responder.respond(&[]), Err(NoAnswer::NotIp));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_frame_makes_it_panic(
        skip in 0..200_u32,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in any::<prop::sample::Index>(),
        random in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut generator = Generator::new(&TrafficProfile { ipv6_share: 0.5, flows: 20, ..TrafficProfile::default() }).unwrap();
        for _ in 0..skip {
            generator.next();
        }
        let mut frame = generator.next().unwrap().data.to_vec();
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        let mut responder = Responder::new(ServerAnswer::Echo);
        let _ = responder.respond(&frame);
        let _ = responder.respond(&frame[..cut.index(frame.len())]);
        let _ = responder.respond(&random);
    }
}
