//! Streams on their way to another unit: where they stand, and what waits, as bytes.

use zerocopy::{FromBytes, IntoBytes};

use super::held::New;
use super::span::Span;
use super::{Half, HostPolicy, Reassembler, Streams, WINDOW_MAX};

/// The largest offset in a saved stream.
const OFFSET_MAX: u64 = 1 << 62;

/// Saved streams could not be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRestoreError {
    /// The bytes are not what [`Reassembler::save`] wrote.
    #[error("the saved streams are damaged at byte {0}")]
    Damaged(usize),
    /// There is no memory for what waits.
    #[error("no memory for the bytes of the saved streams that wait")]
    NoMemory,
}

impl Reassembler {
    /// Adds the streams with all that waits to `out`: they can go on from there elsewhere.
    pub fn save(&self, streams: &Streams, out: &mut Vec<u8>) {
        let mut fixed = *streams;
        for half in &mut fixed.halves {
            (half.held, half.held_bytes) = (0, 0);
            (half.sent, half.sent_last, half.sent_bytes) = (0, 0, 0);
        }
        out.extend_from_slice(fixed.as_bytes());
        for half in &streams.halves {
            let waiting = || self.held.list(self.held.head(half.held));
            out.extend_from_slice(&self.held.lists().lost_until(half.held).to_le_bytes());
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

    /// The same, and the flow's datagrams that are under way. Adds nothing for a flow without both.
    pub fn save_flow(&self, flow: u32, streams: &Streams, out: &mut Vec<u8>) {
        if *streams != Streams::default() || self.datagrams.has(flow) {
            self.save(streams, out);
            self.datagrams.save(flow, out);
        }
    }

    /// Takes over saved streams. On an error, nothing is kept.
    pub fn restore(&mut self, saved: &[u8]) -> Result<Streams, StreamRestoreError> {
        let mut rest = Rest { saved, at: 0 };
        let mut streams = self.restore_streams(&mut rest)?;
        if rest.is_empty() {
            return Ok(streams);
        }
        self.forget(&mut streams);
        Err(StreamRestoreError::Damaged(rest.at))
    }

    /// Takes over what [`Reassembler::save_flow`] wrote, for the flow that has this record here. On
    /// an error, nothing is kept.
    pub fn restore_flow(&mut self, flow: u32, saved: &[u8]) -> Result<Streams, StreamRestoreError> {
        if saved.is_empty() {
            return Ok(Streams::default());
        }
        let mut rest = Rest { saved, at: 0 };
        let mut streams = self.restore_streams(&mut rest)?;
        while !rest.is_empty() {
            let lost = &mut self.counters.fragments_lost;
            if let Err(error) = self.datagrams.restore(flow, &mut rest, lost) {
                self.datagrams.forget(flow);
                self.forget(&mut streams);
                return Err(error);
            }
        }
        Ok(streams)
    }

    fn restore_streams(&mut self, rest: &mut Rest<'_>) -> Result<Streams, StreamRestoreError> {
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
            let at = rest.at;
            let lost_until = u64::from_le_bytes(rest.array()?);
            // Out-of-order bytes lie within the window of the next one.
            let until = half.next + 2 * WINDOW_MAX as u64;
            if lost_until > until {
                return Err(StreamRestoreError::Damaged(at));
            }
            if lost_until > half.next {
                half.held = self.held.lists_mut().lose(lost_until, false);
            }
            // Nothing overlaps.
            let (mut from, mut is_lost) = (half.next, false);
            for _ in 0..u32::from_le_bytes(rest.array()?) {
                let at = rest.at;
                let offset = u64::from_le_bytes(rest.array()?);
                let span = Span {
                    from: u64::from_le_bytes(rest.array()?),
                    until: u64::from_le_bytes(rest.array()?),
                };
                let [doubt, fin] = rest.array()?;
                let fin = fin != 0;
                let len = u32::from_le_bytes(rest.array()?);
                let bytes = rest.take(len as usize)?;
                // What waits though it is next, is in doubt.
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
                // The last segment may exceed the limit by its own blocks.
                let is_short = half.held_bytes.saturating_add(len) > self.options.memory_per_stream
                    || self.held.lists().blocks(half.held) >= 2 * self.blocks_max();
                if is_lost || is_short {
                    is_lost = true;
                    continue;
                }
                let mut list = self.held.open(half.held, self.owner);
                let new = New { offset, bytes, span, doubt, fin };
                let inserted = self.held.insert(&mut list, new, HostPolicy::First);
                half.held = self.held.close(list);
                half.held_bytes += inserted.added;
                is_lost = !inserted.whole;
            }
            if is_lost {
                // There is no memory here: it gives way.
                self.held.forget(half.held);
                (half.held, half.held_bytes) = (self.held.lists_mut().lose(from.max(lost_until), true), 0);
            }
        }
        Ok(())
    }
}

/// The saved bytes that were not read yet.
pub(super) struct Rest<'a> {
    saved: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.saved.len()
    }

    /// Returns the number of bytes read.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], StreamRestoreError> {
        let taken = self.saved.get(self.at..).and_then(|rest| rest.get(..len));
        let taken = taken.ok_or(StreamRestoreError::Damaged(self.at))?;
        self.at += len;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], StreamRestoreError> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| StreamRestoreError::Damaged(at))
    }
}
