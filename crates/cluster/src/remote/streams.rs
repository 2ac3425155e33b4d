//! The assignment of flows to the streams of links to units.

use nf::AffinityGroup;
use protocol::message::FlowId;

use crate::peers::stream_of;

/// The streams of flows. Flows of an affinity group share one, because the group's migration must
/// not overtake a packet of any of its flows; others have one by their number.
#[derive(Default)]
pub(super) struct Streams {
    /// By flow index; empty while no flow is in a group.
    flows: Vec<FlowStreams>,
}

/// The streams of a flow index; 0 stands for the stream by its number.
#[derive(Clone, Copy)]
struct FlowStreams {
    generation: u32,
    stream: u16,
    /// The stream of the former flow with this index.
    former: u16,
}

impl FlowStreams {
    /// The streams of an index that no flow has used.
    const NONE: FlowStreams = FlowStreams { generation: u32::MAX, stream: 0, former: 0 };
}

impl Streams {
    /// Assigns a stream to a new flow in this group.
    pub fn begin(&mut self, flow: FlowId, group: Option<AffinityGroup>) {
        let at = flow.index as usize;
        if group.is_some() && self.flows.len() <= at {
            self.flows.resize(at + 1, FlowStreams::NONE);
        }
        if let Some(streams) = self.flows.get_mut(at)
            && streams.generation != flow.generation
        {
            let stream = group.map_or(0, |group| stream_of(group.index() as u64));
            *streams = FlowStreams { generation: flow.generation, stream, former: streams.stream };
        }
    }

    /// Returns the stream of a flow.
    #[inline]
    pub fn of(&self, flow: FlowId) -> u16 {
        let by_number = || stream_of(flow.index.into());
        let Some(streams) = self.flows.get(flow.index as usize) else { return by_number() };
        let is_former = flow.generation < streams.generation;
        match if is_former { streams.former } else { streams.stream } {
            0 => by_number(),
            stream => stream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_a_group_have_one_stream_and_others_their_own() {
        let flow = |index, generation| FlowId { index, generation };
        let mut streams = Streams::default();
        streams.begin(flow(9, 1), None);
        assert_eq!(streams.of(flow(9, 1)), stream_of(9));
        let group = |number| Some(AffinityGroup(number));
        for index in [3, 700] {
            streams.begin(flow(index, 1), group(5));
            assert_eq!(streams.of(flow(index, 1)), stream_of(5));
        }
        assert_eq!(streams.of(flow(9, 1)), stream_of(9));
        // Messages about the former flow follow its packets.
        streams.begin(flow(3, 2), group(6));
        assert_eq!([1, 2].map(|generation| streams.of(flow(3, generation))), [stream_of(5), stream_of(6)]);
        streams.begin(flow(3, 3), None);
        assert_eq!([2, 3].map(|generation| streams.of(flow(3, generation))), [stream_of(6), stream_of(3)]);
    }
}
