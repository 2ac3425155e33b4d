//! The frames of a datagram. The crate's page has their layouts.

use crate::flow_control::PART_COST;

/// Ranges of an acknowledgement after the first, at most. Older ranges are left out.
pub const ACK_RANGES_MAX: usize = 32;

/// Length of a frame's type and length.
pub(crate) const FRAME_HEAD: usize = 3;
pub(crate) const BLOCK_HEAD: usize = FRAME_HEAD + 8;
pub(crate) const MESSAGE_HEAD: usize = FRAME_HEAD + 6;
pub(crate) const FRAGMENT_HEAD: usize = FRAME_HEAD + 14;
pub(crate) const ACK_HEAD: usize = FRAME_HEAD + 22;
pub(crate) const ACK_LEN_MAX: usize = ACK_HEAD + 4 * ACK_RANGES_MAX;
/// Overhead in a datagram for a part of a block, in bytes.
pub(crate) const PIECE_HEAD: usize = FRAME_HEAD + 12;
/// Length of a block's first frame.
pub(crate) const ORDER_LEN: usize = FRAME_HEAD + 4;
/// Length of a probe, and of its answer.
pub(crate) const PROBE_LEN: usize = FRAME_HEAD + 2;

pub(crate) const PADDING: u8 = 0;
const BLOCK: u8 = 1;
const MESSAGE: u8 = 2;
const FRAGMENT: u8 = 3;
const PACKET: u8 = 4;
const ACK: u8 = 5;
const PING: u8 = 6;
const PROBE: u8 = 7;
const ANSWER: u8 = 8;
const PIECE: u8 = 9;
const ORDER: u8 = 10;
const CLOSE: u8 = 0x58;

/// A known frame is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A frame of a datagram.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<'a> {
    Block {
        number: u64,
        parts: &'a [u8],
    },
    Packet(&'a [u8]),
    Ack(AckFrame<'a>),
    Ping,
    /// A datagram of this length, to learn whether the path carries it.
    Probe(u16),
    /// A probe of this length has arrived.
    Answer(u16),
    /// A part of a block, from `offset` on, of `total` bytes.
    Piece {
        number: u64,
        total: u16,
        offset: u16,
        bytes: &'a [u8],
    },
    Close,
    Unknown,
}

/// A frame of a block.
#[derive(Debug, PartialEq)]
pub(crate) enum Part<'a> {
    /// The messages of the ordered stream that are before the block.
    Order(u32),
    Message {
        stream: u16,
        number: u32,
        bytes: &'a [u8],
    },
    Fragment {
        stream: u16,
        number: u32,
        total: u32,
        offset: u32,
        bytes: &'a [u8],
    },
    Unknown,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AckFrame<'a> {
    pub(crate) largest: u64,
    pub(crate) delay_ns: u32,
    pub(crate) granted: u64,
    before: u16,
    pairs: &'a [u8],
}

impl Part<'_> {
    /// Returns the stream, and what the part costs.
    #[inline]
    pub(crate) fn cost(&self) -> Option<(u16, u64)> {
        match self {
            Part::Message { stream, bytes, .. } | Part::Fragment { stream, bytes, .. } => {
                Some((*stream, bytes.len() as u64 + PART_COST))
            }
            Part::Order(_) | Part::Unknown => None,
        }
    }
}

impl AckFrame<'_> {
    /// Returns the acknowledged ranges, first and last number of each, newest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Result<(u64, u64), Malformed>> {
        let mut pairs = self.pairs.chunks_exact(4);
        let mut next = (self.largest > 0).then_some((self.largest, self.before));
        std::iter::from_fn(move || {
            let (last, before) = next.take()?;
            let first = match last.checked_sub(before.into()) {
                Some(first) if first > 0 => first,
                _ => return Some(Err(Malformed)),
            };
            if let Some(&[a, b, c, d]) = pairs.next() {
                let (missing, received) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                let (Some(last), Some(before)) =
                    ((first - 1).checked_sub(missing.into()), received.checked_sub(1))
                else {
                    return Some(Err(Malformed));
                };
                next = Some((last, before));
            }
            Some(Ok((first, last)))
        })
    }
}

/// Takes the next frame; none at the end of the datagram.
#[inline]
pub(crate) fn next_frame<'a>(rest: &mut &'a [u8]) -> Result<Option<Frame<'a>>, Malformed> {
    let Some((kind, body)) = next_body(rest)? else { return Ok(None) };
    let frame = match kind {
        PADDING => return Ok(None),
        BLOCK => {
            let (&number, parts) = body.split_first_chunk().ok_or(Malformed)?;
            Frame::Block { number: u64::from_be_bytes(number), parts }
        }
        PACKET => Frame::Packet(body),
        ACK => Frame::Ack(parse_ack(body).ok_or(Malformed)?),
        PING => Frame::Ping,
        PROBE => Frame::Probe(parse_size(body)?),
        ANSWER => Frame::Answer(parse_size(body)?),
        PIECE => parse_piece(body).ok_or(Malformed)?,
        CLOSE => Frame::Close,
        MESSAGE | FRAGMENT | ORDER => return Err(Malformed),
        _ => Frame::Unknown,
    };
    Ok(Some(frame))
}

/// Takes the next frame of a block; none at its end. The second value is the frame's length
/// without type and length.
#[inline(always)]
pub(crate) fn next_part<'a>(rest: &mut &'a [u8]) -> Result<Option<(Part<'a>, usize)>, Malformed> {
    let Some((kind, body)) = next_body(rest)? else { return Ok(None) };
    let part = match kind {
        MESSAGE => {
            let (&[a, b, c, d, e, f], bytes) = body.split_first_chunk().ok_or(Malformed)?;
            let (stream, number) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
            Part::Message { stream, number, bytes }
        }
        FRAGMENT => parse_fragment(body).ok_or(Malformed)?,
        ORDER => Part::Order(body.first_chunk().map(|count| u32::from_be_bytes(*count)).ok_or(Malformed)?),
        PADDING | BLOCK | PACKET | ACK | PING | PROBE | ANSWER | PIECE | CLOSE => return Err(Malformed),
        _ => Part::Unknown,
    };
    Ok(Some((part, body.len())))
}

/// Takes the order with which a block begins, if it has one.
#[inline]
pub(crate) fn take_order(block: &mut &[u8]) -> Option<u32> {
    let (&[ORDER, 0, 4, a, b, c, d], rest) = block.split_first_chunk()? else { return None };
    *block = rest;
    Some(u32::from_be_bytes([a, b, c, d]))
}

/// Takes a frame's type and body.
#[inline]
fn next_body<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, Malformed> {
    match rest.split_first_chunk::<FRAME_HEAD>() {
        Some((&[PADDING, ..], _)) => Ok(Some((PADDING, &[]))),
        Some((&[kind, a, b], after)) => {
            let len = usize::from(u16::from_be_bytes([a, b]));
            let (body, after) = after.split_at_checked(len).ok_or(Malformed)?;
            *rest = after;
            Ok(Some((kind, body)))
        }
        None if rest.first().is_none_or(|&kind| kind == PADDING) => Ok(None),
        None => Err(Malformed),
    }
}

fn parse_fragment(body: &[u8]) -> Option<Part<'_>> {
    let (&stream, rest) = body.split_first_chunk()?;
    let (&number, rest) = rest.split_first_chunk()?;
    let (&total, rest) = rest.split_first_chunk()?;
    let (&offset, bytes) = rest.split_first_chunk()?;
    Some(Part::Fragment {
        stream: u16::from_be_bytes(stream),
        number: u32::from_be_bytes(number),
        total: u32::from_be_bytes(total),
        offset: u32::from_be_bytes(offset),
        bytes,
    })
}

fn parse_size(body: &[u8]) -> Result<u16, Malformed> {
    body.first_chunk().map(|size| u16::from_be_bytes(*size)).ok_or(Malformed)
}

fn parse_piece(body: &[u8]) -> Option<Frame<'_>> {
    let (&number, rest) = body.split_first_chunk()?;
    let (&total, rest) = rest.split_first_chunk()?;
    let (&offset, bytes) = rest.split_first_chunk()?;
    let (total, offset) = (u16::from_be_bytes(total), u16::from_be_bytes(offset));
    Some(Frame::Piece { number: u64::from_be_bytes(number), total, offset, bytes })
}

fn parse_ack(body: &[u8]) -> Option<AckFrame<'_>> {
    let (&largest, rest) = body.split_first_chunk()?;
    let (&delay, rest) = rest.split_first_chunk()?;
    let (&granted, rest) = rest.split_first_chunk()?;
    let (&before, pairs) = rest.split_first_chunk()?;
    (pairs.len() % 4 == 0 && pairs.len() <= 4 * ACK_RANGES_MAX).then_some(AckFrame {
        largest: u64::from_be_bytes(largest),
        delay_ns: u32::from_be_bytes(delay),
        granted: u64::from_be_bytes(granted),
        before: u16::from_be_bytes(before),
        pairs,
    })
}

/// Appends a frame's type and length. Bodies fit a datagram, and so 16 bits.
#[inline]
fn push_head(out: &mut Vec<u8>, kind: u8, len: usize) {
    let [a, b] = (len as u16).to_be_bytes();
    out.extend_from_slice(&[kind, a, b]);
}

/// Appends a block.
#[inline]
pub(crate) fn push_block(out: &mut Vec<u8>, number: u64, parts: &[u8]) {
    push_head(out, BLOCK, 8 + parts.len());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(parts);
}

/// Appends the first frame of a block.
#[inline]
pub(crate) fn push_order(out: &mut Vec<u8>, count: u32) {
    push_head(out, ORDER, 4);
    out.extend_from_slice(&count.to_be_bytes());
}

/// Appends a message to a block.
#[inline]
pub(crate) fn push_message(out: &mut Vec<u8>, stream: u16, number: u32, bytes: &[u8]) {
    out.extend_from_slice(&message_head(stream, number, bytes.len()));
    out.extend_from_slice(bytes);
}

/// Returns the bytes before a message of `len` bytes in a block.
#[inline]
pub(crate) fn message_head(stream: u16, number: u32, len: usize) -> [u8; MESSAGE_HEAD] {
    let [a, b] = ((6 + len) as u16).to_be_bytes();
    let [c, d] = stream.to_be_bytes();
    let [e, f, g, h] = number.to_be_bytes();
    [MESSAGE, a, b, c, d, e, f, g, h]
}

/// Appends to a block the part of a message from `offset` on that has `len` bytes.
pub(crate) fn push_fragment(
    out: &mut Vec<u8>,
    (stream, number): (u16, u32),
    message: &[u8],
    offset: usize,
    len: usize,
) {
    push_head(out, FRAGMENT, FRAGMENT_HEAD - FRAME_HEAD + len);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    // Messages are at most 16 MiB.
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(&(offset as u32).to_be_bytes());
    out.extend_from_slice(&message[offset..offset + len]);
}

/// Appends a packet.
#[inline]
pub(crate) fn push_packet(out: &mut Vec<u8>, bytes: &[u8]) {
    push_head(out, PACKET, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a ping.
pub(crate) fn push_ping(out: &mut Vec<u8>) {
    push_head(out, PING, 0);
}

/// Appends a probe of a datagram of this length.
pub(crate) fn push_probe(out: &mut Vec<u8>, size: u16) {
    push_head(out, PROBE, 2);
    out.extend_from_slice(&size.to_be_bytes());
}

/// Appends the answer to a probe of this length.
pub(crate) fn push_answer(out: &mut Vec<u8>, size: u16) {
    push_head(out, ANSWER, 2);
    out.extend_from_slice(&size.to_be_bytes());
}

/// Appends the part of a block from `offset` on that has `len` bytes. Blocks fit a datagram, and so
/// 16 bits.
pub(crate) fn push_piece(out: &mut Vec<u8>, number: u64, block: &[u8], offset: usize, len: usize) {
    push_head(out, PIECE, PIECE_HEAD - FRAME_HEAD + len);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(block.len() as u16).to_be_bytes());
    out.extend_from_slice(&(offset as u16).to_be_bytes());
    out.extend_from_slice(&block[offset..offset + len]);
}

/// Appends the notice that the sender has ended the link.
pub(crate) fn push_close(out: &mut Vec<u8>) {
    push_head(out, CLOSE, 0);
}

/// Appends an acknowledgement of these ranges, newest first, and the grant.
pub(crate) fn push_ack(
    out: &mut Vec<u8>,
    delay_ns: u64,
    granted: u64,
    mut ranges: impl Iterator<Item = (u64, u64)>,
) {
    let start = out.len();
    push_head(out, ACK, 0);
    let (first, largest) = ranges.next().unwrap_or((0, 0));
    out.extend_from_slice(&largest.to_be_bytes());
    out.extend_from_slice(&u32::try_from(delay_ns).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&granted.to_be_bytes());
    // All numbers are within a window that is smaller than 2^16.
    out.extend_from_slice(&((largest - first) as u16).to_be_bytes());
    let mut above = first;
    for (first, last) in ranges.take(ACK_RANGES_MAX) {
        out.extend_from_slice(&((above - last - 1) as u16).to_be_bytes());
        out.extend_from_slice(&((last - first + 1) as u16).to_be_bytes());
        above = first;
    }
    let len = (out.len() - start - FRAME_HEAD) as u16;
    out[start + 1..start + FRAME_HEAD].copy_from_slice(&len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        let mut parts = Vec::new();
        push_order(&mut parts, 5);
        push_message(&mut parts, 7, 9, b"message");
        push_fragment(&mut parts, (8, 10), b"fragment", 2, 4);
        parts.extend_from_slice(&[99, 0, 2, 1, 1]);
        let mut out = Vec::new();
        push_ack(&mut out, 77, 1_000, [(90, 100), (80, 80), (1, 5)].into_iter());
        push_block(&mut out, 3, &parts);
        out.extend_from_slice(&[200, 0, 1, 5]);
        push_packet(&mut out, b"packet");
        push_ping(&mut out);
        push_probe(&mut out, 1_452);
        push_answer(&mut out, 8_972);
        push_piece(&mut out, 4, b"a block", 2, 3);
        out.extend_from_slice(&[PADDING, 1, 2, 3, 4]);

        let mut rest = &out[..];
        let Ok(Some(Frame::Ack(ack))) = next_frame(&mut rest) else { panic!("an acknowledgement") };
        assert_eq!((ack.largest, ack.delay_ns, ack.granted), (100, 77, 1_000));
        let ranges: Result<Vec<_>, _> = ack.ranges().collect();
        assert_eq!(ranges, Ok(vec![(90, 100), (80, 80), (1, 5)]));
        assert_eq!(next_frame(&mut rest), Ok(Some(Frame::Block { number: 3, parts: &parts })));
        assert_eq!(next_frame(&mut rest), Ok(Some(Frame::Unknown)));
        assert_eq!(next_frame(&mut rest), Ok(Some(Frame::Packet(b"packet"))));
        assert_eq!(next_frame(&mut rest), Ok(Some(Frame::Ping)));
        assert_eq!(next_frame(&mut rest), Ok(Some(Frame::Probe(1_452))));
        assert_eq!(next_frame(&mut rest), Ok(Some(Frame::Answer(8_972))));
        let piece = Frame::Piece { number: 4, total: 7, offset: 2, bytes: b"blo" };
        assert_eq!(next_frame(&mut rest), Ok(Some(piece)));
        assert_eq!(next_frame(&mut rest), Ok(None));

        let mut rest = &parts[..];
        assert_eq!(next_part(&mut rest), Ok(Some((Part::Order(5), 4))));
        let message = Part::Message { stream: 7, number: 9, bytes: b"message" };
        assert_eq!(next_part(&mut rest), Ok(Some((message, 13))));
        let fragment = Part::Fragment { stream: 8, number: 10, total: 8, offset: 2, bytes: b"agme" };
        assert_eq!(next_part(&mut rest), Ok(Some((fragment, 18))));
        assert_eq!(next_part(&mut rest), Ok(Some((Part::Unknown, 2))));
        assert_eq!(next_part(&mut rest), Ok(None));
    }

    #[test]
    fn the_longest_acknowledgement_fits_its_bound() {
        let mut out = Vec::new();
        push_ack(&mut out, 0, 0, (1..100).rev().map(|at| (2 * at, 2 * at)));
        assert_eq!(out.len(), ACK_LEN_MAX);
    }

    #[test]
    fn malformed_frames_are_found() {
        let ack = |largest: u8, before: u8, pairs: &[u8]| {
            let mut body = vec![0; 22];
            (body[7], body[21]) = (largest, before);
            body.extend_from_slice(pairs);
            let mut out = vec![ACK, 0, body.len() as u8];
            out.extend_from_slice(&body);
            let mut rest = &out[..];
            match next_frame(&mut rest) {
                Ok(Some(Frame::Ack(ack))) => ack.ranges().collect::<Result<Vec<_>, _>>(),
                _ => Err(Malformed),
            }
        };
        assert_eq!(ack(0, 0, &[]), Ok(vec![]));
        assert_eq!(ack(5, 4, &[]), Ok(vec![(1, 5)]));
        assert_eq!(ack(5, 5, &[]), Err(Malformed), "number 0");
        assert_eq!(ack(9, 1, &[0, 2, 0, 3]), Ok(vec![(8, 9), (3, 5)]));
        assert_eq!(ack(9, 1, &[0, 2, 0, 6]), Err(Malformed), "below 1");
        assert_eq!(ack(9, 1, &[0, 8, 0, 1]), Err(Malformed), "below 0");
        assert_eq!(ack(9, 1, &[0, 2, 0, 0]), Err(Malformed), "an empty range");
        assert_eq!(ack(9, 1, &[0, 2, 0]), Err(Malformed), "half a pair");
        for bytes in
            [&[BLOCK, 0, 3, 1, 1, 1][..], &[PACKET, 0, 2, 1], &[PING, 0], &[MESSAGE, 0, 0], &[PROBE, 0, 1, 1]]
        {
            assert_eq!(next_frame(&mut &bytes[..]), Err(Malformed));
        }
        for bytes in
            [&[MESSAGE, 0, 5, 1, 1, 1, 1, 1][..], &[FRAGMENT, 0, 1, 1], &[ORDER, 0, 1, 1], &[PING, 0, 0]]
        {
            assert_eq!(next_part(&mut &bytes[..]), Err(Malformed));
        }
    }
}
