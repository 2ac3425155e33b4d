//! Multipath TCP (A38): finds the sub-flows of a connection, and the data that more than one of
//! them carries. See the README.
//!
//! `tokens` has the state that a connection's flows share, `seen` the data already carried.
//! `handshake` finds sub-flows (RFC 8684 3.1, 3.2), and this module places their bytes in the
//! connection (3.3).

mod config;
mod handshake;
mod seen;
mod state;
#[cfg(test)]
mod tests;
mod tokens;

use nf::{
    Access, Affinity, AffinityGroup, AffinityGroups, AffinityKey, Attribute, Context, Descriptor, Field,
    Maturity, NetworkFunction, NodeSharing, PacketView, Scaling, Setup, Shared, Verdict,
};
use packet::wire::mptcp::{CapableKeys, DataSequenceSignal, MptcpCapable, Repr};
use packet::{Direction, DropReason, Packet, PacketClass};
use values::ConfigError;

pub use config::{CONNECTIONS_MAX, Config, DuplicateAction};
pub use seen::{SEEN_BYTES_MAX, SEEN_RANGES_MAX};
pub use state::State;
pub use tokens::CONNECTION_IDLE_NS;

use state::Phase;

/// The function `mptcp`.
pub struct Mptcp {
    duplicates: DuplicateAction,
    /// Flows may be at several nodes: each carries the seen data of its connection.
    is_grouped: bool,
}

/// Attribute: the flow is a sub-flow of a connection with known keys.
const SUBFLOW: usize = 0;
/// Attribute: another sub-flow has carried all of the packet's data before.
const DUPLICATE: usize = 1;

/// TCP flags.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const SYN_ACK: u8 = SYN | ACK;

/// Interval at which the tokens of a connection in use are refreshed, in seconds.
const REFRESH_S: u32 = 10;

nf::counters! {
    /// Connections begun, with keys of both hosts.
    connections: connections,
    /// Connections without a free place: their sub-flows pass unseen.
    connections_refused: connections,
    /// Sub-flows that joined a connection after both hosts proved that they have its keys.
    subflows_joined: flows,
    /// Flows that join an unknown connection: ordinary flows here.
    subflows_unknown: flows,
    /// Flows that join a known connection with a wrong code: ordinary flows here.
    subflows_invalid: flows,
    /// Sub-flows that continued as plain TCP, without mappings (RFC 8684 3.7).
    subflows_fallen_back: flows,
    /// Bytes of payload of sub-flows.
    bytes: bytes,
    /// Bytes that another sub-flow has carried before.
    bytes_duplicate: bytes,
    /// Bytes that their own sub-flow has carried before.
    bytes_retransmitted: bytes,
    /// Bytes without a mapping.
    bytes_unmapped: bytes,
    /// Bytes of connections without a free place for their data.
    bytes_untracked: bytes,
    /// Packets with only bytes that another sub-flow has carried before.
    packets_duplicate: packets,
    /// Ranges of data forgotten because a connection had too many.
    ranges_forgotten: ranges,
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "mptcp",
    aliases: &["multipath-tcp", "MultipathTcp"],
    summary: "Finds sub-flows of Multipath TCP connections, and counts, marks or drops data that several of them carry",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[
        Attribute {
            name: "subflow",
            bits: 1,
            values: &[],
            meaning: "the flow is a sub-flow of a known Multipath TCP connection",
        },
        Attribute {
            name: "duplicate",
            bits: 1,
            values: &[],
            meaning: "another sub-flow has carried all data of the packet before",
        },
    ],
    reads: &[Field::TcpFlags],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("tokens"), Shared::Meters("data")],
    across_nodes: NodeSharing::PerGroup,
    cycles_per_packet: 200,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Mptcp {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Mptcp, ConfigError> {
        config.check()?;
        setup.meters(config.connections * tokens::TOKENS_PER_CONNECTION);
        setup.meters(config.connections * tokens::PARTS_PER_CONNECTION);
        setup.groups_by(AffinityKey::Connection);
        Ok(Mptcp { duplicates: config.duplicates, is_grouped: setup.affinity_groups.is_some() })
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let is_syn = packet.meta().tcp_flags & SYN != 0;
        if state.phase() == Phase::Other && !is_syn {
            return Verdict::Forward;
        }
        let Some(segment) = Segment::of(packet) else { return Verdict::Forward };
        if is_syn || state.phase() != Phase::Subflow {
            handshake::follow(packet, &segment, state, context);
        }
        if state.phase() != Phase::Subflow {
            return Verdict::Forward;
        }
        refresh(state, context);
        self.inspect(packet, &segment, state, context)
    }

    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        groups.of_connection_begun_by(packet)
    }

    /// Unites the data seen at several units. Data that is seen while the flows of a connection
    /// are at two units counts as new at both.
    fn flow_arrives(&self, state: &mut State, context: &mut Context<'_>) -> bool {
        let Some(version) = state.version().filter(|_| state.phase() == Phase::Subflow) else { return true };
        tokens::remember(state.keys, version, context);
        for host in 0..2 {
            if let Some(mut seen) = tokens::seen(state, host, context) {
                let has_all = seen.unite(&state.seen[host]);
                context.count(COUNTERS.ranges_forgotten, u64::from(!has_all));
                tokens::set_seen(state, host, seen, context);
            }
        }
        true
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    sequence: u32,
    /// Bytes of payload on the wire; a capture may have fewer.
    len: u32,
}

impl Segment {
    /// Returns the segment of a whole packet.
    fn of(packet: &Packet) -> Option<Segment> {
        let meta = packet.meta();
        if meta.class != PacketClass::Whole || meta.protocol != 6 {
            return None;
        }
        let &[_, _, _, _, a, b, c, d, ..] = packet.transport() else { return None };
        let headers_len = usize::from(meta.payload.saturating_sub(meta.l3));
        let len = packet.flow_len().saturating_sub(headers_len) as u32;
        Some(Segment { sequence: u32::from_be_bytes([a, b, c, d]), len })
    }
}

/// Keeps the tokens of a connection in use.
fn refresh(state: &mut State, context: &mut Context<'_>) {
    let now_s = (context.now_ns() / 1_000_000_000) as u32;
    if now_s.wrapping_sub(state.used_s) >= REFRESH_S
        && let Some(version) = state.version()
    {
        state.used_s = now_s;
        tokens::remember(state.keys, version, context);
    }
}

/// Notes the mapping that a packet carries. Returns false if the sub-flow continues without
/// mappings.
fn note_mapping(packet: &Packet, direction: usize, state: &mut State) -> bool {
    let key = state.keys[state.host(direction)];
    let version = state.version();
    let bytes = &mut state.directions[direction];
    for option in packet.mptcp_options() {
        match option {
            Repr::DataSequence(DataSequenceSignal { mapping: Some(mapping), data_fin, .. }) => {
                if mapping.len == 0 {
                    return false; // The rest of the sub-flow is mapped (RFC 8684 3.7).
                }
                let len = u32::from(mapping.len) - u32::from(data_fin);
                bytes.map(mapping.subflow, mapping.data.low(), len);
            }
            Repr::Capable(MptcpCapable { keys: CapableKeys::Both { data: Some((len, _)), .. }, .. }) => {
                let initial = version.map_or(0, |version| version.initial_data_number(key));
                bytes.map(1, (initial as u32).wrapping_add(1), len.into());
            }
            _ => {}
        }
    }
    true
}

impl Mptcp {
    /// Counts the data of a segment that was seen before, and remembers the rest.
    fn inspect(
        &self,
        packet: &Packet,
        segment: &Segment,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        let direction = usize::from(context.direction() != Direction::Original);
        if !note_mapping(packet, direction, state) {
            context.count(COUNTERS.subflows_fallen_back, 1);
            state.set_phase(Phase::Other);
            return Verdict::Forward;
        }
        let len = segment.len;
        if len == 0 {
            return Verdict::Forward;
        }
        context.count(COUNTERS.bytes, len.into());
        let host = state.host(direction);
        let Some(mut seen) = tokens::seen(state, host, context) else {
            context.count(COUNTERS.bytes_untracked, len.into());
            return Verdict::Forward;
        };
        let bytes = &mut state.directions[direction];
        let position = segment.sequence.wrapping_sub(bytes.first);
        // Only bytes that are new to the sub-flow can be duplicates of another one's: a
        // retransmission after a loss, or after a drop here, must pass.
        let repeated_len = bytes.carry(position, len);
        let new = bytes.data_of(position.wrapping_add(repeated_len), len - repeated_len);
        let duplicate_len = new.map_or(0, |data| seen.count(data.number, data.len));
        let mapped_len = match bytes.data_of(position, len) {
            Some(data) => {
                let has_all = seen.add(data.number, data.len);
                context.count(COUNTERS.ranges_forgotten, u64::from(!has_all));
                data.len
            }
            None => 0,
        };
        context.count(COUNTERS.bytes_retransmitted, repeated_len.into());
        context.count(COUNTERS.bytes_unmapped, (len - mapped_len).into());
        context.count(COUNTERS.bytes_duplicate, duplicate_len.into());
        tokens::set_seen(state, host, seen, context);
        if self.is_grouped {
            state.seen[host] = seen;
        }
        if duplicate_len == len { self.act(packet, context) } else { Verdict::Forward }
    }

    /// Handles a packet that repeats data of another sub-flow.
    fn act(&self, packet: &Packet, context: &mut Context<'_>) -> Verdict {
        context.count(COUNTERS.packets_duplicate, 1);
        let is_last = packet.meta().tcp_flags & (FIN | RST) != 0;
        match self.duplicates {
            DuplicateAction::Drop if !is_last => return Verdict::Drop(DropReason::MptcpDuplicate),
            DuplicateAction::Pass => {}
            DuplicateAction::Mark | DuplicateAction::Drop => context.tag_packet(DUPLICATE, 1),
        }
        Verdict::Forward
    }
}
