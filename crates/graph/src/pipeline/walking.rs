//! The slow path: one packet, with its flow found or begun, through every function.

use nf::stage::PacketTotals;
use nf::{EndReason, Verdict};
use packet::{Direction, DropReason, Packet, PacketClass};

use super::traversal::Traversal;
use super::{BatchRun, Pipeline};
use crate::cache::{FlowCache, TakenPath};
use crate::observer::EdgeChoice;
use crate::routing::Refusal;

impl Pipeline {
    /// Takes one packet through the graph, with its flow found or begun. Returns true if it passed.
    pub fn walk(&mut self, mut packet: Packet, handle: Option<u32>, run: &mut BatchRun<'_, '_>) -> bool {
        let Traversal { flows, stages, .. } = &mut self.traversal;
        let found = flows.find(&packet, stages, run.pool);
        let begins = found.is_none();
        if let Err(Refusal { reason, edge }) = self.traversal.enter(&mut packet, found) {
            run.observe_edge(edge, EdgeChoice::Filters, &packet);
            self.traversal.exit.drop_packet(packet, reason, run);
            return false;
        }
        let Traversal { flows, stages, exit, .. } = &mut self.traversal;
        let (record, direction) = match found {
            Some(found) => found,
            None => match flows.begin(&packet, handle, stages, run.pool) {
                Ok(record) => (record, Direction::Original),
                Err(reason) => {
                    exit.drop_packet(packet, reason, run);
                    return false;
                }
            },
        };
        let meta = packet.meta_mut();
        if matches!(meta.class, PacketClass::FirstFragment | PacketClass::LaterFragment)
            && let Some(reassembly) = &mut flows.reassembly
        {
            reassembly.datagrams_mut().0.begin();
        }
        meta.transit.flow = record;
        meta.transit.direction = direction;
        if let Some(routing) = &flows.routing
            && routing.brought().take(meta, flows.table.records.header_mut(record))
        {
            flows.forget_rules(record);
        }
        flows.table.join(meta);
        if begins && let Some(routing) = &flows.routing {
            routing.routes().begin(record, meta.transit.ingress, &mut flows.table.records);
        }
        if let Some(ingresses) = &mut flows.table.ingresses {
            if begins {
                ingresses.forget(record);
            }
            ingresses.join(meta);
        }
        if begins && !flows.start(&packet, &run.parser, stages, run.pool) {
            exit.drop_packet(packet, DropReason::FunctionPanic, run);
            flows.end(record, EndReason::Rejected, stages, run.pool);
            return false;
        }
        if (begins || packet.meta().class == PacketClass::IcmpError)
            && let Err(reason) = run.parser.sanity.check_addresses(&packet)
        {
            return self.settle(packet, Verdict::Drop(reason), run);
        }
        let is_observed = run.observer.is_some();
        // Many flows end before a rule would pay: a flow's first packet is not recorded, unless it
        // is observed.
        let begun = match &mut flows.cache {
            Some(cache) if is_observed || !begins => {
                cache.begin_recording(flows.table.records.header(record), &packet, is_observed)
            }
            _ => None,
        };
        if begun.is_some() {
            flows.routing.iter_mut().for_each(|routing| routing.trace_next());
        }
        let mut verdict = Verdict::Forward;
        let (packets, verdicts) = (std::slice::from_mut(&mut packet), std::slice::from_mut(&mut verdict));
        run.is_alone = true;
        self.cross(packets, verdicts, PacketTotals::by_side(packets, verdicts), None, run);
        run.is_alone = false;
        let Some(begun) = begun else { return self.settle(packet, verdict, run) };
        let flows = &mut self.traversal.flows;
        let has_tags = packet.meta().transit.tags == flows.table.records.header(record).tags;
        let repeats = flows.cache.as_mut().is_some_and(FlowCache::end_recording);
        let repeats = repeats && (!flows.table.joining.tags || has_tags);
        let (protocol, moves) = (packet.meta().protocol, packet.meta().transit.relearn_alias);
        let passed = self.settle(packet, verdict, run);
        let Traversal { flows, stages, .. } = &mut self.traversal;
        let Some(cache) = &mut flows.cache else { return passed };
        let path = match &mut flows.routing {
            Some(routing) => routing.taken(verdict),
            None => TakenPath::LINE,
        };
        if moves {
            cache.expect_like(&begun, (record, direction));
        } else if passed == (verdict == Verdict::Forward) {
            let header = flows.table.records.header(record);
            let come = (protocol, verdict);
            cache.conclude(&stages.all, header, (begun, &path), (record, direction), come, repeats);
        }
        passed
    }

    /// Takes a later fragment through the graph, with the flow of its first one.
    pub fn follow(&mut self, packet: Packet, handle: Option<u32>, run: &mut BatchRun<'_, '_>) {
        let Traversal { flows, stages, exit, .. } = &mut self.traversal;
        if flows.find(&packet, stages, run.pool).is_none() {
            return exit.drop_packet(packet, DropReason::FragmentOfDropped, run);
        }
        self.walk(packet, handle, run);
    }
}
