#![doc = include_str!("ids/README.md")]

mod about;
mod candidates;
mod config;
mod decoder;
mod facts;
mod lane;
mod limit;
mod load;
mod marks;
mod message;
mod occasion;
mod prefilter;
mod scene;
mod searches;
mod shortage;
mod signature;
mod standing;
mod state;
mod watch;
mod window;

use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, BufferSpec, Context, Descriptor, EndReason, Field, Maturity, NetworkFunction,
    PacketView, Scaling, Setup, Shared, Verdict,
};
use packet::{Direction, DropReason};
use values::ConfigError;

pub use about::{ENTRIES_MAX, TEXT_BYTES};
pub use candidates::CANDIDATES_MAX;
pub use config::{BODY_MAX, Config, Mode, Told, Unsupported, WhenFull};
pub use decoder::CODINGS_MAX;
pub use load::{Problem, Rules, Sources};
pub use marks::FLOWBITS_MAX;
pub use message::{HEAD_BYTES, REPEATED_MAX};
use searches::Searches;
use signature::Signature;
use state::Flags;
pub use state::State;
use watch::{Watch, Work};

/// Bytes of a stream before a piece that are looked at with it.
pub const LOOKBACK_BYTES: usize = 2048;
/// The most bytes that an alert shows of what it is about.
pub const EXCERPT_BYTES: usize = 256;

/// The intrusion detection function (S25).
pub struct Ids {
    signatures: Vec<Signature>,
    searches: Searches,
    body_max: usize,
    prevents: bool,
    async_oneside: bool,
    tells: Tells,
    drops_when_full: bool,
}

/// What is told as events, beside alerts.
#[derive(Clone, Copy, Debug, Default)]
struct Tells {
    dns: bool,
    tls: bool,
}

/// Numbers of the counters in the descriptor.
mod counter {
    pub const ALERTS: usize = 0;
    pub const SUPPRESSED: usize = 1;
    pub const DROPPED: usize = 2;
    pub const REJECTED: usize = 3;
    pub const PASSED: usize = 4;
    pub const INSPECTED_BYTES: usize = 5;
    pub const LOOKED_AT: usize = 6;
    pub const GAVE_UP: usize = 7;
    pub const CANDIDATES_FORGOTTEN: usize = 8;
    pub const HTTP_MESSAGES: usize = 9;
    pub const DNS_MESSAGES: usize = 10;
    pub const TLS_HANDSHAKES: usize = 11;
    pub const SEARCH_BYTES: usize = 12;
    pub const DETECTED_AGAIN: usize = 13;
    pub const HTTP2_UNREAD: usize = 14;
    pub const MEMORY_FULL: usize = 15;
    pub const ONE_SIDED: usize = 16;
    pub const SOURCE_OVER_SHARE: usize = 17;
    pub const GAVE_WAY: usize = 18;
    pub const STEPS: usize = 19;
}

/// Memory for what is kept of streams and messages of all flows, unless the configuration says
/// otherwise, in bytes.
const MEMORY: usize = 256 << 20;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "ids",
    aliases: &["Snort", "Suricata", "IPS"],
    summary: "Looks for attacks in packets, streams and messages by Suricata's rules; alerts, drops, rejects",
    maturity: Maturity::Preview,
    state_version: 2,
    attributes: &[],
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
    writes: &[],
    payload: Access::Read,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    shared: &[
        Shared::Counter("alerts"),
        Shared::Counter("alerts_suppressed"),
        Shared::Counter("packets_dropped"),
        Shared::Counter("packets_rejected"),
        Shared::Counter("packets_passed"),
        Shared::Counter("bytes_searched"),
        Shared::Counter("rules_looked_at"),
        Shared::Counter("rules_given_up"),
        Shared::Counter("candidates_forgotten"),
        Shared::Counter("http_messages"),
        Shared::Counter("dns_messages"),
        Shared::Counter("tls_messages"),
        Shared::Counter("search_memory_bytes"),
        Shared::Counter("protocol_changes"),
        Shared::Counter("http2_unread"),
        Shared::Counter("memory_full"),
        Shared::Counter("one_sided_connections"),
        Shared::Counter("source_over_share"),
        Shared::Counter("memory_gave_way"),
        Shared::Counter("rule_steps"),
        Shared::Meters("trackers"),
    ],
    map: None,
    buffers: Some(BufferSpec { count: state::KEPT, len_max: 2 * BODY_MAX as usize, memory: MEMORY }),
    stream: true,
    keeps_flows: false,
    recomputes: false,
    changes_flows: false,
    consolidates: false,
    cycles_per_packet: 3000,
};

impl NetworkFunction for Ids {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;
    const HOT_BYTES: usize = 64;

    /// A rule may match any packet.
    fn answers(&self) -> nf::AnswerScope {
        let rejects = |signature: &Signature| matches!(signature.action, signatures::Action::Reject(_));
        if self.prevents && self.signatures.iter().any(rejects) {
            nf::AnswerScope::ALL
        } else {
            nf::AnswerScope::NONE
        }
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Ids, ConfigError> {
        if !(1..=BODY_MAX).contains(&config.body.0) {
            return Err(ConfigError::new(format!(
                "`body` is {} bytes, expected 1 to {BODY_MAX}",
                config.body.0
            )));
        }
        if config.rules.0.is_empty() {
            return Err(ConfigError::new(
                "`rules` is missing: the text of a rule file, such as file(\"a.rules\")",
            ));
        }
        let rules = Rules::read(&Sources {
            rules: &config.rules.0,
            variables: Some(&config.variables),
            classification: Some(&config.classification),
            thresholds: Some(&config.thresholds),
            home: &config.home,
        });
        if let (Unsupported::Refuse, Some(problem)) = (config.unsupported, rules.problems.first()) {
            return Err(problem.into());
        }
        rules.problems.iter().for_each(|problem| setup.warn(problem.to_string()));
        let searches = Searches::new(&rules).map_err(ConfigError::new)?;
        let signatures: Vec<Signature> =
            rules.signatures.into_iter().map(|(signature, ..)| signature).collect();
        let counts = signatures.iter().any(|one| one.counts());
        setup.meters(if counts { config.trackers } else { 0 });
        if !(1..=100).contains(&config.per_source) {
            return Err(ConfigError::new(format!(
                "`per_source` is {}, expected a percentage from 1 to 100",
                config.per_source
            )));
        }
        setup.buffer_memory(config.memory.0 as usize);
        setup.buffer_share(config.per_source);
        if config.mode == Mode::Prevent {
            setup.prevents();
        }
        Ok(Ids {
            signatures,
            searches,
            body_max: config.body.0 as usize,
            prevents: config.mode == Mode::Prevent,
            tells: Tells { dns: config.events.contains(&Told::Dns), tls: config.events.contains(&Told::Tls) },
            drops_when_full: config.when_full == WhenFull::Drop,
            async_oneside: config.async_oneside,
        })
    }

    // S25
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if state.flags.has(Flags::DROPPED | Flags::PASSED) {
            if state.flags.has(Flags::DROPPED) {
                return Verdict::Drop(DropReason::IdsFlow);
            }
            if !packet.stream().any(|event| event.kind == StreamEventKind::Restart) {
                context.count(counter::PASSED, 1);
                return Verdict::Forward;
            }
            state.flags.unset(Flags::PASSED);
        }
        let mut work = context.take_scratch::<Work>();
        let shortages = context.shortages();
        work.begin_packet(state);
        let verdict = Watch::new(self, packet, context, &mut work).packet(state);
        work.end_packet(state);
        context.give_scratch(work);
        if context.shortages() == shortages { verdict } else { self.runs_short(state, context, verdict) }
    }

    fn flow_end(&self, state: &mut State, _reason: EndReason, context: &mut Context<'_>) {
        if state.flags.has(Flags::DROPPED | Flags::PASSED) {
            return;
        }
        let mut work = context.take_scratch::<Work>();
        let shortages = context.shortages();
        work.begin_packet(state);
        Watch::at_end(self, context, &mut work).flow_end(state);
        context.give_scratch(work);
        if context.shortages() != shortages {
            context.set_direction(Direction::Original);
            // There is no packet to drop.
            let _ = self.runs_short(state, context, Verdict::Forward);
        }
    }
}
