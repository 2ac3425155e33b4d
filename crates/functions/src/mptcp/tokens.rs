//! The connections that flows share: their tokens with the keys, and the data that was seen.

use nf::{Context, MeterKey};
use packet::mptcp::MptcpVersion;

use super::seen::{SEEN_PARTS, SeenRanges};
use super::state::State;

/// Idle time after which a connection may be forgotten for another one: twice as long as Linux
/// keeps a connection without sub-flows.
pub const CONNECTION_IDLE_NS: u64 = 120_000_000_000;

/// Meters of a connection, in either table.
pub(super) const TOKENS_PER_CONNECTION: u32 = 2;
pub(super) const PARTS_PER_CONNECTION: u32 = 2 * SEEN_PARTS as u32;

/// The tables of meters.
const TOKENS: usize = 0;
const DATA: usize = 1;

/// Flags of a token's meter.
const IS_KNOWN: u64 = 1;
const IS_VERSION_1: u64 = 2;
const IS_OF_BEGINNER: u64 = 4;

/// A connection found by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownConnection {
    pub version: MptcpVersion,
    /// Keys of the host that began it, and of the other one.
    pub keys: [u64; 2],
    /// The token is of the host that began it.
    pub is_of_beginner: bool,
}

/// Remembers both tokens of a connection. Returns false if there is no room.
pub(super) fn remember(keys: [u64; 2], version: MptcpVersion, context: &mut Context<'_>) -> bool {
    let flags = IS_KNOWN | if version == MptcpVersion::V1 { IS_VERSION_1 } else { 0 };
    let mut store = |owner: usize, flags: u64| {
        let key = token_key(version.token(keys[owner]), context);
        let now_ns = context.now_ns();
        let meter = context.meters(TOKENS).of(&key, now_ns, CONNECTION_IDLE_NS);
        meter.map(|meter| *meter = [keys[0], keys[1], flags]).is_some()
    };
    store(0, flags | IS_OF_BEGINNER) & store(1, flags)
}

/// Returns the connection of a token.
pub(super) fn find(token: u32, context: &mut Context<'_>) -> Option<KnownConnection> {
    let key = token_key(token, context);
    let &[first, second, flags] = context.meters(TOKENS).get(&key)?;
    (flags & IS_KNOWN != 0).then_some(KnownConnection {
        version: if flags & IS_VERSION_1 != 0 { MptcpVersion::V1 } else { MptcpVersion::V0 },
        keys: [first, second],
        is_of_beginner: flags & IS_OF_BEGINNER != 0,
    })
}

/// Returns the data of a connection that was seen from this host; `None` if there is no room.
pub(super) fn seen(state: &State, host: usize, context: &mut Context<'_>) -> Option<SeenRanges> {
    let mut parts = [[0; 3]; SEEN_PARTS];
    for (number, part) in parts.iter_mut().enumerate() {
        let key = data_key(state, host, number, context);
        let now_ns = context.now_ns();
        *part = *context.meters(DATA).of(&key, now_ns, CONNECTION_IDLE_NS)?;
    }
    Some(SeenRanges::of_parts(parts))
}

/// Stores the ranges that [`seen`] returned, with later additions.
pub(super) fn set_seen(state: &State, host: usize, seen: SeenRanges, context: &mut Context<'_>) {
    for (number, part) in seen.parts().into_iter().enumerate() {
        let key = data_key(state, host, number, context);
        let now_ns = context.now_ns();
        if let Some(meter) = context.meters(DATA).of(&key, now_ns, CONNECTION_IDLE_NS) {
            *meter = part;
        }
    }
}

/// Returns the key of a token in its tenant. Sub-flows of a connection may be in different VLANs
/// and networks, but not in different tenants.
fn token_key(token: u32, context: &Context<'_>) -> MeterKey {
    [token.into(), tenant(context), 0, 0]
}

fn data_key(state: &State, host: usize, part: usize, context: &Context<'_>) -> MeterKey {
    let [first, second] = state.keys;
    [first, second, tenant(context), (host * SEEN_PARTS + part) as u64]
}

fn tenant(context: &Context<'_>) -> u64 {
    context.flow().key.tenant().into()
}
