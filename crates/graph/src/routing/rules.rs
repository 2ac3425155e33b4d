//! Routes and the fast path: a rule covers the path of its flow.

use nf::Verdict;
use nf::record::{FlowRecords, RecordHeader};
use packet::{Direction, DropReason, Packet, Side};

use super::{Journey, Routing};
use crate::cache::TakenPath;
use crate::topology::{Hop, NfSet};

impl Routing {
    /// Sets the ports of fast-path packets, all of this side and of one program, by their flows'
    /// routes. `visits`: true if functions of the program process them.
    pub fn follow(
        &mut self,
        side: Side,
        visits: bool,
        packets: &mut [Packet],
        verdicts: &[Verdict],
        records: &FlowRecords,
    ) {
        let (notes, keeps) = (visits || self.topology.reads().attributes, self.keepers.is_any());
        for (at, (packet, verdict)) in packets.iter_mut().zip(verdicts).enumerate() {
            let transit = &mut packet.meta_mut().transit;
            if !verdict.is_forward() || transit.side != side {
                continue;
            }
            let header = records.header(transit.flow);
            let route = self.routes.of(transit.flow, records);
            transit.egress = if side == header.origin() { route.to } else { route.from };
            let visited = NfSet(route.path);
            if keeps && self.keepers.are_elsewhere(visited) {
                self.keepers.keep(packet, header);
            }
            if notes {
                self.journeys[at] = Journey::known(visited, header);
            }
        }
    }

    /// Traces the path of the next packet.
    pub fn trace_next(&mut self) {
        self.log.begin_trace();
    }

    /// Returns the path of the packet that was traced, with this verdict.
    pub fn taken(&mut self, verdict: Verdict) -> TakenPath<'_> {
        let drop = match verdict {
            Verdict::Drop(reason @ (DropReason::Policy | DropReason::PolicyUnmatched)) => Some(reason),
            _ => None,
        };
        let stages = self.journeys[0].visited;
        TakenPath { stages, edges: self.log.end_trace(), drop, reads: self.topology.reads() }
    }

    /// Returns the path that a packet of a known flow will take; `None` if filters decide.
    pub fn expected(&mut self, packet: &Packet, records: &FlowRecords) -> Option<TakenPath<'_>> {
        let transit = packet.meta().transit;
        let header = records.header(transit.flow);
        let (side, origin) = (transit.side, header.origin());
        let route = self.routes.of(transit.flow, records);
        let path = route.path().filter(|_| !header.has(RecordHeader::FLAG_TURNS))?;
        let asks = transit.direction == Direction::Original && side == origin;
        let entry = self.topology.entry_reads(transit.ingress);
        let behind = || path.iter().any(|stage| self.topology.branch_reads(stage, side).is_any());
        if asks && (entry.is_any() || behind()) || side != origin && route.is_one_way() {
            return None;
        }
        let (topology, mut rest) = (&self.topology, path);
        let mut hop = route.hop(rest, side, origin);
        let entry = topology.entry_edge_to(transit.ingress, side, topology.stop(hop));
        let behind = std::iter::from_fn(|| {
            let Hop::Stage(stage) = hop else { return None };
            rest = rest.after(stage, side);
            hop = route.hop(rest, side, origin);
            Some(topology.edge_to(stage, side, topology.stop(hop)))
        });
        let edges = self.log.trace_path(std::iter::once(entry).chain(behind))?;
        Some(TakenPath { stages: path, edges, drop: None, reads: topology.reads() })
    }
}
