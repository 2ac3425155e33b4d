//! Incomplete lines and messages in the growing buffers of flows.

use applayer::http::LineBuffer;
use nf::FlowBuffer;

/// Adapter from a flow's buffer to the line reader of a protocol, for a line or message of limited
/// length.
pub struct FlowLine {
    pub kept: FlowBuffer,
    len_max: usize,
}

impl FlowLine {
    /// Wraps a flow's buffer.
    pub fn new(kept: FlowBuffer, len_max: usize) -> Self {
        FlowLine { kept, len_max }
    }
}

impl LineBuffer for FlowLine {
    fn as_slice(&self) -> &[u8] {
        self.kept.as_slice()
    }

    fn capacity(&self) -> usize {
        self.len_max
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        let room = self.len_max.saturating_sub(self.kept.as_slice().len());
        self.kept.push(&bytes[..bytes.len().min(room)])
    }

    fn clear(&mut self) {
        self.kept.clear();
    }
}
