//! The report of a run as metrics in the OpenMetrics text format: counters since the start, gauges
//! of current values. Names, types and help texts are declared with the report's fields, those of a
//! function's own counters by the function.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use nf::CounterDeclaration;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use runtime::Report;
use runtime::report::{BUILD_INFO, CounterReport, FunctionReport, families};
use telemetry::{Family, Kind, Record, Sample, help};

/// Renders the report as OpenMetrics text.
pub fn open_text(report: &Arc<Report>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("rivulet");
    registry.register_collector(Box::new(ReportCollector(Arc::clone(report))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Renders the report in the Prometheus text format (0.0.4), for clients that do not accept
/// OpenMetrics. There, help and type of a counter carry the name of its samples.
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
struct ReportCollector(Arc<Report>);

impl Collector for ReportCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut series = Series::default();
        series.add_report(&self.0);
        for family in families() {
            let series = series.of(family);
            encode_family(&mut encoder, family.name, &help(family.help), family.kind, series)?;
            if let Some((name, label)) = former_name(family) {
                let help = format!("Deprecated: use rivulet_{}.", family.name);
                let renamed = |(labels, sample): &(Labels, Sample)| {
                    let values = labels.iter().map(|(_, value)| (label, value.clone()));
                    (values.collect::<Labels>(), *sample)
                };
                let series: Vec<_> = series.iter().map(renamed).collect();
                encode_family(&mut encoder, &name, &help, family.kind, &series)?;
            }
        }
        for (name, CounterSeries { declared, series }) in function_counters(&self.0.functions) {
            let help = help(declared.help);
            let mut metric = encoder.encode_descriptor(&name, &help, None, MetricType::Counter)?;
            for (labels, sample) in &series {
                encode(&mut metric.encode_family(labels)?, Kind::Counter, *sample)?;
            }
        }
        Ok(())
    }
}

/// Encodes a metric with its series.
fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: Kind,
    series: &[(Labels, Sample)],
) -> fmt::Result {
    let metric_type = match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(name, help, None, metric_type)?;
    for (labels, sample) in series {
        if labels.is_empty() {
            encode(&mut metric, kind, *sample)?;
        } else {
            encode(&mut metric.encode_family(labels)?, kind, *sample)?;
        }
    }
    Ok(())
}

/// Returns the former name of a metric of external programs, and of its label: both said `node`.
/// The next release drops them.
fn former_name(family: &Family) -> Option<(String, &'static str)> {
    family.name.strip_prefix("program_").map(|rest| (format!("node_{rest}"), "node"))
}

/// The series of a counter that functions of one type declare.
struct CounterSeries {
    declared: &'static CounterDeclaration,
    series: Vec<(Labels, Sample)>,
}

/// Returns the functions' own counters by the names of their metrics.
fn function_counters(functions: &[FunctionReport]) -> BTreeMap<String, CounterSeries> {
    let mut metrics = BTreeMap::new();
    for function in functions {
        for CounterReport { declared, label, count } in function.counters.values() {
            let name = format!("nf_{}_{}", function.kind.replace('-', "_"), declared.name);
            let mut labels = vec![("function", function.name.clone())];
            labels.extend(label.clone());
            let metric = metrics.entry(name).or_insert(CounterSeries { declared, series: Vec::new() });
            metric.series.push((labels, Sample::Count(*count)));
        }
    }
    metrics
}

fn encode(metric: &mut MetricEncoder<'_>, kind: Kind, sample: Sample) -> fmt::Result {
    match (kind, sample) {
        (Kind::Counter, Sample::Count(count)) => {
            metric.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)
        }
        (Kind::Counter, Sample::Real(count)) => {
            metric.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)
        }
        (Kind::Gauge, sample) => metric.encode_gauge(&sample.as_f64()),
    }
}

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// Maximum number of a rule with metrics; the report has all rules.
const RULES_MAX: u32 = 1_000;

/// The series of each metric, by its name.
#[derive(Default)]
struct Series(BTreeMap<&'static str, Vec<(Labels, Sample)>>);

impl Series {
    fn of(&self, family: &Family) -> &[(Labels, Sample)] {
        self.0.get(family.name).map_or(&[], Vec::as_slice)
    }

    /// Adds the series of a report and its parts.
    fn add_report(&mut self, report: &Report) {
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        self.0.insert(BUILD_INFO.name, vec![(version, Sample::Count(1))]);
        self.add(report, &[]);
        self.add(&report.flows, &[]);
        self.add(&report.timing, &[]);
        self.add(&report.commands.unwrap_or_default(), &[]);
        self.add_option(report.streams.as_ref(), &[]);
        self.add_option(report.units.as_ref(), &[]);
        self.add_option(report.links.as_ref(), &[]);
        self.add_option(report.timing.fast_path.as_ref(), &[]);
        self.add_option(report.timing.polling.as_ref(), &[]);
        for (name, port) in &report.ports {
            self.add(port, &[name]);
        }
        for (name, program) in &report.programs {
            self.add(program, &[name]);
        }
        for interface in report.interfaces.values() {
            self.add(&interface.counters, &[&interface.name]);
            self.add_option(interface.host.as_ref(), &[&interface.name]);
            self.add_option(interface.host.as_ref().map(|host| &host.counters), &[&interface.name]);
        }
        for (name, output) in &report.outputs {
            self.add(output, &[name]);
        }
        for (number, worker) in report.workers.iter().enumerate() {
            self.add(&worker.counters, &[&number.to_string()]);
            self.add(worker, &[&number.to_string()]);
        }
        for function in &report.functions {
            let name = &*function.name;
            self.add(function, &[name, function.kind]);
            for rule in function.rules.iter().filter(|rule| rule.number <= RULES_MAX) {
                self.add(rule, &[name, &rule.number.to_string(), &rule.name, &rule.place]);
            }
            function.pools.iter().for_each(|(pool, of)| self.add(of, &[name, pool]));
            function.meters.iter().for_each(|(meters, of)| self.add(of, &[name, meters]));
            function.contents.iter().for_each(|(contents, of)| self.add(of, &[name, contents]));
            self.add_option(function.buffers.as_ref(), &[name]);
        }
    }

    fn add_option<R: Record>(&mut self, record: Option<&R>, outer: &[&str]) {
        if let Some(record) = record {
            self.add(record, outer);
        }
    }

    /// Adds the series of a record; `outer` are the values of its labels.
    fn add<R: Record>(&mut self, record: &R, outer: &[&str]) {
        let labels = |family: &Family, own: Option<&str>| -> Labels {
            let values = outer.iter().copied().chain(own).map(str::to_owned);
            family.labels().zip(values).collect()
        };
        for family in R::FIELDS.iter().filter_map(|field| field.family) {
            let series = self.0.entry(family.name).or_default();
            series.extend(family.known.iter().map(|own| (labels(family, Some(own)), Sample::Count(0))));
        }
        record.visit(&mut |field, own, sample| {
            let Some(family) = field.family else { return };
            let (labels, sample) = (labels(family, own), sample.in_unit(family.unit));
            let series = self.0.entry(family.name).or_default();
            match family.known.contains(&own.unwrap_or_default()) {
                true => series.iter_mut().filter(|(of, _)| *of == labels).for_each(|(_, old)| *old = sample),
                false => series.push((labels, sample)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use runtime::report::RuleReport;

    use super::*;

    const ALLOWED: CounterDeclaration =
        CounterDeclaration { name: "allowed", unit: "packets", help: "Packets [allowed](#rules). Or not." };
    const PACKETS: CounterDeclaration =
        CounterDeclaration { name: "packets", unit: "packets", help: "Packets to the server." };

    #[test]
    fn each_metric_has_its_type_help_and_labels() {
        let rule = |number| RuleReport {
            number,
            name: "web".to_owned(),
            place: "a.rules:3".to_owned(),
            flows: 1,
            packets: 2,
            bytes: None,
            last_hit_ns: Some(1_500_000_000),
        };
        let web1 = Some(("server", "web1".to_owned()));
        let function = FunctionReport {
            name: "gate".to_owned(),
            kind: "firewall",
            packets: 5,
            bytes: 500,
            drops: 0,
            panics: 0,
            last_panic: None,
            counters: [
                ("allowed".to_owned(), CounterReport { declared: &ALLOWED, label: None, count: 4 }),
                ("web1.packets".to_owned(), CounterReport { declared: &PACKETS, label: web1, count: 7 }),
            ]
            .into(),
            rules: vec![rule(1), rule(RULES_MAX + 1)],
            pools: BTreeMap::new(),
            meters: BTreeMap::new(),
            contents: BTreeMap::new(),
            buffers: None,
            walked: 0,
            cycles_per_packet: Some(12.5),
        };
        let mut report = Report { functions: vec![function], alerts_lost: 3, ..Report::default() };
        report.tunnels_not_looked_into.insert("vxlan", 2);
        let text = open_text(&Arc::new(report)).unwrap();
        let name = |line: &str| line.split([' ', '{']).next().unwrap_or_default().to_owned();
        let names: BTreeSet<_> = text.lines().map(name).collect();
        for family in families() {
            let (short, kind) =
                (format!("rivulet_{}", family.name), format!("{:?}", family.kind).to_lowercase());
            assert!(text.contains(&format!("# TYPE {short} {kind}\n")), "{short}");
            assert!(text.contains(&format!("# HELP {short} {}", help(family.help))), "{short}");
            assert!(family.known.is_empty() || names.contains(&family.sample_name()), "{short}: {names:?}");
        }
        for line in [
            "rivulet_function_packets_total{function=\"gate\",type=\"firewall\"} 5",
            "# HELP rivulet_nf_firewall_allowed Packets allowed",
            "# TYPE rivulet_nf_firewall_allowed counter",
            "rivulet_nf_firewall_allowed_total{function=\"gate\"} 4",
            "rivulet_nf_firewall_packets_total{function=\"gate\",server=\"web1\"} 7",
            "rivulet_function_cycles_per_packet{function=\"gate\",type=\"firewall\"} 12.5",
            "rivulet_rule_last_hit_timestamp_seconds{function=\"gate\",rule=\"1\",name=\"web\",place=\"a.rules:3\"} 1.5",
            "rivulet_lost_total{kind=\"alerts\"} 3",
            "rivulet_tunnels_not_looked_into_total{kind=\"vxlan\"} 2",
            "rivulet_tunnels_not_looked_into_total{kind=\"gre\"} 0",
            "rivulet_commands_total{result=\"executed\"} 0",
            "rivulet_flows 0.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains(&format!("rule=\"{}\"", RULES_MAX + 1)));
        let series: BTreeSet<_> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        assert_eq!(series.len(), text.lines().filter(|line| line.contains(' ')).count());
    }
}
