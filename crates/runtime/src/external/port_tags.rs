//! Tags at a port of an external node: from the graph's layout to that of frames, and back.

use std::sync::Arc;

use graph::{AttributeField, Graph};

use super::tags::{NodeTagField, TagCodec, TagFault};
use super::{External, NodeState};

/// The tags of the packets that leave and enter by a port of an external node.
#[derive(Clone, Debug)]
pub(crate) struct PortTags {
    codec: TagCodec,
    state: Arc<NodeState>,
    leaving: Vec<PlacedField>,
    entering: Vec<PlacedField>,
}

/// An attribute's place in frames and in the graph.
#[derive(Clone, Debug)]
struct PlacedField {
    of_frame: NodeTagField,
    of_graph: AttributeField,
}

impl PortTags {
    /// Returns the tags of a port, if it is one of the node's and any travel.
    pub(crate) fn of(node: &External, state: &Arc<NodeState>, port: u16, graph: &Graph) -> Option<PortTags> {
        let side = node.ports.iter().position(|of| *of == port)?;
        let codec = node.tags.codec(side)?;
        let placed = |way: usize, is_leaving: bool| {
            let fields =
                node.tags.fields.iter().filter(|field| field.ways[way] && !(is_leaving && field.is_own));
            let placed = fields.filter_map(|field| {
                let of_graph = graph.branches()?.attribute_field(field.owner, &field.name)?;
                Some(PlacedField { of_frame: field.clone(), of_graph })
            });
            placed.collect()
        };
        // Packets from inside leave by the inner port, and come back by the outer one.
        let (leaving, entering) = (placed(side, true), placed(1 - side, false));
        Some(PortTags { codec, state: Arc::clone(state), leaving, entering })
    }

    /// Returns those of a packet's tags that go to the program, or past it.
    pub(crate) fn passing(&self, tags: u64) -> u64 {
        self.leaving.iter().fold(0, |mask, field| mask | field.of_graph.put(u64::MAX)) & tags
    }

    /// Writes a frame with the tag for the program to `out`. Returns false if that is not possible.
    pub(crate) fn write(&self, frame: &[u8], tags: u64, entropy: u64, out: &mut Vec<u8>) -> bool {
        let all = self.leaving.iter();
        let tag = all.fold(0, |tag, field| tag | field.of_frame.put(field.of_graph.get(tags)));
        self.codec.write(frame, tag, entropy, out)
    }

    /// Returns the packet in a frame of the program, and its tags in the graph; no tags if there is
    /// no packet. Counts faults.
    pub(crate) fn read<'f>(&self, frame: &'f [u8], untagged: &'f mut Vec<u8>) -> (&'f [u8], Option<u64>) {
        let (packet, tag) = self.codec.read(frame, untagged);
        let tag = tag.or_else(|fault| {
            self.state.count_fault(fault);
            if fault == TagFault::NoPacket { Err(fault) } else { Ok(0) }
        });
        let all = self.entering.iter();
        let tags =
            tag.map(|tag| all.fold(0, |tags, field| tags | field.of_graph.put(field.of_frame.get(tag))));
        (packet, tags.ok())
    }
}
