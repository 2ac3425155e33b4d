//! Connections that open, close, reset, and reopen on the same ports.

use super::Technique;
use crate::place::FAST_OPEN;
use crate::talk::{DECOY, REAL, Talk};
use crate::wire::{ACK, Checksum, FIN, PSH, RST, Segment};

/// Returns a SYN `off` from the first one.
fn other_syn(talk: &Talk<'_>, off: u32) -> Segment {
    let mut syn = talk.syn();
    syn.sequence = syn.sequence.wrapping_add(off);
    syn
}

/// Sends the real data in two segments.
fn say_all(talk: &mut Talk<'_>) {
    talk.say(0, &REAL[..8]);
    talk.say(8, &REAL[8..]);
}

/// Starts the next connection on the same ports with this number, and forgets the last one.
fn begin_again(talk: &mut Talk<'_>, isn: u32) {
    talk.isn = isn;
    talk.theirs = 0;
    talk.acknowledged = 0;
    talk.last = None;
    talk.clock += 1000;
}

/// Closes the connection from the client.
fn close(talk: &mut Talk<'_>, at: i64) {
    let end = talk.segment(ACK | FIN, at, b"");
    talk.send(&end);
    talk.listen(std::time::Duration::from_millis(40));
    talk.theirs = talk.theirs.wrapping_add(1);
    let last = talk.segment(ACK, at + 1, b"");
    talk.send(&last);
    talk.listen(std::time::Duration::from_millis(10));
}

pub fn all() -> Vec<Technique> {
    let new = |name: &str, play: fn(&mut Talk<'_>)| Technique::new(name, play);
    vec![
        new("SYN with bytes", |talk| {
            let mut syn = talk.syn();
            syn.payload = DECOY[..8].to_vec();
            talk.send(&syn);
            talk.expect_answer();
            say_all(talk);
        }),
        new("SYN with bytes, then others further on", |talk| {
            let mut syn = talk.syn();
            syn.payload = DECOY[..8].to_vec();
            talk.send(&syn);
            talk.expect_answer();
            talk.say(8, &REAL[8..]);
            talk.say(0, &REAL[..8]);
        }),
        new("SYN and FIN with bytes first", |talk| {
            let mut syn = other_syn(talk, 5000);
            syn.flags |= FIN;
            syn.payload = DECOY[..8].to_vec();
            talk.send(&syn);
            talk.open();
            say_all(talk);
        }),
        new("SYN and RST first", |talk| {
            let mut syn = other_syn(talk, 5000);
            syn.flags |= RST;
            talk.send(&syn);
            talk.open();
            say_all(talk);
        }),
        new("SYN with a wrong checksum first", |talk| {
            let mut syn = other_syn(talk, 3);
            syn.checksum = Checksum::Wrong;
            talk.send(&syn);
            talk.open();
            say_all(talk);
        }),
        new("SYN with an MD5 option first", |talk| {
            let mut syn = other_syn(talk, 3);
            syn.options = [vec![1, 1, 19, 18], vec![1; 16]].concat();
            talk.send(&syn);
            talk.open();
            say_all(talk);
        }),
        new("SYN with TTL 1 first", |talk| {
            let mut syn = other_syn(talk, 3);
            syn.ip.ttl = 1;
            talk.send(&syn);
            talk.open();
            say_all(talk);
        }),
        new("SYN/ACK of the client first", |talk| {
            let mut syn = other_syn(talk, 3);
            syn.flags |= ACK;
            syn.acknowledgment = 77;
            talk.send(&syn);
            talk.open();
            say_all(talk);
        }),
        new("bytes before the SYN", |talk| {
            talk.theirs = 500;
            talk.say(0, &DECOY[..8]);
            talk.theirs = 0;
            talk.open();
            say_all(talk);
        }),
        new("bytes before the SYN is answered", |talk| {
            let syn = talk.syn();
            talk.theirs = 500;
            let early = talk.data(0, &DECOY[..8]);
            talk.theirs = 0;
            talk.send(&syn);
            talk.send(&early);
            talk.expect_answer();
            say_all(talk);
        }),
        new("bytes with a wrong acknowledgment before the third step", |talk| {
            talk.ask();
            let mut early = talk.data(0, &DECOY[..8]);
            early.acknowledgment = early.acknowledgment.wrapping_add(5);
            talk.send(&early);
            say_all(talk);
        }),
        new("bytes without ACK flag before the third step", |talk| {
            talk.ask();
            let early = talk.segment(PSH, 0, &DECOY[..8]);
            talk.send(&early);
            say_all(talk);
        }),
        new("another SYN before the third step", |talk| {
            talk.ask();
            let second = other_syn(talk, 9);
            talk.send(&second);
            say_all(talk);
        }),
        new("another SYN with bytes after the third step", |talk| {
            talk.open();
            let mut second = other_syn(talk, 1);
            second.payload = DECOY[..8].to_vec();
            talk.send(&second);
            say_all(talk);
        }),
        new("SYN again in the connection", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let again = talk.syn();
            talk.send(&again);
            let other = other_syn(talk, 70_000);
            talk.send(&other);
            let within = other_syn(talk, 9);
            talk.send(&within);
            talk.say(8, &REAL[8..]);
        }),
        new("SYN/ACK in the connection", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut other = other_syn(talk, 70_000);
            other.flags |= ACK;
            other.acknowledgment = talk.theirs;
            talk.send(&other);
            talk.say(8, &REAL[8..]);
        }),
        new("RST out of the window before the third step", |talk| {
            talk.ask();
            let reset = talk.segment(RST, 900_000, b"");
            talk.send(&reset);
            say_all(talk);
        }),
        new("RST before the SYN", |talk| {
            let reset = talk.segment(RST, -1, b"");
            talk.send(&reset);
            talk.open();
            say_all(talk);
        }),
        new("the third step brings bytes", |talk| {
            talk.ask();
            say_all(talk);
        }),
        new("the third step ahead of its turn", |talk| {
            talk.ask();
            talk.say(8, &REAL[8..]);
            talk.say(0, &REAL[..8]);
        }),
        new("timestamps not agreed on, old ones in segments", |talk| {
            talk.has_timestamps = false;
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut old = talk.data(8, &DECOY[8..16]);
            old.options = talk.stamp(-5_000_000);
            talk.send(&old);
            talk.say(8, &REAL[8..]);
        }),
        new("timestamp 0 in the SYN", |talk| {
            let clock = talk.clock;
            talk.clock = 0;
            talk.ask();
            talk.clock = clock;
            talk.say(0, &REAL[..8]);
            let mut old = talk.data(8, &DECOY[8..16]);
            old.options = talk.stamp(-500);
            talk.send(&old);
            talk.say(8, &REAL[8..]);
        }),
        new("old timestamp in the third step", |talk| {
            talk.ask();
            let mut old = talk.data(0, &DECOY[..8]);
            old.options = talk.stamp(-500);
            talk.send(&old);
            say_all(talk);
        }),
        new("window scale not agreed on", |talk| {
            talk.scale = None;
            talk.open();
            say_all(talk);
        }),
        new("RST at the next byte, then bytes", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let reset = talk.segment(RST | ACK, 8, b"");
            talk.send(&reset);
            talk.say(8, &DECOY[8..]);
        }),
        new("RST at the next byte and bytes with it, then bytes", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let reset = talk.segment(RST | ACK, 8, &DECOY[8..12]);
            talk.send(&reset);
            talk.say(8, &DECOY[8..]);
        }),
        new("RST one byte early", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let reset = talk.segment(RST | ACK, 7, b"");
            talk.send(&reset);
            talk.say(8, &REAL[8..]);
        }),
        new("RST one byte late, with and without ACK", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            for flags in [RST | ACK, RST] {
                let reset = talk.segment(flags, 9, b"");
                talk.send(&reset);
            }
            talk.say(8, &REAL[8..]);
        }),
        new("RST at the next byte, an acknowledgment of the unsent", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut reset = talk.segment(RST | ACK, 8, b"");
            reset.acknowledgment = talk.theirs.wrapping_add(100_000);
            talk.send(&reset);
            talk.say(8, &REAL[8..]);
        }),
        new("RST at the end of what waits", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            talk.say(12, &REAL[12..16]);
            let reset = talk.segment(RST | ACK, 16, b"");
            talk.send(&reset);
            talk.say(8, &REAL[8..]);
        }),
        new("RST with an old timestamp at the next byte", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let mut reset = talk.segment(RST | ACK, 8, b"");
            reset.options = talk.stamp(-500);
            talk.send(&reset);
            talk.say(8, &REAL[8..]);
        }),
        new("RST, then the same ports and numbers again", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let reset = talk.segment(RST | ACK, 8, b"");
            talk.send(&reset);
            let isn = talk.isn;
            begin_again(talk, isn);
            talk.open();
            talk.say(0, &DECOY[..8]);
            talk.say(8, &REAL[8..]);
        })
        .slowly(),
        new("RST, then the same ports and near numbers again", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            let reset = talk.segment(RST | ACK, 8, b"");
            talk.send(&reset);
            let isn = talk.isn.wrapping_add(4);
            begin_again(talk, isn);
            talk.open();
            talk.say(0, &DECOY[..12]);
            talk.say(12, &REAL[12..]);
        })
        .slowly(),
        new("closed, then the same ports and numbers again", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            close(talk, 8);
            let isn = talk.isn;
            begin_again(talk, isn);
            talk.open();
            talk.say(0, &DECOY[..8]);
            talk.say(8, &REAL[8..]);
        })
        .slowly(),
        new("closed, then bytes of the old connection, then another one", |talk| {
            talk.open();
            talk.say(0, &REAL[..8]);
            close(talk, 8);
            talk.say(8, &DECOY[8..16]);
            talk.say(9, &DECOY[8..16]);
            let isn = talk.isn.wrapping_add(100_000);
            begin_again(talk, isn);
            talk.open();
            talk.say(0, &DECOY[..4]);
            talk.say(4, &REAL[4..]);
        })
        .slowly(),
        new("closed by the client, the server goes on listening to nobody", |talk| {
            talk.open();
            let end = talk.segment(ACK | FIN, 0, &REAL[..8]);
            talk.send(&end);
            talk.say(8, &DECOY[8..16]);
            talk.say(9, &DECOY[9..]);
        })
        .slowly(),
        new("Fast Open, bytes that the server takes", |talk| {
            talk.ports.1 = FAST_OPEN;
            let mut syn = talk.syn();
            syn.payload = REAL[..8].to_vec();
            talk.send(&syn);
            talk.expect_answer();
            talk.say(0, &DECOY[..8]);
            talk.say(8, &REAL[8..]);
        }),
        new("Fast Open, a request for a cookie alone", |talk| {
            talk.ports.1 = FAST_OPEN;
            let mut syn = talk.syn();
            syn.options.extend([34, 2, 1, 1]);
            syn.payload = REAL[..8].to_vec();
            talk.send(&syn);
            talk.expect_answer();
            talk.say(0, &DECOY[..8]);
            talk.say(8, &REAL[8..]);
        }),
        new("Fast Open, an invalid cookie", |talk| {
            talk.ports.1 = FAST_OPEN;
            let mut syn = talk.syn();
            syn.options.extend([34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
            syn.payload = REAL[..8].to_vec();
            talk.send(&syn);
            talk.expect_answer();
            talk.say(0, &DECOY[..8]);
            talk.say(8, &REAL[8..]);
        }),
        new("Fast Open, a SYN that is sent again with other bytes", |talk| {
            talk.ports.1 = FAST_OPEN;
            for bytes in [&REAL[..8], &DECOY[..12]] {
                let mut syn = talk.syn();
                syn.payload = bytes.to_vec();
                talk.send(&syn);
            }
            talk.expect_answer();
            talk.say(8, &REAL[8..]);
        }),
    ]
}
