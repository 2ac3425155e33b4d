//! A meter of redundancy (E23, E31): how much of what TCP streams bring was there before, so that a
//! link would be spared it. See the README.
//!
//! `chunk` cuts streams by their content with the fingerprints that `re` has, and chunks that were
//! there before are members of a set that all flows share.

mod chunk;
mod config;
mod state;

use nf::stream::{StreamEvent, StreamEventKind};
use nf::{
    Access, Affinity, Context, Descriptor, EndReason, EventValue, Maturity, NetworkFunction, PacketView,
    Scaling, Setup, Shared, Verdict,
};
use packet::{Direction, Side};
use values::ConfigError;

pub use crate::ports::PORTS_MAX;
pub use crate::rabin::{WINDOW_MAX, WINDOW_MIN};
pub use chunk::CHUNK_SAMPLES_MAX;
pub use config::{CACHE_MAX, CACHE_MIN, CHUNKS_MAX, Config, SAMPLE_MAX, SAMPLE_MIN};
pub use state::State;

use crate::ports::PortFilter;
use chunk::{Begun, Chunk, Cutter};
use state::Half;

/// The function `redundancy`.
pub struct Redundancy {
    cutter: Cutter,
    ports: PortFilter,
    /// Redundant bytes from which on a flow is told of; 0: it is not.
    events_from: u64,
}

/// Ways through the function, and the numbers of their sets.
const OUTWARDS: usize = 0;
const INWARDS: usize = 1;

/// Numbers of the counters in the descriptor; of the first three, of both ways.
mod counter {
    pub const BYTES: [usize; 2] = [0, 3];
    pub const REDUNDANT: [usize; 2] = [1, 4];
    pub const UNIQUE: [usize; 2] = [2, 5];
    pub const CHUNKS: usize = 6;
    pub const FORGOTTEN: usize = 7;
}

/// Chunks that are looked up together: so long others wait for the set.
const TOGETHER: usize = 32;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "redundancy",
    aliases: &["RedundancyMeter", "redundancy-meter"],
    summary: "Measures how much of TCP streams was there before: what a link would be spared by redundancy elimination",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[],
    reads: &[],
    writes: &[],
    payload: Access::Read,
    stream: true,
    affinity: Affinity::Flow,
    // On several servers, each would know only what it has seen.
    scaling: Scaling::Cores,
    shared: &[
        Shared::Counter("bytes-outwards"),
        Shared::Counter("redundant-outwards"),
        Shared::Counter("unique-outwards"),
        Shared::Counter("bytes-inwards"),
        Shared::Counter("redundant-inwards"),
        Shared::Counter("unique-inwards"),
        Shared::Counter("chunks"),
        Shared::Counter("chunks-forgotten"),
        Shared::Set { name: "outwards", capacity: CHUNKS_MAX as usize },
        Shared::Set { name: "inwards", capacity: CHUNKS_MAX as usize },
    ],
    map: None,
    buffers: None,
    keeps_flows: false,
    recomputes: false,
    changes_flows: false,
    consolidates: false,
    cycles_per_packet: 6_000,
};

impl NetworkFunction for Redundancy {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Redundancy, ConfigError> {
        let (cutter, chunks) = config.checked()?;
        for way in [OUTWARDS, INWARDS] {
            setup.set_capacity(way, chunks);
        }
        Ok(Redundancy { cutter, ports: PortFilter::new(config.ports)?, events_from: config.events_from.0 })
    }

    // E23
    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let stream = packet.stream();
        if !stream.is_empty() && self.ports.has_flow(context) {
            stream.for_each(|event| self.take(event, state, context));
        }
        Verdict::Forward
    }

    fn flow_end(&self, state: &mut State, _reason: EndReason, context: &mut Context<'_>) {
        self.finish(state, context);
    }
}

impl Redundancy {
    fn take(&self, event: StreamEvent<'_>, state: &mut State, context: &mut Context<'_>) {
        let way = way(event.direction, context);
        let half = &mut state.halves[event.direction.index()];
        match event.kind {
            StreamEventKind::Data(bytes) => self.cut(bytes, half, way, context),
            StreamEventKind::Gap(_) => break_off(half, way, context),
            StreamEventKind::Finished => {
                let last = self.cutter.end(&mut half.begun);
                judge(last.as_slice(), half, way, context);
            }
            // It may be forged: should the hosts go on, so does the stream.
            StreamEventKind::Reset => {}
            StreamEventKind::Restart => {
                self.finish(state, context);
                *state = State::default();
            }
        }
    }

    /// The next bytes of a stream.
    fn cut(&self, mut bytes: &[u8], half: &mut Half, way: usize, context: &mut Context<'_>) {
        context.count(counter::BYTES[way], bytes.len() as u64);
        half.bytes += bytes.len() as u64;
        let mut chunks = [Chunk::default(); TOGETHER];
        while !bytes.is_empty() {
            let mut count = 0;
            while count < TOGETHER
                && let Some(chunk) = self.cutter.next(&mut half.begun, &mut bytes)
            {
                chunks[count] = chunk;
                count += 1;
            }
            judge(&chunks[..count], half, way, context);
        }
    }

    /// The connection is over.
    #[cold]
    fn finish(&self, state: &mut State, context: &mut Context<'_>) {
        let mut ways = [(0, 0); 2];
        for direction in [Direction::Original, Direction::Reply] {
            let (way, half) = (way(direction, context), &mut state.halves[direction.index()]);
            break_off(half, way, context);
            ways[way] = (half.bytes, half.redundant);
        }
        let [out, back] = ways;
        let redundant = out.1 + back.1;
        if self.events_from == 0 || redundant < self.events_from {
            return;
        }
        let percent = u128::from(redundant) * 100 / u128::from((out.0 + back.0).max(1));
        let fields = [
            ("bytes_outwards", out.0),
            ("redundant_outwards", out.1),
            ("bytes_inwards", back.0),
            ("redundant_inwards", back.1),
            ("redundant_percent", percent as u64),
        ];
        let fields = fields.map(|(name, number)| (name, EventValue::Number(number)));
        context.event("redundancy", Direction::Original, &fields);
    }
}

/// Which way the stream goes that is sent in this direction of the flow.
#[inline]
fn way(direction: Direction, context: &Context<'_>) -> usize {
    let opened_inside = context.flow().origin == Side::Inside;
    if opened_inside == (direction == Direction::Original) { OUTWARDS } else { INWARDS }
}

/// Counts chunks by whether they were there before, and remembers them.
#[inline]
fn judge(chunks: &[Chunk], half: &mut Half, way: usize, context: &mut Context<'_>) {
    if chunks.is_empty() {
        return;
    }
    let (now_ns, known) = (context.now_ns(), context.set(way));
    let displaced = known.displaced();
    let (mut unique, mut redundant) = (0, 0);
    for chunk in chunks {
        let is_new = known.add(chunk.digest, now_ns);
        *if is_new { &mut unique } else { &mut redundant } += u64::from(chunk.len);
    }
    let forgotten = known.displaced() - displaced;
    context.release_shared(); // What comes next takes long.
    half.redundant += redundant;
    context.count(counter::REDUNDANT[way], redundant);
    context.count(counter::UNIQUE[way], unique);
    context.count(counter::CHUNKS, chunks.len() as u64);
    context.count(counter::FORGOTTEN, forgotten);
}

/// A stream breaks off: what its last chunk would have been nobody knows, so that it is neither
/// looked for nor remembered.
fn break_off(half: &mut Half, way: usize, context: &mut Context<'_>) {
    context.count(counter::UNIQUE[way], half.begun.len.into());
    half.begun = Begun::default();
}
