//! Urgent bytes, windows, and the surroundings of the stream.

use super::Technique;
use crate::place::FULL;
use crate::talk::{DECOY, REAL, Talk};
use crate::wire::{ACK, Checksum, Family, PSH, URG};

/// Sends bytes with an urgent pointer.
fn urgent(talk: &mut Talk<'_>, offset: i64, payload: &[u8], pointer: u16) {
    let mut segment = talk.segment(ACK | PSH | URG, offset, payload);
    segment.urgent = pointer;
    talk.send(&segment);
    if talk.waits {
        talk.listen(std::time::Duration::from_millis(8)); // The application reads.
    }
}

/// Fills the window of a server that does not read, and returns the end.
fn fill(talk: &mut Talk<'_>) -> i64 {
    talk.ports.1 = FULL;
    talk.open();
    let mut at = 0;
    for _ in 0..64 {
        let window = talk.last.map_or(0, |last| i64::from(last.window));
        let scale = 7;
        let edge = talk.acknowledged + (window << scale);
        let len = (edge - at).clamp(0, 1000);
        if len == 0 || talk.was_reset {
            break;
        }
        talk.say(at, &vec![b'.'; len as usize]);
        at += len;
    }
    at
}

pub fn all() -> Vec<Technique> {
    let new = |name: &str, play: fn(&mut Talk<'_>)| Technique::new(name, play);
    let mut all = Vec::new();
    for pointer in [0, 1, 4, 8, 9, 12, 16, 17, 5000] {
        all.push(
            Technique::new(format!("urgent: pointer {pointer}"), move |talk: &mut Talk<'_>| {
                talk.open();
                talk.say(0, &REAL[..8]);
                urgent(talk, 8, &REAL[8..16], pointer);
                talk.say(16, &REAL[16..]);
            })
            .slowly(),
        );
    }
    all.extend([
        new("urgent: each byte", |talk| {
            talk.open();
            for at in 0..12 {
                urgent(talk, at, &REAL[at as usize..at as usize + 1], 1);
            }
            talk.say(12, &REAL[12..]);
        })
        .slowly(),
        new("urgent: ahead of its turn", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            urgent(talk, 12, &REAL[12..16], 2);
            talk.say(8, &REAL[8..12]);
            talk.say(16, &REAL[16..]);
        })
        .slowly(),
        new("urgent: in a segment with a wrong checksum", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut segment = talk.segment(ACK | URG, 8, &DECOY[8..16]);
            (segment.urgent, segment.checksum) = (3, Checksum::Wrong);
            talk.send(&segment);
            talk.say(8, &REAL[8..16]);
            talk.say(16, &REAL[16..]);
        })
        .slowly(),
        new("urgent: an empty segment announces it", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            urgent(talk, 8, b"", 5);
            talk.say(8, &REAL[8..16]);
            talk.say(16, &REAL[16..]);
        })
        .slowly(),
        new("urgent: at a byte that came", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            urgent(talk, 4, &DECOY[4..8], 2);
            talk.say(8, &REAL[8..]);
        })
        .slowly(),
        new("urgent: two pointers in one segment's place", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            urgent(talk, 8, &REAL[8..12], 2);
            urgent(talk, 12, &REAL[12..16], 3);
            talk.say(16, &REAL[16..]);
        })
        .slowly(),
        new("urgent: pointer without the flag", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut segment = talk.segment(ACK, 8, &REAL[8..16]);
            segment.urgent = 3;
            talk.send(&segment);
            talk.say(16, &REAL[16..]);
        }),
        new("window: bytes far beyond it", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            talk.say(10_000_000, &DECOY[8..16]);
            talk.say(8, &REAL[8..]);
        }),
        new("window: bytes a quarter around", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            talk.say(1 << 30, &DECOY[8..16]);
            talk.say(-(1 << 30), &DECOY[8..16]);
            talk.say(8, &REAL[8..]);
        }),
        new("window: an end beyond it", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let end = talk.segment(ACK | 1, 10_000_000, b"");
            talk.send(&end);
            talk.say(8, &REAL[8..]);
        }),
        new("window: full, a decoy beyond it, then the bytes", |talk| {
            let at = fill(talk);
            talk.say(at, &DECOY[..8]);
            talk.say(at, &DECOY[..1]);
            talk.listen(std::time::Duration::from_millis(400));
            talk.say(at, &REAL[..8]);
            talk.say(at + 8, &REAL[8..]);
        })
        .slowly(),
        new("window: nearly full, a decoy across its end", |talk| {
            talk.ports.1 = FULL;
            talk.open();
            let window = talk.last.map_or(0, |last| i64::from(last.window));
            let edge = window.min(2_000_000);
            talk.say(0, &REAL[..8]);
            talk.say(edge - 4, &DECOY[8..16]);
            talk.say(8, &REAL[8..]);
        })
        .slowly(),
        new("window: the client's is small, an acknowledgment from before it", |talk| {
            talk.window = 1;
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut old = talk.data(8, &DECOY[8..16]);
            old.acknowledgment = talk.theirs.wrapping_sub(1000);
            talk.send(&old);
            talk.say(8, &REAL[8..]);
        }),
        new("beside: bytes after the packet's end", |talk| {
            talk.open();
            let mut segment = talk.data(0, &REAL[..8]);
            segment.ip.trailer = DECOY.to_vec();
            talk.send(&segment);
            talk.say(8, &REAL[8..]);
        }),
        new("beside: an empty segment with bytes after its end", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut segment = talk.segment(ACK, 8, b"");
            segment.ip.trailer = DECOY.to_vec();
            talk.send(&segment);
            talk.say(8, &REAL[8..]);
        }),
        new("beside: length field short of the bytes", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut segment = talk.data(8, &DECOY[8..16]);
            segment.ip.len_off = -4;
            talk.send(&segment);
            talk.say(8, &REAL[8..]);
        }),
        new("beside: options of 40 bytes", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut segment = talk.data(8, &REAL[8..16]);
            segment.options.extend([1; 28]);
            talk.send(&segment);
            talk.say(16, &REAL[16..]);
        }),
        new("beside: hop limit 255 and all marks", |talk| {
            talk.open();
            for (at, tos) in [(0, 0xff), (8, 0xb8), (16, 1)] {
                let mut segment = talk.data(at, &REAL[at as usize..at as usize + 8]);
                (segment.ip.ttl, segment.ip.tos) = (255, tos);
                talk.send(&segment);
            }
        }),
        new("beside: no next header", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut segment = talk.data(8, &DECOY[8..16]);
            segment.ip.protocol = Some(59);
            talk.send(&segment);
            talk.say(8, &REAL[8..]);
        })
        .only(Family::V6),
        new("zero bytes: many empty segments at odd places", |talk| {
            talk.open();
            for at in [0, 5, 23, 24, 100, -5] {
                talk.say(at, b"");
            }
            talk.say(0, &REAL[..8]);
            talk.say(8, &REAL[8..]);
        }),
    ]);
    all
}
