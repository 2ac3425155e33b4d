//! TCP: from segments in order of arrival to the bytes of streams in order.

mod acknowledging;
mod delivering;
mod expected;
mod holding;
mod judging;
mod opening;
mod saving;

use packet::DropReason;
use packet::memory::OutOfMemory;

use super::current::Current;
use super::early::EarlyBytes;
use super::pieces::Pieces;
use super::sent::SentBytes;
use super::{Half, Segment, StreamOptions, Streams, doubt};

/// Adds segments to the streams of their flows.
pub(super) struct TcpStreams {
    current: Current,
    early: EarlyBytes,
    sent: SentBytes,
    pieces: Pieces,
}

impl TcpStreams {
    /// Creates streams with memory as the options say.
    pub fn new(options: StreamOptions) -> Result<TcpStreams, OutOfMemory> {
        Ok(TcpStreams {
            early: EarlyBytes::new(&options)?,
            sent: SentBytes::new(&options)?,
            pieces: Pieces::default(),
            current: Current::new(options),
        })
    }

    /// Returns the state of the current packet.
    #[inline]
    pub fn current(&self) -> &Current {
        &self.current
    }

    /// Returns the state of the current packet, to be changed.
    #[inline]
    pub fn current_mut(&mut self) -> &mut Current {
        &mut self.current
    }

    /// Returns the out-of-order queues.
    pub fn early(&self) -> &EarlyBytes {
        &self.early
    }

    /// Returns the unacknowledged bytes.
    pub fn sent(&self) -> &SentBytes {
        &self.sent
    }

    /// Returns the pieces of the group.
    #[inline]
    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Returns the pieces of the group, to be changed.
    #[inline]
    pub fn pieces_mut(&mut self) -> &mut Pieces {
        &mut self.pieces
    }

    /// Begins a group of packets: the pieces of the last one are gone.
    pub fn begin_group(&mut self) {
        let TcpStreams { pieces, early, .. } = self;
        pieces.begin_group(|block| early.free(block));
    }

    /// Removes all queued and unacknowledged bytes of a flow.
    pub fn forget(&mut self, streams: &mut Streams) {
        for half in &mut streams.halves {
            self.release(half);
        }
    }

    /// Adds a segment of the current packet to its streams.
    pub fn segment(&mut self, segment: &Segment<'_>, streams: &mut Streams) {
        if self.take_expected(segment, streams) {
            return;
        }
        let direction = segment.direction;
        let from = direction.index();
        for half in &mut streams.halves {
            if half.held != 0 {
                self.early.look_for_loss(half, &mut self.current);
            }
        }
        if segment.flags & (Segment::SYN | Segment::RST | Segment::ACK) == 0 {
            self.current.counters.refused += 1; // Hosts drop it (RFC 9293 3.10.7.4).
            return self.current.keep_out(DropReason::StreamIgnored);
        }
        let damaged = segment.intact == Some(false) && streams.halves[from].has(Half::INTACT);
        if damaged {
            self.current.counters.damaged += 1;
        } else if segment.ignored {
            self.current.counters.ignored += 1;
        }
        if damaged || segment.ignored {
            self.current.keep_out(DropReason::StreamIgnored);
            if segment.flags & (Segment::SYN | Segment::RST) != 0 || self.current.options().inline {
                return;
            }
        }
        let is_syn = segment.has(Segment::SYN) && !segment.has(Segment::RST);
        if is_syn && !self.open(segment, streams) {
            if segment.len > 0 {
                self.current.keep_out(DropReason::StreamIgnored);
            }
            return;
        }
        // Hosts take neither bytes nor the end of a reset.
        let brings = (segment.len > 0 || segment.has(Segment::FIN)) && !segment.has(Segment::RST);
        let mut doubt = if damaged { doubt::IGNORED } else { self.doubt(segment, streams) };
        if segment.has(Segment::RST) {
            return if doubt == doubt::IGNORED {
                self.current.keep_out(DropReason::StreamIgnored);
            } else {
                self.reset(segment, streams);
            };
        }
        let acknowledged = segment.acknowledged().filter(|_| doubt < doubt::IGNORED);
        if acknowledged.is_some_and(|number| !self.has_sent(&streams.halves[1 - from], number)) {
            doubt = doubt::IGNORED;
        }
        if self.current.options().inline && brings && doubt > doubt::NONE {
            return self.current.keep_out(DropReason::StreamIgnored);
        }
        let is_certain = brings && doubt == doubt::NONE && !segment.has(Segment::SYN);
        let is_first_said = is_certain && streams.go_on(segment);
        if self.current.options().inline
            && brings
            && !self.sent.compare(segment, &mut streams.halves[from], &mut self.current)
        {
            return;
        }
        if let Some(acknowledged) = acknowledged
            && doubt < doubt::IGNORED
        {
            self.acknowledge(direction.other(), acknowledged, &mut streams.halves[1 - from]);
            let scale = streams.halves[from].scale;
            streams.offer(segment, scale);
        }
        let half = &mut streams.halves[from];
        if acknowledged.is_some() && doubt < doubt::IGNORED {
            half.flags |= Half::OVER_SYN;
        }
        if doubt == doubt::NONE {
            self.note_options(segment, half);
        }
        if half.has(Half::BEGUN) && brings {
            self.receive(segment, doubt, half);
        }
        if is_first_said {
            self.trust(direction, &mut streams.halves[from]);
        }
    }
}
