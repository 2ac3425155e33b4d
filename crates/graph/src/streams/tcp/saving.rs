//! Streams on their way to another unit: their state and queued bytes.

use zerocopy::{FromBytes, IntoBytes};

use super::TcpStreams;
use crate::streams::held::New;
use crate::streams::saved::{Rest, StreamRestoreError};
use crate::streams::span::Span;
use crate::streams::{Half, Streams, WINDOW_MAX};

/// The largest offset in a saved stream.
const OFFSET_MAX: u64 = 1 << 62;

impl TcpStreams {
    /// Appends the streams with all queued bytes to `out`, to continue elsewhere.
    pub fn save(&self, streams: &Streams, out: &mut Vec<u8>) {
        let mut fixed = *streams;
        for half in &mut fixed.halves {
            (half.held, half.held_bytes) = (0, 0);
            (half.sent, half.sent_last, half.sent_bytes) = (0, 0, 0);
        }
        out.extend_from_slice(fixed.as_bytes());
        for half in &streams.halves {
            let waiting = || self.early.list(half);
            out.extend_from_slice(&self.early.lost_until(half).to_le_bytes());
            out.extend_from_slice(&(waiting().count() as u32).to_le_bytes());
            for New { offset, bytes, span, doubt, fin } in waiting() {
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&span.from.to_le_bytes());
                out.extend_from_slice(&span.until.to_le_bytes());
                out.extend_from_slice(&[doubt, u8::from(fin)]);
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Reads saved streams. On an error, nothing is kept.
    pub(in crate::streams) fn restore(&mut self, rest: &mut Rest<'_>) -> Result<Streams, StreamRestoreError> {
        let fixed = rest.take(size_of::<Streams>())?;
        let mut streams = Streams::read_from_bytes(fixed).map_err(|_| StreamRestoreError::Damaged(0))?;
        if streams.halves.iter().any(|half| half.next > OFFSET_MAX) {
            return Err(StreamRestoreError::Damaged(0));
        }
        for half in &mut streams.halves {
            (half.held, half.held_bytes) = (0, 0);
            (half.sent, half.sent_last, half.sent_bytes) = (0, 0, 0);
        }
        let restored = self.restore_held(rest, &mut streams);
        if restored.is_err() {
            self.forget(&mut streams);
        }
        restored.map(|()| streams)
    }

    fn restore_held(&mut self, rest: &mut Rest<'_>, streams: &mut Streams) -> Result<(), StreamRestoreError> {
        for half in &mut streams.halves {
            let at = rest.at();
            let lost_until = u64::from_le_bytes(rest.array()?);
            // Out-of-order bytes lie within the window of the next one.
            let until = half.next + 2 * WINDOW_MAX as u64;
            if lost_until > until {
                return Err(StreamRestoreError::Damaged(at));
            }
            if lost_until > half.next {
                self.early.lose(lost_until, false, half);
            }
            // Nothing overlaps.
            let (mut from, mut is_lost) = (half.next, false);
            for _ in 0..u32::from_le_bytes(rest.array()?) {
                let at = rest.at();
                let offset = u64::from_le_bytes(rest.array()?);
                let span = Span {
                    from: u64::from_le_bytes(rest.array()?),
                    until: u64::from_le_bytes(rest.array()?),
                };
                let [doubt, fin] = rest.array()?;
                let fin = fin != 0;
                let len = u32::from_le_bytes(rest.array()?);
                let bytes = rest.take(len as usize)?;
                // Queued bytes that are next are doubtful.
                if offset < from
                    || offset == half.next && doubt == 0
                    || len == 0
                    || fin && len != 1
                    || offset.saturating_add(u64::from(len)) > until
                    || !half.has(Half::BEGUN)
                {
                    return Err(StreamRestoreError::Damaged(at));
                }
                from = offset + u64::from(len);
                let new = New { offset, bytes, span, doubt, fin };
                is_lost = is_lost || !self.early.restore(new, half, &self.current);
            }
            if is_lost {
                // Without memory here, it is evicted.
                self.early.lose(from.max(lost_until), true, half);
            }
        }
        Ok(())
    }
}
