//! A redundancy meter (E23, E31): measures how many bytes of TCP streams occurred before, and could
//! therefore be eliminated from a link. See the README.
//!
//! `chunk` cuts streams into content-defined chunks with the same fingerprints as `re`. A set that
//! all flows share holds the chunks seen before.

mod chunk;
mod config;
mod state;

use nf::stream::{StreamEvent, StreamEventKind};
use nf::{
    Access, Affinity, Context, Counter, Descriptor, EndReason, EventValue, Maturity, NetworkFunction,
    NodeSharing, PacketView, Scaling, Setup, Shared, Verdict,
};
use packet::{Direction, Side};
use values::ConfigError;

pub use crate::ports::PORTS_MAX;
pub use crate::rabin::{WINDOW_MAX, WINDOW_MIN};
pub use chunk::CHUNK_SAMPLES_MAX;
pub use config::{CACHE_MAX, CACHE_MIN, CHUNKS_MAX, Config, SAMPLE_MAX, SAMPLE_MIN};
pub use state::State;

use crate::ports::PortFilter;
use chunk::{Chunker, PartialChunk, StreamChunk};
use state::DirectionState;

/// The function `redundancy`.
pub struct Redundancy {
    cutter: Chunker,
    ports: PortFilter,
    /// Minimum redundant bytes for the event of a flow; 0: no events.
    events_from: u64,
}

/// Directions through the function, and the indices of their sets.
const OUTWARDS: usize = 0;
const INWARDS: usize = 1;

nf::counters! {
    /// Bytes of streams towards the outside.
    bytes_outbound: bytes,
    /// Bytes of remembered chunks towards the outside.
    redundant_outbound: bytes,
    /// Bytes of other chunks towards the outside. The rest of `bytes_outbound` is after the last
    /// cuts of continuing flows.
    unique_outbound: bytes,
    /// Bytes of streams towards the inside.
    bytes_inbound: bytes,
    /// Bytes of remembered chunks towards the inside.
    redundant_inbound: bytes,
    /// Bytes of other chunks towards the inside.
    unique_inbound: bytes,
    /// Chunks of both directions.
    chunks: chunks,
    /// Chunks displaced; while 0, a larger `cache` would find no more.
    chunks_evicted: chunks,
}

/// Counters of bytes by direction.
const BYTES: [Counter; 2] = [COUNTERS.bytes_outbound, COUNTERS.bytes_inbound];
/// Counters of redundant bytes by direction.
const REDUNDANT: [Counter; 2] = [COUNTERS.redundant_outbound, COUNTERS.redundant_inbound];
/// Counters of other bytes by direction.
const UNIQUE: [Counter; 2] = [COUNTERS.unique_outbound, COUNTERS.unique_inbound];

/// Chunks looked up together, while others wait for the set.
const TOGETHER: usize = 32;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "redundancy",
    aliases: &["RedundancyMeter", "redundancy-meter"],
    summary: "Measures the redundancy of TCP streams: the bytes that redundancy elimination would save",
    maturity: Maturity::Preview,
    state_version: 1,
    payload: Access::Read,
    stream: true,
    affinity: Affinity::Flow,
    // On several servers, each would know only its own chunks.
    scaling: Scaling::Cores,
    counters: Counters::DECLARED,
    shared: &[
        Shared::Set { name: "outbound", capacity: CHUNKS_MAX as usize },
        Shared::Set { name: "inbound", capacity: CHUNKS_MAX as usize },
    ],
    across_nodes: NodeSharing::OneMachine("a chunk may be repeated in a flow at another node"),
    cycles_per_packet: 6_000,
    ..Descriptor::DEFAULT
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
            // The reset may be forged: if the hosts continue, so does the stream.
            StreamEventKind::Reset => {}
            StreamEventKind::Restart => {
                self.finish(state, context);
                *state = State::default();
            }
        }
    }

    /// Handles the next bytes of a stream.
    fn cut(&self, mut bytes: &[u8], half: &mut DirectionState, way: usize, context: &mut Context<'_>) {
        context.count(BYTES[way], bytes.len() as u64);
        half.bytes += bytes.len() as u64;
        let mut chunks = [StreamChunk::default(); TOGETHER];
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

    /// Handles the end of the connection.
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
            ("bytes_outbound", out.0),
            ("redundant_outbound", out.1),
            ("bytes_inbound", back.0),
            ("redundant_inbound", back.1),
            ("redundant_percent", percent as u64),
        ];
        let fields = fields.map(|(name, number)| (name, EventValue::Number(number)));
        context.event("redundancy", Direction::Original, &fields);
    }
}

/// Returns the direction through the function of a stream in this direction of the flow.
#[inline]
fn way(direction: Direction, context: &Context<'_>) -> usize {
    let opened_inside = context.flow().origin == Side::Inside;
    if opened_inside == (direction == Direction::Original) { OUTWARDS } else { INWARDS }
}

/// Looks chunks up, counts and remembers them.
#[inline]
fn judge(chunks: &[StreamChunk], half: &mut DirectionState, way: usize, context: &mut Context<'_>) {
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
    context.release_shared(); // The rest takes long.
    half.redundant += redundant;
    context.count(REDUNDANT[way], redundant);
    context.count(UNIQUE[way], unique);
    context.count(COUNTERS.chunks, chunks.len() as u64);
    context.count(COUNTERS.chunks_evicted, forgotten);
}

/// Breaks off a stream: its last chunk is unknown, so it is neither looked up nor remembered.
fn break_off(half: &mut DirectionState, way: usize, context: &mut Context<'_>) {
    context.count(UNIQUE[way], half.begun.len.into());
    half.begun = PartialChunk::default();
}
