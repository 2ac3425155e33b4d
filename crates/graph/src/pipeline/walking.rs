//! The slow path: one packet, with its flow found or begun, through every function.

use nf::stage::PacketTotals;
use nf::{EndReason, Verdict};
use packet::{Direction, DropReason, Packet, PacketClass};

use super::{BatchRun, Pipeline};
use crate::cache::{FlowCache, TakenPath};
use crate::observer::EdgeChoice;
use crate::routing::Refusal;

impl Pipeline {
    /// Takes one packet through the graph, with its flow found or begun; whether it passed.
    pub fn walk(&mut self, mut packet: Packet, handle: Option<u32>, run: &mut BatchRun<'_, '_>) -> bool {
        let found = self.flows.find(&packet, &mut self.stages, run.pool);
        let begins = found.is_none();
        if let Err(Refusal { reason, edge }) = self.enter(&mut packet, found) {
            run.observe_edge(edge, EdgeChoice::Filters, &packet);
            self.drop_packet(packet, reason, run);
            return false;
        }
        let (record, direction) = match found {
            Some(found) => found,
            None => match self.flows.begin(&packet, handle, &mut self.stages, run.pool) {
                Ok(record) => (record, Direction::Original),
                Err(reason) => {
                    self.drop_packet(packet, reason, run);
                    return false;
                }
            },
        };
        let meta = packet.meta_mut();
        if matches!(meta.class, PacketClass::FirstFragment | PacketClass::LaterFragment)
            && let Some(reassembly) = &mut self.flows.reassembly
        {
            reassembly.datagrams_mut().0.begin();
        }
        meta.transit.flow = record;
        meta.transit.direction = direction;
        if let Some(routing) = &self.flows.routing
            && routing.take_attributes(meta, self.flows.table.records.header_mut(record))
        {
            self.flows.forget_rules(record);
        }
        self.flows.table.join(meta);
        if begins && let Some(routing) = &self.flows.routing {
            routing.begin_flow(record, meta.transit.ingress, &mut self.flows.table.records);
        }
        if let Some(ingresses) = &mut self.flows.table.ingresses {
            if begins {
                ingresses.forget(record);
            }
            ingresses.join(meta);
        }
        if begins && !self.flows.start(&packet, &run.parser, &mut self.stages, run.pool) {
            self.drop_packet(packet, DropReason::FunctionPanic, run);
            self.flows.end(record, EndReason::Rejected, &mut self.stages, run.pool);
            return false;
        }
        if (begins || packet.meta().class == PacketClass::IcmpError)
            && let Err(reason) = run.parser.sanity.check_addresses(&packet)
        {
            return self.settle(packet, Verdict::Drop(reason), run);
        }
        let is_observed = run.observer.is_some();
        // Many flows are over before a rule would be of use: one that begins is not recorded,
        // unless somebody looks.
        let begun = match &mut self.flows.cache {
            Some(cache) if is_observed || !begins => {
                cache.begin_recording(self.flows.table.records.header(record), &packet, is_observed)
            }
            _ => None,
        };
        if begun.is_some() {
            self.flows.routing.iter_mut().for_each(|routing| routing.trace_next());
        }
        let mut verdict = Verdict::Forward;
        let (packets, verdicts) = (std::slice::from_mut(&mut packet), std::slice::from_mut(&mut verdict));
        run.is_alone = true;
        self.cross(packets, verdicts, PacketTotals::by_side(packets, verdicts), None, run);
        run.is_alone = false;
        let Some(begun) = begun else { return self.settle(packet, verdict, run) };
        let has_tags = packet.meta().transit.tags == self.flows.table.records.header(record).tags;
        let repeats = self.flows.cache.as_mut().is_some_and(FlowCache::end_recording);
        let repeats = repeats && (!self.flows.table.joining.tags || has_tags);
        let (protocol, moves) = (packet.meta().protocol, packet.meta().transit.relearn_alias);
        let passed = self.settle(packet, verdict, run);
        let Some(cache) = &mut self.flows.cache else { return passed };
        let path = match &mut self.flows.routing {
            Some(routing) => routing.taken(verdict),
            None => TakenPath::LINE,
        };
        if moves {
            cache.expect_like(&begun, (record, direction));
        } else if passed == (verdict == Verdict::Forward) {
            let header = self.flows.table.records.header(record);
            let come = (protocol, verdict);
            cache.conclude(&self.stages.all, header, (begun, &path), (record, direction), come, repeats);
        }
        passed
    }

    /// A later fragment goes with its first one's flow.
    pub fn follow(&mut self, packet: Packet, handle: Option<u32>, run: &mut BatchRun<'_, '_>) {
        if self.flows.find(&packet, &mut self.stages, run.pool).is_none() {
            return self.drop_packet(packet, DropReason::FragmentOfDropped, run);
        }
        self.walk(packet, handle, run);
    }
}
