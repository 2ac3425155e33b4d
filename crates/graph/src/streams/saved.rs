//! Streams in transfer to another unit: their state and queued bytes, serialized.

use super::{Reassembler, Streams};

/// Saved streams could not be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRestoreError {
    /// The bytes are not what [`Reassembler::save`] wrote.
    #[error("the saved streams are damaged at byte {0}")]
    Damaged(usize),
    /// There is no memory for the queued bytes.
    #[error("no memory for the bytes of the saved streams that wait")]
    NoMemory,
}

impl Reassembler {
    /// Appends the streams with all queued bytes to `out`, to continue elsewhere.
    pub fn save(&self, streams: &Streams, out: &mut Vec<u8>) {
        self.tcp.save(streams, out);
    }

    /// Appends a flow's streams and incomplete datagrams; nothing for a flow without both.
    pub fn save_flow(&self, flow: u32, streams: &Streams, out: &mut Vec<u8>) {
        if *streams != Streams::default() || self.datagrams.has(flow) {
            self.save(streams, out);
            self.datagrams.save(flow, out);
        }
    }

    /// Restores saved streams. On an error, nothing is kept.
    ///
    /// # Errors
    /// The bytes are damaged, or memory lacks.
    pub fn restore(&mut self, saved: &[u8]) -> Result<Streams, StreamRestoreError> {
        let mut rest = Rest { saved, at: 0 };
        let mut streams = self.tcp.restore(&mut rest)?;
        if rest.is_empty() {
            return Ok(streams);
        }
        self.forget(&mut streams);
        Err(StreamRestoreError::Damaged(rest.at))
    }

    /// Restores the output of [`Reassembler::save_flow`] for the flow with this record. On an
    /// error, nothing is kept.
    ///
    /// # Errors
    /// The bytes are damaged, or memory lacks.
    pub fn restore_flow(&mut self, flow: u32, saved: &[u8]) -> Result<Streams, StreamRestoreError> {
        if saved.is_empty() {
            return Ok(Streams::default());
        }
        let mut rest = Rest { saved, at: 0 };
        let mut streams = self.tcp.restore(&mut rest)?;
        while !rest.is_empty() {
            let lost = &mut self.tcp.current_mut().counters.fragments_lost;
            if let Err(error) = self.datagrams.restore(flow, &mut rest, lost) {
                self.datagrams.forget(flow);
                self.forget(&mut streams);
                return Err(error);
            }
        }
        Ok(streams)
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
