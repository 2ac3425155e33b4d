//! Streams to the program of a native node: a function that hands the bytes of TCP streams over as
//! frames, and takes answers about flows (E23).
//!
//! `docs/external-nodes.md` describes the frames to authors of programs.

mod answers;
mod frame;

use std::sync::{Arc, OnceLock};

use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, Attribute, Context, Descriptor, EndReason, EventValue, Maturity, NetworkFunction,
    PacketView, Scaling, Setup, Verdict,
};
use packet::{Direction, DropReason};
use serde::Deserialize;
use serde::de::IgnoredAny;
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use answers::{ANSWERS_MAX, FlowAnswer};
pub use frame::{CHUNK_BYTES_MAX, STREAM_ETHER_TYPE, StreamFlags, StreamFrame};

use crate::report::ProgramReport;
use answers::AnswerBoard;

/// Kind of the events that are frames for the program.
pub(crate) const FRAME_EVENT: &str = "native_stream";
/// The attribute that the program sets in parts.
const ANSWER: usize = 0;

nf::counters! {
    /// Frames for the program.
    frames: events,
    /// Bytes of streams in them.
    stream_bytes: bytes,
    /// Bytes missing from streams.
    gap_bytes: bytes,
    /// Packets dropped because the program asked for it.
    packets_refused: packets,
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "native",
    summary: "Delivers TCP streams to a program that shares packet memory",
    maturity: Maturity::Preview,
    attributes: &[Attribute { name: "answer", bits: 16, values: &[], meaning: "the program's answer" }],
    payload: Access::Read,
    affinity: Affinity::Flow,
    scaling: Scaling::Cores,
    counters: Counters::DECLARED,
    stream: true,
    cycles_per_packet: 300,
    ..Descriptor::DEFAULT
};

/// Configuration of a node `Native` that delivers streams.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamConfig {
    /// The port to the program.
    pub port: String,
    /// The only value.
    #[allow(dead_code, reason = "it is checked when it is read")]
    delivers: Delivered,
    /// Read by [`policy`].
    #[serde(default)]
    #[allow(dead_code, reason = "it is read elsewhere")]
    sets: IgnoredAny,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Delivered {
    Streams,
}

/// A native node that delivers streams, and the state that its parts on all workers share.
#[derive(Clone, Debug)]
pub struct StreamNode {
    /// Name of the node.
    pub name: String,
    /// Number of the port to the program.
    pub port: u16,
    /// Name of the port.
    pub port_name: String,
    /// The port to the program.
    pub spec: io::port::PortSpec,
    board: SharedBoard,
}

/// The answers of a program, the same for all workers once they share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBoard(Arc<OnceLock<Arc<AnswerBoard>>>);

impl SharedBoard {
    fn get(&self) -> &Arc<AnswerBoard> {
        self.0.get_or_init(Arc::default)
    }
}

impl StreamNode {
    pub(crate) fn new(name: &str, port: u16, spec: io::port::PortSpec, board: SharedBoard) -> StreamNode {
        StreamNode { name: name.to_owned(), port, port_name: format!("{name}.streams"), spec, board }
    }

    /// Shares answers with the same node of another worker, which must have had no packets.
    pub(crate) fn share(&self, other: &StreamNode) {
        let _ = self.board.0.set(Arc::clone(other.board.get()));
    }

    /// Takes a frame of the program. Returns false if it is no answer.
    pub fn answer(&self, frame: &[u8]) -> bool {
        let (board, answer) = (self.board.get(), FlowAnswer::parse(frame));
        match answer {
            Some(answer) => board.post(answer),
            None => board.count_bad(),
        }
        answer.is_some()
    }

    /// Notes that the link to the program is up or down.
    pub(crate) fn set_link(&self, is_up: bool) {
        self.board.get().set_link(is_up);
    }

    pub(crate) fn report(&self) -> ProgramReport {
        let (up, answers, bad_answers) = self.board.get().figures();
        ProgramReport { kind: "native".to_owned(), up, answers, bad_answers, ..ProgramReport::default() }
    }
}

/// Delivers streams to a program.
pub(crate) struct StreamDelivery {
    board: SharedBoard,
}

/// Setup of a [`StreamDelivery`].
#[derive(Debug, Default, Deserialize)]
pub(crate) struct DeliveryConfig {
    #[serde(skip)]
    pub board: SharedBoard,
}

/// Per-flow state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct State {
    /// The flow's number to the program; 0 if it knows none.
    number: u64,
    /// Frames of the flow so far.
    frames: u32,
    /// Nonzero once the program has refused the flow.
    is_refused: u8,
    reserved: [u8; 3],
}

impl NetworkFunction for StreamDelivery {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = DeliveryConfig;
    type State = State;

    fn new(config: DeliveryConfig, _: &mut Setup) -> Result<StreamDelivery, ConfigError> {
        Ok(StreamDelivery { board: config.board })
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if let Some(answer) = self.board.get().of(state.number) {
            if let Some(value) = answer.value
                && context.tag(ANSWER) != value
            {
                context.tag_flow(ANSWER, value);
            }
            state.is_refused |= u8::from(answer.is_refusal);
        }
        for event in packet.stream() {
            let (direction, offset) = (event.direction, event.offset);
            let mut send = |flags, data: &[u8]| self.send(state, (direction, offset), flags, data, context);
            match event.kind {
                StreamEventKind::Restart => state.number = 0,
                StreamEventKind::Data(bytes) => self.send_bytes(state, (direction, offset), bytes, context),
                StreamEventKind::Gap(len) => {
                    send(StreamFlags::GAP, &len.to_be_bytes());
                    context.count(COUNTERS.gap_bytes, len);
                }
                StreamEventKind::Finished => send(StreamFlags::END, &[]),
                StreamEventKind::Reset => send(StreamFlags::RESET, &[]),
            }
        }
        if state.is_refused != 0 {
            context.count(COUNTERS.packets_refused, 1);
            return Verdict::Drop(DropReason::Function);
        }
        Verdict::Forward
    }

    fn flow_end(&self, state: &mut State, _: EndReason, context: &mut Context<'_>) {
        if state.number != 0 {
            self.send(state, (Direction::Original, 0), StreamFlags::GONE, &[], context);
        }
    }
}

impl StreamDelivery {
    /// Sends bytes in order, in chunks.
    fn send_bytes(
        &self,
        state: &mut State,
        (direction, offset): (Direction, u64),
        bytes: &[u8],
        context: &mut Context<'_>,
    ) {
        let starts = (offset..).step_by(CHUNK_BYTES_MAX);
        for (chunk, offset) in bytes.chunks(CHUNK_BYTES_MAX).zip(starts) {
            self.send(state, (direction, offset), StreamFlags::NONE, chunk, context);
        }
        context.count(COUNTERS.stream_bytes, bytes.len() as u64);
    }

    /// Sends a frame, preceded by a frame that introduces the flow if the program does not know it.
    fn send(
        &self,
        state: &mut State,
        (direction, offset): (Direction, u64),
        flags: StreamFlags,
        data: &[u8],
        context: &mut Context<'_>,
    ) {
        if state.number == 0 {
            (state.number, state.frames) = (self.board.get().next_number(), 0);
            let flow = context.flow();
            let ends = frame::ends(flow.key.ends(flow.reversed), flow.key.protocol);
            self.emit(state, (Direction::Original, 0), StreamFlags::START, &ends, context);
        }
        self.emit(state, (direction, offset), flags, data, context);
    }

    fn emit(
        &self,
        state: &mut State,
        (direction, offset): (Direction, u64),
        flags: StreamFlags,
        data: &[u8],
        context: &mut Context<'_>,
    ) {
        state.frames = state.frames.wrapping_add(1);
        let frame = StreamFrame { flow: state.number, count: state.frames, direction, offset, flags, data };
        let mut bytes = [0; frame::FRAME_LEN_MAX];
        let written = frame.write(&mut bytes);
        context.event(FRAME_EVENT, direction, &[("frame", EventValue::Text(written))]);
        context.count(COUNTERS.frames, 1);
    }
}
