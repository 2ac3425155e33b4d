//! Runs the text of a policy over records within the test's process.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use nf::{Alert, Event, EventValue, FlowReport};
use packet::{LinkType, Packet};
use policy::{Colour, Policy};
use runtime::elastic::UnitsConfig;
use runtime::{Assembly, Frame, Ingress, Report, Runner};

use crate::traces::Recorded;

/// A packet that left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// The number of its record, or of the record that it answers.
    pub record: u64,
    pub port: u16,
    pub link: LinkType,
    pub timestamp_ns: u64,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// An event reported by a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: &'static str,
    pub timestamp_ns: u64,
    pub sequence: Option<u64>,
    pub source: packet::Endpoint,
    pub destination: packet::Endpoint,
    /// Fields; numbers in decimal.
    pub fields: BTreeMap<&'static str, Vec<u8>>,
}

/// All output of a run.
pub struct Outcome {
    pub sent: Vec<Sent>,
    pub alerts: Vec<Alert>,
    pub events: Vec<Told>,
    pub flows: Vec<FlowReport>,
    pub report: Report,
}

/// Creates a runner of this policy.
pub fn runner(policy: &str) -> Runner {
    try_runner(policy).unwrap_or_else(|wrong| panic!("{wrong}{policy}"))
}

/// Creates a runner of this policy, or returns its errors.
pub fn try_runner(policy: &str) -> Result<Runner, String> {
    Ok(Runner::new(assembly(policy)?, "test"))
}

fn assembly(policy: &str) -> Result<Assembly, String> {
    let mut no_files = |_: &str| Err("there are no files".to_owned());
    let policy =
        Policy::read("test.rvl", policy, &mut no_files).map_err(|wrong| wrong.render(Colour::Off))?;
    runtime::assemble(&policy, &functions::registry(), 7, None).map_err(|wrong| {
        wrong.iter().map(|one| one.render(&policy.report.sources, Colour::Off)).collect::<String>()
    })
}

/// Runs a policy over records in batches of up to [`runtime::BATCH`] packets.
pub fn run(policy: &str, records: &[Recorded], batch: usize) -> Outcome {
    play(runner(policy), records, batch)
}

/// Runs it on elastic units.
pub fn run_on_units(policy: &str, records: &[Recorded], config: UnitsConfig) -> Outcome {
    play(Runner::on_units(assembly(policy).unwrap(), "test", config).unwrap(), records, runtime::BATCH)
}

/// Runs it on units with their own threads.
pub fn run_on_threads(policy: &str, records: &[Recorded], config: UnitsConfig) -> Outcome {
    let text = policy.to_owned();
    let make = Arc::new(move || Ok(assembly(&text).unwrap().graph));
    let runner = Runner::on_threads(assembly(policy).unwrap(), "test", config, make).unwrap();
    play(runner, records, runtime::BATCH)
}

/// Returns whether flows share state that depends on their order.
pub fn is_order_sensitive(policy: &str) -> bool {
    assembly(policy).unwrap().graph.stages().iter().any(|stage| stage.shared().is_order_sensitive())
}

fn play(mut runner: Runner, records: &[Recorded], batch: usize) -> Outcome {
    let mut collected = Collected::default();
    for (number, record) in records.iter().enumerate() {
        let frame = Frame {
            timestamp_ns: record.timestamp_ns,
            link: record.link,
            wire_len: record.wire_len,
            data: &record.data,
        };
        let Ok(()) = runner.receive(frame, Ingress::Interface(record.interface), &mut collected);
        if (number + 1) % batch == 0 {
            let Ok(()) = runner.flush(&mut collected);
        }
    }
    let Ok(report) = runner.finish(&mut collected);
    let Collected { sent, alerts, events, flows } = collected;
    Outcome { sent, alerts, events, flows, report }
}

impl Outcome {
    /// Returns the report without the parts that depend on the machine or on units.
    pub fn lasting_report(&self) -> serde_json::Value {
        let mut report = serde_json::to_value(&self.report).unwrap();
        for depends in ["timing", "units"] {
            report.as_object_mut().unwrap().remove(depends);
        }
        report
    }

    /// Returns the number of packets dropped for this reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.report.drops.get(reason).copied().unwrap_or(0)
    }

    /// Returns a counter of the policy's first function.
    pub fn counter(&self, name: &str) -> u64 {
        self.report.functions[0].counters[name].count
    }

    /// Checks everything that must hold in every run.
    pub fn check(&self, records: &[Recorded]) {
        let report = &self.report;
        assert!(report.adds_up(), "{report:?}");
        assert_eq!(report.packets_in, records.len() as u64);
        assert_eq!(report.bytes_in, records.iter().map(|record| record.data.len() as u64).sum::<u64>());
        assert_eq!(report.packets_out, self.sent.len() as u64);
        assert_eq!(report.bytes_out, self.sent.iter().map(|sent| sent.data.len() as u64).sum::<u64>());
        assert_eq!(report.alerts, self.alerts.len() as u64);
        assert_eq!((report.events, report.events_lost), (self.events.len() as u64, 0));
        assert!(!report.drops.contains_key("internal"), "{:?}", report.drops);
        let ports =
            |count: fn(&runtime::report::PortReport) -> u64| report.ports.values().map(count).sum::<u64>();
        assert_eq!(ports(|port| port.packets_out), report.packets_out);
        let flows = &report.flows;
        assert_eq!(
            flows.started,
            flows.ended.values().sum::<u64>(),
            "every flow ends, at the latest with the run"
        );
        assert!(flows.live <= flows.peak && flows.peak <= flows.started);
        for function in &report.functions {
            for (name, pool) in &function.pools {
                assert_eq!(pool.in_use, 0, "{}: {name}: all items are returned", function.name);
                assert!(pool.peak <= pool.size);
            }
        }
    }
}

#[derive(Default)]
struct Collected {
    sent: Vec<Sent>,
    alerts: Vec<Alert>,
    events: Vec<Told>,
    flows: Vec<FlowReport>,
}

impl runtime::Output for Collected {
    type Error = Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Infallible> {
        let meta = packet.meta();
        self.sent.push(Sent {
            record: meta.transit.sequence,
            port,
            link: meta.link,
            timestamp_ns: meta.transit.timestamp_ns,
            wire_len: meta.wire_len,
            data: packet.data().to_vec(),
        });
        Ok(())
    }

    fn alert(&mut self, _function: &str, alert: &Alert) -> Result<(), Infallible> {
        self.alerts.push(alert.clone());
        Ok(())
    }

    fn event(&mut self, _function: &str, event: Event<'_>) -> Result<(), Infallible> {
        let (source, destination) = event.key.ends(event.reversed);
        let value = |value: EventValue<'_>| match value {
            EventValue::Number(number) => number.to_string().into_bytes(),
            EventValue::Flag(flag) => flag.to_string().into_bytes(),
            EventValue::Text(text) | EventValue::Json(text) => text.to_vec(),
        };
        let Event { kind, timestamp_ns, sequence, .. } = event;
        let fields = event.fields().map(|(name, field)| (name, value(field))).collect();
        self.events.push(Told { kind, timestamp_ns, sequence, source, destination, fields });
        Ok(())
    }

    fn flow(&mut self, report: &FlowReport, _now_ns: u64) -> Result<(), Infallible> {
        self.flows.push(*report);
        Ok(())
    }
}
