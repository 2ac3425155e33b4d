//! Groups on their way through: by side, and packets with different paths one path after another.

use nf::Verdict;
use nf::stage::PacketTotals;
use packet::{Packet, Side};

use super::edges::EdgeRun;
use super::path_order::PathOrder;
use super::steps::StepRun;
use super::traversal::GroupCrossing;
use super::{BatchRun, Pipeline};
use crate::cache::{Path, ProgramId};

impl Pipeline {
    /// Takes packets through the functions, or through the steps of a program: those from inside
    /// first. `verdicts` has the decision about each.
    #[inline(never)]
    pub fn cross(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        loads: [PacketTotals; 2],
        program: Option<ProgramId>,
        run: &mut BatchRun<'_, '_>,
    ) {
        let before = self.traversal.stages.output_mark();
        self.cross_sides(packets, verdicts, loads, program, run);
        self.traversal.stages.complete_output(before, packets, verdicts);
    }

    /// Processes packets with different paths: first the fast-path packets, program by program,
    /// then the slow-path ones. A flow's packets stay in order because none takes the fast path
    /// after the slow path.
    #[inline(never)]
    pub fn cross_mixed(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        paths: &[Path],
        run: &mut BatchRun<'_, '_>,
    ) {
        let before = self.traversal.stages.output_mark();
        let order = PathOrder::by_path(paths);
        order.arrange(packets); // All verdicts are the same so far.
        let mut begin = 0;
        while let Some(&first) = order.places().get(begin..packets.len()).and_then(<[u8]>::first) {
            let path = paths[usize::from(first)];
            let is_its = |&&place: &&u8| paths[usize::from(place)] == path;
            let end = begin + order.places()[begin..packets.len()].iter().take_while(is_its).count();
            let (own, decided) = (&mut packets[begin..end], &mut verdicts[begin..end]);
            let loads = PacketTotals::by_side(own, decided);
            self.cross_sides(own, decided, loads, path.program(), run);
            begin = end;
        }
        order.put_back(packets);
        if verdicts.iter().any(|verdict| !verdict.is_forward()) {
            order.put_back(verdicts);
        }
        self.traversal.stages.complete_output(before, packets, verdicts);
    }

    /// Takes the forwarded packets of each side through.
    #[inline(always)]
    fn cross_sides(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        loads: [PacketTotals; 2],
        program: Option<ProgramId>,
        run: &mut BatchRun<'_, '_>,
    ) {
        for side in [Side::Inside, Side::Outside] {
            let load = loads[side as usize];
            let mut crossing = GroupCrossing::new(side, load);
            if load.packets > 0 {
                let traversal = &mut self.traversal;
                match program {
                    Some(program) => {
                        let mut steps = StepRun::new(traversal, self.sides.as_deref_mut());
                        steps.follow(program, &mut crossing, packets, verdicts, run);
                    }
                    None if traversal.flows.routing.is_some() => {
                        let edges = EdgeRun::new(traversal, &mut self.known_groups, side);
                        edges.cross(&mut crossing, packets, verdicts, run);
                    }
                    None => traversal.cross_line(&mut crossing, packets, verdicts, run),
                }
            }
        }
        if self.traversal.has_turned() {
            self.traversal.turn_all_back(packets, verdicts, run);
        }
    }
}
