//! Figures of a unit at another node, for the report of its dispatcher: a graph's counters other
//! than packets, bytes and drops, as numbers in an order that follows from the policy alone.

use std::collections::BTreeMap;
use std::hash::Hasher;

use graph::streams::StreamCounters;
use graph::{FlowClass, Graph};
use telemetry::{CountKind, Counts, Merge};

use super::flows::FlowsReport;
use super::{EdgeReport, FunctionReport, Report, edge, function};

/// Limit on the numbers of a graph's figures. Further ones, of rules and pools, are left out.
pub const FIGURES_MAX: usize = 1 << 18;

/// Figures of a graph. Those of graphs of the same policy can be added.
#[derive(Clone)]
pub struct Figures {
    functions: Vec<FunctionReport>,
    edges: BTreeMap<String, EdgeReport>,
    flows: FlowsReport,
    streams: Option<StreamCounters>,
    /// Alerts and events that were raised.
    raised: [u64; 2],
    /// Alerts, events, flow reports and generated packets that were lost.
    lost: [u64; 4],
}

impl Figures {
    /// Returns those of a graph.
    pub fn of(graph: &Graph) -> Figures {
        let (counters, effects) = (graph.counters(), graph.effects());
        let names = vec![String::new(); graph.stages().len()];
        let mut flows = FlowsReport::of(&counters, graph);
        // Zeros are left out of a report.
        FlowClass::ALL.iter().for_each(|class| _ = flows.evicted.entry(class.name()).or_default());
        // Others count these.
        (flows.started, flows.live, flows.size) = (0, 0, 0);
        Figures {
            functions: function::of_all(graph, &names),
            edges: edge::of_all_edges(graph),
            flows,
            streams: graph.report().has_streams().then_some(counters.streams),
            raised: [0; 2],
            lost: [effects.alerts_lost, effects.events.lost(), effects.reports_lost, effects.not_generated],
        }
    }

    /// Adds the alerts and events that were raised.
    #[must_use]
    pub fn with_raised(self, raised: [u64; 2]) -> Figures {
        Figures { raised, ..self }
    }

    /// Returns a hash of the form: figures of different forms cannot be added.
    pub fn form(&mut self) -> u64 {
        // FNV-1a: the same at all nodes.
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        let mut count = 0_u64;
        for function in &self.functions {
            hash.write(function.kind.as_bytes());
            let counters = function.counters.keys();
            counters.for_each(|name| hash.write(name.as_bytes()));
            hash.write_usize(function.rules.len());
            for rule in &function.rules {
                hash.write(rule.name.as_bytes());
            }
        }
        self.edges.keys().for_each(|name| hash.write(name.as_bytes()));
        self.visit(&mut |_, _| count += 1);
        hash.write_u64(count);
        hash.finish()
    }

    /// Returns the numbers.
    pub fn numbers(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        self.visit(&mut |_, number| numbers.push(*number));
        numbers.truncate(FIGURES_MAX);
        numbers
    }

    /// Sets the numbers; missing ones are zero.
    pub fn set(&mut self, numbers: &[u64]) {
        let mut numbers = numbers.iter().copied();
        self.visit(&mut |_, number| *number = numbers.next().unwrap_or(0));
    }

    /// Adds numbers of figures of this form to others. If their unit `has_gone`, current values are
    /// not added.
    pub fn add_numbers(&mut self, sum: &mut Vec<u64>, numbers: &[u64], has_gone: bool) {
        if sum.len() < numbers.len() {
            sum.resize(numbers.len(), 0);
        }
        let mut both = sum.iter_mut().zip(numbers);
        self.visit(&mut |kind, _| {
            let Some((sum, number)) = both.next() else { return };
            match kind {
                CountKind::Total => *sum = sum.saturating_add(*number),
                CountKind::Current if has_gone => {}
                CountKind::Current => *sum = sum.saturating_add(*number),
                CountKind::Latest => *sum = (*sum).max(*number),
            }
        });
    }

    /// Adds them to the report of a graph of the same functions.
    pub fn add_to(&self, report: &mut Report) {
        for (function, own) in report.functions.iter_mut().zip(&self.functions) {
            function.add_elsewhere(own);
        }
        let is_shown = |edge: &EdgeReport| edge.packets > 0;
        for (name, edge) in self.edges.iter().filter(|(_, edge)| is_shown(edge)) {
            report.edges.entry(name.clone()).or_default().merge(edge);
        }
        let mut flows = self.flows.clone();
        flows.evicted.retain(|_, count| *count > 0);
        report.flows.merge(&flows);
        report.streams.merge(&self.streams);
        let [alerts, events] = self.raised;
        report.alerts += alerts;
        report.events += events;
        let [alerts, events, flow_reports, packets] = self.lost;
        report.alerts_lost += alerts;
        report.events_lost += events;
        report.flow_reports_lost += flow_reports;
        report.packets_not_generated += packets;
    }

    fn visit(&mut self, visit: &mut dyn FnMut(CountKind, &mut u64)) {
        let kind = CountKind::Total;
        self.flows.visit_counts(kind, visit);
        self.streams.visit_counts(kind, visit);
        self.raised.iter_mut().chain(&mut self.lost).for_each(|count| visit(kind, count));
        self.edges.visit_counts(kind, visit);
        for function in &mut self.functions {
            function.visit_counts(kind, visit);
            function.visit_tables(visit);
        }
        // There may be many.
        for rule in self.functions.iter_mut().flat_map(|function| &mut function.rules) {
            rule.visit_counts(kind, visit);
            let mut last_hit_ns = rule.last_hit_ns.unwrap_or(0);
            visit(CountKind::Latest, &mut last_hit_ns);
            rule.last_hit_ns = Some(last_hit_ns).filter(|&at_ns| at_ns > 0);
        }
    }
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_be_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
