//! The handles of a batch's packets: the dispatcher's numbers of their flows.

use packet::Packet;

/// The handles of the flows of a batch, if the caller passed any.
#[derive(Default)]
pub(super) struct BatchHandles(Vec<(u64, u32)>);

impl BatchHandles {
    /// Begins a batch without handles.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Begins a batch with one handle for each packet.
    pub fn set(&mut self, batch: &[Packet], handles: &[u32]) {
        self.0.clear();
        let sequences = batch.iter().map(|packet| packet.meta().transit.sequence);
        self.0.extend(sequences.zip(handles.iter().copied()));
    }

    /// Returns the handle of a packet's flow.
    pub fn of(&self, packet: &Packet) -> Option<u32> {
        let sequence = packet.meta().transit.sequence;
        self.0.iter().find(|&&(of, _)| of == sequence).map(|&(_, handle)| handle)
    }
}
