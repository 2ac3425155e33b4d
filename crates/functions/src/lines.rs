//! Incomplete lines and messages in the growing buffers of flows.

use applayer::http::LineBuffer;
use nf::FlowBuffer;

/// Adapter from a flow's buffer to the line reader of a protocol, for a line or message of at most
/// `MAX` bytes.
pub struct FlowLine<const MAX: usize>(pub FlowBuffer);

impl<const MAX: usize> FlowLine<MAX> {
    /// Wraps a flow's buffer.
    pub fn new(kept: FlowBuffer) -> Self {
        FlowLine(kept)
    }
}

impl<const MAX: usize> LineBuffer for FlowLine<MAX> {
    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn capacity(&self) -> usize {
        MAX
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        let room = MAX.saturating_sub(self.0.as_slice().len());
        self.0.push(&bytes[..bytes.len().min(room)])
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
