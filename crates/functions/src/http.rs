//! HTTP/1 as it passes by (A29): requests, responses, and attempts to make their readers disagree.
//!
//! What the TCP streams of a flow bring is recognised by content (`recognise`), parsed by
//! `applayer::http` in the flow's state, counted and judged (`watch`), and put together to
//! transactions (`transactions`), which go out as events. See the README.

mod config;
mod opening;
mod recognise;
mod shortage;
mod smuggling;
mod state;
mod transactions;
mod watch;

#[cfg(test)]
mod tests;

use applayer::http::{Exchange, Side};
use nf::stream::{StreamEvent, StreamEventKind};
use nf::{
    Access, Affinity, Attribute, BufferSpec, Context, Descriptor, EndReason, Maturity, NetworkFunction,
    PacketView, Scaling, Setup, Shared, Verdict,
};
use packet::{Direction, DropReason};
use values::ConfigError;

pub use crate::ports::PORTS_MAX;
pub use config::{Anomalies, Config, METHODS_MAX, MethodPolicy, Smuggling};
pub use recognise::PROBE_MAX;
pub use state::State;
pub use watch::LINE_MAX;

use crate::ports::PortFilter;
use state::{Blocked, Phase, Start};
use watch::{Kept, Watch};

/// Bytes of each direction in which a start line is searched for, where a connection's beginning
/// was not seen.
pub const SEARCH_MAX: u32 = 64 << 10;
/// Bytes of a growing buffer at most.
pub const BUFFER_MAX: usize = 32 << 10;
/// Bytes of all growing buffers of an instance at most.
pub const BUFFER_MEMORY: usize = 64 << 20;

/// The function `http`.
pub struct Http {
    /// Ports of servers.
    ports: PortFilter,
    smuggling: Smuggling,
    anomalies: Anomalies,
    events: bool,
    /// The allowed methods; none: all.
    methods: Vec<Vec<u8>>,
    method_policy: MethodPolicy,
}

/// Numbers of the counters in the descriptor.
mod counter {
    pub const FLOWS: usize = 0;
    pub const REQUESTS: usize = 1;
    pub const RESPONSES: usize = 2;
    pub const METHODS_REFUSED: usize = 3;
    pub const BYTES_SKIPPED: usize = 4;
    pub const BYTES_OPAQUE: usize = 5;
    pub const GAPS: usize = 6;
    pub const BYTES_MISSING: usize = 7;
    pub const TEXTS_CUT: usize = 8;
    pub const REQUESTS_FORGOTTEN: usize = 9;
    pub const MEMORY_FULL: usize = 10;
}

/// Numbers of the groups of counters, and of the counters in them.
mod group {
    use applayer::http::{Anomaly, Method};

    pub const METHODS: usize = 0;
    pub const STATUSES: usize = 1;
    pub const ANOMALIES: usize = 2;

    const METHOD_NAMES: [&str; 11] = [
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
    const STATUS_NAMES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

    /// The number of a method's counter.
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

    /// The number of a status's counter.
    pub fn status(status: u16) -> usize {
        match status {
            100..=599 => usize::from(status / 100),
            _ => 0,
        }
    }

    /// The names of all groups' counters.
    pub fn names() -> [Vec<String>; 3] {
        [
            METHOD_NAMES.iter().map(|name| format!("method_{name}")).collect(),
            STATUS_NAMES.iter().map(|name| format!("status_{name}")).collect(),
            Anomaly::ALL.iter().map(|anomaly| format!("anomaly_{}", anomaly.name())).collect(),
        ]
    }
}

/// Numbers of the growing buffers of a flow. The first two are the directions' lines.
mod buffer {
    pub const QUEUE: usize = 2;
    pub const ANSWER: usize = 3;
    pub const COUNT: usize = 4;
}

/// Numbers of the attributes.
mod attribute {
    pub const HTTP: usize = 0;
    pub const SMUGGLING: usize = 1;
}

/// TCP's SYN (RFC 9293 3.1).
const SYN: u8 = 2;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "http",
    aliases: &["http-parser", "HttpParser", "http-inspector"],
    summary: "Reads HTTP/1 on any port: transactions, methods, anomalies, attempts at request smuggling",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[
        Attribute { name: "http", bits: 1, meaning: "the flow speaks HTTP/1" },
        Attribute {
            name: "smuggling",
            bits: 1,
            meaning: "readers may disagree about where its messages end",
        },
    ],
    reads: &[],
    writes: &[],
    payload: Access::Read,
    stream: true,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    shared: &[
        Shared::Counter("flows"),
        Shared::Counter("requests"),
        Shared::Counter("responses"),
        Shared::Counter("methods_refused"),
        Shared::Counter("bytes_skipped"),
        Shared::Counter("bytes_opaque"),
        Shared::Counter("gaps"),
        Shared::Counter("bytes_missing"),
        Shared::Counter("texts_cut"),
        Shared::Counter("requests_forgotten"),
        Shared::Counter("memory_full"),
        Shared::Counters("methods"),
        Shared::Counters("statuses"),
        Shared::Counters("anomalies"),
    ],
    map: None,
    buffers: Some(BufferSpec { count: buffer::COUNT, len_max: BUFFER_MAX, memory: BUFFER_MEMORY }),
    keeps_flows: false,
    recomputes: false,
    changes_flows: false,
    consolidates: false,
    cycles_per_packet: 400,
};

impl NetworkFunction for Http {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Http, ConfigError> {
        for names in group::names() {
            setup.counters(names);
        }
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
            Blocked::No => Verdict::Forward,
            Blocked::Smuggling => Verdict::Drop(DropReason::HttpSmuggling),
            Blocked::Method => Verdict::Drop(DropReason::HttpMethod),
            Blocked::Memory => Verdict::Drop(DropReason::StreamMemory),
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
            _ if state.notes.blocked() != Blocked::No => {}
            (_, Phase::Other) => {}
            (StreamEventKind::Data(bytes), Phase::Http) => self.parse(direction, bytes, state, context),
            (StreamEventKind::Data(bytes), Phase::Suspected) => self.search(direction, bytes, state, context),
            (StreamEventKind::Data(bytes), Phase::New) => self.probe(direction, bytes, state, context),
            (StreamEventKind::Gap(_), Phase::New) => self.suspect(direction, state, context),
            (StreamEventKind::Gap(len), _) => self.lose(direction, len, state, context),
            (StreamEventKind::Finished, Phase::New) => {}
            (StreamEventKind::Finished, _) => self.end(direction, state, context),
            // It may be forged: should the hosts go on, so do we. If not, the flow ends soon.
            (StreamEventKind::Reset, _) => {}
        }
    }

    /// A new connection on the same ports.
    #[cold]
    fn restart(&self, client: Direction, state: &mut State, context: &mut Context<'_>) {
        self.finish(state, context);
        for number in 0..buffer::COUNT {
            clear(number, context);
        }
        for attribute in [attribute::HTTP, attribute::SMUGGLING] {
            context.tag_flow(attribute, 0);
        }
        *state = State::default();
        state.notes.opened = 1;
        state.notes.set_client(client);
    }

    /// Nothing more comes: messages that are not complete end, and nobody answers any more.
    fn finish(&self, state: &mut State, context: &mut Context<'_>) {
        if !matches!(state.notes.phase(), Phase::Suspected | Phase::Http) {
            return;
        }
        let client = state.notes.client();
        for direction in [client, client.other()] {
            self.end(direction, state, context);
        }
    }

    /// Bytes of a connection that speaks HTTP.
    #[inline]
    fn parse(&self, direction: Direction, mut bytes: &[u8], state: &mut State, context: &mut Context<'_>) {
        if state.notes.start(direction) != Start::Open {
            self.begin_in_the_midst(direction, bytes, state, context);
        }
        if state.exchange.half(Side::Response).is_opaque() && state.notes.is_behind_http == 0 {
            bytes = self.pass_switch(direction, bytes, state, context);
        }
        self.with_parser(direction, bytes.len(), state, context, |exchange, line, watch| match watch.side {
            Side::Request => exchange.request(bytes, line, watch),
            Side::Response => exchange.response(bytes, line, watch),
        });
    }

    /// Bytes are lost.
    fn lose(&self, direction: Direction, len: u64, state: &mut State, context: &mut Context<'_>) {
        if state.notes.start(direction) == Start::GivenUp {
            return;
        }
        state.notes.set_start(direction, Start::Open);
        self.with_parser(direction, 0, state, context, |exchange, line, watch| {
            exchange.gap(watch.side, len, line, watch);
        });
    }

    /// A direction ends. When it is the server's, nobody answers what is not answered yet.
    fn end(&self, direction: Direction, state: &mut State, context: &mut Context<'_>) {
        self.with_parser(direction, 0, state, context, |exchange, line, watch| {
            exchange.end(watch.side, line, watch);
            if watch.side == Side::Response {
                watch.give_up_requests();
            }
        });
    }

    /// Works on a direction's line, to which up to `more` bytes come.
    #[inline(always)]
    fn with_parser<T>(
        &self,
        direction: Direction,
        more: usize,
        state: &mut State,
        context: &mut Context<'_>,
        work: impl FnOnce(&mut Exchange, &mut Kept, &mut Watch<'_, '_>) -> T,
    ) -> T {
        let State { notes, exchange } = state;
        let mut line = Kept::new(context.take_buffer(direction.index()));
        let side = notes.side(direction);
        let mut watch = Watch { http: self, notes, context, side };
        if shortage::is_not_whole(&line, more) {
            watch.lose_line(exchange, &mut line);
        }
        let result = work(exchange, &mut line, &mut watch);
        if line.0.has_refused() {
            watch.lose_line(exchange, &mut line);
        }
        context.give_buffer(direction.index(), line.0);
        result
    }

    /// It is not HTTP, or nobody wants to know.
    fn give_up(&self, state: &mut State, context: &mut Context<'_>) {
        state.notes.enter(Phase::Other);
        (0..buffer::COUNT).for_each(|number| clear(number, context));
    }
}

/// Forgets what a growing buffer holds.
fn clear(number: usize, context: &mut Context<'_>) {
    let mut bytes = context.take_buffer(number);
    bytes.clear();
    context.give_buffer(number, bytes);
}
