//! Lines and messages that are not complete yet, in growing buffers of flows.

use applayer::http::Line;
use nf::FlowBuffer;

/// A growing buffer as the readers of protocols want it: for a line or message of at most `MAX`
/// bytes.
pub struct FlowLine<const MAX: usize>(pub FlowBuffer);

impl<const MAX: usize> FlowLine<MAX> {
    /// What a flow keeps of it.
    pub fn new(kept: FlowBuffer) -> Self {
        FlowLine(kept)
    }
}

impl<const MAX: usize> Line for FlowLine<MAX> {
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
