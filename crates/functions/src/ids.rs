#![doc = include_str!("ids/README.md")]

mod alert_subject;
mod candidates;
mod config;
mod connection_status;
mod decoder;
mod facts;
mod flowbits;
mod ftp;
mod inspection_buffers;
mod inspection_point;
mod inspector;
mod limit;
mod load;
mod mail;
mod message;
mod multipart;
mod odd_head;
mod prefilter;
mod prefilters;
mod shortage;
mod signature;
mod signature_groups;
mod state;
mod window;

use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, Attribute, BufferSpec, Context, Descriptor, EndReason, Field, FlowBuffer, Maturity,
    NetworkFunction, NodeSharing, PacketView, Scaling, Setup, Shared, Verdict,
};
use packet::{Direction, DropReason};
use values::ConfigError;

pub use alert_subject::{ENTRIES_MAX, TEXT_BYTES};
pub use candidates::CANDIDATES_MAX;
use config::InspectedLengths;
pub use config::{
    BeyondPolicy, Config, IdsMode, LENGTH_MAX, MemoryFullPolicy, ReportedEvent, UnsupportedPolicy,
};
pub use decoder::CODINGS_MAX;
pub use flowbits::FLOWBITS_MAX;
use flowbits::Flowbits;
pub use inspector::DEFERRED_BYTES;
use inspector::{Inspector, PacketScratch};
pub use load::{LoadedRules, RuleProblem, RuleSources};
pub use mail::MAIL_DEPTH_MAX;
pub use multipart::PARTS_MAX;
use prefilters::Prefilters;
use signature::Signature;
pub use state::State;
use state::{FlowFlags, KeptBuffer};

/// Bytes of a stream before a piece that are inspected together with it.
pub const LOOKBACK_BYTES: usize = 2048;
/// Maximum bytes in the excerpt of an alert.
pub const EXCERPT_BYTES: usize = 256;

/// The intrusion detection function (S25).
pub struct Ids {
    signatures: Vec<Signature>,
    searches: Prefilters,
    lengths: InspectedLengths,
    prevents: bool,
    async_oneside: bool,
    reports: ReportedEvents,
    drops_when_full: bool,
    drops_beyond: bool,
}

/// The messages reported as events, besides alerts.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedEvents {
    dns: bool,
    tls: bool,
}

/// Indices of the attributes in the descriptor.
mod attribute {
    pub const ALERT: usize = 0;
}

nf::counters! {
    /// Alerts raised.
    alerts: alerts,
    /// Alerts suppressed by thresholds.
    alerts_suppressed: alerts,
    /// Packets dropped by rules.
    packets_dropped: packets,
    /// Packets dropped by rules, with an answer.
    packets_rejected: packets,
    /// Packets of flows that a `pass` rule lets pass.
    packets_passed: packets,
    /// Bytes searched for patterns.
    bytes_searched: bytes,
    /// Evaluations of rules.
    rules_evaluated: evaluations,
    /// Evaluations abandoned because they exceeded their [steps](#limits).
    rules_abandoned: evaluations,
    /// Candidate rules displaced by others.
    candidates_evicted: candidates,
    /// HTTP messages inspected.
    http_messages: messages,
    /// DNS messages inspected.
    dns_messages: messages,
    /// TLS handshake messages inspected.
    tls_messages: messages,
    /// HTTP messages with a longer head than `head`.
    heads_cut: messages,
    /// HTTP messages and mails with a body that is not inspected whole, see [limits](#limits).
    bodies_cut: messages,
    /// Directions with a longer TLS handshake message than `handshake`, or SSH greeting than is
    /// read.
    handshakes_cut: directions,
    /// Connections with a beginning that is not parsed whole: the protocol was known too late.
    beginnings_cut: connections,
    /// Memory of the pattern searches built so far.
    search_memory_bytes: bytes,
    /// Connections that changed their protocol.
    protocol_changes: connections,
    /// Connections that speak HTTP/2, which is not parsed.
    http2_skipped: connections,
    /// Flows not inspected whole because buffer memory was full, see [memory](#memory).
    memory_full: flows,
    /// Connections with one direction missing.
    one_sided_connections: connections,
    /// Flows not inspected whole because their source exceeded its share of buffer memory.
    source_over_share: flows,
    /// Flows not inspected whole because their buffers were evicted.
    memory_reclaimed: flows,
    /// Steps of rule evaluations beyond reading once.
    rule_steps: steps,
}

/// Default memory for the buffers of all flows, in bytes.
const MEMORY: usize = 256 << 20;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "ids",
    aliases: &["Snort", "Suricata", "IPS"],
    summary: "Inspects packets, streams and messages with Suricata rules; alerts, drops, rejects",
    maturity: Maturity::Preview,
    state_version: 5,
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::TcpFlags,
        Field::TimeToLive,
        Field::Dscp,
    ],
    attributes: &[Attribute {
        name: "alert",
        bits: 1,
        values: &[],
        meaning: "a rule has raised an alert about the flow",
    }],
    payload: Access::Read,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("trackers")],
    across_nodes: NodeSharing::OneMachine("thresholds of signatures count the matches of all flows"),
    buffers: Some(BufferSpec { count: state::KEPT, len_max: 2 * LENGTH_MAX as usize, memory: MEMORY }),
    stream: true,
    cycles_per_packet: 3000,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Ids {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;
    const HOT_BYTES: usize = 64;

    /// Returns all packets if a rule rejects: it may match any packet.
    fn answers(&self) -> nf::AnswerScope {
        let rejects = |signature: &Signature| matches!(signature.action, signatures::RuleAction::Reject(_));
        if self.prevents && self.signatures.iter().any(rejects) {
            nf::AnswerScope::ALL
        } else {
            nf::AnswerScope::NONE
        }
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Ids, ConfigError> {
        let lengths = config.lengths();
        if config.rules.0.is_empty() {
            return Err(ConfigError::new(
                "`rules` is missing: the text of a rule file, such as file(\"a.rules\")",
            ));
        }
        let rules = LoadedRules::read(&RuleSources {
            rules: &config.rules.0,
            variables: Some(&config.variables),
            classification: Some(&config.classification),
            thresholds: Some(&config.thresholds),
            home: &config.home,
        });
        let prevents = config.mode == IdsMode::Prevent;
        let is_refused = |problem: &&RuleProblem| match config.unsupported {
            Some(policy) => policy == UnsupportedPolicy::Refuse,
            None => prevents && problem.blocks && !problem.is_loaded,
        };
        if let Some(problem) = rules.problems.iter().find(is_refused) {
            let mut error = ConfigError::from(problem);
            if config.unsupported.is_none() {
                error.message += "; the rule would block: `unsupported: skip` goes without it";
            }
            return Err(error);
        }
        rules.problems.iter().for_each(|problem| setup.warn(problem.to_string()));
        config.without_effect().for_each(|key| {
            setup.warn(format!("`{key}` has no effect in `mode: detect`, which drops nothing"));
        });
        let searches = Prefilters::new(&rules).map_err(ConfigError::new)?;
        let signatures: Vec<Signature> =
            rules.signatures.into_iter().map(|(signature, ..)| signature).collect();
        let counts = signatures.iter().any(|one| one.counts());
        setup.meters(if counts { config.trackers } else { 0 });
        setup.buffer_memory(config.memory.0 as usize);
        setup.buffer_share(config.per_source);
        if prevents {
            setup.prevents();
        }
        Ok(Ids {
            signatures,
            searches,
            lengths,
            prevents,
            reports: ReportedEvents {
                dns: config.events.contains(&ReportedEvent::Dns),
                tls: config.events.contains(&ReportedEvent::Tls),
            },
            drops_when_full: config.when_full == MemoryFullPolicy::Drop,
            drops_beyond: prevents && config.beyond == BeyondPolicy::Drop,
            async_oneside: config.async_oneside,
        })
    }

    // S25
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if state.flags.has(FlowFlags::DROPPED | FlowFlags::PASSED) {
            if state.flags.has(FlowFlags::DROPPED) {
                return Verdict::Drop(DropReason::IdsFlow);
            }
            if !packet.stream().any(|event| event.kind == StreamEventKind::Restart) {
                context.count(COUNTERS.packets_passed, 1);
                return Verdict::Forward;
            }
            state.flags.unset(FlowFlags::PASSED);
        }
        let mut work = context.take_scratch::<PacketScratch>();
        let shortages = context.shortages();
        work.begin_packet(state);
        let verdict = Inspector::new(self, packet, context, &mut work).packet(state);
        work.end_packet(state);
        context.give_scratch(work);
        if context.shortages() == shortages { verdict } else { self.runs_short(state, context, verdict) }
    }

    const SEES_LONE_FRAGMENTS: bool = true;

    fn lone_fragment(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) {
        // It is dropped in any case.
        let _ = self.process(packet, state, context);
    }

    /// Numbers of rules and flowbits belong to a rule set. The rules of the new set inspect pending
    /// bytes.
    fn flow_reconfigured(&self, state: &mut State, context: &mut Context<'_>) {
        state.flowbits = Flowbits::default();
        for kept in [KeptBuffer::Candidates, KeptBuffer::InBody] {
            for direction in [Direction::Original, Direction::Reply] {
                context.give_buffer(kept.of(direction), FlowBuffer::default());
            }
        }
    }

    fn flow_end(&self, state: &mut State, _reason: EndReason, context: &mut Context<'_>) {
        if !state.flags.has(FlowFlags::DROPPED | FlowFlags::PASSED) {
            self.inspect_rest(state, context);
        }
        context.find(state.findings());
    }
}

impl Ids {
    /// Inspects the incomplete messages of a flow that ends.
    fn inspect_rest(&self, state: &mut State, context: &mut Context<'_>) {
        let mut work = context.take_scratch::<PacketScratch>();
        let shortages = context.shortages();
        work.begin_packet(state);
        Inspector::at_end(self, context, &mut work).flow_end(state);
        context.give_scratch(work);
        if context.shortages() != shortages {
            context.set_direction(Direction::Original);
            // There is no packet to drop.
            let _ = self.runs_short(state, context, Verdict::Forward);
        }
    }
}
