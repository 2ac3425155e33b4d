//! The functions of a pipeline, what they put out beside packets, and what they cost.

use nf::stage::Stage;
use nf::{AffinityGroup, AffinityGroups, Effects, SharedHandle};
use packet::{Packet, Side};

/// Packets that a function processed on the slow path while cycles were counted, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Packets.
    pub packets: u64,
    /// Processor cycles.
    pub cycles: u64,
}

/// The functions, from the inside to the outside.
pub(crate) struct Stages {
    pub all: Vec<Box<dyn Stage>>,
    /// Their output other than packets.
    pub effects: Effects,
    /// A counter of processor cycles, to measure them with; none: they are not measured.
    pub clock: Option<fn() -> u64>,
    /// By function, cycles spent in it.
    pub cycles: Vec<u64>,
    /// By function: what packets took that went through it themselves, and not by a rule.
    pub walked: Vec<Walked>,
}

impl Stages {
    /// These functions, which have their parts of records already.
    pub fn new(all: Vec<Box<dyn Stage>>, clock: Option<fn() -> u64>) -> Stages {
        let (cycles, walked) = (vec![0; all.len()], vec![Walked::default(); all.len()]);
        Stages { all, effects: Effects::default(), clock, cycles, walked }
    }

    /// Returns true if packets that functions cannot judge may pass all of these.
    pub fn pass_unjudged(&self) -> bool {
        self.all.iter().all(|stage| stage.forwards_unclassified())
    }

    /// Returns what each function's flows share, for graphs of the same functions on other threads.
    pub fn share(&mut self) -> Vec<SharedHandle> {
        self.all.iter_mut().map(|stage| stage.share()).collect()
    }

    /// They have what they share in common with those that shared this.
    pub fn join(&mut self, commons: Vec<SharedHandle>) {
        self.all.iter_mut().zip(commons).for_each(|(stage, common)| stage.join(common));
    }

    /// Returns the affinity group of the flow that this packet begins: the first function on its
    /// way that names one decides.
    pub fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        match packet.meta().transit.side {
            Side::Inside => self.all.iter().find_map(|stage| stage.group_of(packet, groups)),
            Side::Outside => self.all.iter().rev().find_map(|stage| stage.group_of(packet, groups)),
        }
    }

    /// Adds the cycles since `started` to a function's, which processed `packets` packets itself.
    #[inline(always)]
    pub fn count_walk(&mut self, stage: usize, packets: u64, started: Option<u64>) {
        if let (Some(clock), Some(started)) = (self.clock, started) {
            let spent = clock().wrapping_sub(started);
            self.cycles[stage] += spent;
            let walked = &mut self.walked[stage];
            walked.packets += packets;
            walked.cycles += spent;
        }
    }

    /// Adds the cycles since `started` to a function's.
    #[inline(always)]
    pub fn count_cycles(&mut self, stage: usize, started: Option<u64>) {
        if let (Some(clock), Some(started)) = (self.clock, started) {
            self.cycles[stage] += clock().wrapping_sub(started);
        }
    }
}
