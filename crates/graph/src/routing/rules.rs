//! Routes and the fast path: a rule covers the path of its flow.

use nf::Verdict;
use nf::record::{FlowRecords, RecordHeader};
use packet::{Direction, DropReason, Packet, Side};

use super::{Journey, Routing};
use crate::cache::TakenPath;
use crate::topology::{Hop, NfSet};

impl Routing {
    /// Packets on the fast path, all of this side and of one program, take their flow's route:
    /// their ports are set. `visits`: true if the program takes them to functions.
    pub fn follow(
        &mut self,
        side: Side,
        visits: bool,
        packets: &mut [Packet],
        verdicts: &[Verdict],
        records: &FlowRecords,
    ) {
        let (notes, keeps) = (visits || self.topology.reads().attributes, self.has_keepers());
        for (at, (packet, verdict)) in packets.iter_mut().zip(verdicts).enumerate() {
            let transit = &mut packet.meta_mut().transit;
            if !verdict.is_forward() || transit.side != side {
                continue;
            }
            let header = records.header(transit.flow);
            let Some(route) = records.state(transit.flow, self.part) else { continue };
            transit.egress = if side == header.origin() { route.to } else { route.from };
            let visited = NfSet(route.path);
            if keeps && self.is_kept_by_timeouts(visited) {
                self.keep(packet, header);
            }
            if notes {
                self.journeys[at] = Journey::known(visited, header);
            }
        }
    }

    /// The path of the next packet is noted.
    pub fn trace_next(&mut self) {
        self.trace.clear();
        self.is_tracing = true;
    }

    /// Returns the path of the packet that was traced, with this verdict.
    pub fn taken(&mut self, verdict: Verdict) -> TakenPath<'_> {
        self.is_tracing = false;
        let drop = match verdict {
            Verdict::Drop(reason @ (DropReason::Policy | DropReason::PolicyUnmatched)) => Some(reason),
            _ => None,
        };
        TakenPath { stages: self.journeys[0].visited, edges: &self.trace, drop, reads: self.topology.reads() }
    }

    /// Returns the path that a packet of a known flow will take; none if filters decide.
    pub fn expected(&mut self, packet: &Packet, records: &FlowRecords) -> Option<TakenPath<'_>> {
        let transit = packet.meta().transit;
        let header = records.header(transit.flow);
        let (side, origin) = (transit.side, header.origin());
        let route = self.route(transit.flow, records);
        let path = route.path().filter(|_| !header.has(RecordHeader::FLAG_TURNS))?;
        let asks = transit.direction == Direction::Original && side == origin;
        let entry = self.topology.entry_reads(transit.ingress);
        let behind = || path.iter().any(|stage| self.topology.branch_reads(stage, side).is_any());
        if asks && (entry.is_any() || behind()) || side != origin && route.is_one_way() {
            return None;
        }
        self.trace.clear();
        let mut rest = path;
        let mut hop = route.hop(rest, side, origin);
        self.trace.push(self.topology.entry_edge_to(transit.ingress, side, self.stop(hop))?);
        while let Hop::Stage(stage) = hop {
            rest = rest.after(stage, side);
            hop = route.hop(rest, side, origin);
            self.trace.push(self.topology.edge_to(stage, side, self.stop(hop))?);
        }
        Some(TakenPath { stages: path, edges: &self.trace, drop: None, reads: self.topology.reads() })
    }
}
