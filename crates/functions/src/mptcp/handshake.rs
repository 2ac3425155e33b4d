//! The handshakes of sub-flows: of a connection's first (RFC 8684 3.1) and of joining ones (3.2).

use nf::Context;
use packet::wire::mptcp::{CapableKeys, MptcpCapable, MptcpJoin, Repr};
use packet::{Direction, Packet};

use super::state::{DirectionState, Phase, State};
use super::{ACK, COUNTERS, SUBFLOW, SYN, SYN_ACK, Segment, tokens};

/// Follows the handshake of a connection's first or joining sub-flow.
#[inline(never)]
pub(super) fn follow(packet: &Packet, segment: &Segment, state: &mut State, context: &mut Context<'_>) {
    let is_original = context.direction() == Direction::Original;
    match (packet.meta().tcp_flags & (SYN | ACK), state.phase()) {
        (SYN, _) if is_original => begin(packet, segment, state, context),
        (SYN_ACK, Phase::Begins | Phase::Joins) if !is_original => accept(packet, segment, state, context),
        (ACK, Phase::Begins | Phase::Accepted) if is_original => complete(packet, state, context),
        _ => {}
    }
}

/// Handles a SYN that begins or joins a connection.
fn begin(packet: &Packet, segment: &Segment, state: &mut State, context: &mut Context<'_>) {
    let is_repeated = state.phase() != Phase::Other && state.directions[0].first == segment.sequence;
    if is_repeated {
        return;
    }
    *state = State::default();
    context.tag_flow(SUBFLOW, 0);
    state.directions[0] = DirectionState::after_syn(segment.sequence);
    for option in packet.mptcp_options() {
        match option {
            Repr::Capable(MptcpCapable { uses_hmac: true, .. }) => state.set_phase(Phase::Begins),
            Repr::Join(MptcpJoin::Syn { token, nonce, .. }) => match tokens::find(token, context) {
                Some(connection) => {
                    state.set_phase(Phase::Joins);
                    state.set_version(connection.version as u8);
                    state.set_flipped(connection.is_of_beginner);
                    (state.keys, state.nonces[0]) = (connection.keys, nonce);
                }
                None => context.count(COUNTERS.subflows_unknown, 1),
            },
            _ => {}
        }
    }
}

/// Handles the answer of the other host, which accepts the connection or the sub-flow, or falls
/// back to TCP.
fn accept(packet: &Packet, segment: &Segment, state: &mut State, context: &mut Context<'_>) {
    let phase = state.phase();
    let is_accepted = packet.mptcp_options().any(|option| match option {
        // Both hosts use its version.
        Repr::Capable(MptcpCapable { version, uses_hmac: true, keys: CapableKeys::Sender(key), .. })
            if phase == Phase::Begins =>
        {
            state.keys[1] = key;
            state.set_version(version)
        }
        Repr::Join(MptcpJoin::SynAck { hmac, nonce, .. }) if phase == Phase::Joins => {
            state.nonces[1] = nonce;
            let ([one, other], [own, others]) = (state.own_keys(), state.nonces);
            let code = state.version().map(|version| version.join_hmac([other, one], [others, own]));
            let is_valid = code.is_some_and(|code| code[..hmac.len()] == hmac);
            context.count(COUNTERS.subflows_invalid, u64::from(!is_valid));
            is_valid
        }
        _ => false,
    });
    state.directions[1] = DirectionState::after_syn(segment.sequence);
    match (is_accepted, phase) {
        (false, _) => state.set_phase(Phase::Other),
        (true, Phase::Joins) => state.set_phase(Phase::Accepted),
        (true, _) => {}
    }
}

/// Handles the packet of the first host that completes the handshake.
fn complete(packet: &Packet, state: &mut State, context: &mut Context<'_>) {
    let Some(version) = state.version() else { return };
    let phase = state.phase();
    for option in packet.mptcp_options() {
        match option {
            Repr::Capable(MptcpCapable { keys: CapableKeys::Both { sender, receiver, .. }, .. })
                if phase == Phase::Begins && receiver == state.keys[1] =>
            {
                state.keys[0] = sender;
                if tokens::remember(state.keys, version, context) {
                    context.count(COUNTERS.connections, 1);
                    is_subflow(state, context);
                } else {
                    context.count(COUNTERS.connections_refused, 1);
                    state.set_phase(Phase::Other);
                }
                return;
            }
            Repr::Join(MptcpJoin::Ack { hmac }) if phase == Phase::Accepted => {
                if version.join_hmac(state.own_keys(), state.nonces) == hmac {
                    context.count(COUNTERS.subflows_joined, 1);
                    is_subflow(state, context);
                } else {
                    context.count(COUNTERS.subflows_invalid, 1);
                    state.set_phase(Phase::Other);
                }
                return;
            }
            _ => {}
        }
    }
}

fn is_subflow(state: &mut State, context: &mut Context<'_>) {
    state.set_phase(Phase::Subflow);
    context.tag_flow(SUBFLOW, 1);
}
