//! A segment, FIN or reset that the host ignores, followed by an accepted one.

use super::Technique;
use crate::talk::{DECOY, REAL, Talk};
use crate::wire::{ACK, Checksum, FIN, Family, PSH, RST, SYN, Segment};

/// Changes a segment so that the host may ignore it.
type Spoil = fn(&Talk<'_>, &mut Segment);

/// Modifications of a segment, with the IP version that they apply to.
const SPOILS: &[(&str, Option<Family>, Spoil)] = &[
    ("wrong TCP checksum", None, |_, s| s.checksum = Checksum::Wrong),
    ("zero TCP checksum", None, |_, s| s.checksum = Checksum::Zero),
    ("no ACK flag", None, |_, s| s.flags &= !ACK),
    ("MD5 option", None, |_, s| s.options = [vec![1, 1, 19, 18], vec![7; 16]].concat()),
    ("MD5 option and timestamp", None, |t, s| {
        s.options = [vec![1, 1, 19, 18], vec![7; 16], t.stamp(0)].concat()
    }),
    ("MD5 option of a wrong length", None, |_, s| s.options = vec![19, 10, 1, 2, 3, 4, 5, 6, 7, 8]),
    ("AO option", None, |_, s| s.options = vec![29, 8, 0, 0, 1, 2, 3, 4]),
    ("option beyond the header", None, |_, s| s.options = vec![1, 254, 40, 0]),
    ("option of length 0", None, |_, s| s.options = vec![1, 1, 254, 0]),
    ("timestamp 1 too old", None, |t, s| s.options = t.stamp(-500)),
    ("timestamp half around", None, |t, s| s.options = t.stamp(-(1 << 31) + 5)),
    ("two timestamps, the last one old", None, |t, s| s.options = [t.stamp(0), t.stamp(-900)].concat()),
    ("two timestamps, the first one old", None, |t, s| s.options = [t.stamp(-900), t.stamp(0)].concat()),
    ("no timestamp", None, |_, s| s.options = Vec::new()),
    ("timestamp far ahead", None, |t, s| s.options = t.stamp(5_000_000)),
    ("timestamp far ahead, wrong checksum", None, |t, s| {
        s.options = t.stamp(5_000_000);
        s.checksum = Checksum::Wrong;
    }),
    ("acknowledges the unsent", None, |t, s| s.acknowledgment = t.theirs.wrapping_add(100_000)),
    ("acknowledges one byte too many", None, |t, s| s.acknowledgment = t.theirs.wrapping_add(1)),
    ("acknowledges what is long past", None, |t, s| s.acknowledgment = t.theirs.wrapping_sub(300_000)),
    ("acknowledges the SYN alone, less one", None, |t, s| s.acknowledgment = t.theirs.wrapping_sub(2)),
    ("acknowledges nothing, number half around", None, |t, s| {
        s.acknowledgment = t.theirs.wrapping_add(1 << 31)
    }),
    ("SYN flag", None, |_, s| s.flags |= SYN),
    ("SYN flag alone", None, |_, s| s.flags = SYN),
    ("data offset below 5", None, |_, s| s.data_offset = Some(4)),
    ("data offset beyond the segment", None, |_, s| s.data_offset = Some(15)),
    ("reserved bits and ECN flags", None, |_, s| s.flags |= 0xc0),
    ("window 0", None, |_, s| s.window = 0),
    ("port 0 window, PSH URG at 0", None, |_, s| s.urgent = 9),
    ("TTL 1", None, |_, s| s.ip.ttl = 1),
    ("TTL 2", None, |_, s| s.ip.ttl = 2),
    ("wrong IP checksum", Some(Family::V4), |_, s| s.ip.checksum = Checksum::Wrong),
    ("loose source route", Some(Family::V4), |_, s| s.ip.options = vec![131, 7, 4, 10, 9, 1, 2, 0]),
    ("strict source route, used up", Some(Family::V4), |_, s| s.ip.options = vec![137, 7, 8, 10, 9, 1, 2, 0]),
    ("IP option of length 0", Some(Family::V4), |_, s| s.ip.options = vec![7, 0, 0, 0]),
    ("IP option of length 1", Some(Family::V4), |_, s| s.ip.options = vec![148, 1, 0, 0]),
    ("IP option beyond the header", Some(Family::V4), |_, s| s.ip.options = vec![7, 40, 4, 0]),
    ("record route, pointer too low", Some(Family::V4), |_, s| s.ip.options = vec![7, 7, 3, 0, 0, 0, 0, 0]),
    ("record route, fine", Some(Family::V4), |_, s| s.ip.options = vec![7, 7, 4, 0, 0, 0, 0, 0]),
    ("IP timestamp, pointer too low", Some(Family::V4), |_, s| s.ip.options = vec![68, 8, 4, 0, 0, 0, 0, 0]),
    ("router alert", Some(Family::V4), |_, s| s.ip.options = vec![148, 4, 0, 0]),
    ("router alert of length 3", Some(Family::V4), |_, s| s.ip.options = vec![148, 3, 0, 0]),
    ("unknown IP option", Some(Family::V4), |_, s| s.ip.options = vec![0x5e, 4, 1, 1]),
    ("CIPSO option, malformed", Some(Family::V4), |_, s| s.ip.options = vec![134, 6, 0, 0, 0, 0, 0, 0]),
    ("total length beyond the packet", Some(Family::V4), |_, s| s.ip.len_off = 8),
    ("reserved bit of IP", Some(Family::V4), |_, s| s.ip.reserved = true),
    ("IP version 6 in IPv4", None, |_, s| s.ip.version = Some(5)),
    ("another host's Ethernet address", None, |_, s| s.ip.mac = [2, 9, 9, 9, 9, 9]),
    ("CE mark", None, |_, s| s.ip.tos = 3),
    ("unknown hop-by-hop option, discard", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(0, vec![0x40 | 30, 4, 0, 0, 0, 0])]
    }),
    ("unknown hop-by-hop option, skip", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(0, vec![30, 4, 0, 0, 0, 0])]
    }),
    ("unknown destination option, discard", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![0x80 | 30, 4, 0, 0, 0, 0])]
    }),
    ("unknown destination option, skip", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![30, 4, 0, 0, 0, 0])]
    }),
    ("destination option beyond its header", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![30, 40, 0, 0, 0, 0])]
    }),
    ("padding option of 8 bytes", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])];
    }),
    ("padding option that is not zero", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![1, 4, 1, 2, 3, 4])]
    }),
    ("destination options twice", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![1, 4, 0, 0, 0, 0]), (60, vec![1, 4, 0, 0, 0, 0])];
    }),
    ("hop-by-hop options not first", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(60, vec![1, 4, 0, 0, 0, 0]), (0, vec![1, 4, 0, 0, 0, 0])];
    }),
    ("routing header 0, segments left", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(43, [vec![0, 1, 0, 0, 0, 0], vec![0; 16]].concat())];
    }),
    ("routing header 0, none left", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(43, [vec![0, 0, 0, 0, 0, 0], vec![0; 16]].concat())];
    }),
    ("routing header of an unknown type, segments left", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(43, vec![77, 1, 0, 0, 0, 0])];
    }),
    ("routing header of an unknown type, none left", Some(Family::V6), |_, s| {
        s.ip.extensions = vec![(43, vec![77, 0, 0, 0, 0, 0])];
    }),
    ("unknown extension header", Some(Family::V6), |_, s| s.ip.extensions = vec![(253, vec![0; 6])]),
    ("atomic fragment", Some(Family::V6), |_, s| s.ip.fragment = Some((7, 0, false))),
    ("payload length beyond the packet", Some(Family::V6), |_, s| s.ip.len_off = 8),
];

/// Returns a modified segment with these bytes.
fn spoilt(talk: &Talk<'_>, spoil: Spoil, flags: u8, offset: i64, payload: &[u8]) -> Segment {
    let mut segment = talk.segment(flags, offset, payload);
    spoil(talk, &mut segment);
    segment
}

pub fn all() -> Vec<Technique> {
    let mut all = Vec::new();
    for &(name, family, spoil) in SPOILS {
        let mut add = |what: &str, play: fn(&mut Talk<'_>, Spoil)| {
            let mut technique = Technique::new(format!("{name}: {what}"), move |talk: &mut Talk<'_>| {
                talk.open();
                play(talk, spoil);
            });
            technique.family = family;
            all.push(technique);
        };
        add("decoy before", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            let decoy = spoilt(talk, spoil, ACK | PSH, 8, &DECOY[8..16]);
            talk.send(&decoy);
            talk.say(8, &REAL[8..16]);
            talk.say(16, &REAL[16..]);
        });
        add("decoy before, ahead of its turn", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            let decoy = spoilt(talk, spoil, ACK | PSH, 12, &DECOY[12..20]);
            talk.send(&decoy);
            talk.say(12, &REAL[12..20]);
            talk.say(8, &REAL[8..12]);
            talk.say(20, &REAL[20..]);
        });
        add("decoy after, ahead of its turn", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            talk.say(12, &REAL[12..20]);
            let decoy = spoilt(talk, spoil, ACK | PSH, 10, &DECOY[10..22]);
            talk.send(&decoy);
            talk.say(8, &REAL[8..12]);
            talk.say(20, &REAL[20..]);
        });
        add("only that", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            let decoy = spoilt(talk, spoil, ACK | PSH, 8, &DECOY[8..16]);
            talk.send(&decoy);
        });
        add("FIN", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            let end = spoilt(talk, spoil, ACK | FIN, 8, b"");
            talk.send(&end);
            talk.say(8, &REAL[8..16]);
            talk.say(16, &REAL[16..]);
        });
        add("FIN after bytes, ahead of its turn", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            let end = spoilt(talk, spoil, ACK | FIN, 10, &DECOY[10..14]);
            talk.send(&end);
            talk.say(8, &REAL[8..16]);
            talk.say(16, &REAL[16..]);
        });
        add("RST", |talk, spoil| {
            talk.say(0, &REAL[..8]);
            let reset = spoilt(talk, spoil, ACK | RST, 8, b"");
            talk.send(&reset);
            talk.say(8, &REAL[8..16]);
            talk.say(16, &REAL[16..]);
        });
    }
    all
}
