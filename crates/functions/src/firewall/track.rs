//! Following a TCP connection by its sequence numbers (`tcp: strict`), after G. van Rooij, "Real Stateful TCP Packet
//! Filtering in IP Filter" (2001).
//!
//! Of each end it is known how far it has sent and how far its peer's acknowledgements and windows let it send. A segment
//! must lie in between, and must acknowledge what the peer has sent; a reset must lie in the window proper (RFC 5961 3.2).

use nf::PacketView;
use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Both ends of a connection, by direction. All zeros: nothing seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Ends([Sender; 2]);

/// What is known of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Sender {
    /// Behind the last sequence number that it sent.
    end: u32,
    /// Behind the last one that its peer lets it send.
    limit: u32,
    /// Behind the last one of its peer that it acknowledged.
    acked: u32,
    /// The largest window that it offered, in bytes.
    window: u32,
    /// Shift of its windows (RFC 7323 2.3).
    scale: u8,
    /// See [`SEEN`] and the following.
    flags: u8,
    spare: [u8; 2],
}

/// A segment was seen.
const SEEN: u8 = 1;
/// It offered to scale windows.
const SCALES: u8 = 2;
/// It sent a FIN.
const FINISHED: u8 = 4;
/// It sent a valid reset.
const RESET: u8 = 8;
/// It acknowledged something.
const ACKED: u8 = 16;

/// How far back an acknowledgement may be at least: a window without scaling and a segment.
const ACK_BACK: u32 = 66_000;

/// The largest shift (RFC 7323 2.3).
const SCALE_MAX: u8 = 14;

/// The window taken for granted in a connection whose beginning was not seen: the largest there is.
const WINDOW_MAX: u32 = 0xffff << SCALE_MAX;

/// What matters here of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its sequence number.
    pub seq: u32,
    /// How many numbers it takes: bytes, SYN and FIN.
    pub len: u32,
    /// What it acknowledges, if it does.
    pub ack: Option<u32>,
    /// Its window field.
    pub window: u16,
    /// Its flags.
    pub flags: u8,
    /// The shift that it offers, if it does.
    pub scale: Option<u8>,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

impl Segment {
    /// Reads a whole TCP packet; none if its header was not captured.
    pub fn read(packet: &PacketView<'_>) -> Option<Segment> {
        let bytes = packet.transport();
        let header = bytes.first_chunk::<20>()?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let header_len = usize::from(header[12] >> 4) * 4;
        let flags = header[13];
        let before = usize::from(packet.meta().l4 - packet.meta().l3) + header_len;
        let payload = network_len(packet).saturating_sub(before) as u32;
        let options = bytes.get(20..header_len).unwrap_or_default();
        Some(Segment {
            seq: word(4),
            len: payload + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0),
            ack: (flags & ACK != 0).then(|| word(8)),
            window: u16::from_be_bytes([header[14], header[15]]),
            flags,
            scale: if flags & SYN != 0 { window_scale(options) } else { None },
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }
}

impl Ends {
    /// Takes a segment into account if it fits the connection; whether it does.
    pub fn follow(&mut self, segment: &Segment, direction: Direction) -> bool {
        let opens = segment.has(SYN) && segment.ack.is_none();
        if opens && self.is_over() {
            *self = Ends::default(); // The ports are used again (RFC 9293 3.6.1).
        }
        let [mut sender, mut receiver] = [self.0[direction.index()], self.0[direction.other().index()]];
        let fits = follow(&mut sender, &mut receiver, segment);
        if fits {
            (self.0[direction.index()], self.0[direction.other().index()]) = (sender, receiver);
        }
        fits
    }

    fn is_over(&self) -> bool {
        let [a, b] = self.0;
        (a.flags | b.flags) & RESET != 0 || a.flags & b.flags & FINISHED != 0
    }
}

fn follow(sender: &mut Sender, receiver: &mut Sender, segment: &Segment) -> bool {
    if segment.has(RST) {
        let fits = reset_fits(sender, receiver, segment);
        sender.flags |= RESET;
        return fits;
    }
    let (seen, peer_seen) = (sender.flags & SEEN != 0, receiver.flags & SEEN != 0);
    if !seen && !peer_seen && segment.ack.is_some() {
        pick_up(sender, receiver, segment);
    } else if segment.has(SYN) && !(seen && peer_seen) {
        return open(sender, receiver, segment);
    } else if !(seen && peer_seen && is_in_window(sender, receiver, segment)) {
        return false; // Out of window; or data before the peer's SYN.
    }
    note(sender, receiver, segment);
    true
}

/// A SYN of an end whose peer, or itself, was not seen yet: the first one, its repetition, a simultaneous one or the answer.
fn open(sender: &mut Sender, receiver: &mut Sender, segment: &Segment) -> bool {
    let answers = receiver.flags & SEEN != 0;
    if answers && segment.ack.is_some_and(|ack| ack != receiver.end) {
        return false;
    }
    let offers = if segment.scale.is_some() { SCALES } else { 0 };
    *sender = Sender {
        end: segment.end(),
        limit: segment.end().wrapping_add(receiver.window),
        acked: 0,
        window: 0,
        scale: segment.scale.unwrap_or(0).min(SCALE_MAX),
        flags: SEEN | offers,
        spare: [0; 2],
    };
    if answers && sender.flags & receiver.flags & SCALES == 0 {
        // Only if both offer it (RFC 7323 2.2).
        (sender.scale, receiver.scale) = (0, 0);
    }
    note(sender, receiver, segment);
    true
}

/// The first segment seen is in the middle of the connection: its numbers are believed, windows taken for the largest.
fn pick_up(sender: &mut Sender, receiver: &mut Sender, segment: &Segment) {
    let known = |end: u32| Sender {
        end,
        limit: end.wrapping_add(WINDOW_MAX),
        window: WINDOW_MAX,
        scale: SCALE_MAX,
        flags: SEEN,
        ..Sender::default()
    };
    *sender = known(segment.end());
    *receiver = known(segment.ack.unwrap_or(0));
}

fn is_in_window(sender: &Sender, receiver: &Sender, segment: &Segment) -> bool {
    let back = ACK_BACK.max(sender.window);
    let acknowledges = segment
        .ack
        .is_none_or(|ack| !is_after(ack, receiver.end) && !is_after(receiver.end.wrapping_sub(back), ack));
    !is_after(segment.seq, sender.limit)
        && !is_after(sender.end.wrapping_sub(receiver.window), segment.end())
        && acknowledges
}

/// RFC 5961 3.2: the reset lies in the receiver's window, as far as we know it; RFC 9293 3.10.7.3: it acknowledges the SYN.
fn reset_fits(sender: &Sender, receiver: &Sender, segment: &Segment) -> bool {
    match (sender.flags & SEEN != 0, receiver.flags & SEEN != 0) {
        (false, true) => segment.ack == Some(receiver.end),
        (true, false) => segment.seq == sender.end,
        (true, true) if receiver.flags & ACKED == 0 => {
            !is_after(segment.seq, sender.limit) && !is_after(sender.end.wrapping_sub(1), segment.seq)
        }
        (true, true) => !is_after(segment.seq, sender.limit) && !is_after(receiver.acked, segment.seq),
        (false, false) => true, // Judged as the first packet of a flow.
    }
}

/// What a valid segment tells.
fn note(sender: &mut Sender, receiver: &mut Sender, segment: &Segment) {
    let scale = if segment.has(SYN) { 0 } else { sender.scale };
    let window = u32::from(segment.window) << scale;
    sender.window = sender.window.max(window);
    if is_after(segment.end(), sender.end) {
        sender.end = segment.end();
    }
    if segment.has(FIN) {
        sender.flags |= FINISHED;
    }
    if let Some(ack) = segment.ack {
        if sender.flags & ACKED == 0 || is_after(ack, sender.acked) {
            sender.acked = ack;
        }
        sender.flags |= ACKED;
        // A closed window may be probed with a byte (RFC 9293 3.8.6.1).
        let limit = ack.wrapping_add(window.max(1));
        if receiver.flags & SEEN != 0 && is_after(limit, receiver.limit) {
            receiver.limit = limit;
        }
    }
}

/// Whether one sequence number is after another (RFC 9293 3.4).
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// Length of the flow's own IP packet, in a tunnel or not.
fn network_len(packet: &PacketView<'_>) -> usize {
    let network = packet.network();
    match network {
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [_, _, _, _, 0, 0, ..] => network.len(), // A jumbogram (RFC 2675).
        [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => network.len(),
    }
}

/// The window scale option of a SYN (RFC 7323 2.2).
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [3, 3, scale, ..] => return Some(*scale),
            [_, len, ..] if *len >= 2 => options = options.get(usize::from(*len)..)?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests;
