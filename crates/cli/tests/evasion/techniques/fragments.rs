//! Fragmented segments.

use super::Technique;
use crate::talk::{DECOY, REAL, Talk};
use crate::wire::{Checksum, Family, Ip, frame};

/// A fragment of the segment, or of one with decoys in its place: range of bytes, and whether more
/// follow.
#[derive(Clone, Copy)]
struct Part {
    from: usize,
    until: usize,
    is_real: bool,
    more: bool,
    change: fn(&mut Ip),
}

const fn part(from: usize, until: usize, is_real: bool, more: bool) -> Part {
    Part { from, until, is_real, more, change: |_| {} }
}

/// Length of the segment: a header with a timestamp, and 24 bytes.
const END: usize = 56;

const fn real(from: usize, until: usize) -> Part {
    part(from, until, true, until < END)
}

const fn decoy(from: usize, until: usize) -> Part {
    part(from, until, false, until < END)
}

const fn with(part: Part, change: fn(&mut Ip)) -> Part {
    Part { change, ..part }
}

fn play(talk: &mut Talk<'_>, parts: &[Part]) {
    talk.open();
    // Both have a right checksum.
    let id = 0x1000 + u32::from(talk.ports.0);
    let whole = [REAL, DECOY].map(|bytes| talk.data(0, bytes).transport(talk.family));
    for part in parts {
        let bytes = &whole[usize::from(!part.is_real)][part.from..part.until];
        let mut ip = Ip { fragment: Some((id, part.from as u16, part.more)), ..Ip::default() };
        (part.change)(&mut ip);
        let frame = frame(talk.family, &ip, bytes);
        talk.send_frame(frame);
    }
}

/// Plays fragments of several segments. The checksum covers the reassembled segment, so a mixture
/// has a right one only if its bytes are swapped as words.
fn play_mixed(talk: &mut Talk<'_>, parts: &[(usize, usize, &[u8], bool)]) {
    talk.open();
    let id = 0x1000 + u32::from(talk.ports.0);
    // 32 bytes of header, and payloads with the same sum in all mixtures.
    let segment = talk.data(0, REAL);
    let whole = segment.transport(talk.family);
    for &(from, until, payload, more) in parts {
        let mut bytes = whole.clone();
        bytes[32..].copy_from_slice(payload);
        let ip = Ip { fragment: Some((id, from as u16, more)), ..Ip::default() };
        let frame = frame(talk.family, &ip, &bytes[from..until]);
        talk.send_frame(frame);
    }
}

/// The real data with words swapped within each eight bytes, which keeps the sum.
const SWAPPED: &[u8] = b"GHEFCDABOPMNKLIJWXUVSTQR";

const TABLE: &[(&str, &[Part])] = &[
    ("in order", &[real(0, 32), real(32, 48), real(48, END)]),
    ("backwards", &[real(48, END), real(32, 48), real(0, 32)]),
    ("the same one twice", &[real(0, 32), real(32, 48), real(32, 48), real(48, END)]),
    ("the same place with other bytes", &[real(0, 32), real(32, 48), decoy(32, 48), real(48, END)]),
    ("within one that is there", &[real(0, 32), real(32, 48), decoy(40, 48), real(48, END)]),
    (
        "within two that came in order",
        &[real(0, 32), real(32, 40), real(40, 48), decoy(32, 48), real(48, END)],
    ),
    (
        "within two that came backwards",
        &[real(0, 24), real(40, 48), real(32, 40), decoy(32, 48), real(24, 32), real(48, END)],
    ),
    ("overlaps, the later one goes on", &[real(0, 32), decoy(32, 48), real(40, END)]),
    ("overlaps, the later one begins before", &[real(0, 32), real(40, END), decoy(32, 48)]),
    (
        "overlaps, then all of it again",
        &[real(0, 32), decoy(32, 48), real(40, END), real(0, 32), real(32, END)],
    ),
    ("a decoy first, then all", &[decoy(32, 48), real(0, 32), real(32, 48), real(48, END)]),
    ("eight bytes, then the rest", &[real(0, 8), real(8, END)]),
    ("24 bytes, then the rest", &[real(0, 24), real(24, END)]),
    ("one that is empty", &[real(0, 32), part(32, 32, true, true), real(32, END)]),
    (
        "two last ones, the first one shorter",
        &[real(0, 32), part(32, 48, false, false), real(32, 48), real(48, END)],
    ),
    (
        "two last ones, the first one longer",
        &[real(0, 24), real(40, END), part(24, 40, true, false), real(24, 40)],
    ),
    ("a last one before the end", &[real(0, 32), real(40, END), part(24, 32, false, false), real(32, 40)]),
    ("one that is not a multiple of eight", &[real(0, 32), part(32, 45, false, true), real(32, END)]),
    ("one that is not a multiple of eight, last", &[real(0, 32), part(32, 45, true, true), real(40, END)]),
    (
        "one dies on the way",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.ttl = 1), real(32, 48), real(48, END)],
    ),
    (
        "one dies on the way, and is not sent again",
        &[decoy(0, 32), with(decoy(32, 48), |ip| ip.ttl = 1), decoy(48, END)],
    ),
    (
        "one with a CE mark",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.tos = 3), real(48, END), real(0, 32), real(32, END)],
    ),
    (
        "all with CE marks but the last",
        &[with(decoy(0, 32), |ip| ip.tos = 3), with(decoy(32, 48), |ip| ip.tos = 3), decoy(48, END)],
    ),
    (
        "ECT and CE marks",
        &[
            with(real(0, 32), |ip| ip.tos = 2),
            with(real(32, 48), |ip| ip.tos = 3),
            with(real(48, END), |ip| ip.tos = 2),
        ],
    ),
    (
        "one to another Ethernet address",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.mac = [2, 9, 9, 9, 9, 9]), real(32, END)],
    ),
];

const V4: &[(&str, &[Part])] = &[
    (
        "one with a wrong header checksum",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.checksum = Checksum::Wrong), real(32, END)],
    ),
    (
        "one with a source route",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.options = vec![131, 7, 4, 1, 1, 1, 1]), real(32, END)],
    ),
    (
        "one with a malformed option",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.options = vec![7, 0, 0, 0]), real(32, END)],
    ),
    (
        "one of another protocol",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.protocol = Some(17)), real(32, END)],
    ),
];

const V6: &[(&str, &[Part])] = &[
    (
        "one with an option to discard",
        &[
            real(0, 32),
            with(decoy(32, 48), |ip| ip.extensions = vec![(60, vec![0x5e, 4, 0, 0, 0, 0])]),
            real(32, END),
        ],
    ),
    (
        "one with options to skip",
        &[
            real(0, 32),
            with(real(32, 48), |ip| ip.extensions = vec![(60, vec![30, 4, 0, 0, 0, 0])]),
            real(48, END),
        ],
    ),
    (
        "one with a routing header",
        &[
            real(0, 32),
            with(decoy(32, 48), |ip| {
                ip.extensions = vec![(43, [vec![0, 1, 0, 0, 0, 0], vec![0; 16]].concat())]
            }),
            real(32, END),
        ],
    ),
    (
        "a later one of another next header",
        &[real(0, 32), with(decoy(32, 48), |ip| ip.protocol = Some(17)), real(48, END)],
    ),
    ("an atomic one among them", &[real(0, 32), part(0, END, false, false), real(32, END)]),
];

pub fn all() -> Vec<Technique> {
    let mut all = Vec::new();
    for (rows, family) in [(TABLE, None), (V4, Some(Family::V4)), (V6, Some(Family::V6))] {
        for &(name, parts) in rows {
            let technique =
                Technique::new(format!("fragments: {name}"), move |talk: &mut Talk<'_>| play(talk, parts));
            all.push(Technique { family, ..technique });
        }
    }
    // Mixtures that keep the sum: the reading of the host shows its choice.
    type Fragment = (usize, usize, &'static [u8], bool);
    let mixed: [(&str, &'static [Fragment]); 5] = [
        (
            "same place, other order",
            &[(0, 32, REAL, true), (32, 48, REAL, true), (32, 48, SWAPPED, true), (48, END, REAL, false)],
        ),
        (
            "same place first, other order",
            &[(0, 32, REAL, true), (32, 48, SWAPPED, true), (32, 48, REAL, true), (48, END, REAL, false)],
        ),
        (
            "within, other order",
            &[(0, 32, REAL, true), (32, 48, REAL, true), (40, 48, SWAPPED, true), (48, END, REAL, false)],
        ),
        (
            "overlap, other order, then again",
            &[
                (0, 32, REAL, true),
                (32, 48, SWAPPED, true),
                (40, END, REAL, false),
                (0, 32, REAL, true),
                (32, END, REAL, false),
            ],
        ),
        (
            "overlap, other order, filled",
            &[
                (32, 48, SWAPPED, true),
                (40, END, REAL, false),
                (0, 32, REAL, true),
                (32, 40, REAL, true),
                (40, END, REAL, false),
            ],
        ),
    ];
    for (name, parts) in mixed {
        all.push(Technique::new(format!("fragments: {name}"), move |talk: &mut Talk<'_>| {
            play_mixed(talk, parts)
        }));
    }
    all
}
