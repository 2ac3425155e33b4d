//! The functions of a pipeline, their output other than packets, and their cost.

use nf::stage::Stage;
use nf::{AffinityGroup, AffinityGroups, Effects, SharedHandle, Verdict};
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
    /// Reads the processor's cycle counter, if cycles are measured.
    clock: Option<fn() -> u64>,
    /// For each function, the cycles spent in it.
    cycles: Vec<u64>,
    /// For each function, its packets on the slow path.
    walked: Vec<Walked>,
}

/// The numbers of alerts, events and flow reports at the beginning of a group.
#[derive(Clone, Copy)]
pub(crate) struct OutputMark {
    alerts: usize,
    events: usize,
    reports: usize,
}

/// The functions and their measurements, to be divided between two cores.
pub(crate) struct StageParts<'s> {
    pub all: &'s mut [Box<dyn Stage>],
    pub effects: &'s mut Effects,
    pub cycles: &'s mut [u64],
    pub clock: Option<fn() -> u64>,
}

impl Stages {
    /// Creates the functions, which have their parts of records already.
    pub fn new(all: Vec<Box<dyn Stage>>, clock: Option<fn() -> u64>) -> Stages {
        let (cycles, walked) = (vec![0; all.len()], vec![Walked::default(); all.len()]);
        Stages { all, effects: Effects::default(), clock, cycles, walked }
    }

    /// Returns the functions and their measurements one by one.
    pub fn parts(&mut self) -> StageParts<'_> {
        let Stages { all, effects, cycles, clock, .. } = self;
        StageParts { all, effects, cycles, clock: *clock }
    }

    /// Returns the cycles spent in each function.
    pub fn cycles(&self) -> &[u64] {
        &self.cycles
    }

    /// Returns the packets of each function on the slow path.
    pub fn walked(&self) -> &[Walked] {
        &self.walked
    }

    /// Returns true if packets that functions cannot judge may pass all of these.
    pub fn pass_unjudged(&self) -> bool {
        self.all.iter().all(|stage| stage.forwards_unclassified())
    }

    /// Returns what each function's flows share, for graphs of the same functions on other threads.
    pub fn share(&mut self) -> Vec<SharedHandle> {
        self.all.iter_mut().map(|stage| stage.share()).collect()
    }

    /// Shares state with the functions that returned this.
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

    /// Returns the output at the beginning of a group.
    #[inline(always)]
    pub fn output_mark(&self) -> OutputMark {
        let Effects { alerts, events, reports, .. } = &self.effects;
        OutputMark { alerts: alerts.len(), events: events.len(), reports: reports.len() }
    }

    /// Completes the output of a group: alerts and events get the order of packets and functions,
    /// flow reports the order of packets.
    #[inline(always)]
    pub fn complete_output(&mut self, before: OutputMark, packets: &[Packet], verdicts: &[Verdict]) {
        let now = self.output_mark();
        if (now.alerts, now.events) != (before.alerts, before.events) {
            self.put_in_order(before, packets, verdicts);
        }
        if now.reports != before.reports {
            self.effects.put_reports_in_order(before.reports);
        }
    }

    /// Puts alerts and events in order, and notes which alerts' packets were dropped.
    #[cold]
    fn put_in_order(&mut self, before: OutputMark, packets: &[Packet], verdicts: &[Verdict]) {
        self.effects.put_in_order(before.alerts, before.events);
        for alert in &mut self.effects.alerts[before.alerts..] {
            let packet = packets.iter().position(|packet| packet.meta().transit.sequence == alert.sequence);
            alert.has_packet = true;
            alert.blocked = packet.is_some_and(|i| matches!(verdicts[i], Verdict::Drop(_)));
        }
    }

    /// Returns the cycle counter before a function runs, if cycles are measured.
    #[inline(always)]
    pub fn started(&self) -> Option<u64> {
        self.clock.map(|clock| clock())
    }

    /// Adds the cycles since `started` to those of a function, which processed n packets itself.
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

    /// Adds the cycles since `started` to those of a function.
    #[inline(always)]
    pub fn count_cycles(&mut self, stage: usize, started: Option<u64>) {
        if let (Some(clock), Some(started)) = (self.clock, started) {
            self.cycles[stage] += clock().wrapping_sub(started);
        }
    }
}
