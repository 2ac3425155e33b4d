//! A passive HTTP/1 inspector (A29): requests, responses, and attempts at request smuggling.
//!
//! `recognise` detects HTTP in a flow's TCP streams by content. `applayer::http` parses it with the
//! state in the flow. `inspector` counts and judges the events, and `transactions` assembles them
//! to transactions, which become events. See the README.

mod config;
mod inspector;
mod opening;
mod recognise;
mod shortage;
mod smuggling;
mod state;
mod transactions;

#[cfg(test)]
mod tests;

use applayer::http::{Exchange, ExchangeSide, HttpAnomaly};
use nf::stream::{StreamEvent, StreamEventKind};
use nf::{
    Access, Affinity, Attribute, BufferSpec, Context, Descriptor, EndReason, Maturity, NetworkFunction,
    PacketView, Scaling, Setup, Verdict,
};
use packet::{Direction, DropReason};
use values::ConfigError;

pub use crate::ports::PORTS_MAX;
pub use config::{AnomalyPolicy, Config, METHODS_MAX, MethodPolicy, SmugglingPolicy};
pub use inspector::LINE_MAX;
pub use recognise::PROBE_MAX;
pub use state::State;

use crate::lines::FlowLine;
use crate::ports::PortFilter;
use inspector::HttpInspector;
use state::{BlockReason, DirectionStart, Phase};

/// Bytes of each direction that are searched for a start line if the beginning of a connection was
/// not seen.
pub const SEARCH_MAX: u32 = 64 << 10;
/// Maximum bytes of a flow buffer.
pub const BUFFER_MAX: usize = 32 << 10;
/// Maximum bytes of all flow buffers of an instance.
pub const BUFFER_MEMORY: usize = 64 << 20;

/// The function `http`.
pub struct Http {
    /// Server ports.
    ports: PortFilter,
    smuggling: SmugglingPolicy,
    anomalies: AnomalyPolicy,
    events: bool,
    /// The allowed methods; empty for all.
    methods: Vec<Vec<u8>>,
    method_policy: MethodPolicy,
}

nf::counters! {
    /// Flows that speak HTTP.
    flows: flows,
    /// Requests.
    requests: requests,
    /// Responses.
    responses: responses,
    /// Requests with methods that are not allowed.
    methods_refused: requests,
    /// Bytes of no message.
    bytes_skipped: bytes,
    /// Bytes of tunnels and other protocols.
    bytes_opaque: bytes,
    /// Gaps in streams.
    gaps: gaps,
    /// Bytes in gaps.
    bytes_missing: bytes,
    /// Texts of transactions that were too long or found no room.
    fields_truncated: texts,
    /// Requests without room, or evicted: read, but not reported.
    requests_evicted: requests,
    /// Lines that were not kept whole, see [Limits](#limits).
    memory_full: lines,
    by method {
        /// Requests by method: `get`, `head`, `post`, `put`, `delete`, `connect`, `options`,
        /// `trace`, `patch`, `registered` (other methods of IANA's register or in wide use),
        /// `unknown`.
        requests_by_method: requests,
    }
    by status {
        /// Responses by status: `1xx` to `5xx`, `other`.
        responses_by_status: responses,
    }
    by anomaly {
        /// Anomalies by name, once per message. `incomplete-message`: the connection ended inside.
        anomalies: anomalies,
    }
}

/// Values of the counters' labels.
mod label {
    use applayer::http::Method;

    pub const METHODS: [&str; 11] = [
        "get",
        "head",
        "post",
        "put",
        "delete",
        "connect",
        "options",
        "trace",
        "patch",
        "registered",
        "unknown",
    ];
    pub const STATUSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

    /// Returns the index of a method in [`METHODS`].
    pub fn method(method: Method) -> usize {
        match method {
            Method::Get => 0,
            Method::Head => 1,
            Method::Post => 2,
            Method::Put => 3,
            Method::Delete => 4,
            Method::Connect => 5,
            Method::Options => 6,
            Method::Trace => 7,
            Method::Patch => 8,
            Method::Registered => 9,
            Method::Unknown => 10,
        }
    }

    /// Returns the index of a status in [`STATUSES`].
    pub fn status(status: u16) -> usize {
        match status {
            100..=599 => usize::from(status / 100),
            _ => 0,
        }
    }
}

/// Indices of a flow's buffers. The first two hold the directions' partial lines.
mod buffer {
    pub const QUEUE: usize = 2;
    pub const ANSWER: usize = 3;
    /// Until an answer may follow: the client's earlier bytes, if their protocol is in doubt.
    pub const DOUBTED: usize = ANSWER;
    pub const COUNT: usize = 4;
}

/// Indices of the attributes.
mod attribute {
    pub const HTTP: usize = 0;
    pub const SMUGGLING: usize = 1;
    pub const METHOD: usize = 2;
}

/// TCP's SYN (RFC 9293 3.1).
const SYN: u8 = 2;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "http",
    aliases: &["http-parser", "HttpParser", "http-inspector"],
    summary: "Inspects HTTP/1 on any port: transactions, methods, anomalies, request smuggling",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[
        Attribute { name: "http", bits: 1, values: &[], meaning: "the flow speaks HTTP/1" },
        Attribute {
            name: "smuggling",
            bits: 1,
            values: &[],
            meaning: "implementations may disagree about where its messages end",
        },
        Attribute {
            name: "method",
            bits: 4,
            values: &[
                "", "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other",
            ],
            meaning: "the method of the latest request",
        },
    ],
    payload: Access::Read,
    stream: true,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    buffers: Some(BufferSpec { count: buffer::COUNT, len_max: BUFFER_MAX, memory: BUFFER_MEMORY }),
    cycles_per_packet: 400,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Http {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Http, ConfigError> {
        setup.label_counters(COUNTERS.method, label::METHODS.map(str::to_owned));
        setup.label_counters(COUNTERS.status, label::STATUSES.map(str::to_owned));
        setup.label_counters(
            COUNTERS.anomaly,
            HttpAnomaly::ALL.iter().map(|anomaly| anomaly.name().to_owned()),
        );
        Ok(Http {
            methods: config.checked_methods()?,
            ports: PortFilter::new(config.ports)?,
            smuggling: config.smuggling,
            anomalies: config.anomalies,
            events: config.events,
            method_policy: config.method_policy,
        })
    }

    // A29
    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if packet.meta().tcp_flags & SYN != 0 {
            state.notes.opened = 1;
        }
        for event in packet.stream() {
            self.take(event, state, context);
        }
        match state.notes.blocked() {
            BlockReason::No => Verdict::Forward,
            BlockReason::Smuggling => Verdict::Drop(DropReason::HttpSmuggling),
            BlockReason::Method => Verdict::Drop(DropReason::HttpMethod),
            BlockReason::Memory => Verdict::Drop(DropReason::StreamMemory),
        }
    }

    fn flow_end(&self, state: &mut State, _reason: EndReason, context: &mut Context<'_>) {
        self.finish(state, context);
    }
}

impl Http {
    fn take(&self, event: StreamEvent<'_>, state: &mut State, context: &mut Context<'_>) {
        let direction = event.direction;
        match (event.kind, state.notes.phase()) {
            (StreamEventKind::Restart, _) => self.restart(direction, state, context),
            _ if state.notes.blocked() != BlockReason::No => {}
            (_, Phase::Other) => {}
            (StreamEventKind::Data(bytes), Phase::Http) => self.parse(direction, bytes, state, context),
            (StreamEventKind::Data(bytes), Phase::Suspected) => self.search(direction, bytes, state, context),
            (StreamEventKind::Data(bytes), Phase::New) => self.probe(direction, bytes, state, context),
            (StreamEventKind::Gap(_), Phase::New) => self.suspect(direction, state, context),
            (StreamEventKind::Gap(len), _) => self.lose(direction, len, state, context),
            (StreamEventKind::Finished, Phase::New) => {}
            (StreamEventKind::Finished, _) => self.end(direction, state, context),
            // The reset may be forged: if the hosts continue, so does the inspection. Otherwise the
            // flow ends soon.
            (StreamEventKind::Reset, _) => {}
        }
    }

    /// Handles a new connection on the same ports.
    #[cold]
    fn restart(&self, client: Direction, state: &mut State, context: &mut Context<'_>) {
        self.finish(state, context);
        for number in 0..buffer::COUNT {
            clear(number, context);
        }
        for attribute in [attribute::HTTP, attribute::SMUGGLING, attribute::METHOD] {
            context.tag_flow(attribute, 0);
        }
        *state = State::default();
        state.notes.opened = 1;
        state.notes.set_client(client);
    }

    /// Ends the incomplete messages; pending requests will get no response.
    fn finish(&self, state: &mut State, context: &mut Context<'_>) {
        if !matches!(state.notes.phase(), Phase::Suspected | Phase::Http) {
            return;
        }
        let client = state.notes.client();
        for direction in [client, client.other()] {
            self.end(direction, state, context);
        }
    }

    /// Parses bytes of a connection that speaks HTTP.
    #[inline]
    fn parse(&self, direction: Direction, mut bytes: &[u8], state: &mut State, context: &mut Context<'_>) {
        if state.notes.start(direction) != DirectionStart::Open {
            self.begin_mid_stream(direction, bytes, state, context);
        }
        if state.exchange.direction(ExchangeSide::Response).is_opaque() && state.notes.is_behind_http == 0 {
            bytes = self.pass_switch(direction, bytes, state, context);
        }
        self.with_parser(direction, bytes.len(), state, context, |exchange, line, inspector| match inspector
            .side
        {
            ExchangeSide::Request => exchange.request(bytes, line, inspector),
            ExchangeSide::Response => exchange.response(bytes, line, inspector),
        });
    }

    /// Handles lost bytes.
    fn lose(&self, direction: Direction, len: u64, state: &mut State, context: &mut Context<'_>) {
        if state.notes.start(direction) == DirectionStart::GivenUp {
            return;
        }
        state.notes.set_start(direction, DirectionStart::Open);
        self.with_parser(direction, 0, state, context, |exchange, line, inspector| {
            exchange.gap(inspector.side, len, line, inspector);
        });
    }

    /// Handles the end of a direction. At the end of the server's, pending requests will get no
    /// response.
    fn end(&self, direction: Direction, state: &mut State, context: &mut Context<'_>) {
        self.with_parser(direction, 0, state, context, |exchange, line, inspector| {
            exchange.end(inspector.side, line, inspector);
            if inspector.side == ExchangeSide::Response {
                inspector.give_up_requests();
            }
        });
    }

    /// Calls `work` with a direction's partial line. Up to `more` bytes will be added to it.
    #[inline(always)]
    fn with_parser<T>(
        &self,
        direction: Direction,
        more: usize,
        state: &mut State,
        context: &mut Context<'_>,
        work: impl FnOnce(&mut Exchange, &mut FlowLine, &mut HttpInspector<'_, '_>) -> T,
    ) -> T {
        let State { notes, exchange } = state;
        let mut line = FlowLine::new(context.take_buffer(direction.index()), LINE_MAX);
        let side = notes.side(direction);
        let mut inspector = HttpInspector { http: self, notes, context, side };
        if shortage::is_not_whole(&line, more) {
            inspector.lose_line(exchange, &mut line);
        }
        let result = work(exchange, &mut line, &mut inspector);
        if line.kept.has_refused() {
            inspector.lose_line(exchange, &mut line);
        }
        context.give_buffer(direction.index(), line.kept);
        result
    }

    /// Stops inspecting the flow: it is not HTTP, or of no interest.
    fn give_up(&self, state: &mut State, context: &mut Context<'_>) {
        state.notes.enter(Phase::Other);
        (0..buffer::COUNT).for_each(|number| clear(number, context));
    }
}

/// Clears a flow buffer.
fn clear(number: usize, context: &mut Context<'_>) {
    let mut bytes = context.take_buffer(number);
    bytes.clear();
    context.give_buffer(number, bytes);
}
