//! The explanation of a packet: text, or an object for JSON.

use std::fmt;

use nf::record::RecordHeader;
use nf::{Access, Connection, HeaderAction, RuleLabel, Verdict};
use packet::{Direction, DropReason, End, Side, TagKind};
use runtime::Runner;
use serde::Serialize;

use super::edges::EdgeExplanation;
use super::headers;
use super::rule::RuleExplanation;
use super::tracer::{CollectedOutput, ExplainedEvent, PacketOutcome, PacketTrace, ProcessingStep};

/// The explanation of a packet.
#[derive(Serialize)]
pub struct Explanation {
    /// Number of the packet; absent if it was pending for too long.
    packet: Option<u64>,
    time_ns: u64,
    /// A function generated it in reply to the packet with this number.
    generated: bool,
    /// The external program after which it continues: assumed to have forwarded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_program: Option<String>,
    /// The side that it arrived from.
    from: &'static str,
    headers: String,
    flow: Option<FlowExplanation>,
    /// The edges that it took; absent in a graph without branches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edges: Vec<EdgeExplanation>,
    steps: Vec<StepExplanation>,
    /// The cached rule of its flow; absent if later packets take the slow path, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleExplanation>,
    outcome: OutcomeExplanation,
    alerts: Vec<AlertExplanation>,
    /// Events that functions reported, such as HTTP transactions.
    events: Vec<ExplainedEvent>,
    /// Flow records that were reported with this packet.
    flows_reported: usize,
    #[serde(flatten)]
    former: FormerKeys,
}

/// Former keys, with the values of `generated`, `after_program` and `events`. The next release
/// drops them.
#[derive(Serialize)]
struct FormerKeys {
    made: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<String>,
    told: Vec<ExplainedEvent>,
}

#[derive(Serialize)]
struct FlowExplanation {
    number: u64,
    direction: &'static str,
    /// Number of the packet in its flow, from 1.
    seq: u64,
    /// Former key of `seq`. The next release drops it.
    clock: u64,
    /// State of the connection after it.
    connection: &'static str,
    key: String,
    /// The key of the flow's replies, after translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    /// Length of the flow's record.
    record_bytes: usize,
}

#[derive(Serialize)]
struct StepExplanation {
    function: String,
    #[serde(rename = "type")]
    kind: &'static str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'static str>,
    /// The function's rule that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<DecidingRule>,
    changes: Vec<HeaderChange>,
    attributes: Vec<Attribute>,
    actions: Vec<String>,
    state_functions: Vec<StateFunctionExplanation>,
    events: Vec<EventExplanation>,
    /// Number of actions that were not recorded, because the recording was full.
    lost: u32,
}

/// A rule of a function's configuration.
#[derive(Serialize)]
struct DecidingRule {
    number: u32,
    name: String,
    place: String,
    #[serde(skip)]
    label: String,
}

#[derive(Serialize)]
struct HeaderChange {
    field: &'static str,
    before: String,
    after: String,
}

#[derive(Serialize)]
struct Attribute {
    name: &'static str,
    value: u16,
}

#[derive(Serialize)]
struct StateFunctionExplanation {
    id: u16,
    payload: &'static str,
}

#[derive(Serialize)]
struct EventExplanation {
    id: u16,
    argument: u64,
}

#[derive(Serialize)]
struct OutcomeExplanation {
    /// `sent`, `dropped`, `pending` or `unknown`.
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'static str>,
}

#[derive(Serialize)]
struct AlertExplanation {
    function: String,
    id: u32,
    signature: String,
    severity: u8,
}

impl Explanation {
    /// Explains a packet.
    pub fn new(trace: &PacketTrace, collected: &CollectedOutput, runner: &Runner) -> Explanation {
        let first = trace.arrived.as_ref().or(trace.steps.first().map(|step| &step.before));
        let alerts = collected.alerts.iter().filter(|(_, alert)| alert.sequence == trace.sequence);
        let events = events(trace, collected);
        Explanation {
            packet: trace.number,
            time_ns: first.map_or(0, |packet| packet.meta().transit.timestamp_ns),
            generated: trace.generated,
            after_program: trace.after_program.clone(),
            from: first.map_or("", |packet| side(packet.meta().transit.side)),
            headers: first.map_or_else(String::new, headers::line),
            flow: flow(trace, runner),
            edges: EdgeExplanation::of_packet(trace, runner),
            steps: trace
                .steps
                .iter()
                .map(|step| StepExplanation::new(step, trace.is_midstream, runner))
                .collect(),
            rule: trace.rule.as_ref().map(|rule| {
                let assembly = runner.assembly();
                let topology = assembly.graph.branches().map(graph::Branches::topology);
                RuleExplanation::new(rule, &assembly.names, topology)
            }),
            outcome: outcome(trace, collected, runner),
            alerts: alerts
                .filter(|_| !trace.generated)
                .map(|(function, alert)| AlertExplanation {
                    function: function.clone(),
                    id: alert.signature_id,
                    signature: alert.signature.as_ref().to_owned(),
                    severity: alert.severity,
                })
                .collect(),
            former: FormerKeys {
                made: trace.generated,
                behind: trace.after_program.clone(),
                told: events.clone(),
            },
            events,
            flows_reported: if trace.generated { 0 } else { collected.reports },
        }
    }
}

/// Events that were reported with this packet, by flows that ended with it, too.
fn events(trace: &PacketTrace, collected: &CollectedOutput) -> Vec<ExplainedEvent> {
    let belongs = |sequence: &Option<u64>| sequence.is_none_or(|sequence| sequence == trace.sequence);
    let events = collected.events.iter().filter(|(sequence, _)| !trace.generated && belongs(sequence));
    events.map(|(_, event)| event.clone()).collect()
}

fn flow(trace: &PacketTrace, runner: &Runner) -> Option<FlowExplanation> {
    let (number, joined) = (trace.flow?, trace.joined.as_ref()?);
    Some(FlowExplanation {
        number,
        direction: match joined.transit.direction {
            Direction::Original => "original",
            Direction::Reply => "reply",
        },
        seq: joined.transit.seq,
        clock: joined.transit.seq,
        connection: Connection::from_phase(joined.transit.phase).name(),
        key: joined.key.to_string(),
        // Between external nodes, an alias may be the same key in another part of the graph.
        alias: trace.alias.map(|alias| alias.to_string()).filter(|alias| *alias != joined.key.to_string()),
        record_bytes: runner.assembly().graph.flows().record_len().max(size_of::<RecordHeader>()),
    })
}

fn outcome(trace: &PacketTrace, collected: &CollectedOutput, runner: &Runner) -> OutcomeExplanation {
    let nothing =
        OutcomeExplanation { what: "pending", port: None, headers: None, reason: None, meaning: None };
    match trace.outcome {
        PacketOutcome::Pending => {
            OutcomeExplanation { meaning: Some("It waits for other fragments of its datagram."), ..nothing }
        }
        PacketOutcome::Dropped(reason) if trace.is_midstream => OutcomeExplanation {
            what: "unknown",
            reason: Some(reason.name()),
            meaning: Some(
                "Its TCP connection began before the capture. Where that was seen, the packet may pass.",
            ),
            ..nothing
        },
        PacketOutcome::Dropped(reason) => OutcomeExplanation {
            what: "dropped",
            reason: Some(reason.name()),
            meaning: Some(reason.meaning()),
            ..nothing
        },
        PacketOutcome::Sent(place) => {
            let port = collected.ports.get(place).and_then(|&port| runner.assembly().ports.number(port));
            OutcomeExplanation {
                what: "sent",
                port: port.map(|port| port.name.clone()),
                headers: trace.left.as_ref().map(headers::line),
                ..nothing
            }
        }
    }
}

impl StepExplanation {
    fn new(step: &ProcessingStep, is_midstream: bool, runner: &Runner) -> StepExplanation {
        let assembly = runner.assembly();
        let stage = assembly.graph.stages().get(step.stage);
        let reason = match step.verdict {
            Verdict::Drop(reason) => Some(reason),
            Verdict::Forward | Verdict::TurnBack => None,
        };
        let changes = step.after.as_ref().map(|after| headers::changes(&step.before, after));
        let changes = changes.unwrap_or_default().into_iter();
        let recording = &step.recording;
        StepExplanation {
            function: assembly.names.get(step.stage).cloned().unwrap_or_default(),
            kind: stage.map_or("", |stage| stage.descriptor().name),
            verdict: match step.verdict {
                Verdict::Forward => "forward",
                Verdict::Drop(_) if is_midstream => "unknown",
                Verdict::Drop(_) => "drop",
                Verdict::TurnBack => "turn back",
            },
            reason: reason.map(DropReason::name),
            meaning: reason.map(DropReason::meaning),
            decided_by: deciding_rule(step, runner).map(|label| DecidingRule {
                number: label.number,
                name: label.name.to_string(),
                place: label.place.to_string(),
                label: label.to_string(),
            }),
            changes: changes.map(|(field, before, after)| HeaderChange { field, before, after }).collect(),
            attributes: attributes(step, runner),
            actions: recording.actions.iter().map(action).collect(),
            state_functions: recording
                .functions
                .iter()
                .map(|function| StateFunctionExplanation {
                    id: function.id,
                    payload: access(function.access),
                })
                .collect(),
            events: recording
                .events
                .iter()
                .map(|event| EventExplanation { id: event.id, argument: event.argument })
                .collect(),
            lost: recording.lost,
        }
    }
}

/// Returns the function's rule that matched the packet, if it has rules.
pub fn deciding_rule<'r>(step: &ProcessingStep, runner: &'r Runner) -> Option<&'r RuleLabel> {
    let stage = runner.assembly().graph.stages().get(step.stage)?;
    Some(&stage.shared().rules.get(step.recording.rule? as usize)?.label)
}

/// Returns the attributes that the function changed.
fn attributes(step: &ProcessingStep, runner: &Runner) -> Vec<Attribute> {
    let (Some(stage), Some(after)) = (runner.assembly().graph.stages().get(step.stage), &step.after) else {
        return Vec::new();
    };
    let (old, new) = (step.before.meta().transit.tags, after.meta().transit.tags);
    let all = stage.descriptor().attributes.iter().enumerate();
    all.filter(|&(i, _)| stage.tags().get(old, i) != stage.tags().get(new, i))
        .map(|(i, attribute)| Attribute { name: attribute.name, value: stage.tags().get(new, i) })
        .collect()
}

fn action(action: &HeaderAction) -> String {
    let end = |end: &End| match end {
        End::Source => "source",
        End::Destination => "destination",
    };
    match action {
        HeaderAction::Forward => "forward".to_owned(),
        HeaderAction::Drop(reason) => format!("drop ({reason})"),
        HeaderAction::SetEnd(which, to) => format!("set {} to {to}", end(which)),
        HeaderAction::SetEmbeddedEnd(which, to) => format!("set quoted {} to {to}", end(which)),
        HeaderAction::SetField(field, value) => format!("set {field:?} to {value}"),
        HeaderAction::DecrementTtl => "decrement the time to live".to_owned(),
        HeaderAction::Encap { outer, .. } => {
            format!("encap with {} bytes of headers to {}", outer.header_len(), outer.destination())
        }
        HeaderAction::FindTag(_, Some(tag)) => format!("found {tag}"),
        HeaderAction::FindTag(TagKind::Vlan, None) => "found no VLAN tag".to_owned(),
        HeaderAction::FindTag(TagKind::Label, None) => "found no label".to_owned(),
        HeaderAction::PushTag(tag) => format!("push {tag}"),
        HeaderAction::PopTag(tag) => format!("pop {tag}"),
        HeaderAction::EncapBytes { header, version } => {
            format!("encap with {} bytes of headers (IPv{version})", header.len())
        }
        HeaderAction::Decap { len, version } => {
            format!("decap of {len} bytes of headers (IPv{version} inside)")
        }
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Ignore => "ignored",
        Access::Read => "read",
        Access::Write => "written",
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.packet, self.generated) {
            (Some(number), false) => write!(f, "packet {number}")?,
            (None, false) => write!(f, "a packet that was pending")?,
            (Some(number), true) => write!(f, "reply to packet {number}")?,
            (None, true) => write!(f, "a generated reply")?,
        }
        if let Some(program) = &self.after_program {
            write!(f, " after {program}")?;
        }
        writeln!(f, "  {}  from {}  {}", time(self.time_ns), self.from, self.headers)?;
        if let Some(flow) = &self.flow {
            writeln!(
                f,
                "  flow {}, {} direction, packet {} of the flow, connection {}",
                flow.number, flow.direction, flow.seq, flow.connection
            )?;
            if let Some(alias) = &flow.alias {
                writeln!(f, "  replies have the key {alias}")?;
            }
        }
        let edges_at = |steps| self.edges.iter().filter(move |edge| edge.steps == steps);
        for (number, step) in self.steps.iter().enumerate() {
            edges_at(number).try_for_each(|edge| write!(f, "{edge}"))?;
            step.write(f)?;
        }
        edges_at(self.steps.len()).try_for_each(|edge| write!(f, "{edge}"))?;
        for alert in &self.alerts {
            let AlertExplanation { function, id, signature, severity } = alert;
            writeln!(f, "  alert {id} of {function}, severity {severity}: {signature}")?;
        }
        for ExplainedEvent { function, kind, fields } in &self.events {
            writeln!(f, "  {function} reports {kind}: {fields}")?;
        }
        if self.flows_reported > 0 {
            writeln!(f, "  flow records reported: {}", self.flows_reported)?;
        }
        let outcome = &self.outcome;
        write!(f, "  {}", outcome.what)?;
        if let Some(port) = &outcome.port {
            write!(f, " by {port}")?;
        }
        for text in [outcome.reason, outcome.headers.as_deref(), outcome.meaning].into_iter().flatten() {
            write!(f, ": {text}")?;
        }
        writeln!(f)?;
        self.rule.as_ref().map_or(Ok(()), |rule| write!(f, "{rule}"))
    }
}

impl StepExplanation {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} ({}): {}", self.function, self.kind, self.verdict)?;
        for text in [self.reason, self.meaning].into_iter().flatten() {
            write!(f, ": {text}")?;
        }
        if let Some(rule) = &self.decided_by {
            write!(f, ", by {}", rule.label)?;
        }
        writeln!(f)?;
        for HeaderChange { field, before, after } in &self.changes {
            writeln!(f, "      {field}: {before} -> {after}")?;
        }
        for Attribute { name, value } in &self.attributes {
            writeln!(f, "      attribute {name} = {value}")?;
        }
        if !self.actions.is_empty() {
            writeln!(f, "      recorded: {}", self.actions.join(", "))?;
        }
        for StateFunctionExplanation { id, payload } in &self.state_functions {
            match *id {
                u16::MAX => writeln!(f, "      not replayable: changes packets by its own code")?,
                id => writeln!(f, "      state function {id}, payload {payload}")?,
            }
        }
        for EventExplanation { id, argument } in &self.events {
            writeln!(f, "      event {id} ({argument}) invalidates the record")?;
        }
        if self.lost > 0 {
            writeln!(f, "      {} more actions were not recorded", self.lost)?;
        }
        Ok(())
    }
}

/// Formats a time as time of day in UTC, with the date unless it is 1970-01-01.
fn time(ns: u64) -> String {
    let whole = crate::eve::timestamp(ns);
    let whole = whole.trim_end_matches("+0000");
    whole.strip_prefix("1970-01-01T").unwrap_or(whole).replace('T', " ")
}
