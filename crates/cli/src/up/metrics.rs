//! A run's report as metrics, in the OpenMetrics text format: counters since the start, gauges of
//! now.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use packet::TunnelKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use runtime::Report;
use runtime::report::RuleReport;
use runtime::shards::Counters;

/// The report as OpenMetrics text, which Prometheus asks for.
pub fn open_text(report: &Arc<Report>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("rivulet");
    registry.register_collector(Box::new(Reported(Arc::clone(report))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The report in the text format of Prometheus (0.0.4), for whoever does not ask for OpenMetrics.
/// There a counter's help and type stand under the name that its samples have.
pub fn plain_text(report: &Arc<Report>) -> Result<String, fmt::Error> {
    let open = open_text(report)?;
    let counters: BTreeSet<&str> =
        open.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|&line| line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
            }
            _ => text.extend([line, "\n"]),
        }
    }
    Ok(text)
}

#[derive(Debug)]
struct Reported(Arc<Report>);

/// Names and values of labels.
type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// What is told, metric by metric.
struct Teller<'a>(DescriptorEncoder<'a>);

impl Teller<'_> {
    fn counter<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'a, N>, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.into_iter().try_for_each(|(labels, value)| {
            of(&mut metric, &labels, |metric| {
                metric.encode_counter::<[(&str, &str); 0], _, u64>(&value, None)
            })
        })
    }

    fn gauge<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'a, N>, f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        values
            .into_iter()
            .try_for_each(|(labels, value)| of(&mut metric, &labels, |metric| metric.encode_gauge(&value)))
    }
}

/// Encodes a value with its labels, if it has some.
fn of<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels<'_, N>,
    value: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if N == 0 { value(metric) } else { value(&mut metric.encode_family(labels)?) }
}

impl Collector for Reported {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (report, mut tell) = (&*self.0, Teller(encoder));
        whole(report, &mut tell)?;
        ports(report, &mut tell)?;
        interfaces(report, &mut tell)?;
        outputs(report, &mut tell)?;
        workers(report, &mut tell)?;
        functions(report, &mut tell)
    }
}

fn whole(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let version = env!("CARGO_PKG_VERSION");
    tell.gauge("build_info", "The program's version", [([("version", version)], 1.0)])?;
    tell.gauge("uptime_seconds", "Time since the start", [([], report.timing.seconds)])?;
    if let Some(polling) = report.timing.polling {
        tell.counter("rounds", "Rounds of receiving, processing and sending", [([], polling.rounds)])?;
        tell.counter("sleeps", "Rounds that ended with a sleep, as no frame came", [([], polling.sleeps)])?;
    }
    tell.counter("packets_made", "Packets that functions made", [([], report.packets_made)])?;
    tell.gauge(
        "packets_held",
        "Fragments that wait for their first one, or for the rest of their datagram",
        [([], report.packets_held as f64)],
    )?;
    let drops = report.drops.iter().map(|(&reason, &count)| ([("reason", reason)], count));
    tell.counter("packets_dropped", "Packets dropped, by reason", drops)?;
    tell.gauge("flows", "Flows in the table", [([], report.flows.live as f64)])?;
    tell.gauge("flows_max", "Flows that the table has room for", [([], report.flows.size as f64)])?;
    let by_class =
        report.flows.live_by_class.iter().map(|(&class, &count)| ([("class", class)], count as f64));
    tell.gauge("flows_by_class", "Flows in the table, by class", by_class)?;
    // Each class from the start: a rate needs the 0 before the first.
    let evicted = report
        .flows
        .live_by_class
        .keys()
        .map(|&class| ([("class", class)], report.flows.evicted.get(class).copied().unwrap_or(0)));
    tell.counter("flows_evicted", "Flows that gave way to others in a full table, by class", evicted)?;
    let over_source = [([], report.flows.evicted_over_source)];
    tell.counter("flows_evicted_over_source", "Of those, flows of sources above their share", over_source)?;
    let displaced = report.fragments_displaced.iter().map(|(&limit, &count)| ([("limit", limit)], count));
    tell.counter("fragments_displaced", "Fragmented datagrams that gave way to others", displaced)?;
    tell.counter("flows_started", "Flows that began", [([], report.flows.started)])?;
    let ended = report.flows.ended.iter().map(|(&reason, &count)| ([("reason", reason)], count));
    tell.counter("flows_ended", "Flows that ended, by reason", ended)?;
    // Each kind from the start, as above.
    let tunnels = TunnelKind::ALL.iter().map(|kind| {
        let name = kind.name();
        ([("kind", name)], report.tunnels_not_looked_into.get(name).copied().unwrap_or(0))
    });
    let help = "Flows that are tunnels which were not looked into, by kind";
    tell.counter("tunnels_not_looked_into", help, tunnels)?;
    tell.counter("restarts", "Panics outside of functions, after which it went on", [([], report.restarts)])?;
    tell.counter("alerts", "Alerts raised", [([], report.alerts)])?;
    let lost = [
        ([("what", "alerts")], report.alerts_lost),
        ([("what", "events")], report.events_lost),
        ([("what", "flow_reports")], report.flow_reports_lost),
        ([("what", "packets_to_be_made")], report.packets_unmade),
    ];
    tell.counter("lost", "What found no room", lost)?;
    let latency = report
        .timing
        .latency_ns
        .iter()
        .map(|(&percentile, &ns)| ([("percentile", percentile)], ns as f64 / 1e9));
    tell.gauge("processing_seconds", "Time from the start of a packet's batch until it was done", latency)?;
    let Some(units) = &report.units else { return Ok(()) };
    tell.gauge("units", "Units that run", [([], units.units_running as f64)])?;
    tell.counter("flowlets", "Flowlets that began", [([], units.flowlets)])?;
    tell.counter("states_moved", "States of flows that went to another unit", [([], units.states_moved)])
}

fn ports(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let each = |value: fn(&runtime::report::PortReport) -> u64| {
        report.ports.iter().map(move |(port, counted)| ([("port", port.as_str())], value(counted)))
    };
    tell.counter("port_packets_received", "Packets that came in by a port", each(|port| port.packets_in))?;
    tell.counter("port_bytes_received", "Their bytes", each(|port| port.bytes_in))?;
    tell.counter("port_packets_sent", "Packets that left by a port", each(|port| port.packets_out))?;
    tell.counter("port_bytes_sent", "Their bytes", each(|port| port.bytes_out))
}

fn interfaces(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let lost = report.interfaces.values().flat_map(|interface| {
        let name = interface.name.as_str();
        [
            ("missed", interface.missed),
            ("unreadable", interface.unreadable),
            ("too_long", interface.too_long),
            ("no_room", interface.no_room),
            ("down", interface.down),
        ]
        .map(|(reason, count)| ([("interface", name), ("reason", reason)], count))
    });
    tell.counter("interface_frames_lost", "Frames that an interface or the kernel did not take", lost)?;
    let hosts = report.interfaces.values().flat_map(|interface| {
        let name = interface.name.as_str();
        interface.host.iter().flat_map(move |host| {
            [("unreachable", host.unreachable), ("too_big", host.too_big), ("expired", host.expired)]
                .map(|(reason, count)| ([("interface", name), ("reason", reason)], count))
        })
    });
    tell.counter("router_packets_lost", "Packets that a router's port could not send on", hosts)
}

fn outputs(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let records = report.outputs.iter().flat_map(|(output, counted)| {
        [
            ("written", counted.written),
            ("not_written", counted.not_written),
            ("suppressed", counted.suppressed),
        ]
        .map(|(result, count)| ([("output", output.as_str()), ("result", result)], count))
    });
    tell.counter("output_records", "Records of outputs, by what became of them", records)?;
    let commands = report.commands.unwrap_or_default();
    let commands = [("carried_out", commands.carried_out), ("refused", commands.refused)]
        .map(|(result, count)| ([("result", result)], count));
    tell.counter("commands", "Operators' commands, by what became of them", commands)
}

fn workers(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let numbers: Vec<_> = (0..report.workers.len()).map(|number| number.to_string()).collect();
    let each = || numbers.iter().map(|number| [("worker", number.as_str())]).zip(&report.workers);
    let counted = |value: fn(&Counters) -> u64| each().map(move |(labels, of)| (labels, value(&of.counters)));
    tell.counter("worker_packets_received", "Packets that a worker received", counted(|c| c.received))?;
    tell.counter(
        "worker_packets_handed_over",
        "Packets that a worker handed over to another one, which has their flow",
        counted(|c| c.handed_over),
    )?;
    tell.counter("worker_packets_processed", "Packets that a worker processed", counted(|c| c.processed))?;
    let lost = each().flat_map(|([worker], of)| {
        let Counters { no_room, untold, .. } = of.counters;
        [("packets", no_room), ("neighbours", untold)].map(|(what, count)| ([worker, ("what", what)], count))
    });
    tell.counter("worker_lost", "What found no room on the way from a worker to another one", lost)?;
    let asleep = each().map(|(labels, of)| (labels, of.asleep));
    tell.gauge("worker_asleep_share", "The share of the time that a worker has slept", asleep)
}

/// Rules of a function that have metrics; those after them are in the report.
const RULES_MAX: usize = 1_000;

fn rules(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let numbers: Vec<_> = (0..=RULES_MAX).map(|number| number.to_string()).collect();
    let each = || {
        report.functions.iter().flat_map(|function| {
            let of = function.name.as_str();
            let shown = function.rules.iter().filter(|rule| rule.number as usize <= RULES_MAX);
            shown.map(move |rule| (of, rule))
        })
    };
    let counted = |value: fn(&RuleReport) -> Option<u64>| {
        let numbers = &numbers;
        each().filter_map(move |(of, rule)| {
            let labels: Labels<'_, 4> = [
                ("function", of),
                ("rule", numbers.get(rule.number as usize)?.as_str()),
                ("name", rule.name.as_str()),
                ("place", rule.place.as_str()),
            ];
            Some((labels, value(rule)?))
        })
    };
    tell.counter("rule_flows", "Flows that a rule decided about", counted(|rule| Some(rule.flows)))?;
    tell.counter("rule_packets", "Packets that a rule decided about", counted(|rule| Some(rule.packets)))?;
    tell.counter("rule_bytes", "Their bytes, where the function counts them", counted(|rule| rule.bytes))?;
    let hits = counted(|rule| rule.last_hit_ns).map(|(labels, ns)| (labels, ns as f64 / 1e9));
    tell.gauge("rule_last_hit_timestamp_seconds", "Time of the last packet that a rule decided about", hits)
}

fn functions(report: &Report, tell: &mut Teller<'_>) -> fmt::Result {
    let each = |value: fn(&runtime::report::FunctionReport) -> u64| {
        report.functions.iter().map(move |function| {
            ([("function", function.name.as_str()), ("type", function.kind)], value(function))
        })
    };
    tell.counter("function_packets", "Packets that entered a function", each(|function| function.packets))?;
    tell.counter("function_bytes", "Their bytes", each(|function| function.bytes))?;
    tell.counter("function_drops", "Packets that a function dropped", each(|function| function.drops))?;
    tell.counter("function_panics", "How often a function panicked", each(|function| function.panics))?;
    let counters = report.functions.iter().flat_map(|function| {
        let of = function.name.as_str();
        function
            .counters
            .iter()
            .map(move |(name, &count)| ([("function", of), ("counter", name.as_str())], count))
    });
    tell.counter("function_events", "What functions count themselves; their manuals say what", counters)?;
    rules(report, tell)?;
    let cycles = report
        .functions
        .iter()
        .filter_map(|function| Some(([("function", function.name.as_str())], function.cycles_per_packet?)));
    let help = "Processor cycles that a function takes for a packet that goes through it, and not by a rule of the fast path";
    tell.gauge("function_cycles_per_packet", help, cycles)?;
    let path = report.timing.fast_path.as_ref();
    let packets = path.map(|path| ([], path.packets));
    tell.counter("fast_path_packets", "Packets that went by rules of the fast path", packets)?;
    let cycles = path.and_then(|path| Some(([], path.cycles_per_packet?)));
    let help = "Processor cycles of state functions for a packet on the fast path, all functions together";
    tell.gauge("fast_path_cycles_per_packet", help, cycles)?;
    let pools = report.functions.iter().flat_map(|function| {
        let of = function.name.as_str();
        function.pools.iter().map(move |(&name, pool)| ([("function", of), ("pool", name)], pool))
    });
    tell.gauge(
        "pool_size",
        "Items of a pool",
        pools.clone().map(|(labels, pool)| (labels, f64::from(pool.size))),
    )?;
    tell.gauge(
        "pool_in_use",
        "Items taken from a pool",
        pools.clone().map(|(labels, pool)| (labels, f64::from(pool.in_use))),
    )?;
    tell.counter(
        "pool_exhausted",
        "How often nothing free was found",
        pools.map(|(labels, pool)| (labels, pool.exhausted)),
    )
}
